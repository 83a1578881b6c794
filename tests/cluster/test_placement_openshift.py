"""On OpenShift mirrors, insecure registries and the global pull secret come from the cluster's own objects."""

import hashlib
import json
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import own_roles
import pytest
import trustme
from aiohttp import web
from aiohttp.test_utils import TestServer
from placement_cluster import PlacementCluster, architectures, until
from placement_process import gated_pod, placed, run

from polyarch.kube.client import Client
from polyarch.kube.resources import CONFIGMAPS, CRDS, NAMESPACES, Resource
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.state import NAMESPACE, Settings

MIRRORS = Resource("config.openshift.io", "v1", "imagedigestmirrorsets", "ImageDigestMirrorSet", namespaced=False)
IMAGES = Resource("config.openshift.io", "v1", "images", "Image", namespaced=False)


@pytest.fixture
async def openshift() -> AsyncIterator[Sandbox]:
    """A control plane of its own: what it serves would make every other one OpenShift, too."""
    settings = Settings(name=f"openshift-{os.getpid()}", nodes={"amd64": 1}, polyarch=False)
    sandbox = await Sandbox.start(settings, owner=os.getpid())
    yield sandbox
    await sandbox.delete()


def definition(resource: Resource) -> dict:
    """A CRD that takes anything."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": resource.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": resource.plural, "singular": resource.kind.lower(), "kind": resource.kind}
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {
            "name": f"{resource.plural}.{resource.group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test"},
        },
        "spec": {"group": resource.group, "scope": "Cluster", "names": names, "versions": [version]},
    }


async def serves(client: Client, resource: Resource) -> bool:
    return any(each.plural == resource.plural for each in await client.discover(resource.group))


async def make(client: Client, resource: Resource, name: str, spec: dict) -> None:
    document = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}
    await client.apply(resource, document)


@asynccontextmanager
async def registry_with_a_certificate(name: str, *architectures: str) -> AsyncIterator[tuple[str, str]]:
    """``host:port`` of a registry that has one image under ``NAME:1``, and the authority that signed for it (PEM)."""
    media_type = "application/vnd.oci.image.index.v1+json"
    entries = [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": "sha256:" + hashlib.sha256(each.encode()).hexdigest(),
            "size": 7,
            "platform": {"os": "linux", "architecture": each},
        }
        for each in architectures
    ]
    body = json.dumps({"schemaVersion": 2, "mediaType": media_type, "manifests": entries}).encode()

    async def manifest(_: web.Request) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": media_type})

    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("localhost").configure_cert(context)
    application = web.Application()
    application.router.add_get(f"/v2/{name}/manifests/1", manifest)
    server = TestServer(application, scheme="https")
    await server.start_server(ssl=context)
    try:
        yield f"localhost:{server.port}", authority.cert_pem.bytes().decode()
    finally:
        await server.close()


@pytest.mark.req("PL-423", "PL-424", "RG-095")
async def test_the_objects_of_openshift_count(openshift, tmp_path):
    """A mirror for digests on an insecure registry, openshift-config/pull-secret, a short name
    that nodes look for elsewhere than at Docker Hub, and the certificate of that registry."""
    private = {"platforms": ["linux/s390x"], "private": True, "users": {"cluster": "secret"}}
    (seeded,) = await openshift.registry.seed({"quay.io/team/app:1": private})
    address = openshift.registry.address
    async with openshift.client() as client:
        cluster = PlacementCluster(openshift, client)
        await own_roles.install(client)
        for resource in (MIRRORS, IMAGES):
            await client.apply(CRDS, definition(resource))
            await until(lambda resource=resource: serves(client, resource))
        image_configuration = {"registrySources": {"insecureRegistries": [address]}}
        await make(client, IMAGES, "cluster", image_configuration)
        await client.create(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "openshift-config"}}
        )
        image = f"corp.example/team/app@{seeded.digest}"
        async with (
            run("placement-controller", openshift, NAMESPACE, tmp_path / "controller.log"),
            registry_with_a_certificate("tool", "arm64", "amd64") as (host, certificates),
        ):
            entry = {"source": "corp.example/team", "mirrors": [f"{address}/quay.io/team"]}
            await make(client, MIRRORS, "corp", {"imageDigestMirrors": [entry]})
            await cluster.pull_secret("openshift-config", "pull-secret", address, username="cluster", password="secret")
            namespace, name = await gated_pod(client, image)
            assert architectures(await placed(client, namespace, name, seconds=40)) == ["s390x"]

            image_configuration["registrySources"]["containerRuntimeSearchRegistries"] = [host]
            image_configuration["additionalTrustedCA"] = {"name": "registries"}
            await make(client, IMAGES, "cluster", image_configuration)
            namespace, name = await gated_pod(client, "tool:1")
            authorities = {"metadata": {"name": "registries"}, "data": {host.replace(":", ".."): certificates}}
            await client.create(
                CONFIGMAPS, {"apiVersion": "v1", "kind": "ConfigMap", **authorities}, namespace="openshift-config"
            )
            assert architectures(await placed(client, namespace, name, seconds=25)) == ["amd64", "arm64"]
