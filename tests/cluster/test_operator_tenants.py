"""What tokens of our roles may not do to tenants and nodes, asked of a real API server."""

import itertools
import secrets
from collections.abc import Iterable
from typing import Any, get_args

import pytest

from polyarch.kube.client import Client
from polyarch.kube.rbac import granted
from polyarch.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NAMESPACES, Resource, by_kind
from polyarch.operator.components import builds_objects, placement_objects, taints_objects
from polyarch.operator.components.operator_rbac import operator_permissions
from polyarch.operator.owned_objects import RolePermissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings, SecretAccess
from polyarch.placement.settings import WarmUpKind

REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)


def every_role(settings: OperatorSettings, cluster: ClusterCapabilities) -> Iterable[tuple[str, RolePermissions]]:
    """Each of our accounts with all that it can ever be granted under these settings."""
    plain = placement_objects.OptionalFeatures(namespace=settings.namespace, secret_access=settings.secret_access)
    features = dict.fromkeys(("node_aware", "sweeps", "compares_nodes", "evicts", "share_readings", "reports"), True)
    for chosen in (plain, placement_objects.OptionalFeatures(
        namespace=settings.namespace, secret_access=settings.secret_access, warm_up=get_args(WarmUpKind),
        openshift=cluster.openshift, **features,  # type: ignore[arg-type]
    )):  # fmt: skip
        yield from placement_objects.role_permissions(chosen).items()
    yield from placement_objects.monitor_permissions(settings, cluster).items()
    for evicts in (False, True):
        yield "taints", taints_objects.role_permissions(settings, cluster, evicts=evicts)
    yield "adding", taints_objects.adding_permissions(settings.namespace)
    yield "builder", builds_objects.role_permissions(settings, cluster)
    yield "machine-os", builds_objects.machine_permissions(settings, cluster)
    yield "operator", operator_permissions(settings, cluster)


async def readers(client: Client, home: str, victim: str, access: SecretAccess) -> set[str]:
    """The accounts that some combination of settings lets read a tenant's Secret."""
    found: set[str] = set()
    for openshift, builds, machine_os, numa in itertools.product(
        (False, True), ("off", "on"), ("off", "on"), ("off", "auto")
    ):
        settings = OperatorSettings(
            namespace=home, secret_access=access, builds=builds, numa=numa, manage_namespace=True,  # type: ignore[arg-type]
            machine_os=machine_os, machine_os_namespace=home,  # type: ignore[arg-type]
        )  # fmt: skip
        cluster = ClusterCapabilities(openshift=openshift, monitoring=True)
        combined: dict[str, list[Any]] = {}
        for account, permissions in every_role(settings, cluster):
            combined.setdefault(account, []).extend(permissions.cluster)
        for account, rules in combined.items():
            if account not in found and await _may_read(client, home, victim, account, rules):
                found.add(account)
    return found


async def _may_read(client: Client, home: str, victim: str, account: str, rules: list[Any]) -> bool:
    name = f"probe-{secrets.token_hex(4)}"
    documents = granted(name, rules, [(home, name)])
    for each in documents:
        await client.apply(by_kind(each["apiVersion"], each["kind"]), each)
    try:
        review = {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "spec": {
                "user": f"system:serviceaccount:{home}:{name}",
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{home}", "system:authenticated"],
            },
        }
        answers = []
        for verb in ("get", "list", "watch"):
            attributes = {"namespace": victim, "verb": verb, "resource": "secrets", "name": "pull"}
            asked = {**review, "spec": {**review["spec"], "resourceAttributes": attributes}}  # type: ignore[dict-item]
            answers.append((await client.create(REVIEWS, asked, type=dict))["status"]["allowed"])
        return any(answers)
    finally:
        for kind in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
            await client.delete(kind, name)


@pytest.mark.req("PL-612")
@pytest.mark.timeout(600)
async def test_without_access_to_secrets_no_role_of_ours_can_read_those_of_a_tenant(sandbox, client, namespace):
    """Not with any combination of components and settings; with it, those that ask registries and the operator can."""
    victim = f"victim-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": victim}})
    try:
        assert await readers(client, namespace, victim, "none") == set()
        assert {"operator", "taints"} <= await readers(client, namespace, victim, "byName")
    finally:
        await client.delete(NAMESPACES, victim)
