"""The live side of machine OS builds: metrics by stock names, and the stock builder that has precedence."""

import pytest
from builds_world import START
from machine_world import MachineWorld

from polyarch.builds.controller.machine_os import MachineOSMetrics
from polyarch.builds.machineos.records import stage_conditions
from polyarch.builds.machineos.status import stock_builder_plan
from polyarch.kube.metrics import Metrics

BEGAN, ENDED = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
STOCK_METRICS = {
    "ocl_build_state",
    "ocl_build_total",
    "ocl_build_duration_seconds",
    "ocl_build_start_timestamp_seconds",
    "ocl_build_end_timestamp_seconds",
    "ocl_active_builds",
    "ocl_build_job_state",
    "ocl_config_change_total",
    "ocl_image_push_total",
    "mco_mosc_count",
}


def status(stage, **more):
    return {"conditions": stage_conditions(stage, None, now=START), **more}


def value(metrics, name, **labels):
    return metrics.registry.get_sample_value(name, labels)


@pytest.mark.req("BD-290")
def test_each_build_counts_once_under_stock_names():
    families = Metrics()
    found = MachineOSMetrics(families)
    building = status("Building", buildStart=BEGAN)
    done = status("Succeeded", buildStart=BEGAN, buildEnd=ENDED)
    assert found.build_written("worker", {}, status("")) == ""
    assert found.build_written("worker", status(""), building) == ""
    assert value(families, "ocl_build_state", pool="worker", state="building") == 1
    assert value(families, "ocl_build_job_state", pool="worker", state="active") == 1
    assert found.build_written("worker", building, done) == "Succeeded"
    assert found.build_written("worker", done, done) == ""
    assert value(families, "ocl_build_total", pool="worker", state="succeeded") == 1
    assert value(families, "ocl_build_state", pool="worker", state="building") == 0
    assert value(families, "ocl_build_duration_seconds_sum", pool="worker", state="succeeded") == 300
    assert value(families, "ocl_image_push_total", pool="worker") == 1
    assert value(families, "ocl_build_end_timestamp_seconds", pool="worker") == 1767225900
    found.show_active({"worker": 2})
    found.show_active({})
    assert value(families, "ocl_active_builds", pool="worker") == 0
    found.show_configs(3)
    assert value(families, "mco_mosc_count") == 3
    found.config_changed("worker")
    assert value(families, "ocl_config_change_total", pool="worker") == 1
    names = {each.removesuffix("_created") for family in families.registry.collect() for each in [family.name]}
    assert {each.removesuffix("_total") for each in STOCK_METRICS} == {each.removesuffix("_total") for each in names}


@pytest.mark.req("BD-260")
@pytest.mark.parametrize("build", [False, True])
def test_beside_a_stock_builder_only_a_condition_is_written(build):
    world = MachineWorld()
    if build:
        world.reconcile()
    before = dict(world.mosbs)
    found = stock_builder_plan(world.facts(), world.case(), "openshift-machine-config-operator/machine-os-builder")
    assert found.reason == "StockBuilderRuns"
    assert [(each.verb, each.kind) for each in found.writes] == [("status", "MachineOSConfig")]
    assert "openshift-machine-config-operator/machine-os-builder" in found.message
    assert "scale it to 0" in found.message
    world.carry_out(found)
    again = stock_builder_plan(world.facts(), world.case(), "openshift-machine-config-operator/machine-os-builder")
    assert not again.writes
    assert world.mosbs == before
