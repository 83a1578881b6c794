"""Follows builds until they are over: watches objects, and reads the steps of their pods' logs (BD-301).

Watches go on by themselves when a connection breaks off. Nothing is written.
"""

import asyncio
import contextlib
from collections.abc import Mapping

from polyarch.builds import names
from polyarch.builds.api.resources import ImageBuild, ImageBuildRun
from polyarch.builds.jobs.contract import BUILD_CONTAINER
from polyarch.builds.names import MAX_LABEL, shortened
from polyarch.cli.build.board import Board
from polyarch.cli.build.observation import UNFINISHED, BuildPod, End, Goal, Sight, Step, sight
from polyarch.clock import Clock, SystemClock
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError
from polyarch.kube.informer import Informers
from polyarch.kube.resources import PODS
from polyarch.objects import Key


class Followed:
    """One build, and what was seen of it last."""

    def __init__(self, client: Client, informers: Informers, key: Key, goal: Goal, board: Board) -> None:
        self._client = client
        self._key = key
        self._goal = goal
        self._board = board
        self._changed = asyncio.Event()
        self._steps: dict[str, Step] = {}
        self._readers: dict[str, asyncio.Task[None]] = {}
        self._followed = ""
        self.seen = Sight()
        label = f"{names.BUILD_LABEL}={shortened(key.name, MAX_LABEL)}"
        self._builds = informers.informer(
            names.IMAGE_BUILDS, ImageBuild, namespace=key.namespace, field_selector=f"metadata.name={key.name}"
        )
        self._runs = informers.informer(
            names.IMAGE_BUILD_RUNS, ImageBuildRun, namespace=key.namespace, label_selector=label
        )
        self._pods = informers.informer(PODS, BuildPod, namespace=key.namespace, label_selector=label, required=False)
        for informer in (self._builds, self._runs, self._pods):
            informer.add_handler(lambda _: self._changed.set())

    async def until_over(self) -> End:
        """Show every change until the build is over."""
        await self._builds.synced()
        await self._runs.synced()
        try:
            while True:
                self._changed.clear()
                self._look()
                if self.seen.end is not None:
                    return self.seen.end
                await self._changed.wait()
        finally:
            for task in self._readers.values():
                task.cancel()
            await asyncio.gather(*self._readers.values(), return_exceptions=True)

    def _look(self) -> None:
        build = self._builds.store.get(self._key)
        label = shortened(self._followed, MAX_LABEL)
        pods = [each for each in self._pods.store.values() if each.run == label]
        self.seen = sight(
            build, self._runs.store.values(), self._goal, followed=self._followed, pods=pods, steps=self._steps
        )
        active = build.status.active_run if build is not None else ""
        if active and self.seen.run == active != self._followed:
            self._followed = active
            self._changed.set()  # now its pods are known, too
        for pod in pods:
            if pod.builds and pod.metadata.name not in self._readers:
                self._readers[pod.metadata.name] = asyncio.create_task(self._read(pod.metadata.name))
        self._board.show(self._key.name, self.seen)

    async def _read(self, pod: str) -> None:
        """The steps that the pod's build tells; a log that cannot be read is no news."""
        with contextlib.suppress(KubernetesError):
            async with self._client.follow_log(self._key.namespace, pod, container=BUILD_CONTAINER) as lines:
                async for line in lines:
                    if (step := Step.of(line)) is not None:
                        self._steps[pod] = step
                        self._changed.set()


async def follow(
    client: Client, goals: Mapping[Key, Goal], board: Board, *, timeout: float | None, clock: Clock | None = None
) -> dict[Key, tuple[Sight, End]]:
    """Follow all of them at once; after ``timeout`` seconds those that are not over end as unfinished."""
    informers = Informers(client, clock=clock or SystemClock())
    watched = {key: Followed(client, informers, key, goal, board) for key, goal in goals.items()}
    watching = asyncio.create_task(informers.run())
    ends: dict[Key, End] = {}

    async def one(key: Key) -> None:
        ends[key] = await watched[key].until_over()

    try:
        async with asyncio.timeout(timeout):
            async with asyncio.TaskGroup() as tasks:
                for key in watched:
                    tasks.create_task(one(key))
    except TimeoutError:
        late = End(code=UNFINISHED, outcome="Timeout", message=f"not over after {timeout:g} s; it goes on by itself")
        ends |= {key: late for key in watched if key not in ends}
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        board.close()
    return {key: (watched[key].seen, ends[key]) for key in watched}
