"""What MA118 calls invalid is what a real API server refuses."""

import json
from random import Random
from typing import Any

import pytest

from polyarch.kube.errors import BadRequest, Invalid
from polyarch.kube.resources import PODS
from polyarch.manifests.scan.pod_specs import mistakes
from polyarch.manifests.scan.scanning import scan
from polyarch.manifests.scan.text import SourceText
from polyarch.sandbox.cluster import Sandbox

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def random_spec(random: Random) -> dict[str, Any]:
    """Mostly right, with a mistake here and there."""

    def wrong(right: Any, *others: Any, chance: float = 0.06) -> Any:
        return random.choice(others) if random.random() < chance else right

    def key() -> Any:
        return wrong(random.choice(["pool", "example.org/zone", "a.b/c"]), "bad key", "-x", "a/b/c", "é")

    def expression() -> Any:
        operator = wrong(random.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]), "in", "Equals", "")
        values: Any = {"In": ["x", "y"], "NotIn": ["x"], "Gt": ["1"], "Lt": ["5"]}.get(operator)
        values = wrong(values, [], "x", ["1", "2"], [386], [True], ["x"], None)
        found = {"key": key(), "operator": operator}
        return found if values is None else found | {"values": values}

    def term() -> Any:
        return wrong({"matchExpressions": [expression() for _ in range(random.randint(1, 2))]}, [], "x", chance=0.02)

    spec: dict[str, Any] = {"containers": [{"name": "a", "image": "r.example/a:1"}]}
    if random.random() < 0.6:
        value = wrong("web", 386, True, "a,b", "-", "x y", ["a"])
        spec["nodeSelector"] = wrong({key(): value}, [], "x", chance=0.03)
    if random.random() < 0.7:
        node: dict[str, Any] = {REQUIRED: wrong({"nodeSelectorTerms": [term()]}, [{}], "x", chance=0.03)}
        if random.random() < 0.4:
            node[PREFERRED] = [{"weight": 1, "preference": term()}]
        spec["affinity"] = wrong({"nodeAffinity": wrong(node, [], chance=0.02)}, [], "x", chance=0.02)
    return spec


@pytest.mark.req("MF-020")
async def test_the_api_server_refuses_the_constraints_that_are_called_invalid_and_takes_all_others(
    sandbox: Sandbox,
) -> None:
    random = Random(118)
    refused = 0
    async with sandbox.client() as client:
        for number in range(300):
            document = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}"},
                "spec": random_spec(random),
            }
            (pod_spec,) = scan(SourceText.of("web.json", json.dumps(document).encode())).pod_specs
            named = [each.what for each in mistakes(pod_spec)]
            refusal: Exception | None = None
            try:
                await client.create(PODS, document, namespace="default", dry_run=True)
            except (BadRequest, Invalid) as error:
                refusal = error
                refused += 1
            assert (refusal is None) == (named == []), (refusal, named, document["spec"])
    assert 50 < refused < 250
