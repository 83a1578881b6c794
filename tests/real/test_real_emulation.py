"""A node of another architecture: its programs run there and the machine's do not, and polyarch keeps them apart."""

import asyncio
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from namespaces import create_namespace
from placement_cluster import architectures
from real_kubelets import (
    Document,
    cgroup_of,
    eventually,
    is_ready,
    keeper,
    node_names,
    notes,
    pod_document,
    pod_of,
    pods_of,
    processes_of,
    statuses,
)

from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import DEPLOYMENTS, NODES, PODS
from polyarch.objects import Unstructured
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.errors import SandboxError, SilentStepProgress
from polyarch.sandbox.namespaces import entering, run
from polyarch.sandbox.real import machine
from polyarch.sandbox.real.emulation import BINFMT, EMULATOR
from polyarch.sandbox.state import Settings
from polyarch.sandbox.versions import host_architecture

pytestmark = [pytest.mark.req("SB-021"), pytest.mark.timeout(900)]

HERE = host_architecture()
THERE = "arm64" if HERE == "amd64" else "amd64"
PAIR = {HERE: 1, THERE: 1}
BOTH = "ghcr.io/acme/both:1"
ONLY = {each: f"quay.io/acme/{each}-only:1" for each in PAIR}
"""Images, not indexes: a runtime pulls them without looking at their platform."""
LISTED = f"quay.io/acme/{HERE}-listed:1"
NO_EXEC = "exec format error"


@pytest.fixture(scope="module")
def pair() -> Iterator[Sandbox]:
    """A node of each architecture, at first without polyarch."""
    wanted = Settings(name=f"tests-real-pair-{os.getpid()}", nodes=PAIR, real=True, polyarch=False)
    try:
        machine.check(wanted)
    except SandboxError as error:
        pytest.skip(str(error))
    sandbox = asyncio.run(Sandbox.start(wanted, owner=os.getpid()))
    images: dict[str, Any] = {BOTH: [f"linux/{each}" for each in PAIR], LISTED: [f"linux/{HERE}"]}
    images |= {image: {"platforms": [f"linux/{each}"], "kind": "image"} for each, image in ONLY.items()}
    asyncio.run(sandbox.registry.seed(images))
    yield sandbox
    asyncio.run(sandbox.delete())


def node_of(architecture: str) -> str:
    return f"{architecture}-1"


def said(sandbox: Sandbox, uid: str) -> str:
    """What the containers of a pod have written, and runtimes for them."""
    logs = sandbox.folder.root.glob(f"nodes/*/log/pods/*{uid}/*/*.log")
    return "".join(each.read_text() for each in logs)


def outcome(sandbox: Sandbox, pod: Document) -> str:
    reasons = {each.get("state", {}).get("waiting", {}).get("reason", "") for each in statuses(pod).values()}
    if reasons & {"ErrImagePull", "ImagePullBackOff"}:
        return "not pulled"
    if NO_EXEC in said(sandbox, pod["metadata"]["uid"]):
        return NO_EXEC
    return str(pod.get("status", {}).get("phase", "")).lower()


async def until_outcomes(sandbox: Sandbox, client: Client, namespace: str, expected: Mapping[str, str]) -> None:
    seen: dict[str, str] = {}

    async def are_settled() -> bool:
        seen.clear()
        seen.update({each["metadata"]["name"]: outcome(sandbox, each) for each in await pods_of(client, namespace)})
        return seen == expected

    await eventually(are_settled, lambda: f"{seen}, not {expected}")


async def test_each_node_runs_programs_of_its_architecture_and_refuses_the_other_ones(pair: Sandbox) -> None:
    before = set(Path("/proc/sys/fs/binfmt_misc").glob("*"))
    expected: dict[str, str] = {}
    async with pair.client() as client:
        await create_namespace(client, "apart")
        for node in PAIR:
            found = await client.get(NODES, node_of(node), type=Unstructured)
            assert found.document["status"]["nodeInfo"]["architecture"] == node
            assert (found.metadata.labels or {})["kubernetes.io/arch"] == node
            for kind, image, outcome_here in (
                ("both", BOTH, "running"),
                ("host", BOTH, "running"),
                *((f"only-{each}", image, "running" if each == node else NO_EXEC) for each, image in ONLY.items()),
                ("listed", LISTED, "running" if node == HERE else "not pulled"),
            ):
                name = f"{kind}-on-{node}"
                expected[name] = outcome_here
                more = {"hostNetwork": True} if kind == "host" else {}
                pod = pod_document(name, {"name": "app", "image": image}, nodeName=node_of(node), **more)
                await client.create(PODS, pod, namespace="apart")
        await until_outcomes(pair, client, "apart", expected)
        both = await pod_of(client, "apart", f"both-on-{THERE}")
    group = cgroup_of(pair, both["metadata"]["uid"], "pids")
    assert group is not None
    assert {Path(f"/proc/{pid}/exe").readlink().name for _, pid in processes_of(group)} == {EMULATOR}
    assert set(Path("/proc/sys/fs/binfmt_misc").glob("*")) == before, "the machine runs what it ran before"


async def test_a_program_that_a_container_starts_later_is_refused_as_its_first_one(pair: Sandbox) -> None:
    """The rule is the kernel's, not the runtime's: it holds for every program in containers of the node."""
    check = f"{BINFMT}/status"
    seen_there = await run(entering(keeper(pair, node_of(THERE)), ("cat", check)))
    assert seen_there.strip() == "enabled"
    programs = Path(pair.folder.root, "nodes", node_of(THERE), "lib/containerd/programs")
    there = entering(keeper(pair, node_of(THERE)), ("/var/lib/containerd/programs/runc", "--version"), user=True)
    assert "runc version" in await run(there)
    assert (programs / "runc").read_bytes()[10:] == Path(machine.program("runc")).read_bytes()[10:]
    for refused in ("/bin/true", "/bin/sh"):
        with pytest.raises(SandboxError, match=r"(?i)exec format error"):
            await run(entering(keeper(pair, node_of(THERE)), (refused,), user=True))
        await run(entering(keeper(pair, node_of(THERE)), (refused, "-c", "true")))


def deployment(architecture: str, *, spread: bool) -> Document:
    """One pod on each node if ``spread``, else where the scheduler likes; its image is for this architecture alone."""
    name = f"{architecture}-{'spread' if spread else 'free'}"
    labels = {"app": name}
    spec: Document = {"terminationGracePeriodSeconds": 1, "containers": [{"name": "app", "image": ONLY[architecture]}]}
    if spread:
        constraint = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
        spec["topologySpreadConstraints"] = [{**constraint, "labelSelector": {"matchLabels": labels}}]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


async def test_pods_fail_on_the_other_node_without_polyarch_and_run_on_theirs_with_it(pair: Sandbox) -> None:
    async with pair.client() as client:
        await create_namespace(client, "without")
        for each in PAIR:
            await client.create(DEPLOYMENTS, deployment(each, spread=True), namespace="without")

        async def outcomes(namespace: str) -> dict[tuple[str, str], list[str]]:
            found: dict[tuple[str, str], list[str]] = {}
            for each in await pods_of(client, namespace):
                key = (each["metadata"]["labels"]["app"], each["spec"].get("nodeName", ""))
                found.setdefault(key, []).append(outcome(pair, each))
            return found

        expected = {
            (f"{each}-spread", node_of(node)): ["running" if each == node else NO_EXEC]
            for each in PAIR
            for node in PAIR
        }
        seen: dict[tuple[str, str], list[str]] = {}

        async def fail_half() -> bool:
            seen.clear()
            seen.update(await outcomes("without"))
            return seen == expected

        await eventually(fail_half, lambda: f"{seen}, not {expected}")
        await pair.install(SilentStepProgress())
        await create_namespace(client, "with")
        for each in PAIR:
            await client.create(DEPLOYMENTS, deployment(each, spread=False), namespace="with")
        placed = {(f"{each}-free", node_of(each)): ["running"] * 2 for each in PAIR}

        async def all_run() -> bool:
            seen.clear()
            seen.update(await outcomes("with"))
            return seen == placed

        await eventually(all_run, lambda: f"{seen}, not {placed}")
        for pod in await pods_of(client, "with"):
            assert architectures(pod) == [pod["metadata"]["labels"]["app"].removesuffix("-free")]


async def test_polyarch_names_a_pod_whose_program_is_for_the_other_node(pair: Sandbox) -> None:
    await pair.install(SilentStepProgress())
    async with pair.client() as client:
        plugins = {"execFormatErrorMonitor": {"enabled": True}}
        await client.patch(CPPCS, names.SINGLETON, MergePatch({"spec": {"plugins": plugins}}))
        traced = next(each for each in node_names(pair) if each == node_of(HERE))

        async def is_watched() -> bool:
            selector = f"controller={names.ENOEXEC_DAEMON}"
            found = await pods_of(client, selector=selector)
            return [each["spec"]["nodeName"] for each in found if is_ready(each)] == [traced]

        await eventually(is_watched, "the monitor does not start")
        await create_namespace(client, "named")
        skipped = {"annotations": {names.SKIP_ANNOTATION: "true"}}
        wrong = {"name": "wrong", "image": ONLY[THERE]}
        pod = pod_document("skipped", {"name": "good", "image": BOTH}, wrong, metadata=skipped, nodeName=traced)
        await client.create(PODS, pod, namespace="named")

        async def is_told() -> bool:
            found = await notes(client, "named", reason="ExecFormatError")
            return {name: {note.split()[1] for note in said} for name, said in found.items()} == {"skipped": {"wrong"}}

        await eventually(is_told, "the failed program is not told")
