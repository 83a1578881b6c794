"""Every object that the operator makes while ArchitectureTaints exists (TN-003, TN-081).

One list drives creation and deletion, so that what can be made cannot be forgotten. The webhook configuration is apart:
it comes once the Deployment is available, and goes first. Nothing refers to the object as its owner, since the role has
to clean up before it goes. Pure.
"""

from polyarch.operating import workloads
from polyarch.operating.labels import Document, finished
from polyarch.operating.monitoring import scraping
from polyarch.operating.monitoring.alerting import prometheus_rule
from polyarch.operating.settings import Cluster, OperatorSettings
from polyarch.operating.workloads import Workload
from polyarch.taints import names
from polyarch.taints.operator import rights
from polyarch.taints.operator.monitoring.alerts import ALERTS
from polyarch.taints.settings import TaintSettings


def operands(
    settings: OperatorSettings,
    cluster: Cluster,
    taints: TaintSettings,
    *,
    ca_bundle: bytes = b"",
    registries: str = "",
    placed: bool = False,
) -> tuple[Document, ...]:
    """The objects for this configuration, in the order of applying.

    ``ca_bundle``: PEM of our CA, for Prometheus. ``registries``: a digest of the registries' ConfigMap, so that a
    change of it replaces the pods that read it. ``placed``: placement is on, and has made what both share.
    """
    own = settings.tolerating(taints.key)
    documents = [
        *rights.rbac(settings, cluster, evicts=taints.image_change == "evict"),
        *([workloads.trusted_ca(names.ROLE, settings.namespace)] if cluster.openshift and not placed else ()),
        *workloads.objects(deployment(settings), own, cluster, registries=registries),
    ]
    if cluster.monitoring:
        documents += [
            *scraping.objects([names.ROLE], settings, ca_bundle),
            prometheus_rule(names.ROLE, names.ROLE, ALERTS, settings.namespace),
        ]
    return tuple(finished(each) for each in documents)


def deployment(settings: OperatorSettings) -> Workload:
    """The role ``taints``: every replica adds tolerations at admission, one leads."""
    return Workload(
        name=names.ROLE,
        container="taints",
        role="taints",
        replicas=settings.taints_replicas,
        cpu="50m",
        memory="128Mi",
        memory_limit="512Mi",
        webhook=True,
        asks_registries=True,
        spare="one",
    )
