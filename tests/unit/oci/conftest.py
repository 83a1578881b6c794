"""A registry that does as it is told, an inspector to ask it, and a clock on which waiting takes no time."""

from contextlib import AsyncExitStack

import pytest
from manual_clock import ManualClock
from scripted_registry import Answer, ScriptedRegistry

from polyarch.oci.inspector import Inspector
from polyarch.oci.reference import parse
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.interface import Timeouts
from polyarch.oci.transport.tls import TrustSettings, TrustStore
from polyarch.proxies import Proxies


@pytest.fixture
def clock():
    return ManualClock(10_000.0, skips=True)


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start_registry(stack):
    """``await start_registry(auth=…)``: a registry of its own, stopped at the end of the test."""

    async def start(**settings):
        return await stack.enter_async_context(ScriptedRegistry(**settings))

    return start


@pytest.fixture
async def registry(start_registry):
    """An open registry."""
    return await start_registry()


@pytest.fixture
def answer():
    """What a script answers: ``answer(429, headers={…})``."""
    return Answer


@pytest.fixture
def make_inspector(stack, clock):
    """``make_inspector(settings…, cache=…, credentials=…)``: an inspector on that clock, closed at the end."""

    def make(*, transport=None, timeouts=None, policy=None, **arguments):
        names = set(InspectorSettings.__struct_fields__)
        settings = InspectorSettings(**{name: arguments.pop(name) for name in names & set(arguments)})
        policy = policy or AddressPolicy()
        if transport is None:
            trust = TrustStore(TrustSettings(system=False))
            transport = AiohttpTransport(
                policy=policy, trust=trust, timeouts=timeouts or Timeouts(), proxies=Proxies({})
            )
            stack.push_async_callback(transport.close)
        inspector = Inspector(transport=transport, settings=settings, policy=policy, **{"clock": clock, **arguments})
        stack.push_async_callback(inspector.close)
        return inspector

    return make


@pytest.fixture
def inspector(make_inspector):
    return make_inspector()


@pytest.fixture
def ref(registry):
    """``ref("team/app:1")``: the reference of an image in ``registry``."""
    return lambda name, at=None: parse(f"{(at or registry).host}/{name}")
