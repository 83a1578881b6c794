"""Readings of images, shared by all replicas: the leader writes them to a Secret that the others watch.

So one inspection serves every webhook, and a roll-out or takeover starts with what is known. Only readings that are
public, or readable with the global pull secret, leave a process. When the global pull secret changes, what the
former one proved counts no longer: an export names the version of that secret, and its readings are taken only where
the same version is in force.

The Secret exists already, as RBAC cannot allow creating one by its name. It is watched by name and patched. What it
holds is a help, never a fact: content of another type or damaged content is ignored with one log line, and a process
that cannot read it starts without."""

import asyncio
import base64
from collections.abc import Callable, Generator
from typing import Final, TypeVar

import structlog

from polyarch.clock import Clock, deadline
from polyarch.images.pull_secrets import PullSecrets, credentials_in
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError
from polyarch.kube.informer import OnDemandInformer, Shares
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import SECRETS
from polyarch.kube.store import ObjectChange
from polyarch.objects import Secret
from polyarch.oci.auth.credentials import Credential
from polyarch.oci.cache import Cache
from polyarch.oci.cache_sharing import CacheExporter, CacheImporter, DamagedExport
from polyarch.placement import names
from polyarch.placement.facts import ClusterFacts

log = structlog.get_logger(__name__)

WRITE_INTERVAL: Final = 10.0
"""Least seconds between two writes."""
REFRESH_INTERVAL: Final = 60.0
"""The same if nothing is new and only tags were checked again, which busy clusters do all the time."""
CHECK_INTERVAL: Final = 1.0
SYNC_TIMEOUT: Final = 10.0
"""Seconds that a starting process waits for the readings; then it starts without them."""

_T = TypeVar("_T")


class SharedReadings:
    """Imports the readings in every replica; :meth:`export` is run by the leader alone."""

    def __init__(
        self,
        *,
        informers: Shares,
        client: Client,
        facts: ClusterFacts,
        secrets: PullSecrets,
        cache: Cache,
        clock: Clock,
        namespace: str,
    ) -> None:
        self._client = client
        self._facts = facts
        self._secrets = secrets
        self._cache = cache
        self._clock = clock
        self._namespace = namespace
        self._demand = OnDemandInformer(
            informers, SECRETS, Secret, self._observe, namespace=namespace, name=names.READINGS_SECRET
        )
        self._exporter = CacheExporter(cache, clock)
        self._importer = CacheImporter(cache, clock)
        self._stored: Secret | None = None
        self._pending: bytes | None = None
        """Content to import."""
        self._written: bytes | None = None
        """What this process wrote last."""
        self._shared_as = ""
        """Which version of the global pull secret is in force; empty: there is none."""
        self._changed = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._told = ""
        facts.on_change(self._facts_changed)

    # -- in every replica ----------------------------------------------------------------------------------------------

    @property
    def problems(self) -> list[str]:
        """Always empty: readiness does not depend on shared readings."""
        return []

    async def synced(self) -> None:
        """Returns once the readings were imported, there are none, or waiting for them took too long."""
        await self._facts.synced()
        self._demand.want(self._is_wanted)
        try:
            async with deadline(self._clock, SYNC_TIMEOUT):
                await self._demand.synced()
                await self._idle.wait()
        except TimeoutError:
            log.warning("starting without shared readings", secret=self._name, problem=self._demand.problem)

    async def run(self) -> None:
        """Watches the Secret while the policy shares readings, and imports each version, until cancelled."""
        while True:
            self._changed.clear()
            if self._facts.is_ready:
                self._demand.want(self._is_wanted)
            if self._pending is not None:
                await self._import(self._pending)
            else:
                self._idle.set()
                await self._changed.wait()

    def global_secret_changed(self, change: ObjectChange[Secret]) -> None:
        """An informer handler: what the former global pull secret proved is not imported again."""
        metadata = change.new.metadata if change.new is not None else None
        self._shared_as = f"{metadata.uid}/{metadata.resource_version}" if metadata is not None else ""
        self._importer.forget()
        self._take(self._stored)

    @property
    def _is_wanted(self) -> bool:
        return self._facts.table.spec.images_share_readings

    @property
    def _name(self) -> str:
        return f"{self._namespace}/{names.READINGS_SECRET}"

    def _facts_changed(self, namespace: str | None) -> None:
        if namespace is None:
            self._changed.set()

    def _observe(self, change: ObjectChange[Secret]) -> None:
        self._stored = change.new
        self._take(change.new)

    def _take(self, secret: Secret | None) -> None:
        body = self._content(secret)
        if body and body != self._written:
            self._pending = body
            self._idle.clear()
            self._changed.set()

    def _content(self, secret: Secret | None) -> bytes | None:
        if secret is None:
            return None
        if secret.type != names.READINGS_TYPE:
            self._tell(f"it has type {secret.type or 'none'}, expected {names.READINGS_TYPE}; delete it")
            return None
        return (secret.data or {}).get(names.READINGS_KEY)

    async def _import(self, body: bytes) -> None:
        """Imports in small steps, and anew if content or credentials change meanwhile."""
        self._pending = None
        shared_as = self._shared_as
        steps = self._importer.steps(body, self._credentials(), shared_as=shared_as)
        try:
            count = await self._in_turns(steps, still=lambda: self._shared_as == shared_as and self._pending is None)
        except DamagedExport as error:
            self._tell(str(error))
            return
        if count is not None:
            self._told = ""
            log.debug("took shared readings", secret=self._name, readings=count)

    async def _in_turns(self, steps: Generator[None, None, _T], *, still: Callable[[], bool]) -> _T | None:
        """The result; other tasks run between the steps. None: it was abandoned."""
        while still():
            try:
                next(steps)
            except StopIteration as end:
                result: _T = end.value
                return result
            await self._clock.sleep(0)
        return None

    def _credentials(self) -> list[Credential]:
        return [each for document in self._secrets.global_documents for each in credentials_in(document)]

    def _tell(self, problem: str) -> None:
        """Logs a problem once, until another one occurs or it is over."""
        if problem != self._told:
            self._told = problem
            log.warning("shared readings are not used", secret=self._name, problem=problem)

    # -- in the leader -------------------------------------------------------------------------------------------------

    async def export(self) -> None:
        """Writes the readings whenever they have changed, until cancelled."""
        exported: tuple[int, str] | None = None
        refreshes, tried_at = self._cache.refreshes, float("-inf")
        while True:
            now = self._clock.monotonic()
            state = (self._cache.changes, self._shared_as)
            is_new = state != exported or self._content(self._stored) != self._written
            is_refreshed = self._cache.refreshes != refreshes and now - tried_at >= REFRESH_INTERVAL
            if (is_new or is_refreshed) and now - tried_at >= WRITE_INTERVAL and self._may_write:
                tried_at, checked = now, self._cache.refreshes
                if await self._write():
                    exported, refreshes = state, checked
            await self._clock.sleep(CHECK_INTERVAL)

    @property
    def _may_write(self) -> bool:
        """Only who has taken what is stored replaces it; and an empty cache has nothing to say."""
        is_current = self._demand.is_known and self._idle.is_set()
        return self._is_wanted and is_current and bool(self._cache.changes)

    async def _write(self) -> bool:
        """Writes the present readings unless the Secret has them; False: to be tried again."""
        shared_as = self._shared_as
        steps = self._exporter.steps(self._credentials(), shared_as=shared_as)
        body = await self._in_turns(steps, still=lambda: self._shared_as == shared_as)
        if body is None:
            return False
        if self._stored is None:
            self._tell("it does not exist; the operator creates it")
            return False
        if self._stored.type != names.READINGS_TYPE:
            return False
        if self._content(self._stored) != body:
            data = {names.READINGS_KEY: base64.b64encode(body).decode()}
            try:
                await self._client.patch(
                    SECRETS, names.READINGS_SECRET, MergePatch({"data": data}), namespace=self._namespace
                )
            except KubernetesError as error:
                self._tell(str(error))
                return False
        self._written = body
        return True
