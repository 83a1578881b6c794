"""``python -m bench.soak``: run the soak, print its table, draw the memory; exit code 1 if anything is wrong."""

import argparse
import asyncio
import random
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import structlog
from fault_installation import FailedOpen

from bench.soak import __doc__ as description
from bench.soak import builds, cells, fill, pods, report, shop
from bench.soak.builds import Builds
from bench.soak.cells import Cells
from bench.soak.faults import NAMES, Faults
from bench.soak.pods import Pods
from bench.soak.report import Requests
from bench.soak.roles import STOCK, Roles
from bench.soak.shop import Shop
from bench.soak.stage import PUBLIC, Stage
from bench.soak.trial import Trial
from polyarch.kube.resources import NAMESPACES
from polyarch.sandbox.tasks import until

IDLE: Final = 12.0
"""Seconds before the churn, for the reference samples."""
REST: Final = 60.0
"""Seconds after all has settled in which requests are counted; idle connections are closed meanwhile."""
SPACES: Final = (pods.SPACE, shop.SPACE, cells.SPACE, builds.SPACE)
GONE_SECONDS: Final = 180.0


class Soak:
    """One run: churn under faults, then rest, then nothing."""

    def __init__(self, trial: Trial, stage: Stage, roles: Roles) -> None:
        self._trial, self._stage, self._roles = trial, stage, roles
        self._pods = Pods(trial, stage)
        self._shop = Shop(trial, stage)
        self._cells = Cells(trial, stage)
        self._builds = Builds(trial, stage)
        self._faults = Faults(trial, stage, roles)
        self._parts = (self._pods, self._shop, self._cells, self._builds)
        self.busy_until = 0.0
        self.requests: dict[str, Requests] = {}

    @property
    def injected(self) -> list[tuple[float, str]]:
        return self._faults.injected

    async def run(self, arguments: argparse.Namespace) -> None:
        for part in self._parts:
            await part.prepare()
        if arguments.fill:
            await self._fill(arguments.fill)
        failed_open = FailedOpen(self._stage.sandbox)
        if not await self._roles.ready(seconds=120):
            self._trial.problem("stuck", "not all roles are ready at the beginning")
        async with self._pods.watched(), self._shop.watched():
            self._trial.began = time.monotonic()
            sampling = asyncio.create_task(self._roles.watch(lambda: self._pods.gated))
            looking = asyncio.create_task(self._look())
            try:
                await asyncio.sleep(IDLE)
                await self._churn(arguments)
                await self._settle(failed_open)
                await self._rest()
            finally:
                for task in (sampling, looking):
                    task.cancel()
                for result in await asyncio.gather(sampling, looking, return_exceptions=True):
                    if isinstance(result, Exception):
                        raise result

    async def _fill(self, count: int) -> None:
        """Readings for the controllers and the webhooks up to their bound, so that what grows afterwards is a leak."""
        await fill.push(self._stage.sandbox.registry.address, f"soak/{PUBLIC}", count, pods.PLATFORMS[0])
        await fill.ask(self._trial.client, pods.SPACE, [f"{PUBLIC}/fill{at}:1" for at in range(count)], gated=False)

    async def _look(self) -> None:
        while True:
            self._pods.look()
            await asyncio.sleep(2)

    async def _churn(self, arguments: argparse.Namespace) -> None:
        self._roles.read_audit()
        before, began = self._roles.total(), self._trial.now
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pods.churn(arguments.per_second))
            tasks.create_task(self._pods.change())
            tasks.create_task(self._shop.churn())
            tasks.create_task(self._cells.churn())
            tasks.create_task(self._builds.churn())
            tasks.create_task(self._faults.disturb(arguments.faults, arguments.fault_every))
            await asyncio.sleep(arguments.minutes * 60)
            self._trial.churning = False
        self.busy_until = self._trial.now
        self._roles.read_audit()
        minutes = (self._trial.now - began) / 60
        sent = self._roles.total() - before
        self.requests = {role: Requests(count / minutes, 0.0) for role, count in sent.items()}
        self._trial.say(f"churn is over; {self._pods.gated} pods are gated")

    async def _settle(self, failed_open: FailedOpen) -> None:
        """Everything comes to its end."""
        await self._stage.resize(0)
        if not await self._roles.ready(seconds=300):
            wrong = {key: why for key, why in (await self._stage.sandbox.container_problems()).items() if why}
            self._trial.problem("stuck", f"containers of polyarch that do not become ready: {wrong}")
        for part in self._parts:
            await part.settle()
        if untainted := await self._stage.untainted():
            self._trial.problem("stuck", f"nodes without their taint: {', '.join(untainted)}")
        given_up = len(failed_open.reasons())
        self._trial.counts["reviews that the API server gave up"] = given_up
        if len(self._pods.unseen) > given_up:
            self._trial.problem(
                "wrong", f"{len(self._pods.unseen)} pods that no webhook saw, {given_up} reviews were given up"
            )

    async def _rest(self) -> None:
        """Nothing happens."""
        await asyncio.sleep(report.SETTLE)
        self._roles.read_audit()
        before, kinds = self._roles.total(), Counter(self._roles.requests)
        await asyncio.sleep(REST)
        self._roles.read_audit()
        after = self._roles.total() - before
        for role in {*self.requests, *after}:
            busy = self.requests.get(role, Requests(0.0, 0.0)).busy
            self.requests[role] = Requests(busy, after[role] * 60 / REST)
        self._trial.say(f"at rest: {dict((self._roles.requests - kinds).most_common(12))}")

    async def end(self) -> None:
        """The namespaces go, then polyarch; nothing is left."""
        client = self._trial.client
        for name in SPACES:
            await client.delete(NAMESPACES, name)

        async def are_gone() -> bool:
            found = {each["metadata"]["name"] for each in (await client.list(NAMESPACES)).items}
            return not found & set(SPACES)

        if not await until(are_gone, seconds=GONE_SECONDS, every=1.0):
            self._trial.problem("stuck", "namespaces of the soak that are not gone")
        for left in await self._stage.removed(self._trial.say):
            self._trial.problem("orphan", left)


async def soak(arguments: argparse.Namespace) -> int:
    """Exit code. The table is printed however the soak ends."""
    folder = Path(tempfile.mkdtemp(prefix="polyarch-soak-"))
    async with Stage.opened(folder, arguments.nodes, arguments.replicas, cells.NUMA) as stage:
        trial = Trial(stage.client, random.Random(arguments.seed))
        async with Roles.opened(trial, stage) as roles:
            run = Soak(trial, stage, roles)
            try:
                await run.run(arguments)
            except BaseException:
                tell(run, trial, roles, arguments.picture)
                raise
        try:
            await run.end()
        finally:
            code = tell(run, trial, roles, arguments.picture)
    return code


def tell(run: Soak, trial: Trial, roles: Roles, picture: Path) -> int:
    """The table and the picture; the exit code."""
    samples = [each for each in roles.samples if each.role != STOCK]
    verdicts, grown = report.judge(samples, busy_until=run.busy_until or float("inf"))
    for text in grown:
        trial.problem("process", text)
    requests = {role: each for role, each in run.requests.items() if role != STOCK}
    for text in report.restless(requests):
        trial.problem("requests", text)
    report.show(verdicts, requests, trial.counts, run.injected, trial.problems)
    report.draw(picture, samples, run.injected)
    return 1 if trial.problems else 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--per-second", type=float, default=2.0, help="pods created (default 2)")
    parser.add_argument("--nodes", type=int, default=1, help="of each of four architectures (default 1)")
    parser.add_argument("--replicas", type=int, default=2, help="of each role (default 2)")
    parser.add_argument("--fault-every", type=float, default=60.0, help="seconds (default 60)")
    parser.add_argument("--faults", type=lambda text: text.split(","), default=NAMES, help=f"of {','.join(NAMES)}")
    parser.add_argument("--picture", type=Path, default=Path("docs/pictures/soak.svg"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--fill", type=int, default=0, help="images to read before the churn: 11000 fill the caches")
    arguments = parser.parse_args()
    if unknown := set(arguments.faults) - set(NAMES):
        parser.error(f"no fault {', '.join(sorted(unknown))}; there are {', '.join(NAMES)}")
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    return asyncio.run(soak(arguments))


if __name__ == "__main__":
    sys.exit(main())
