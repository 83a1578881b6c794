"""What the options of ``polyarch report`` mean: targets, prices, limits (RP-014, RP-023)."""

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from polyarch.cli.errors import UsageError
from polyarch.oci.reference import InvalidReference, parse
from polyarch.platforms import InvalidPlatform, NodePlatform, Platform
from polyarch.reports.document import Report, Verdict
from polyarch.reports.facts import target_name
from polyarch.reports.wording import counted, percent


def targets_from(given: Sequence[str]) -> tuple[NodePlatform, ...]:
    """Comma-separated and repeated, each once; none: those of the nodes, and arm64."""
    return tuple(dict.fromkeys(_platform("--target", text) for text in _split(given)))


def prices_of(given: Sequence[str]) -> dict[str, float]:
    """By target, as reports spell it."""
    prices = {}
    for text in _split(given):
        target, _, price = text.partition("=")
        name = target_name(_platform("--price", target))
        try:
            prices[name] = float(price)
        except ValueError:
            prices[name] = math.nan
        if not 0 <= prices[name] < math.inf:
            raise UsageError(f"--price {text}: expected TARGET=PRICE with a number, 0 or more, such as arm64=0.0336")
    return prices


def substitutes_from(path: str | None) -> dict[str, str]:
    """Image to the equal image of another repository, as references of both (RP-012)."""
    if path is None:
        return {}
    from polyarch.cli.input.yaml_files import StrictLoader, load_yaml

    expected = "a YAML file that maps images to images"
    data = load_yaml("--substitutes", path, expected=expected, loader=StrictLoader)
    found = data.get("substitutes", data) if isinstance(data, dict) else data
    if not isinstance(found, dict) or not all(isinstance(each, str) for pair in found.items() for each in pair):
        raise UsageError(f"--substitutes {path}: expected {expected}")
    for image in (each for pair in found.items() for each in pair):
        try:
            parse(image)
        except InvalidReference as error:
            raise UsageError(f"--substitutes {path}: {error}") from None
    return found


class Limits(NamedTuple):
    """What the exit code depends on."""

    fail_under: float | None
    max_unknown: int | None

    def exit_code(self, report: Report) -> int:
        """3: too much is unknown to tell; 1: less than ``--fail-under`` could run on a target."""
        if self.max_unknown is not None and unknown_workloads(report) > self.max_unknown:
            return 3
        return 1 if any(self._short(report)) else 0

    def problems(self, report: Report) -> Iterator[str]:
        """In words."""
        unknown = unknown_workloads(report)
        if self.max_unknown is not None and unknown > self.max_unknown:
            said = counted(unknown, "workload is", "workloads are")
            yield f"{said} unknown, and at most {self.max_unknown} may be (--max-unknown)"
        yield from self._short(report)

    def _short(self, report: Report) -> Iterator[str]:
        if self.fail_under is None:
            return
        for each in report.sums:
            share = 100 * (each.ready_share if each.ready_share is not None else 1.0)
            if round(share, 6) < self.fail_under:  # as a float 100 * 0.57 is a little less than 57
                said = percent(each.ready_share)
                yield f"{said} could run on {each.target}, less than {self.fail_under:.15g} % (--fail-under)"


def limits(fail_under: float | None, max_unknown: int | None) -> Limits:
    """``UsageError`` for numbers that are none."""
    if fail_under is not None and not 0 <= fail_under <= 100:
        raise UsageError(f"--fail-under {fail_under:.15g}: expected a percentage from 0 to 100")
    if max_unknown is not None and max_unknown < 0:
        raise UsageError(f"--max-unknown {max_unknown}: expected 0 or more")
    if max_unknown is None and fail_under is not None:
        max_unknown = 0
    return Limits(fail_under, max_unknown)


def unknown_workloads(report: Report) -> int:
    """How many are unknown for some target."""
    return sum(any(each.verdict is Verdict.UNKNOWN for each in row.answers) for row in report.workloads)


def _split(given: Sequence[str]) -> Iterator[str]:
    return (part.strip() for text in given for part in text.split(",") if part.strip())


def _platform(option: str, text: str) -> NodePlatform:
    try:
        return Platform.parse(text).node
    except InvalidPlatform as error:
        raise UsageError(f"{option}: {error}") from None
