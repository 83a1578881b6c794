"""``polyarch numa simulate``: from files or a cluster to an answer."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from polyarch.cli.errors import UsageError
from polyarch.cli.numa.simulate import answers
from polyarch.cli.numa.sources.flags import SourceOptions
from polyarch.cli.numa.sources.mode_flags import ModeOptions
from polyarch.cli.numa.sources.seen import Seen, only, see
from polyarch.cli.numa.sources.workloads import read_pods
from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.names import ARCH_KEY
from polyarch.numa.simulation import simulate
from polyarch.numa.snapshot import Snapshot, rules_of

COMMAND: Final = "numa simulate"


class Asked(NamedTuple):
    """What the command line asks for."""

    files: Sequence[str]
    fill: bool
    repeat: int
    drain: str | None
    explain: bool
    where: SourceOptions
    how: ModeOptions


def run_simulate(asked: Asked, wanted: Sequence[Output], *, messages: Messages) -> int:
    """Plays it; the exit code. Raises CommandError."""
    pods = read_pods(asked.files) if asked.files else []
    seen = see(COMMAND, asked.where, asked.how, messages=messages)
    if asked.drain is not None:
        _require_drainable(seen.snapshot, asked.drain)
    elif not seen.snapshot.knows_pods:
        messages.detail("pods on the nodes are not known: sums over nodes count the placed ones alone")
    if mixture := _mixture(seen):
        messages.note(f"nodes of {mixture}: whether a pod may go to each of them is not judged, only whether it fits")
    answer = simulate(
        seen.snapshot,
        pods,
        rules_of(seen.choice),
        repeat=asked.repeat,
        drain=asked.drain,
        fills=asked.fill,
        explains=asked.explain,
    )
    nodes = sum(each.name != asked.drain and not each.is_cordoned for each in seen.snapshot.nodes)

    def render(form: str, colour: bool) -> str:
        if form != "text":
            return document_text(answers.document(answer, source=seen.snapshot.source), form)
        return answers.text(answer, nodes=nodes, colour=colour)

    emit(wanted, render)
    return 1 if answer.unplaced else 0


def _mixture(seen: Seen) -> str:
    """The architectures of the nodes, where there are several: an answer may then name a node that a pod cannot use."""
    found = {(each.metadata.labels or {}).get(ARCH_KEY, "") for each in seen.objects.nodes} - {""}
    return " and ".join(sorted(found)) if len(found) > 1 else ""


def _require_drainable(snapshot: Snapshot, name: str) -> None:
    only(snapshot, (name,), f"{COMMAND}: --drain {name}")
    if not snapshot.knows_pods:
        raise UsageError(
            f"{COMMAND}: --drain {name}: its pods are not known; save them with: kubectl get nodes,pods -A -o json, "
            "and give the file with --nodes"
        )
