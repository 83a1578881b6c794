"""The rights of an extender, from the parts that its settings turn on."""

from typing import Final, NamedTuple

from polyarch.kube import events
from polyarch.kube.rbac import PolicyRule, rule, union
from polyarch.kube.resources import NODES, POD_DISRUPTION_BUDGETS, PODS
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.extender.requeue import CAPACITIES
from polyarch.numa.extender.settings import ExtenderSettings
from polyarch.numa.names import KICK

READS: Final = (rule(TOPOLOGIES, "get", "list", "watch"), rule((NODES, PODS), "get", "list", "watch"))


class Rights(NamedTuple):
    """In the whole cluster, and in the extender's own namespace."""

    cluster: tuple[PolicyRule, ...]
    namespace: tuple[PolicyRule, ...]


def rights(settings: ExtenderSettings) -> Rights:
    """Exactly what an extender with these settings uses."""
    cluster = [*READS, *events.RIGHTS, *SCRAPER_RIGHTS]
    namespace: list[PolicyRule] = []
    if settings.evicts:
        cluster += [
            rule(PODS, "create", subresource="eviction"),
            rule(PODS, "patch", subresource="status"),
            rule(POD_DISRUPTION_BUDGETS, "list", "watch"),
        ]
    if settings.bind:
        cluster.append(rule(PODS, "create", subresource="binding"))
    if settings.kick == "node-annotation":
        cluster.append(rule(NODES, "patch"))
    if settings.kick == "capacity":
        namespace += [rule(CAPACITIES, "get", "patch", names=[KICK]), rule(CAPACITIES, "create")]
    return Rights(union(*cluster), tuple(namespace))
