"""What the fields mean, and what is wrong with an object that an older schema let in."""

from typing import Any

import msgspec
import pytest

from polyarch.numa.api.crds import operator_spec, operator_violations, scheduler_violations, unknown_members
from polyarch.numa.api.resources import (
    GroupSettings,
    NodeGroup,
    NUMAResourcesOperatorSpec,
    NUMAResourcesScheduler,
    SchedulerSettings,
    verbosity,
)

Json = dict[str, Any]
PREFIX = "numa.polyarch.dev/"


def group(**members: Any) -> GroupSettings:
    return GroupSettings.of(msgspec.convert(members, NodeGroup))


def scheduler(annotations: dict[str, str] | None = None, **spec: Any) -> SchedulerSettings:
    document = {"metadata": {"annotations": annotations}, "spec": spec}
    return SchedulerSettings.of(msgspec.convert(document, NUMAResourcesScheduler))


class TestGroups:
    @pytest.mark.req("NO-001", "NO-002", "NO-005")
    @pytest.mark.parametrize("given", [{}, {"config": None}, {"config": {}}], ids=["absent", "null", "empty"])
    def test_defaults(self, given: Json) -> None:
        """A group without config is a group with the defaults."""
        assert group(**given).document() == {
            "podsFingerprinting": "EnabledExclusiveResources",
            "infoRefreshMode": "Periodic",
            "infoRefreshPeriod": "10s",
            "infoRefreshPause": "Disabled",
            "tolerations": [{"operator": "Exists"}],
        }

    @pytest.mark.req("NO-001")
    @pytest.mark.parametrize(
        ("given", "fingerprinting"),
        [
            ({"disablePodsFingerprinting": True}, "Disabled"),
            ({"disablePodsFingerprinting": False}, "Enabled"),
            ({"disablePodsFingerprinting": True, "config": {"podsFingerprinting": "Enabled"}}, "Enabled"),
            ({"disablePodsFingerprinting": True, "config": {"infoRefreshPeriod": "1m"}}, "Disabled"),
        ],
    )
    def test_the_field_of_v1alpha1(self, given: Json, fingerprinting: str) -> None:
        """``config.podsFingerprinting`` wins if given."""
        assert group(**given).fingerprinting == fingerprinting

    @pytest.mark.req("NO-005")
    @pytest.mark.parametrize(
        ("written", "seconds", "shown"),
        [
            ("10s", 10, "10s"),
            ("1m30s", 90, "1m30s"),
            ("0", 0, "0s"),
            ("1.5h", 5400, "1h30m0s"),
            ("250ms", 0.25, "250ms"),
        ],
    )
    def test_durations_are_those_of_go(self, written: str, seconds: float, shown: str) -> None:
        """Go syntax, and the status shows it as Go does."""
        found = group(config={"infoRefreshPeriod": written})
        assert (found.refresh_period, found.document()["infoRefreshPeriod"]) == (seconds, shown)

    @pytest.mark.req("NO-002")
    def test_tolerations_replace_the_default(self) -> None:
        mine = {"key": "dedicated", "operator": "Equal", "value": "numa"}
        assert group(config={"tolerations": [mine]}).document()["tolerations"] == [mine]
        assert group(config={"tolerations": []}).document()["tolerations"] == [{"operator": "Exists"}]

    @pytest.mark.req("NO-002")
    @pytest.mark.parametrize(
        ("level", "number"), [(None, 2), ("", 2), ("Normal", 2), ("Debug", 4), ("Trace", 6), ("TraceAll", 8)]
    )
    def test_log_levels(self, level: str | None, number: int) -> None:
        assert verbosity(NUMAResourcesOperatorSpec(log_level=level)) == number


class TestScheduler:
    @pytest.mark.req("NO-011")
    def test_defaults(self) -> None:
        assert scheduler() == SchedulerSettings()
        usual = SchedulerSettings()
        assert (usual.name, usual.resync_period, usual.resync_debug) == ("topo-aware-scheduler", 5.0, "DumpJSONFile")
        assert (usual.detection, usual.scoring, usual.preempts) == ("Relaxed", "LeastAllocated", False)
        assert usual.scored == (("cpu", 1), ("memory", 1))
        assert (usual.mode, usual.restricted_policy) == ("exact", "filter")

    @pytest.mark.req("NO-011")
    def test_every_field_counts(self) -> None:
        found = scheduler(
            imageSpec="registry.example/scheduler:v1",
            schedulerName="mine",
            logLevel="Trace",
            cacheResyncPeriod="0",
            cacheResyncDebug="Disabled",
            schedulerInformer="Shared",
            cacheResyncDetection="Aggressive",
            scoringStrategy={"type": "LeastNUMANodes", "resources": [{"name": "example.org/gpu", "weight": 0}]},
            preemptionMode="Enabled",
            replicas=3,
        )
        assert found == SchedulerSettings(
            image="registry.example/scheduler:v1",
            name="mine",
            verbosity=6,
            resync_period=0.0,
            resync_debug="Disabled",
            without_effect=("schedulerInformer",),
            detection="Aggressive",
            scoring="LeastNUMANodes",
            scored=(("example.org/gpu", 1),),
            preempts=True,
            replicas=3,
        )

    @pytest.mark.req("NO-013")
    def test_annotations_choose_what_the_schema_has_no_field_for(self) -> None:
        found = scheduler(
            {
                f"{PREFIX}scheduling-mode": "advise",
                f"{PREFIX}restricted-policy": "score",
                f"{PREFIX}candidates": "16",
                f"{PREFIX}ignorable": "true",
            }
        )
        assert (found.mode, found.restricted_policy, found.candidates, found.ignorable) == ("advise", "score", 16, True)

    @pytest.mark.req("NO-013")
    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("scheduling-mode", "Exact"),
            ("scheduling-mode", ""),
            ("restricted-policy", "deny"),
            ("candidates", "0"),
            ("candidates", "17"),
            ("candidates", "two"),
            ("ignorable", "yes"),
        ],
    )
    def test_other_values_are_told(self, name: str, value: str) -> None:
        """Other values → Degraded."""
        (wrong,) = scheduler_violations({"metadata": {"annotations": {f"{PREFIX}{name}": value}}})
        assert wrong.field == f"metadata.annotations[{PREFIX}{name}]"
        assert repr(value) in wrong.reason
        assert "expected" in wrong.reason


WRONG: list[tuple[str, Json, str, str]] = [
    ("unknown enum", {"logLevel": "Loud"}, "spec.logLevel", "Normal"),
    ("type", {"nodeGroups": "worker"}, "spec.nodeGroups", "must be a list"),
    ("mode", {"nodeGroups": [{"config": {"infoRefreshMode": "Never"}}]}, "infoRefreshMode", "PeriodicAndEvents"),
    ("negative", {"nodeGroups": [{"config": {"infoRefreshPeriod": "-5s"}}]}, "infoRefreshPeriod", "is negative"),
    ("no duration", {"nodeGroups": [{"config": {"infoRefreshPeriod": "10"}}]}, "infoRefreshPeriod", "such as 10s"),
    (
        "nine annotations",
        {"nodeGroups": [{"annotations": {f"a{number}": "b" for number in range(9)}}]},
        "spec.nodeGroups[0].annotations",
        "at most 8",
    ),
    (
        "toleration without key",
        {"nodeGroups": [{"config": {"tolerations": [{"operator": "Equal", "value": "a"}]}}]},
        "spec.nodeGroups[0].config.tolerations[0]",
        "Exists",
    ),
    (
        "toleration with seconds",
        {"nodeGroups": [{"config": {"tolerations": [{"operator": "Exists", "tolerationSeconds": 3}]}}]},
        "tolerations[0]",
        "NoExecute",
    ),
    (
        "directory of the kubelet",
        {"nodeGroups": [{"annotations": {f"{PREFIX}kubelet-root": "var/lib/../kubelet"}}]},
        f"annotations[{PREFIX}kubelet-root]",
        "absolute path",
    ),
    ("heartbeat", {"nodeGroups": [{"annotations": {f"{PREFIX}heartbeat": "often"}}]}, "heartbeat", "duration"),
]


@pytest.mark.req("NO-004", "NO-005")
@pytest.mark.parametrize(("spec", "field", "said"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG])
def test_what_an_older_schema_let_in_is_told(spec: Json, field: str, said: str) -> None:
    """Told with the field, never a crash."""
    (wrong,) = operator_violations({"spec": spec})
    assert field in wrong.field
    assert said in wrong.reason


@pytest.mark.req("NO-004")
@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"nodeGroups": None},
        {"nodeGroups": [{"config": {"tolerations": [{"operator": "Exists"}]}}]},
        {"nodeGroups": [{"config": None, "annotations": {f"{PREFIX}kubelet-root": "/var/snap/kubelet"}}]},
        {"podExcludes": [{"namespace": "kube-*", "name": "[!a]?*[a-z0-9]\\["}]},
    ],
    ids=["empty", "null", "toleration of everything", "null config", "globs"],
)
def test_what_is_accepted(spec: Json) -> None:
    """A toleration without key and with operator Exists tolerates all."""
    assert operator_violations({"spec": spec}) == ()


@pytest.mark.req("NO-004")
def test_members_of_a_newer_schema_are_no_error_but_misspelt_ones_in_files_are_told() -> None:
    """The API server may serve a newer definition than the operator knows."""
    document = {"spec": {"nodeGroups": [{"poolname": "worker", "config": {"infoRefreshMode": "Never"}}], "new": 1}}
    assert [each.field for each in operator_violations(document)] == ["spec.nodeGroups[0].config.infoRefreshMode"]
    told = unknown_members(document, operator_spec())
    assert [each.field for each in told] == ["spec.nodeGroups[0].poolname", "spec.new"]
