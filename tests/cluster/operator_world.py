"""A control plane in which a test runs the operator itself, with a ServiceAccount of its own and exactly its rights.

The operator is a host process here. A test that needs the webhooks of custom resources registers them by URL; the ones
that the operator registers by Service need a cluster that runs its pods.
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

import trustme
from audited import Audited
from placement_process import start

from polyarch.kube.access import config
from polyarch.kube.client.client import Client, MergePatch
from polyarch.kube.errors import ApiError, NotFound, Unavailable
from polyarch.kube.objects.rbac import granted
from polyarch.kube.resources import (
    CRDS,
    MUTATING_WEBHOOKS,
    NAMESPACES,
    SECRETS,
    SERVICE_ACCOUNTS,
    VALIDATING_WEBHOOKS,
    Resource,
    by_kind,
)
from polyarch.placement import names
from polyarch.placement.api.crds import crds
from polyarch.placement.api.resources import CPPCS, ENOEXECEVENTS, POLICIES, PPCS
from polyarch.placement.lifecycle.operand_sets import AT_HOME, GRANTED, IN_CLUSTER
from polyarch.placement.operator.operator_rules import operator_rules
from polyarch.placement.operator.settings import DEFAULT_IMAGE, Cluster, OperatorSettings
from polyarch.placement.operator.workloads import ARCHITECTURES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json

Json = dict[str, Any]
SECONDS = 60.0
CPPCS_V1ALPHA1 = Resource(CPPCS.group, "v1alpha1", CPPCS.plural, CPPCS.kind, namespaced=False)
OPERANDS = (*AT_HOME, *GRANTED, *IN_CLUSTER)
KINDS = (CPPCS, CPPCS_V1ALPHA1, PPCS, ENOEXECEVENTS, POLICIES)


async def eventually(check: Callable[[], Awaitable[Any]], *, seconds: float = SECONDS, pause: float = 0.1) -> Any:
    """What the check returns once that is true, or no NotFound any more."""
    try:
        async with asyncio.timeout(seconds):
            while True:
                with suppress(NotFound):
                    if found := await check():
                        return found
                await asyncio.sleep(pause)
    except TimeoutError:
        raise AssertionError(f"not so after {seconds:g} s: {check}") from None


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


class World:
    """The administrator's view."""

    def __init__(self, sandbox: Sandbox, client: Client, folder: Path, namespace: str) -> None:
        self.sandbox = sandbox
        self.client = client
        self.folder = folder
        self.namespace = namespace
        self.ca = trustme.CA()
        issued = self.ca.issue_cert("127.0.0.1")
        self.certificates = folder / "certificates"
        self.certificates.mkdir()
        self.certificates.joinpath("tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())
        self.certificates.joinpath("tls.key").write_bytes(issued.private_key_pem.bytes())

    @classmethod
    @asynccontextmanager
    async def opened(cls, sandbox: Sandbox, folder: Path) -> AsyncIterator["World"]:
        """A world with a namespace of its own, cleared at the end."""
        async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as client:
            world = cls(sandbox, client, folder, f"operator-{secrets.token_hex(3)}")
            try:
                yield world
            finally:
                await world.clear()

    # -- the installation ---------------------------------------------------------------------------------------------

    async def install(self) -> None:
        """What the installer makes but the Deployment: CRDs, namespace, ServiceAccount and exactly its rights."""
        await self.sandbox.registry.seed({DEFAULT_IMAGE: [f"linux/{each}" for each in ARCHITECTURES]})
        for document in crds():
            await self.client.apply(CRDS, document)
        for resource in KINDS:
            await eventually(lambda resource=resource: self._is_served(resource))
        home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}}
        await self.client.apply(NAMESPACES, home)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": names.OPERATOR}}
        await self.client.apply(SERVICE_ACCOUNTS, account, namespace=self.namespace)
        accounts = [(self.namespace, names.OPERATOR)]
        rights = operator_rules(OperatorSettings(namespace=self.namespace), Cluster())
        documents = granted(names.OPERATOR, rights.cluster, accounts)
        for namespace, rules in rights.namespaces.items():
            documents += granted(names.OPERATOR, rules, accounts, namespace=namespace)
        for document in documents:
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
    async def operator(self, *flags: str, mounted: bool = True) -> AsyncIterator[Operator]:
        """The operator; ended in order unless the test has killed it. ``mounted``: it serves with the test's own
        certificate for 127.0.0.1, because the API server has to reach it by URL."""
        log = self.folder / f"operator-{secrets.token_hex(2)}.log"
        process = await start(
            log,
            *("run", "operator", f"--namespace={self.namespace}", f"--kubeconfig={await self.kubeconfig()}"),
            *("--port=0", "--metrics-port=0", "--health-port=0"),
            *((f"--cert-dir={self.certificates}",) if mounted else ()),
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

    # -- webhooks by URL ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def webhooks(self, url: str) -> AsyncIterator[None]:
        """The API server asks the operator at this URL, as the configurations by Service would make it."""
        authority = base64.b64encode(self.ca.cert_pem.bytes()).decode()

        def asking(path: str) -> Json:
            return {"clientConfig": {"url": url + path, "caBundle": authority}}

        await self.convert_by({**asking(names.CONVERSION_PATH), "conversionReviewVersions": ["v1"]})
        registered = list(_registered(asking))
        for resource, document in registered:
            await self.client.apply(resource, document)
        await asyncio.sleep(1)  # API servers learn of webhooks by a watch
        try:
            yield
        finally:
            for resource, document in registered:
                with suppress(NotFound):
                    await self.client.delete(resource, document["metadata"]["name"])
            await self.convert_by(None)

    async def convert_by(self, webhook: Json | None) -> None:
        conversion = {"strategy": "Webhook", "webhook": webhook} if webhook else {"strategy": "None", "webhook": None}
        await self.client.patch(CRDS, str(CPPCS), MergePatch({"spec": {"conversion": conversion}}))

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
        """Every object that carries the label of operands."""
        found = []
        for resource in OPERANDS:
            listed = await self.client.list(resource, label_selector=f"{names.OPERAND_LABEL}={names.OPERAND}")
            found += [f"{resource} {each['metadata']['name']}" for each in listed.items]
        return found

    async def is_gone(self, resource: Resource, name: str, namespace: str = "") -> bool:
        try:
            await self.client.get(resource, name, namespace=namespace)
        except NotFound:
            return True
        return False

    async def secret(self, name: str) -> dict[str, bytes]:
        found = await self.client.get(SECRETS, name, namespace=self.namespace)
        return {key: base64.b64decode(value) for key, value in found["data"].items()}

    async def clear(self) -> None:
        """Ends what a test has left of cluster-wide objects, whatever finalizers they have."""
        for resource in (PPCS, CPPCS, POLICIES):
            for document in (await self.client.list(resource)).items:
                metadata = document["metadata"]
                where = metadata.get("namespace", "")
                with suppress(NotFound, ApiError):
                    await self.client.patch(
                        resource, metadata["name"], MergePatch({"metadata": {"finalizers": None}}), namespace=where
                    )
                with suppress(NotFound):
                    await self.client.delete(resource, metadata["name"], namespace=where)
        with suppress(NotFound):
            await self.client.delete(NAMESPACES, self.namespace)


def _registered(asking: Callable[[str], Json]) -> list[tuple[Resource, Json]]:
    """As ``operator.webhooks`` has them, but by URL."""

    def webhook(name: str, path: str, policy: str, resource: Resource, versions: list[str], *operations: str) -> Json:
        rule = {
            "apiGroups": [resource.group],
            "apiVersions": versions,
            "resources": [resource.plural],
            "operations": list(operations),
        }
        return {
            "name": name,
            **asking(path),
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "matchPolicy": "Equivalent" if name.startswith("validate") else "Exact",
            "failurePolicy": policy,
            "rules": [rule],
        }

    both, new, old = ["v1alpha1", "v1beta1"], ["v1beta1"], ["v1alpha1"]
    configurations = {
        (MUTATING_WEBHOOKS, names.CPPC_DEFAULTS): [
            webhook(names.CPPC_DEFAULTS, names.CPPC_DEFAULTS_PATH, "Ignore", CPPCS, both, "CREATE"),
            webhook(names.CPPC_KEPT, names.CPPC_KEPT_PATH, "Fail", CPPCS, old, "UPDATE"),
        ],
        (VALIDATING_WEBHOOKS, names.CPPC_WEBHOOK): [
            webhook(names.CPPC_WEBHOOK, names.CPPC_WEBHOOK_PATH, "Fail", CPPCS, new, "CREATE", "UPDATE", "DELETE")
        ],
        (VALIDATING_WEBHOOKS, names.PPC_WEBHOOK): [
            webhook(names.PPC_WEBHOOK, names.PPC_WEBHOOK_PATH, "Fail", PPCS, new, "CREATE", "UPDATE")
        ],
    }
    return [
        (
            resource,
            {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": f"test-{name}"},
                "webhooks": webhooks,
            },
        )
        for (resource, name), webhooks in configurations.items()
    ]
