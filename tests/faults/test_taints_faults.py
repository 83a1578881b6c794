"""Whatever the API server and the registry do to the role ``taints``, and wherever it is killed: nodes,
DaemonSets and pods are as after a run that nothing disturbed."""

import asyncio

import pytest
from fault_installation import restart_api_server
from fault_proxy import Answer, Lines, Seen, status
from fault_table import Row
from fault_taints import IMAGES, MISSING, Estate, TaintFaults, unexpected
from placement_cluster import until
from test_watch_faults import gone_as_a_status, gone_as_an_event, torn_in_mid_line

HEALS_SECONDS = 10.0
BUSY = 4.0
"""So many times longer may it take where other programs use the processors."""
OUTAGE_SECONDS = 30.0
PATIENT_SECONDS = 60.0
"""A ``gateTimeout`` that outlives the registry's outage: what a fallback adds cannot be taken back."""


async def outcome(faults: TaintFaults, estate: Estate, scenario: str, told, note=lambda: "") -> Row:
    """Waits for the end of a scenario, tells its row, and checks it."""
    state = await estate.settled(estate.is_as_undisturbed)
    row = told(await estate.row(scenario, state, note=note()))
    assert row.sound, (row, unexpected(state))
    assert state == faults.undisturbed
    assert row.released == row.pods == 2 * 3 * (len(IMAGES) + 1)
    return row


def not_a_watch(seen: Seen) -> bool:
    return not seen.watch and "/leases/" not in seen.path


def patches(kind: str):
    return lambda seen: seen.method == "PATCH" and f"/{kind}/" in seen.path


@pytest.mark.req("TN-092")
async def test_what_nothing_disturbs_is_as_expected(taint_faults, told):
    assert ", ".join(unexpected(taint_faults.undisturbed)) == ""
    async with taint_faults.scenario() as estate:
        await taint_faults.start()
        await estate.switch_on()
        await outcome(taint_faults, estate, "no fault", told)


@pytest.mark.req("TN-092")
@pytest.mark.parametrize(
    ("scenario", "action"),
    [
        ("watch: EOF in mid-line", torn_in_mid_line),
        ("watch: 410 as an event", gone_as_an_event),
        ("watch: 410 as a status", gone_as_a_status),
    ],
)
async def test_watches_that_break(taint_faults, told, scenario, action):
    async with taint_faults.scenario() as estate:
        happens: Lines | Answer = action()
        limited = 6 if isinstance(happens, Answer) else None
        fault = taint_faults.api.inject(lambda seen: seen.watch, happens, times=limited)
        await taint_faults.start()
        await estate.switch_on()
        await outcome(taint_faults, estate, scenario, told, lambda: f"{fault.hits} watches")
        assert fault.hits


@pytest.mark.req("TN-092")
async def test_three_conflicts_with_each_kind_of_write(taint_faults, told):
    async with taint_faults.scenario() as estate:
        kinds = ("nodes", "daemonsets", "pods")
        await taint_faults.start()
        conflicts = [taint_faults.api.inject(patches(kind), status(409, "Conflict"), times=3) for kind in kinds]
        await estate.switch_on()

        def hits() -> str:
            return ", ".join(f"{each.hits} of {kind}" for kind, each in zip(kinds, conflicts, strict=True))

        await outcome(taint_faults, estate, "409 three times", told, hits)
        assert [each.hits for each in conflicts] == [3, 3, 3]


@pytest.mark.req("TN-092")
@pytest.mark.parametrize(
    ("scenario", "answer"),
    [
        ("429 with Retry-After", status(429, "TooManyRequests", retry_after=1)),
        ("500", status(500, "InternalError")),
        ("503", status(503, "ServiceUnavailable")),
    ],
)
async def test_an_api_server_that_refuses(taint_faults, told, scenario, answer):
    async with taint_faults.scenario() as estate:
        await taint_faults.start()
        storm = taint_faults.api.inject(not_a_watch, answer, times=60)
        await estate.switch_on()
        await outcome(taint_faults, estate, scenario, told, lambda: f"{storm.hits} answers")
        assert storm.hits


@pytest.mark.req("TN-092")
async def test_a_registry_that_is_down_for_30_s(taint_faults, told):
    """Pods whose images it has wait under the gate, and get what they would have got."""
    async with taint_faults.scenario(gate_seconds=PATIENT_SECONDS) as estate:
        async with taint_faults.registry.refusing():
            await taint_faults.start()
            await estate.switch_on()
            await asyncio.sleep(OUTAGE_SECONDS)
        await outcome(taint_faults, estate, "registry down for 30 s", told)


@pytest.mark.req("TN-092")
async def test_killed_at_every_step_of_a_rollout(taint_faults, told):
    """At each step once after the API server carried the write out, and once before it saw it."""
    mortal = taint_faults.mortal
    async with taint_faults.scenario() as estate:
        await estate.switch_on()
        mortal.killed_at.clear()

        async def is_done() -> bool:
            return estate.is_as_undisturbed(await estate.state())

        await mortal.killed_until(is_done)
        await outcome(taint_faults, estate, "killed at every step of a rollout", told, lambda: mortal.note)
    assert {"PATCH nodes", "PATCH daemonsets", "PATCH pods"} <= set(mortal.killed_at)


@pytest.mark.req("TN-043")
async def test_pods_created_while_the_role_is_dead_are_healed_within_10_s(taint_faults, told):
    """``failurePolicy: Ignore``: they are created without tolerations, and nobody has to create them again."""
    async with taint_faults.scenario() as estate:
        await taint_faults.start()
        await estate.configure()
        await estate.settled(lambda state: not [each for each in unexpected(state) if "new-" not in each])
        await taint_faults.mortal.kill()
        await estate.populate("new")
        missed = [name for name, pod in (await estate.state())["pods"].items() if not pod["tolerations"]]
        await taint_faults.start()
        began = asyncio.get_running_loop().time()
        await estate.settled(
            lambda state: all(state["pods"][name]["tolerations"] for name in missed if MISSING not in name)
        )
        healed = asyncio.get_running_loop().time() - began
        note = f"{len(missed)} pods missed, healed {healed:.1f} s after the start"
        await outcome(taint_faults, estate, "dead while pods are created", told, lambda: note)
    assert missed
    assert healed <= HEALS_SECONDS * BUSY, note


@pytest.mark.req("TN-092")
async def test_an_api_server_that_is_restarted_while_nodes_are_tainted(taint_faults, told):
    async with taint_faults.scenario() as estate:
        await taint_faults.start()
        written = taint_faults.api.count(patches("nodes"))
        await estate.configure()

        async def has_begun() -> bool:
            return taint_faults.api.count(patches("nodes")) > written

        await until(has_begun, seconds=60)
        tainted = taint_faults.api.count(patches("nodes")) - written
        await restart_api_server(taint_faults.sandbox, away=3.0)
        await estate.populate("new")
        note = f"{tainted} nodes written before it"
        await outcome(taint_faults, estate, "API server killed for 3 s while nodes are tainted", told, lambda: note)
