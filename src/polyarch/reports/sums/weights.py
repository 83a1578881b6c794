"""How much workloads weigh: what their desired replicas request together (RP-010).

Sums are of whole thousandths, so that their order does not matter; they become decimal numbers in the document only.
Shares are of requested CPU; of replicas where nobody requests any, since a share of nothing helps nobody. Pure.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from polyarch.quantity import UNIT
from polyarch.reports.document import Basis, Weight
from polyarch.reports.facts.cluster import WorkloadFact
from polyarch.reports.judging.verdicts import Judged

DIGITS: Final = 4
"""Decimals of a share."""


class Load(msgspec.Struct, frozen=True, gc=False):
    """CPU and memory in thousandths, desired replicas, and pods that exist."""

    cpu: int = 0
    memory: int = 0
    replicas: int = 0
    pods: int = 0

    def __add__(self, other: "Load") -> "Load":
        return Load(
            self.cpu + other.cpu, self.memory + other.memory, self.replicas + other.replicas, self.pods + other.pods
        )

    @property
    def document(self) -> Weight:
        return Weight(cores(self.cpu), self.memory // UNIT, self.replicas, self.pods)

    def by(self, basis: Basis) -> int:
        """The number that shares are of."""
        return self.cpu if basis == "cores" else self.replicas


NOTHING: Final = Load()


def load_of(workload: WorkloadFact) -> Load:
    """Of all its replicas."""
    asked, replicas = workload.requests, workload.replicas
    return Load(asked.cpu * replicas, asked.memory * replicas, replicas, len(workload.pods))


def total(judged: Iterable[Judged]) -> Load:
    """Of several workloads together."""
    cpu = memory = replicas = pods = 0
    for each in judged:
        load = load_of(each.workload)
        cpu, memory = cpu + load.cpu, memory + load.memory
        replicas, pods = replicas + load.replicas, pods + load.pods
    return Load(cpu, memory, replicas, pods)


def basis_of(judged: Iterable[Judged]) -> Basis:
    """What shares are of."""
    return "cores" if total(judged).cpu else "replicas"


def share(part: int, whole: int) -> float | None:
    """From 0 to 1, rounded down: what is not all of it is not 1. None of nothing."""
    steps = 10**DIGITS
    return part * steps // whole / steps if whole else None


def cores(thousandths: int) -> float:
    """As documents have it."""
    return thousandths / UNIT
