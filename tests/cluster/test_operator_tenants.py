"""What tokens of our roles may not do to tenants and nodes, asked of a real API server."""

import itertools
import secrets
from collections.abc import Awaitable, Iterable
from typing import Any, get_args

import msgspec
import pytest
from placement_cluster import until

from polyarch.builds import names
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden, Invalid
from polyarch.kube.patches import JsonPatch, MergePatch, replace
from polyarch.kube.rbac import granted
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CONFIGMAPS,
    DAEMONSETS,
    JOBS,
    NAMESPACES,
    PODS,
    SERVICE_ACCOUNTS,
    Resource,
    by_kind,
)
from polyarch.operator.components import builds_objects, placement_objects, taints_objects
from polyarch.operator.components.operator_rbac import operator_permissions
from polyarch.operator.owned_objects import RolePermissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings, SecretAccess
from polyarch.placement import names as placement_names
from polyarch.placement.settings import WarmUpKind
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.files import write_json
from polyarch.taints import names as taints_names

REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)


def every_role(settings: OperatorSettings, cluster: ClusterCapabilities) -> Iterable[tuple[str, RolePermissions]]:
    """Each of our accounts with all that it can ever be granted under these settings."""
    plain = placement_objects.OptionalFeatures(namespace=settings.namespace, secret_access=settings.secret_access)
    features = dict.fromkeys(("asks_for_nodes", "sweeps", "evicts", "share_readings", "reports"), True)
    for chosen in (plain, placement_objects.OptionalFeatures(
        namespace=settings.namespace, secret_access=settings.secret_access, warm_up=get_args(WarmUpKind),
        openshift=cluster.openshift, **features,  # type: ignore[arg-type]
    )):  # fmt: skip
        yield from placement_objects.role_permissions(chosen).items()
    yield from placement_objects.monitor_permissions(settings, cluster).items()
    for evicts in (False, True):
        yield "taints", taints_objects.role_permissions(settings, cluster, evicts=evicts)
    yield "adding", taints_objects.adding_permissions(settings.namespace)
    yield "builder", builds_objects.role_permissions(settings, cluster)
    yield "machine-os", builds_objects.machine_permissions(settings, cluster)
    yield "operator", operator_permissions(settings, cluster)


async def readers(client: Client, home: str, victim: str, access: SecretAccess) -> set[str]:
    """The accounts that some combination of settings lets read a tenant's Secret."""
    found: set[str] = set()
    for openshift, builds, machine_os, numa in itertools.product(
        (False, True), ("off", "on"), ("off", "on"), ("off", "auto")
    ):
        settings = OperatorSettings(
            namespace=home, secret_access=access, builds=builds, numa=numa, manage_namespace=True,  # type: ignore[arg-type]
            machine_os=machine_os, machine_os_namespace=home,  # type: ignore[arg-type]
        )  # fmt: skip
        cluster = ClusterCapabilities(openshift=openshift, monitoring=True)
        combined: dict[str, list[Any]] = {}
        for account, permissions in every_role(settings, cluster):
            combined.setdefault(account, []).extend(permissions.cluster)
        for account, rules in combined.items():
            if account not in found and await _may_read(client, home, victim, account, rules):
                found.add(account)
    return found


async def _may_read(client: Client, home: str, victim: str, account: str, rules: list[Any]) -> bool:
    name = f"probe-{secrets.token_hex(4)}"
    documents = granted(name, rules, [(home, name)])
    for each in documents:
        await client.apply(by_kind(each["apiVersion"], each["kind"]), each)
    try:
        review = {
            "apiVersion": REVIEWS.api_version,
            "kind": REVIEWS.kind,
            "spec": {
                "user": f"system:serviceaccount:{home}:{name}",
                "groups": ["system:serviceaccounts", f"system:serviceaccounts:{home}", "system:authenticated"],
            },
        }
        answers = []
        for verb in ("get", "list", "watch"):
            attributes = {"namespace": victim, "verb": verb, "resource": "secrets", "name": "pull"}
            asked = {**review, "spec": {**review["spec"], "resourceAttributes": attributes}}  # type: ignore[dict-item]
            answers.append((await client.create(REVIEWS, asked, type=dict))["status"]["allowed"])
        return any(answers)
    finally:
        for kind in (CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES):
            await client.delete(kind, name)


@pytest.mark.req("PL-612")
@pytest.mark.timeout(600)
async def test_without_access_to_secrets_no_role_of_ours_can_read_those_of_a_tenant(sandbox, client, namespace):
    """Not with any combination of components and settings; with it, those that ask registries and the operator can."""
    victim = f"victim-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": victim}})
    try:
        assert await readers(client, namespace, victim, "none") == set()
        assert {"operator", "taints"} <= await readers(client, namespace, victim, "byName")
    finally:
        await client.delete(NAMESPACES, victim)


# -- privileged namespaces of builds -----------------------------------------------------------------------------------


def _pod(name: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "a", "image": "quay.io/a/b:1", **spec.pop("container", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **spec.pop("metadata", {})},
        "spec": {"containers": [container], "restartPolicy": "Never", **spec},
    }


def _job(name: str, pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": pod["spec"]}},
    }


SPECIAL: dict[str, dict[str, Any]] = {
    "privileged": {"container": {"securityContext": {"privileged": True}}},
    "capability": {"container": {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}},
    "every capability": {"container": {"securityContext": {"capabilities": {"add": ["ALL"]}}}},
    "no seccomp": {"container": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}},
    "no AppArmor": {"container": {"securityContext": {"appArmorProfile": {"type": "Unconfined"}}}},
    "host path": {"volumes": [{"name": "root", "hostPath": {"path": "/"}}]},
    "host processes": {"hostPID": True},
    "host network": {"hostNetwork": True},
    "host port": {"container": {"ports": [{"containerPort": 80, "hostPort": 80}]}},
    "no seccomp for all": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
    "sysctl": {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
    "init container": {"initContainers": [{"name": "i", "image": "x", "securityContext": {"privileged": True}}]},
}


@pytest.mark.req("BD-158")
@pytest.mark.timeout(300)
async def test_in_a_labelled_namespace_only_builds_make_pods_beyond_baseline(sandbox, client, namespace, tmp_path):
    """Not even with the owner, the labels or the controllers of a build's pods."""
    place = f"builds-{secrets.token_hex(4)}"
    documents = builds_objects.build_policies(OperatorSettings(namespace=namespace))
    suffix = secrets.token_hex(4)
    for each in documents:
        each["metadata"]["name"] += f".{suffix}"
        if "policyName" in each["spec"]:
            each["spec"]["policyName"] += f".{suffix}"
            each["spec"]["matchResources"]["namespaceSelector"] = {
                "matchLabels": {"kubernetes.io/metadata.name": place}
            }
    labels = {"pod-security.kubernetes.io/enforce": "privileged"}
    await client.create(
        NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place, "labels": labels}}
    )
    for each in documents:
        await client.create(by_kind(each["apiVersion"], each["kind"]), each)

    async def refused(document: dict[str, Any]) -> bool:
        try:
            await client.create(by_kind(document["apiVersion"], document["kind"]), document, namespace=place)
        except (Forbidden, Invalid) as error:
            return "in this namespace" in str(error)
        return False

    try:
        special = SPECIAL["privileged"]
        await until(lambda: refused(_pod(f"probe-{secrets.token_hex(4)}", **special)))
        await until(lambda: refused(_job(f"probe-{secrets.token_hex(4)}", _pod("x", **special))))
        let_in = [what for what, spec in SPECIAL.items() if not await refused(_pod(f"p-{suffix}", **spec))]
        assert let_in == []
        let_in = [what for what, spec in SPECIAL.items() if not await refused(_job(f"j-{suffix}", _pod("x", **spec)))]
        assert let_in == []
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "web", "uid": "1", "controller": True}
        forged = {"ownerReferences": [owner], "labels": {names.RUN_LABEL: "web-1", names.ROLE_LABEL: names.ARCH_ROLE}}
        assert await refused(_pod("forged", metadata=forged, **special))

        plain = _pod("plain")
        assert not await refused(plain)
        ephemeral = {"name": "e", "image": "x", "securityContext": {"privileged": True}}
        patch = MergePatch({"spec": {"ephemeralContainers": [ephemeral]}})
        with pytest.raises((Forbidden, Invalid), match="in this namespace"):
            await client.patch(PODS, "plain", patch, namespace=place, subresource="ephemeralcontainers")
        await client.patch(PODS, "plain", MergePatch({"metadata": {"labels": {"a": "b"}}}), namespace=place)

        spec = {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}}
        template = {
            "metadata": {"labels": {"a": "b"}},
            "spec": {**_pod("x", **special)["spec"], "restartPolicy": "Always"},
        }
        deployment = {
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
            "spec": {**spec, "template": template},
        }  # fmt: skip
        assert not await refused(deployment)
        cron = {
            "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
            "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": _job("x", _pod("x", **special))["spec"]}},
        }  # fmt: skip
        assert not await refused(cron)

        assert not await refused(_job("ordinary", _pod("x")))

        async def made() -> bool:
            return len(await pods_of("ordinary")) == 1

        async def pods_of(job: str) -> list[Any]:
            found = await client.list(PODS, namespace=place, label_selector=f"job-name={job}")
            return list(found.items)

        await until(made, seconds=60)
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": names.ROLE}}
        await client.create(SERVICE_ACCOUNTS, account, namespace=namespace)
        for each in granted(f"builder-{suffix}", builds_objects.role_permissions(
            OperatorSettings(namespace=namespace), ClusterCapabilities()
        ).cluster, [(namespace, names.ROLE)]):  # fmt: skip
            await client.apply(by_kind(each["apiVersion"], each["kind"]), each)
        file, layout = tmp_path / f"{suffix}.kubeconfig", sandbox.layout
        issued = await client.token(namespace, names.ROLE)
        write_json(file, kubeconfig_with_token("builder", layout.api_server, layout.pki.ca, issued.token))
        async with Client(config.load(str(file)), role="tests") as builder:
            await builder.create(JOBS, _job("build", _pod("x", **special)), namespace=place)

        async def built() -> bool:
            return len(await pods_of("build")) == 1

        await until(built, seconds=60)
        pods = (await client.list(PODS, namespace=place)).items
        owned = {(each["metadata"].get("ownerReferences") or [{}])[0].get("kind") for each in pods}
        assert owned <= {None, "Job"}, "no pod of the Deployment"
    finally:
        for each in documents:
            await client.delete(by_kind(each["apiVersion"], each["kind"]), each["metadata"]["name"])
        await client.delete(NAMESPACES, place)


# -- what the token of a role writes -----------------------------------------------------------------------------------


class Accounts:
    """ServiceAccounts with the rights of our roles, in a namespace of a test, and the admin."""

    def __init__(self, sandbox: Any, admin: Client, home: str, folder: Any) -> None:
        self.sandbox, self.admin, self.home, self.folder = sandbox, admin, home, folder
        self.suffix = secrets.token_hex(4)
        self.made: list[tuple[Resource, str]] = []

    async def client(self, account: str, permissions: RolePermissions) -> Client:
        document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
        await self.admin.create(SERVICE_ACCOUNTS, document, namespace=self.home)
        for each in granted(f"{account}-{self.suffix}", permissions.cluster, [(self.home, account)]):
            await self.make(each, apply=True)
        issued, layout = await self.admin.token(self.home, account), self.sandbox.layout
        file = self.folder / f"{account}.kubeconfig"
        write_json(file, kubeconfig_with_token(account, layout.api_server, layout.pki.ca, issued.token))
        return Client(config.load(str(file)), role="tests")

    async def make(self, document: dict[str, Any], *, apply: bool = False) -> None:
        kind = by_kind(document["apiVersion"], document["kind"])
        await (self.admin.apply(kind, document) if apply else self.admin.create(kind, document))
        self.made.append((kind, document["metadata"]["name"]))

    async def policies(self, documents: Iterable[dict[str, Any]]) -> None:
        """Under names of the test's own, without labels by which an operator would remove them."""
        for each in documents:
            del each["metadata"]["labels"]
            each["metadata"]["name"] += f".{self.suffix}"
            if "policyName" in each["spec"]:
                each["spec"]["policyName"] += f".{self.suffix}"
            await self.make(each)

    async def remove(self) -> None:
        for kind, name in self.made:
            await self.admin.delete(kind, name)


@pytest.fixture
async def accounts(sandbox, client, namespace, tmp_path):
    made = Accounts(sandbox, client, namespace, tmp_path)
    yield made
    await made.remove()


async def refusal(request: Awaitable[Any]) -> str:
    """What the API server says against it; empty: nothing."""
    try:
        await request
    except (Forbidden, Invalid) as error:
        return str(error)
    return ""


@pytest.mark.req("IN-036")
@pytest.mark.timeout(300)
@pytest.mark.parametrize("account", [placement_names.CONTROLLER, taints_names.ROLE])
async def test_who_lifts_gates_of_pods_changes_neither_images_nor_what_is_others(accounts, client, namespace, account):
    settings, cluster = OperatorSettings(namespace=namespace), ClusterCapabilities()
    if account == taints_names.ROLE:
        allowed = taints_objects.role_permissions(settings, cluster, evicts=False)
        documents = taints_objects.policies(settings)
    else:
        plain = placement_objects.OptionalFeatures(namespace=namespace)
        allowed = placement_objects.role_permissions(plain)[account]
        documents = placement_objects.pod_policy(settings)
    gate = taints_names.GATE if account == taints_names.ROLE else placement_names.GATE
    marks = {"labels": {"app": "web"}, "annotations": {"a": "b"}}
    gates = [{"name": gate}, {"name": "example.com/other"}]
    await client.create(PODS, _pod("web", metadata=marks, schedulingGates=gates), namespace=namespace)
    async with await accounts.client(account, allowed) as role:

        def patch(change: dict[str, Any]) -> Awaitable[Any]:
            return role.patch(PODS, "web", MergePatch(change), namespace=namespace)

        def image(text: str) -> Awaitable[Any]:
            changed = JsonPatch((replace("/spec/containers/0/image", text),))
            return role.patch(PODS, "web", changed, namespace=namespace)

        assert await refusal(image("quay.io/evil/b:0")) == "", "the right itself has it"
        await accounts.policies(documents)
        tries = iter(range(1, 10_000))

        async def in_force() -> bool:
            return "stay" in await refusal(image(f"quay.io/evil/b:{next(tries)}"))

        await until(in_force)
        owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "1"}
        abuses: dict[str, dict[str, Any]] = {
            "deadline": {"spec": {"activeDeadlineSeconds": 1}},
            "node selector": {"spec": {"nodeSelector": {"a": "b"}}},
            "gate of others": {"spec": {"schedulingGates": [{"name": gate}]}},
            "every gate": {"spec": {"schedulingGates": None}},
            "label of others": {"metadata": {"labels": {"app": "other"}}},
            "no label of others": {"metadata": {"labels": {"app": None}}},
            "new label": {"metadata": {"labels": {"istio.io/rev": "x"}}},
            "no annotations": {"metadata": {"annotations": None}},
            "owner": {"metadata": {"ownerReferences": [owner]}},
            "finalizer": {"metadata": {"finalizers": ["example.com/never"]}},
        }
        let_through = [what for what, change in abuses.items() if not await refusal(patch(change))]
        assert let_through == []
        many = {f"polyarch.dev/l{each}": "x" for each in range(2000)}
        assert await refusal(patch({"metadata": {"labels": many}})) == "", "the rules cost too much"
        crowd = [{"name": f"example.com/g{each}"} for each in range(3000)]
        await client.create(PODS, _pod("crowd", schedulingGates=[{"name": gate}, *crowd]), namespace=namespace)
        change = MergePatch({"spec": {"schedulingGates": crowd}})
        assert await refusal(role.patch(PODS, "crowd", change, namespace=namespace)) == "", "a gate stays for ever"
        term = {"matchExpressions": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}]}
        affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
        toleration = {"key": "kubernetes.io/arch", "operator": "Exists"}
        pod = await client.get(PODS, "web", namespace=namespace)
        work: dict[str, Any] = {
            "metadata": {
                "labels": {placement_names.SCHEDULING_GATE_LABEL: "removed"},
                "annotations": {placement_names.DECISION_ANNOTATION: "{}"},
            },
            "spec": {
                "affinity": affinity,
                "tolerations": [*pod["spec"]["tolerations"], toleration],
                "schedulingGates": [{"name": "example.com/other"}],
            },
        }
        assert await refusal(patch(work)) == ""
        if account == taints_names.ROLE:
            await _templates_are_held(client, role, namespace)


async def _templates_are_held(admin: Client, role: Client, namespace: str) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "a", "image": "x:1"}]}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    await admin.create(DAEMONSETS, {"metadata": {"name": "agent"}, "spec": spec}, namespace=namespace)

    def patch(change: dict[str, Any]) -> Awaitable[Any]:
        return role.patch(DAEMONSETS, "agent", MergePatch(change), namespace=namespace)

    def template_with(**change: Any) -> dict[str, Any]:
        return {"spec": {"template": {"spec": change}}}

    tries = iter(range(10_000))

    async def in_force() -> bool:  # each policy is known to the API server at a time of its own
        image = {"name": "a", "image": f"other:{next(tries)}"}
        return "DaemonSet" in await refusal(patch(template_with(containers=[image])))

    await until(in_force)
    abuses = {
        "image": template_with(containers=[{"name": "a", "image": "evil:1"}]),
        "account": template_with(serviceAccountName="admin"),
        "host": template_with(hostPID=True),
        "host path": template_with(volumes=[{"name": "v", "hostPath": {"path": "/"}}]),
        "label of pods": {"spec": {"template": {"metadata": {"labels": {"more": "x"}}}}},
        "rollout": {"spec": {"updateStrategy": {"type": "OnDelete"}}},
        "label": {"metadata": {"labels": {"more": "x"}}},
    }
    let_through = [what for what, change in abuses.items() if "DaemonSet" not in await refusal(patch(change))]
    assert let_through in ([], ["label"]), "labels have a message of their own"
    assert await refusal(patch(abuses["label"]))
    work = template_with(tolerations=[{"key": "kubernetes.io/arch", "operator": "Exists"}])
    work["metadata"] = {"annotations": {taints_names.ADDED_TOLERATIONS_ANNOTATION: "[]"}}
    assert await refusal(patch(work)) == ""


@pytest.mark.req("IN-036")
async def test_every_field_of_a_pod_template_is_held_but_tolerations(client):
    served = msgspec.json.decode(await client.raw("GET", "/openapi/v3/api/v1", accept="application/json"))
    fields = set(served["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]["properties"])
    assert fields - set(taints_objects.POD_SPEC_FIELDS) == {"tolerations"}


@pytest.mark.req("IN-036")
@pytest.mark.timeout(300)
async def test_the_builder_writes_objects_of_builds_alone_and_gives_them_no_token(accounts, client, namespace):
    settings, home = OperatorSettings(namespace=namespace), namespace
    namespace = f"builds-{accounts.suffix}"
    await accounts.make({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    await client.create(CONFIGMAPS, {"metadata": {"name": "theirs"}, "data": {"a": "b"}}, namespace=namespace)
    marks = {"labels": {names.RUN_LABEL: "web-1", names.ROLE_LABEL: names.ARCH_ROLE}}

    def job(name: str, *, metadata: dict[str, Any] = marks, **spec: Any) -> dict[str, Any]:
        document = _job(name, _pod("x", **{"automountServiceAccountToken": False, **spec}))
        return {**document, "metadata": {"name": name, **metadata}}

    token = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    permissions = builds_objects.role_permissions(settings, ClusterCapabilities())
    async with await accounts.client(names.ROLE, permissions) as role:
        await accounts.policies(builds_objects.builder_policy(settings))
        probes = iter(range(10_000))

        async def in_force() -> bool:
            return "no token" in await refusal(
                role.create(JOBS, job(f"p{next(probes)}", automountServiceAccountToken=True), namespace=namespace)
            )

        await until(in_force)
        change = MergePatch({"data": {"a": "c"}})
        abuses = {
            "kube-system": role.create(JOBS, job(f"j-{accounts.suffix}"), namespace="kube-system"),
            "a map in kube-system": role.create(
                CONFIGMAPS, {"metadata": {"name": f"m-{accounts.suffix}", **marks}}, namespace="kube-system"
            ),
            "polyarch's namespace": role.create(JOBS, job("keys"), namespace=home),
            "token volume": role.create(JOBS, job("volume", volumes=[token]), namespace=namespace),
            "default token": role.create(JOBS, job("default", automountServiceAccountToken=None), namespace=namespace),
            "no build": role.create(JOBS, job("none", metadata={}), namespace=namespace),
            "a new map": role.create(CONFIGMAPS, {"metadata": {"name": "new"}}, namespace=namespace),
            "their map": role.patch(CONFIGMAPS, "theirs", change, namespace=namespace),
            "taking their map": role.patch(
                CONFIGMAPS, "theirs", MergePatch({"metadata": marks}), namespace=namespace
            ),
            "deleting their map": role.delete(CONFIGMAPS, "theirs", namespace=namespace),
        }  # fmt: skip
        let_through = [what for what, request in abuses.items() if not await refusal(request)]
        assert let_through == []
        await role.create(JOBS, job("web-1-amd64"), namespace=namespace)
        await role.create(CONFIGMAPS, {"metadata": {"name": "web-1-in", **marks}}, namespace=namespace)
        record = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "web-1-arch", **marks}}
        await role.apply(CONFIGMAPS, record, namespace=namespace)
        known = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.ARCHITECTURES_CONFIGMAP}}
        await role.apply(CONFIGMAPS, known, namespace=home)
        await role.patch(CONFIGMAPS, "web-1-in", change, namespace=namespace)
        await role.delete(CONFIGMAPS, "web-1-in", namespace=namespace)
        await role.delete(JOBS, "web-1-amd64", namespace=namespace, propagation="Background")
