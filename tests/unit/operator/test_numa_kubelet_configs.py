"""KubeletConfigs become what the exporters of a pool are told of their kubelets (NO §11)."""

import json
from typing import Any

import pytest
from numa_cluster import POOL_LABEL, Json, condition, found, nodes, planned, pool, settled

from polyarch.operator.components.numa_facts import ExporterPlan

SINGLE: Json = {"topologyManagerPolicy": "single-numa-node", "topologyManagerScope": "pod"}
RESTRICTED: Json = {"topologyManagerPolicy": "restricted"}


def kubelet_config(
    name: str, payload: Any, *pools: str, created: str = "2026-01-01T00:00:00Z", suffix: str = ""
) -> Json:
    annotations = {"machineconfiguration.openshift.io/mc-name-suffix": suffix} if suffix else {}
    keys = [f"{POOL_LABEL}{each}" for each in pools]
    expressions = [{"key": key, "operator": "Exists"} for key in keys]
    return {
        "metadata": {"name": name, "creationTimestamp": created, "annotations": annotations},
        "spec": {"kubeletConfig": payload, "machineConfigPoolSelector": {"matchExpressions": expressions}},
    }


def facts(*configurations: Json) -> Json:
    return {
        "platform": "openshift",
        "pools": (pool("left"), pool("right")),
        "nodes": nodes(),
        "kubelet_configs": configurations,
    }


def told(made: ExporterPlan, group: str) -> dict[str, str]:
    content = json.loads(found(made, "ConfigMap", f"numaresourcesoperator-{group}")["data"]["config.yaml"])
    kubelet: dict[str, str] = content["kubelet"]
    return kubelet


GROUPS = ({"poolName": "left"}, {"poolName": "right"})
DEFAULTS = {"topologyManagerPolicy": "none", "topologyManagerScope": "container"}


@pytest.mark.req("NO-110")
def test_every_pool_that_it_selects() -> None:
    """All of them, not the first."""
    everywhere = kubelet_config("all", SINGLE)
    made = planned(*GROUPS, **facts(everywhere))
    assert told(made, "left") == told(made, "right") == SINGLE


@pytest.mark.req("NO-110")
def test_by_the_labels_of_the_pool() -> None:
    """Missing keys are the kubelet's defaults."""
    made = planned(*GROUPS, **facts(kubelet_config("one", RESTRICTED, "left")))
    assert told(made, "left") == {"topologyManagerPolicy": "restricted", "topologyManagerScope": "container"}
    assert told(made, "right") == DEFAULTS


@pytest.mark.req("NO-111")
def test_deletion_returns_to_the_defaults() -> None:
    before, after = (planned(*GROUPS, **facts(*each)) for each in ([kubelet_config("one", SINGLE)], []))
    assert (told(before, "left"), told(after, "left")) == (SINGLE, DEFAULTS)


@pytest.mark.req("NO-111")
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"created": "2026-01-02T00:00:00Z"}, {"created": "2026-01-01T00:00:00Z"}),
        ({"suffix": "2"}, {"suffix": "1", "created": "2026-02-01T00:00:00Z"}),
        ({"suffix": "1"}, {}),
    ],
    ids=["newest", "highest number", "number over none"],
)
def test_of_several_the_newest_wins_and_a_message_says_so(first: Json, second: Json) -> None:
    """As in the machine-config operator."""
    wins, loses = kubelet_config("wins", SINGLE, **first), kubelet_config("loses", RESTRICTED, **second)
    for several in ((wins, loses), (loses, wins)):
        made = settled(*GROUPS[:1], **facts(*several))
        assert told(made, "left") == SINGLE
        said = condition(made, "Available")[2]
        assert "KubeletConfigs loses, wins are for pool left, and wins applies" in said


@pytest.mark.req("NO-112")
@pytest.mark.parametrize("payload", [None, {}, "text"], ids=["absent", "empty", "no object"])
def test_without_payload_it_is_ignored(payload: Any) -> None:
    made = planned(*GROUPS, **facts(kubelet_config("z", payload), kubelet_config("a", SINGLE)))
    assert told(made, "left") == SINGLE


@pytest.mark.req("NO-112")
def test_no_matching_pool_is_no_error() -> None:
    """Nor is a selector that is invalid."""
    invalid = kubelet_config("bad", SINGLE)
    invalid["spec"]["machineConfigPoolSelector"] = {"matchExpressions": [{"key": "a", "operator": "Gt"}]}
    made = planned(*GROUPS, **facts(kubelet_config("other", SINGLE, "master"), invalid))
    assert told(made, "left") == DEFAULTS
    assert not made.is_degraded


@pytest.mark.req("NO-110")
def test_a_policy_that_no_kubelet_knows() -> None:
    """Told, and taken as not set: an exporter would not start with it."""
    made = settled(*GROUPS[:1], **facts(kubelet_config("odd", {"topologyManagerPolicy": "tight"})))
    assert told(made, "left") == DEFAULTS
    assert "KubeletConfig odd has topologyManagerPolicy 'tight'" in condition(made, "Available")[2]


@pytest.mark.req("NO-110")
def test_node_pools_of_hypershift() -> None:
    """By the label of the ConfigMap that it was read from."""
    hosted = {
        "metadata": {"name": "pp-blue", "labels": {"hypershift.openshift.io/nodePool": "blue"}},
        "spec": {"kubeletConfig": SINGLE},
    }
    made = planned({"poolName": "blue"}, {"poolName": "green"}, platform="hypershift", kubelet_configs=(hosted,))
    assert (told(made, "blue"), told(made, "green")) == (SINGLE, DEFAULTS)


@pytest.mark.req("NO-113")
def test_the_change_reaches_the_pods() -> None:
    """By the digest in their template."""

    def hashed(*configurations: Json) -> str:
        made = planned(*GROUPS[:1], **facts(*configurations))
        return str(
            found(made, "DaemonSet")["spec"]["template"]["metadata"]["annotations"]["numa.polyarch.dev/config-hash"]
        )

    assert hashed() != hashed(kubelet_config("one", SINGLE))
    assert hashed(kubelet_config("one", SINGLE)) == hashed(kubelet_config("one", SINGLE))
