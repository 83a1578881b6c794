"""What a pass starts from: platform, definition, roll-outs, kubelet configurations, what is read now and then."""

from typing import Any

import msgspec
import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.controller import NoRequeue
from polyarch.kube.errors import Forbidden, Unavailable
from polyarch.kube.resources import CRDS, NODES, Resource
from polyarch.kube.store import ObjectChange
from polyarch.numa import names
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.api.topology_crd import topology_crd
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, Unstructured
from polyarch.operator.components.numa_cluster import ExporterPod, NodePoller, NumaInformers, Platforms, TopologyPoller
from polyarch.operator.components.numa_exporter_reconciler import (
    KUBELETS_KEY,
    KubeletConfigReconciler,
    RolloutProgress,
    TopologyCRD,
)
from polyarch.operator.components.numa_facts import CLUSTER_VERSIONS, INFRASTRUCTURES, POOLS
from polyarch.operator.components.numa_node_groups import HOSTED_KEY
from polyarch.operator.components.numa_scheduler_plan import NodeCounts
from polyarch.operator.settings import OperatorSettings
from polyarch.tolerations import Toleration

Json = dict[str, Any]


def named(name: str, **status: Any) -> Json:
    return {"metadata": {"name": name}, "status": status}


# The platform ---------------------------------------------------------------------------------------------------------


async def platform(api: Any, *, openshift: bool, given: Any = "auto") -> str:
    return await Platforms(api, OperatorSettings(platform=given)).find(openshift=openshift)


@pytest.mark.req("NO-030")
async def test_the_platform_is_what_the_cluster_shows() -> None:
    api = FakeApi()
    assert await platform(api, openshift=False) == "kubernetes"
    assert await platform(api, openshift=True) == "kubernetes", "others serve the group, too"
    api.put(CLUSTER_VERSIONS, named("version"))
    assert await platform(api, openshift=True) == "openshift"
    api.put(INFRASTRUCTURES, named("cluster", controlPlaneTopology="External"))
    assert await platform(api, openshift=True) == "hypershift"
    assert await platform(api, openshift=True, given="kubernetes") == "kubernetes"


@pytest.mark.req("NO-030")
async def test_an_api_server_that_cannot_tell_is_asked_again_and_nothing_wrong_is_remembered() -> None:
    api = FakeApi()
    client: Any = api
    platforms = Platforms(client, OperatorSettings())

    async def away(*_: object) -> None:
        raise Unavailable(503)

    api.hook = away
    with pytest.raises(Unavailable):
        await platforms.find(openshift=True)
    api.hook = None
    assert await platforms.find(openshift=True) == "kubernetes"
    api.put(CLUSTER_VERSIONS, named("version"))
    assert await platforms.find(openshift=True) == "openshift"
    asked = len(api.requests)
    assert await platforms.find(openshift=True) == "openshift"
    assert len(api.requests) == asked


# The definition -------------------------------------------------------------------------------------------------------


def keeper(api: FakeApi) -> TopologyCRD:
    client: Any = api
    cache: Any = api.informer(CRDS, PartialObjectMetadata)
    return TopologyCRD(client, cache)


@pytest.mark.req("NO-044")
async def test_made_where_it_is_missing_and_then_not_even_read() -> None:
    api = FakeApi()
    kept = keeper(api)
    assert await kept.sync(left_alone=True) == ""
    assert api.requests == []
    assert await kept.sync(left_alone=False) == ""
    made = api.read(CRDS, str(TOPOLOGIES))
    assert "ownerReferences" not in made["metadata"]
    assert made["metadata"]["labels"]["app.kubernetes.io/part-of"] == "polyarch"
    asked = len(api.requests)
    assert await kept.sync(left_alone=False) == ""
    assert len(api.requests) == asked


@pytest.mark.req("NO-044")
async def test_somebody_else_s_is_completed_without_becoming_ours() -> None:
    api = FakeApi()
    theirs = topology_crd()
    theirs["spec"]["versions"] = [each for each in theirs["spec"]["versions"] if each["name"] == "v1alpha2"]
    api.put(CRDS, theirs)
    assert await keeper(api).sync(left_alone=False) == ""
    found = api.read(CRDS, str(TOPOLOGIES))
    assert len(found["spec"]["versions"]) == 2
    assert "app.kubernetes.io/part-of" not in found["metadata"].get("labels", {})


@pytest.mark.req("NO-044")
async def test_one_that_we_made_stays_ours_when_it_is_completed() -> None:
    """By its label an uninstall finds it."""
    api = FakeApi()
    await keeper(api).sync(left_alone=False)
    older = api.read(CRDS, str(TOPOLOGIES))
    older["spec"]["versions"] = [each for each in older["spec"]["versions"] if each["name"] == "v1alpha2"]
    api.put(CRDS, older)
    assert await keeper(api).sync(left_alone=False) == ""
    found = api.read(CRDS, str(TOPOLOGIES))
    assert len(found["spec"]["versions"]) == 2
    assert found["metadata"]["labels"]["app.kubernetes.io/part-of"] == "polyarch"


@pytest.mark.req("NO-046")
async def test_why_it_failed_names_object_and_cause() -> None:
    api = FakeApi()

    async def refused(verb: str, *_: object) -> None:
        if verb == "apply":
            raise Forbidden(403, verb="patch", resource="customresourcedefinitions", name=str(TOPOLOGIES))

    api.hook = refused
    problem = await keeper(api).sync(left_alone=False)
    assert str(TOPOLOGIES) in problem
    assert "patch customresourcedefinitions" in problem


# Roll-outs ------------------------------------------------------------------------------------------------------------


def daemon_set(ready: int, *, generation: int = 1) -> Json:
    numbers = {"desiredNumberScheduled": 3, "updatedNumberScheduled": 3, "numberReady": ready}
    return {"metadata": {"generation": generation}, "status": {"observedGeneration": generation, **numbers}}


WAITS = {"ready": False, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
FETCHED = {"type": "PodresourcesFetched", "status": "True", "reason": "Scanned"}
REFUSED = {"type": "NodeTopologyUpdated", "status": "False", "reason": "UpdateFailed"}


@pytest.mark.req("NO-093")
@pytest.mark.parametrize(
    ("status", "why"),
    [
        ({"containerStatuses": [{"ready": True}], "conditions": [FETCHED, {**REFUSED, "status": "True"}]}, ""),
        ({"containerStatuses": [{"ready": True}], "conditions": [FETCHED, REFUSED]}, "UpdateFailed"),
        ({"containerStatuses": [{"ready": True}], "conditions": [FETCHED]}, "NodeTopologyUpdated is not told"),
        ({"containerStatuses": [{"ready": True}]}, "PodresourcesFetched is not told"),
        ({"containerStatuses": [WAITS]}, "ImagePullBackOff"),
        ({"phase": "Pending"}, "Pending"),
    ],
    ids=["ready", "cannot publish", "has not published", "may not write its status", "no image", "no node"],
)
def test_why_an_exporter_is_not_ready(status: Json, why: str) -> None:
    """Its containers may all be ready: a Pod with readiness gates is not, until both are open."""
    assert msgspec.convert({"status": status}, ExporterPod).waits_for == why


@pytest.mark.req("NO-093")
def test_time_without_progress_begins_again_with_every_step() -> None:
    clock = ManualClock()
    stalling = RolloutProgress(clock)
    assert stalling.look({"a": daemon_set(0)}) == {"a": 0.0}
    clock.advance(500)
    assert stalling.look({"a": daemon_set(1)}) == {"a": 0.0}
    clock.advance(599)
    assert not stalling.is_long(stalling.look({"a": daemon_set(1)}))
    clock.advance(1)
    assert stalling.is_long(stalling.look({"a": daemon_set(1)}))
    assert not stalling.is_long(stalling.look({"a": daemon_set(3)}))
    clock.advance(900)
    assert not stalling.is_long(stalling.look({"a": daemon_set(3)})), "it is done"


# Kubelet configurations -----------------------------------------------------------------------------------------------


class Kubelets:
    """What is watched, as far as the controller asks."""

    has_synced = True

    def __init__(self) -> None:
        self.kubelet_configs: tuple[Json, ...] = ()
        self.mirrored: tuple[Unstructured, ...] = ()


def hosted(name: str, content: str | None) -> Unstructured:
    metadata = {"name": name, "namespace": "openshift-config-managed", "labels": {names.NODE_POOL_LABEL: name}}
    return Unstructured({"metadata": metadata, "data": {HOSTED_KEY: content} if content is not None else {}})


def decode(place: str, content: str) -> Json:
    if content == "broken":
        raise ValueError(f"{place}: broken")
    found: Json = msgspec.json.decode(content)
    return found


@pytest.mark.req("NO-111")
async def test_a_change_wakes_the_exporters_and_a_deletion_is_one() -> None:
    watched, woken = Kubelets(), []
    caches: Any = watched
    controller = KubeletConfigReconciler(caches, changed=lambda: woken.append(controller.documents), decode=decode)
    assert controller.expect("kubernetes")
    assert await controller.reconcile(KUBELETS_KEY) == NoRequeue()
    assert woken == []
    assert not controller.expect("openshift"), "not looked at yet"
    watched.kubelet_configs = ({"metadata": {"name": "a"}},)
    for _ in range(2):
        await controller.reconcile(KUBELETS_KEY)
    assert controller.expect("openshift")
    watched.kubelet_configs = ()
    await controller.reconcile(KUBELETS_KEY)
    assert woken == [({"metadata": {"name": "a"}},), ()]


@pytest.mark.req("NO-110", "NO-112")
async def test_configurations_of_hypershift_are_read_from_config_maps() -> None:
    watched = Kubelets()
    caches: Any = watched
    controller = KubeletConfigReconciler(caches, changed=lambda: None, decode=decode)
    controller.expect("hypershift")
    watched.mirrored = (
        hosted("pool", '{"spec": {"kubeletConfig": {"topologyManagerPolicy": "restricted"}}}'),
        hosted("empty", None),
        hosted("wrong", "broken"),
    )
    await controller.reconcile(KUBELETS_KEY)
    (found,) = controller.documents
    assert found["metadata"]["labels"] == {names.NODE_POOL_LABEL: "pool"}
    assert found["spec"]["kubeletConfig"] == {"topologyManagerPolicy": "restricted"}


# What is watched ------------------------------------------------------------------------------------------------------


class Informer:
    """Collects its handlers; complete from the start."""

    def __init__(self) -> None:
        self.handlers: list[Any] = []
        self.has_synced = True

    def add_handler(self, handler: Any) -> None:
        self.handlers.append(handler)

    def remove_handler(self, handler: Any) -> None:
        self.handlers.remove(handler)


class Informers:
    def __init__(self) -> None:
        self.made: dict[tuple[Resource, Any], Informer] = {}

    def informer(self, resource: Resource, type: Any, /, *, required: bool = True, **options: Any) -> Informer:
        assert not required, "whoever has no use for NUMA is not kept from being ready"
        return self.made.setdefault((resource, type), Informer())

    def release(self, informer: Informer) -> None:
        self.made = {what: each for what, each in self.made.items() if each is not informer}


@pytest.mark.req("NO-045")
def test_of_nodes_only_labels_count_and_only_metadata_is_asked_for() -> None:
    informers, woken = Informers(), []
    shares: Any = informers
    watched = NumaInformers(shares, OperatorSettings(), changed=lambda: woken.append(1), kubelets_changed=lambda: None)
    (handle,) = informers.made[NODES, PartialObjectMetadata].handlers

    def node(version: str, **labels: str) -> PartialObjectMetadata:
        return PartialObjectMetadata(ObjectMeta(name="a", resource_version=version, labels=labels))

    for old, new in (
        (None, node("1", role="worker")),
        (node("1", role="worker"), node("2", role="worker")),
        (node("2", role="worker"), node("3", role="other")),
        (node("3", role="other"), None),
    ):
        handle(ObjectChange("apply" if new else "delete", ObjectKey("", "a"), old, new, False))
    assert (len(woken), watched.node_arrivals) == (3, 3), "a heartbeat wakes nobody"


@pytest.mark.req("NO-045")
def test_what_only_openshift_has_is_watched_there_alone() -> None:
    informers = Informers()
    shares: Any = informers
    watched = NumaInformers(shares, OperatorSettings(), changed=lambda: None, kubelets_changed=lambda: None)
    watched.expect("openshift")
    assert (POOLS, Unstructured) in informers.made
    watched.expect("kubernetes")
    assert not [kind for kind, _ in informers.made if "openshift" in kind.group and "nodetopology" not in kind.group]


# What is read now and then --------------------------------------------------------------------------------------------


@pytest.mark.req("NO-082")
async def test_nodes_are_counted_page_by_page_when_some_have_come_or_gone() -> None:
    api, clock = FakeApi(), ManualClock()
    client: Any = api
    for number in range(250):
        api.put(NODES, {"metadata": {"name": f"n{number}"}, "status": {"nodeInfo": {"kubeletVersion": "v1.33.1"}}})
    census = NodePoller(client, clock)
    assert await census.look(1) == NodeCounts(workers=250, oldest_kubelet=(1, 33))
    assert len(api.requests) == 3
    await census.look(1)
    assert len(api.requests) == 3
    api.objects.clear()
    assert await census.look(2) == NodeCounts()


@pytest.mark.req("NO-082", "TN-081")
async def test_nodes_are_counted_anew_when_pods_of_ours_tolerate_something_else() -> None:
    """As when nodes are tainted by architecture from now on."""
    api, clock = FakeApi(), ManualClock()
    client: Any = api
    taints = [{"key": "arch", "value": "arm64", "effect": "NoSchedule"}]
    api.put(NODES, {"metadata": {"name": "n"}, "spec": {"taints": taints}})
    census = NodePoller(client, clock)
    assert (await census.look(1)).workers == 0
    assert (await census.look(1, [Toleration(key="arch", operator="Exists")])).workers == 1


@pytest.mark.req("NO-091")
async def test_topologies_are_looked_at_often_only_while_some_are_expected() -> None:
    api, clock = FakeApi(), ManualClock()
    client: Any = api
    census = TopologyPoller(client, clock)
    assert census.is_due(expecting=False)
    attribute = {"name": names.CPU_MANAGER_POLICY, "value": "none"}
    api.put(TOPOLOGIES, {"metadata": {"name": "a"}, "zones": [], "attributes": [attribute]})
    found = await census.look()
    assert (found.labelled, len(found.findings["a"])) == ((), 1)
    clock.advance(30)
    assert census.is_due(expecting=True)
    assert not census.is_due(expecting=False)
    clock.advance(570)
    assert census.is_due(expecting=False)
