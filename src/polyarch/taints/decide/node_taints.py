"""What becomes of the taints of one node (TN-020 to TN-023).

A node that is managed and whose architecture is tainted carries the desired taint; of the other taints only those that
are ours are touched, and the rest keep their content and their order. :func:`decide_node` says which taints are
replaced, removed and appended, by index in the list as read; ``result.node_patch`` makes the patch of it. Deciding
again about the outcome finds nothing to do.

Pure: no I/O, no clock.
"""

from collections.abc import Collection
from enum import StrEnum
from typing import Final

import msgspec

from polyarch.objects import Node
from polyarch.platforms import KNOWN_ARCHITECTURES, normal_architecture, normal_system
from polyarch.taints.api.settings import TaintSettings
from polyarch.taints.names import (
    ARCH_KEY,
    CONTROL_PLANE_KEYS,
    DISABLED,
    MANAGED_TAINTS_ANNOTATION,
    OPT_OUT,
    OS_KEY,
)
from polyarch.tolerations import Taint


class Reason(StrEnum):
    """Why a node carries the taint, does not, or is left as it is."""

    TAINTED = "Tainted"
    FOREIGN_TAINT_SUFFICES = "ForeignTaintSuffices"
    TAINT_MISSING = "TaintMissing"
    TAINT_DIFFERS = "TaintDiffers"
    NOT_RELEASED = "NotReleased"
    PRIMARY_ARCHITECTURE = "PrimaryArchitecture"
    ARCHITECTURE_NOT_MANAGED = "ArchitectureNotManaged"
    OPTED_OUT = "OptedOut"
    NOT_SELECTED = "NotSelected"
    CONTROL_PLANE = "ControlPlane"
    OTHER_SYSTEM = "OtherOperatingSystem"
    REMOVING = "Removing"
    PAUSED = "Paused"
    UNKNOWN = "NodeArchitectureUnknown"
    FOREIGN = "ForeignArchitectureTaint"


class Kind(StrEnum):
    """What is written."""

    NONE = "none"
    APPLY = "apply"
    """The node gets the taint; it had none of ours with this key."""
    CORRECT = "correct"
    """A taint of ours becomes the desired one, or is one too many."""
    REMOVE = "remove"
    """The node loses what is ours."""


_WHY: Final = {
    Reason.TAINTED: "it carries {desired}",
    Reason.FOREIGN_TAINT_SUFFICES: "it carries {desired}, which somebody else put there",
    Reason.TAINT_MISSING: "it has to carry {desired} and does not",
    Reason.TAINT_DIFFERS: "it has to carry {desired}, and no other taint of polyarch with key {key}",
    Reason.NOT_RELEASED: "nodes of architecture {architecture} are not tainted yet",
    Reason.PRIMARY_ARCHITECTURE: "{architecture} is a primary architecture, whose nodes are not tainted in this mode",
    Reason.ARCHITECTURE_NOT_MANAGED: "{architecture} is not one of spec.architectures",
    Reason.OPTED_OUT: f"it is labelled {OPT_OUT}={DISABLED}",
    Reason.NOT_SELECTED: "spec.nodes.selector does not match it",
    Reason.CONTROL_PLANE: "it is a control-plane node, and spec.nodes.excludeControlPlane is true",
    Reason.OTHER_SYSTEM: "its operating system {system} is not one of spec.nodes.operatingSystems",
    Reason.REMOVING: "the taints of polyarch are being removed",
    Reason.PAUSED: "spec.state is paused, so nothing is written",
    Reason.UNKNOWN: "neither status.nodeInfo.architecture ({reported}) nor the label kubernetes.io/arch names an "
    "architecture that is known, so it is left as it is",
    Reason.FOREIGN: "it carries {foreign}, which is not polyarch's and excludes {desired}: key and effect are unique "
    "on a node; remove that taint, or choose another key",
}


class Replace(msgspec.Struct, frozen=True, gc=False):
    """The taint at this index becomes another one in its place."""

    index: int
    taint: Taint


class NodeDecision(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    """What is done about one node, and why. Indexes are those of ``spec.taints`` as read."""

    kind: Kind = Kind.NONE
    reason: Reason
    architecture: str = ""
    """Normalised; empty if it is unknown."""
    mismatch: str = ""
    """The label's architecture, if the kubelet reports another one (``NodeArchitectureMismatch``)."""
    managed: bool = False
    """TN-021."""
    desired: Taint | None = None
    """What a managed node of a tainted architecture is to carry."""
    carried: bool = False
    """The desired taint is there."""
    marked: bool = False
    """The desired taint, or one that is ours, is there."""
    replaced: Replace | None = None
    removed: tuple[int, ...] = ()
    appended: Taint | None = None
    record: str | None = None
    """The annotation's new value; None leaves it as it is, an empty one removes it."""
    message: str = ""
    """Why, as the rest of a sentence that begins with the node's name."""

    @property
    def waiting(self) -> bool:
        """It is to carry a taint and does not."""
        return self.desired is not None and not self.carried


def decide_node(
    node: Node, settings: TaintSettings, *, released: Collection[str] | None = None, leaving: bool = False
) -> NodeDecision:
    """The decision about one node.

    ``released``: architectures whose nodes may be tainted by now (TN-025); None: all. ``leaving``: the configuration is
    being deleted, which is as ``state: removing``.
    """
    return _Case(node, settings).decide(released, leaving=leaving or settings.state == "removing")


class _Case:
    def __init__(self, node: Node, settings: TaintSettings) -> None:
        labels, info = node.metadata.labels or {}, node.status.node_info
        self._labels = labels
        self._settings = settings
        self._taints = node.spec.taints or []
        self._text = (node.metadata.annotations or {}).get(MANAGED_TAINTS_ANNOTATION)
        self._recorded = parse_record(self._text or "")
        self._ours = self._owned()
        reported, labelled = normal_architecture(info.architecture), normal_architecture(labels.get(ARCH_KEY, ""))
        self._reported = info.architecture
        self._mismatch = labelled if reported and labelled and reported != labelled else ""
        self._architecture = architecture_of(node)
        self._system = normal_system(info.operating_system or labels.get(OS_KEY, "") or "linux")
        self._why_unmanaged = self._unmanaged()

    def decide(self, released: Collection[str] | None, *, leaving: bool) -> NodeDecision:
        settings, architecture = self._settings, self._architecture
        if settings.state == "paused" and not leaving:
            return self._nothing(Reason.PAUSED, self._wanted())
        if leaving:
            return self._without(Reason.REMOVING, every_key=True)
        if not architecture:
            return self._nothing(Reason.UNKNOWN)
        if self._why_unmanaged is not None:
            return self._without(self._why_unmanaged)
        desired = self._wanted()
        if desired is None:
            return self._without(Reason.PRIMARY_ARCHITECTURE)
        return self._with(desired, may_begin=released is None or architecture in released)

    def _unmanaged(self) -> Reason | None:
        settings, labels = self._settings, self._labels
        if labels.get(OPT_OUT) == DISABLED:
            return Reason.OPTED_OUT
        if self._architecture not in settings.managed:
            return Reason.ARCHITECTURE_NOT_MANAGED
        if self._system not in settings.operating_systems:
            return Reason.OTHER_SYSTEM
        if settings.exclude_control_plane and any(key in labels for key in CONTROL_PLANE_KEYS):
            return Reason.CONTROL_PLANE
        if settings.node_selector is not None and not settings.node_selector.matches(labels):
            return Reason.NOT_SELECTED
        return None

    def _wanted(self) -> Taint | None:
        architecture = self._architecture
        if not architecture or self._why_unmanaged is not None or not self._settings.is_tainted(architecture):
            return None
        return self._settings.taint(architecture)

    # -- with a desired taint -----------------------------------------------------------------------------------------

    def _with(self, desired: Taint, *, may_begin: bool) -> NodeDecision:
        owned = [at for at in self._ours if self._taints[at].key == desired.key]
        there = next((at for at, taint in enumerate(self._taints) if _same(taint, desired)), None)
        if there is not None:
            extra = tuple(at for at in owned if at != there)
            if not extra:
                is_ours = there in owned
                return self._nothing(Reason.TAINTED if is_ours else Reason.FOREIGN_TAINT_SUFFICES, desired)
            kept = desired if there in owned else None
            return self._change(Kind.CORRECT, Reason.TAINT_DIFFERS, desired, removed=extra, record=self._record(kept))
        foreign = self._in_the_way(desired, owned)
        if foreign is not None:
            return self._nothing(Reason.FOREIGN, desired, foreign=foreign)
        if not may_begin:
            return self._nothing(Reason.NOT_RELEASED, desired)
        record = self._record(desired)
        if owned:
            first, *extra_owned = owned
            return self._change(
                Kind.CORRECT,
                Reason.TAINT_DIFFERS,
                desired,
                replaced=Replace(first, desired),
                removed=tuple(extra_owned),
                record=record,
            )
        return self._change(Kind.APPLY, Reason.TAINT_MISSING, desired, appended=desired, record=record)

    def _in_the_way(self, desired: Taint, owned: Collection[int]) -> Taint | None:
        """A foreign taint with the key and effect of the desired one, which the API server would refuse beside it."""
        pair = desired.key, desired.effect
        beside = ((at, taint) for at, taint in enumerate(self._taints) if (taint.key, taint.effect) == pair)
        return next((taint for at, taint in beside if at not in owned), None)

    # -- without one --------------------------------------------------------------------------------------------------

    def _without(self, why: Reason, *, every_key: bool = False) -> NodeDecision:
        """Takes away what is ours: with the key in force, or (``every_key``) all of it and the whole record."""
        key = self._settings.key
        removed = tuple(at for at in self._ours if every_key or self._taints[at].key == key)
        record = "" if every_key else self._record(None)
        if not removed and (record or None) == self._text:
            return self._nothing(why)
        return self._change(Kind.REMOVE, why, None, removed=removed, record=record)

    # -- ownership ----------------------------------------------------------------------------------------------------

    def _owned(self) -> list[int]:
        """Indexes of the taints that are ours (TN-022)."""
        return [at for at, taint in enumerate(self._taints) if self._is_recorded(taint) or self._is_adopted(taint)]

    def _is_recorded(self, taint: Taint) -> bool:
        """An entry stands for the taint that equals it. Only if none does was ours changed by hand, and one like it is
        ours: else a foreign taint with the same value would be ours as soon as we wrote beside it."""
        return any(
            _same(taint, entry) or (_alike(taint, entry) and not any(_same(each, entry) for each in self._taints))
            for entry in self._recorded
        )

    def _is_adopted(self, taint: Taint) -> bool:
        settings = self._settings
        return settings.ownership == "adopt" and taint.key == settings.key and taint.value in KNOWN_ARCHITECTURES

    def _record(self, ours: Taint | None) -> str:
        """The record after the write: entries of former keys stay as long as there is such a taint."""
        former = {entry for entry in self._recorded if entry.key != self._settings.key and self._is_there(entry)}
        return ",".join(sorted(str(entry) for entry in former | ({ours} if ours is not None else set())))

    def _is_there(self, entry: Taint) -> bool:
        return any(_alike(taint, entry) for taint in self._taints)

    # -- decisions ----------------------------------------------------------------------------------------------------

    def _nothing(self, reason: Reason, desired: Taint | None = None, *, foreign: Taint | None = None) -> NodeDecision:
        return self._change(Kind.NONE, reason, desired, foreign=foreign)

    def _change(
        self,
        kind: Kind,
        reason: Reason,
        desired: Taint | None,
        *,
        replaced: Replace | None = None,
        removed: tuple[int, ...] = (),
        appended: Taint | None = None,
        record: str | None = None,
        foreign: Taint | None = None,
    ) -> NodeDecision:
        message = _WHY[reason].format(
            desired=desired,
            key=self._settings.key,
            architecture=self._architecture,
            system=self._system,
            reported=repr(self._reported),
            foreign=foreign,
        )
        carried = desired is not None and any(_same(taint, desired) for taint in self._taints)
        return NodeDecision(
            kind=kind,
            reason=reason,
            architecture=self._architecture,
            mismatch=self._mismatch,
            managed=bool(self._architecture) and self._why_unmanaged is None,
            desired=desired,
            carried=carried,
            marked=carried or bool(self._ours),
            replaced=replaced,
            removed=removed,
            appended=appended,
            record=None if (record or None) == self._text else record,
            message=message,
        )


def architecture_of(node: Node) -> str:
    """The node's architecture, normalised; empty if it is unknown (TN-020)."""
    reported = node.status.node_info.architecture or (node.metadata.labels or {}).get(ARCH_KEY, "")
    architecture = normal_architecture(reported)
    return architecture if architecture in KNOWN_ARCHITECTURES else ""


def parse_record(text: str) -> tuple[Taint, ...]:
    """The entries of the annotation ``polyarch.dev/managed-taints``; what is not one is passed over (TN-022)."""
    found = []
    for entry in text.split(","):
        left, colon, effect = entry.strip().rpartition(":")
        key, _, value = left.partition("=")
        if colon and key and effect:
            found.append(Taint(key=key, value=value, effect=effect))
    return tuple(found)


def _same(taint: Taint, other: Taint) -> bool:
    """Whether they are equal but for the time they were added at."""
    return (taint.key, taint.value, taint.effect) == (other.key, other.value, other.effect)


def _alike(taint: Taint, entry: Taint) -> bool:
    """Whether the taint may be what somebody made of the entry by hand (TN-022)."""
    return taint.key == entry.key and (taint.value == entry.value or taint.effect == entry.effect)
