"""What the values of an ImageBuild's spec mean: words, bounds, durations in seconds (BD-010).

The schema and the checks of files take words and bounds from here, so the three cannot differ. A duration that the
schema would refuse means its default: a plan never fails for it, and ``validation`` says what is wrong. Pure.
"""

from typing import Final, Literal

import msgspec

from polyarch.builds.api.resources import Architectures, ImageBuildSpec, Timeouts
from polyarch.durations import InvalidDuration, parse_duration

ContextType = Literal["None", "ConfigMap", "Git", "Image"]
BasePolicy = Literal["Never", "OnBuild", "Interval"]
Preflight = Literal["Required", "Warn"]
ArchitectureMode = Literal["Auto", "Explicit"]
WhenEmpty = Literal["WorkerNodes", "Wait"]
OnNewArchitecture = Literal["Build", "NextBuild"]
ImageFormat = Literal["OCI", "Docker"]
IndexMode = Literal["Auto", "Always", "Never"]
Attestations = Literal["Drop", "Keep"]
ArchTags = Literal["Keep", "None"]
Strategy = Literal["Native", "PreferNative", "Emulated"]
SecurityProfile = Literal["Auto", "UserNamespace", "Rootless", "Privileged"]
RegistryAccess = Literal["Controller", "Job"]
KeptImages = Literal["Keep", "Delete"]
Phase = Literal["Pending", "Reused", "WaitingForNode", "Building", "Built", "Failed", "Cancelled", "Interrupted"]
"""Of an architecture (BD-190)."""
ExecutionPhase = Literal["Pending", "Building", "Assembling", "Succeeded", "Failed", "Interrupted", "Superseded"]
"""Of an execution (BD-191)."""
BuiltBy = Literal["Native", "Emulated"]
"""``status.architectures[].execution``."""

CONTAINERFILE_KEY: Final = "Containerfile"
EMULATION_HOSTS: Final = ("amd64",)
CONTAINERFILE_BYTES: Final = 128 * 1024
ARGUMENT_LENGTH: Final = 4096
ARGUMENTS: Final = 64
MOST_ARCHITECTURES: Final = 16
SECRETS: Final = 16
SUBSTITUTES: Final = 32
TAGS: Final = 16
PULL_SECRETS: Final = 8
LABELS: Final = 64
ANNOTATIONS: Final = 32
TOKEN_LENGTH: Final = 63
RETRIES: Final = (0, 10)
SUCCESSFUL: Final = (1, 100)
FAILED: Final = (0, 100)
SETTLE: Final = (0.0, 3600.0)
SHORTEST_INTERVAL: Final = 300.0
SHORTEST_TIMEOUT: Final = 10.0
LONGEST_DURATION: Final = 2562047 * 3600.0
"""The hours that Go's durations can hold, and so the API server's rules."""


class BuildTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The durations of a spec, in seconds."""

    settle: float
    """How old the nodes of a new architecture have to be (BD-042)."""
    interval: float | None
    """Between two looks at base images; None: ``baseImages.policy`` is not ``Interval`` (BD-061)."""
    preflight: float
    node_wait: float
    """How long a pod may stay unscheduled (BD-215)."""
    build: float
    """Of an architecture for which ``scheduling`` says nothing else."""
    index: float

    @classmethod
    def of(cls, spec: ImageBuildSpec) -> "BuildTimes":
        """Never fails."""
        usual, given = Timeouts(), spec.timeouts
        policy, text = spec.base_images.policy, spec.base_images.interval
        return cls(
            settle=min(_seconds(spec.architectures.settle, Architectures().settle, SETTLE[0]), SETTLE[1]),
            interval=_seconds(text, f"{SHORTEST_INTERVAL:.0f}s", SHORTEST_INTERVAL) if policy == "Interval" else None,
            preflight=_seconds(given.preflight, usual.preflight),
            node_wait=_seconds(given.node_wait, usual.node_wait),
            build=_seconds(given.build, usual.build),
            index=_seconds(given.index, usual.index),
        )


def build_seconds(spec: ImageBuildSpec, architecture: str) -> float:
    """How long this architecture may build: ``scheduling.perArchitecture[].buildTimeout``, else ``timeouts.build``."""
    usual = _seconds(spec.timeouts.build, Timeouts().build)
    for each in spec.scheduling.per_architecture or ():
        if each.architecture == architecture and each.build_timeout:
            return _seconds(each.build_timeout, f"{usual}s")
    return usual


def emulation_hosts(spec: ImageBuildSpec) -> tuple[str, ...]:
    """Architectures whose nodes may build for others, the preferred one first (BD-141)."""
    return tuple(spec.emulation.hosts or EMULATION_HOSTS)


def _seconds(text: str, usual: str, least: float = SHORTEST_TIMEOUT) -> float:
    try:
        return max(parse_duration(text), least)
    except InvalidDuration:
        return parse_duration(usual)
