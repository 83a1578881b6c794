"""The Deployments of placement: pod webhook and pod controller (PL-002, PL-502). Pure."""

from polyarch.operating.settings import OperatorSettings
from polyarch.operating.workloads import Workload
from polyarch.placement import names


def webhook(settings: OperatorSettings) -> Workload:
    """The pod webhook."""
    return Workload(
        name=names.WEBHOOK,
        container="web-hook",
        role="placement-webhook",
        replicas=settings.webhook_replicas,
        cpu="50m",
        memory="96Mi",
        memory_limit="256Mi",
        webhook=True,
        asks_registries=True,
        spare="one",
    )


def controller(settings: OperatorSettings) -> Workload:
    """The pod controller."""
    return Workload(
        name=names.CONTROLLER,
        container="controller",
        role="placement-controller",
        replicas=settings.controller_replicas,
        cpu="100m",
        memory="128Mi",
        memory_limit="512Mi",
        asks_registries=True,
    )
