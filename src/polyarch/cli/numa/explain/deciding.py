"""``polyarch numa explain``: from a name or a manifest to an explanation."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.numa.explain.account import Account, Ending, Event, account, document
from polyarch.cli.numa.explain.text import text_of
from polyarch.cli.numa.sources.flags import SourceOptions
from polyarch.cli.numa.sources.mode_flags import ModeOptions
from polyarch.cli.numa.sources.seen import Seen, only, see
from polyarch.cli.numa.sources.workloads import read_pods
from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.numa.fit.facts import ENDED, PodFacts, PodObject, pod_facts
from polyarch.objects import Key

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
    given = _given(asked.file) if asked.file is not None else None
    seen = see(COMMAND, where, asked.how, messages=messages)
    ending = None
    if given is not None:
        pod = given
    else:
        named = _named(asked, seen)
        pod, ending = _facts(named), _ending(named)
    events = _events(pod, where) if given is None and not where.nrt else ()
    found = account(pod, seen, only(seen.snapshot, asked.nodes, COMMAND), events=events, ending=ending)
    emit(wanted, lambda form, colour: _rendered(found, form, colour=colour))
    return 0 if found.fits else 1


def _given(path: str) -> PodFacts:
    pods = read_pods([path], replicas=False)
    if len(pods) > 1:
        raise UsageError(f"{path}: {len(pods)} pods in it; {COMMAND} takes one at a time")
    return pods[0]


def _named(asked: Asked, seen: Seen) -> PodObject:
    place, slash, name = (asked.pod or "").rpartition("/")
    namespace = place if slash else asked.namespace or seen.namespace
    found = next((each for each in seen.objects.pods or () if each.metadata.key == (namespace, name)), None)
    if found is None and not asked.where.nrt:
        from polyarch.cli.numa.explain.past_pod import read_pod

        found = read_pod(COMMAND, Key(namespace, name), asked.where)  # lists leave out what is over
    if found is None:
        there = "in the files" if asked.where.nrt else "in the cluster"
        raise (UsageError if asked.where.nrt else CouldNotComplete)(
            f"{COMMAND}: there is no pod {name!r} in namespace {namespace!r} {there}; give another with -n"
        )
    return found


def _ending(pod: PodObject) -> Ending | None:
    if pod.status is None or pod.status.phase not in ENDED:
        return None
    node = pod.spec.node_name if pod.spec is not None else None
    return Ending(pod.status.reason or pod.status.phase or "", node or "")


def _facts(pod: PodObject) -> PodFacts:
    facts = pod_facts(pod)
    return facts if facts.uid else msgspec.structs.replace(facts, uid=facts.full_name)


def _events(pod: PodFacts, where: SourceOptions) -> Sequence[Event]:
    from polyarch.cli.numa.explain.events import read_events

    return read_events(COMMAND, pod, where)[-MOST_EVENTS:]


def _rendered(found: Account, form: str, *, colour: bool) -> str:
    made: dict[str, Any] = document(found) if form != "text" else {}
    return document_text(made, form) if made else text_of(found, colour=colour)
