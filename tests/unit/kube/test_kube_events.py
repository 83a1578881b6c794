"""Events reach the API server, repetitions as series, and nobody waits for them."""

import asyncio

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.errors import ConfigurationError, ConnectionFailed, Forbidden, Unavailable
from polyarch.kube.events import NOTE_BYTES, REMEMBERED, SERIES_WINDOW, Recorder, Regarding
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import EVENTS

pytestmark = pytest.mark.req("PL-710")

POD = Regarding("v1", "Pod", "shop", "web-1", "uid-1")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=0)


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def recorder(api, clock, metrics):
    recorder = Recorder(
        api, controller="polyarch.dev/placement-controller", instance="ppc-0", clock=clock, size=10, metrics=metrics
    )
    task = asyncio.create_task(recorder.run())
    yield recorder
    task.cancel()
    await asyncio.wait([task])


def report(recorder: Recorder, regarding: Regarding = POD, note: str = "amd64, arm64", **options) -> None:
    defaults = {"type": "Normal", "reason": "ArchAwarePredicateSet", "action": "Place"}
    recorder.event(regarding, note=note, **(defaults | options))


def events(api: FakeApi) -> list[dict]:
    return [document for (resource, _, _), document in api.objects.items() if resource is EVENTS]


@pytest.mark.req("KR-031")
async def test_an_event_is_posted_with_everything_people_look_for(api, clock, recorder):
    report(recorder, type="Warning", related=Regarding("v1", "Node", "", "n1"))
    await clock.settle()
    (event,) = events(api)
    assert event["metadata"]["name"].startswith("web-1.")
    del event["metadata"]
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "eventTime": "2025-01-01T00:00:00.000000Z",
        "reportingController": "polyarch.dev/placement-controller",
        "reportingInstance": "ppc-0",
        "type": "Warning",
        "reason": "ArchAwarePredicateSet",
        "action": "Place",
        "note": "amd64, arm64",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web-1", "uid": "uid-1"},
        "related": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    }


@pytest.mark.req("KR-031")
async def test_reporting_never_waits_for_the_api_server(api, clock, recorder):
    async def stuck(verb, resource, name):
        await asyncio.Event().wait()

    api.hook = stuck
    for number in range(100):
        report(recorder, Regarding("v1", "Pod", "shop", f"web-{number}"))
    assert events(api) == []


@pytest.mark.req("KR-031")
async def test_repetitions_become_one_series(api, clock, recorder):
    report(recorder)
    await clock.run(1)
    for _ in range(9):
        report(recorder)
        await clock.run(1)
    await clock.run(60)
    (event,) = events(api)
    assert event["series"] == {"count": 10, "lastObservedTime": "2025-01-01T00:00:09.000000Z"}
    assert event["eventTime"] == "2025-01-01T00:00:00.000000Z"
    assert [verb for verb, _, _ in api.requests] == ["create", "patch"]


@pytest.mark.req("KR-031")
async def test_a_long_series_costs_one_request_a_minute(api, clock, recorder):
    for _ in range(600):
        report(recorder)
        await clock.run(1)
    assert len(api.requests) <= 11
    await clock.run(60)
    assert events(api)[0]["series"]["count"] == 600


@pytest.mark.req("KR-031")
async def test_occurrences_far_apart_are_separate_events(api, clock, recorder):
    report(recorder)
    await clock.run(400)
    report(recorder)
    await clock.run(1)
    assert len(events(api)) == 2
    assert all("series" not in event for event in events(api))


@pytest.mark.req("KR-031")
@pytest.mark.parametrize(
    "other",
    [
        pytest.param({"note": "s390x"}, id="another note"),
        pytest.param({"reason": "PolyarchPodHeld"}, id="another reason"),
        pytest.param({"type": "Warning"}, id="another type"),
        pytest.param({"regarding": Regarding("v1", "Pod", "shop", "web-1", "uid-2")}, id="another pod of that name"),
    ],
)
async def test_only_what_is_the_same_is_counted_together(api, clock, recorder, other):
    report(recorder)
    report(recorder, **other)
    await clock.run(1)
    assert len(events(api)) == 2


@pytest.mark.req("KR-031")
async def test_repetitions_before_the_first_post_are_in_it(api, clock, recorder):
    for _ in range(3):
        report(recorder)
    await clock.run(1)
    assert events(api)[0]["series"]["count"] == 3
    assert len(api.requests) == 1


@pytest.mark.req("KR-031")
async def test_a_namespace_with_thousands_of_events_takes_neither_room_nor_turns_of_others(api, clock):
    """While the API server does not answer, and when it does again."""
    held, order = asyncio.Event(), []

    class Slow(FakeApi):
        async def create(self, resource, document, **options):
            await held.wait()
            order.append(document["regarding"]["namespace"])
            return await super().create(resource, document, **options)

    api = Slow()
    recorder = Recorder(api, controller="polyarch.dev/placement-controller", instance="ppc-0", clock=clock, size=100)
    task = asyncio.create_task(recorder.run())
    for number in range(500):
        report(recorder, Regarding("v1", "Pod", "evil", f"pod-{number}", f"uid-{number}"))
    await clock.settle()
    assert recorder.dropped == 400
    for number in range(2):
        report(recorder, Regarding("v1", "Pod", "modest", f"pod-{number}", f"uid-{number}"))
    assert recorder.dropped == 400
    held.set()
    await clock.settle()
    assert order.index("modest") <= 5
    assert order.count("modest") == 2
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.req("KR-031")
async def test_what_exceeds_the_bound_is_dropped_and_counted(api, clock, recorder, metrics):
    for number in range(15):
        report(recorder, note=f"note {number}")
    assert recorder.dropped == 5
    assert metrics.registry.get_sample_value("polyarch_events_dropped_total") == 5
    await clock.run(1)
    assert len(events(api)) == 10
    report(recorder, note="room again")
    await clock.run(1)
    assert len(events(api)) == 11


@pytest.mark.req("KR-031")
async def test_a_failure_that_may_pass_is_tried_again(api, clock, recorder):
    failures = [Unavailable(503), ConnectionFailed("reset")]

    async def fail(verb, resource, name):
        if failures:
            raise failures.pop()

    api.hook = fail
    report(recorder)
    await clock.run(10)
    assert len(events(api)) == 1
    assert recorder.dropped == 0


@pytest.mark.req("KR-031")
async def test_the_restart_of_an_api_server_costs_no_event(api, clock, recorder):
    back = clock.monotonic() + 14

    async def away(verb, resource, name):
        if clock.monotonic() < back:
            raise ConnectionFailed("refused", sent=False)

    api.hook = away
    report(recorder)
    await clock.run(35)
    assert len(events(api)) == 1
    assert recorder.dropped == 0


@pytest.mark.req("KR-031")
async def test_an_answer_that_was_lost_does_not_double_the_event(api, clock, recorder):
    create, lost = api.create, [True]
    calls: list[object] = []

    async def lossy(*args, **kwargs):
        calls.append(args)
        result = await create(*args, **kwargs)
        if lost:
            lost.clear()
            raise ConnectionFailed("reset", sent=True)
        return result

    api.create = lossy
    report(recorder)
    await clock.run(600)
    assert len(events(api)) == 1
    assert recorder.dropped == 0
    assert len(calls) == 2, "known to be there, so nobody asks again"


@pytest.mark.req("KR-031")
@pytest.mark.parametrize(
    ("error", "tries"),
    [
        pytest.param(Forbidden(403, message="namespace is being terminated"), 1, id="refused"),
        pytest.param(Unavailable(503), 5, id="away for long"),
        pytest.param(ConfigurationError("/etc/kube", "users[me].exec", "ended with 1"), 5, id="no credentials"),
    ],
)
async def test_what_the_server_does_not_take_is_dropped_after_a_bounded_number_of_tries(
    api, clock, recorder, error, tries
):
    async def fail(verb, resource, name):
        raise error

    api.hook = fail
    report(recorder)
    await clock.run(600)
    assert len(api.requests) == tries
    assert recorder.dropped == 1
    api.hook = None
    report(recorder)
    await clock.run(1)
    assert len(events(api)) == 1, "the next occurrence is told again"


@pytest.mark.req("KR-031")
async def test_an_api_server_that_never_answers_is_asked_five_times(api, clock, recorder):
    """What is never answered does not fill the queue for good, so that no later event has room."""

    async def hang(verb, resource, name):
        await asyncio.Event().wait()

    api.hook = hang
    report(recorder)
    await clock.run(600)
    assert len(api.requests) == 5
    assert recorder.dropped == 1


@pytest.mark.req("KR-031")
async def test_a_series_whose_event_has_expired_begins_anew(api, clock, recorder):
    report(recorder)
    await clock.run(1)
    api.objects.clear()
    report(recorder)
    await clock.run(61)
    (event,) = events(api)
    assert event["series"]["count"] == 2


@pytest.mark.req("KR-031")
async def test_several_are_posted_at_the_same_time(api, clock, recorder):
    at_once, most = 0, 0

    async def slow(verb, resource, name):
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await clock.sleep(1)
        at_once -= 1

    api.hook = slow
    for number in range(8):
        report(recorder, note=f"{number}")
    await clock.run(5)
    assert most == 4
    assert len(events(api)) == 8


async def test_the_end_posts_what_is_noted_series_included(api, clock):
    recorder = Recorder(api, controller="polyarch.dev/x", instance="i", clock=clock)
    task = asyncio.create_task(recorder.run())
    report(recorder)
    await clock.run(1)
    report(recorder)
    report(recorder, note="other")
    await recorder.close(5)
    await task
    assert sorted(event.get("series", {}).get("count", 1) for event in events(api)) == [1, 2]


async def test_the_end_does_not_wait_for_an_api_server_that_is_away(api, clock):
    recorder = Recorder(api, controller="polyarch.dev/x", instance="i", clock=clock)

    async def stuck(verb, resource, name):
        await asyncio.Event().wait()

    api.hook = stuck
    task = asyncio.create_task(recorder.run())
    report(recorder)
    closing = asyncio.create_task(recorder.close(3))
    await clock.run(3)
    await closing
    assert recorder.dropped == 1
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.req("KR-031")
async def test_what_an_api_server_that_is_away_does_not_take_at_the_end_is_counted(api, clock):
    recorder = Recorder(api, controller="polyarch.dev/x", instance="i", clock=clock)

    async def away(verb, resource, name):
        raise ConnectionFailed("refused", sent=False)

    api.hook = away
    task = asyncio.create_task(recorder.run())
    report(recorder)
    await clock.run(0)
    await recorder.close(3)
    await task
    assert recorder.dropped == 1


@pytest.mark.req("KR-031")
async def test_events_are_such_that_the_api_server_takes_them(api, clock, recorder):
    report(recorder, Regarding("rbac.authorization.k8s.io/v1", "ClusterRole", "", "system:node"), note="ü" * 2000)
    report(recorder, Regarding("v1", "Pod", "shop", "p" * 253))
    await clock.run(1)
    role, pod = events(api)
    assert role["metadata"]["namespace"] == "default"
    assert role["metadata"]["name"].startswith("clusterrole.")
    assert len(role["note"].encode()) <= NOTE_BYTES
    assert len(pod["metadata"]["name"]) <= 253


@pytest.mark.req("KR-031")
async def test_the_memory_for_repetitions_is_bounded(api, clock):
    recorder = Recorder(api, controller="polyarch.dev/x", instance="i", clock=clock)
    task = asyncio.create_task(recorder.run())
    for batch in range(12):
        for number in range(500):
            report(recorder, note=f"{batch} {number}")
        await clock.settle(1000)
    assert recorder.dropped == 0
    assert len(recorder._series) <= REMEMBERED
    task.cancel()
    await asyncio.wait([task])


@pytest.mark.req("KR-031")
async def test_a_series_is_forgotten_when_it_can_go_on_no_more(api, clock, recorder):
    """Else a process keeps the last 4 096 notes of up to a kilobyte, of pods that are gone for hours."""
    for number in range(300):
        report(recorder, Regarding("v1", "Pod", "shop", f"web-{number}", f"uid-{number}"))
        await clock.run(60)
    assert len(recorder._series) <= SERIES_WINDOW / 60 + 1
    assert len(events(api)) == 300


@pytest.mark.req("KR-031")
async def test_the_recorders_of_two_roles_in_one_process_have_their_own_metrics(api, clock):
    """Both were called "events", and the depth of one queue hid that of the other."""
    metrics = Metrics()
    for role in ("placement-controller", "taints"):
        recorder = Recorder(api, controller=f"polyarch.dev/{role}", instance="pod-1", clock=clock, metrics=metrics)
        for number in range(3 if role == "taints" else 1):
            recorder.event(POD, type="Normal", reason="Told", note=f"{number}", action="Telling")
    depths = {
        name: metrics.registry.get_sample_value("workqueue_depth", {"name": name})
        for name in ("events-placement-controller", "events-taints")
    }
    assert depths == {"events-placement-controller": 1, "events-taints": 3}
