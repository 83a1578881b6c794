"""What the nodes' state machine is told about the processes of containers."""

import contextlib
import datetime as dt
import enum
from pathlib import Path
from typing import Literal

import msgspec


class Started(msgspec.Struct, frozen=True):
    """The container's process runs, or has run, since ``at``."""

    at: dt.datetime


class CannotStart(msgspec.Struct, frozen=True):
    """The container cannot be started now; ``reason`` is its waiting reason."""

    reason: Literal["ContainerCreating", "CreateContainerConfigError", "RunContainerError"]
    message: str


class Exit(msgspec.Struct, frozen=True):
    """How a container's process ended."""

    code: int
    at: dt.datetime
    message: str = ""
    reason: str = ""
    """Empty: ``Completed`` for code 0, else ``Error``."""


class ProcessState(msgspec.Struct, frozen=True):
    """A container's process now; ``attempt`` counts its starts from 0."""

    attempt: int
    since: dt.datetime
    exit: Exit | None = None
    started: bool = False
    """Its startup probe has succeeded, or it has none."""
    ready: bool = False


UNKNOWN = "ContainerStatusUnknown"
LOST_CODE = 137


def lost(now: dt.datetime) -> Exit:
    """For a process that ended while nobody watched: a kubelet reports the same after a restart."""
    return Exit(LOST_CODE, now, "The container ended while the node's process did not run.", UNKNOWN)


# -- what a process asks its node to do to the pod, in a file of the pod's folder --------------------------------------


class PodFault(enum.Enum):
    """The file's content."""

    NONE = ""
    EVICT = "evict"
    """The node evicts the pod, as it does under pressure."""
    VANISH = "vanish"
    """The pod is deleted as soon as it has succeeded."""


def fault_of(path: Path) -> PodFault:
    """What the file asks for; nothing if there is none."""
    with contextlib.suppress(OSError, ValueError):
        return PodFault(path.read_text(encoding="ascii"))
    return PodFault.NONE
