"""Where the commands about cells find nodes in a cluster: an extender's state, or objects."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace
from numa_files import machine, pod, topology, zone
from scripted_server import Answer, ScriptedServer, document, serving, status

from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.numa.cluster import HEADER, SeenCluster, read_cluster
from polyarch.kube.settings import User
from polyarch.numa.extender import state_document
from polyarch.numa.extender.state_document import LastFilterResult, NodeState, Options, ReservationDocument, State
from polyarch.numa.fit.facts import NodeFacts, ZoneFacts

STATE = State(
    options=Options(mode="exact", strategy="MostAllocated"),
    nodes=(
        NodeState(
            facts=NodeFacts(name="a", cells=(ZoneFacts(id=0, available={"cpu": 8000}, allocatable={"cpu": 8000}),)),
            explained=False,
            age_seconds=5.0,
        ),
    ),
    reservations=(
        ReservationDocument(namespace="shop", name="web", uid="u", node="a", state="held", cells={0: {"cpu": 2000}}),
    ),
)
EXTENDER = {"metadata": {"name": "s-1", "namespace": "polyarch-system"}, "status": {"phase": "Running"}}
PROXY = "/api/v1/namespaces/polyarch-system/pods/https:s-1:8448/proxy/numa/state"


class Cluster:
    """Answers by path."""

    def __init__(self, api: ScriptedServer) -> None:
        self.api = api
        self.schedulers: list[Any] = [EXTENDER]
        self.state: Answer = document(state_document.document(STATE))
        self.states: dict[str, Answer] = {}
        """Of other extenders than the first, by path."""
        self.objects: dict[str, Any] = {
            "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies": [
                topology("a", zone(0)),
                topology("b", zone(0)),
            ],
            "/api/v1/nodes": [machine("a", cordoned=True), machine("b")],
            "/api/v1/pods": [pod("web", node="b", cpu="2")],
        }
        api.otherwise = self.answer

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.path == PROXY:
            return await self.state(request)
        if request.path in self.states:
            return await self.states[request.path](request)
        if request.query.get("labelSelector") == "app=secondary-scheduler":
            return await document({"metadata": {}, "items": self.schedulers})(request)
        if request.path not in self.objects:
            return await status(404, "NotFound", request.path)(request)
        found = self.objects[request.path]
        return await (found if callable(found) else document({"metadata": {}, "items": found}))(request)

    async def read(self, *, sums: bool = True) -> SeenCluster:
        from polyarch.kube.client import Client

        async with Client(self.api.configuration(user=User(token="secret"))) as client:
            return await read_cluster("numa top", client, extender_namespace=None, sums=sums)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with serving() as api:
        yield Cluster(api)


@pytest.mark.req("NS-160")
async def test_a_running_extender_tells_what_it_has_reserved(cluster: Cluster) -> None:
    found = await cluster.read(sums=False)
    (node,) = found.snapshot.nodes
    assert found.snapshot.source == "live"
    assert node.free(node.facts.cells[0]) == {"cpu": 6000}
    assert (node.is_unexplained, node.age, [each.pod for each in node.held]) == (True, 5.0, ["shop/web"])
    assert found.options == STATE.options
    assert [each.path for each in cluster.api.requests] == ["/api/v1/pods", PROXY, "/api/v1/nodes"]


@pytest.mark.req("NS-160")
async def test_a_live_top_marks_cordoned_nodes_and_silent_exporters_and_reads_no_other_node(
    cluster: Cluster,
) -> None:
    """The extender needs neither, and its state has neither."""
    silent = replace(STATE.nodes[0], facts=replace(STATE.nodes[0].facts, last_scan="2026-01-01T00:00:00Z"))
    for age, is_stale in ((899.0, False), (901.0, True)):
        state = replace(STATE, nodes=(replace(silent, age_seconds=age),))
        cluster.state = document(state_document.document(state))
        (node,) = (await cluster.read(sums=False)).snapshot.nodes
        assert (node.is_cordoned, node.is_stale) == (True, is_stale)
    assert cluster.api.last.query["fieldSelector"] == "spec.unschedulable=true"


@pytest.mark.req("NS-160")
async def test_without_the_right_to_read_nodes_it_is_said_that_a_mark_is_missing(cluster: Cluster) -> None:
    cluster.objects["/api/v1/nodes"] = status(403, "Forbidden", "no")
    found = await cluster.read(sums=False)
    assert not found.snapshot.nodes[0].is_cordoned
    assert found.notes[0].endswith("cordoned nodes are not marked")


@pytest.mark.req("NS-087")
async def test_the_token_goes_where_the_api_server_leaves_it(cluster: Cluster) -> None:
    await cluster.read(sums=False)
    (asked,) = [each for each in cluster.api.requests if each.path == PROXY]
    assert asked.headers[HEADER] == "Bearer secret"


@pytest.mark.req("NS-161")
async def test_what_only_objects_tell_is_added(cluster: Cluster) -> None:
    found = await cluster.read()
    (node,) = found.snapshot.nodes
    assert (found.snapshot.source, found.snapshot.knows_pods, node.is_cordoned) == ("live", True, True)


@pytest.mark.req("NS-161")
async def test_without_an_extender_the_objects_are_read_and_that_is_said(cluster: Cluster) -> None:
    cluster.schedulers = []
    found = await cluster.read(sums=False)
    assert found.snapshot.source == "reconstructed"
    assert [each.name for each in found.snapshot.nodes] == ["a", "b"]
    assert found.options is None
    assert "no pod with label app=secondary-scheduler runs in any namespace" in found.notes[0]


@pytest.mark.req("NS-161")
@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (status(403, "Forbidden", "no"), "it refuses this user"),
        (status(401, "Unauthorized", "no"), "it refuses this user"),
        (document({"version": "polyarch.dev/numa-state.v9"}), "its pods do not answer"),
    ],
)
async def test_an_extender_that_does_not_answer_is_named_with_the_reason(
    cluster: Cluster, answer: Answer, said: str
) -> None:
    cluster.state = answer
    found = await cluster.read()
    assert found.snapshot.source == "reconstructed"
    assert said in found.notes[0]
    assert "s-1" in found.details[0]


@pytest.mark.req("NS-152")
async def test_of_several_replicas_the_one_that_was_asked_last_is_believed(cluster: Cluster) -> None:
    """A standby knows nothing of what is held for pods that are not bound yet."""
    cluster.schedulers += [_another(EXTENDER, "s-2"), _another(EXTENDER, "s-3")]
    verdict = LastFilterResult(namespace="shop", name="web", uid="u", seconds_ago=3.0, asked=1)
    leads = replace(STATE, options=Options(scheduler_name="the leader's"), verdicts=(verdict,))
    led = replace(STATE, reservations=(), verdicts=(replace(verdict, seconds_ago=500.0),))
    cluster.state = document(state_document.document(replace(STATE, reservations=())))
    cluster.states = {
        PROXY.replace("s-1", "s-2"): document(state_document.document(leads)),
        PROXY.replace("s-1", "s-3"): document(state_document.document(led)),
    }
    found = await cluster.read(sums=False)
    assert found.options == leads.options
    whole = [each.path for each in cluster.api.requests if each.path.endswith("/numa/state") and not each.query]
    assert whole == [PROXY.replace("s-1", "s-2")]


@pytest.mark.req("NS-085")
async def test_an_extender_that_does_not_know_the_cluster_yet_is_not_believed(cluster: Cluster) -> None:
    """It has just started, and its document has no nodes."""
    problem = "the cache of noderesourcetopologies is not complete yet"
    cluster.state = document(state_document.document(State(options=Options(), problem=problem)))
    found = await cluster.read(sums=False)
    assert [each.name for each in found.snapshot.nodes] == ["a", "b"]
    assert found.snapshot.source == "reconstructed"
    assert problem in found.details[0]


def _another(pod: dict[str, Any], name: str) -> dict[str, Any]:
    return pod | {"metadata": pod["metadata"] | {"name": name}}


@pytest.mark.req("NS-160")
async def test_pods_that_may_not_be_read_are_missed_and_that_is_said(cluster: Cluster) -> None:
    cluster.schedulers = []
    cluster.objects["/api/v1/nodes"] = status(403, "Forbidden", "no")
    found = await cluster.read()
    assert not found.snapshot.nodes[0].is_cordoned
    assert "nodes not read" in found.notes[-1]


@pytest.mark.req("NS-160")
async def test_a_cluster_without_objects_is_3_and_what_to_do(cluster: Cluster) -> None:
    cluster.schedulers = []
    del cluster.objects["/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies"]
    with pytest.raises(CouldNotComplete, match="install component numa, or give --nrt FILE"):
        await cluster.read()
