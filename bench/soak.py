"""Soak test: churn, and a fault every minute: ``python -m bench.soak --minutes 30``.

It runs one webhook and two controllers behind fault proxies (``tests/faults``), on a sandbox of its own. Pods with
known, new, moving, private and missing images are created and deleted; tags move to other platforms; a
PodPlacementConfig and the policy change. Each pod is checked when it is deleted, or at the end, against the images,
policy and preferences of the time of its decision. Exit code 1 if a pod is wrong or held longer than its window, memory
grows, descriptors, tasks or threads leak, or a role logs a bug.

Limits: pods name a scheduler that does not exist, so nothing runs; a tag that is not pulled ``Always`` may be answered
from the cache for ten minutes; memory is judged only for processes that ran for at least a minute.
"""

import argparse
import asyncio
import base64
import contextlib
import itertools
import json
import os
import random
import ssl
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

sys.path += [str(Path(__file__).parent.parent / "tests" / room) for room in ("faults", "cluster")]

import own_roles
from fault_proxy import FaultProxy
from fault_roles import Fleet

from bench import load, soakfill, soakreport
from bench.soakfaults import NAMES, Faults
from bench.soakreport import Sample
from bench.soakworld import GRACE, WINDOW, Born, History, Values, World
from polyarch.kube.access import config
from polyarch.kube.client.client import Client
from polyarch.kube.client.requests import Selection
from polyarch.kube.errors import AlreadyExists, ApiError, ConnectionFailed, NotFound
from polyarch.kube.resources import MUTATING_WEBHOOKS, PODS, SECRETS
from polyarch.kube.runtime.informer import Informer
from polyarch.kube.runtime.store import Change
from polyarch.model.pod import Pod
from polyarch.placement import names
from polyarch.placement.api.resources import POLICIES, PPCS
from polyarch.placement.operator import webhooks
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.state import NAMESPACE, Settings

SPACE = "soak"
PUBLIC, PRIVATE = "soak.test", "private.test"
PLATFORMS = (("amd64", "arm64"), ("arm64", "s390x"), ("ppc64le", "s390x"), ("amd64", "ppc64le"))
"""Used in turn; never a single one, as that could be an operator bundle, which costs more requests (RG-046)."""
FALLBACK = ("ppc64le", "s390x")
SAMPLE_SECONDS = 5.0
BLIND = 2.0
"""Seconds before and after a fault in which a create request may have reached a webhook that was killed."""
KINDS = {"warm": 50, "moving": 12, "always": 10, "mixed": 8, "private": 8, "cold": 7, "missing": 5}
AWAY = (ApiError, ConnectionFailed, TimeoutError)


class Soak:
    """One soak run; ``problems`` lists everything that was wrong."""

    def __init__(self, sandbox: Sandbox, client: Client, api: FaultProxy, hosts: dict[str, FaultProxy], fleet: Fleet,
                 dice: random.Random, wanted: Sequence[str]) -> None:  # fmt: skip
        self.sandbox, self.client, self.api, self.hosts, self.fleet = sandbox, client, api, hosts, fleet
        self.dice = dice
        self.wanted = wanted
        self.world = World()
        self.live: dict[str, Born] = {}
        self.counts: Counter[str] = Counter()
        self.problems: list[str] = []
        self.samples: list[Sample] = []
        self.faults: list[tuple[float, str]] = []
        self.cold: list[str] = []
        self.began = time.monotonic()
        self.churning = True
        self.busy_until = 0.0

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:6.0f} s] {text}", file=sys.stderr, flush=True)

    # Images, policy and preferences, and how they change.

    async def push(self, host: str, repositories: list[str], platforms: Values, **more: Any) -> list[str]:
        """Push images of these platforms; an existing tag moves."""
        images = [f"{host}/{repository}:1" for repository in repositories]
        described = {
            f"{self.sandbox.registry.address}/soak/{host}/{repository}:1": {
                "platforms": [f"linux/{architecture}" for architecture in platforms or ()],
                **more,
            }
            for repository in repositories
        }
        for image in images:
            self.world.images.setdefault(image, History()).begin(platforms, time.monotonic())
        for seeded in await self.sandbox.registry.seed(described):
            self.world.digests[seeded.digest.removeprefix("sha256:")[:12]] = platforms
        for image in images:
            self.world.images[image].done(time.monotonic())
        return images

    async def set_policy(self, answer: Values) -> None:
        unresolved: dict[str, Any] = {"action": "release", "retryWindow": f"{WINDOW:.0f}s"}
        if answer is not None:
            unresolved |= {"action": "fallback", "fallbackArchitectures": list(answer)}
        self.world.policy.begin(answer, time.monotonic())
        await self.client.apply(POLICIES, {
            "apiVersion": POLICIES.api_version, "kind": POLICIES.kind, "metadata": {"name": names.SINGLETON},
            "spec": {"onUnresolved": unresolved, "events": "problems"},
        })  # fmt: skip
        self.world.policy.done(time.monotonic())

    async def set_preferences(self, weights: tuple[tuple[str, int], ...]) -> None:
        """Apply a PodPlacementConfig with these weights, or delete it."""
        self.world.preferences.begin(weights, time.monotonic())
        if weights:
            platforms = [{"architecture": architecture, "weight": weight} for architecture, weight in weights]
            scoring = {"nodeAffinityScoring": {"enabled": True, "platforms": platforms}}
            await self.client.apply(PPCS, {
                "apiVersion": PPCS.api_version, "kind": PPCS.kind, "metadata": {"name": "soak", "namespace": SPACE},
                "spec": {"priority": 10, "labelSelector": {"matchLabels": {"app": "load"}}, "plugins": scoring},
            }, namespace=SPACE)  # fmt: skip
        else:
            with contextlib.suppress(NotFound):
                await self.client.delete(PPCS, "soak", namespace=SPACE)
        self.world.preferences.done(time.monotonic())

    async def prepare(self) -> None:
        entry = {"auth": base64.b64encode(b"robot:secret").decode()}
        auths = json.dumps({"auths": {PRIVATE: entry, self.hosts[PRIVATE].address: entry}})
        await self.client.create(SECRETS, {
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "pull"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": base64.b64encode(auths.encode()).decode()},
        }, namespace=SPACE)  # fmt: skip
        for at, platforms in enumerate(PLATFORMS):
            await self.push(PUBLIC, [f"warm{at}", f"warm{at + 4}", f"moving{at}", f"always{at}"], platforms)
            await self.push(PRIVATE, [f"app{at}"], platforms, private=True, users={"robot": "secret"})
        await self.set_policy(None)
        await self.set_preferences(())

    async def fill(self, count: int, *, gated: bool) -> None:
        """Fill the controllers' caches (``gated``, before a webhook is registered) or the webhook's to their bound."""
        platforms = PLATFORMS[0]
        if gated:
            await soakfill.push(self.sandbox.registry.address, f"soak/{PUBLIC}", count, platforms)
        await soakfill.ask(self.client, SPACE, [f"{PUBLIC}/fill{at}:1" for at in range(count)], gated=gated)
        for replica in [*self.fleet.webhooks, *self.fleet.controllers]:
            size = await replica.metric("mto_inspection_cache_size")
            self.say(f"{replica.role} {replica.process.pid}: {size:.0f} readings")

    async def change(self) -> None:
        """Change images, preferences or the policy every few seconds."""
        for number in itertools.count():
            await asyncio.sleep(2.5)
            if not self.churning:
                return
            try:
                if number % 2 == 0:
                    self.cold += await self.push(PUBLIC, [f"cold{number}"], self.dice.choice(PLATFORMS))
                if number % 4 == 1:
                    which = f"{self.dice.choice(('moving', 'always'))}{self.dice.randrange(4)}"
                    await self.push(PUBLIC, [which], self.dice.choice(PLATFORMS))
                    self.counts["tags moved"] += 1
                if number % 6 == 3:
                    weight = self.dice.randrange(1, 100)
                    await self.set_preferences(self.dice.choice(((), (("arm64", weight),), (("amd64", weight),))))
                    self.counts["PodPlacementConfig changes"] += 1
                if number % 10 == 7:
                    await self.set_policy(self.dice.choice((None, FALLBACK)))
                    self.counts["policy changes"] += 1
            except AWAY:
                self.counts["changes refused"] += 1  # a fault; the old and the new value are both valid

    # Pods.

    def pick(self, kind: str) -> tuple[str, ...]:
        at = self.dice.randrange(4)
        match kind:
            case "mixed":
                return (f"{PUBLIC}/warm0:1", f"{PUBLIC}/warm{self.dice.choice((1, 3, 4))}:1")
            case "private":
                return (f"{PRIVATE}/app{at}:1",)
            case "cold" if self.cold:
                return (self.cold.pop(),)
            case "missing":
                image = f"{PUBLIC}/missing{self.dice.randrange(1000)}:1"
                self.world.images.setdefault(image, History([(None, 0.0, float("inf"))]))
                return (image,)
            case "moving" | "always":
                return (f"{PUBLIC}/{kind}{at}:1",)
        return (f"{PUBLIC}/warm{self.dice.randrange(8)}:1",)

    async def create(self, name: str) -> None:
        [kind] = self.dice.choices(list(KINDS), weights=list(KINDS.values()))
        images = self.pick(kind)
        document = load.pod(images[0], name=name, secrets=["pull"] if kind == "private" else [])
        [main] = document["spec"]["containers"]
        main["imagePullPolicy"] = "Always" if kind == "always" else "IfNotPresent"
        document["spec"]["containers"] += [{**main, "name": f"c{at}", "image": image, "ports": []}
                                           for at, image in enumerate(images[1:])]  # fmt: skip
        now = time.monotonic()
        self.live[name] = Born(kind, images, now, now + self.dice.choice((0.2, 5, 20, 60, 120)))
        try:
            await self.client.create(PODS, document, namespace=SPACE, retry=False)
            self.counts[f"pods, {kind}"] += 1
        except AlreadyExists:
            pass
        except AWAY:
            self.counts["creates refused"] += 1

    def observe(self, change: Change[Pod]) -> None:
        born = self.live.get(change.key.name)
        if born is None or change.new is None:
            return
        born.pod = change.new
        if load.gated(change.new):
            born.gated_at = born.gated_at or time.monotonic()
        else:
            born.released_at = born.released_at or time.monotonic()

    async def end(self, name: str, born: Born) -> None:
        """Delete the pod and check it; one that is still gated is only deleted."""
        try:
            await self.client.delete(PODS, name, namespace=SPACE, grace_period_seconds=0, retry=False)
        except NotFound:
            pass
        except AWAY:
            born.dies_at = time.monotonic() + 5
            return
        self.live.pop(name, None)
        if born.released_at is not None:
            self.judge(name, born)
        else:
            self.counts["deleted while gated or never created"] += 1

    def judge(self, name: str, born: Born) -> None:
        self.counts["judged"] += 1
        if born.pod is not None and names.SCHEDULING_GATE_LABEL not in (born.pod.metadata.labels or {}):
            self.counts["created while no webhook answered"] += 1
        if problem := self.world.judge(name, born):
            self.problems.append(problem)

    async def churn(self, per_second: float) -> None:
        async with asyncio.TaskGroup() as tasks:
            for number in itertools.count():
                if not self.churning:
                    return
                tasks.create_task(self.create(f"pod-{number:06}"))
                now = time.monotonic()
                for name, born in [(name, born) for name, born in self.live.items() if born.dies_at < now][:20]:
                    born.dies_at = float("inf")
                    tasks.create_task(self.end(name, born))
                await asyncio.sleep(self.dice.uniform(0.5, 1.5) / per_second)

    # Faults and measures.

    async def disturb(self, every: float) -> None:
        """Inject one fault per interval, in turn; afterwards restart the roles that ended."""
        faults = Faults(self.sandbox, self.api, self.hosts, self.fleet)
        for fault in itertools.cycle(faults.named(self.wanted)):
            await asyncio.sleep(every - (time.monotonic() - self.began) % every)
            if not self.churning:
                return
            began = time.monotonic()
            self.faults.append((began - self.began, fault.__name__.replace("_", " ")))
            self.say(f"{self.faults[-1][1]}; {len(self.live)} pods, {len(self.problems)} problems")
            running = len(self.fleet.webhooks) + len(self.fleet.controllers)
            if fault in (faults.webhook_killed, faults.api_server_restarted):
                self.world.blind.append((began - BLIND, float("inf")))  # until all stand again
            await fault()
            running -= len(self.fleet.webhooks) + len(self.fleet.controllers)
            self.counts["roles that ended by themselves"] += max(0, running - (fault == faults.leader_killed))
            await self.fleet.ensure()
            if self.world.blind and self.world.blind[-1][1] == float("inf"):
                self.world.blind[-1] = (began - BLIND, time.monotonic() + BLIND)

    def gated(self) -> list[tuple[str, Born]]:
        return [(name, born) for name, born in self.live.items() if born.gated_at and not born.released_at]

    async def sample(self) -> None:
        late: set[str] = set()
        while True:
            now = time.monotonic()
            gated = self.gated()
            for name, born in gated:
                if now - born.at > born.window and name not in late:
                    late.add(name)
                    self.problems.append(f"{name} ({born.kind}): gated for {now - born.at:.0f} s, {born.images}")
            for replica in [*self.fleet.webhooks, *self.fleet.controllers]:
                tasks = await replica.metric("polyarch_tasks") if replica.said else 0.0
                with contextlib.suppress(OSError):  # it was killed meanwhile
                    sample = soakreport.look(replica.process.pid, replica.role, now - self.began, tasks, len(gated))
                    self.samples.append(sample)
            for proxy in (self.api, *self.hosts.values()):
                proxy.seen.clear()
            await asyncio.sleep(max(0.1, SAMPLE_SECONDS - (time.monotonic() - now)))

    async def run(self, minutes: float, per_second: float, every: float) -> None:
        await self.prepare()
        informer: Informer[Pod] = Informer(self.client, PODS, Pod, selection=Selection(namespace=SPACE))
        informer.add_handler(self.observe)
        background = [asyncio.create_task(informer.run())]
        await informer.synced()
        self.began = time.monotonic()
        background.append(asyncio.create_task(self.sample()))
        try:
            await asyncio.sleep(12)  # idle, for the reference samples
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self.churn(per_second))
                tasks.create_task(self.change())
                tasks.create_task(self.disturb(every))
                await asyncio.sleep(minutes * 60)
                self.churning = False
            self.busy_until = time.monotonic() - self.began
            self.say(f"churn is over; {len(self.gated())} pods are gated")
            for _ in range(int(WINDOW + GRACE)):
                if self.gated():
                    await asyncio.sleep(1)
            self.counts["survivors"] = len(self.live)
            for name, born in list(self.live.items()):
                if born.released_at is not None:
                    self.judge(name, born)
            self.problems += [f"{name}: still gated at the end" for name, _ in self.gated()]
            await asyncio.sleep(45)  # idle connections are closed
        finally:
            for task in background:
                task.cancel()
            await asyncio.gather(*background, return_exceptions=True)


async def soak(
    minutes: float, per_second: float, every: float, picture: Path, seed: int, faults: Sequence[str], fill: int = 0
) -> int:
    """Exit code."""
    folder = Path(tempfile.mkdtemp(prefix="polyarch-soak-"))
    settings = Settings(name=f"soak-{os.getpid()}", nodes={"amd64": 1}, polyarch=False, seed_images=False)
    sandbox = await Sandbox.start(settings, owner=os.getpid())
    try:
        async with contextlib.AsyncExitStack() as stack:
            pair = sandbox.pki.serving("fault-proxy", folder, datetime.now(UTC))
            tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            tls.load_cert_chain(pair.certificate, pair.key)
            trusted = ssl.create_default_context(cafile=str(sandbox.ca))
            client = await stack.enter_async_context(Client(config.load(str(sandbox.kubeconfig)), role="soak"))
            api = await stack.enter_async_context(FaultProxy(sandbox.api_server, upstream_ssl=trusted, server_ssl=tls))
            upstream = f"http://{sandbox.registry.address}"
            hosts = {name: await stack.enter_async_context(FaultProxy(upstream)) for name in (PUBLIC, PRIVATE)}
            registries = folder / "registries.conf"
            registries.write_text("".join(
                f'[[registry]]\nprefix = "{name}"\nlocation = "{proxy.address}/soak/{name}"\ninsecure = true\n\n'
                for name, proxy in hosts.items()
            ))  # fmt: skip
            await own_roles.install(client)
            fleet = await stack.enter_async_context(Fleet(sandbox, client, api.url, registries, folder).running())
            await fleet.ensure()
            await load.make_namespace(client, SPACE)
            run = Soak(sandbox, client, api, hosts, fleet, random.Random(seed), faults)
            if fill:
                await run.fill(fill, gated=True)
            authority = sandbox.ca.read_bytes()
            webhook = webhooks.webhook_configuration(NAMESPACE, url=fleet.balancer.url, ca_bundle=authority)
            await client.apply(MUTATING_WEBHOOKS, webhook)
            await own_roles.until_asked(client)
            if fill:
                await run.fill(fill, gated=False)
            await run.run(minutes, per_second, every)
            run.problems += [f"logged: {line[:600]}" for line in fleet.bugs()]
    finally:
        await sandbox.delete()
    figures, grown = soakreport.judge(run.samples, busy_until=run.busy_until)
    run.problems += grown
    soakreport.show(figures, run.counts, run.faults, run.problems)
    soakreport.draw(picture, run.samples, run.faults)
    if run.problems:
        print(f"logs of the roles: {folder}", file=sys.stderr)
    return 1 if run.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--per-second", type=float, default=3.0, help="pods created (default 3)")
    parser.add_argument("--fault-every", type=float, default=60.0, help="seconds (default 60)")
    listed = f"of {','.join(NAMES)}; default all, and without the kills the roles live to the end"
    parser.add_argument("--faults", type=lambda text: text.split(","), default=NAMES, help=listed)
    parser.add_argument("--picture", type=Path, default=Path("docs/pictures/soak.svg"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fill", type=int, default=0, help="images to read before the churn: 11000 fill the caches")
    arguments = parser.parse_args()
    if unknown := set(arguments.faults) - set(NAMES):
        parser.error(f"no fault {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    return asyncio.run(
        soak(
            arguments.minutes,
            arguments.per_second,
            arguments.fault_every,
            arguments.picture,
            arguments.seed,
            arguments.faults,
            arguments.fill,
        )
    )


if __name__ == "__main__":
    sys.exit(main())
