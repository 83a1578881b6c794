"""A control plane in which a test runs the operator itself, with a ServiceAccount of its own and exactly its rights.

Either as a Deployment, as it is installed (:meth:`OperatorWorld.deployed`), or as a host process that a test can kill
and whose requests it can tell apart (:meth:`OperatorWorld.operator`); that one registers no webhooks of its own. The
pods of what it deploys are run by the sandbox in both cases.
"""

import asyncio
import base64
import json
import secrets
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from audited import Audited
from namespaces import create_namespace
from placement_process import start

from polyarch.installation import uninstall
from polyarch.installation.objects import definitions, operator_objects
from polyarch.installation.operator import rights as operator_rights
from polyarch.installation.settings import InstallationSettings
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound, Unavailable
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    CRDS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
    Resource,
    by_kind,
)
from polyarch.operator.apply_sets import GRANTED, IN_CLUSTER, IN_NAMESPACE
from polyarch.operator.settings import DEFAULT_IMAGE, ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, POLICIES, PPCS
from polyarch.platforms import IMAGE_ARCHITECTURES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import file_lock, write_json
from polyarch.taints import names as taint_names
from polyarch.taints.api import ARCHITECTURE_TAINTS

Json = dict[str, Any]
SECONDS = 150.0
CPPCS_V1ALPHA1 = Resource(CPPCS.group, "v1alpha1", CPPCS.plural, CPPCS.kind, namespaced=False)
OPERANDS = (*IN_NAMESPACE, *GRANTED, *IN_CLUSTER)
KINDS = (CPPCS, CPPCS_V1ALPHA1, PPCS, ENOEXECEVENTS, POLICIES, ARCHITECTURE_TAINTS)


async def eventually(
    check: Callable[[], Awaitable[Any]], *, seconds: float = SECONDS, pause: float = 0.1, what: str = ""
) -> Any:
    """What the check returns once that is true, or no NotFound any more."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                with suppress(NotFound):
                    if found := await check():
                        return found
                await asyncio.sleep(pause)
    except TimeoutError:
        raise AssertionError(f"not so after {seconds:g} s: {what or check}") from None


class Operator:
    """A running process of the operator."""

    def __init__(self, process: asyncio.subprocess.Process, log: Path) -> None:
        self.process = process
        self.log = log
        self.said: dict[str, str] = {}

    async def serves(self) -> dict[str, str]:
        """Where it listens, once it does."""
        if not self.said:
            assert self.process.stdout is not None
            async with asyncio.timeout(SECONDS):
                line = await self.process.stdout.readline()
            assert line, self.log.read_text()
            self.said = json.loads(line)
        return self.said

    async def kill(self) -> None:
        """As if its node had died."""
        self.process.kill()
        await self.process.wait()

    @property
    def entries(self) -> list[Json]:
        """What it has logged."""
        lines = self.log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]


class OperatorWorld:
    """The administrator's view."""

    def __init__(self, sandbox: Sandbox, client: Client, folder: Path, namespace: str) -> None:
        self.sandbox = sandbox
        self.client = client
        self.folder = folder
        self.namespace = namespace

    @classmethod
    @asynccontextmanager
    async def opened(cls, sandbox: Sandbox, folder: Path) -> AsyncIterator["OperatorWorld"]:
        """A world with a namespace of its own, cleared at the end; one at a time."""
        lock = sandbox.folder.root / ".operator.lock"
        async with (
            file_lock(lock),
            Client(config.load(str(sandbox.kubeconfig)), role="tests") as client,
        ):
            world = cls(sandbox, client, folder, f"operator-{secrets.token_hex(3)}")
            with suppress(NotFound):  # in a new sandbox there is nothing to clear, nor its kinds
                await world.clear()
            await world.install()
            try:
                yield world
            finally:
                await world.clear()

    # -- the installation ---------------------------------------------------------------------------------------------

    async def install(self) -> None:
        """What the installer makes but the Deployment: CRDs, namespace, ServiceAccount and exactly its rights."""
        await self.sandbox.registry.seed({DEFAULT_IMAGE: [f"linux/{each}" for each in IMAGE_ARCHITECTURES]})
        for document in definitions(InstallationSettings()):
            await self.client.apply(CRDS, document)
        for resource in KINDS:
            await eventually(lambda resource=resource: self._is_served(resource))
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.client.apply(NAMESPACES, home)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": names.OPERATOR}}
        await self.client.apply(SERVICE_ACCOUNTS, account, namespace=self.namespace)
        for document in operator_rights(OperatorSettings(namespace=self.namespace), ClusterCapabilities()):
            where = document["metadata"].get("namespace", "")
            await self.client.apply(by_kind(document["apiVersion"], document["kind"]), document, namespace=where)

    async def _is_served(self, resource: Resource) -> bool:
        await self.client.list(resource)
        return True

    def audit(self) -> Audited:
        """What the operator asks from now on."""
        return Audited(self.sandbox, f"system:serviceaccount:{self.namespace}:{names.OPERATOR}")

    async def kubeconfig(self) -> Path:
        token = await self.client.token(self.namespace, names.OPERATOR)
        path = self.folder / "kubeconfig"
        whole = json.loads(self.sandbox.kubeconfig.read_text())
        whole["users"] = [{"name": each["name"], "user": {"token": token.token}} for each in whole["users"]]
        write_json(path, whole)
        return path

    @asynccontextmanager
    async def operator(self, *flags: str) -> AsyncIterator[Operator]:
        """The operator; ended in order unless the test has killed it."""
        log = self.folder / f"operator-{secrets.token_hex(2)}.log"
        process = await start(
            log,
            *("run", "operator", f"--namespace={self.namespace}", f"--kubeconfig={await self.kubeconfig()}"),
            *("--port=0", "--metrics-port=0", "--health-port=0"),
            *flags,
            output=asyncio.subprocess.PIPE,
        )
        running = Operator(process, log)
        try:
            yield running
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
                async with asyncio.timeout(SECONDS):
                    assert await process.wait() == 0, log.read_text()
        finally:
            if process.returncode is None:
                await running.kill()
            print(log.read_text())  # noqa: T201 - for whoever reads why a test failed

    @asynccontextmanager
    async def deployed(self, *components: str, others: Json | None = None, **operator: Any) -> AsyncIterator[None]:
        """The operator as it is installed: a Deployment, whose pods the sandbox runs. ``operator``: its values; without
        ``components`` the usual ones. ``others``: values of the installation beside these."""
        values: Json = {"operator": {"replicas": 1, **operator}, **(others or {})}
        values |= {"components": components} if components else {}
        settings = msgspec.convert(values, InstallationSettings)
        for document in operator_objects(settings, namespace=self.namespace):
            where = document["metadata"].get("namespace", "")
            await self.client.apply(by_kind(document["apiVersion"], document["kind"]), document, namespace=where)

        async def available() -> bool:
            deployment = await self.client.get(DEPLOYMENTS, names.OPERATOR, namespace=self.namespace)
            return bool(deployment.get("status", {}).get("availableReplicas", 0))

        await eventually(available)
        await eventually(self._is_registered)
        yield

    async def _is_registered(self) -> bool:
        found = await self.client.get(CRDS, str(CPPCS))
        await self.client.get(VALIDATING_WEBHOOKS, names.OPERATOR)
        return bool(found["spec"]["conversion"]["strategy"] == "Webhook")

    # -- objects ------------------------------------------------------------------------------------------------------

    async def create(self, resource: Resource, name: str, spec: Json, *, namespace: str = "", **metadata: Any) -> Json:
        document = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        async with asyncio.timeout(SECONDS):
            while True:
                try:
                    return await self.client.create(resource, document, namespace=namespace, type=dict)
                except Unavailable as error:
                    if error.status != 503:
                        raise
                    await asyncio.sleep(0.1)  # the API server makes a new handler for a definition that has changed

    async def team(self, **labels: str) -> str:
        """A namespace of users."""
        name = f"operator-team-{secrets.token_hex(3)}"
        await create_namespace(self.client, name, labels)
        return name

    async def configuration(self) -> Json:
        return await self.client.get(CPPCS, names.SINGLETON)

    async def condition(self, kind: str, status: str, *, seconds: float = SECONDS) -> Json:
        """The condition of the ClusterPodPlacementConfig, once it has this status."""

        async def there() -> Json | None:
            found = (await self.configuration()).get("status", {}).get("conditions", ())
            return next((each for each in found if (each["type"], each["status"]) == (kind, status)), None)

        found: Json = await eventually(there, seconds=seconds)
        return found

    async def left(self) -> list[str]:
        """Every object that carries the label of operands, in the operator's namespace or in none."""
        found = []
        for resource in OPERANDS:
            where = self.namespace if resource.namespaced else ""
            listed = await self.client.list(resource, namespace=where, label_selector=names.OPERAND_LABEL)
            found += [f"{resource} {each['metadata']['name']}" for each in listed.items]
        return found

    async def is_gone(self, resource: Resource, name: str, namespace: str = "") -> bool:
        try:
            await self.client.get(resource, name, namespace=namespace)
        except NotFound:
            return True
        return False

    async def is_there(self, resource: Resource, name: str, namespace: str = "") -> bool:
        where = namespace or (self.namespace if resource.namespaced else "")
        return not await self.is_gone(resource, name, where)

    async def secret(self, name: str) -> dict[str, bytes]:
        found = await self.client.get(SECRETS, name, namespace=self.namespace)
        return {key: base64.b64decode(value) for key, value in found["data"].items()}

    async def clear(self) -> None:
        """Ends what this test or one before it has left of cluster-wide objects, whatever finalizers they have."""
        await self.client.patch(
            CRDS, str(CPPCS), MergePatch({"spec": {"conversion": {"strategy": "None", "webhook": None}}})
        )
        await uninstall.remove_taints(self.client)
        for resource in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS):
            for name in (names.OPERATOR, names.WEBHOOK_CONFIGURATION, taint_names.ROLE):
                await self.delete(resource, name)
        for resource in (PPCS, CPPCS, POLICIES, ARCHITECTURE_TAINTS, *IN_CLUSTER):
            for metadata in await self.found(resource):
                await self.delete(resource, metadata["name"], metadata.get("namespace", ""))
        for metadata in await self.found(NAMESPACES):
            if metadata["name"].startswith("operator-") and "deletionTimestamp" not in metadata:
                for each in await self.found(DEPLOYMENTS, metadata["name"]):
                    await self.delete(DEPLOYMENTS, each["name"], metadata["name"])
                await self.delete(NAMESPACES, metadata["name"])

    async def found(self, resource: Resource, namespace: str = "") -> list[Json]:
        """Metadata of the objects of a kind; of kinds that others have, too, only of operands."""
        label = names.OPERAND_LABEL if resource in OPERANDS else ""
        listed = await self.client.list(resource, namespace=namespace, label_selector=label)
        return [each["metadata"] for each in listed.items]

    async def delete(self, resource: Resource, name: str, namespace: str = "") -> None:
        with suppress(NotFound):
            if resource != NAMESPACES:
                free = MergePatch({"metadata": {"finalizers": None}})
                await self.client.patch(resource, name, free, namespace=namespace)
            await self.client.delete(resource, name, namespace=namespace)
