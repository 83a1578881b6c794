"""Events that are noted instead of posted."""

from typing import Any


class FakeRecorder:
    """``events`` as (reason, name of the object, note)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, regarding: Any, *, type: str, reason: str, note: str, action: str, related: Any = None) -> None:
        self.events.append((reason, regarding.name, note))


class EventLog:
    """What a controller posts about pods: name of the pod, and event."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def __call__(self, pod: Any, event: Any) -> None:
        self.events.append((pod.metadata.name, event))

    @property
    def reasons(self) -> list[str]:
        return [str(event.reason) for _, event in self.events]

    @property
    def warnings(self) -> list[Any]:
        return [event for _, event in self.events if event.type == "Warning"]
