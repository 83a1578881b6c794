"""The best of the nodes that fit (NS-082). Pure.

Equal nodes are told apart by a hash of their names that each pod seeds anew: a scheduler chooses the same node for a
pod after a restart, and pods of one workload go to different ones.
"""

from collections.abc import Sequence
from heapq import nsmallest

from polyarch.numa.decide.xxh64 import xxh64


def best(names: Sequence[str], scores: Sequence[int], *, uid: str, count: int) -> list[str]:
    """At most ``count`` names, the best first; a score below 0 is none. Only names of equal score are hashed."""
    seed = xxh64(uid.encode(), 0)
    chosen: list[str] = []
    for score in sorted({each for each in scores if each >= 0}, reverse=True):
        if len(chosen) >= count:
            break
        equal = [name for name, each in zip(names, scores, strict=True) if each == score]
        if len(equal) > 1:
            hashes = [xxh64(name.encode(), seed) for name in equal]
            equal = [name for _, name in nsmallest(count - len(chosen), zip(hashes, equal, strict=True))]
        chosen += equal
    return chosen
