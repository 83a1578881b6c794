"""Pull secrets: read by name, cached for ten minutes, passed to the registry client as a credential store.

RBAC cannot limit ``list`` or ``watch`` to the secrets that pods name, so polyarch uses neither: it can read a pull
secret that a pod names, and cannot enumerate secrets. A missing, malformed or wrongly typed secret is skipped and
*named* if an image then fails; it is never a failure of its own. Secret content leaves this module only inside a
:class:`~polyarch.oci.auth.credential_stores.CredentialStore`.

The reader is a protocol with one method. The global pull secret is watched elsewhere and set with ``set_global``; an
empty one revokes it."""

import asyncio
import hashlib
import secrets as _random
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec
import structlog

from polyarch.clock import Clock
from polyarch.images.backoff import MAX_DELAY
from polyarch.images.fair_queue import ConcurrencyLimits, FairQueue, QueueEntry
from polyarch.kube.errors import Forbidden, KubernetesError, NotFound
from polyarch.kube.store import ObjectChange
from polyarch.objects import DOCKER_CONFIG, DOCKER_CONFIG_JSON, ObjectKey, Pod, Secret
from polyarch.oci.auth.credential_plugins import ProviderCredentials
from polyarch.oci.auth.credential_stores import ChainedCredentials, CredentialStore, KeyringCredentials
from polyarch.oci.auth.credentials import (
    Credential,
    CredentialWarning,
    Document,
    Keyring,
    MalformedDocument,
    read_entry,
    read_object,
)
from polyarch.oci.concurrency import QueueFull, RequestPriority, RequestQueue
from polyarch.oci.lru_cache import LRUCache
from polyarch.oci.pull_sources import PullSource
from polyarch.oci.reference import Reference
from polyarch.oci.settings import Share

log = structlog.get_logger(__name__)

KEEP: Final = 600.0
"""TTL of a secret in seconds."""
KEEP_ABSENT: Final = 30.0
KEEP_UNREADABLE: Final = 5.0
"""TTL of an API server error in seconds: long enough that a burst of pods asks once."""
JUST_READ: Final = 1.0
"""After an auth failure a secret that was read within so many seconds is not read again."""
AT_ONCE: Final = 16
"""Secrets read at a time; bounded because Leases and PATCHes share the client."""
IN_LINE: Final = 1024
"""Queued secret reads per namespace; beyond that a secret counts as unreadable for some seconds."""
PER_POD: Final = 32
"""Pull secrets of one pod that are read: the first that it names. Each costs a request after every auth failure, and a
pod may name as many as fit into an API object. The failure message says how many are left out."""
CAPACITY: Final = 10_000
BYTES: Final = 16 * 1024 * 1024
"""Limits of the caches of secrets and of combined credentials, in entries and bytes."""
READ_WEIGHT: Final = 16
"""Memory of a parsed document relative to its size (measured)."""

_KEYS: Final = {DOCKER_CONFIG_JSON: ".dockerconfigjson", DOCKER_CONFIG: ".dockercfg"}


class PullSecretNames(NamedTuple):
    """The pull secrets of a pod: the names in ``imagePullSecrets``, in order, without duplicates."""

    namespace: str
    names: tuple[str, ...]
    left_out: int = 0
    """Number of named secrets beyond :data:`PER_POD`."""

    @classmethod
    def of(cls, pod: Pod, namespace: str) -> "PullSecretNames":
        """From a pod; the API server has already added those of its ServiceAccount at admission."""
        names = tuple(dict.fromkeys(each.name for each in pod.spec.image_pull_secrets or () if each.name))
        return cls(namespace, names[:PER_POD], max(len(names) - PER_POD, 0))


class SecretClient(Protocol):
    """``GET`` of one secret."""

    async def __call__(self, namespace: str, name: str) -> Secret: ...


class PullSecretContent(NamedTuple):
    """The result of reading one secret: a document, or a sentence that says why there is none."""

    document: Document | None
    problem: str
    content: bytes
    """A digest that changes with the content and the type."""
    read_at: float
    keep: float

    @property
    def weight(self) -> int:
        """Approximate size in bytes."""
        body = self.document.body if self.document is not None else b""
        return 128 + (len(body) if isinstance(body, bytes) else 0)


class PodCredentials(NamedTuple):
    """A pod's credentials. Pods with equal secrets have equal ``fingerprint`` and may share lookups."""

    source: PullSecretNames
    fingerprint: str
    """Empty if the pod has no credentials of its own; all such pods share lookups."""
    store: CredentialStore
    problems: tuple[str, ...]
    """Skipped secrets and why, to be named if an image fails."""


class _Made(msgspec.Struct):
    """Cached credentials of a source, and the content digests they were built from."""

    contents: tuple[tuple[bytes, str], ...]
    """Of each secret the digest, and what is wrong with it."""
    credentials: PodCredentials
    read_at: float = float("-inf")
    """When a caller last waited for them."""


def _shared(reads: int) -> Share:
    return Share(reads, minimum=2, maximum=4 * reads)


class PullSecrets:
    """Cache of pull secrets, with at most one request at a time for each."""

    def __init__(
        self,
        read: SecretClient,
        clock: Clock,
        *,
        providers: ProviderCredentials | None = None,
        capacity: int = CAPACITY,
        allowed: bool = True,
    ) -> None:
        """``providers``: the kubelet's credential plugins, if configured; tried after all secrets.

        ``allowed``: false if no secret is ever read, whatever a policy says.
        """
        self._read = read
        self._clock = clock
        self._providers = providers
        self._readings: LRUCache[tuple[str, str], PullSecretContent] = LRUCache(capacity, weight=BYTES)
        self._flights: dict[tuple[str, str], asyncio.Task[PullSecretContent]] = {}
        self._made: LRUCache[PullSecretNames, _Made] = LRUCache(capacity, weight=BYTES)
        self._queue = RequestQueue(_shared(AT_ONCE), waiting=Share(sys.maxsize, per_tenant=IN_LINE))
        self._global: tuple[Document, ...] = ()
        self._salt = _random.token_bytes(16)
        self._allowed = self._may_be_allowed = allowed

    def allow(self, allowed: bool) -> None:
        """``images.secretAccess``: if false no secret is read, and cached ones are dropped."""
        allowed = allowed and self._may_be_allowed
        if allowed != self._allowed:
            self._allowed = allowed
            self._readings.clear()
            self._made.clear()

    def set_global(self, documents: Sequence[Document]) -> None:
        """Replaces the global pull secret; an empty sequence revokes it at once."""
        self._global = tuple(documents)
        self._made.clear()

    @property
    def global_documents(self) -> tuple[Document, ...]:
        """The global pull secret as it is now."""
        return self._global

    def cached(self, source: PullSecretNames) -> PodCredentials | None:
        """The credentials if they can be built without a request, else None."""
        readings = []
        for name in source.names if self._allowed else ():
            reading = self._fresh((source.namespace, name))
            if reading is None:
                return self._just_made(source)
            readings.append(reading)
        return self._credentials(source, readings)

    async def get(self, source: PullSecretNames, *, since: float | None = None) -> PodCredentials:
        """The credentials, with a ``GET`` for each secret that is not cached or was read before ``since``.

        Waits for the API server; the caller sets the deadline. Cancelling one caller does not affect others.
        """
        names = source.names if self._allowed else ()
        readings = await asyncio.gather(*(self._reading((source.namespace, name), since) for name in names))
        credentials = self._credentials(source, readings if self._allowed else ())
        if (made := self._made.get(source)) is not None:
            made.read_at = self._clock.monotonic()
        return credentials

    def lazy(self, source: PullSecretNames) -> CredentialStore:
        """A store that reads the secrets only when a registry asks for credentials."""
        known = self.cached(source)
        return known.store if known is not None else _LazyCredentials(self, source)

    async def aclose(self) -> None:
        """Cancels running requests."""
        for flight in (flights := list(self._flights.values())):
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)

    def __len__(self) -> int:
        return len(self._readings)

    def _fresh(self, key: tuple[str, str], since: float | None = None) -> PullSecretContent | None:
        reading = self._readings.get(key)
        if reading is None or self._clock.monotonic() - reading.read_at >= reading.keep:
            return None
        if since is not None and reading.read_at < since:
            return None
        return reading

    async def _reading(self, key: tuple[str, str], since: float | None) -> PullSecretContent:
        if (known := self._fresh(key, since)) is not None:
            return known
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.get_running_loop().create_task(self._request(*key), name=f"secret {key[0]}/{key[1]}")
            self._flights[key] = flight
            flight.add_done_callback(lambda _: self._flights.pop(key, None))
        return await asyncio.shield(flight)

    async def _request(self, namespace: str, name: str) -> PullSecretContent:
        try:
            secret = await self._in_turn(namespace, name)
        except QueueFull:
            reading = self._unreadable(namespace, name, "could not be read: too many reads of its namespace are queued")
        except NotFound:
            reading = self._nothing(f"pull secret {namespace}/{name} does not exist", KEEP_ABSENT)
        except Forbidden:
            reading = self._nothing(f"pull secret {namespace}/{name} may not be read by polyarch", KEEP_ABSENT)
        except KubernetesError as error:
            log.warning("a pull secret could not be read", namespace=namespace, name=name, error=str(error))
            reading = self._unreadable(namespace, name, "could not be read")
        else:
            document, problem = document_of(secret, f"{namespace}/{name}")
            content = repr(problem).encode() if document is None else _content(document)
            reading = PullSecretContent(document, problem, self._digest(content), self._clock.monotonic(), KEEP)
        if self._allowed:
            self._readings.put((namespace, name), reading, weight=reading.weight)
        return reading

    async def _in_turn(self, namespace: str, name: str) -> Secret:
        """Reads in turn by namespace: thousands of secrets in one delay another by one request at most."""
        async with self._queue.slot(RequestPriority.MANIFEST, namespace):
            return await self._read(namespace, name)

    def _unreadable(self, namespace: str, name: str, problem: str) -> PullSecretContent:
        """The previous content if there is one, kept while the secret cannot be read again; else the problem."""
        before = self._readings.get((namespace, name))
        if before is not None and before.document is not None:
            return before._replace(read_at=self._clock.monotonic(), keep=KEEP_UNREADABLE)
        return self._nothing(f"pull secret {namespace}/{name} {problem}", KEEP_UNREADABLE)

    def _nothing(self, problem: str, keep: float) -> PullSecretContent:
        return PullSecretContent(None, problem, b"", self._clock.monotonic(), keep)

    def _credentials(self, source: PullSecretNames, readings: Sequence[PullSecretContent]) -> PodCredentials:
        contents = tuple((reading.content, reading.problem) for reading in readings)
        made = self._made.get(source)
        if made is not None and made.contents == contents:
            return made.credentials
        documents = [reading.document for reading in readings if reading.document is not None]
        problems = [reading.problem for reading in readings if reading.problem]
        if source.names and not self._allowed:
            problems.append("pull secrets are not read (images.secretAccess: none)")
        elif source.left_out:
            left_out = f"only the first {PER_POD} pull secrets of the pod are read, {source.left_out} more are not"
            problems.insert(0, left_out)  # first, because the event note is truncated at its end
        keyring = KeyringCredentials([*documents, *self._global])
        store: CredentialStore = keyring
        if self._providers is not None:
            store = ChainedCredentials([keyring, self._providers.of(source.namespace)])
        fingerprint = self._digest(b"".join(reading.content for reading in readings)).hex() if documents else ""
        credentials = PodCredentials(source, fingerprint, store, (*problems, *self._of_pods(keyring.problems)))
        weight = min(READ_WEIGHT * sum(reading.weight for reading in readings), BYTES // 4)
        self._made.put(source, _Made(contents, credentials), weight=weight)
        return credentials

    def _of_pods(self, problems: Sequence[str]) -> list[str]:
        """Without what is wrong with the global pull secret: who names a pod's own secrets has no part in that one, and
        it is in the log."""
        shared = tuple(document.origin for document in self._global)
        return [problem for problem in problems if not (shared and problem.startswith(shared))]

    def _just_made(self, source: PullSecretNames) -> PodCredentials | None:
        """Credentials read some seconds ago whose secrets did not stay in the cache because of its limits."""
        made = self._made.get(source)
        if made is None or self._clock.monotonic() - made.read_at >= KEEP_UNREADABLE:
            return None
        return made.credentials

    def _digest(self, content: bytes) -> bytes:
        return hashlib.blake2b(content, key=self._salt, digest_size=16).digest()


class _LazyCredentials:
    """Credentials of a source whose secrets are not cached yet."""

    def __init__(self, secrets: PullSecrets, source: PullSecretNames) -> None:
        self._secrets = secrets
        self._source = source
        self._store: CredentialStore | None = None

    async def candidates(self, reference: Reference, source: PullSource) -> list[Credential]:
        if self._store is None:
            self._store = (await self._secrets.get(self._source)).store
        return await self._store.candidates(reference, source)

    def cached_candidates(self, reference: Reference, source: PullSource) -> list[Credential] | None:
        if self._store is None:
            known = self._secrets.cached(self._source)
            if known is None:
                return None
            self._store = known.store
        return self._store.cached_candidates(reference, source)

    def warnings(self, source: PullSource) -> Sequence[CredentialWarning]:
        return self._store.warnings(source) if self._store is not None else ()


def document_of(secret: Secret, name: str) -> tuple[Document | None, str]:
    """The credential document of a pull secret, or its problem, which never quotes the content."""
    key = _KEYS.get(secret.type)
    if key is None:
        found = secret.type or "no type"
        return None, f"pull secret {name} has type {found}; expected {DOCKER_CONFIG_JSON} or {DOCKER_CONFIG}"
    body = (secret.data or {}).get(key)
    if not body:
        return None, f"pull secret {name} has no {key}"
    return Document(origin=f"secret {name}", body=body, legacy=secret.type == DOCKER_CONFIG), ""


def credentials_in(document: Document) -> list[Credential]:
    """All credentials of a document, for any registry; empty if it cannot be parsed."""
    try:
        content = document.body if not isinstance(document.body, bytes) else read_object(document.body)
    except MalformedDocument:
        return []
    entries = content if document.legacy else content.get("auths")
    found = [read_entry(entry, source=document.origin, key=str(key)) for key, entry in _items(entries)]
    return [each for each in found if isinstance(each, Credential)]


def _items(entries: object) -> list[tuple[Any, Any]]:
    return list(entries.items()) if isinstance(entries, Mapping) else []


def _content(document: Document) -> bytes:
    """What the credentials depend on: the same bytes mean something else in the other type of secret."""
    body = document.body
    return (b"1" if document.legacy else b"2") + (body if isinstance(body, bytes) else repr(body).encode())


class GlobalPullSecret:
    """Informer handler that copies the global pull secret into a :class:`PullSecrets`.

    ``changed`` is called with the former credentials, so that proofs of access by them can be dropped.
    """

    def __init__(
        self, secrets: PullSecrets, name: str, changed: Callable[[Sequence[Credential]], None] = lambda gone: None
    ) -> None:
        self._secrets = secrets
        self._name = name
        self._changed = changed

    def observe(self, change: ObjectChange[Secret]) -> None:
        """The secret was added, changed or deleted."""
        documents: list[Document] = []
        if change.new is not None:
            document, problem = document_of(change.new, self._name)
            documents = [document] if document is not None else []
            for each in [problem] if problem else Keyring(documents).problems:
                log.warning("the global pull secret is not used, or not all of it", problem=each)
        before = self._secrets.global_documents
        if list(before) != documents:
            gone = [credential for document in before for credential in credentials_in(document)]
            self._secrets.set_global(documents)
            self._changed(gone)


# -- reading in the background, so that no reconcile waits -------------------------------------------------------------
# A waiting reconcile would block a worker for as long as the API server takes, and a namespace whose pods name ten
# thousand secrets would block all workers. So the reconcile ends here, and the pod is reconciled again when its secrets
# are cached. Namespaces are served in turn, least recently served first, so such a namespace delays another by one read
# at most. The queue is bounded by the number of gated pods.

SOURCES_AT_ONCE: Final = 16
"""Pull sources that are read at a time."""
MAX_FAILURES: Final = 1024
"""Pods for which an internal error is remembered."""


class _Wanted(NamedTuple):
    """A read as a key of the fair queue; all have the same host, the API server."""

    source: PullSecretNames

    @property
    def reference(self) -> str:
        return ""


class PullSecretReader:
    """``wake`` reconciles a pod again after that many seconds."""

    def __init__(self, secrets: PullSecrets, wake: Callable[[ObjectKey, float], None]) -> None:
        self._secrets = secrets
        self._wake = wake
        self._queue: FairQueue[_Wanted] = FairQueue()
        self._limits = ConcurrencyLimits(_shared(SOURCES_AT_ONCE), per_host=SOURCES_AT_ONCE)
        self._pods: dict[PullSecretNames, set[ObjectKey]] = {}
        """Waiting pods by queued or running read."""
        self._changed = asyncio.Event()
        self._failures: LRUCache[ObjectKey, Exception] = LRUCache(MAX_FAILURES)

    def __len__(self) -> int:
        """Number of queued and running reads."""
        return len(self._pods)

    def want(self, source: PullSecretNames, pod: ObjectKey) -> None:
        """Reconciles the pod again when these secrets are cached.

        Raises, once, the internal error of a previous read for this pod, so that it counts against the pod.
        """
        if (error := self._failures.pop(pod)) is not None:
            raise error
        if source not in self._pods:
            self._pods[source] = set()
            self._queue.add(_Wanted(source), [source.namespace])
            self._changed.set()
        self._pods[source].add(pod)

    async def run(self) -> None:
        """Reads until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                while (entry := self._queue.next(self._limits, waits=lambda key, namespace: True)) is not None:
                    self._limits.acquire(entry)
                    tasks.create_task(self._read(entry), name=f"read pull secrets in {entry.namespace}")
                self._changed.clear()
                await self._changed.wait()

    async def _read(self, entry: QueueEntry[_Wanted]) -> None:
        source, delay, failure = entry.key.source, 0.0, None
        try:
            await self._secrets.get(source)
            if self._secrets.cached(source) is None:
                delay = MAX_DELAY  # evicted already: without a delay it would be read in a tight loop
        except Exception as error:  # noqa: BLE001 - raised again when these pods are reconciled; others go on
            failure = error
        finally:
            self._limits.release(entry)
            self._changed.set()
        for pod in self._pods.pop(source):
            if failure is not None:
                self._failures.put(pod, failure)
            self._wake(pod, delay)
