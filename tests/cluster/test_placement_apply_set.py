"""KR-051 with placement's own objects (PL-500): made once, kept without a request, and unmade by the same list."""

import secrets
from collections import Counter
from typing import Any

from test_kube_control_live import in_background

from polyarch.kube.access import config
from polyarch.kube.client.client import Client
from polyarch.kube.objects.apply_set import ApplySet
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MUTATING_WEBHOOKS,
    ROLE_BINDINGS,
    ROLES,
    SERVICE_ACCOUNTS,
)
from polyarch.kube.runtime.informer import Informers
from polyarch.placement import names
from polyarch.placement.operator import rbac, webhooks
from polyarch.sandbox.cluster import Sandbox


class Requests:
    """Counts what a client asks, but for its watches."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def request(self, verb: str, resource: str, code: int) -> None:
        if verb != "watch":
            self.count[f"{verb} {resource}"] += 1


def placement_objects(namespace: str, suffix: str) -> list[dict[str, Any]]:
    """All that placement needs, under names of the test's own, as other tests stand in the same cluster."""
    parts = rbac.Parts(namespace=namespace, node_aware=True, global_pull_secret=(namespace, "pull-secret"))
    nothing = {"matchLabels": {"kubernetes.io/metadata.name": "none"}}
    documents = [
        *rbac.service_accounts(namespace),
        *rbac.rbac(parts),
        webhooks.webhook_configuration(namespace, namespace_selector=nothing, excluded_namespaces=["a", "b-*"]),
    ]
    for document in documents:
        document["metadata"] = {**document["metadata"], "name": document["metadata"]["name"] + suffix}
        if "roleRef" in document:
            document["roleRef"] = {**document["roleRef"], "name": document["roleRef"]["name"] + suffix}
    return documents


async def test_pl_500_placements_objects_are_kept_without_a_request(sandbox: Sandbox, namespace: str) -> None:
    suffix, requests = f"-{secrets.token_hex(4)}", Requests()
    desired = placement_objects(namespace, suffix)
    kinds = [
        *((resource, namespace) for resource in (SERVICE_ACCOUNTS, ROLES, ROLE_BINDINGS)),
        *((resource, "") for resource in (CLUSTER_ROLES, CLUSTER_ROLE_BINDINGS, MUTATING_WEBHOOKS)),
    ]
    part = f"{names.OPERAND}{suffix}"
    async with Client(config.load(str(sandbox.kubeconfig)), role="tests", metrics=requests) as client:
        for passes in range(2):  # the second one is another process's
            informers = Informers(client, freeze=False)
            operands = ApplySet(client, informers, kinds=kinds, label=names.OPERAND_LABEL)
            async with in_background(informers.run()):
                await informers.synced()
                outcome = await operands.apply(desired, part_of=part)
                assert len(outcome.applied) == (0 if passes else len(desired))
                requests.count.clear()
                for _ in range(3):
                    assert not (await operands.apply(desired, part_of=part)).changed
                assert requests.count == {}
                if passes:
                    steps = 0
                    while await operands.delete(part):
                        steps += 1
                    assert 4 <= steps <= 7, "webhook, bindings, roles and accounts one after the other"
        for document in desired:
            resource = next(each for each, _ in kinds if each.kind == document["kind"])
            listed = await client.list(resource, label_selector=f"{names.OPERAND_LABEL}={part}")
            assert listed.items == [], f"{document['kind']} is left"
