"""Which nodes pull an image, against the packages with which runtimes decide it: containerd's matcher and the chooser
of containers/image, which CRI-O has (``tools/peers/runtimes``). Random indexes go through both and through us."""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from polyarch.images.pod_images import ImageUse, common_platforms, image_facts
from polyarch.oci.image.parsing import flatten, read_index
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import parse
from polyarch.platforms import NODE_SYSTEMS, NodePlatform, NodeRuntimes, Platform

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


def taken(index: dict[str, Any], node: str, runtimes: NodeRuntimes) -> bool:
    """Whether placement takes the image for nodes of this architecture that have these runtimes."""
    entries = flatten(read_index(index), {}).entries
    use = ImageUse(text="app", reference=parse("app"))
    answer = Inspection(parse("app"), Status.RESOLVED, kind="index", entries=entries)
    (image,) = image_facts((use,), {"app": answer}, final=True, stale_for=0.0)
    return NodePlatform("linux", node) in common_platforms([image.on(runtimes)])


UNUSUAL = "no runtime takes an entry by itself: left to nodes that are told to"
LEGACY_LAST = "32-bit ARM counts on arm64 only where nothing else is left"
SPELLED_TWICE = "of two spellings of one platform the first entry counts"
ARM_VARIANT = "which variant of 32-bit ARM a node has is not known"
ALLOWED = {
    ("containerd", UNUSUAL): 0.03,
    ("containerd", LEGACY_LAST): 0.03,
    ("containerd", ARM_VARIANT): 0.01,
    ("crio", UNUSUAL): 0.03,
    ("crio", SPELLED_TWICE): 0.002,
}
"""In how many of the cases we may differ from a runtime, and why that is meant."""


def why_different(index: dict[str, Any], node: str, runtime: str, *, ours: bool) -> str:
    """Why we differ from a runtime, where that is meant; empty if it is not."""
    platforms = [entry.platform for entry in flatten(read_index(index), {}).entries]
    runnable = [each for each in platforms if each.os in NODE_SYSTEMS and not each.is_wasm]
    arm = [each for each in runnable if each.os == "linux" and each.architecture == "arm"]
    if ours and not any(each.is_usual for each in runnable) and any(each.architecture == node for each in runnable):
        return UNUSUAL
    if not ours and (runtime, node) == ("containerd", "arm64") and arm and len(arm) < len(runnable):
        return LEGACY_LAST
    listed = [Platform.of(**each["platform"]) for each in index["manifests"]]
    if not ours and runtime == "crio" and any(listed.count(each) > 1 for each in runnable if each.architecture == node):
        return SPELLED_TWICE
    if ours and node == "arm" and arm and all(each.variant == "v8" for each in arm if each.is_usual):
        return ARM_VARIANT
    return ""


@pytest.mark.req("PL-219")
def test_nodes_are_those_whose_runtime_pulls_the_image(peer: Callable[[str], str]) -> None:
    chance = random.Random(7)
    cases = [(_index(chance), node) for _ in range(CASES) for node in NODES]
    answers = asked(peer("image-runtimes"), ({"index": index, "architecture": node} for index, node in cases))
    told: Counter[tuple[str, str]] = Counter()
    wrong = []
    for (index, node), answer in zip(cases, answers, strict=True):
        assert not answer.get("error"), answer
        only_crio = NodeRuntimes.of([(NodePlatform("linux", node), "cri-o://1.34.0")])
        for runtime, runtimes in (("containerd", NodeRuntimes.of([])), ("crio", only_crio)):
            ours, theirs = taken(index, node, runtimes), bool(answer[runtime])
            why = "" if ours == theirs else why_different(index, node, runtime, ours=ours)
            if ours != theirs and not why:
                wrong.append((runtime, node, ours, index["manifests"]))
            told[runtime, why or ("runs" if ours else "does not run")] += 1
        told["both", "differ" if bool(answer["containerd"]) != bool(answer["crio"]) else "agree"] += 1
    assert wrong == []
    for case, share in ALLOWED.items():
        assert 0 < told[case] < len(cases) * share, (case, told)
    for runtime in ("containerd", "crio"):
        assert min(told[runtime, "runs"], told[runtime, "does not run"]) > len(cases) / 20, told
    assert told["both", "differ"] > len(cases) / 50, "containerd and CRI-O are told apart"
