"""KR-051 with placement's own objects (PL-500): made once, kept without a request, and unmade by the same list."""

import secrets
from collections import Counter
from typing import Any

import msgspec
from test_kube_control_live import in_background

from polyarch.kube.access import config
from polyarch.kube.client.client import Client
from polyarch.kube.objects.apply_set import ApplySet
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
)
from polyarch.kube.runtime.informer import Informers
from polyarch.operating.settings import Cluster, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api.resources import ClusterPodPlacementConfig, PlacementPolicy
from polyarch.placement.api.settings import SettingsTable
from polyarch.placement.operator import operands, webhooks
from polyarch.sandbox.cluster import Sandbox


class Requests:
    """Counts what a client asks, but for its watches."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def request(self, verb: str, resource: str, code: int) -> None:
        if verb != "watch":
            self.count[f"{verb} {resource}"] += 1


NAMESPACED = (
    SERVICE_ACCOUNTS,
    SECRETS,
    CONFIGMAPS,
    ROLES,
    ROLE_BINDINGS,
    SERVICES,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    DEPLOYMENTS,
)
CLUSTER = Cluster(openshift=True)


def placement_objects(namespace: str, suffix: str) -> list[dict[str, Any]]:
    """All that placement needs, under names of the test's own, as other tests stand in the same cluster."""
    settings = OperatorSettings(
        namespace=namespace,
        webhook_replicas=0,
        controller_replicas=0,
        global_pull_secret=(namespace, "pull-secret"),
        tolerations=("infra",),
    )
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "none"}}}
    configuration = msgspec.convert({"spec": selector}, ClusterPodPlacementConfig)
    spec = {"nodeAware": {"mode": "report"}, "excludedNamespaces": ["a", "b-*"]}
    policy = SettingsTable.of(msgspec.convert({"spec": spec}, PlacementPolicy), None, operator_namespace=namespace)
    documents = [
        *operands.operands(settings, CLUSTER, configuration, policy, owner=None),
        webhooks.pod_webhook(settings, configuration, policy, b"PEM", owner=None),
    ]
    for document in documents:
        document["metadata"] = {**document["metadata"], "name": document["metadata"]["name"] + suffix}
        document["metadata"].pop("finalizers", None)  # which the operator takes off before it deletes
        if "roleRef" in document:
            document["roleRef"] = {**document["roleRef"], "name": document["roleRef"]["name"] + suffix}
    return [each for each in documents if each["metadata"].get("namespace", namespace) == namespace]


async def test_pl_500_placements_objects_are_kept_without_a_request(sandbox: Sandbox, namespace: str) -> None:
    suffix, requests = f"-{secrets.token_hex(4)}", Requests()
    desired = placement_objects(namespace, suffix)
    kinds = [
        *((resource, namespace) for resource in NAMESPACED),
        *((resource, "") for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, MUTATING_WEBHOOKS)),
    ]
    part = f"{names.OPERAND}{suffix}"
    async with Client(config.load(str(sandbox.kubeconfig)), role="tests", metrics=requests) as client:
        for passes in range(2):  # the second one is another process's
            informers = Informers(client, freeze=False)
            kept = ApplySet(client, informers, kinds=kinds, label=names.OPERAND_LABEL)
            async with in_background(informers.run()):
                await informers.synced()
                outcome = await kept.apply(desired, part_of=part)
                assert len(outcome.applied) == (0 if passes else len(desired))
                requests.count.clear()
                for _ in range(3):
                    assert not (await kept.apply(desired, part_of=part)).changed
                assert requests.count == {}
                if passes:
                    steps = 0
                    while await kept.delete(part):
                        steps += 1
                    assert 6 <= steps <= 24, "webhook, Deployments, budgets, … one kind after the other"
        for document in desired:
            resource = next(each for each, _ in kinds if each.kind == document["kind"])
            listed = await client.list(resource, label_selector=f"{names.OPERAND_LABEL}={part}")
            assert listed.items == [], f"{document['kind']} is left"
