"""The operator with the Prometheus operator's kinds, and the runbooks' commands as somebody on call types them."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numa_operated
import pytest
from operator_world import OperatorWorld, eventually

from polyarch.builds.api import crd as build_crds
from polyarch.builds.names import IMAGE_BUILD_RUNS
from polyarch.builds.names import ROLE as BUILDER
from polyarch.kube.resources import CRDS, DEPLOYMENTS, Resource
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.api.topology_crd import topology_crd
from polyarch.operator.monitoring import RULES, SERVICE_MONITORS
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints import names as taint_names
from polyarch.taints.api import ARCHITECTURE_TAINTS

RUNBOOKS = Path(__file__).parents[2] / "docs" / "guide" / "runbooks"
SOON = 90.0
"""Seconds; the operator looks once a minute for kinds that others install."""


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with OperatorWorld.opened(operated_sandbox, tmp_path) as world:
        yield world


def definition(resource: Resource) -> dict[str, Any]:
    """A CRD that takes everything, in place of the Prometheus operator's."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": str(resource)},
        "spec": {
            "group": resource.group,
            "scope": "Namespaced",
            "names": {"plural": resource.plural, "kind": resource.kind},
            "versions": [
                {
                    "name": resource.version,
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    },
                }
            ],
        },
    }


@pytest.mark.req("PL-500", "PL-720")
async def test_rules_and_service_monitors_come_with_their_kinds_and_go_with_placement(world: OperatorWorld) -> None:
    """Also if Prometheus's operator is installed after polyarch."""

    async def made(resource: Resource) -> set[str]:
        listed = await world.client.list(resource, namespace=world.namespace)
        return {each["metadata"]["name"] for each in listed.items}

    async with world.operator():
        await world.create(CPPCS, names.SINGLETON, {})
        await world.condition("Available", "True")
        try:
            for resource in (SERVICE_MONITORS, RULES):
                await world.client.apply(CRDS, definition(resource))

            async def are_there() -> bool:
                return await made(SERVICE_MONITORS) == {names.WEBHOOK, names.CONTROLLER} and await made(RULES) == {
                    "multiarch-tuning-operator"
                }

            await eventually(are_there, seconds=SOON)
            await world.client.delete(CPPCS, names.SINGLETON)
            await eventually(lambda: world.is_gone(CPPCS, names.SINGLETON))
            assert await made(SERVICE_MONITORS) == await made(RULES) == set()
        finally:
            for resource in (SERVICE_MONITORS, RULES):
                await world.delete(CRDS, str(resource))


def commands() -> list[tuple[str, str]]:
    """The commands of kubectl that can be typed as they stand, with the page that has them."""
    return [
        (page.stem, line.strip())
        for page in sorted(RUNBOOKS.glob("*.md"))
        for line in page.read_text().splitlines()
        if line.startswith("    kubectl ") and not re.search(r"\bNAME\b", line)
    ]


@pytest.fixture
async def whole(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    """With the kinds of every component."""
    async with numa_operated.opened(operated_sandbox, tmp_path) as world:
        await world.client.apply(CRDS, topology_crd())
        await eventually(lambda: numa_operated.served(world, TOPOLOGIES))
        for definition in build_crds.crds():
            await world.client.apply(CRDS, definition)
        await eventually(lambda: numa_operated.served(world, IMAGE_BUILD_RUNS))
        yield world


@pytest.mark.req("IN-041", "PL-720")
async def test_the_commands_of_the_runbooks_can_be_typed_as_they_stand(whole: OperatorWorld, peer: Any) -> None:
    """With the monitor enabled, and nothing wrong."""
    world = whole
    tools = world.folder / "tools"
    tools.mkdir()
    (tools / "kubectl").symlink_to(peer("kubectl"))
    environment = os.environ | {"PATH": f"{tools}:{os.environ['PATH']}", "KUBECONFIG": str(world.sandbox.kubeconfig)}

    async def runs(name: str) -> bool:
        deployment = await world.client.get(DEPLOYMENTS, name, namespace=world.namespace)
        return bool(deployment.get("status", {}).get("availableReplicas"))

    async with world.deployed("placement", "taints", "numa", "builds"):
        await world.create(CPPCS, names.SINGLETON, {"plugins": {"execFormatErrorMonitor": {"enabled": True}}})
        await world.condition("Available", "True")
        await world.create(ARCHITECTURE_TAINTS, names.SINGLETON, {"state": "paused"})
        await numa_operated.create(world, [{"poolName": numa_operated.GROUP}])
        await eventually(lambda: runs(names.ENOEXEC_HANDLER))
        await eventually(lambda: world.is_there(DEPLOYMENTS, taint_names.ROLE))
        await eventually(lambda: runs(BUILDER))
        typed = commands()
        assert len(typed) > 15
        for page, command in typed:
            line = command.replace("polyarch-system", world.namespace)
            line = re.sub(r"\bNAMESPACE\b", "default", line)
            process = await asyncio.create_subprocess_shell(
                f"set -o pipefail; {line}",
                executable="/bin/bash",
                env=environment,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
            )
            async with asyncio.timeout(60):
                output, _ = await process.communicate()
            assert process.returncode == 0, f"{page}: {line}\n{output.decode()}"
