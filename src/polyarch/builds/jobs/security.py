"""Security profiles of build pods: what the container with the user's code may do (BD-143, BD-151, BD-153).

What reaches a registry or holds credentials to push never has more than ``CONFINED``, in every profile.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from polyarch.builds.jobs.order import ProfileName

USER: Final = 65532
"""Of the containers that run our own image; its number means nothing on a node."""
BUILDER: Final = 1000
"""Of rootless builds: builder images have subordinate ids for this user."""

CONFINED: Final[Mapping[str, Any]] = {
    "runAsNonRoot": True,
    "runAsUser": USER,
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


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """How the container ``build`` runs, and what its pod needs for it."""

    container: Mapping[str, Any]
    pod: Mapping[str, Any] = {}
    """Members of the pod's spec."""
    command: tuple[str, ...] = ()
    """What stands before the container's command."""


PROFILES: Final[Mapping[ProfileName, Profile]] = {
    "UserNamespace": Profile(
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
    "Rootless": Profile(
        container={
            "runAsUser": BUILDER,
            "runAsGroup": BUILDER,
            "capabilities": {"drop": ["ALL"], "add": ["SETUID", "SETGID"]},
            "seccompProfile": {"type": "Unconfined"},
            "appArmorProfile": {"type": "Unconfined"},
        },
        command=("buildah", "unshare"),
    ),
    "Privileged": Profile(container={"runAsUser": 0, "runAsGroup": 0, "privileged": True}),
}
"""``Privileged`` only with the role's permission; ``Auto`` never means it."""

POD_SECURITY_LABEL: Final = "pod-security.kubernetes.io/enforce"
NEEDED_LEVEL: Final = "privileged"
_FORBIDDING: Final = frozenset({"baseline", "restricted"})


def forbidden_by_pod_security(namespace: str, enforced: str) -> str | None:
    """What keeps build pods out of the namespace and what to do; None if nothing does (BD-153).

    Both levels forbid what every profile needs: SYS_ADMIN, or no seccomp profile, or ``privileged``. Refused pods leave
    a Job without pods and without a word, so this is said beforehand.
    """
    if enforced not in _FORBIDDING:
        return None
    return (
        f"namespace {namespace} enforces Pod Security {enforced!r} (label {POD_SECURITY_LABEL}), which refuses build "
        f"pods; set the label to {NEEDED_LEVEL!r}, or build in a namespace that has it"
    )
