"""Audit mode, explain and metrics against a real cluster."""

import asyncio
import base64
import json
import secrets
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from placement_cluster import CASE, POLICY, PlacementCluster, architectures, decision, is_gated, labels, pod, until

from polyarch.cli import main
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
)
from polyarch.placement import names
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.network import loopback_of
from polyarch.sandbox.state import NAMESPACE


@pytest.fixture
async def cluster(placed_sandbox: Sandbox) -> AsyncIterator[PlacementCluster]:
    async with placed_sandbox.client() as client:
        cluster = PlacementCluster(placed_sandbox, client)
        await cluster.configure()
        yield cluster


# -- audit mode --------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-130")
async def test_audited_pods_are_stored_unchanged_but_for_one_annotation(cluster):
    """No label, no gate, no affinity, and no request."""
    await cluster.seed({"quay.io/audit/web:1": ["linux/s390x"]})
    async with cluster.namespace("audit") as namespace:

        async def known() -> bool:
            seen = await cluster.create(pod("quay.io/audit/web:1", name="warm"), namespace, dry_run=True)
            return decision(seen)["reason"] != "ImagesNotResolvedYet"

        await until(known)
        created = await cluster.create(pod("quay.io/audit/web:1"), namespace)
        assert decision(created) | {"images": {}} == decision(created) | {
            "mode": "audit",
            "reason": "ArchitecturesSet",
            "arch": ["s390x"],
            "images": {},
        }
        assert not is_gated(created)
        assert architectures(created) is None
        assert labels(created) == {}
        assert await cluster.requests(namespace) == []


@pytest.mark.req("PL-130")
async def test_audited_pods_with_unknown_images_say_so_and_are_looked_up(cluster):
    """The second pod is judged by what the first one caused to be read."""
    await cluster.seed({"quay.io/audit/cold:1": {"platforms": ["linux/arm64"], "delay": 300}})
    async with cluster.namespace("audit") as namespace:
        first = await cluster.create(pod("quay.io/audit/cold:1", name="first"), namespace)
        assert decision(first)["reason"] == "ImagesNotResolvedYet"

        async def known() -> bool:
            seen = await cluster.create(pod("quay.io/audit/cold:1", name="next"), namespace, dry_run=True)
            return decision(seen)["arch"] == ["arm64"]

        await until(known)


@pytest.mark.req("PL-042", "PL-044")
async def test_a_change_of_namespace_labels_takes_effect_without_a_restart(cluster):
    await cluster.seed({"quay.io/audit/labels:1": ["linux/arm64"]})
    async with cluster.namespace("audit") as namespace:

        async def enforced() -> bool:
            seen = await cluster.create(pod("quay.io/audit/labels:1", name="probe"), namespace, dry_run=True)
            return architectures(seen) == ["arm64"]

        assert not await enforced()
        await cluster.client.patch(NAMESPACES, namespace, MergePatch({"metadata": {"labels": {CASE: None}}}))
        await until(enforced)


# -- explain -----------------------------------------------------------------------------------------------------------


async def explain(cluster: PlacementCluster, capsys: Any, *arguments: str) -> tuple[int, dict[str, Any]]:
    sandbox = cluster.sandbox
    given = ["explain", *arguments, "-o", "json", "--kubeconfig", str(sandbox.kubeconfig)]
    given += ["--registries-conf", str(sandbox.registries_conf)]
    code = await asyncio.to_thread(main, given)
    return code, json.loads(capsys.readouterr().out)["pods"][0]


@pytest.mark.req("PL-730")
async def test_explain_prints_what_was_decided_and_what_would_be_now(cluster, capsys):
    """0 while they agree, 1 once the image's platforms have changed."""
    await cluster.seed({"quay.io/explain/web:1": ["linux/amd64", "linux/arm64"]})
    async with cluster.namespace("gated") as namespace:
        await cluster.create(pod("quay.io/explain/web:1"), namespace)
        await cluster.released(namespace, "app")
        code, entry = await explain(cluster, capsys, "app", "-n", namespace)
        assert code == 0
        assert entry["agrees"] is True
        assert entry["recorded"]["arch"] == ["amd64", "arm64"]
        assert entry["decision"]["architectures"] == ["amd64", "arm64"]
        await cluster.seed({"quay.io/explain/web:1": ["linux/s390x"]})
        code, entry = await explain(cluster, capsys, "pod/app", "-n", namespace)
        assert code == 1
        assert entry["agrees"] is False
        assert entry["decision"]["architectures"] == ["s390x"]
        assert (await cluster.get(namespace, "app"))["metadata"]["annotations"][names.DECISION_ANNOTATION]


@pytest.mark.req("PL-730")
async def test_explain_says_what_holds_a_pod(cluster, capsys):
    """What it waits for and until when."""
    async with cluster.namespace("hold") as namespace:
        await cluster.create(pod("quay.io/explain/missing:1"), namespace)
        await cluster.labelled(namespace, "app", names.IMAGE_INSPECT_ERROR_COUNT_LABEL, "5", seconds=30)
        code, entry = await explain(cluster, capsys, "app", "-n", namespace)
        assert code == 0
        assert entry["decision"]["reason"] == "HeldByPolicy"
        assert entry["next"]["images"] == ["quay.io/explain/missing:1"]


@pytest.mark.req("PL-730", "PL-751")
async def test_explain_names_a_pod_that_is_not_there(cluster, capsys):
    """Exit code 3 and the next action."""
    given = ["explain", "nobody", "--kubeconfig", str(cluster.sandbox.kubeconfig)]
    assert await asyncio.to_thread(main, given) == 3
    assert "no pod 'nobody' in namespace 'default'" in capsys.readouterr().err


@pytest.mark.req("PL-420", "PL-730")
async def test_explain_uses_the_pull_secrets_of_the_pod(cluster, capsys):
    image = "registry.example.com/explain/private:1"
    await cluster.seed({image: {"platforms": ["linux/arm64"], "private": True, "users": {"a": "b"}}})
    async with cluster.namespace("gated") as namespace:
        host = f"{cluster.sandbox.registry.address}/registry.example.com/explain"
        await cluster.pull_secret(namespace, "pull", host, username="a", password="b")
        await cluster.create(pod(image, secrets=["pull"]), namespace)
        await cluster.released(namespace, "app")
        code, entry = await explain(cluster, capsys, "app", "-n", namespace)
        assert code == 0
        assert entry["decision"]["architectures"] == ["arm64"]


# -- metrics -----------------------------------------------------------------------------------------------------------


class Scraper:
    """Reads metrics of polyarch's pods as a monitoring system does: over TLS, by the name of the Service."""

    def __init__(self, cluster: PlacementCluster, authority: str) -> None:
        self._cluster = cluster
        self._tls = ssl.create_default_context(cadata=authority)

    @classmethod
    async def of(cls, cluster: PlacementCluster) -> "Scraper":
        registered = await cluster.client.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
        bundle = registered["webhooks"][0]["clientConfig"]["caBundle"]
        return cls(cluster, base64.b64decode(bundle).decode())

    async def scrape(self, role: str, token: str = "") -> tuple[int, str]:
        """The metrics of the one pod of this Deployment."""
        (address,) = [
            loopback_of(each["status"]["podIP"])
            for each in (await self._cluster.client.list(PODS, namespace=NAMESPACE)).items
            if each["metadata"]["name"].startswith(f"{role}-") and "deletionTimestamp" not in each["metadata"]
        ]
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        name = f"{role}.{NAMESPACE}.svc"
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"https://{address}:8443/metrics", headers=headers, ssl=self._tls, server_hostname=name
            ) as answer,
        ):
            return answer.status, await answer.text()

    @asynccontextmanager
    async def account(self, namespace: str, *, allowed: bool = True) -> AsyncIterator[str]:
        """The token of a new ServiceAccount that may read metrics, or may not."""
        client, name = self._cluster.client, f"metrics-{secrets.token_hex(4)}"
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
        await client.create(SERVICE_ACCOUNTS, account, namespace=namespace)
        token = (await client.token(namespace, name)).token
        if not allowed:
            yield token
            return
        role = {
            "apiVersion": CLUSTER_ROLES.api_version,
            "kind": CLUSTER_ROLES.kind,
            "metadata": {"name": name},
            "rules": [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}],
        }
        binding = {
            "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
            "kind": CLUSTER_ROLE_BINDINGS.kind,
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
        }
        await client.create(CLUSTER_ROLES, role)
        await client.create(CLUSTER_ROLE_BINDINGS, binding)
        try:
            yield token
        finally:
            await client.delete(CLUSTER_ROLE_BINDINGS, name)
            await client.delete(CLUSTER_ROLES, name)


@pytest.mark.req("PL-700", "PL-701", "PL-702")
async def test_the_leader_exports_what_dashboards_know(cluster):
    """The gauge of gated pods returns once the last gate is removed."""
    scraper = await Scraper.of(cluster)
    await cluster.seed({"quay.io/metrics/web:1": ["linux/amd64"]})
    async with cluster.namespace("gated") as namespace, scraper.account(namespace) as token:
        before = sample((await scraper.scrape(names.CONTROLLER, token))[1], "mto_ppo_ctrl_processed_pods_total")
        await cluster.create(pod("quay.io/metrics/web:1"), namespace)
        await cluster.released(namespace, "app")
        status, body = await scraper.scrape(names.CONTROLLER, token)
        assert status == 200
        assert sample(body, "mto_ppo_ctrl_processed_pods_total") > before
        assert sample(body, "mto_inspection_cache_size") > 0
        assert 'polyarch_api_requests_total{resource="pods",verb="patch"}' in body
        assert "polyarch_registry_requests_total" in body
        for name in ("mto_ppo_pods_gated", "polyarch_placement_gate_seconds_count"):
            assert sample(body, name) >= 0
        assert "# TYPE polyarch_placement_held_pods gauge" in body


@pytest.mark.req("PL-701", "PL-703")
@pytest.mark.parametrize("role", [names.WEBHOOK, names.CONTROLLER, names.OPERATOR])
async def test_metrics_are_for_whom_the_api_server_allows(cluster, role):
    """HTTPS, TokenReview and SubjectAccessReview with the rights of the role itself."""
    scraper = await Scraper.of(cluster)
    assert (await scraper.scrape(role))[0] == 401
    async with (
        cluster.namespace() as namespace,
        scraper.account(namespace) as allowed,
        scraper.account(namespace, allowed=False) as other,
    ):
        assert (await scraper.scrape(role, other))[0] == 403
        status, body = await scraper.scrape(role, allowed)
        assert status == 200
        if role == names.WEBHOOK:
            assert sample(body, "mto_ppo_wh_pods_processed_total") > 0
            assert sample(body, "mto_ppo_pods_gated") == 0, "the leader alone counts gated pods"


def sample(body: str, name: str) -> float:
    """The value of a metric without labels."""
    (line,) = [line for line in body.splitlines() if line.startswith(f"{name} ")]
    return float(line.split()[1])


@pytest.mark.req("PL-040")
def test_the_policy_of_these_tests_has_a_case_for_each_override():
    """The labels by which tests choose are those of the policy that is applied."""
    cases = {each["namespaceSelector"]["matchLabels"][CASE] for each in POLICY["spec"]["overrides"]}
    assert {"gated", "audit", "hold", "fallback", "release", "strict", "full", "cold"} == cases
