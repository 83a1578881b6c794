"""What a pod asks of its node, from the API server's Pod to the value that a modelled kubelet judges. Pure."""

from collections.abc import Mapping
from fractions import Fraction

from polyarch.sandbox.kubelet_model.machine import CPU, is_memory
from polyarch.sandbox.kubelet_model.requests import Container as Asking
from polyarch.sandbox.kubelet_model.requests import Pod as Asked
from polyarch.sandbox.nodes.pods import Container, Pod
from polyarch.sandbox.pods.environment import quantity
from polyarch.sandbox.pods.spec import Resources


def asked(pod: Pod) -> Asked:
    """Names, containers with requests and limits, overhead, and the pod's own resources if it has any."""
    of_pod = pod.spec.resources or Resources()
    names = {*(of_pod.requests or ()), *(of_pod.limits or ())}
    has_own = any(name == CPU or is_memory(name) for name in names)
    return Asked(
        uid=pod.metadata.uid,
        namespace=pod.metadata.namespace,
        name=pod.metadata.name,
        init=tuple(_container(each) for each in pod.init_containers),
        containers=tuple(_container(each) for each in pod.containers),
        overhead=_amounts(pod.spec.overhead),
        pod_requests=_amounts(of_pod.requests) if has_own else None,
        pod_limits=_amounts(of_pod.limits) if has_own else {},
    )


def _container(container: Container) -> Asking:
    resources = container.resources or Resources()
    is_sidecar = container.restart_policy == "Always"
    return Asking(container.name, _amounts(resources.requests), _amounts(resources.limits), is_sidecar)


def _amounts(given: Mapping[str, str | int] | None) -> dict[str, Fraction]:
    return {name: quantity(text) for name, text in (given or {}).items()}
