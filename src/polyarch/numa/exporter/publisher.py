"""Keeps the topology in the API server as the newest scan has it.

A small state machine around one question: does the object that the API server has differ from what is wanted? It is
asked again whenever a scan offers a result, the watch shows the object changed or deleted by somebody else, the own
Node gets another uid, or a failure has been waited for::

    settled ── nothing differs ──> settled          (no request at all)
       │
       └── something differs ──> writing ── done ──> settled
                                    └────── failed ──> resting ──> asks again, with the newest result

Only one write is ever in flight, and two begin at least a second apart. A scan only leaves its result here and goes on:
results that were not sent in time are never sent. When the process is stopped, the write in flight is finished, and the
topology stays.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec
import structlog

from polyarch.clock import Clock, deadline, is_cancelled
from polyarch.durations import format_duration
from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, Invalid, KubernetesError, NotFound
from polyarch.kube.patches import MergePatch, merge_patch
from polyarch.kube.requests import Random, backoff
from polyarch.kube.resources import NODES
from polyarch.numa import names
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology, attribute_value
from polyarch.numa.exporter.cluster import OwnNode, WatchedObject
from polyarch.numa.exporter.settings import ExporterSettings
from polyarch.numa.exporter.topology_document import stamped, topology_patch, with_owner
from polyarch.objects import Condition, PartialObjectMetadata

log = structlog.get_logger(__name__)

T = TypeVar("T")

MIN_WRITE_INTERVAL: Final = 1.0
"""Seconds between the beginnings of two writes."""
MAX_CONFLICTS: Final = 3
"""In a row; a fourth is a failure like others."""
NOT_SERVED_RETRY: Final = 30.0
REJECTED_RETRY: Final = 60.0
"""Seconds until a write that was forbidden, or an object that was found invalid, is tried again."""
FIRST_FORBIDDEN_RETRY: Final = 2.0
"""The same for the first rejection in a row, four times as long for each further one: an API server that has just
started knows no roles yet."""
WRITE_BACKOFF: Final = (1.0, 60.0)
"""Seconds of the backoff after other failures: at first, and at most."""
PUT_PERIOD: Final = 600.0
"""Seconds for which PUT is used after a patch was forbidden."""
WRITE_GRACE_PERIOD: Final = 5.0
"""Seconds that a write in flight gets when the process is stopped."""

Document = dict[str, Any]
WriteOperation = Literal["create", "update", "patch"]


class TopologyWriteResult(NamedTuple):
    """What the API server has now; ``operation`` is None if it had that already."""

    published: NodeResourceTopology
    operation: WriteOperation | None
    size_ratio: float = 1.0
    """Size of a patch by that of the whole object."""


class TopologyNotServed(NotFound):
    """The API server does not have the kind: its CRD is not installed."""


class PublishRequest(msgspec.Struct, frozen=True):
    """The result of a scan."""

    document: Document
    """The topology, without its owner."""
    trigger: str
    """``periodic`` or ``reactive``."""
    made_at: float
    """On the monotonic clock."""
    scanned_at: str
    """RFC 3339."""


class PublisherMetrics(Protocol):
    """Counts writes, see ``server.ExporterMetrics``."""

    def written(self, operation: WriteOperation, trigger: str, *, seconds: float, size_ratio: float) -> None: ...

    def patch_failed(self, trigger: str) -> None: ...

    def skipped(self) -> None: ...

    def published(self) -> None: ...


class Publisher:
    """Publishes results of scans; ``on_condition`` gets ``NodeTopologyUpdated`` whenever it may have changed.

    ``topology`` and ``owner`` are watched by tasks of their own; both call :meth:`wake` when something has changed.
    Without an ``owner`` no reference to the Node is written, and an existing one stays.
    """

    def __init__(
        self,
        client: Client,
        settings: ExporterSettings,
        *,
        topology: WatchedObject[NodeResourceTopology],
        owner: OwnNode | None,
        metrics: PublisherMetrics,
        clock: Clock,
        chance: Random,
        on_condition: Callable[[Condition], None] = lambda _: None,
    ) -> None:
        self._write = TopologyWrite(client, settings.hostname)
        self._node = settings.hostname
        self._topology = topology
        self._owner = owner
        self._settings = settings.publish
        self._sleep_interval = settings.triggers.sleep_interval if settings.scan.expose_timing else None
        """Exposed beside the actual interval; None: neither is."""
        self._metrics = metrics
        self._clock = clock
        self._chance = chance
        self._on_condition = on_condition
        self._offer: PublishRequest | None = None
        self._counted: PublishRequest | None = None
        self._woken = asyncio.Event()
        self._server_changed = asyncio.Event()
        self._published = False
        self._problem = ""
        self._written_at: float | None = None
        self._quiet_since = clock.monotonic()
        """Of the last write, or of the start: an object that was right already gets its heartbeats, too."""
        self._put_until = 0.0
        self._patch_rejection = ""
        self._put_warned = False
        self._unread_patches = 0

    def offer(self, offer: PublishRequest) -> None:
        """The newest result, in the place of one that was not sent yet. Never waits."""
        if self._settings.no_publish:
            log.debug("not published", topology=offer.document)
            self._published = True
            # A readiness gate of the Pod: without it no DaemonSet of a paused group would ever be ready.
            self._on_condition(
                Condition(names.TOPOLOGY_UPDATED, "True", "NotPublished", "nothing is written, as it was asked")
            )
            return
        self._offer = offer
        self._woken.set()

    @property
    def fingerprint(self) -> str:
        """Of the object in the API server; empty if it has none."""
        published = self._topology.object
        attributes = (published.attributes if published is not None else None) or ()
        return attribute_value(attributes, names.FINGERPRINT) or ""

    def wake(self) -> None:
        """The object in the API server, or the own Node, may have changed."""
        self._server_changed.set()
        self._woken.set()

    def not_ready(self) -> str | None:
        """The readiness check: None once a result was published."""
        if self._topology.is_missing and not self._settings.no_publish:
            return str(self._not_served())
        if self._published:
            return None
        return self._problem or self._topology.problem or "no scan has succeeded yet"

    async def run(self) -> None:
        """Publishes until cancelled, and then finishes the write in flight."""
        failures = 0
        while True:
            await self._wait()
            try:
                await self._publish()
            except KubernetesError as error:
                pause = retry_delay(error, failures, chance=self._chance)
                self._failed(error, pause)
                failures += 1
                await self._wait_to_retry(pause, error)
            else:
                failures = 0

    async def _wait(self) -> None:
        """Until something may differ, or a heartbeat is due; a heartbeat that is overdue waits for a new scan."""
        heartbeat = self._settings.heartbeat
        due = None
        if heartbeat:
            rest = self._quiet_since + heartbeat - self._clock.monotonic()
            due = rest if rest > 0 else None
        with suppress(TimeoutError):
            async with deadline(self._clock, due):
                await self._woken.wait()
        self._woken.clear()

    async def _publish(self) -> None:
        """Until nothing differs any more."""
        while (offer := self._offer) is not None:
            await self._until_known()
            if self._topology.is_missing:
                raise self._not_served()
            uid = self._owner.uid if self._owner is not None else ""
            published = self._topology.object
            wanted = with_owner(offer.document, self._node, uid)
            change = topology_patch(wanted, published) if published is not None else wanted
            always = self._heartbeat_due()
            if change is None and not always:
                self._done(offer, None)
                return
            by_patch = self._settings.patch_mode and self._clock.monotonic() >= self._put_until
            if await self._had_to_wait() or await self._had_to_read(by_patch):
                continue
            names_owner = not by_patch or "ownerReferences" in (change or {}).get("metadata", {})
            if names_owner and self._owner is not None and await self._owner.confirmed() != uid:
                continue
            try:
                sent = await self._send(offer, wanted, published, by_patch=by_patch, always=always)
            except Forbidden as error:
                self._put_until = 0.0  # if all is forbidden, it is not for the want of the right to patch
                if not by_patch or published is None:
                    raise
                self._use_put(error)
                continue
            self._warn_of_put(sent)
            self._done(offer, sent)

    async def _until_known(self) -> None:
        """Nothing is compared before the topology and the Node are known."""
        if self._owner is not None:
            await self._owner.settled()
        await self._topology.settled()

    async def _had_to_wait(self) -> bool:
        """Waits until a write may begin; what is wanted may be another thing then."""
        if self._written_at is None or (rest := self._written_at + MIN_WRITE_INTERVAL - self._clock.monotonic()) <= 0:
            return False
        await self._clock.sleep(rest)
        return True

    async def _had_to_read(self, by_patch: bool) -> bool:
        """Without a watch, the object is read after so many patches: their answers are all that is known of it."""
        limit = self._settings.patch_resync
        if not by_patch or self._topology.is_watched or not limit or self._unread_patches < limit:
            return False
        await self._topology.read(retry=False)
        self._unread_patches = 0
        return True

    async def _send(
        self,
        offer: PublishRequest,
        wanted: Document,
        published: NodeResourceTopology | None,
        *,
        by_patch: bool,
        always: bool,
    ) -> TopologyWriteResult:
        began = self._clock.monotonic()
        stamps = self._stamps(offer, began)
        self._written_at = self._quiet_since = began
        try:
            sent = await _finished(self._write.send(wanted, published, stamps=stamps, by_patch=by_patch, always=always))
        except KubernetesError:
            if by_patch and published is not None:
                self._metrics.patch_failed(offer.trigger)
            raise
        self._topology.seen(sent.published)
        if sent.operation is not None:
            spent = self._clock.monotonic() - offer.made_at
            self._metrics.written(sent.operation, offer.trigger, seconds=spent, size_ratio=sent.size_ratio)
            self._unread_patches = self._unread_patches + 1 if sent.operation == "patch" else 0
        return sent

    def _stamps(self, offer: PublishRequest, now: float) -> Mapping[str, str]:
        stamps = {names.TRIGGER: offer.trigger}
        if self._sleep_interval is not None:
            since = now - self._written_at if self._written_at is not None else 0.0
            stamps[names.SLEEP_DURATION] = format_duration(self._sleep_interval)
            stamps[names.UPDATE_INTERVAL] = format_duration(since)
        if self._settings.heartbeat:
            stamps[names.LAST_SCAN] = offer.scanned_at
        return stamps

    def _heartbeat_due(self) -> bool:
        """True if the time of the last scan is to be written although nothing else has changed."""
        heartbeat = self._settings.heartbeat
        if not heartbeat or self._offer is None:
            return False
        published = self._topology.object
        stamp = ((published.metadata.annotations if published is not None else None) or {}).get(names.LAST_SCAN)
        return stamp != self._offer.scanned_at and self._clock.monotonic() - self._quiet_since >= heartbeat

    def _done(self, offer: PublishRequest, sent: TopologyWriteResult | None) -> None:
        if sent is None and self._counted is not offer:
            self._metrics.skipped()
        self._counted = offer
        self._metrics.published()
        if self._problem or not self._published:
            log.info("topology is published", operation=sent.operation if sent is not None else None)
        self._published, self._problem = True, ""
        self._on_condition(
            Condition(names.TOPOLOGY_UPDATED, "True", "Updated", "the topology is as the last scan found it")
        )

    def _failed(self, error: KubernetesError, pause: float) -> None:
        if str(error) != self._problem:
            log.warning("topology could not be published", error=str(error), again_in=round(pause, 1))
        self._problem = str(error)
        self._on_condition(Condition(names.TOPOLOGY_UPDATED, "False", "UpdateFailed", str(error)))

    async def _wait_to_retry(self, pause: float, error: KubernetesError) -> None:
        """Until another try makes sense; a kind that appears ends the wait for it."""
        self._server_changed.clear()
        if not isinstance(error, TopologyNotServed):
            await self._clock.sleep(pause)
        else:
            with suppress(TimeoutError):
                async with deadline(self._clock, pause):
                    await self._server_changed.wait()
        self._woken.set()

    def _use_put(self, error: Forbidden) -> None:
        self._patch_rejection = str(error)
        self._put_until = self._clock.monotonic() + PUT_PERIOD
        self._written_at = None  # nothing was written

    def _warn_of_put(self, sent: TopologyWriteResult) -> None:
        """Once, and when it is known that only patches are forbidden: an API server that has just started forbids
        everything for a moment.
        """
        if self._patch_rejection and not self._put_warned and sent.operation == "update":
            self._put_warned = True
            log.warning(
                "patch is forbidden, the whole object is written instead: grant patch", error=self._patch_rejection
            )

    def _not_served(self) -> TopologyNotServed:
        return topology_not_served(NotFound(404))


def retry_delay(error: KubernetesError, failures: int, *, chance: Random) -> float:
    """Seconds until the next try. ``failures``: how many there were in a row before this one."""
    if isinstance(error, TopologyNotServed):
        return NOT_SERVED_RETRY
    if isinstance(error, Forbidden):
        return min(FIRST_FORBIDDEN_RETRY * 4.0 ** min(failures, 5), REJECTED_RETRY)
    if isinstance(error, Invalid):
        return REJECTED_RETRY
    base, cap = WRITE_BACKOFF
    asked = error.retry_after if isinstance(error, ApiError) else None
    return (asked or 0.0) + backoff(failures, base=base, cap=cap, random=chance)


async def _finished(writing: Coroutine[Any, Any, T]) -> T:
    """The result of a write. The write is not cut off with the task that waits for it, but has some seconds to end."""
    task = asyncio.create_task(writing, name="write of the topology")
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not is_cancelled():
            raise
        await asyncio.wait({task}, timeout=WRITE_GRACE_PERIOD)
        task.cancel()
        raise


# -- one write ---------------------------------------------------------------------------------------------------------


async def publish_once(client: Client, document: Document, settings: ExporterSettings) -> TopologyWriteResult:
    """Writes the topology of a scan if the API server has another one, for those who scan once: ``--oneshot`` and
    ``numa export --once --publish``.

    Nothing is tried again: that is up to the caller. Raises ``KubernetesError``.
    """
    node = settings.hostname
    uid = await _uid(client, node) if settings.scan.add_nrt_owner else ""
    try:
        published = await client.get(TOPOLOGIES, node, type=NodeResourceTopology)
    except NotFound:
        published = None
    write, wanted, stamps = TopologyWrite(client, node), with_owner(document, node, uid), {names.TRIGGER: "reactive"}
    try:
        return await write.send(wanted, published, stamps=stamps, by_patch=settings.publish.patch_mode)
    except Forbidden:
        if not settings.publish.patch_mode or published is None:
            raise
    return await write.send(wanted, published, stamps=stamps, by_patch=False)


async def _uid(client: Client, node: str) -> str:
    """Of the live Node; empty if there is none, or if it may not be read."""
    try:
        return (await client.get(NODES, node, type=PartialObjectMetadata)).metadata.uid
    except (NotFound, Forbidden):
        return ""


class TopologyWrite:
    """Writes the topology of one node, from what is wanted and what the API server has, to what it has then.

    A change is a merge patch of the changed top-level fields. Where patches are forbidden, or not wanted, the object is
    read, changed and sent back with its resourceVersion. Races are found out and dealt with at once: an object that was
    deleted is created, one that somebody else has created is patched, and after a conflict the object is read again,
    three times in a row at most. Any other failure is raised; whoever called knows when to try again.
    """

    def __init__(self, client: Client, node: str) -> None:
        self._client = client
        self._node = node

    async def send(
        self,
        wanted: Document,
        published: NodeResourceTopology | None,
        *,
        stamps: Mapping[str, str],
        by_patch: bool = True,
        always: bool = False,
    ) -> TopologyWriteResult:
        """Raises ``KubernetesError``; only a conflict or a race is tried again here.

        ``stamps`` are annotations that go along with a write and do not cause one, unless ``always``.
        """
        for _ in range(MAX_CONFLICTS):
            try:
                if published is None:
                    return await self._create(wanted, stamps)
                if by_patch:
                    return await self._patch(wanted, published, stamps, always)
                return await self._put(wanted, stamps, always)
            except (AlreadyExists, Conflict) as error:
                log.debug("somebody else was faster, reading again", error=str(error))
                published = await self._read()
            except NotFound as error:
                if published is None:
                    raise topology_not_served(error) from None
                published = None
        raise Conflict(
            409,
            reason="Conflict",
            message=f"the topology has changed {MAX_CONFLICTS} times while it was written",
            verb="write",
            resource=str(TOPOLOGIES),
            name=self._node,
        )

    async def _read(self) -> NodeResourceTopology | None:
        try:
            return await self._client.get(TOPOLOGIES, self._node, type=NodeResourceTopology, retry=False)
        except NotFound:
            return None

    async def _create(self, wanted: Document, stamps: Mapping[str, str]) -> TopologyWriteResult:
        document = stamped(wanted, stamps)
        return TopologyWriteResult(
            await self._client.create(TOPOLOGIES, document, type=NodeResourceTopology, retry=False), "create"
        )

    async def _patch(
        self, wanted: Document, published: NodeResourceTopology, stamps: Mapping[str, str], always: bool
    ) -> TopologyWriteResult:
        change = _change(wanted, published, always)
        if change is None:
            return TopologyWriteResult(published, None)
        patch = MergePatch(_guarded(stamped(change, stamps), published))
        answer = await self._client.patch(TOPOLOGIES, self._node, patch, type=NodeResourceTopology, retry=False)
        return TopologyWriteResult(answer, "patch", len(patch.body()) / len(msgspec.json.encode(wanted)))

    async def _put(self, wanted: Document, stamps: Mapping[str, str], always: bool) -> TopologyWriteResult:
        document: Document = await self._client.get(TOPOLOGIES, self._node, type=dict, retry=False)
        published = msgspec.convert(document, NodeResourceTopology)
        change = _change(wanted, published, always)
        if change is None:
            return TopologyWriteResult(published, None)
        body = merge_patch(document, stamped(change, stamps))
        answer = await self._client.replace(TOPOLOGIES, body, complete=True, type=NodeResourceTopology, retry=False)
        return TopologyWriteResult(answer, "update")


def _change(wanted: Document, published: NodeResourceTopology, always: bool) -> Document | None:
    change = topology_patch(wanted, published)
    return {} if change is None and always else change


def _guarded(change: Document, published: NodeResourceTopology) -> Document:
    """The patch with a resourceVersion if it replaces the list of owners, also those of others: then nobody may have
    changed the list meanwhile.
    """
    metadata = change.get("metadata") or {}
    if "ownerReferences" not in metadata:
        return change
    return {**change, "metadata": {**metadata, "resourceVersion": published.metadata.resource_version}}


def topology_not_served(error: NotFound) -> TopologyNotServed:
    """The error, with the next action."""
    return TopologyNotServed(
        404,
        reason="NotFound",
        message=f"{TOPOLOGIES} is not served: install its definition ({error.message or error.reason})",
        verb=error.verb,
        resource=str(TOPOLOGIES),
        name=error.name,
    )
