"""Which nodes pull an image, against the packages with which runtimes decide it: containerd's matcher and the chooser
of containers/image, which CRI-O has (``tools/peers/runtimes``). Random indexes go through both and through us."""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from polyarch.oci.image.parsing import flatten, read_index
from polyarch.platforms import LEGACY, NODE_SYSTEMS, NodePlatform, PlatformSet, node_platforms, shared_platforms

pytestmark = pytest.mark.req("RG-022")

CASES = 1_500
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
NODES = ("amd64", "arm64", "arm", "386", "ppc64le", "s390x", "riscv64")
ARCHITECTURES = (*NODES, "amd64", "arm64", "386", "arm", "x86_64", "aarch64", "i386", "wasm")
VARIANTS = ("", "", "", "v1", "v2", "v3", "v5", "v6", "v7", "v8", "v9", "8")
SYSTEMS = ("linux",) * 8 + ("windows", "darwin", "wasi")


def _index(chance: random.Random) -> dict[str, Any]:
    manifests = []
    for at in range(chance.choice((1, 1, 2, 2, 3, 4, 6))):
        platform = {"os": chance.choice(SYSTEMS), "architecture": chance.choice(ARCHITECTURES)}
        if variant := chance.choice(VARIANTS):
            platform["variant"] = variant
        manifests.append({"mediaType": MANIFEST, "digest": f"sha256:{at:064x}", "size": 1, "platform": platform})
    return {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": manifests,
    }


def asked(peer: str, questions: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    lines = "".join(f"{json.dumps(each)}\n" for each in questions)
    answered = subprocess.run([peer], input=lines, capture_output=True, text=True, timeout=300, check=False)
    assert answered.returncode == 0, answered.stderr
    return [json.loads(line) for line in answered.stdout.splitlines()]


def known_difference(index: dict[str, Any], node: str, theirs: str, *, ours: bool) -> str:
    """Why we differ from containerd, where that is meant; empty if it is not."""
    platforms = [entry.platform for entry in flatten(read_index(index), {}).entries]
    runnable = [each for each in platforms if each.os in NODE_SYSTEMS and not each.is_wasm]
    if ours and not theirs and not any(each.is_usual for each in runnable):
        return "an image that no runtime takes by itself is left to nodes that are told to"
    if theirs and not ours and node in LEGACY:
        return "32-bit ARM counts only where nothing else is left"
    if ours and not theirs and node == "arm":
        return "variants of nodes of 32-bit ARM are not known"
    return ""


def test_nodes_are_those_whose_containerd_pulls_the_image(peer: Callable[[str], str]) -> None:
    chance = random.Random(7)
    cases = [(_index(chance), node) for _ in range(CASES) for node in NODES]
    answers = asked(peer("image-runtimes"), ({"index": index, "architecture": node} for index, node in cases))
    told: Counter[str] = Counter()
    disagree = 0
    for (index, node), answer in zip(cases, answers, strict=True):
        assert not answer.get("error"), answer
        entries = flatten(read_index(index), {}).entries
        platforms = shared_platforms([PlatformSet.of(node_platforms(each.platform for each in entries))])
        ours = NodePlatform("linux", node) in platforms
        if ours == bool(answer["containerd"]):
            told["runs" if ours else "does not run"] += 1
        else:
            why = known_difference(index, node, answer["containerd"], ours=ours)
            assert why, (index, node, answer)
            told[why] += 1
        disagree += bool(answer["containerd"]) != bool(answer["crio"])
    assert min(told["runs"], told["does not run"]) > len(cases) / 20, told
    assert disagree > len(cases) / 50, "containerd and CRI-O are told apart"
