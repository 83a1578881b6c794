"""What shall become of a pod that is run, as a process of it asks its node: in a file of the pod's folder.

Only what plays buildah asks for something (``sandbox.building``), because somebody asked it to.
"""

import contextlib
import enum
from pathlib import Path


class Fate(enum.Enum):
    """The file's content."""

    NONE = ""
    EVICT = "evict"
    """The node evicts the pod, as it does under pressure."""
    VANISH = "vanish"
    """The pod is deleted as soon as it has succeeded."""


def fate_of(path: Path) -> Fate:
    """What the file asks for; nothing if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return Fate(path.read_text(encoding="ascii"))
    return Fate.NONE
