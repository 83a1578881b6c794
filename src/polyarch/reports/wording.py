"""Numbers and words as people read them, in every form of a report: few digits, and no share more than there is.

Pure.
"""

import math
from collections.abc import Sequence
from typing import Final

from polyarch.quantity import ABBREVIATED, abbreviated
from polyarch.reports.document import Basis, Saving, Verdict, Weight

NOTHING: Final = "-"
NOT_COMPARED: Final = "it asks about no target of this report, so there is nothing to compare"
"""Of a former report."""

MEANINGS: Final = {
    Verdict.RUNS: "runs there now, and nothing is in the way of the next pods",
    Verdict.READY: "could run there today",
    Verdict.CONSTRAINED: "its images support it, something else excludes it",
    Verdict.IMAGE: "an image lacks it",
    Verdict.UNKNOWN: "nobody could be asked about an image",
    Verdict.EXCLUDED: "opted out or of the system: only counted",
}
_BINARY: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def lacks(image: str, has: str, target: str) -> str:
    """What is wrong with an image that has other platforms; ``target`` may be several, in words."""
    return f"{image} has {has}, not {target}"


def excludes(target: str, value: str) -> str:
    """What is in the way of a pod with this required affinity; ``target`` may be several, in words."""
    return f"its required affinity excludes {target}: {value}"


def percent(share: float | None) -> str:
    """``62.5 %`` of a share from 0 to 1, rounded down (99.96 % is not 100 %); a dash if there is none."""
    if share is None:
        return NOTHING
    # Rounded far behind the point first: as floats, some whole numbers of tenths are a little less than they are.
    return f"{math.floor(round(share * 1000, 6)) / 10:.1f} %"


def cores(amount: float) -> str:
    """``12``, ``0.25``, ``1234.5``: what is below 10 with two digits after the point, more with one; ``9.2P``."""
    if abs(amount) >= ABBREVIATED:
        return f"{'-' if amount < 0 else ''}{abbreviated(abs(amount))}"
    digits = 2 if abs(amount) < 10 else 1
    text = f"{amount:.{digits}f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def memory(amount: int) -> str:
    """``1.5 GiB``."""
    step = 0
    while amount >= 1024 ** (step + 1) and step + 1 < len(_BINARY):
        step += 1
    return f"{math.floor(amount * 10 / 1024**step) / 10:g} {_BINARY[step]}"


def counted(count: int, one: str, many: str = "") -> str:
    """``1 image``, ``2 images``."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def few(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many more there are."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def amount(weight: Weight, basis: Basis) -> float:
    return weight.cores if basis == "cores" else weight.replicas


def amount_words(of: float, basis: Basis) -> str:
    """``1 core``, ``0.25 cores``, ``2 replicas``."""
    if basis == "replicas":
        return counted(round(of), "replica")
    number = cores(of)
    return f"{number} core" if number == "1" else f"{number} cores"


def saved(saving: Saving) -> str:
    """What moving would save or cost, and how that is calculated."""
    if not saving.cores:
        return saving.formula
    does = "save" if saving.per_month >= 0 else "cost"
    about = f"{abs(saving.per_month):,.2f} a month"
    moved = amount_words(saving.cores, "cores")
    are = "is" if moved == "1 core" else "are"
    return f"moving {moved} that {are} ready would {does} about {about} (an estimate: {saving.formula})"


def steps(most: int, about: int) -> list[int]:
    """Whole numbers for an axis from 0 to ``most``, some ``about`` of them, at 1, 2 or 5 times a power of ten."""
    rough = max(most / max(about, 1), 1)
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough)
    return list(range(0, most + 1, step))
