"""The API server of all tests without one: objects in memory behind the surface of ``polyarch.kube.client``.

It keeps resourceVersions, uids, generations and preconditions, finalizers, statuses as a subresource, selectors, pages,
watches, dry runs, evictions, and server-side apply with managers. ``managedFields`` are those of structured-merge-diff
for objects without keyed lists: maps by member, lists as one field; only ``apply`` and ``change`` write them.
"""

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from fake_informer import FakeInformer
from manual_clock import ManualClock

from polyarch.kube.errors import (
    NO_FIT,
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    StatusCause,
)
from polyarch.kube.patches import JsonPatch, MergePatch, Operation, PatchError, StrategicPatch, apply_patch
from polyarch.kube.requests import FIELD_MANAGER, ListOptions
from polyarch.kube.resources import PODS, Resource
from polyarch.kube.responses import ListResult
from polyarch.kube.settings import Configuration
from polyarch.kube.watch import Bookmark, ObjectChanged, ObjectDeleted, Page
from polyarch.objects import ObjectKey, PartialObjectMetadata, decode_hook

Document = dict[str, Any]
Documents = list[Document]
Texts = list[str]
Requests = list[tuple[str, str, str]]
Patches = list[tuple[ObjectKey, JsonPatch | MergePatch | StrategicPatch]]
Hook = Callable[[str, Resource, str], Awaitable[None]]
Path = tuple[str, ...]

UID_IS_IMMUTABLE = StatusCause("FieldValueInvalid", "Invalid value: field is immutable", "metadata.uid")


class FakeApi:
    """``requests`` are all that it was sent: verb, resource, name (of a list: the name or field that it selects by).

    Before each request ``hook(verb, resource, name)`` runs, which may raise or wait; then what ``refuse`` said comes.
    """

    configuration = Configuration(server="https://cluster.invalid")

    def __init__(self, clock: Any = None, *, kinds: tuple[Resource, ...] = ()) -> None:
        self.clock = clock or ManualClock()
        self.objects: dict[tuple[Resource, str, str], Document] = {}
        self.requests: Requests = []
        self.patches: Patches = []
        """All that were sent, refused ones included."""
        self.deleted: list[str] = []
        """Names of what clients have deleted, in order."""
        self.evicted: list[ObjectKey] = []
        self.hook: Hook | None = None
        self.refusals: dict[tuple[str, Resource, str], Exception | list[Exception]] = {}
        self.admit: Callable[[Document, Document], None] = lambda before, after: None
        """What the cluster makes of an object that a client writes, in place; ``before`` is empty at a creation."""
        self.kinds = kinds
        """What discovery shows."""
        self.unserved: set[Resource] = set()
        self.holds_back = False
        """Informers and watches are open, but show nothing until :meth:`catch_up`."""
        self.version = 100
        self._made = 0
        self._informers: list[tuple[Resource, FakeInformer]] = []
        self._streams: list[tuple[Resource, ListOptions, asyncio.Queue[Any]]] = []

    # -- what tests do and see ----------------------------------------------------------------------------------------

    def put(self, resource: Resource, document: Document) -> None:
        """An object that somebody else made or replaced."""
        metadata = document["metadata"]
        metadata = {"uid": f"uid-{metadata['name']}", **metadata}
        self._store(resource, copy.deepcopy({**document, "metadata": metadata}))

    def read(self, resource: Resource, name: str, namespace: str = "") -> Document:
        return copy.deepcopy(self.objects[resource, namespace, name])

    def of(self, resource: Resource) -> Documents:
        """All objects of a kind."""
        return [copy.deepcopy(document) for (kind, _, _), document in self.objects.items() if kind == resource]

    def remove(self, resource: Resource, name: str, namespace: str = "") -> None:
        """Somebody else deleted it, and it is gone."""
        document = self.objects.pop((resource, namespace, name))
        self.version += 1
        self._tell(resource, document, document, gone=True)

    def change(
        self, resource: Resource, key: ObjectKey, change: Callable[[Document], Any], *, manager: str = ""
    ) -> None:
        """What another client does; with ``manager`` it takes the fields that it changes."""
        known = self.objects[resource, key.namespace, key.name]
        document = copy.deepcopy(known)
        change(document)
        if manager:
            entries = document["metadata"].setdefault("managedFields", [])
            fields: Document = {}
            for path in _leaves(_body(document)):
                if _read(known, path) != _read(document, path):
                    for entry in entries:
                        entry["fieldsV1"] = _without(entry["fieldsV1"], path)
                    _write(fields, tuple(f"f:{name}" for name in path), {})
            document["metadata"]["managedFields"] = [
                *(entry for entry in entries if entry["manager"] != manager),
                {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsV1": fields},
            ]
        self._store(resource, document)

    def refuse(
        self, resource: Resource, *verbs: str, error: Exception | Sequence[Exception] | None = None, name: str = ""
    ) -> None:
        """These requests, or those for one ``name``, get the error; several errors are for as many requests."""
        for verb in verbs:
            self.refusals[verb, resource, name] = (
                list(error) if isinstance(error, Sequence) else error or Forbidden(403, reason="Forbidden", verb=verb)
            )

    def allow(self) -> None:
        self.refusals.clear()

    def sent(self) -> Texts:
        """The requests since the last look, in words."""
        said = [" ".join(part for part in request if part) for request in self.requests]
        self.requests.clear()
        return said

    def writes(self) -> Requests:
        return [request for request in self.requests if request[0] not in ("discover", "get", "list", "watch")]

    def verbs(self, resource: Resource) -> Texts:
        """Of all requests for this resource but watches and lists."""
        return [verb for verb, name, _ in self.requests if name == str(resource) and verb not in ("watch", "list")]

    def informer(self, resource: Resource, type: Any, /, **options: Any) -> FakeInformer:
        """The cache of a kind, synced; it shows every change at once, or with ``holds_back`` when it is told to."""
        informer = next((informer for known, informer in self._informers if known == resource), None)
        if informer is None:
            informer = FakeInformer(type, self.clock)
            self.follow(resource, informer)
        for name, function in (options.get("indexes") or {}).items():
            informer.store.add_index(name, function)
        return informer

    def follow(self, resource: Resource, informer: FakeInformer) -> None:
        """From now on the informer, which another made, shows what there is."""
        informer.list(*self.of(resource))
        informer.sync()
        self._informers.append((resource, informer))

    def catch_up(self, *resources: Resource) -> None:
        """The informers of these kinds, or of all, see everything there is."""
        for resource, informer in self._informers:
            if resource in resources or not resources:
                there = self.of(resource)
                for document in there:
                    informer.show(document)
                informer.keep([_key(document) for document in there], version=self.version)

    def tell(self, resource: Resource, event: Bookmark | Exception) -> None:
        """The open watches of the kind show this, or end with this error."""
        for watched, _, events in self._streams:
            if watched == resource:
                events.put_nowait(event)

    # -- the client: reading ------------------------------------------------------------------------------------------

    async def get(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        type: Any = dict,
        subresource: str = "",
        retry: bool = True,
    ) -> Any:
        await self._before("get", resource, name)
        return _typed(self._known(resource, namespace, name), type)

    async def list(
        self,
        resource: Resource,
        *,
        type: Any = dict,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        limit: int = 500,
        resource_version: str = "",
        retry: bool = True,
        keep: Callable[[Any], Any] = lambda found: found,
    ) -> ListResult[Any]:
        selection = ListOptions(namespace, label_selector, field_selector)
        await self._before("list", resource, _asked(selection))
        found = [keep(_typed(document, type)) for document in self._selected(resource, selection)]
        return ListResult(found, str(self.version))

    async def column(self, resource: Resource, name: str) -> dict[str, str]:
        """The runtimes of nodes."""
        await self._before("list", resource, "")
        nodes = self.of(resource) if name == "Container-Runtime" else []
        info = {each["metadata"]["name"]: each.get("status", {}).get("nodeInfo", {}) for each in nodes}
        return {node: said.get("containerRuntimeVersion", "<unknown>") for node, said in info.items()}

    async def list_page(
        self, resource: Resource, selection: ListOptions, *, type: Any, continue_token: str = "", limit: int = 500
    ) -> Page[Any]:
        await self._before("list", resource, _asked(selection))
        found = self._selected(resource, selection)
        start = int(continue_token or 0)
        following = str(start + limit) if start + limit < len(found) else ""
        page = [_typed(document, type) for document in found[start : start + limit]]
        return Page(page, str(self.version), following)

    @asynccontextmanager
    async def watch(
        self,
        resource: Resource,
        selection: ListOptions,
        *,
        type: Any,
        resource_version: str = "",
        initial_events: bool = False,
        timeout_seconds: int = 300,
    ) -> AsyncIterator[Any]:
        await self._before("watch", resource, _asked(selection))
        events: asyncio.Queue[Any] = asyncio.Queue()
        if initial_events:
            for document in self._selected(resource, selection):
                events.put_nowait(document)
            events.put_nowait(Bookmark(str(self.version), initial_end=True))
        stream = (resource, selection, events)
        self._streams.append(stream)
        try:
            yield _stream(events, type)
        finally:
            self._streams.remove(stream)

    async def discover(self, group: str) -> tuple[Resource, ...]:
        self.requests.append(("discover", group, ""))
        return tuple(kind for kind in self.kinds if kind.group == group and kind not in self.unserved)

    async def is_served(self, resource: Resource) -> bool:
        return resource not in self.unserved

    async def raw(self, method: str, path: str) -> bytes:
        """The server's version and groups."""
        self.requests.append((method.lower(), path, ""))
        if path == "/apis":
            groups = sorted({kind.group for kind in self.kinds if kind.group and kind not in self.unserved})
            return msgspec.json.encode({"groups": [{"name": each, "versions": [{"version": "v1"}]} for each in groups]})
        if path != "/version":
            raise NotFound(404, reason="NotFound", message="the server could not find the requested resource")
        return b'{"major": "1", "minor": "33", "gitVersion": "v1.33.2"}'

    # -- the client: writing ------------------------------------------------------------------------------------------

    async def create(
        self,
        resource: Resource,
        document: Any,
        *,
        namespace: str = "",
        type: Any = PartialObjectMetadata,
        dry_run: bool = False,
        retry: bool = True,
    ) -> Any:
        name = document["metadata"]["name"]
        await self._before("create", resource, name)
        made = plain(document)
        namespace = namespace or made["metadata"].get("namespace", "")
        if (resource, namespace, name) in self.objects:
            raise AlreadyExists(409, reason="AlreadyExists", resource=str(resource), name=name)
        self._made += 1
        made["metadata"]["uid"] = f"uid-{self._made}"
        if namespace:
            made["metadata"]["namespace"] = namespace
        made.pop("status", None)
        return _typed(self._write({}, resource, made, dry_run=dry_run), type)

    async def replace(
        self,
        resource: Resource,
        document: Any,
        *,
        namespace: str = "",
        complete: bool = False,
        type: Any = PartialObjectMetadata,
        retry: bool = True,
    ) -> Any:
        metadata = document["metadata"]
        await self._before("replace", resource, metadata["name"])
        known = self._known(resource, namespace, metadata["name"])
        _check(known, version=metadata.get("resourceVersion"))
        return _typed(self._write(known, resource, plain(document)), type)

    async def patch(
        self,
        resource: Resource,
        name: str,
        patch: JsonPatch | MergePatch | StrategicPatch,
        *,
        namespace: str = "",
        subresource: str = "",
        field_manager: str = FIELD_MANAGER,
        type: Any = PartialObjectMetadata,
        dry_run: bool = False,
        retry: bool = True,
    ) -> Any:
        """Without ``subresource`` a status stays as it is, with it all else but metadata does."""
        self.patches.append((ObjectKey(namespace, name), patch))
        await self._before("patch", resource, name)
        known = self._known(resource, namespace, name)
        if isinstance(patch, JsonPatch):
            try:
                after = apply_patch(
                    copy.deepcopy(known), msgspec.convert(plain(patch.operations), tuple[Operation, ...])
                )
            except PatchError as error:
                raise Invalid(422, reason="Invalid", message=f"{NO_FIT}: {error}") from None
        else:
            metadata = patch.document.get("metadata") or {}
            _check(known, version=metadata.get("resourceVersion"))
            if metadata.get("uid", known["metadata"].get("uid")) != known["metadata"].get("uid"):
                raise Invalid(422, reason="Invalid", name=name, causes=(UID_IS_IMMUTABLE,))
            after = merged(known, plain(patch.document), keyed=isinstance(patch, StrategicPatch))
        own = after if subresource else known
        status = {"status": own["status"]} if "status" in own else {}
        rest = {**known, "metadata": after["metadata"]} if subresource == "status" else after
        result = {**{name: value for name, value in rest.items() if name != "status"}, **status}
        return _typed(self._write(known, resource, result, dry_run=dry_run), type)

    async def apply(
        self,
        resource: Resource,
        document: Any,
        *,
        namespace: str = "",
        force: bool = True,
        subresource: str = "",
        field_manager: str = FIELD_MANAGER,
        type: Any = PartialObjectMetadata,
        dry_run: bool = False,
        retry: bool = True,
    ) -> Any:
        name = document["metadata"]["name"]
        await self._before("apply", resource, name)
        before = self.objects.get((resource, namespace, name), {})
        if not before:
            self._made += 1
        metadata = {"name": name, "uid": f"uid-{self._made}", **({"namespace": namespace} if namespace else {})}
        known = before or {key: document[key] for key in ("apiVersion", "kind") if key in document}
        known = {**known, "metadata": known.get("metadata") or metadata}
        managers = known["metadata"].get("managedFields", [])
        result, body = copy.deepcopy(known), plain(_body(document))
        taken = [
            (path, entry["manager"])
            for entry in managers
            if entry["manager"] != field_manager
            for path in _leaves(body)
            if path in _paths(entry["fieldsV1"]) and _read(known, path) != _read(body, path)
        ]
        if taken and not force:
            raise Conflict(
                409,
                reason="Conflict",
                causes=tuple(
                    StatusCause("FieldManagerConflict", f'conflict with "{manager}"', "." + ".".join(path))
                    for path, manager in taken
                ),
            )
        for path in _leaves(body):
            _write(result, path, _read(body, path))
        entries = [copy.deepcopy(entry) for entry in managers if entry["manager"] != field_manager]
        for path, manager in taken:
            for entry in entries:
                if entry["manager"] == manager:
                    entry["fieldsV1"] = _without(entry["fieldsV1"], path)
        for entry in managers:
            for path in _paths(entry["fieldsV1"]) if entry["manager"] == field_manager else ():
                if path not in _paths(_fields(body)):
                    _drop(result, path)
        entry = {"manager": field_manager, "operation": "Apply", "apiVersion": document.get("apiVersion", "")}
        result["metadata"]["managedFields"] = [*entries, {**entry, "fieldsV1": _fields(body)}]
        return _typed(self._write(before, resource, result, dry_run=dry_run), type)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
        retry: bool = True,
    ) -> None:
        await self._before("delete", resource, name)
        known = self._known(resource, namespace, name)
        _check(known, version=resource_version, uid=uid)
        if dry_run:
            return
        self.deleted.append(name)
        if known["metadata"].get("finalizers"):
            moment = known["metadata"].get("deletionTimestamp") or self.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
            self.change(resource, _key(known), lambda each: each["metadata"].update(deletionTimestamp=moment))
        else:
            self.remove(resource, name, namespace)

    async def evict(
        self,
        namespace: str,
        pod: str,
        *,
        uid: str | None = None,
        grace_period_seconds: int | None = None,
        dry_run: bool = False,
    ) -> None:
        await self._before("evict", PODS, pod)
        _check(self._known(PODS, namespace, pod), uid=uid)
        if not dry_run:
            self.evicted.append(ObjectKey(namespace, pod))
            self.remove(PODS, pod, namespace)

    async def bind(self, namespace: str, pod: str, node: str, uid: str) -> None:
        await self._before("bind", PODS, pod)
        _check(self._known(PODS, namespace, pod), uid=uid)
        self.change(PODS, ObjectKey(namespace, pod), lambda each: each["spec"].update(nodeName=node))

    # -- within -------------------------------------------------------------------------------------------------------

    async def _before(self, verb: str, resource: Resource, name: str) -> None:
        self.requests.append((verb, str(resource), name))
        if self.hook is not None:
            await self.hook(verb, resource, name)
        if resource in self.unserved:
            raise NotFound(404, reason="NotFound", message="the server could not find the requested resource")
        error = self.refusals.get((verb, resource, name)) or self.refusals.get((verb, resource, ""))
        if isinstance(error, Exception):
            raise error
        if error:
            raise error.pop(0)

    def _known(self, resource: Resource, namespace: str, name: str) -> Document:
        try:
            return self.objects[resource, namespace, name]
        except KeyError:
            raise NotFound(404, reason="NotFound", resource=str(resource), name=name) from None

    def _selected(self, resource: Resource, selection: ListOptions) -> Documents:
        return [document for document in self.of(resource) if _matches(document, selection)]

    def _write(self, before: Document, resource: Resource, after: Document, *, dry_run: bool = False) -> Document:
        """What a client writes: nothing is stored and nobody is told if it changes nothing."""
        if before and "generation" in after["metadata"] and before.get("spec") != after.get("spec"):
            after = {**after, "metadata": {**after["metadata"], "generation": after["metadata"]["generation"] + 1}}
        self.admit(before, after)
        if before and _content(before) == _content(after):
            return before
        if dry_run:
            return after
        stored = self._store(resource, after)
        if after["metadata"].get("deletionTimestamp") and not after["metadata"].get("finalizers"):
            self.remove(resource, *reversed(_key(after)))
        return stored

    def _store(self, resource: Resource, document: Document) -> Document:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        where = (resource, *_key(document))
        before = self.objects.get(where, document)
        self.objects[where] = document
        self._tell(resource, before, document)
        return copy.deepcopy(document)

    def _tell(self, resource: Resource, before: Document, document: Document, *, gone: bool = False) -> None:
        if self.holds_back:
            return
        key = _key(document)
        for watched, informer in self._informers:
            if watched == resource and gone:
                informer.remove(key.name, key.namespace, version=self.version)
            elif watched == resource:
                informer.show(copy.deepcopy(document))
        for watched, selection, events in self._streams:
            if watched != resource:
                continue
            if not gone and _matches(document, selection):
                events.put_nowait(copy.deepcopy(document))
            elif _matches(before, selection):
                events.put_nowait(ObjectDeleted(key, str(self.version)))


def plain(document: Any) -> Any:
    """Through JSON, as over the network."""
    return msgspec.json.decode(msgspec.json.encode(document))


def merged(target: Any, patch: Any, *, keyed: bool = False) -> Any:
    """RFC 7386; with ``keyed``, a strategic merge: entries of conditions are known by their type."""
    if keyed and isinstance(patch, list) and all(isinstance(entry, dict) and "type" in entry for entry in patch):
        known = {entry["type"]: entry for entry in target or ()}
        return list((known | {entry["type"]: known.get(entry["type"], {}) | entry for entry in patch}).values())
    if not isinstance(patch, dict):
        return patch
    target = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            target.pop(name, None)
        else:
            target[name] = merged(target.get(name), value, keyed=keyed)
    return target


def _typed(document: Document, type: Any) -> Any:
    return msgspec.convert(copy.deepcopy(document), type, dec_hook=decode_hook)


def _key(document: Document) -> ObjectKey:
    return ObjectKey(document["metadata"].get("namespace", ""), document["metadata"]["name"])


def _content(document: Document) -> Document:
    return {**document, "metadata": {**document["metadata"], "resourceVersion": ""}}


def _check(known: Document, *, version: str | None = None, uid: str | None = None) -> None:
    metadata = known["metadata"]
    if version not in (None, "", metadata["resourceVersion"]) or uid not in (None, metadata.get("uid")):
        raise Conflict(409, reason="Conflict", name=metadata["name"])


def _asked(selection: ListOptions) -> str:
    return selection.field_selector.removeprefix("metadata.name=")


def _matches(document: Document, selection: ListOptions) -> bool:
    labels = document["metadata"].get("labels") or {}
    terms = [term for term in selection.label_selector.split(",") if term]
    fields = [term for term in selection.field_selector.split(",") if term]
    return (
        selection.namespace in ("", document["metadata"].get("namespace", ""))
        and all(_has_label(labels, term) for term in terms)
        and all(_has_field(document, term) for term in fields)
    )


def _has_label(labels: Document, term: str) -> bool:
    assert not {"(", " "} & set(term), f"sets of values are not known here: {term}"
    name, equals, value = term.partition("=")
    if name.startswith("!"):
        return name[1:] not in labels
    if name.endswith("!"):
        return bool(labels.get(name[:-1]) != value)
    return name in labels and (not equals or labels[name] == value.removeprefix("="))


def _has_field(document: Document, term: str) -> bool:
    name, _, value = term.partition("=")
    is_equal = (_read(document, tuple(name.removesuffix("!").split("."))) or "") == value.removeprefix("=")
    return is_equal != name.endswith("!")


async def _stream(events: asyncio.Queue[Any], type: Any) -> AsyncIterator[list[Any]]:
    while True:
        event = await events.get()
        if isinstance(event, Exception):
            raise event
        yield [ObjectChanged(_typed(event, type)) if isinstance(event, dict) else event]


# -- the fields of managers --------------------------------------------------------------------------------------------


def _body(document: Document) -> Document:
    kept = ("labels", "annotations", "ownerReferences", "finalizers")
    metadata = {name: document["metadata"][name] for name in kept if name in document["metadata"]}
    body = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}
    return {**body, "metadata": metadata} if metadata else body


def _leaves(node: Any, path: Path = ()) -> Iterator[Path]:
    if isinstance(node, dict) and node:
        for name, value in node.items():
            yield from _leaves(value, (*path, name))
    elif path:
        yield path


def _fields(node: Any) -> Document:
    return {f"f:{name}": _fields(value) for name, value in node.items()} if isinstance(node, dict) else {}


def _paths(fields: Document) -> list[Path]:
    return [tuple(key[2:] for key in path) for path in _leaves(fields)]


def _without(fields: Document, path: Path) -> Document:
    fresh: Document = {}
    for other in _paths(fields):
        if other != path:
            _write(fresh, tuple(f"f:{name}" for name in other), {})
    return fresh


def _read(node: Any, path: Path) -> Any:
    for name in path:
        node = node.get(name, {}) if isinstance(node, dict) else None
    return node


def _write(node: Document, path: Path, value: Any) -> None:
    for name in path[:-1]:
        node = node.setdefault(name, {})
    if value == {}:
        node.setdefault(path[-1], {})
    else:
        node[path[-1]] = copy.deepcopy(value)


def _drop(node: Document, path: Path) -> None:
    for name in path[:-1]:
        node = node.get(name, {})
        if not isinstance(node, dict):  # an entry of a list, which is one field here
            return
    node.pop(path[-1], None)
