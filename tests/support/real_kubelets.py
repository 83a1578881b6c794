"""Real nodes from outside: what runs in their control groups, and files as their programs see them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from polyarch.kube.client import Client
from polyarch.kube.resources import EVENTS, PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.objects import Unstructured
from polyarch.operator.settings import DEFAULT_IMAGE
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.nodes.plans import node_plans
from polyarch.sandbox.real import cgroups
from polyarch.sandbox.real.images import pushed_image
from polyarch.sandbox.real.nodes import KEEPER, process_name
from polyarch.sandbox.tasks import until

Document = dict[str, Any]

PATIENCE = 120.0
"""Seconds for what takes a few on a machine that does nothing else."""


def node_names(sandbox: Sandbox) -> list[str]:
    """The first one has the kernel's trace."""
    return [plan.name for plan in node_plans(sandbox.state.settings, sandbox.state.fleet)]


def keeper(sandbox: Sandbox, node: str) -> int:
    """The pid of a process in the namespaces of the node."""
    return sandbox.records()[process_name(node, KEEPER)].pid


def seen_by(sandbox: Sandbox, node: str, path: str) -> Path:
    """A file or folder as programs of the node see it."""
    return Path(f"/proc/{keeper(sandbox, node)}/root{path}")


def cgroup_of(sandbox: Sandbox, uid: str, controller: str) -> Path | None:
    """The control group of a pod; None where it is not there (yet)."""
    own = Path(f"polyarch-{sandbox.name}")
    roots = [each / own for each in cgroups.hierarchies() if cgroups.is_unified() or controller in each.name.split(",")]
    for root in roots:
        for node in node_names(sandbox):
            for quality in ("", "burstable/", "besteffort/"):
                found = root / node / cgroups.PODS / f"{quality}pod{uid}"
                if found.is_dir():
                    return found
    return None


def processes_of(group: Path) -> Iterator[tuple[str, int]]:
    """The id of the container and the pid of each process below the control group of a pod."""
    for folder in group.iterdir() if group.is_dir() else ():
        if folder.is_dir():
            for pid in (folder / "cgroup.procs").read_text().split():
                yield folder.name, int(pid)


def own_image(sandbox: Sandbox) -> str:
    """polyarch's own image, which has Python."""
    pushed = pushed_image(sandbox.folder)
    assert pushed is not None
    return f"{DEFAULT_IMAGE.rpartition(':')[0]}@{pushed.digest}"


def pod_document(name: str, *containers: Document, **spec: Any) -> Document:
    """A pod that ends quickly; ``metadata`` is taken out of its spec."""
    metadata = {"name": name, **spec.pop("metadata", {})}
    spec = {"terminationGracePeriodSeconds": 2, "containers": list(containers), **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


async def pod_of(client: Client, namespace: str, name: str) -> Document:
    return (await client.get(PODS, name, namespace=namespace, type=Unstructured)).document


async def pods_of(client: Client, namespace: str = DEFAULT_NAMESPACE, selector: str = "") -> list[Document]:
    found = await client.list(PODS, namespace=namespace, label_selector=selector, type=Unstructured)
    return [each.document for each in found.items]


def statuses(pod: Mapping[str, Any]) -> dict[str, Document]:
    """The status of each container, of every kind, by name."""
    kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
    return {each["name"]: each for kind in kinds for each in pod.get("status", {}).get(kind, ())}


def is_ready(pod: Mapping[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", ())
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def notes(client: Client, namespace: str, *, reason: str) -> dict[str, set[str]]:
    """The notes of the events for this reason, by the name of what they are about."""
    found: dict[str, set[str]] = {}
    for each in (await client.list(EVENTS, namespace=namespace, type=Unstructured)).items:
        if each.document.get("reason") == reason:
            found.setdefault(each.document["regarding"]["name"], set()).add(each.document.get("note", ""))
    return found


async def eventually(look: Callable[[], Awaitable[Any]], what: Callable[[], object] | str, seconds: float = 0) -> Any:
    """What ``look`` returns as soon as it is true; fails with ``what`` else."""
    async with asyncio.timeout(2 * (seconds or PATIENCE)):
        found = await until(look, seconds=seconds or PATIENCE, every=0.2)
    assert found, what() if callable(what) else what
    return found
