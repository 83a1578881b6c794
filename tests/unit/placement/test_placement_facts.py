"""Facts are compiled once per change and complete only when all that counts is known; optional watches end."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from manual_clock import ManualClock
from placement_world import OPERATOR, FakeWatches, cppc, facts_of, policy
from structlog.testing import capture_logs

from polyarch.placement.facts import ClusterFacts
from polyarch.platforms import NodePlatform

OVERRIDES = [{"name": "trial", "namespaceSelector": {"matchLabels": {"trial": "yes"}}, "mode": "audit"}]
SCORING = {"nodeAffinityScoring": {"enabled": True, "platforms": [{"architecture": "arm64", "weight": 50}]}}


@pytest.fixture
def watches():
    """Nodes are listed at once; where that is what a test is about, it lists them itself."""
    return FakeWatches()


@pytest.fixture
def unlisted(watches):
    watches.nodes_are_listed = False
    return watches


@asynccontextmanager
async def running(facts: ClusterFacts):
    task = asyncio.create_task(facts.run())
    await settled()
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


def node(name, architecture, system=None):
    labels = {"kubernetes.io/arch": architecture} | ({"kubernetes.io/os": system} if system else {})
    return {"metadata": {"name": name, "labels": labels}}


async def settled():
    for _ in range(20):
        await asyncio.sleep(0)


@pytest.mark.req("PL-301")
async def test_nothing_is_ready_before_configuration_is_known(watches):
    facts = ClusterFacts(watches, operator_namespace=OPERATOR, clock=ManualClock(start=0))
    for plural in ("clusterpodplacementconfigs", "podplacementconfigs", "placementpolicies"):
        assert not facts.is_ready
        watches[plural].sync()
    assert facts.is_ready
    assert facts.cppc is None
    async with running(facts):
        assert facts.is_complete


@pytest.mark.req("PL-042")
async def test_namespaces_are_watched_only_while_the_policy_has_overrides(watches):
    facts = facts_of(watches)
    async with running(facts):
        assert watches.owned["namespaces"] == 0
        watches["placementpolicies"].put(policy(overrides=OVERRIDES))
        await settled()
        assert watches["namespaces"].running
        watches["placementpolicies"].put(policy())
        await settled()
        assert not watches["namespaces"].running
    assert watches.owned["namespaces"] == 1


@pytest.mark.req("PL-301")
async def test_with_overrides_the_namespaces_have_to_be_known_before_anything_is_decided(watches):
    facts = facts_of(watches, policy={"overrides": OVERRIDES})
    told = []
    facts.on_change(told.append)
    async with running(facts):
        assert facts.is_ready
        assert not facts.is_complete
        assert facts.problems == ["the namespaces are not known yet"]
        watches["namespaces"].put({"metadata": {"name": "team", "labels": {"trial": "yes"}}})
        watches["namespaces"].sync()
        await settled()
        assert facts.is_complete
        assert facts.problems == []
        assert told == [None, "team", None], "nodes, too, have been listed"


@pytest.mark.req("PL-042")
async def test_the_first_override_that_matches_the_namespace_counts(watches):
    facts = facts_of(watches, policy={"mode": "enforce", "overrides": OVERRIDES})
    async with running(facts):
        watches["namespaces"].put({"metadata": {"name": "team", "labels": {"trial": "yes"}}})
        watches["namespaces"].put({"metadata": {"name": "other"}})
        watches["namespaces"].sync()
        assert facts.of("team").settings.mode == "audit"
        assert facts.of("other").settings.mode == "enforce"


@pytest.mark.req("PL-117")
async def test_a_namespace_that_is_not_known_yet_gives_provisional_settings(watches):
    facts = facts_of(watches, policy={"overrides": OVERRIDES})
    assert facts.of("team").settings.provisional
    assert not facts_of(FakeWatches()).of("team").settings.provisional


@pytest.mark.req("PL-044")
async def test_a_change_of_namespace_labels_is_told_for_that_namespace(watches):
    facts = facts_of(watches, policy={"overrides": OVERRIDES})
    told = []
    async with running(facts):
        watches["namespaces"].put({"metadata": {"name": "team"}})
        watches["namespaces"].sync()
        await settled()
        facts.on_change(told.append)
        watches["namespaces"].put({"metadata": {"name": "team", "labels": {"trial": "yes"}}})
        watches["namespaces"].put({"metadata": {"name": "team", "labels": {"trial": "yes"}, "annotations": {"a": "b"}}})
    assert told == ["team"]


@pytest.mark.req("PL-044")
async def test_the_first_list_of_namespaces_is_told_once_and_not_by_namespace(watches):
    """Each tale makes the controller look through all gated pods."""
    facts = facts_of(watches, policy={"overrides": OVERRIDES})
    told = []
    facts.on_change(told.append)
    async with running(facts):
        await settled()
        watches["namespaces"].list({"metadata": {"name": "team"}}, {"metadata": {"name": "other"}})
        told.clear()
        watches["namespaces"].sync()
        await settled()
    assert told == [None]


@pytest.mark.req("PL-218")
async def test_nodes_are_watched_only_while_settings_ask_for_them(unlisted):
    facts = facts_of(unlisted, policy={"osConstraint": "off"})
    async with running(facts):
        assert (unlisted.owned["nodes"], facts.is_complete) == (0, True)
        unlisted["placementpolicies"].put(policy(osConstraint="off", nodeAware={"mode": "narrow"}))
        await settled()
        assert not facts.is_complete
        assert facts.of("team").settings.provisional, "nobody knows yet which architectures there are"
        unlisted["nodes"].put(node("a", "arm64"))
        unlisted["nodes"].sync()
        await settled()
        assert facts.of("team").nodes == {NodePlatform("linux", "arm64")}
        assert not facts.of("team").settings.provisional


@pytest.mark.req("PL-218", "PL-215")
async def test_where_systems_of_nodes_matter_a_process_is_not_ready_before_they_are_known(unlisted):
    """And pods are not held for it: a process that is ready once stays so."""
    facts = facts_of(unlisted)
    async with running(facts):
        assert facts.problems == ["the nodes are not known yet"]
        assert not facts.of("team").settings.provisional
        unlisted["nodes"].put(node("a", "amd64", "windows"))
        unlisted["nodes"].sync()
        await settled()
        assert facts.problems == []
        assert facts.of("team").nodes == {NodePlatform("windows", "amd64")}


@pytest.mark.req("PL-215")
async def test_an_override_alone_may_ask_for_nodes(unlisted):
    overrides = [{"name": "x", "namespaceSelector": {"matchLabels": {"a": "b"}}, "osConstraint": "auto"}]
    facts = facts_of(unlisted, policy={"osConstraint": "off", "overrides": overrides})
    async with running(facts):
        assert unlisted["nodes"].running


@pytest.mark.req("PL-218")
async def test_nodes_that_are_being_deleted_do_not_count_and_a_change_is_told(watches):
    facts = facts_of(watches, policy={"nodeAware": {"mode": "report"}})
    async with running(facts):
        nodes = watches["nodes"]
        nodes.put({"metadata": {"name": "a", "labels": {"kubernetes.io/arch": "arm64"}}})
        nodes.put({"metadata": {"name": "b", "labels": {"kubernetes.io/arch": "amd64"}}})
        nodes.sync()
        await settled()
        assert {each.architecture for each in facts.platforms} == {"arm64", "amd64"}
        told = []
        facts.on_change(told.append)
        leaving = {"name": "b", "labels": {"kubernetes.io/arch": "amd64"}, "deletionTimestamp": "2026-01-01T00:00:00Z"}
        nodes.put({"metadata": leaving})
        assert facts.platforms == {NodePlatform("linux", "arm64")}
        assert told == [None]
        nodes.put({"metadata": {"name": "c", "labels": {"kubernetes.io/arch": "arm64"}}})
        assert facts.platforms == {NodePlatform("linux", "arm64")}
        assert told == [None], "a further node of a known architecture changes nothing"


@pytest.mark.req("PL-301")
async def test_nodes_that_cannot_be_read_for_a_minute_are_left_out_until_they_can(unlisted):
    """The right to list nodes is optional; without it nobody waits for ever, and it is said what is missing."""
    clock = ManualClock()
    facts = facts_of(unlisted, clock, policy={"nodeAware": {"mode": "narrow"}})
    told = []
    facts.on_change(told.append)
    with capture_logs() as logs:
        async with running(facts):
            unlisted["nodes"].problem = "not allowed to list nodes: grant get, list and watch to the role"
            await clock.run(59)
            assert not facts.is_complete
            assert facts.of("team").settings.provisional
            await clock.run(2)
            assert facts.is_complete
            assert facts.problems == []
            assert facts.left_out == {"nodes": unlisted["nodes"].problem}
            assert facts.of("team").settings.node_aware == "off"
            assert not facts.of("team").settings.provisional
            assert told == [None]
            unlisted["nodes"].put({"metadata": {"name": "a", "labels": {"kubernetes.io/arch": "arm64"}}})
            unlisted["nodes"].sync()
            await settled()
            assert facts.left_out == {}
            assert facts.of("team").nodes == {NodePlatform("linux", "arm64")}
            assert facts.of("team").settings.node_aware == "narrow"
    assert [line["problem"] for line in logs if line["log_level"] == "error"] == [unlisted["nodes"].problem]


@pytest.mark.req("PL-042", "PL-301")
async def test_namespaces_that_never_come_are_left_out_and_spec_counts(watches):
    clock = ManualClock()
    facts = facts_of(watches, clock, policy={"overrides": OVERRIDES})
    async with running(facts):
        await clock.run(599)
        assert not facts.is_complete, (
            "nobody refused us: a list that takes its time may hold what a pod is to be held for"
        )
        await clock.run(10)
        assert facts.is_complete
        assert facts.left_out == {"namespaces": "namespaces could not be listed for 10 minutes"}
        settings = facts.of("team").settings
        assert (settings.mode, settings.provisional) == ("enforce", False)
        watches["placementpolicies"].put(policy())
        await settled()
        assert facts.left_out == {}, "nobody asks for them any more"


@pytest.mark.req("PL-301")
async def test_a_process_that_was_ready_stays_so_when_the_policy_asks_for_more(unlisted):
    """An unready webhook would let pods through; a ready one gates them until the facts are there."""
    facts = facts_of(unlisted, policy={"osConstraint": "off"})
    async with running(facts):
        await facts.synced()
        unlisted["placementpolicies"].put(policy(nodeAware={"mode": "report"}))
        await settled()
        assert not facts.is_complete
        assert facts.problems == []
        assert facts.of("team").settings.provisional


@pytest.mark.req("PL-218", "PL-801")
async def test_what_kubelets_write_all_the_time_costs_nothing(watches):
    """A cluster of five thousand nodes has a status every few milliseconds."""
    facts = facts_of(watches, policy={"nodeAware": {"mode": "report"}})
    async with running(facts):
        nodes = watches["nodes"]
        node = {"name": "a", "labels": {"kubernetes.io/arch": "arm64"}}
        nodes.put({"metadata": node})
        nodes.sync()
        await settled()
        before = facts.of("team")
        nodes.put({"metadata": {**node, "annotations": {"volumes.kubernetes.io/controller": "true"}}})
        nodes.put({"metadata": {**node, "labels": {**node["labels"], "zone": "b"}}})
        assert facts.of("team") is before, "nothing was compiled anew"
        nodes.put({"metadata": {**node, "labels": {"kubernetes.io/arch": "riscv64"}}})
        assert facts.of("team").nodes == {NodePlatform("linux", "riscv64")}
        nodes.remove("a")
        assert facts.of("team").nodes == frozenset()


@pytest.mark.req("PL-044", "PL-218")
async def test_the_first_list_of_nodes_is_gone_through_once(unlisted):
    """Each look goes through all nodes, and each tale through all gated pods."""
    facts = facts_of(unlisted, policy={"nodeAware": {"mode": "report"}})
    async with running(facts):
        assert facts.platforms == frozenset(), "asked for too early, and remembered"
        told = []
        facts.on_change(told.append)
        looks = []
        values = unlisted["nodes"].store.values
        unlisted["nodes"].store.values = lambda: looks.append(1) or values()
        labels = {"kubernetes.io/arch": "arm64"}
        unlisted["nodes"].list(*({"metadata": {"name": f"node-{at}", "labels": labels}} for at in range(100)))
        unlisted["nodes"].sync()
        assert facts.of("team").nodes == {NodePlatform("linux", "arm64")}
        await settled()
        assert facts.of("team").nodes == {NodePlatform("linux", "arm64")}
        assert told == [None]
        assert len(looks) <= 2


@pytest.mark.req("PL-044")
async def test_a_status_of_a_configuration_changes_nothing(watches):
    """Conditions are written by somebody all the time."""
    facts = facts_of(watches)
    ppc = {"metadata": {"name": "p", "namespace": "team"}, "spec": {"plugins": SCORING}}
    watches["podplacementconfigs"].put(ppc)
    told = []
    facts.on_change(told.append)
    before = facts.of("team"), facts.of("other")
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    watches["podplacementconfigs"].put({**ppc, "status": status})
    watches["clusterpodplacementconfigs"].put({**cppc(), "status": status})
    assert facts.of("team") is before[0]
    assert told == []
    watches["podplacementconfigs"].put({**ppc, "spec": {"plugins": SCORING, "priority": 3}})
    assert facts.of("team") is not before[0]
    assert facts.of("other") is before[1], "another namespace's"
    assert told == ["team"]


@pytest.mark.req("PL-010")
async def test_a_change_of_the_log_level_is_told(watches):
    """It is taken over live."""
    facts = facts_of(watches)
    facts.of("team")
    told = []
    facts.on_change(told.append)
    watches["clusterpodplacementconfigs"].put(cppc(logVerbosity="Debug"))
    assert told == [None]


@pytest.mark.req("PL-044")
async def test_changes_of_cppc_policy_and_ppcs_are_told_and_a_status_is_not(watches):
    facts = facts_of(watches)
    told = []
    facts.on_change(told.append)
    watches["clusterpodplacementconfigs"].put(cppc(fallbackArchitecture="arm64"))
    assert facts.of("team").settings.fallback_architectures == ("arm64",)
    watches["placementpolicies"].put(policy(onUnresolved={"retryWindow": "5s"}))
    assert facts.of("team").settings.retry_window == 5
    assert told == [None, None]
    status = {"conditions": [{"type": "Available", "status": "True"}]}
    watches["clusterpodplacementconfigs"].put({**cppc(fallbackArchitecture="arm64"), "status": status})
    assert told == [None, None]
    watches["podplacementconfigs"].put({"metadata": {"name": "p", "namespace": "team"}, "spec": {"plugins": SCORING}})
    assert told == [None, None, "team"]
    assert [source.name for source in facts.of("team").sources] == ["PodPlacementConfig-p"]
    assert facts.of("other").sources == ()


@pytest.mark.req("PL-107", "PL-520")
async def test_a_cppc_that_is_being_deleted_or_gone_means_deprovisioning(watches):
    facts = facts_of(watches)
    assert not facts.is_deprovisioning
    deleting = {"name": "cluster", "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["x"]}
    watches["clusterpodplacementconfigs"].put({"metadata": deleting, "spec": {}})
    assert facts.is_deprovisioning
    watches["clusterpodplacementconfigs"].remove("cluster")
    assert facts.is_deprovisioning
    assert facts.cppc is None


async def test_only_the_objects_named_cluster_count(watches):
    facts = facts_of(watches)
    watches["placementpolicies"].put({"metadata": {"name": "other"}, "spec": {"mode": "audit"}})
    assert facts.of("team").settings.mode == "enforce"


@pytest.mark.req("PL-033")
async def test_a_selector_that_does_not_parse_is_in_the_log_once_per_change(watches):
    def put(operator, revision):
        broken = {"matchExpressions": [{"key": "app", "operator": operator, "values": ["a"]}]}
        watches["podplacementconfigs"].put(
            {
                "metadata": {"name": "mine", "namespace": "team", "resourceVersion": revision},
                "spec": {"labelSelector": broken, "plugins": SCORING},
            }
        )

    facts = facts_of(watches)
    with capture_logs() as logs:
        for revision, operator in enumerate(["Like", "Like", "Near", "In"]):
            put(operator, str(revision))
            facts.of("team")
            facts.of("other")
    assert [line["reason"] for line in logs] == ["InvalidLabelSelector"] * 2
    assert [line["config"] for line in logs] == ["team/mine"] * 2
    assert "Like" in logs[0]["problem"]
    assert "Near" in logs[1]["problem"]


@pytest.mark.req("PL-424")
async def test_pods_are_looked_at_again_when_nodes_begin_to_search_for_short_names():
    """What was asked of Docker Hub is asked elsewhere now."""
    facts = facts_of(FakeWatches())
    told: list[str | None] = []
    facts.on_change(told.append)
    assert not facts.of("team").settings.short_names_searched
    facts.search_short_names(True)
    assert facts.of("team").settings.short_names_searched
    facts.search_short_names(True)
    assert told == [None]
