"""Facts of Kubernetes that placement stands on, each asked of a real API server.

If a Kubernetes release changes one of them, the rules of placement have to be thought through again.
"""

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import trustme
from aiohttp import web

from polyarch.kube.client import Client
from polyarch.kube.errors import Invalid
from polyarch.kube.patches import JsonPatch, Operation, add, remove, replace, test
from polyarch.kube.resources import MUTATING_WEBHOOKS, PODS
from polyarch.objects import Pod
from polyarch.oci.inspection import Entry, Inspection, Status
from polyarch.oci.reference import parse
from polyarch.placement import names
from polyarch.placement.decision import LookupProgress
from polyarch.placement.patch import PREFERRED, REQUIRED, TERMS, controller_patch
from polyarch.placement.rules import PodFacts, decide, examine
from polyarch.placement.settings import ScoringSource, Settings
from polyarch.platforms import Platform

Json = dict[str, Any]
IMAGE = "quay.io/facts/app:1"
BOUND_SECONDS = 20


def expression(key: str, *values: str) -> Json:
    return {"key": key, "operator": "In", "values": list(values)}


ZONE = {"matchExpressions": [expression("zone", "a")]}
ARCH = expression("kubernetes.io/arch", "amd64")


def pod(name: str, *, terms: Sequence[Json] | None = None, gates: Sequence[str] = (), **spec: Any) -> Json:
    content: Json = {"containers": [{"name": "c", "image": IMAGE}]} | spec
    if terms is not None:
        selector = {"nodeSelectorTerms": list(terms)}
        content["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    if gates:
        content["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": content}


class Pods:
    """Creating and patching pods of one namespace."""

    def __init__(self, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = namespace

    async def create(self, document: Json) -> Json:
        return await self.client.create(PODS, document, namespace=self.namespace, type=dict)

    async def get(self, name: str) -> Json:
        return await self.client.get(PODS, name, namespace=self.namespace, type=dict)

    async def patch(self, name: str, *operations: Operation, dry_run: bool = False) -> Json:
        return await self.client.patch(
            PODS, name, JsonPatch(operations), namespace=self.namespace, type=dict, dry_run=dry_run
        )

    async def refused(self, name: str, *operations: Operation) -> str:
        """The API server's words for refusing the patch as invalid."""
        with pytest.raises(Invalid) as refusal:
            await self.patch(name, *operations)
        assert refusal.value.status == 422
        return str(refusal.value)


@pytest.fixture
def pods(client: Client, namespace: str) -> Pods:
    return Pods(client, namespace)


GATES = "/spec/schedulingGates"
EXPRESSIONS = f"{TERMS}/0/matchExpressions"


@pytest.mark.req("PL-005")
async def test_after_creation_gates_can_only_be_removed(pods: Pods) -> None:
    await pods.create(pod("gated", gates=["example.com/a", "example.com/b"]))
    await pods.create(pod("free"))
    assert "schedulingGates" in await pods.refused("gated", add(f"{GATES}/-", {"name": "example.com/c"}))
    assert "schedulingGates" in await pods.refused("free", add(GATES, [{"name": "example.com/c"}]))
    after = await pods.patch("gated", remove(f"{GATES}/0"))
    assert after["spec"]["schedulingGates"] == [{"name": "example.com/b"}]


@pytest.mark.req("PL-005")
async def test_on_a_gated_pod_an_absent_required_may_be_set(pods: Pods) -> None:
    await pods.create(pod("p", gates=["example.com/a"]))
    selector = {"nodeSelectorTerms": [ZONE, {"matchExpressions": [ARCH]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}
    after = await pods.patch("p", add("/spec/affinity", affinity))
    assert after["spec"]["affinity"] == affinity


@pytest.mark.req("PL-005")
@pytest.mark.parametrize(
    "operation",
    [
        add(f"{TERMS}/-", {"matchExpressions": [ARCH]}),
        remove(f"{TERMS}/1"),
        add(f"{EXPRESSIONS}/0", ARCH),
        remove(f"{EXPRESSIONS}/0"),
        replace(f"{EXPRESSIONS}/0/values", ["b"]),
        remove(REQUIRED),
    ],
    ids=["another term", "a term less", "at the front", "an expression less", "other values", "no required"],
)
async def test_on_a_gated_pod_terms_stay_and_only_grow_at_their_end(pods: Pods, operation: Operation) -> None:
    await pods.create(pod("p", terms=[ZONE, ZONE], gates=["example.com/a"]))
    assert "nodeSelectorTerms" in await pods.refused("p", operation) or operation.path == REQUIRED


@pytest.mark.req("PL-005")
async def test_on_a_gated_pod_an_expression_may_be_added_at_the_end(pods: Pods) -> None:
    await pods.create(pod("p", terms=[ZONE], gates=["example.com/a"]))
    after = await pods.patch("p", add(f"{EXPRESSIONS}/-", ARCH))
    affinity = after["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert affinity["nodeSelectorTerms"][0]["matchExpressions"] == [expression("zone", "a"), ARCH]


@pytest.mark.req("PL-005", "PL-900")
async def test_on_a_gated_pod_an_empty_term_must_stay_empty(pods: Pods) -> None:
    """Hence an empty term is left alone."""
    await pods.create(pod("p", terms=[{}, ZONE], gates=["example.com/a"]))
    assert "nodeSelectorTerms" in await pods.refused("p", add(EXPRESSIONS, [ARCH]))
    await pods.patch("p", add(f"{TERMS}/1/matchExpressions/-", ARCH))


@pytest.mark.req("PL-005")
async def test_on_a_gated_pod_preferred_is_free(pods: Pods) -> None:
    await pods.create(pod("p", terms=[ZONE], gates=["example.com/a"]))
    term = {"weight": 5, "preference": ZONE}
    await pods.patch("p", add(PREFERRED, [term, term]))
    await pods.patch("p", replace(f"{PREFERRED}/0/weight", 7), add(f"{PREFERRED}/0", term))
    after = await pods.patch("p", remove(PREFERRED))
    assert "preferredDuringSchedulingIgnoredDuringExecution" not in after["spec"]["affinity"]["nodeAffinity"]


@pytest.mark.req("PL-005")
async def test_on_an_ungated_pod_node_affinity_is_immutable(pods: Pods) -> None:
    await pods.create(pod("p", terms=[ZONE]))
    assert await pods.refused("p", add(f"{EXPRESSIONS}/-", ARCH))
    assert await pods.refused("p", add(PREFERRED, [{"weight": 1, "preference": ZONE}]))


@pytest.mark.req("PL-005")
async def test_an_empty_term_matches_no_node(pods: Pods) -> None:
    """The same pod without it is bound."""
    await pods.create(pod("empty", terms=[{}]))
    await pods.create(pod("free"))
    async with asyncio.timeout(BOUND_SECONDS):
        while not (await pods.get("free"))["spec"].get("nodeName"):
            await asyncio.sleep(0.05)
        while not (conditions := (await pods.get("empty"))["status"].get("conditions")):
            await asyncio.sleep(0.05)
    assert [(each["type"], each["reason"]) for each in conditions] == [("PodScheduled", "Unschedulable")]
    assert not (await pods.get("empty"))["spec"].get("nodeName")


@pytest.mark.req("PL-005", "PL-304")
async def test_a_failing_test_in_a_json_patch_is_http_422(pods: Pods) -> None:
    """And nothing of the patch is written."""
    created = await pods.create(pod("p", gates=["example.com/a"]))
    label = add("/metadata/labels", {"x": "y"})
    await pods.refused("p", test("/metadata/uid", "another"), label)
    await pods.refused("p", test("/metadata/resourceVersion", "1"), label)
    assert "labels" not in (await pods.get("p"))["metadata"]
    metadata = created["metadata"]
    same = (test("/metadata/uid", metadata["uid"]), test("/metadata/resourceVersion", metadata["resourceVersion"]))
    assert (await pods.patch("p", *same, label))["metadata"]["labels"] == {"x": "y"}


class Recorder:
    """Two mutating webhooks that both change every pod each time they are asked."""

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.metadata: list[Json] = []

    async def handle(self, request: web.Request) -> web.Response:
        review = await request.json()
        name = request.match_info["name"]
        self.calls[name] += 1
        document = review["request"]["object"]
        self.metadata.append(document["metadata"])
        key = f"/metadata/annotations/{name}"
        patch = [{"op": "add", "path": key, "value": str(self.calls[name])}]
        if "annotations" not in document["metadata"]:
            patch.insert(0, {"op": "add", "path": "/metadata/annotations", "value": {}})
        body = msgspec.json.encode(patch)
        response = {"uid": review["request"]["uid"], "allowed": True, "patchType": "JSONPatch"}
        encoded = msgspec.to_builtins(body)
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": "AdmissionReview", "response": response | {"patch": encoded}}
        )


@asynccontextmanager
async def two_webhooks(client: Client, namespace: str) -> AsyncIterator[Recorder]:
    recorder = Recorder()
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    application = web.Application()
    application.router.add_post("/{name}", recorder.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    port = runner.addresses[0][1]
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    bundle = msgspec.to_builtins(authority.cert_pem.bytes())
    webhooks = [
        {
            "name": f"{name}.facts.example.com",
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{name}", "caBundle": bundle},
            "rules": [rule],
            "failurePolicy": "Fail",
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "reinvocationPolicy": "IfNeeded",
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        }
        for name in ("first", "second")
    ]
    configuration = {
        "apiVersion": MUTATING_WEBHOOKS.api_version,
        "kind": MUTATING_WEBHOOKS.kind,
        "metadata": {"name": f"facts-{namespace}"},
        "webhooks": webhooks,
    }
    await client.create(MUTATING_WEBHOOKS, configuration)
    try:
        yield recorder
    finally:
        await client.delete(MUTATING_WEBHOOKS, f"facts-{namespace}")
        await runner.cleanup()


@pytest.mark.req("PL-005", "PL-114")
async def test_a_pod_from_generate_name_has_no_name_at_admission_and_a_webhook_is_asked_twice_at_most(
    client: Client, namespace: str
) -> None:
    """Neither name nor uid; reinvocation happens, and once only although both keep changing the pod."""
    document = pod("unused")
    document["metadata"] = {"generateName": "web-"}
    async with two_webhooks(client, namespace) as recorder:
        async with asyncio.timeout(BOUND_SECONDS):
            while not recorder.calls:  # the API server takes a moment to see the configuration
                await client.create(PODS, document, namespace=namespace, dry_run=True)
                await asyncio.sleep(0.05)
        recorder.calls.clear()
        recorder.metadata.clear()
        created = await client.create(PODS, document, namespace=namespace, type=dict)
    assert created["metadata"]["name"].startswith("web-")
    assert recorder.metadata
    for metadata in recorder.metadata:
        assert not metadata.get("name")
        assert not metadata.get("uid")
        assert metadata["generateName"] == "web-"
    assert 2 in recorder.calls.values()
    assert max(recorder.calls.values()) == 2


def answer(*architectures: str) -> dict[str, Inspection]:
    entries = tuple(Entry(Platform("linux", name), "sha256:" + "a" * 64) for name in architectures)
    return {
        IMAGE: Inspection(parse(IMAGE), Status.RESOLVED, kind="index", digest="sha256:" + "b" * 64, entries=entries)
    }


@pytest.mark.req("PL-221", "PL-303", "PL-304")
@pytest.mark.usefixtures("sole_controller")
@pytest.mark.parametrize(
    ("terms", "known", "progress"),
    [
        (None, answer("amd64", "arm64"), LookupProgress.WAITING),
        ([ZONE, {}, {"matchExpressions": [ARCH]}], answer("arm64"), LookupProgress.WAITING),
        ([{"matchFields": [expression("metadata.name", "n1")]}], answer("arm64"), LookupProgress.WAITING),
        ([ZONE, {"matchExpressions": [ARCH, expression("zone", "b")]}], answer(), LookupProgress.WAITING),
        (None, {}, LookupProgress.ENDED),
    ],
    ids=["no terms", "several terms", "fields only", "no supported architecture", "released"],
)
async def test_the_controllers_patch_is_taken_and_lifts_our_gate_alone(
    pods: Pods, terms: list[Json] | None, known: dict[str, Inspection], progress: LookupProgress
) -> None:
    """Also with preferences, in one write; the same patch again is a failed test."""
    document = pod("p", terms=terms, gates=["example.com/first", names.GATE, "example.com/last"])
    stored = await pods.create(document)
    sources = (ScoringSource("ClusterPodPlacementConfig", (("arm64", 50),)),)
    facts = PodFacts(
        pod=msgspec.convert(stored, Pod),
        namespace=pods.namespace,
        settings=Settings(),
        sources=sources,
        stored=True,
    )
    case = examine(facts)
    decision = decide(case, known, progress)
    operations = controller_patch(case, decision)
    after = await pods.patch("p", *operations)
    assert after["spec"]["schedulingGates"] == [{"name": "example.com/first"}, {"name": "example.com/last"}]
    assert after["metadata"]["labels"][names.SCHEDULING_GATE_LABEL] == "removed"
    preferred = after["spec"]["affinity"]["nodeAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
    assert [each["weight"] for each in preferred] == [50]
    required = after["spec"]["affinity"]["nodeAffinity"].get("requiredDuringSchedulingIgnoredDuringExecution")
    found = [
        index
        for index, term in enumerate(required["nodeSelectorTerms"] if required else ())
        if len(term.get("matchExpressions") or ()) > len((terms or [{}])[index].get("matchExpressions") or ())
    ]
    assert tuple(found) == decision.terms
    await pods.refused("p", *operations)
