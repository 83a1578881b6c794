"""The facts: what one report is made of, in the form in which ``--save`` keeps them (RP-002).

They hold names, labels, requests, images and what restricts scheduling. There is no Secret, no environment, no command
line, and of the annotations only ours: what is not here cannot leak from a snapshot. Pure.
"""

from collections.abc import Mapping

import msgspec

from polyarch.objects import Pod
from polyarch.operating.settings import DEFAULT_NAMESPACE
from polyarch.placement.api.resources import ClusterPodPlacementConfig, PlacementPolicy
from polyarch.platforms import NodePlatform, normal_architecture, normal_system
from polyarch.reports.document import PartRow, Source
from polyarch.reports.facts.requests import Requests
from polyarch.taints.api import ArchitectureTaints
from polyarch.tolerations import Taint


class NodeFact(msgspec.Struct, frozen=True, gc=False):
    """One node."""

    name: str
    os: str
    architecture: str
    labels: dict[str, str]
    taints: tuple[Taint, ...] = ()
    cores: int = 0
    """Allocatable, in thousandths."""

    @property
    def platform(self) -> NodePlatform:
        return NodePlatform(self.os, self.architecture)


class RunningImage(msgspec.Struct, frozen=True, gc=False):
    """What one container runs."""

    container: str
    image_id: str


class PodFact(msgspec.Struct, frozen=True, gc=False):
    """One pod that has not ended."""

    name: str
    node: str = ""
    """Empty: it waits for one."""
    running: tuple[RunningImage, ...] = ()
    reason: str = ""
    """Of its decision record; empty: it has none."""
    is_gated: bool = False
    waits_for: str = ""
    """Why it does not run although it is on a node, such as ``ImagePullBackOff``; empty: it runs."""


class WorkloadFact(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What makes pods, or a bare pod: its template, how many there shall be, and those that there are."""

    namespace: str
    kind: str
    name: str
    template: Pod
    """As the pod that would be created: without a name, with labels and our annotations only."""
    path: str
    """Of the pod specification within the object, such as ``spec.template.spec``."""
    requests: Requests = Requests()
    """Of one pod."""
    replicas: int = 0
    pods: tuple[PodFact, ...] = ()
    problems: tuple[str, ...] = ()
    source: str = ""

    @property
    def is_daemon_set(self) -> bool:
        return self.kind == "DaemonSet"

    @property
    def full_name(self) -> str:
        return f"{self.namespace}/{self.kind}/{self.name}"


class ExecFormatError(msgspec.Struct, frozen=True, gc=False):
    """A container that was started on a node which cannot run it (ENoExecEvent)."""

    pod: str
    """``NAMESPACE/NAME``."""
    created: str


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that was read, without what images say."""

    source: Source
    nodes: tuple[NodeFact, ...] = ()
    workloads: tuple[WorkloadFact, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}
    """Labels of the namespaces that are known."""
    cppc: ClusterPodPlacementConfig | None = None
    policy: PlacementPolicy | None = None
    taints: ArchitectureTaints | None = None
    exec_format_errors: tuple[ExecFormatError, ...] = ()
    numa: tuple[PartRow, ...] = ()
    builds: tuple[PartRow, ...] = ()
    unread: tuple[str, ...] = ()
    """What nobody was allowed to list, as ``cronjobs.batch``."""
    home: str = DEFAULT_NAMESPACE
    """The namespace of polyarch itself, which placement leaves alone."""
    short_names_searched: bool = False
    """The nodes search several registries for image names without a registry (PL-424)."""

    def labels(self, namespace: str) -> Mapping[str, str]:
        """Of a namespace; of one that is not known, its name alone."""
        return self.namespaces.get(namespace, {"kubernetes.io/metadata.name": namespace})


def platform_of(labels: Mapping[str, str], architecture: str = "", os: str = "") -> NodePlatform:
    """Of a node, by what its kubelet reports, else by its labels."""
    return NodePlatform(
        normal_system(os or labels.get("kubernetes.io/os", "") or "linux"),
        normal_architecture(architecture or labels.get("kubernetes.io/arch", "")),
    )


def target_name(platform: NodePlatform) -> str:
    """As targets are spelled: ``arm64``, ``windows/amd64``."""
    return platform.architecture if platform.os == "linux" else str(platform)
