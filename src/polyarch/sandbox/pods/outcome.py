"""What the nodes' state machine is told about the processes of containers. Pure values."""

import datetime as dt
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


class Observed(msgspec.Struct, frozen=True):
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
