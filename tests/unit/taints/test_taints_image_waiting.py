"""The look-ups that pods and templates share."""

from types import SimpleNamespace

import pytest
from manual_clock import ManualClock
from placement_world import FakeInspector, FakeSecrets

from polyarch.images.metrics import LookupMetrics
from polyarch.images.pull_secrets import PodCredentials, PullSecretNames, PullSecrets
from polyarch.images.waiting import ImageLookupKey, PendingImage
from polyarch.kube.metrics import Metrics
from polyarch.kube.queue import WorkQueue
from polyarch.objects import ObjectKey
from polyarch.oci.reference import parse
from polyarch.taints.image_waiting import ImageWaiting, waiter_of

pytestmark = pytest.mark.req("TN-046")

APP = parse("quay.io/team/app:1")


def of_one_image() -> SimpleNamespace:
    """Everything around it; nothing runs."""
    clock = ManualClock()
    pods: WorkQueue[ObjectKey] = WorkQueue("pods", clock)
    templates: WorkQueue[ObjectKey] = WorkQueue("templates", clock)
    waiting = ImageWaiting(
        pods=pods,
        templates=templates,
        inspector=FakeInspector(clock),
        secrets=PullSecrets(FakeSecrets(), clock),
        metrics=LookupMetrics(Metrics()),
        is_leading=lambda: True,
        clock=clock,
    )
    credentials = PodCredentials(PullSecretNames("team", ()), "", None, ())  # type: ignore[arg-type]
    want = PendingImage(ImageLookupKey(APP.canonical, ""), APP, credentials)
    return SimpleNamespace(clock=clock, pods=pods, templates=templates, images=waiting, want=want)


@pytest.mark.req("TN-052")
async def test_a_pod_and_a_template_of_one_name_share_a_look_up_and_are_both_woken():
    world = of_one_image()
    waiting, name = world.images.waiting, ObjectKey("team", "agent")
    waiting.park(name, [world.want])
    waiting.park(waiter_of(name), [world.want])
    assert len(list(waiting.lookups())) == 1
    assert world.images.unknown == 1
    assert waiting.start(world.want.key) is not None
    answer = await FakeInspector(world.clock).inspect(APP)
    waiting.finish(world.want.key, answer)
    assert (await world.pods.get(), await world.templates.get()) == (name, name)


@pytest.mark.req("TN-052")
async def test_who_leaves_takes_the_other_one_not_along():
    world = of_one_image()
    waiting, name = world.images.waiting, ObjectKey("team", "agent")
    waiting.park(name, [world.want])
    waiting.park(waiter_of(name), [world.want])
    waiting.leave(name)
    assert world.images.unknown == 1
    waiting.leave(waiter_of(name))
    assert world.images.unknown == 0
