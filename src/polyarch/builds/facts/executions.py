"""ImageBuilds and ImageBuildRuns as build requests and executions.

Statuses are kept as stored, too: conditions have times.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal, Protocol, TypeVar, get_args

import msgspec

from polyarch.builds.api.formats import ExecutionPhase, Phase
from polyarch.builds.api.resources import (
    ArchitectureStatus,
    ImageBuildRunSpec,
    ImageBuildRunStatus,
    ImageBuildSpec,
    ImageBuildStatus,
)
from polyarch.builds.facts.build_facts import BuildRequest, ChildRecord, Execution, PinnedBase, seconds
from polyarch.builds.names import GROUP
from polyarch.objects import ObjectMeta

T = TypeVar("T", bound=msgspec.Struct)


class BuildObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """An ImageBuild with its status as stored."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ImageBuildSpec = ImageBuildSpec()
    status: dict[str, Any] | None = None


class RunObject(msgspec.Struct, frozen=True, omit_defaults=True):
    """An ImageBuildRun with its status as stored."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ImageBuildRunSpec = ImageBuildRunSpec()
    status: dict[str, Any] | None = None


class StoredStatus(Mapping[str, Any]):
    """A status as JSON, read when it is asked for: as text it takes a quarter of the memory."""

    __slots__ = ("_text",)

    def __init__(self, text: bytes | msgspec.Raw) -> None:
        self._text = text

    def read(self) -> dict[str, Any]:
        found: dict[str, Any] | None = msgspec.json.decode(self._text)
        return found or {}

    def __getitem__(self, name: str) -> Any:
        return self.read()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.read())

    def __len__(self) -> int:
        return len(self.read())


class StoredRun(msgspec.Struct, frozen=True, omit_defaults=True):
    """An ImageBuildRun as a cache keeps it: every build has several, and most have ended."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ImageBuildRunSpec = ImageBuildRunSpec()
    text: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="status")

    def __post_init__(self) -> None:
        msgspec.structs.force_setattr(self, "text", self.text.copy())  # else it keeps the whole page that it came in

    @property
    def status(self) -> Mapping[str, Any] | None:
        return StoredStatus(self.text)


class RunReader(Protocol):
    """An ImageBuildRun, however it is kept."""

    @property
    def metadata(self) -> ObjectMeta: ...

    @property
    def spec(self) -> ImageBuildRunSpec: ...

    @property
    def status(self) -> Mapping[str, Any] | None: ...


def build_request(build: BuildObject) -> BuildRequest:
    """What an ImageBuild asks for, and what its status remembers: what of it can be read."""
    metadata = build.metadata
    status = _readable(build.status, ImageBuildStatus)
    return BuildRequest(
        kind="ImageBuild",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        generation=metadata.generation,
        created=seconds(metadata.creation_timestamp) or 0.0,
        spec=build.spec,
        rebuild_honoured=status.rebuild_token,
        pins=tuple(
            PinnedBase(
                reference=each.reference,
                digest=each.digest,
                children={child.architecture: child.digest for child in each.children or ()},
                resolved=seconds(each.resolved_time) or 0.0,
            )
            for each in status.bases or ()
        ),
        current=status.current_run,
        status=build.status or {},
        annotations={key: text for key, text in (metadata.annotations or {}).items() if key.startswith(f"{GROUP}/")},
    )


def execution_of(run: RunReader, *, recorded: str | None = None) -> Execution:
    """What an ImageBuildRun is for, and how far it is. ``recorded`` is the text of its architecture record.

    Whose it is says its spec, which cannot be edited, whatever became of its owner references.
    """
    metadata, spec = run.metadata, run.spec
    status = _readable(run.status, ImageBuildRunStatus)
    reason, message = _outcome(run.status or {})
    return Execution(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        owner_uid=spec.image_build.uid,
        owner_name=spec.image_build.name,
        serial=spec.serial,
        build_key=spec.build_key,
        keys=tuple(spec.architectures or ()),
        pins=tuple(spec.pins or ()),
        repository=spec.repository,
        format=spec.format,
        index_mode=spec.index,
        index_annotations=spec.index_annotations or {},
        attestations=spec.attestations,
        required=tuple(spec.required or ()),
        forced=spec.forced,
        phase=_phase(status.phase),
        children=tuple(child_record(each) for each in status.architectures or ()),
        index=status.index,
        result=status.result,
        reason=reason,
        message=message,
        created=seconds(metadata.creation_timestamp) or 0.0,
        started=seconds(status.start_time),
        completed=seconds(status.completion_time),
        deleting=metadata.deletion_timestamp is not None,
        status=run.status or {},
        recorded=recorded,
    )


def child_record(status: ArchitectureStatus) -> ChildRecord:
    """What an execution recorded of one architecture."""
    return ChildRecord(
        architecture=status.architecture,
        phase=_architecture_phase(status.phase),
        key=status.key,
        execution=status.execution,
        host=status.host,
        job=status.job,
        job_uid=status.job_uid,
        node=status.node,
        attempts=status.attempts,
        digest=status.digest,
        size=status.size,
        media_type=status.media_type,
        variant=status.variant,
        reused_from=status.reused_from,
        started=seconds(status.start_time),
        completed=seconds(status.completion_time),
        reason=status.reason,
        message=status.message,
    )


def _readable(status: Mapping[str, Any] | None, type: type[T]) -> T:
    """The members that can be read; conditions are read where they are needed, with their times."""
    members = {name: value for name, value in (status or {}).items() if name != "conditions"}
    try:
        return msgspec.convert(members, type)
    except msgspec.ValidationError:
        return msgspec.convert({name: value for name, value in members.items() if _fits(name, value, type)}, type)


def _fits(name: str, value: Any, type: type[msgspec.Struct]) -> bool:
    try:
        msgspec.convert({name: value}, type)
    except msgspec.ValidationError:
        return False
    return True


def _outcome(status: Mapping[str, Any]) -> tuple[str, str]:
    """Reason and message of the condition ``Succeeded``; while publishing is tried, those of ``IndexPushed``, which
    say why it has not succeeded yet."""
    conditions = status.get("conditions")
    wanted = "IndexPushed" if status.get("phase") == "Assembling" else "Succeeded"
    for each in conditions if isinstance(conditions, list) else ():
        if isinstance(each, Mapping) and each.get("type") == wanted:
            return str(each.get("reason") or ""), str(each.get("message") or "")
    return "", ""


def _phase(text: str) -> ExecutionPhase | Literal[""]:
    """A phase that does not exist is none: what is observed decides."""
    return msgspec.convert(text, ExecutionPhase) if text in get_args(ExecutionPhase) else ""


def _architecture_phase(text: str) -> Phase:
    return msgspec.convert(text, Phase) if text in get_args(Phase) else "Pending"
