"""A sandbox of the fault suite's own, polyarch's processes behind fault proxies, and the table at the end.

Everything of a run lives in one event loop, the session's: proxies and processes stand while tests come and go. A test
that ends a process or breaks a connection may leave it so; the next one finds everything standing again.
"""

import asyncio
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import own_roles
import pytest
import pytest_asyncio
from fault_builds import BuildFaults
from fault_crowd import POLICY, Crowd, Expected, crowd_in, seed
from fault_installation import Installed, restart_api_server
from fault_proxy import FaultProxy, server_tls
from fault_roles import Fleet
from fault_table import PROPERTY, Row, table
from fault_taints import FLEET, TaintFaults

from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.resources import MUTATING_WEBHOOKS
from polyarch.operator.components import placement_objects
from polyarch.placement import names
from polyarch.placement.api import POLICIES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.state import NAMESPACE, Settings

T = TypeVar("T")
HOSTS = (
    *("steady", "away", "missing", "unavailable", "limited", "cut", "slow", "redirecting", "elsewhere", "realm"),
    *("silent", "private", "maintenance"),
)
"""Registries, one for each way to fail: ``<name>.faults.test``. What one suffers the others do not feel."""


class Faults:
    """What a scenario works with."""

    def __init__(
        self, sandbox: Sandbox, client: Client, api: FaultProxy, hosts: Mapping[str, FaultProxy], fleet: Fleet
    ) -> None:
        self.sandbox = sandbox
        self.client = client
        self.api = api
        self.hosts = hosts
        self.fleet = fleet

    @contextlib.asynccontextmanager
    async def crowd(self, case: str = "gated", *, writes: int = 1) -> AsyncIterator[Crowd]:
        """Pods in a namespace of their own; ``case`` is an override of the policy, empty for the defaults."""
        async with crowd_in(self.client, self.sandbox.audit_log, case, writes=writes) as crowd:
            yield crowd
        assert not self.fleet.bugs()

    async def seed(self, host: str, count: int, **more: Any) -> dict[str, Expected]:
        """New images behind that host's proxy, and the architectures of each."""
        return await seed(self.sandbox, f"{host}.faults.test", count, folder=f"faults/{host}", **more)

    async def restart_api_server(self, *, away: float) -> float:
        """A real kill, so many seconds without one, and a real start. The time at which it is ready again."""
        return await restart_api_server(self.sandbox, away=away)


def _run(coroutine: Coroutine[object, object, T]) -> T:
    """In a thread of its own, where no event loop runs."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, coroutine).result()


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """Control plane and registry; its API server is killed, so nobody else uses it."""
    if named := os.environ.get("POLYARCH_FAULTS_SANDBOX"):
        return _run(Sandbox.start(Settings(name=named, nodes={"amd64": 1}, polyarch=False)))
    settings = Settings(name=f"faults-{os.getpid()}", nodes={"amd64": 1}, polyarch=False, seed_images=False)
    return _run(Sandbox.start(settings, owner=os.getpid()))


def _registries(hosts: Mapping[str, FaultProxy]) -> str:
    return "".join(
        f'[[registry]]\nprefix = "{name}.faults.test"\nlocation = "{proxy.address}/faults/{name}"\ninsecure = true\n\n'
        for name, proxy in hosts.items()
    )


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def standing(sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Faults]:
    """Proxies, one webhook, a leader and a standby."""
    folder = tmp_path_factory.mktemp("faults")
    trusted = ssl.create_default_context(cafile=str(sandbox.ca))
    async with contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(Client(config.load(str(sandbox.kubeconfig)), role="tests"))
        api = await stack.enter_async_context(
            FaultProxy(sandbox.api_server, upstream_ssl=trusted, server_ssl=server_tls(sandbox, folder))
        )
        upstream = f"http://{sandbox.registry.address}"
        hosts = {name: await stack.enter_async_context(FaultProxy(upstream)) for name in HOSTS}
        registries_conf = folder / "registries.conf"
        registries_conf.write_text(_registries(hosts))
        await own_roles.install(client)
        metadata = {"name": names.SINGLETON}
        policy = {"apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": metadata, "spec": POLICY}
        await client.apply(POLICIES, policy)
        fleet = await stack.enter_async_context(Fleet(sandbox, client, api.url, registries_conf, folder).running())
        await fleet.ensure()
        authority = sandbox.ca.read_bytes()
        webhook = placement_objects.webhook_configuration(
            NAMESPACE, url=fleet.balancer.url, ca_bundle=authority, review_key=own_roles.review_key(sandbox)
        )
        await client.apply(MUTATING_WEBHOOKS, webhook)
        await own_roles.until_asked(client)
        yield Faults(sandbox, client, api, hosts, fleet)


@pytest_asyncio.fixture(loop_scope="session")
async def faults(standing: Faults) -> Faults:
    """Everything stands, and nothing is injected."""
    for proxy in (standing.api, *standing.hosts.values()):
        proxy.faults.clear()
    await standing.fleet.ensure()
    return standing


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def installed() -> AsyncIterator[Installed]:
    """A second sandbox, in which tests install polyarch and remove it."""
    if named := os.environ.get("POLYARCH_FAULTS_INSTALLED"):
        sandbox = await asyncio.to_thread(_run, Sandbox.start(Settings(name=named, nodes={"amd64": 2}, polyarch=False)))
    else:
        settings = Settings(name=f"installed-{os.getpid()}", nodes={"amd64": 2}, polyarch=False, seed_images=False)
        sandbox = await asyncio.to_thread(_run, Sandbox.start(settings, owner=os.getpid()))
    async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as client:
        yield await Installed.of(sandbox, client)


@pytest.fixture(scope="session")
def mixed_sandbox() -> Sandbox:
    """A third sandbox, with nodes of several architectures."""
    if named := os.environ.get("POLYARCH_FAULTS_MIXED"):
        return _run(Sandbox.start(Settings(name=named, nodes=dict(FLEET), polyarch=False)))
    settings = Settings(name=f"mixed-{os.getpid()}", nodes=dict(FLEET), polyarch=False, seed_images=False)
    return _run(Sandbox.start(settings, owner=os.getpid()))


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def taint_faults(mixed_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TaintFaults]:
    """The third sandbox, its nodes tainted."""
    async with TaintFaults.opened(mixed_sandbox, tmp_path_factory.mktemp("taints")) as faults:
        yield faults


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def build_faults(mixed_sandbox: Sandbox, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BuildFaults]:
    """Builds in the third sandbox."""
    async with BuildFaults.opened(mixed_sandbox, tmp_path_factory.mktemp("builds")) as faults:
        yield faults


@pytest.fixture
def told(record_property: Callable[[str, object], None]) -> Callable[[Row], Row]:
    """Puts a row into the table; call it before anything is asserted."""

    def tell(row: Row) -> Row:
        record_property(PROPERTY, msgspec.to_builtins(row))
        return row

    return tell


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    here = [item for item in items if Path(__file__).parent in item.path.parents]  # others have fixtures of these names
    for item in here:
        if {"standing", "installed", "taint_faults", "build_faults"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.cluster)
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The table of all scenarios that ran, whether or not they passed."""
    rows = [
        msgspec.convert(value, Row)
        for outcome in ("passed", "failed")
        for report in terminalreporter.stats.get(outcome, ())
        for name, value in getattr(report, "user_properties", ())
        if name == PROPERTY and report.when == "call"
    ]
    if not rows:
        return
    terminalreporter.section("what faults did to pods")
    for line in table(rows):
        terminalreporter.line(line)
