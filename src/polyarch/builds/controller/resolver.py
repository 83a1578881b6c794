"""Does the lookups of a plan: images at registries, ConfigMaps, Secrets and Jobs by their names.

All builds share one inspector, so that a base image is looked up once for all of them; each uses the credentials of
its own Secrets. Whether a manifest exists is kept while the same execution is under way, since its plan is made
anew at every step of its Jobs. Errors are not kept: the plan says when to look again.
"""

import base64
import binascii
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import msgspec
import structlog

from polyarch.builds import names
from polyarch.builds.controller.informers import BuildRef
from polyarch.builds.controller.writes import Registries
from polyarch.builds.facts.build_facts import BuildFacts, BuildLookup, FoundJob, HeadResult, LookupKind, SecretFacts
from polyarch.builds.facts.objects import (
    DOCUMENTS,
    ConfigMapObject,
    JobObject,
    RuntimeClassObject,
    SecretObject,
    config_map_data,
    found_job,
    named_by,
    secret_facts,
)
from polyarch.clock import Clock
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.informer import OnDemandInformer, Shares
from polyarch.kube.rbac import rule
from polyarch.kube.resources import CONFIGMAPS, JOBS, RUNTIME_CLASSES, SECRETS
from polyarch.kube.store import ObjectChange, older
from polyarch.objects import DOCKER_CONFIG, ObjectKey, PartialObjectMetadata
from polyarch.oci.auth.credential_stores import CredentialStore, KeyringCredentials
from polyarch.oci.auth.credentials import Credential, CredentialWarning, Document
from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.inspection import Inspection, InspectionError, Status
from polyarch.oci.lru_cache import LRUCache
from polyarch.oci.pull_sources import PullSource
from polyarch.oci.reference import Reference

MAX_CONCURRENT_LOOKUPS: Final = 16
"""Lookups of one build at a time."""
ANSWER_LIFETIME: Final = 600.0
"""Seconds for which it counts as known that a manifest is there, or is not."""


class _Known(msgspec.Struct):
    """What one build knows of manifests."""

    execution: str
    found: dict[str, tuple[HeadResult, float]]


class BuildResolver:
    """Does the lookups of all builds."""

    def __init__(self, registries: Registries, inputs: "SpecInputs", clock: Clock, *, named: "NamedObjects") -> None:
        self._registries = registries
        self._inputs = inputs
        self._named = named
        self._clock = clock
        self._known: dict[BuildRef, _Known] = {}

    async def answered(
        self, ref: BuildRef, facts: BuildFacts, lookups: Iterable[BuildLookup], credentials: CredentialStore
    ) -> BuildFacts:
        """The facts with the results of all lookups. Raises what the API server raises."""
        asked = list(dict.fromkeys(lookups))

        forbidden = False

        async def answer(lookup: BuildLookup) -> Any:
            nonlocal forbidden
            try:
                return await ask(lookup)
            except Forbidden as error:
                forbidden = True
                return _unreadable(lookup, error)

        async def ask(lookup: BuildLookup) -> Any:
            match lookup.what:
                case "inspect":
                    return await self._registries.inspect(
                        lookup.reference, credentials=credentials, fresh=lookup.revalidate, tenant=ref.namespace
                    )
                case "head":
                    return await self._head(ref, lookup.reference, credentials)
                case "configmap":
                    return await self._inputs.config_map(ref, lookup.reference)
                case "secret":
                    return await self._inputs.secret(ref, lookup.reference)
                case "job":
                    return await self._named.job(ref.namespace, lookup.reference)
                case "runtimeclass":
                    return await self._named.runtime_handler(lookup.reference)

        answers = await map_concurrently(answer, asked, at_once=MAX_CONCURRENT_LOOKUPS)
        given: dict[str, dict[str, Any]] = {each: {} for each in get_args(LookupKind)}
        for lookup, said in zip(asked, answers, strict=True):
            given[lookup.what][lookup.reference] = said
        inputs = msgspec.structs.replace(
            facts.inputs,
            config_maps={**facts.inputs.config_maps, **given["configmap"]},
            secrets={**facts.inputs.secrets, **given["secret"]},
            readable=facts.inputs.readable and not forbidden,
        )
        return msgspec.structs.replace(
            facts,
            images={**facts.images, **given["inspect"]},
            existing={**facts.existing, **given["head"]},
            found_jobs={**facts.found_jobs, **given["job"]},
            runtime_handlers={**facts.runtime_handlers, **given["runtimeclass"]},
            inputs=inputs,
            pins_fresh=facts.pins_fresh or any(each.revalidate for each in asked),
        )

    async def _head(self, ref: BuildRef, reference: str, credentials: CredentialStore) -> HeadResult:
        known, now = self._known.setdefault(ref, _Known("", {})), self._clock.monotonic()
        if reference in known.found:
            existence, at = known.found[reference]
            if now - at < ANSWER_LIFETIME:
                return existence
        existence = await self._registries.head(reference, credentials=credentials, tenant=ref.namespace)
        if not existence.error:
            known.found[reference] = (existence, now)
        return existence

    def is_about(self, ref: BuildRef, execution: str) -> None:
        """From now on this execution is under way, or none: what is known for another one is forgotten."""
        known = self._known.get(ref)
        if known is None:
            return
        if not execution or known.execution not in ("", execution):
            del self._known[ref]
        else:
            known.execution = execution

    def written(self, ref: BuildRef) -> None:
        """This build has written to a registry, or failed to: what is there is looked up again."""
        if (known := self._known.get(ref)) is not None:
            known.found.clear()


def _unreadable(lookup: BuildLookup, error: Forbidden) -> Any:
    """What stands for an answer that needs a Secret which may not be read: the plan says so, and asks no further."""
    code = "unauthorized"
    match lookup.what:
        case "inspect":
            nowhere = Reference("docker", "", lookup.reference)
            return Inspection(nowhere, Status.ERROR, error=InspectionError.of(code, str(error)))
        case "head":
            return HeadResult(error=code)
        case "secret":
            return None
    raise error


# -- Jobs and RuntimeClasses by name -----------------------------------------------------------------------------------


log = structlog.get_logger(__name__)

NAMED_OBJECT_RIGHTS: Final = (rule(JOBS, "get"), rule(RUNTIME_CLASSES, "get"))
"""RBAC rules in the whole cluster."""


class NamedObjects:
    """Reads objects by their names from the API server."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def job(self, namespace: str, name: str) -> FoundJob | None:
        """The Job; None if there is none, or it is being deleted."""
        try:
            return found_job(await self._client.get(JOBS, name, namespace=namespace, type=JobObject))
        except NotFound:
            return None

    async def runtime_handler(self, name: str) -> str | None:
        """The handler of a RuntimeClass; None if there is no such class. One that may not be read is taken to have the
        handler of its own name, as most do."""
        try:
            found = await self._client.get(RUNTIME_CLASSES, name, type=RuntimeClassObject)
        except NotFound:
            return None
        except Forbidden as error:
            log.warning("a RuntimeClass may not be read", runtime_class=name, error=str(error))
            return name
        handler: str = found.handler
        return handler


# -- ConfigMaps and Secrets --------------------------------------------------------------------------------------------


T = TypeVar("T")

CONFIG_MAP_RIGHTS: Final = (rule(CONFIGMAPS, "get", "list", "watch"),)
"""RBAC rules in the namespaces of builds; Secrets are readable where an administrator says so."""
HMAC_RIGHTS: Final = (rule(SECRETS, "get", names=[names.HMAC_SECRET]),)
"""RBAC rules in the builder's own namespace."""
SECRET_RIGHTS: Final = (rule(SECRETS, "get"),)
"""RBAC rules of the ClusterRole that an administrator binds in a namespace."""

SECRET_LIFETIME: Final = 600.0
"""Seconds after which a Secret that enters a key is read again, and one with which registries are asked."""
JUST_READ: Final = 5.0
"""Seconds within which a plan's question about a Secret is answered by a former reading."""
ENABLED_AGAIN: Final = 60.0
"""Seconds after which it is tried again whether Secrets may be read in a namespace."""
CONTENTS: Final = (10_000, 64 * 1024 * 1024)
READINGS: Final = (4_096, 16 * 1024 * 1024)
"""Limits of the caches, in entries and bytes."""
HMAC_KEY: Final = "key"


class _Content(msgspec.Struct, frozen=True):
    version: str
    content: Mapping[str, Any]


class _Reading(msgspec.Struct, frozen=True):
    secret: SecretObject | None
    at: float


class SpecInputs:
    """Reads ConfigMaps and Secrets of all builds. ``enqueue`` gets the builds of a ConfigMap that has changed."""

    def __init__(
        self,
        client: Client,
        informers: Shares,
        clock: Clock,
        *,
        namespace: str,
        enqueue: Callable[[BuildRef], None],
    ) -> None:
        """``namespace``: the builder's own, with the Secret of the HMAC key."""
        self._client = client
        self._informers = informers
        self._clock = clock
        self._namespace = namespace
        self._enqueue = enqueue
        self._watches: dict[str, OnDemandInformer[PartialObjectMetadata]] = {}
        self._users: defaultdict[ObjectKey, set[BuildRef]] = defaultdict(set)
        self._used: dict[BuildRef, frozenset[ObjectKey]] = {}
        self._contents: LRUCache[ObjectKey, _Content] = LRUCache(CONTENTS[0], weight=CONTENTS[1])
        self._readings: LRUCache[ObjectKey, _Reading] = LRUCache(READINGS[0], weight=READINGS[1])
        self._hmac_key = b""

    async def fill(self, ref: BuildRef, facts: BuildFacts) -> BuildFacts:
        """The facts with everything that the build's keys depend on. Raises what the API server raises."""
        wanted = named_by(facts.request.spec)
        entitled = facts.request.machine.entitled if facts.request.machine is not None else ()
        named = wanted.config_maps | {each.object for each in entitled if each.kind == "ConfigMap"}
        self._uses(ref, named)
        config_maps = {name: await self.config_map(ref, name) for name in sorted(named)}
        found: dict[str, SecretFacts | None] = {}
        readable = True
        try:
            for name in sorted(wanted.keyed_secrets):
                found[name] = await self._keyed(ObjectKey(ref.namespace, name))
        except Forbidden:
            readable = False
        inputs = msgspec.structs.replace(facts.inputs, config_maps=config_maps, secrets=found, readable=readable)
        return msgspec.structs.replace(facts, inputs=inputs)

    def again_in(self, facts: BuildFacts) -> float | None:
        """Seconds until the inputs are read again that nobody tells us about; None if there are none."""
        if not facts.inputs.readable:
            return ENABLED_AGAIN
        entitled = facts.request.machine is not None and facts.request.machine.entitled
        return SECRET_LIFETIME if entitled or named_by(facts.request.spec).keyed_secrets else None

    def forget(self, ref: BuildRef) -> None:
        """The build is gone: what only it has named is not watched any more."""
        self._uses(ref, ())

    # -- ConfigMaps ----------------------------------------------------------------------------------------------------

    async def config_map(self, ref: BuildRef, name: str) -> Mapping[str, Any] | None:
        """``data`` and ``binaryData`` as they are now, those that are there; None if there is no such ConfigMap."""
        key = ObjectKey(ref.namespace, name)
        watch = self._watches.get(key.namespace)
        if watch is None:
            self._uses(ref, (*(each.name for each in self._used.get(ref, ())), name))
            watch = self._watches[key.namespace]
        await watch.synced()
        seen = watch.get(key)
        if seen is None:
            self._contents.pop(key)
            return None
        known = self._contents.get(key)
        if known is None or (known.version != seen.metadata.resource_version and not self._is_ahead(known, seen)):
            try:
                read = await self._client.get(CONFIGMAPS, name, namespace=key.namespace, type=ConfigMapObject)
            except NotFound:
                return None
            known = _Content(read.metadata.resource_version, config_map_data(read))
            sizes = (len(text) for part in (read.data, read.binary_data) for text in (part or {}).values())
            self._contents.put(key, known, weight=sum(sizes) + 256)
        return known.content

    @staticmethod
    def _is_ahead(known: _Content, seen: PartialObjectMetadata) -> bool:
        """Read a moment ago, in a version that the watch has yet to show."""
        return older(seen.metadata.resource_version, known.version)

    def _uses(self, ref: BuildRef, wanted: Iterable[str]) -> None:
        used = frozenset(ObjectKey(ref.namespace, name) for name in wanted)
        before = self._used.get(ref, frozenset())
        for key in before - used:
            self._users[key].discard(ref)
            if not self._users[key]:
                del self._users[key]
                self._contents.pop(key)
        for key in used - before:
            self._users[key].add(ref)
        if used:
            self._used[ref] = used
        else:
            self._used.pop(ref, None)
        if used == before:
            return
        watched = any(key.namespace == ref.namespace for key in self._users)
        watch = self._watches.get(ref.namespace)
        if watched and watch is None:
            watch = self._watches[ref.namespace] = OnDemandInformer(
                self._informers, CONFIGMAPS, PartialObjectMetadata, self._changed, namespace=ref.namespace
            )
            watch.want(True)
        elif not watched and watch is not None:
            watch.want(False)
            del self._watches[ref.namespace]

    def _changed(self, change: ObjectChange[PartialObjectMetadata]) -> None:
        if change.initial:
            return
        for ref in tuple(self._users.get(change.key, ())):
            self._enqueue(ref)

    # -- Secrets -------------------------------------------------------------------------------------------------------

    async def secret(self, ref: BuildRef, name: str) -> SecretFacts | None:
        """What may be known of a Secret, read now; None if there is none. Raises ``Forbidden``."""
        secret = await self._read(ObjectKey(ref.namespace, name), at_most=JUST_READ)
        return secret_facts(secret, b"") if secret is not None else None

    def credentials(self, namespace: str, names: tuple[str, ...]) -> CredentialStore:
        """The Secrets' credentials, read only when a registry is asked with them."""
        return _SecretCredentials(self, namespace, names)

    async def documents(self, namespace: str, wanted: Sequence[str]) -> tuple[list[Document], list[str]]:
        """The credential documents of these Secrets, and why others have none.

        Raises where the API server gave no answer, or none may be read (``Forbidden``): without credentials a registry
        would refuse for good what it takes a moment later, and the build would be held until somebody changes its
        Secret.
        """
        found: list[Document] = []
        problems: list[str] = []
        for name in wanted:
            where = f"{namespace}/{name}"
            secret = await self._read(ObjectKey(namespace, name), at_most=SECRET_LIFETIME)
            if secret is None:
                problems.append(f"Secret {where} does not exist")
                continue
            document = _document(secret, where)
            if document is not None:
                found.append(document)
            else:
                problems.append(f"Secret {where} holds no credentials of registries")
        return found, problems

    async def _keyed(self, key: ObjectKey) -> SecretFacts | None:
        """A Secret with the fingerprints that enter keys."""
        secret = await self._read(key, at_most=SECRET_LIFETIME)
        if secret is None:
            return None
        hmac_key = await self._hmac()
        if not hmac_key:
            missing = f"the builder's own Secret {self._namespace}/{names.HMAC_SECRET} has no {HMAC_KEY!r}"
            return msgspec.structs.replace(secret_facts(secret, b""), invalid=f"{missing}: the operator makes it")
        return secret_facts(secret, hmac_key)

    async def _read(self, key: ObjectKey, *, at_most: float) -> SecretObject | None:
        """The Secret, not older than ``at_most`` seconds."""
        now = self._clock.monotonic()
        known = self._readings.get(key)
        if known is not None and now - known.at < at_most:
            return known.secret
        try:
            secret = await self._client.get(SECRETS, key.name, namespace=key.namespace, type=SecretObject)
        except NotFound:
            self._readings.pop(key)
            return None
        size = sum(len(value or "") for value in (secret.data or {}).values())
        self._readings.put(key, _Reading(secret, now), weight=size + 256)
        return secret

    async def _hmac(self) -> bytes:
        """The role's key; empty while there is none."""
        if not self._hmac_key:
            own = await self._read(ObjectKey(self._namespace, names.HMAC_SECRET), at_most=ENABLED_AGAIN)
            text = (own.data or {}).get(HMAC_KEY) if own is not None else None
            self._hmac_key = _decoded(text) if text else b""
        return self._hmac_key


def _document(secret: SecretObject, name: str) -> Document | None:
    """The credential document of a Secret; None if it has none."""
    text = (secret.data or {}).get(DOCUMENTS.get(secret.type, ""))
    if not text or not (body := _decoded(text)):
        return None
    return Document(origin=f"secret {name}", body=body, legacy=secret.type == DOCKER_CONFIG)


def _decoded(text: str) -> bytes:
    """Empty for what is not base64."""
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return b""


class _SecretCredentials:
    """A credential store that reads its Secrets when it is first asked."""

    def __init__(self, inputs: SpecInputs, namespace: str, names: tuple[str, ...]) -> None:
        self._inputs = inputs
        self._namespace = namespace
        self._names = names
        self._store: KeyringCredentials | None = None
        self._problems: list[str] = []

    async def candidates(self, reference: Reference, source: PullSource) -> list[Credential]:
        if self._store is None:
            documents, self._problems = await self._inputs.documents(self._namespace, self._names)
            self._store = KeyringCredentials(documents)
        return await self._store.candidates(reference, source)

    def cached_candidates(self, reference: Reference, source: PullSource) -> list[Credential] | None:
        return self._store.cached_candidates(reference, source) if self._store is not None else None

    def warnings(self, source: PullSource) -> Sequence[CredentialWarning]:
        said = self._store.problems if self._store is not None else ()
        return tuple(CredentialWarning("credential-document", problem) for problem in (*self._problems, *said))
