"""An API server as far as an apply set knows it: server-side apply with managers, in memory, and caches that follow.

``managedFields`` are those of structured-merge-diff for objects without keyed lists: maps by member, lists as one
field. What the server makes of a value is ``normalise``.
"""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from polyarch.kube.errors import Conflict, KubernetesError, NotFound, StatusCause
from polyarch.kube.resources import Resource
from polyarch.kube.responses import ListResult
from polyarch.kube.store import ObjectChange, Store, WriteExpectations
from polyarch.kube.watch import Apply, Delete, Init, InitDone
from polyarch.objects import ObjectKey, PartialObjectMetadata, Unstructured

Document = dict[str, Any]
Handler = Callable[[ObjectChange[Unstructured]], None]


class Cache:
    """Shows what the server has when it is told to follow; ``held`` keeps it behind."""

    def __init__(self, clock: Any) -> None:
        self.store: Store[Unstructured] = Store()
        self.writes: WriteExpectations[Unstructured] = WriteExpectations(self.store, clock=clock)
        self.handlers: list[Handler] = [self.writes.observe]
        self.has_synced = True
        for output in (Init(), InitDone("1")):
            self.store.take(output)

    def add_handler(self, handler: Handler, /) -> None:
        self.handlers.append(handler)

    def take(self, output: Any) -> None:
        for change in self.store.take(output):
            for handler in self.handlers:
                handler(change)


class ApplyingApi:
    """``requests`` are all that it was sent: verb, resource, name."""

    def __init__(self, clock: Any) -> None:
        self.clock = clock
        self.objects: dict[tuple[Resource, ObjectKey], Document] = {}
        self.requests: list[tuple[str, str, str]] = []
        self.caches: dict[Resource, Cache] = {}
        self.failures: dict[str, KubernetesError] = {}
        self.normalise: Callable[[Document], None] = lambda document: None
        self.holds_back = False
        self.version = 100

    def informer(self, resource: Resource, type: Any, /, **options: Any) -> Cache:
        cache = self.caches.setdefault(resource, Cache(self.clock))
        for name, function in (options.get("indexes") or {}).items():
            cache.store.add_index(name, function)
        return cache

    def sent(self) -> list[str]:
        """What was asked since the last look, in words."""
        said = [" ".join(part for part in request if part) for request in self.requests]
        self.requests.clear()
        return said

    # -- the client ---------------------------------------------------------------------------------------------------

    async def get(
        self, resource: Resource, name: str, *, namespace: str = "", type: Any = PartialObjectMetadata
    ) -> PartialObjectMetadata:
        self._asked("get", resource, name)
        return msgspec.convert(self._known(resource, ObjectKey(namespace, name)), PartialObjectMetadata)

    async def list(self, resource: Resource, *, type: Any = None, namespace: str = "", label_selector: str = "") -> Any:
        self._asked("list", resource, "")
        label, _, value = label_selector.partition("=")
        items = [
            msgspec.convert(document, PartialObjectMetadata)
            for (kind, key), document in self.objects.items()
            if kind == resource
            and namespace in ("", key.namespace)
            and document["metadata"].get("labels", {}).get(label) == value
        ]
        return ListResult(items, str(self.version))

    async def apply(
        self,
        resource: Resource,
        document: Any,
        *,
        namespace: str = "",
        force: bool = True,
        field_manager: str = "polyarch",
        type: Any = None,
    ) -> Unstructured:
        name = document["metadata"]["name"]
        self._asked("apply", resource, name)
        where = resource, ObjectKey(namespace, name)
        known = self.objects.get(where)
        if known is None:
            self.version += 1
            metadata = {"name": name, "namespace": namespace, "uid": f"u-{self.version}", "managedFields": []}
            known = {"apiVersion": document["apiVersion"], "kind": document["kind"], "metadata": metadata}
        result, body = copy.deepcopy(known), _body(document)
        taken = [
            (path, entry["manager"])
            for entry in known["metadata"]["managedFields"]
            if entry["manager"] != field_manager
            for path in _leaves(body)
            if _has(entry["fieldsV1"], path) and _read(known, path) != _read(body, path)
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
        entries = [each for each in known["metadata"]["managedFields"] if each["manager"] != field_manager]
        ours = [each for each in known["metadata"]["managedFields"] if each["manager"] == field_manager]
        for path in _leaves(body):
            _write(result, path, _read(body, path))
        for path, manager in taken:
            for entry in entries:
                if entry["manager"] == manager:
                    entry["fieldsV1"] = _without(entry["fieldsV1"], path)
        for each in ours:
            for path in _paths(each["fieldsV1"]):
                if not _has(_fields(body), path):
                    _drop(result, path)
        self.normalise(result)
        entry = {"manager": field_manager, "operation": "Apply", "apiVersion": document["apiVersion"]}
        result["metadata"]["managedFields"] = [*entries, {**entry, "fieldsV1": _fields(body)}]
        return self._store(resource, where[1], result)

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: str | None = None,
    ) -> None:
        self._asked("delete", resource, name)
        key = ObjectKey(namespace, name)
        metadata = self._known(resource, key)["metadata"]
        if uid != metadata["uid"] or resource_version != metadata["resourceVersion"]:
            raise Conflict(409, reason="Conflict")
        if metadata.get("finalizers"):
            self.change(resource, key, lambda d: d["metadata"].update(deletionTimestamp="2025-01-01T00:00:00Z"))
        else:
            self.remove(resource, key)

    # -- somebody else ------------------------------------------------------------------------------------------------

    def change(
        self, resource: Resource, key: ObjectKey, change: Callable[[Document], Any], *, manager: str = ""
    ) -> None:
        """What another client does; with ``manager`` it takes the fields that it changes."""
        known = self.objects[resource, key]
        document = copy.deepcopy(known)
        change(document)
        if manager:
            entries = document["metadata"]["managedFields"]
            changed = [path for path in _leaves(_body(document)) if _read(known, path) != _read(document, path)]
            fields: Document = {}
            for path in changed:
                for entry in entries:
                    entry["fieldsV1"] = _without(entry["fieldsV1"], path)
                _write(fields, tuple(f"f:{name}" for name in path), {})
            document["metadata"]["managedFields"] = [
                *(each for each in entries if each["manager"] != manager),
                {"manager": manager, "operation": "Update", "apiVersion": "v1", "fieldsV1": fields},
            ]
        self._store(resource, key, document)

    def remove(self, resource: Resource, key: ObjectKey) -> None:
        del self.objects[resource, key]
        self.version += 1
        if not self.holds_back:
            self.caches[resource].take(Delete(key, str(self.version)))

    def catch_up(self) -> None:
        """The caches see everything there is."""
        self.holds_back = False
        for (resource, _), document in self.objects.items():
            if resource in self.caches:
                self.caches[resource].take(Apply(Unstructured(copy.deepcopy(document))))

    def _asked(self, verb: str, resource: Resource, name: str) -> None:
        self.requests.append((verb, str(resource), name))
        if (failure := self.failures.get(f"{verb} {name}")) is not None:
            raise failure

    def _known(self, resource: Resource, key: ObjectKey) -> Document:
        try:
            return self.objects[resource, key]
        except KeyError:
            raise NotFound(404, reason="NotFound") from None

    def _store(self, resource: Resource, key: ObjectKey, document: Document) -> Unstructured:
        self.version += 1
        document["metadata"]["resourceVersion"] = str(self.version)
        self.objects[resource, key] = document
        if not self.holds_back and resource in self.caches:
            self.caches[resource].take(Apply(Unstructured(copy.deepcopy(document))))
        return Unstructured(copy.deepcopy(document))


def _body(document: Document) -> Document:
    metadata = {name: document["metadata"][name] for name in ("labels",) if name in document["metadata"]}
    body = {name: value for name, value in document.items() if name not in ("apiVersion", "kind", "metadata")}
    return {**body, "metadata": metadata}


def _leaves(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(node, dict) and node:
        for name, value in node.items():
            yield from _leaves(value, (*path, name))
    elif path:
        yield path


def _fields(node: Any) -> Document:
    return {f"f:{name}": _fields(value) for name, value in node.items()} if isinstance(node, dict) else {}


def _paths(fields: Document) -> list[tuple[str, ...]]:
    return [tuple(key[2:] for key in path) for path in _leaves(fields)]


def _has(fields: Document, path: tuple[str, ...]) -> bool:
    return path in _paths(fields)


def _without(fields: Document, path: tuple[str, ...]) -> Document:
    fresh: Document = {}
    for each in _paths(fields):
        if each != path:
            _write(fresh, tuple(f"f:{name}" for name in each), {})
    return fresh


def _read(node: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        node = node.get(name, {}) if isinstance(node, dict) else None
    return node


def _write(node: Document, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        node = node.setdefault(name, {})
    node[path[-1]] = copy.deepcopy(value)


def _drop(node: Document, path: tuple[str, ...]) -> None:
    for name in path[:-1]:
        node = node.get(name, {})
    node.pop(path[-1], None)
