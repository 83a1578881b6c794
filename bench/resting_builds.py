"""BD-346, BD-348: a thousand builds that have what they want, or wait for their Jobs, and a role that has to notice.

``polyarch run builder`` runs as a process of its own against an API server that only holds objects. All of them are as
the builder leaves them: they come from the tests' simulation, which carries out the planner's own plans. Then somebody
annotates every ImageBuild, so that each is looked at again: nothing may be asked or written.
"""

import asyncio
import gc
import itertools
import json
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from bench.measure import Figure, cpu_seconds, resident_mib
from bench.nodes import a_node
from bench.runtime import Say, microseconds, served_apart
from bench.stored_cluster import StoredCluster
from polyarch.builds.plan.planner import plan_build
from polyarch.platforms import ASSUMED_ARCHITECTURES
from polyarch.sandbox.pods.programs import PROGRAM

sys.path.insert(0, str(Path(__file__).parent.parent / "tests/support"))
from builds_world import TOOLS, BuildPlanWorld, node

NODES: Final = 5000
NAMESPACES: Final = 25
BUILDS: Final = 40
"""In each namespace."""
BUSY: Final = 2
"""Builds of a namespace that have a Job for each architecture under way."""
RUNS: Final = 3
"""Finished Runs that each build keeps: as many as the history keeps by default."""
KEPT: Final = 50
START_SECONDS: Final = 600.0
CONTROLLER: Final = "imagebuilds"
Document = dict[str, Any]


def resting(say: Say) -> list[Figure]:
    """BD-346, BD-348: first sync, resync, memory, and one plan."""
    return [*_one_plan(), *asyncio.run(_resting(say))]


def _one_plan() -> Iterator[Figure]:
    """The planner alone, on a build that is up to date."""
    world = BuildPlanWorld(architectures=ASSUMED_ARCHITECTURES)
    for number in range(KEPT):
        world.set("source.buildArgs", {"NUMBER": str(number)})
        world.build_all()
    facts = world.facts()
    assert plan_build(facts).decision == "UpToDate"
    value = microseconds(lambda: plan_build(facts), times=50, rounds=11) / 1000
    yield Figure(f"a plan, 4 architectures, {KEPT} Runs", value, "ms CPU", "BD-348", 2, compared=True)


async def _resting(say: Say) -> list[Figure]:
    cluster = StoredCluster()
    populate(cluster)
    count = cluster.count("imagebuilds")
    jobs = cluster.count("jobs")
    say(f"{count} ImageBuilds, {cluster.count('imagebuildruns')} Runs, {jobs} Jobs, {cluster.count('nodes')} nodes")
    with served_apart(cluster.application()) as (port, loop), tempfile.TemporaryDirectory() as folder:
        async with _builder(Path(folder), port) as (pid, metrics):
            await _passes(metrics, at_least=count)
            first, memory = cpu_seconds(pid), resident_mib(pid)
            say(f"all looked at once: {first:.1f} s of CPU, {memory:.0f} MiB")
            cluster.requests.clear()
            known = await _passes(metrics, at_least=count)
            before = cpu_seconds(pid)
            loop.call_soon_threadsafe(cluster.touch, "imagebuilds", "bench.example/touched")
            await _passes(metrics, at_least=known + count)
            resynced = cpu_seconds(pid) - before
            grown = resident_mib(pid)
            asked = cluster.requests.total()
            say(f"all looked at again: {resynced:.1f} s of CPU, {grown:.0f} MiB, requests {dict(cluster.requests)}")
    return [
        Figure("1 000 ImageBuilds, from start to rest", first, "s CPU", compared=True, note=f"{jobs} Jobs under way"),
        Figure("1 000 ImageBuilds resynced", resynced, "s CPU", "BD-348", 3, compared=True),
        Figure("1 000 ImageBuilds resynced, requests", asked, "requests", "BD-346", 0, compared=True),
        Figure("1 000 ImageBuilds, 5 000 nodes, 200 Jobs", max(memory, grown), "MiB", "BD-348", 150, compared=True),
    ]


# -- the process -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def _builder(folder: Path, port: int) -> AsyncIterator[tuple[int, str]]:
    """Pid, and where its metrics are."""
    kubeconfig = folder / "kubeconfig"
    cluster = {"name": "bench", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "bench", "context": {"cluster": "bench", "user": "bench"}}
    user = {"name": "bench", "user": {}}
    kubeconfig.write_text(
        json.dumps({"clusters": [cluster], "contexts": [context], "users": [user], "current-context": "bench"})
    )
    flags = [
        *(
            "run",
            "builder",
            f"--kubeconfig={kubeconfig}",
            "--namespace=polyarch-system",
            "--machine-os=off",
            "--max-active-jobs=300",
        ),
        *("--port=0", "--metrics-port=0", "--health-port=0"),
        *(f"--builder-image={TOOLS[0]}", f"--push-image={TOOLS[1]}"),
    ]
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", PROGRAM, *flags, stdout=asyncio.subprocess.PIPE, stderr=log
        )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_SECONDS):
            line = await process.stdout.readline()
        assert line, (folder / "log").read_text()
        yield process.pid, json.loads(line)["metrics"]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _passes(metrics: str, *, at_least: int) -> int:
    """Passes over builds so far, once there are so many and no more come."""
    known, since = -1, time.monotonic()
    async with aiohttp.ClientSession() as session, asyncio.timeout(START_SECONDS):
        while known < at_least or time.monotonic() - since < 3:
            await asyncio.sleep(0.5)
            async with session.get(f"{metrics}/metrics") as answer:
                text = await answer.text()
            count = sum(
                int(float(line.rpartition(" ")[2]))
                for line in text.splitlines()
                if line.startswith(f'polyarch_reconciles_total{{controller="{CONTROLLER}"')
            )
            if count != known:
                known, since = count, time.monotonic()
    return known


# -- the objects -------------------------------------------------------------------------------------------------------


def populate(cluster: StoredCluster) -> None:
    """Nodes of four architectures, and in every namespace the same builds with UIDs of their own."""
    cluster.put("nodes", map(_node, range(NODES)))
    builds = [_objects(_world(number)) for number in range(BUILDS)]
    for number in range(NAMESPACES):
        namespace = f"team-{number:02}"
        cluster.put("namespaces", [{"metadata": {"name": namespace, "uid": f"namespace-{number}"}}])
        for at, objects in enumerate(builds):
            for plural, documents in objects.items():
                cluster.put(plural, (_moved(each, namespace, f"uid-{number}-{at}") for each in documents))
    gc.collect()


def _node(number: int) -> Document:
    document = a_node(number)
    architecture = ASSUMED_ARCHITECTURES[number % len(ASSUMED_ARCHITECTURES)]
    document["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    document["metadata"]["labels"] |= {"kubernetes.io/arch": architecture, "beta.kubernetes.io/arch": architecture}
    document["spec"].pop("taints", None)
    status = document["status"]
    status["nodeInfo"]["architecture"] = architecture
    status["conditions"] = [
        each | {"status": "True" if each["type"] == "Ready" else "False"} for each in status["conditions"]
    ]
    return document


def _world(number: int) -> BuildPlanWorld:
    """A build with all Runs that are kept; the first ones of a namespace have another one under way."""
    world = BuildPlanWorld(architectures=ASSUMED_ARCHITECTURES)
    name = f"shop-{number:02}"
    world.now = float(int(time.time()) - 60)
    world.nodes = [node(each, created=world.now - 86_400) for each in ASSUMED_ARCHITECTURES]
    text = f"FROM busybox:1.36\nCOPY . /srv\nRUN make -j2 shop-{number}\n"
    spec = {"source": {"containerfile": text}, "output": {"repository": f"registry.example.com/team/{name}"}}
    world.builds.clear()
    world.add(name, spec)
    for run in range(RUNS):
        world.set("source.buildArgs", {"VERSION": f"1.{run}"}, name)
        world.build_all(name)
    if number < BUSY:
        world.set("source.buildArgs", {"VERSION": "2.0"}, name)
        world.reconcile(name)
        for each in ASSUMED_ARCHITECTURES:
            world.schedule(each)
        world.settle(name)
    return world


def _objects(world: BuildPlanWorld) -> Mapping[str, list[Document]]:
    """What the builder watches of it. The record of architectures outlives the Jobs, and so their inputs."""
    records = [each for name, each in world.config_maps.items() if name.endswith("-arch")]
    found = {
        "imagebuilds": list(world.builds.values()),
        "imagebuildruns": list(world.runs.values()),
        "jobs": list(world.jobs.values()),
        "pods": [_labelled(each, world.jobs[name]) for name, each in world.pods.items() if name in world.jobs],
        "configmaps": records,
    }
    for number, each in enumerate(itertools.chain.from_iterable(found.values())):
        each["metadata"].setdefault("uid", f"uid-more-{number}")
    return found


def _labelled(pod: Document, job: Document) -> Document:
    return {**pod, "metadata": {**pod["metadata"], "labels": job["spec"]["template"]["metadata"]["labels"]}}


def _moved(document: Document, namespace: str, uid: str) -> Document:
    """The same object in another namespace, with UIDs of its own."""
    moved: Document = msgspec.json.decode(msgspec.json.encode(document).replace(b'"uid-', f'"{uid}-'.encode()))
    moved["metadata"]["namespace"] = namespace
    return moved


SCENARIOS: Final = {"resting-builds": resting}
