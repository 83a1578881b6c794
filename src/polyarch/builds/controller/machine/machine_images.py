"""The images of MachineOSBuilds that are deleted: those go that nobody else refers to (BD-231, BD-282).

The record of a build (BD-049) says what it has made, so the record has the finalizer, and the build is held up by
nothing: garbage collection deletes the record after the build, or after the config that both belong to. Where the
planner takes a build away, the record is the config's from then on, and what it made is used again.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, NamedTuple, Protocol

import structlog

from polyarch.builds import names
from polyarch.builds.controller.aftermath import Aftermath, Deletes, deleted, uncounted
from polyarch.builds.controller.passes import SETTLING, Posts, Turns
from polyarch.builds.controller.watches import RecordObject
from polyarch.builds.facts.facts import Execution
from polyarch.builds.keys import handles
from polyarch.builds.machineos import vocabulary
from polyarch.builds.machineos.case import StoredRecord
from polyarch.builds.machineos.recording.records import ended
from polyarch.builds.metrics import BuildMetrics
from polyarch.builds.pruning.counting import Image
from polyarch.builds.pruning.deletion import Deleted
from polyarch.clock import Clock
from polyarch.kube.controller import After, Done, Result
from polyarch.kube.events import Regarding
from polyarch.kube.informer import Informer
from polyarch.kube.owners import PatchesObjects, remove_finalizer
from polyarch.kube.resources import CONFIGMAPS
from polyarch.kube.store import Change
from polyarch.objects import Key
from polyarch.oci.auth.credentials import CredentialStore

log = structlog.get_logger(__name__)


class Counts(Protocol):
    """The part of ``Cleanup`` that is needed here: it knows who refers to images."""

    def is_behind(self) -> bool: ...

    async def unneeded(self, going: Sequence[Execution]) -> tuple[Image, ...] | None: ...


class Inputs(Protocol):
    """The part of ``SpecInputs`` that is needed here."""

    def credentials(self, namespace: str, names: tuple[str, ...]) -> CredentialStore: ...


class _Leaving(NamedTuple):
    """A record that is being deleted, and what it is the record of."""

    record: RecordObject
    execution: Execution


class MachineImages:
    """The passes. ``lives`` says whether a MachineOSBuild with this UID is there and stays."""

    def __init__(
        self,
        client: PatchesObjects,
        records: Informer[RecordObject],
        counts: Counts,
        registries: Deletes,
        inputs: Inputs,
        *,
        namespace: str,
        lives: Callable[[str], bool],
        turns: Turns,
        recorder: Posts,
        metrics: BuildMetrics,
        clock: Clock,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._records = records
        self._counts = counts
        self._registries = registries
        self._inputs = inputs
        self._namespace = namespace
        self._lives = lives
        self._turns = turns
        self._aftermath = Aftermath(recorder, metrics, clock)
        self._is_leading = is_leading
        self.key: Final = Key(namespace, "machine-os-images")

    async def reconcile(self, _: Key) -> Result:
        """One pass over all records that are being deleted."""
        later: list[float] = []
        several: dict[str, list[_Leaving]] = {}
        for record in self._leaving():
            stored = stored_record(record)
            execution = ended(stored, namespace=self._namespace, uid=record.metadata.uid)
            if execution is None or any(self._lives(each) for each in stored.owners):
                await self._release(record)  # nothing of its own, or somebody has deleted the record of a build
            else:
                several.setdefault(handles.repository(execution.repository), []).append(_Leaving(record, execution))
        for repository, leaving in several.items():
            found = await self._delete_images(repository, leaving)
            later += [found] if found is not None else []
        return After(min(later)) if later else Done()

    def subscribe(self, enqueue: Callable[[Key], None]) -> None:
        """Calls ``enqueue`` when a record is to go."""

        def changed(change: Change[RecordObject]) -> None:
            if change.new is not None and _is_leaving(change.new, self._namespace):
                enqueue(self.key)

        self._records.add_handler(changed)

    def _leaving(self) -> list[RecordObject]:
        found = [each for each in self._records.store.values() if _is_leaving(each, self._namespace)]
        return sorted(found, key=lambda each: each.metadata.name)

    async def _delete_images(self, repository: str, leaving: Sequence[_Leaving]) -> float | None:
        """Delete what only these refer to; seconds until the next try, None if they are all released."""
        if not self._is_leading():
            return None
        going = [each.execution for each in leaving]
        async with self._turns.of(repository):
            if self._counts.is_behind():
                return SETTLING
            images = await self._counts.unneeded(going)
            noted = ((each.record.metadata.annotations or {}).get(names.PUSH_SECRET_ANNOTATION) for each in leaving)
            secrets = tuple(dict.fromkeys(each for each in noted if each))
            credentials = self._inputs.credentials(self._namespace, secrets)
            if images is not None:
                found = await deleted(self._registries, images, credentials=credentials)
            else:
                found = uncounted(going)
        self._aftermath.tell(_regarding(leaving[0]), found)
        holds = [hold for each in leaving if (hold := await self._ended(each, found)) is not None]
        return min(holds, default=None)

    async def _ended(self, leaving: _Leaving, found: Deleted) -> float | None:
        """Release the record, or seconds until the next try."""
        since = leaving.record.metadata.deletion_timestamp
        hold = self._aftermath.hold(_regarding(leaving), leaving.execution, found, since=since)
        if hold is None:
            await self._release(leaving.record)
        return hold

    async def _release(self, record: RecordObject) -> None:
        if self._is_leading():
            await remove_finalizer(self._client, CONFIGMAPS, record.metadata, names.IMAGES_FINALIZER)
            log.info("released the record of a deleted build", record=str(record.metadata.key))


def _regarding(leaving: _Leaving) -> Regarding:
    """The build, which is gone by then."""
    kind = vocabulary.BUILDS
    uid = next(iter(_owners(leaving.record, kind.kind)), "")
    return Regarding(kind.api_version, kind.kind, "", leaving.execution.name, uid)


def stored_record(record: RecordObject) -> StoredRecord:
    """A ConfigMap as the record of a MachineOSBuild."""
    metadata = record.metadata
    notes, labels = metadata.annotations or {}, metadata.labels or {}
    data: Any = record.data
    return StoredRecord(
        name=metadata.name,
        build=notes.get(names.RUN_LABEL) or labels.get(names.RUN_LABEL, ""),
        owners=frozenset(each.uid for each in metadata.owner_references or ()),
        deleting=metadata.deletion_timestamp is not None,
        architectures=data.architectures if data is not None else "",
        execution=data.execution if data is not None else "",
    )


def _owners(record: RecordObject, kind: str) -> Iterable[str]:
    return (each.uid for each in record.metadata.owner_references or () if each.kind == kind)


def _is_leaving(record: RecordObject, namespace: str) -> bool:
    metadata = record.metadata
    return (
        metadata.namespace == namespace
        and metadata.deletion_timestamp is not None
        and names.IMAGES_FINALIZER in (metadata.finalizers or ())
        and vocabulary.CONFIG_LABEL in (metadata.annotations or {})
    )
