"""What the controllers' leader tells the operator reaches the conditions."""

from types import SimpleNamespace
from typing import Any

import pytest
from manual_clock import ManualClock

from polyarch.operator.components.placement_reconciler import COUNTING, SINGLETON, StatusReconciler
from polyarch.placement.api import LeaderNotes

pytestmark = pytest.mark.req("PL-041")


class Api:
    """The controllers' Lease."""

    def __init__(self) -> None:
        self.notes = LeaderNotes()

    async def get(self, *_: object, **__: object) -> Any:
        return SimpleNamespace(metadata=SimpleNamespace(annotations=self.notes.annotations()))


@pytest.mark.req("PL-301")
async def test_a_fact_that_is_left_out_or_known_again_begins_a_pass() -> None:
    """Degraded says what is the case now, although nothing else in the cluster has changed."""
    api, clock, passes = Api(), ManualClock(), []
    nothing = SimpleNamespace(store=SimpleNamespace(get=lambda _: None))
    observation: Any = SimpleNamespace(
        configuration=object(), policies=nothing, policy_documents=nothing, want_namespaces=lambda _: None
    )
    client: Any = api
    statuses = StatusReconciler(
        client, observation, namespace="home", clock=clock, left_out=lambda: passes.append(statuses.notes.left_out)
    )
    for told in ({}, {"nodes": "forbidden"}, {"nodes": "forbidden"}, {}):
        api.notes = LeaderNotes(held=len(passes), left_out=told)
        await statuses.reconcile(SINGLETON)
        clock.advance(COUNTING)
    assert passes == [{"nodes": "forbidden"}, {}]
