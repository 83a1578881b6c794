"""An apply set: the objects that an operator owns, kept as desired by server-side apply.

The operator computes the desired documents with a pure function. An :class:`ApplySet` compares them with its caches,
applies the differences in dependency order, and prunes objects that carry its label and are no longer desired, after a
live read of each. A reconcile without differences sends no request: see ``managed_fields.py``.

Fields of other managers are left alone unless they are desired with another value, or stand where everything is ours
(``adoption.py``). With ``force`` such a field is taken over and reported in the outcome; without it the object fails
with the manager's name. If another manager takes a field back five times in a minute, the object is left alone for the
next minute.

Where the API server's validation refuses an object because of what others have put into it, all of that is taken out.
If it is still refused, and would be accepted if it were new, it is deleted and made again, but for kinds that hold
data. What an admission policy or webhook refuses is left as it is."""

import functools
import hashlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from polyarch.clock import Clock, SystemClock
from polyarch.kube.adoption import SOMEBODY, ForeignField, adoption, colliding, foreign, taking
from polyarch.kube.errors import AlreadyExists, ApiError, Conflict, Invalid, KubernetesError, NotFound
from polyarch.kube.managed_fields import (
    FieldConflict,
    Fields,
    Path,
    applied_fields,
    conflicts_of,
    differences,
    overridden,
)
from polyarch.kube.patches import JsonPatch
from polyarch.kube.requests import FIELD_MANAGER, Propagation
from polyarch.kube.resources import ObjectRef, Resource, in_order, rank
from polyarch.kube.store import IndexFunction, ObjectChange, Store, WriteExpectations
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, Unstructured

log = structlog.get_logger(__name__)

T = TypeVar("T")
Document = dict[str, Any]
Handler = Callable[[ObjectChange[Unstructured]], None]

CONTESTED: Final = (5, 60.0)
"""A field taken from us this often within this many seconds makes us leave its object alone."""
REPEATED: Final = 3600.0
"""Seconds within which the same number is told, and put right all the same."""


REMADE: Final = frozenset(
    (
        "Deployment",
        "DaemonSet",
        "Service",
        "ConfigMap",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "MutatingWebhookConfiguration",
        "ValidatingWebhookConfiguration",
        "ValidatingAdmissionPolicy",
    )
)
"""Kinds that are deleted and made again if nothing else helps: they hold nothing that we could not make. Never what
others lose data with: definitions, namespaces, Secrets, ServiceAccounts (the tokens of running pods)."""
READS: Final = 5
"""How often an object is read that others write while its fields are taken over."""


class ApplyOperation(NamedTuple):
    """One object to apply, the fields that differ, and the fields that applying takes over from other managers."""

    ref: ObjectRef
    document: Document
    differences: tuple[str, ...]
    taken: tuple[FieldConflict, ...] = ()
    foreign: tuple[ForeignField, ...] = ()
    """What others put where everything is ours; its conflicts are in ``taken``."""
    remade: bool = False
    """The object was deleted first."""


class ApplyResult(msgspec.Struct, frozen=True):
    """What one call of :meth:`ApplySet.apply` did."""

    applied: tuple[ApplyOperation, ...] = ()
    deleted: tuple[ObjectRef, ...] = ()
    leaving: tuple[ObjectRef, ...] = ()
    """Objects that are being deleted. Those that are still desired are created again once they are gone."""
    contested: tuple[tuple[ObjectRef, FieldConflict], ...] = ()
    """Fields that another manager takes back so often that their objects are left alone for now."""
    repeated: tuple[tuple[ObjectRef, FieldConflict], ...] = ()
    """Fields that another manager takes back again and again, but slowly; each time they are put right."""

    @property
    def changed(self) -> bool:
        return bool(self.applied or self.deleted)


class ApplyFailed(KubernetesError):  # noqa: N818 - what happened
    """Some objects could not be applied or deleted; the others were. ``outcome`` lists those."""

    def __init__(self, failures: Mapping[ObjectRef, KubernetesError], outcome: ApplyResult) -> None:
        self.failures = dict(failures)
        self.outcome = outcome
        waits = [wait for error in failures.values() if (wait := getattr(error, "retry_after", None)) is not None]
        self.retry_after: float | None = max(waits, default=None)
        super().__init__("; ".join(f"{ref}: {_words(error)}" for ref, error in failures.items()))


class Client(Protocol):
    """The part of the client that is used."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "", type: type[T]) -> T: ...

    async def list(
        self,
        resource: Resource,
        *,
        type: type[PartialObjectMetadata],
        namespace: str = "",
        label_selector: str = "",
    ) -> Any: ...

    async def apply(
        self,
        resource: Resource,
        document: Mapping[str, Any],
        *,
        namespace: str = "",
        force: bool = True,
        field_manager: str = ...,
        type: type[Unstructured] = ...,
    ) -> Unstructured: ...

    async def create(
        self, resource: Resource, document: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False
    ) -> Any: ...

    async def patch(
        self, resource: Resource, name: str, patch: JsonPatch, *, namespace: str = ""
    ) -> PartialObjectMetadata: ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        resource_version: str | None = None,
        propagation: Propagation | None = None,
    ) -> None: ...


class Cache(Protocol):
    """The part of an informer that is used."""

    store: Store[Unstructured]
    writes: WriteExpectations[Unstructured]

    @property
    def has_synced(self) -> bool: ...

    def add_handler(self, handler: Handler, /) -> None: ...


class Caches(Protocol):
    """Where informers come from: ``InformerFactory`` or a process."""

    def informer(
        self,
        resource: Resource,
        type: type[Unstructured],
        /,
        *,
        namespace: str = "",
        label_selector: str = "",
        indexes: Mapping[str, IndexFunction[Unstructured]] | None = None,
    ) -> Cache: ...


class _Sent(NamedTuple):
    """A document that was applied, and the fields that we owned afterwards."""

    digest: bytes
    fields: Fields | None
    part_of: str
    injected: frozenset[Path] = frozenset()
    """What was there again in the answer: an admission plugin or webhook puts it in, and the cluster wants it."""


class ApplySet:
    """The objects of one operator in ``kinds``: pairs of a resource and a namespace (``""`` for all namespaces).

    Every object of the set carries ``label``; its value names the part an object belongs to, so that one set can serve
    many owners. The caches select by that label. ``former``: managers whose fields are taken over, see ``adoption``.
    """

    def __init__(
        self,
        client: Client,
        caches: Caches,
        *,
        kinds: Iterable[tuple[Resource, str]],
        label: str,
        field_manager: str = FIELD_MANAGER,
        force: bool = True,
        former: Collection[str] = (),
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._former = former
        self._label = label
        self._manager = field_manager
        self._force = force
        self._clock = clock or SystemClock()
        self._caches = {
            (resource, namespace): caches.informer(
                resource,
                Unstructured,
                namespace=namespace,
                label_selector=label,
                indexes={f"label {label}": _by_label(label)},
            )
            for resource, namespace in kinds
        }
        self._resources = {(each.api_version, each.kind): each for each, _ in self._caches}
        self._sent: dict[ObjectRef, _Sent] = {}
        self._taken: dict[tuple[ObjectRef, FieldConflict], deque[float]] = {}

    def add_handler(self, handler: Handler) -> None:
        """Calls ``handler`` with every change of an object that carries the label; see ``EnqueueOwner``."""
        for cache in self._caches.values():
            cache.add_handler(handler)

    def get(self, resource: Resource, key: ObjectKey) -> Unstructured | None:
        """An object of the set from the cache."""
        return self._cache(ObjectRef(resource, key)).store.get(key)

    def cached(self, part_of: str) -> list[ObjectRef]:
        """The objects of a part from the caches."""
        return [
            ObjectRef(resource, key)
            for (resource, _), cache in self._caches.items()
            for key in cache.store.by_index(f"label {self._label}", part_of)
        ]

    @property
    def has_synced(self) -> bool:
        """Whether all caches are complete; :meth:`apply` needs them."""
        return all(cache.has_synced for cache in self._caches.values())

    async def apply(
        self,
        desired: Iterable[Mapping[str, Any]],
        *,
        part_of: str,
        keeps: Callable[[ObjectMeta], bool] = lambda _: False,
    ) -> ApplyResult:
        """Applies the desired objects of one part, one after the other, then prunes the part, but for what ``keeps``
        says stays for now.

        If an object fails, the others are still applied, but nothing is pruned. Raises :class:`ApplyFailed` at the end,
        ``ValueError`` for an object outside ``kinds``, RuntimeError before the caches have synced.
        """
        documents = dict(self._labelled(each, part_of) for each in desired)
        if not self.has_synced:
            raise RuntimeError("an apply set was asked to act before its caches were complete")
        failures: dict[ObjectRef, KubernetesError] = {}
        applied: list[ApplyOperation] = []
        leaving: list[ObjectRef] = []
        for ref in in_order(documents):
            live = self._cache(ref).store.get(ref.key)
            if live is not None and live.metadata.deletion_timestamp is not None:
                leaving.append(ref)
                continue
            if live is not None and self._adopting(ref, live.document) is not None:
                try:
                    await take_over(self._client, ref, live.document, functools.partial(self._adopting, ref))
                except KubernetesError as error:
                    failures[ref] = error
                    continue
                log.info("fields of a former manager taken over", object=str(ref))
                step: ApplyOperation | None = ApplyOperation(ref, documents[ref], (".metadata.managedFields",))
            else:
                step = self._step(ref, documents[ref], live)
            if step is None or self._is_contested(ref):
                continue
            try:
                done = await self._apply(step, live)
            except KubernetesError as error:
                failures[ref] = error
            else:
                if done is None:
                    leaving.append(ref)
                else:
                    applied.append(done)
        deleted: list[ObjectRef] = []
        if not failures:
            for ref in reversed(in_order(self._strays(documents, part_of, keeps))):
                try:
                    seen = await self._seen(ref, part_of)
                    if seen is None:
                        continue
                    is_new = seen.metadata.deletion_timestamp is None and await self._delete(ref, seen)
                    (deleted if is_new else leaving).append(ref)
                except KubernetesError as error:
                    failures[ref] = error
        outcome = ApplyResult(tuple(applied), tuple(deleted), tuple(leaving), self._contested(), self._repeated())
        if failures:
            raise ApplyFailed(failures, outcome)
        return outcome

    def changed_by_others(self, desired: Iterable[Mapping[str, Any]], *, part_of: str) -> tuple[ApplyOperation, ...]:
        """What somebody else has changed or deleted of these objects, by the caches; what we desire anew is no such."""
        found: list[ApplyOperation] = []
        for ref, document in (self._labelled(each, part_of) for each in desired):
            step = self._step(ref, document, self._cache(ref).store.get(ref.key))
            if step is not None and (step.taken or self._has_sent(ref, document)):
                found.append(step)
        return tuple(found)

    async def delete(self, part_of: str) -> tuple[ObjectRef, ...]:
        """One step of deleting a part, for a reconcile: returns what a live list still finds. An empty result means
        done."""
        found = await self.live(part_of)
        await self.remove(found)
        self._sent = {ref: sent for ref, sent in self._sent.items() if sent.part_of != part_of or ref in found}
        return tuple(in_order(found))

    async def live(self, part_of: str) -> dict[ObjectRef, PartialObjectMetadata]:
        """The objects of a part, by a live list of each kind."""
        found: dict[ObjectRef, PartialObjectMetadata] = {}
        for resource, namespace in self._caches:
            listed = await self._client.list(
                resource, type=PartialObjectMetadata, namespace=namespace, label_selector=f"{self._label}={part_of}"
            )
            found |= {ObjectRef(resource, each.metadata.key): each for each in listed.items}
        return found

    async def remove(self, found: Mapping[ObjectRef, PartialObjectMetadata]) -> None:
        """One step of deleting these objects, which :meth:`live` has found. Dependents go first: an object is deleted
        once everything after it in the order is gone."""
        order = in_order(found)
        for ref in order:
            if rank(ref) == rank(order[-1]):
                self._sent.pop(ref, None)
                if found[ref].metadata.deletion_timestamp is None:
                    await self._delete(ref, found[ref])

    def _adopting(self, ref: ObjectRef, live: Document) -> JsonPatch | None:
        if not self._former or self._cache(ref).writes.is_stale(ref.key):
            return None
        return adoption(live, manager=self._manager, others=self._former)

    def _labelled(self, document: Mapping[str, Any], part_of: str) -> tuple[ObjectRef, Document]:
        api_version, kind, metadata = document["apiVersion"], document["kind"], document["metadata"]
        resource = self._resources.get((api_version, kind))
        if resource is None:
            raise ValueError(f"{api_version} {kind} {metadata['name']} is of no kind of this apply set")
        ref = ObjectRef(resource, ObjectKey(metadata.get("namespace", ""), metadata["name"]))
        self._cache(ref)
        return ref, {
            **document,
            "metadata": {**metadata, "labels": {**metadata.get("labels", {}), self._label: part_of}},
        }

    def _cache(self, ref: ObjectRef) -> Cache:
        cache = self._caches.get((ref.resource, ref.key.namespace)) or self._caches.get((ref.resource, ""))
        if cache is None:
            raise ValueError(f"{ref} is in no namespace of this apply set")
        return cache

    def _step(self, ref: ObjectRef, document: Document, live: Unstructured | None) -> ApplyOperation | None:
        """What to apply for this document; None if nothing."""
        sent, is_known = self._sent.get(ref), self._has_sent(ref, document)
        if is_known and self._cache(ref).writes.is_stale(ref.key):
            return None
        if live is None:
            return ApplyOperation(ref, document, (".metadata",))
        others = self._foreign(document, live)
        if is_known and sent is not None:
            others = tuple(each for each in others if each.path not in sent.injected)
        differs = differences(document, live.document, manager=self._manager)
        if not differs and not others:
            return None
        stored = applied_fields(live.document, manager=self._manager)
        if not others and is_known and sent is not None and sent.fields == stored:
            return None  # the server stores a value in another form, and nobody has changed it since
        taken = (
            *overridden(document, live.document, manager=self._manager),
            *(each.conflict() for each in others),
        )
        if is_known and not taken:  # by a removal, or by another process that applies under our name
            taken = (FieldConflict(differs[0], SOMEBODY),)
        return ApplyOperation(ref, document, differs, tuple(dict.fromkeys(taken)), others)

    def _has_sent(self, ref: ObjectRef, document: Document) -> bool:
        sent = self._sent.get(ref)
        return sent is not None and sent.digest == _digest(document)

    def _foreign(self, document: Document, live: Unstructured) -> tuple[ForeignField, ...]:
        return foreign(document, live.document, manager=self._manager) if self._force else ()

    async def _apply(self, step: ApplyOperation, live: Unstructured | None) -> ApplyOperation | None:
        """What was done; None: the object is being deleted, to be made again."""
        if live is not None and step.foreign:
            await take_over(self._client, step.ref, live.document, lambda read: self._taking(step.document, read))
        try:
            await self._send(step)
        except Invalid as error:
            if live is None or not self._force:
                raise
            self._sent.pop(step.ref, None)
            done = await insist(
                self._client, step.ref, step.document, error, manager=self._manager, send=lambda: self._send(step)
            )
            if done.is_leaving:
                return None
            taken = tuple(dict.fromkeys((*step.taken, *done.taken)))
            step = step._replace(taken=taken or (FieldConflict(step.differences[0], SOMEBODY),), remade=done.remade)
        for conflict in step.taken:
            log.warning(
                "field taken from another manager",
                object=str(step.ref),
                field=conflict.field,
                manager=conflict.manager,
            )
            self._taken.setdefault((step.ref, conflict), deque(maxlen=CONTESTED[0])).append(self._clock.monotonic())
        return step

    def _taking(self, document: Document, live: Document) -> JsonPatch | None:
        return taking(live, foreign(document, live, manager=self._manager), manager=self._manager)

    async def _send(self, step: ApplyOperation) -> None:
        ref = step.ref
        written = await self._client.apply(
            ref.resource,
            step.document,
            namespace=ref.key.namespace,
            force=self._force,
            field_manager=self._manager,
            type=Unstructured,
        )
        fields = applied_fields(written.document, manager=self._manager)
        injected = frozenset(each.path for each in self._foreign(step.document, written))
        part_of = step.document["metadata"]["labels"][self._label]
        self._sent[ref] = _Sent(_digest(step.document), fields, part_of, injected)
        self._cache(ref).writes.note_write(ref.key, written.metadata.resource_version)
        log.info("object applied", object=str(ref), fields=step.differences[:10])

    def _strays(
        self, documents: Mapping[ObjectRef, Document], part_of: str, keeps: Callable[[ObjectMeta], bool]
    ) -> list[ObjectRef]:
        """Objects of the part that are cached and no longer desired."""
        return [
            ref
            for ref in self.cached(part_of)
            if ref not in documents
            and (found := self._cache(ref).store.get(ref.key)) is not None
            and not keeps(found.metadata)
        ]

    async def _seen(self, ref: ObjectRef, part_of: str) -> PartialObjectMetadata | None:
        """The object by a live read; None if it is gone or no longer belongs to the part."""
        self._sent.pop(ref, None)
        try:
            seen = await self._client.get(
                ref.resource, ref.key.name, namespace=ref.key.namespace, type=PartialObjectMetadata
            )
        except NotFound:
            return None
        return seen if (seen.metadata.labels or {}).get(self._label) == part_of else None

    async def _delete(self, ref: ObjectRef, seen: PartialObjectMetadata) -> bool:
        """False if the object is gone or has changed since it was read; a changed one is not deleted."""
        try:
            await self._client.delete(
                ref.resource,
                ref.key.name,
                namespace=ref.key.namespace,
                uid=seen.metadata.uid,
                resource_version=seen.metadata.resource_version,
                propagation="Background",
            )
        except (NotFound, Conflict):
            return False  # gone, or changed since: the next reconcile looks again
        log.info("object deleted", object=str(ref))
        return True

    def _is_contested(self, ref: ObjectRef) -> bool:
        return any(each == ref for (each, _) in self._contested())

    def _contested(self) -> tuple[tuple[ObjectRef, FieldConflict], ...]:
        return self._taken_within(CONTESTED[1])

    def _repeated(self) -> tuple[tuple[ObjectRef, FieldConflict], ...]:
        contested = self._contested()
        return tuple(what for what in self._taken_within(REPEATED) if what not in contested)

    def _taken_within(self, seconds: float) -> tuple[tuple[ObjectRef, FieldConflict], ...]:
        now = self._clock.monotonic()
        self._taken = {what: taken for what, taken in self._taken.items() if taken[-1] >= now - REPEATED}
        return tuple(
            what for what, taken in self._taken.items() if len(taken) == CONTESTED[0] and taken[0] >= now - seconds
        )


class Writes(Protocol):
    """The part of a client that takes fields over and makes objects again."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "", type: type[Unstructured]) -> Any: ...

    async def patch(self, resource: Resource, name: str, patch: JsonPatch, *, namespace: str = "") -> Any: ...

    async def create(
        self, resource: Resource, document: Mapping[str, Any], *, namespace: str = "", dry_run: bool = False
    ) -> Any: ...

    async def delete(
        self,
        resource: Resource,
        name: str,
        *,
        namespace: str = "",
        uid: str | None = None,
        propagation: Propagation | None = None,
    ) -> None: ...


class ForcedApplyResult(NamedTuple):
    """What it took to apply an object that the API server had refused."""

    taken: tuple[FieldConflict, ...] = ()
    remade: bool = False
    """It was deleted, and made again."""
    is_leaving: bool = False
    """It was deleted, and can be made again once its finalizers are removed."""


async def insist(
    client: Writes,
    ref: ObjectRef,
    document: Mapping[str, Any],
    error: Invalid,
    *,
    manager: str,
    send: Callable[[], Awaitable[object]],
) -> ForcedApplyResult:
    """Applies, by ``send``, an existing object that the API server has just refused with ``error``: first without all
    that others have put into it, then as a new one.

    Raises what the API server said, with the object as it was, if the document itself is wrong, if an admission policy
    or webhook refuses it (a cluster may forbid changes), and for kinds that are never made again.
    """
    if ref.resource.kind not in REMADE or not error.is_of_validation:
        raise error
    refusal = await refusal_of_new(client, ref, document)
    if isinstance(refusal, Invalid):
        raise error
    live = (await client.get(ref.resource, ref.key.name, namespace=ref.key.namespace, type=Unstructured)).document
    others = colliding(document, live, manager=manager)
    taken = tuple(each.conflict() for each in others)
    if others:

        def patch(read: Document) -> JsonPatch | None:
            return taking(read, colliding(document, read, manager=manager), manager=manager)

        await take_over(client, ref, live, patch)
        try:
            await send()
        except Invalid as again:
            error = again
        else:
            return ForcedApplyResult(taken)
    if refusal is not None or not error.is_of_validation:
        raise error
    log.warning("object is made again", object=str(ref), problem=str(error))
    metadata, where = live["metadata"], ref.key.namespace
    await client.delete(ref.resource, ref.key.name, namespace=where, uid=metadata["uid"], propagation="Background")
    if metadata.get("finalizers"):
        return ForcedApplyResult(taken, remade=True, is_leaving=True)
    await send()
    return ForcedApplyResult(taken, remade=True)


async def take_over(
    client: Writes, ref: ObjectRef, live: Document, patch_of: Callable[[Document], JsonPatch | None]
) -> None:
    """Sends the patch of ``managedFields`` that ``patch_of`` makes of ``live``, if there is one.

    Controllers write the status meanwhile, so the object may have changed since it was read: then it is read again.
    """
    for attempt in range(READS):
        if (patch := patch_of(live)) is None:
            return
        try:
            await client.patch(ref.resource, ref.key.name, patch, namespace=ref.key.namespace)
        except Invalid as error:
            if not error.is_failed_test or attempt == READS - 1:
                raise
            found = await client.get(ref.resource, ref.key.name, namespace=ref.key.namespace, type=Unstructured)
            live = found.document
        else:
            return


async def can_insist(client: Writes, ref: ObjectRef, document: Mapping[str, Any], error: Invalid) -> bool:
    """Whether :func:`insist` would have its way, by a dry run."""
    may = ref.resource.kind in REMADE and error.is_of_validation
    return may and await refusal_of_new(client, ref, document) is None


async def refusal_of_new(client: Writes, ref: ObjectRef, document: Mapping[str, Any]) -> ApiError | None:
    """Why the API server would not take the document as a new object; None: it would, so what it refuses is what others
    have put into the present one.

    Asked by a dry run under its own name, as policies may be for that name alone: validation and admission come first,
    and the last answer is that it exists.
    """
    try:
        await client.create(ref.resource, document, namespace=ref.key.namespace, dry_run=True)
    except AlreadyExists:
        return None
    except ApiError as error:
        log.warning("object would not be accepted as a new one", object=str(ref), problem=str(error))
        return error
    return None


@functools.cache
def _by_label(label: str) -> IndexFunction[Unstructured]:
    """The same function every time for one label: a shared informer requires that."""

    def values(object_: Unstructured) -> tuple[str, ...]:
        value = (object_.metadata.labels or {}).get(label)
        return () if value is None else (value,)

    return values


def _digest(document: Mapping[str, Any]) -> bytes:
    return hashlib.blake2b(msgspec.json.encode(document, order="sorted"), digest_size=16).digest()


def _words(error: KubernetesError) -> str:
    """A conflict as text, with each field and its manager."""
    conflicts: Sequence[FieldConflict] = conflicts_of(error) if isinstance(error, Conflict) else ()
    return ", ".join(map(str, conflicts)) or str(error)
