"""The fingerprint of a set of pods, by which a scheduler knows which pods an object accounts for (NE-080 – NE-083).

Byte-exact, since schedulers of others compare it: names in, a short text out, whatever the order. Pure.
"""

from collections.abc import Collection, Iterable
from struct import pack
from typing import Final, Literal

from polyarch.numa.decide.facts import ListedPod
from polyarch.numa.decide.xxh64 import Digest, xxh64

PREFIX: Final = "pfp0"
VERSION: Final = "v001"
SHORTEST: Final = 16
"""Characters of the shortest text that can be a fingerprint of any version."""

PodName = tuple[str, str]
"""Namespace and name."""
Verdict = Literal["ok", "malformed", "incompatible-version", "mismatch"]


def fingerprint(pods: Iterable[PodName], *, digest: Digest = xxh64) -> str:
    """Of these pods, in any order; a pod listed twice counts twice (NE-080)."""
    seeds: dict[str, int] = {}
    hashes = []
    for namespace, name in pods:
        seed = seeds.get(namespace)
        if seed is None:
            seed = seeds[namespace] = digest(_bytes(namespace), 0)
        hashes.append(digest(_bytes(name), seed))
    return of_hashes(hashes, digest=digest)


def pod_hash(pod: PodName, *, digest: Digest = xxh64) -> int:
    """What a pod adds to a fingerprint: for whoever tries many sets of the same pods."""
    namespace, name = pod
    return digest(_bytes(name), digest(_bytes(namespace), 0))


def of_hashes(hashes: Collection[int], *, digest: Digest = xxh64) -> str:
    """The fingerprint of the pods with these hashes, in any order."""
    return f"{PREFIX}{VERSION}{digest(pack(f'<{len(hashes)}Q', *sorted(hashes)), 0):016x}"


def check(text: str, pods: Iterable[PodName]) -> Verdict:
    """Whether a published fingerprint is that of these pods (NE-082)."""
    if len(text) < SHORTEST or not text.startswith(PREFIX):
        return "malformed"
    if text[len(PREFIX) : len(PREFIX) + len(VERSION)] != VERSION:
        return "incompatible-version"
    return "ok" if text == fingerprint(pods) else "mismatch"


def has_exclusive_resources(pod: ListedPod) -> bool:
    """A container holds a CPU, or memory or a device of a cell: what ``with-exclusive-resources`` counts (NE-083).

    The quality of service is not asked for: what the kubelet lists is what counts (NE-066).
    """
    return any(
        each.cpus
        or any(_on_a_cell(block.cells) for block in each.memory)
        or any(devices.ids and _on_a_cell(devices.cells) for devices in each.devices)
        for each in pod.containers
    )


def _on_a_cell(cells: Iterable[int]) -> bool:
    return any(cell >= 0 for cell in cells)


def _bytes(text: str) -> bytes:
    # Names of an API server are ASCII; a text of a file may be anything, and must not be an error.
    return text.encode("utf-8", "surrogatepass")
