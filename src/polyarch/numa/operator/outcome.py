"""What a plan says: the objects that should be there, what the status becomes, and when to look again. Pure."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from polyarch.objects import Condition

Document = dict[str, Any]
EventType = Literal["Normal", "Warning"]


class ServingCertificate(msgspec.Struct, frozen=True):
    """A Secret that the operator itself has to fill, signed with its own CA."""

    namespace: str
    secret: str
    dns_names: tuple[str, ...]


class Announcement(msgspec.Struct, frozen=True):
    """An Event on the object that was planned for, once as long as it stays true."""

    type: EventType
    reason: str
    message: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one look. ``None`` leaves what is there as it is."""

    documents: tuple[Document, ...] | None = None
    """Everything that the object stands for, in the order of applying; what is not among it goes. None: nothing is
    created, changed or deleted (NO-038)."""
    namespace: Document | None = None
    """The namespace with the labels that it needs. It is not ours: it has no owner, and is never deleted."""
    certificate: ServingCertificate | None = None
    status: Mapping[str, Any] | None = None
    """Without its conditions."""
    conditions: tuple[Condition, ...] | None = None
    """None: reconciliation is paused."""
    announcements: tuple[Announcement, ...] = ()
    look_again: float | None = None
    """Seconds; None: when something changes."""
    group_nodes: Mapping[str, tuple[str, ...]] = {}
    """Names of the nodes by group."""

    @property
    def is_degraded(self) -> bool:
        return any(each.type == "Degraded" and each.status == "True" for each in self.conditions or ())
