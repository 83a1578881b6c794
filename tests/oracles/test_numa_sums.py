"""What sums over a node count of a pod, against kube-scheduler's own ``PodRequests``: init containers
and sidecars, overhead, resources of the pod as a whole, and changes in place that are under way or can never be done.
"""

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from manager_histories import KubeletManagers

from polyarch.numa.fit.demand import PODS, whole_request
from polyarch.numa.fit.facts import PodObject, node_amounts, pod_facts

PODS_JUDGED = 3000
Json = dict[str, Any]


def amounts(chance: random.Random, *names: str) -> Json:
    every = {"cpu": ("500m", "1", "2", "3"), "memory": ("1Gi", "2Gi", "512Mi"), "example.com/nic": ("1", "2")}
    return {name: chance.choice(every[name]) for name in names if chance.random() < 0.8}


def random_pod(chance: random.Random) -> Json:
    names = ("cpu", "memory", "example.com/nic")
    init, apps, statuses, init_statuses = [], [], [], []
    for number in range(chance.randint(0, 3)):
        made: Json = {"name": f"init-{number}", "resources": {"requests": amounts(chance, *names)}}
        if chance.random() < 0.5:
            made["restartPolicy"] = "Always"
        init.append(made)
        if chance.random() < 0.4:
            init_statuses.append(status(chance, made["name"]))
    for number in range(chance.randint(1, 3)):
        apps.append({"name": f"app-{number}", "resources": {"requests": amounts(chance, *names)}})
        if chance.random() < 0.5:
            statuses.append(status(chance, f"app-{number}"))
    spec: Json = {"initContainers": init, "containers": apps}
    if chance.random() < 0.3:
        spec["overhead"] = amounts(chance, "cpu", "memory")
    said: Json = {"containerStatuses": statuses, "initContainerStatuses": init_statuses}
    if chance.random() < 0.3:
        spec["resources"] = {"requests": amounts(chance, "cpu", "memory")}
        if chance.random() < 0.5:
            said |= {"resources": {"requests": amounts(chance, "cpu", "memory")}}
            said |= {"allocatedResources": amounts(chance, "cpu", "memory")}
    if chance.random() < 0.4:
        reason = chance.choice(("Infeasible", "Deferred"))
        said["conditions"] = [{"type": "PodResizePending", "status": "True", "reason": reason}]
    return {"metadata": {"name": "a", "namespace": "b", "uid": "c"}, "spec": spec, "status": said}


def status(chance: random.Random, name: str) -> Json:
    made: Json = {"name": name}
    if chance.random() < 0.8:
        made["resources"] = {"requests": amounts(chance, "cpu", "memory")}
    if chance.random() < 0.8:
        made["allocatedResources"] = amounts(chance, "cpu", "memory")
    return made


@pytest.mark.req("NS-162")
def test_sums_count_of_a_pod_what_kube_scheduler_counts(peer: Callable[[str], str]) -> None:
    chance = random.Random(1)
    resized = 0
    with KubeletManagers(peer("kubelet-managers")) as program:
        bare = {
            "sockets": 1,
            "nodes": [{"node_id": 0, "memory": 1 << 30, "cores": [{"core_id": 0, "thread_ids": [0]}]}],
        }
        none = {"topologyPolicy": "none", "topologyScope": "container", "cpuPolicy": "none", "memoryPolicy": "None"}
        assert program.ask({"machine": bare, "configuration": none}) == []
        for _ in range(PODS_JUDGED):
            made = random_pod(chance)
            counted = node_amounts(program.ask({"do": "sum", "pod": made}).get("requests") or {})
            facts = pod_facts(msgspec.convert(made, PodObject))
            found = {name: amount for name, amount in whole_request(facts).items() if name != PODS}
            assert found == {name: amount for name, amount in counted.items() if amount}, made
            resized += facts.counted is not None or any(each.counted is not None for each in facts.containers)
    assert resized > PODS_JUDGED / 5
