"""The configuration of the stock kube-scheduler, and that of the extender beside it (NO-085, NS-090, NS-091).

Both are files of ConfigMaps, written as JSON, which every reader of YAML reads. Neither is ever merged into the
configuration of another scheduler. Pure.
"""

from typing import Any, Final

import msgspec

from polyarch.durations import go_duration
from polyarch.numa.api.settings import SchedulerSettings
from polyarch.numa.names import EXTENDER_PORT

Document = dict[str, Any]

LEASE: Final = "numa-scheduler-leader"
SEVERAL: Final = 10
"""Weight of the extender's scores where in-tree scores take part (NS-090)."""
RATE: Final = 300
"""Requests per second to the API server. The scheduler's own default of 50 binds at most 50 pods a second (NS-172)."""

BLIND_PREEMPTION: Final = "DefaultPreemption"
"""The in-tree plugin that evicts pods by the sums of a node."""


def scheduler_configuration(settings: SchedulerSettings, *, namespace: str) -> Document:
    """KubeSchedulerConfiguration with one profile and the extender.

    A single replica elects, too: while its Deployment is rolled out there are two, with reservations of their own.
    Without ``percentageOfNodesToScore`` it would look at a sample of the nodes of a large cluster, and miss those that
    fit. ``managedResources`` stays empty: it cannot name cpu or memory.

    The profile has no preemption of its own, at any extension point: that one asks only extenders with a preemptVerb.
    It would evict pods until the sums of a node do, whether or not a NUMA zone comes free; then the extender rejects
    the node, the owners of the victims make new pods, and it begins again.
    """
    extender: Document = {
        "urlPrefix": f"http://127.0.0.1:{EXTENDER_PORT}/numa",
        "filterVerb": "filter",
        "nodeCacheCapable": True,
        "ignorable": settings.ignorable,
        "httpTimeout": "5s",
    }
    if weight := _weight(settings):
        extender |= {"prioritizeVerb": "prioritize", "weight": weight}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {
            "leaderElect": True,
            "resourceName": LEASE,
            "resourceNamespace": namespace,
            "resourceLock": "leases",
        },
        "clientConnection": {"qps": RATE, "burst": 2 * RATE},
        "percentageOfNodesToScore": 100,
        "profiles": [
            {
                "schedulerName": settings.name,
                "plugins": {"multiPoint": {"disabled": [{"name": BLIND_PREEMPTION}]}},
            }
        ],
        "extenders": [extender],
    }


def extender_configuration(settings: SchedulerSettings, *, informer: str) -> Document:
    """What the extender reads. ``informer``: ``Dedicated`` or ``Shared``, as decided.

    A resync period of 0 turns reservations off, in every mode (NO-011).
    """
    return {
        "mode": settings.mode,
        "schedulerName": settings.name,
        "restricted": settings.restricted_policy,
        "candidates": settings.candidates,
        "reservations": "on" if settings.resync_period else "off",
        "resyncPeriod": go_duration(settings.resync_period),
        "resyncDebug": settings.resync_debug,
        "resyncDetection": settings.detection,
        "informer": informer,
        "strategy": settings.scoring,
        "weights": dict(settings.scored),
        "preempt": settings.evicts,
    }


def text(configuration: Document) -> str:
    """As the content of a file."""
    return msgspec.json.format(msgspec.json.encode(configuration), indent=2).decode() + "\n"


def _weight(settings: SchedulerSettings) -> int:
    """0: it only filters, since it names the one best node itself."""
    if settings.mode == "compat":
        return 1
    return SEVERAL if settings.mode == "advise" or settings.candidates > 1 else 0
