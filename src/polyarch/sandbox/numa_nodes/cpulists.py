"""Sets of CPUs as the kernel and the kubelet write them: ``0-3,8``. Pure."""

from collections.abc import Iterable


def text(cpus: Iterable[int]) -> str:
    """Runs of three or more, and of two, are joined: ``0-1,4``."""
    runs: list[tuple[int, int]] = []
    for cpu in sorted(set(cpus)):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1] = (runs[-1][0], cpu)
        else:
            runs.append((cpu, cpu))
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def parse(text: str) -> frozenset[int]:
    """The CPUs; ValueError for anything else."""
    found: set[int] = set()
    for part in text.split(",") if text else ():
        low, dash, high = part.partition("-")
        first, last = int(low), int(high if dash else low)
        if not 0 <= first <= last:
            raise ValueError(f"{text!r} is not a list of CPUs")
        found.update(range(first, last + 1))
    return frozenset(found)
