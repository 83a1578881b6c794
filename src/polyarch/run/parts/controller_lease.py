"""Whether somebody lifts placement's gates: its controllers' Lease, watched by who adds such gates or leaves gated pods
to placement."""

from collections.abc import Callable
from typing import Final

from polyarch.kube.lease import Lease, RecordAge
from polyarch.kube.manager import Process
from polyarch.kube.rbac import rule
from polyarch.kube.resources import LEASES
from polyarch.placement import names

CONTROLLER_SILENCE: Final = 30.0
"""Seconds without a change of its Lease after which the controller counts as unavailable (PL-107)."""
RIGHTS: Final = (rule(LEASES, "get", "list", "watch", names=[names.CONTROLLER_LEASE]),)
"""RBAC rules in the process's namespace."""


def lease_watch(process: Process) -> Callable[[], bool]:
    """Whether the controllers' Lease changed recently, by this process's own clock (PL-107).

    Time during which the watch was broken does not count, because no renewal could be seen then. After an outage of the
    API server, controllers therefore keep the rest of their time before pods are admitted without them.
    """
    informer = process.informer(
        LEASES,
        Lease,
        namespace=process.settings.namespace,
        field_selector=f"metadata.name={names.CONTROLLER_LEASE}",
    )
    age = RecordAge(process.clock, blind=lambda: informer.blind_seconds)
    informer.add_handler(lambda change: age.observe(change.new))
    return lambda: age.age() < CONTROLLER_SILENCE
