"""What MA111 (weights) and MA118 call invalid is what a real API server refuses."""

import json
import os
import re
from collections import Counter
from random import Random
from typing import Any

import pytest

from polyarch.kube.errors import BadRequest, Invalid
from polyarch.kube.resources import PODS
from polyarch.manifests.rules.engine import lint
from polyarch.manifests.scan.pod_specs import mistakes
from polyarch.manifests.scan.scanning import scan
from polyarch.manifests.scan.sets import PLATFORM_KEYS, ImageInspections
from polyarch.manifests.scan.text import SourceText
from polyarch.sandbox.cluster import Sandbox

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
NUMBER = int(os.environ.get("POLYARCH_TEST_PODS", "400"))
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


PLAIN = "plain %s plain"
"""A weight as it stands in the text, without quotes: the API server reads YAML as kubectl does."""
WEIGHTS = ("1", "100", "5.0", "1e1", "0x10", "0o20", "010", "1_0", "+5", "5.", ".5e1", "08", "0b101", "1_0.0", "+.5e1")
WRONG_WEIGHTS = ("0", "101", "1.5", "0x65", "1e3", "_5", ".1_0", "'5'", "'5.0'", "0b2", "0o8", "1:30", "true", "many")


def text_of(document: dict[str, Any]) -> str:
    return re.sub('"plain ([^"]*) plain"', r"\1", json.dumps(document))


def random_spec(random: Random) -> dict[str, Any]:
    """Mostly right, with a mistake here and there."""

    def wrong(right: Any, *others: Any, chance: float = 0.05) -> Any:
        return random.choice(others) if random.random() < chance else right

    def key() -> Any:
        right = random.choice(["pool", "example.org/zone", "a.b/c", *PLATFORM_KEYS, *PLATFORM_KEYS])
        return wrong(right, "bad key", "-x", "a/b/c", "é", "", None, 5, True, ["a"])

    def expression() -> Any:
        operator = wrong(random.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]), "in", "Equals", "", None)
        values: Any = {"In": ["amd64", "linux"], "NotIn": ["arm64"], "Gt": ["1"], "Lt": ["5"]}.get(str(operator))
        values = wrong(values, [], "x", ["1", "2"], [386], [True], ["x"], [None], [["x"]], {}, None)
        found = {"key": key(), "operator": operator, "values": values}
        some = {name: value for name, value in found.items() if value is not None or random.random() < 0.5}
        return wrong(some, None, [], "x", {}, chance=0.02)

    def field() -> Any:
        found = {
            "key": wrong("metadata.name", "metadata.uid", "", None, 5),
            "operator": wrong(random.choice(["In", "NotIn"]), "Exists", "DoesNotExist", "Gt", "in", None),
            "values": wrong(["n"], [], ["a", "b"], [5], "n", None),
        }
        return {name: value for name, value in found.items() if value is not None or random.random() < 0.5}

    def term() -> Any:
        right = {"matchExpressions": [expression() for _ in range(random.randint(1, 2))]}
        if random.random() < 0.1:
            right = wrong(
                {"matchFields": [field()]}, {"matchFields": [field(), field()]}, right | {"matchFields": None}
            )
        return wrong(right, [], "x", None, {}, {"matchExpressions": None}, {"matchExpressions": []}, chance=0.03)

    spec: dict[str, Any] = {"containers": [{"name": "a", "image": "r.example/a:1"}]}
    if random.random() < 0.6:
        value = wrong(random.choice(["web", "amd64"]), 386, True, "a,b", "-", "x y", ["a"], None)
        label = next(each for each in iter(key, 0) if isinstance(each, str))
        spec["nodeSelector"] = wrong({label: value}, [], "x", None, {}, chance=0.03)
    if random.random() < 0.7:
        required = wrong({"nodeSelectorTerms": [term()]}, [{}], "x", None, {"nodeSelectorTerms": [None, term()]})
        node: dict[str, Any] = {REQUIRED: required}
        if random.random() < 0.4:
            weight = PLAIN % random.choice(WRONG_WEIGHTS if random.random() < 0.2 else WEIGHTS)
            node[PREFERRED] = wrong([{"weight": weight, "preference": term()}], None, {}, "x")
        spec["affinity"] = wrong({"nodeAffinity": wrong(node, [], None, chance=0.02)}, [], "x", None, chance=0.02)
    return spec


def has_no_platform(spec: Any) -> bool:
    """Whether an expression in some place of it is ``In`` without values of a platform key (MA104)."""
    if isinstance(spec, dict):
        empty = spec.get("operator") == "In" and spec.get("key") in PLATFORM_KEYS and not spec.get("values")
        return empty or any(map(has_no_platform, spec.values()))
    return isinstance(spec, list) and any(map(has_no_platform, spec))


@pytest.mark.req("MF-020")
async def test_the_api_server_refuses_the_constraints_that_are_called_invalid_and_takes_all_others(
    sandbox: Sandbox,
) -> None:
    """An empty list of architectures or operating systems is MA104: no node satisfies it."""
    random = Random(118)
    told: Counter[str] = Counter()
    inspected = ImageInspections({})
    async with sandbox.client() as client:
        for number in range(NUMBER):
            document = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": f"p{number}"},
                "spec": random_spec(random),
            }
            text = text_of(document).encode()
            found = scan(SourceText.of("web.yaml", text))
            named = [each.what for each in mistakes(found.pod_specs[0])]
            problems = [each.finding for each in lint(found, inspected)]
            named += [f"/ {each.sub}" for each in problems if each.rule == "MA111" and each.sub == "weight"]
            no_terms = any(each.sub == "no-terms" for each in problems)
            refusal: Exception | None = None
            try:
                path = PODS.path("default")
                await client.raw("POST", path, query="dryRun=All", body=text, content_type="application/yaml")
            except (BadRequest, Invalid) as error:
                refusal = error
            if named or no_terms or refusal is None or not has_no_platform(document["spec"]):
                assert (refusal is None) == (named == [] and not no_terms), (refusal, named, document["spec"])
            told.update({"refused" if refusal else "taken", *(what.partition(" ")[2] for what in named)})
            keys = [key for key in PLATFORM_KEYS if f'"{key}"' in json.dumps(document)]
            told.update(f"{'refused' if refusal else 'taken'} with {key}" for key in keys)
    assert min(told["refused"], told["taken"]) > NUMBER / 5, told
    assert told["weight"], told
    assert all(told[f"{what} with {key}"] for what in ("refused", "taken") for key in PLATFORM_KEYS), told
