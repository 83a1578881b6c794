"""What the pods of every role ask of a node: enough CPU to start in time, patience, and another node."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from numa_cluster import planned

from polyarch.installation.objects import images, operator_objects
from polyarch.installation.settings import ComponentName, InstallationSettings, Numa
from polyarch.numa.api.resources import SchedulerSettings
from polyarch.operator import operands
from polyarch.operator.components import builds_objects as builds
from polyarch.operator.components import placement_objects
from polyarch.operator.components import taints_objects as taints
from polyarch.operator.components.numa_scheduler_objects import SchedulerParts, scheduler_objects
from polyarch.operator.operands import IDLE_MEMORY_MIB, MEMORY_MARGIN, START_CPU_SECONDS, STARTUP_MARGIN
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.quantity import thousandths

Json = dict[str, Any]
SETTINGS, CLUSTER = OperatorSettings(builds="on"), ClusterCapabilities()
RECORDED = Path(__file__).parents[3] / "bench" / "recorded.json"
SCHEDULER = "secondary-scheduler"
"""Kubernetes' own program, of which nothing is recorded."""


def workload_objects() -> Iterator[Json]:
    """The Deployments and DaemonSets of every feature."""
    several = [
        placement_objects.webhook_deployment(SETTINGS),
        placement_objects.controller_deployment(SETTINGS),
        taints.deployment(SETTINGS),
        builds.deployment(SETTINGS),
    ]
    documents = [*operator_objects(InstallationSettings()), *placement_objects.monitor_objects(SETTINGS, CLUSTER)]
    for workload in several:
        documents += operands.operand_objects(workload, SETTINGS, CLUSTER)
    documents += planned({"poolName": "worker"}).documents or ()
    for guaranteed in (False, True):
        parts = SchedulerParts(
            settings=SchedulerSettings(),
            operator=SETTINGS,
            owner=None,
            image="kube-scheduler:1",
            replicas=2,
            on_control_plane=True,
            guaranteed=guaranteed,
        )
        documents += scheduler_objects(parts)
    return (each for each in documents if each["kind"] in ("Deployment", "DaemonSet"))


def containers() -> Iterator[Json]:
    return (each for one in workload_objects() for each in one["spec"]["template"]["spec"]["containers"])


@pytest.mark.req("IN-037")
def test_the_list_of_images_is_that_of_the_pods() -> None:
    """Of containers, and of those that a role is told to make: builds have their images by flags."""
    numa = Numa(scheduler={"imageSpec": "kube-scheduler:1"})
    everything = InstallationSettings(components=get_args(ComponentName), numa=numa)
    made = {container["image"] for container in containers()}
    flags = (argument.partition("-image=") for container in containers() for argument in container.get("args", ()))
    made |= {value for flag, found, value in flags if found}
    assert made == {each.reference for each in images(everything)}


@pytest.mark.req("PL-502")
def test_a_start_at_exactly_the_requested_cpu_takes_a_third_of_what_is_allowed() -> None:
    seen = set()
    for container in containers():
        startup = container["startupProbe"]
        allowed = startup["periodSeconds"] * startup["failureThreshold"]
        assert allowed >= 180
        if (name := container["name"]) != SCHEDULER:
            cores = thousandths(container["resources"]["requests"]["cpu"], "up") / 1000
            assert START_CPU_SECONDS[name] / cores <= allowed / STARTUP_MARGIN, name
            seen.add(name)
    assert seen == set(START_CPU_SECONDS)


@pytest.mark.req("PL-502", "PL-810")
def test_a_role_at_rest_needs_a_third_of_its_memory_limit_and_less_than_its_request() -> None:
    """What it requests is set aside on its node; beyond its limit the kernel ends it."""
    seen = set()
    for container in containers():
        if (name := container["name"]) == SCHEDULER:
            continue
        resources, idle = container["resources"], IDLE_MEMORY_MIB[name] << 20
        assert thousandths(resources["requests"]["memory"], "down") / 1000 >= 1.2 * idle, name
        if "limits" in resources:
            assert thousandths(resources["limits"]["memory"], "down") / 1000 >= MEMORY_MARGIN * idle, name
        seen.add(name)
    assert seen == set(IDLE_MEMORY_MIB)


@pytest.mark.req("PL-502")
def test_what_is_recorded_of_a_role_at_rest_is_what_the_bench_measured() -> None:
    recorded = json.loads(RECORDED.read_text())
    for name, idle in IDLE_MEMORY_MIB.items():
        assert recorded[f"working set of {name}"] <= idle <= 1.2 * recorded[f"working set of {name}"], name


@pytest.mark.req("PL-502")
def test_a_process_without_cpu_for_half_a_minute_is_not_ended() -> None:
    for container in containers():
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            assert container[probe]["timeoutSeconds"] == 5, (container["name"], probe)
        liveness = container["livenessProbe"]
        # One failure more, as the process itself tells for another 10 s that its event loop stood still.
        assert liveness["periodSeconds"] * (liveness["failureThreshold"] - 2) >= 30
        assert "initialDelaySeconds" not in liveness, "it begins when startup has ended"


@pytest.mark.req("PL-502")
def test_replicas_prefer_nodes_that_have_none_of_their_revision() -> None:
    for document in workload_objects():
        if document["kind"] != "Deployment":
            continue
        selector = document["spec"]["selector"]
        pod = document["spec"]["template"]["spec"]
        (apart,) = pod["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"]
        assert apart == {
            "weight": 100,
            "podAffinityTerm": {
                "labelSelector": selector,
                "matchLabelKeys": ["pod-template-hash"],
                "topologyKey": "kubernetes.io/hostname",
            },
        }
        # A constraint whose label a node lacks switches off all others of the pod on that node.
        (zones,) = pod["topologySpreadConstraints"]
        assert (zones["labelSelector"], zones["matchLabelKeys"]) == (selector, ["pod-template-hash"])
