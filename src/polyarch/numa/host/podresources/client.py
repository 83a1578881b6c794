"""What a caller sees of the podresources API, whichever way it is asked.

No import of gRPC or of its messages: a command that reads a saved answer does without either.
"""

from typing import Literal, Protocol

from polyarch.numa.decide.facts import Allocatable, ListedPod

Function = Literal["list", "get_allocatable_resources", "get"]
"""A call, by the name that ``rte_podresource_api_call_failures_total`` gives it."""

LONGEST_ANSWER = 16 * 1024 * 1024
"""Bytes of one message (NE-050)."""
DEADLINE = 10.0
"""Seconds of one call (NE-050)."""


class PodResourcesError(Exception):
    """A call failed: ``function`` is the call, the message says where and why."""

    def __init__(self, function: Function, message: str) -> None:
        super().__init__(f"{function}: {message}")
        self.function = function


class Counting(Protocol):
    """What is counted of calls."""

    def call_failed(self, function: Function) -> None:
        """Once per failed call; a call that is repeated and fails again counts twice (NE-053)."""

    def pods_unnamed(self, count: int) -> None:
        """Pods without name or namespace were in an answer, and passed over (NE-057)."""


class Uncounted:
    """Counts nothing."""

    def call_failed(self, function: Function) -> None:
        pass

    def pods_unnamed(self, count: int) -> None:
        pass


class PodResources(Protocol):
    """The kubelet's answers as facts. Every call raises :class:`PodResourcesError` and nothing else.

    Cell ids are passed on as they come, negative ones and unknown ones too.
    """

    async def until_ready(self) -> None:
        """Returns once there is somebody to ask; waits for it without limit (NE-052)."""

    async def list(self) -> list[ListedPod]:
        """All pods with the resources of their containers."""

    async def allocatable(self) -> Allocatable:
        """What pods may get in all."""

    async def get(self, namespace: str, name: str) -> ListedPod:
        """One pod; picked out of ``list`` where the kubelet does not implement ``Get`` (NE-056)."""

    async def close(self) -> None:
        """Lets go of the connection; the next call opens another."""
