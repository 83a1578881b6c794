"""Sandboxes that all xdist workers share; a namespace of its own for each test.

Tests run side by side, those of a lane (``lanes``) one after another; the few that must not meet anywhere take a
lock.

The first worker that needs the sandbox brings it up while the others wait at its lock. It is owned by the pytest
process (the controller, under xdist) and ends with it, however that ends, or when the last test that needs it has
ended (``endings``). ``POLYARCH_TEST_SANDBOX=NAME`` uses a running sandbox instead and leaves it running: quick while
one writes tests (``POLYARCH_TEST_OPERATED`` for the operator's, and so on). ``POLYARCH_TEST_KUBERNETES=1.30`` has these
sandboxes run another version of Kubernetes.
"""

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Coroutine, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import pytest
from namespaces import create_namespace

from endings import Endings, InBackground, shared_folder
from lanes import EXCLUSIVE, sandbox_of
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.resources import NAMESPACES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import file_lock
from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.registry.seed import Registry
from polyarch.sandbox.state import Settings

T = TypeVar("T")
TEST_NODES = {"amd64": 2, "arm64": 2, "ppc64le": 1, "s390x": 1}
HERE = Path(__file__).parent

SANDBOXES = {
    "sandbox",
    "placed_sandbox",
    "taken_over_sandbox",
    "celled_sandbox",
    "scheduled_sandbox",
    "building_sandbox",
    *EXCLUSIVE,
}
"""Fixtures below."""
ENDINGS = pytest.StashKey[Endings]()
DELETING = pytest.StashKey[InBackground]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.cluster)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Every worker knows all tests; what it has run itself, it adds to what the others ran."""
    config = session.config
    items = [item for item in session.items if HERE in item.path.parents]
    if not items or config.option.collectonly:
        return
    owner = _session_process(config)
    config.stash[DELETING] = InBackground()

    def called(fixture: str, nodeid: str) -> str:
        return _name(sandbox_of(fixture, nodeid), owner)

    config.stash[ENDINGS] = Endings(items, SANDBOXES, called, shared_folder(owner), config.stash[DELETING])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """After the test and the fixtures that ended with it."""
    handled = yield
    if HERE in item.path.parents:
        item.config.stash[ENDINGS].ended(item.path.name)
    return handled


def pytest_unconfigure(config: pytest.Config) -> None:
    if deleting := config.stash.get(DELETING, None):
        deleting.close()
    if not hasattr(config, "workerinput"):
        shutil.rmtree(shared_folder(os.getpid()), ignore_errors=True)


def _run(coroutine: Coroutine[object, object, T]) -> T:
    """Run it in a thread of its own: session fixtures must not touch the event loops of the tests."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


def _session_process(config: pytest.Config) -> int:
    """The pid of this test run: under xdist all workers are children of one controller."""
    return os.getppid() if hasattr(config, "workerinput") else os.getpid()


def _shared(request: pytest.FixtureRequest, **settings: Any) -> Sandbox:
    """The sandbox of this fixture, for all workers; ``endings`` deletes it when the last test that uses it has ended.

    ``POLYARCH_TEST_<FIXTURE>=NAME`` names a running one to be used instead.
    """
    if named := os.environ.get(f"POLYARCH_TEST_{request.fixturename.removesuffix('_sandbox').upper()}"):
        return Sandbox.attach(named)
    owner = _session_process(request.config)
    name = _name(sandbox_of(request.fixturename, request.node.nodeid), owner)
    kubernetes = os.environ.get("POLYARCH_TEST_KUBERNETES", "")
    wanted = Settings(name=name, kubernetes=kubernetes, **{"polyarch": False, **settings})
    return _run(Sandbox.start(wanted, owner=owner, repair=False))


def _name(sandbox: str, owner: int) -> str:
    return f"tests-{sandbox}-{owner}"


@pytest.fixture(scope="session")
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Control plane, registry and nodes, without polyarch."""
    return _shared(request, nodes=TEST_NODES)


@pytest.fixture(scope="session")
def placed_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """With polyarch's roles running in it as in a real deployment; shared like the first."""
    return _shared(request, nodes=TEST_NODES, polyarch=True)


@pytest.fixture(scope="module")
def operated_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """For tests that run the operator: what is one in a cluster belongs to one of them at a time."""
    return _shared(request, nodes=TEST_NODES)


@pytest.fixture(scope="module")
def empty_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Without nodes, for tests that install polyarch and remove every trace of it."""
    return _shared(request, nodes={})


@pytest.fixture(scope="module")
def running_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Its nodes run polyarch's pods, for tests that install a package of polyarch and remove it."""
    return _shared(request, nodes={"amd64": 2, "arm64": 1})


@pytest.fixture(scope="module")
def growing_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Tests change its fleet and taint its nodes."""
    return _shared(request, nodes={"amd64": 2, "ppc64le": 1})


@pytest.fixture(scope="module")
def tainted_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Polyarch taints its nodes: whoever uses it has it alone."""
    return _shared(request, nodes={"amd64": 2})


@pytest.fixture(scope="module")
def commanded_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """The commands of ``polyarch taint`` write its nodes; take ``taint_shop`` to have it alone."""
    return _shared(request, nodes={"amd64": 2, "arm64": 2})


@pytest.fixture(scope="session")
def taken_over_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """A predecessor tainted its nodes."""
    return _shared(request, nodes={"amd64": 2, "arm64": 1})


@pytest.fixture(scope="session")
def celled_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Its nodes have NUMA cells; tests kill their kubelets."""
    return _shared(request, nodes={"amd64": 3}, numa=NumaLayout.parse("2x8,memory=16Gi,devices=example.com/nic:2"))


@pytest.fixture(scope="session")
def scheduled_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """Its nodes have NUMA cells, with polyarch and its scheduler of cells; tests kill both."""
    return _shared(request, nodes={"amd64": 3}, numa=NumaLayout.parse("2x16"), polyarch=True)


@pytest.fixture(scope="session")
def building_sandbox(request: pytest.FixtureRequest) -> Sandbox:
    """With polyarch and component builds: a node of each of four architectures."""
    nodes = {"amd64": 1, "arm64": 1, "ppc64le": 1, "s390x": 1}
    return _shared(request, nodes=nodes, polyarch=True, builds=True)


@pytest.fixture
async def client(sandbox: Sandbox) -> AsyncIterator[Client]:
    """The administrator's client."""
    async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as client:
        yield client


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of the test's own in which pods can be created; its deletion is not waited for."""
    name = f"test-{secrets.token_hex(4)}"
    await create_namespace(client, name)
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


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that processes of other users may pass through. Those of ``tmp_path`` are closed to them again by every
    session of pytest that begins."""
    with tempfile.TemporaryDirectory(prefix="polyarch-pods-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)
