"""A process plays any set of roles, each of which says in one value all that it brings."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.admission import AdmissionRequest, AdmissionResponse, Route
from polyarch.kube.manager import Addresses, Components, Leadership, Process, Role, leader_check, merged
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import LEASES
from polyarch.kube.server import HttpServer, text
from polyarch.kube.settings import ProcessSettings

SETTINGS = ProcessSettings(namespace="home", port=0, metrics_port=0, health_port=0)


class Tone(msgspec.Struct, frozen=True):
    """What the roles of these tests are told."""

    greeting: str = "hello"


class Desk:
    """What roles of one process share."""

    def __init__(self) -> None:
        self.guests: list[str] = []


OPENED: list[str] = []


@asynccontextmanager
async def open_desk(process: Process) -> AsyncIterator[Desk]:
    OPENED.append("opened")
    try:
        yield Desk()
    finally:
        OPENED.append("closed")


async def greets(process: Process) -> Components:
    """A webhook."""
    desk, tone = await process.share(open_desk), process.settings_of(Tone)

    async def handler(request: AdmissionRequest[dict[str, Any]]) -> AdmissionResponse:
        desk.guests.append(request.name)
        return AdmissionResponse(warnings=(tone.greeting,))

    async def close() -> None:
        OPENED.append("greeter closed")

    process.at_end(close)
    return Components(routes=(Route(path="/greet", name="greet", type=dict, handler=handler, on_error="allow"),))


async def counts(process: Process) -> Components:
    """Work of the leader, beside a task of every replica and a plain server of its own."""
    desk = await process.share(open_desk)
    election = process.election("count")

    async def work() -> None:
        desk.guests.append("leader")

    async def look() -> None:
        desk.guests.append("replica")
        await asyncio.Event().wait()

    async def serve(request: web.BaseRequest) -> web.Response:
        return text(200, f"{sorted(desk.guests)} {leader_check(election)()}")

    return Components(
        servers={"count": HttpServer(serve)},
        leaderships=(Leadership(election=election, background={"work": work}),),
        background={"look": look},
        readiness={"guests": lambda: None if desk.guests else "nobody came"},
    )


GREETER = Role(name="greeter", setup=greets, settings=(Tone,))
COUNTER = Role(name="counter", setup=counts)
ALL = (GREETER, COUNTER)


class Running:
    def __init__(self, api: FakeApi, at: Addresses) -> None:
        self.api = api
        self.at = at

    async def get(self, url: str) -> str:
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            return await answer.text()


@asynccontextmanager
async def running(*roles: Role, **settings: Any) -> AsyncIterator[Running]:
    api, metrics, announced = FakeApi(ManualClock(start=0)), Metrics(), asyncio.Queue[Addresses]()
    own = msgspec.structs.replace(SETTINGS, **settings)
    async with Process(
        "tests",
        own,
        api,  # type: ignore[arg-type]
        metrics,
        role_settings=[Tone("good evening")],
        announce=announced.put_nowait,
    ) as process:
        task = asyncio.create_task(process.run(*roles))
        try:
            async with asyncio.timeout(10):
                yield Running(api, await announced.get())
                os.kill(os.getpid(), signal.SIGTERM)
                while not task.done():
                    await api.clock.run(1)
                    await asyncio.sleep(0.001)
                await task
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture(autouse=True)
def nothing_opened() -> None:
    OPENED.clear()


@pytest.mark.req("KR-050")
async def test_all_roles_of_a_process_share_its_servers_and_what_they_open():
    async with running(*ALL) as process:
        assert set(msgspec.to_builtins(process.at)) == {"role", "admission", "health", "metrics", "servers"}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        request = {"uid": "u", "name": "ada", "object": {}, "operation": "CREATE"}
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{process.at.admission}/greet", json={**review, "request": request}) as answer,
        ):
            assert (await answer.json())["response"]["warnings"] == ["good evening"]
        said = await process.get(process.at.servers["count"])
        assert said == "['ada', 'leader', 'replica'] True\n"
        assert "[+]counter guests ok" in await process.get(f"{process.at.health}/readyz")
        assert process.api.read(LEASES, "count", "home")["spec"]["holderIdentity"]
        assert OPENED == ["opened"], "once, for both"
    assert process.api.read(LEASES, "count", "home")["spec"]["holderIdentity"] == ""
    assert OPENED == ["opened", "greeter closed", "closed"]


@pytest.mark.req("KR-050")
async def test_a_process_has_only_what_its_roles_bring():
    async with running(COUNTER, leader_elect=False) as process:
        assert process.at.admission == "", "no role has a route"
        assert await process.get(process.at.servers["count"]) == "['leader', 'replica'] True\n"
        assert process.api.requests == [], "it leads without asking"


@pytest.mark.req("KR-050")
async def test_a_role_that_is_not_told_what_it_reads_says_so():
    async with Process("tests", SETTINGS, FakeApi(), Metrics()) as process:  # type: ignore[arg-type]
        with pytest.raises(LookupError, match="tests was started without Tone"):
            await process.run(GREETER)
    assert OPENED == ["opened", "closed"]


@pytest.mark.req("KR-050")
async def test_two_roles_cannot_serve_the_same_path():
    async def handler(request: AdmissionRequest[dict[str, Any]]) -> AdmissionResponse:
        return AdmissionResponse()

    route: Route[Any] = Route(path="/x", name="x", type=dict, handler=handler, on_error="allow")
    with pytest.raises(ValueError, match="b serves '/x', and so does another role"):
        merged([("a", Components(routes=(route,))), ("b", Components(routes=(route,)))])
