"""Every object that the operator makes for builds (BD-002, BD-331, BD-332).

One list drives creation and deletion, so that what can be made cannot be forgotten. Pure.
"""

from collections.abc import Sequence

import msgspec

from polyarch.builds import names
from polyarch.builds.operator import rights
from polyarch.builds.operator.monitoring.alerts import ALERTS
from polyarch.operating import workloads
from polyarch.operating.labels import Document, finished
from polyarch.operating.monitoring import scraping
from polyarch.operating.monitoring.alerting import prometheus_rule
from polyarch.operating.settings import MACHINE_OS_NAMESPACE, Cluster, OperatorSettings
from polyarch.operating.workloads import Workload


def operands(
    settings: OperatorSettings,
    cluster: Cluster,
    *,
    tainted: Sequence[str] = (),
    ca_bundle: bytes = b"",
    registries: str = "",
    placed: bool = False,
) -> tuple[Document, ...]:
    """The objects for these settings, in the order of applying.

    ``tainted``: keys of the taints by architecture that nodes of this cluster have. ``ca_bundle``: PEM of our CA, for
    Prometheus. ``registries``: a digest of the registries' ConfigMap, so that a change of it replaces the pods that
    read it. ``placed``: placement is on, and has made what both share.
    """
    settings = msgspec.structs.replace(settings, machine_os=settings.machine_os_in(cluster))
    own = settings.tolerating(*tainted)
    documents = [
        *rights.rbac(settings, cluster),
        *([workloads.trusted_ca(names.ROLE, settings.namespace)] if cluster.openshift and not placed else ()),
        *workloads.objects(deployment(settings, tainted), own, cluster, registries=registries),
    ]
    if cluster.monitoring:
        documents += [
            *scraping.objects([names.ROLE], settings, ca_bundle),
            prometheus_rule(names.ROLE, names.ROLE, ALERTS, settings.namespace),
        ]
    return tuple(finished(each) for each in documents)


def deployment(settings: OperatorSettings, tainted: Sequence[str] = ()) -> Workload:
    """The role ``builder``: one replica leads, the others stand by."""
    return Workload(
        name=names.ROLE,
        container="builder",
        role="builder",
        replicas=settings.builder_replicas,
        cpu="50m",
        memory="128Mi",
        memory_limit="512Mi",
        asks_registries=True,
        global_credentials=False,
        spare="one",
        arguments=arguments(settings, tainted),
    )


def arguments(settings: OperatorSettings, tainted: Sequence[str] = ()) -> tuple[str, ...]:
    """Flags of ``polyarch run builder`` beyond those that every role gets."""
    keys = dict.fromkeys((*(settings.arch_taint_keys or names.ARCH_TAINT_KEYS), *tainted))
    given = [
        f"--builder-image={settings.builder_image}",
        f"--push-image={settings.push_image or settings.image}",
        f"--max-active-jobs={settings.max_active_jobs}",
        *(f"--arch-taint-key={key}" for key in keys),
        f"--machine-os={settings.machine_os}",
    ]
    if settings.allow_privileged_builds:
        given.append("--allow-privileged-builds")
    if settings.machine_os != "off" and settings.machine_os_namespace != MACHINE_OS_NAMESPACE:
        given.append(f"--machine-os-namespace={settings.machine_os_namespace}")
    return tuple(given)
