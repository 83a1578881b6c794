"""Starts, stops and removes real nodes and their gateway."""

import asyncio
import contextlib
import datetime as dt
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import msgspec
from google.protobuf.empty_pb2 import Empty
from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from polyarch.kube import rbac
from polyarch.kube.client import Client
from polyarch.kube.errors import Conflict, NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CLUSTER_ROLE_BINDINGS, ENDPOINT_SLICES, LEASES, NODES
from polyarch.objects import Unstructured
from polyarch.sandbox import processes
from polyarch.sandbox.certificates import KUBELET_CLIENT, kubeconfig_with_certificate
from polyarch.sandbox.control_plane import Layout, ensure
from polyarch.sandbox.errors import SandboxError, StepProgress
from polyarch.sandbox.files import write_json, write_private
from polyarch.sandbox.namespaces import (
    BRIDGE,
    GATEWAY_PROCESS,
    KEEP_EMULATED_NODE,
    KEEP_GATEWAY,
    KEEP_NODE,
    cable_lines,
    cable_of,
    configure,
    entered,
    entering,
    gateway_lines,
    node_lines,
    route_to_pods,
    run,
)
from polyarch.sandbox.network import GATEWAY, GATEWAY_API_PORT, PER_OCTET
from polyarch.sandbox.nodes.plans import NODE_LABEL, Node, NodePlan, node_patch, node_plans, timestamp
from polyarch.sandbox.processes import Command, Record, failure, inputs_of, is_running
from polyarch.sandbox.real import cgroups, configuration, emulation, machine
from polyarch.sandbox.real.cgroups import Cgroups
from polyarch.sandbox.real.configuration import version_of_containerd
from polyarch.sandbox.services import EGRESS_PROCESS
from polyarch.sandbox.services import PROXY as REGISTRY_PROXY
from polyarch.sandbox.state import Folder, Settings, State
from polyarch.sandbox.tasks import together, until
from polyarch.sandbox.versions import CONTAINERD as CONTAINERD_VERSION
from polyarch.sandbox.versions import SHIM, containerd_of, host_architecture, kubelet_of

KEEPER, CONTAINERD, KUBELET, PROXY = "namespaces", "containerd", "kubelet", "kube-proxy"
EMULATED_CONTAINERD: Final = version_of_containerd(f"containerd pinned {CONTAINERD_VERSION}")
_MARKED: Final = f"{configuration.CONTAINERD}/{emulation.PROGRAMS}"
_MARKED_FIRST: Final = {
    "PATH": f"{_MARKED}:{machine.search_path()}",
    "CONTAINERD_DISABLE_PIGZ": "1",
    "CONTAINERD_DISABLE_IGZIP": "1",
}
"""Environment of the runtime of an emulated node, which cannot start other programs than marked ones."""
START_SECONDS: Final = 120.0
SOCKET_SECONDS: Final = 60.0
ANSWER_SECONDS: Final = 5.0
VERSION_CALL: Final = "/runtime.v1.RuntimeService/Version"
"""A kubelet's first question to a container runtime; the messages do not matter here."""
API_SERVER: Final = f"https://{GATEWAY}:{GATEWAY_API_PORT}"
FIELD_MANAGER: Final = "polyarch-sandbox"


def process_name(node: str, program: str) -> str:
    """The name of the record of a node's process."""
    return f"{node}-{program}"


def folder_of(folder: Folder, node: str) -> Path:
    """What a node has on disk."""
    return folder.root / "nodes" / node


def is_emulated(plan: NodePlan) -> bool:
    """Whether the node has another architecture than this machine."""
    return plan.architecture != host_architecture()


def pod_subnet(state: State, number: int) -> str:
    """The addresses of the pods of the node with this number."""
    return f"10.{state.pod_network}.{number % PER_OCTET}.0/24"


class RealNodes:
    """Those of one sandbox."""

    def __init__(self, layout: Layout, state: State) -> None:
        self._layout = layout
        self._state = state
        self._folder = layout.folder
        self._cgroups = Cgroups(layout.folder.name)
        self._started: dict[str, str] = {}
        """When the kubelet of a node was started by us, by node: what was said of it before says nothing."""
        self._containerd = (0, 0)
        """Its version, once nodes are started."""

    @property
    def _settings(self) -> Settings:
        return self._state.settings

    @property
    def plans(self) -> list[NodePlan]:
        """Emulated nodes have no other machine to believe in: what would publish its zones does not run there."""
        plans = node_plans(self._settings, self._state.fleet)
        return [msgspec.structs.replace(plan, numa=None) if is_emulated(plan) else plan for plan in plans]

    def _records(self) -> Mapping[str, Record]:
        return processes.load(self._folder.records)

    # -- the gateway ---------------------------------------------------------------------------------------------------

    async def open_gateway(self) -> int:
        """Start it, before everything that listens there; the pid of its namespace."""
        self._cgroups.make(cgroups.HOST)
        known = self._records().get(GATEWAY_PROCESS)
        if known is not None and is_running(known):
            return known.pid
        await self.stop()  # nodes of an earlier gateway have lost their network, and these two listen there
        there = self._records()
        listeners = [there[name] for name in (EGRESS_PROCESS, REGISTRY_PROXY) if name in there]
        await processes.stop(listeners, records=self._folder.records)
        self._cgroups.make(cgroups.HOST)
        record = await self._start(GATEWAY_PROCESS, KEEP_GATEWAY, group=cgroups.HOST)
        await entered(record.pid)
        await configure(record.pid, gateway_lines(self._state.pod_network))
        return record.pid

    async def _start(
        self,
        name: str,
        arguments: Iterable[str],
        *,
        group: str,
        inputs: str = "",
        environment: Mapping[str, str] = MappingProxyType({}),
    ) -> Record:
        command = Command(
            name=name,
            arguments=self._cgroups.joining(group, tuple(arguments)),
            environment={**self._layout.environment, "PATH": machine.search_path(), **environment},
            log=str(self._folder.log(name)),
            inputs=inputs,
        )
        return await ensure(self._layout, command)

    # -- nodes ---------------------------------------------------------------------------------------------------------

    async def start(self, client: Client, progress: StepProgress) -> None:
        """Start what is missing of the settings' nodes, and wait until all are ready; remove the others."""
        gateway = await self.open_gateway()
        self._containerd = version_of_containerd(await run((machine.program("containerd"), "--version")))
        await self._prepare_cluster(client)
        wanted = {plan.name for plan in self.plans}
        for node in {name.removesuffix(f"-{KEEPER}") for name in self._records() if name.endswith(f"-{KEEPER}")}:
            if node not in wanted:
                await self.remove(node, client)
        for plan in self.plans:
            await self._start_node(plan, gateway)
        await self._connect_pods(gateway)
        await self._until_ready(client, progress)

    async def _prepare_cluster(self, client: Client) -> None:
        """What a cluster's installer gives kubelets and kube-proxy: rights, and the way to the API server."""
        for name, role, user in (
            ("polyarch-sandbox:kube-proxy", "system:node-proxier", "system:kube-proxy"),
            ("polyarch-sandbox:kubelet-api", "system:kubelet-api-admin", KUBELET_CLIENT),
        ):
            subjects = [{"apiGroup": rbac.GROUP, "kind": "User", "name": user}]
            reference = {"apiGroup": rbac.GROUP, "kind": "ClusterRole", "name": role}
            document = {
                "apiVersion": CLUSTER_ROLE_BINDINGS.api_version,
                "kind": CLUSTER_ROLE_BINDINGS.kind,
                "metadata": {"name": name},
                "subjects": subjects,
                "roleRef": reference,
            }
            await client.apply(CLUSTER_ROLE_BINDINGS, document)
        endpoints = {
            "apiVersion": ENDPOINT_SLICES.api_version,
            "kind": ENDPOINT_SLICES.kind,
            "metadata": {
                "name": "kubernetes",
                "namespace": "default",
                "labels": {"kubernetes.io/service-name": "kubernetes"},
            },
            "addressType": "IPv4",
            "endpoints": [{"addresses": [GATEWAY], "conditions": {"ready": True}}],
            "ports": [{"name": "https", "port": GATEWAY_API_PORT, "protocol": "TCP"}],
        }
        await client.apply(ENDPOINT_SLICES, endpoints, namespace="default")

    async def _start_node(self, plan: NodePlan, gateway: int) -> None:
        own = folder_of(self._folder, plan.name)
        keeper = self._records().get(process_name(plan.name, KEEPER))
        is_same = machine.is_known(own, plan.numa)
        if keeper is None or not is_running(keeper) or not is_same:
            await self._end(plan.name)  # what is left is in namespaces that nobody can enter any more
            if not is_same:
                machine.forget_managers(own)
            keeper = await self._make_namespaces(plan, own, gateway)
        self._write_files(plan, own)
        await self._start_programs(plan, own, keeper.pid)

    async def _make_namespaces(self, plan: NodePlan, own: Path, gateway: int) -> Record:
        for inside in ("lib/kubelet", "lib/containerd", "lib/cni", "log/pods", "log/containers"):
            (own / inside).mkdir(parents=True, exist_ok=True)
        host = self._cgroups.host_of(plan.name)
        # A machine that boots has none: the kubelet spends three seconds on each of a container that is no more.
        await asyncio.to_thread(self._cgroups.remove, plan.name)
        # A kubelet without the static CPU manager would make the group of its pods with the CPUs that it believes in,
        # and end where the machine has fewer. If there is one already, it only says that it could not set them.
        self._cgroups.make(plan.name, f"{plan.name}/{cgroups.PODS}", host)
        shown = machine.write_files(own, plan.numa)
        keep = KEEP_EMULATED_NODE if is_emulated(plan) else KEEP_NODE
        record = await self._start(process_name(plan.name, KEEPER), keep, group=host)
        await entered(record.pid)
        mounts = configuration.mounts(has_trace=plan.number == self._first, machine=shown)
        await run(entering(record.pid, ("/bin/sh", "-c", mounts, "sh", str(own))))
        named = ("/bin/sh", "-c", 'echo "$1" > /proc/sys/kernel/hostname', "sh", plan.name)
        await run(entering(record.pid, named))
        if is_emulated(plan):
            await asyncio.to_thread(self._write_marked_programs, plan, own)
            await asyncio.to_thread(emulation.map_users, record.pid)
            entries = emulation.mounts(plan.architecture, _MARKED, own=host_architecture())
            await run(entering(record.pid, ("/bin/sh", "-c", entries), user=True))
        await configure(gateway, cable_lines(record.pid, plan.address))
        await configure(record.pid, node_lines(plan.address))
        return record

    def _write_marked_programs(self, plan: NodePlan, own: Path) -> None:
        """What containerd of an emulated node starts, and itself."""
        binaries, path = self._layout.binaries, machine.search_path()
        qemu = emulation.emulator(plan.architecture, path)
        if qemu is None:
            raise SandboxError(f"--real needs {emulation.PACKAGE} for nodes of {plan.architecture}")
        programs = {
            CONTAINERD: binaries[containerd_of(plan.architecture).name],
            "containerd-shim-runc-v2": binaries[SHIM.name],
            "runc": Path(machine.program("runc")),
        }
        programs |= {name: Path(machine.plugins() or "", name) for name in machine.PLUGINS}
        programs |= {name: Path(found) for name in emulation.IPTABLES if (found := shutil.which(name, path=path))}
        emulation.write_programs(own / "lib/containerd" / emulation.PROGRAMS, programs, qemu)

    @property
    def _first(self) -> int:
        """The node that has the kernel's trace: one that polyarch's image runs on, where there is one."""
        return min(self.plans, key=lambda plan: (is_emulated(plan), plan.number)).number

    def _write_files(self, plan: NodePlan, own: Path) -> None:
        now = dt.datetime.now(dt.UTC)
        pki, kubelet, containerd = self._layout.pki, own / "lib/kubelet", own / "lib/containerd"
        pair = pki.node(plan.name, kubelet, now, address=plan.address)
        of_kubelet = kubeconfig_with_certificate("node", API_SERVER, pki.ca, pair)
        write_json(kubelet / "kubelet.kubeconfig", of_kubelet)
        proxy = kubeconfig_with_certificate("kube-proxy", API_SERVER, pki.ca, pki.client("kube-proxy"))
        write_json(kubelet / "kube-proxy.kubeconfig", proxy)
        authority = Path(pki.ca).read_bytes()
        for target in (kubelet / "ca.crt", containerd / "ca.crt"):
            write_private(target, authority)
        settings = configuration.kubelet(
            address=plan.address,
            cgroup=self._cgroups.of_node(plan.name),
            numa=plan.numa,
            unified=cgroups.is_unified(),
            memory=machine.memory(),
        )
        write_json(kubelet / "config.yaml", settings)
        (kubelet / "config.d").mkdir(exist_ok=True)
        write_json(kubelet / "kube-proxy.yaml", configuration.kube_proxy(plan.name, self._state.pod_network))
        write_json(own / "lib/cni/net.d/10-nodes.conflist", configuration.cni(pod_subnet(self._state, plan.number)))
        for host, text in configuration.registry_hosts().items():
            write_private(containerd / "certs.d" / host / "hosts.toml", text.encode())
        version, runc, plugins = self._containerd, self._runc(plan, own), machine.plugins() or ""
        if is_emulated(plan):
            version, runc, plugins = EMULATED_CONTAINERD, f"{_MARKED}/runc", _MARKED
        text = configuration.containerd(version, runc=runc, cni_plugins=plugins, apparmor=not is_emulated(plan))
        write_private(containerd / "config.toml", text.encode())

    def _runc(self, plan: NodePlan, own: Path) -> str:
        """The program that starts containers: of a node that believes in another machine, ours before the real one."""
        if plan.numa is None:
            return machine.program("runc")
        script = own / "lib/containerd/runc"
        ours = f"{sys.executable} -P -m polyarch.sandbox.real.runc"
        write_private(
            script,
            f"""\
#!/bin/sh
PYTHONPATH={Path(__file__).parents[3]}; export PYTHONPATH
case " $* " in
*" create "* | *" run "* | *" update "*) exec {ours} {machine.program("runc")} {configuration.CONTAINERD}/asked "$@" ;;
esac
exec {machine.program("runc")} "$@"
""".encode(),
        )
        script.chmod(0o755)
        return f"{configuration.CONTAINERD}/runc"

    async def _start_programs(self, plan: NodePlan, own: Path, keeper: int) -> None:
        files = [
            own / "lib" / each for each in ("containerd/config.toml", "kubelet/config.yaml", "kubelet/kube-proxy.yaml")
        ]
        name = plan.name

        async def start(program: str, *arguments: str, inputs: str, marked: bool = False) -> Record:
            return await self._start(
                process_name(name, program),
                entering(keeper, arguments, user=marked),
                group=self._cgroups.host_of(name),
                inputs=inputs,
                environment=_MARKED_FIRST if marked else {},
            )

        arguments: tuple[str, ...] = (machine.program("containerd"),)
        if foreign := is_emulated(plan):
            arguments = (f"{_MARKED}/{CONTAINERD}",)
        arguments = (*arguments, "-c", f"{configuration.CONTAINERD}/config.toml")
        inputs = inputs_of(str(keeper), files=files[:1])
        runtime = await start(CONTAINERD, *arguments, inputs=inputs, marked=foreign)
        await self._until_listening(runtime, keeper)
        arguments = (
            str(self._layout.binaries[kubelet_of(plan.architecture).name if foreign else "kubelet"]),
            f"--config={configuration.KUBELET}/config.yaml",
            f"--config-dir={configuration.KUBELET}/config.d",
            f"--kubeconfig={configuration.KUBELET}/kubelet.kubeconfig",
            f"--hostname-override={name}",
            f"--node-ip={plan.address}",
            f"--root-dir={configuration.KUBELET}",
            f"--node-labels={NODE_LABEL}=",
            *self._register_taints(plan),
        )
        of_users = sorted((own / "lib/kubelet/config.d").glob("*.conf"))
        inputs = inputs_of(str(runtime.pid), *arguments, files=[*files[1:2], *of_users])
        known, now = self._records().get(process_name(name, KUBELET)), dt.datetime.now(dt.UTC)
        started = await start(KUBELET, *arguments, inputs=inputs)
        if known is None or known.pid != started.pid:
            self._started[name] = timestamp(now)
        arguments = (str(self._layout.binaries["kube-proxy"]), f"--config={configuration.KUBELET}/kube-proxy.yaml")
        await start(PROXY, *arguments, inputs=inputs_of(str(keeper), *arguments, files=files[2:]))

    @staticmethod
    def _register_taints(plan: NodePlan) -> tuple[str, ...]:
        texts = [f"{each.key}={each.value}:{each.effect}" for each in plan.register_taints]
        return (f"--register-with-taints={','.join(texts)}",) if texts else ()

    @staticmethod
    async def _until_listening(record: Record, keeper: int) -> None:
        socket = Path(f"/proc/{keeper}/root{configuration.CONTAINERD_SOCKET}")

        async def listens() -> bool:
            if not is_running(record):
                raise failure(record, "ended while starting")
            return await runtime_answers(socket)

        if not await until(listens, seconds=SOCKET_SECONDS):
            raise failure(record, f"does not answer kubelets after {SOCKET_SECONDS:.0f} s")

    async def _connect_pods(self, gateway: int) -> None:
        """Routes to the pods of each node, from the gateway and from the other nodes."""
        records = self._records()
        ways = {plan.name: (pod_subnet(self._state, plan.number), plan.address) for plan in self.plans}
        await configure(gateway, [f"{route_to_pods(*way)} dev {BRIDGE}" for way in ways.values()])
        for plan in self.plans:
            others = [route_to_pods(*way) for name, way in ways.items() if name != plan.name]
            if others:
                await configure(records[process_name(plan.name, KEEPER)].pid, others)

    async def _until_ready(self, client: Client, progress: StepProgress) -> None:
        waiting: dict[str, str] = {}

        async def are_ready() -> bool:
            for plan in self.plans:
                waiting[plan.name] = await self._problem(plan, client)
            done = sum(not each for each in waiting.values())
            progress.advance(done, len(waiting), "nodes")
            return not any(waiting.values())

        if not await until(are_ready, seconds=START_SECONDS, every=0.2):
            name, problem = next((name, text) for name, text in waiting.items() if text)
            record = self._records()[process_name(name, KUBELET)]
            raise failure(record, f"is not ready after {START_SECONDS:.0f} s ({problem})")

    async def _problem(self, plan: NodePlan, client: Client) -> str:
        """Why a node does not take pods; empty if it does."""
        for program in (CONTAINERD, KUBELET, PROXY):
            record = self._records()[process_name(plan.name, program)]
            if not is_running(record):
                raise failure(record, "ended while starting")
        try:
            node = await client.get(NODES, plan.name, type=Node)
        except NotFound:
            return "it has not registered"
        if (change := node_patch(plan, node)) is not None:
            try:
                await client.patch(NODES, plan.name, MergePatch(change))
            except Conflict:
                return "its labels are being changed by others"
        said = [each for each in node.status.conditions or () if each.type == "Ready"]
        if plan.name in self._started and not await self._is_renewed(plan.name, client):
            return "its kubelet has not reported yet"
        if node.takes_pods:
            return ""
        return next((each.message for each in said if each.message), "it is not ready")

    async def _is_renewed(self, node: str, client: Client) -> bool:
        """Whether the kubelet has renewed its Lease since it was started."""
        try:
            lease = await client.get(LEASES, node, namespace="kube-node-lease", type=Unstructured)
        except NotFound:
            return False
        return str(lease.document["spec"].get("renewTime", "")) > self._started[node]

    # -- the end -------------------------------------------------------------------------------------------------------

    async def remove(self, node: str, client: Client | None = None) -> None:
        """End a node and forget it."""
        await self._end(node)
        await asyncio.to_thread(shutil.rmtree, folder_of(self._folder, node), ignore_errors=True)
        if client is not None:
            for resource, namespace in ((NODES, ""), (LEASES, "kube-node-lease")):
                try:
                    await client.delete(resource, node, namespace=namespace)
                except NotFound:
                    continue

    async def _end(self, node: str) -> None:
        """Kubelet first, then the containers, then what keeps them: so the kubelet sees none of them fail."""
        await self._stop_programs(node, KUBELET, PROXY)
        await self._unplug(node)
        await asyncio.to_thread(self._cgroups.kill, node)
        await self._stop_programs(node, CONTAINERD, KEEPER)
        await asyncio.to_thread(self._cgroups.kill, self._cgroups.host_of(node))

    async def _stop_programs(self, node: str, *programs: str) -> None:
        records = self._records()
        names = [process_name(node, each) for each in programs]
        await processes.stop([records[name] for name in names if name in records], records=self._folder.records)

    async def _unplug(self, node: str) -> None:
        """Take its address from the network at once: the kernel takes its time to remove a namespace."""
        records = self._records()
        keeper, gateway = records.get(process_name(node, KEEPER)), records.get(GATEWAY_PROCESS)
        if keeper is not None and gateway is not None and is_running(gateway):
            with contextlib.suppress(SandboxError):  # it is gone already
                await configure(gateway.pid, [f"link del {cable_of(keeper.pid)}"])

    async def cut_power(self, node: str) -> None:
        """End every process of a node at once; what is on its disk stays. SandboxError if there is no such node."""
        if node not in (names := [plan.name for plan in self.plans]):
            raise SandboxError(f"there is no node {node!r} in sandbox {self._folder.name}: it has {', '.join(names)}")
        await self._unplug(node)
        await asyncio.to_thread(self._cgroups.kill, self._cgroups.host_of(node), node)
        await self._stop_programs(node, KUBELET, PROXY, CONTAINERD, KEEPER)

    async def stop(self) -> None:
        """End all nodes and the gateway, and whatever an interrupted start left in the sandbox's control groups."""
        names = [name.removesuffix(f"-{KEEPER}") for name in self._records() if name.endswith(f"-{KEEPER}")]
        await together(self._end(name) for name in names)
        await asyncio.to_thread(self._cgroups.kill)
        await asyncio.to_thread(self._cgroups.remove)
        await asyncio.to_thread(machine.unload_profile)
        ended = [each for name, each in self._records().items() if is_of_real_nodes(name)]
        await processes.stop(ended, records=self._folder.records)


async def runtime_answers(socket: Path) -> bool:
    """Whether the container runtime answers a kubelet. Its socket is there some time before, and a kubelet that comes
    in this time ends."""
    if not await asyncio.to_thread(socket.exists):
        return False
    channel = Channel(path=str(socket))
    try:
        await UnaryUnaryMethod(channel, VERSION_CALL, Empty, Empty)(Empty(), timeout=ANSWER_SECONDS)
    except (OSError, TimeoutError, GRPCError, ProtocolError, StreamTerminatedError):
        return False
    finally:
        channel.close()
    return True


def is_of_real_nodes(name: str) -> bool:
    """Whether the process with this name is one of :class:`RealNodes`."""
    return name == GATEWAY_PROCESS or name.endswith(tuple(f"-{each}" for each in (KEEPER, CONTAINERD, KUBELET, PROXY)))
