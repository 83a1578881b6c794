"""One sandbox for the whole session, shared by all xdist workers; a namespace of its own for each test (SB-008).

Tests run side by side, those of a file one after another; the few that must not meet anywhere take a lock.

The first worker that needs the sandbox brings it up while the others wait at its lock. It is owned by the pytest
process (the controller, under xdist) and ends with it, however that ends. ``POLYARCH_TEST_SANDBOX=NAME`` uses a running
sandbox instead and leaves it running: quick while one writes tests (``POLYARCH_TEST_OPERATED`` for the operator's).
"""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Coroutine
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import pytest

from polyarch.kube.access import config
from polyarch.kube.client.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import NAMESPACES, SERVICE_ACCOUNTS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.kubelet_model.layout import Numa
from polyarch.sandbox.locks import file_lock
from polyarch.sandbox.registry.seed import Registry
from polyarch.sandbox.state import Settings

T = TypeVar("T")
TEST_NODES = {"amd64": 2, "arm64": 2, "ppc64le": 1, "s390x": 1}
HERE = Path(__file__).parent
ACCOUNT_SECONDS = 30


LONGEST = (
    "test_packaging_image",
    "test_sandbox_life",
    "test_guide_commands",
    "test_packaging_chart_life",
    "test_packaging_wheel",
    "test_operator_lifecycle",
    "test_operator_monitor",
    "test_taint_clean",
    "test_taints_operator",
)
"""Files that take longest, longest first. A file is one worker's, and one that began last would keep the run waiting
for it alone; this order holds with ``--no-loadscope-reorder``."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)
    items.sort(key=lambda item: LONGEST.index(item.path.stem) if item.path.stem in LONGEST else len(LONGEST))


def _run(coroutine: Coroutine[object, object, T]) -> T:
    """Run it in a thread of its own: session fixtures must not touch the event loops of the tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def _session_process(request: pytest.FixtureRequest) -> int:
    """The pid of this test run: under xdist all workers are children of one controller."""
    return os.getppid() if hasattr(request.config, "workerinput") else os.getpid()


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Control plane, registry and nodes, without polyarch."""
    if named := os.environ.get("POLYARCH_TEST_SANDBOX"):
        return Sandbox.attach(named)
    owner = _session_process(request)
    settings = Settings(name=f"tests-{owner}", nodes=TEST_NODES, polyarch=False)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def placed_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A second one, with polyarch's roles running in it as in a real deployment; shared like the first."""
    owner = _session_process(request)
    settings = Settings(name=f"placed-{owner}", nodes=TEST_NODES)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def operated_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A third one, for tests that run the operator: what is one in a cluster belongs to one of them at a time."""
    if named := os.environ.get("POLYARCH_TEST_OPERATED"):
        return Sandbox.attach(named)
    owner = _session_process(request)
    settings = Settings(name=f"operated-{owner}", nodes=TEST_NODES, polyarch=False)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def empty_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A fourth one, without nodes, for tests that install polyarch and remove every trace of it."""
    if named := os.environ.get("POLYARCH_TEST_EMPTY"):
        return Sandbox.attach(named)
    owner = _session_process(request)
    settings = Settings(name=f"empty-{owner}", nodes={}, polyarch=False)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def running_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A fifth one, whose nodes run polyarch's pods, for tests that install a package of polyarch and remove it."""
    if named := os.environ.get("POLYARCH_TEST_RUNNING"):
        return Sandbox.attach(named)
    owner = _session_process(request)
    settings = Settings(name=f"running-{owner}", nodes={"amd64": 2, "arm64": 1}, polyarch=False)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def growing_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A sixth one, whose fleet tests change and whose nodes they taint."""
    owner = _session_process(request)
    settings = Settings(name=f"growing-{owner}", nodes={"amd64": 2, "ppc64le": 1}, polyarch=False)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def tainted_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A seventh one, whose nodes polyarch taints: whoever uses it has it alone."""
    if named := os.environ.get("POLYARCH_TEST_TAINTED"):
        return Sandbox.attach(named)
    owner = _session_process(request)
    settings = Settings(name=f"tainted-{owner}", nodes={"amd64": 2}, polyarch=False)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def commanded_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """An eighth one, whose nodes the commands of ``polyarch taint`` write; take ``taint_shop`` to have it alone."""
    if named := os.environ.get("POLYARCH_TEST_COMMANDED"):
        return Sandbox.attach(named)
    owner = _session_process(request)
    settings = Settings(name=f"commanded-{owner}", nodes={"amd64": 2, "arm64": 2}, polyarch=False)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def taken_over_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A seventh one, whose nodes a predecessor tainted."""
    owner = _session_process(request)
    settings = Settings(name=f"taken-over-{owner}", nodes={"amd64": 2, "arm64": 1}, polyarch=False)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def celled_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A ninth one, whose nodes have NUMA cells; tests kill their kubelets."""
    owner = _session_process(request)
    numa = Numa.parse("2x8,memory=16Gi,devices=example.com/nic:2")
    settings = Settings(name=f"celled-{owner}", nodes={"amd64": 3}, numa=numa, polyarch=False)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def scheduled_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A tenth one, whose nodes have NUMA cells, with polyarch and its scheduler of cells; tests kill both."""
    if named := os.environ.get("POLYARCH_TEST_SCHEDULED"):
        return Sandbox.attach(named)
    owner = _session_process(request)
    settings = Settings(name=f"scheduled-{owner}", nodes={"amd64": 3}, numa=Numa.parse("2x16"))
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture(scope="session")
def building_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """An eleventh one, with component builds: a node of each of four architectures."""
    if named := os.environ.get("POLYARCH_TEST_BUILDING"):
        return Sandbox.attach(named)
    owner = _session_process(request)
    nodes = {"amd64": 1, "arm64": 1, "ppc64le": 1, "s390x": 1}
    settings = Settings(name=f"building-{owner}", nodes=nodes, builds=True)
    return _run(Sandbox.start(settings, owner=owner, repair=False))


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    """The administrator's client."""
    async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as client:
        yield client


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of the test's own in which pods can be created; its deletion is not waited for."""
    name = f"test-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    async with asyncio.timeout(ACCOUNT_SECONDS):
        while True:
            try:
                await client.get(SERVICE_ACCOUNTS, "default", namespace=name)
                break
            except NotFound:
                await asyncio.sleep(0.02)
    yield name
    await client.delete(NAMESPACES, name)


@pytest.fixture
async def sole_controller(sandbox: Sandbox) -> AsyncIterator[None]:
    """Held by tests that decide about gated pods of the first sandbox: a controller decides about all that it sees."""
    async with file_lock(sandbox.folder.root / ".sole-controller.lock"):
        yield


@pytest.fixture
async def sole_taints(sandbox: Sandbox) -> AsyncIterator[None]:
    """Held by tests that create ArchitectureTaints in the first sandbox: there is one in a cluster."""
    async with file_lock(sandbox.folder.root / ".sole-taints.lock"):
        yield


@pytest.fixture
def registry(sandbox: Sandbox) -> Registry:
    """``await registry.seed({"quay.io/mine/app:1": ["linux/amd64"]})``; use names no other test has."""
    return sandbox.registry
