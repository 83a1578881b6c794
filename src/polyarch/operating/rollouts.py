"""How far a Deployment of ours is. Pure."""

from collections.abc import Mapping
from typing import Any

import msgspec


class Rollout(msgspec.Struct, frozen=True, kw_only=True):
    """How far a Deployment is."""

    available: bool = False
    """At least one pod is available."""
    up_to_date: bool = False
    """Every pod is of the newest template, and available."""
    summary: str = "it does not exist"
    """The same for people."""

    @classmethod
    def of(cls, deployment: Mapping[str, Any] | None) -> "Rollout":
        """From an apps/v1 Deployment; None: there is none."""
        if deployment is None:
            return cls()
        metadata, status = deployment.get("metadata") or {}, deployment.get("status") or {}
        wanted = (deployment.get("spec") or {}).get("replicas", 1)
        total, updated, ready, available = (
            status.get(field, 0) for field in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
        )
        return cls(
            available=available > 0,
            up_to_date=updated == total == available == ready == wanted
            and not status.get("unavailableReplicas")
            and status.get("observedGeneration") == metadata.get("generation"),
            summary=f"{available} of {wanted} pods are available, {updated} are up to date",
        )
