"""Programs that the node's kernel cannot execute: found on real runtimes, and told to their pods by container."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crio import use_crio
from namespaces import create_namespace
from real_kubelets import (
    Document,
    eventually,
    is_ready,
    keeper,
    node_names,
    notes,
    own_image,
    pod_document,
    pod_of,
    pods_of,
    seen_by,
    statuses,
)

from polyarch.builds.jobs.script import emulation_check
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import EVENTS, NODES, PODS
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.objects import Unstructured
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS
from polyarch.placement.exec_monitor_node import INSTANCE_PREFIX
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.errors import SilentStepProgress
from polyarch.sandbox.namespaces import entering
from polyarch.sandbox.real.images import ImageFiles, manifest
from polyarch.sandbox.state import Settings
from polyarch.sandbox.versions import host_architecture

pytestmark = pytest.mark.timeout(600)

HERE = "docker.io/library/nginx:1.27"
FOREIGN_IMAGE = "quay.io/acme/ledger:3"
MISLABELLED_IMAGE = "quay.io/acme/gateway:7"
REASON = "ExecFormatError"
GC_SECONDS = 420.0
"""A kubelet looks for images to remove every five minutes, and has no figures when it starts."""
INSTANCES = "/sys/kernel/tracing/instances"


def foreign_architecture() -> str:
    """One whose programs this kernel refuses: no interpreter is registered for them."""
    known = {path.name for path in Path("/proc/sys/fs/binfmt_misc").glob("qemu-*")}
    return next(each for each in ("s390x", "ppc64le", "riscv64", "loong64") if f"qemu-{each}" not in known)


def foreign_program() -> bytes:
    content = emulation_check(foreign_architecture())
    assert content is not None
    return content


def trying(*, first: str = "") -> Document:
    """A container of polyarch's own image in which Python runs ``first``, then the foreign program."""
    code = f"""\
import os, pathlib, time
{first}
program = pathlib.Path("/tmp/program")
program.write_bytes(bytes.fromhex("{foreign_program().hex()}"))
program.chmod(0o755)
try:
    os.execv(program, [str(program)])
except OSError as error:
    print(error, flush=True)
time.sleep(3600)
"""
    return {"command": [str(Path(sys.executable).resolve()), "-c", code]}


async def set_monitor(client: Client, *, enabled: bool) -> None:
    plugins = {"execFormatErrorMonitor": {"enabled": enabled}}
    patch = MergePatch({"spec": {"plugins": plugins}})
    await client.patch(CPPCS, names.SINGLETON, patch)


async def monitors(client: Client) -> list[Document]:
    return await pods_of(client, selector=f"controller={names.ENOEXEC_DAEMON}")


def instances(sandbox: Sandbox) -> set[str]:
    """The traces of exec monitors in the kernel."""
    folder = seen_by(sandbox, node_names(sandbox)[0], INSTANCES)
    return {path.name for path in folder.iterdir() if path.name.startswith(INSTANCE_PREFIX)}


def is_alive(instance: str) -> bool:
    """Whether the process whose id is in the name of the instance runs."""
    return Path(f"/proc/{instance.split('-')[2]}").exists()


@pytest.fixture
async def monitored(cluster: Sandbox, client: Client, tmp_path: Path) -> str:
    """The node that has the kernel's trace, with the monitor running; images of a foreign program are there."""
    return await monitor(cluster, client, tmp_path)


async def monitor(cluster: Sandbox, client: Client, tmp_path: Path) -> str:
    """As the fixture."""
    program = tmp_path / "app"
    program.write_bytes(foreign_program())
    program.chmod(0o755)
    files = ImageFiles({"bin/app": program}, ("/bin/app",), {})
    await cluster.registry.push(FOREIGN_IMAGE, manifest(files, foreign_architecture()).children[0])
    await cluster.registry.push(MISLABELLED_IMAGE, manifest(files, host_architecture()))
    await set_monitor(client, enabled=True)

    async def is_watched() -> bool:
        found = await monitors(client)
        return len(found) == len(node_names(cluster)) and all(map(is_ready, found)) and bool(instances(cluster))

    await eventually(is_watched, "the monitor does not start")
    return node_names(cluster)[0]


async def until_told(client: Client, namespace: str, wanted: dict[str, set[str]]) -> None:
    """Wait until events name these containers by pod, and no other; the pods have the label, and no report is left."""
    told: dict[str, set[str]] = {}

    async def are_told() -> bool:
        found = await notes(client, namespace, reason=REASON)
        told.clear()
        told.update({pod: {note.split()[1] for note in of_pod} for pod, of_pod in found.items()})
        return all(told.get(pod, set()) >= containers for pod, containers in wanted.items())

    await eventually(are_told, lambda: f"told {told}, expected {wanted}")
    assert told == wanted

    for name in wanted:
        labels = (await pod_of(client, namespace, name))["metadata"]["labels"]
        assert labels[names.EXEC_FORMAT_ERROR_LABEL] == "true"

    async def are_consumed() -> bool:
        return not (await client.list(ENOEXECEVENTS, namespace=DEFAULT_NAMESPACE, type=Unstructured)).items

    await eventually(are_consumed, "a report is left")


@pytest.mark.req("PL-604", "PL-610")
async def test_each_container_that_runs_a_foreign_program_is_named(
    cluster: Sandbox, client: Client, namespace: str, monitored: str
) -> None:
    """First programs of images kept from placement or with a wrong platform, restarts, and programs started later."""
    await each_failed_container_is_named(cluster, client, namespace, monitored)


@pytest.mark.req("PL-600", "PL-604")
async def test_with_cri_o_each_container_that_runs_a_foreign_program_is_named(
    peer: Callable[[str], str], tmp_path: Path
) -> None:
    """CRI-O gives containers other control groups than containerd, and a monitor of its own starts each of them."""
    crio, conmon = peer("crio"), peer("conmon")
    settings = Settings(
        name=f"tests-real-crio-{os.getpid()}", nodes={host_architecture(): 1}, real=True, polyarch=False
    )
    sandbox = await Sandbox.start(settings, owner=os.getpid())
    try:
        async with sandbox.client() as client:
            await use_crio(sandbox, client, node_names(sandbox)[0], crio=crio, conmon=conmon)
            await sandbox.install(SilentStepProgress())
            await create_namespace(client, "with-crio")
            node = await monitor(sandbox, client, tmp_path)
            await each_failed_container_is_named(sandbox, client, "with-crio", node)
    finally:
        await sandbox.delete()


async def each_failed_container_is_named(sandbox: Sandbox, client: Client, namespace: str, monitored: str) -> None:
    here: Document = {"nodeName": monitored}
    skipped = {"annotations": {names.SKIP_ANNOTATION: "true"}}
    good = {"name": "good", "image": HERE}
    foreign = {"name": "foreign", "image": FOREIGN_IMAGE}
    mislabelled = {"name": "mislabelled", "image": MISLABELLED_IMAGE}
    again = "mark = pathlib.Path('/kept/mark')\nif not mark.exists():\n    mark.touch()\n    raise SystemExit(3)\n"
    kept = {"volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}
    of_polyarch = own_image(sandbox)
    own = {"image": of_polyarch, **trying()}
    proper = {**good, "name": "proper", "restartPolicy": "Always"}
    pods = [
        pod_document("skipped", good, foreign, metadata=skipped, nodeSelector={"kubernetes.io/hostname": monitored}),
        pod_document("bound", foreign, good, {**foreign, "name": "second"}, **here),
        pod_document("mislabelled", good, mislabelled, nodeSelector={"kubernetes.io/hostname": monitored}),
        pod_document("once", mislabelled, restartPolicy="Never", **here),
        pod_document("init", good, initContainers=[proper, mislabelled], **here),
        pod_document("sidecar", good, initContainers=[{**mislabelled, "restartPolicy": "Always"}], **here),
        pod_document("later", good, {**own, "name": "script"}, **here),
        pod_document(
            "restarted",
            {"name": "second-try", "image": of_polyarch, **trying(first=again), **kept},
            volumes=[{"name": "kept", "emptyDir": {}}],
            securityContext={"fsGroup": 65532},
            **here,
        ),
        pod_document("fine", good, {"name": "other", "image": HERE}, **here),
    ]
    for each in pods:
        await client.create(PODS, each, namespace=namespace)
    wanted = {
        "skipped": {"foreign"},
        "bound": {"foreign", "second"},
        "mislabelled": {"mislabelled"},
        "once": {"mislabelled"},
        "init": {"mislabelled"},
        "sidecar": {"mislabelled"},
        "later": {"script"},
        "restarted": {"second-try"},
    }
    await until_told(client, namespace, wanted)
    fine = await pod_of(client, namespace, "fine")
    assert names.EXEC_FORMAT_ERROR_LABEL not in fine["metadata"].get("labels", {})
    assert statuses(await pod_of(client, namespace, "restarted"))["second-try"]["restartCount"] == 1


@pytest.mark.req("PL-601")
async def test_a_second_monitor_on_the_kernel_blinds_the_first_neither_while_it_runs_nor_when_it_ends(
    cluster: Sandbox, client: Client, namespace: str, monitored: str
) -> None:
    image = {"image": MISLABELLED_IMAGE}
    wanted: dict[str, set[str]] = {}

    async def is_seen(name: str) -> None:
        await client.create(PODS, pod_document(name, {"name": name, **image}, nodeName=monitored), namespace=namespace)
        wanted[name] = {name}
        await until_told(client, namespace, wanted)

    first = {each for each in instances(cluster) if is_alive(each)}
    assert first
    for name, ending in (("asked", signal.SIGTERM), ("killed", signal.SIGKILL)):
        second = await second_monitor(cluster, monitored)
        assert first < instances(cluster)
        await is_seen(f"beside-{name}")
        second.send_signal(ending)
        second.wait(30)
        await is_seen(f"after-{name}")
    # Its successor takes away what the killed one has left.
    (pod,) = [each for each in await monitors(client) if each["spec"]["nodeName"] == monitored]
    second = await second_monitor(cluster, monitored)
    await client.delete(PODS, pod["metadata"]["name"], namespace=DEFAULT_NAMESPACE)

    async def is_replaced() -> bool:
        found = [each for each in await monitors(client) if each["spec"]["nodeName"] == monitored]
        return [is_ready(each) and each["metadata"]["uid"] != pod["metadata"]["uid"] for each in found] == [True]

    await eventually(is_replaced, "the monitor's pod is not replaced")
    assert all(map(is_alive, instances(cluster)))
    await is_seen("successor")
    second.kill()
    second.wait(30)
    await set_monitor(client, enabled=False)

    async def is_gone() -> bool:
        return not await monitors(client)

    await eventually(is_gone, "the monitor does not go")
    assert not any(map(is_alive, instances(cluster)))


async def second_monitor(cluster: Sandbox, node: str) -> subprocess.Popen[bytes]:
    """An exec monitor of another installation: it reads the trace and reports nothing to this cluster."""
    before = instances(cluster)
    code = """\
import signal, sys
from polyarch.placement.exec_monitor_node import TraceReader, open_node_trace
signal.signal(signal.SIGTERM, lambda *_: sys.exit())
with open_node_trace() as instance:
    reader = TraceReader(instance.pipe, take=print, unreadable=print, tick=lambda: None, ended=print)
    reader.start()
    try:
        signal.pause()
    finally:
        reader.stop()
"""
    arguments = entering(keeper(cluster, node), (sys.executable, "-c", code))
    started = subprocess.Popen(arguments, stdout=subprocess.DEVNULL)

    async def reads() -> bool:
        assert started.poll() is None, f"the second monitor ended with {started.returncode}"
        return bool(instances(cluster) - before)

    await eventually(reads, "the second monitor does not start")
    return started


@pytest.mark.req("PL-604")
@pytest.mark.timeout(1500)
async def test_images_that_the_kubelet_has_removed_are_pulled_again_and_told_of_as_before(
    cluster: Sandbox, client: Client, namespace: str, monitored: str
) -> None:
    """Its disk is fuller than it may be, so it removes every image that no container has, but none of polyarch's. That
    of sandboxes goes as well, unless containerd pins it, as from version 1.7 on."""

    async def images() -> set[str]:
        listed = (await client.get(NODES, monitored, type=Unstructured)).status["images"]
        return {name for image in listed for name in image["names"] or ()}  # null for one that is being removed

    async def come_and_go(good: str, bad: str) -> None:
        for name, image in ((good, HERE), (bad, MISLABELLED_IMAGE)):
            container = {"name": "app", "image": image, "imagePullPolicy": "IfNotPresent"}
            selector = {"kubernetes.io/hostname": monitored}
            await client.create(PODS, pod_document(name, container, nodeSelector=selector), namespace=namespace)

        async def is_there() -> bool:
            return is_ready(await pod_of(client, namespace, good)) and {HERE, MISLABELLED_IMAGE} <= await images()

        await eventually(is_there, f"{good} does not run")
        await until_told(client, namespace, {bad: {"app"}})
        assert (await pod_of(client, namespace, good))["metadata"]["labels"][
            names.SCHEDULING_GATE_LABEL
        ] == names.REMOVED
        for name in (good, bad):
            await client.delete(PODS, name, namespace=namespace)

        async def are_gone() -> bool:
            return not await pods_of(client, namespace)

        await eventually(are_gone, "the pods do not end")
        for event in (await client.list(EVENTS, namespace=namespace)).items:
            await client.delete(EVENTS, event["metadata"]["name"], namespace=namespace)

    before = await own_statuses(client, monitored)
    await come_and_go("good", "bad")
    with little_room(cluster, monitored):
        await Sandbox.start(cluster.state.settings)

        async def are_removed() -> bool:
            return not {HERE, MISLABELLED_IMAGE} & await images()

        await eventually(are_removed, "the kubelet removes no image", GC_SECONDS)
        used = {each["imageID"] for of in before.values() for each in of.values()}
        stored = subprocess.run(
            entering(keeper(cluster, monitored), ("ctr", "--namespace=k8s.io", "images", "list", "--quiet")),
            capture_output=True,
            text=True,
            check=True,
        )
        assert used <= set(stored.stdout.split())
        await come_and_go("good-again", "bad-again")
    await Sandbox.start(cluster.state.settings)
    after = await own_statuses(client, monitored)
    containers = [
        {name: each["containerID"] for of in found.values() for name, each in of.items()} for found in (before, after)
    ]
    assert containers[0] == containers[1], "polyarch's containers are the same"


async def own_statuses(client: Client, node: str) -> dict[str, dict[str, Document]]:
    """Those of polyarch's pods on the node."""
    pods = [each for each in await pods_of(client) if each["spec"].get("nodeName") == node]
    return {each["metadata"]["name"]: statuses(each) for each in pods}


@contextlib.contextmanager
def little_room(cluster: Sandbox, node: str) -> Iterator[None]:
    """The kubelet's threshold for removing images is below what its disk has in use."""
    folder = cluster.folder.root / "nodes" / node / "lib"
    disk = os.statvfs(folder / "containerd")
    high = max(99 - 100 * disk.f_bavail // disk.f_blocks, 1)
    settings = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "imageGCHighThresholdPercent": high,
        "imageGCLowThresholdPercent": high - 1,
        "imageMinimumGCAge": "1s",
    }
    file = folder / "kubelet/config.d/50-images.conf"
    file.write_text(json.dumps(settings))
    try:
        yield
    finally:
        file.unlink()
