"""What a NodePool says of its nodes against Karpenter's own packages, linked into a Go program
(``tools/peers/autoscalers``): random pools, valid and not, go through both."""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from polyarch.kube.patches import apply_patch
from polyarch.kube.resources import Resource
from polyarch.taints.node_templates import lacking, unsaid
from polyarch.taints.settings import TaintSettings

CASES = 3_000
ARCHITECTURES = ("amd64", "arm64", "s390x", "ppc64le")
OFFERED = ("amd64", "arm64")
NODE_POOLS = Resource("karpenter.sh", "v1", "nodepools", "NodePool", namespaced=False)
EVERY = TaintSettings.of({"nodes": {"operatingSystems": ["linux", "windows"]}, "mode": "secondary-only"})
Json = dict[str, Any]

KEYS = (
    *("kubernetes.io/arch",) * 8,
    *("beta.kubernetes.io/arch",) * 2,
    *("kubernetes.io/os",) * 3,
    "beta.kubernetes.io/os",
    "karpenter.sh/capacity-type",
    "example.com/cores",
    "node.kubernetes.io/instance-type",
)
OPERATORS = (*("In",) * 6, *("NotIn",) * 3, "Exists", "DoesNotExist", "Gt", "Lt", "Gte", "Lte", "Near", "in", "")
VALUES = {
    "arch": (*ARCHITECTURES, "amd64", "arm64", "arm64", "aarch64", "x86_64", "ARM64", "5", "", "a b"),
    "os": ("linux", "linux", "windows", "Linux", "darwin", "3"),
    "capacity-type": ("spot", "on-demand"),
    "cores": ("4", "8", "-1", "+5", "many", "007"),
    "instance-type": ("m7g.large", "m7i.large"),
}
TAINTS = (
    {"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"},
    {"key": "supported-arch", "value": "aarch64", "effect": "NoSchedule"},
    {"key": "supported-arch", "value": "arm64", "effect": "NoExecute"},
    {"key": "supported-arch", "value": "team", "effect": "NoSchedule"},
    {"key": "gpu", "effect": "NoSchedule"},
    {"effect": "NoSchedule"},
)


def requirement(chance: random.Random) -> Any:
    key = chance.choice(KEYS)
    values = VALUES[key.rpartition("/")[2]]
    operator = chance.choice(OPERATORS)
    number = 0 if "xist" in operator and chance.random() < 0.9 else chance.choice((0, 1, 1, 1, 2, 2, 3))
    found: Json = {"key": key, "operator": operator, "values": [chance.choice(values) for _ in range(number)]}
    if not number and chance.random() < 0.5:
        del found["values"]
    if chance.random() < 0.02:
        del found[chance.choice(sorted(found))]
    return found


def node_pool(chance: random.Random) -> Json:
    labels = {}
    if chance.random() < 0.15:
        labels["kubernetes.io/arch"] = chance.choice(("arm64", "amd64", "aarch64"))
    if chance.random() < 0.05:
        labels["kubernetes.io/os"] = chance.choice(("linux", "windows"))
    spec: Json = {"requirements": [requirement(chance) for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3)))]}
    for name in ("taints", "startupTaints"):
        if chance.random() < 0.25:
            spec[name] = [dict(chance.choice(TAINTS)) for _ in range(chance.choice((1, 1, 2)))]
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "p"},
        "spec": {"template": template},
    }


def asked(program: str, pools: list[Json]) -> list[Json]:
    questions = [{"pool": each, "architectures": ARCHITECTURES, "systems": ["linux", "windows"]} for each in pools]
    lines = "".join(f"{json.dumps(each)}\n" for each in questions)
    answered = subprocess.run([program], input=lines, capture_output=True, text=True, timeout=240, check=False)
    assert answered.returncode == 0, answered.stderr
    return [json.loads(line) for line in answered.stdout.splitlines()]


@pytest.mark.req("TN-028")
def test_a_pool_makes_the_nodes_that_karpenter_says_and_its_patch_is_one_that_karpenter_takes(
    peer: Callable[[str], str],
) -> None:
    chance = random.Random(28)
    program = peer("karpenter-pools")
    pools = [node_pool(chance) for _ in range(CASES)]
    kinds: Counter[str] = Counter()
    patched: list[Json] = []
    for pool, told in zip(pools, asked(program, pools), strict=True):
        found, why = lacking(NODE_POOLS, pool, EVERY), unsaid(NODE_POOLS, pool)
        context = json.dumps([pool, told, why])
        if why:
            assert told["refused"], f"Karpenter takes what is called not understood: {context}"
            kinds["not understood"] += 1
            continue
        if told["refused"]:
            kinds["refused"] += 1
            continue
        requirements = pool["spec"]["template"]["spec"]["requirements"]
        spoken = {value for each in requirements if each.get("operator") == "In" for value in each.get("values", ())}
        spoken |= set(pool["spec"]["template"]["metadata"]["labels"].values())
        platforms = [each.split("/") for each in told["platforms"]]
        possible = {arch for _, arch in platforms if arch in OFFERED or arch in spoken}
        if any(each["key"].endswith("/os") for each in requirements) and not platforms:
            kinds["no system"] += 1
            continue
        if found is None:
            carries = TAINTS[0] in pool["spec"]["template"]["spec"].get("taints", ())
            assert possible == {"amd64"} or carries, context
            kinds["well"] += 1
        else:
            assert set(found.architectures) == possible, context
            kinds["none" if not possible else "several" if len(possible) > 1 else "one"] += 1
        if found is not None and found.patch:
            patched.append(apply_patch(pool, found.patch))
    assert kinds.keys() == {"not understood", "refused", "no system", "well", "none", "several", "one"}, kinds
    assert len(patched) > CASES / 50
    for pool, told in zip(patched, asked(program, patched), strict=True):
        assert not told["refused"], (pool, told)
        assert lacking(NODE_POOLS, pool, EVERY) is None, pool
