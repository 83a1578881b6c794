"""Pods placed at admission: by a real API server, with no request of polyarch's own."""

import asyncio
import json
import random
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest
from placement_cluster import PlacementCluster, architectures, decision, is_gated, labels, pod, until

from polyarch.images.node_fit import refusal
from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Route, Webhooks
from polyarch.kube.certificates import FileCertificates
from polyarch.kube.client import Client
from polyarch.kube.errors import ApiError
from polyarch.kube.patches import replace
from polyarch.kube.resources import MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS
from polyarch.kube.server import HttpServer
from polyarch.objects import Pod, without_null_values
from polyarch.placement import names
from polyarch.sandbox.cluster import Sandbox

pytestmark = pytest.mark.req(
    "PL-100",
    "PL-102",
    "PL-103",
    "PL-104",
    "PL-105",
    "PL-106",
    "PL-107",
    "PL-112",
    "PL-115",
    "PL-116",
    "PL-117",
    "PL-118",
)


@pytest.fixture
async def cluster(placed_sandbox: Sandbox) -> AsyncIterator[PlacementCluster]:
    async with placed_sandbox.client() as client:
        cluster = PlacementCluster(placed_sandbox, client)
        await cluster.configure()
        yield cluster


async def warm(cluster: PlacementCluster, namespace: str, image: str) -> None:
    """The webhook knows the image afterwards."""

    async def inline() -> bool:
        seen = await cluster.create(pod(image, name="warm"), namespace, dry_run=True)
        return not is_gated(seen)

    await until(inline)


@pytest.mark.req("PL-110", "PL-111", "PL-800")
async def test_a_known_image_is_placed_at_admission_and_costs_no_request(cluster):
    """Neither gate nor request; the pod then runs on a node that its image supports."""
    await cluster.seed({"quay.io/inline/web:1": ["linux/arm64", "linux/s390x"]})
    async with cluster.namespace() as namespace:
        await warm(cluster, namespace, "quay.io/inline/web:1")
        created = await cluster.create(pod("quay.io/inline/web:1"), namespace)
        assert not is_gated(created)
        assert architectures(created) == ["arm64", "s390x"]
        assert labels(created)[names.SCHEDULING_GATE_LABEL] == "removed"
        assert labels(created)[names.NODE_AFFINITY_LABEL] == "set"
        assert names.MULTI_ARCH_LABEL in labels(created)
        assert decision(created)["by"] == "admission"
        running = await cluster.running(namespace, "app")
        node = await cluster.client.get(NODES, running["spec"]["nodeName"])
        assert node["metadata"]["labels"]["kubernetes.io/arch"] in ("arm64", "s390x")
        assert await cluster.requests(namespace) == []
        assert await cluster.events(namespace, "app") == []


@pytest.mark.req("PL-113")
async def test_a_cold_image_that_answers_within_the_budget_is_placed_at_admission_too(cluster):
    await cluster.seed({"quay.io/inline/quick:1": ["linux/ppc64le"]})
    async with cluster.namespace() as namespace:
        created = await cluster.create(pod("quay.io/inline/quick:1"), namespace)
        assert architectures(created) == ["ppc64le"]


@pytest.mark.req("PL-113")
async def test_an_image_that_misses_the_budget_is_gated_and_serves_the_next_pod(cluster):
    """What is late goes on in the background."""
    await cluster.seed({"quay.io/inline/slow:1": {"platforms": ["linux/arm64"], "delay": 1500}})
    async with cluster.namespace() as namespace:
        first = await cluster.create(pod("quay.io/inline/slow:1", name="first"), namespace)
        assert is_gated(first)
        assert architectures(await cluster.released(namespace, "first")) == ["arm64"]
        await warm(cluster, namespace, "quay.io/inline/slow:1")
        assert not is_gated(await cluster.create(pod("quay.io/inline/slow:1", name="second"), namespace))


@pytest.mark.req("PL-101", "PL-900")
async def test_fields_that_we_do_not_know_survive(cluster):
    """What polyarch's slim types leave out is stored as it was sent."""
    await cluster.seed({"quay.io/inline/fields:1": ["linux/amd64"]})
    spec: dict[str, Any] = {
        "hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a.example"]}],
        "topologySpreadConstraints": [
            {"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {}}
        ],
        "dnsConfig": {"options": [{"name": "ndots", "value": "3"}]},
        "securityContext": {"runAsUser": 7, "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}]},
        "affinity": {
            "podAntiAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": [
                    {"weight": 3, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {}}}
                ]
            }
        },
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
    }
    async with cluster.namespace() as namespace:
        await warm(cluster, namespace, "quay.io/inline/fields:1")
        created = await cluster.create(pod("quay.io/inline/fields:1", **spec), namespace)
        assert architectures(created) == ["amd64"]
        for member in ("hostAliases", "topologySpreadConstraints", "dnsConfig", "securityContext"):
            assert created["spec"][member] == spec[member]
        assert created["spec"]["affinity"]["podAntiAffinity"] == spec["affinity"]["podAntiAffinity"]
        assert spec["volumes"][0] in created["spec"]["volumes"]


@pytest.mark.req("PL-109")
async def test_dry_runs_leave_nothing(cluster):
    """No pod, no request, no event; and other pods are placed meanwhile."""
    await cluster.seed({"quay.io/inline/dry:1": ["linux/amd64"]})
    async with cluster.namespace("gated") as namespace:
        async with asyncio.TaskGroup() as tasks:
            for number in range(100):
                document = pod("quay.io/inline/dry:1", name=f"dry-{number}")
                tasks.create_task(cluster.create(document, namespace, dry_run=True))
            other = tasks.create_task(cluster.create(pod("quay.io/inline/dry:1", name="other"), namespace))
        assert is_gated(other.result())
        await cluster.released(namespace, "other")
        assert len((await cluster.client.list(PODS, namespace=namespace)).items) == 1
        requests = await cluster.requests(namespace)
        assert [request for request in requests if "dry-" in request] == []


@pytest.mark.req("PL-119")
async def test_the_audit_log_says_what_was_decided(cluster):
    await cluster.seed({"quay.io/inline/audited:1": ["linux/amd64", "linux/arm64"]})
    async with cluster.namespace() as namespace:
        await warm(cluster, namespace, "quay.io/inline/audited:1")
        await cluster.create(pod("quay.io/inline/audited:1"), namespace)
        await asyncio.sleep(1.5)
        said = [
            event["annotations"].get(f"{names.POD_WEBHOOK}/decision")
            for event in cluster.audit()
            if event["verb"] == "create"
            and event.get("objectRef", {}).get("namespace") == namespace
            and event.get("objectRef", {}).get("name") == "app"
        ]
        assert "ArchitecturesSet amd64,arm64 inline" in said


@pytest.mark.req("PL-201")
async def test_excluded_namespaces_are_left_wholly_untouched(cluster):
    async with cluster.namespace(prefix="excluded") as namespace:
        created = await cluster.create(pod("quay.io/inline/whatever:1"), namespace)
        assert not any(key.startswith(names.GROUP) for key in labels(created))


@pytest.mark.req("PL-040", "PL-042", "PL-201")
async def test_an_opt_out_counts_where_the_policy_allows_it(cluster):
    """PL-201 row 4, PL-040 podOptOut, PL-042."""
    await cluster.seed({"quay.io/inline/opt:1": ["linux/amd64"]})
    document = pod("quay.io/inline/opt:1")
    document["metadata"]["annotations"] = {names.SKIP_ANNOTATION: "true"}
    async with cluster.namespace() as allowed, cluster.namespace("strict") as forbidden:
        left = await cluster.create(document, allowed)
        assert architectures(left) is None
        assert labels(left)[names.SCHEDULING_GATE_LABEL] == "not-set"
        await cluster.create(document, forbidden)
        assert architectures(await cluster.released(forbidden, "app")) == ["amd64"]


@pytest.mark.req("PL-114")
async def test_a_second_call_after_another_webhook_changed_the_image_ends_where_the_first_would(
    cluster, placed_sandbox, tmp_path
):
    """A real reinvocation; no trace of the first decision remains."""
    images = {"quay.io/inline/before:1": ["linux/amd64"], "quay.io/inline/after:1": ["linux/s390x"]}
    await cluster.seed(images)
    async with cluster.namespace() as namespace:
        for image in images:
            await warm(cluster, namespace, image)
        async with _image_changer(placed_sandbox, cluster.client, namespace):
            created = await cluster.create(pod("quay.io/inline/before:1"), namespace)
        assert created["spec"]["containers"][0]["image"] == "quay.io/inline/after:1"
        assert architectures(created) == ["s390x"]
        required = created["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert len(required["nodeSelectorTerms"][0]["matchExpressions"]) == 1
        assert "amd64" not in json.dumps({"labels": labels(created), "affinity": required})


class _image_changer:  # noqa: N801 - used like a function
    """A foreign mutating webhook, called after ours, that changes the image of pods in one namespace."""

    NAME = "zz-image-changer"

    def __init__(self, sandbox: Sandbox, client: Client, namespace: str) -> None:
        self._sandbox = sandbox
        self._client = client
        self._namespace = namespace

    async def __aenter__(self) -> None:
        certificates = FileCertificates(self._sandbox.layout.pki.webhook_folder)
        await certificates.load()
        route: Route[Pod] = Route(path="/change", name=self.NAME, type=Pod, handler=self._change, on_error="deny")
        self._server = HttpServer(Webhooks([route]).serve, tls=certificates.context)
        await self._server.start()
        webhook = {
            "name": "change.example.com",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "clientConfig": {
                "url": f"https://127.0.0.1:{self._server.port}/change",
                "caBundle": _base64(self._sandbox.ca.read_bytes()),
            },
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}},
            "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        }
        document = {
            "apiVersion": MUTATING_WEBHOOKS.api_version,
            "kind": MUTATING_WEBHOOKS.kind,
            "metadata": {"name": self.NAME},
            "webhooks": [webhook],
        }
        await self._client.create(MUTATING_WEBHOOKS, document)

        async def asked() -> bool:
            seen = await self._client.create(
                PODS, pod("quay.io/inline/before:1", name="probe"), namespace=self._namespace, type=dict, dry_run=True
            )
            return bool(seen["spec"]["containers"][0]["image"] == "quay.io/inline/after:1")

        await until(asked)

    async def __aexit__(self, *_: object) -> None:
        await self._client.delete(MUTATING_WEBHOOKS, self.NAME)
        await self._server.stop()

    async def _change(self, request: AdmissionRequest[Pod]) -> AdmissionResponse:
        if (request.object.spec.containers or [])[0].image != "quay.io/inline/before:1":
            return AdmissionResponse()
        return AdmissionResponse(patch=(replace("/spec/containers/0/image", "quay.io/inline/after:1"),))


def _base64(data: bytes) -> str:
    import base64

    return base64.b64encode(data).decode()


def _mutated(chance: random.Random, image: str) -> dict[str, Any]:
    """A pod with a few of its members set to null, emptied or doubled, as careless templates do it."""
    expression = {"key": "zone", "operator": "In", "values": ["a", "b"]}
    document: dict[str, Any] = {
        "metadata": {"name": "app", "labels": {"app": "x"}, "annotations": {"note": "y"}},
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "schedulingGates": [{"name": "example.com/own"}],
            "tolerations": [{"key": "k", "operator": "Exists"}],
            "imagePullSecrets": [{"name": "s"}],
            "containers": [{"name": "a", "image": image}],
            "initContainers": [{"name": "i", "image": image}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [expression]}]
                    },
                    "preferredDuringSchedulingIgnoredDuringExecution": [
                        {"weight": 1, "preference": {"matchExpressions": [expression]}}
                    ],
                }
            },
        },
    }
    if chance.random() < 0.2:
        document["metadata"]["labels"][chance.choice(sorted(names.OWN_LABELS))] = chance.choice(["", "ok", "not ok!"])
    if chance.random() < 0.2:
        document["spec"]["schedulingGates"] += [{"name": names.GATE}] * chance.choice([1, 2])
    if chance.random() < 0.1:
        document["spec"]["nodeName"] = "some-node"
    if chance.random() < 0.3:
        document["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = chance.choice(
            [None, {}, {"nodeSelectorTerms": None}, {"nodeSelectorTerms": []}, {"nodeSelectorTerms": [{}]}]
        )
    places = [place for place in _places(document) if place not in KEPT]
    for place in chance.sample(places, chance.choice([0, 1, 1, 2])):
        holder: Any = document
        try:
            for step in place[:-1]:
                holder = holder[step]
            empty = [] if isinstance(holder[place[-1]], list) else {} if isinstance(holder[place[-1]], dict) else ""
            holder[place[-1]] = chance.choice([None, None, empty])
        except (KeyError, TypeError, IndexError):
            continue
    return document


PODS_TRIED = 200
KEPT = {("metadata",), ("spec",), ("metadata", "name")}


def _places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, content in members:
        yield (*at, key)
        yield from _places(content, (*at, key))


@pytest.mark.req("PL-224")
async def test_what_the_api_server_rejects_without_us_it_rejects_with_us(cluster):
    """And the other way round: whether the platforms of the images are known or not."""
    await cluster.seed({"quay.io/inline/valid:1": ["linux/arm64"]})
    chance = random.Random(27)
    answers: Counter[tuple[bool, bool, bool]] = Counter()
    said: Counter[tuple[bool, bool]] = Counter()
    differ = []
    excluded = "kube-of-nobody"
    await cluster.client.create(NAMESPACES, {"metadata": {"name": excluded}})
    try:
        async with cluster.namespace() as namespace:
            await warm(cluster, namespace, "quay.io/inline/valid:1")

            async def accepts(document: dict[str, Any], where: str) -> bool:
                try:
                    await cluster.client.create(PODS, document, namespace=where, dry_run=True)
                except ApiError:
                    return False
                return True

            for _ in range(PODS_TRIED):
                state = chance.getstate()
                known = _mutated(chance, "quay.io/inline/valid:1")
                chance.setstate(state)
                unknown = _mutated(chance, "quay.io/inline/nothere:1")
                told = (
                    await accepts(known, excluded),
                    await accepts(known, namespace),
                    await accepts(unknown, namespace),
                )
                answers[told] += 1
                try:
                    problem = refusal(msgspec.convert(without_null_values(known, Pod), Pod))
                except msgspec.ValidationError as error:
                    problem = str(error)
                said[bool(problem), told[0]] += 1
                if len(set(told)) > 1 or (problem and told[0]):
                    differ.append((told, problem, known))
    finally:
        await cluster.client.delete(NAMESPACES, excluded)
    assert differ == []
    assert min(answers[(True,) * 3], answers[(False,) * 3]) > PODS_TRIED / 10, answers
    assert said[True, False] > said[False, False], f"explain names most reasons for which pods are refused: {said}"
