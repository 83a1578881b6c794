"""Health probes of the components, for ``polyarch status`` and for waiting at startup."""

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
    """One component's state; ``detail`` is empty when it is healthy."""

    name: str
    running: bool
    detail: str = ""

    @property
    def healthy(self) -> bool:
        return self.running and not self.detail


class Probe(msgspec.Struct, frozen=True):
    """A URL that answers 200 when healthy, with the CA to trust and the client certificate to present."""

    url: str
    ca: str = ""
    client: PairFiles | None = None
    socket: str = ""
    """The unix socket to ask, instead of the address in ``url``."""

    def connector(self) -> aiohttp.BaseConnector:
        if self.socket:
            return aiohttp.UnixConnector(self.socket, force_close=True)
        return aiohttp.TCPConnector(ssl=self.context(), force_close=True)

    def context(self) -> ssl.SSLContext | bool:
        if not self.ca:
            return True
        context = ssl.create_default_context(cafile=self.ca)
        if self.client is not None:
            context.load_cert_chain(self.client.certificate, self.client.key)
        return context


async def ask(probe: Probe) -> str:
    """Empty if the component is healthy, else its answer or the connection's error."""
    timeout = aiohttp.ClientTimeout(total=PROBE_SECONDS)
    try:
        async with (
            aiohttp.ClientSession(connector=probe.connector(), timeout=timeout) as session,
            session.get(probe.url, allow_redirects=False) as answer,
        ):
            body = await answer.text(errors="replace")
            return "" if answer.status == 200 else _failing(answer.status, body)
    except TimeoutError:
        return f"no answer from {probe.url} in {PROBE_SECONDS:.0f} s"
    except aiohttp.ClientError as error:
        return f"{probe.url}: {error}"


def _failing(status: int, body: str) -> str:
    """The failed checks of a Kubernetes health page, or the first characters of any other body."""
    bad = [line for line in body.splitlines() if line.startswith("[-]")]
    return f"HTTP {status}: {'; '.join(bad) or body.strip()}"[:DETAIL_CHARACTERS]


async def until_healthy(record: Record, probe: Probe, *, seconds: float) -> None:
    """Wait until the component is healthy; raise ProcessFailed if it ends first, or after ``seconds``."""
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
