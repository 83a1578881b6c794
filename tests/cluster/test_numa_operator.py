"""The operator brings NUMA exporters and scheduler to a cluster, keeps them, and takes them out again.

On a real control plane with nodes of the sandbox. What runs in the exporters' pods is another matter: these tests are
about objects, conditions and deletions. ``OperatorWorld.install`` gives the operator exactly its rights.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from audited import Audited
from numa_operated import (
    DAEMON_SET,
    GROUP,
    KINDS,
    ROLE,
    create,
    label,
    objects,
    opened,
    published,
    resource,
    served,
    state,
    topology,
)
from operator_world import OperatorWorld, eventually

from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import (
    CONFIGMAPS,
    CRDS,
    DAEMONSETS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    Resource,
)
from polyarch.names import NUMA_SCHEDULER
from polyarch.numa import names
from polyarch.numa.api.resources import OPERATORS, SCHEDULERS
from polyarch.numa.api.topology import TOPOLOGIES
from polyarch.placement import names as placement
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints import names as taint_names
from polyarch.taints.api import ARCHITECTURE_TAINTS


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with opened(operated_sandbox, tmp_path) as world:
        yield world


@pytest.mark.req("NO-040", "NO-042", "NO-044", "NO-072", "NO-120")
async def test_an_object_brings_everything_and_its_deletion_leaves_nothing(world: OperatorWorld) -> None:
    """With exactly its rights, from the object to the last NRT of ours."""
    audit = world.audit()
    nodes = await label(world, 2)
    async with world.operator():
        await create(world, [{"poolName": GROUP}])
        await eventually(lambda: world.is_there(DAEMONSETS, DAEMON_SET))
        found = await resource(world)
        assert found["metadata"]["finalizers"] == [names.FINALIZER]
        daemon_set = await world.client.get(DAEMONSETS, DAEMON_SET, namespace=world.namespace)
        (owner,) = daemon_set["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (found["metadata"]["uid"], True)
        managers = {each["manager"] for each in daemon_set["metadata"]["managedFields"] if not each.get("subresource")}
        assert "polyarch" in managers
        secret = await world.secret(names.EXPORTER_CERTIFICATE)
        assert {"tls.crt", "tls.key"} <= secret.keys()
        await eventually(lambda: is_served(world))
        assert not (await world.client.get(CRDS, str(TOPOLOGIES)))["metadata"].get("ownerReferences")
        for node, group in ((nodes[0], GROUP), ("elsewhere", None)):
            await topology(world, node, group)
        await world.client.delete(OPERATORS, names.OPERATOR_SINGLETON)
        await eventually(lambda: world.is_gone(OPERATORS, names.OPERATOR_SINGLETON))
        assert await published(world) == ["elsewhere"]

        async def nothing() -> bool:
            return not [name for kind in KINDS for name in await objects(world, kind)]

        await eventually(nothing)
        await eventually(lambda: world.is_gone(SECRETS, names.EXPORTER_CERTIFICATE, world.namespace))
        assert await world.is_there(CRDS, str(TOPOLOGIES))
    assert await audit.refused() == []


@pytest.mark.req("IN-002")
async def test_a_leader_has_looked_at_everything_when_the_exporters_are_applied_too(world: OperatorWorld) -> None:
    """``install --wait`` believes the custom resource from then on. A pass that fails is no look."""
    await label(world, 1)
    theirs = {"matchLabels": {"app": "theirs"}}
    pod = {"metadata": {"labels": {"app": "theirs"}}, "spec": {"containers": [{"name": "a", "image": "theirs"}]}}
    spec = {"selector": theirs, "template": pod}
    await world.create(DAEMONSETS, DAEMON_SET, spec, namespace=world.namespace)
    await create(world, [{"poolName": GROUP}])
    async with world.operator():
        await eventually(lambda: is_in(world, "Degraded"))
        await asyncio.sleep(5)  # the Lease is renewed every 2 s
        assert await settled(world) == (True, "")
        await world.delete(DAEMONSETS, DAEMON_SET, world.namespace)
        await eventually(lambda: says_so(world))
        assert await world.is_there(DAEMONSETS, DAEMON_SET)


async def is_in(world: OperatorWorld, wanted: str) -> bool:
    return (await state(world))[0] == wanted


async def settled(world: OperatorWorld) -> tuple[bool, str]:
    """Whether an operator leads, and which one says that it has looked at everything."""
    lease = await world.client.get(LEASES, placement.OPERATOR_LEASE, namespace=world.namespace)
    told = lease["metadata"].get("annotations") or {}
    return bool(lease["spec"].get("holderIdentity")), told.get(placement.OPERATOR_SETTLED, "")


async def says_so(world: OperatorWorld) -> bool:
    leads, who = await settled(world)
    return leads and bool(who)


async def is_served(world: OperatorWorld) -> bool:
    return await served(world, TOPOLOGIES)


@pytest.mark.req("NO-045", "NO-070", "NO-071")
async def test_a_removed_group_and_a_node_that_leaves_it(world: OperatorWorld) -> None:
    """What a group made goes with it, and what a node published when it has left."""
    nodes = await label(world, 2)
    async with world.operator():
        everyone = {"matchExpressions": [{"key": ROLE, "operator": "DoesNotExist"}]}
        await create(world, [{"poolName": GROUP}, {"poolName": "rest", "nodeSelector": everyone}])
        for group in (GROUP, "rest"):
            await eventually(lambda group=group: world.is_there(DAEMONSETS, f"numaresourcesoperator-{group}"))
        await world.client.patch(
            OPERATORS, names.OPERATOR_SINGLETON, MergePatch({"spec": {"nodeGroups": [{"poolName": GROUP}]}})
        )
        for kind in (DAEMONSETS, CONFIGMAPS):
            await eventually(lambda kind=kind: world.is_gone(kind, "numaresourcesoperator-rest", world.namespace))
        assert await world.is_there(DAEMONSETS, DAEMON_SET)
        for node in nodes:
            await topology(world, node, GROUP)
        await topology(world, "foreign", None)
        gone = {"metadata": {"labels": {ROLE: None}}}
        await world.client.patch(NODES, nodes[0], MergePatch(gone))

        async def left() -> bool:
            return await published(world) == sorted([nodes[1], "foreign"])

        await eventually(left, seconds=120)


@pytest.mark.req("NO-001", "NO-033", "NO-034")
async def test_manifests_of_the_predecessor_apply_unchanged(world: OperatorWorld) -> None:
    """v1alpha1 with poolName, and v1 with the selector of a MachineConfigPool."""
    nodes = await label(world, 1)
    async with world.operator():
        await create(world, [{"poolName": GROUP}], version="v1alpha1")
        await eventually(lambda: world.is_there(DAEMONSETS, DAEMON_SET))
        selector = {"matchLabels": {f"pools.operator.machineconfiguration.openshift.io/{GROUP}": ""}}
        await world.client.patch(
            OPERATORS,
            names.OPERATOR_SINGLETON,
            MergePatch({"spec": {"nodeGroups": [{"poolName": None, "machineConfigPoolSelector": selector}]}}),
        )
        await asyncio.sleep(1)
        daemon_set = await world.client.get(DAEMONSETS, DAEMON_SET, namespace=world.namespace)

        async def scheduled() -> bool:
            found = await world.client.get(DAEMONSETS, DAEMON_SET, namespace=world.namespace)
            return found["status"].get("desiredNumberScheduled") == len(nodes)

        await eventually(scheduled)
        assert daemon_set["spec"]["template"]["metadata"]["labels"]["name"] == "resource-topology"


@pytest.mark.req("NO-042", "NO-043")
async def test_a_foreign_change_is_undone_and_a_settled_cluster_is_only_read(world: OperatorWorld) -> None:
    """And what others set beside ours stays."""
    async with world.operator():
        await create(world, [{"poolName": "all", "nodeSelector": {}}])
        name = "numaresourcesoperator-all"
        await eventually(lambda: world.is_there(DAEMONSETS, name))
        foreign = {"metadata": {"annotations": {"example.com/mine": "yes"}}, "data": {"config.yaml": "podExclude: []"}}
        before = await world.client.get(CONFIGMAPS, name, namespace=world.namespace)
        await world.client.patch(CONFIGMAPS, name, MergePatch(foreign), namespace=world.namespace)

        async def undone() -> bool:
            found = await world.client.get(CONFIGMAPS, name, namespace=world.namespace)
            return bool(
                found["data"] == before["data"] and found["metadata"]["annotations"]["example.com/mine"] == "yes"
            )

        await eventually(undone, seconds=30)
        await asyncio.sleep(3)
        audit = world.audit()
        await world.client.patch(
            OPERATORS, names.OPERATOR_SINGLETON, MergePatch({"metadata": {"labels": {"touched": "once"}}})
        )
        await asyncio.sleep(8)
        assert await writes(audit) == []


@pytest.mark.req("NO-036", "NO-038", "NO-057", "NO-087")
async def test_what_is_wrong_is_said_and_nothing_changes(world: OperatorWorld) -> None:
    """Two groups of one node, a name that is not the name, a missing label."""
    nodes = await label(world, 1)
    async with world.operator():
        await create(world, [{"poolName": GROUP}])
        await eventually(lambda: world.is_there(DAEMONSETS, DAEMON_SET))
        overlap = [{"poolName": GROUP}, {"poolName": "every", "nodeSelector": {}}]
        await world.client.patch(OPERATORS, names.OPERATOR_SINGLETON, MergePatch({"spec": {"nodeGroups": overlap}}))

        async def refused() -> bool:
            kind, reason, message = await state(world)
            return (kind, reason) == ("Degraded", "ValidationErrorUnderNodeGroups") and nodes[0] in message

        await eventually(refused)
        assert await objects(world, DAEMONSETS) == [DAEMON_SET]
        await world.client.patch(
            OPERATORS, names.OPERATOR_SINGLETON, MergePatch({"spec": {"nodeGroups": [{"poolName": GROUP}]}})
        )

        async def recovered() -> bool:
            return (await state(world))[0] != "Degraded"

        await eventually(recovered)
        no_label = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}}
        await world.client.patch(NAMESPACES, world.namespace, MergePatch(no_label))

        async def names_the_label() -> bool:
            kind, _, message = await state(world)
            return kind == "Degraded" and "pod-security.kubernetes.io/enforce" in message

        await eventually(names_the_label)


@pytest.mark.req("NO-074")
async def test_adoption_after_a_new_installation_restarts_no_pod(world: OperatorWorld) -> None:
    """The operator goes, exporters stay; another one takes everything over as it is."""
    await label(world, 1)
    async with world.operator():
        await create(world, [{"poolName": GROUP}])
        await eventually(lambda: world.is_there(DAEMONSETS, DAEMON_SET))
        await eventually(lambda: has_status(world))
    before = await world.client.get(DAEMONSETS, DAEMON_SET, namespace=world.namespace)
    audit = world.audit()
    async with world.operator():
        same = MergePatch({"spec": {"logLevel": "Normal"}})  # as it was by default, in another generation
        changed = await world.client.patch(OPERATORS, names.OPERATOR_SINGLETON, same, type=dict)

        async def looked() -> bool:
            conditions = (await resource(world))["status"]["conditions"]
            return {each["observedGeneration"] for each in conditions} == {changed["metadata"]["generation"]}

        await eventually(looked)
    after = await world.client.get(DAEMONSETS, DAEMON_SET, namespace=world.namespace)
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    status = f"patch numaresourcesoperators/status {names.OPERATOR_SINGLETON}"
    assert set(await writes(audit)) <= {status}


async def writes(audit: Audited) -> list[str]:
    """What was written, but for Events and for what the process itself needs."""
    asked = [each for each in await audit.requests() if not each.startswith(("get ", "list "))]
    return [each for each in asked if each.split()[1] not in ("events", "tokenreviews", "subjectaccessreviews")]


async def has_status(world: OperatorWorld) -> bool:
    return bool((await state(world))[0])


@pytest.mark.req("NO-073", "NO-080", "NO-082", "NO-086")
async def test_the_scheduler_comes_and_goes(world: OperatorWorld) -> None:
    """Objects, a condition, and after the deletion an Event for whoever waits."""
    audit = world.audit()
    async with world.operator():
        await world.create(SCHEDULERS, names.SCHEDULER_SINGLETON, {"replicas": 1})
        await eventually(lambda: world.is_there(DEPLOYMENTS, names.SCHEDULER))

        async def progressing() -> bool:
            kind, reason, _ = await state(world, SCHEDULERS)
            return (kind, reason) == ("Progressing", "DeploymentIsUpdating")

        await eventually(progressing)
        found = await resource(world, SCHEDULERS)
        assert found["status"]["schedulerName"] == "topo-aware-scheduler"
        assert {"topo-aware-scheduler-config", "numa-extender-config"} <= set(
            await objects(world, CONFIGMAPS, NUMA_SCHEDULER)
        )
        team = await world.team()
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "waiting"},
            "spec": {
                "schedulerName": "topo-aware-scheduler",
                "containers": [{"name": "main", "image": "registry.example/app:1"}],
            },
        }
        await world.client.create(PODS, pod, namespace=team)
        await world.client.delete(SCHEDULERS, names.SCHEDULER_SINGLETON)
        await eventually(lambda: world.is_gone(SCHEDULERS, names.SCHEDULER_SINGLETON))

        async def told() -> bool:
            events = await world.client.list(Resource("events.k8s.io", "v1", "events", "Event"), namespace=team)
            return any(each.get("reason") == "SchedulerRemoved" for each in events.items)

        await eventually(told)

        async def nothing() -> bool:
            return not [name for kind in KINDS for name in await objects(world, kind, NUMA_SCHEDULER)]

        await eventually(nothing)
    assert await audit.refused() == []


@pytest.mark.req("NO-080", "TN-081")
async def test_the_scheduler_tolerates_taints_by_architecture_like_every_pod_of_ours(world: OperatorWorld) -> None:
    """Else the role of taints holds its pods until their image is known, which it is not where nobody can pull it."""

    async def tolerated() -> set[str]:
        found = await world.client.get(DEPLOYMENTS, names.SCHEDULER, namespace=world.namespace)
        return {each["key"] for each in found["spec"]["template"]["spec"]["tolerations"]}

    async with world.operator():
        await world.create(SCHEDULERS, names.SCHEDULER_SINGLETON, {"replicas": 1})
        await eventually(lambda: world.is_there(DEPLOYMENTS, names.SCHEDULER))
        before = await tolerated()
        taint = {"preset": "custom", "key": "example.com/arch"}
        await world.create(ARCHITECTURE_TAINTS, taint_names.SINGLETON, {"state": "paused", "taint": taint})

        async def tolerates(keys: set[str]) -> bool:
            return await tolerated() == keys

        await eventually(lambda: tolerates(before | {"example.com/arch"}))
        await world.client.delete(ARCHITECTURE_TAINTS, taint_names.SINGLETON)
        await eventually(lambda: world.is_gone(ARCHITECTURE_TAINTS, taint_names.SINGLETON))
        await eventually(lambda: tolerates(before))
