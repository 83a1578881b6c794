"""The exec-format-error monitor as the operator deploys and removes it.

Its pods run as processes on this machine; on their nodes there is no tracefs.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from operator_world import OperatorWorld, eventually
from placement_cluster import labels

from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import CRDS, DAEMONSETS, DEPLOYMENTS, EVENTS, NAMESPACES, NODES, PODS
from polyarch.operator.monitoring import RULES
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS
from polyarch.sandbox.cluster import Sandbox

ENABLED = {"plugins": {"execFormatErrorMonitor": {"enabled": True}}}
BOTH = (names.ENOEXEC_DAEMON, names.ENOEXEC_HANDLER)


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with OperatorWorld.opened(operated_sandbox, tmp_path) as world:
        yield world


async def _runs(world: OperatorWorld) -> bool:
    """Both sides are up, one node side per node."""
    daemon = (await world.client.get(DAEMONSETS, names.ENOEXEC_DAEMON, namespace=world.namespace))["status"]
    handler = (await world.client.get(DEPLOYMENTS, names.ENOEXEC_HANDLER, namespace=world.namespace))["status"]
    nodes = (await world.client.list(NODES)).items
    return daemon.get("numberAvailable", 0) == len(nodes) and handler.get("availableReplicas", 0) == 2


async def _of_the_monitor(world: OperatorWorld) -> list[str]:
    return [each for each in await world.left() if each.split()[-1] in BOTH]


async def _event(world: OperatorWorld, name: str, status: dict[str, str] | None = None, **metadata: Any) -> None:
    document = {
        "apiVersion": ENOEXECEVENTS.api_version,
        "kind": ENOEXECEVENTS.kind,
        "metadata": {"name": name, **metadata},
    }
    await world.client.create(ENOEXECEVENTS, document, namespace=world.namespace)
    if status:
        patch = MergePatch({"status": status})
        await world.client.patch(ENOEXECEVENTS, name, patch, namespace=world.namespace, subresource="status")


async def _events(world: OperatorWorld) -> list[str]:
    return [each["metadata"]["name"] for each in (await world.client.list(ENOEXECEVENTS)).items]


@pytest.fixture
async def prometheus(world: OperatorWorld) -> AsyncIterator[None]:
    """Prometheus' kinds are served."""
    for document in _prometheus():
        await world.client.apply(CRDS, document)
    try:
        await eventually(lambda: _served(world))
        yield
    finally:
        for document in _prometheus():
            await world.client.delete(CRDS, document["metadata"]["name"])


async def _rules_are(world: OperatorWorld, *wanted: str) -> bool:
    listed = await world.client.list(RULES, namespace=world.namespace)
    return {each["metadata"]["name"] for each in listed.items} == set(wanted)


@pytest.mark.req("PL-552", "PL-600", "PL-630", "PL-720", "PL-900 row 27")
async def test_enabled_it_runs_on_every_node_and_disabled_nothing_of_it_is_left(
    world: OperatorWorld, prometheus: None
) -> None:
    """Its handler tells a pod meanwhile; an event that could not be handled delays nothing.

    Its rule comes and goes with it, placement's goes with placement, the operator's own stays.
    """
    async with world.operator():
        await world.create(CPPCS, names.SINGLETON, ENABLED)
        await eventually(lambda: _runs(world), seconds=180)
        await eventually(lambda: _rules_are(world, *names.PROMETHEUS_RULES, names.OPERATOR))
        home = await world.client.get(NAMESPACES, world.namespace)
        assert labels(home)["pod-security.kubernetes.io/enforce"] == "privileged"
        kept = (await world.configuration())["metadata"]["finalizers"]
        assert names.ENOEXEC_EVENTS_FINALIZER in kept

        pod, node, container = await _a_pod(world)
        status = {"nodeName": node, "podName": pod, "podNamespace": world.namespace, "containerID": container}
        await _event(world, "real", status)
        await eventually(lambda: _is_told(world, pod))

        await _event(world, "failed", labels={names.ENOEXEC_EVENT_ERROR_LABEL: "reconciliation-error"})
        await _disabled(world)
        await eventually(lambda: _rules_are(world, names.PROMETHEUS_RULES[0], names.OPERATOR))

        async def released() -> bool:
            return names.ENOEXEC_EVENTS_FINALIZER not in (await world.configuration())["metadata"]["finalizers"]

        await eventually(released)

        async def restricted() -> bool:
            home = await world.client.get(NAMESPACES, world.namespace)
            return labels(home)["pod-security.kubernetes.io/enforce"] == "restricted"

        await eventually(restricted)
        assert await world.condition("Available", "True"), "placement goes on"

        await world.client.delete(CPPCS, names.SINGLETON)
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON), seconds=180)
        assert await _rules_are(world, names.OPERATOR)


@pytest.mark.req("PL-552")
async def test_an_event_that_nobody_can_handle_delays_nothing_for_ever(world: OperatorWorld) -> None:
    """It says nothing of any container; the handler leaves it alone for a minute."""
    async with world.operator():
        await world.create(CPPCS, names.SINGLETON, ENABLED)
        await eventually(lambda: _runs(world), seconds=180)
        await _event(world, "empty")
        await _disabled(world)


async def _disabled(world: OperatorWorld) -> None:
    """Switches the monitor off and waits until nothing of it is left."""
    disabled = {"spec": {"plugins": {"execFormatErrorMonitor": {"enabled": False}}}}
    await world.client.patch(CPPCS, names.SINGLETON, MergePatch(disabled))
    await eventually(lambda: world.is_gone(DAEMONSETS, names.ENOEXEC_DAEMON, world.namespace))

    async def nothing() -> bool:
        return await _of_the_monitor(world) == [] and await _events(world) == []

    await eventually(nothing, seconds=180)


@pytest.mark.req("PL-630")
async def test_an_uninstall_removes_the_monitor_first(world: OperatorWorld) -> None:
    """Its finalizer goes with the last of it; nothing is left, however soon the configuration is deleted."""
    async with world.operator():
        await world.create(CPPCS, names.SINGLETON, ENABLED)
        await eventually(lambda: _runs(world), seconds=180)
        await world.client.delete(CPPCS, names.SINGLETON)
        await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON), seconds=180)
        assert await world.left() == []


async def _a_pod(world: OperatorWorld) -> tuple[str, str, str]:
    """Some pod of placement, its node, and the id of its container."""
    found = await world.client.list(PODS, namespace=world.namespace, label_selector=f"controller={names.WEBHOOK}")
    first = found.items[0]
    container = first["status"]["containerStatuses"][0]["containerID"]
    return first["metadata"]["name"], first["spec"]["nodeName"], container


async def _is_told(world: OperatorWorld, pod: str) -> bool:
    try:
        document = await world.client.get(PODS, pod, namespace=world.namespace)
    except NotFound:
        return False
    told = [
        each
        for each in (await world.client.list(EVENTS, namespace=world.namespace)).items
        if each["regarding"]["name"] == pod and each["reason"] == "ExecFormatError"
    ]
    return bool(told) and labels(document).get(names.EXEC_FORMAT_ERROR_LABEL) == "true"


async def _served(world: OperatorWorld) -> bool:
    await world.client.list(RULES)
    await asyncio.sleep(1)
    return True


def _prometheus() -> list[dict[str, Any]]:
    """The kinds of the Prometheus operator, with any content."""
    kinds = {"PrometheusRule": "prometheusrules", "ServiceMonitor": "servicemonitors"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return [
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.monitoring.coreos.com"},
            "spec": {
                "group": "monitoring.coreos.com",
                "scope": "Namespaced",
                "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
            },
        }
        for kind, plural in kinds.items()
    ]
