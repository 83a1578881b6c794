"""Carries out the writes of a plan that concern the API server (BD-196).

Each may be repeated, and be cut off before, in or after its request. An object that exists under our name is ours if
it has our owner, or what only we give it; somebody else's is left alone (``NameConflict``, BD-324). A precondition that
does not hold means that the cache was behind: the round ends, and the next one plans from what is there. An execution
is made only for a wish that is still there, a Job only for such an execution, whatever the cache says: what is new has
no precondition of its own. A refusal goes back to the plan, which says what follows. Everything else raises, and is
tried again with a growing pause.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from typing import Any, Final, Protocol

import msgspec
import structlog

from polyarch.builds import names
from polyarch.builds.effects.settling import Settling
from polyarch.builds.effects.status_changes import Pace, difference, may_wait
from polyarch.builds.facts.facts import StepFailure
from polyarch.builds.frontend import Cache, FrontEnd, WishKey
from polyarch.builds.machineos import vocabulary
from polyarch.builds.plan.document import Write, uid_of
from polyarch.clock import Clock
from polyarch.kube.errors import (
    AlreadyExists,
    ApiError,
    BadRequest,
    Conflict,
    Forbidden,
    Invalid,
    MethodNotAllowed,
    NotFound,
    TooLarge,
)
from polyarch.kube.patches import MergePatch, Patch
from polyarch.kube.rbac import rule
from polyarch.kube.requests import Propagation
from polyarch.kube.resources import CONFIGMAPS, JOBS, Resource
from polyarch.objects import Key, ObjectMeta, PartialObjectMetadata

log = structlog.get_logger(__name__)

RIGHTS: Final = (
    rule(names.IMAGE_BUILDS, "get", "patch"),
    rule(names.IMAGE_BUILD_RUNS, "create", "get", "patch", "delete"),
    rule((names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS), "patch", subresource="status"),
    rule(JOBS, "create", "get", "patch", "delete"),
    rule(CONFIGMAPS, "create", "get", "patch", "delete"),
)
"""RBAC rules in the namespaces of builds."""
MACHINE_RIGHTS: Final = (
    rule(vocabulary.CONFIGS, "get"),
    rule((vocabulary.CONFIGS, vocabulary.POOLS), "patch"),
    rule(vocabulary.BUILDS, "create", "get", "patch", "delete"),
    rule((vocabulary.CONFIGS, vocabulary.BUILDS, vocabulary.POOLS), "patch", subresource="status"),
)
"""RBAC rules in the whole cluster, for machine OS images."""
REFUSALS: Final = (BadRequest, Forbidden, Invalid, MethodNotAllowed, TooLarge)
"""Answers that the same request would get again."""
OWN_MARKS: Final = (names.BUILD_LABEL, names.RUN_LABEL, names.ARCHITECTURE_LABEL, names.ROLE_LABEL, names.KEY_LABEL)
"""Labels that tell whose an object is if somebody took its owner reference away."""


class Api(Protocol):
    """The part of the client that is needed here."""

    async def get(self, resource: Resource, name: str, *, namespace: str = "") -> dict[str, Any]: ...

    async def create(
        self, resource: Resource, document: Mapping[str, Any], *, namespace: str = ""
    ) -> PartialObjectMetadata: ...

    async def patch(
        self, resource: Resource, name: str, patch: Patch, *, namespace: str = "", subresource: str = ""
    ) -> PartialObjectMetadata: ...

    async def apply(
        self, resource: Resource, document: Mapping[str, Any], *, namespace: str = ""
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


class Prepares(Protocol):
    """Makes the document of an object that plans say only the source of."""

    async def document(self, write: Write) -> dict[str, Any] | None: ...


class Carried(Enum):
    """How a write ended that was not refused."""

    DONE = "done"
    NOT_NEEDED = "not needed"
    """What is there is as it should be: nothing was sent, or the object was found."""
    LATER = "later"
    """Progress that waits for its turn (BD-243)."""
    MOVED_ON = "moved on"
    """The object is not what the plan was made from: the round ends."""


class ObjectWrites:
    """Writes for one front-end. ``settling`` learns of everything that the caches have yet to show."""

    def __init__(
        self,
        client: Api,
        front: FrontEnd,
        settling: Settling[WishKey],
        clock: Clock,
        *,
        copies: Prepares | None = None,
    ) -> None:
        """``copies`` carries out ``prepare``, where plans of the front-end have it."""
        self._client = client
        self._copies = copies
        self._front = front
        self._settling = settling
        self._clock = clock
        self._pace = Pace()
        self._uids: dict[WishKey, dict[str, str]] = {}
        self._versions: dict[tuple[str, Key], str] = {}
        """Of objects that the caches do not show as we have written them."""

    @contextmanager
    def round(self, wish: WishKey) -> Iterator[Mapping[str, str]]:
        """While it lasts, what its writes create or find is known to its later ones by name (``document.uid_of``)."""
        made = self._uids[wish] = {}
        try:
            yield made
        finally:
            del self._uids[wish]

    async def carry_out(self, wish: WishKey, write: Write) -> Carried | StepFailure:
        """One write. Raises ``KubernetesError`` if the API server gave no answer that settles it."""
        made = self._uids.get(wish, {})
        if made:
            write = msgspec.structs.replace(write, uid=made.get(write.uid, write.uid), body=_named(write.body, made))
        try:
            if write.verb in ("create", "prepare") and not await self._has_live_owner(wish, write):
                return Carried.MOVED_ON
            match write.verb:
                case "create":
                    return await self._create(wish, write)
                case "patch":
                    return await self._patch(wish, write)
                case "prepare" if self._copies is not None:
                    document = await self._copies.document(write)
                    if document is None:
                        return Carried.NOT_NEEDED
                    return await self._patch(wish, msgspec.structs.replace(write, how="apply", body=document))
                case "status":
                    return await self._status(wish, write)
                case "delete":
                    return await self._delete(wish, write)
        except (Conflict, NotFound) as error:
            log.info("an object has changed meanwhile", build=str(wish), step=write.step, error=str(error))
            return Carried.MOVED_ON
        except REFUSALS as error:
            if any(cause.field == "metadata.uid" for cause in error.causes):
                return Carried.MOVED_ON  # another object has the name now
            log.warning("the API server refused a write", build=str(wish), step=write.step, error=str(error))
            return refused(write, error.reason or type(error).__name__, error)
        raise ValueError(f"{write.verb} is not a verb of the API server")

    # -- the verbs -----------------------------------------------------------------------------------------------------

    async def _create(self, wish: WishKey, write: Write) -> Carried | StepFailure:
        resource = self._front.resources[write.kind]
        document = {"apiVersion": resource.api_version, "kind": resource.kind, **write.body}
        try:
            made = await self._client.create(resource, document, namespace=write.namespace)
        except AlreadyExists as error:
            found = await self._client.get(resource, write.name, namespace=write.namespace)
            if (found.get("metadata") or {}).get("deletionTimestamp"):
                return Carried.MOVED_ON  # its name is free once it has gone
            if is_own(document, found):
                metadata = msgspec.convert(found.get("metadata") or {}, ObjectMeta)
                self._made(wish, write, metadata)
                return Carried.NOT_NEEDED
            return refused(write, "NameConflict", error)
        self._made(wish, write, made.metadata)
        return Carried.DONE

    async def _has_live_owner(self, wish: WishKey, write: Write) -> bool:
        """Whether what an object is made for is there and stays. Raises ``NotFound``.

        The cache may show what was deleted a moment ago, or while the API server was away: an execution of such a wish
        would begin Jobs, and a Job of such an execution would run, until garbage collection finds it. It is asked once
        in a round, and not for what the round has made itself.
        """
        known = self._uids.get(wish, {})
        for owner in write.body["metadata"]["ownerReferences"]:
            if owner["uid"] in known.values():
                continue
            resource = self._front.resources[owner["kind"]]
            namespace = write.namespace if resource.namespaced else ""
            metadata = (await self._client.get(resource, owner["name"], namespace=namespace))["metadata"]
            if metadata["uid"] != owner["uid"] or metadata.get("deletionTimestamp"):
                return False
            known[uid_of(owner["kind"], owner["name"])] = owner["uid"]
        return True

    async def _patch(self, wish: WishKey, write: Write) -> Carried:
        resource = self._front.resources[write.kind]
        if write.how == "apply":
            if self._is_equal(write):
                return Carried.NOT_NEEDED
            metadata = {**(write.body.get("metadata") or {}), "name": write.name, "namespace": write.namespace}
            document = {"apiVersion": resource.api_version, "kind": resource.kind, **write.body, "metadata": metadata}
            made = await self._client.apply(resource, document, namespace=write.namespace)
            if made.metadata.deletion_timestamp is not None:
                return Carried.MOVED_ON  # it goes, whatever is written to it; its name is free then
        else:
            patch = MergePatch(_guarded(write.body, write))
            made = await self._client.patch(resource, write.name, patch, namespace=write.namespace)
        self._seen(wish, write, made.metadata.resource_version)
        return Carried.DONE

    async def _status(self, wish: WishKey, write: Write) -> Carried:
        stored, uid, version = self._stored_status(write)
        wanted = write.body.get("status") or {}
        change = difference(stored, wanted)
        if not change:
            return Carried.NOT_NEEDED
        uid = write.uid or uid or f"{write.namespace}/{write.name}"
        waits = bool(stored) and may_wait(stored, wanted)
        if waits and self._pace.rest(uid, self._clock.monotonic()):
            return Carried.LATER
        guarded = _guarded({"status": change}, write, version)
        resource = self._front.resources[write.kind]
        made = await self._client.patch(
            resource, write.name, MergePatch(guarded), namespace=write.namespace, subresource="status"
        )
        self._pace.wrote(uid, self._clock.monotonic())
        self._seen(wish, write, made.metadata.resource_version)
        self._front.status_written(write, stored)
        return Carried.DONE

    async def _delete(self, wish: WishKey, write: Write) -> Carried:
        resource = self._front.resources[write.kind]
        try:
            await self._client.delete(
                resource,
                write.name,
                namespace=write.namespace,
                uid=write.uid or None,
                resource_version=write.resource_version or None,
                propagation="Foreground" if write.how == "foreground" else "Background",
            )
        except NotFound:
            return Carried.NOT_NEEDED
        if (cache := self._cache(write.kind)) is not None:
            for each in self._concerned(wish, write.kind):
                self._settling.deleted(each, cache.store, Key(write.namespace, write.name), write.uid)
        return Carried.DONE

    # -- caches --------------------------------------------------------------------------------------------------------

    def _cache(self, kind: str) -> Cache | None:
        return self._front.caches.get(kind)

    def _made(self, wish: WishKey, write: Write, metadata: ObjectMeta) -> None:
        if wish in self._uids:
            self._uids[wish][uid_of(write.kind, write.name)] = metadata.uid
        self._seen(wish, write, metadata.resource_version)

    def _seen(self, wish: WishKey, write: Write, version: str) -> None:
        key = Key(write.namespace, write.name)
        if (cache := self._cache(write.kind)) is not None and version:
            for each in self._concerned(wish, write.kind):
                self._settling.wrote(each, cache.writes, key, version)
            known = {each: of for each, of in self._versions.items() if self._is_behind(*each)}
            self._versions = {**known, (write.kind, key): version}

    def _concerned(self, wish: WishKey, kind: str) -> tuple[WishKey, ...]:
        """Who plans from this object: with a Job every build of its namespace (BD-093)."""
        return (wish, jobs_of(wish.namespace)) if kind == JOBS.kind else (wish,)

    def _is_behind(self, kind: str, key: Key) -> bool:
        cache = self._cache(kind)
        return cache is not None and cache.writes.is_stale(key)

    def _stored_status(self, write: Write) -> tuple[Mapping[str, Any], str, str]:
        """Status, UID and resourceVersion in the cache; nothing for an object made in this round."""
        cache, key = self._cache(write.kind), Key(write.namespace, write.name)
        found = cache.store.get(key) if cache is not None else None
        if found is None or (write.uid and found.metadata.uid != write.uid):
            return {}, "", ""
        newer = self._versions.get((write.kind, key)) if self._is_behind(write.kind, key) else None
        return found.status or {}, found.metadata.uid, newer or found.metadata.resource_version

    def _is_equal(self, write: Write) -> bool:
        """Whether the cache shows every field that would be applied (BD-049: written only when different)."""
        cache, key = self._cache(write.kind), Key(write.namespace, write.name)
        found = cache.store.get(key) if cache is not None else None
        if found is None or self._is_behind(write.kind, key):
            return False
        metadata = write.body.get("metadata") or {}
        return (
            all(
                msgspec.to_builtins(getattr(found, name, None)) == value
                for name, value in write.body.items()
                if name not in ("metadata", "apiVersion", "kind")
            )
            and dict(metadata.get("labels") or {}).items() <= (found.metadata.labels or {}).items()
            and dict(metadata.get("annotations") or {}).items() <= (found.metadata.annotations or {}).items()
            and _owner_uids(metadata) <= {each.uid for each in found.metadata.owner_references or ()}
        )


def jobs_of(namespace: str) -> WishKey:
    """Stands for all builds of a namespace where their Jobs are settling."""
    return WishKey("ImageBuild", namespace, "")


def is_own(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether an object that exists under our name is the one that was to be made.

    It is if it has our owner; if nobody controls it and its labels are ours, somebody took the owner away (BD-324). A
    spec that can never change has to be equal as well (BD-021).
    """
    ours, theirs = wanted.get("metadata") or {}, found.get("metadata") or {}
    owned = _owner_uids(ours) <= _owner_uids(theirs)
    if not owned:
        controlled = any(each.get("controller") for each in theirs.get("ownerReferences") or ())
        marks = {name: value for name, value in (ours.get("labels") or {}).items() if name in OWN_MARKS}
        owned = not controlled and bool(marks) and marks.items() <= (theirs.get("labels") or {}).items()
    if not owned or wanted.get("kind") != names.IMAGE_BUILD_RUNS.kind:
        return owned
    return not difference(_defaulted(found.get("spec") or {}), _defaulted(wanted.get("spec") or {}))


_RUN_DEFAULTS: Final = {"serial": 1, "format": "OCI", "index": "Auto", "attestations": "Drop"}


def _defaulted(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A Run's spec with the defaults of its schema, and without the generation that happened to make it."""
    whole = {**_RUN_DEFAULTS, **spec}
    build = dict(whole.get("imageBuild") or {})
    build.pop("generation", None)
    return {**whole, "imageBuild": build}


_PLACEHOLDER: Final = uid_of("", "")[:6]
"""How every placeholder begins."""


def _named(body: Any, made: Mapping[str, str]) -> Any:
    """The body with the UIDs of what this round has created."""
    if isinstance(body, Mapping):
        return {name: _named(value, made) for name, value in body.items()}
    if isinstance(body, list | tuple):
        return [_named(each, made) for each in body]
    if isinstance(body, str) and _PLACEHOLDER in body:
        for placeholder, uid in made.items():
            body = body.replace(placeholder, uid)
    return body


def refused(write: Write, code: str, error: ApiError) -> StepFailure:
    """What the plan learns of a refusal."""
    return StepFailure(
        verb=write.verb,
        step=write.step,
        kind=write.kind,
        name=write.name,
        reference=write.reference,
        code=code,
        message=error.message or str(error),
        retry_after=error.retry_after,
    )


def _guarded(body: Mapping[str, Any], write: Write, version: str = "") -> dict[str, Any]:
    """With the preconditions of the write; ``version`` is that of the object it was compared with."""
    metadata = dict(body.get("metadata") or {})
    if found := write.resource_version or version:
        metadata["resourceVersion"] = found
    elif write.uid:
        metadata["uid"] = write.uid
    return {**body, "metadata": metadata} if metadata else dict(body)


def _owner_uids(metadata: Mapping[str, Any]) -> set[str]:
    return {str(each.get("uid")) for each in metadata.get("ownerReferences") or ()}
