"""KR-051 with placement's own objects (PL-500): made once, kept without a request, and unmade by the same list."""

import asyncio
import secrets
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from placement_cluster import until
from test_kube_control_live import in_background

from polyarch.kube import config
from polyarch.kube.apply import ApplyFailed, ApplySet
from polyarch.kube.client import Client
from polyarch.kube.errors import KubernetesError
from polyarch.kube.informer import InformerFactory
from polyarch.kube.patches import JsonPatch, Operation, add, replace
from polyarch.kube.resources import (
    CLUSTER_ROLES,
    CONFIGMAPS,
    DEPLOYMENTS,
    MUTATING_WEBHOOKS,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    ROLE_BINDINGS,
    ROLES,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    VALIDATING_POLICIES,
    VALIDATING_POLICY_BINDINGS,
    ObjectRef,
    Resource,
)
from polyarch.objects import ObjectKey, PartialObjectMetadata, Unstructured
from polyarch.operator.apply_sets import IN_CLUSTER
from polyarch.operator.components import placement_objects as operands
from polyarch.operator.components import placement_objects as webhooks
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import ClusterPodPlacementConfig, PlacementPolicy
from polyarch.placement.settings import SettingsTable
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.versions import as_numbers


class Requests:
    """Counts what a client asks, but for its watches."""

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()

    def request(self, verb: str, resource: str, code: int) -> None:
        if verb != "watch":
            self.count[f"{verb} {resource}"] += 1


NAMESPACED = (
    SERVICE_ACCOUNTS,
    SECRETS,
    CONFIGMAPS,
    ROLES,
    ROLE_BINDINGS,
    SERVICES,
    NETWORK_POLICIES,
    POD_DISRUPTION_BUDGETS,
    DEPLOYMENTS,
)
CLUSTER = ClusterCapabilities(openshift=True)
MUTATING_POLICIES, MUTATING_POLICY_BINDINGS = (
    Resource(MUTATING_WEBHOOKS.group, "v1", f"mutatingadmission{plural}", f"MutatingAdmission{kind}", namespaced=False)
    for plural, kind in (("policies", "Policy"), ("policybindings", "PolicyBinding"))
)


def kinds_in(namespace: str) -> list[tuple[Resource, str]]:
    return [
        *((resource, namespace) for resource in NAMESPACED),
        *((resource, "") for resource in IN_CLUSTER),
    ]


def placement_objects(namespace: str, suffix: str) -> list[dict[str, Any]]:
    """All that placement needs, under names of the test's own, as other tests stand in the same cluster."""
    settings = OperatorSettings(
        namespace=namespace,
        webhook_replicas=0,
        controller_replicas=0,
        global_pull_secret=(namespace, "pull-secret"),
        tolerations=("infra",),
    )
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "none"}}}
    configuration = msgspec.convert({"spec": selector}, ClusterPodPlacementConfig)
    spec = {"nodeAware": {"mode": "report"}, "excludedNamespaces": ["a", "b-*"]}
    policy = SettingsTable.of(msgspec.convert({"spec": spec}, PlacementPolicy), None, operator_namespace=namespace)
    documents = [
        *operands.placement_operands(settings, CLUSTER, configuration, policy, owner=None),
        webhooks.pod_webhook(settings, configuration, policy, b"PEM", owner=None),
    ]
    for document in documents:
        document["metadata"] = {**document["metadata"], "name": document["metadata"]["name"] + suffix}
        document["metadata"].pop("finalizers", None)  # which the operator takes off before it deletes
        if "roleRef" in document:
            document["roleRef"] = {**document["roleRef"], "name": document["roleRef"]["name"] + suffix}
    return [each for each in documents if each["metadata"].get("namespace", namespace) == namespace]


@pytest.mark.req("PL-500")
async def test_placements_objects_are_kept_without_a_request(sandbox: Sandbox, namespace: str) -> None:
    suffix, requests = f"-{secrets.token_hex(4)}", Requests()
    desired, kinds = placement_objects(namespace, suffix), kinds_in(namespace)
    part = f"{names.OPERAND}{suffix}"
    # Before 1.31 the API server drops `matchLabelKeys` of a pod affinity, which a new process does not know yet.
    again = 2 if version_of(sandbox) < (1, 31) else 0

    async def deployed() -> set[tuple[str, int | None]]:
        """A controller writes their statuses meanwhile."""
        found = await client.list(DEPLOYMENTS, type=PartialObjectMetadata, namespace=namespace)
        return {(each.metadata.uid, each.metadata.generation) for each in found.items}

    async with Client(config.load(str(sandbox.kubeconfig)), role="tests", metrics=requests) as client:
        for passes in range(2):  # the second one is another process's
            before = await deployed()
            informers = InformerFactory(client, freeze=False)
            kept = ApplySet(client, informers, kinds=kinds, label=names.OPERAND_LABEL)
            async with in_background(informers.run()):
                await informers.synced()
                outcome = await kept.apply(desired, part_of=part)
                assert len(outcome.applied) == (again if passes else len(desired))
                assert not passes or await deployed() == before
                requests.count.clear()
                for _ in range(3):
                    assert not (await kept.apply(desired, part_of=part)).changed
                assert requests.count == {}
                if passes:
                    steps = 0
                    while await kept.delete(part):
                        steps += 1
                    assert 6 <= steps <= 24, "webhook, Deployments, budgets, … one kind after the other"
        for document in desired:
            resource = next(each for each, _ in kinds if each.kind == document["kind"])
            listed = await client.list(resource, label_selector=f"{names.OPERAND_LABEL}={part}")
            assert listed.items == [], f"{document['kind']} is left"


POD = "/spec/template/spec"
CONTAINER = f"{POD}/containers/0"
MINE = {"name": "mine", "image": "example.com/mine"}
ANY_NAME = "a variable whose name JSON escapes"
EDITS: dict[str, tuple[Resource, list[Operation]]] = {
    "the port of a Service": (SERVICES, [replace("/spec/ports/0/port", 8080)]),
    "the protocol of a port": (SERVICES, [replace("/spec/ports/0/protocol", "UDP")]),
    "a port more": (SERVICES, [add("/spec/ports/-", {"name": "more", "port": 1})]),
    "ports in another order with others' names": (
        SERVICES,
        [replace("/spec/ports/0/name", "other"), replace("/spec/ports/1/port", 444)],
    ),
    "no ports of ours at all": (SERVICES, [replace("/spec/ports", [{"port": 1}])]),
    "a Service that leads elsewhere": (
        SERVICES,
        [add("/spec/type", "ExternalName"), add("/spec/externalName", "elsewhere.example.com")],
    ),
    "a Service of its own node only": (SERVICES, [replace("/spec/internalTrafficPolicy", "Local")]),
    "a Service that leads to pods that are not ready": (SERVICES, [add("/spec/publishNotReadyAddresses", True)]),
    "the selector of a Service": (SERVICES, [replace("/spec/selector", {"app": "other"})]),
    "a container port": (DEPLOYMENTS, [replace(f"{CONTAINER}/ports/0/containerPort", 1234)]),
    "a container's name": (DEPLOYMENTS, [replace(f"{CONTAINER}/name", "other")]),
    "a container more": (DEPLOYMENTS, [add(f"{POD}/containers/-", MINE)]),
    "an init container": (DEPLOYMENTS, [add(f"{POD}/initContainers", [MINE | {"name": "first"}])]),
    "another program": (DEPLOYMENTS, [add(f"{CONTAINER}/command", ["sleep", "1d"])]),
    "a variable more": (DEPLOYMENTS, [add(f"{CONTAINER}/env/-", {"name": "MORE", "value": "1"})]),
    ANY_NAME: (DEPLOYMENTS, [add(f"{CONTAINER}/env/-", {"name": "A&B<C>", "value": "1"})]),
    "where a program starts": (DEPLOYMENTS, [add(f"{CONTAINER}/workingDir", "/elsewhere")]),
    "a capability": (DEPLOYMENTS, [add(f"{CONTAINER}/securityContext/capabilities/add", ["SYS_ADMIN"])]),
    "a variable's name": (DEPLOYMENTS, [replace(f"{CONTAINER}/env/0/name", "OTHER")]),
    "a variable's source": (DEPLOYMENTS, [replace(f"{CONTAINER}/env/0", {"name": "POD_NAMESPACE", "value": "x"})]),
    "a variable twice": (DEPLOYMENTS, [add(f"{CONTAINER}/env/-", {"name": "POD_NAMESPACE", "value": "x"})]),
    "variables of a ConfigMap": (DEPLOYMENTS, [add(f"{CONTAINER}/envFrom", [{"configMapRef": {"name": "x"}}])]),
    "a volume and its mount": (
        DEPLOYMENTS,
        [
            add(f"{POD}/volumes/-", {"name": "more", "emptyDir": {}}),
            add(f"{CONTAINER}/volumeMounts/-", {"name": "more", "mountPath": "/more"}),
        ],
    ),
    "a volume's name": (
        DEPLOYMENTS,
        [replace(f"{POD}/volumes/0/name", "other"), replace(f"{CONTAINER}/volumeMounts/0/name", "other")],
    ),
    "a volume's source": (DEPLOYMENTS, [replace(f"{POD}/volumes/0", {"name": "certificates", "emptyDir": {}})]),
    "where a volume is mounted": (DEPLOYMENTS, [replace(f"{CONTAINER}/volumeMounts/0/mountPath", "/other")]),
    "how a container is probed": (
        DEPLOYMENTS,
        [replace(f"{CONTAINER}/livenessProbe", {"exec": {"command": ["true"]}, "periodSeconds": 10})],
    ),
    "how pods are replaced": (DEPLOYMENTS, [replace("/spec/strategy", {"type": "Recreate"})]),
    "how pods are spread": (
        DEPLOYMENTS,
        [replace(f"{POD}/topologySpreadConstraints/0/whenUnsatisfiable", "DoNotSchedule")],
    ),
    "a gate of all pods": (DEPLOYMENTS, [add(f"{POD}/schedulingGates", [{"name": "example.com/never"}])]),
    "the budget's other field": (
        POD_DISRUPTION_BUDGETS,
        [replace("/spec", {"minAvailable": 3, "selector": {"matchLabels": {"a": "b"}}})],
    ),
    "the name of a webhook": (MUTATING_WEBHOOKS, [replace("/webhooks/0/name", "other.example.com")]),
    "a condition of a webhook": (
        MUTATING_WEBHOOKS,
        [add("/webhooks/0/matchConditions/-", {"name": "never", "expression": "false"})],
    ),
    "where a webhook is called": (
        MUTATING_WEBHOOKS,
        [replace("/webhooks/0/clientConfig", {"url": "https://elsewhere.example.com/"})],
    ),
    "a role that others fill": (CLUSTER_ROLES, [add("/aggregationRule", {"clusterRoleSelectors": [{}]})]),
    "what a network policy lets in": (NETWORK_POLICIES, [replace("/spec/ingress", [{}])]),
}


def version_of(sandbox: Sandbox) -> tuple[int, ...]:
    return as_numbers(sandbox.version.removeprefix("v"))


@asynccontextmanager
async def kept_in(sandbox: Sandbox, kinds: list[tuple[Resource, str]]) -> AsyncIterator[tuple[Client, ApplySet]]:
    """An apply set whose caches are complete."""
    async with Client(config.load(str(sandbox.kubeconfig)), role="tests") as client:
        informers = InformerFactory(client, freeze=False)
        kept = ApplySet(client, informers, kinds=kinds, label=names.OPERAND_LABEL)
        async with in_background(informers.run()):
            await informers.synced()
            yield client, kept


async def edit(client: Client, kept: ApplySet, ref: ObjectRef, operations: list[Operation]) -> None:
    """As by ``kubectl patch``; the cache has seen it."""
    patch, where = JsonPatch(tuple(operations)), ref.key.namespace
    edited = await client.patch(
        ref.resource, ref.key.name, patch, namespace=where, field_manager="kubectl-patch", type=Unstructured
    )
    await seen(kept, ref, edited.metadata.resource_version)


async def seen(kept: ApplySet, ref: ObjectRef, version: str) -> None:
    async def is_so() -> bool:
        found = kept.get(ref.resource, ref.key)
        return found is not None and int(found.metadata.resource_version) >= int(version)

    await until(is_so)


@pytest.mark.req("PL-501")
async def test_whatever_somebody_changes_of_what_is_ours_alone_is_put_right(sandbox: Sandbox, namespace: str) -> None:
    """The items of lists whose keys were changed, too, which server-side apply alone leaves beside ours."""
    suffix = f"-{secrets.token_hex(4)}"
    desired = placement_objects(namespace, suffix)
    part, wrong = f"{names.OPERAND}{suffix}", {}
    async with kept_in(sandbox, kinds_in(namespace)) as (client, kept):
        await kept.apply(desired, part_of=part)
        for what, (resource, operations) in EDITS.items():
            if what == ANY_NAME and version_of(sandbox) < (1, 32):
                continue  # the API server takes only C identifiers, dashes and dots
            of_webhook = names.WEBHOOK_CONFIGURATION if resource == MUTATING_WEBHOOKS else names.WEBHOOK
            name = f"{of_webhook}{suffix}"
            ref = ObjectRef(resource, ObjectKey(namespace if resource.namespaced else "", name))
            before = await client.get(resource, name, namespace=ref.key.namespace)
            await edit(client, kept, ref, operations)
            if resource == CLUSTER_ROLES:  # else its controller may still write after us, of the role as it was
                while (await client.get(resource, name))["rules"] == before["rules"]:
                    await asyncio.sleep(0.1)
            try:
                outcome = await kept.apply(desired, part_of=part)
            except KubernetesError as error:
                wrong[what] = str(error)
                continue
            after = await client.get(resource, name, namespace=ref.key.namespace)
            if essence(after) != essence(before):
                wrong[what] = f"{essence(before)}\n{essence(after)}"
            if "kubectl-patch" not in (taken := {each.manager for step in outcome.applied for each in step.taken}):
                wrong[f"{what}: named"] = str(taken)
            await seen(kept, ref, after["metadata"]["resourceVersion"])
            if (again := await kept.apply(desired, part_of=part)).changed:
                wrong[f"{what}: again"] = str(again)
        while await kept.delete(part):
            pass
    assert wrong == {}


def essence(document: dict[str, Any]) -> Any:
    """What an object says, but for what every write changes, and for a Service's address, which one without loses."""
    said = {name: value for name, value in document.items() if name not in ("metadata", "status")}
    if document["kind"] == SERVICES.kind:
        said["spec"] = {name: value for name, value in said["spec"].items() if not name.startswith("clusterIP")}
    return said


@pytest.mark.req("PL-501")
async def test_what_others_may_add_stays(sandbox: Sandbox, namespace: str) -> None:
    """Restarts by ``kubectl rollout restart``, labels, tolerations, pull secrets that OpenShift gives an account."""
    suffix = f"-{secrets.token_hex(4)}"
    desired = placement_objects(namespace, suffix)
    additions: list[tuple[Resource, list[Operation]]] = [
        (DEPLOYMENTS, [add("/metadata/labels/team", "x"), add("/spec/template/metadata/annotations/restarted", "now")]),
        (DEPLOYMENTS, [add(f"{POD}/nodeSelector", {"a": "b"}), add(f"{POD}/imagePullSecrets", [{"name": "mirror"}])]),
        (DEPLOYMENTS, [add(f"{CONTAINER}/resources/limits/cpu", "1")]),
        (
            SERVICE_ACCOUNTS,
            [add("/imagePullSecrets", [{"name": "dockercfg"}]), add("/secrets", [{"name": "dockercfg"}])],
        ),
        (SERVICES, [add("/metadata/annotations", {"x": "y"})]),
    ]
    part = f"{names.OPERAND}{suffix}"
    async with kept_in(sandbox, kinds_in(namespace)) as (client, kept):
        await kept.apply(desired, part_of=part)
        for resource, operations in additions:
            await edit(client, kept, ObjectRef(resource, ObjectKey(namespace, f"{names.WEBHOOK}{suffix}")), operations)
        assert not (await kept.apply(desired, part_of=part)).changed
        while await kept.delete(part):
            pass


@pytest.mark.req("PL-501")
async def test_what_cannot_be_changed_back_is_made_again_but_never_a_secret(sandbox: Sandbox, namespace: str) -> None:
    part = f"part-{secrets.token_hex(4)}"
    desired = [
        {"apiVersion": "v1", "kind": kind, "metadata": {"name": "kept", "namespace": namespace}, "data": {"a": "MQ=="}}
        for kind in (CONFIGMAPS.kind, SECRETS.kind)
    ]
    async with kept_in(sandbox, [(CONFIGMAPS, namespace), (SECRETS, namespace)]) as (client, kept):
        await kept.apply(desired, part_of=part)
        uids = {
            kind: (await client.get(kind, "kept", namespace=namespace))["metadata"]["uid"]
            for kind in (CONFIGMAPS, SECRETS)
        }
        for kind in (CONFIGMAPS, SECRETS):
            sealed = [replace("/data/a", "Mg=="), add("/immutable", True)]
            await edit(client, kept, ObjectRef(kind, ObjectKey(namespace, "kept")), sealed)
        with pytest.raises(ApplyFailed, match="immutable") as failed:
            await kept.apply(desired, part_of=part)
        assert [each.resource for each in failed.value.failures] == [SECRETS]
        (step,) = failed.value.outcome.applied
        assert (step.remade, {each.manager for each in step.taken}) == (True, {"kubectl-patch"})
        now = await client.get(CONFIGMAPS, "kept", namespace=namespace)
        assert (now["data"], "immutable" in now) == ({"a": "MQ=="}, False)
        assert now["metadata"]["uid"] != uids[CONFIGMAPS]
        assert (await client.get(SECRETS, "kept", namespace=namespace))["metadata"]["uid"] == uids[SECRETS]


@pytest.mark.req("PL-501")
async def test_an_object_that_would_be_refused_as_a_new_one_too_is_never_deleted(
    sandbox: Sandbox, namespace: str
) -> None:
    part = f"part-{secrets.token_hex(4)}"

    def service(port: int) -> dict[str, Any]:
        metadata = {"name": "kept", "namespace": namespace}
        ports = [{"name": "a", "port": port, "protocol": "TCP"}]
        return {"apiVersion": "v1", "kind": SERVICES.kind, "metadata": metadata, "spec": {"ports": ports}}

    async with kept_in(sandbox, [(SERVICES, namespace)]) as (client, kept):
        await kept.apply([service(443)], part_of=part)
        await edit(
            client, kept, ObjectRef(SERVICES, ObjectKey(namespace, "kept")), [replace("/spec/ports/0/port", 8080)]
        )
        with pytest.raises(ApplyFailed, match="65535"):
            await kept.apply([service(70000)], part_of=part)
        assert (await client.get(SERVICES, "kept", namespace=namespace))["spec"]["ports"][0]["port"] == 8080


@pytest.mark.req("PL-501")
@pytest.mark.parametrize("operations", [["UPDATE"], ["CREATE", "UPDATE"]], ids=["changes only", "that name at all"])
async def test_what_a_policy_of_the_cluster_forbids_is_left_and_never_deleted(
    sandbox: Sandbox, namespace: str, operations: list[str]
) -> None:
    """Policies answer with 422 as validation does: a freeze of changes must not cost the object its life."""
    part, name = f"part-{secrets.token_hex(4)}", f"freeze-{secrets.token_hex(4)}"

    def service(affinity: str) -> dict[str, Any]:
        metadata = {"name": name, "namespace": namespace}
        spec = {"ports": [{"name": "a", "port": 443, "protocol": "TCP"}], "sessionAffinity": affinity}
        return {"apiVersion": "v1", "kind": SERVICES.kind, "metadata": metadata, "spec": spec}

    rule: dict[str, Any] = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": operations,
        "resources": ["services"],
        "resourceNames": [name],
    }
    policy = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.sessionAffinity != 'ClientIP'", "message": "frozen"}],
    }
    binding = {"policyName": name, "validationActions": ["Deny"]}
    async with kept_in(sandbox, [(SERVICES, namespace)]) as (client, kept):
        await kept.apply([service("None")], part_of=part)
        before = await client.get(SERVICES, name, namespace=namespace)
        for kind, spec in ((VALIDATING_POLICIES, policy), (VALIDATING_POLICY_BINDINGS, binding)):
            document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": name}, "spec": spec}
            await client.create(kind, document)
        try:

            async def is_in_force() -> bool:
                try:
                    await client.apply(
                        SERVICES,
                        service("ClientIP"),
                        namespace=namespace,
                        field_manager="someone",
                        force=True,
                        dry_run=True,
                    )
                except KubernetesError as error:
                    return "frozen" in str(error)
                return False

            await until(is_in_force)
            for _ in range(2):
                with pytest.raises(ApplyFailed, match="frozen"):
                    await kept.apply([service("ClientIP")], part_of=part)
            after = await client.get(SERVICES, name, namespace=namespace)
            assert after["metadata"]["uid"] == before["metadata"]["uid"]
            assert after["metadata"]["resourceVersion"] == before["metadata"]["resourceVersion"]
        finally:
            for kind in (VALIDATING_POLICY_BINDINGS, VALIDATING_POLICIES):
                await client.delete(kind, name)


@pytest.mark.req("KR-051")
async def test_what_a_policy_of_the_cluster_puts_into_an_object_stays_and_is_not_fought(
    sandbox: Sandbox, namespace: str
) -> None:
    """By the API server's own MutatingAdmissionPolicies: a variable in every Deployment of a namespace."""
    suffix = f"-{secrets.token_hex(4)}"
    desired = [each for each in placement_objects(namespace, suffix) if each["kind"] == DEPLOYMENTS.kind]
    part, variable = f"{names.OPERAND}{suffix}", 'Object.spec.template.spec.containers.env{name: "SITE", value: "a"}'
    rule: dict[str, Any] = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["deployments"],
    }
    expression = (
        "Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{"
        "containers: object.spec.template.spec.containers.map(c, Object.spec.template.spec.containers{"
        f"name: c.name, env: [{variable}]}})}}}}}}}}"
    )
    spec = {
        "matchConstraints": {
            "resourceRules": [rule],
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        },
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}],
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
    }
    binding: dict[str, Any] = {"policyName": f"sites{suffix}"}
    async with kept_in(sandbox, [(DEPLOYMENTS, namespace)]) as (client, kept):
        for kind, content in ((MUTATING_POLICIES, spec), (MUTATING_POLICY_BINDINGS, binding)):
            document = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"name": f"sites{suffix}"}}
            await client.create(kind, {**document, "spec": content})
        try:

            async def is_in_force() -> bool:
                tried = await client.create(DEPLOYMENTS, desired[0], namespace=namespace, dry_run=True, type=dict)
                return "SITE" in str(tried)

            await until(is_in_force)
            await kept.apply(desired, part_of=part)
            assert not (await kept.apply(desired, part_of=part)).changed
            for each in desired:
                ref = ObjectRef(DEPLOYMENTS, ObjectKey(namespace, each["metadata"]["name"]))
                now = await client.get(DEPLOYMENTS, ref.key.name, namespace=namespace)
                assert "SITE" in str(now)
                await seen(kept, ref, now["metadata"]["resourceVersion"])
            assert not (await kept.apply(desired, part_of=part)).changed
        finally:
            for kind in (MUTATING_POLICY_BINDINGS, MUTATING_POLICIES):
                await client.delete(kind, f"sites{suffix}")
        while await kept.delete(part):
            pass
