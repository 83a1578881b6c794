"""CSV (RFC 4180): one row a workload and target (RP-020).

A cell that a spreadsheet would take for a formula gets an apostrophe, and no character is one that a terminal would
obey: images and labels are anybody's texts.
"""

import csv
import io

from polyarch.manifests.output.csv import guarded
from polyarch.reports.document import Answer, Report, WorkloadRow

HEADER = (
    *("namespace", "kind", "name", "team", "target", "verdict", "cores", "memoryBytes", "replicas", "pods"),
    *("podsOnTarget", "runsOn", "images", "blockedBy", "reasons", "drift", "problems", "source"),
)


def report_csv(report: Report) -> str:
    """With a header row."""
    stream = io.StringIO(newline="")
    writer = csv.writer(stream, lineterminator="\r\n")
    writer.writerow(HEADER)
    writer.writerows(_row(row, answer) for row in report.workloads for answer in row.answers)
    return stream.getvalue()


def _row(row: WorkloadRow, answer: Answer) -> list[str]:
    texts = (row.namespace, row.kind, row.name, row.team, answer.target, answer.verdict.value)
    numbers = (row.weight.cores, row.weight.memory_bytes, row.weight.replicas, row.weight.pods, answer.pods)
    cells = (
        " ".join(row.runs_on),
        " ".join(row.images),
        " ".join(each.image for each in answer.reasons if each.image),
        "; ".join(each.message for each in answer.reasons),
        "; ".join(f"{each.container}: {each.running}" for each in row.drift),
        "; ".join(row.problems),
        row.source,
    )
    exact = (f"{number:.15g}" if isinstance(number, float) else str(number) for number in numbers)
    return [*map(guarded, texts), *exact, *map(guarded, cells)]
