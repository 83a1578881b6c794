"""Whatever comes in whatever order, no parked pod is forgotten and no image is asked twice at once."""

from collections import Counter

import pytest
from hypothesis import settings, strategies
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule
from manual_clock import ManualClock

from polyarch.images.pull_secrets import PodCredentials, PullSecretNames
from polyarch.images.waiting import ImageLookupKey, PendingImage, WaitingPods
from polyarch.objects import ObjectKey
from polyarch.oci.inspection import Entry, Inspection, InspectionError, Status
from polyarch.oci.reference import parse
from polyarch.platforms import Platform

pytestmark = pytest.mark.req("PL-302", "PL-306")

IMAGES = ("app:1", "quay.io/team/app:1", "quay.io/team/other:1")
CODES = ("network", "server-error", "rate-limited", "not-found", "unauthorized", "malformed")
ENTRY = Entry(Platform.parse("linux/amd64"), "sha256:" + "0" * 64)
PODS = strategies.integers(0, 5).map(lambda number: ObjectKey(f"team-{number % 3}", f"pod-{number}"))


class WaitingMachine(RuleBasedStateMachine):
    asking = Bundle("asking")

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock(start=0.0)
        self.scheduled: list[tuple[ImageLookupKey, float]] = []
        self.under_way: set[ImageLookupKey] = set()
        self.waiting = WaitingPods(
            self.clock,
            schedule=lambda key, delay: self.scheduled.append((key, self.clock.monotonic() + delay)),
            wake=lambda pod: None,
            uniform=lambda: 0.5,
        )

    @rule(
        pod=PODS,
        images=strategies.sets(strategies.sampled_from(IMAGES), min_size=1),
        credential=strategies.sampled_from(["", "one"]),
        always=strategies.booleans(),
        held=strategies.booleans(),
    )
    def park(self, pod: ObjectKey, images: set[str], credential: str, *, always: bool, held: bool) -> None:
        now = self.clock.monotonic()
        wants = []
        for image in sorted(images):
            reference = parse(image)
            credentials = PodCredentials(PullSecretNames("team", ()), credential, None, ())  # type: ignore[arg-type]
            key = ImageLookupKey(reference.canonical, credential)
            wants.append(PendingImage(key, reference, credentials, now if always else None, held=held))
        self.waiting.park(pod, wants)

    @rule(pod=PODS)
    def leave(self, pod: ObjectKey) -> None:
        self.waiting.leave(pod)

    @rule(seconds=strategies.sampled_from([0.1, 0.3, 1.0, 6.0, 20.0, 400.0, 700.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(target=asking)
    def start_what_is_due(self) -> ImageLookupKey | None:
        now = self.clock.monotonic()
        due = [(key, at) for key, at in self.scheduled if at <= now]
        self.scheduled = [(key, at) for key, at in self.scheduled if at > now]
        started = None
        for place, (key, _) in enumerate(due):
            if started is None and self.waiting.start(key) is not None:
                assert key not in self.under_way, "asked while it is being asked"
                self.under_way.add(key)
                started = key
            elif started is not None:
                self.scheduled += due[place:]
                break
        return started

    @rule(key=asking, code=strategies.sampled_from(CODES), after=strategies.sampled_from([None, 30.0]))
    def fail(self, key: ImageLookupKey | None, code: str, after: float | None) -> None:
        if key in self.under_way:
            self.under_way.discard(key)
            error = InspectionError.of(code, "failed", retry_after=after)
            self.waiting.finish(key, Inspection(parse(key.reference), Status.ERROR, error=error))

    @rule(key=asking)
    def succeed(self, key: ImageLookupKey | None) -> None:
        if key in self.under_way:
            self.under_way.discard(key)
            checked_at = self.clock.monotonic()
            answer = Inspection(parse(key.reference), Status.RESOLVED, entries=(ENTRY,), checked_at=checked_at)
            self.waiting.finish(key, answer)

    @rule(key=asking)
    def give_back(self, key: ImageLookupKey | None) -> None:
        if key in self.under_way:
            self.under_way.discard(key)
            self.waiting.give_back(key, 1.0)

    @rule()
    def hasten(self) -> None:
        self.waiting.hasten(lambda lookup: lookup.held)

    @rule()
    def revoke(self) -> None:
        self.waiting.revoke()

    @rule()
    def confirm(self) -> None:
        self.waiting.confirm()

    @invariant()
    def a_look_up_knows_from_which_namespaces_it_is_waited_for(self) -> None:
        for lookup in self.waiting.lookups():
            assert lookup.namespaces == Counter(pod.namespace for pod in lookup.waiters)

    @invariant()
    def nobody_waits_for_what_nobody_will_ask(self) -> None:
        promised = {key for key, _ in self.scheduled}
        for lookup in self.waiting.lookups():
            if lookup.asking:
                assert lookup.key in self.under_way
            elif lookup.due is not None:
                assert lookup.key in promised
                assert min(at for key, at in self.scheduled if key == lookup.key) <= lookup.due + 1e-6
            else:
                # An answer that served everybody when it came; who parks again on an aged one makes it due.
                assert lookup.inspection is not None
                assert not lookup.failure

    @invariant()
    def nothing_is_kept_of_pods_that_left(self) -> None:
        for lookup in self.waiting.lookups():
            assert lookup.waiters or lookup.asking


WaitingMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestWaiting = WaitingMachine.TestCase
