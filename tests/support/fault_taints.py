"""Nodes, DaemonSets and pods under the role ``taints``: the same for each scenario, and compared with a run that
nothing disturbed.

Half of the objects are there before the role is started, half come while it works. Pods ask for a scheduler that does
not exist, so nothing but polyarch writes them. The role speaks to the API server and to its registry through fault
proxies; the nodes and Kubernetes' own controllers do not.
"""

import asyncio
import secrets
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

import own_roles
import own_taints
from fault_mortal import Mortal
from fault_proxy import FaultProxy, server_tls
from fault_table import Row
from namespaces import create_namespace

from polyarch.kube.client import Client
from polyarch.kube.errors import AlreadyExists, ApiError, ConnectionFailed, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.patches import MergePatch
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import DAEMONSETS, MUTATING_WEBHOOKS, NAMESPACES, NODES, PODS, Resource
from polyarch.kube.store import ObjectChange
from polyarch.objects import ObjectKey, Pod
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json
from polyarch.sandbox.state import LOOPBACK, NAMESPACE, choose_ports
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.settings import TaintSettings

Json = dict[str, Any]
KEY: Final = "supported-arch"
GATE_SECONDS: Final = 10.0
"""``gateTimeout`` of a scenario, unless it is longer for its sake: the shortest that there is."""
GRACE_SECONDS: Final = 10.0
"""How long a gate may outlive ``gateTimeout``."""
LISTEN_TRIES: Final = 50
SETTLE_SECONDS: Final = 150.0
HOST: Final = "quay.io"
FLEET: Final = {"amd64": 2, "arm64": 2, "s390x": 1}


def taint(key: str, value: str, effect: str = "NoSchedule") -> Json:
    return {"key": key, "value": value, "effect": effect}


BATCH, GPU, SOON = (
    taint("dedicated", "batch"),
    taint("gpu", "yes", "PreferNoSchedule"),
    taint("maintenance", "soon", "PreferNoSchedule"),
)
BEFORE: Final[Mapping[str, list[Json]]] = {
    "amd64-1": [],
    "amd64-2": [BATCH],
    "arm64-1": [GPU, taint(KEY, "amd64"), SOON],
    "arm64-2": [SOON, GPU],
    "s390x-1": [],
}
"""Taints of the nodes at the beginning: those of others, and one of ours that is wrong."""
AFTER: Final[Mapping[str, list[Json]]] = {
    "amd64-1": [taint(KEY, "amd64")],
    "amd64-2": [BATCH, taint(KEY, "amd64")],
    "arm64-1": [GPU, taint(KEY, "arm64"), SOON],
    "arm64-2": [SOON, GPU, taint(KEY, "arm64")],
    "s390x-1": [taint(KEY, "s390x")],
}
IMAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "everywhere": ("amd64", "arm64", "s390x"),
    "two": ("amd64", "arm64"),
    "one": ("arm64", "amd64"),
    "rare": ("amd64", "s390x"),
}
"""By repository. All run on amd64, which is the primary architecture: a fallback adds nothing that is too much."""
MISSING: Final = "missing"
"""A repository that nobody pushed."""
AGENTS: Final = ("everywhere", "two")
"""Images of the DaemonSets."""


def specification(gate_seconds: float) -> Json:
    return {
        "mode": "tolerations",
        "nodes": {"perMinute": 120},
        "pods": {"gateTimeout": f"{gate_seconds:.0f}s", "running": "skip"},
        "daemonSets": {"maxConcurrentRollouts": 2},
    }


class TaintFaults:
    """What the scenarios share: a sandbox, the proxies, and how to start the role."""

    def __init__(
        self, sandbox: Sandbox, client: Client, api: FaultProxy, registry: FaultProxy, mortal: Mortal, port: int
    ) -> None:
        self.sandbox = sandbox
        self.client = client
        self.api = api
        self.registry = registry
        self.mortal = mortal
        self.port = port
        self.undisturbed: Json = {}
        """What a run came to that nothing disturbed."""

    @classmethod
    @asynccontextmanager
    async def opened(cls, sandbox: Sandbox, folder: Path) -> AsyncIterator["TaintFaults"]:
        trusted = ssl.create_default_context(cafile=str(sandbox.ca))
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(sandbox.client())
            api = await stack.enter_async_context(
                FaultProxy(sandbox.api_server, upstream_ssl=trusted, server_ssl=server_tls(sandbox, folder))
            )
            registry = await stack.enter_async_context(FaultProxy(f"http://{sandbox.registry.address}"))
            registries_conf = folder / "registries.conf"
            location = f"{registry.address}/{HOST}"
            registries_conf.write_text(f'[[registry]]\nprefix = "{HOST}"\nlocation = "{location}"\ninsecure = true\n')
            await own_taints.install(client)
            kubeconfig = folder / "taints.kubeconfig"
            token = await client.token(NAMESPACE, names.ROLE, expiration_seconds=24 * 3600)
            write_json(kubeconfig, kubeconfig_with_token("taints", api.url, str(sandbox.ca), token.token))
            port = choose_ports([sandbox.state.ports]).apiserver
            arguments = [
                *("run", "taints", f"--namespace={NAMESPACE}", f"--kubeconfig={kubeconfig}"),
                *(f"--port={port}", "--metrics-port=0", "--health-port=0"),
                *(f"--cert-dir={sandbox.pki.webhook_folder}", f"--registries-conf={registries_conf}"),
                f"--allow-address={LOOPBACK}/32",
            ]
            lease = ObjectKey(NAMESPACE, names.LEASE)
            mortal = await stack.enter_async_context(
                Mortal.of("taints", api, arguments, client=client, lease=lease, log=folder / "taints.log")
            )
            faults = cls(sandbox, client, api, registry, mortal, port)
            async with faults.scenario() as estate:
                await faults.start()
                await estate.switch_on()
                faults.undisturbed = await estate.settled(is_expected)
            yield faults
            assert not mortal.bugs()

    async def start(self) -> None:
        """The role, once it answers admissions, or when it should have: what a scenario does to it may keep it."""
        await self.mortal.start()
        for _ in range(LISTEN_TRIES):
            with suppress(OSError):
                _, writer = await asyncio.open_connection(LOOPBACK, self.port)
                writer.close()
                return
            await asyncio.sleep(0.2)

    async def begin(self) -> None:
        """The nodes as at the beginning, and nothing of taints in the cluster but definitions and rights."""
        await self.mortal.kill()
        for proxy in (self.api, self.registry):
            proxy.faults.clear()
        for resource, name in ((MUTATING_WEBHOOKS, names.ROLE), (ARCHITECTURE_TAINTS, names.SINGLETON)):
            with suppress(NotFound):
                await self.client.patch(resource, name, MergePatch({"metadata": {"finalizers": None}}))
                await self.client.delete(resource, name)
        for name, taints in BEFORE.items():
            change = {"metadata": {"annotations": {names.MANAGED_TAINTS_ANNOTATION: None}}, "spec": {"taints": taints}}
            await self.client.patch(NODES, name, MergePatch(change))

    async def configure(self, gate_seconds: float) -> None:
        settings = TaintSettings.of(specification(gate_seconds))
        url = f"https://{LOOPBACK}:{self.port}"
        key = own_roles.review_key(self.sandbox)
        await own_taints.register(self.client, settings, url, self.sandbox.ca.read_bytes(), review_key=key)
        document = {
            "apiVersion": ARCHITECTURE_TAINTS.api_version,
            "kind": ARCHITECTURE_TAINTS.kind,
            "metadata": {"name": names.SINGLETON},
            "spec": specification(gate_seconds),
        }
        await self.client.apply(ARCHITECTURE_TAINTS, document)

    @asynccontextmanager
    async def scenario(self, *, gate_seconds: float = GATE_SECONDS) -> AsyncIterator["Estate"]:
        """Nodes tainted as before, the first DaemonSets and pods; it is for the scenario to start the role."""
        await self.begin()
        name = f"faults-{secrets.token_hex(4)}"
        prefix = f"{HOST}/{name}"
        await self.sandbox.registry.seed(
            {f"{prefix}/{image}:1": [f"linux/{each}" for each in supported] for image, supported in IMAGES.items()}
        )
        await create_namespace(self.client, name)
        estate = Estate(self, name, prefix, gate_seconds)
        try:
            async with estate.watched():
                await estate.populate("found")
                yield estate
        finally:
            await self.mortal.kill()
            await self.client.delete(NAMESPACES, name)


class Estate:
    """What one scenario is about: the nodes, and DaemonSets and pods in a namespace of its own."""

    def __init__(self, faults: TaintFaults, namespace: str, prefix: str, gate_seconds: float) -> None:
        self.namespace = namespace
        self.gated_at: dict[str, float] = {}
        self.released_at: dict[str, float] = {}
        self._faults = faults
        self._client = faults.client
        self._prefix = prefix
        self._gate_seconds = gate_seconds
        self._began = asyncio.get_running_loop().time()

    # -- objects -------------------------------------------------------------------------------------------------------

    async def configure(self) -> None:
        """The webhook and ArchitectureTaints, as the operator and an admin make them."""
        await self._faults.configure(self._gate_seconds)

    async def switch_on(self) -> None:
        """They, and then the other half of the objects."""
        await self.configure()
        await self.populate("new")

    async def populate(self, when: str) -> None:
        """A DaemonSet of each kind, and pods of each image and one that nobody pushed."""
        for image in AGENTS:
            await self._create(DAEMONSETS, self._daemon_set(f"{when}-{image}", image))
        for image in (*IMAGES, MISSING):
            for turn in range(3):
                await self._create(PODS, self._pod(f"{when}-{image}-{turn}", image))

    async def _create(self, resource: Resource, document: Json) -> None:
        """What the API server does not answer is sent again."""
        while True:
            try:
                await self._client.create(resource, document, namespace=self.namespace)
                return
            except AlreadyExists:
                return
            except ConnectionFailed:
                await asyncio.sleep(0.2)
            except ApiError as error:
                if error.status not in (403, 429, 500, 503):  # 403: its caches after a restart are not complete
                    raise
                await asyncio.sleep(0.2)

    def _containers(self, image: str) -> list[Json]:
        return [{"name": "main", "image": f"{self._prefix}/{image}:1"}]

    def _pod(self, name: str, image: str) -> Json:
        spec = {"containers": self._containers(image), "schedulerName": "nobody", "automountServiceAccountToken": False}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    def _daemon_set(self, name: str, image: str) -> Json:
        labels = {"agent": name}
        # It selects the nodes that its image runs on, as its author would.
        term = {"matchExpressions": [{"key": names.ARCH_KEY, "operator": "In", "values": [*IMAGES[image]]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        spec = {"containers": self._containers(image), "affinity": affinity, "terminationGracePeriodSeconds": 0}
        return {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": name},
            "spec": {
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
                "updateStrategy": {"rollingUpdate": {"maxUnavailable": "100%"}},
            },
        }

    # -- what becomes of them ------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """When each pod is gated, and when no longer."""
        informer: Informer[Pod] = Informer(self._client, PODS, Pod, selection=ListOptions(namespace=self.namespace))
        informer.add_handler(self._seen)
        watching = asyncio.create_task(informer.run())
        try:
            await informer.synced()
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    def _seen(self, change: ObjectChange[Pod]) -> None:
        if change.new is None:
            return
        gated = any(gate.name == names.GATE for gate in change.new.spec.scheduling_gates or ())
        now = asyncio.get_running_loop().time()
        if gated:
            self.gated_at.setdefault(change.key.name, now)
        elif change.key.name in self.gated_at:
            self.released_at.setdefault(change.key.name, now)

    async def state(self) -> Json:
        """All that polyarch decides, without what differs from run to run."""
        nodes = (await self._client.list(NODES)).items
        sets = (await self._client.list(DAEMONSETS, namespace=self.namespace)).items
        pods = (await self._client.list(PODS, namespace=self.namespace)).items
        return {
            "nodes": {each["metadata"]["name"]: _node(each) for each in nodes},
            "daemonsets": {each["metadata"]["name"]: _daemon_set(each) for each in sets},
            "pods": {
                each["metadata"]["name"]: _pod(each) for each in pods if each["spec"]["schedulerName"] == "nobody"
            },
        }

    async def settled(self, holds: Callable[[Json], bool], *, seconds: float = SETTLE_SECONDS) -> Json:
        """The state once it ``holds``, else the last one: what is wrong then is counted."""
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while True:
            with suppress(ApiError, ConnectionFailed):
                state = await self.state()
                if holds(state) or loop.time() > end:
                    return state
            await asyncio.sleep(0.3)

    def is_as_undisturbed(self, state: Json) -> bool:
        return state == self._faults.undisturbed

    def longest_gate(self) -> float:
        """Seconds; a gate that is still there counts until now."""
        now = asyncio.get_running_loop().time()
        return max((self.released_at.get(name, now) - at for name, at in self.gated_at.items()), default=0.0)

    async def row(self, scenario: str, state: Json, *, note: str = "") -> Row:
        """What became of the pods, and of the nodes and DaemonSets in the note."""
        wanted = self._faults.undisturbed
        pods = state["pods"]
        allowed = self._gate_seconds + GRACE_SECONDS
        wrong = {kind: _different(state[kind], wanted[kind]) for kind in ("nodes", "daemonsets", "pods")}
        requests = [each for each in self._faults.api.seen if f"/namespaces/{self.namespace}/" in each.path]
        parts = [
            f"nodes wrong {len(wrong['nodes'])}, DaemonSets wrong {len(wrong['daemonsets'])}",
            f"settled after {asyncio.get_running_loop().time() - self._began:.0f} s",
            f"longest gate {self.longest_gate():.0f} s",
            note,
        ]
        return Row(
            scenario=f"taints: {scenario}",
            pods=len(pods),
            released=sum(not each["gates"] for each in pods.values()),
            wrong=sum(map(len, wrong.values())),
            stuck=sum(bool(each["gates"]) for each in pods.values()) + (self.longest_gate() > allowed),
            doubled=sum(
                has_duplicates(each["tolerations"]) for kind in ("pods", "daemonsets") for each in state[kind].values()
            ),
            refused_patches=0,
            api_requests=len(requests) / max(len(pods), 1),
            registry_requests=self._faults.registry.count(lambda seen: f"/{self.namespace}/" in seen.path),
            stall=round(self.longest_gate(), 2),
            note="; ".join(filter(None, parts)),
        )


def is_expected(state: Json) -> bool:
    """What the images and the taints of the beginning ask for, said without a run."""
    return not unexpected(state)


def unexpected(state: Json) -> list[str]:
    found = [name for name, node in state["nodes"].items() if node["taints"] != AFTER[name]]
    for when in ("found", "new"):
        for image in AGENTS:
            name = f"{when}-{image}"
            if tolerated(state["daemonsets"].get(name, {})) != sorted(IMAGES[image]):
                found.append(f"DaemonSet {name}")
        for image, supported in {**IMAGES, MISSING: ("amd64",)}.items():
            for turn in range(3):
                pod = state["pods"].get(f"{when}-{image}-{turn}", {"gates": ["absent"]})
                if tolerated(pod) != sorted(supported) or pod["gates"]:
                    found.append(f"pod {when}-{image}-{turn}")
    return found


def tolerated(document: Json) -> list[str]:
    return [each["value"] for each in document.get("tolerations", ()) if each["key"] == KEY]


def _different(state: Json, wanted: Json) -> list[str]:
    return [name for name in state.keys() | wanted.keys() if state.get(name) != wanted.get(name)]


def has_duplicates(tolerations: list[Json]) -> bool:
    return any(each in tolerations[:at] for at, each in enumerate(tolerations))


def _own(metadata: Mapping[str, str] | None) -> dict[str, str]:
    return {name: value for name, value in (metadata or {}).items() if name.startswith(names.GROUP)}


def _without_kubernetes(entries: list[Json] | None) -> list[Json]:
    """Taints or tolerations but those of Kubernetes itself."""
    return [each for each in entries or () if not each.get("key", "").startswith("node.kubernetes.io/")]


def _node(document: Json) -> Json:
    taints = _without_kubernetes(document["spec"].get("taints"))
    return {
        "taints": [{name: value for name, value in each.items() if name != "timeAdded"} for each in taints],
        "annotations": _own(document["metadata"].get("annotations")),
    }


def _daemon_set(document: Json) -> Json:
    return {
        "tolerations": document["spec"]["template"]["spec"].get("tolerations", []),
        "annotations": _own(document["metadata"].get("annotations")),
    }


def _pod(document: Json) -> Json:
    metadata, spec = document["metadata"], document["spec"]
    return {
        "tolerations": _without_kubernetes(spec.get("tolerations")),
        "annotations": _own(metadata.get("annotations")),
        "labels": _own(metadata.get("labels")),
        "gates": [gate["name"] for gate in spec.get("schedulingGates", ())],
    }
