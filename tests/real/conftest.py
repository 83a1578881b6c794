"""Tests on real kubelets and containers, as root: ``make real``.

One cluster serves a session; tests that start and end clusters of their own run when it is not needed any more.
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from namespaces import create_namespace

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
    """Those that start and end clusters come first, before the shared one is there."""
    items.sort(key=lambda item: "cluster" in getattr(item, "fixturenames", ()))


def pytest_sessionstart() -> None:
    try:
        machine.check(Settings(real=True, nodes=NODES, builds=True))
    except SandboxError as error:
        raise pytest.UsageError(f"tests/real: {error}") from error


@pytest.fixture(scope="session")
def cluster() -> Iterator[Sandbox]:
    """Two nodes of two zones with eight CPUs each, and polyarch; it ends with this process, however that ends."""
    name = f"tests-real-{os.getpid()}"
    settings = Settings(name=name, nodes=NODES, real=True, builds=True, numa=NumaLayout.parse("2x8"))
    sandbox = asyncio.run(Sandbox.start(settings, owner=os.getpid()))
    yield sandbox
    asyncio.run(sandbox.delete())


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
