"""When pods are looked for that the webhook missed, and what is done about them."""

import asyncio
import itertools
from datetime import timedelta

import msgspec
import pytest
from manual_clock import ManualClock
from placement_world import OPERATOR, FakeInspector, FakeSecrets, FakeWatches, facts_of, placement_metrics, pod, value

from polyarch.images.pull_secrets import PullSecrets
from polyarch.images.resolver import LowPriorityLookups
from polyarch.kube.errors import Forbidden, NotFound, ServerTimeout, TooManyRequests
from polyarch.kube.responses import ListResult
from polyarch.kube.watch import Page
from polyarch.objects import ObjectKey, PartialObjectMetadata, Pod
from polyarch.placement import names
from polyarch.placement.sweep import PAGE_SIZE, Sweeper

APP = "quay.io/team/app:1"
BOTH = {"a": "amd64", "b": "arm64"}


class Cluster:
    """Pods and nodes as the API server lists them, and a leader that sweeps."""

    def __init__(self, cppc=None, **policy):
        self.clock = ManualClock()
        self.watches = FakeWatches()
        self.facts = facts_of(self.watches, self.clock, policy=policy, cppc=cppc or {})
        self.registry = FakeInspector(self.clock)
        self.pods = {}
        self.nodes = dict(BOTH)
        self.lists = 0
        self.pages = 0
        self.events = []
        self.evicted = []
        self.refusal = None
        self.failing = False
        self.lost_page = False
        self.leading = True
        self.metrics, metrics = placement_metrics()
        secrets = PullSecrets(FakeSecrets(), self.clock)
        self.sweeper = Sweeper(
            client=self,
            list_pending=self.list_pending,
            informers=self.watches,
            facts=self.facts,
            images=LowPriorityLookups(self.registry, secrets, self.clock, metrics.lookups),
            post=lambda pod, event: self.events.append((pod.metadata.name, str(event.reason))),
            namespace=OPERATOR,
            is_leading=lambda: self.leading,
            clock=self.clock,
            metrics=metrics,
        )
        self.tasks = []

    # the API server

    async def list_pending(self):
        self.lists += 1
        if self.failing:
            return None
        return [each for each in self.pods.values() if not each.spec.node_name]

    async def list(self, resource, *, type, resource_version=""):
        assert (type, resource_version) == (PartialObjectMetadata, "0")
        if resource.plural == "namespaces":
            labelled = [{"metadata": {"name": "team", "labels": {"placed": "yes"}}}, {"metadata": {"name": "other"}}]
            return ListResult([msgspec.convert(each, PartialObjectMetadata) for each in labelled], "1")
        assert resource.plural == "nodes"
        if self.nodes is None:
            raise Forbidden(403, reason="Forbidden", verb="list", resource="nodes")
        documents = [
            {"metadata": {"name": name, "labels": {names.ARCH_KEY: arch}}} for name, arch in self.nodes.items()
        ]
        return ListResult([msgspec.convert(each, PartialObjectMetadata) for each in documents], "1")

    async def list_page(self, resource, selection, *, type, continue_token="", limit=0):
        if selection.namespace:
            key = ObjectKey(selection.namespace, selection.field_selector.removeprefix("metadata.name="))
            return Page([self.pods[key]] if key in self.pods else [], "1", "")
        assert selection.field_selector == "spec.nodeName!="
        self.pages += 1
        if self.lost_page:
            raise ServerTimeout(504, reason="Timeout", verb="list", resource="pods")
        bound = [each for each in self.pods.values() if each.spec.node_name]
        begin = int(continue_token or 0)
        rest = len(bound) - begin - limit
        return Page(bound[begin : begin + limit], "1", str(begin + limit) if rest > 0 else "")

    async def evict(self, namespace, name, *, uid=None):
        key = ObjectKey(namespace, name)
        if key not in self.pods or self.pods[key].metadata.uid != uid:
            raise NotFound(404, reason="NotFound", verb="create", resource="pods/eviction", name=name)
        if self.refusal is not None:
            raise self.refusal
        self.evicted.append(name)
        del self.pods[key]

    # what happens in the cluster

    def create(self, name, *images, namespace="team", owner="", phase="Pending", age=0.0, **options):
        document = pod(*(images or (APP,)), name=name, namespace=namespace, **options)
        created = self.clock.now() - timedelta(seconds=age)
        document["metadata"] |= {"uid": f"uid-{namespace}-{name}", "creationTimestamp": f"{created:%Y-%m-%dT%H:%M:%SZ}"}
        if owner:
            reference = {"kind": "ReplicaSet", "name": owner, "uid": f"uid-{owner}", "controller": True}
            document["metadata"]["ownerReferences"] = [reference]
        document["status"] = {"phase": phase}
        self.pods[ObjectKey(namespace, name)] = msgspec.convert(document, Pod)

    async def start(self):
        self.tasks = [asyncio.create_task(self.facts.run()), asyncio.create_task(self.sweeper.run())]
        await self.clock.run(0)

    def register(self, *, generation=1):
        document = {"metadata": {"name": names.WEBHOOK_CONFIGURATION, "generation": generation}}
        self.watches["mutatingwebhookconfigurations"].put(document)

    def unregister(self):
        self.watches["mutatingwebhookconfigurations"].remove(names.WEBHOOK_CONFIGURATION)

    def serve(self, replicas, *, wanted=3, unavailable=0):
        metadata = {"name": names.WEBHOOK, "namespace": OPERATOR}
        found = {"metadata": metadata, "spec": {"replicas": wanted}, "status": {}}
        found["status"] = {"availableReplicas": replicas, "unavailableReplicas": unavailable}
        self.watches["deployments"].put(found)

    async def settled(self):
        """A cluster in which nothing has happened for a while."""
        await self.start()
        self.register()
        self.serve(3)
        await self.clock.run(60)
        self.lists = 0

    def reported(self):
        return [name for name, reason in self.events if reason == "PolyarchUnplacedPod"]

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


@pytest.fixture
async def make():
    made = []

    def cluster(**policy):
        made.append(Cluster(**policy))
        return made[-1]

    yield cluster
    for each in made:
        await each.end()


# -- when --------------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-370", "PL-800")
async def test_pods_are_looked_for_at_the_interval_of_the_policy(make):
    """One LIST each time."""
    cluster = make(sweep={"interval": "5m"})
    await cluster.settled()
    await cluster.clock.run(1500)
    assert cluster.lists == 5


@pytest.mark.req("PL-370", "PL-811")
@pytest.mark.parametrize("how", ["configuration", "deployment", "edit"])
async def test_soon_after_the_webhook_was_away_all_pods_of_that_time_are_reported(make, how):
    """Within 30 s of its return, pods of any age; and what was created until the API server knew."""
    cluster = make(sweep={"interval": "24h", "minAge": "1h"})
    await cluster.settled()
    if how == "configuration":
        cluster.unregister()
    elif how == "deployment":
        cluster.serve(0)
    for number in range(60):
        cluster.create(f"missed-{number}")
        await cluster.clock.run(1)
    assert cluster.reported() == []
    if how == "deployment":
        cluster.serve(1)
    else:
        cluster.register(generation=2)
    await cluster.clock.run(5)
    cluster.create("late")
    await cluster.clock.run(25)
    assert len(cluster.reported()) == 61
    cluster.create("later")
    await cluster.clock.run(30)
    assert cluster.reported()[-1] == "later"


@pytest.mark.req("PL-370")
async def test_who_begins_to_lead_looks_soon(make):
    """It does not know whether the webhook was away."""
    cluster = make()
    cluster.create("missed")
    await cluster.start()
    await cluster.clock.run(30)
    assert cluster.reported() == ["missed"]


@pytest.mark.req("PL-044")
async def test_a_change_of_the_policy_needs_no_restart(make):
    cluster = make(sweep={"interval": "24h"})
    await cluster.settled()
    cluster.create("missed", age=300)
    cluster.watches["placementpolicies"].put({"metadata": {"name": "cluster"}, "spec": {"sweep": {"interval": "1m"}}})
    await cluster.clock.run(61)
    assert cluster.reported() == ["missed"]


@pytest.mark.req("PL-370", "PL-550")
async def test_off_means_that_nobody_looks(make):
    cluster = make(sweep={"action": "off", "interval": "1m"})
    cluster.create("missed", age=300)
    await cluster.start()
    await cluster.clock.run(600)
    assert cluster.lists == 0
    assert cluster.events == []
    assert "mutatingwebhookconfigurations" not in cluster.watches.informers, "nor is there a right to"


@pytest.mark.req("PL-520")
async def test_nothing_is_done_while_placement_is_being_uninstalled(make):
    cluster = make(sweep={"interval": "1m"})
    await cluster.settled()
    cluster.watches["clusterpodplacementconfigs"].remove("cluster")
    cluster.create("missed", age=300)
    await cluster.clock.run(300)
    assert cluster.events == []


@pytest.mark.req("PL-306")
async def test_neither_an_error_nor_a_bug_ends_the_sweep(make):
    cluster = make(sweep={"interval": "1m"})
    await cluster.settled()
    cluster.create("missed", age=300)
    cluster.failing = True
    await cluster.clock.run(120)
    cluster.failing = False
    cluster.pods[ObjectKey("team", "bug")] = None
    await cluster.clock.run(120)
    assert value(cluster.metrics, "polyarch_internal_errors_total") > 0
    del cluster.pods[ObjectKey("team", "bug")]
    await cluster.clock.run(120)
    assert cluster.reported() == ["missed"]


# -- reports -----------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-370", "PL-702")
async def test_a_pod_is_reported_once_and_counted_as_long_as_it_is_there(make):
    cluster = make(sweep={"interval": "1m"})
    cluster.create("missed", age=300)
    await cluster.settled()
    await cluster.clock.run(600)
    assert cluster.reported() == ["missed"]
    assert value(cluster.metrics, "polyarch_placement_unplaced_pods", namespace="team") == 1
    assert cluster.sweeper.unplaced == 1
    cluster.pods.clear()
    await cluster.clock.run(60)
    assert cluster.metrics.registry.get_sample_value("polyarch_placement_unplaced_pods", {"namespace": "team"}) is None
    assert value(cluster.metrics, "polyarch_placement_unplaced_pods", namespace="other") == 0
    assert cluster.sweeper.unplaced == 0


@pytest.mark.req("PL-370")
async def test_reporting_changes_nothing_and_asks_no_registry(make):
    """Nothing is changed."""
    cluster = make(sweep={"interval": "1m"})
    cluster.registry.set(APP, "linux/arm64")
    cluster.create("missed", age=300, owner="web")
    await cluster.settled()
    await cluster.clock.run(600)
    assert cluster.evicted == []
    assert cluster.registry.asked == []


@pytest.mark.req("PL-702")
async def test_a_hundred_namespaces_are_named_and_the_others_counted_together(make):
    cluster = make(sweep={"interval": "1m"})
    for number in range(130):
        cluster.create("missed", namespace=f"team-{number:03}", age=300)
    await cluster.settled()
    await cluster.clock.run(60)
    families = {each.name: each.samples for each in cluster.metrics.registry.collect()}
    samples = {each.labels["namespace"]: each.value for each in families["polyarch_placement_unplaced_pods"]}
    assert len(samples) == 101
    assert samples["other"] == 30


@pytest.mark.req("PL-701")
async def test_who_leads_no_more_counts_nothing(make):
    """The leader alone does."""
    cluster = make(sweep={"interval": "1m"})
    cluster.create("missed", age=300)
    await cluster.settled()
    await cluster.end()
    assert cluster.metrics.registry.get_sample_value("polyarch_placement_unplaced_pods", {"namespace": "team"}) is None


@pytest.mark.req("PL-370")
async def test_with_scope_all_pods_on_nodes_are_compared_page_by_page(make):
    cluster = make(sweep={"interval": "1m", "scope": "all"})
    cluster.registry.set(APP, "linux/arm64")
    for number in range(PAGE_SIZE + 10):
        cluster.create(f"right-{number}", age=300, phase="Running", nodeName="b")
    cluster.create("wrong", age=300, phase="Running", nodeName="a")
    cluster.create("ended", age=300, phase="Succeeded", nodeName="a")
    await cluster.settled()
    assert cluster.reported() == ["wrong"]
    assert value(cluster.metrics, "polyarch_placement_misplaced_pods", namespace="team") == 1
    assert cluster.pages % 2 == 0
    assert cluster.registry.count(APP) <= 8, "what one look-up found serves all"
    assert cluster.evicted == []


@pytest.mark.req("PL-370", "PL-800")
async def test_pods_on_nodes_are_left_alone_with_scope_pending(make):
    """No page is asked for."""
    cluster = make(sweep={"interval": "1m"})
    cluster.create("wrong", age=300, phase="Running", nodeName="a")
    await cluster.settled()
    assert cluster.pages == 0


@pytest.mark.req("PL-370")
async def test_without_the_right_to_list_nodes_the_rest_is_reported(make):
    """RBAC follows the policy, and may lag behind."""
    cluster = make(sweep={"interval": "1m", "scope": "all", "action": "evict"})
    cluster.nodes = None
    cluster.create("missed", age=300, owner="web")
    await cluster.settled()
    assert cluster.reported() == ["missed"]
    assert cluster.evicted == []


@pytest.mark.req("PL-811")
async def test_a_registry_that_hangs_delays_no_report(make):
    """What is not known is reported as it is."""
    cluster = make(sweep={"interval": "24h", "action": "evict"})
    await cluster.settled()
    cluster.registry.set(APP, "linux/arm64")
    cluster.registry.seconds = 1000.0
    cluster.unregister()
    for number in range(100):
        cluster.create(f"missed-{number}", f"quay.io/team/app:{number}", owner="web")
    cluster.register(generation=2)
    await cluster.clock.run(20)
    assert len(cluster.reported()) == 100


# -- evictions ---------------------------------------------------------------------------------------------------------


@pytest.mark.req("PL-371", "PL-702", "PL-710")
async def test_a_pod_is_evicted_so_that_its_owner_creates_a_placed_one(make):
    cluster = make(sweep={"interval": "1m", "action": "evict"})
    cluster.registry.set(APP, "linux/arm64")
    cluster.create("owned", age=300, owner="web")
    cluster.create("nobodys", age=300)
    await cluster.settled()
    assert cluster.evicted == ["owned"]
    assert ("owned", "PolyarchPodEvicted") in cluster.events
    assert value(cluster.metrics, "polyarch_placement_evictions_total") == 1
    await cluster.clock.run(120)
    assert cluster.sweeper.unplaced == 1


@pytest.mark.req("PL-042", "PL-370")
async def test_only_where_the_namespace_evicts(make):
    """``sweep.action`` may be overridden."""
    override = {"name": "o", "namespaceSelector": {"matchLabels": {"e": "1"}}, "sweep": {"action": "evict"}}
    cluster = make(sweep={"interval": "1m"}, overrides=[override])
    cluster.registry.set(APP, "linux/arm64")
    for namespace in ("evicts", "reports"):
        cluster.create(f"in-{namespace}", namespace=namespace, age=300, owner=namespace)
    await cluster.start()
    for namespace, labels in (("evicts", {"e": "1"}), ("reports", {})):
        cluster.watches["namespaces"].put({"metadata": {"name": namespace, "labels": labels}})
    cluster.watches["namespaces"].sync()
    cluster.register()
    await cluster.clock.run(60)
    assert cluster.evicted == ["in-evicts"]
    assert sorted(cluster.reported()) == ["in-evicts", "in-reports"]


@pytest.mark.req("PL-010", "PL-370")
async def test_namespaces_that_placement_does_not_select_are_left_alone(make):
    """The API server never asks about their pods, so none of them was missed."""
    cluster = make(
        cppc={"namespaceSelector": {"matchLabels": {"placed": "yes"}}}, sweep={"interval": "1m", "action": "evict"}
    )
    cluster.registry.set(APP, "linux/arm64")
    for namespace in ("team", "other", "new"):
        cluster.create(f"in-{namespace}", namespace=namespace, age=300, owner=namespace)
    await cluster.settled()
    assert cluster.reported() == cluster.evicted == ["in-team"]


@pytest.mark.req("PL-371")
async def test_the_rate_holds_and_the_rest_follows(make):
    """At most so many a minute, without waiting for the interval."""
    cluster = make(sweep={"interval": "24h", "action": "evict", "maxEvictionsPerMinute": 3})
    cluster.registry.set(APP, "linux/arm64")
    for number in range(9):
        cluster.create(f"pod-{number}", owner=f"web-{number}")
    await cluster.start()
    cluster.register()
    counts = []
    for _ in range(4):
        await cluster.clock.run(60)
        counts.append(len(cluster.evicted))
    assert counts[0] == 3
    assert counts[-1] == 9
    assert all(later - earlier <= 3 for earlier, later in itertools.pairwise(counts))


@pytest.mark.req("PL-371")
async def test_one_pod_of_an_owner_in_five_minutes(make):
    cluster = make(sweep={"interval": "1m", "action": "evict"})
    cluster.registry.set(APP, "linux/arm64")
    for number in range(3):
        cluster.create(f"pod-{number}", age=300, owner="web")
    await cluster.settled()
    assert len(cluster.evicted) == 1
    await cluster.clock.run(240)
    assert len(cluster.evicted) == 1
    await cluster.clock.run(90)
    assert len(cluster.evicted) == 2


@pytest.mark.req("PL-371")
async def test_an_eviction_that_did_not_help_is_not_repeated_for_an_hour(make):
    """The owner's new pod was missed as well."""
    cluster = make(sweep={"interval": "1m", "action": "evict", "minAge": "30s"})
    cluster.registry.set(APP, "linux/arm64")
    cluster.create("first", age=300, owner="web")
    await cluster.settled()
    assert cluster.evicted == ["first"]
    cluster.create("second", owner="web")
    await cluster.clock.run(3400)
    assert cluster.evicted == ["first"]
    await cluster.clock.run(300)
    assert cluster.evicted == ["first", "second"]


@pytest.mark.req("PL-371")
async def test_a_disruption_budget_is_respected_and_asked_again_later(make):
    """Through the eviction API."""
    cluster = make(sweep={"interval": "24h", "action": "evict", "scope": "all"})
    cluster.registry.set(APP, "linux/arm64")
    cluster.create("wrong", phase="Running", owner="web", nodeName="a")
    cluster.refusal = TooManyRequests(429, reason="TooManyRequests", verb="create", resource="pods/eviction")
    await cluster.start()
    cluster.register()
    await cluster.clock.run(300)
    assert cluster.evicted == []
    assert value(cluster.metrics, "polyarch_placement_evictions_total") == 0
    cluster.refusal = None
    await cluster.clock.run(120)
    assert cluster.evicted == ["wrong"]


@pytest.mark.req("PL-371")
@pytest.mark.parametrize("away", ["unregistered", "no replica"])
async def test_nobody_is_evicted_while_the_webhook_is_away(make, away):
    """A new pod would slip past like the old one."""
    cluster = make(sweep={"interval": "1m", "action": "evict"})
    cluster.registry.set(APP, "linux/arm64")
    await cluster.settled()
    if away == "unregistered":
        cluster.unregister()
    else:
        cluster.serve(0)
    cluster.create("missed", age=300, owner="web")
    await cluster.clock.run(600)
    assert cluster.evicted == []
    assert cluster.reported() == ["missed"]


@pytest.mark.req("PL-371", "PL-530")
async def test_a_process_that_was_stopped_and_leads_no_more_evicts_nobody(make):
    """It learns of it late."""
    cluster = make(sweep={"interval": "1m", "action": "evict"})
    cluster.registry.set(APP, "linux/arm64")
    cluster.create("missed", age=300, owner="web")
    cluster.leading = False
    await cluster.settled()
    assert cluster.evicted == []


@pytest.mark.req("PL-306")
async def test_an_api_server_that_does_not_answer_ends_the_round_and_not_the_sweep(make):
    cluster = make(sweep={"interval": "1m", "action": "evict"})
    cluster.registry.set(APP, "linux/arm64")
    cluster.create("missed", age=300, owner="web")
    cluster.refusal = ServerTimeout(504, verb="create", resource="pods/eviction")
    await cluster.settled()
    assert cluster.evicted == []
    cluster.refusal = None
    await cluster.clock.run(120)
    assert cluster.evicted == ["missed"]


@pytest.mark.req("PL-370")
async def test_pods_that_a_lost_replica_let_pass_are_found_on_their_nodes(make):
    """Its Deployment shows it a minute later; the scheduler has taken them long ago, and the scope is pending."""
    cluster = make()
    await cluster.settled()
    assert cluster.pages == 0
    cluster.registry.set(APP, "linux/arm64")
    cluster.create("before", phase="Running", nodeName="a", age=600)
    cluster.create("missed", phase="Running", nodeName="a", age=60)
    cluster.create("lucky", phase="Running", nodeName="b", age=60)
    cluster.serve(2)
    await cluster.clock.run(12)
    cluster.create("later", phase="Running", nodeName="a")
    await cluster.clock.run(35)
    assert sorted(cluster.reported()) == ["later", "missed"]
    assert cluster.pages == 1
    await cluster.clock.run(900)
    cluster.serve(3)
    await cluster.clock.run(60)
    assert cluster.pages == 1


@pytest.mark.req("PL-370")
@pytest.mark.parametrize(
    "replicas",
    [
        [(3, 3, 1), (4, 3, 0), (3, 3, 0), (3, 3, 1), (4, 3, 0), (3, 3, 0)],
        [(2, 2, 0)],
        [(1, 1, 0), (1, 3, 2), (3, 3, 0)],
    ],
    ids=["rolling update with a surge", "scaled down", "scaled down and up again"],
)
async def test_replicas_that_end_on_purpose_cost_no_list_of_all_pods(make, replicas):
    cluster = make()
    await cluster.settled()
    for available, wanted, unavailable in replicas:
        cluster.serve(available, wanted=wanted, unavailable=unavailable)
        await cluster.clock.run(20)
    await cluster.clock.run(1200)
    assert cluster.pages == 0


@pytest.mark.req("PL-370")
@pytest.mark.parametrize("replaced", [False, True], ids=["before its successor serves", "beside new pods"])
async def test_a_replica_that_is_lost_during_a_surge_is_a_loss(make, replaced):
    """As many serve as are wanted, but the API server asked the lost one in vain."""
    cluster = make()
    await cluster.settled()
    cluster.registry.set(APP, "linux/arm64")
    cluster.serve(3, unavailable=1)
    cluster.serve(4)
    await cluster.clock.run(20)
    cluster.create("missed", phase="Running", nodeName="a", age=60)
    cluster.serve(3, unavailable=1)
    if replaced:
        cluster.serve(4, unavailable=1)
    await cluster.clock.run(60)
    assert cluster.reported() == ["missed"]
    assert cluster.pages == 1


@pytest.mark.req("PL-370")
@pytest.mark.parametrize("seconds", [4, 60])
async def test_a_replica_that_comes_and_goes_neither_floods_nor_puts_off_the_look_at_nodes(make, seconds):
    cluster = make()
    await cluster.settled()
    cluster.registry.set(APP, "linux/arm64")
    cluster.create("missed", phase="Running", nodeName="a", age=60)
    for number in range(3600 // seconds):
        cluster.serve(2 + number % 2)
        await cluster.clock.run(seconds)
        if number * seconds == 1800:
            cluster.create("between", phase="Running", nodeName="a")
    assert cluster.reported() == ["missed", "between"]
    assert 5 <= cluster.pages <= 7


@pytest.mark.req("PL-370")
@pytest.mark.parametrize("fails", ["pods on nodes", "pending pods"])
async def test_a_look_at_nodes_that_fails_is_tried_again(make, fails):
    cluster = make()
    await cluster.settled()
    cluster.registry.set(APP, "linux/arm64")
    cluster.create("missed", phase="Running", nodeName="a", age=60)
    cluster.serve(2)
    cluster.failing = fails == "pending pods"
    cluster.lost_page = fails == "pods on nodes"
    await cluster.clock.run(90)
    assert cluster.reported() == []
    cluster.failing = cluster.lost_page = False
    await cluster.clock.run(65)
    assert cluster.reported() == ["missed"]


@pytest.mark.req("PL-371")
async def test_all_that_a_lost_replica_let_pass_are_evicted_at_the_policys_pace_by_one_list(make):
    cluster = make(sweep={"action": "evict", "maxEvictionsPerMinute": 20})
    await cluster.settled()
    cluster.registry.set(APP, "linux/arm64")
    for number in range(70):
        owner = f"set-{number % 60}"
        cluster.create(f"missed-{number}", phase="Running", nodeName="a", age=90 - number, owner=owner)
    cluster.serve(2)
    await cluster.clock.run(60)
    assert len(cluster.evicted) == 20
    await cluster.clock.run(600)
    assert set(cluster.evicted) == {f"missed-{number}" for number in range(70)}
    assert cluster.pages == 1


@pytest.mark.req("PL-371")
async def test_what_waits_for_its_eviction_is_judged_anew(make):
    cluster = make(sweep={"action": "evict", "maxEvictionsPerMinute": 1})
    await cluster.settled()
    cluster.registry.set(APP, "linux/arm64")
    for name in ("first", "finished", "gone"):
        cluster.create(name, phase="Running", nodeName="a", age=60, owner=name)
    cluster.serve(2)
    await cluster.clock.run(60)
    assert cluster.evicted == ["first"]
    cluster.create("finished", phase="Succeeded", nodeName="a", age=60, owner="finished")
    del cluster.pods[ObjectKey("team", "gone")]
    await cluster.clock.run(600)
    assert cluster.evicted == ["first"]


@pytest.mark.req("PL-370")
async def test_a_loss_during_a_look_at_nodes_is_answered_by_another_one(make):
    """The webhook is away as a whole and returns while the first look is still asking a registry."""
    cluster = make()
    await cluster.settled()
    cluster.create("slow", "quay.io/team/slow:1", phase="Running", nodeName="a")
    cluster.registry.set(APP, "linux/arm64")
    cluster.serve(2)
    await cluster.clock.run(50)
    assert cluster.pages == 1
    cluster.serve(0)
    cluster.create("missed", phase="Running", nodeName="a")
    await cluster.clock.run(30)
    cluster.serve(3)
    await cluster.clock.run(700)
    assert cluster.reported() == ["missed"]


@pytest.mark.req("PL-370")
@pytest.mark.parametrize("lost", ["replicas", "configuration"])
async def test_what_a_node_took_while_the_webhook_was_away_is_found_on_its_return(make, lost):
    cluster = make()
    await cluster.settled()
    cluster.registry.set(APP, "linux/arm64")
    if lost == "replicas":
        cluster.serve(0)
    else:
        cluster.unregister()
    await cluster.clock.run(1800)
    cluster.create("missed", phase="Running", nodeName="a")
    await cluster.clock.run(600)
    cluster.events.clear()
    if lost == "replicas":
        cluster.serve(1)
    else:
        cluster.register(generation=2)
    await cluster.clock.run(50)
    assert cluster.reported() == ["missed"]
