"""Whether a process holds a Lease and renews it (TN-063, TN-070).

Clocks of different machines disagree, so a time in a Lease says nothing (KR-030): a Lease is renewed if it is seen to
change.
"""

from typing import Final

from polyarch.clock import Clock
from polyarch.kube.lease import Lease, LeaseSpec
from polyarch.kube.resources import LEASES
from polyarch.taints.steps.writing import KubernetesApi

STALE_AFTER: Final = 30.0
"""Seconds after which a Lease that nobody renews is nobody's."""
LOOK_EVERY: Final = 1.0


async def is_renewed(api: KubernetesApi, name: str, *, clock: Clock, patience: float = STALE_AFTER) -> bool:
    """Whether a Lease of this name, in whatever namespace, changes within ``patience`` seconds.

    False at once if there is none, or nobody holds one.
    """
    before = await _held(api, name)
    until = clock.monotonic() + patience
    while before:
        if clock.monotonic() >= until:
            return False
        await clock.sleep(LOOK_EVERY)
        now = await _held(api, name)
        if any(before.get(uid) != spec for uid, spec in now.items()):
            return True
        before = now
    return False


async def _held(api: KubernetesApi, name: str) -> dict[str, LeaseSpec]:
    """What the Leases of this name say that somebody holds, by uid."""
    found = (await api.list(LEASES, type=Lease, field_selector=f"metadata.name={name}")).items
    return {each.metadata.uid: each.spec for each in found if each.spec is not None and each.spec.holder_identity}
