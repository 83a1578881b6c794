"""Soft preferences and where they came from."""

from typing import Any

import msgspec
import pytest
from placement_cases import (
    APP,
    admitted,
    answers,
    arch,
    controlled,
    failure,
    index,
    look,
    pod,
    preference,
    preferences,
    requirement,
    source,
    term,
    zone,
)

from polyarch.objects import ObjectKey
from polyarch.placement import names
from polyarch.placement.api import ClusterPodPlacementConfig, PodPlacementConfig
from polyarch.placement.decision import LookupProgress
from polyarch.placement.settings import ScoringTable

BOTH = answers(index(APP, "amd64", "arm64"))


def plugin(*platforms: tuple[str, int], enabled: bool = True) -> dict[str, Any]:
    listed = [{"architecture": name, "weight": weight} for name, weight in platforms]
    return {"nodeAffinityScoring": {"enabled": enabled, "platforms": listed}}


def ppc(name: str, plugins: dict[str, Any], *, selector: Any = None, priority: int = 0) -> PodPlacementConfig:
    spec = {"plugins": plugins, "priority": priority, "labelSelector": selector}
    return msgspec.convert({"metadata": {"namespace": "shop", "name": name}, "spec": spec}, PodPlacementConfig)


def cppc(plugins: dict[str, Any] | None) -> ClusterPodPlacementConfig:
    return msgspec.convert({"metadata": {"name": "cluster"}, "spec": {"plugins": plugins}}, ClusterPodPlacementConfig)


@pytest.mark.req("PL-032", "PL-240", "PL-900")
def test_sources_by_priority_then_name_then_the_cluster() -> None:
    """Equal priorities have a fixed order."""
    table = ScoringTable.of(
        cppc(plugin(("s390x", 1))),
        [
            ppc("zeta", plugin(("amd64", 1)), priority=9),
            ppc("beta", plugin(("amd64", 2))),
            ppc("alpha", plugin(("amd64", 3))),
        ],
    )
    assert [each.name for each in table.of_namespace("shop")] == [
        "PodPlacementConfig-zeta",
        "PodPlacementConfig-alpha",
        "PodPlacementConfig-beta",
        "ClusterPodPlacementConfig",
    ]
    assert [each.name for each in table.of_namespace("elsewhere")] == ["ClusterPodPlacementConfig"]


@pytest.mark.req("PL-240")
def test_the_first_source_of_an_architecture_decides_later_ones_are_skipped() -> None:
    sources = (
        source("PodPlacementConfig-a", arm64=50, amd64=10),
        source("ClusterPodPlacementConfig", amd64=90, s390x=5),
    )
    result = admitted(pod(preferred=[preference(3, zone("a"))]), BOTH, sources=sources)
    assert preferences(result.pod) == [
        preference(3, zone("a")),
        preference(50, arch("arm64")),
        preference(10, arch("amd64")),
        preference(5, arch("s390x")),
    ]
    assert result.labels[names.PREFERRED_NODE_AFFINITY_LABEL] == "set"
    assert result.annotations[names.PREFERRED_AFFINITY_SOURCES_ANNOTATION] == (
        "arm64:50:PodPlacementConfig-a,amd64:10:PodPlacementConfig-a,"
        "amd64:90:ClusterPodPlacementConfig:skipped,s390x:5:ClusterPodPlacementConfig"
    )


@pytest.mark.req("PL-240")
def test_any_preference_of_the_user_keeps_all_of_ours_away() -> None:
    theirs = [preference(1, zone("a"), requirement("kubernetes.io/arch", "NotIn", "s390x"))]
    result = admitted(pod(preferred=theirs), BOTH, sources=(source(arm64=50, amd64=10),))
    assert preferences(result.pod) == theirs
    assert result.labels[names.PREFERRED_NODE_AFFINITY_LABEL] == "not-set"
    assert result.annotations[names.PREFERRED_AFFINITY_SOURCES_ANNOTATION] == (
        "arm64:50:ClusterPodPlacementConfig:skipped,amd64:10:ClusterPodPlacementConfig:skipped"
    )


@pytest.mark.req("PL-241", "PL-900 row 17")
def test_preferences_outside_the_images_set_change_only_the_soft_terms() -> None:
    result = admitted(pod(), answers(index(APP, "amd64")), sources=(source(s390x=8),))
    assert result.decision.architectures == ("amd64",)
    assert preferences(result.pod) == [preference(8, arch("s390x"))]
    assert names.ARCHITECTURE_LABELS["s390x"] not in result.labels
    assert result.annotations[names.PREFERRED_AFFINITY_SOURCES_ANNOTATION] == "s390x:8:ClusterPodPlacementConfig"


@pytest.mark.req("PL-241")
def test_preferences_are_never_written_before_the_release() -> None:
    waiting = admitted(pod(), sources=(source(arm64=5),))
    assert preferences(waiting.pod) is None
    assert waiting.labels[names.PREFERRED_NODE_AFFINITY_LABEL] == "not-set"
    assert names.PREFERRED_AFFINITY_SOURCES_ANNOTATION not in waiting.annotations


@pytest.mark.req("PL-242", "PL-900 row 8")
def test_one_failure_then_success_leaves_no_contradiction() -> None:
    sources = (source(arm64=5),)
    stored = admitted(pod(), sources=sources).pod
    failing = controlled(stored, answers(failure(APP)), progress=LookupProgress.FAILING, sources=sources).pod
    assert names.PREFERRED_AFFINITY_SOURCES_ANNOTATION not in failing["metadata"].get("annotations", {})
    done = controlled(failing, BOTH, sources=sources).pod
    assert done["metadata"]["annotations"][names.PREFERRED_AFFINITY_SOURCES_ANNOTATION] == (
        "arm64:5:ClusterPodPlacementConfig"
    )


@pytest.mark.req("PL-242")
def test_identical_entries_appear_once() -> None:
    twice = ScoringTable.of(cppc(plugin(("arm64", 5), ("arm64", 5), ("arm64", 5), ("arm64", 6))), [])
    result = admitted(pod(), BOTH, sources=twice.of_namespace("shop"))
    assert result.annotations[names.PREFERRED_AFFINITY_SOURCES_ANNOTATION] == (
        "arm64:5:ClusterPodPlacementConfig,arm64:5:ClusterPodPlacementConfig:skipped,"
        "arm64:6:ClusterPodPlacementConfig:skipped"
    )
    assert preferences(result.pod) == [preference(5, arch("arm64"))]


@pytest.mark.req("PL-030", "PL-033")
@pytest.mark.parametrize(
    ("selector", "labels", "applies"),
    [
        (None, {}, True),
        ({}, {"app": "web"}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "web"}, True),
        ({"matchLabels": {"app": "web"}}, {"app": "db"}, False),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {}, True),
        ({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}, {"app": ""}, False),
        ({"matchLabels": {names.SCHEDULING_GATE_LABEL: "gated"}}, {names.SCHEDULING_GATE_LABEL: "gated"}, False),
    ],
    ids=["absent", "empty", "equal", "different", "does not exist", "exists", "keys of ours are not seen"],
)
def test_which_pods_a_config_is_for(selector: Any, labels: dict[str, str], applies: bool) -> None:
    table = ScoringTable.of(cppc(None), [ppc("a", plugin(("arm64", 1)), selector=selector)])
    assert look(pod(labels=labels), sources=table.of_namespace("shop")).scoring_applies is applies


@pytest.mark.req("PL-033")
def test_a_selector_that_does_not_parse_matches_nothing_and_disturbs_nothing() -> None:
    broken = ppc("broken", plugin(("arm64", 1)), selector={"matchExpressions": [{"key": "a", "operator": "Near"}]})
    table = ScoringTable.of(None, [broken, ppc("good", plugin(("amd64", 2)))])
    assert [each.name for each in table.of_namespace("shop")] == ["PodPlacementConfig-good"]
    assert "Near" in table.problems[ObjectKey("shop", "broken")]


@pytest.mark.req("PL-203")
@pytest.mark.parametrize("plugins", [None, {}, plugin(("arm64", 5), enabled=False)], ids=["none", "empty", "disabled"])
def test_scoring_does_not_apply_without_an_enabled_plugin(plugins: dict[str, Any] | None) -> None:
    result = admitted(pod(), BOTH, sources=ScoringTable.of(cppc(plugins), []).of_namespace("shop"))
    assert names.PREFERRED_NODE_AFFINITY_LABEL not in result.labels
    assert preferences(result.pod) is None


@pytest.mark.req("PL-750")
def test_weights_that_an_older_schema_let_through_are_passed_over() -> None:
    table = ScoringTable.of(cppc(plugin(("arm64", 0), ("amd64", 101), ("s390x", 100))), [])
    assert table.of_namespace("shop")[0].platforms == (("s390x", 100),)


@pytest.mark.req("PL-240")
def test_preferences_are_appended_where_nothing_is_required() -> None:
    result = admitted(pod(nodeSelector={"kubernetes.io/arch": "arm64"}), sources=(source(arm64=9),))
    assert preferences(result.pod) == [{"weight": 9, "preference": term(arch("arm64"))}]
    assert result.labels[names.NODE_AFFINITY_LABEL] == "not-set"
