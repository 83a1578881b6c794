"""How the extender works: what the operator's file and the flags say."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Final, Literal

import msgspec

from polyarch.numa.api.resources import RestrictedPolicy, ResyncDebug, SchedulingMode, ScoringType
from polyarch.numa.names import EXTENDER_PORT, STATUS_PORT

BestEffort = Literal["score", "ignore"]
UnknownNodes = Literal["pass", "reject"]
Foreign = Literal["exclusive", "all", "none"]
Kick = Literal["capacity", "node-annotation", "none"]
Switch = Literal["on", "off"]
LogFormat = Literal["json", "console"]

VERB_SECONDS: Final = 2.0
"""The longest that a verb takes."""
USUAL_TTL: Final = 60.0
CLAIMS_TTL: Final = 600.0
"""Of pods whose volumes or devices are claimed first."""


class ExtenderSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What ``polyarch run numa-extender`` was told."""

    mode: SchedulingMode = "exact"
    scheduler_name: str = "topo-aware-scheduler"
    """Pods of others are answered, and reserve nothing."""
    strategy: ScoringType = "LeastAllocated"
    weights: Mapping[str, int] = {}
    restricted: RestrictedPolicy = "filter"
    best_effort: BestEffort = "score"
    unknown_nodes: UnknownNodes = "pass"
    candidates: int = 1
    """Nodes that a pod may be reserved on at a time."""
    reservations: bool = True
    """Zones are reserved when a pod is seen bound, or before."""
    ttl: float = USUAL_TTL
    """Seconds that a reservation is held for a pod that is not bound."""
    foreign: Foreign = "exclusive"
    """Which pods of other schedulers are reserved for."""
    max_staleness: float = 60.0
    """Seconds without progress of a watch after which nothing is answered any more."""
    resync_debug: ResyncDebug = "DumpJSONFile"
    preempt: bool = False
    kick: Kick = "capacity"
    bind: bool = False
    listen: tuple[str, int] = ("127.0.0.1", EXTENDER_PORT)
    status_listen: tuple[str, int] = ("", STATUS_PORT)
    cert_dir: str = ""
    """Directory of ``tls.crt`` and ``tls.key``; empty: one that it makes itself, as kube-scheduler does."""
    namespace: str = "polyarch-system"
    kubeconfig: str = ""
    context: str = ""
    dumps: str = "/run/pfpstatus"
    log_format: LogFormat = "json"
    verbosity: int = 2

    @property
    def evicts(self) -> bool:
        """Whether pods are evicted for others. Without reservations anybody might take the zones that come free."""
        return self.preempt and self.reservations


def missing_library() -> str:
    """What the extender needs and is not installed, with what to do; empty: nothing."""
    if find_spec("numpy") is not None:
        return ""
    return "numpy is not installed, and the extender needs it: pip install 'polyarch[numa]'"
