"""The simulated kubelet against a real one: both play the same random histories of machines and pods.

``POLYARCH_TEST_HISTORIES=1-100`` plays those of these seeds. The first step that differs is told, with the history
as far as it was played.
"""

import os
import sys

import pytest
from kubelet_histories import history
from kubelet_twins import told, twins

FIRST, _, LAST = os.environ.get("POLYARCH_TEST_HISTORIES", "").partition("-")
SEEDS = range(int(FIRST), int(LAST or FIRST) + 1) if FIRST else (2, 6)
STEPS = 30


@pytest.mark.req("NS-164")
@pytest.mark.timeout(300 + 600 * len(SEEDS))
async def test_real_and_simulated_kubelets_agree_on_random_histories(capsys: pytest.CaptureFixture[str]) -> None:
    """Verdicts with their messages, statuses of pods as users see them, resources of the node, and what containers
    hold: after every step."""
    differ: list[str] = []
    phases: set[str] = set()
    async with twins(f"tests-twins-{os.getpid()}", owner=os.getpid()) as both:
        for seed in SEEDS:
            made = history(seed, STEPS)
            found, played = await both.begin(f"history-{seed}", made.layout), 0
            while not found and played < STEPS:
                found = await both.play(made.steps[played])
                phases |= await both.phases()
                played += 1
            if found:
                differ.append("\n".join([f"seed {seed}", told(made, played), *found]))
            with capsys.disabled():
                said = "\n".join([f"differs after {played} steps", *found]) if found else f"agrees in {played} steps"
                sys.stdout.write(f"\nseed {seed}: {said}")
                sys.stdout.flush()
            await both.end()
    assert not differ, "\n\n".join(differ)
    assert phases >= {"Running", "Succeeded", "Failed"}
