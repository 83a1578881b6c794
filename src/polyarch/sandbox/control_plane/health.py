"""Asking each component whether it is well, as ``polyarch status`` shows and as the start waits for."""

import asyncio
import ssl

import aiohttp
import msgspec

from polyarch.sandbox.control_plane.certificates import PairFiles
from polyarch.sandbox.processes import Record, failure, is_running

PROBE_SECONDS = 2.0
POLL_SECONDS = 0.1
DETAIL_CHARACTERS = 200


class Health(msgspec.Struct, frozen=True):
    """One component's state: ``detail`` is empty when it is well."""

    name: str
    running: bool
    detail: str = ""

    @property
    def healthy(self) -> bool:
        return self.running and not self.detail


class Probe(msgspec.Struct, frozen=True):
    """Where to ask: an address that answers 200 when well, and how to be trusted there."""

    url: str
    ca: str = ""
    client: PairFiles | None = None

    def context(self) -> ssl.SSLContext | bool:
        if not self.ca:
            return True
        context = ssl.create_default_context(cafile=self.ca)
        if self.client is not None:
            context.load_cert_chain(self.client.certificate, self.client.key)
        return context


async def ask(probe: Probe) -> str:
    """Empty if the component says that it is well, else what it or the connection said."""
    timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
    connector = aiohttp.TCPConnector(ssl=probe.context(), force_close=True)
    try:
        async with (
            aiohttp.ClientSession(connector=connector, timeout=timeout) as session,
            session.get(probe.url, allow_redirects=False) as answer,
        ):
            body = await answer.text(errors="replace")
            return "" if answer.status == 200 else _failing(answer.status, body)
    except TimeoutError:
        return f"no answer from {probe.url} in {PROBE_SECONDS:.0f} s"
    except aiohttp.ClientError as error:
        return f"{probe.url}: {error}"


def _failing(status: int, body: str) -> str:
    """The lines of a Kubernetes health page that are not well, or the beginning of any other body."""
    bad = [line for line in body.splitlines() if line.startswith("[-]")]
    return f"HTTP {status}: {'; '.join(bad) or body.strip()}"[:DETAIL_CHARACTERS]


async def until_healthy(record: Record, probe: Probe, *, seconds: float) -> None:
    """Return when the component is well; raise ProcessFailed with its log's end if it ends before, or time is over."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    detail = "not asked yet"
    while loop.time() < deadline:
        if not is_running(record):
            raise failure(record, "ended while starting")
        detail = await ask(probe)
        if not detail:
            return
        await asyncio.sleep(POLL_SECONDS)
    raise failure(record, f"is not healthy after {seconds:.0f} s ({detail})")
