"""Builds under faults: the builder behind proxies, and what becomes of Jobs and images, watched by somebody else.

Architecture Jobs push to a staging repository directly; the builder copies from there and writes to the repository of
the result through the proxy, so all that the proxy sees is the builder's. Build pods select a label that nodes get when
a scenario wants them to run.
"""

import asyncio
import contextlib
import secrets
import ssl
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
from builder_process import BUILDER_IMAGE, account, define, runs, seed
from fault_mortal import Mortal
from fault_proxy import FaultProxy, Seen, server_tls
from fault_table import Row
from namespaces import create_namespace
from placement_cluster import until
from registry_reader import Reader

from polyarch.builds import names
from polyarch.builds.controller.informers import is_finished
from polyarch.builds.facts.objects import JobObject
from polyarch.kube.client import Client
from polyarch.kube.informer import Informer
from polyarch.kube.patches import MergePatch
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import CONFIGMAPS, JOBS, NAMESPACES, NODES, PODS, Resource
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey, ObjectMeta
from polyarch.operator.settings import DEFAULT_IMAGE
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.fake_buildah import ARGUMENT

Json = dict[str, Any]
ARCHITECTURES: Final = ("amd64", "arm64")
QUOTAS: Final = Resource("", "v1", "resourcequotas", "ResourceQuota")
NODES_OF: Final = {"amd64": "amd64-1", "arm64": "arm64-2"}
SECONDS: Final = 60.0


class BuildFaults:
    """What the scenarios share."""

    def __init__(self, sandbox: Sandbox, client: Client, registry: FaultProxy, folder: Path) -> None:
        self.sandbox = sandbox
        self.client = client
        self.registry = registry
        self.folder = folder

    @classmethod
    @asynccontextmanager
    async def opened(cls, sandbox: Sandbox, folder: Path) -> AsyncIterator["BuildFaults"]:
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(sandbox.client())
            registry = await stack.enter_async_context(FaultProxy(f"http://{sandbox.registry.address}"))
            await define(client)
            await seed(sandbox, "quay.io/faults/base:1")
            yield cls(sandbox, client, registry, folder)

    @asynccontextmanager
    async def builder(self, home: str, name: str = "builder") -> AsyncIterator[Mortal]:
        """Processes of the role that share a Lease with all others of that namespace; none is started yet."""
        conf = self.folder / "registries.conf"
        conf.write_text(
            f"{self.sandbox.registries_conf.read_text()}\n"
            f'[[registry]]\nprefix = "{self.registry.address}"\nlocation = "{self.registry.address}"\ninsecure = true\n'
        )
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        trusted = ssl.create_default_context(cafile=str(self.sandbox.ca))
        async with (
            FaultProxy(
                self.sandbox.api_server, upstream_ssl=trusted, server_ssl=server_tls(self.sandbox, folder)
            ) as api,
            account(self.sandbox, self.client, home, folder, server=api.url) as kubeconfig,
        ):
            arguments = [
                *("run", "builder", f"--namespace={home}", f"--kubeconfig={kubeconfig}", "--machine-os=off"),
                *("--port=0", "--metrics-port=0", "--health-port=0", "--allow-address=127.0.0.0/8"),
                *(f"--registries-conf={conf}", f"--builder-image={BUILDER_IMAGE}", f"--push-image={DEFAULT_IMAGE}"),
            ]
            async with Mortal.of(
                "builder",
                api,
                arguments,
                client=self.client,
                lease=ObjectKey(home, names.LEASE),
                log=folder / "builder.log",
                registry=self.registry,
            ) as mortal:
                yield mortal
            assert not mortal.bugs()

    @asynccontextmanager
    async def estate(self) -> AsyncIterator["Estate"]:
        """A namespace of the scenario's own, and repositories."""
        self.registry.faults.clear()
        name = f"builds-{secrets.token_hex(4)}"
        await create_namespace(self.client, name)
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=SECONDS)) as session:
            estate = Estate(self, name, Reader(session, self.sandbox.registry.address))
            try:
                async with estate.watched():
                    yield estate
            finally:
                await estate.open(None)
                await self.client.delete(NAMESPACES, name)


class Estate:
    """The builds of one namespace; ``made`` are all Jobs that ever were, ``crowded`` keys with two live ones."""

    def __init__(self, faults: BuildFaults, namespace: str, reader: Reader) -> None:
        self.namespace = namespace
        self.made: dict[tuple[str, str, str], set[str]] = {}
        """UIDs of Jobs by build, architecture and key."""
        self.crowded: set[tuple[str, str, str]] = set()
        self.registry = faults.registry
        self.client = faults.client
        self._live: dict[ObjectKey, tuple[str, str, str]] = {}
        self._reader = reader
        self._staging = f"{faults.sandbox.registry.address}/{namespace}"
        self._repository = f"{faults.registry.address}/{namespace}"

    # -- builds --------------------------------------------------------------------------------------------------------

    async def want(self, name: str, *, mishap: Mapping[str, str] | None = None, **spec: Any) -> None:
        """An ImageBuild for both architectures; ``mishap`` by architecture is what its build is asked for."""
        arguments = {each: {ARGUMENT: text} for each, text in (mishap or {}).items()}
        select = {"nodeSelector": {f"faults.test/{self.namespace}": "open"}}
        document = {
            "apiVersion": names.IMAGE_BUILDS.api_version,
            "kind": names.IMAGE_BUILDS.kind,
            "metadata": {"name": name},
            "spec": {
                "source": {
                    "containerfile": f"FROM quay.io/faults/base:1\nRUN {name}\n",
                    "overrides": [{"architecture": each, "buildArgs": arguments[each]} for each in arguments],
                },
                "architectures": {"mode": "Explicit", "list": list(ARCHITECTURES)},
                "output": {
                    "repository": f"{self._repository}/{name}",
                    "stagingRepository": f"{self._staging}/{name}-staging",
                    "tags": ["latest"],
                },
                "scheduling": {"perArchitecture": [{"architecture": each, **select} for each in ARCHITECTURES]},
                **spec,
            },
        }
        await self.client.apply(names.IMAGE_BUILDS, document, namespace=self.namespace)

    async def override(self, name: str, text: str) -> None:
        """Another text for arm64."""
        overrides = [{"architecture": "arm64", "containerfile": f"FROM quay.io/faults/base:1\nRUN {name} {text}\n"}]
        await self.patch(names.IMAGE_BUILDS, name, {"spec": {"source": {"overrides": overrides}}})

    async def patch(self, resource: Resource, name: str, change: Json) -> None:
        await self.client.patch(resource, name, MergePatch(change), namespace=self.namespace)

    async def open(self, value: str | None = "open") -> None:
        """From now on nodes take the build pods of this namespace; None: they have no label of it."""
        for node in NODES_OF.values():
            labels = {f"faults.test/{self.namespace}": value}
            await self.client.patch(NODES, node, MergePatch({"metadata": {"labels": labels}}))

    async def status(self, name: str) -> Json:
        found = await self.client.get(names.IMAGE_BUILDS, name, namespace=self.namespace)
        status: Json = found.get("status") or {}
        return status if status.get("observedGeneration") == found["metadata"]["generation"] else {}

    async def condition(self, name: str, type: str) -> tuple[str, str]:
        found = [each for each in (await self.status(name)).get("conditions") or () if each["type"] == type]
        return (found[0]["status"], found[0]["reason"]) if found else ("", "")

    async def runs(self, name: str) -> list[Json]:
        return [each for each in await runs(self.client, self.namespace) if each["spec"]["imageBuild"]["name"] == name]

    async def published(self, name: str) -> bool:
        """Whether nothing is left to do; whatever the tag names until then is whole."""
        await self.whole(name)
        status = await self.status(name)
        return not status.get("activeRun") and await self.condition(name, "Ready") == ("True", "Published")

    async def phases(self, name: str) -> dict[str, str]:
        """By architecture, of the newest Run."""
        found = await self.runs(name)
        status = (found[-1].get("status") or {}) if found else {}
        return {each["architecture"]: each["phase"] for each in status.get("architectures") or ()}

    async def reached(self, name: str, *phases: str) -> None:
        """Waits until the newest Run's architectures are in these phases."""

        async def is_so() -> bool:
            return tuple((await self.phases(name)).values()) == phases

        await self.until(is_so)

    async def until(self, holds: Callable[[], Awaitable[bool]]) -> None:
        try:
            await until(holds, seconds=SECONDS)
        except AssertionError as error:
            for each in await runs(self.client, self.namespace):
                error.add_note(f"{each['metadata']['name']}: {each.get('status')}")
            raise

    # -- what becomes of it --------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        informer: Informer[JobObject] = Informer(
            self.client, JOBS, JobObject, selection=ListOptions(namespace=self.namespace)
        )
        informer.add_handler(self._seen)
        watching = asyncio.create_task(informer.run())
        try:
            await informer.synced()
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _seen(self, change: ObjectChange[JobObject]) -> None:
        job = change.new
        template = (job.spec.template.metadata if job is not None else None) or ObjectMeta()
        key = (template.annotations or {}).get(names.KEY_ANNOTATION, "")
        if job is None or not key or is_finished(job) or job.metadata.deletion_timestamp is not None:
            self._live.pop(change.key, None)
            return
        labels = template.labels or {}
        what = (labels[names.BUILD_LABEL], labels[names.ARCHITECTURE_LABEL], key)
        self.made.setdefault(what, set()).add(job.metadata.uid)
        self._live[change.key] = what
        self.crowded |= {each for each, count in Counter(self._live.values()).items() if count > 1}

    def jobs_of(self, name: str) -> list[str]:
        """The architecture of every Job that was made for a build."""
        return sorted(each for (build, each, _), uids in self.made.items() if build == name for _ in uids)

    async def job(self, name: str, architecture: str) -> str:
        """The name of the Job of the newest Run."""
        status = (await self.runs(name))[-1]["status"]
        found: str = next(each["job"] for each in status["architectures"] if each["architecture"] == architecture)
        return found

    async def pods(self, job: str) -> list[str]:
        found = await self.client.list(PODS, namespace=self.namespace, label_selector=f"job-name={job}")
        return [each["metadata"]["name"] for each in found.items]

    async def whole(self, name: str) -> str:
        """The digest that the tag names, of which every part is there; empty while there is no tag."""
        repository = f"{self.namespace}/{name}"
        with contextlib.suppress(AssertionError):
            await self._reader.document(repository, "latest")
            digest, platforms = await self._reader.whole(repository, "latest")
            assert platforms == [f"linux/{each}" for each in ARCHITECTURES]
            return digest
        return ""

    async def orphans(self) -> list[str]:
        """Jobs, of which all Runs have ended, and ConfigMaps that belong to no Run that is there."""
        known = {each["metadata"]["uid"] for each in await runs(self.client, self.namespace)}
        jobs = (await self.client.list(JOBS, namespace=self.namespace)).items
        maps = (await self.client.list(CONFIGMAPS, namespace=self.namespace, label_selector=names.RUN_LABEL)).items
        found = [f"Job {each['metadata']['name']}" for each in jobs]
        for each in maps:
            owners = {owner["uid"] for owner in each["metadata"].get("ownerReferences") or ()}
            found += [f"ConfigMap {each['metadata']['name']}"] * owners.isdisjoint(known)
        return found

    def repeated(self, lost: list[Seen]) -> list[str]:
        """Manifests that the registry was given more than once, of the requests that reached it."""
        reached = [each for each in self.registry.seen if not any(each is other for other in lost)]
        puts = Counter(each.path for each in reached if each.method == "PUT" and "/manifests/sha256:" in each.path)
        return [path for path, count in puts.items() if count > 1 and f"/{self.namespace}/" in path]

    def row(self, scenario: str, *, wrong: int = 0, note: str = "") -> Row:
        """Jobs are counted for pods; ``doubled`` are keys with a second live Job."""
        count = sum(len(each) for each in self.made.values())
        return Row(
            scenario=f"builds: {scenario}",
            pods=count,
            released=count,
            wrong=wrong,
            doubled=len(self.crowded),
            note=note,
        )
