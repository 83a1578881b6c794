"""Which DaemonSets are rolled out first, and when one has been."""

from typing import Any

import msgspec
import pytest

from polyarch.objects import DaemonSet
from polyarch.taints.daemonset_rollouts import in_rollout_order


def daemon_set(name: str = "shop/agent", *, strategy: str = "RollingUpdate", **status: int) -> DaemonSet:
    namespace, _, name = name.partition("/")
    metadata: dict[str, Any] = {"namespace": namespace, "name": name, "generation": 3}
    spec = {"updateStrategy": {"type": strategy}}
    return msgspec.convert({"metadata": metadata, "spec": spec, "status": status}, DaemonSet)


@pytest.mark.req("TN-051")
def test_network_and_volumes_come_before_everything_else() -> None:
    given = [
        "shop/agent",
        "a/logs",
        "z/calico-cni",
        "kube-system/zzz",
        "m/ebs-csi-node",
        "kube-system/dns",
        "b/network-x",
    ]
    assert [str(each.metadata.key) for each in in_rollout_order(map(daemon_set, given))] == [
        "b/network-x",
        "kube-system/dns",
        "kube-system/zzz",
        "m/ebs-csi-node",
        "z/calico-cni",
        "a/logs",
        "shop/agent",
    ]


DONE = {"observedGeneration": 3, "desiredNumberScheduled": 5, "updatedNumberScheduled": 5, "numberUnavailable": 0}


@pytest.mark.req("TN-051")
@pytest.mark.parametrize(
    ("change", "done"),
    [
        pytest.param({}, True, id="all pods are new and available"),
        pytest.param({"observedGeneration": 2}, False, id="its controller has not seen the template"),
        pytest.param({"updatedNumberScheduled": 4}, False, id="a pod is of the old template"),
        pytest.param({"numberUnavailable": 1}, False, id="a pod is not available"),
        pytest.param({"strategy": "OnDelete", "updatedNumberScheduled": 0}, True, id="the user replaces pods"),
    ],
)
def test_a_rollout_is_done_when_its_pods_are(change: dict[str, Any], done: bool) -> None:
    assert daemon_set(**{**DONE, **change}).is_rolled_out is done
