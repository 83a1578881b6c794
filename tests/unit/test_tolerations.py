"""Which toleration covers which taint, and the toleration that polyarch writes."""

from typing import Any

import msgspec
import pytest

from polyarch.tolerations import Taint, Toleration, covers, is_passing, is_tolerated, tolerating, uncovered

SCHEDULE = Taint(key="supported-arch", value="arm64", effect="NoSchedule")
EXECUTE = Taint(key="supported-arch", value="arm64", effect="NoExecute")
BARE = Taint(key="dedicated", effect="NoSchedule")


@pytest.mark.req("TN-030")
@pytest.mark.parametrize(
    ("toleration", "taint", "expected"),
    [
        ({"operator": "Exists"}, SCHEDULE, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, SCHEDULE, True),
        ({"operator": "Exists", "effect": "NoExecute"}, SCHEDULE, False),
        ({"key": "supported-arch", "operator": "Exists"}, SCHEDULE, True),
        ({"key": "other", "operator": "Exists"}, SCHEDULE, False),
        ({"key": "supported-arch", "operator": "Equal", "value": "arm64"}, SCHEDULE, True),
        ({"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}, SCHEDULE, True),
        ({"key": "supported-arch", "value": "amd64"}, SCHEDULE, False),
        ({"key": "supported-arch"}, SCHEDULE, False),
        ({"key": "", "operator": "Equal", "value": "arm64"}, SCHEDULE, True),
        ({"key": "supported-arch", "operator": "In", "value": "arm64"}, SCHEDULE, False),
        ({"key": "dedicated"}, BARE, True),
        ({"key": "supported-arch", "value": "arm64", "effect": "NoExecute"}, EXECUTE, True),
        ({"key": "supported-arch", "value": "arm64", "tolerationSeconds": 300}, EXECUTE, False),
        ({"key": "supported-arch", "value": "arm64", "tolerationSeconds": 0}, EXECUTE, False),
        ({"operator": "Exists", "tolerationSeconds": 300}, SCHEDULE, True),
    ],
)
def test_which_toleration_covers_which_taint(toleration: dict[str, Any], taint: Taint, expected: bool) -> None:
    assert covers(msgspec.convert(toleration, Toleration), taint) is expected


@pytest.mark.req("TN-030")
@pytest.mark.parametrize(
    ("operator", "bound", "value", "expected"),
    [
        ("Gt", "950", "960", True),
        ("Gt", "950", "950", False),
        ("Lt", "950", "949", True),
        ("Lt", "-1", "-2", True),
        ("Lt", "5", "0", True),
        ("Gt", "950", "", False),
        ("Gt", "950", "high", False),
        ("Gt", "1.5", "2", False),
        ("Gt", "+1", "2", False),
        ("Gt", "01", "2", False),
        ("Gt", "-0", "2", False),
        ("Lt", "9223372036854775807", "1", True),
        ("Lt", "9223372036854775808", "1", False),
    ],
)
def test_a_comparing_toleration_covers_integers_beyond_its_own(operator, bound, value, expected) -> None:
    taint = Taint(key="sla", value=value, effect="NoSchedule")
    assert covers(Toleration(key="sla", operator=operator, value=bound), taint) is expected
    assert not covers(Toleration(key="other", operator=operator, value=bound), taint)


@pytest.mark.req("TN-067")
@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("node.kubernetes.io/not-ready", True),
        ("node.kubernetes.io/unschedulable", True),
        ("node.kubernetes.io/out-of-service", True),
        ("node.cloudprovider.kubernetes.io/uninitialized", True),
        ("node.cloudprovider.kubernetes.io/shutdown", True),
        ("node.cluster.x-k8s.io/uninitialized", True),
        ("ToBeDeletedByClusterAutoscaler", True),
        ("DeletionCandidateOfClusterAutoscaler", True),
        ("startup-taint.cluster-autoscaler.kubernetes.io/gpu", True),
        ("ignore-taint.cluster-autoscaler.kubernetes.io/net", True),
        ("karpenter.sh/unregistered", True),
        ("karpenter.sh/disrupted", True),
        ("readiness.k8s.io/network", True),
        ("node.cilium.io/agent-not-ready", True),
        ("ebs.csi.aws.com/agent-not-ready", True),
        ("cni.istio.io/not-ready", True),
        ("aws-node-termination-handler/spot-itn", True),
        ("dedicated", False),
        ("node.kubernetes.io/windows", False),
        ("node-role.kubernetes.io/control-plane", False),
        ("karpenter.sh/capacity", False),
        ("kubernetes.azure.com/scalesetpriority", False),
        ("nvidia.com/gpu", False),
    ],
)
def test_taints_that_go_away_by_themselves_say_nothing_of_a_pool(key: str, expected: bool) -> None:
    assert is_passing(Taint(key=key, effect="NoSchedule")) is expected


@pytest.mark.req("TN-030")
def test_one_of_several_tolerations_is_enough_and_none_covers_nothing() -> None:
    held = [Toleration(key="other", operator="Exists"), Toleration(key="supported-arch", operator="Exists")]
    assert is_tolerated(SCHEDULE, held)
    assert not is_tolerated(SCHEDULE, held[:1])
    assert not is_tolerated(SCHEDULE, None)


@pytest.mark.req("TN-032")
def test_what_is_uncovered_keeps_its_order() -> None:
    taints = [Taint("k", each, "NoSchedule") for each in ("s390x", "amd64", "arm64")]
    assert uncovered(taints, [Toleration(key="k", value="amd64")]) == (taints[0], taints[2])


@pytest.mark.req("TN-032")
def test_a_written_toleration_covers_its_taint_alone_and_names_its_operator() -> None:
    written = tolerating(EXECUTE)
    assert msgspec.to_builtins(written) == {
        "key": "supported-arch",
        "operator": "Equal",
        "value": "arm64",
        "effect": "NoExecute",
    }
    assert covers(written, EXECUTE)
    assert not covers(written, SCHEDULE)
