"""Report of a soak test: samples of the roles from ``/proc``, verdicts, the table, and a memory chart as SVG."""

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from rich.console import Console
from rich.markup import escape as escape_markup
from rich.table import Table

from bench.measure import resident_mib
from bench.soak.trial import Problem

SLOPE_LIMIT = 1.0
"""The growth in MiB per minute that is allowed in the second half."""
SETTLE = 30.0
"""Seconds at the start of a process that do not count: caches fill up."""
SPAN, SHORT_SPAN, SHARE = 300.0, 60.0, 0.125
"""The seconds that a slope takes; of a short soak this share of it, but no less than a minute."""
REFERENCE = 0.25
"""What the processes of a role had in this part of the soak, leaders and others, is what they may have at its end."""
SPARE_DESCRIPTORS, SPARE_TASKS = 4, 4
SPARE_THREADS = min(32, (os.cpu_count() or 1) + 4)
"""The thread pool grows on demand and does not shrink."""
COLOURS = {
    "operator": "#6b4c9a",
    "placement-webhook": "#b4530a",
    "placement-controller": "#1d5fa8",
    "monitor-handler": "#8a8a00",
    "monitor-node": "#b8a86a",
    "taints": "#2e8b57",
    "builder": "#a02050",
    "numa-exporter": "#5aa7c8",
    "numa-extender": "#333333",
}
REST_LIMIT = 40.0
"""Requests a minute that a role may send when nothing happens, all its processes together; Leases do not count."""


@dataclass(frozen=True)
class Sample:
    """One process at one time (seconds since the start)."""

    at: float
    role: str
    pid: int
    mib: float
    descriptors: int
    sockets: int
    threads: int
    tasks: float
    """0: it was not asked."""
    gated: int


@dataclass(frozen=True)
class Verdict:
    """One process over its lifetime."""

    role: str
    pid: int
    begin: float
    end: float
    mib: tuple[float, float, float]
    """First, maximum, last."""
    slope: float | None
    descriptors: tuple[int, int, int]
    sockets: tuple[int, int]
    threads: tuple[int, int]
    tasks: tuple[float, float, float]


def look(pid: int, role: str, at: float, tasks: float, gated: int) -> Sample:
    """Sample a process; OSError if it has ended."""
    links = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except FileNotFoundError:
            continue  # closed meanwhile
    threads = sum(1 for _ in Path(f"/proc/{pid}/task").iterdir())
    sockets = sum(link.startswith("socket:") for link in links)
    if not (mib := resident_mib(pid)):
        raise ProcessLookupError(f"{pid} has ended and is not yet reaped")
    return Sample(at, role, pid, mib, len(links), sockets, threads, tasks, gated)


def slope(points: Sequence[tuple[float, float]]) -> float:
    """MiB per minute: slope of the least-squares line through (seconds, MiB)."""
    count = len(points)
    mean_x, mean_y = sum(x for x, _ in points) / count, sum(y for _, y in points) / count
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return 60 * sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0


def judge(samples: Sequence[Sample], *, busy_until: float = float("inf")) -> tuple[list[Verdict], list[str]]:
    """A verdict for each process, and the violations. A process is compared with the first ones of its role.

    Memory is judged over the second half of the time until ``busy_until``, because an idle process does not grow.
    """
    end = max((sample.at for sample in samples), default=0.0)
    verdicts, problems = [], []
    first: dict[str, list[Sample]] = {}
    for pid in dict.fromkeys(sample.pid for sample in samples):
        own = [sample for sample in samples if sample.pid == pid]
        role, begin, last = own[0].role, own[0], own[-1]
        first.setdefault(role, []).extend(each for each in own if each.at <= min(end, busy_until) * REFERENCE)
        since = max(min(end, busy_until) / 2, begin.at + SETTLE)
        late = [(each.at, each.mib) for each in own if since <= each.at <= busy_until]
        span = max(SHORT_SPAN, min(SPAN, SHARE * min(end, busy_until)))
        grown = slope(late) if late and late[-1][0] - late[0][0] >= span else None
        verdict = Verdict(
            role, pid, begin.at, last.at,
            (begin.mib, max(each.mib for each in own), last.mib), grown,
            (begin.descriptors, max(each.descriptors for each in own), last.descriptors),
            (begin.sockets, last.sockets), (begin.threads, last.threads),
            _tasks(own),
        )  # fmt: skip
        verdicts.append(verdict)
        who = f"{role} {pid}"
        if grown is not None and grown > SLOPE_LIMIT:
            problems.append(f"{who}: memory grows by {grown:.2f} MiB/min in the second half")
        if last.at < end - 15:
            continue  # killed before the end
        measure = first[role] or own
        for what, now, before, spare in (
            ("descriptors", last.descriptors, max(each.descriptors for each in measure), SPARE_DESCRIPTORS),
            ("threads", last.threads, max(each.threads for each in measure), SPARE_THREADS),
            ("tasks", verdict.tasks[2], _tasks(measure)[1], SPARE_TASKS),
        ):
            if now > before + spare:
                problems.append(f"{who}: {now:g} {what} at the end, {before:g} at the start")
    problems += [
        f"{role}: no process stood long enough in the second half to judge its memory"
        for role in dict.fromkeys(verdict.role for verdict in verdicts)
        if all(verdict.slope is None for verdict in verdicts if verdict.role == role)
    ]
    return verdicts, problems


def _tasks(samples: Sequence[Sample]) -> tuple[float, float, float]:
    """First, most, last; zeros if they were never asked for."""
    told = [each.tasks for each in samples if each.tasks] or [0.0]
    return told[0], max(told), told[-1]


@dataclass(frozen=True)
class Requests:
    """Of one role, per minute."""

    busy: float
    rest: float


def restless(requests: Mapping[str, Requests]) -> list[str]:
    """Roles that send requests although nothing happens."""
    return [
        f"{role}: {each.rest:.0f} requests a minute when nothing happens, at most {REST_LIMIT:g} are expected"
        for role, each in requests.items()
        if each.rest > REST_LIMIT
    ]


def show(
    verdicts: Sequence[Verdict],
    requests: Mapping[str, Requests],
    counts: Counter[str],
    faults: Sequence[tuple[float, str]],
    problems: Sequence[Problem],
) -> None:
    """Print the table of roles, what happened and what was wrong to stdout."""
    console = Console(width=150, highlight=False)
    table = Table(box=None, header_style="bold")
    for title in ("role", "processes", "MiB first/last/peak", "MiB/min, 2nd half", "fds first/last/peak", "tasks",
                  "requests/min", "at rest"):  # fmt: skip
        table.add_column(title, justify="left" if title == "role" else "right")
    for role in dict.fromkeys(each.role for each in verdicts):
        own = [each for each in verdicts if each.role == role]
        asked = requests.get(role, Requests(0.0, 0.0))
        slopes = [each.slope for each in own if each.slope is not None]
        tasks = own[0].tasks[0], own[-1].tasks[2], max(each.tasks[1] for each in own)
        table.add_row(
            role,
            str(len(own)),
            f"{own[0].mib[0]:.0f}/{own[-1].mib[2]:.0f}/{max(each.mib[1] for each in own):.0f}",
            f"{max(slopes):+.2f}" if slopes else "not judged",
            f"{own[0].descriptors[0]}/{own[-1].descriptors[2]}/{max(each.descriptors[1] for each in own)}",
            "/".join(f"{value:g}" for value in tasks) if tasks[2] else "not told",
            f"{asked.busy:.1f}",
            f"{asked.rest:.1f}",
        )
    console.print(table)
    console.print(", ".join(f"{what}: {count}" for what, count in sorted(counts.items())))
    console.print("faults: " + ", ".join(f"{name} ({at:.0f} s)" for at, name in faults))
    for problem in problems[:60]:
        console.print(f"[red]{problem.kind}[/red] {escape_markup(problem.text)}", soft_wrap=True)
    found = Counter(problem.kind for problem in problems)
    console.print(
        f"wrong {found['wrong']}, stuck {found['stuck']}, orphans {found['orphan']}, bugs logged {found['bug']}, "
        f"processes {found['process']}, restless {found['requests']}"
    )
    console.print(f"{len(problems)} problems" if problems else "everything right, nothing stuck, nothing left over")


def svg(samples: Sequence[Sample], faults: Sequence[tuple[float, str]]) -> str:
    """Memory of each process over time, faults as vertical lines."""
    width, height, left, top, right, bottom = 960, 420, 60, 50, 20, 60
    seconds = max([sample.at for sample in samples], default=1.0) or 1.0
    most = max([sample.mib for sample in samples], default=1.0) * 1.15

    def x(at: float) -> float:
        return round(left + at / seconds * (width - left - right), 1)

    def y(mib: float) -> float:
        return round(height - bottom - mib / most * (height - top - bottom), 1)

    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
            f'font-size="12"><rect width="{width}" height="{height}" fill="white"/>'
            f'<text x="{left}" y="20" font-size="14">Resident memory of each role under churn and faults</text>'
        )
    ]
    step = next(step for step in (10, 20, 50, 100, 200, 500, 1000, 10**6) if most / step <= 8)
    for mib in range(0, int(most) + 1, step):
        parts.append(f'<line x1="{left}" x2="{width - right}" y1="{y(mib)}" y2="{y(mib)}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(mib) + 4}" text-anchor="end">{mib} MiB</text>')
    for number, (at, name) in enumerate(faults):
        parts.append(f'<line x1="{x(at)}" x2="{x(at)}" y1="{top}" y2="{height - bottom}" stroke="#c33" '
                     f'stroke-dasharray="3 3"><title>{escape(name)}</title></line>')  # fmt: skip
        if len(faults) <= 10:
            parts.append(f'<text x="{x(at) + 3}" y="{top + 12 * (1 + number % 3)}" font-size="10" fill="#933">'
                         f"{escape(name)}</text>")  # fmt: skip
    minutes = max(1, round(seconds / 60 / 10))
    parts += [
        f'<text x="{x(minute * 60)}" y="{height - bottom + 16}" text-anchor="middle">{minute} min</text>'
        for minute in range(0, int(seconds / 60) + 1, minutes)
    ]
    for pid in dict.fromkeys(sample.pid for sample in samples):
        own = [sample for sample in samples if sample.pid == pid]
        points = " ".join(f"{x(each.at)},{y(each.mib)}" for each in own)
        colour = COLOURS.get(own[0].role, "#555")
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.6">'
                     f"<title>{escape(own[0].role)} {pid}</title></polyline>")  # fmt: skip
    for number, (role, colour) in enumerate([*COLOURS.items(), ("a fault (dashed)", "#c33")]):
        x_at, y_at = left + 170 * (number % 5), height - 26 + 16 * (number // 5)
        parts.append(f'<text x="{x_at}" y="{y_at}" fill="{colour}">{escape(role)}</text>')
    parts.append("</svg>\n")
    return "\n".join(parts)


def draw(picture: Path, samples: Sequence[Sample], faults: Sequence[tuple[float, str]]) -> None:
    picture.parent.mkdir(parents=True, exist_ok=True)
    picture.write_text(svg(samples, faults))
