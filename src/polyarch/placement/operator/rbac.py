"""What webhook and controller may do: their ServiceAccounts, roles and bindings (PL-002, PL-550).

The rights are the smallest that work and follow the policy: a rule is granted only while a setting needs it. Each role
has one ClusterRole, and one Role per namespace in which it may do more, all of the ServiceAccount's name. Pure.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from polyarch.kube import events, lease
from polyarch.kube.rbac import Rule, rule
from polyarch.kube.resources import (
    CONFIGMAPS,
    CRONJOBS,
    DAEMONSETS,
    DEPLOYMENTS,
    JOBS,
    LEASES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    NODES,
    PODS,
    REPLICASETS,
    SECRETS,
    STATEFULSETS,
)
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.operating.labels import Document
from polyarch.operating.rights import (
    USE_CONSTRAINTS,
    Rights,
    combined,
    global_pull_secret,
    reading_images,
    roles,
    service_account,
)
from polyarch.operating.settings import DEFAULT_NAMESPACE, Cluster, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, POLICIES, PPCS
from polyarch.placement.settings import SecretAccess, SettingsTable, WarmUpKind


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """Features that need additional RBAC rules."""

    namespace: str = DEFAULT_NAMESPACE
    node_aware: bool = False
    """A PlacementPolicy sets ``nodeAware`` to ``report`` or ``narrow``."""
    sweeps: bool = False
    """Some ``sweep.action`` is not ``off``: it is watched whether the webhook is there (PL-370)."""
    compares_nodes: bool = False
    """The sweep compares pods with the architectures of nodes: it evicts, or its scope is ``all`` (PL-370, PL-371)."""
    evicts: bool = False
    """Some ``sweep.action`` is ``evict`` (PL-371)."""
    warm_up: tuple[WarmUpKind, ...] = ()
    """Kinds whose templates are read, if warm-up is enabled (PL-380)."""
    share_readings: bool = False
    """``images.shareReadings`` (PL-410)."""
    reports: bool = False
    """``report.enabled``: the controller lists what a report is made of (RP-031)."""
    secret_access: SecretAccess = "byName"
    """``images.secretAccess``: ``none`` removes the right to read the pods' pull secrets (PL-421)."""
    global_pull_secret: tuple[str, str] | None = None
    """Namespace and name of the global pull secret."""
    openshift: bool = False
    """Read the cluster's image mirrors and CAs, and use security context constraints (PL-551)."""

    @classmethod
    def of(cls, settings: OperatorSettings, cluster: Cluster, policy: SettingsTable) -> "Parts":
        """What these settings need while this policy is in force."""
        spec = policy.spec
        everywhere = (spec, *(overlaid for _, _, overlaid in policy.overrides))
        sweeps = any(each.sweep_action != "off" for each in everywhere)
        evicts = any(each.sweep_action == "evict" for each in everywhere)
        return cls(
            namespace=settings.namespace,
            node_aware=spec.node_aware != "off",
            sweeps=sweeps,
            compares_nodes=sweeps and (evicts or spec.sweep_scope == "all"),
            evicts=evicts,
            warm_up=spec.warm_up_kinds if spec.warm_up_enabled else (),
            share_readings=spec.images_share_readings,
            reports=spec.report_enabled,
            secret_access=spec.images_secret_access,
            global_pull_secret=global_pull_secret(settings, cluster),
            openshift=cluster.openshift,
        )


def rights(parts: Parts) -> dict[str, Rights]:
    """The rules of webhook and controller, by the name of their ServiceAccount (PL-550)."""
    watched_lease = rule(LEASES, "get", "list", "watch", names=[names.CONTROLLER_LEASE])
    readings = rule(SECRETS, "get", "list", "watch", names=[names.READINGS_SECRET])
    own_readings = rule(SECRETS, "get", "list", "watch", "patch", names=[names.READINGS_SECRET])
    shared = parts.share_readings
    return {
        names.WEBHOOK: _rights(
            parts,
            cluster=SCRAPER_RIGHTS,
            own=(watched_lease, *((readings,) if shared else ())),
        ),
        names.CONTROLLER: _rights(
            parts,
            cluster=(
                rule(PODS, "get", "list", "watch", "patch"),
                *events.RIGHTS,
                *SCRAPER_RIGHTS,
                *((_SEES_REGISTRATION,) if parts.sweeps else ()),
                *((rule(NODES, "list"),) if parts.compares_nodes and not parts.node_aware else ()),
                *((rule(PODS, "create", subresource="eviction"),) if parts.evicts else ()),
                *(rule(_TEMPLATES[kind], "list", "watch") for kind in parts.warm_up),
                *(_REPORTED if parts.reports else ()),
                *((USE_CONSTRAINTS,) if parts.openshift else ()),
            ),
            own=(
                *lease.rights(names.CONTROLLER_LEASE),
                *((own_readings,) if shared else ()),
                *((_KEEPS_REPORT,) if parts.reports else ()),
                *((_SEES_WEBHOOK,) if parts.sweeps else ()),
            ),
        ),
    }


def service_accounts(namespace: str = DEFAULT_NAMESPACE) -> list[Document]:
    """One ServiceAccount per role."""
    return [service_account(role, namespace) for role in (names.WEBHOOK, names.CONTROLLER)]


def rbac(parts: Parts = Parts()) -> list[Document]:  # noqa: B008 - a frozen value
    """Roles and bindings of webhook and controller, for exactly these features."""
    return [
        document for account, allowed in rights(parts).items() for document in roles(account, allowed, parts.namespace)
    ]


def _rights(parts: Parts, *, cluster: Sequence[Rule], own: Sequence[Rule]) -> Rights:
    """The rights of one role, with the reads that webhook and controller share."""
    reads = [*_READS, *((rule(NODES, "list", "watch"),) if parts.node_aware else ())]
    images = reading_images(
        parts.namespace,
        openshift=parts.openshift,
        global_secret=parts.global_pull_secret,
        pull_secrets=parts.secret_access == "byName",
    )
    return combined(Rights((*reads, *cluster), {parts.namespace: tuple(own)}), images)


_READS: Final = (
    rule((CPPCS, PPCS), "get", "list", "watch"),
    rule(POLICIES, "get", "list", "watch"),
    Rule(POLICIES.group, ("architecturetaints",), ("list", "watch")),  # pods that both see get tolerations, too
    rule(NAMESPACES, "get", "list", "watch"),  # only while a PlacementPolicy has overrides
)
_SEES_REGISTRATION: Final = rule(MUTATING_WEBHOOKS, "get", "list", "watch", names=[names.WEBHOOK_CONFIGURATION])
_SEES_WEBHOOK: Final = rule(DEPLOYMENTS, "get", "list", "watch", names=[names.WEBHOOK])
_TEMPLATES: Final = {
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFULSETS,
    "DaemonSet": DAEMONSETS,
    "CronJob": CRONJOBS,
}
"""Workloads by the words of ``warmUp.kinds``."""
_REPORTED: Final = (
    rule((NODES, PODS, NAMESPACES), "list"),
    rule((DEPLOYMENTS, STATEFULSETS, DAEMONSETS, REPLICASETS), "list"),
    rule((JOBS, CRONJOBS), "list"),
    rule((CPPCS, ENOEXECEVENTS), "list"),
    rule(POLICIES, "list"),
    Rule(POLICIES.group, ("architecturetaints",), ("list",)),
)
"""What the report is made of (RP-031). It says nothing of NUMA and builds, whose rights are those of components."""
_KEEPS_REPORT: Final = rule(CONFIGMAPS, "get", "patch", names=[names.REPORT_CONFIGMAP])
