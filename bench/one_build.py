"""BD-345 to BD-347, BD-349: one image for four architectures in a real cluster, and the plain script beside it.

Both build the same with the same pods in the same minute: everything from nothing, then once more with another
Containerfile for one architecture. Times come from the audit log, requests from it and from the builder's own metrics.
A preparing build makes the registry's answers known, as they are on any other day than the first.
"""

import asyncio
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import aiohttp
import msgspec

from bench import load, plain_script
from bench.measure import AUDIT_DELAY, Figure, cpu_seconds
from bench.plain_script import Template
from bench.runtime import Say
from polyarch.builds import names
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.platforms import ASSUMED_ARCHITECTURES
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.demo.workloads import ObjectReference, User
from polyarch.sandbox.fake_buildah import ARGUMENT
from polyarch.sandbox.state import Settings
from polyarch.sandbox.tasks import until

sys.path.insert(0, str(Path(__file__).parent.parent / "tests/support"))
from builder_process import builder, define, image_build, runs, seed, settled, story
from placement_process import Running

BASE: Final = "quay.io/bench/base:1"
SECONDS: Final = {"amd64": 4, "arm64": 5, "ppc64le": 6, "s390x": 8}
"""How long the build of each takes."""
CHANGED: Final = "arm64"
REFERENCES: Final = 3
"""Images that a build needs: its base, the builder's and the push's."""
TAGS: Final = 2
"""Of a result: that of its Run, and the one in the spec."""
WRITES: Final = frozenset({"create", "update", "patch", "delete"})
READS: Final = frozenset({"get", "list"})
MOST_SECONDS: Final = 600.0


class Event(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A line of the audit log, as far as it is needed here."""

    stage: str = ""
    verb: str = ""
    user: User = User()
    object_ref: ObjectReference | None = None
    request_received_timestamp: str = ""
    stage_timestamp: str = ""

    @property
    def what(self) -> str:
        """``patch imagebuildruns/status``."""
        at = self.object_ref or ObjectReference()
        return f"{self.verb} {at.resource}{'/' if at.subresource else ''}{at.subresource}"

    @property
    def name(self) -> str:
        return self.object_ref.name if self.object_ref is not None else ""

    @property
    def begun(self) -> float:
        return datetime.fromisoformat(self.request_received_timestamp).timestamp()

    @property
    def ended(self) -> float:
        return datetime.fromisoformat(self.stage_timestamp).timestamp()


class Course(msgspec.Struct, frozen=True, kw_only=True):
    """What one execution took and cost, by the audit log. Seconds."""

    jobs: int
    created: float
    """From the wish to the last of its Jobs."""
    slowest: float
    """The longest Job, from its creation until it is complete."""
    joined: float
    """From the end of the last Job until the Run has succeeded, which is after its tags were read back."""
    makespan: float
    """From the wish until the Run has succeeded."""
    writes: int
    reads: int
    events: int


def course(events: Iterable[Event], *, builder: str) -> Course:
    """Of the events of one namespace, from the wish on. ``builder`` begins the name of the builder's user."""
    done = [each for each in events if each.stage == "ResponseComplete"]
    own = [each for each in done if each.user.username.startswith(builder)]
    ref = min(each.begun for each in done if each.what in ("create imagebuilds", "patch imagebuilds"))
    started = {each.name: each.ended for each in own if each.what == "create jobs"}
    ended = {
        each.name: each.ended
        for each in done
        if each.what in ("update jobs/status", "patch jobs/status") and each.name in started
    }
    succeeded = max(each.ended for each in own if each.what == "patch imagebuildruns/status")
    posted = sum(each.what.endswith(" events") for each in own)
    return Course(
        jobs=len(started),
        created=max(started.values()) - ref,
        slowest=max(ended[name] - at for name, at in started.items()),
        joined=succeeded - max(ended.values()),
        makespan=succeeded - ref,
        writes=sum(each.verb in WRITES for each in own) - posted,
        reads=sum(each.verb in READS for each in own),
        events=posted,
    )


class Trial:
    """A build in a namespace of its own, and the script in another."""

    def __init__(self, sandbox: Sandbox, client: Client, home: str, running: Running, say: Say) -> None:
        self._sandbox = sandbox
        self._client = client
        self._user = f"system:serviceaccount:{home}:"
        self._metrics = running.said["metrics"]
        self._pid = running.process.pid
        self._say = say

    async def prepare(self) -> None:
        """A build that nothing is measured of."""
        namespace = await load.make_namespace(self._client, "bench-before")
        await self._client.create(names.IMAGE_BUILDS, self._ref(namespace, "before", {}), namespace=namespace)
        await self._settled(namespace)

    async def run(self) -> list[Figure]:
        space, beside = [await load.make_namespace(self._client, each) for each in ("bench-built", "bench-script")]
        ref = self._ref(space, "built", SECONDS)
        create = self._client.create(names.IMAGE_BUILDS, ref, namespace=space)
        before = cpu_seconds(self._pid)
        (first, asked), made_from = await asyncio.gather(self._measured(space, create), self._templates(space))
        spent = cpu_seconds(self._pid) - before
        self._say(f"four built: {first}")
        repository = f"{self._sandbox.registry.address}/{beside}/shop"
        plain = await plain_script.run(self._client, self._sandbox, beside, repository, made_from, number=1)
        self._say(f"four built by the script: {plain:.1f} s")
        overrides = ref["spec"]["source"]["overrides"]
        for each in overrides:
            if each["architecture"] == CHANGED:
                each["buildArgs"]["CHANGED"] = "yes"
        patch = MergePatch({"spec": {"source": {"overrides": overrides}}})
        change = self._client.patch(names.IMAGE_BUILDS, "shop", patch, namespace=space)
        second, asked_again = await self._measured(space, change)
        self._say(f"one of them changed: {second}")
        plain_again = await plain_script.run(self._client, self._sandbox, beside, repository, made_from, number=2)
        self._say(f"one of them changed, by the script: {plain_again:.1f} s")
        return [
            *_times(first, plain),
            Figure("four built, the builder's CPU", spent, "s CPU", compared=True),
            *_requests("four built", first, asked, built=4, reused=0),
            *_requests("one of four changed", second, asked_again, built=1, reused=3),
            Figure("one of four changed, Jobs", second.jobs, "Jobs", "BD-349", 1, compared=True,
                   note=f"the script's: {len(made_from)}"),
            Figure("one of four changed, makespan", second.makespan, "s", note=f"the script: {plain_again:.1f} s"),
        ]  # fmt: skip

    def _ref(self, namespace: str, kind: str, seconds: Mapping[str, int]) -> dict[str, Any]:
        overrides = [
            {"architecture": each, "buildArgs": {ARGUMENT: f"seconds={seconds.get(each, 0)}", "KIND": kind}}
            for each in ASSUMED_ARCHITECTURES
        ]
        return image_build(
            "shop",
            f"{self._sandbox.registry.address}/{namespace}/shop",
            f"FROM {BASE}\nRUN make\n",
            source={"overrides": overrides},
            output={"tags": ["latest"]},
            architectures={"mode": "Explicit", "list": list(ASSUMED_ARCHITECTURES)},
        )

    async def _measured(self, namespace: str, ref: Any) -> tuple[Course, int]:
        """What came of it, and how many requests the builder sent to the registry."""
        offset, before = self._sandbox.audit_log.stat().st_size, await self._registry_requests()
        await ref
        await self._settled(namespace)
        await asyncio.sleep(AUDIT_DELAY)
        with self._sandbox.audit_log.open("rb") as log:
            log.seek(offset)
            events = [msgspec.json.decode(line, type=Event) for line in log if line.endswith(b"\n")]
        own = [each for each in events if each.object_ref is not None and each.object_ref.namespace == namespace]
        return course(own, builder=self._user), await self._registry_requests() - before

    async def _settled(self, namespace: str) -> None:
        found = await settled(self._client, namespace, "shop", seconds=MOST_SECONDS)
        newest = (await runs(self._client, namespace))[-1]
        if newest["status"]["phase"] != "Succeeded" or found["status"]["currentRun"] != newest["metadata"]["name"]:
            raise RuntimeError(f"the build did not succeed:\n{await story(self._client, namespace)}")

    async def _templates(self, namespace: str) -> list[Template]:
        """The Jobs while they run: they are deleted as soon as they are complete."""
        found: list[Template] = []

        async def complete() -> bool:
            nonlocal found
            found = await plain_script.templates(self._client, namespace)
            return len(found) == len(ASSUMED_ARCHITECTURES)

        if not await until(complete, seconds=MOST_SECONDS):
            raise RuntimeError(f"{namespace}: there are {len(found)} Jobs")
        return found

    async def _registry_requests(self) -> int:
        async with aiohttp.ClientSession() as session, session.get(f"{self._metrics}/metrics") as answer:
            text = await answer.text()
        name = "polyarch_build_registry_requests_total{"
        return sum(int(float(line.rpartition(" ")[2])) for line in text.splitlines() if line.startswith(name))


def _times(first: Course, plain: float) -> list[Figure]:
    return [
        Figure("four built, makespan beyond the slowest Job", first.makespan - first.slowest, "s", "BD-345", 3,
               note=f"the script: {plain - first.slowest:.1f} s, by the builder's slowest Job"),
        Figure("four built, makespan", first.makespan, "s", note=f"the script: {plain:.1f} s"),
        Figure("four built, last Job to readable tag", first.joined, "s", "BD-345", 2),
        Figure("four built, wish to all Jobs", first.created, "s", "BD-345", 2),
    ]  # fmt: skip


def _requests(what: str, found: Course, asked: int, *, built: int, reused: int) -> list[Figure]:
    children = built + reused
    limit = 2 * REFERENCES + reused + 2 * children + 3 + 3 * TAGS
    return [
        Figure(f"{what}, API writes", found.writes, "requests", "BD-346", 10 + 8 * built + reused, compared=True),
        Figure(f"{what}, API reads", found.reads, "requests", "BD-346", 4 + built, compared=True),
        Figure(f"{what}, events", found.events, "requests", "BD-346", 6 + 2 * children, compared=True),
        Figure(f"{what}, registry requests", asked, "requests", "BD-347", limit, compared=True),
    ]


async def _one_build(say: Say) -> list[Figure]:
    settings = Settings(
        name=f"bench-build-{os.getpid()}", nodes=dict.fromkeys(ASSUMED_ARCHITECTURES, 1), polyarch=False
    )
    sandbox = await Sandbox.start(settings, owner=os.getpid())
    try:
        with tempfile.TemporaryDirectory() as folder:
            async with sandbox.client() as client:
                await define(client)
                await seed(sandbox, BASE)
                home = await load.make_namespace(client, "bench-home")
                async with builder(sandbox, client, home, Path(folder)) as running:
                    trial = Trial(sandbox, client, home, running, say)
                    await trial.prepare()
                    return await trial.run()
    finally:
        await sandbox.delete()


def one_build(say: Say) -> list[Figure]:
    """Four architectures from nothing, then one of them changed; the script does the same."""
    return asyncio.run(_one_build(say))


SCENARIOS: Final = {"one-build": one_build}
