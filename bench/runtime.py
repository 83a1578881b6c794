"""CPU time of the libraries in this process: placement rules, Kubernetes runtime, registry client.

Each figure is the least of several rounds: interruptions only add to it.
"""

import asyncio
import gc
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
from aiohttp import web

from bench import load
from bench.measure import Figure, resident_mib
from polyarch.kube.client import Client
from polyarch.kube.informer import Informer
from polyarch.kube.patches import JsonPatch, add
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import PODS
from polyarch.kube.settings import Configuration
from polyarch.kube.store import ObjectChange
from polyarch.objects import Pod
from polyarch.oci.inspection import Entry, Inspection, Status
from polyarch.oci.reference import parse
from polyarch.placement.admission import admit
from polyarch.placement.patch import controller_patch
from polyarch.placement.rules import PodFacts, decide, examine
from polyarch.placement.settings import ScoringSource, Settings
from polyarch.platforms import Platform
from polyarch.taints import patch as pod_patch
from polyarch.taints import pod_rules as tolerations
from polyarch.taints.settings import TaintSettings

sys.path.insert(0, str(Path(__file__).parent.parent / "tests/support"))

Say = Callable[[str], None]
PLATFORMS = ("linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x")
PODS_LISTED = 20_000
EVENTS = 25_000
TURNS = 5


def microseconds(work: Callable[[], object], *, times: int = 2000, rounds: int = 7) -> float:
    """CPU time of one call, the least of several rounds."""
    least = float("inf")
    for _ in range(rounds):
        begin = time.process_time()
        for _ in range(times):
            work()
        least = min(least, (time.process_time() - begin) / times * 1e6)
    return least


def _answer(reference: str) -> Inspection:
    entries = tuple(Entry(Platform.parse(text), f"sha256:{number:064x}") for number, text in enumerate(PLATFORMS))
    return Inspection(parse(reference), Status.RESOLVED, kind="index", digest="sha256:" + "a" * 64, entries=entries)


def _busy_pod() -> dict[str, Any]:
    labels = {f"key-{number}": "value" for number in range(12)}
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]} for zone in "ab"]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {
        "metadata": {
            "name": "busy",
            "labels": labels,
            "annotations": labels,
            "ownerReferences": [{"kind": "ReplicaSet", "controller": True}],
        },
        "spec": {
            "containers": [{"name": f"c{number}", "image": f"quay.io/team/app{number}:1"} for number in range(4)],
            "initContainers": [{"name": "i", "image": "quay.io/team/init:1"}],
            "affinity": {"nodeAffinity": required},
        },
    }


def _small_pod() -> dict[str, Any]:
    return {
        "metadata": {"name": "x", "labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "nginx:1"}]},
    }


def _answers(pod: Pod) -> dict[str, Inspection]:
    containers = [*(pod.spec.containers or ()), *(pod.spec.init_containers or ())]
    return {container.image: _answer(container.image) for container in containers}


def rules(_: Say) -> list[Figure]:
    """PL-801, TN-040: decision and patch of one admission, by placement and by taints."""
    return [*_placement_rules(), *_toleration_rules()]


def _toleration_rules() -> Iterator[Figure]:
    using = TaintSettings(mode="tolerations")
    for name, document in (("small", _small_pod()), ("busy", _busy_pod())):
        pod = msgspec.convert(document, Pod)
        known = _answers(pod)
        facts = tolerations.PodFacts(pod=pod, namespace="d", settings=using)

        def admission(facts: tolerations.PodFacts = facts, known: dict[str, Inspection] = known) -> object:
            case = tolerations.examine(facts)
            return pod_patch.admission_patch(case, tolerations.decide(case, known))

        value = microseconds(admission)
        yield Figure(f"tolerations and patch, {name} pod", value, "µs", "TN-040", 150, compared=True)


def _placement_rules() -> list[Figure]:
    figures = []
    scoring = (
        ScoringSource("PodPlacementConfig-a", (("arm64", 50), ("amd64", 10))),
        ScoringSource("ClusterPodPlacementConfig", (("amd64", 50), ("s390x", 10))),
    )
    for name, document, sources in (("small", _small_pod(), ()), ("busy", _busy_pod(), scoring)):
        pod = msgspec.convert(document, Pod)
        answers = _answers(pod)
        facts = PodFacts(pod=pod, namespace="d", settings=Settings(), sources=sources)
        stored = PodFacts(pod=pod, namespace="d", settings=Settings(), sources=sources, stored=True)

        def inline(facts: PodFacts = facts, answers: dict[str, Inspection] = answers) -> object:
            case = examine(facts)
            return admit(case, decide(case, answers), controller_available=True)

        def controller(facts: PodFacts = stored, answers: dict[str, Inspection] = answers) -> object:
            case = examine(facts)
            return controller_patch(case, decide(case, answers))

        for kind, work in (("admission", inline), ("controller", controller)):
            value = microseconds(work)
            figures.append(Figure(f"rules and patch, {name} pod, {kind}", value, "µs", "PL-801", 100, compared=True))
    return figures


def kube(_: Say) -> list[Figure]:
    """KR-042: list, decode and index 20 000 pods; watch events; a PATCH; all against a server in this process."""
    return asyncio.run(_kube())


def _stored_pod(number: int, *, version: int = 0) -> dict[str, Any]:
    document = load.pod("nginx:1", name=f"pod-{number}")
    revision = str(version + number + 1)
    document["metadata"] |= {"namespace": "bench", "uid": f"{number:032x}", "resourceVersion": revision}
    document["spec"]["nodeName"] = f"node-{number % 100}"
    return document


@contextmanager
def served_apart(application: web.Application) -> Iterator[tuple[int, asyncio.AbstractEventLoop]]:
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(application, shutdown_timeout=0.1)

    async def start() -> int:
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        return int(runner.addresses[0][1])

    async def stop() -> None:
        await runner.cleanup()
        handlers = asyncio.all_tasks() - {asyncio.current_task()}  # a watch that nobody reads sleeps on
        for task in handlers:
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    thread = Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield asyncio.run_coroutine_threadsafe(start(), loop).result(10), loop
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


async def _kube() -> list[Figure]:
    items = [msgspec.json.encode(_stored_pod(number)) for number in range(PODS_LISTED)]
    changes = [
        msgspec.json.encode(_stored_pod(number % PODS_LISTED, version=100_000 + PODS_LISTED * (number // PODS_LISTED)))
        for number in range(EVENTS)
    ]
    pages = [items[start : start + 500] for start in range(0, PODS_LISTED, 500)]
    released = asyncio.Event()

    async def pods(request: web.Request) -> web.StreamResponse:
        if "watch" in request.query:
            if request.query.get("sendInitialEvents"):
                return web.json_response(
                    {"kind": "Status", "code": 422, "reason": "Invalid", "message": "no streaming list here"},
                    status=422,
                )
            response = web.StreamResponse()
            await response.prepare(request)
            await released.wait()
            for start in range(0, EVENTS, 100):
                lines = b"".join(
                    b'{"type":"MODIFIED","object":' + changes[number] + b"}\n" for number in range(start, start + 100)
                )
                await response.write(lines)
            await asyncio.sleep(3600)
            return response
        page = int(request.query.get("continue") or 0)
        token = str(page + 1) if page + 1 < len(pages) else ""
        head = msgspec.json.encode({"resourceVersion": "100000", "continue": token})
        body = (
            b'{"kind":"PodList","apiVersion":"v1","metadata":' + head + b',"items":[' + b",".join(pages[page]) + b"]}"
        )
        return web.Response(body=body, content_type="application/json")

    async def patched(request: web.Request) -> web.Response:
        await request.read()
        return web.json_response({"metadata": {"name": "pod-1"}})

    application = web.Application(client_max_size=64 << 20)
    application.router.add_get("/api/v1/pods", pods)
    application.router.add_patch("/api/v1/namespaces/bench/pods/pod-1", patched)
    # The server runs in a thread of its own; only this thread is measured.
    with served_apart(application) as (port, loop):
        gc.collect()
        memory = resident_mib(os.getpid())
        seen = {"events": 0}
        finished = asyncio.Event()

        def changed(change: ObjectChange[Pod]) -> None:
            if not change.initial:
                seen["events"] += 1
                if seen["events"] >= EVENTS:
                    finished.set()

        async with Client(Configuration(server=f"http://127.0.0.1:{port}"), role="bench") as client:
            begin = time.thread_time()
            informer: Informer[Pod] = Informer(
                client, PODS, Pod, selection=ListOptions(), indexes={"node": lambda pod: (pod.spec.node_name,)}
            )
            informer.add_handler(changed)
            task = asyncio.create_task(informer.run())
            await informer.synced()
            listed = time.thread_time() - begin
            grown = resident_mib(os.getpid()) - memory
            begin = time.thread_time()
            loop.call_soon_threadsafe(released.set)
            await asyncio.wait_for(finished.wait(), 120)
            watched = time.thread_time() - begin
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            patch = JsonPatch((add("/metadata/labels/x", "y"),))
            least = float("inf")
            for _ in range(5):
                begin = time.thread_time()
                for _ in range(300):
                    await client.patch(PODS, "pod-1", patch, namespace="bench")
                least = min(least, (time.thread_time() - begin) / 300)
    return [
        Figure("20 000 pods listed, decoded, indexed", listed, "s CPU", "KR-042", 2.0, compared=True),
        Figure("20 000 pods in the store", grown, "MiB", "KR-042", 150, compared=True),
        Figure("5 000 watch events a second", watched / EVENTS * 5000, "of a core", "KR-042", 0.3, compared=True),
        Figure("a PATCH, client side", least * 1e6, "µs", "KR-042", 400, compared=True),
    ]


def registry(say: Say) -> list[Figure]:
    """RG-162 and RG-161: lookups in memory; 100 images of a registry that delays each answer by 50 ms."""
    return asyncio.run(_registry(say))


async def _registry(say: Say) -> list[Figure]:
    from scripted_registry import ScriptedRegistry  # type: ignore[import-not-found]

    from polyarch.oci.inspector import InspectorOptions, open_inspector
    from polyarch.oci.transport.tls import TrustSettings

    figures = []
    async with ScriptedRegistry() as served:
        references = []
        for number in range(200):
            served.push_index(f"team/app{number}", "1", *PLATFORMS)
            references.append(parse(f"{served.host}/team/app{number}:1"))
        async with open_inspector(InspectorOptions(trust=TrustSettings(system=False))) as inspector:
            await inspector.inspect(references[0])
            begin = time.process_time()
            for reference in references[1:]:
                await inspector.inspect(reference)
            cold = (time.process_time() - begin) / (len(references) - 1)
            warm = microseconds(lambda: inspector.peek(references[7]), times=5000)
            many = len(served.seen)
            served.push_index("team/one", "1", *PLATFORMS)
            one = parse(f"{served.host}/team/one:1")
            await asyncio.gather(*(inspector.inspect(one) for _ in range(500)))
            asked = len(served.seen) - many
        figures += [
            Figure("a cold index, the test's registry included", cold * 1000, "ms CPU", "RG-162", 2.0, compared=True),
            Figure("a warm look-up", warm, "µs", "RG-115", 40, compared=True),
            Figure("500 look-ups of one image at once", asked, "requests", "RG-162", 1, compared=True),
        ]
    return figures + await _hundred_images(say)


async def _hundred_images(say: Say) -> list[Figure]:
    """The comparison of RG-161: both run in turn, to see the same machine; the median of the ratios counts."""
    from scripted_registry import ScriptedRegistry

    async with ScriptedRegistry() as served:
        images = []
        for number in range(50):
            children = [served.push_image(f"team/index{number}", text[6:], text) for text in PLATFORMS[:3]]
            described = zip(PLATFORMS, children, strict=False)
            entries = [served.entry(text, digest=digest) for text, digest in described]
            served.push_index(f"team/index{number}", "1", entries=entries)
            served.push_image(f"team/single{number}", "1", "linux/amd64")
            images += [f"{served.host}/team/index{number}:1", f"{served.host}/team/single{number}:1"]
        command = [sys.executable, "-m", "polyarch", "inspect", "--concurrency", "8"]
        listing = "\n".join(f"docker://{image}" for image in images)
        skopeo = "xargs -P 8 -n 1 skopeo inspect --no-tags --tls-verify=false"
        ours, theirs = [], []
        with tempfile.TemporaryDirectory() as folder:
            # With bytecode, as an installation has it; a development environment may disable writing it.
            environ = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
            environ["PYTHONPYCACHEPREFIX"] = f"{folder}/bytecode"
            await _timed(*command, images[0], "--no-cache", environ=environ)
            served.delay = 0.05
            for turn in range(TURNS):
                begun = len(served.seen)
                inspect = (*command, "--cache-dir", f"{folder}/{turn}", *images)
                ours.append(await _timed(*inspect, environ=environ))
                asked = len(served.seen) - begun
                if shutil.which("skopeo") is not None:
                    theirs.append(await _timed("sh", "-c", f"printf '%s' \"$0\" | {skopeo}", listing))
            begun = len(served.seen)
            await _timed(*inspect, environ=environ)
            again = len(served.seen) - begun
    figures = [
        Figure("100 images inspected, requests", asked, "requests", "RG-161", 155, compared=True),
        Figure("100 images inspected again", again, "requests", "RG-161", 0, compared=True),
        Figure("100 images inspected, CPU", min(cpu for _, cpu in ours), "s", "RG-161", compared=True),
        Figure("100 images inspected, wall", min(wall for wall, _ in ours), "s", note="answers are delayed by 50 ms"),
    ]
    if not theirs:
        say("skopeo is not installed (Debian: apt install skopeo): its column is left out")
        return figures
    for position, (what, limit) in enumerate((("wall", 50), ("CPU", 25))):
        ratio = statistics.median(
            100 * our[position] / their[position] for our, their in zip(ours, theirs, strict=True)
        )
        note = f"skopeo {min(their[position] for their in theirs):.1f} s"
        figures.append(Figure(f"100 images inspected, {what} of skopeo's", ratio, "%", "RG-161", limit, note=note))
    return figures


async def _timed(*command: str, environ: Mapping[str, str] | None = None) -> tuple[float, float]:
    """Wall and CPU seconds of a command and its child processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    process = await asyncio.create_subprocess_exec(*command, env=environ, stdout=asyncio.subprocess.DEVNULL)
    await process.wait()
    wall = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


SCENARIOS = {"rules": rules, "kube": kube, "registry": registry}
