"""Images of workload templates are read before their pods are created, and nobody is disturbed by it."""

import asyncio
import random
from collections import Counter

import msgspec
import pytest
from manual_clock import ManualClock
from placement_world import OPERATOR, FakeInspector, FakeSecrets, FakeWatches, facts_of, placement_metrics, policy

from polyarch.images.pull_secrets import PullSecretNames, PullSecrets
from polyarch.images.resolver import LowPriorityLookups
from polyarch.oci.reference import parse
from polyarch.placement import warmup
from polyarch.placement.warmup import CONCURRENT_LOOKUPS, CronJob, WarmUp, WarmUpImage, WarmUpQueue, Workload, pod_of

DEPLOYMENTS = "deployments"


def template(*images, pull="IfNotPresent", secrets=(), inits=()):
    def containers(several):
        return [{"name": f"c{at}", "image": each, "imagePullPolicy": pull} for at, each in enumerate(several)]

    spec = {"containers": containers(images), "initContainers": containers(inits)}
    return {"spec": spec | ({"imagePullSecrets": [{"name": each} for each in secrets]} if secrets else {})}


def deployment(name, *images, namespace="team", **options):
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"template": template(*images, **options)}}


def cron_job(name, *images):
    document = deployment(name, *images)
    return {**document, "spec": {"jobTemplate": {"spec": document["spec"]}}}


class WarmupWorld:
    def __init__(self, **warm):
        self.clock = ManualClock()
        self.watches = FakeWatches()
        self.facts = facts_of(self.watches, self.clock, policy={"warmUp": {"enabled": True, **warm}})
        self.registry = FakeInspector(self.clock)
        secrets = PullSecrets(FakeSecrets(), self.clock)
        _, metrics = placement_metrics()
        self.warm_up = WarmUp(
            informers=self.watches,
            facts=self.facts,
            inspector=self.registry,
            secrets=secrets,
            images=LowPriorityLookups(self.registry, secrets, self.clock, metrics.lookups),
            clock=self.clock,
        )
        self.task = None

    async def start(self, *documents):
        """``documents``: the first list of Deployments."""
        self.task = asyncio.create_task(self.warm_up.run())
        await self.clock.settle()
        if DEPLOYMENTS in self.watches.informers:
            self.watches[DEPLOYMENTS].list(*documents)
        await self.clock.settle()

    def asked(self):
        return [image.rpartition("/")[2] for image in self.registry.asked]

    async def end(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)


@pytest.fixture
async def make():
    made = []

    def world(**warm):
        made.append(WarmupWorld(**warm))
        return made[-1]

    yield world
    for each in made:
        await each.end()


@pytest.mark.req("PL-380")
async def test_images_of_templates_are_read_at_the_pace_of_the_policy(make):
    """Each once, whoever has it."""
    world = make(imagesPerMinute=30)
    for number in range(40):
        world.registry.set(f"r.example/app:{number}", "linux/arm64")
    several = [deployment(f"d{number}", f"r.example/app:{number}", "r.example/app:0") for number in range(40)]
    await world.start(*several)
    await world.clock.run(59)
    assert len(world.asked()) == 30
    await world.clock.run(60)
    assert sorted(world.asked()) == sorted(f"app:{number}" for number in range(40))


@pytest.mark.req("PL-380")
async def test_new_and_changed_templates_come_first(make):
    """Their pods are about to be created."""
    world = make(imagesPerMinute=60)
    await world.start(*(deployment(f"d{number}", f"r.example/old:{number}") for number in range(20)))
    await world.clock.run(5)
    world.watches[DEPLOYMENTS].put(deployment("new", "r.example/new:1"))
    world.watches[DEPLOYMENTS].put(deployment("d1", "r.example/changed:1"))
    await world.clock.run(2)
    assert {"new:1", "changed:1"} <= set(world.asked())
    assert len(world.asked()) < 10


@pytest.mark.req("PL-380")
async def test_a_change_of_status_asks_for_nothing(make):
    world = make()
    await world.start()
    for _ in range(3):
        world.watches[DEPLOYMENTS].put(deployment("web", "r.example/app:1"))
        await world.clock.run(700)
    assert world.asked() == ["app:1"]


@pytest.mark.req("PL-380", "PL-410")
async def test_known_images_are_not_asked_for(make):
    """A new leader has them from the former one."""
    world = make()
    world.registry.know("r.example/app:1", "linux/arm64")
    await world.start(deployment("web", "r.example/app:1"))
    await world.clock.run(60)
    assert world.asked() == []


@pytest.mark.req("PL-380")
async def test_a_failure_is_left_alone_for_ten_minutes(make):
    """Whatever changes meanwhile."""
    world = make()
    await world.start(deployment("web", "r.example/missing:1"))
    await world.clock.run(10)
    assert world.asked() == ["missing:1"]
    for number in range(5):
        world.watches[DEPLOYMENTS].put(deployment(f"other-{number}", "r.example/missing:1"))
        await world.clock.run(110)
    assert world.asked() == ["missing:1"]
    await world.clock.run(60)
    world.watches[DEPLOYMENTS].put(deployment("again", "r.example/missing:1"))
    await world.clock.run(10)
    assert world.asked() == ["missing:1"] * 2


@pytest.mark.req("PL-380")
async def test_a_tag_that_every_pod_checks_anew_is_asked_for_once(make):
    """Never again for ``Always``."""
    world = make()
    world.registry.set("r.example/app:1", "linux/arm64")
    await world.start()
    for number in range(3):
        world.watches[DEPLOYMENTS].put(deployment(f"web-{number}", "r.example/app:1", pull="Always"))
        await world.clock.run(900)
    assert world.asked() == ["app:1"]


@pytest.mark.req("PL-380", "RG-063")
@pytest.mark.parametrize("state", ["busy", "low"])
async def test_a_host_that_is_paused_or_low_on_its_rate_limit_waits_and_the_others_do_not(make, state):
    world = make()
    getattr(world.registry, state).add("limited.example")
    await world.start(deployment("web", "limited.example/a:1", "r.example/b:1"))
    await world.clock.run(120)
    assert world.asked() == ["b:1"]
    getattr(world.registry, state).clear()
    await world.clock.run(60)
    assert world.asked() == ["b:1", "a:1"]


@pytest.mark.req("PL-380")
async def test_a_registry_that_hangs_holds_few_look_ups(make):
    """Four at a time, each with an end."""
    world = make(imagesPerMinute=600)
    world.registry.seconds = 1000.0
    await world.start(deployment("web", *(f"hangs.example/a:{number}" for number in range(50))))
    await world.clock.run(20)
    assert world.registry.under_way == 4
    await world.clock.run(20)
    assert len(world.asked()) == 8


@pytest.mark.req("PL-380", "PL-852")
async def test_pull_secrets_are_those_of_the_template(make):
    """The same image by other credentials is another look-up."""
    world = make()
    world.registry.set("r.example/app:1", "linux/arm64")
    world.registry.needs_credentials.add(parse("r.example/app:1").canonical)
    await world.start(
        deployment("a", "r.example/app:1", namespace="one", secrets=["pull"]),
        deployment("b", "r.example/app:1", namespace="two", secrets=["pull"]),
        deployment("c", "r.example/app:1", namespace="three"),
        deployment("d", "r.example/app:1", namespace="four"),
    )
    await world.clock.run(60)
    assert world.asked() == ["app:1"] * 3


@pytest.mark.req("PL-201", "PL-380")
async def test_namespaces_that_are_never_placed_are_left_alone(make):
    world = make()
    world.watches["placementpolicies"].put(policy(warmUp={"enabled": True}, excludedNamespaces=["vendor-*"]))
    await world.start(
        *(
            deployment(f"d{number}", f"r.example/app:{number}", namespace=namespace)
            for number, namespace in enumerate([OPERATOR, "kube-system", "vendor-x", "team"])
        )
    )
    await world.clock.run(60)
    assert world.asked() == ["app:3"]


@pytest.mark.req("PL-044", "PL-380", "PL-550")
async def test_off_means_that_no_kind_is_watched(make):
    """And switching it on and off needs no restart."""
    world = make(enabled=False)
    await world.start()
    assert DEPLOYMENTS not in world.watches.informers
    world.watches["placementpolicies"].put(policy(warmUp={"enabled": True, "kinds": ["Deployment"]}))
    await world.clock.run(1)
    assert world.watches[DEPLOYMENTS].running
    assert "statefulsets" not in world.watches.informers
    world.watches["placementpolicies"].put(policy(warmUp={"enabled": False}))
    await world.clock.run(1)
    assert not world.watches[DEPLOYMENTS].running
    assert world.warm_up.queued == 0


@pytest.mark.req("PL-380", "PL-530")
async def test_who_leads_no_more_watches_no_more(make):
    world = make()
    await world.start()
    assert world.watches[DEPLOYMENTS].running
    await world.end()
    assert not world.watches[DEPLOYMENTS].running


@pytest.mark.req("PL-854")
async def test_the_line_is_bounded(make, monkeypatch):
    """What the first list has too much is dropped; its pods ask for it themselves."""
    monkeypatch.setattr(warmup, "MAX_QUEUED", 10)
    world = make(imagesPerMinute=1)
    await world.start(deployment("many", *(f"r.example/old:{number}" for number in range(50))))
    world.watches[DEPLOYMENTS].put(deployment("new", "r.example/new:1"))
    assert world.warm_up.queued <= 10
    await world.clock.run(120)
    assert "new:1" in world.asked()


@pytest.mark.req("PL-380", "PL-810")
@pytest.mark.parametrize(
    ("model", "document"), [(Workload, deployment("w", "a:1")), (CronJob, cron_job("w", "a:1"))], ids=["others", "cron"]
)
def test_of_a_workload_only_images_secrets_and_namespace_are_kept(model, document):
    document["metadata"] |= {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": "x" * 10_000}}
    workload = msgspec.convert(document, model)
    assert workload.metadata.annotations is None
    assert workload.metadata.key == ("team", "w")
    pod = pod_of(workload)
    assert pod.metadata.namespace == "team"
    assert [each.image for each in pod.spec.containers] == ["a:1"]


@pytest.mark.req("PL-380", "PL-851")
async def test_namespaces_take_turns_and_one_whose_images_hang_holds_no_others_up(make):
    """Neither its many images, which come first, nor the places that those which hang hold."""
    world = make(imagesPerMinute=600)
    world.registry.seconds = 3600.0
    hanging = [f"hangs.example/old:{number}" for number in range(200)]
    await world.start(deployment("evil", *hanging, namespace="evil"))
    await world.clock.run(2)
    assert len(world.asked()) == CONCURRENT_LOOKUPS.shared
    world.registry.seconds = 0.0
    for number in range(20):
        world.registry.set(f"r.example/app:{number}", "linux/arm64")
        put = deployment(f"d{number}", f"r.example/app:{number}", namespace="team" if number % 2 else "other")
        world.watches[DEPLOYMENTS].put(put)
    await world.clock.run(5)
    assert {f"app:{number}" for number in range(20)} <= set(world.asked())


@pytest.mark.req("PL-380", "PL-854")
async def test_a_namespace_with_more_images_than_are_queued_pushes_out_its_own(make, monkeypatch):
    monkeypatch.setattr(warmup, "MAX_QUEUED", 50)
    world = make(imagesPerMinute=600)
    names = [f"r.example/app:{number}" for number in range(5)]
    for each in names:
        world.registry.set(each, "linux/arm64")
    many = deployment("many", *(f"r.example/old:{number}" for number in range(500)), namespace="evil")
    await world.start(deployment("few", *names), many)
    await world.clock.run(20)
    assert {f"app:{number}" for number in range(5)} <= set(world.asked())


@pytest.mark.req("PL-380", "PL-851")
async def test_a_namespace_with_many_images_takes_no_more_of_the_pace_than_another(make):
    world = make(imagesPerMinute=60)
    many = [f"r.example/old:{number}" for number in range(200)]
    few = [f"r.example/app:{number}" for number in range(5)]
    for each in (*many, *few):
        world.registry.set(each, "linux/arm64")
    await world.start(deployment("many", *many, namespace="evil"), deployment("few", *few))
    await world.clock.run(15)
    assert {f"app:{number}" for number in range(5)} <= set(world.asked())


@pytest.mark.req("PL-380", "PL-851", "PL-854")
@pytest.mark.parametrize("place", ["paused", "first list", "changed"])
async def test_images_of_one_namespace_that_fill_the_queue_drop_none_of_another(make, monkeypatch, place):
    """Also those whose host is paused, and those of templates that change all the time."""
    monkeypatch.setattr(warmup, "MAX_QUEUED", 50)
    world = make(imagesPerMinute=60)
    names = [f"r.example/app:{number}" for number in range(10)]
    for each in names:
        world.registry.set(each, "linux/arm64")
    if place == "paused":
        world.registry.busy.add("evil.example")
    many = deployment("evil", *(f"evil.example/a:{number}" for number in range(200)), namespace="evil")
    await world.start(*([many] if place == "first list" else []), deployment("old", *names[:8]))
    for number in range(3 if place != "first list" else 0):
        images = (f"evil.example/{number}:{at}" for at in range(100))
        world.watches[DEPLOYMENTS].put(deployment(f"evil-{number}", *images, namespace="evil"))
        await world.clock.run(3)
    world.watches[DEPLOYMENTS].put(deployment("web", *names[8:]))
    assert world.warm_up.queued <= 50
    await world.clock.run(120)
    assert {f"app:{number}" for number in range(10)} <= set(world.asked())


@pytest.mark.req("PL-854")
def test_the_image_that_is_dropped_is_found_by_its_namespace_without_a_look_at_all():
    """Beside a count of all: any order of additions and removals keeps the longest."""
    chance = random.Random(7)
    queue, model = WarmUpQueue(), {}
    for number in range(3000):
        namespace = f"n{int(chance.paretovariate(1)) % 12}"
        what = chance.random()
        if what < 0.6:
            image = WarmUpImage(parse(f"r.example/a:{chance.randrange(400)}"), PullSecretNames(namespace, ("s",)))
            queue.add(image)
            model[image.key] = namespace
        elif what < 0.7 and model:
            key = chance.choice(list(model))
            queue.drop(key)
            del model[key]
        elif what < 0.8 and (image := queue.next(lambda name: name != "n1")) is not None:
            del model[image.key]
        elif what > 0.998:
            assert {image.key for image in queue.take_all()} == set(model)
            model.clear()
        elif model:
            most = max(Counter(model.values()).values())
            queue.drop_one()
            gone = next(key for key in model if key not in queue)
            assert Counter(model.values())[model.pop(gone)] == most
        assert len(queue) == len(model)
        assert queue.longest == max(Counter(model.values()).values(), default=0), number
