"""An installation with all of its pods, as a user has it: replaced, fought, starved and removed under load.

The tests run in the order of this file, as the life of installations: each begins with whatever stands and installs
what it lacks.
"""

import asyncio
import contextlib
import os
import signal
import time
from typing import Any

import earlier_version
import pytest
from fault_installation import FailedOpen, Installed, Load, is_gone, restart_api_server
from fault_table import Row
from operator_world import eventually

from polyarch.installation import apply, preflight
from polyarch.installation.objects import configuration, definitions, own_namespace
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
)
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator.settings import DEFAULT_IMAGE
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.nodes.plans import LOST_ANNOTATION

pytestmark = pytest.mark.req("IN-003", "PL-521", "PL-522")

PER_SECOND = 50.0
TRIES = 3
"""A machine that other programs keep busy does not answer 50 admissions a second, each within 5 s: what is late is
excused if it never did."""
HOLD_WRITES = 3
"""Told that its image is not found, told again after the fifth attempt, and released."""
UNRESOLVED = {"quay.io/none-such/app:1": None}
VOLATILE = ("pods", "replicasets.", "endpointslices.", "leases.", "ipaddresses.", "events")


def earlier_manifests(installed: Installed, kubectl: str) -> list[dict[str, Any]]:
    """Pods listen on their own addresses (all of them live on this machine) and know the sandbox's registries."""
    found = earlier_version.manifests(kubectl, DEFAULT_IMAGE)
    for deployment in earlier_version.deployments(found):
        (container,) = deployment["spec"]["template"]["spec"]["containers"]
        container["args"].remove("--bind=")
        registries = f"--registries-conf={installed.sandbox.registries_conf}"
        container["args"] += ["--bind=$(POD_IP)", registries, "--allow-address=127.0.0.0/8"]
        container["env"].append({"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}})
    return found


async def rolled_out(client: Client, name: str) -> bool:
    found = await client.get(DEPLOYMENTS, name, namespace=DEFAULT_NAMESPACE)
    state, wanted = found.get("status", {}), found["spec"]["replicas"]
    current = state.get("observedGeneration", 0) >= found["metadata"]["generation"]
    counts = (state.get("updatedReplicas", 0), state.get("availableReplicas", 0), state.get("replicas", 0))
    return current and all(each == wanted for each in counts)


async def replaced(client: Client, workload: str) -> None:
    """Deletes its pods one after another, each when the one before is replaced."""
    listed = await client.list(PODS, namespace=DEFAULT_NAMESPACE, label_selector=f"{names.CONTROLLER_LABEL}={workload}")
    for each in listed.items:
        await client.delete(PODS, each["metadata"]["name"], namespace=DEFAULT_NAMESPACE)
        await asyncio.sleep(0.5)
        await eventually(lambda: rolled_out(client, workload), seconds=120)


async def of_polyarch(installed: Installed) -> set[str]:
    """The objects of an installation, but for those that Kubernetes makes of them."""
    return {each for each in await installed.left() if not each.startswith(VOLATILE)}


async def ensure(installed: Installed) -> None:
    await installed.install(installed.settings(webhooks=2))
    await installed.available()
    await eventually(lambda: rolled_out(installed.client, names.WEBHOOK))


def removal_note(seconds: float, left: list[str]) -> str:
    return f"removed in {seconds:.0f} s; left: {', '.join(left) or 'nothing'}"


@pytest.mark.req("IN-004")
async def test_an_upgrade_from_the_earlier_manifests_while_pods_are_created(installed, told, peer):
    kubectl, client, settings = peer("kubectl"), installed.client, installed.settings(webhooks=2)
    earlier = earlier_manifests(installed, kubectl)
    await earlier_version.stand(installed.sandbox, client, settings, kubectl, earlier)
    await eventually(installed.is_asked)
    images = await installed.seed(6)
    async with installed.crowd() as crowd:
        stop = asyncio.Event()

        async def create() -> None:
            while not stop.is_set():
                await crowd.create(images, 5, in_flight=2)
                await asyncio.sleep(0.4)

        creating = asyncio.create_task(create())
        await crowd.released(10, seconds=60)
        began = time.monotonic()
        await ensure(installed)
        took = time.monotonic() - began
        stop.set()
        await creating
        await crowd.released(seconds=60)
        row = told(await crowd.row("upgrade from the earlier manifests", note=f"took {took:.0f} s"))
    assert row.sound, row
    installed.sandbox.folder.root.joinpath("upgraded.txt").write_text("\n".join(sorted(await of_polyarch(installed))))


@pytest.mark.req("PL-530", "PL-540")
async def test_no_admission_fails_while_certificates_and_replicas_are_replaced(installed, told):
    """50 a second. CA and leaf lost; webhook replicas deleted one after another, then a roll-out."""
    await ensure(installed)
    client = installed.client
    images = await installed.seed(4)

    async def leaf() -> str:
        try:
            found = await client.get(SECRETS, names.CERTIFICATES_SECRET, namespace=DEFAULT_NAMESPACE)
        except NotFound:
            return ""
        return str(found["data"].get("tls.crt", ""))

    async def lose_certificates() -> None:
        """Deleted, and the operator replaced, which looks at once; until replicas have had time to load the new one."""
        known = await leaf()
        for secret in (names.AUTHORITY_SECRET, names.CERTIFICATES_SECRET):
            await client.delete(SECRETS, secret, namespace=DEFAULT_NAMESPACE)
        await replaced(client, names.OPERATOR)

        async def is_new() -> bool:
            return (await leaf()) not in ("", known)

        await eventually(is_new, seconds=120)
        await asyncio.sleep(5)

    async def roll_out() -> None:
        restarted = {"metadata": {"annotations": {"kubectl.kubernetes.io/restartedAt": "now"}}}
        change = MergePatch({"spec": {"template": restarted}})
        await client.patch(DEPLOYMENTS, names.WEBHOOK, change, namespace=DEFAULT_NAMESPACE)
        await asyncio.sleep(0.5)
        await eventually(lambda: rolled_out(client, names.WEBHOOK))

    rows = []
    async with installed.crowd("") as crowd:
        await crowd.create(images, 8)
        await crowd.released(seconds=60)
        for name, action in (
            ("CA and certificate lost, 50 admissions a second", lose_certificates),
            ("webhook pods deleted in turn, 50 a second", lambda: replaced(client, names.WEBHOOK)),
            ("webhook rolled out, 50 a second", roll_out),
        ):
            for _ in range(TRIES):
                failed = FailedOpen(installed.sandbox)
                load = Load(client, crowd.namespace, list(images), per_second=PER_SECOND)
                async with load.running():
                    await asyncio.sleep(1)
                    await action()
                    await asyncio.sleep(1)
                if not load.missed and not load.refused:
                    break
            rate = load.answered / load.seconds
            note = f"{load.asked} admissions, {rate:.0f}/s in {load.seconds:.0f} s; refused: {len(load.refused)}"
            row = Row(scenario=name, pods=load.answered, released=load.answered, missed=len(load.missed), note=note)
            rows.append((row, load.refused, failed.but_for_time(), rate))
    for row, *_ in rows:
        told(row)
    for row, refused, failed_open, rate in rows:
        assert not refused, (row, refused[:3])
        assert not failed_open, (row, failed_open[:3])
        if rate >= 0.9 * PER_SECOND:
            assert not row.missed, row


@pytest.mark.req("PL-501")
async def test_a_field_that_somebody_keeps_changing(installed, told):
    """Degraded names it, and the operator does not write for ever."""
    await ensure(installed)
    client = installed.client
    audit = installed.audit(names.OPERATOR)
    fights = 0

    async def degraded() -> str:
        found = (await client.get(CPPCS, names.SINGLETON))["status"]["conditions"]
        return next((each["message"] for each in found if (each["type"], each["status"]) == ("Degraded", "True")), "")

    said = ""
    change = MergePatch({"spec": {"maxUnavailable": 2}})
    while fights < 20 and "somebody" not in (said := await degraded()):
        await client.patch(
            POD_DISRUPTION_BUDGETS,
            names.WEBHOOK,
            change,
            namespace=DEFAULT_NAMESPACE,
            field_manager="somebody",
        )
        fights += 1
        await asyncio.sleep(0.5)
    await asyncio.sleep(5)
    requests = [each for each in await audit.requests() if not each.startswith(("get", "list"))]
    on_it = [each for each in requests if "poddisruptionbudgets" in each]
    await client.delete(POD_DISRUPTION_BUDGETS, names.WEBHOOK, namespace=DEFAULT_NAMESPACE)
    told(
        Row(
            scenario="somebody keeps changing a field",
            note=f"changed {fights} times, written back {len(on_it)} times, {len(requests)} writes in all; {said}",
        )
    )
    assert "somebody keeps changing" in said
    assert "maxUnavailable" in said
    assert len(on_it) <= 6
    assert len(requests) <= len(on_it) + 4


@pytest.mark.req("PL-811")
async def test_pods_created_while_no_webhook_stood_are_found(installed, told):
    await ensure(installed)
    client = installed.client
    images = await installed.seed(4)
    async with installed.crowd("") as crowd:
        installed.signal(names.OPERATOR, signal.SIGSTOP)
        scale = MergePatch({"spec": {"replicas": 0}})
        await client.patch(DEPLOYMENTS, names.WEBHOOK, scale, namespace=DEFAULT_NAMESPACE)

        async def is_away() -> bool:
            return not await installed.is_asked()

        await eventually(is_away)
        await crowd.create(images, 50)
        installed.signal(names.OPERATOR, signal.SIGCONT)
        await eventually(installed.is_asked)
        back = time.monotonic()

        async def found() -> bool:
            events = await client.list(EVENTS, namespace=crowd.namespace)
            about = {each["regarding"]["name"] for each in events.items if each["reason"] == "PolyarchUnplacedPod"}
            return crowd.expected.keys() <= about

        await eventually(found, seconds=60)
        took = time.monotonic() - back
        row = told(await crowd.row("50 pods created while no webhook stood", note=f"all found in {took:.0f} s"))
    assert row.missed == 50
    assert not row.stuck
    assert took <= 60


@pytest.mark.req("PL-370", "PL-811")
async def test_all_nodes_are_lost_at_once_and_come_back(installed, told):
    """Every process of polyarch dies and no kubelet starts it again for a while. Nobody waits for itself, and nobody
    has to do anything."""
    await ensure(installed)
    client = installed.client
    images = await installed.seed(4)
    nodes = [each["metadata"]["name"] for each in (await client.list(NODES)).items]

    async def lose(lost: str | None) -> None:
        for node in nodes:
            await client.patch(NODES, node, MergePatch({"metadata": {"annotations": {LOST_ANNOTATION: lost}}}))

    async with installed.crowd("hold", writes=HOLD_WRITES) as held, installed.crowd("") as crowd:
        await held.create(UNRESOLVED, 10)
        await lose("true")
        for record in installed.sandbox.containers():
            with contextlib.suppress(ProcessLookupError):
                os.kill(record.pid, signal.SIGKILL)
        await crowd.create(images, 30)
        assert not await installed.is_asked()
        await lose(None)
        back = time.monotonic()
        await installed.available()
        available = time.monotonic() - back

        async def found() -> bool:
            events = await client.list(EVENTS, namespace=crowd.namespace)
            about = {each["regarding"]["name"] for each in events.items if each["reason"] == "PolyarchUnplacedPod"}
            return crowd.expected.keys() <= about

        await eventually(found, seconds=120)
        took = time.monotonic() - back
        own = (await client.list(PODS, namespace=DEFAULT_NAMESPACE)).items
        assert not [each["metadata"]["name"] for each in own if each["spec"].get("schedulingGates")]
        note = f"all there after {available:.0f} s; all that were created unseen found after {took:.0f} s"
        row = told(await crowd.row("all nodes lost, and every process killed", note=note))
        async with installed.crowd() as later:
            await later.create(images, 10)
            await later.released(seconds=60)
            after = await later.row("pods created after that")
    assert row.missed == row.pods
    assert not row.stuck
    assert after.sound, after
    assert not after.missed
    assert took <= 120, note


@pytest.mark.req("PL-520")
async def test_an_uninstall_with_200_gated_pods(installed, told):
    await ensure(installed)
    async with installed.crowd("hold", writes=HOLD_WRITES) as crowd:
        await crowd.create(UNRESOLVED, 200)
        assert len(await installed.gated()) == 200
        began = time.monotonic()
        removal = await installed.remove()
        took = time.monotonic() - began
        await crowd.released(seconds=5)
        left = await installed.left()
        row = told(await crowd.row("uninstall with 200 gated pods", note=removal_note(took, left)))
    assert row.sound, row
    assert not left
    assert not removal.left
    assert not removal.by_force
    assert took <= 60


@pytest.mark.req("PL-811")
async def test_the_api_server_is_killed_in_the_middle_of_install_and_uninstall(installed, told):
    """The uninstall is a foreground deletion of the ClusterPodPlacementConfig, then ``polyarch uninstall``."""
    installing = asyncio.create_task(ensure(installed))
    await asyncio.sleep(4)
    await restart_api_server(installed.sandbox, away=1.0)
    await installing
    images = await installed.seed(4)
    fresh = await of_polyarch(installed)
    async with installed.crowd() as placed, installed.crowd("hold", writes=HOLD_WRITES) as held:
        await placed.create(images, 60)
        await placed.released(seconds=60)
        placed_row = told(await placed.row("API server killed in the middle of an install"))
        await held.create(UNRESOLVED, 40)
        await installed.client.delete(CPPCS, names.SINGLETON, propagation="Foreground")
        removing = asyncio.create_task(installed.remove())
        await asyncio.sleep(4)
        began = time.monotonic()
        await restart_api_server(installed.sandbox, away=1.0)
        await removing
        took = time.monotonic() - began + 4
        await held.released(seconds=5)
        left = await installed.left()
        held_row = told(
            await held.row("foreground deletion, API server killed in the middle of it", note=removal_note(took, left))
        )
    assert placed_row.sound, placed_row
    assert not placed_row.missed
    assert held_row.sound, held_row
    assert not left
    upgraded = installed.sandbox.folder.root / "upgraded.txt"
    if upgraded.exists():
        other = set(upgraded.read_text().splitlines()) ^ fresh
        assert not other, "an upgraded installation has the same objects as a fresh one"


@pytest.mark.req("PL-503", "PL-520")
async def test_left_by_the_predecessor_and_then_the_namespace_is_deleted_first(installed, told):
    """Its Deployment has another selector, its webhook is gone, its pods are gated and its configuration is held."""
    client, settings = installed.client, installed.settings()
    early = [*definitions(settings), *own_namespace(settings), *configuration(settings)]
    await apply.apply_all(client, early, await preflight.gather(client, early))
    held_by = MergePatch({"metadata": {"finalizers": [names.POD_PLACEMENT_FINALIZER]}})
    await client.patch(CPPCS, names.SINGLETON, held_by)
    await client.create(DEPLOYMENTS, predecessors_controller(), namespace=DEFAULT_NAMESPACE)
    images = await installed.seed(4)
    async with installed.crowd() as left_gated, installed.crowd("hold", writes=HOLD_WRITES) as held:
        for name in await left_gated.create(images, 30, schedulingGates=[{"name": names.GATE}]):
            gated = MergePatch({"metadata": {"labels": {names.SCHEDULING_GATE_LABEL: names.GATED}}})
            await client.patch(PODS, name, gated, namespace=left_gated.namespace)
        await installed.install(settings)
        await installed.available()
        await left_gated.released(seconds=60)
        taken_over = told(await left_gated.row("taken over from the predecessor"))
        found = await client.get(DEPLOYMENTS, names.CONTROLLER, namespace=DEFAULT_NAMESPACE)
        await held.create(UNRESOLVED, 20)
        began = time.monotonic()
        await client.delete(NAMESPACES, DEFAULT_NAMESPACE)
        await eventually(lambda: is_gone(client, NAMESPACES, DEFAULT_NAMESPACE), seconds=120)
        await held.released(seconds=5)
        await client.delete(CPPCS, names.SINGLETON)
        await eventually(lambda: is_gone(client, CPPCS, names.SINGLETON))
        took = time.monotonic() - began
        await installed.remove()
        left = await installed.left()
        row = told(await held.row("namespace deleted before the configuration", note=removal_note(took, left)))
    assert taken_over.sound, taken_over
    assert "app" not in found["spec"]["selector"]["matchLabels"]
    assert row.sound, row
    assert not left


def predecessors_controller() -> dict[str, Any]:
    """As its operator left it; the sandbox's nodes do not run its image."""
    labels = {"app": "multiarch-tuning-operator", names.CONTROLLER_LABEL: names.CONTROLLER}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": names.CONTROLLER,
            "labels": {names.OPERAND_LABEL: names.OPERAND, names.CONTROLLER_LABEL: names.CONTROLLER},
            "finalizers": [names.POD_PLACEMENT_FINALIZER],
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": names.CONTROLLER, "image": "quay.io/predecessor/operator:1"}]},
            },
        },
    }
