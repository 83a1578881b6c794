"""A pod's namespace and name by its uid, from the directories in ``/var/log/pods`` (PL-605). Pure.

The kubelet creates ``NAMESPACE_NAME_UID`` before it starts the pod's first container, with every runtime. So the node
side needs no right to read pods.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAMESPACE: Final = re.compile(_LABEL)
_NAME: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")


class PodName(NamedTuple):
    namespace: str
    name: str


def find(directories: Iterable[str], uid: str) -> PodName | None:
    """The pod with this uid; None if no directory has it, or the names in it cannot be those of a pod."""
    for directory in directories:
        if not directory.endswith(f"_{uid}"):
            continue
        namespace, _, name = directory[: -len(uid) - 1].partition("_")
        if _NAMESPACE.fullmatch(namespace) and len(namespace) <= 63 and _NAME.fullmatch(name) and len(name) <= 253:
            return PodName(namespace, name)
    return None
