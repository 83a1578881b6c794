"""How far the DaemonSets of the groups are (NO-093), and whether a workload has the pods that were planned. Pure."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from polyarch.kube.resources import few
from polyarch.numa import names
from polyarch.numa.operator.observed import Document

PATIENCE: Final = 600.0
"""Seconds without progress after which a roll-out counts as failed."""


class Progress(msgspec.Struct, frozen=True):
    """Of one DaemonSet."""

    ready: bool
    """Every pod is of the present template, and ready; also if there is to be none."""
    message: str
    """Empty if it is ready."""


def progress(wanted: Document, live: Document | None) -> Progress:
    """``wanted``: the DaemonSet as planned. A pod of an older template does not count, however ready it is."""
    where = f"{wanted['metadata']['namespace']}/{wanted['metadata']['name']}"
    if live is None:
        return Progress(False, f"{where} is being created")
    metadata, status = live.get("metadata") or {}, live.get("status") or {}
    desired, ready, updated = (
        int(status.get(field) or 0) for field in ("desiredNumberScheduled", "numberReady", "updatedNumberScheduled")
    )
    seen = status.get("observedGeneration") is not None and status["observedGeneration"] >= metadata.get(
        "generation", 0
    )
    if seen and has_template(live, wanted) and desired == ready == updated:
        return Progress(True, "")
    return Progress(False, f"{where} is updating ({ready}/{desired})")


def stuck(waiting: tuple[str, ...], message: str) -> str:
    """What is said of a roll-out that gets no further. ``waiting``: ``pod: reason``.

    The time is not counted on: a node that is down for days would mean a write of the status every minute.
    """
    told = f"{message} and has got no further for {PATIENCE / 60:g} minutes or more"
    return f"{told}: {few(waiting)}" if waiting else told


def has_template(live: Document, wanted: Document) -> bool:
    """Whether a live DaemonSet or Deployment makes the pods of the wanted one: before that it is as it was before."""
    return bool(_template(live) == _template(wanted))


def _template(workload: Document) -> Any:
    """What makes a pod another one, as far as it cannot be written in another form by an API server."""
    template: Mapping[str, Any] = ((workload.get("spec") or {}).get("template")) or {}
    annotations = (template.get("metadata") or {}).get("annotations") or {}
    containers = (template.get("spec") or {}).get("containers") or ()
    return (
        annotations.get(names.CONFIG_HASH),
        [(each.get("name"), each.get("image"), tuple(each.get("args") or ())) for each in containers],
    )
