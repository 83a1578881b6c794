"""The life of polyarch on real nodes: installed by its command, by Helm and over an earlier version, and removed.

The tests run in the order of this file, and each begins with whatever stands and installs what it lacks. What is there
before and afterwards is listed by kubectl, every object of every kind.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import earlier_version
import msgspec
import pytest
import yaml
from bench.cgroups import ProcessCgroup
from bench.start import CPU_BUDGET, MEMORY_BUDGETS, USUAL_MEMORY_BUDGET, control
from fault_crowd import NAMESPACE_PREFIX, POLICY, crowd_in, seed
from helm_chart import CHART, Helm
from installing import Cluster, Json, Ran
from namespaces import create_namespace
from placement_cluster import architectures, pod
from real_nodes import COST

from polyarch.installation.settings import InstallationSettings
from polyarch.kube.resources import NAMESPACES, PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.operator.operands import START_CPU_SECONDS
from polyarch.sandbox import operator as sandbox_operator
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.real.cgroups import Cgroups
from polyarch.sandbox.tasks import until
from polyarch.sandbox.versions import host_architecture

pytestmark = pytest.mark.timeout(900)

SECONDS = 300.0
HERE = host_architecture()
IMAGE = "docker.io/library/nginx:1.27"
SHOP = "shop"
EVERYTHING = ("placement", "taints", "builds", "numa")
LEFT_OUT = {"events", "events.events.k8s.io", "endpoints", "componentstatuses"}
"""Events expire; the others are deprecated, and say what other kinds say."""
ROUND_SECONDS = 0.1
"""CPU of one round of the control up to which a machine is not slow."""
REST_SECONDS = 20.0


async def ask(its: Cluster, *arguments: str) -> str:
    """kubectl's answer."""
    return (await its.kubectl(*arguments, seconds=SECONDS)).out


async def command(its: Cluster, *arguments: str) -> Ran:
    """polyarch's, of a command that does what it is told."""
    done = await its.polyarch(*arguments)
    assert done.code == 0, f"{done.out}\n{done.err}"
    return done


def values(its: Cluster, **changes: Any) -> Json:
    """What an installation has to know here, and what the test wants."""
    known = json.loads(its.sandbox.folder.values.read_text())
    for name, change in changes.items():
        known[name] = {**known[name], **change} if isinstance(change, dict) else change
    return dict(known)


async def everything(its: Cluster) -> dict[str, str]:
    """Labels, finalizers and taints of every object, by kind and name."""
    kinds = set((await ask(its, "api-resources", "--verbs=list", "--output=name")).split()) - LEFT_OUT
    listing = ("get", ",".join(sorted(kinds)), "--all-namespaces", "--output=json")
    listed = await its.kubectl(*listing, code=None, seconds=SECONDS)
    if listed.code != 0:  # a definition has gone since
        return {listed.err: ""}
    found = {}
    for each in json.loads(listed.out)["items"]:
        metadata = each["metadata"]
        name = f"{each['apiVersion']} {each['kind']} {metadata.get('namespace', '')}/{metadata['name']}"
        what = (metadata.get("labels"), metadata.get("finalizers"), each.get("spec", {}).get("taints"))
        found[name] = json.dumps(what, sort_keys=True) if each["kind"] != "Lease" else ""
    return found


async def until_as(its: Cluster, before: dict[str, str]) -> None:
    """What the garbage collector still has to do it does in a moment."""
    changed: dict[str, tuple[str | None, str | None]] = {}

    async def is_so() -> bool:
        now = await everything(its)
        changed.clear()
        for name in sorted(now.keys() | before.keys()):
            if now.get(name) != before.get(name):
                changed[name] = (before.get(name), now.get(name))
        return not changed

    await until(is_so, seconds=60, every=1)
    assert changed == {}


async def own_pods(its: Cluster) -> list[Json]:
    return [dict(each) for each in (await its.client.list(PODS, namespace=DEFAULT_NAMESPACE)).items]


@pytest.fixture
async def its(bare: Sandbox, capsys: pytest.CaptureFixture[str], peer: Callable[[str], str]) -> AsyncIterator[Cluster]:
    async with bare.client() as client:
        yield Cluster(bare, client, capsys, peer)


@pytest.fixture(scope="module")
def before() -> dict[str, str]:
    """Everything that was there before anything was installed; filled by the first test that asks."""
    return {}


@pytest.fixture
async def untouched(its: Cluster, before: dict[str, str]) -> dict[str, str]:
    if not before:
        assert not await own_pods(its), "polyarch is there already"
        await create_namespace(its.client, SHOP)
        before.update(await everything(its))
    return before


async def install(its: Cluster, folder: Path, **changes: Any) -> None:
    file = folder / "values.json"
    file.write_text(json.dumps(values(its, **changes)))
    await command(its, "install", "--wait", "--values", str(file))


async def install_everything(its: Cluster, folder: Path) -> None:
    monitor = {"configuration": {"plugins": {"execFormatErrorMonitor": {"enabled": True}}}}
    await install(its, folder, components=list(EVERYTHING), placement=monitor)


async def is_placed_and_runs(its: Cluster, name: str) -> None:
    """A pod of a user's, with the constraint of its image."""
    await its.client.create(PODS, pod(IMAGE, name=name), namespace=SHOP)

    async def runs() -> Json | None:
        found = await its.client.get(PODS, name, namespace=SHOP)
        return found if found.get("status", {}).get("phase") == "Running" else None

    found = await until(runs, seconds=SECONDS)
    assert found is not None
    assert HERE in (architectures(found) or ())
    await its.client.delete(PODS, name, namespace=SHOP)


def ready(pods: list[Json]) -> dict[str, bool]:
    """Whether a container is, by its name; of several replicas, whether all are."""
    found: dict[str, bool] = {}
    for each in pods:
        for status in each.get("status", {}).get("containerStatuses", ()):
            found[status["name"]] = found.get(status["name"], True) and status["ready"]
    return found


@pytest.mark.req("IN-002")
async def test_the_command_installs_every_component_until_it_is_ready(
    its: Cluster, untouched: dict[str, str], tmp_path: Path
) -> None:
    await install_everything(its, tmp_path)
    assert ready(await own_pods(its)) == {**dict.fromkeys(START_CPU_SECONDS, True), "secondary-scheduler": True}
    await is_placed_and_runs(its, "by-the-command")
    again = await command(its, "install", "--wait", "--values", str(tmp_path / "values.json"))
    assert "nothing to change" in again.out + again.err


@pytest.mark.req("PL-502", "PL-810")
async def test_each_role_starts_and_rests_within_its_budget(
    its: Cluster, untouched: dict[str, str], tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Of a new pod of each role in its own control group: CPU until it is ready, and memory once it has rested. On a
    machine that is slower, now or always, a round of the control takes more CPU as well."""
    if not await own_pods(its):
        await install_everything(its, tmp_path)
    spent: dict[str, float] = {}
    groups: dict[str, ProcessCgroup] = {}
    rounds: dict[str, float] = {}
    for container in START_CPU_SECONDS:
        spent[container], groups[container] = await restarted(its, container)
        rounds[container] = await asyncio.to_thread(control)
    await asyncio.sleep(REST_SECONDS)
    memory = {container: groups[container].working_set_mib() for container in groups}
    for container in START_CPU_SECONDS:
        slowness = max(rounds[container] / ROUND_SECONDS, 1.0)
        said = f"{memory[container]:.1f} MiB, {spent[container]:.2f} s CPU, control {rounds[container]:.3f} s"
        record_property(COST, f"{container}: {said}")
        assert memory[container] <= MEMORY_BUDGETS.get(container, USUAL_MEMORY_BUDGET), f"{container}: {said}"
        assert spent[container] <= CPU_BUDGET * slowness, f"{container}: {said}"


async def restarted(its: Cluster, container: str) -> tuple[float, ProcessCgroup]:
    """CPU seconds of a new pod's container until it was ready, and its control group."""
    pods = [each for each in await own_pods(its) if any(c["name"] == container for c in each["spec"]["containers"])]
    old = {each["metadata"]["uid"] for each in pods}
    await its.client.delete(PODS, pods[0]["metadata"]["name"], namespace=DEFAULT_NAMESPACE)
    below = Cgroups(its.sandbox.name).name
    group: list[ProcessCgroup] = []

    async def is_ready() -> bool:
        for each in await own_pods(its):
            if each["metadata"]["uid"] in old:
                continue
            for status in each.get("status", {}).get("containerStatuses", ()):
                identity = status.get("containerID", "").rpartition("/")[2]
                if status["name"] == container and status["ready"] and identity:
                    group[:] = [ProcessCgroup.found(identity, below=below)]
                    return True
        return False

    assert await until(is_ready, seconds=SECONDS), container
    return group[0].cpu_seconds(), group[0]


@pytest.mark.req("IN-003")
async def test_uninstalled_by_the_command_it_leaves_nothing(
    its: Cluster, untouched: dict[str, str], tmp_path: Path
) -> None:
    if not await own_pods(its):
        await install_everything(its, tmp_path)
    await command(its, "uninstall", "--yes")
    await until_as(its, untouched)


@pytest.mark.req("IN-010")
async def test_helm_installs_it_until_it_is_ready_and_leaves_nothing(
    its: Cluster, untouched: dict[str, str], tmp_path: Path, peer: Callable[[str], str]
) -> None:
    """As the guide says."""
    helm = Helm(peer("helm-4"), tmp_path)
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values(its, components=list(EVERYTHING))))
    where = ("--namespace", DEFAULT_NAMESPACE, "--kubeconfig", str(its.sandbox.kubeconfig))
    wait = ("--wait", "--timeout", "240s")
    given = ("--values", str(tmp_path / "values.yaml"))
    await asyncio.to_thread(helm, "install", "polyarch", str(CHART), "--create-namespace", *given, *wait, *where)
    await ask(its, "wait", "clusterpodplacementconfig/cluster", "--for=condition=Available", "--timeout=240s")
    await is_placed_and_runs(its, "by-helm")
    settings = ("placement.configuration", "taints.configuration", "numa.configuration", "numa.scheduler")
    off = ",".join([*(f"{each}=null" for each in settings), "builds.mode=auto"])
    # Not --reuse-values: with it Helm keeps a value that was given, also where it is set to null.
    await asyncio.to_thread(helm, "upgrade", "polyarch", str(CHART), *given, "--set", off, *where)
    for each in (
        "clusterpodplacementconfig/cluster",
        "architecturetaints/cluster",
        "numaresourcesoperator/numaresourcesoperator",
    ):
        await ask(its, "wait", "--for=delete", each, "--timeout=240s")
    builder = ("deployment/polyarch-builder", "--namespace", DEFAULT_NAMESPACE)
    await ask(its, "wait", "--for=delete", *builder, "--timeout=240s")
    await asyncio.to_thread(helm, "uninstall", "polyarch", *wait, *where)
    await ask(its, "delete", "-f", str(CHART / "crds"))
    await ask(its, "delete", "crd", str(TOPOLOGIES))
    await ask(its, "delete", "namespace", DEFAULT_NAMESPACE)
    await until_as(its, untouched)


@pytest.mark.req("IN-003", "IN-004")
async def test_an_upgrade_from_the_earlier_version_stores_no_pod_wrongly(
    its: Cluster,
    untouched: dict[str, str],
    tmp_path: Path,
    peer: Callable[[str], str],
    record_property: Callable[[str, object], None],
) -> None:
    """Pods are created from before the upgrade until after it."""
    policy = {"policy": POLICY, "webhookReplicas": 2, "controllerReplicas": 2}
    changes = {"components": ["placement"], "placement": policy, "operator": {"replicas": 1}}
    settings = msgspec.convert(values(its, **changes), InstallationSettings)
    found = earlier_manifests(settings, peer("kubectl"))
    await earlier_version.stand(its.sandbox, its.client, settings, peer("kubectl"), found)
    await sandbox_operator.until_asked(its.client)
    images = await seed(its.sandbox, "quay.io", 6)
    async with crowd_in(its.client, its.sandbox.audit_log) as crowd:
        stop = asyncio.Event()

        async def create() -> None:
            while not stop.is_set():
                await crowd.create(images, 5, in_flight=2)
                await asyncio.sleep(0.4)

        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(create())
            await crowd.released(10, seconds=60)
            began = time.monotonic()
            await install(its, tmp_path, **changes)
            record_property(COST, f"upgrade: {time.monotonic() - began:.0f} s, {len(crowd.expected)} pods created")
            await asyncio.sleep(2)
            stop.set()
        await crowd.released(seconds=120)
        row = await crowd.row("upgrade from the earlier manifests")
    assert row.sound, row
    assert not row.missed, row
    await command(its, "uninstall", "--yes")
    await ask(its, "delete", "namespace", DEFAULT_NAMESPACE)  # the command leaves it, for the user's ConfigMap
    for each in (await its.client.list(NAMESPACES)).items:
        if each["metadata"]["name"].startswith(NAMESPACE_PREFIX):
            await ask(its, "wait", "--for=delete", f"namespace/{each['metadata']['name']}", "--timeout=120s")
    await until_as(its, untouched)


REGISTRIES = "registries-of-the-user"


def earlier_manifests(settings: InstallationSettings, kubectl: str) -> list[Json]:
    """Pods know the sandbox's registries and its authority by files."""
    found = earlier_version.manifests(kubectl, settings.image.reference)
    for deployment in earlier_version.deployments(found):
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        where = "/etc/polyarch/registries"
        container["args"] += [f"--registries-conf={where}/registries.conf", f"--ca={where}/ca.crt"]
        container["volumeMounts"].append({"name": "registries", "mountPath": where, "readOnly": True})
        spec["volumes"].append({"name": "registries", "configMap": {"name": REGISTRIES}})
    data = settings.registries.files
    metadata = {"name": REGISTRIES, "namespace": DEFAULT_NAMESPACE}
    return [*found, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}]
