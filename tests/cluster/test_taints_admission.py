"""Tolerations at admission by a real API server, with placement, beside it and without it.

The webhooks are registered for namespaces of this test alone, by their labels: other tests use the cluster, too.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import own_roles
import pytest
from namespaces import create_namespace
from placement_cluster import PlacementCluster, architectures, is_gated, pod, until
from placement_process import run

from polyarch.kube.client import Client
from polyarch.kube.errors import Forbidden
from polyarch.kube.patches import JsonPatch, add, pointer, remove, replace
from polyarch.kube.resources import DAEMONSETS, MUTATING_WEBHOOKS, NAMESPACES, PODS
from polyarch.operator.components import placement_objects as placement_webhooks
from polyarch.operator.components import taints_objects as taint_webhooks
from polyarch.placement import names as of_placement
from polyarch.sandbox.cluster import Sandbox
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS
from polyarch.taints.settings import TaintSettings

Json = dict[str, Any]
BOTH = ["linux/amd64", "linux/arm64"]
CASE, PLACED = "taints-admission-test", "taints-admission-placed"


class Cluster(PlacementCluster):
    """The administrator's view; ``case`` is the label of this test's namespaces."""

    def __init__(self, sandbox: Sandbox, client: Client) -> None:
        super().__init__(sandbox, client)
        self.case = f"c{secrets.token_hex(4)}"
        self.settings = TaintSettings.of(self.spec)

    @property
    def spec(self) -> Json:
        """No node is tainted: the nodes are there for all tests."""
        return {
            "mode": "tolerations",
            "architectures": ["amd64", "arm64"],
            "nodes": {"selector": {"matchLabels": {CASE: "none"}}, "atRegistration": "none"},
            "pods": {
                "namespaceSelector": {"matchLabels": {CASE: self.case}},
                "onNoCommon": "deny",
                "excludeNamespaces": [f"x{self.case}"],
            },
        }

    @asynccontextmanager
    async def place(self, *, placed: bool = True, name: str = "") -> AsyncIterator[str]:
        """A namespace whose pods get tolerations; placement sees them if ``placed``."""
        name = name or f"taints-{secrets.token_hex(4)}"
        labels = {CASE: self.case} | ({PLACED: self.case} if placed else {})
        await create_namespace(self.client, name, labels)
        try:
            yield name
        finally:
            await self.client.delete(NAMESPACES, name)

    async def calls(self, namespace: str, verb: str = "create") -> list[list[str]]:
        """The webhooks that the API server called in the first round of each such request for a pod, in order."""
        await asyncio.sleep(1.5)  # the log is written with a delay of at most a second
        return [
            [
                msgspec.json.decode(text)["configuration"]
                for key, text in sorted((event.get("annotations") or {}).items())
                if key.startswith("mutation.webhook.admission.k8s.io/round_0_")
            ]
            for event in self.audit()
            if (event.get("objectRef") or {}).get("namespace") == namespace
            and event["objectRef"]["resource"] == "pods"
            and event["verb"] == verb
            and not event["objectRef"].get("subresource")
        ]

    async def warm(self, image: str, namespace: str) -> None:
        """Whoever is called for this namespace knows the image afterwards."""

        async def known() -> bool:
            return bool(tolerated(await self.create(pod(image, name="warm"), namespace, dry_run=True)))

        await until(known)


@asynccontextmanager
async def running(sandbox: Sandbox, client: Client, home: str, folder: Path, *features: str) -> AsyncIterator[Cluster]:
    """A cluster in which these of ``placement`` and ``taints`` are on."""
    cluster = Cluster(sandbox, client)
    authority = sandbox.ca.read_bytes()
    flags = (f"--cert-dir={sandbox.layout.pki.webhook_folder}", f"--registries-conf={sandbox.registries_conf}")
    document: Json
    entry: Json | None = None
    async with AsyncExitStack() as stack:
        if "taints" in features:
            resource = ARCHITECTURE_TAINTS
            metadata = {"name": names.SINGLETON}
            object_ = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
            await client.create(resource, object_ | {"spec": cluster.spec})
            stack.push_async_callback(client.delete, resource, names.SINGLETON)
        if "placement" in features:
            process = run("all", sandbox, home, folder / "placement.log", *flags)
            placement = await stack.enter_async_context(process)
            await until(placement.ready)
            document = placement_webhooks.webhook_configuration(
                home,
                url=placement.said["admission"],
                ca_bundle=authority,
                review_key=own_roles.review_key(sandbox),
                namespace_selector={"matchLabels": {PLACED: cluster.case}},
            )
            [entry] = document["webhooks"]
            await client.apply(MUTATING_WEBHOOKS, document)
            stack.push_async_callback(client.delete, MUTATING_WEBHOOKS, document["metadata"]["name"])
        if "taints" in features:
            role = await stack.enter_async_context(run("taints", sandbox, home, folder / "taints.log", *flags))
            await until(role.ready)
            document = taint_webhooks.webhook_configuration(
                cluster.settings,
                home,
                url=role.said["admission"],
                ca_bundle=authority,
                placement=entry,
                review_key=own_roles.review_key(sandbox),
            )
            await client.apply(MUTATING_WEBHOOKS, document)
            stack.push_async_callback(client.delete, MUTATING_WEBHOOKS, names.ROLE)
        await sandbox.registry.seed({"quay.io/taints-admission/ready:1": BOTH})
        for placed in ("placement" in features, False):
            if placed or "taints" in features:
                async with cluster.place(placed=placed) as namespace:
                    await until(lambda at=namespace: _is_asked(cluster, at), seconds=60)
        yield cluster


async def _is_asked(cluster: Cluster, namespace: str) -> bool:
    created = await cluster.create(pod("quay.io/taints-admission/ready:1"), namespace, dry_run=True)
    return bool(tolerated(created)) or architectures(created) is not None


async def _is_refused(cluster: Cluster, document: Json, namespace: str) -> bool:
    try:
        await cluster.create(document, namespace, dry_run=True)
    except Forbidden:
        return True
    return False


@pytest.fixture
async def home(sandbox: Sandbox, client: Client, namespace: str, sole_controller: None, sole_taints: None) -> str:
    """A namespace for polyarch itself, with all kinds and a configuration of placement."""
    await own_roles.install(client)
    return namespace


def tolerated(document: Json) -> list[str]:
    """The architectures whose taint the pod, or a DaemonSet's template, tolerates."""
    spec = document["spec"].get("template", document)["spec"]
    return [each["value"] for each in spec.get("tolerations") or () if each.get("key") == "supported-arch"]


@pytest.mark.req("PL-853", "RG-046", "TN-003", "TN-004", "TN-040", "TN-046", "TN-049")
async def test_with_both_features_a_pod_costs_one_call_and_one_patch(sandbox, client, home, tmp_path):
    image = "quay.io/taints-admission/{}:1".format
    await sandbox.registry.seed(
        {
            image("web"): BOTH,
            image("old"): ["linux/amd64"],
            image("arm"): ["linux/arm64"],
            image("slow"): {"platforms": BOTH, "delay": 1500},
        }
    )
    async with (
        running(sandbox, client, home, tmp_path, "placement", "taints") as cluster,
        cluster.place() as namespace,
        cluster.place(placed=False) as apart,
        cluster.place(name=f"kube-{cluster.case}") as system,
        cluster.place(name=f"x{cluster.case}") as excluded,
    ):
        # Placed and tolerated in the one call that a pod costs; the record is placement's, and is accepted as such.
        await cluster.warm(image("web"), namespace)
        before = len(await cluster.calls(namespace))
        created = await cluster.create(pod(image("web")), namespace)
        assert tolerated(created) == ["amd64", "arm64"]
        assert architectures(created) == ["amd64", "arm64"]
        annotations = created["metadata"]["annotations"]
        assert annotations[names.TOLERATIONS_ANNOTATION] == "amd64,arm64"
        assert of_placement.DECISION_ANNOTATION in annotations
        assert (await cluster.calls(namespace))[before:] == [[of_placement.WEBHOOK_CONFIGURATION]]

        # Placement gates it, nobody else does, and one PATCH lifts the gate and adds the tolerations.
        gated = await cluster.create(pod(image("slow"), name="slow"), namespace)
        assert gated["spec"]["schedulingGates"] == [{"name": of_placement.GATE}]
        assert tolerated(gated) == []
        released = await cluster.released(namespace, "slow")
        assert tolerated(released) == architectures(released) == ["amd64", "arm64"]
        assert len(await cluster.calls(namespace, "patch")) == 1

        # Another image justifies more, which comes with the update itself. (Placement's affinity would rule it out.)
        await cluster.warm(image("web"), apart)
        await cluster.warm(image("old"), apart)
        await cluster.create(pod(image("old"), name="updated"), apart)
        patched = await client.patch(
            PODS,
            "updated",
            JsonPatch((replace("/spec/containers/0/image", image("web")),)),
            namespace=apart,
            type=dict,
        )
        assert tolerated(patched) == ["amd64", "arm64"]
        labelled = JsonPatch((add("/metadata/labels", {"a": "b"}),))
        await client.patch(PODS, "updated", labelled, namespace=apart)
        patches = await cluster.calls(apart, "patch")
        assert patches.count([names.ROLE]) == 1, "an update that changes no image costs no call"

        # What placement does not see, and what it leaves alone.
        before = len(await cluster.calls(apart))
        beside = await cluster.create(pod(image("web")), apart)
        assert tolerated(beside) == ["amd64", "arm64"]
        assert architectures(beside) is None
        assert (await cluster.calls(apart))[before:] == [[names.ROLE]]
        in_system = await cluster.create(pod(image("web")), system)
        assert tolerated(in_system) == ["amd64", "arm64"]
        assert architectures(in_system) is None

        # A namespace that is excluded by its name.
        assert tolerated(await cluster.create(pod(image("web")), excluded)) == []
        assert architectures(await client.get(PODS, "app", namespace=excluded)) == ["amd64", "arm64"]

        # No architecture in common. Before that is said, the indexes are looked at closer: of a pod that comes
        # too early for the answer they count as unknown.
        await cluster.warm(image("arm"), namespace)
        await cluster.warm(image("old"), namespace)
        never = pod(image("old"), image("arm"), name="never")
        for place in (namespace, apart):
            await until(lambda at=place: _is_refused(cluster, never, at))
            with pytest.raises(Forbidden, match=r"old:1.*arm:1|arm:1.*old:1"):
                await cluster.create(never, place)


@pytest.mark.req("TN-003", "TN-046")
async def test_without_placement_tolerations_have_a_gate_of_their_own(sandbox, client, home, tmp_path):
    """The role ``taints`` alone."""
    image = "quay.io/taints-alone/{}:1".format
    await sandbox.registry.seed({image("web"): BOTH, image("slow"): {"platforms": BOTH, "delay": 1500}})
    async with running(sandbox, client, home, tmp_path, "taints") as cluster, cluster.place() as namespace:
        await cluster.warm(image("web"), namespace)
        created = await cluster.create(pod(image("web")), namespace)
        assert tolerated(created) == ["amd64", "arm64"]
        assert architectures(created) is None
        assert not is_gated(created)
        gated = await cluster.create(pod(image("slow"), name="slow"), namespace)
        assert gated["spec"]["schedulingGates"] == [{"name": names.GATE}]
        assert gated["metadata"]["labels"][names.GATED_LABEL] == names.GATED


@pytest.mark.req("TN-050", "TN-053")
async def test_a_manifest_that_is_applied_ten_times_is_one_generation(sandbox, client, home, tmp_path):
    """By server-side apply, and by a client that writes its own list back, without our record, too."""
    await sandbox.registry.seed({"quay.io/taints-sets/agent:1": BOTH})
    manifest: Json = {
        "apiVersion": DAEMONSETS.api_version,
        "kind": DAEMONSETS.kind,
        "metadata": {"name": "agent"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {
                    "containers": [{"name": "agent", "image": "quay.io/taints-sets/agent:1"}],
                    "nodeSelector": {CASE: "none"},
                    "tolerations": [{"key": "own", "operator": "Exists"}],
                },
            },
        },
    }
    async with running(sandbox, client, home, tmp_path, "taints") as cluster, cluster.place() as namespace:
        for turn in range(10):
            applied = await client.apply(DAEMONSETS, manifest, namespace=namespace, field_manager="gitops", type=dict)
            assert applied["metadata"]["generation"] == 1, turn
            assert tolerated(applied) == ["amd64", "arm64"]
        added = msgspec.json.decode(applied["metadata"]["annotations"][names.ADDED_TOLERATIONS_ANNOTATION])
        assert [each["value"] for each in added] == ["amd64", "arm64"]
        annotation = pointer("metadata", "annotations", names.ADDED_TOLERATIONS_ANNOTATION)
        own = replace("/spec/template/spec/tolerations", manifest["spec"]["template"]["spec"]["tolerations"])
        for before in ((), (remove(annotation),)):
            written = await client.patch(DAEMONSETS, "agent", JsonPatch((*before, own)), namespace=namespace, type=dict)
            assert written["metadata"]["generation"] == 1
            assert written["metadata"]["annotations"] == applied["metadata"]["annotations"]
            assert tolerated(written) == ["amd64", "arm64"]
        manifest["spec"]["template"]["spec"]["containers"][0]["env"] = [{"name": "A", "value": "b"}]
        changed = await client.apply(DAEMONSETS, manifest, namespace=namespace, field_manager="gitops", type=dict)
        assert changed["metadata"]["generation"] == 2
        assert tolerated(changed) == ["amd64", "arm64"]


@pytest.mark.req("TN-010")
async def test_without_the_object_placement_works_as_ever(sandbox, client, home, tmp_path):
    """And without the custom resource it would be the same: nothing waits for it."""
    await sandbox.registry.seed({"quay.io/taints-off/web:1": BOTH})
    async with running(sandbox, client, home, tmp_path, "placement") as cluster, cluster.place() as namespace:
        created = await cluster.create(pod("quay.io/taints-off/web:1"), namespace)
        released = await cluster.released(namespace, "app")
        assert architectures(released) == ["amd64", "arm64"]
        assert tolerated(created) == tolerated(released) == []
