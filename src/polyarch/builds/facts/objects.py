"""Facts from the objects that a plan depends on: builds, executions, nodes, Jobs with their pods, and inputs.

The types hold only the fields that builds read, because caches keep many of these objects. Of a Secret nothing
leaves this module but its type, its keys and keyed hashes of its values."""

import base64
import binascii
import hashlib
import hmac
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar, get_args

import msgspec

from polyarch.builds import names
from polyarch.builds.api.formats import ExecutionPhase, Phase, is_architecture
from polyarch.builds.api.resources import (
    ArchitectureStatus,
    ImageBuildRunSpec,
    ImageBuildRunStatus,
    ImageBuildSpec,
    ImageBuildStatus,
    RunBuilder,
)
from polyarch.builds.facts.build_facts import (
    BuildRequest,
    ChildRecord,
    Execution,
    FoundJob,
    JobFacts,
    NodeFacts,
    PinnedBase,
    PodFacts,
    SecretFacts,
    seconds,
)
from polyarch.builds.names import ARCH_KEY, GROUP, OS_KEY
from polyarch.objects import DOCKER_CONFIG, DOCKER_CONFIG_JSON, Namespace, NodeSpec, NodeSystemInfo, ObjectMeta
from polyarch.oci.auth.credentials import MalformedDocument, read_object
from polyarch.platforms import normal_architecture, normal_system

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
        builder=spec.builder or RunBuilder(),
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
        profile=status.profile,
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


# -- nodes -------------------------------------------------------------------------------------------------------------


NODE_IMAGES: Final = (
    "machineconfiguration.openshift.io/currentImage",
    "machineconfiguration.openshift.io/desiredImage",
)
"""Annotations that name the image that a node runs or will run: the only ones that are kept."""


class NodeMeta(ObjectMeta, frozen=True, gc=False, omit_defaults=True):
    """Metadata of a node. Thousands of nodes have much the same labels: each text of them is kept once."""

    def __post_init__(self) -> None:
        kept = {key: text for key in NODE_IMAGES if (text := (self.annotations or {}).get(key)) is not None}
        msgspec.structs.force_setattr(self, "annotations", kept or None)
        labels = {sys.intern(key): sys.intern(text) for key, text in (self.labels or {}).items()}
        msgspec.structs.force_setattr(self, "labels", labels or None)


class NodeCondition(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 NodeCondition without its times: heartbeats change nothing."""

    type: str = ""
    status: str = ""


class RuntimeFeatures(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeRuntimeHandlerFeatures."""

    user_namespaces: bool | None = None


class RuntimeHandler(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 NodeRuntimeHandler; the default one has no name."""

    name: str = ""
    features: RuntimeFeatures | None = None


class RuntimeClassObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """node.k8s.io/v1 RuntimeClass: which handler runs the pods that name it."""

    metadata: ObjectMeta = ObjectMeta()
    handler: str = ""


class NodeStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 NodeStatus."""

    node_info: NodeSystemInfo = NodeSystemInfo()
    conditions: list[NodeCondition] | None = None
    runtime_handlers: list[RuntimeHandler] | None = None


class NodeObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What builds read of a core/v1 Node."""

    metadata: NodeMeta = NodeMeta()
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def node_facts(node: NodeObject) -> NodeFacts:
    """Equal for two states of a node that make no difference to builds."""
    labels, info = node.metadata.labels or {}, node.status.node_info
    system, other_system = _told(info.operating_system, labels.get(OS_KEY, ""))
    architecture, other_architecture = _told(info.architecture, labels.get(ARCH_KEY, ""))
    architecture = normal_architecture(architecture)
    return NodeFacts(
        name=node.metadata.name,
        architecture=architecture if is_architecture(architecture) else "",
        operating_system=normal_system(system),
        mismatch=other_system or other_architecture,
        labels=labels,
        created=seconds(node.metadata.creation_timestamp) or 0.0,
        deleting=node.metadata.deletion_timestamp is not None,
        ready=any(each.type == "Ready" and each.status == "True" for each in node.status.conditions or ()),
        schedulable=not node.spec.unschedulable,
        taints=tuple(sorted((each.key, each.value, each.effect) for each in node.spec.taints or ())),
        user_namespaces=frozenset(
            each.name
            for each in node.status.runtime_handlers or ()
            if each.features is not None and each.features.user_namespaces
        ),
    )


def _told(status: str, label: str) -> tuple[str, bool]:
    """What counts, and whether the label says something else than the status."""
    return status or label, bool(status and label and status != label)


# -- Jobs and their pods -----------------------------------------------------------------------------------------------


_DISRUPTED: Final = "DisruptionTarget"
_SCHEDULED: Final = "PodScheduled"


class JobCondition(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """batch/v1 JobCondition and core/v1 PodCondition."""

    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class UncountedPods(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """batch/v1 UncountedTerminatedPods: UIDs."""

    succeeded: list[str] | None = None
    failed: list[str] | None = None


class JobStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """batch/v1 JobStatus."""

    conditions: list[JobCondition] | None = None
    start_time: str | None = None
    active: int = 0
    failed: int = 0
    succeeded: int = 0
    uncounted_terminated_pods: UncountedPods | None = None


class Container(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 Container: what it is told."""

    name: str = ""
    command: list[str] | None = None
    args: list[str] | None = None


class PodSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PodSpec: where it may run, or runs, and what its containers are told."""

    node_selector: dict[str, str] | None = None
    node_name: str = ""
    containers: list[Container] | None = None


class JobTemplate(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 PodTemplateSpec."""

    metadata: ObjectMeta | None = None
    spec: PodSpec = PodSpec()


class JobSpec(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """batch/v1 JobSpec."""

    template: JobTemplate = JobTemplate()


class JobObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What builds read of a batch/v1 Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class ContainerStateTerminated(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 ContainerStateTerminated."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: str | None = None


class ContainerStateWaiting(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 ContainerStateWaiting."""

    reason: str = ""
    message: str = ""


class ContainerState(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 ContainerState."""

    waiting: ContainerStateWaiting | None = None
    terminated: ContainerStateTerminated | None = None


class ContainerStatus(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """core/v1 ContainerStatus."""

    name: str = ""
    state: ContainerState = ContainerState()


class PodStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """core/v1 PodStatus."""

    phase: str = ""
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    conditions: list[JobCondition] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    container_statuses: list[ContainerStatus] | None = None


class PodObject(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What builds read of a core/v1 Pod of a Job."""

    metadata: ObjectMeta = ObjectMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


def job_facts(job: JobObject, pods: Iterable[PodObject] = ()) -> JobFacts:
    """The facts of a Job; of ``pods`` only its own count. Labels that somebody took off it are read from its pods'."""
    metadata, template, status = job.metadata, job.spec.template, job.status
    complete, failed = _condition(status.conditions, "Complete"), _condition(status.conditions, "Failed")
    uncounted = status.uncounted_terminated_pods or UncountedPods()
    return JobFacts(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
        architecture=_mark(job, names.ARCHITECTURE_LABEL),
        role=_mark(job, names.ROLE_LABEL) or names.ARCH_ROLE,
        key=_annotation(job, names.KEY_ANNOTATION),
        run=_mark(job, names.RUN_LABEL),
        build=_mark(job, names.BUILD_LABEL),
        owners=tuple(sorted((each.kind, each.name, each.uid) for each in metadata.owner_references or ())),
        created=seconds(metadata.creation_timestamp) or 0.0,
        started=seconds(status.start_time),
        active=status.active,
        failed=status.failed,
        succeeded=status.succeeded,
        uncounted=len(uncounted.succeeded or ()) + len(uncounted.failed or ()),
        complete=_since(complete),
        failure=_since(failed),
        failure_reason=failed.reason if failed is not None else "",
        failure_message=failed.message if failed is not None else "",
        deleting=metadata.deletion_timestamp is not None,
        pod=_telling([each for each in pods if _is_of(each, metadata)]),
        repository=_annotation(job, names.REPOSITORY_ANNOTATION),
        tag=_argument(job, "--tag="),
        host=(template.spec.node_selector or {}).get(names.ARCH_KEY, ""),
        settings=_settings(_annotation(job, names.SETTINGS_ANNOTATION)),
    )


def _settings(text: str) -> Mapping[str, str]:
    """Empty for a text that is none, as whoever may edit Jobs may have written it."""
    try:
        return msgspec.json.decode(text or "{}", type=dict[str, str])
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return {}


def found_job(job: JobObject) -> FoundJob | None:
    """A Job that was read by its name; None for one that is being deleted."""
    metadata = job.metadata
    if metadata.deletion_timestamp is not None:
        return None
    return FoundJob(uid=metadata.uid, labels=metadata.labels or {}, template_labels=_template(job).labels or {})


_ON_THE_WAY: Final = frozenset({"", "ContainerCreating", "PodInitializing"})
"""Reasons of waiting containers with which nothing is wrong."""


def pod_facts(pod: PodObject) -> PodFacts:
    """The facts of a pod: where it is, why it is not anywhere, and what its containers said at the end.

    Meshes and security agents put containers of their own into pods: those are heard only where none of ours failed.
    """
    status = pod.status
    scheduled = _condition(status.conditions, _SCHEDULED)
    waiting = _condition(status.conditions, _SCHEDULED, "False")
    containers = (*(status.init_container_statuses or ()), *(status.container_statuses or ()))
    ended = [(each.name, each.state.terminated) for each in containers if each.state.terminated is not None]
    stalled = [(each.name, each.state.waiting) for each in containers if each.state.waiting is not None]
    problems = [
        f"container {name}: {state.reason}: {state.message}" if state.message else f"container {name}: {state.reason}"
        for name, state in stalled
        if state.reason not in _ON_THE_WAY
    ]
    own = [(name, end) for name, end in ended if name in names.CONTAINERS]
    failed = next(((name, end) for name, end in (*own, *ended) if end.exit_code), None)
    last = failed or (own[-1] if own and status.phase == "Succeeded" else None)
    return PodFacts(
        name=pod.metadata.name,
        node=pod.spec.node_name,
        unscheduled_since=_since(waiting) if waiting is not None and not pod.spec.node_name else None,
        unscheduled_message=waiting.message if waiting is not None and not pod.spec.node_name else "",
        phase=status.phase,
        started=seconds(status.start_time),
        scheduled=_since(scheduled),
        ends={name: time for name, end in ended if (time := seconds(end.finished_at)) is not None},
        message=last[1].message if last is not None else status.message,
        exit_code=last[1].exit_code if last is not None else None,
        container=failed[0] if failed is not None else "",
        disrupted=_condition(status.conditions, _DISRUPTED) is not None,
        stalled=problems[0] if problems else "",
    )


def _telling(pods: list[PodObject]) -> PodFacts | None:
    """The pod that succeeded if one did, else the newest."""
    succeeded = [each for each in pods if each.status.phase == "Succeeded"]
    newest = max(
        succeeded or pods, key=lambda each: (each.metadata.creation_timestamp or "", each.metadata.name), default=None
    )
    return pod_facts(newest) if newest is not None else None


def _is_of(pod: PodObject, job: ObjectMeta) -> bool:
    owner = pod.metadata.controller
    return (
        pod.metadata.namespace == job.namespace
        and owner is not None
        and (owner.uid == job.uid if job.uid else (owner.kind, owner.name) == ("Job", job.name))
    )


def _mark(job: JobObject, key: str) -> str:
    """A label's full value: where that is too long for a label, the annotation of the same key has it."""
    return _annotation(job, key) or (job.metadata.labels or {}).get(key) or (_template(job).labels or {}).get(key) or ""


def _annotation(job: JobObject, key: str) -> str:
    return (job.metadata.annotations or {}).get(key) or (_template(job).annotations or {}).get(key) or ""


def _argument(job: JobObject, flag: str) -> str:
    """What a container is told by this flag."""
    containers = job.spec.template.spec.containers or ()
    told = (each for container in containers for each in (*(container.command or ()), *(container.args or ())))
    return next((each.removeprefix(flag) for each in told if each.startswith(flag)), "")


def _template(job: JobObject) -> ObjectMeta:
    return job.spec.template.metadata or ObjectMeta()


def _condition(conditions: Iterable[JobCondition] | None, type: str, status: str = "True") -> JobCondition | None:
    return next((each for each in conditions or () if (each.type, each.status) == (type, status)), None)


def _since(condition: JobCondition | None) -> float | None:
    """0 for a condition without a time: it is true, since when is not known."""
    return (seconds(condition.last_transition_time) or 0.0) if condition is not None else None


# -- ConfigMaps and Secrets --------------------------------------------------------------------------------------------


DOCUMENTS: Final[Mapping[str, str]] = {DOCKER_CONFIG_JSON: ".dockerconfigjson", DOCKER_CONFIG: ".dockercfg"}
"""Types of Secrets that hold registry credentials → the key of their document."""
ENFORCE_LABEL: Final = "pod-security.kubernetes.io/enforce"
_LEVELS: Final = frozenset({"baseline", "restricted"})


class ConfigMapObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What builds read of a core/v1 ConfigMap."""

    metadata: ObjectMeta = ObjectMeta()
    data: dict[str, str] | None = None
    binary_data: dict[str, str] | None = None
    """In base64, as it stands in the key of a context."""


class SecretObject(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What builds read of a core/v1 Secret; ``data`` is in base64, so that what cannot be decoded can be named."""

    metadata: ObjectMeta = ObjectMeta()
    type: str = ""
    data: dict[str, str | None] | None = None
    string_data: dict[str, str] | None = None
    """In files only: the API server keeps it as ``data``."""

    def __repr__(self) -> str:
        return f"SecretObject({self.metadata.key})"


class InputNames(NamedTuple):
    """Objects that a spec names, in its own namespace."""

    config_maps: frozenset[str]
    secrets: frozenset[str]
    keyed_secrets: frozenset[str] = frozenset()
    """Build secrets with ``rebuildOnChange``: their bytes are part of the key."""
    registry_secrets: tuple[str, ...] = ()
    """Secrets with credentials of registries, the push secret first."""


def named_by(spec: ImageBuildSpec) -> InputNames:
    """Everything that has to be read before the effective inputs are known or a Job is made."""
    output = spec.output
    keyed = (each.secret.name for each in spec.source.secrets or () if each.rebuild_on_change)
    registries = (each.name for each in (output.push_secret, *(output.pull_secrets or ())) if each is not None)
    return InputNames(
        config_maps=frozenset(each for each in _config_maps(spec) if each),
        secrets=frozenset(each for each in _secrets(spec) if each),
        keyed_secrets=frozenset(each for each in keyed if each),
        registry_secrets=tuple(dict.fromkeys(each for each in registries if each)),
    )


def config_map_data(config_map: ConfigMapObject) -> dict[str, Any]:
    """``data`` and ``binaryData``, those that are there."""
    parts = {"data": config_map.data, "binaryData": config_map.binary_data}
    return {name: dict(part) for name, part in parts.items() if part}


def secret_facts(secret: SecretObject, key: bytes) -> SecretFacts:
    """The facts of a Secret; ``key`` is the role's random one. Without a key there are no fingerprints."""
    values: dict[str, bytes] = {}
    invalid = ""
    for name, text in sorted((secret.data or {}).items()):
        try:
            values[name] = base64.b64decode(text or "", validate=True)
        except (binascii.Error, ValueError):
            invalid = invalid or f"data[{name}] is not base64"
    values.update((name, text.encode()) for name, text in (secret.string_data or {}).items())
    return SecretFacts(
        type=secret.type or "Opaque",
        resource_version=secret.metadata.resource_version,
        keys=frozenset(values),
        fingerprints={name: fingerprint(value, key) for name, value in sorted(values.items())} if key else {},
        invalid=invalid or _problem(secret.type, values),
        has_helpers=any(has_helpers(values[name]) for name in _REGISTRY_KEYS if name in values),
    )


_REGISTRY_KEYS: Final = (".dockerconfigjson", ".dockercfg")
HELPERS: Final = ("credHelpers", "credsStore")
"""Programs that neither the builder nor its Jobs have."""


def has_helpers(body: bytes) -> bool:
    """Whether registry credentials name programs that are to be asked for them: they are ignored, with a Warning."""
    try:
        document = read_object(body)
    except MalformedDocument:
        return False
    return any(document.get(name) for name in HELPERS)


def fingerprint(value: bytes, key: bytes) -> str:
    """HMAC-SHA-256 in hex."""
    return hmac.new(key, value, hashlib.sha256).hexdigest()


def pod_security(namespace: Namespace | None) -> str:
    """The level that a namespace enforces, empty where it enforces nothing that forbids builds."""
    labels = namespace.metadata.labels if namespace is not None else None
    level = (labels or {}).get(ENFORCE_LABEL, "")
    return level if level in _LEVELS else ""


def _problem(type: str, values: Mapping[str, bytes]) -> str:
    """Why registry credentials cannot be read."""
    name = DOCUMENTS.get(type)
    if name is None:
        return ""
    if not values.get(name):
        return f"it is of type {type} and has no {name}"
    try:
        document = read_object(values[name])
    except MalformedDocument as error:
        return f"its {name} cannot be read: {error}"
    if type == DOCKER_CONFIG_JSON and not isinstance(document.get("auths", {}), Mapping):
        return f"its {name} has 'auths' that is not an object"
    return ""


def _config_maps(spec: ImageBuildSpec) -> Iterator[str]:
    source = spec.source
    for place in (source, *(source.overrides or ())):
        if place.containerfile_from is not None:
            yield place.containerfile_from.name
    if source.context.type == "ConfigMap" and source.context.config_map is not None:
        yield source.context.config_map.name


def _secrets(spec: ImageBuildSpec) -> Iterator[str]:
    source, output = spec.source, spec.output
    for secret in source.secrets or ():
        yield secret.secret.name
    if source.context.type == "Git" and source.context.git is not None and source.context.git.credentials is not None:
        yield source.context.git.credentials.name
    if output.push_secret is not None:
        yield output.push_secret.name
    for pull in output.pull_secrets or ():
        yield pull.name
