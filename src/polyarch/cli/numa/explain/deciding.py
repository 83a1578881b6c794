"""``polyarch numa explain``: from a name or a manifest to an explanation."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.numa.explain.account import Account, Event, account, document
from polyarch.cli.numa.explain.text import text_of
from polyarch.cli.numa.sources.flags import SourceOptions
from polyarch.cli.numa.sources.mode_flags import ModeOptions
from polyarch.cli.numa.sources.seen import Seen, only, see
from polyarch.cli.numa.sources.workloads import read_pods
from polyarch.cli.options.outputs import Output, emit, refuse_overwriting
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.numa.scheduling.facts.pods import PodFacts, PodObject, pod_facts

COMMAND: Final = "numa explain"
MOST_EVENTS: Final = 5


class Asked(NamedTuple):
    """What the command line asks for."""

    pod: str | None
    file: str | None
    namespace: str | None
    nodes: tuple[str, ...]
    where: SourceOptions
    how: ModeOptions


def run_explain(asked: Asked, wanted: Sequence[Output], *, messages: Messages) -> int:
    """Explains it; the exit code. Raises CommandError."""
    where = asked.where
    refuse_overwriting(wanted, [asked.file, *(where.nrt or ()), *(where.nodes or ())])
    given = _given(asked.file) if asked.file is not None else None
    seen = see(COMMAND, where, asked.how, messages=messages)
    pod = given if given is not None else _named(asked, seen)
    events = _events(pod, where) if given is None and not where.nrt else ()
    found = account(pod, seen, only(seen.snapshot, asked.nodes, COMMAND), events=events)
    emit(wanted, lambda form, colour: _rendered(found, form, colour=colour))
    return 0 if found.fits else 1


def _given(path: str) -> PodFacts:
    pods = read_pods([path], replicas=False)
    if len(pods) > 1:
        raise UsageError(f"{path}: {len(pods)} pods in it; {COMMAND} takes one at a time")
    return pods[0]


def _named(asked: Asked, seen: Seen) -> PodFacts:
    place, slash, name = (asked.pod or "").rpartition("/")
    namespace = place if slash else asked.namespace or seen.namespace
    found = next((each for each in seen.objects.pods or () if each.metadata.key == (namespace, name)), None)
    if found is None:
        there = "in the files" if asked.where.nrt else "in the cluster, or it is over"
        raise (UsageError if asked.where.nrt else CouldNotComplete)(
            f"{COMMAND}: there is no pod {name!r} in namespace {namespace!r} {there}; give another with -n"
        )
    return _facts(found)


def _facts(pod: PodObject) -> PodFacts:
    facts = pod_facts(pod)
    return facts if facts.uid else msgspec.structs.replace(facts, uid=facts.full_name)


def _events(pod: PodFacts, where: SourceOptions) -> Sequence[Event]:
    from polyarch.cli.numa.explain.events import read_events

    return read_events(COMMAND, pod, where)[-MOST_EVENTS:]


def _rendered(found: Account, form: str, *, colour: bool) -> str:
    made: dict[str, Any] = document(found) if form != "text" else {}
    return document_text(made, form) if made else text_of(found, colour=colour)
