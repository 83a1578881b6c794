"""Carries out the writes of a plan: objects at the API server, results and tags at registries.

Every write is noted until the caches show it: a build is not planned from what it has just changed. The watch event
that brings a cache up to date requeues the build.
"""

import base64
import gzip
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import islice
from typing import Any, Final, Generic, TypeVar

import msgspec
import structlog

from polyarch.builds import names
from polyarch.builds.controller.informers import BuildReader, BuildRef, WrittenCache
from polyarch.builds.facts.build_facts import HeadResult, WriteFailure
from polyarch.builds.facts.objects import DOCUMENTS, SecretObject, has_helpers
from polyarch.builds.keys import NOT_ENABLED
from polyarch.builds.machineos import api
from polyarch.builds.machineos.job_objects import (
    CREDENTIALS,
    FILE,
    UnreadableFile,
    ignition_file,
    one_form,
)
from polyarch.builds.plan.conditions import StatusRateLimiter, may_wait, status_patch
from polyarch.builds.plan.document import Write, uid_placeholder
from polyarch.builds.pruning import PrunableImage
from polyarch.builds.registry import (
    PruneResult,
    Publication,
    PublishFailure,
    PublishResult,
    TagRequest,
    delete_images,
    head_image,
    move_tags,
    publish,
)
from polyarch.clock import Clock
from polyarch.kube.client import Client
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
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import rule
from polyarch.kube.resources import CONFIGMAPS, JOBS, SECRETS
from polyarch.kube.store import Store, WriteExpectations
from polyarch.objects import DOCKER_CONFIG_JSON, ObjectKey, ObjectMeta, Unstructured
from polyarch.oci.auth.credential_plugins import ProviderCredentials
from polyarch.oci.auth.credential_stores import ChainedCredentials, CredentialStore
from polyarch.oci.auth.credentials import MalformedDocument
from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.oci.inspector import Inspector
from polyarch.oci.reference import InvalidReference, Reference, parse

K = TypeVar("K", bound=Hashable)
EXPECTATION_LIFETIME: Final = 60.0
"""Seconds after which a deletion that the cache does not show is forgotten: the cache is broken then, not late."""
LOOKED_AT: Final = 4
"""Builds that are checked with every write: more than it adds, so that what the caches show never adds up."""


class BuildExpectations(Generic[K]):
    """Which builds wait for their own writes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pending: dict[K, list[Callable[[], bool]]] = {}

    def wrote(self, build: K, writes: WriteExpectations[Any], key: ObjectKey, resource_version: str) -> None:
        """The API server answered a write to the object ``key`` of a cache with this resourceVersion."""
        writes.note_write(key, resource_version)
        self._note(build, lambda: writes.is_stale(key))

    def deleted(self, build: K, store: Store[Any], key: ObjectKey, uid: str) -> None:
        """The API server accepted the deletion of that object."""
        until = self._clock.monotonic() + EXPECTATION_LIFETIME

        def is_there() -> bool:
            cached = store.get(key)
            return (
                cached is not None
                and cached.metadata.uid == uid
                and cached.metadata.deletion_timestamp is None
                and self._clock.monotonic() < until
            )

        self._note(build, is_there)

    def _note(self, build: K, is_behind: Callable[[], bool]) -> None:
        """Nobody asks again about a build that is gone, or a namespace without builds: those that wait for longest are
        looked at here."""
        for each in tuple(islice(self._pending, LOOKED_AT)):
            self.is_stale(each)
        self._pending.setdefault(build, []).append(is_behind)

    def is_stale(self, build: K) -> bool:
        """Whether some cache is still behind a write of this build."""
        pending = [each for each in self._pending.get(build, ()) if each()]
        if pending:
            self._pending[build] = pending
        else:
            self._pending.pop(build, None)
        return bool(pending)


# -- objects -----------------------------------------------------------------------------------------------------------


log = structlog.get_logger(__name__)

WRITE_RIGHTS: Final = (
    rule(names.IMAGE_BUILDS, "get", "patch"),
    rule(names.IMAGE_BUILD_RUNS, "create", "get", "patch", "delete"),
    rule((names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS), "patch", subresource="status"),
    rule(JOBS, "create", "get", "patch", "delete"),
    rule(CONFIGMAPS, "create", "get", "patch", "delete"),
)
"""RBAC rules in the namespaces of builds."""
MACHINE_RIGHTS: Final = (
    rule(api.CONFIGS, "get"),
    rule((api.CONFIGS, api.POOLS), "patch"),
    rule(api.BUILDS, "create", "get", "patch", "delete"),
    rule((api.CONFIGS, api.BUILDS, api.POOLS), "patch", subresource="status"),
)
"""RBAC rules in the whole cluster, for machine OS images."""
REFUSALS: Final = (BadRequest, Forbidden, Invalid, MethodNotAllowed, TooLarge)
"""Answers that the same request would get again."""
OWN_LABELS: Final = (names.BUILD_LABEL, names.RUN_LABEL, names.ARCHITECTURE_LABEL, names.ROLE_LABEL, names.KEY_LABEL)
"""Labels that tell whose an object is if somebody took its owner reference away."""


class WriteResult(Enum):
    """How a write ended that was not refused."""

    DONE = "done"
    NOT_NEEDED = "not needed"
    """What is there is as it should be: nothing was sent, or the object was found."""
    LATER = "later"
    """Progress that may wait for more."""
    MOVED_ON = "moved on"
    """The object is not what the plan was made from: the reconcile ends."""


class ObjectWrites:
    """Writes of the builds of one kind. ``expectations`` learns of everything that the caches have yet to show."""

    def __init__(
        self,
        client: Client,
        reader: BuildReader,
        expectations: BuildExpectations[BuildRef],
        clock: Clock,
        *,
        prepared: "PreparedObjects | None" = None,
    ) -> None:
        """``prepared`` carries out ``prepare``, where plans of this kind have it."""
        self._client = client
        self._prepared = prepared
        self._reader = reader
        self._expectations = expectations
        self._clock = clock
        self._pace = StatusRateLimiter()
        self._uids: dict[BuildRef, dict[str, str]] = {}
        self._versions: dict[tuple[str, ObjectKey], str] = {}
        """Versions of objects that the caches do not show as we have written them."""

    @contextmanager
    def uids_of(self, ref: BuildRef) -> Iterator[Mapping[str, str]]:
        """While it lasts, what its writes create or find is known to its later ones by name (``document.uid_of``)."""
        made = self._uids[ref] = {}
        try:
            yield made
        finally:
            del self._uids[ref]

    async def carry_out(self, ref: BuildRef, write: Write) -> WriteResult | WriteFailure:
        """One write. Raises ``KubernetesError`` if the API server gave no answer that settles it."""
        made = self._uids.get(ref, {})
        if made:
            write = msgspec.structs.replace(write, uid=made.get(write.uid, write.uid), body=_named(write.body, made))
        try:
            if write.verb in ("create", "prepare") and not await self._has_live_owner(ref, write):
                return WriteResult.MOVED_ON
            match write.verb:
                case "create":
                    return await self._create(ref, write)
                case "patch":
                    return await self._patch(ref, write)
                case "prepare" if self._prepared is not None:
                    document = await self._prepared.document(write)
                    if document is None:
                        return WriteResult.NOT_NEEDED
                    return await self._patch(ref, msgspec.structs.replace(write, how="apply", body=document))
                case "status":
                    return await self._status(ref, write)
                case "delete":
                    return await self._delete(ref, write)
        except (Conflict, NotFound) as error:
            log.info("an object has changed meanwhile", build=str(ref), step=write.step, error=str(error))
            return WriteResult.MOVED_ON
        except REFUSALS as error:
            if any(cause.field == "metadata.uid" for cause in error.causes):
                return WriteResult.MOVED_ON  # another object has the name now
            log.warning("the API server refused a write", build=str(ref), step=write.step, error=str(error))
            return refused(write, error.reason or type(error).__name__, error)
        raise ValueError(f"{write.verb} is not a verb of the API server")

    # -- the verbs -----------------------------------------------------------------------------------------------------

    async def _create(self, ref: BuildRef, write: Write) -> WriteResult | WriteFailure:
        resource = self._reader.resources[write.kind]
        document = {"apiVersion": resource.api_version, "kind": resource.kind, **write.body}
        try:
            made = await self._client.create(resource, document, namespace=write.namespace)
        except AlreadyExists as error:
            found = await self._client.get(resource, write.name, namespace=write.namespace)
            if (found.get("metadata") or {}).get("deletionTimestamp"):
                return WriteResult.MOVED_ON  # its name is free once it has gone
            if is_own(document, found):
                metadata = msgspec.convert(found.get("metadata") or {}, ObjectMeta)
                self._made(ref, write, metadata)
                return WriteResult.NOT_NEEDED
            return refused(write, "NameConflict", error)
        self._made(ref, write, made.metadata)
        return WriteResult.DONE

    async def _has_live_owner(self, ref: BuildRef, write: Write) -> bool:
        """Whether what an object is made for is there and stays. Raises ``NotFound``.

        The cache may show what was deleted a moment ago, or while the API server was away: an execution of such a build
        would begin Jobs, and a Job of such an execution would run, until garbage collection finds it. It is asked once
        in a reconcile, and not for what that has made itself.
        """
        known = self._uids.get(ref, {})
        for owner in write.body["metadata"]["ownerReferences"]:
            if owner["uid"] in known.values():
                continue
            resource = self._reader.resources[owner["kind"]]
            namespace = write.namespace if resource.namespaced else ""
            metadata = (await self._client.get(resource, owner["name"], namespace=namespace))["metadata"]
            if metadata["uid"] != owner["uid"] or metadata.get("deletionTimestamp"):
                return False
            known[uid_placeholder(owner["kind"], owner["name"])] = owner["uid"]
        return True

    async def _patch(self, ref: BuildRef, write: Write) -> WriteResult:
        resource = self._reader.resources[write.kind]
        if write.how == "apply":
            if self._is_equal(write):
                return WriteResult.NOT_NEEDED
            metadata = {**(write.body.get("metadata") or {}), "name": write.name, "namespace": write.namespace}
            document = {"apiVersion": resource.api_version, "kind": resource.kind, **write.body, "metadata": metadata}
            made = await self._client.apply(resource, document, namespace=write.namespace)
            if made.metadata.deletion_timestamp is not None:
                return WriteResult.MOVED_ON  # it goes, whatever is written to it; its name is free then
        else:
            patch = MergePatch(_guarded(write.body, write))
            made = await self._client.patch(resource, write.name, patch, namespace=write.namespace)
        self._seen(ref, write, made.metadata.resource_version)
        return WriteResult.DONE

    async def _status(self, ref: BuildRef, write: Write) -> WriteResult:
        stored, uid, version = self._stored_status(write)
        wanted = write.body.get("status") or {}
        change = status_patch(stored, wanted)
        if not change:
            return WriteResult.NOT_NEEDED
        uid = write.uid or uid or f"{write.namespace}/{write.name}"
        waits = bool(stored) and may_wait(stored, wanted)
        if waits and self._pace.rest(uid, self._clock.monotonic()):
            return WriteResult.LATER
        guarded = _guarded({"status": change}, write, version)
        resource = self._reader.resources[write.kind]
        made = await self._client.patch(
            resource, write.name, MergePatch(guarded), namespace=write.namespace, subresource="status"
        )
        self._pace.wrote(uid, self._clock.monotonic())
        self._seen(ref, write, made.metadata.resource_version)
        self._reader.status_written(write, stored)
        return WriteResult.DONE

    async def _delete(self, ref: BuildRef, write: Write) -> WriteResult:
        resource = self._reader.resources[write.kind]
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
            return WriteResult.NOT_NEEDED
        if (cache := self._cache(write.kind)) is not None:
            for each in self._concerned(ref, write.kind):
                self._expectations.deleted(each, cache.store, ObjectKey(write.namespace, write.name), write.uid)
        return WriteResult.DONE

    # -- caches --------------------------------------------------------------------------------------------------------

    def _cache(self, kind: str) -> WrittenCache | None:
        return self._reader.caches.get(kind)

    def _made(self, ref: BuildRef, write: Write, metadata: ObjectMeta) -> None:
        if ref in self._uids:
            self._uids[ref][uid_placeholder(write.kind, write.name)] = metadata.uid
        self._seen(ref, write, metadata.resource_version)

    def _seen(self, ref: BuildRef, write: Write, version: str) -> None:
        key = ObjectKey(write.namespace, write.name)
        if (cache := self._cache(write.kind)) is not None and version:
            for each in self._concerned(ref, write.kind):
                self._expectations.wrote(each, cache.writes, key, version)
            known = {each: of for each, of in self._versions.items() if self._is_behind(*each)}
            self._versions = {**known, (write.kind, key): version}

    def _concerned(self, ref: BuildRef, kind: str) -> tuple[BuildRef, ...]:
        """Who plans from this object: with a Job every build of its namespace."""
        return (ref, jobs_of(ref.namespace)) if kind == JOBS.kind else (ref,)

    def _is_behind(self, kind: str, key: ObjectKey) -> bool:
        cache = self._cache(kind)
        return cache is not None and cache.writes.is_stale(key)

    def _stored_status(self, write: Write) -> tuple[Mapping[str, Any], str, str]:
        """Status, UID and resourceVersion in the cache; nothing for an object made in this reconcile."""
        cache, key = self._cache(write.kind), ObjectKey(write.namespace, write.name)
        found = cache.store.get(key) if cache is not None else None
        if found is None or (write.uid and found.metadata.uid != write.uid):
            return {}, "", ""
        newer = self._versions.get((write.kind, key)) if self._is_behind(write.kind, key) else None
        return found.status or {}, found.metadata.uid, newer or found.metadata.resource_version

    def _is_equal(self, write: Write) -> bool:
        """Whether the cache shows every field that would be applied (written only when different)."""
        cache, key = self._cache(write.kind), ObjectKey(write.namespace, write.name)
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


def jobs_of(namespace: str) -> BuildRef:
    """Stands for all builds of a namespace where their Jobs are settling."""
    return BuildRef("ImageBuild", namespace, "")


def is_own(wanted: Mapping[str, Any], found: Mapping[str, Any]) -> bool:
    """Whether an object that exists under our name is the one that was to be made.

    It is if it has our owner; if nobody controls it and its labels are ours, somebody took the owner away. A
    spec that can never change has to be equal as well.
    """
    ours, theirs = wanted.get("metadata") or {}, found.get("metadata") or {}
    owned = _owner_uids(ours) <= _owner_uids(theirs)
    if not owned:
        controlled = any(each.get("controller") for each in theirs.get("ownerReferences") or ())
        marks = {name: value for name, value in (ours.get("labels") or {}).items() if name in OWN_LABELS}
        owned = not controlled and bool(marks) and marks.items() <= (theirs.get("labels") or {}).items()
    if not owned or wanted.get("kind") != names.IMAGE_BUILD_RUNS.kind:
        return owned
    return not status_patch(_defaulted(found.get("spec") or {}), _defaulted(wanted.get("spec") or {}))


_RUN_DEFAULTS: Final = {"serial": 1, "format": "OCI", "index": "Auto", "attestations": "Drop"}


def _defaulted(spec: Mapping[str, Any]) -> dict[str, Any]:
    """A Run's spec with the defaults of its schema, and without the generation that happened to make it."""
    whole = {**_RUN_DEFAULTS, **spec}
    build = dict(whole.get("imageBuild") or {})
    build.pop("generation", None)
    return {**whole, "imageBuild": build}


_PLACEHOLDER: Final = uid_placeholder("", "")[:6]
"""How every placeholder begins."""


def _named(body: Any, made: Mapping[str, str]) -> Any:
    """The body with the UIDs of what this reconcile has created."""
    if isinstance(body, Mapping):
        return {name: _named(value, made) for name, value in body.items()}
    if isinstance(body, list | tuple):
        return [_named(each, made) for each in body]
    if isinstance(body, str) and _PLACEHOLDER in body:
        for placeholder, uid in made.items():
            body = body.replace(placeholder, uid)
    return body


def refused(write: Write, code: str, error: ApiError) -> WriteFailure:
    """What the plan learns of a refusal."""
    return WriteFailure(
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
    """The body with the preconditions of the write; ``version`` is that of the object it was compared with."""
    metadata = dict(body.get("metadata") or {})
    if found := write.resource_version or version:
        metadata["resourceVersion"] = found
    elif write.uid:
        metadata["uid"] = write.uid
    return {**body, "metadata": metadata} if metadata else dict(body)


def _owner_uids(metadata: Mapping[str, Any]) -> set[str]:
    return {str(each.get("uid")) for each in metadata.get("ownerReferences") or ()}


# -- registries --------------------------------------------------------------------------------------------------------


class Registries:
    """The registries as builds use them: one inspector for all, the credentials of each build for itself, and
    each namespace with a share of its own (``tenant``).

    ``providers``: credentials of the cloud, which are for reading alone: what they could write is not a build's.
    """

    def __init__(self, inspector: Inspector, providers: ProviderCredentials | None = None) -> None:
        self._inspector = inspector
        self._providers = providers

    async def inspect(self, reference: str, *, credentials: CredentialStore, fresh: bool, tenant: str) -> Inspection:
        """The answer for one reference; a text that is none is an answer too."""
        try:
            named = parse(reference)
        except InvalidReference as error:
            nowhere = Reference("docker", "", reference)
            return Inspection(nowhere, Status.ERROR, error=InspectionError.of("malformed", str(error)))
        if self._providers is not None:
            credentials = ChainedCredentials([credentials, self._providers.of(tenant)])
        return await self._inspector.inspect(named, credentials=credentials, fresh=fresh, tenant=tenant)

    async def head(self, reference: str, *, credentials: CredentialStore, tenant: str) -> HeadResult:
        """What ``repository@digest`` or ``repository:tag`` names, where it was pushed."""
        return await head_image(self._inspector.connection.using(credentials, tenant), reference)

    async def publish(
        self, publication: Publication, *, credentials: CredentialStore, tenant: str
    ) -> PublishResult | PublishFailure:
        return await publish(self._inspector.connection.using(credentials, tenant), publication)

    async def move_tags(
        self, reference: str, tags: tuple[str, ...], *, credentials: CredentialStore, tenant: str
    ) -> PublishResult | PublishFailure:
        return await move_tags(self._inspector.connection.using(credentials, tenant), reference, tags)

    async def delete_images(
        self, images: Sequence[PrunableImage], *, credentials: CredentialStore, tenant: str
    ) -> PruneResult:
        return await delete_images(self._inspector.connection.using(credentials, tenant), images)


class RegistryWrites:
    """The registry steps of all builds."""

    def __init__(self, registries: Registries) -> None:
        self._registries = registries

    async def carry_out(self, ref: BuildRef, write: Write, credentials: CredentialStore) -> WriteResult | WriteFailure:
        """One step. Raises ``msgspec.ValidationError`` for a body that is none, and ``KubernetesError`` where the API
        server did not answer when a Secret was read."""
        try:
            result = await self._result(write, credentials, ref.namespace)
        except Forbidden as error:
            log.warning("a Secret may not be read", build=str(ref), step=write.step, error=str(error))
            return refused(write, NOT_ENABLED, error)
        if isinstance(result, PublishFailure):
            log.warning("a registry step failed", build=str(ref), step=write.step, error=result.message)
            return _failure(write, result)
        expected = str(write.body.get("digest") or "")
        if expected and result.digest != expected:
            message = f"{result.digest} was published where {expected} was planned"
            return _failure(write, PublishFailure(reason="RegistryInconsistent", message=message))
        return WriteResult.DONE if result.changed else WriteResult.NOT_NEEDED

    async def _result(self, write: Write, credentials: CredentialStore, tenant: str) -> PublishResult | PublishFailure:
        match write.verb:
            case "push-index":
                publication = msgspec.convert(write.body, Publication)
                return await self._registries.publish(publication, credentials=credentials, tenant=tenant)
            case "tag":
                tags = msgspec.convert(write.body, TagRequest).tags
                return await self._registries.move_tags(write.reference, tags, credentials=credentials, tenant=tenant)
        raise ValueError(f"{write.verb} is not a step of a plan that concerns registries")


def _failure(write: Write, trouble: PublishFailure) -> WriteFailure:
    return WriteFailure(
        verb=write.verb,
        step=write.step,
        kind=write.kind,
        name=write.name,
        reference=write.reference,
        code=trouble.reason,
        message=trouble.message,
        retry_after=trouble.retry_after,
        architecture=trouble.architecture,
        missing=trouble.missing,
        passing=trouble.passing,
    )


# -- objects with the content of Secrets -------------------------------------------------------------------------------


T = TypeVar("T")

SECRET_COPY_RIGHTS: Final = (rule(api.RENDERED, "get"),)
"""RBAC rules in the cluster."""
NAMESPACE_RIGHTS: Final = (rule(SECRETS, "get", "create", "patch"), rule(CONFIGMAPS, "create", "patch"))
"""RBAC rules in the namespace of machine OS builds."""


class UnusableSecret(Exception):  # noqa: N818 - what it is
    """A Secret that cannot be copied; the message quotes none of its content."""


class PreparedObjects:
    """Makes the documents of ``prepare`` writes."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def document(self, write: Write) -> dict[str, Any] | None:
        """The whole object; None if there is nothing to copy.

        Raises what the API server raises, and :class:`UnusableSecret`.
        """
        source: Mapping[str, str] = write.body["source"]
        metadata = dict(write.body["metadata"])
        if source["as"] == CREDENTIALS:
            body = await self._credentials(write.namespace, source["of"])
            data = {DOCUMENTS[DOCKER_CONFIG_JSON]: base64.b64encode(body).decode()}
            return {"metadata": metadata, "type": DOCKER_CONFIG_JSON, "data": data}
        rendered = await self._client.get(api.RENDERED, source["of"], type=Unstructured)
        if source["as"] == FILE:
            text = self._file(rendered.document, source)
            return {"metadata": metadata, "data": {source["key"]: text}} if text is not None else None
        packed = gzip.compress(msgspec.json.encode(rendered.document, order="deterministic"), mtime=0)
        return {"metadata": metadata, "data": {source["key"]: base64.b64encode(packed).decode()}}

    def _file(self, rendered: Mapping[str, Any], source: Mapping[str, str]) -> str | None:
        """A file that cannot be read is left out, with a Warning: builds do without, as nodes would have to."""
        try:
            return ignition_file(rendered, source["path"])
        except UnreadableFile as error:
            log.warning("a file of a MachineConfig is left out", machine_config=source["of"], problem=str(error))
            return None

    async def _credentials(self, namespace: str, name: str) -> bytes:
        secret = await self._client.get(SECRETS, name, namespace=namespace, type=SecretObject)
        where = f"Secret {namespace}/{name}"
        text = (secret.data or {}).get(DOCUMENTS.get(secret.type, ""))
        if not text:
            raise UnusableSecret(f"{where} is of type {secret.type!r} and holds no credentials of registries")
        try:
            body = base64.b64decode(text, validate=True)
            if has_helpers(body):
                log.warning("credential helpers are ignored: a Job has none", secret=f"{namespace}/{name}")
            return one_form(body)
        except MalformedDocument as error:
            raise UnusableSecret(f"{where} cannot be read: {error}") from None
        except ValueError:
            raise UnusableSecret(f"{where} is not base64") from None
