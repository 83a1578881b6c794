"""What a gated pod costs in memory; what whole processes need is measured by ``python -m bench memory``."""

import json
import tracemalloc

import msgspec
import pytest
from placement_world import pod

from polyarch.objects import Pod
from polyarch.placement.pod_state import PodState

PODS = 2000
LIMIT = 3.5 * 1024


def stored(number: int) -> bytes:
    """A gated pod as an API server sends it: 8 KiB, most of it of no interest here."""
    document = pod("quay.io/team/app:1", name=f"web-5d4f8c7b96-{number:05}", gated=True)
    document["metadata"] |= {
        "uid": f"6f3c3c0e-0000-4000-8000-{number:012}",
        "resourceVersion": str(100_000 + number),
        "managedFields": [{"manager": "kube-controller-manager", "fieldsV1": {f"f:{at}": {} for at in range(200)}}],
        "ownerReferences": [{"kind": "ReplicaSet", "name": "web-5d4f8c7b96", "uid": f"u-{number}", "controller": True}],
    }
    [container] = document["spec"]["containers"]
    container["env"] = [{"name": f"SETTING_{at}", "value": f"{number}-{at}" * 4} for at in range(60)]
    return json.dumps(document).encode()


@pytest.mark.req("PL-810")
def test_a_gated_pod_takes_at_most_3_5_kib() -> None:
    decode = msgspec.json.Decoder(Pod).decode
    bodies = [stored(number) for number in range(PODS)]
    assert len(bodies[0]) > 6000
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        kept = {
            number: (decode(body), PodState(f"u-{number}", 0.5, standby_delay=1.0))
            for number, body in enumerate(bodies)
        }
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(kept) == PODS
    assert 500 < (after - before) / PODS <= LIMIT
