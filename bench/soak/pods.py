"""Pods of which each is judged: known, new, moving, private and missing images, while policy and preferences change.

They name a scheduler that does not exist, so nobody but polyarch writes them, and what it wrote is the last word.
"""

import asyncio
import base64
import contextlib
import itertools
import json
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from bench import load
from bench.soak.stage import PRIVATE, PUBLIC, Stage
from bench.soak.trial import AWAY, Trial
from bench.soak.world import GRACE, WINDOW, Born, History, SoakWorld, Values, is_let_through
from polyarch.kube.errors import AlreadyExists, NotFound
from polyarch.kube.informer import Informer
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import MUTATING_WEBHOOKS, PODS, SECRETS
from polyarch.kube.store import ObjectChange
from polyarch.objects import PartialObjectMetadata, Pod
from polyarch.placement import names
from polyarch.placement.api import POLICIES, PPCS
from polyarch.taints.names import GATE as TAINTS_GATE

SPACE: Final = "soak-pods"
PLATFORMS: Final = (("amd64", "arm64"), ("arm64", "s390x"), ("ppc64le", "s390x"), ("amd64", "ppc64le"))
"""Used in turn; never a single one, as that could be an operator bundle, which costs more requests (RG-046)."""
FALLBACK: Final = ("ppc64le", "s390x")
KINDS: Final = {"warm": 50, "moving": 12, "always": 10, "mixed": 8, "private": 8, "cold": 7, "missing": 5}
LAG: Final = 3.0
"""Seconds until the API server goes by another configuration of webhooks, and until we learn of it."""
LET_THROUGH: Final = "let through by the webhook, as no controller led"
MOST_LET_THROUGH: Final = 0.05
"""Of all pods that are judged: a Lease is renewed late while the API server is away or silent."""
TAINTS_WINDOW: Final = 30.0 + WINDOW
"""How long taints may hold a pod: its gate's timeout, and until placement lets it go."""


class Pods:
    """The churn, and the verdict on each pod when it is deleted or at the end."""

    def __init__(self, trial: Trial, stage: Stage) -> None:
        self._trial, self._stage = trial, stage
        self._client, self._dice = trial.client, trial.dice
        self._world = SoakWorld(blind=trial.blind)
        self._live: dict[str, Born] = {}
        self._cold: list[str] = []
        self._late: set[tuple[str, str]] = set()
        self._withdrawn = contextlib.ExitStack()
        self.unseen: list[str] = []
        """Pods that no webhook saw although one was registered; allowed are as many as the API server gave up on."""

    # -- images, policy and preferences, and how they change -----------------------------------------------------------

    async def _push(self, host: str, repositories: Sequence[str], platforms: Values, **more: Any) -> list[str]:
        """Push images of these platforms; an existing tag moves."""
        images = [f"{host}/{repository}:1" for repository in repositories]
        for image in images:
            self._world.images.setdefault(image, History()).begin(platforms, time.monotonic())
        for seeded in await self._stage.push(host, repositories, platforms or (), **more):
            self._world.digests[seeded.digest.removeprefix("sha256:")[:12]] = platforms
        for image in images:
            self._world.images[image].done(time.monotonic())
        return images

    async def _set_policy(self, answer: Values) -> None:
        unresolved: dict[str, Any] = {"action": "release", "retryWindow": f"{WINDOW:.0f}s"}
        if answer is not None:
            unresolved |= {"action": "fallback", "fallbackArchitectures": list(answer)}
        self._world.policy.begin(answer, time.monotonic())
        await self._client.apply(POLICIES, {
            "apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": {"name": names.SINGLETON},
            "spec": {"onUnresolved": unresolved, "events": "problems"},
        })  # fmt: skip
        self._world.policy.done(time.monotonic())

    async def _set_preferences(self, weights: tuple[tuple[str, int], ...]) -> None:
        """Apply a PodPlacementConfig with these weights, or delete it."""
        self._world.preferences.begin(weights, time.monotonic())
        if weights:
            platforms = [{"architecture": architecture, "weight": weight} for architecture, weight in weights]
            scoring = {"nodeAffinityScoring": {"enabled": True, "platforms": platforms}}
            await self._client.apply(PPCS, {
                "apiVersion": PPCS.api_version, "kind": PPCS.kind, "metadata": {"name": "soak", "namespace": SPACE},
                "spec": {"priority": 10, "labelSelector": {"matchLabels": {"app": "load"}}, "plugins": scoring},
            }, namespace=SPACE)  # fmt: skip
        else:
            with contextlib.suppress(NotFound):
                await self._client.delete(PPCS, "soak", namespace=SPACE)
        self._world.preferences.done(time.monotonic())

    async def prepare(self) -> None:
        await load.make_namespace(self._client, SPACE)
        entry = {"auth": base64.b64encode(b"robot:secret").decode()}
        auths = json.dumps({"auths": {PRIVATE: entry, self._stage.hosts[PRIVATE].address: entry}})
        await self._client.create(SECRETS, {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": base64.b64encode(auths.encode()).decode()},
        }, namespace=SPACE)  # fmt: skip
        for at, platforms in enumerate(PLATFORMS):
            await self._push(PUBLIC, [f"warm{at}", f"warm{at + 4}", f"moving{at}", f"always{at}"], platforms)
            await self._push(PRIVATE, [f"app{at}"], platforms, private=True, users={"robot": "secret"})
        await self._set_policy(None)
        await self._set_preferences(())

    async def change(self) -> None:
        """Change images, preferences or the policy every few seconds."""
        for number in itertools.count():
            await asyncio.sleep(2.5)
            if not self._trial.churning:
                return
            try:
                if number % 2 == 0:
                    self._cold += await self._push(PUBLIC, [f"cold{number}"], self._dice.choice(PLATFORMS))
                if number % 4 == 1:
                    which = f"{self._dice.choice(('moving', 'always'))}{self._dice.randrange(4)}"
                    await self._push(PUBLIC, [which], self._dice.choice(PLATFORMS))
                    self._trial.counts["tags moved"] += 1
                if number % 6 == 3:
                    weight = self._dice.randrange(1, 100)
                    await self._set_preferences(self._dice.choice(((), (("arm64", weight),), (("amd64", weight),))))
                    self._trial.counts["PodPlacementConfig changes"] += 1
                if number % 10 == 7:
                    await self._set_policy(self._dice.choice((None, FALLBACK)))
                    self._trial.counts["policy changes"] += 1
            except AWAY:
                self._trial.counts["changes refused"] += 1  # a fault; the old and the new value are both valid

    # -- pods ----------------------------------------------------------------------------------------------------------

    def _pick(self, kind: str) -> tuple[str, ...]:
        at = self._dice.randrange(4)
        match kind:
            case "mixed":
                return (f"{PUBLIC}/warm0:1", f"{PUBLIC}/warm{self._dice.choice((1, 3, 4))}:1")
            case "private":
                return (f"{PRIVATE}/app{at}:1",)
            case "cold" if self._cold:
                return (self._cold.pop(),)
            case "missing":
                image = f"{PUBLIC}/missing{self._dice.randrange(1000)}:1"
                self._world.images.setdefault(image, History([(None, 0.0, float("inf"))]))
                return (image,)
            case "moving" | "always":
                return (f"{PUBLIC}/{kind}{at}:1",)
        return (f"{PUBLIC}/warm{self._dice.randrange(8)}:1",)

    async def _create(self, name: str) -> None:
        [kind] = self._dice.choices(list(KINDS), weights=list(KINDS.values()))
        images = self._pick(kind)
        document = load.pod(images[0], name=name, secrets=["pull"] if kind == "private" else [])
        [main] = document["spec"]["containers"]
        main["imagePullPolicy"] = "Always" if kind == "always" else "IfNotPresent"
        document["spec"]["containers"] += [{**main, "name": f"c{at}", "image": image, "ports": []}
                                           for at, image in enumerate(images[1:])]  # fmt: skip
        now = time.monotonic()
        self._live[name] = Born(kind, images, now, now + self._dice.choice((0.2, 5, 20, 60, 120)))
        try:
            await self._client.create(PODS, document, namespace=SPACE, retry=False)
            self._trial.counts[f"pods, {kind}"] += 1
        except AlreadyExists:
            pass
        except AWAY:
            self._trial.counts["creates refused"] += 1

    def _observe(self, change: ObjectChange[Pod]) -> None:
        born = self._live.get(change.key.name)
        if born is None or change.new is None:
            return
        born.pod = change.new
        gates = {each.name for each in change.new.spec.scheduling_gates or ()}
        if names.GATE in gates:
            born.gated_at = born.gated_at or time.monotonic()
        else:
            born.released_at = born.released_at or time.monotonic()
        if TAINTS_GATE not in gates:
            born.tolerated_at = born.tolerated_at or time.monotonic()

    async def _end(self, name: str, born: Born) -> None:
        """Delete the pod and judge it; one that is still gated is only deleted."""
        try:
            await self._client.delete(PODS, name, namespace=SPACE, grace_period_seconds=0, retry=False)
        except NotFound:
            pass
        except AWAY:
            born.dies_at = time.monotonic() + 5
            return
        self._live.pop(name, None)
        if born.released_at is not None:
            self._judge(name, born)
        else:
            self._trial.counts["deleted while gated or never created"] += 1

    def _judge(self, name: str, born: Born) -> None:
        self._trial.counts["pods judged"] += 1
        if born.pod is not None and names.SCHEDULING_GATE_LABEL not in (born.pod.metadata.labels or {}):
            self._trial.counts["created while no webhook answered"] += 1
            if not self._trial.is_blind(born.at):
                self.unseen.append(name)
            return
        if born.pod is not None and is_let_through(born.pod):
            self._trial.counts[LET_THROUGH] += 1
            return
        if problem := self._world.judge(name, born):
            self._trial.problem("wrong", problem)

    async def churn(self, per_second: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in itertools.count():
                if not self._trial.churning:
                    return
                tasks.create_task(self._create(f"pod-{number:06}"))
                now = time.monotonic()
                for name, born in [(name, born) for name, born in self._live.items() if born.dies_at < now][:20]:
                    born.dies_at = float("inf")
                    tasks.create_task(self._end(name, born))
                await asyncio.sleep(self._dice.uniform(0.5, 1.5) / per_second)

    def _registered(self, change: ObjectChange[PartialObjectMetadata]) -> None:
        """While no controller stands the operator takes the webhook's configuration away: pods go unplaced (PL-022)."""
        if change.new is None and change.old is not None:
            self._trial.counts["times that placement was withdrawn"] += 1
            self._withdrawn.enter_context(self._trial.blinded(LAG))
        elif change.new is not None:
            self._withdrawn.close()

    @contextlib.asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        of_name = ListOptions(field_selector=f"metadata.name={names.WEBHOOK_CONFIGURATION}")
        pods: Informer[Pod] = Informer(self._client, PODS, Pod, selection=ListOptions(namespace=SPACE))
        pods.add_handler(self._observe)
        configurations = Informer(self._client, MUTATING_WEBHOOKS, PartialObjectMetadata, selection=of_name)
        configurations.add_handler(self._registered)
        watching = [asyncio.create_task(each.run()) for each in (pods, configurations)]
        try:
            await pods.synced()
            await configurations.synced()
            yield
        finally:
            for each in watching:
                each.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    # -- what has to come to an end ------------------------------------------------------------------------------------

    @property
    def _gated(self) -> list[tuple[str, Born]]:
        return [(name, born) for name, born in self._live.items() if born.gated_at and not born.released_at]

    @property
    def gated(self) -> int:
        return len(self._gated)

    def look(self) -> None:
        """Name every pod that is held for longer than its window."""
        now = time.monotonic()
        held = [(name, born, "placement", born.window) for name, born in self._gated]
        held += [
            (name, born, "taints", TAINTS_WINDOW + GRACE)
            for name, born in self._live.items()
            if born.pod is not None and not born.tolerated_at
        ]
        for name, born, by, window in held:
            if now - born.at > window and (by, name) not in self._late:
                self._late.add((by, name))
                self._trial.problem("stuck", f"pod {name} ({born.kind}): held by {by} for {now - born.at:.0f} s, "
                                             f"{born.images}")  # fmt: skip

    async def settle(self) -> None:
        """Wait until no pod is held, and judge those that still live."""
        for _ in range(int(TAINTS_WINDOW + GRACE)):
            self.look()
            if not any(born.pod is not None and not (born.released_at and born.tolerated_at)
                       for born in self._live.values()):  # fmt: skip
                break
            await asyncio.sleep(1)
        self._trial.counts["pods that live to the end"] = len(self._live)
        let_through, judged = self._trial.counts[LET_THROUGH], self._trial.counts["pods judged"]
        if let_through > MOST_LET_THROUGH * judged:
            self._trial.problem("wrong", f"{let_through} of {judged} pods were {LET_THROUGH}")
        for name, born in list(self._live.items()):
            if born.released_at is not None:
                self._judge(name, born)
        for name, _ in self._gated:
            self._trial.problem("stuck", f"pod {name}: still gated at the end")
