"""What a spec means: presets, modes and values that an older schema let through."""

from typing import Any

import pytest

from polyarch.platforms import KNOWN_ARCHITECTURES
from polyarch.selectors import NOTHING
from polyarch.taints.settings import TaintSettings


def compiled(**spec: Any) -> TaintSettings:
    return TaintSettings.of(spec)


@pytest.mark.req("TN-011")
@pytest.mark.parametrize(
    ("taint", "key", "ownership", "running"),
    [
        ({}, "supported-arch", "adopt", "tolerate"),
        ({"preset": "gke"}, "kubernetes.io/arch", "recorded", "skip"),
        ({"preset": "openshift"}, "multi-arch.openshift.io/arch", "recorded", "skip"),
        ({"preset": "custom", "key": "example.com/cpu"}, "example.com/cpu", "recorded", "skip"),
        ({"preset": "custom", "key": "supported-arch"}, "supported-arch", "adopt", "skip"),
        ({"preset": "custom", "key": "kubernetes.io/arch"}, "kubernetes.io/arch", "recorded", "skip"),
        ({"preset": "gke", "ownership": "adopt"}, "kubernetes.io/arch", "adopt", "skip"),
        (
            {"preset": "gke", "effect": "NoExecute", "acknowledgeEviction": True},
            "kubernetes.io/arch",
            "recorded",
            "tolerate",
        ),
    ],
)
def test_presets(taint: dict[str, Any], key: str, ownership: str, running: str) -> None:
    found = compiled(taint=taint)
    assert (found.key, found.ownership, found.running, found.problems) == (key, ownership, running, ())
    assert str(found.taint("arm64")) == f"{key}=arm64:{found.effect}"


@pytest.mark.req("TN-001", "TN-013")
@pytest.mark.parametrize(
    ("spec", "tainted"),
    [
        ({}, KNOWN_ARCHITECTURES - {"amd64"}),
        ({"mode": "tolerations"}, KNOWN_ARCHITECTURES),
        ({"mode": "both", "architectures": ["amd64", "arm64"]}, {"amd64", "arm64"}),
        ({"mode": "secondary-only", "architectures": ["amd64", "arm64"]}, {"arm64"}),
        ({"primaryArchitectures": ["arm64", "s390x"], "architectures": ["amd64", "arm64"]}, {"amd64"}),
    ],
)
def test_which_architectures_are_tainted(spec: dict[str, Any], tainted: set[str]) -> None:
    found = compiled(**spec)
    assert found.tainted == tainted
    assert all(found.is_tainted(each) == (each in tainted) for each in KNOWN_ARCHITECTURES)


@pytest.mark.req("TN-010")
@pytest.mark.parametrize(
    ("spec", "field", "value", "named"),
    [
        ({"mode": "all"}, "mode", "secondary-only", "spec.mode"),
        ({"taint": {"effect": "NoExecute"}}, "effect", "NoSchedule", "spec.taint.acknowledgeEviction"),
        ({"taint": {"preset": "custom"}}, "key", "supported-arch", "spec.taint.key"),
        ({"architectures": ["arm64", "aarch64"]}, "given", {"arm64"}, "aarch64"),
        ({"pods": {"gateTimeout": "soon"}}, "gate_timeout", 300.0, "spec.pods.gateTimeout"),
        ({"nodes": {"perMinute": 1000}}, "per_minute", 60, "between 1 and 600"),
        ({"nodes": {"perMinute": "60"}}, "per_minute", 60, "write one from 1 to 600 without quotes"),
        ({"pods": {"gateTimeout": 30}}, "gate_timeout", 300.0, "write a duration such as 30s"),
        ({"pods": {"gateTimeout": "2h"}}, "gate_timeout", 300.0, "10s to 1h"),
        ({"nodes": {"selector": {"matchLabels": {"a b": ""}}}}, "node_selector", NOTHING, "it selects nothing"),
        ({"nodes": "all"}, "rollout", "safe", "spec.nodes: must be an object"),
        ({"primaryArchitectures": ["arm64", "vax"]}, "primary", {"arm64"}, "it is left out"),
        ({"primaryArchitectures": ["vax"]}, "primary", {"amd64"}, "it counts as absent"),
        ({"pods": {"excludeNamespaces": ["*", "kube-*"]}}, "excluded_namespaces", ("kube-*",), "state: paused"),
        ({"compatibility": [{"node": "arm64"}]}, "compatibility", (), "spec.compatibility[0].runs: is required"),
    ],
)
def test_a_value_that_means_nothing_is_replaced_and_named(
    spec: dict[str, Any], field: str, value: Any, named: str
) -> None:
    found = compiled(**spec)
    assert getattr(found, field) == value
    assert len(found.problems) == 1
    assert named in found.problems[0]
