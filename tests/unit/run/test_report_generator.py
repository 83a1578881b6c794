"""One report of the cluster that the controller runs in: what is read, asked and written."""

import asyncio
import json

import msgspec
import pytest
from manual_clock import ManualClock
from placement_world import OPERATOR, FakeInspector, FakeSecrets, FakeWatches, facts_of, placement_metrics

from polyarch.images.pull_secrets import PullSecrets
from polyarch.images.resolver import LowPriorityLookups
from polyarch.kube.errors import Forbidden, NotFound
from polyarch.kube.rbac import grants
from polyarch.kube.resources import CONFIGMAPS, DEPLOYMENTS, NODES
from polyarch.kube.responses import ListResult
from polyarch.operator.components import placement_objects
from polyarch.placement import names
from polyarch.reports.gather import TYPES
from polyarch.run.report_controller import LATER, SOON, ReportNotReady
from polyarch.run.report_generator import LOOKUPS, OF_COMPONENTS, ClusterReportGenerator

BOTH, ONLY, OWN = "quay.io/acme/both:1", "quay.io/acme/only:1", "registry.example/acme/own:1"


def deployment(name, image, namespace="shop", secrets=()):
    containers = [{"name": "main", "image": image, "resources": {"requests": {"cpu": "500m"}}}]
    spec = {"containers": containers, "imagePullSecrets": [{"name": each} for each in secrets]}
    metadata = {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}"}
    return {"metadata": metadata, "spec": {"replicas": 2, "template": {"spec": spec}}}


def node(name, architecture):
    info = {"architecture": architecture, "operatingSystem": "linux"}
    return {"metadata": {"name": name}, "status": {"nodeInfo": info}}


class Cluster:
    """Lists, one ConfigMap, and what was asked for."""

    def __init__(self, *deployments) -> None:
        self.objects = {NODES: [node("n1", "amd64")], DEPLOYMENTS: list(deployments)}
        self.refused = {}
        self.map = {}
        self.listed, self.patches = [], 0

    async def list(self, resource, *, type):
        self.listed.append(resource)
        if resource in self.refused:
            raise self.refused[resource]
        return ListResult([msgspec.convert(each, type) for each in self.objects.get(resource, ())], "1")

    async def get(self, resource, name, *, namespace=""):
        assert (resource, name, namespace) == (CONFIGMAPS, "polyarch-report", OPERATOR)
        if self.map is None:
            raise NotFound(404, reason="NotFound", verb="get", resource="configmaps", name=name)
        return {"data": self.map} if self.map else {}

    async def patch(self, resource, name, patch, *, namespace=""):
        assert (resource, name, namespace) == (CONFIGMAPS, "polyarch-report", OPERATOR)
        self.patches += 1
        self.map = {**self.map, **patch.document["data"]}

    @property
    def stored(self):
        return json.loads(self.map["report.json"])


class ReportGeneratorWorld:
    def __init__(self, *deployments, **policy) -> None:
        self.clock = ManualClock()
        self.cluster, self.registry, self.secrets = Cluster(*deployments), FakeInspector(self.clock), FakeSecrets()
        self.registry.set(BOTH, "linux/amd64", "linux/arm64")
        self.registry.set(ONLY, "linux/amd64")
        facts = facts_of(FakeWatches(), self.clock, policy=policy)
        secrets = PullSecrets(self.secrets, self.clock)
        _, metrics = placement_metrics()
        self.rounds = ClusterReportGenerator(
            client=self.cluster,
            facts=facts,
            inspector=self.registry,
            secrets=secrets,
            images=LowPriorityLookups(self.registry, secrets, self.clock, metrics.lookups),
            namespace=OPERATOR,
            clock=self.clock,
        )

    async def sums(self):
        """Cores and workloads by target and verdict, where there are any."""
        return {
            (target, verdict): (cores, count) for target, verdict, cores, count in await self.rounds.make() if count
        }


@pytest.mark.req("RP-030")
async def test_sums_and_the_config_map_say_what_could_run_where():
    world = ReportGeneratorWorld(
        deployment("web", BOTH), deployment("old", ONLY), deployment("agent", ONLY, namespace=OPERATOR)
    )
    assert await world.sums() == {
        ("amd64", "ready"): (2.0, 2),
        ("amd64", "excluded"): (1.0, 1),
        ("arm64", "ready"): (1.0, 1),
        ("arm64", "image"): (1.0, 1),
        ("arm64", "excluded"): (1.0, 1),
    }
    stored = world.cluster.stored
    assert stored["apiVersion"] == "polyarch.dev/report-summary/v1"
    assert stored["source"] == {"kind": "cluster", "name": "", "takenAt": "2025-01-01T00:00:00Z"}
    [blocker] = stored["blockers"]
    assert (blocker["target"], blocker["image"], blocker["workloads"]) == ("arm64", ONLY, ["shop/Deployment/old"])


@pytest.mark.req("RP-030")
async def test_the_config_map_is_written_only_when_something_has_changed():
    """Time alone changes nothing, and neither does an answer that is asked for again."""
    world = ReportGeneratorWorld(deployment("web", BOTH))
    await world.rounds.make()
    world.clock.advance(3600)
    await world.rounds.make()
    assert world.cluster.patches == 1
    assert world.cluster.stored["source"]["takenAt"] == "2025-01-01T00:00:00Z"
    world.cluster.objects[DEPLOYMENTS].append(deployment("old", ONLY))
    await world.rounds.make()
    assert world.cluster.patches == 2
    assert world.cluster.stored["source"]["takenAt"] == "2025-01-01T01:00:00Z"


@pytest.mark.req("RP-030")
async def test_what_somebody_wrote_into_it_is_replaced():
    world = ReportGeneratorWorld(deployment("web", BOTH))
    world.cluster.map = {"report.json": '{"apiVersion": "mine"}'}
    await world.rounds.make()
    assert world.cluster.stored["targets"] == ["amd64", "arm64"]


@pytest.mark.req("RP-031")
async def test_the_controller_may_list_exactly_what_it_lists():
    world = ReportGeneratorWorld(deployment("web", BOTH))
    await world.rounds.make()
    reads = {str(each) for each in TYPES if each not in OF_COMPONENTS}
    assert {str(each) for each in world.cluster.listed} == reads
    controller = {
        each: placement_objects.role_permissions(placement_objects.OptionalFeatures(reports=each))[names.CONTROLLER]
        for each in (True, False)
    }
    granted = {
        f"{access.resource}.{access.group}" if access.group else access.resource
        for access in grants(controller[True].cluster)
        if access.verb == "list" and not access.name
    }
    assert reads <= granted
    added = set(map(str, grants(controller[True].cluster))) - set(map(str, grants(controller[False].cluster)))
    assert {each.partition(" ")[0] for each in added} == {"list"}


@pytest.mark.req("RP-031")
async def test_secrets_are_read_by_the_names_that_workloads_give_and_answers_count_there_alone():
    world = ReportGeneratorWorld(deployment("a", OWN, "team", ["pull"]), deployment("b", OWN, "other"))
    world.secrets.put("team", "pull", "registry.example")
    world.registry.set(OWN, "linux/amd64", "linux/arm64")
    world.registry.needs_credentials.add("registry.example/acme/own:1")
    assert await world.sums() == {
        ("amd64", "ready"): (1.0, 1),
        ("amd64", "unknown"): (1.0, 1),
        ("arm64", "ready"): (1.0, 1),
        ("arm64", "unknown"): (1.0, 1),
    }
    assert set(world.secrets.gets) == {("team", "pull")}


@pytest.mark.req("RP-031")
async def test_with_secret_access_none_no_secret_is_read():
    world = ReportGeneratorWorld(deployment("a", OWN, "team", ["pull"]), images={"secretAccess": "none"})
    world.registry.needs_credentials.add("registry.example/acme/own:1")
    assert ("arm64", "unknown") in await world.sums()
    assert not world.secrets.gets


@pytest.mark.req("RP-040")
async def test_an_image_that_placement_knows_is_not_asked_for_again():
    world = ReportGeneratorWorld(deployment("web", BOTH), deployment("more", BOTH, "other"))
    world.registry.know(BOTH, "linux/amd64", "linux/arm64")
    assert (await world.sums())["arm64", "ready"] == (2.0, 2)
    assert world.registry.asked == []


@pytest.mark.req("RP-030")
async def test_a_registry_that_is_low_on_its_limit_is_left_to_the_pods():
    world = ReportGeneratorWorld(deployment("web", BOTH))
    world.registry.low.add("quay.io")
    assert (await world.sums())["arm64", "unknown"] == (1.0, 1)
    assert (world.registry.asked, world.cluster.stored["complete"]) == ([], False)


@pytest.mark.req("RP-030")
async def test_slow_registries_end_a_round_and_the_rest_counts_as_unknown():
    """Eight images at a time, 20 seconds each: after five minutes nobody else is asked."""
    images = [f"slow.example/app{number}:1" for number in range(200)]
    world = ReportGeneratorWorld(*(deployment(f"d{number}", image) for number, image in enumerate(images)))
    for image in images:
        world.registry.set(image, "linux/arm64")
    world.registry.seconds = 20.0
    task = asyncio.create_task(world.sums())
    while not task.done():
        await asyncio.sleep(0.001)  # the calculations are in a thread
        if world.clock.sleepers:
            await world.clock.run(20)
    sums = await task
    asked = len(world.registry.asked)
    assert 8 * LOOKUPS / 20 <= asked <= 8 * LOOKUPS / 20 + 16
    assert sums["arm64", "unknown"][1] == 200 - asked
    assert world.cluster.stored["complete"] is False


@pytest.mark.req("RP-031")
@pytest.mark.parametrize("resource", [NODES], ids=str)
async def test_without_the_right_to_list_nodes_nothing_is_written(resource):
    """Between a change of the policy and the operator's answer to it."""
    world = ReportGeneratorWorld(deployment("web", BOTH))
    world.cluster.refused[resource] = Forbidden(403, reason="Forbidden", verb="list", resource=str(resource))
    with pytest.raises(ReportNotReady, match=f"not allowed to list {resource}"):
        await world.rounds.make()
    assert world.cluster.patches == 0


@pytest.mark.req("RP-030")
async def test_before_the_operator_has_made_the_config_map_nothing_is_read():
    world = ReportGeneratorWorld(deployment("web", BOTH))
    world.cluster.map = None
    with pytest.raises(ReportNotReady, match="ConfigMap polyarch-system/polyarch-report is not there") as raised:
        await world.rounds.make()
    assert (raised.value.again, world.cluster.listed) == (SOON, [])


@pytest.mark.req("RP-050")
async def test_a_cluster_without_nodes_is_told_and_not_written():
    world = ReportGeneratorWorld(deployment("web", BOTH))
    world.cluster.objects[NODES] = []
    with pytest.raises(ReportNotReady, match="no node names its architecture") as raised:
        await world.rounds.make()
    assert (raised.value.again, world.registry.asked) == (LATER, []), "everything was listed: not again every 5 s"
