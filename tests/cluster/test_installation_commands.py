"""``polyarch install`` and ``uninstall`` on a real API server."""

import asyncio
import contextlib
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from build_refusals import spec
from installing import NAMESPACE, Cluster, Json

from polyarch.builds import names as builds
from polyarch.installation import uninstall, wait
from polyarch.installation.inventory import belongings, survey
from polyarch.kube import patches
from polyarch.kube.errors import Invalid, NotFound
from polyarch.kube.patches import JsonPatch, MergePatch
from polyarch.kube.resources import (
    CLUSTER_ROLES,
    CONFIGMAPS,
    CRDS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    ObjectRef,
    Resource,
    by_kind,
)
from polyarch.numa import names as numa
from polyarch.numa.api import crds as numa_definitions
from polyarch.numa.api.resources import OPERATORS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.numa.api.topology_crd import topology_crd
from polyarch.objects import ObjectKey
from polyarch.operator.components import placement_objects, taints_objects
from polyarch.operator.components.builds_objects import BUILDER_POLICY, builds_operands
from polyarch.operator.owned_objects import PART_OF
from polyarch.operator.settings import ClusterCapabilities as Kubernetes
from polyarch.operator.settings import OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS, ENOEXECEVENTS, PPCS
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import file_lock
from polyarch.taints import names as taints

POLICIES = Resource(
    "admissionregistration.k8s.io", "v1", "validatingadmissionpolicies", "ValidatingAdmissionPolicy", namespaced=False
)
BINDINGS = Resource(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)


@pytest.fixture
async def cluster(
    empty_sandbox: Sandbox, capsys: pytest.CaptureFixture[str], peer: Callable[[str], str]
) -> AsyncIterator[Cluster]:
    """A cluster without polyarch, for this test alone."""
    async with file_lock(empty_sandbox.folder.root / ".installation.lock"), empty_sandbox.client() as client:
        cluster = Cluster(empty_sandbox, client, capsys, peer)
        before = await cluster.everything()
        yield cluster
        await cluster.polyarch("uninstall", "--force", "-q")
        assert (await cluster.everything()).keys() == before.keys()


def document(text: str) -> Json:
    found: Json = json.loads(text)
    return found


@pytest.mark.req("IN-002")
async def test_installs_everything_in_order_and_a_second_run_changes_nothing(cluster: Cluster) -> None:
    first = await cluster.polyarch("install", "-o", "json")
    assert first.code == 0, first.err
    made = document(first.out)
    assert made["schemaVersion"] == "polyarch.dev/install/v1"
    assert {each["result"] for each in made["objects"]} == {"created"}
    kinds = list(dict.fromkeys(each["kind"] for each in made["objects"]))
    assert kinds[:2] == ["CustomResourceDefinition", "Namespace"]
    assert kinds[-2:] == ["Deployment", "ClusterPodPlacementConfig"]
    assert [line for line in first.err.splitlines() if "created" in line], "a line for each object"
    before = await cluster.versions()
    second = await cluster.polyarch("install")
    assert (second.code, second.out) == (0, "polyarch 0.1.0 in namespace polyarch-system: nothing to change\n")
    after = await cluster.versions()
    assert {name for name in before if "polyarch" in name and before[name] != after.get(name)} == set()


@pytest.mark.req("IN-002")
async def test_the_checks_are_listed_and_come_before_the_first_write(cluster: Cluster, tmp_path: Path) -> None:
    """Rights by SelfSubjectAccessReview: nothing is written for somebody who may not do all of it."""
    account = f"weak-{secrets.token_hex(3)}"
    await cluster.client.create(
        SERVICE_ACCOUNTS,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}},
        namespace="default",
    )
    token = await cluster.client.token("default", account)
    kubeconfig = tmp_path / "weak.json"
    sandbox = cluster.sandbox
    kubeconfig.write_text(json.dumps(kubeconfig_with_token("weak", sandbox.api_server, sandbox.pki.ca, token.token)))
    before = await cluster.versions()
    refused = await cluster.polyarch("install", kubeconfig=kubeconfig)
    assert await cluster.versions() == before
    await cluster.client.delete(SERVICE_ACCOUNTS, account, namespace="default")
    assert refused.code == 3
    assert "✓ Kubernetes: version 1." in refused.err
    assert "✗ Rights: not allowed: " in refused.err
    assert "customresourcedefinitions.apiextensions.k8s.io" in refused.err
    assert "cluster-admin" in refused.err
    assert "nothing was written" in refused.err


@pytest.mark.req("IN-002")
async def test_what_somebody_changed_of_the_operator_is_put_right_and_what_they_added_stays(
    cluster: Cluster,
) -> None:
    """The port of its Service, which server-side apply alone leaves beside ours; a variable is an administrator's."""
    assert (await cluster.polyarch("install")).code == 0
    container = "/spec/template/spec/containers/0"
    edits = (
        (SERVICES, patches.replace("/spec/ports/0/port", 8080)),
        (DEPLOYMENTS, patches.replace(f"{container}/name", "other")),
        (DEPLOYMENTS, patches.add(f"{container}/env/-", {"name": "MORE", "value": "1"})),
    )

    async def spec_of(kind: Resource) -> Json:
        found: Json = (await cluster.client.get(kind, names.OPERATOR, namespace=NAMESPACE))["spec"]
        return found

    for kind, change in edits:
        before = await spec_of(kind)
        await cluster.client.patch(
            kind, names.OPERATOR, JsonPatch((change,)), namespace=NAMESPACE, field_manager="kubectl-patch"
        )
        versions = await cluster.versions()
        tried = await cluster.polyarch("install", "--dry-run", "server")
        assert tried.code == 0, tried.err
        assert await cluster.versions() == versions
        ran = await cluster.polyarch("install", "-o", "json")
        assert ran.code == 0, ran.err
        (made,) = [each for each in document(ran.out)["objects"] if each["result"] != "unchanged"] or [None]
        if change.op == "add":
            assert made is None
            assert await spec_of(kind) != before
            continue
        assert made is not None
        assert (made["name"], made["result"]) == (names.OPERATOR, "configured")
        assert "kubectl-patch" in str(made)
        assert await spec_of(kind) == before


@pytest.mark.req("IN-002")
async def test_objects_of_somebody_else_are_never_touched(cluster: Cluster) -> None:
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": names.OPERATOR},
        "rules": [],
    }
    await cluster.client.create(CLUSTER_ROLES, role)
    before = await cluster.versions()
    refused = await cluster.polyarch("install", "-o", "json")
    assert await cluster.versions() == before
    await cluster.client.delete(CLUSTER_ROLES, names.OPERATOR)
    assert refused.code == 3
    (check,) = [each for each in document(refused.out)["checks"] if each["outcome"] == "refused"]
    assert f"ClusterRole {names.OPERATOR}" in check["message"]
    assert "not polyarch's" in check["message"]
    assert check["action"]


@pytest.mark.req("IN-002")
async def test_a_dry_run_writes_nothing(cluster: Cluster) -> None:
    before = await cluster.versions()
    tried = await cluster.polyarch("install", "--dry-run", "server")
    assert tried.code == 0
    assert "a dry run; 8 created" in tried.out
    assert "Deployment polyarch-system/polyarch-operator would be created" in tried.err
    assert await cluster.versions() == before


@pytest.mark.req("IN-002")
async def test_the_first_refusal_ends_it_with_the_servers_words_and_a_new_run_goes_on(cluster: Cluster) -> None:
    """An admission policy that denies our Service, which no check can see before its namespace exists."""
    await cluster.client.create(POLICIES, _policy("no-services"))
    await cluster.client.create(BINDINGS, _binding("no-services"))
    await _until_denied(cluster)
    refused = await cluster.polyarch("install", "-o", "json")
    assert refused.code == 3
    assert "Service polyarch-system/polyarch-operator" in refused.err
    assert "house rules" in refused.err
    last = document(refused.out)["objects"][-1]
    assert last["kind"] == "RoleBinding", "what comes before it is there"
    with pytest.raises(NotFound):
        await cluster.client.get(DEPLOYMENTS, names.OPERATOR, namespace=NAMESPACE)
    await cluster.client.delete(BINDINGS, "no-services")
    await cluster.client.delete(POLICIES, "no-services")
    await asyncio.sleep(1)
    done = await cluster.polyarch("install", "-o", "json")
    assert done.code == 0, done.err
    results = [each["result"] for each in document(done.out)["objects"]]
    assert results == sorted(results, key=lambda result: result != "unchanged"), "it goes on where it stopped"


@pytest.mark.req("IN-002")
async def test_who_waits_is_told_which_pod_does_not_run_and_why(cluster: Cluster) -> None:
    """In the words of the API server, the scheduler and a kubelet; there is no node here."""
    waited = await cluster.polyarch("install", "--wait", "--timeout", "10")
    assert waited.code == 3
    assert re.search(
        r"operator: 0 of 2 pods are ready \(polyarch-operator-\S+: Unschedulable: no nodes available", waited.err
    )

    template = (await cluster.client.get(DEPLOYMENTS, names.OPERATOR, namespace=NAMESPACE))["spec"]["template"]["spec"]

    async def pod(name: str, **spec: Any) -> Json:
        metadata = {"name": name, "labels": {names.CONTROLLER_LABEL: names.OPERATOR}}
        document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template | spec}
        return await cluster.client.create(PODS, document, namespace=NAMESPACE, type=dict)

    await pod("a-gated", schedulingGates=[{"name": names.GATE}])
    made = await pod("a-prepared", nodeName="none")
    waiting = {"name": "main", "image": "", "imageID": "", "ready": False, "restartCount": 0}
    waiting["state"] = {"waiting": {"reason": "ContainerCreating"}}
    status = MergePatch({"status": {"containerStatuses": [waiting]}})
    await cluster.client.patch(PODS, "a-prepared", status, namespace=NAMESPACE, subresource="status")
    for kind, reason in (("Normal", "Pulled"), ("Warning", "FailedMount")):
        event = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"generateName": "e-"},
            "regarding": {"kind": "Pod", "namespace": NAMESPACE, "name": "a-prepared", "uid": made["metadata"]["uid"]},
            "type": kind,
            "reason": reason,
            "note": f"{reason} it",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "action": "Starting",
            "reportingController": "tests",
            "reportingInstance": "tests",
        }
        await cluster.client.create(EVENTS, event, namespace=NAMESPACE)
    with pytest.raises(wait.WaitTimeout) as error:
        await wait.available(cluster.client, NAMESPACE, switched_on=(), seconds=0, tell=lambda _: None)
    gated = f"a-gated: SchedulingGated: it waits for {names.GATE}, which polyarch itself has set"
    assert f"({gated}; a-prepared: FailedMount: FailedMount it; polyarch-operator-" in str(error.value)
    for name in ("a-gated", "a-prepared"):  # else nobody does it
        await cluster.client.delete(PODS, name, namespace=NAMESPACE, grace_period_seconds=0)


@pytest.mark.req("IN-037")
async def test_the_scheduler_to_mirror_has_the_version_of_the_cluster(cluster: Cluster, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("components: [numa]\nnuma: {scheduler: {}}\n")
    found = await cluster.polyarch("install", "--images", "--values", str(values))
    release = json.loads(await cluster.client.raw("GET", "/version"))["gitVersion"]
    assert (found.code, found.out.splitlines()[1:]) == (0, [f"registry.k8s.io/kube-scheduler:{release}"])


@pytest.mark.req("IN-002")
async def test_what_users_set_in_the_configuration_stays(cluster: Cluster) -> None:
    await cluster.polyarch("install", "-q")
    await cluster.client.patch(CPPCS, names.SINGLETON, MergePatch({"spec": {"logVerbosity": "Debug"}}))
    again = await cluster.polyarch("install")
    assert "nothing to change" in again.out
    assert (await cluster.client.get(CPPCS, names.SINGLETON))["spec"]["logVerbosity"] == "Debug"


@pytest.mark.req("IN-010")
async def test_values_from_a_file_and_flags(cluster: Cluster, tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("image: {repository: registry.example/polyarch}\nplacement: {policy: {mode: audit}}\n")
    done = await cluster.polyarch("install", "--values", str(values), "--replicas", "1", "-q")
    assert done.code == 0, done.err
    deployment = await cluster.client.get(DEPLOYMENTS, names.OPERATOR, namespace=NAMESPACE)
    assert deployment["spec"]["replicas"] == 1
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/polyarch:0.1.0"
    assert {"name": "POLYARCH_WEBHOOK_REPLICAS", "value": "1"} in container["env"]


@pytest.mark.req("IN-003", "TN-073")
async def test_without_an_operator_taints_and_gates_are_removed_from_here(cluster: Cluster) -> None:
    """A node keeps what is not ours, and a pod that waits for tolerations is let go."""
    assert (await cluster.polyarch("install", "--component", "taints")).code == 0
    ours = {"key": "supported-arch", "value": "arm64", "effect": "NoSchedule"}
    theirs = {"key": "dedicated", "value": "infra", "effect": "NoSchedule"}
    record = {taints.MANAGED_TAINTS_ANNOTATION: "supported-arch=arm64:NoSchedule"}
    node = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": "tainted", "annotations": record},
        "spec": {"taints": [theirs, ours]},
    }
    await cluster.client.create(NODES, node)
    waiting = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "waits", "labels": {taints.GATED_LABEL: taints.GATED}},
        "spec": {
            "automountServiceAccountToken": False,
            "schedulingGates": [{"name": taints.GATE}],
            "containers": [{"name": "c", "image": "registry.invalid/none:1"}],
        },
    }
    await cluster.client.create(PODS, waiting, namespace="default")
    try:
        removed = await cluster.polyarch("uninstall", "--force")
        assert removed.code == 0, removed.err
        assert "gates, taints and finalizers are removed from here" in removed.err
        found = await cluster.client.get(NODES, "tainted")
        assert [each["key"] for each in found["spec"]["taints"] if each["key"] in ("dedicated", "supported-arch")] == [
            "dedicated"
        ]
        assert taints.MANAGED_TAINTS_ANNOTATION not in found["metadata"].get("annotations", {})
        assert "schedulingGates" not in (await cluster.client.get(PODS, "waits", namespace="default"))["spec"]
    finally:
        await cluster.client.delete(NODES, "tainted")
        await cluster.client.delete(PODS, "waits", namespace="default", grace_period_seconds=0)


@pytest.mark.req("IN-003", "IN-031")
async def test_nothing_is_left_anywhere(cluster: Cluster) -> None:
    """Every object of the API server, before and after."""
    before = await cluster.everything()
    await cluster.polyarch("install", "-q")
    assert len(await cluster.everything()) >= len(before) + 15
    removed = await cluster.polyarch("uninstall", "--force")
    assert removed.code == 0, removed.err
    assert "nothing is left" in removed.out
    assert (await cluster.everything()).keys() == before.keys()


@pytest.mark.req("IN-003", "IN-036")
@pytest.mark.parametrize(("made", "wanted"), [(True, True), (False, False), (True, False)], ids=["on", "off", "turned"])
async def test_policies_of_accounts_leave_nothing_where_no_operator_runs(
    cluster: Cluster, tmp_path: Path, made: bool, wanted: bool
) -> None:
    """``made`` as the operator makes them; turned off when it ran no more, they are still there."""
    values = tmp_path / "values.yaml"
    values.write_text(f"components: [placement, taints, builds]\nadmissionPolicies: {str(wanted).lower()}\n")
    done = await cluster.polyarch("install", "--values", str(values), "-q")
    assert done.code == 0, done.err
    settings = OperatorSettings(namespace=NAMESPACE, admission_policies=made)
    operands = placement_objects.pod_policy(settings) + taints_objects.policies(settings) if made else ()
    for each in (*operands, *builds_operands(settings, Kubernetes())):
        where = each["metadata"].get("namespace", "")
        await cluster.client.apply(by_kind(each["apiVersion"], each["kind"]), each, namespace=where)
    found = {each["metadata"]["name"] for each in (await cluster.client.list(POLICIES)).items}
    of_accounts = {names.POD_POLICY, taints.POD_POLICY, taints.TEMPLATE_POLICY, BUILDER_POLICY}
    assert found & of_accounts == (of_accounts if made else set())
    removed = await cluster.polyarch("uninstall", "--force")
    assert removed.code == 0, removed.err
    assert "nothing is left of it" in removed.out


@pytest.mark.req("IN-003", "PL-521")
async def test_without_an_operator_gates_and_finalizers_are_removed(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody removes the gate, and the configuration is held by a finalizer; without ``--force`` it takes over
    when no operator has run for a while."""
    monkeypatch.setattr(uninstall, "UNREADY_OPERATOR_TIMEOUT", 2.0)
    await cluster.polyarch("install", "-q")
    await _held(cluster, CPPCS, names.SINGLETON)
    await _gated_pod(cluster, "gated")
    removed = await cluster.polyarch("uninstall", "-o", "json")
    assert removed.code == 0, removed.err
    assert "no operator has run for 2 s" in removed.err
    done = document(removed.out)
    assert (done["releasedPods"], done["left"]) == (1, [])
    pod = await cluster.client.get(PODS, "gated", namespace="default")
    assert not pod["spec"].get("schedulingGates")
    assert pod["metadata"]["labels"][names.SCHEDULING_GATE_LABEL] == "removed"
    await cluster.client.delete(PODS, "gated", namespace="default", grace_period_seconds=0)


@pytest.mark.req("IN-003")
async def test_with_force_nobody_is_waited_for(cluster: Cluster) -> None:
    await cluster.polyarch("install", "-q")
    await _held(cluster, CPPCS, names.SINGLETON)
    config = {
        "apiVersion": PPCS.api_version,
        "kind": PPCS.kind,
        "metadata": {"name": "mine"},
        "spec": {"plugins": {}},
    }
    await cluster.client.create(PPCS, config, namespace="default")
    removed = await cluster.polyarch("uninstall", "--force", "-o", "json")
    assert removed.code == 0, removed.err
    done = document(removed.out)
    assert done["byForce"] == "no operator runs, and --force was given"
    assert "PodPlacementConfig" in {each["kind"] for each in done["deleted"]}


@pytest.mark.req("IN-003")
async def test_a_namespace_with_objects_of_others_is_kept(cluster: Cluster) -> None:
    await cluster.polyarch("install", "-q")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "mine"}}
    await cluster.client.create(SECRETS, secret, namespace=NAMESPACE)
    removed = await cluster.polyarch("uninstall", "--force")
    assert removed.code == 0, removed.err
    assert f"kept: namespace {NAMESPACE}: it has Secret {NAMESPACE}/mine" in removed.out
    await cluster.client.delete(SECRETS, "mine", namespace=NAMESPACE)


@pytest.mark.req("IN-003")
async def test_what_others_labelled_as_polyarchs_is_kept_and_named(cluster: Cluster) -> None:
    """A dashboard of a team, a ClusterRole, and a namespace that holds nothing: only polyarch's own objects go."""
    label = {"app.kubernetes.io/part-of": "polyarch"}
    name = f"theirs-{secrets.token_hex(3)}"
    theirs: tuple[tuple[Resource, str], ...] = ((NAMESPACES, ""), (CLUSTER_ROLES, ""), (CONFIGMAPS, "default"))
    for resource, where in theirs:
        metadata = {"name": name, "labels": label}
        made = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
        await cluster.client.apply(resource, made, namespace=where, field_manager="kubectl")
    await cluster.polyarch("install", "-q")
    removed = await cluster.polyarch("uninstall", "--force", "-o", "json")
    assert removed.code == 0, removed.err
    for resource, where in theirs:
        live = await cluster.client.get(resource, name, namespace=where)
        assert "deletionTimestamp" not in live["metadata"]
        await cluster.client.delete(resource, name, namespace=where)
    done = document(removed.out)
    told = [f"{resource.kind} {ObjectKey(where, name)}" for resource, where in theirs]
    assert sorted(done["kept"]) == sorted(f"{each}: labelled as polyarch's, but not made by polyarch" for each in told)
    await _gone(cluster, NAMESPACES, name)


@pytest.mark.req("IN-003")
async def test_definitions_can_be_kept(cluster: Cluster) -> None:
    await cluster.polyarch("install", "-q")
    removed = await cluster.polyarch("uninstall", "--force", "--keep-crds")
    assert removed.code == 0, removed.err
    there = {each["metadata"]["name"] for each in (await cluster.client.list(CRDS)).items}
    assert str(CPPCS) in there
    assert not (await cluster.client.list(CPPCS)).items


@pytest.mark.req("IN-002")
async def test_the_namespace_of_somebody_else_survives(cluster: Cluster) -> None:
    name = f"team-{secrets.token_hex(3)}"
    await cluster.client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    assert (await cluster.polyarch("install", "-n", name, "-q")).code == 0
    elsewhere = await cluster.polyarch("install", "-n", "other")
    assert elsewhere.code == 3
    assert f"--namespace {name}" in elsewhere.err
    assert (await cluster.polyarch("uninstall", "--force", "-q")).code == 0, "it is found without -n"
    namespace = await cluster.client.get(NAMESPACES, name)
    assert namespace["metadata"].get("deletionTimestamp") is None
    await cluster.client.delete(NAMESPACES, name)
    await _gone(cluster, NAMESPACES, name)


HELD = "example.com/held"


@pytest.mark.req("IN-003")
async def test_what_others_hold_of_every_kind_is_named_first_with_its_finalizer(cluster: Cluster) -> None:
    """One object of each kind that polyarch makes, custom resources, definitions and the namespace's content included.
    What only waits for it comes after; and the end does not take the whole four minutes."""
    components = ("placement", "taints", "builds", "numa")
    done = await cluster.polyarch("install", *(f"--component={each}" for each in components), "-q")
    assert done.code == 0, done.err
    settings = OperatorSettings(namespace=NAMESPACE)
    policies = placement_objects.pod_policy(settings) + taints_objects.policies(settings)
    for each in (*policies, *builds_operands(settings, Kubernetes())):
        where = each["metadata"].get("namespace", "")
        await cluster.client.apply(by_kind(each["apiVersion"], each["kind"]), each, namespace=where)
    await _topology_definition(cluster)
    await _topology(cluster, "worker", {numa.NODE_GROUP_LABEL: "all"})
    event = _build(ENOEXECEVENTS, "arm64-1", {})
    await cluster.client.create(ENOEXECEVENTS, event, namespace=NAMESPACE)
    await cluster.client.create(builds.IMAGE_BUILDS, _build(builds.IMAGE_BUILDS, "web", spec()), namespace="default")
    chosen: dict[str, ObjectRef] = {}
    for found in belongings(await survey(cluster.client), NAMESPACE).ours:
        if found.ref.resource not in (NAMESPACES, EVENTS) and not found.metadata.owner_references:
            chosen.setdefault(str(found.ref.resource), found.ref)
    hold = MergePatch({"metadata": {"finalizers": [HELD]}})
    for resource, key in chosen.values():
        await cluster.client.patch(resource, key.name, hold, namespace=key.namespace)
    began = time.monotonic()
    removed = await cluster.polyarch("uninstall", "--force", "-o", "json")
    assert removed.code == 3
    assert time.monotonic() - began < 120
    left = document(removed.out)["left"]
    held = [f"{ref.resource.kind} {ref.key} is held by finalizer {HELD} of others" for ref in chosen.values()]
    assert [words for words in held if not any(said.startswith(words) for said in left[: len(held)])] == []
    free = MergePatch({"metadata": {"finalizers": None}})
    for resource, key in chosen.values():
        with contextlib.suppress(NotFound):
            await cluster.client.patch(resource, key.name, free, namespace=key.namespace)


# Component builds -----------------------------------------------------------------------------------------------------


@pytest.mark.req("BD-002", "IN-003")
async def test_builds_leave_nothing_where_no_operator_runs(cluster: Cluster) -> None:
    """Builds and their runs go although the builder's finalizer holds them; and so does what the operator and
    the builder made."""
    done = await cluster.polyarch("install", "--component", "builds", "-q")
    assert done.code == 0, done.err
    client = cluster.client
    for each in builds_operands(OperatorSettings(namespace=NAMESPACE), Kubernetes()):
        where = each["metadata"].get("namespace", "")
        await client.apply(by_kind(each["apiVersion"], each["kind"]), each, namespace=where)
    for resource, name in ((SECRETS, builds.HMAC_SECRET), (CONFIGMAPS, builds.ARCHITECTURES_CONFIGMAP)):
        made = {"apiVersion": "v1", "kind": resource.kind, "metadata": {"name": name}}
        await client.create(resource, made, namespace=NAMESPACE)
    build = await client.create(builds.IMAGE_BUILDS, _build(builds.IMAGE_BUILDS, "web", spec()), namespace="default")
    run = {
        "imageBuild": {"name": "web", "uid": build.metadata.uid},
        "buildKey": "0" * 64,
        "architectures": [{"architecture": "amd64", "key": "0" * 64}],
        "repository": "registry.example.com/team/web",
    }
    held = {"finalizers": [builds.IMAGES_FINALIZER]}
    await client.create(
        builds.IMAGE_BUILD_RUNS, _build(builds.IMAGE_BUILD_RUNS, "web-1", run, **held), namespace="default"
    )
    removed = await cluster.polyarch("uninstall", "--force")
    assert removed.code == 0, removed.err
    assert "nothing is left of it" in removed.out


def _build(resource: Resource, name: str, content: Json, **metadata: Any) -> Json:
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, **metadata},
        "spec": content,
    }


# Component numa -------------------------------------------------------------------------------------------------------


@pytest.mark.req("IN-003", "NO-057", "NO-072")
async def test_numa_leaves_nothing_where_no_operator_runs(cluster: Cluster) -> None:
    """Its objects go although the operator's finalizer holds them, and so does what exporters have published."""
    done = await cluster.polyarch("install", "--component", "numa", "-q")
    assert done.code == 0, done.err
    exporters = await cluster.client.get(OPERATORS, numa.OPERATOR_SINGLETON)
    assert [group["poolName"] for group in exporters["spec"]["nodeGroups"]] == ["all"]
    await cluster.client.patch(
        OPERATORS, numa.OPERATOR_SINGLETON, MergePatch({"metadata": {"finalizers": [numa.FINALIZER]}})
    )
    level = (await cluster.client.get(NAMESPACES, NAMESPACE))["metadata"]["labels"][
        "pod-security.kubernetes.io/enforce"
    ]
    assert level == "privileged", "exporters mount parts of the host"
    await _topology_definition(cluster)
    await _topology(cluster, "ours", {numa.NODE_GROUP_LABEL: "all"})
    removed = await cluster.polyarch("uninstall", "--force")
    assert removed.code == 0, removed.err
    assert "nothing is left of it" in removed.out
    assert str(TOPOLOGIES) not in {each["metadata"]["name"] for each in (await cluster.client.list(CRDS)).items}


@pytest.mark.req("IN-003")
async def test_topologies_of_others_and_their_definition_are_kept_and_named(cluster: Cluster) -> None:
    await cluster.polyarch("install", "--component", "numa", "-q")
    await _topology_definition(cluster)
    await _topology(cluster, "ours", {numa.NODE_GROUP_LABEL: "all"})
    await _topology(cluster, "theirs", {})
    removed = await cluster.polyarch("uninstall", "--force")
    assert removed.code == 0, removed.err
    assert f"kept: {TOPOLOGIES}: there are NodeResourceTopology theirs of others" in removed.out
    found = (await cluster.client.list(TOPOLOGIES)).items
    assert [each["metadata"]["name"] for each in found] == ["theirs"]
    await cluster.client.delete(CRDS, str(TOPOLOGIES))
    await _gone(cluster, CRDS, str(TOPOLOGIES))


@pytest.mark.req("IN-003")
async def test_another_operators_numa_is_no_part_of_an_installation_without_it(cluster: Cluster) -> None:
    """The same names in a cluster where polyarch only places pods: definition and object stay as they are."""
    (definition, _) = numa_definitions.crds()
    await cluster.client.apply(CRDS, definition, field_manager="another")
    await wait.established(cluster.client, [str(OPERATORS)])
    theirs = {
        "apiVersion": OPERATORS.api_version,
        "kind": OPERATORS.kind,
        "metadata": {"name": numa.OPERATOR_SINGLETON},
        "spec": {"nodeGroups": [{"poolName": "all"}]},
    }
    await cluster.client.create(OPERATORS, theirs)
    assert (await cluster.polyarch("install", "-q")).code == 0
    removed = await cluster.polyarch("uninstall", "--force")
    assert removed.code == 0, removed.err
    assert "deletionTimestamp" not in (await cluster.client.get(OPERATORS, numa.OPERATOR_SINGLETON))["metadata"]
    await cluster.client.delete(CRDS, str(OPERATORS))
    await _gone(cluster, CRDS, str(OPERATORS))


async def _topology_definition(cluster: Cluster) -> None:
    """As the operator makes it."""
    made = topology_crd()
    made["metadata"] = {**made["metadata"], "labels": dict(PART_OF)}
    await cluster.client.apply(CRDS, made)
    await wait.established(cluster.client, [str(TOPOLOGIES)])


async def _topology(cluster: Cluster, name: str, labels: dict[str, str]) -> None:
    metadata = {"name": name, "labels": labels}
    made = {"apiVersion": TOPOLOGIES.api_version, "kind": TOPOLOGIES.kind, "metadata": metadata, "zones": []}
    await cluster.client.create(TOPOLOGIES, made)


async def _gone(cluster: Cluster, resource: Resource, name: str) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                await cluster.client.get(resource, name)
            except NotFound:
                return
            await asyncio.sleep(0.2)


async def _until_denied(cluster: Cluster) -> None:
    """API servers learn of a policy by a watch."""
    probe = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": names.OPERATOR}}
    async with asyncio.timeout(30):
        while True:
            try:
                await cluster.client.create(
                    SERVICES, {**probe, "spec": {"ports": [{"port": 1}]}}, namespace="default", dry_run=True
                )
            except Invalid:
                return
            await asyncio.sleep(0.1)


async def _held(cluster: Cluster, resource: Resource, name: str) -> None:
    finalizers = [names.POD_PLACEMENT_FINALIZER]
    await cluster.client.patch(resource, name, JsonPatch((patches.add("/metadata/finalizers", finalizers),)))


async def _gated_pod(cluster: Cluster, name: str) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {names.SCHEDULING_GATE_LABEL: names.GATED}},
        "spec": {
            "schedulingGates": [{"name": names.GATE}],
            "containers": [{"name": "x", "image": "x"}],
        },
    }
    await cluster.client.create(PODS, pod, namespace="default")


def _policy(name: str) -> Json:
    return yaml.safe_load(f"""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {{name: {name}}}
spec:
  matchConstraints:
    resourceRules:
    - {{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [services]}}
  validations:
  - expression: object.metadata.name != '{names.OPERATOR}'
    message: house rules, no such service
    reason: Invalid
""")


def _binding(name: str) -> Any:
    return yaml.safe_load(f"""
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {{name: {name}}}
spec: {{policyName: {name}, validationActions: [Deny]}}
""")


@pytest.mark.req("IN-004")
async def test_check_prints_a_diff_and_writes_nothing(cluster: Cluster) -> None:
    await cluster.polyarch("install", "--replicas", "1", "-q")
    same = await cluster.polyarch("upgrade", "--check")
    assert (same.code, same.out) == (0, "polyarch 0.1.0 → 0.1.0 in namespace polyarch-system: nothing would change\n")
    before = await cluster.versions()
    other = await cluster.polyarch("upgrade", "--check", "--image", "registry.example/polyarch:9")
    after = await cluster.versions()
    assert {name for name in before if "polyarch" in name and before[name] != after.get(name)} == set()
    assert other.code == 1
    assert "-        image: ghcr.io/polyarch/polyarch:0.1.0\n+        image: registry.example/polyarch:9\n" in other.out
    assert "1 object would change" in other.out


@pytest.mark.req("IN-004")
async def test_an_upgrade_keeps_the_values_of_the_installation(cluster: Cluster) -> None:
    await cluster.polyarch("install", "--replicas", "1", "--image", "registry.example/polyarch:0.0.9", "-q")
    done = await cluster.polyarch("upgrade", "-q")
    assert done.code == 0, done.err
    deployment = await cluster.client.get(DEPLOYMENTS, names.OPERATOR, namespace=NAMESPACE)
    assert deployment["spec"]["replicas"] == 1
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "registry.example/polyarch:0.1.0"


@pytest.mark.req("IN-004")
async def test_what_stands_in_the_way_is_named_and_nothing_is_written(cluster: Cluster) -> None:
    """A definition with a field that this version does not have, used by an object; and an operator that is newer."""
    await cluster.polyarch("install", "-q")
    definition = await cluster.client.get(CRDS, str(CPPCS))
    index = next(at for at, each in enumerate(definition["spec"]["versions"]) if each["storage"])
    path = f"/spec/versions/{index}/schema/openAPIV3Schema/properties/spec/properties/later"
    await cluster.client.patch(CRDS, str(CPPCS), JsonPatch((patches.add(path, {"type": "string"}),)))
    async with asyncio.timeout(30):
        while True:
            await cluster.client.patch(CPPCS, names.SINGLETON, MergePatch({"spec": {"later": "x"}}))
            if "later" in (await cluster.client.get(CPPCS, names.SINGLETON))["spec"]:
                break
            await asyncio.sleep(0.2)
    newer = MergePatch({"metadata": {"labels": {"app.kubernetes.io/version": "9.0.0"}}})
    await cluster.client.patch(DEPLOYMENTS, names.OPERATOR, newer, namespace=NAMESPACE)
    before = await cluster.versions()
    refused = await cluster.polyarch("upgrade")
    after = await cluster.versions()
    assert {name for name in before if "polyarch" in name and before[name] != after.get(name)} == set()
    assert refused.code == 3
    assert "does not have the field spec.later; used by cluster" in refused.err
    assert "polyarch 9.0.0 is installed, and this command is 0.1.0" in refused.err
