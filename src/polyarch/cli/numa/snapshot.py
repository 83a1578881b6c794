"""The snapshot that a command of ``polyarch numa`` works on, from files or from a cluster.

Lists in JSON, which may hold thousands of nodes, are decoded at once. What is wrong in one is looked for again by
the reader that knows the lines of a file.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.numa.objects import Objects, SeenNode, SeenTopology, snapshot, times_of, written
from polyarch.cli.numa.options import ModeOptions, SourceOptions
from polyarch.cli.output.messages import Messages
from polyarch.numa.api.topology import TOPOLOGIES, Quantity
from polyarch.numa.fit.facts import PodObject, pod_facts
from polyarch.numa.snapshot import Choice, Snapshot, reconstructed
from polyarch.quantity import InvalidQuantity, thousandths

SHOWN: Final = 5
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class DecisionInputs(NamedTuple):
    """What to decide about, and by which rules."""

    snapshot: Snapshot
    objects: Objects
    choice: Choice
    namespace: str = "default"
    """Of what names none."""


def see(
    command: str, where: SourceOptions, given: ModeOptions, *, messages: Messages, sums: bool = True
) -> DecisionInputs:
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


def _from_files(command: str, where: SourceOptions, given: ModeOptions) -> DecisionInputs:
    """The time is that of the newest thing in the files, so that the same files always say the same."""
    choice = given.choice(command)
    objects = read_objects(where.nrt or (), where.nodes or ())
    now = max([EPOCH, *written(objects.topologies), *times_of(objects.pods or ())])
    found = snapshot(objects, source="files", now=now)
    found = reconstructed(found, choice.exact, unix=now.timestamp())
    return DecisionInputs(found, objects, choice)


def _from_cluster(
    command: str, where: SourceOptions, given: ModeOptions, messages: Messages, sums: bool
) -> DecisionInputs:
    import asyncio

    from polyarch.cli.cluster import on_cluster
    from polyarch.cli.numa.cluster import read_cluster

    read = asyncio.run(
        on_cluster(
            command,
            where.cluster,
            lambda client: read_cluster(command, client, extender_namespace=where.extender_namespace, sums=sums),
        )
    )
    for note in read.notes:
        messages.note(note)
    for detail in read.details:
        messages.detail(detail)
    choice = given.choice(command, read.options)
    found = read.snapshot
    if read.options is None:
        found = reconstructed(found, choice.exact, unix=read.taken_at.timestamp())
    return DecisionInputs(found, read.objects, choice, read.namespace)


def _some(names: Iterable[str]) -> Iterator[str]:
    for number, name in enumerate(names):
        if number == SHOWN:
            yield "…"
            return
        yield name


# -- files: what ``kubectl get … -o json`` or ``-o yaml`` prints


T = TypeVar("T")
AnyObject = SeenTopology | SeenNode | PodObject
KINDS: Final[dict[str, type[AnyObject]]] = {TOPOLOGIES.kind: SeenTopology, "Node": SeenNode, "Pod": PodObject}
LISTS: Final = frozenset({"List", *(f"{kind}List" for kind in KINDS)})
_STDIN: Final = "-"


class _Kind(msgspec.Struct, frozen=True, rename="camel"):
    kind: str = ""
    api_version: str = ""


class _List(msgspec.Struct, frozen=True):
    kind: str = ""
    items: list[msgspec.Raw] | None = None


class _Found(NamedTuple):
    """One object and its place."""

    object: AnyObject
    place: str


class _Odd(Exception):  # noqa: N818 - what is the case
    """The quick reader has something that it does not understand."""


def read_objects(topologies: Sequence[str], nodes: Sequence[str]) -> Objects:
    """``topologies`` are the files of ``--nrt``, which must have at least one NodeResourceTopology each. Raises
    :class:`UsageError` that names file, document and field."""
    found: list[_Found] = []
    for path in topologies:
        there = _read(path, "--nrt")
        if not any(isinstance(each.object, SeenTopology) for each in there):
            raise UsageError(
                f"{_shown(path)}: no {TOPOLOGIES.kind} in it; save them with: "
                f"kubectl get {TOPOLOGIES.plural}.{TOPOLOGIES.group} -o json"
            )
        found += there
    for path in nodes:
        found += _read(path, "--nodes")
    pods = [each.object for each in found if isinstance(each.object, PodObject)]
    return Objects(
        topologies=_only_one_each(SeenTopology, TOPOLOGIES.kind, found),
        nodes=_only_one_each(SeenNode, "Node", found),
        pods=pods or None,
    )


def _only_one_each(type: type[T], kind: str, found: Sequence[_Found]) -> list[T]:
    objects: dict[str, T] = {}
    for each, place in found:
        if isinstance(each, type):
            name = each.metadata.name
            if not name:
                raise UsageError(f"{place}: {kind}: metadata.name: missing; it is the name of the node")
            if name in objects:
                raise UsageError(f"{place}: there is a {kind} {name!r} already; keep one of them")
            objects[name] = each
    return list(objects.values())


def _read(path: str, option: str) -> list[_Found]:
    if path != _STDIN:
        try:
            return list(_quick(Path(path).read_bytes(), path))
        except (OSError, _Odd):
            pass  # the other reader says what is wrong, and where
    return list(_thorough(path, option))


def _shown(path: str) -> str:
    return "standard input" if path == _STDIN else path


def _quick(text: bytes, path: str) -> Iterator[_Found]:
    """Of one object, or one list, in JSON."""
    if text.lstrip()[:1] != b"{":
        raise _Odd
    sound: set[Quantity] = set()
    try:
        whole = msgspec.json.decode(text, type=_List)
        items: Sequence[bytes | msgspec.Raw] = [text] if whole.kind not in LISTS else whole.items or ()
        for number, item in enumerate(items, 1):
            said = msgspec.json.decode(item, type=_Kind)
            kind = said.kind or whole.kind.removesuffix("List")
            known = KINDS.get(kind)
            if known is None or not _is_ours(kind, said.api_version):
                raise _Odd
            found = msgspec.json.decode(item, type=known)
            if not _is_sound(found, sound):
                raise _Odd
            yield _Found(found, f"{path}, document 1, item {number}")
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidQuantity) as error:
        raise _Odd from error


def _is_ours(kind: str, api_version: str) -> bool:
    """Others have kinds of these names, too. Items of a list need not say theirs."""
    group = api_version.rpartition("/")[0]
    return not api_version or group == (TOPOLOGIES.group if kind == TOPOLOGIES.kind else "")


def _is_sound(found: AnyObject, sound: set[Quantity]) -> bool:
    """Whether :func:`_wrong` finds nothing; ``sound`` are quantities that have been looked at, as most are alike."""
    if not isinstance(found, SeenTopology):
        return next(_wrong(found), None) is None
    for zone in found.zones or ():
        for each in zone.resources or ():
            if each.capacity not in sound or each.allocatable not in sound or each.available not in sound:
                for quantity in (each.capacity, each.allocatable, each.available):
                    thousandths(quantity, "down")
                    sound.add(quantity)
    return True


def _thorough(path: str, option: str) -> Iterator[_Found]:
    from polyarch.cli.input.objects import read_documents

    for document in read_documents(path):
        known: Any = KINDS.get(document.kind)
        if known is None:
            if document.kind in LISTS:  # an empty one
                continue
            kind = document.kind or "an object without kind"
            raise document.error(f"{option} takes {', '.join(KINDS)}, not {kind}; leave it out of the file")
        version = str(document.content.get("apiVersion") or "")
        if not _is_ours(document.kind, version):
            wanted = TOPOLOGIES.api_version if document.kind == TOPOLOGIES.kind else "v1"
            raise document.error(f"{document.kind} of {version} is another kind than that of {wanted}; leave it out")
        found: AnyObject = document.into(known)
        for field, problem in _wrong(found):
            raise UsageError(
                f"{document.file}, document {document.number}, line {document.line_of(f'.{field}')}: "
                f"{document.kind} {document.name!r}: {field}: {problem}"
            )
        yield _Found(found, document.where)


def _wrong(found: AnyObject) -> Iterator[tuple[str, str]]:
    """Quantities that are none: in a cluster they count as nothing, in a file somebody has misspelt them."""
    if isinstance(found, PodObject):
        yield from wrong_request(found)
    elif isinstance(found, SeenNode):
        yield from _unparsable(found.status.allocatable or {}, "status.allocatable.{}".format)
    else:
        for number, zone in enumerate(found.zones or ()):
            for index, each in enumerate(zone.resources or ()):
                amounts = {"capacity": each.capacity, "allocatable": each.allocatable, "available": each.available}
                yield from _unparsable(amounts, f"zones[{number}].resources[{index}].{{}}".format)


def wrong_request(pod: PodObject) -> Iterator[tuple[str, str]]:
    """Of a pod: field and problem of the first quantity that is none."""
    try:
        pod_facts(pod)
    except InvalidQuantity as error:
        yield "spec", str(error)


def _unparsable(quantities: dict[str, Quantity], field: Callable[[str], str]) -> Iterator[tuple[str, str]]:
    for name, quantity in quantities.items():
        try:
            thousandths(quantity, "down")
        except InvalidQuantity as error:
            yield field(name), str(error)
