"""Gated pods in a real cluster: one PATCH, shared attempts, and what the policy says of images that cannot be had."""

import asyncio
import json
import time
from collections.abc import AsyncIterator

import pytest
from own_roles import USERS
from placement_cluster import PlacementCluster, architectures, decision, is_gated, labels, pod, until

from polyarch.images import node_templates
from polyarch.kube.errors import ApiError, Invalid
from polyarch.kube.patches import JsonPatch, MergePatch, add, test
from polyarch.kube.resources import PODS, SECRETS
from polyarch.operator.components import placement_objects
from polyarch.placement import names
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.operator import ACCOUNTS, GLOBAL_PULL_SECRET
from polyarch.sandbox.state import NAMESPACE

pytestmark = pytest.mark.req("RG-084")


@pytest.fixture
async def cluster(placed_sandbox: Sandbox) -> AsyncIterator[PlacementCluster]:
    async with placed_sandbox.client() as client:
        cluster = PlacementCluster(placed_sandbox, client)
        await cluster.configure()
        yield cluster


FOREIGN = {"name": "foreign.example/wait"}


# -- one PATCH ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-105", "PL-303", "PL-800", "PL-900")
async def test_a_gated_pod_costs_one_patch_and_one_event(cluster):
    """Nothing is listed for it."""
    await cluster.seed({"quay.io/gated/web:1": ["linux/arm64"]})
    async with cluster.namespace("gated") as namespace:
        created = await cluster.create(pod("quay.io/gated/web:1"), namespace)
        assert is_gated(created)
        assert labels(created)[names.SCHEDULING_GATE_LABEL] == "gated"
        assert architectures(created) is None
        placed = await cluster.released(namespace, "app")
        assert architectures(placed) == ["arm64"]
        assert decision(placed)["by"] == "controller"
        assert labels(placed)[names.SINGLE_ARCH_LABEL] == ""
        requests = await cluster.requests(namespace)
        assert [request for request in requests if " pods" in request] == ["patch pods app"]
        assert [request.split()[:2] for request in requests if " events" in request] == [["create", "events"]]
        assert len(requests) == 2
        assert [event["reason"] for event in await cluster.events(namespace, "app")] == ["ArchAwarePredicateSet"]


@pytest.mark.req("PL-303", "PL-900")
async def test_the_field_manager_is_polyarch_and_fields_that_we_do_not_know_survive(cluster):
    await cluster.seed({"quay.io/gated/fields:1": ["linux/amd64"]})
    aliases = [{"ip": "192.0.2.1", "hostnames": ["a.example"]}]
    async with cluster.namespace("gated") as namespace:
        created = await cluster.create(
            pod("quay.io/gated/fields:1", hostAliases=aliases, schedulingGates=[{"name": "foreign.example/wait"}]),
            namespace,
        )
        placed = await cluster.released(namespace, "app")
        assert placed["spec"]["schedulingGates"] == [{"name": "foreign.example/wait"}]
        for member in ("hostAliases", "containers", "volumes", "tolerations"):
            assert placed["spec"][member] == created["spec"][member]
        managers = {entry["manager"] for entry in placed["metadata"]["managedFields"]}
        assert "polyarch" in managers


@pytest.mark.req("PL-710", "PL-900")
async def test_pods_of_one_name_prefix_get_their_events(cluster):
    """Also for pods from generateName, and with nobody polling for them."""
    await cluster.seed({"quay.io/gated/late:1": {"platforms": ["linux/amd64"], "delay": 3000}})
    async with cluster.namespace("full") as namespace:
        created = await cluster.create(pod("quay.io/gated/late:1", name=""), namespace)
        name = created["metadata"]["name"]
        assert name.startswith("app-")
        await cluster.released(namespace, name, seconds=40)

        async def told() -> bool:
            return len(await cluster.events(namespace, name)) >= 3

        await until(told)
        reasons = [event["reason"] for event in await cluster.events(namespace, name)]
        assert {"ArchAwareSchedGateAdded", "ArchAwarePredicateSet", "ArchAwareSchedGateRemovalSuccess"} <= set(reasons)
        assert [request for request in await cluster.requests(namespace) if request.startswith(("get", "list"))] == []


@pytest.mark.req("PL-403", "PL-900")
async def test_many_pods_of_a_cold_image_ask_the_registry_once(cluster, placed_sandbox):
    await cluster.seed({"quay.io/gated/burst:1": {"platforms": ["linux/amd64"], "delay": 1000}})
    async with cluster.namespace("gated") as namespace:
        async with asyncio.TaskGroup() as tasks:
            for number in range(30):
                document = pod("quay.io/gated/burst:1", name=f"app-{number}", schedulingGates=[FOREIGN])
                tasks.create_task(cluster.create(document, namespace))
        for number in range(30):
            assert architectures(await cluster.released(namespace, f"app-{number}")) == ["amd64"]
        # The foreign gate keeps the nodes from pulling, so all of these are the controller's.
        log = [json.loads(line) for line in placed_sandbox.registry_log.read_text().splitlines()]
        asked = [each["path"] for each in log if each["method"] == "GET" and "gated/burst/manifests" in each["path"]]
        assert len(asked) <= 2, "the index once, and its only child once, to see whether it is a bundle"


@pytest.mark.req("PL-310")
async def test_a_pod_that_opts_out_while_it_is_gated_is_released_with_a_warning(cluster):
    async with cluster.namespace("hold") as namespace:
        await cluster.create(pod("quay.io/gated/never:1"), namespace)
        change = MergePatch({"metadata": {"annotations": {names.SKIP_ANNOTATION: "true"}}})
        await cluster.client.patch(PODS, "app", change, namespace=namespace)
        released = await cluster.released(namespace, "app")
        assert labels(released)[names.SCHEDULING_GATE_LABEL] == "removed"
        assert labels(released)[names.NODE_AFFINITY_LABEL] == "not-set"

        async def told() -> bool:
            return "ArchAwareGatedPodIgnored" in {each["reason"] for each in await cluster.events(namespace, "app")}

        await until(told)


@pytest.mark.req("PL-300")
async def test_a_gate_without_our_label_is_found_within_a_minute(cluster):
    """The label is stripped by somebody; the next look finds the gate."""
    async with cluster.namespace("hold") as namespace:
        await cluster.create(pod("quay.io/gated/stray:1"), namespace)
        strip = MergePatch({"metadata": {"labels": {names.SCHEDULING_GATE_LABEL: None}}})
        await cluster.client.patch(PODS, "app", strip, namespace=namespace)
        await cluster.seed({"quay.io/gated/stray:1": ["linux/s390x"]})
        placed = await cluster.released(namespace, "app", seconds=90)
        assert architectures(placed) == ["s390x"]


@pytest.mark.req("PL-216", "PL-245", "PL-900")
async def test_images_without_a_common_platform_are_told(cluster):
    await cluster.seed({"quay.io/gated/one:1": ["linux/amd64"], "quay.io/gated/two:1": ["linux/arm64"]})
    async with cluster.namespace() as namespace:
        created = await cluster.create(pod("quay.io/gated/one:1", "quay.io/gated/two:1"), namespace)
        assert is_gated(created)
        placed = await cluster.released(namespace, "app")
        assert names.NO_SUPPORTED_ARCH_LABEL in labels(placed)

        async def told() -> bool:
            return [each["reason"] for each in await cluster.events(namespace, "app")] == [
                "NoSupportedArchitecturesFound"
            ]

        await until(told)


@pytest.mark.req("PL-218")
async def test_a_pod_for_which_there_is_no_node_is_told(cluster):
    """With nodeAware report the constraint stays what the images say, and an event says that no node has it."""
    await cluster.seed({"quay.io/gated/riscv:1": ["linux/riscv64"]})
    async with cluster.namespace() as namespace:
        assert is_gated(await cluster.create(pod("quay.io/gated/riscv:1"), namespace))
        assert architectures(await cluster.released(namespace, "app")) == ["riscv64"]

        async def told() -> bool:
            return "PolyarchNoMatchingNode" in {each["reason"] for each in await cluster.events(namespace, "app")}

        await until(told)


@pytest.mark.req("PL-304", "PL-305")
async def test_what_a_refusal_of_the_api_server_means(cluster):
    """A failed test and a refused change are both HTTP 422, and must not be confused."""
    async with cluster.namespace("hold") as namespace:
        created = await cluster.create(pod("quay.io/gated/never:2"), namespace)
        metadata = created["metadata"]
        moved_on = [
            (test("/metadata/resourceVersion", "1"), add("/metadata/labels/a", "b")),
            (test("/metadata/uid", "other"), add("/metadata/labels/a", "b")),
            (test("/spec/schedulingGates/0/name", "other"), add("/metadata/labels/a", "b")),
        ]
        refused = [
            (test("/metadata/uid", metadata["uid"]), add("/spec/hostNetwork", True)),
            (test("/metadata/uid", metadata["uid"]), add("/metadata/labels/a", "not a label value!")),
        ]
        for patches, expected in ((moved_on, True), (refused, False)):
            for operations in patches:
                with pytest.raises(Invalid) as refusal:
                    await cluster.client.patch(PODS, "app", JsonPatch(operations), namespace=namespace)
                assert refusal.value.is_failed_test is expected, str(refusal.value)


# -- images that cannot be had -----------------------------------------------------------------------------------------


@pytest.mark.req("PL-330", "PL-332", "PL-335", "PL-800")
async def test_an_image_that_does_not_exist_is_released_after_half_a_minute(cluster):
    """30–40 s, at most two PATCHes and three events."""
    async with cluster.namespace() as namespace:
        started = time.monotonic()
        await cluster.create(pod("quay.io/gated/missing:1"), namespace)
        failing = await cluster.labelled(namespace, "app", names.IMAGE_INSPECT_ERROR_COUNT_LABEL, "1")
        assert is_gated(failing)
        assert time.monotonic() - started < 15
        released = await cluster.released(namespace, "app", seconds=60)
        assert 28 <= time.monotonic() - started <= 45
        assert architectures(released) is None
        assert labels(released)[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"
        assert "absent" in released["metadata"]["annotations"][names.IMAGE_INSPECT_ERROR_ANNOTATION]
        requests = await cluster.requests(namespace)
        assert requests.count("patch pods app") == 2
        assert len([request for request in requests if " events" in request]) <= 3
        reasons = {event["reason"] for event in await cluster.events(namespace, "app")}
        assert "ArchAwareInspectionError" in reasons


@pytest.mark.req("PL-230", "PL-334", "PL-900")
async def test_a_held_pod_is_placed_when_its_image_appears(cluster):
    """Held, told, and clean once the image is there."""
    async with cluster.namespace("hold") as namespace:
        await cluster.create(pod("quay.io/gated/held:1"), namespace)
        held = await cluster.labelled(namespace, "app", names.IMAGE_INSPECT_ERROR_COUNT_LABEL, "5", seconds=30)
        assert is_gated(held)
        await asyncio.sleep(3)
        assert is_gated(await cluster.get(namespace, "app"))
        assert "PolyarchPodHeld" in {event["reason"] for event in await cluster.events(namespace, "app")}
        await cluster.seed({"quay.io/gated/held:1": ["linux/ppc64le"]})
        await asyncio.sleep(3)
        await cluster.create(pod("quay.io/gated/held:1", name="second"), namespace)
        placed = await cluster.released(namespace, "app")
        assert architectures(placed) == ["ppc64le"]
        assert names.IMAGE_INSPECT_ERROR_LABEL not in labels(placed)
        assert names.IMAGE_INSPECT_ERROR_COUNT_LABEL not in labels(placed)
        assert names.IMAGE_INSPECT_ERROR_ANNOTATION not in placed["metadata"].get("annotations", {})


@pytest.mark.req("PL-230", "PL-232")
async def test_a_fallback_constrains_the_pod(cluster):
    async with cluster.namespace("fallback") as namespace:
        await cluster.create(pod("quay.io/gated/missing:2"), namespace)
        released = await cluster.released(namespace, "app", seconds=30)
        assert architectures(released) == ["ppc64le", "s390x"]
        assert labels(released)[names.FALLBACK_ARCH_LABEL] == "ppc64le.s390x"
        assert decision(released)["reason"] == "FallbackSet"


@pytest.mark.req("PL-230")
async def test_what_is_known_constrains_when_the_rest_cannot_be_had(cluster):
    await cluster.seed({"quay.io/gated/known:1": ["linux/arm64"]})
    async with cluster.namespace("release") as namespace:
        await cluster.create(pod("quay.io/gated/known:1", "quay.io/gated/missing:3"), namespace)
        released = await cluster.released(namespace, "app", seconds=30)
        assert architectures(released) == ["arm64"]
        assert decision(released)["reason"] == "PartiallyConstrained"


@pytest.mark.req("PL-750", "RG-015")
async def test_an_invalid_reference_is_final_at_once_and_quoted(cluster):
    async with cluster.namespace() as namespace:
        await cluster.create(pod("quay.io/Gated/Upper:1"), namespace)
        await cluster.released(namespace, "app")

        async def told() -> bool:
            return any("quay.io/Gated/Upper:1" in event["note"] for event in await cluster.events(namespace, "app"))

        await until(told)


# -- credentials -------------------------------------------------------------------------------------------------------


PRIVATE = {"platforms": ["linux/arm64"], "private": True, "users": {"alice": "wonderland"}}


@pytest.mark.req("PL-420", "PL-421", "PL-900")
@pytest.mark.parametrize(
    ("repository", "description", "entry"),
    [
        ("basic", {**PRIVATE, "scheme": "basic"}, {"username": "alice", "password": "wonderland"}),
        ("bearer", PRIVATE, {"username": "alice", "password": "wonderland"}),
        ("token", {**PRIVATE, "identityTokens": {"it-1": "alice"}}, {"username": "<token>", "identitytoken": "it-1"}),
    ],
    ids=["basic", "bearer", "identity token"],
)
async def test_private_images_are_read_with_the_pods_own_pull_secret(cluster, repository, description, entry):
    """One GET of the secret for all pods, no list, no watch."""
    image = f"registry.example.com/private/{repository}:1"
    await cluster.seed({image: description})
    async with cluster.namespace("gated") as namespace:
        host = f"{placed_host(cluster)}/registry.example.com/private"
        await cluster.pull_secret(namespace, "pull", host, **entry)
        for number in range(3):
            await cluster.create(pod(image, name=f"app-{number}", secrets=["pull"]), namespace)
        for number in range(3):
            assert architectures(await cluster.released(namespace, f"app-{number}")) == ["arm64"]
        requests = await cluster.requests(namespace)
        assert [request for request in requests if " secrets" in request] == ["get secrets pull"]


def placed_host(cluster: PlacementCluster) -> str:
    """The host that is asked: credentials are looked up for the place, not for the name."""
    return cluster.sandbox.registry.address


@pytest.mark.req("PL-852", "RG-111")
async def test_one_tenants_credentials_answer_no_other_tenant(cluster):
    """Known to one namespace, an image is not known to another."""
    image = "registry.example.com/private/tenant:1"
    await cluster.seed({image: PRIVATE})
    async with cluster.namespace("gated") as mine, cluster.namespace("hold") as theirs:
        host = f"{placed_host(cluster)}/registry.example.com/private"
        await cluster.pull_secret(mine, "pull", host, username="alice", password="wonderland")
        await cluster.create(pod(image, secrets=["pull"]), mine)
        await cluster.released(mine, "app")
        await cluster.create(pod(image), theirs)
        failing = await cluster.labelled(theirs, "app", names.IMAGE_INSPECT_ERROR_COUNT_LABEL, "1")
        assert architectures(failing) is None
        assert "auth" in failing["metadata"]["annotations"][names.IMAGE_INSPECT_ERROR_ANNOTATION]


@pytest.mark.req("PL-333")
async def test_a_secret_that_is_made_later_is_seen(cluster):
    image = "registry.example.com/private/later:1"
    await cluster.seed({image: PRIVATE})
    async with cluster.namespace() as namespace:
        await cluster.create(pod(image, secrets=["pull"]), namespace)
        await cluster.labelled(namespace, "app", names.IMAGE_INSPECT_ERROR_COUNT_LABEL, "1")
        warning = (await cluster.events(namespace, "app"))[-1]
        assert f"pull secret {namespace}/pull does not exist" in warning["note"]
        host = f"{placed_host(cluster)}/registry.example.com/private"
        await cluster.pull_secret(namespace, "pull", host, username="alice", password="wonderland")
        assert architectures(await cluster.released(namespace, "app", seconds=30)) == ["arm64"]


@pytest.mark.req("PL-330", "PL-336")
async def test_the_second_pod_of_a_denied_image_waits_for_one_answer_of_its_own_namespace_alone(cluster):
    """As of images that nodes pull by an identity of their own, for which polyarch has no credentials."""
    image = "registry.example.com/private/denied:1"
    await cluster.seed({image: PRIVATE})

    async def seconds(namespace, name):
        await cluster.create(pod(image, name=name), namespace)
        began = time.monotonic()
        assert architectures(await cluster.released(namespace, name, seconds=60)) is None
        return time.monotonic() - began

    async with cluster.namespace() as mine, cluster.namespace() as theirs:
        assert await seconds(mine, "first") >= 25
        assert await seconds(mine, "second") < 20
        assert await seconds(mine, "third") < 20
        assert await seconds(theirs, "first") >= 25, "nobody else has waited for it there"
        assert await seconds(theirs, "second") < 20


@pytest.mark.req("PL-423", "PL-900")
async def test_the_global_pull_secret_counts_while_it_exists(cluster):
    """Created, used by pods without secrets, deleted, gone."""
    images = [f"registry.example.com/global/app-{number}:1" for number in range(2)]
    await cluster.seed({image: {**PRIVATE, "users": {"cluster": "secret"}} for image in images})
    host = f"{placed_host(cluster)}/registry.example.com/global"
    async with cluster.namespace("hold") as namespace:
        await cluster.create(pod(images[0], name="first"), namespace)
        await cluster.labelled(namespace, "first", names.IMAGE_INSPECT_ERROR_COUNT_LABEL, "1")
        await cluster.pull_secret(NAMESPACE, GLOBAL_PULL_SECRET, host, username="cluster", password="secret")
        try:
            assert architectures(await cluster.released(namespace, "first")) == ["arm64"]
        finally:
            await cluster.client.delete(SECRETS, GLOBAL_PULL_SECRET, namespace=NAMESPACE)
        await asyncio.sleep(2)
        for image, name in ((images[1], "second"), (images[0], "again")):
            await cluster.create(pod(image, name=name), namespace)
            failing = await cluster.labelled(namespace, name, names.IMAGE_INSPECT_ERROR_COUNT_LABEL, "1")
            assert is_gated(failing), "what the deleted secret proved counts no more"


# -- rights ------------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-550")
async def test_nothing_that_polyarch_asks_is_forbidden(cluster):
    """The roles run with the rights that the operator grants. When a policy needs one more, it is there in a
    moment; no request of theirs stays refused for want of one."""
    await cluster.seed({"quay.io/gated/rights:1": ["linux/amd64"]})
    async with cluster.namespace("gated") as namespace:
        await cluster.create(pod("quay.io/gated/rights:1"), namespace)
        await cluster.released(namespace, "app")
        await asyncio.sleep(1.5)
    last: dict[tuple[str, str, str], str] = {}
    for event in cluster.audit():
        user = event["user"].get("username", "")
        # Other tests try with the roles' tokens what the roles may not do; what the roles do says so in the agent.
        if user.startswith(ACCOUNTS) and event.get("userAgent", "").startswith("polyarch-placement-"):
            decided = (event.get("annotations") or {}).get("authorization.k8s.io/decision", "")
            last[user, event["verb"], event["requestURI"].partition("?")[0]] = decided
    assert len(last) > 10
    assert [request for request, decided in last.items() if decided == "forbid"] == []


@pytest.mark.req("PL-550")
async def test_no_right_is_granted_that_nobody_uses(cluster):
    """Each rule of each role is used by it; but for reviews of scrapers, which need a certificate to serve, and for
    templates of nodes, of which this API server has no kind."""
    await cluster.seed({"registry.example.com/rights/app:1": PRIVATE})
    async with cluster.namespace() as mine, cluster.namespace("gated") as theirs:
        for namespace in (mine, theirs):
            host = f"{placed_host(cluster)}/registry.example.com/rights"
            await cluster.pull_secret(namespace, "pull", host, username="alice", password="wonderland")
            await cluster.create(pod("registry.example.com/rights/app:1", secrets=["pull"]), namespace)
            await cluster.released(namespace, "app")
        await asyncio.sleep(1.5)
    used = {
        (event["user"].get("username", "").rpartition(":")[2], at.get("apiGroup", ""), at["resource"])
        for event in cluster.audit()
        if (at := event.get("objectRef")) is not None
    }
    parts = placement_objects.OptionalFeatures(
        namespace=NAMESPACE, asks_for_nodes=True, global_pull_secret=(NAMESPACE, GLOBAL_PULL_SECRET)
    )
    documents = placement_objects.rbac(parts)
    subjects = {
        (each["roleRef"]["kind"], each["roleRef"]["name"]): [subject["name"] for subject in each["subjects"]]
        for each in documents
        if "roleRef" in each
    }
    unused = {
        (account, group, resource)
        for document in documents
        if "rules" in document
        for account in subjects[document["kind"], document["metadata"]["name"]]
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        if (account, group, resource) not in used
    }
    excused = {"authentication.k8s.io", "authorization.k8s.io", *node_templates.RESOURCES}
    assert {each for each in unused if each[1] not in excused} == set()


@pytest.mark.req("PL-550", "PL-800")
async def test_pods_are_only_ever_patched(cluster):
    """Webhook and controller never PUT, DELETE or GET pods, and list all pods only from the cache."""
    await asyncio.sleep(1.5)
    verbs = {
        event["verb"]
        for event in cluster.audit()
        if event["user"].get("username", "") in USERS and (event.get("objectRef") or {}).get("resource") == "pods"
    }
    assert verbs <= {"patch", "list", "watch"}
    with pytest.raises(ApiError):
        await cluster.get("default", "no-such-pod")
