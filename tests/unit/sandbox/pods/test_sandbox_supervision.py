"""When the probes of a container are asked."""

import asyncio

import aiohttp
import pytest
from manual_clock import ManualClock

from polyarch.sandbox.pods import probes
from polyarch.sandbox.pods.probes import ProbeTarget, ProbeWorker
from polyarch.sandbox.pods.spec import Container, HttpGet, Probe


@pytest.mark.req("SB-011")
@pytest.mark.parametrize(
    ("period", "timeout", "seconds"), [(10, 5, 25.0), (2, 5, 15.0)], ids=["each in its period", "longer than a period"]
)
async def test_the_wait_for_an_answer_is_part_of_the_period(
    monkeypatch: pytest.MonkeyPatch, period: int, timeout: int, seconds: float
) -> None:
    """A kubelet asks at each tick, and at once where a tick has passed meanwhile."""
    clock = ManualClock()

    async def hangs(probe: Probe, target: ProbeTarget, session: aiohttp.ClientSession) -> str:
        await clock.sleep(probe.timeout_seconds)
        return "no answer"

    monkeypatch.setattr(probes, "ask", hangs)
    probe = Probe(http_get=HttpGet(80), period_seconds=period, timeout_seconds=timeout, failure_threshold=3)
    container = Container("c", liveness_probe=probe)
    async with aiohttp.ClientSession() as session:
        supervision = ProbeWorker(
            container,
            ProbeTarget(container, "127.0.0.1", {}, {}),
            session,
            clock=clock,
            changed=lambda: None,
            tell=lambda reason, note: None,
        )
        ended = []
        begin = clock.monotonic()

        async def watched() -> None:
            await supervision.run()
            ended.append(clock.monotonic() - begin)

        watching = asyncio.create_task(watched())
        await clock.run(60)
        await watching
        assert ended == [seconds]
