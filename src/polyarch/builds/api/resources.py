"""Types of ImageBuild and ImageBuildRun.

Decoding is tolerant: ``crds`` has the schema, ``settings`` what the texts mean. A MachineOSConfig is translated into an
:class:`ImageBuildSpec`, so that the planner knows one kind of spec only. Durations are Go-style texts."""

import msgspec

from polyarch.objects import Condition, ObjectMeta
from polyarch.selectors import LabelSelector


class KeyReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """A key of a ConfigMap or Secret in the same namespace."""

    name: str = ""
    key: str = ""
    """Empty: ``Containerfile``, where a Containerfile is meant."""


class NameReference(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """An object of the same namespace by its name."""

    name: str = ""


class Override(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``source.overrides[]``: what one architecture has instead of the common text and arguments."""

    architecture: str = ""
    containerfile: str | None = None
    containerfile_from: KeyReference | None = None
    build_args: dict[str, str] | None = None


class GitContext(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``source.context.git``."""

    url: str = ""
    commit: str = ""
    directory: str = ""
    credentials: NameReference | None = None


class ImageContext(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``source.context.image``: what ``polyarch build run --context DIR`` pushes."""

    reference: str = ""


class Context(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``source.context``: a union by ``type``: None, ConfigMap, Git, Image."""

    type: str = "None"
    config_map: NameReference | None = None
    git: GitContext | None = None
    image: ImageContext | None = None


class BuildSecret(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``source.secrets[]``: reaches the build as ``--secret id=…`` only."""

    id: str = ""
    secret: KeyReference = KeyReference()
    rebuild_on_change: bool = False


class Source(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.source``: everything in it is part of the keys."""

    containerfile: str | None = None
    containerfile_from: KeyReference | None = None
    overrides: list[Override] | None = None
    build_args: dict[str, str] | None = None
    target: str = ""
    context: Context = Context()
    secrets: list[BuildSecret] | None = None


class Substitute(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``baseImages.substitute[]``: where the Containerfile says ``from``, pull ``to``."""

    source: str = msgspec.field(default="", name="from")
    to: str = ""


class BaseImages(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.baseImages``."""

    policy: str = "OnBuild"
    """``Never``, ``OnBuild`` or ``Interval``."""
    interval: str = ""
    preflight: str = "Required"
    substitute: list[Substitute] | None = None


class Architectures(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.architectures``: which architectures are wanted."""

    mode: str = "Auto"
    names: list[str] | None = msgspec.field(default=None, name="list")
    include: list[str] | None = None
    exclude: list[str] | None = None
    node_selector: LabelSelector | None = None
    settle: str = "30s"
    empty: str = "WorkerNodes"
    on_new_architecture: str = "Build"


class Partial(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``output.partial``: publish what succeeded if at least these did."""

    required: list[str] | None = None


class Output(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.output``."""

    repository: str = ""
    tags: list[str] | None = None
    push_secret: NameReference | None = None
    pull_secrets: list[NameReference] | None = None
    format: str = "OCI"
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    index: str = "Auto"
    attestations: str = "Drop"
    staging_repository: str = ""
    arch_tags: str = "Keep"
    partial: Partial | None = None


class Emulation(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.emulation``: host architectures in order of preference; None: ``[amd64]``."""

    hosts: list[str] | None = None


class Timeouts(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.timeouts``."""

    preflight: str = "5m"
    node_wait: str = "15m"
    build: str = "1h"
    index: str = "5m"


class ArchitectureScheduling(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``scheduling.perArchitecture[]``. Tolerations and resources are as pods have them and are passed on unread."""

    architecture: str = ""
    node_selector: dict[str, str] | None = None
    tolerations: list[dict[str, object]] | None = None
    resources: dict[str, object] | None = None
    build_timeout: str = ""
    runtime_class_name: str = ""
    priority_class_name: str = ""


class Scheduling(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.scheduling``."""

    max_parallel: int = 0
    per_architecture: list[ArchitectureScheduling] | None = None


class Builder(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.builder``; empty images are the role's settings."""

    image: str = ""
    push_image: str = ""
    service_account: str = "default"
    security_profile: str = "Auto"


class Reproducible(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.reproducible``: ``timestamp`` in seconds since 1970."""

    enabled: bool = True
    timestamp: int = 0


class History(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.history``."""

    successful: int = 3
    failed: int = 1
    images: str = "Keep"


class Rebuild(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.rebuild``: a new token asks for a rebuild, of the listed architectures if any."""

    token: str = ""
    architectures: list[str] | None = None


class ImageBuildSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec`` of an ImageBuild."""

    source: Source = Source()
    base_images: BaseImages = BaseImages()
    architectures: Architectures = Architectures()
    output: Output = Output()
    strategy: str = "Native"
    emulation: Emulation = Emulation()
    fail_fast: bool = False
    retries: int = 3
    timeouts: Timeouts = Timeouts()
    scheduling: Scheduling = Scheduling()
    builder: Builder = Builder()
    reproducible: Reproducible = Reproducible()
    registry_access: str = "Controller"
    history: History = History()
    rebuild: Rebuild = Rebuild()
    suspend: bool = False


class PublishedImage(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.images[]``: one child of the current result, by digest."""

    architecture: str = ""
    reference: str = ""


class BaseChild(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.bases[].children[]``."""

    architecture: str = ""
    digest: str = ""


class Base(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.bases[]``: the pins of one reference."""

    reference: str = ""
    digest: str = ""
    children: list[BaseChild] | None = None
    resolved_time: str | None = None


class LastFailure(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.lastFailure``."""

    run: str = ""
    reason: str = ""
    message: str = ""
    architectures: list[str] | None = None


class ImageBuildStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status`` of an ImageBuild."""

    observed_generation: int = 0
    conditions: list[Condition] | None = None
    architectures: list[str] | None = None
    image: str = ""
    images: list[PublishedImage] | None = None
    tags: list[str] | None = None
    current_run: str = ""
    active_run: str = ""
    build_key: str = ""
    bases: list[Base] | None = None
    rebuild_token: str = ""
    last_failure: LastFailure | None = None
    summary: str = ""


class ImageBuild(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One image, built for every architecture that is wanted."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ImageBuildSpec = ImageBuildSpec()
    status: ImageBuildStatus = ImageBuildStatus()


class BuildIdentity(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.imageBuild`` of a Run."""

    name: str = ""
    uid: str = ""
    generation: int = 0


class ArchitectureKey(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.architectures[]`` of a Run."""

    architecture: str = ""
    key: str = ""


class Pin(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.pins[]`` of a Run: what one architecture pulls where its Containerfile names ``reference``."""

    reference: str = ""
    architecture: str = ""
    digest: str = ""


class Forced(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.forced`` of a Run: the rebuild token that made it, and for which architectures."""

    token: str = ""
    architectures: list[str] | None = None


class RunBuilder(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec.builder`` of a Run: the images that the pods of its Jobs run, the same on every node."""

    image: str = ""
    """As the ImageBuild or the installation names it."""
    digest: str = ""
    """What the name led to when the Run was made; empty: nobody asked, and every node pulls the name itself."""
    push_image: str = ""
    push_digest: str = ""


class ImageBuildRunSpec(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``spec`` of an ImageBuildRun: immutable."""

    image_build: BuildIdentity = BuildIdentity()
    serial: int = 1
    build_key: str = ""
    architectures: list[ArchitectureKey] | None = None
    pins: list[Pin] | None = None
    repository: str = ""
    format: str = "OCI"
    index: str = "Auto"
    index_annotations: dict[str, str] | None = None
    attestations: str = "Drop"
    required: list[str] | None = None
    forced: Forced | None = None
    builder: RunBuilder | None = None


class ArchitectureStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.architectures[]`` of a Run. Also what the ConfigMap of an execution's record holds."""

    architecture: str = ""
    phase: str = ""
    key: str = ""
    execution: str = ""
    """``Native`` or ``Emulated``."""
    host: str = ""
    """The architecture of the nodes where it is built."""
    profile: str = ""
    """The security profile of its pod, and why it was chosen."""
    job: str = ""
    job_uid: str = msgspec.field(default="", name="jobUID")
    node: str = ""
    attempts: int = 0
    digest: str = ""
    size: int = 0
    media_type: str = ""
    variant: str = ""
    reused_from: str = ""
    start_time: str | None = None
    completion_time: str | None = None
    reason: str = ""
    message: str = ""


class IndexStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status.index`` of a Run."""

    media_type: str = ""
    digest: str = ""
    size: int = 0
    pushed_time: str | None = None


class ImageBuildRunStatus(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """``status`` of an ImageBuildRun."""

    phase: str = ""
    architectures: list[ArchitectureStatus] | None = None
    index: IndexStatus | None = None
    result: str = ""
    """``repository@digest`` of what was published."""
    conditions: list[Condition] | None = None
    start_time: str | None = None
    completion_time: str | None = None
    duration: str = ""
    """How long the Run took, for people; ``kubectl get`` cannot compute it."""
    summary: str = ""


class ImageBuildRun(msgspec.Struct, frozen=True, gc=False, rename="camel", omit_defaults=True):
    """One execution of an ImageBuild, made by the builder only."""

    metadata: ObjectMeta = ObjectMeta()
    spec: ImageBuildRunSpec = ImageBuildRunSpec()
    status: ImageBuildRunStatus = ImageBuildRunStatus()
