"""The operator deploys the builder while it is wanted, with its rights and no others, and removes it.

With real pods of the role.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
from audited import Audited
from build_refusals import spec
from builder_process import BUILDER_IMAGE, define, seed
from machine_shop import Shop, kinds, stage
from operator_world import OperatorWorld, eventually
from registry_reader import Reader

from polyarch.builds import names
from polyarch.installation.objects import definitions
from polyarch.installation.operator import rights as operator_rights
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.resources import (
    CLUSTER_ROLES,
    CRDS,
    DEPLOYMENTS,
    LEASES,
    NAMESPACES,
    ROLE_BINDINGS,
    SECRETS,
    Resource,
    by_kind,
)
from polyarch.operator.components.builds_objects import EDIT_ROLE, IN_NAMESPACES, VIEW_ROLE, role_permissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names as placement
from polyarch.sandbox.cluster import Sandbox

REVIEWS = Resource("authorization.k8s.io", "v1", "subjectaccessreviews", "SubjectAccessReview", namespaced=False)
KINDS = (names.IMAGE_BUILDS, names.IMAGE_BUILD_RUNS)


@pytest.fixture
async def world(operated_sandbox: Sandbox, tmp_path: Path) -> AsyncIterator[OperatorWorld]:
    async with OperatorWorld.opened(operated_sandbox, tmp_path) as world:
        for document in definitions(InstallationSettings(components=("builds",))):
            await world.client.apply(CRDS, document)
        settings = OperatorSettings(namespace=world.namespace, builds="auto")
        for document in operator_rights(settings, ClusterCapabilities()):
            where = document["metadata"].get("namespace", "")
            await world.client.apply(by_kind(document["apiVersion"], document["kind"]), document, namespace=where)
        try:
            yield world
        finally:
            for kind in (*reversed(KINDS), *KINDS):
                for metadata in await world.found(kind):
                    await world.delete(kind, metadata["name"], metadata["namespace"])


async def allowed(world: OperatorWorld, user: str, verb: str, resource: Resource, namespace: str) -> bool:
    """Whether a user may do this, as the API server says."""
    asked = {"namespace": namespace, "verb": verb, "group": resource.group, "resource": resource.plural}
    review = {
        "apiVersion": REVIEWS.api_version,
        "kind": REVIEWS.kind,
        "metadata": {},
        "spec": {"user": user, "resourceAttributes": asked},
    }
    answer = await world.client.create(REVIEWS, review, type=dict)
    return bool(answer["status"].get("allowed"))


async def bind(world: OperatorWorld, role: str, namespace: str, subject: dict[str, str]) -> None:
    document = {
        "apiVersion": ROLE_BINDINGS.api_version,
        "kind": ROLE_BINDINGS.kind,
        "metadata": {"name": role},
        "roleRef": {"apiGroup": CLUSTER_ROLES.group, "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }
    await world.client.create(ROLE_BINDINGS, document, namespace=namespace)


@pytest.mark.req("BD-002", "BD-331", "BD-332")
@pytest.mark.timeout(600)
async def test_the_builder_comes_with_the_first_build_and_goes_after_the_last(
    world: OperatorWorld,
) -> None:
    """With exactly their rights, operator and builder ask for nothing that is refused."""
    builder = f"system:serviceaccount:{world.namespace}:{names.ROLE}"
    operator, role = world.audit(), Audited(world.sandbox, builder)
    async with world.operator("--builds=auto", "--builder-replicas=1"):
        for resource, name in ((LEASES, placement.OPERATOR_LEASE), (SECRETS, placement.CERTIFICATES_SECRET)):
            await eventually(lambda resource=resource, name=name: world.is_there(resource, name))
        assert await world.is_gone(DEPLOYMENTS, names.ROLE, world.namespace)
        team = await world.team()
        await world.create(names.IMAGE_BUILDS, "web", spec(suspend=True), namespace=team)

        async def available() -> bool:
            found = await world.client.get(DEPLOYMENTS, names.ROLE, namespace=world.namespace)
            return bool(found.get("status", {}).get("availableReplicas", 0))

        await eventually(available)
        assert len((await world.secret(names.HMAC_SECRET))["key"]) == 32

        person = {"apiGroup": CLUSTER_ROLES.group, "kind": "User"}
        await bind(world, "edit", team, person | {"name": "eve"})
        await bind(world, "view", team, person | {"name": "vera"})

        async def aggregated() -> bool:
            return await allowed(world, "eve", "create", names.IMAGE_BUILDS, team) and await allowed(
                world, "vera", "list", names.IMAGE_BUILD_RUNS, team
            )

        await eventually(aggregated)
        assert not await allowed(world, "vera", "create", names.IMAGE_BUILDS, team)
        assert not await allowed(world, "eve", "create", names.IMAGE_BUILD_RUNS, team)
        assert not await allowed(world, "eve", "create", names.IMAGE_BUILDS, "default")

        assert not await allowed(world, builder, "get", SECRETS, team)
        account = {"kind": "ServiceAccount", "name": names.ROLE, "namespace": world.namespace}
        await bind(world, names.NAMESPACE_ROLE, team, account)
        assert await eventually(lambda: allowed(world, builder, "get", SECRETS, team))
        assert not await allowed(world, builder, "list", SECRETS, team)
        assert not await allowed(world, builder, "get", SECRETS, "kube-system")

        await world.client.delete(names.IMAGE_BUILDS, "web", namespace=team)
        await eventually(lambda: world.is_gone(DEPLOYMENTS, names.ROLE, world.namespace))
        for name in (names.ROLE, names.NAMESPACE_ROLE, VIEW_ROLE, EDIT_ROLE):
            await eventually(lambda name=name: world.is_gone(CLUSTER_ROLES, name))

        async def empty() -> bool:
            return await world.left() == []

        await eventually(empty)
    assert await operator.refused() == []
    assert await role.refused() == []  # its rights go after its pod, which gives its Lease back
    granted = role_permissions(OperatorSettings(namespace=world.namespace), ClusterCapabilities())
    rules = (*granted.cluster, *granted.namespaces[world.namespace], *IN_NAMESPACES)
    assert await role.not_allowed(rules) == []
    await world.client.delete(NAMESPACES, team)


@pytest.mark.req("BD-002", "BD-331")
@pytest.mark.timeout(600)
async def test_by_its_value_machine_os_the_operators_builder_builds_one(
    operated_sandbox: Sandbox, tmp_path: Path
) -> None:
    """From ``builds.machineOs`` and ``builds.machineOsNamespace``, as users write them, to an image of nodes."""
    async with OperatorWorld.opened(operated_sandbox, tmp_path) as world, kinds(world.client):
        shop = Shop(world.sandbox, world.client, await world.team())
        await seed(world.sandbox, f"{shop.release}/os:1", f"{shop.release}/extensions:1")
        values = {
            "builds": {
                "machineOs": "on",
                "machineOsNamespace": shop.namespace,
                "mode": "auto",
                "replicas": 1,
                "builderImage": BUILDER_IMAGE,
            },
            "registries": {
                "configuration": world.sandbox.registries_conf.read_text(),
                "allowAddresses": ["127.0.0.0/8"],
            },
        }
        await define(world.client)
        role = Audited(world.sandbox, f"system:serviceaccount:{world.namespace}:{names.ROLE}")
        operator = world.audit()
        async with world.deployed("builds", others=values):
            await shop.furnish()
            await shop.config()
            found = await shop.published()
            (build,) = await shop.builds()
            assert (stage(build), len(build["status"]["relatedObjects"])) == ("Succeeded", 2)
            async with aiohttp.ClientSession() as session:
                reader = Reader(session, shop.address)
                digest, platforms = await reader.whole(f"{shop.namespace}/os", build["metadata"]["name"])
            assert found["status"]["currentImagePullSpec"] == f"{shop.address}/{shop.namespace}/os@{digest}"
            assert platforms == ["linux/amd64", "linux/arm64"]
            assert await role.refused() == []
            assert await operator.refused() == []
