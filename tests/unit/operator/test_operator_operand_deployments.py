"""What the pods of every role ask of a node: enough CPU to start in time, patience, and another node."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from numa_cluster import planned

from polyarch.installation.objects import images, operator_objects, own_namespace
from polyarch.installation.settings import (
    ComponentName,
    CredentialProviders,
    InstallationSettings,
    Numa,
    Registries,
)
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


# -- credential plugins and the identity of a cloud --------------------------------------------------------------------

PLUGINS = OperatorSettings(builds="on", registries_configmap="mirrors", credential_provider_image="r.example/plugins:1")


def pods_of(settings: OperatorSettings, cluster: ClusterCapabilities) -> dict[str, Json]:
    """The pod templates of the roles that can be placed, by role."""
    roles = {
        "placement-webhook": placement_objects.webhook_deployment(settings),
        "placement-controller": placement_objects.controller_deployment(settings),
        "taints": taints.deployment(settings),
        "builder": builds.deployment(settings),
    }
    return {
        name: operands.deployment_document(role, settings, cluster)["spec"]["template"] for name, role in roles.items()
    }


def plugins_of(pod: Json) -> tuple[Json | None, Json | None, list[str]]:
    """Volume and init container of the plugins, and the directories that the role is told."""
    spec = pod["spec"]
    (volume,) = [each for each in spec["volumes"] if each["name"] == "credential-providers"] or [None]
    (copying,) = spec.get("initContainers") or [None]
    (container,) = spec["containers"]
    flag = "--image-credential-provider-bin-dir="
    return volume, copying, [each.removeprefix(flag) for each in container["args"] if each.startswith(flag)]


@pytest.mark.req("IN-042")
@pytest.mark.parametrize(
    ("change", "version", "openshift", "source"),
    [
        ({}, (1, 34), False, "emptyDir"),
        ({}, (1, 35), False, "image"),
        ({}, (1, 36), True, "emptyDir"),
        ({"credential_provider_mount": "copy"}, (1, 36), False, "emptyDir"),
        ({"credential_provider_mount": "imageVolume"}, (1, 33), False, "image"),
    ],
)
def test_an_image_of_plugins_is_a_volume_where_clusters_have_them_and_copied_elsewhere(
    change: Json, version: tuple[int, int], openshift: bool, source: str
) -> None:
    """Every role that asks registries has them at the same place either way."""
    settings = msgspec.structs.replace(PLUGINS, **change)
    for pod in pods_of(settings, ClusterCapabilities(version=version, openshift=openshift)).values():
        volume, copying, told = plugins_of(pod)
        assert volume is not None
        assert source in volume
        assert told == ["/etc/polyarch/credential-providers/credential-providers"]
        assert (copying is not None) == (source == "emptyDir")
        if copying is not None:
            assert copying["image"] == "r.example/plugins:1"
            assert copying["securityContext"]["readOnlyRootFilesystem"]
            assert ("runAsUser" in copying["securityContext"]) != openshift


@pytest.mark.req("IN-042")
def test_plugins_of_nodes_and_of_polyarchs_own_image() -> None:
    own = msgspec.structs.replace(
        SETTINGS, registries_configmap="mirrors", credential_provider_directory="/usr/libexec/plugins"
    )
    on_nodes = msgspec.structs.replace(own, credential_provider_mount="hostPath")
    for pod in pods_of(own, CLUSTER).values():
        assert plugins_of(pod) == (None, None, ["/usr/libexec/plugins"])
    for pod in pods_of(on_nodes, CLUSTER).values():
        volume, copying, told = plugins_of(pod)
        assert (volume or {})["hostPath"] == {"path": "/usr/libexec/plugins", "type": "Directory"}
        assert (copying, told) == (None, ["/etc/polyarch/credential-providers"])
    for pod in pods_of(SETTINGS, CLUSTER).values():
        assert plugins_of(pod) == (None, None, [])


@pytest.mark.req("IN-042")
@pytest.mark.parametrize(
    ("providers", "level"),
    [
        (CredentialProviders(), "restricted"),
        (CredentialProviders(image="r.example/plugins:1"), "restricted"),
        (CredentialProviders(directory="/plugins"), "restricted"),
        (CredentialProviders(directory="/plugins", mount="hostPath"), "privileged"),
    ],
)
def test_only_plugins_of_nodes_need_a_privileged_namespace(providers: CredentialProviders, level: str) -> None:
    """Restricted pods have volumes of images, but none of nodes."""
    registries = Registries(credential_providers=providers, configuration="unqualified-search-registries = []")
    (namespace,) = own_namespace(InstallationSettings(registries=registries))
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == level


@pytest.mark.req("IN-042")
def test_the_copy_of_plugins_has_the_place_of_the_volume(tmp_path: Path) -> None:
    """The script itself, with directories of this machine in the place of the pod's."""
    (tmp_path / "own").mkdir()
    plugin = tmp_path / "own" / "ecr-credential-provider"
    plugin.write_text("#!/bin/sh\n")
    plugin.chmod(0o755)
    settings = msgspec.structs.replace(PLUGINS, credential_provider_directory=str(tmp_path / "own"))
    _, copying, (told,) = plugins_of(pods_of(settings, ClusterCapabilities(version=(1, 30)))["taints"])
    shell, option, script = (copying or {})["command"]
    target = tmp_path / "copied"
    subprocess.run([shell, option, script.replace(operands.PROVIDERS_MOUNT, str(target))], check=True, timeout=30)
    copied = Path(told.replace(operands.PROVIDERS_MOUNT, str(target))) / "ecr-credential-provider"
    assert copied.stat().st_mode & 0o111


@pytest.mark.req("IN-043")
def test_an_identity_is_of_the_roles_that_ask_registries_and_another_replaces_their_pods() -> None:
    settings = msgspec.structs.replace(
        SETTINGS,
        service_account_annotations=(
            "e.example/role=all",
            "builder:e.example/role=builds",
            "taints:e.example/more=a=b",
        ),
        role_pod_labels=("a.example/use=true", "controller=ours-wins"),
    )
    pods = pods_of(settings, CLUSTER)
    assert {name: pod["metadata"]["annotations"]["polyarch.dev/identity"] for name, pod in pods.items()} == {
        "placement-webhook": "e.example/role=all",
        "placement-controller": "e.example/role=all",
        "taints": "e.example/more=a=b e.example/role=all",
        "builder": "e.example/role=builds",
    }
    for pod in pods.values():
        assert pod["metadata"]["labels"]["a.example/use"] == "true"
        assert pod["metadata"]["labels"]["controller"] == pod["spec"]["serviceAccountName"]
    made = [
        *placement_objects.service_accounts(settings),
        *taints.rbac(settings, CLUSTER, evicts=False),
        *builds.rbac(settings, CLUSTER),
    ]
    accounts = {
        each["metadata"]["name"]: each["metadata"]["annotations"] for each in made if each["kind"] == "ServiceAccount"
    }
    assert accounts == {
        "pod-placement-web-hook": {"e.example/role": "all"},
        "pod-placement-controller": {"e.example/role": "all"},
        "polyarch-taints": {"e.example/role": "all", "e.example/more": "a=b"},
        "polyarch-builder": {"e.example/role": "builds"},
    }
