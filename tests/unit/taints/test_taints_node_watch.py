"""The watch of nodes lives as long as the process, and lists once."""

import asyncio
from typing import Any

import pytest
from manual_clock import ManualClock
from scripted_server import bookmark, event, listing, serving, status, stream
from taint_nodes import document

from polyarch.kube.client import Client
from polyarch.kube.informer import Informer
from polyarch.kube.resources import NODES
from polyarch.objects import Node

pytestmark = pytest.mark.req("TN-094")

CLOSES = 30
"""As often as an API server ends an idle watch in half an hour, if a proxy before it ends it every minute."""


def node(name: str, version: int) -> Any:
    return {**document(name), "metadata": {**document(name)["metadata"], "resourceVersion": str(version)}}


class Impatient(ManualClock):
    """Backoff takes no time."""

    async def sleep(self, seconds: float) -> None:
        self.advance(max(seconds, 0))
        await asyncio.sleep(0)


@pytest.mark.req("TN-080")
async def test_idle_closes_cost_one_watch_each_and_no_list() -> None:
    async with serving() as api, Client(api.configuration(), clock=Impatient()) as client:
        api.otherwise = stream(then="hold")
        api.script(
            stream(event("ADDED", node("a", 1)), bookmark(5, end=True), then="end"),
            *(stream(bookmark(10 + number), then="end") for number in range(CLOSES)),
            status(500, "InternalError"),
            listing(node("a", 1), version=str(9 + CLOSES)),
            stream(event("ADDED", node("b", 100)), then="hold"),
        )
        informer = Informer(client, NODES, Node, clock=Impatient())
        async with asyncio.timeout(30):
            task = asyncio.create_task(informer.run())
            while len(informer.store) < 2:
                await asyncio.sleep(0.01)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        watches = [request for request in api.requests if "watch" in request.query]
        versions = [request.query.get("resourceVersion") for request in watches[1:]]
        assert versions == ["5", *(str(10 + number) for number in range(CLOSES)), str(9 + CLOSES)]
        assert [request.query.get("sendInitialEvents") for request in watches[1:]] == [None] * (CLOSES + 2)
        (question,) = (request for request in api.requests if request not in watches)
        assert question.query["limit"] == "1"  # after the outage: whether storage is still what it was


@pytest.mark.req("TN-080")
async def test_a_failed_list_does_not_end_the_watch() -> None:
    async with serving() as api, Client(api.configuration(), clock=Impatient()) as client:
        api.otherwise = stream(then="hold")
        api.script(
            *(status(code) for code in (503, 429, 500, 504)),
            listing(node("a", 1), version="5"),
        )
        informer = Informer(client, NODES, Node, clock=Impatient())
        async with asyncio.timeout(30):
            task = asyncio.create_task(informer.run())
            await informer.synced()
        assert len(informer.store) == 1
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
