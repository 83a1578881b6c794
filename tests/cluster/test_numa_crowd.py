"""NS-172 on a small scale: a backlog through the real kube-scheduler, judged by the kubelet model of every node.

``python -m bench cells`` has the figures, on a thousand nodes.
"""

import pytest
from bench.cell_scheduling import measured

NODES, PODS = 25, 250


@pytest.mark.req("NS-172")
@pytest.mark.timeout(900)
async def test_a_backlog_is_bound_without_a_refusal_and_nobody_waits_for_nothing():
    found = await measured("exact", lambda _: None, nodes=NODES, pods=PODS)
    figures = {each.name.removeprefix("exact: "): each.value for each in found}
    assert figures["refused by kubelets"] == 0
    assert figures["falsely waiting"] == 0
    assert figures["falsely waiting after a tenth went"] == 0
    assert figures["pods bound"] > 0
    assert figures["bound again after a tenth went"] > 0
