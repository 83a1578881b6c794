"""What the values of an ImageBuild's spec mean: enumerations, bounds, forms of texts, durations in seconds.

The schema and the checks of files take all of them from here, so that they cannot differ.
"""

import re
from typing import Final, Literal

import msgspec

from polyarch.builds.api.resources import Architectures, ImageBuildSpec, Timeouts
from polyarch.durations import InvalidDuration, parse_duration
from polyarch.platforms import normal_architecture

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
SecurityProfileName = Literal["Auto", "UserNamespace", "Rootless", "Privileged"]
RegistryAccess = Literal["Controller", "Job"]
KeptImages = Literal["Keep", "Delete"]
Phase = Literal["Pending", "Reused", "WaitingForNode", "Building", "Built", "Failed", "Cancelled", "Interrupted"]
"""Phases of an architecture."""
ExecutionPhase = Literal["Pending", "Building", "Assembling", "Succeeded", "Failed", "Interrupted", "Superseded"]
"""Phases of an execution."""
BuiltBy = Literal["Native", "Emulated"]
"""``status.architectures[].execution``."""

CONTAINERFILE_KEY: Final = "Containerfile"
EMULATION_HOSTS: Final = ("amd64",)
CONTAINERFILE_BYTES: Final = 128 * 1024
ARGUMENT_LENGTH: Final = 4096
ARGUMENTS: Final = 64
MAX_ARCHITECTURES: Final = 16
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
INTERVAL: Final = (300.0, 365 * 86400.0)
TIMEOUT: Final = (10.0, 7 * 86400.0)
"""Nobody waits longer for a node or a build. Any two of these times, added, are far from what Kubernetes can hold."""


class BuildTimes(msgspec.Struct, frozen=True, kw_only=True):
    """The durations of a spec, in seconds."""

    settle: float
    """How old the nodes of a new architecture have to be."""
    interval: float | None
    """Between two looks at base images; None: ``baseImages.policy`` is not ``Interval``."""
    preflight: float
    node_wait: float
    """How long a pod may stay unscheduled."""
    build: float
    """Seconds for an architecture for which ``scheduling`` says nothing else."""
    index: float

    @classmethod
    def of(cls, spec: ImageBuildSpec) -> "BuildTimes":
        """Never fails."""
        usual, given = Timeouts(), spec.timeouts
        policy, text = spec.base_images.policy, spec.base_images.interval
        return cls(
            settle=_seconds(spec.architectures.settle, Architectures().settle, *SETTLE),
            interval=_seconds(text, f"{INTERVAL[0]:.0f}s", *INTERVAL) if policy == "Interval" else None,
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
    """Architectures whose nodes may build for others, the preferred one first."""
    return tuple(spec.emulation.hosts or EMULATION_HOSTS)


def _seconds(text: str, usual: str, least: float = TIMEOUT[0], most: float = TIMEOUT[1]) -> float:
    try:
        return min(max(parse_duration(text), least), most)
    except InvalidDuration:
        return parse_duration(usual)


# -- forms of texts, and the messages that reject others ---------------------------------------------------------------


ARCHITECTURE: Final = "^[a-z0-9]{2,16}$"
NEUTRAL: Final = "noarch"
SPELLINGS: Final = {
    each: normal_architecture(each)
    for each in (
        "x86_64", "x86-64", "x86", "i386", "i686", "aarch64", "armhf", "armel", "armv6", "armv6l", "armv7", "armv7l",
        "ppc64el", "loongarch64",
    )
}  # fmt: skip
"""Other spellings of an architecture → the one that Go and Kubernetes have."""
NEUTRAL_ADVICE: Final = (
    "the architectures to build for, such as amd64 and arm64: a Containerfile that fits all of them is "
    "spec.source.containerfile"
)
ARCHITECTURE_ADVICE: Final = "a name as Go has it, 2 to 16 lower-case letters and digits, such as amd64 or arm64"

ARGUMENT_NAME: Final = "^[A-Za-z_][A-Za-z0-9_]*$"
ARGUMENT_VALUE: Final = r"^[^\r\n\x00]*$"
AUTOMATIC_ARGUMENTS: Final = (
    *(f"{side}{part}" for side in ("TARGET", "BUILD") for part in ("PLATFORM", "OS", "ARCH", "VARIANT")),
    "SOURCE_DATE_EPOCH",
)
"""Arguments that the build itself sets; users declare them with ARG."""
STAGE: Final = "^[A-Za-z0-9][A-Za-z0-9_.-]*$"
SECRET_ID: Final = "^[A-Za-z0-9_][A-Za-z0-9_.-]*$"
DATA_KEY: Final = "^[-._a-zA-Z0-9]+$"
"""A key of a ConfigMap or Secret."""
COMMIT: Final = "^([0-9a-fA-F]{40}|[0-9a-fA-F]{64})$"
HTTP: Final = "^https?://"
USER_INFO: Final = "^[a-zA-Z][a-zA-Z0-9+.-]*://[^/?#]*@"
GIT_URL: Final = r"^https?://(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:[0-9]{1,5})?/[!-~]+$"
BY_DIGEST: Final = "@sha(256|384|512):[0-9a-f]{64,128}$"
TAG: Final = "^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$"
HOST: Final = r"^(\[[^\]/]*\](:[^/]*)?|[^/]*[.:][^/]*|localhost)/"
"""What begins with a host: one with a dot or a port, or localhost; all else would be read as a name on Docker Hub."""
TAGGED: Final = "@|:[^/]*$"
_PATH: Final = r"[a-z0-9]+((\.|__?|-+)[a-z0-9]+)*"
REPOSITORY: Final = (
    r"^(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?(\.[A-Za-z0-9]([A-Za-z0-9-]*[A-Za-z0-9])?)*)"
    rf"(:[1-9][0-9]{{0,4}})?(/{_PATH})+$"
)
REPOSITORY_LENGTH: Final = 255
PLATFORM_LABELS: Final = (
    "kubernetes.io/arch", "kubernetes.io/os", "beta.kubernetes.io/arch", "beta.kubernetes.io/os",
)  # fmt: skip

NO_CONTAINERFILE: Final = (
    "spec.source has no Containerfile: write one in spec.source.containerfile, name a ConfigMap in "
    "spec.source.containerfileFrom, or give architectures their own in spec.source.overrides"
)
TWO_CONTAINERFILES: Final = "has both containerfile and containerfileFrom: remove one of them"
CONTAINERFILE_TOO_LONG: Final = f"is longer than {CONTAINERFILE_BYTES} bytes: move parts of it into the context"
MEMBERS: Final = {"ConfigMap": "configMap", "Git": "git", "Image": "image"}
"""Type of a context → the member that it needs."""
ARGUMENT_NAMES: Final = "has an argument whose name is not letters, digits and '_', with no digit first: rename it"
ARGUMENT_LINES: Final = "must have no line breaks: put longer texts into the context"
AUTOMATIC: Final = (
    f"sets an argument that every build sets itself ({', '.join(AUTOMATIC_ARGUMENTS)}): remove it, and declare it "
    "with ARG in the Containerfile to use it"
)
URL_SCHEME: Final = (
    "spec.source.context.git.url must begin with https:// or http://; credentials are in "
    "spec.source.context.git.credentials"
)
URL_USER: Final = (
    "spec.source.context.git.url must not contain a user name or password: put them into the Secret of "
    "spec.source.context.git.credentials"
)
URL_FORM: Final = "spec.source.context.git.url must be https://HOST[:PORT]/PATH without spaces"
COMMIT_FORM: Final = (
    "spec.source.context.git.commit must be a full commit id of 40 or 64 hex digits, not a branch or tag: have CI "
    "write the commit that it was started for"
)
DIRECTORY_FORM: Final = (
    "spec.source.context.git.directory must be a path inside the repository, such as images/web: without '/' in front "
    "and without '..'"
)
IMAGE_BY_DIGEST: Final = (
    "spec.source.context.image.reference must end in a digest, such as registry.example.com/team/files@sha256:…: a tag "
    "may name other files by the time the next architecture is built"
)
NEEDS_INTERVAL: Final = (
    "spec.baseImages.interval is required with spec.baseImages.policy: Interval; write a duration of at least 5m, such "
    "as 24h"
)
NEEDS_LIST: Final = (
    "spec.architectures.list is required with spec.architectures.mode: Explicit; list the architectures to build for"
)
LIST_FORBIDDEN: Final = (
    "spec.architectures.list is allowed only with spec.architectures.mode: Explicit; set the mode, or use "
    "spec.architectures.include"
)
ONLY_AUTO: Final = (
    "spec.architectures.include and spec.architectures.exclude are allowed only with spec.architectures.mode: Auto; "
    "with Explicit, change spec.architectures.list"
)
OVERLAP: Final = (
    "spec.architectures.include and spec.architectures.exclude name the same architecture: remove it from one of them"
)
INDEX_NEEDED: Final = (
    "spec.output.index: Never publishes one image without index, but spec.architectures.list has several "
    "architectures; use Auto, or list one"
)
LIST_ANNOTATIONS: Final = (
    "spec.output.annotations need spec.output.format: OCI, because manifest lists of Docker have none; remove them, or "
    "use OCI"
)
NEEDS_HOST: Final = "must begin with the host of a registry, such as registry.example.com/team/app"
HAS_SELECTOR: Final = "must have no tag and no digest; tags are in spec.output.tags"
REPOSITORY_FORM: Final = (
    "must be HOST[:PORT]/NAME, where NAME has lower-case letters and digits, separated by '.', '_', '__', '-' or '/'"
)
SAME_STAGING: Final = (
    "spec.output.stagingRepository is the repository itself: name another one, or remove it, since children wait in "
    "the repository anyway"
)
TAG_FORM: Final = "spec.output.tags[] must be 1 to 128 letters, digits, '_', '.' and '-', with no '.' or '-' in front"
PLATFORM_SELECTED: Final = (
    "spec.scheduling.perArchitecture[].nodeSelector must not name architecture or operating system "
    f"({', '.join(PLATFORM_LABELS)}): the build sets them itself; spec.strategy says where it may run"
)
NEEDS_TOKEN: Final = (
    "spec.rebuild.architectures need a spec.rebuild.token: set it to a value that it never had, such as the date"
)


def union_member(kind: str, member: str) -> str:
    """The message for a context that lacks the member of its type, or has that of another."""
    field = "spec.source.context"
    return f"{field}.{member} is required with {field}.type: {kind}, and allowed with no other type"


def matches(pattern: str, text: str) -> bool:
    """Whether the API server's ``matches`` is true: ``$`` is the end of the text, and classes are ASCII."""
    whole = pattern.removesuffix("$") + r"\Z" if pattern.endswith("$") else pattern
    return re.search(whole, text, re.ASCII) is not None


def is_architecture(name: str) -> bool:
    """A name as Go and Kubernetes have it, known or not."""
    return matches(ARCHITECTURE, name) and name not in SPELLINGS and name != NEUTRAL


def architecture_problem(name: str) -> str:
    """What to write instead of a name that is none."""
    lower = name.lower()
    if lower == NEUTRAL:
        advice = NEUTRAL_ADVICE
    elif lower in SPELLINGS:
        advice = SPELLINGS[lower]
    else:
        advice = lower if matches(ARCHITECTURE, lower) else ARCHITECTURE_ADVICE
    return f"'{name}' is not an architecture as Go names it; write {advice}"
