"""The spec of a Job, fully decided, and the security profiles of its pods.

Secrets are named, not held: whoever makes a spec neither knows nor needs their bytes.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from polyarch.builds.api.resources import ArchitectureScheduling, ImageBuildSpec
from polyarch.builds.facts.build_facts import Entitlement, PlanSettings
from polyarch.builds.keys import canonical_digest

ProfileName = Literal["UserNamespace", "Rootless", "Privileged"]


class JobMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """Names and marks of the objects that make up one Job; ``labels`` are on its pods too."""

    namespace: str
    job: str
    owners: Sequence[Mapping[str, Any]]
    labels: Mapping[str, str]
    annotations: Mapping[str, str] = {}
    execution: str = ""
    """The execution that the Job is part of, for people."""
    record: str = ""
    """The ConfigMap with the execution's record; empty: none."""
    inputs: str = ""
    """Name of the ConfigMap with the Job's inputs, where it is not ``<job>-in``."""


class PulledImage(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An image from outside that the Containerfile names, and what is pulled for it."""

    written: tuple[str, ...]
    """The texts by which the Containerfile names it, with and without its arguments expanded."""
    pull: str
    """``repository@digest`` where it is pinned."""


class MachineJobMounts(msgspec.Struct, frozen=True, kw_only=True):
    """What a build of a machine OS is given that no spec of ours names. All are objects of its namespace."""

    context: tuple[str, ...] = ()
    """ConfigMaps whose files are the context."""
    containers: tuple[str, ...] = ()
    """ConfigMaps with files of ``/etc/containers``; any of them may be missing."""
    entitled: tuple[Entitlement, ...] = ()


class ArchitectureJobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The image of one architecture, to be built and pushed."""

    metadata: JobMetadata
    spec: ImageBuildSpec
    architecture: str
    host: str
    """The architecture of the nodes where it is built; another one than ``architecture``: emulated."""
    profile: ProfileName
    containerfile: str
    arguments: Mapping[str, str] = {}
    images: Sequence[PulledImage] = ()
    context_data: Mapping[str, Any] | None = None
    """``{"data", "binaryData"}`` of a ConfigMap context, as it was when the key was computed."""
    given: MachineJobMounts | None = None
    repository: str
    """Where the child goes: the staging repository, if there is one."""
    tag: str = ""
    settings: PlanSettings

    @property
    def emulated(self) -> bool:
        return self.host != self.architecture

    @property
    def scheduling(self) -> ArchitectureScheduling:
        return scheduling_of(self.spec, self.architecture)


def pod_settings(spec: ImageBuildSpec, architecture: str) -> dict[str, str]:
    """What the Job of an architecture is made of that no key covers: field → hash. A Job keeps it to its end."""
    output, times = spec.output, spec.timeouts
    values: dict[str, Any] = {
        "spec.builder.securityProfile": spec.builder.security_profile,
        "spec.builder.serviceAccount": spec.builder.service_account,
        "spec.output.pullSecrets": output.pull_secrets,
        "spec.output.pushSecret": output.push_secret,
        "spec.retries": spec.retries,
        "spec.scheduling.perArchitecture": scheduling_of(spec, architecture),
        "spec.source.secrets": spec.source.secrets,
        "spec.strategy": (spec.strategy, spec.emulation),
        "spec.timeouts": (times.node_wait, times.build),
    }
    return {field: canonical_digest(msgspec.to_builtins(value))[:10] for field, value in values.items()}


def scheduling_of(spec: ImageBuildSpec, architecture: str) -> ArchitectureScheduling:
    """``scheduling.perArchitecture`` of the architecture, empty if it has none."""
    named = spec.scheduling.per_architecture or ()
    return next((each for each in named if each.architecture == architecture), ArchitectureScheduling())


# -- security profiles -------------------------------------------------------------------------------------------------


USER: Final = 65532
"""The user of the containers that run our own image; its number means nothing on a node."""
CONFINED: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
    "runAsGroup": USER,
    "readOnlyRootFilesystem": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}

CAPABILITIES: Final = (
    "SYS_ADMIN",
    "SYS_CHROOT",
    "SETUID",
    "SETGID",
    "SETFCAP",
    "SETPCAP",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
)
"""What buildah's chroot isolation needs; inside a user namespace they mean nothing on the node."""


class SecurityProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How the container ``build`` runs, and what its pod needs for it."""

    container: Mapping[str, Any]
    pod: Mapping[str, Any] = {}
    """Members of the pod's spec."""


PROFILES: Final[Mapping[ProfileName, SecurityProfile]] = {
    "UserNamespace": SecurityProfile(
        pod={"hostUsers": False},
        container={
            "runAsUser": 0,
            "runAsGroup": 0,
            # allowPrivilegeEscalation stays unset: the API server refuses false together with SYS_ADMIN.
            "capabilities": {"drop": ["ALL"], "add": list(CAPABILITIES)},
            "seccompProfile": {"type": "RuntimeDefault"},
            # The profiles of container runtimes forbid every mount, also inside the pod's own user namespace.
            "appArmorProfile": {"type": "Unconfined"},
        },
    ),
    "Rootless": SecurityProfile(
        container={
            # Only until build.sh has made a user namespace, whose ids take these two capabilities to map. As another
            # user it could only have newuidmap do that, which does not work everywhere where that is setuid.
            "runAsUser": 0,
            "runAsGroup": 0,
            "capabilities": {"drop": ["ALL"], "add": ["SETUID", "SETGID"]},
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "Unconfined"},
        },
    ),
    "Privileged": SecurityProfile(container={"runAsUser": 0, "runAsGroup": 0, "privileged": True}),
}
"""``Privileged`` only with the role's permission; ``Auto`` never means it."""

POD_SECURITY_LABEL: Final = "pod-security.kubernetes.io/enforce"
NEEDED_LEVEL: Final = "privileged"
_FORBIDDING: Final = frozenset({"baseline", "restricted"})


def forbidden_by_pod_security(namespace: str, enforced: str) -> str | None:
    """What keeps build pods out of the namespace and what to do; None if nothing does.

    Both levels forbid what every profile needs: SYS_ADMIN, or no seccomp profile, or ``privileged``. Refused pods leave
    a Job without pods and without a word, so this is said beforehand.
    """
    if enforced not in _FORBIDDING:
        return None
    return (
        f"namespace {namespace} enforces Pod Security {enforced!r} (label {POD_SECURITY_LABEL}), which refuses build "
        f"pods; set the label to {NEEDED_LEVEL!r}, or build in a namespace that has it"
    )
