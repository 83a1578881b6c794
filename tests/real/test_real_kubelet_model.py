"""The simulated kubelet against a real one: both play the same random histories of machines and pods.

``POLYARCH_TEST_HISTORIES=100`` plays those of the seeds 1 to 100. The first step that differs is told, with the history
as far as it was played.
"""

import os

import pytest
from kubelet_histories import history
from kubelet_twins import told, twins

HISTORIES = int(os.environ.get("POLYARCH_TEST_HISTORIES", "0"))
SEEDS = range(1, HISTORIES + 1) if HISTORIES else (2, 6)
STEPS = 30


@pytest.mark.req("NS-164")
@pytest.mark.timeout(300 + 600 * len(SEEDS))
async def test_real_and_simulated_kubelets_agree_on_random_histories() -> None:
    """Verdicts with their messages, statuses of pods as users see them, resources of the node, and what containers
    hold: after every step."""
    differ: list[str] = []
    phases: set[str] = set()
    async with twins(f"tests-twins-{os.getpid()}", owner=os.getpid()) as both:
        for seed in SEEDS:
            made = history(seed, STEPS)
            print(f"seed {seed}: {made.layout}")  # noqa: T201 - to be played again
            found, played = await both.begin(f"history-{seed}", made.layout), 0
            while not found and played < STEPS:
                found = await both.play(made.steps[played])
                phases |= await both.phases()
                played += 1
            if found:
                differ.append("\n".join([f"seed {seed}", told(made, played), *found]))
            await both.end()
    assert not differ, "\n\n".join(differ)
    assert phases >= {"Running", "Succeeded", "Failed"}
