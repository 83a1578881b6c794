"""Rollouts of DaemonSets, whatever happens in whatever order."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.objects import DaemonSet, DaemonSetStatus, ObjectKey, ObjectMeta
from polyarch.taints import names
from polyarch.taints.daemonset_rollouts import RolloutQueue, rollout_rank

KEYS = [
    ObjectKey("team", "agent"),
    ObjectKey("team", "my-cni"),
    ObjectKey("kube-system", "proxy"),
    ObjectKey("other", "agent"),
]
EVENTS = st.sampled_from(["line up", "done", "confirmed", "leaves", "gone"])


class Cluster:
    """DaemonSets, the turns, and who was called."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.called: list[ObjectKey] = []
        self.turns = RolloutQueue(self.called.append)
        self.rolling: set[ObjectKey] = set()
        """Under way and not confirmed."""
        self.in_line: set[ObjectKey] = set()
        self.now = 0.0

    def happens(self, event: str, key: ObjectKey) -> None:
        self.now += 1
        match event:
            case "line up" if key not in self.rolling:
                self.in_line.add(key)
                self.turns.line_up(key)
            case "done" | "confirmed" if key in self.rolling:
                self.turns.observe(self._daemon_set(key, event), self.now, limit=600.0)
                self.rolling.discard(key)
            case "leaves":
                self.turns.leave(key)
                self.in_line.discard(key)
            case "gone":
                self.turns.forget(key)
                self.in_line.discard(key)
                self.rolling.discard(key)
        self.turns.call(most=self.most)

    def serve(self) -> None:
        """Those who were called look whether it is their turn, and change their templates."""
        while self.called:
            key = self.called.pop(0)
            if key in self.in_line and self.turns.is_turn_of(key, most=self.most):
                before = [each for each in self.in_line if rollout_rank(each) < rollout_rank(key)]
                assert len(before) < self.most, "those that others need go first"
                self.turns.begin(key, self.now)
                self.in_line.discard(key)
                self.rolling.add(key)
            self.turns.call(most=self.most)

    @staticmethod
    def _daemon_set(key: ObjectKey, event: str) -> DaemonSet:
        annotations = {names.ROLLOUT_CONFIRMED_ANNOTATION: "2"} if event == "confirmed" else {}
        return DaemonSet(
            metadata=ObjectMeta(name=key.name, namespace=key.namespace, generation=2, annotations=annotations),
            status=DaemonSetStatus(
                observed_generation=2,
                desired_number_scheduled=3,
                updated_number_scheduled=1 if event == "confirmed" else 3,
            ),
        )


@pytest.mark.req("TN-051")
@given(st.integers(1, 3), st.lists(st.tuples(EVENTS, st.sampled_from(KEYS)), max_size=40))
def test_never_more_than_allowed_and_nobody_waits_for_ever(most: int, story: list[tuple[str, ObjectKey]]) -> None:
    """And nobody is called again and again: that would be a hot loop of refused writes."""
    cluster = Cluster(most)
    for event, key in story:
        cluster.happens(event, key)
        assert len(cluster.called) <= most
        cluster.serve()
        assert len(cluster.rolling) <= most
        assert len(cluster.rolling) == most or not cluster.in_line, "a free place is taken"
    for key in KEYS:
        cluster.happens("done", key)
        cluster.serve()
    for key in KEYS:
        cluster.happens("done", key)
        cluster.serve()
    assert not cluster.in_line or len(cluster.rolling) == most
