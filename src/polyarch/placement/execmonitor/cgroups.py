"""From ``/proc/PID/cgroup`` to the container (PL-603). Pure.

The path of a container's cgroup has the pod's uid and, after it, the container's id; which characters stand around
them depends on the kubelet's cgroup driver and on the runtime::

    0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podUID.slice/cri-containerd-ID.scope
    4:memory:/kubepods/besteffort/podUID/ID
    0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podUID.slice/crio-ID.scope/container
    12:pids:/system.slice/containerd.service/kubepods-burstable-podUID.slice:cri-containerd:ID

Sources: proc_pid_cgroup(5); the kubelet's and the runtimes' cgroup naming.
"""

import re
from typing import Final, NamedTuple


class Container(NamedTuple):
    """A container of a pod. ``pod_uid`` is as in the directory names of the pod's logs."""

    pod_uid: str
    id: str
    """``runtime://`` and 64 hexadecimal digits, as in ``containerStatuses[].containerID``, or ``unknown://``."""


_POD: Final = re.compile(
    r"pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})(?![0-9a-f])"
)
_ID: Final = re.compile(r"(crio-(?:conmon-)?|cri-containerd[-:])?(?<![0-9a-f])([0-9a-f]{64})(?![0-9a-f])")
_RUNTIMES: Final = {"crio": "cri-o", "cri-containerd": "containerd"}
_ORDER: Final = ("", "memory", "pids", "name=systemd")
"""Hierarchies in the order in which they are believed: the unified one (v2), then those of v1 that all runtimes use."""


def parse(text: str) -> Container | None:
    """The container of a process by its ``/proc/PID/cgroup``; None if no pod's cgroup is named there."""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        for controller in controllers.split(","):
            paths.setdefault(controller, path)
    found = (_container(paths[controller]) for controller in _ORDER if controller in paths)
    return next((container for container in found if container is not None), None)


def _container(path: str) -> Container | None:
    """The innermost pod of the path, and the last id after it: nodes that are containers have an id before it."""
    pod = None
    for pod in _POD.finditer(path):  # noqa: B007 - the last one
        pass
    if pod is None:
        return None
    identity = None
    for identity in _ID.finditer(path, pod.end()):  # noqa: B007 - the last one
        pass
    if identity is None:
        return None
    prefix, digits = identity.groups()
    runtime = _RUNTIMES.get(re.sub(r"(-conmon)?[-:]$", "", prefix or ""), "unknown")
    return Container(pod[1].replace("_", "-"), f"{runtime}://{digits}")
