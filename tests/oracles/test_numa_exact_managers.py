"""Mode exact against the kubelet itself: for every pod of random histories, what we say of what the node's exporter
would publish, and what the kubelet's own topology, CPU, memory and device managers (``tools/peers/managers``) then do.

Kubelets of the newest Kubernetes and of the oldest that is supported, with every policy and scope, and with the options
of ``manager_histories.CPU_OPTIONS``, ``prefer-closest-numa-nodes`` and ``max-allowable-numa-nodes``. The kubelet
chooses what is there when the next pod comes, and no model of it.

Compared is whether the pod is admitted and, of pods that are, from which zones their CPUs come. Where the memory and
the devices come from is compared only as far as the verdicts about the next pods depend on it.

Not played, so that nothing here says anything of it: in-place resizes, pod-level managers, machines with uncore caches
(the option is set, and finds none), devices of several zones (each of these lists them, and no object says so),
zones without CPUs, more than four zones, and other combinations of CPU manager options than those listed.
Differences that no object could have told are allowed up to ``EXCUSED``; ``Verdict.is_excused`` names them.
"""

import random
from collections import Counter
from collections.abc import Callable
from typing import Final

import manager_histories
import msgspec
import pytest
import scheduling_chances as chances
from manager_histories import KubeletManagers, Verdict

from polyarch.sandbox.kubelet_model.machine import TopologyPolicy

PROGRAMS: Final = {"1.36": "kubelet-managers", "1.30": "kubelet-managers-1.30"}
HISTORIES: Final = {"some": 110, "many": 4000}
"""For each version and policy."""
EXCUSED: Final = 0.01
"""Of all: other verdicts than the kubelet's where ``is_excused`` says what no object tells."""
MISPLACED: Final = 0.04
"""Of what fits: CPUs that are of other zones than was said, of pods for which zones are no promise or that have init
containers, since no object says which CPUs are free."""


@pytest.mark.req("NS-164")
@pytest.mark.parametrize("version", PROGRAMS)
@pytest.mark.parametrize("policy", chances.POLICIES)
@pytest.mark.parametrize("amount", HISTORIES)
def test_a_verdict_is_what_the_kubelets_own_managers_then_do(
    peer: Callable[[str], str],
    record_property: Callable[[str, object], None],
    version: str,
    policy: TopologyPolicy,
    amount: str,
) -> None:
    found: list[Verdict] = []
    with KubeletManagers(peer(PROGRAMS[version])) as managers:
        for seed in range(HISTORIES[amount]):
            chance = random.Random(f"{policy} {version} {seed}")
            played = manager_histories.played_node(chance, policy, version)
            scope = played.node.configuration.topology_scope
            steps, verdicts = manager_histories.play(
                managers, chance, played, f"{version} {policy}/{scope} seed {seed}"
            )
            wrong = next((each for each in verdicts if each.differs and not each.is_excused), None)
            if wrong is not None:
                fewest, last = manager_histories.shrunk(managers, played, steps, wrong.pod.name)
                pytest.fail(f"{wrong.place}: {last.differs} ({last.message})\n{last.described(fewest)}")
            found += verdicts
    record_property("verdicts", dict(Counter(each.kind for each in found)))
    fits = [each for each in found if not each.reason]
    assert len(found) / 5 < len(fits) < len(found) * 4 / 5, "one of the two verdicts is hardly ever given"
    assert sum(bool(each.differs) for each in found) <= len(found) * EXCUSED
    misplaced = [each for each in fits if each.misplaced]
    assert len(misplaced) <= len(fits) * MISPLACED, [(each.place, each.misplaced) for each in misplaced]
    assert not [each.place for each in misplaced if each.is_sure]
    options = {name for each in found for name in (*each.played.cpu_options, *each.played.topology_options)}
    assert options == manager_histories.options_of(version, policy)


@pytest.mark.req("NS-164")
def test_a_difference_is_shrunk_to_the_pods_that_matter(peer: Callable[[str], str]) -> None:
    """A history of a node whose object says nothing of what is used: the first pods are what matters."""
    with KubeletManagers(peer(PROGRAMS["1.36"])) as managers:
        for seed in range(300):
            chance = random.Random(f"blind {seed}")
            played = manager_histories.played_node(chance, "single-numa-node", "1.36")
            blind = msgspec.structs.replace(played, is_blind=True)
            steps, verdicts = manager_histories.play(managers, chance, blind, f"seed {seed}")
            wrong = next((each for each in verdicts if each.differs), None)
            if wrong is not None and len(steps) > 6:
                fewest, last = manager_histories.shrunk(managers, blind, steps, wrong.pod.name)
                assert last.differs
                assert len(fewest) < len(steps) / 2
                return
    pytest.fail("no history differed")
