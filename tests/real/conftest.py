"""Tests on real kubelets and containers, as root: ``make real``.

One cluster with polyarch serves a session, and one without it the tests that install it. Tests that start and end
clusters of their own come first. ``POLYARCH_TEST_CLUSTER=NAME`` and ``POLYARCH_TEST_BARE=NAME`` use a running one
instead and leave it running: quick while one writes tests.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from namespaces import create_namespace
from real_nodes import COST

from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import NAMESPACES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.errors import SandboxError
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.real import machine
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import until
from polyarch.sandbox.versions import host_architecture

NODES = {host_architecture(): 2}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that start and end clusters come first, before a shared one is there; the two are not there together. Last
    come those that make the nodes of the shared one others."""
    shared = ("bare", "cluster", "machines")
    items.sort(key=lambda item: [name in getattr(item, "fixturenames", ()) for name in shared[::-1]])


def pytest_sessionstart() -> None:
    try:
        machine.check(Settings(real=True, nodes=NODES, builds=True))
    except SandboxError as error:
        raise pytest.UsageError(f"tests/real: {error}") from error


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [each for found in terminalreporter.stats.values() for each in found]
    lines = [str(said) for each in reports for name, said in getattr(each, "user_properties", ()) if name == COST]
    if lines:
        terminalreporter.section(COST)
    for line in dict.fromkeys(lines):
        terminalreporter.line(line)


def _shared(request: pytest.FixtureRequest, **settings: Any) -> Iterator[Sandbox]:
    """Two nodes of two zones with eight CPUs each; it ends with this process, however that ends."""
    if named := os.environ.get(f"POLYARCH_TEST_{request.fixturename.upper()}"):
        yield Sandbox.attach(named)
        return
    name = f"tests-real-{request.fixturename}-{os.getpid()}"
    layout = NumaLayout.parse("2x8,pages=2Mi:256")
    wanted = Settings(name=name, nodes=NODES, real=True, numa=layout, **settings)
    sandbox = asyncio.run(Sandbox.start(wanted, owner=os.getpid()))
    yield sandbox
    asyncio.run(sandbox.delete())


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """With polyarch, for every test that leaves it as it is."""
    yield from _shared(request, builds=True)


@pytest.fixture(scope="module")
def bare(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """Without polyarch, for tests that install it and remove every trace of it."""
    yield from _shared(request, polyarch=False)


@pytest.fixture
async def client(cluster: Sandbox) -> AsyncIterator[Client]:
    async with cluster.client() as client:
        yield client


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of its own, in which pods can be created; its pods are gone when the next test begins."""
    name = f"test-{secrets.token_hex(4)}"
    await create_namespace(client, name)
    yield name
    await client.delete(NAMESPACES, name)

    async def is_gone() -> bool:
        try:
            await client.get(NAMESPACES, name)
        except NotFound:
            return True
        return False

    assert await until(is_gone, seconds=90), f"namespace {name} does not end"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """For sandboxes of one test."""
    return tmp_path / "sandboxes"
