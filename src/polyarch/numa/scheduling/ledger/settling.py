"""When a reservation is not needed any more, since the node's object shows the pod (NS-106, NS-107). Pure."""

from typing import Final, Literal

import msgspec

from polyarch.numa.scheduling.facts.nodes import NodeSettings
from polyarch.numa.scheduling.ledger.explaining import EXCLUSIVE, Explanation
from polyarch.numa.scheduling.ledger.residents import Resident

UNKNOWN_PERIOD: Final = 60.0
MARGIN: Final = 10.0


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """The version of a node's object that is there now, and how it came."""

    name: str
    """Its resourceVersion."""
    method: str
    received: float
    at_event: int
    """The number of the event by which it came."""
    is_first: bool = False
    """None was known before it."""
    is_doubtful: bool = False
    """Pods that nobody here has ever seen may be in it: it is the first, and nothing explained it."""


Settled = Literal["settled", "unexplained"]


def grace(settings: NodeSettings) -> float:
    """Seconds after an admission in which an exporter must have scanned."""
    period = settings.refresh_period
    return 2 * (period or UNKNOWN_PERIOD) + MARGIN


def settled(
    resident: Resident,
    version: Version,
    explanation: Explanation | None,
    *,
    now: float,
    grace: float,
    is_namesake: bool,
    exporter_ready_since: float | None,
) -> Settled | None:
    """``is_namesake``: another pod of this namespace and name was on the node lately."""
    if resident.is_excluded:
        return None
    if explanation is None:
        late = _has_scanned_since(resident, version, now, grace, exporter_ready_since)
        return "unexplained" if late else None
    if not explanation.shows(resident):
        return None
    is_admitted = resident.admitted is not None
    may_be_later = is_admitted and not is_older(version.name, resident.admitted_version)
    # A fingerprint of exclusive resources with the pod in it proves that the pod holds them, if the name is its own.
    is_proof = version.method == EXCLUSIVE or may_be_later
    is_own_name = not (is_namesake or resident.is_suspect or version.is_doubtful)
    if is_proof and is_own_name and explanation.counts(resident):
        return "settled"
    # By another reading the set may leave out a pod that the kubelet lists: that tells nothing of it.
    is_told = explanation.counts(resident) or not resident.is_listed
    if is_told and may_be_later and version.at_event > resident.admitted_at_event:
        return "settled"
    return "settled" if resident.admitted is not None and now - resident.admitted >= grace else None


def is_shown_at_start(
    resident: Resident, version: Version, explanation: Explanation | None, *, now: float, grace: float
) -> bool:
    """Whether the first version of an object shows a pod that was there before it (NS-150). One admitted just now may
    have the name of an earlier one that the version means, unless the version is younger than what is known of it."""
    if resident.admitted is None or resident.is_excluded:
        return False
    if now - resident.admitted >= grace:
        return explanation is None or explanation.shows(resident)
    is_counted = explanation is not None and explanation.counts(resident)
    return is_counted and not is_older(version.name, resident.version)


def is_older(version: str, other: str) -> bool:
    """Of two resourceVersions: watches of two kinds do not keep a common order, but the numbers of one etcd do. This is
    never more than a reason to wait, so where the numbers are from two the ledger waits longer and is not wrong.
    False where they are no numbers."""
    return version.isdecimal() and other.isdecimal() and int(version) < int(other)


def _has_scanned_since(
    resident: Resident, version: Version, now: float, grace: float, exporter_ready_since: float | None
) -> bool:
    admitted = resident.admitted
    if admitted is None or now - admitted < grace:
        return False
    if version.received > admitted + grace:
        return True
    is_after = version.at_event > resident.admitted_at_event
    return is_after and exporter_ready_since is not None and exporter_ready_since <= admitted
