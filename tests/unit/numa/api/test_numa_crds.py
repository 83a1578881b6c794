"""The definitions of NUMAResourcesOperator and NUMAResourcesScheduler, as whoever writes such an object meets them."""

from typing import Any

import msgspec
import pytest

from polyarch.kube.schema import departures
from polyarch.numa.api.crds import crds
from polyarch.numa.api.resources import (
    OPERATORS,
    SCHEDULERS,
    NUMAResourcesOperator,
    NUMAResourcesOperatorSpec,
    NUMAResourcesScheduler,
    NUMAResourcesSchedulerSpec,
)

Json = dict[str, Any]
OPERATOR, SCHEDULER = crds()


def roots(definition: Json) -> dict[str, Json]:
    """The schema of each version."""
    return {each["name"]: each["schema"]["openAPIV3Schema"] for each in definition["spec"]["versions"]}


@pytest.mark.parametrize(
    ("definition", "resource", "short_name"),
    [(OPERATOR, OPERATORS, "numaresop"), (SCHEDULER, SCHEDULERS, "numaressched")],
    ids=["operator", "scheduler"],
)
class TestBoth:
    @pytest.mark.req("NO-001", "NO-010")
    def test_names_and_scope(self, definition: Json, resource: Any, short_name: str) -> None:
        spec = definition["spec"]
        assert definition["metadata"]["name"] == f"{resource.plural}.nodetopology.openshift.io"
        assert (spec["scope"], spec["names"]["kind"], spec["names"]["shortNames"]) == (
            "Cluster",
            resource.kind,
            [short_name],
        )
        assert "conversion" not in spec, "strategy None is the default"

    @pytest.mark.req("NO-001")
    def test_versions_have_one_schema_and_the_old_one_warns(
        self, definition: Json, resource: Any, short_name: str
    ) -> None:
        """What is written in one version is read in the other."""
        old, stored = definition["spec"]["versions"]
        assert old["schema"] == stored["schema"]
        assert (old["name"], old["served"], old["storage"], old["deprecated"]) == ("v1alpha1", True, False, True)
        assert "use nodetopology.openshift.io/v1" in old["deprecationWarning"]
        assert len(old["deprecationWarning"]) <= 256, "the API server refuses longer ones"
        assert (stored["name"], stored["served"], stored["storage"]) == ("v1", True, True)
        assert all(each["subresources"] == {"status": {}} for each in (old, stored))

    @pytest.mark.req("NO-001", "NO-010")
    def test_the_name_is_checked(self, definition: Json, resource: Any, short_name: str) -> None:
        (check,) = roots(definition)["v1"]["x-kubernetes-validations"]
        assert check["rule"] == f"self.metadata.name == '{resource.kind.lower()}'"
        assert f"set metadata.name to {resource.kind.lower()}" in check["message"]

    @pytest.mark.req("NO-005")
    def test_nothing_is_filled_in(self, definition: Json, resource: Any, short_name: str) -> None:
        """Defaults are applied when reading, not written back into spec."""
        assert '"default"' not in msgspec.json.encode(definition).decode()


@pytest.mark.req("NO-002")
def test_fields_of_the_operators_object() -> None:
    """Every field of the table, and none besides."""
    spec = roots(OPERATOR)["v1"]["properties"]["spec"]["properties"]
    assert set(spec) == {"nodeGroups", "imageSpec", "logLevel", "podExcludes"}
    group = spec["nodeGroups"]["items"]["properties"]
    assert set(group) == {
        *("machineConfigPoolSelector", "poolName", "nodeSelector", "config", "annotations"),
        "disablePodsFingerprinting",
    }
    assert set(group["config"]["properties"]) == {
        *("podsFingerprinting", "infoRefreshMode", "infoRefreshPeriod", "infoRefreshPause", "tolerations"),
    }
    assert group["annotations"]["maxProperties"] == 8


@pytest.mark.req("NO-011")
def test_fields_of_the_schedulers_object() -> None:
    """Every field of the table; nothing is required."""
    spec = roots(SCHEDULER)["v1"]["properties"]["spec"]
    assert "required" not in spec
    assert set(spec["properties"]) == {
        *("imageSpec", "schedulerName", "logLevel", "cacheResyncPeriod", "cacheResyncDebug", "schedulerInformer"),
        *("cacheResyncDetection", "scoringStrategy", "preemptionMode", "replicas"),
    }
    scoring = spec["properties"]["scoringStrategy"]["properties"]["type"]["enum"]
    assert "LeastNUMANodes" in scoring, "which the predecessor's schema does not have (NO §15)"


@pytest.mark.req("NO-003", "NO-012")
def test_status_fields() -> None:
    status = roots(OPERATOR)["v1"]["properties"]["status"]["properties"]
    assert set(status) == {"daemonsets", "machineconfigpools", "nodeGroups", "conditions", "relatedObjects"}
    assert set(status["nodeGroups"]["items"]["properties"]) == {"daemonsets", "config", "selector"}
    assert set(status["relatedObjects"]["items"]["properties"]) == {"group", "resource", "namespace", "name"}
    status = roots(SCHEDULER)["v1"]["properties"]["status"]["properties"]
    assert set(status) == {"deployment", "schedulerName", "cacheResyncPeriod", "conditions", "relatedObjects"}


@pytest.mark.req("NO-002")
@pytest.mark.parametrize("log_level", ["", "Normal", "TraceAll"])
def test_manifests_of_the_predecessor_conform(log_level: str) -> None:
    """Manifests that were written for the numaresources operator apply unchanged."""
    spec = {
        "nodeGroups": [
            {
                "machineConfigPoolSelector": {
                    "matchLabels": {"pools.operator.machineconfiguration.openshift.io/worker": ""}
                },
                "config": {"podsFingerprinting": "EnabledExclusiveResources", "infoRefreshPeriod": "10s"},
            },
            {"poolName": "worker-cnf", "annotations": {"config.node.openshift-kni.io/selinux-policy": "custom"}},
        ],
        "logLevel": log_level,
        "podExcludes": [{"namespace": "openshift-*", "name": "*"}],
    }
    assert [*departures(roots(OPERATOR)["v1"]["properties"]["spec"], spec)] == []


@pytest.mark.req("NO-002", "NO-003", "NO-011")
def test_types_read_what_the_schema_takes() -> None:
    """No member of the schema is unknown to the types."""
    group = roots(OPERATOR)["v1"]["properties"]["spec"]["properties"]["nodeGroups"]["items"]["properties"]
    config = dict.fromkeys(group["config"]["properties"], "x") | {"tolerations": [{"operator": "Exists"}]}
    spec = {
        "nodeGroups": [
            {
                "machineConfigPoolSelector": {"matchLabels": {"a": "b"}},
                "poolName": "x",
                "nodeSelector": {},
                "config": config,
                "annotations": {"a": "b"},
                "disablePodsFingerprinting": True,
            }
        ],
        "imageSpec": "x",
        "logLevel": "x",
        "podExcludes": [{"namespace": "a", "name": "b"}],
    }
    read = msgspec.convert({"spec": spec}, NUMAResourcesOperator).spec
    assert msgspec.to_builtins(read) == spec
    scheduler = {
        **dict.fromkeys(roots(SCHEDULER)["v1"]["properties"]["spec"]["properties"], "x"),
        "scoringStrategy": {"type": "x", "resources": [{"name": "cpu", "weight": 2}]},
        "replicas": 2,
    }
    assert msgspec.to_builtins(msgspec.convert({"spec": scheduler}, NUMAResourcesScheduler).spec) == scheduler


@pytest.mark.req("NO-001")
def test_absent_and_empty_specs_are_read() -> None:
    """Absent values take the defaults."""
    assert msgspec.convert({}, NUMAResourcesOperator).spec == NUMAResourcesOperatorSpec()
    assert msgspec.convert({"spec": {}}, NUMAResourcesScheduler).spec == NUMAResourcesSchedulerSpec()
