"""A recorder of Events that posts none."""

from typing import Any


class FakeRecorder:
    """``events`` as (reason, name of the object, note)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str, str]] = []

    def event(self, regarding: Any, *, type: str, reason: str, note: str, action: str, related: Any = None) -> None:
        self.events.append((reason, regarding.name, note))
