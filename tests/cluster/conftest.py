"""One sandbox for the whole session, shared by all xdist workers; a namespace of its own for each test (SB-008).

The first worker that needs the sandbox brings it up while the others wait at a file lock. It is owned by the pytest
process (the controller, under xdist) and ends with it, however that ends. ``POLYARCH_TEST_SANDBOX=NAME`` uses a running
sandbox instead and leaves it running: quick while one writes tests.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.state import Settings

T = TypeVar("T")
TEST_NODES = {"amd64": 2, "arm64": 2, "ppc64le": 1, "s390x": 1}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "cluster" in item.path.parts:
            item.add_marker(pytest.mark.cluster)


def _run(coroutine: Coroutine[object, object, T]) -> T:
    """Run it in a thread of its own: session fixtures must not touch the event loops of the tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def _shared(request: pytest.FixtureRequest, settings: Settings) -> Sandbox:
    if named := os.environ.get("POLYARCH_TEST_SANDBOX"):
        return Sandbox.attach(named)
    # Under xdist all workers are children of the controller: its pid is the owner for each of them.
    under_xdist = hasattr(request.config, "workerinput")
    owner = os.getppid() if under_xdist else os.getpid()
    assets = os.environ.get("POLYARCH_SANDBOX_ASSETS", "")
    return _run(Sandbox.start(settings, assets=assets, owner=owner))


def _name(request: pytest.FixtureRequest, kind: str) -> str:
    under_xdist = hasattr(request.config, "workerinput")
    return f"{kind}-{os.getppid() if under_xdist else os.getpid()}"


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Control plane, registry and nodes, without polyarch."""
    return _shared(request, Settings(name=_name(request, "tests"), nodes=TEST_NODES, polyarch=False))


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    """The administrator's client."""
    async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as client:
        yield client
