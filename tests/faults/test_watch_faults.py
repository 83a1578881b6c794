"""Whatever a watch delivers or does not, every pod is released once and rightly."""

from collections.abc import Iterator

import pytest
from fault_proxy import CUT, Answer, Fault, Lines, Seen, gone_event, status
from placement_cluster import until

pytestmark = pytest.mark.req("KR-040", "KR-041", "PL-304")

PODS = 60


def pod_watches(seen: Seen) -> bool:
    return seen.watch and seen.path.endswith("/pods")


class Every:
    """Says yes to every n-th line, over all watches."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._count = 0

    def __call__(self) -> bool:
        self._count += 1
        return self._count % self._number == 0


def torn_in_mid_line() -> Lines:
    due = Every(20)
    return Lines(lambda line: [CUT] if due() else [line])


def gone_as_an_event() -> Lines:
    due = Every(25)
    return Lines(lambda line: [line, gone_event()] if due() else [line])


def twice() -> Lines:
    return Lines(lambda line: [line, line])


class Reordered:
    """Holds a line back until one about another object has passed."""

    def __init__(self) -> None:
        self._held: bytes | None = None

    def __call__(self, line: bytes) -> Iterator[bytes]:
        if self._held is None and b'"ADDED"' in line:
            self._held = line
            return
        yield line
        if self._held is not None:
            held, self._held = self._held, None
            yield held


def out_of_order() -> Lines:
    return Lines(Reordered())


def gone_as_a_status() -> Answer:
    return status(410, "Expired")


async def hit(fault: Fault, *, replicas: int) -> None:
    """Until the watch of each replica has met the fault; after earlier ones it may take a while to come back."""

    async def all_have() -> bool:
        return fault.hits >= replicas

    await until(all_have, seconds=60)


SCENARIOS = {
    "watch: EOF in mid-line": torn_in_mid_line,
    "watch: 410 as an event": gone_as_an_event,
    "watch: 410 as a status": gone_as_a_status,
    "watch: every event twice": twice,
    "watch: events of objects reordered": out_of_order,
}


@pytest.mark.parametrize("scenario", SCENARIOS)
async def test_pods_are_released_once_whatever_the_watch_does(faults, told, scenario):
    images = await faults.seed("steady", 6)
    action = SCENARIOS[scenario]()
    times = 6 if isinstance(action, Answer) else None
    async with faults.crowd() as crowd:
        fault = faults.api.inject(pod_watches, action, times=times)
        faults.api.tear()  # the watches that stand know nothing of the fault
        await hit(fault, replicas=2)
        await crowd.create(images, PODS)
        await crowd.released(seconds=60)
        faults.api.withdraw(fault)
        row = told(await crowd.row(scenario, registry=[faults.hosts["steady"]], note=f"{fault.hits} watches hit"))
    assert row.sound, row
    assert row.released == PODS
    assert row.registry_requests <= 2 * len(images), "one request for each image and process"
