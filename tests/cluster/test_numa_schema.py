"""What the API server makes of NUMAResourcesOperator, NUMAResourcesScheduler and the objects that a plan has.

Most creates are dry runs, so that tests share one cluster. What is one in a cluster is made under a lock.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from namespaces import is_served
from numa_cluster import PRIVILEGED, nodes, operator
from structlog.testing import capture_logs

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, Invalid, NotFound
from polyarch.kube.managed_fields import differences
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CRDS, NAMESPACES, PODS, Resource, by_kind
from polyarch.numa.api.crds import crds
from polyarch.numa.api.resources import OLD_VERSION, OPERATORS, SCHEDULERS
from polyarch.operator.components.numa_exporter_plan import plan_exporters
from polyarch.operator.components.numa_facts import ExporterFacts, ExporterPlan
from polyarch.operator.settings import OperatorSettings
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import file_lock
from polyarch.sandbox.tasks import until

ESTABLISHED_SECONDS = 20
LABEL_SECONDS = 20
OLD_OPERATORS, OLD_SCHEDULERS = (msgspec.structs.replace(each, version=OLD_VERSION) for each in (OPERATORS, SCHEDULERS))
OWN = "numa.polyarch.dev/"
Json = dict[str, Any]


@pytest.fixture
async def api(client: Client) -> Client:
    """A client of an API server that serves both kinds in both versions."""
    for document in crds():
        await client.apply(CRDS, document)
    async with asyncio.timeout(ESTABLISHED_SECONDS):
        for resource in (OPERATORS, OLD_OPERATORS, SCHEDULERS, OLD_SCHEDULERS):
            while not await is_served(client, resource):
                await asyncio.sleep(0.1)
    return client


@pytest.fixture
async def sole_numa(sandbox: Sandbox) -> AsyncIterator[None]:
    """Held by tests that really create what is one in a cluster."""
    async with file_lock(sandbox.folder.root / ".sole-numa.lock"):
        yield


def of(resource: Resource, spec: Any, name: str = "", **metadata: Any) -> Json:
    named = {"name": name or resource.kind.lower(), **metadata}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": named, "spec": spec}


async def refused(client: Client, resource: Resource, document: Json) -> str:
    with pytest.raises(Invalid) as refusal:
        await client.create(resource, document, dry_run=True)
    return str(refusal.value)


def group(**members: Any) -> Json:
    return {"nodeGroups": [members]}


REFUSED: list[tuple[Resource, Any, list[str]]] = [
    (OPERATORS, {"logLevel": "Loud"}, ["spec.logLevel", "Normal"]),
    (OPERATORS, group(config={"podsFingerprinting": "On"}), ["podsFingerprinting", "EnabledExclusiveResources"]),
    (OPERATORS, group(config={"infoRefreshMode": "Never"}), ["infoRefreshMode", "PeriodicAndEvents"]),
    (OPERATORS, group(config={"infoRefreshPause": "true"}), ["infoRefreshPause", "Enabled"]),
    (OPERATORS, group(config={"infoRefreshPeriod": "10"}), ["infoRefreshPeriod must be a duration", "such as 10s"]),
    (OPERATORS, group(annotations={f"a{n}": "" for n in range(9)}), ["annotations", "at most 8"]),
    (OPERATORS, group(config={"tolerations": [{"operator": "Is"}]}), ["tolerations[0].operator", "Exists"]),
    (SCHEDULERS, {"cacheResyncPeriod": "often"}, ["spec.cacheResyncPeriod must be a duration"]),
    (SCHEDULERS, {"scoringStrategy": {"type": "Best"}}, ["scoringStrategy.type", "LeastNUMANodes"]),
    (SCHEDULERS, {"schedulerInformer": "Own"}, ["schedulerInformer", "Dedicated"]),
    (SCHEDULERS, {"preemptionMode": "true"}, ["preemptionMode", "Disabled"]),
]


@pytest.mark.req("NO-002", "NO-004", "NO-011")
@pytest.mark.parametrize(("resource", "spec", "said"), REFUSED, ids=[row[2][0] for row in REFUSED])
async def test_what_is_refused_and_in_which_words(api: Client, resource: Resource, spec: Any, said: list[str]) -> None:
    """Enums, formats and the number of annotations, in both versions."""
    for each in (resource, msgspec.structs.replace(resource, version=OLD_VERSION)):
        message = await refused(api, each, of(each, spec))
        assert all(part in message for part in said), message


@pytest.mark.req("NO-001", "NO-010")
@pytest.mark.parametrize("resource", [OPERATORS, OLD_OPERATORS, SCHEDULERS, OLD_SCHEDULERS], ids=str)
async def test_only_one_name(api: Client, resource: Resource) -> None:
    message = await refused(api, resource, of(resource, {}, name="mine"))
    assert f"set metadata.name to {resource.kind.lower()}" in message


ACCEPTED: list[tuple[Resource, Any]] = [
    (OPERATORS, None),
    (OPERATORS, {}),
    (OPERATORS, group(poolName="worker", config={"infoRefreshPeriod": "-5s", "tolerations": [{"operator": "Exists"}]})),
    (OPERATORS, group(nodeSelector={}, config={"infoRefreshPeriod": "1h2m3.5s"}, annotations={"a": "b"})),
    (OPERATORS, {"logLevel": "", "podExcludes": [{"namespace": "a", "name": "*"}]}),
    (OLD_OPERATORS, group(disablePodsFingerprinting=True)),
    (SCHEDULERS, {}),
    (SCHEDULERS, {"imageSpec": "a", "cacheResyncPeriod": "0", "replicas": 3, "preemptionMode": "Enabled"}),
    (OLD_SCHEDULERS, {"imageSpec": "a", "schedulerName": "b", "scoringStrategy": {"type": "LeastNUMANodes"}}),
]


@pytest.mark.req("NO-002", "NO-005", "NO-011")
@pytest.mark.parametrize(("resource", "spec"), ACCEPTED)
async def test_what_is_accepted_is_stored_as_it_is(api: Client, resource: Resource, spec: Any) -> None:
    """Nothing is filled in."""
    document = of(resource, spec)
    if spec is None:
        del document["spec"]
    stored = await api.create(resource, document, dry_run=True, type=dict)
    assert stored.get("spec") == spec


FULL = {
    "nodeGroups": [
        {
            "poolName": "worker",
            "config": {"podsFingerprinting": "Enabled", "tolerations": [{"key": "a", "operator": "Exists"}]},
            "annotations": {f"{OWN}kubelet-root": "/var/lib/k0s/kubelet"},
        },
        {"poolName": "bare"},
        {"nodeSelector": {"matchLabels": {"a": "b"}}, "disablePodsFingerprinting": True},
    ],
    "podExcludes": [{"namespace": "a", "name": "*"}],
}
STATUS = {
    "daemonsets": [{"namespace": "a", "name": "b"}],
    "nodeGroups": [
        {
            "daemonsets": {"namespace": "a", "name": "b"},
            "config": {"infoRefreshPeriod": "10s", "tolerations": [{"operator": "Exists"}]},
            "selector": "worker",
        }
    ],
    "machineconfigpools": [
        {"name": "worker", "conditions": [{"type": "Updated", "reason": "x"}], "config": {"a": "b"}}
    ],
    "relatedObjects": [{"group": "", "resource": "namespaces", "name": "a"}],
    "conditions": [
        {
            "type": "Available",
            "status": "True",
            "reason": "AsExpected",
            "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z",
            "observedGeneration": 1,
        }
    ],
}


@pytest.mark.req("NO-001")
async def test_a_round_trip_through_the_old_version_loses_nothing(api: Client, sole_numa: None) -> None:
    """Pool names, configurations (also absent ones), tolerations, annotations and status."""
    name = OPERATORS.kind.lower()
    await api.create(OLD_OPERATORS, of(OLD_OPERATORS, FULL))
    try:
        new = await api.get(OPERATORS, name, type=dict)
        assert (new["apiVersion"], new["spec"]) == (OPERATORS.api_version, FULL)
        await api.patch(OPERATORS, name, MergePatch({"status": STATUS}), subresource="status")
        old = await api.get(OLD_OPERATORS, name, type=dict)
        assert (old["apiVersion"], old["spec"], old["status"]) == (OLD_OPERATORS.api_version, FULL, STATUS)
        await api.raw("PUT", OLD_OPERATORS.path(name=name), body=msgspec.json.encode(old))
        again = await api.get(OPERATORS, name, type=dict)
        assert (again["spec"], again["status"]) == (FULL, STATUS)
    finally:
        await api.delete(OPERATORS, name)


@pytest.mark.req("NO-001")
async def test_the_old_version_warns(api: Client, sandbox: Sandbox) -> None:
    """As kubectl prints it. A client tells each warning once."""
    with capture_logs() as logs:
        async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as fresh:
            await fresh.create(OLD_OPERATORS, of(OLD_OPERATORS, {}), dry_run=True)
    assert [each["warning"] for each in logs if "warning" in each] == [
        "nodetopology.openshift.io/v1alpha1 NUMAResourcesOperator is deprecated; use nodetopology.openshift.io/v1"
    ]


VARIANTS: dict[str, Json] = {
    "usual": {},
    "without TLS": {"has_own_authority": False},
    "older": {"version": (1, 30)},
    "one node without configz": {"api_server_ports": (443, 6443)},
}
GROUPS = (
    {"poolName": "worker"},
    {
        "poolName": "right",
        "nodeSelector": {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["b"]}]},
        "config": {"infoRefreshMode": "Events", "tolerations": [{"key": "a", "operator": "Exists"}]},
        "annotations": {f"{OWN}reference-container": "enabled", f"{OWN}kubelet-state": "disabled"},
    },
)


def planned(namespace: str, **facts: Any) -> ExporterPlan:
    usual: Json = {
        "object": operator(*GROUPS, podExcludes=[{"namespace": "a", "name": "*"}]),
        "settings": OperatorSettings(numa_namespace=namespace, image="registry.example/polyarch:1"),
        "namespace_labels": PRIVILEGED,
        "nodes": nodes("n1", "n2"),
        "version": (1, 33),
    }
    given = usual | facts
    given["object"]["metadata"].pop("uid", None)
    return plan_exporters(ExporterFacts(**given))


@pytest.mark.req("NO-042", "NO-043")
@pytest.mark.parametrize("variant", VARIANTS)
async def test_the_api_server_takes_every_document_as_it_is(api: Client, namespace: str, variant: str) -> None:
    """Nothing is dropped or put in another form, so a settled cluster needs no write; and pods that
    mount directories of their node are admitted in the namespace as it is labelled."""
    await api.apply(NAMESPACES, {"metadata": {"name": namespace, "labels": PRIVILEGED}} | _NAMESPACE)
    for document in planned(namespace, **VARIANTS[variant]).documents or ():
        resource = by_kind(document["apiVersion"], document["kind"])
        home = document["metadata"].get("namespace", "")
        stored = await api.apply(resource, document, namespace=home, dry_run=True, type=dict)
        assert differences(document, stored, manager="polyarch") == (), document["kind"]


_NAMESPACE: Json = {"apiVersion": "v1", "kind": "Namespace"}


@pytest.mark.req("NO-057")
@pytest.mark.parametrize("level", ["baseline", "restricted"])
async def test_pods_of_exporters_need_the_level_privileged(api: Client, namespace: str, level: str) -> None:
    """Which is why the label is asked for."""
    labels = {"pod-security.kubernetes.io/enforce": level}
    await api.apply(NAMESPACES, {"metadata": {"name": namespace, "labels": labels}} | _NAMESPACE)
    made = planned(namespace)
    (daemon_set, *_) = (each for each in made.documents or () if each["kind"] == "DaemonSet")
    template = daemon_set["spec"]["template"]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**template["metadata"], "name": "exporter"},
        "spec": {**template["spec"], "serviceAccountName": "default"},
    }

    async def refused() -> str:
        """Why the API server does not take the pod; it learns of the namespace's labels a moment later."""
        try:
            await api.create(PODS, pod, namespace=namespace, dry_run=True)
        except Forbidden as error:
            return error.message
        return ""

    assert "violates PodSecurity" in (await until(refused, seconds=LABEL_SECONDS) or "")
    await api.apply(NAMESPACES, {"metadata": {"name": namespace, "labels": PRIVILEGED}} | _NAMESPACE)

    async def taken() -> bool:
        return not await refused()

    assert await until(taken, seconds=LABEL_SECONDS)


@pytest.mark.req("NO-001", "NO-002", "NO-011")
async def test_kubectl_explains_every_field(api: Client) -> None:
    """What `kubectl explain` prints is in the OpenAPI document that the API server serves."""
    path = f"/openapi/v3/apis/{OPERATORS.api_version}"
    async with asyncio.timeout(ESTABLISHED_SECONDS):  # it is built some time after the definition is served
        while True:
            try:
                schemas = msgspec.json.decode(await api.raw("GET", path))["components"]["schemas"]
            except NotFound:
                schemas = {}
            found = {name.rpartition(".")[2]: each for name, each in schemas.items()}
            if {OPERATORS.kind, SCHEDULERS.kind} <= found.keys():
                break
            await asyncio.sleep(0.2)
    for kind in (OPERATORS.kind, SCHEDULERS.kind):
        assert unexplained(found[kind]["properties"]["spec"], "spec") == []


def unexplained(schema: Json, path: str) -> list[str]:
    """Fields without a description; the entries of a list are explained by the list."""
    inner = schema.get("items", schema)
    members = inner.get("properties", {})
    lacking = [] if schema.get("description") else [path]
    return lacking + [found for name, each in members.items() for found in unexplained(each, f"{path}.{name}")]
