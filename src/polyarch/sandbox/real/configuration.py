"""What the programs of a real node are told: containerd, CNI, kubelet and kube-proxy. Pure.

All paths are those that the programs see in the node's mount namespace, where ``/var/lib``, ``/var/log`` and ``/run``
are the node's own.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from polyarch.sandbox.kubelet_model.layout import NumaLayout
from polyarch.sandbox.kubelet_model.layout import node as kubelet_node
from polyarch.sandbox.network import GATEWAY, GATEWAY_REGISTRY_PORT
from polyarch.sandbox.nodes.kubelet_files import configuration_document
from polyarch.sandbox.registry.seed import PUBLIC_HOSTS

KUBELET: Final = "/var/lib/kubelet"
CONTAINERD: Final = "/var/lib/containerd"
CONTAINERD_SOCKET: Final = "/run/containerd/containerd.sock"
CNI: Final = "/var/lib/cni"
CNI_PLUGINS: Final = ("/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni")
"""Where distributions put them."""
PAUSE: Final = "registry.k8s.io/pause:3.10"
REGISTRY: Final = f"{GATEWAY}:{GATEWAY_REGISTRY_PORT}"
"""The sandbox's registry as nodes and pods reach it, over TLS."""
MOST_PODS: Final = 100
SYSCTLS: Final = {
    "vm/overcommit_memory": "1",
    "vm/panic_on_oom": "0",
    "kernel/panic": "10",
    "kernel/panic_on_oops": "1",
    "kernel/keys/root_maxkeys": "1000000",
    "kernel/keys/root_maxbytes": "25000000",
}
"""What a kubelet wants to set in the kernel of its machine. A node sees these values, and the kernel keeps its own."""


def version_of_containerd(said: str) -> tuple[int, int]:
    """Major and minor version in what ``containerd --version`` says: program, source, version, commit.

    What cannot be read is taken for a build of something new.
    """
    found = re.match(r"\S+ \S+ v?(\d+)\.(\d+)", said)
    return (int(found[1]), int(found[2])) if found else _BIN_DIRS


_BIN_DIRS: Final = (2, 1)
"""The containerd from which on there may be several folders of CNI plugins; 2.3 does not know the former setting."""


def containerd(version: tuple[int, int], *, runc: str, cni_plugins: str, apparmor: bool = True) -> str:
    """``config.toml`` of this version of containerd; ``runc`` is the program that starts containers. Without
    ``apparmor`` containerd loads no profile, for which it would call a program."""
    profiles = "" if apparmor else "  disable_apparmor = true\n"
    common = f"""\
root = "{CONTAINERD}/root"
state = "/run/containerd/state"
[grpc]
  address = "{CONTAINERD_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{CONTAINERD}/opt"
"""
    if version >= _BIN_DIRS:
        images, runtime = (f'plugins."io.containerd.cri.v1.{each}"' for each in ("images", "runtime"))
        return f"""\
version = 3
{common}[{images}.pinned_images]
  sandbox = "{PAUSE}"
[{images}.registry]
  config_path = "{CONTAINERD}/certs.d"
[{runtime}]
  restrict_oom_score_adj = true
{profiles}[{runtime}.cni]
  bin_dirs = ["{cni_plugins}"]
  conf_dir = "{CNI}/net.d"
{_runtime(runtime, runc)}"""
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""\
version = 2
{common}[{cri}]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
{profiles}[{cri}.registry]
  config_path = "{CONTAINERD}/certs.d"
[{cri}.cni]
  bin_dir = "{cni_plugins}"
  conf_dir = "{CNI}/net.d"
{_runtime(cri, runc)}"""


def _runtime(plugin: str, runc: str) -> str:
    return f"""\
[{plugin}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
[{plugin}.containerd.runtimes.runc.options]
  SystemdCgroup = false
  BinaryName = "{runc}"
"""


def registry_hosts() -> dict[str, str]:
    """``hosts.toml`` by host: every public name leads to the sandbox's registry, and nowhere else."""
    found = {REGISTRY: _hosts_file(f"https://{REGISTRY}", override=False)}
    return found | {host: _hosts_file(f"https://{REGISTRY}/v2/{host}", override=True) for host in PUBLIC_HOSTS}


def _hosts_file(url: str, *, override: bool) -> str:
    path = "  override_path = true\n" if override else ""
    return f"""\
server = "{url}"
[host."{url}"]
  capabilities = ["pull", "resolve", "push"]
  ca = "{CONTAINERD}/ca.crt"
{path}"""


def cni(subnet: str) -> dict[str, Any]:
    """``10-nodes.conflist``: a cable from the node to each pod, addresses of the node's subnet, and host ports.

    No bridge: where the kernel's module ``br_netfilter`` is not loaded, the rules of Services do not see answers of a
    pod to another one at the same bridge. Packets that are routed always pass them.
    """
    addresses = {
        "type": "host-local",
        "dataDir": f"{CNI}/addresses",
        "ranges": [[{"subnet": subnet}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return {
        "cniVersion": "0.4.0",
        "name": "nodes",
        "plugins": [
            {"type": "ptp", "ipMasq": False, "ipam": addresses},
            {"type": "portmap", "capabilities": {"portMappings": True}},
        ],
    }


def kubelet(*, address: str, cgroup: str, numa: NumaLayout | None, unified: bool, memory: int = 0) -> dict[str, Any]:
    """``config.yaml`` of a kubelet; ``memory`` is that of the machine, in bytes.

    What is used of memory is always that of the machine. A node that believes in less of it evicts nobody for want of
    memory, because it might never have had any.
    """
    managers = configuration_document(kubelet_node(numa).configuration) if numa is not None else {}
    if numa is not None and numa.zones * numa.memory_of_cell < memory:
        managers |= {"evictionHard": {"memory.available": "0%"}, "systemReserved": {"memory": "1Gi"}}
    return {
        **managers,
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": address,
        "containerRuntimeEndpoint": f"unix://{CONTAINERD_SOCKET}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "volumePluginDir": f"{KUBELET}/volume-plugins",
        "failSwapOn": False,
        **({} if unified else {"failCgroupV1": False}),
        "protectKernelDefaults": True,
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": f"{KUBELET}/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": f"{KUBELET}/serving.crt",
        "tlsPrivateKeyFile": f"{KUBELET}/serving.key",
        "clusterDNS": ["10.96.0.10"],
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "evictionHard": {
            "memory.available": "100Mi",
            **managers.get("evictionHard", {}),
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 99,
        "imageGCLowThresholdPercent": 98,
        "enforceNodeAllocatable": ["pods"],
        "runtimeRequestTimeout": "2m",
        "maxPods": min(MOST_PODS, managers.get("maxPods", MOST_PODS)),
    }


def kube_proxy(node: str, pod_network: int) -> dict[str, Any]:
    """``kube-proxy.yaml``. The limits of connections belong to the machine, so they stay as they are."""
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clusterCIDR": f"10.{pod_network}.0.0/16",
        "clientConnection": {"kubeconfig": f"{KUBELET}/kube-proxy.kubeconfig"},
        "hostnameOverride": node,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        "conntrack": {"maxPerCore": 0, "min": 0, "tcpEstablishedTimeout": "0s", "tcpCloseWaitTimeout": "0s"},
    }


def mounts(*, has_trace: bool, machine: Mapping[str, str]) -> str:
    """The shell's program that gives a new node its own files; ``$1`` is its folder, and it runs in its namespaces.

    ``machine``: file or folder below the node's folder, by the path that it is seen at. One node of a machine has the
    kernel's trace: two exec monitors of one kernel would see the same. A kernel lets user namespaces of pods have
    ``proc`` and ``sysfs`` only if the node has one of which nothing is covered.
    """
    lines = [
        "set -e",
        'mount --bind "$1/lib" /var/lib',
        'mount --bind "$1/log" /var/log',
        "mount -t tmpfs tmpfs /run",
        "mkdir -p /run/containerd /run/netns /run/uncovered/proc /run/uncovered/sys",
        "mount -t proc -o nosuid,nodev,noexec proc /run/uncovered/proc",
        "mount -t sysfs -o nosuid,nodev,noexec sysfs /run/uncovered/sys",
        f"mount -t {'tracefs nodev' if has_trace else 'tmpfs tmpfs'} /sys/kernel/tracing",
        *(f'mount --bind "$1/{source}" {target}' for target, source in machine.items()),
        "mount --make-rshared /",
        "echo 1 > /proc/sys/net/ipv4/ip_forward",
    ]
    return "\n".join(lines)
