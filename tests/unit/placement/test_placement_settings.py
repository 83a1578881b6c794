"""Settings of a namespace, from defaults, policy and overrides."""

from typing import Any

import msgspec
import pytest

from polyarch.durations import InvalidDuration, format_duration, parse_duration
from polyarch.placement.api import ClusterPodPlacementConfig, PlacementPolicy
from polyarch.placement.settings import Settings, SettingsTable

pytestmark = pytest.mark.req("PL-044", "PL-520")


def table(spec: dict[str, Any] | None, fallback: str = "") -> SettingsTable:
    """The table for a policy with this spec and a CPPC with this fallback architecture."""
    cppc = msgspec.convert({"spec": {"fallbackArchitecture": fallback}}, ClusterPodPlacementConfig)
    policy = (
        msgspec.convert({"metadata": {"name": "cluster"}, "spec": spec}, PlacementPolicy) if spec is not None else None
    )
    return SettingsTable.of(policy, cppc, operator_namespace="polyarch-system")


def override(name: str, labels: dict[str, str], **members: Any) -> dict[str, Any]:
    return {"name": name, "namespaceSelector": {"matchLabels": labels}, **members}


@pytest.mark.req("PL-040")
def test_without_a_policy_the_defaults_apply() -> None:
    settings = SettingsTable.of(None, None, operator_namespace="polyarch-system").of_namespace({})
    assert settings == Settings(operator_namespace="polyarch-system")
    assert (settings.mode, settings.unresolved_action, settings.retry_window) == ("enforce", "release", 120.0)
    assert (settings.inline_enabled, settings.inline_budget, settings.os_constraint) == (True, 0.1, "auto")
    assert (settings.node_aware, settings.pod_opt_out, settings.events) == ("off", "allowed", "lean")
    assert (settings.sweep_action, settings.sweep_scope, settings.sweep_interval) == ("report", "pending", 600.0)
    assert (settings.sweep_min_age, settings.sweep_max_evictions_per_minute) == (120.0, 10)
    assert (settings.warm_up_enabled, settings.warm_up_images_per_minute) == (False, 60)
    assert set(settings.warm_up_kinds) == {"Deployment", "StatefulSet", "DaemonSet", "CronJob"}
    assert (settings.images_stale_for, settings.images_secret_access) == (6 * 3600.0, "byName")
    assert settings.images_share_readings
    assert (settings.report_enabled, settings.report_interval) == (False, 3600.0)


@pytest.mark.req("PL-040")
def test_every_leaf_field_is_read() -> None:
    spec = {
        "mode": "audit",
        "onUnresolved": {"action": "hold", "retryWindow": "5m", "fallbackArchitectures": ["386"], "holdLimit": "12h"},
        "inline": {"enabled": False, "budget": "1.5s"},
        "osConstraint": "always",
        "nodeAware": {"mode": "narrow", "assumeArchitectures": ["s390x", "arm64"]},
        "excludedNamespaces": ["build-cache", "vendor-*"],
        "podOptOut": "forbidden",
        "events": "full",
        "sweep": {"action": "evict", "scope": "all", "interval": "1h", "minAge": "30s", "maxEvictionsPerMinute": 3},
        "warmUp": {"enabled": True, "kinds": ["CronJob"], "imagesPerMinute": 600},
        "images": {"staleFor": "0s", "secretAccess": "none", "shareReadings": False},
        "report": {"enabled": True, "interval": "24h"},
    }
    read = table(spec)
    assert read.problems == ()
    assert read.spec == Settings(
        mode="audit",
        action="hold",
        retry_window=300.0,
        fallback_architectures=("386",),
        hold_limit=12 * 3600.0,
        inline_enabled=False,
        inline_budget=1.5,
        os_constraint="always",
        node_aware="narrow",
        assume_architectures=("arm64", "s390x"),
        excluded_namespaces=("build-cache", "vendor-*"),
        pod_opt_out="forbidden",
        events="full",
        sweep_action="evict",
        sweep_scope="all",
        sweep_interval=3600.0,
        sweep_min_age=30.0,
        sweep_max_evictions_per_minute=3,
        warm_up_enabled=True,
        warm_up_kinds=("CronJob",),
        warm_up_images_per_minute=600,
        images_stale_for=0.0,
        images_secret_access="none",
        images_share_readings=False,
        report_enabled=True,
        report_interval=86400.0,
        operator_namespace="polyarch-system",
    )


@pytest.mark.req("PL-042")
def test_overlay_is_per_leaf_and_the_first_match_counts() -> None:
    read = table(
        {
            "onUnresolved": {"retryWindow": "5m"},
            "inline": {"enabled": False, "budget": "1s"},
            "overrides": [
                override("regulated", {"tier": "regulated"}, onUnresolved={"action": "hold", "holdLimit": "12h"}),
                override("trial", {"trial": "yes"}, mode="audit", inline={"budget": "0s"}),
                override("both", {"tier": "regulated", "trial": "yes"}, mode="audit"),
            ],
        }
    )
    regulated = read.of_namespace({"tier": "regulated", "trial": "yes"})
    assert (regulated.unresolved_action, regulated.retry_window, regulated.hold_limit) == ("hold", 300.0, 43200.0)
    assert (regulated.mode, regulated.inline_enabled, regulated.inline_budget) == ("enforce", False, 1.0)
    trial = read.of_namespace({"trial": "yes"})
    assert (trial.mode, trial.inline_enabled, trial.inline_budget, trial.retry_window) == ("audit", False, 0.0, 300.0)
    assert read.of_namespace({"other": "x"}) == read.spec
    assert read.override_of({"trial": "yes"}) == "trial"
    assert read.override_of({}) is None


@pytest.mark.req("PL-041")
def test_an_override_whose_selector_does_not_parse_is_named_and_passed_over() -> None:
    broken = {
        "name": "b",
        "namespaceSelector": {"matchExpressions": [{"key": "x", "operator": "Near"}]},
        "mode": "audit",
    }
    empty = {"name": "e", "namespaceSelector": {}, "mode": "audit"}
    read = table({"overrides": [broken, empty, override("good", {"a": "b"}, events="full")]})
    assert read.invalid_overrides == ("b", "e")
    assert read.of_namespace({"x": "y", "a": "b"}).events == "full"
    assert all(problem.startswith("spec.overrides[") for problem in read.problems)


@pytest.mark.req("PL-232")
@pytest.mark.parametrize(
    ("policy", "cppc", "expected"),
    [
        (["s390x", "amd64", "amd64"], "arm64", ("amd64", "s390x")),
        ([], "arm64", ("arm64",)),
        (None, "arm64", ("arm64",)),
        (None, "", ()),
    ],
)
def test_the_policys_list_else_the_cppcs_architecture(
    policy: list[str] | None, cppc: str, expected: tuple[str, ...]
) -> None:
    spec = {"onUnresolved": {"fallbackArchitectures": policy}} if policy is not None else {}
    settings = table(spec, cppc).of_namespace({})
    assert settings.fallback_architectures == expected
    assert settings.unresolved_action == ("fallback" if expected else "release")


@pytest.mark.req("PL-043")
def test_an_explicit_fallback_without_an_architecture_holds_and_says_so() -> None:
    read = table({"onUnresolved": {"action": "fallback"}})
    assert read.lacks_fallback
    assert read.of_namespace({}).unresolved_action == "hold"
    assert not table({"onUnresolved": {"action": "fallback"}}, "arm64").lacks_fallback
    assert table({"overrides": [override("a", {"b": "c"}, onUnresolved={"action": "fallback"})]}).lacks_fallback


@pytest.mark.req("PL-040")
def test_a_hold_limit_means_nothing_where_nothing_is_held() -> None:
    spec = {
        "onUnresolved": {"action": "hold", "holdLimit": "12h"},
        "overrides": [override("a", {"b": "c"}, onUnresolved={"action": "release"})],
    }
    assert table(spec).of_namespace({}).hold_limit == 43200.0
    assert table(spec).of_namespace({"b": "c"}).hold_limit is None


@pytest.mark.req("PL-750")
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"mode": "strict"}, "spec.mode"),
        ({"onUnresolved": {"retryWindow": "2h"}}, "spec.onUnresolved.retryWindow"),
        ({"onUnresolved": {"retryWindow": "soon"}}, "spec.onUnresolved.retryWindow"),
        ({"onUnresolved": {"fallbackArchitectures": ["vax"]}}, "spec.onUnresolved.fallbackArchitectures[0]"),
        ({"excludedNamespaces": ["*"]}, "spec.excludedNamespaces[0]"),
        ({"sweep": {"maxEvictionsPerMinute": 0}}, "spec.sweep.maxEvictionsPerMinute"),
        ({"warmUp": {"kinds": ["Job"]}}, "spec.warmUp.kinds[0]"),
        ({"warmUp": {"kinds": [{}]}}, "spec.warmUp.kinds[0]"),
        ({"mode": True}, "spec.mode"),
        ({"inline": {"enabled": "true", "budget": None}}, "spec.inline.enabled"),
        ({"onUnresolved": {"retryWindow": 30}}, "spec.onUnresolved.retryWindow"),
        ({"sweep": {"maxEvictionsPerMinute": True}}, "spec.sweep.maxEvictionsPerMinute"),
        ({"sweep": "off"}, "spec.sweep"),
        ({"excludedNamespaces": "vendor-*"}, "spec.excludedNamespaces"),
        ({"overrides": {"name": "loose"}}, "spec.overrides"),
        ({"overrides": ["loose"]}, "spec.overrides[0]"),
    ],
)
def test_values_that_the_schema_should_have_refused_count_as_absent_and_are_named(
    spec: dict[str, Any], field: str
) -> None:
    read = table(spec)
    assert read.spec == table({}).spec
    assert [problem.split(":")[0] for problem in read.problems] == [field]


@pytest.mark.req("PL-750")
def test_a_fallback_architecture_of_the_cppc_that_the_schema_no_longer_allows() -> None:
    read = table({}, "vax")
    assert read.spec.fallback_architectures == ()
    assert "fallbackArchitecture" in read.problems[0]


class TestNamespaceNotKnownYet:
    @pytest.mark.req("PL-117")
    def test_without_overrides_its_labels_do_not_matter(self) -> None:
        read = table({"mode": "audit"})
        assert read.of_namespace(None) == read.spec

    @pytest.mark.req("PL-117")
    def test_with_overrides_the_settings_are_provisional_and_enforced(self) -> None:
        read = table({"mode": "audit", "overrides": [override("a", {"b": "c"}, mode="enforce", podOptOut="forbidden")]})
        settings = read.of_namespace(None)
        assert settings.provisional
        assert (settings.mode, settings.pod_opt_out) == ("enforce", "forbidden")
        assert not read.spec.provisional

    @pytest.mark.req("PL-107", "PL-117")
    def test_what_some_override_would_hold_is_not_let_through(self) -> None:
        """With the controller away a pod that might have to be held is gated."""
        strict = {"onUnresolved": {"action": "hold"}}
        read = table({"overrides": [override("a", {"b": "c"}, **strict), override("d", {"e": "f"})]})
        assert read.of_namespace(None).unresolved_action == "hold"
        assert read.spec.unresolved_action == "release"

    @pytest.mark.req("PL-117")
    def test_where_nothing_can_be_enforced_nothing_is_gated(self) -> None:
        read = table({"mode": "audit", "overrides": [override("a", {"b": "c"}, events="full")]})
        assert read.of_namespace(None) == read.spec


@pytest.mark.req("PL-040")
@pytest.mark.parametrize(
    ("text", "seconds"),
    [("100ms", 0.1), ("2m", 120.0), ("1h30m", 5400.0), ("1.5s", 1.5), ("0s", 0.0), ("1m1m", 120.0), ("1h0.5h", 5400.0)],
)
def test_durations_are_written_as_in_go(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.req("PL-040")
@pytest.mark.parametrize("text", ["", "5", "s", "-5s", "+5s", "5 s", "5d", "1.s", ".5s", "5us", "٥s", "5s\n"])
def test_other_texts_are_no_durations(text: str) -> None:
    with pytest.raises(InvalidDuration, match="1m30s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0s"), (0.1, "100ms"), (5, "5s"), (120, "2m"), (604800, "168h"), (5430, "1h30m30s")]
)
def test_durations_are_printed_for_people(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
    assert parse_duration(text) == pytest.approx(seconds)
