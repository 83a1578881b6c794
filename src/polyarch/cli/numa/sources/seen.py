"""The snapshot that a command works on, wherever its options say that it is from."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

from polyarch.cli.errors import UsageError
from polyarch.cli.numa.sources.files import read_objects
from polyarch.cli.numa.sources.flags import SourceOptions
from polyarch.cli.numa.sources.mode_flags import ModeOptions
from polyarch.cli.numa.sources.objects import Objects, snapshot, times_of, written
from polyarch.cli.output.messages import Messages
from polyarch.numa.snapshot import Choice, Snapshot, reconstructed

SHOWN: Final = 5
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Seen(NamedTuple):
    """What to decide about, and by which rules."""

    snapshot: Snapshot
    objects: Objects
    choice: Choice
    namespace: str = "default"
    """Of what names none."""


def see(command: str, where: SourceOptions, given: ModeOptions, *, messages: Messages, sums: bool = True) -> Seen:
    """``sums``: pods and Nodes matter also where an extender knows the rest. Raises CommandError."""
    where.check(command)
    return _from_files(command, where, given) if where.nrt else _from_cluster(command, where, given, messages, sums)


def only(seen: Snapshot, names: tuple[str, ...], command: str) -> Snapshot:
    """Of these nodes; all if none is named. :class:`UsageError` for one that is not there."""
    if not names:
        return seen
    known = {each.name: each for each in seen.nodes}
    if lacking := [name for name in names if name not in known]:
        raise UsageError(f"{command}: there is no node {lacking[0]!r}; there are {', '.join(_some(known))}")
    return Snapshot(
        source=seen.source,
        nodes=tuple(known[name] for name in sorted(set(names))),
        knows_pods=seen.knows_pods,
    )


def _from_files(command: str, where: SourceOptions, given: ModeOptions) -> Seen:
    """The time is that of the newest thing in the files, so that the same files always say the same."""
    choice = given.choice(command)
    objects = read_objects(where.nrt or (), where.nodes or ())
    now = max([EPOCH, *written(objects.topologies), *times_of(objects.pods or ())])
    found = snapshot(objects, source="files", now=now, exact=choice.mode != "compat")
    if choice.mode != "compat":
        found = reconstructed(found, choice.exact, unix=now.timestamp())
    return Seen(found, objects, choice)


def _from_cluster(command: str, where: SourceOptions, given: ModeOptions, messages: Messages, sums: bool) -> Seen:
    import asyncio

    from polyarch.cli.installation.cluster import Access, on_cluster
    from polyarch.cli.numa.sources.cluster import read_cluster

    access = Access(where.kubeconfig, where.context)
    read = asyncio.run(
        on_cluster(
            command,
            access,
            lambda client: read_cluster(
                command, client, extender_namespace=where.extender_namespace, exact=given.mode != "compat", sums=sums
            ),
        )
    )
    for note in read.notes:
        messages.note(note)
    for detail in read.details:
        messages.detail(detail)
    choice = given.choice(command, read.options)
    found = read.snapshot
    if read.options is None and choice.mode != "compat":
        found = reconstructed(found, choice.exact, unix=read.taken_at.timestamp())
    return Seen(found, read.objects, choice, read.namespace)


def _some(names: Iterable[str]) -> Iterator[str]:
    for number, name in enumerate(names):
        if number == SHOWN:
            yield "…"
            return
        yield name
