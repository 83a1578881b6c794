"""Parked pods share attempts, are woken when it matters, and cause no more requests than promised."""

import pytest
from manual_clock import ManualClock
from placement_world import failed, resolved

from polyarch.images.backoff import ALL_ALIKE, Backoff
from polyarch.images.pull_secrets import PodCredentials, PullSecretNames
from polyarch.images.waiting import ImageLookupKey, PendingImage, WaitingPods
from polyarch.objects import ObjectKey
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.reference import parse

pytestmark = pytest.mark.req("PL-332", "PL-333")


class Room:
    """A waiting room whose look-ups are attempted by the test."""

    def __init__(self, retries: Backoff = ALL_ALIKE) -> None:
        self.clock = ManualClock(start=0)
        self.due: dict[ImageLookupKey, float] = {}
        self.woken: list[ObjectKey] = []
        self.waiting = WaitingPods(
            self.clock, schedule=self._schedule, wake=self.woken.append, retries=retries, uniform=lambda: 0.5
        )

    def _schedule(self, key: ImageLookupKey, delay: float) -> None:
        self.due[key] = min(self.due.get(key, float("inf")), self.clock.monotonic() + delay)

    def want(self, image: str, credential: str = "", **options) -> PendingImage:
        reference = parse(image)
        credentials = PodCredentials(PullSecretNames("team", ()), credential, None, ())
        return PendingImage(ImageLookupKey(reference.canonical, credential), reference, credentials, **options)

    def park(self, pod: str, *wants: PendingImage | str) -> None:
        self.waiting.park(
            ObjectKey("team", pod), [self.want(each) if isinstance(each, str) else each for each in wants]
        )

    def attempts(self) -> list[ImageLookupKey]:
        """What is due now, begun."""
        now = self.clock.monotonic()
        due = [key for key, at in self.due.items() if at <= now]
        for key in due:
            del self.due[key]
        return [key for key in due if self.waiting.start(key) is not None]

    def fail(self, key: ImageLookupKey, code: str = "network", **options) -> None:
        self.waiting.finish(key, failed(parse(key.reference), code, **options))

    def succeed(self, key: ImageLookupKey) -> None:
        self.waiting.finish(key, resolved(parse(key.reference), "linux/amd64", checked_at=self.clock.monotonic()))

    def next_in(self, key: ImageLookupKey) -> float:
        return self.due[key] - self.clock.monotonic()


@pytest.fixture
def room():
    return Room()


APP = ImageLookupKey("docker.io/library/app:1", "")


@pytest.mark.req("PL-331", "PL-403")
def test_five_hundred_pods_cause_one_attempt(room):
    for number in range(500):
        room.park(f"pod-{number}", "app:1")
    assert room.attempts() == [APP]
    assert room.attempts() == []
    room.succeed(APP)
    assert len(room.woken) == 500


@pytest.mark.req("PL-331")
def test_an_image_is_attempted_for_each_credential(room):
    room.park("a", room.want("app:1", "one"))
    room.park("b", room.want("app:1", "two"))
    assert {key.credential for key in room.attempts()} == {"one", "two"}


@pytest.mark.req("PL-331")
def test_delays_double_up_to_fifteen_seconds(room):
    room.park("a", "app:1")
    delays = []
    for _ in range(7):
        room.clock.advance(room.next_in(APP))
        assert room.attempts() == [APP]
        room.fail(APP)
        delays.append(room.next_in(APP))
    assert delays == [1, 2, 4, 8, 15, 15, 15]


@pytest.mark.req("PL-331")
def test_a_registry_that_says_when_is_not_asked_before(room):
    room.park("a", "app:1")
    room.attempts()
    room.fail(APP, "rate-limited", retry_after=40.0)
    assert room.next_in(APP) == 40
    room.clock.advance(20)
    room.park("b", "app:1")
    assert room.next_in(APP) == 20


@pytest.mark.req("PL-331")
def test_retries_pass_over_what_is_remembered(room):
    room.park("a", "app:1")
    assert room.waiting.start(APP).fresh is False
    room.fail(APP, "not-found")
    room.clock.advance(2)
    ask = room.waiting.start(APP)
    assert ask.fresh
    assert ask.failed_with == "absent"


@pytest.mark.req("PL-331")
@pytest.mark.parametrize(("seconds", "due"), [(4, 1), (5, 0), (7, 0)])
def test_a_new_pod_causes_an_attempt_five_seconds_after_the_last_one(room, seconds, due):
    """However long the backoff has become for the pods before it."""
    room.park("a", "app:1")
    for wait in (0, 1, 2, 4):
        room.clock.advance(wait)
        assert room.attempts() == [APP]
        room.fail(APP)
    assert room.next_in(APP) == 8
    room.clock.advance(seconds)
    room.park("b", "app:1")
    assert room.next_in(APP) == due


@pytest.mark.req("PL-331")
def test_a_success_on_a_host_wakes_the_other_images_within_a_second(room):
    other = ImageLookupKey("docker.io/library/other:1", "")
    elsewhere = ImageLookupKey("quay.io/team/app:1", "")
    room.park("a", "app:1", "other:1", "quay.io/team/app:1")
    for _ in range(5):
        room.clock.advance(16)
        for key in room.attempts():
            room.fail(key)
    room.clock.advance(16)
    assert set(room.attempts()) == {APP, other, elsewhere}
    room.fail(other)
    room.fail(elsewhere)
    room.succeed(APP)
    assert room.next_in(other) == 0.5
    assert room.next_in(elsewhere) == 15


@pytest.mark.req("PL-331")
def test_images_that_do_not_exist_are_not_hurried_by_a_success_on_their_host(room):
    missing = ImageLookupKey("docker.io/library/missing:1", "")
    room.park("a", "app:1", "missing:1")
    room.attempts()
    room.fail(missing, "not-found")
    room.succeed(APP)
    assert room.next_in(missing) == 1


@pytest.mark.req("PL-306")
def test_a_busy_host_does_not_make_a_failing_image_be_asked_all_the_time(room):
    broken = ImageLookupKey("docker.io/library/broken:1", "")
    room.park("a", "broken:1")
    attempts = 0
    for number in range(60):
        room.park(f"good-{number}", f"good-{number}:1")
        for key in room.attempts():
            if key == broken:
                attempts += 1
                room.fail(key, "server-error")
            else:
                room.succeed(key)
                room.waiting.leave(ObjectKey("team", f"good-{number}"))
        room.clock.advance(1)
    assert attempts <= 2 * 7, "each regular turn may be followed by one that a success brought about"


@pytest.mark.req("PL-331")
def test_a_success_hurries_the_others_again_after_a_turn_of_their_own(room):
    """A host that comes and goes is followed, one attempt more per regular one."""
    room.park("a", "app:1", "other:1")
    other = ImageLookupKey("docker.io/library/other:1", "")
    hurried = []
    for number in range(6):
        room.clock.advance(15)
        for key in room.attempts():
            if key != APP:
                room.fail(key)
        room.park(f"good-{number}", f"good-{number}:1")
        good = [key for key in room.attempts() if "good" in key.reference]
        room.succeed(good[0])
        hurried.append(room.next_in(other) < 1)
    assert hurried == [True, False] * 3


@pytest.mark.req("PL-330")
def test_pods_are_woken_when_the_class_of_the_failure_changes_and_not_by_each_failure(room):
    room.park("a", "app:1")
    woken = []
    for code in ("network", "timeout", "server-error", "not-found", "not-found"):
        room.clock.advance(20)
        room.attempts()
        room.fail(APP, code)
        woken.append(len(room.woken))
    assert woken == [1, 1, 1, 2, 2]


@pytest.mark.req("PL-334")
def test_images_that_only_held_pods_wait_for_are_asked_every_five_minutes(room):
    room.park("a", room.want("app:1", held=True))
    room.attempts()
    room.fail(APP)
    assert room.next_in(APP) == 300
    room.clock.advance(100)
    room.waiting.hasten(lambda lookup: lookup.held)
    assert room.next_in(APP) == 0.5


@pytest.mark.req("PL-334")
def test_a_pod_that_is_not_held_brings_the_usual_delays_back(room):
    room.park("a", room.want("app:1", held=True))
    room.attempts()
    room.fail(APP)
    room.clock.advance(1)
    room.park("b", "app:1")
    assert room.next_in(APP) == 1


@pytest.mark.req("PL-334")
def test_a_success_with_another_credential_wakes_the_held_pod(room):
    other = ImageLookupKey(APP.reference, "other")
    room.park("a", room.want("app:1", held=True))
    room.attempts()
    room.fail(APP, "unauthorized")
    room.park("b", room.want("app:1", "other"))
    assert room.attempts() == [other]
    room.succeed(other)
    assert room.next_in(APP) == 0.5


@pytest.mark.req("PL-404")
def test_an_answer_from_before_the_pod_is_not_what_always_wants(room):
    room.park("a", "app:1")
    room.attempts()
    room.clock.advance(3)
    room.park("b", room.want("app:1", not_before=3.0))
    room.waiting.finish(APP, resolved(parse("app:1"), "linux/amd64", checked_at=0.0))
    assert room.woken == [ObjectKey("team", "a")]
    assert room.next_in(APP) == 0.25
    room.clock.advance(0.25)
    ask = room.waiting.start(APP)
    assert ask.not_before == 3.0
    room.succeed(APP)
    assert ObjectKey("team", "b") in room.woken


@pytest.mark.req("PL-404")
def test_a_digest_needs_no_later_check(room):
    image = "app@sha256:" + "a" * 64
    room.park("a", room.want(image, not_before=50.0))
    (key,) = room.attempts()
    room.waiting.finish(key, resolved(parse(image), "linux/amd64", checked_at=0.0))
    assert room.woken == [ObjectKey("team", "a")]


@pytest.mark.req("RG-110")
def test_an_answer_that_has_become_old_while_the_pod_waited_is_asked_for_again(room):
    room.park("a", "app:1", "other:1")
    room.attempts()
    room.succeed(APP)
    room.clock.advance(601)
    room.park("a", "app:1", "other:1")
    assert APP in room.attempts()


@pytest.mark.req("PL-302")
def test_a_pod_that_leaves_takes_its_look_up_along_when_nobody_else_waits(room):
    room.park("a", "app:1")
    room.park("b", "app:1")
    room.waiting.leave(ObjectKey("team", "a"))
    assert len(list(room.waiting.lookups())) == 1
    room.waiting.leave(ObjectKey("team", "b"))
    assert list(room.waiting.lookups()) == []
    assert room.attempts() == []


@pytest.mark.req("PL-302")
def test_an_answer_for_pods_that_have_gone_is_dropped(room):
    room.park("a", "app:1")
    room.attempts()
    room.waiting.leave(ObjectKey("team", "a"))
    room.succeed(APP)
    assert list(room.waiting.lookups()) == []
    assert room.woken == []


@pytest.mark.req("PL-302")
def test_a_pod_waits_for_what_it_was_parked_on_last(room):
    room.park("a", "app:1", "other:1")
    room.park("a", "other:1")
    assert [lookup.key.reference for lookup in room.waiting.lookups()] == ["docker.io/library/other:1"]


@pytest.mark.req("PL-330")
def test_an_image_that_does_not_say_its_architecture_is_final_for_who_waits(room):
    room.park("a", "app:1")
    room.attempts()
    room.waiting.finish(APP, Inspection(parse("app:1"), Status.UNKNOWN))
    assert room.woken == [ObjectKey("team", "a")]
    assert room.waiting.find(APP).failure == "unknown"


@pytest.mark.req("PL-335")
def test_a_registry_that_is_away_for_thirty_seconds_is_asked_at_most_twelve_times(room):
    room.park("a", "app:1")
    attempts = 0
    while room.clock.monotonic() < 30:
        for _ in room.attempts():
            attempts += 1
            room.fail(APP)
        room.clock.advance(0.25)
    assert 5 <= attempts <= 12
    assert room.next_in(APP) <= 15


@pytest.mark.req("TN-046")
def test_the_interval_follows_the_class_of_the_failure():
    """A feature has intervals of its own; a new pod of the image still causes an attempt."""
    room = Room(Backoff(most=120.0, every={"absent": 60.0}))
    room.park("a", "app:1")
    assert room.attempts() == [APP]
    room.fail(APP, "not-found")
    assert room.next_in(APP) == 60.0
    room.clock.advance(30)
    room.park("b", "app:1")
    assert room.attempts() == [APP]
    room.fail(APP, "network")
    assert room.next_in(APP) == 2.0
