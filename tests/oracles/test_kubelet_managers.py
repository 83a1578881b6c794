"""The kubelet model against the kubelet itself: its CPU, memory and topology managers, linked into a Go program
(``tools/peers/managers``), and the model play the same random cases."""

import json
import random
import subprocess
from collections import Counter
from collections.abc import Callable

import pytest
from kubelet_chances import alike, play

CASES = 250
SEEDS = range(2)


@pytest.mark.req("NS-164")
@pytest.mark.parametrize("seed", SEEDS)
def test_the_model_decides_as_the_kubelets_own_managers(peer: Callable[[str], str], seed: int) -> None:
    """Verdict, message and both state files after every step: pods admitted and ended, containers created, restarts.

    Once in some thousand steps the kubelet cannot start with what it has written itself (its memory manager counts what
    init containers left in another way then); a case ends there.
    """
    program = peer("kubelet-managers")
    played = [play(random.Random(seed * CASES + number)) for number in range(CASES)]
    asked = "".join(f"{json.dumps(case)}\n" for case, _ in played)
    answered = subprocess.run([program], input=asked, capture_output=True, text=True, timeout=240, check=False)
    assert answered.returncode == 0, answered.stderr
    reasons: Counter[str] = Counter()
    for line, (case, expected) in zip(answered.stdout.splitlines(), played, strict=True):
        found = json.loads(line)
        assert not [each for each in found if each.pop("devices", None)], "no case has devices"
        reasons.update(each["reason"] for each in found)
        if found[-1]["reason"] == "CannotStart":
            expected = expected[: len(found) - 1]
            found.pop()
        assert [alike(each) for each in found] == [alike(each) for each in expected], json.dumps(case)
    assert reasons.keys() >= {"", "TopologyAffinityError", "UnexpectedAdmissionError", "SMTAlignmentError"}
