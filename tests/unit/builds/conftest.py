"""Registries that do as they are told, and a connection as the builder has one."""

from contextlib import AsyncExitStack

import msgspec
import pytest
from hurried_clock import HurriedClock
from image_parts import WritableRegistry

from polyarch.oci.inspector import Inspector
from polyarch.oci.settings import CLUSTER
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.tls import TrustSettings, TrustStore
from polyarch.proxies import Proxies

BUILDER = msgspec.structs.replace(CLUSTER, max_wait=0.0, insecure_loopback=True)
"""As in the builder, but for registries of these tests, which are on loopback and have no TLS."""


@pytest.fixture
def clock():
    return HurriedClock()


@pytest.fixture
async def stack():
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
def start(stack):
    """``await start(…)``: a registry, stopped at the end of the test."""

    async def start(**settings):
        return await stack.enter_async_context(WritableRegistry(**settings))

    return start


@pytest.fixture
async def target(start):
    return await start()


@pytest.fixture
def connect(stack, clock):
    """``connect(credentials=…)``: a connection with settings of its own."""

    def connect(*, policy=None, **settings):
        credentials = settings.pop("credentials", None)
        policy = policy or AddressPolicy()
        trust = TrustStore(TrustSettings(system=False))
        transport = AiohttpTransport(policy=policy, trust=trust, proxies=Proxies({}))
        stack.push_async_callback(transport.close)
        inspector = Inspector(
            transport=transport,
            settings=msgspec.structs.replace(BUILDER, **settings),
            policy=policy,
            clock=clock,
            credentials=credentials,
        )
        stack.push_async_callback(inspector.close)
        return inspector.connection

    return connect


@pytest.fixture
def connection(connect):
    return connect()
