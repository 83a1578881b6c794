"""Registries that do as they are told, and a connection as the builder has one."""

from contextlib import AsyncExitStack

import msgspec
import pytest
from image_parts import WritableRegistry, layer, put_image
from manual_clock import ManualClock

from polyarch.builds.registry import ChildImage, Publication
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
    return ManualClock(10_000.0, skips=True)


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


@pytest.fixture
def put(target):
    """``put("arm64")``: a child in ``team/app`` of the target (or elsewhere), as its publication names it."""

    def put(architecture, *, at=None, repository="team/app", platform="", tag="", layers=None, **more):
        at = at or target
        body = layers or [layer({"app": architecture.encode() * 50})]
        digest = put_image(at, repository, f"run-{architecture}", platform or f"linux/{architecture}", body, **more)
        name = f"{at.host}/{repository}@{digest}"
        return ChildImage(architecture=architecture, reference=name, tag=tag)

    return put


@pytest.fixture
def publication(target):
    """``publication(child, …)``: a result of ``team/app`` with the tag of its execution."""

    def publication(*children, tags=("run",), **more):
        return Publication(repository=f"{target.host}/team/app", children=children, tags=tags, **more)

    return publication


@pytest.fixture
def result_of():
    """``result_of(registry, children)``: a result of ``team/app`` in a registry other than the target."""
    return lambda registry, children: Publication(
        repository=f"{registry.host}/team/app", children=children, tags=("run",)
    )
