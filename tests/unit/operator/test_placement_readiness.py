"""``Ready`` of PodPlacementConfigs and of the PlacementPolicy, and values that count as absent."""

import msgspec
import pytest

from polyarch.operator.components import placement_status
from polyarch.placement.api import ClusterPodPlacementConfig, PlacementPolicy, PodPlacementConfig
from polyarch.placement.settings import SettingsTable

pytestmark = pytest.mark.req("PL-031", "PL-036", "PL-040")


def config(name, priority=0, **spec):
    return msgspec.convert(
        {"metadata": {"name": name, "namespace": "ns"}, "spec": {"priority": priority, **spec}}, PodPlacementConfig
    )


BROKEN = {"matchExpressions": [{"key": "a", "operator": "Near", "values": ["b"]}]}


@pytest.mark.req("PL-030", "PL-032", "PL-033")
def test_each_config_says_whether_it_counts():
    """Reasons ``Valid``, ``ShadowedByPriority``, ``InvalidLabelSelector``."""
    found = placement_status.of_configs(
        [config("b", 7), config("a", 7), config("c", 1), config("d", 2, labelSelector=BROKEN)]
    )
    assert {name: (each.type, each.status, each.reason) for name, each in found.items()} == {
        "a": ("Ready", "True", "Valid"),
        "b": ("Ready", "False", "ShadowedByPriority"),
        "c": ("Ready", "True", "Valid"),
        "d": ("Ready", "False", "InvalidLabelSelector"),
    }
    assert "PodPlacementConfig a has the same priority 7" in found["b"].message
    assert "Near" in found["d"].message


def compiled(configuration=None, **spec):
    policy = msgspec.convert({"metadata": {"name": "cluster"}, "spec": spec}, PlacementPolicy)
    return policy, SettingsTable.of(policy, configuration, operator_namespace="polyarch-system")


def entry(name, selector, **settings):
    return {"name": name, "namespaceSelector": selector, **settings}


FALLBACK = {"onUnresolved": {"action": "fallback"}}


@pytest.mark.req("PL-041", "PL-043")
@pytest.mark.parametrize(
    ("spec", "configured", "status", "reason"),
    [
        ({}, True, "True", "Valid"),
        ({}, False, "False", "NoClusterPodPlacementConfig"),
        (FALLBACK, True, "False", "FallbackArchitectureMissing"),
        (
            {"overrides": [entry("x", {"matchLabels": {"a": "b"}}, **FALLBACK)]},
            True,
            "False",
            "FallbackArchitectureMissing",
        ),
        (
            {"onUnresolved": {"action": "fallback", "fallbackArchitectures": ["amd64"]}},
            True,
            "True",
            "Valid",
        ),
        ({"overrides": [entry("x", BROKEN)]}, True, "False", "OverrideSelectorInvalid"),
        ({"overrides": [entry("x", {})]}, True, "False", "OverrideSelectorInvalid"),
    ],
    ids=[
        "valid",
        "placement is off",
        "no fallback",
        "no fallback in an override",
        "a fallback of its own",
        "a selector that does not parse",
        "a selector that is empty",
    ],
)
def test_the_policy_says_whether_it_counts(spec, configured, status, reason):
    found = placement_status.of_policy(compiled(**spec)[1], configured=configured)
    assert (found.type, found.status, found.reason) == ("Ready", status, reason)
    assert found.message or status == "True"


@pytest.mark.req("PL-041", "PL-232")
def test_the_configurations_fallback_serves_the_policy():
    configuration = msgspec.convert({"spec": {"fallbackArchitecture": "arm64"}}, ClusterPodPlacementConfig)
    assert placement_status.of_policy(compiled(configuration, **FALLBACK)[1], configured=True).reason == "Valid"


@pytest.mark.req("PL-041", "PL-750")
def test_values_that_count_as_absent_are_named():
    """Stored under an older schema."""
    found = placement_status.of_policy(compiled(mode="lenient")[1], configured=True)
    assert "spec.mode: 'lenient'" in found.message


@pytest.mark.req("PL-041", "PL-042")
def test_overrides_count_the_namespaces_they_are_the_first_to_match():
    policy, table = compiled(
        overrides=[
            entry("regulated", {"matchLabels": {"tier": "regulated"}}),
            entry("broken", BROKEN),
            entry("all", {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}),
        ]
    )
    namespaces = [{"tier": "regulated"}, {"tier": "regulated"}, {"tier": "free"}, {}]
    assert placement_status.matched(policy, table, namespaces) == [
        {"name": "regulated", "matchedNamespaces": 2},
        {"name": "broken", "matchedNamespaces": 0},
        {"name": "all", "matchedNamespaces": 1},
    ]


@pytest.mark.req("PL-750")
def test_overrides_that_an_older_schema_let_in_stop_no_status():
    policy, table = compiled(
        overrides=[None, {"name": ["all"], "namespaceSelector": {"matchLabels": {"tier": "free"}}}]
    )
    assert placement_status.matched(policy, table, [{"tier": "free"}]) == [{"name": "", "matchedNamespaces": 1}]


@pytest.mark.req("PL-750")
@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"logVerbosity": "Loud"}, ["spec.logVerbosity", "'Loud'", "Normal, Debug", "counts as Normal"]),
        ({"fallbackArchitecture": "mips"}, ["spec.fallbackArchitecture", "'mips'", "arm64", "counts as none"]),
        (
            {
                "plugins": {
                    "nodeAffinityScoring": {"enabled": True, "platforms": [{"architecture": "vax", "weight": 5}]}
                }
            },
            ["platforms[0].architecture", "'vax'"],
        ),
        (
            {
                "plugins": {
                    "nodeAffinityScoring": {"enabled": True, "platforms": [{"architecture": "arm64", "weight": 500}]}
                }
            },
            ["platforms[0].weight", "500", "1 to 100"],
        ),
    ],
    ids=["logVerbosity", "fallbackArchitecture", "architecture", "weight"],
)
def test_values_that_the_schema_no_longer_allows_are_named(spec, words):
    """The field's default applies, and Degraded names it."""
    (problem,) = placement_status.ignored_values(msgspec.convert({"spec": spec}, ClusterPodPlacementConfig))
    for word in words:
        assert word in problem


@pytest.mark.req("PL-750")
def test_a_valid_configuration_has_no_such_value():
    spec = {
        "logVerbosity": "TraceAll",
        "fallbackArchitecture": "",
        "plugins": {"nodeAffinityScoring": {"enabled": True, "platforms": [{"architecture": "arm64", "weight": 100}]}},
    }
    assert placement_status.ignored_values(msgspec.convert({"spec": spec}, ClusterPodPlacementConfig)) == ()
