"""Whatever somebody changes in an operand is put right, or is among the few things that may stay.

Edits are made by a generator from the live objects, not from a list of what is known to be repaired. The rule of what
may stay is in docs/design/kube-runtime.md.
"""

import asyncio
import json
import random
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import numa_operated
import pytest
from object_edits import Edit, differing, edits
from operator_world import OperatorWorld, eventually

from polyarch.installation.operator import rights as operator_rights
from polyarch.kube.errors import ApiError, NotFound
from polyarch.kube.patches import JsonPatch
from polyarch.kube.resources import (
    DAEMONSETS,
    MUTATING_WEBHOOKS,
    POD_DISRUPTION_BUDGETS,
    SECRETS,
    VALIDATING_WEBHOOKS,
    ObjectRef,
    by_kind,
)
from polyarch.names import OPERAND_LABEL
from polyarch.numa.api.resources import SCHEDULERS
from polyarch.numa.names import SCHEDULER_SINGLETON
from polyarch.objects import ObjectKey
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints import names as taints
from polyarch.taints.api import ARCHITECTURE_TAINTS

KINDS = (*numa_operated.KINDS, POD_DISRUPTION_BUDGETS, MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS)
STAYS = (
    "metadata.labels",
    "metadata.annotations",
    "metadata.ownerReferences",
    "metadata.finalizers",
    "spec.template.metadata",
    "data",
    "binaryData",
    "imagePullSecrets",
    "secrets",
    "spec.replicas",
)
"""What others may add, at these places and below."""
SECONDS = 20.0
SERVED = ("uid", "resourceVersion", "generation", "creationTimestamp", "managedFields", "selfLink")


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with numa_operated.opened(operated_sandbox, tmp_path) as world:
        settings = OperatorSettings(namespace=world.namespace, builds="on")
        for document in operator_rights(settings, ClusterCapabilities()):
            where = document["metadata"].get("namespace", "")
            await world.client.apply(by_kind(document["apiVersion"], document["kind"]), document, namespace=where)
        yield world


async def everything(world: OperatorWorld) -> list[ObjectRef]:
    """Every operand there is, once all features are there."""
    await numa_operated.label(world, 1)
    await world.create(CPPCS, names.SINGLETON, {"plugins": {"execFormatErrorMonitor": {"enabled": True}}})
    await world.create(ARCHITECTURE_TAINTS, taints.SINGLETON, {})
    await numa_operated.create(world, [{"poolName": numa_operated.GROUP}])
    await world.create(SCHEDULERS, SCHEDULER_SINGLETON, {})
    await eventually(lambda: world.is_there(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION))
    await eventually(lambda: world.is_there(MUTATING_WEBHOOKS, taints.ROLE))
    await eventually(lambda: world.is_there(DAEMONSETS, numa_operated.DAEMON_SET))
    await asyncio.sleep(5)
    found = []
    for kind in KINDS:
        if kind != SECRETS:
            where = world.namespace if kind.namespaced else ""
            listed = await world.client.list(kind, namespace=where, label_selector=OPERAND_LABEL)
            found += [ObjectRef(kind, ObjectKey(where, each["metadata"]["name"])) for each in listed.items]
    return found


def plain(document: dict[str, Any]) -> dict[str, Any]:
    """Without what the API server keeps."""
    metadata = {name: value for name, value in document["metadata"].items() if name not in SERVED}
    annotations = {
        name: value for name, value in metadata.get("annotations", {}).items() if "deployment.kubernetes.io" not in name
    }
    metadata["annotations"] = {name: value for name, value in annotations.items() if "deprecated." not in name}
    rest = {name: value for name, value in document.items() if name not in ("status", "metadata")}
    return _without_more({"metadata": metadata, **rest}, ())


def _without_more(value: Any, path: tuple[str, ...]) -> Any:
    """Without keys that the edits before have added where they may stay."""
    if not isinstance(value, dict):
        return value
    is_free = path[-2:] in (("metadata", "labels"), ("metadata", "annotations")) or path in (("data",), ("binaryData",))
    return {
        name: _without_more(each, (*path, name))
        for name, each in value.items()
        if not (is_free and name in ("more", "more.example.com"))
    }


async def read(world: OperatorWorld, ref: ObjectRef) -> dict[str, Any]:
    found = await world.client.get(ref.resource, ref.key.name, namespace=ref.key.namespace)
    return plain({"apiVersion": ref.resource.api_version, "kind": ref.resource.kind, **found})


def left(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Places that are not as before, but for those at which others may add something."""
    return [
        place
        for place in differing(before, after)
        if not (any(place == each or place.startswith(f"{each}.") for each in STAYS) and _is_more(before, after, place))
    ]


def _is_more(before: Any, after: Any, place: str) -> bool:
    """Whether all that was there is there, beside something else."""
    steps = place.split(".")
    while steps and isinstance(before, dict) and isinstance(after, dict):
        joined = next((".".join(steps[:end]) for end in range(len(steps), 0, -1) if ".".join(steps[:end]) in after), "")
        if not joined:
            return False
        if joined not in before:
            return True
        before, after, steps = before[joined], after[joined], steps[len(joined.split(".")) :]
    return isinstance(before, list) and isinstance(after, list) and all(each in after for each in before)


async def edited(world: OperatorWorld, ref: ObjectRef, edit: Edit, number: int, *, applied: bool) -> str:
    """What is left of an edit after some seconds; empty: nothing, or it was no edit."""
    try:
        before = await read(world, ref)
        manager, patch = f"somebody-{number}", JsonPatch(edit.operations)
        where = ref.key.namespace
        if applied:
            wanted = await world.client.patch(
                ref.resource, ref.key.name, patch, namespace=where, field_manager=manager, dry_run=True, type=dict
            )
            document = plain(wanted)
            await world.client.apply(
                ref.resource,
                {"apiVersion": ref.resource.api_version, "kind": ref.resource.kind, **document},
                namespace=where,
                field_manager=manager,
            )
        else:
            await world.client.patch(ref.resource, ref.key.name, patch, namespace=where, field_manager=manager)
    except NotFound:
        return ""
    except ApiError as error:
        if error.status in (400, 403, 404, 409, 422):
            return ""  # no such edit can be made
        raise
    deadline, places = time.monotonic() + SECONDS, ["?"]
    while places and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        try:
            places = left(before, await read(world, ref))
        except NotFound:
            places = ["it is gone"]
    how = "apply" if applied else "patch"
    return f"{ref} ({how}): {edit.words}: {places}" if places else ""


async def sweep(world: OperatorWorld, seed: int, count: int) -> list[str]:
    """What is left of so many edits, spread over all operands, one at a time for each."""
    chance, refs, found = random.Random(seed), await everything(world), []
    chosen: list[tuple[ObjectRef, list[tuple[Edit, bool]]]] = []
    for ref in refs:
        several = [(edit, chance.random() < 0.3) for edit in edits(await read(world, ref))]
        chance.shuffle(several)
        chosen.append((ref, several[: max(1, count // len(refs))]))
    print(json.dumps({"objects": len(refs), "edits": sum(len(each) for _, each in chosen)}))  # noqa: T201 - a figure
    limit = asyncio.Semaphore(8)

    async def one(ref: ObjectRef, several: list[tuple[Edit, bool]], first: int) -> None:
        async with limit:
            for number, (edit, applied) in enumerate(several, first):
                if words := await edited(world, ref, edit, number, applied=applied):
                    found.append(words)
                    print(f"LEFT {words}")  # noqa: T201 - which of them

    async with asyncio.TaskGroup() as tasks:
        for index, (ref, several) in enumerate(chosen):
            tasks.create_task(one(ref, several, index * 1000))
    return found


@pytest.mark.req("PL-501", "KR-051")
@pytest.mark.parametrize("seed", [1])
async def test_some_edits_of_every_operand_are_put_right(world: OperatorWorld, seed: int) -> None:
    async with world.operator("--builds=on", "--builder-replicas=1"):
        assert await sweep(world, seed, 60) == []


@pytest.mark.req("PL-501", "KR-051")
@pytest.mark.parametrize("seed", [11, 12])
async def test_hundreds_of_edits_of_all_operands_are_put_right(world: OperatorWorld, seed: int) -> None:
    async with world.operator("--builds=on", "--builder-replicas=1"):
        assert await sweep(world, seed, 600) == []
