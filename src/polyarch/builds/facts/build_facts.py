"""Everything that a plan is made of, as one value: :class:`BuildFacts`, whether caches gathered it or a file.

What the facts lack, the plan names as a :class:`BuildLookup`; the facts are completed and the plan is made again.
Times are seconds since 1970.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final, Literal

import msgspec

from polyarch.builds import names
from polyarch.builds.api.formats import ExecutionPhase, Phase
from polyarch.builds.api.resources import ArchitectureKey, Forced, ImageBuildSpec, IndexStatus, Pin, RunBuilder
from polyarch.builds.places import DEFAULT_PLACES, NO_OTHERS, JobPlaces
from polyarch.oci.inspection import Inspection


def seconds(text: str | None) -> float | None:
    """None for no time, and for a text that is none."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def written(time: float | None) -> str | None:
    """RFC 3339 with whole seconds, as Kubernetes writes it; None stays None."""
    return None if time is None else datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class Problem(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """A reason as users read it, and a sentence that names the thing, what is allowed, and the next action."""

    reason: str
    message: str
    architecture: str = ""
    """Empty: it concerns every architecture."""
    severity: Literal["Error", "Warning"] = "Error"
    """A Warning becomes an event and blocks nothing."""


RequestKind = Literal["ImageBuild", "MachineOSConfig"]


class Entitlement(msgspec.Struct, frozen=True, kw_only=True):
    """What an administrator may have put beside builds, so that their ``RUN`` may install what is subscribed to."""

    name: str
    """In keys."""
    kind: Literal["Secret", "ConfigMap"]
    object: str
    path: str
    """Where a ``RUN`` finds its files."""


class MachineOSInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a MachineOSConfig adds to the key of a child. Images are references, looked up like bases."""

    os_image: str = ""
    extensions_image: str = ""
    kernel_type: str = ""
    extensions: tuple[str, ...] = ()
    kernel_arguments: tuple[str, ...] = ()
    trust: str = ""
    """Hash of the CA bundle."""
    entitlements: tuple[str, ...] = ()
    """The names of those that are there, once that is known."""
    entitled: tuple[Entitlement, ...] = ()
    """Entitlements that may exist."""


class BuildRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What an object asks for, whichever kind it is. ``spec`` holds values only where the schema put defaults."""

    kind: RequestKind
    namespace: str
    name: str
    uid: str
    generation: int
    created: float = 0.0
    spec: ImageBuildSpec
    machine: MachineOSInputs | None = None
    rebuild_honoured: str = ""
    """``status.rebuildToken``: the last token that was honoured."""
    pins: tuple["PinnedBase", ...] = ()
    """``status.bases``, or what the arch ConfigMap holds."""
    current: str = ""
    """``status.currentRun``: the execution whose result is published."""
    status: Mapping[str, Any] = {}
    """The status as stored: conditions, tags and the rest, to be compared with what the plan says."""
    annotations: Mapping[str, str] = {}
    """Annotations that builds read or write."""
    problems: tuple[Problem, ...] = ()
    """What a translation of the object has found, of both severities (MachineOSConfig)."""
    words: Mapping[str, str] = {}
    """How messages that name fields of an ImageBuild say it of this kind of object: phrase → phrase."""

    def worded(self, text: str) -> str:
        """A message in the words of the object's own kind."""
        for phrase, own in self.words.items():
            text = text.replace(phrase, own)
        return text

    def worded_problems(self, problems: Iterable[Problem]) -> tuple[Problem, ...]:
        """The same of problems."""
        return tuple(
            msgspec.structs.replace(each, message=self.worded(each.message)) if self.words else each
            for each in problems
        )


class PinnedBase(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved external reference: index digest and the child of each architecture."""

    reference: str
    digest: str
    children: Mapping[str, str] = {}
    resolved: float = 0.0


class NodeFacts(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """A node as builds see it."""

    name: str
    architecture: str = ""
    """From ``status.nodeInfo``, else from the label."""
    operating_system: str = ""
    mismatch: bool = False
    """nodeInfo and label differ: a Warning names the node."""
    labels: Mapping[str, str] = {}
    created: float = 0.0
    deleting: bool = False
    ready: bool = False
    schedulable: bool = True
    taints: tuple[tuple[str, str, str], ...] = ()
    """key, value, effect."""
    user_namespaces: frozenset[str] = frozenset()
    """Names of runtime handlers that report user namespaces; ``""`` is the default handler."""


class ChildRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What an execution recorded of one architecture; times in seconds, None where not yet."""

    architecture: str
    phase: Phase = "Pending"
    key: str = ""
    execution: str = ""
    host: str = ""
    profile: str = ""
    """The security profile of its pod, and why it was chosen."""
    job: str = ""
    job_uid: str = ""
    node: str = ""
    attempts: int = 0
    digest: str = ""
    size: int = 0
    media_type: str = ""
    variant: str = ""
    reused_from: str = ""
    started: float | None = None
    completed: float | None = None
    reason: str = ""
    message: str = ""


class Execution(msgspec.Struct, frozen=True, kw_only=True):
    """An ImageBuildRun or a MachineOSBuild, as it is stored or as a plan records it."""

    namespace: str
    name: str
    uid: str = ""
    resource_version: str = ""
    owner_uid: str = ""
    """UID of the build that it belongs to: another build's execution is never current."""
    owner_name: str = ""
    serial: int = 1
    build_key: str = ""
    keys: tuple[ArchitectureKey, ...] = ()
    pins: tuple[Pin, ...] = ()
    repository: str = ""
    format: str = "OCI"
    index_mode: str = "Auto"
    index_annotations: Mapping[str, str] = {}
    attestations: str = "Drop"
    required: tuple[str, ...] = ()
    forced: Forced | None = None
    builder: RunBuilder = RunBuilder()
    phase: ExecutionPhase | Literal[""] = ""
    children: tuple[ChildRecord, ...] = ()
    index: IndexStatus | None = None
    result: str = ""
    """``repository@digest``."""
    reason: str = ""
    message: str = ""
    created: float = 0.0
    started: float | None = None
    completed: float | None = None
    deleting: bool = False
    status: Mapping[str, Any] = {}
    recorded: str | None = None
    """``architectures.json`` as its ConfigMap has it; None: there is no such ConfigMap."""
    witness: Mapping[str, str] = {}
    """What nodes and Secrets were when it failed, to be recorded, so that a change of them releases it."""

    @property
    def finished(self) -> bool:
        return self.phase in ENDED

    def child(self, architecture: str) -> ChildRecord | None:
        return next((child for child in self.children if child.architecture == architecture), None)


class PodFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The newest pod of a Job, and how many failed before."""

    name: str = ""
    node: str = ""
    unscheduled_since: float | None = None
    unscheduled_message: str = ""
    phase: str = ""
    started: float | None = None
    scheduled: float | None = None
    ends: Mapping[str, float] = {}
    """Container → when it ended."""
    message: str = ""
    """Termination message of ``push`` or, of a failed pod, of the container that failed."""
    exit_code: int | None = None
    container: str = ""
    """The container that failed."""
    disrupted: bool = False
    """Condition DisruptionTarget: costs no attempt."""
    stalled: str = ""
    """Why the node does not start a container, in the kubelet's words: an image that it cannot pull, for example."""


class JobFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A Job made for a build, of any execution."""

    namespace: str
    name: str
    uid: str
    resource_version: str = ""
    architecture: str = ""
    role: str = "arch"
    key: str = ""
    """The full annotation."""
    run: str = ""
    """Label (full value): the execution that it is of."""
    build: str = ""
    """Label (full value): name of the build that it is of."""
    owners: tuple[tuple[str, str, str], ...] = ()
    """kind, name, UID of the owner references."""
    created: float = 0.0
    started: float | None = None
    active: int = 0
    failed: int = 0
    succeeded: int = 0
    uncounted: int = 0
    complete: float | None = None
    """Time of the condition Complete."""
    failure: float | None = None
    """Time of the condition Failed."""
    failure_reason: str = ""
    """``BackoffLimitExceeded``, ``DeadlineExceeded``, ``PodFailurePolicy`` …"""
    failure_message: str = ""
    deleting: bool = False
    pod: PodFacts | None = None
    repository: str = ""
    tag: str = ""
    """The tag that its child gets; empty: none."""
    host: str = ""
    settings: Mapping[str, str] = {}
    """What of the spec its pods were made of, by field, hashed; empty where nothing says so."""


class FoundJob(msgspec.Struct, frozen=True, kw_only=True):
    """A Job that was asked for by its name, as it is recorded and no watch by label shows it."""

    uid: str
    labels: Mapping[str, str] = {}
    template_labels: Mapping[str, str] = {}
    """The labels of its pods, which nobody can take off."""


class HeadResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a HEAD of ``repository@digest`` or ``repository:tag`` found."""

    digest: str = ""
    """Empty: not there, or ``error``."""
    size: int = 0
    media_type: str = ""
    error: str = ""
    """A code of ``oci.inspection.ERROR_CODES``."""


class InputData(msgspec.Struct, frozen=True, kw_only=True):
    """ConfigMaps and Secrets that the spec names, by name; Secrets hold no bytes.

    None: there is none. A name that is missing has not been read: the plan lists it in ``lookups``.
    """

    config_maps: Mapping[str, Mapping[str, Any] | None] = {}
    """``{"data": {...}, "binaryData": {...}}``."""
    secrets: Mapping[str, "SecretFacts | None"] = {}
    readable: bool = True
    """False: nobody bound the ClusterRole of builds in this namespace."""
    pod_security: str = ""
    """The namespace's enforced level: ``baseline``, ``restricted``, or empty."""


class SecretFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What may be known of a Secret: never its content."""

    type: str = ""
    resource_version: str = ""
    keys: frozenset[str] = frozenset()
    fingerprints: Mapping[str, str] = {}
    """HMAC-SHA-256 of each value under the role's key, hex."""
    invalid: str = ""
    """Why it cannot be used, without its content."""
    has_helpers: bool = False
    """It names programs that are asked for credentials, which neither the builder nor its Jobs have."""


class PlanSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The role's settings that a plan depends on."""

    allow_privileged: bool = False
    arch_taint_keys: tuple[str, ...] = names.ARCH_TAINT_KEYS
    max_active_jobs: int = DEFAULT_PLACES
    machine_os: str = "auto"
    builder_image: str = ""
    push_image: str = ""
    operator_namespace: str = "polyarch"
    registries_conf: str = ""
    """Text of the role's registries.conf, which build pods get too; empty: none."""
    trust_bundle: str = ""
    proxies: tuple[tuple[str, str], ...] = ()
    """Variables such as ``HTTPS_PROXY`` for build pods; no input of any key."""
    """CAs (PEM) that build pods trust in addition."""


class BuildStep(StrEnum):
    """What a write of a plan is for. The steps stand in the order in which plans have them."""

    RESTORE_LABELS = "restore-labels"
    CREATE_EXECUTION = "create-execution"
    ADOPT_JOB = "adopt-job"
    END_SUPERSEDED = "end-superseded"
    """Executions that are not wanted any more end, and their Jobs are deleted."""
    CREATE_JOB = "create-job"
    """The Job of one architecture, with everything that it mounts."""
    RECORD_PROGRESS = "record-progress"
    PUBLISH = "publish"
    RECORD_END = "record-end"
    MOVE_TAGS = "move-tags"
    """The tags of a result that was published before."""
    DELETE_JOB = "delete-job"
    """The Job of an execution that does not need it any more."""
    REPORT = "report"
    """Status and annotations of the build request."""


class WriteFailure(msgspec.Struct, frozen=True, kw_only=True):
    """A write that failed in this reconcile: the plan is made once more and says what follows.

    ``code``: ``NameConflict`` (somebody else's object has the name), the API server's reason (``Forbidden``,
    ``Invalid`` …), or for a registry step a reason as in conditions.
    """

    verb: str
    step: BuildStep | Literal[""] = ""
    kind: str = ""
    name: str = ""
    reference: str = ""
    code: str = ""
    message: str = ""
    retry_after: float | None = None
    architecture: str = ""
    missing: tuple[str, ...] = ()
    """Architectures whose child has gone from the registry."""
    passing: bool = False
    """The write may succeed later without anybody doing anything."""


LookupKind = Literal["inspect", "head", "configmap", "secret", "job", "runtimeclass"]


class BuildLookup(msgspec.Struct, frozen=True, kw_only=True):
    """What has to be asked before planning goes on: a registry, or the API server for an object that the spec names."""

    reference: str
    """An image, or the name of a ConfigMap, Secret or Job in the build's namespace, or of a RuntimeClass."""
    what: LookupKind
    revalidate: bool = False
    """The tag's answer must be fresh."""


class BuildFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the plan of one build is made of."""

    now: float
    request: BuildRequest
    nodes: tuple[NodeFacts, ...] | None = ()
    """Nodes that could count or build. None: not known."""
    members: frozenset[str] = frozenset()
    """Names of the nodes that count for a machine OS: their primary pool is the config's.
    Empty: every node may."""
    executions: tuple[Execution, ...] = ()
    """All executions of the build's namespace; those of another UID or name are reusable, never current."""
    jobs: tuple[JobFacts, ...] = ()
    """All Jobs of the build's namespace with our label."""
    found_jobs: Mapping[str, FoundJob | None] = {}
    """Jobs by name that were asked for; None: there is none, or it is being deleted."""
    runtime_handlers: Mapping[str, str | None] = {}
    """Handlers by the name of the RuntimeClass that was asked for; None: there is no such class."""
    inputs: InputData = InputData()
    images: Mapping[str, Inspection] = {}
    """Answers by canonical reference. One that is not here has not been asked: the plan lists it in ``lookups``."""
    existing: Mapping[str, HeadResult] = {}
    """HEADs by ``repository@digest`` or ``repository:tag``; not here: not asked yet."""
    pins_fresh: bool = False
    """The answers for tags were revalidated for this plan, as is done before a Job is made."""
    places: JobPlaces = NO_OTHERS
    """How many Jobs may be made now."""
    failures: tuple[WriteFailure, ...] = ()
    """Writes of this reconcile that failed."""
    settings: PlanSettings = PlanSettings()

    @property
    def leaves_registries_to_jobs(self) -> bool:
        """The builder neither reads nor writes registries for this build, and reads no credentials."""
        return self.request.spec.registry_access == "Job"


# -- executions of one build -------------------------------------------------------------------------------------------


ENDED: Final = frozenset({"Succeeded", "Failed", "Interrupted", "Superseded"})
"""Phases of executions that never change again."""
ENDED_CHILD: Final = frozenset({"Reused", "Built", "Failed", "Cancelled", "Interrupted"})
"""Phases of architectures that are kept."""
USABLE: Final = frozenset({"Built", "Reused"})
"""Phases of architectures whose child is there."""


def own_executions(facts: BuildFacts) -> tuple[Execution, ...]:
    """The build's own executions, the oldest first; those of a former object of the same name are not among them."""
    own = (each for each in facts.executions if each.owner_uid == facts.request.uid)
    return tuple(sorted(own, key=lambda each: (each.created, each.serial, each.name)))


def current_execution(facts: BuildFacts) -> Execution | None:
    """The one whose result is published: what the status says if it is so, else the one that succeeded last."""
    succeeded = [each for each in own_executions(facts) if each.phase == "Succeeded" and not each.deleting]
    said = [each for each in succeeded if each.name == facts.request.current]
    return max(said or succeeded, key=lambda each: (each.completed or 0.0, each.created, each.name), default=None)


def active_execution(facts: BuildFacts) -> Execution | None:
    """The newest that has not ended."""
    running = [each for each in own_executions(facts) if each.phase not in ENDED and not each.deleting]
    return running[-1] if running else None


def published_architectures(execution: Execution | None) -> frozenset[str]:
    """The architectures that the result of a finished execution has; those that it was for if no child is recorded."""
    if execution is None:
        return frozenset()
    there = {each.architecture for each in execution.children if each.digest and each.phase in USABLE}
    return frozenset(there or {each.architecture for each in execution.keys})


def planned_architectures(execution: Execution | None) -> frozenset[str]:
    """The architectures that an execution is for."""
    return frozenset(each.architecture for each in execution.keys) if execution is not None else frozenset()
