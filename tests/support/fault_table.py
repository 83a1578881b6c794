"""What a scenario of the fault suite came to, as one row of the table that is printed at the end of the run.

A row is carried by the test's report (``record_property``), so it is printed whether or not the test passed, and also
when the tests ran in other processes.
"""

from collections.abc import Iterable, Sequence

import msgspec

PROPERTY = "fault row"


class Row(msgspec.Struct, kw_only=True):
    """Counts of pods unless said otherwise."""

    scenario: str
    pods: int = 0
    released: int = 0
    unconstrained: int = 0
    """Released without the constraint that their images ask for."""
    wrong: int = 0
    """Released with another constraint than their images ask for."""
    stuck: int = 0
    doubled: int = 0
    """Pods that were written more often than their outcome takes: once, and once more if they had been failing."""
    missed: int = 0
    """Pods that no webhook saw, because none could be reached."""
    refused_patches: int = 0
    """PATCHes that the API server refused, such as those of a second writer."""
    api_requests: float = 0.0
    """Requests of polyarch to the API server about these pods, for each pod."""
    registry_requests: int = 0
    attempts: float | None = None
    """Attempts for each image and process."""
    stall: float = 0.0
    """The longest time in which pods waited and none was released, in seconds."""
    note: str = ""

    @property
    def sound(self) -> bool:
        """What has to be true after every fault."""
        return not (self.unconstrained or self.wrong or self.stuck or self.doubled)


_COLUMNS: Sequence[tuple[str, str]] = (
    ("scenario", "scenario"),
    ("pods", "pods"),
    ("released", "released"),
    ("unconstrained", "unconstr."),
    ("wrong", "wrong"),
    ("stuck", "stuck"),
    ("doubled", "doubled"),
    ("missed", "missed"),
    ("refused_patches", "refused PATCH"),
    ("api_requests", "API req./pod"),
    ("registry_requests", "registry req."),
    ("attempts", "attempts"),
    ("stall", "stall s"),
    ("note", "note"),
)


def table(rows: Iterable[Row]) -> list[str]:
    """Lines of the table, columns as wide as they need to be."""
    cells = [[title for _, title in _COLUMNS]]
    cells += [[_cell(getattr(row, name)) for name, _ in _COLUMNS] for row in rows]
    widths = [max(len(line[at]) for line in cells) for at in range(len(_COLUMNS))]
    lines = []
    for line in cells:
        padded = [
            cell.ljust(width) if at in (0, len(line) - 1) else cell.rjust(width)
            for at, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        lines.append("  ".join(padded).rstrip())
    return lines


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)
