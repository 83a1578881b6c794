"""Every object that the operator makes while placement is on (PL-002, PL-500).

One list drives creation and deletion, so that what can be made cannot be forgotten. The namespace and the webhook
configurations are apart: the namespace is labelled but not ours, and the pod webhook's configuration comes and goes
with the Deployments (PL-022). Pure.
"""

from typing import Final

from polyarch.kube.owners import Owner
from polyarch.operating import workloads
from polyarch.operating.labels import Document, finished, metadata, owned
from polyarch.operating.monitoring import scraping
from polyarch.operating.settings import DEFAULT_NAMESPACE, Cluster, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import ClusterPodPlacementConfig
from polyarch.placement.operator import deployments, monitor_objects, rbac
from polyarch.placement.operator.monitoring import alerts
from polyarch.placement.settings import SettingsTable


def operands(
    settings: OperatorSettings,
    cluster: Cluster,
    configuration: ClusterPodPlacementConfig,
    policy: SettingsTable,
    *,
    owner: Owner | None,
    ca_bundle: bytes = b"",
    registries: str = "",
) -> tuple[Document, ...]:
    """The objects for this configuration and policy, in the order of applying.

    ``owner``: the ClusterPodPlacementConfig. Only what may go as soon as it is deleted refers to it: the controller has
    to remove the gates first (PL-520). ``ca_bundle``: PEM of our CA, for Prometheus. ``registries``: a digest of the
    registries' ConfigMap, so that a change of it replaces the pods that read it.
    """
    parts = rbac.Parts.of(settings, cluster, policy)
    roles = (deployments.webhook(settings), deployments.controller(settings))
    documents = [
        *rbac.service_accounts(settings.namespace),
        *([workloads.trusted_ca(names.CONTROLLER, settings.namespace)] if cluster.openshift else ()),
        *([readings(settings.namespace)] if parts.share_readings else ()),
        *([kept_report(settings.namespace)] if parts.reports else ()),
        *rbac.rbac(parts),
        *(each for role in roles for each in workloads.objects(role, settings, cluster, registries=registries)),
    ]
    scraped = [role.name for role in roles]
    monitored = is_monitored(configuration)
    if monitored:
        verbose = configuration.spec.log_verbosity in ("Debug", "Trace", "TraceAll")
        documents += monitor_objects.objects(settings, cluster, verbose=verbose)
        scraped.append(names.ENOEXEC_HANDLER)
    if cluster.monitoring:
        documents += [
            *scraping.objects(scraped, settings, ca_bundle),
            *alerts.prometheus_rules(settings.namespace, monitor=monitored),
        ]
    return tuple(_finished(each, owner) for each in documents)


def is_monitored(configuration: ClusterPodPlacementConfig) -> bool:
    """Whether the exec-format-error monitor is enabled (PL-600)."""
    plugins = configuration.spec.plugins
    monitor = plugins.exec_format_error_monitor if plugins is not None else None
    return monitor is not None and monitor.enabled


def finalizers(configuration: ClusterPodPlacementConfig, *, configs: int) -> tuple[str, ...]:
    """Those of a ClusterPodPlacementConfig that is not being deleted (PL-003). ``configs``: PodPlacementConfigs of all
    namespaces."""
    return (
        names.POD_PLACEMENT_FINALIZER,
        *((names.NO_POD_PLACEMENT_CONFIG_FINALIZER,) if configs else ()),
        *((names.ENOEXEC_EVENTS_FINALIZER,) if is_monitored(configuration) else ()),
    )


def namespace(name: str = DEFAULT_NAMESPACE, *, openshift: bool = False, privileged: bool = False) -> Document:
    """The labels of the operator's namespace (PL-552). The monitor's node side and the exporters of NUMA need
    ``privileged``.

    OpenShift reads from an annotation that management workloads are allowed; the label is the documented contract.
    """
    level = "privileged" if privileged else "restricted"
    labels = {f"pod-security.kubernetes.io/{mode}": level for mode in ("enforce", "warn")}
    described: Document = {"name": name, "labels": labels}
    if openshift:
        described |= {"labels": labels | _MANAGEMENT, "annotations": dict(_MANAGEMENT)}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": described}


def readings(namespace: str) -> Document:
    """The Secret that the controller fills with what it knows of images (PL-410)."""
    described = metadata(names.READINGS_SECRET, names.CONTROLLER, namespace=namespace)
    return {"apiVersion": "v1", "kind": "Secret", "metadata": described, "type": names.READINGS_TYPE}


def kept_report(namespace: str) -> Document:
    """The ConfigMap that the controller fills with what could run where (RP-030)."""
    described = metadata(names.REPORT_CONFIGMAP, names.CONTROLLER, namespace=namespace)
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": described}


_MANAGEMENT: Final = {"workload.openshift.io/allowed": "management"}
_COLLECTED: Final = frozenset({names.WEBHOOK, names.ENOEXEC_DAEMON})
"""Whose objects Kubernetes may collect as soon as the ClusterPodPlacementConfig is deleted."""


def _finished(document: Document, owner: Owner | None) -> Document:
    labelled = finished(document)
    described = labelled["metadata"]
    if (document["kind"], described["name"]) == ("Deployment", names.CONTROLLER):
        labelled["metadata"]["finalizers"] = [names.POD_PLACEMENT_FINALIZER]
    return owned(labelled, owner) if described["labels"][names.CONTROLLER_LABEL] in _COLLECTED else labelled
