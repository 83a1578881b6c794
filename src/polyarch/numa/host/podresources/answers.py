"""The kubelet's messages as facts.

Fields that we do not know stay where the parser put them, and cost nothing (NE-057). Pure.
"""

from collections.abc import Iterable

from polyarch.numa.decide.facts import Allocatable, Container, Devices, ListedPod, MemoryBlock
from polyarch.numa.host.podresources.v1 import api_pb2 as api


def listed(answer: api.ListPodResourcesResponse) -> tuple[list[ListedPod], int]:
    """The pods in the order of the answer, and how many more have no name or no namespace (NE-057)."""
    pods = [_pod(each) for each in answer.pod_resources if each.name and each.namespace]
    return pods, len(answer.pod_resources) - len(pods)


def got(answer: api.GetPodResourcesResponse) -> ListedPod | None:
    """None: the answer names no pod."""
    pod = answer.pod_resources
    return _pod(pod) if pod.name and pod.namespace else None


def allocatable(answer: api.AllocatableResourcesResponse) -> Allocatable:
    return Allocatable(cpus=tuple(answer.cpu_ids), memory=_memory(answer.memory), devices=_devices(answer.devices))


def _pod(pod: api.PodResources) -> ListedPod:
    containers = (
        Container(name=each.name, cpus=tuple(each.cpu_ids), memory=_memory(each.memory), devices=_devices(each.devices))
        for each in pod.containers
    )
    return ListedPod(pod.namespace, pod.name, tuple(containers))


def _memory(blocks: Iterable[api.ContainerMemory]) -> tuple[MemoryBlock, ...]:
    return tuple(MemoryBlock(each.memory_type, each.size, _cells(each.topology)) for each in blocks)


def _devices(devices: Iterable[api.ContainerDevices]) -> tuple[Devices, ...]:
    return tuple(Devices(each.resource_name, tuple(each.device_ids), _cells(each.topology)) for each in devices)


def _cells(topology: api.TopologyInfo) -> tuple[int, ...]:
    return tuple(node.ID for node in topology.nodes)
