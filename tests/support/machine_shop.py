"""A MachineConfigPool with its MachineOSConfig, and everything that builds of its images need, on a real API server."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trustme
from machine_crds import definitions
from placement_cluster import until

from polyarch.builds.machineos import api as vocabulary
from polyarch.installation import wait
from polyarch.kube.client import Client
from polyarch.kube.resources import CRDS, SECRETS
from polyarch.sandbox.cluster import Sandbox

HOSTS = {"registry.example.com": {"auth": base64.b64encode(b"a:b").decode()}}
POLICY = [{"path": "/etc/containers/policy.json", "contents": {"source": "data:,%7B%7D"}}]
Json = dict[str, Any]


class Shop:
    """A pool with its config, of the test's own."""

    def __init__(self, sandbox: Sandbox, client: Client, namespace: str) -> None:
        self.client = client
        self.namespace = self.name = namespace
        self.address = sandbox.registry.address
        self.release = f"quay.io/{namespace}"

    async def furnish(self) -> None:
        """Everything but the config."""
        api, kind = vocabulary.POOLS.api_version, vocabulary.POOLS.kind
        for name, form, body in (
            (vocabulary.GLOBAL_PULL_SECRET, "kubernetes.io/dockercfg", HOSTS),
            ("push", "kubernetes.io/dockerconfigjson", {"auths": HOSTS}),
        ):
            key = ".dockercfg" if form.endswith("cfg") else ".dockerconfigjson"
            document = {"metadata": {"name": name}, "type": form, "stringData": {key: json.dumps(body)}}
            await self.client.create(
                SECRETS, {"apiVersion": "v1", "kind": "Secret", **document}, namespace=self.namespace
            )
        controller = {
            "apiVersion": vocabulary.CONTROLLER_CONFIGS.api_version,
            "kind": vocabulary.CONTROLLER_CONFIGS.kind,
            "metadata": {"name": vocabulary.CONTROLLER_CONFIG},
            "spec": {"additionalTrustBundle": base64.b64encode(trustme.CA().cert_pem.bytes()).decode()},
        }
        await self.client.create(vocabulary.CONTROLLER_CONFIGS, controller)
        entitled = {"metadata": {"name": f"etc-pki-entitlement-{self.name}"}, "stringData": {"entitlement.pem": "x"}}
        await self.client.create(SECRETS, {"apiVersion": "v1", "kind": "Secret", **entitled}, namespace=self.namespace)
        await self.rendered("1")
        wanted = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64", "arm64"]}
        spec = {"configuration": {"name": self.rendered_name("1")}, "nodeSelector": {"matchExpressions": [wanted]}}
        await self.client.create(
            vocabulary.POOLS, {"apiVersion": api, "kind": kind, "metadata": {"name": self.name}, "spec": spec}
        )

    def rendered_name(self, version: str) -> str:
        return f"rendered-{self.name}-{version}"

    async def rendered(self, version: str, **spec: Any) -> None:
        images = {
            "osImageURL": f"{self.release}/os:1",
            "baseOSExtensionsContainerImage": f"{self.release}/extensions:1",
        }
        notes = {vocabulary.RELEASE: "4.19.1", vocabulary.CONTROLLER: "abc"}
        document = {
            "apiVersion": vocabulary.RENDERED.api_version,
            "kind": vocabulary.RENDERED.kind,
            "metadata": {"name": self.rendered_name(version), "annotations": notes},
            "spec": {**images, "config": {"ignition": {"version": "3.4.0"}, "storage": {"files": POLICY}}, **spec},
        }
        await self.client.create(vocabulary.RENDERED, document)

    async def config(self) -> None:
        spec = {
            "machineConfigPool": {"name": self.name},
            "imageBuilder": {"imageBuilderType": "Job"},
            "renderedImagePushSecret": {"name": "push"},
            "renderedImagePushSpec": f"{self.address}/{self.namespace}/os:latest",
            "containerFile": [
                {"containerfileArch": "NoArch", "content": "FROM configs AS final\nRUN true\n"},
                {"containerfileArch": "ARM64", "content": "FROM configs AS final\nRUN arm\n"},
            ],
        }
        document = {
            "apiVersion": vocabulary.CONFIGS.api_version,
            "kind": vocabulary.CONFIGS.kind,
            "metadata": {"name": self.name},
            "spec": spec,
        }
        await self.client.create(vocabulary.CONFIGS, document)

    async def stored(self) -> Json:
        found: Json = await self.client.get(vocabulary.CONFIGS, self.name)
        return found

    async def builds(self) -> list[Json]:
        found = (await self.client.list(vocabulary.BUILDS)).items
        return [each for each in found if each["spec"]["machineOSConfig"]["name"] == self.name]

    async def published(self, *, after: str = "") -> Json:
        """The config once another build than ``after`` is its current one."""
        found: Json = {}

        async def done() -> bool:
            nonlocal found
            found = await self.stored()
            named = ((found.get("status") or {}).get("machineOSBuild") or {}).get("name", "")
            return bool(named) and named != after

        try:
            await until(done, seconds=60)
        except AssertionError as error:
            error.add_note(json.dumps([found, await self.builds()], indent=1))
            raise
        return found


@asynccontextmanager
async def kinds(client: Client) -> AsyncIterator[None]:
    for each in definitions():
        await client.apply(CRDS, each)
    await wait.established(client, [each["metadata"]["name"] for each in definitions()])
    try:
        yield
    finally:
        names = [each["metadata"]["name"] for each in definitions()]
        for each in names:
            await client.delete(CRDS, each)

        async def gone() -> bool:
            found = (await client.list(CRDS)).items
            return not {each["metadata"]["name"] for each in found} & set(names)

        await until(gone, seconds=20)


def stage(build: Json) -> str:
    return next((each["type"] for each in build["status"]["conditions"] if each["status"] == "True"), "")
