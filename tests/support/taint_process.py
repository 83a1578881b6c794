"""The role ``taints`` started by a test itself, with its own ServiceAccount and exactly the rights that it declares."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from placement_cluster import until
from placement_process import Running, run

from polyarch.installation import objects, wait
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.patches import MergePatch
from polyarch.kube.rbac import granted
from polyarch.kube.resources import (
    CLUSTER_ROLE_BINDINGS,
    CLUSTER_ROLES,
    CRDS,
    EVENTS,
    NAMESPACES,
    SERVICE_ACCOUNTS,
    by_kind,
)
from polyarch.operator.components.taints_objects import role_permissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json
from polyarch.taints import names
from polyarch.taints.api import ARCHITECTURE_TAINTS

ACCOUNT = "polyarch-taints-test"
NOBODY = {"selector": {"matchLabels": {"polyarch.test/nobody": "has-it"}}, "atRegistration": "none"}
"""``spec.nodes`` of tests that share their nodes with others: none of them is tainted."""
CASE = "polyarch.test/taints"
KEY = "supported-arch"


def taints(**spec: Any) -> dict[str, Any]:
    """The object, for the namespaces of :func:`configured` and by default for no node."""
    return {
        "apiVersion": ARCHITECTURE_TAINTS.api_version,
        "kind": ARCHITECTURE_TAINTS.kind,
        "metadata": {"name": names.SINGLETON},
        "spec": {"nodes": NOBODY, **spec},
    }


async def define(client: Client) -> None:
    """The custom resources of an installation."""
    definitions = objects.definitions(InstallationSettings())
    for definition in definitions:
        await client.apply(CRDS, definition)
    await wait.established(client, [definition["metadata"]["name"] for definition in definitions])


@asynccontextmanager
async def configured(client: Client, namespace: str, **spec: Any) -> AsyncIterator[None]:
    """The one ArchitectureTaints of the cluster, for the pods of one namespace; take ``sole_taints`` with it."""
    await define(client)
    await client.patch(NAMESPACES, namespace, MergePatch({"metadata": {"labels": {CASE: namespace}}}))
    pods = {"namespaceSelector": {"matchLabels": {CASE: namespace}}, **spec.pop("pods", {})}
    await client.apply(ARCHITECTURE_TAINTS, taints(pods=pods, **spec))
    try:
        yield
    finally:
        await remove(client)


async def remove(client: Client) -> None:
    """The object, as if nobody was to finish with it; also if it is gone already."""
    try:
        await client.patch(ARCHITECTURE_TAINTS, names.SINGLETON, MergePatch({"metadata": {"finalizers": None}}))
        await client.delete(ARCHITECTURE_TAINTS, names.SINGLETON)
    except NotFound:
        return

    async def gone() -> bool:
        try:
            await client.get(ARCHITECTURE_TAINTS, names.SINGLETON)
        except NotFound:
            return True
        return False

    await until(gone)


@asynccontextmanager
async def taint_role(
    sandbox: Sandbox,
    client: Client,
    home: str,
    folder: Path,
    *flags: str,
    evicts: bool = False,
    name: str = "",
    account: str = "",
    server: str = "",
) -> AsyncIterator[Running]:
    """One process in the namespace ``home``, ready. ``server``: what it takes for the API server."""
    account = account or f"{ACCOUNT}-{secrets.token_hex(4)}"
    document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
    await client.create(SERVICE_ACCOUNTS, document, namespace=home)
    settings = OperatorSettings(namespace=home, image="", image_pull_policy=None)
    allowed = role_permissions(settings, ClusterCapabilities(), evicts=evicts)
    for namespace, several in (("", allowed.cluster), *allowed.namespaces.items()):
        for each in granted(account, several, [(home, account)], namespace=namespace):
            await client.apply(by_kind(each["apiVersion"], each["kind"]), each, namespace=namespace)
    issued = await client.token(home, account)
    file, layout = folder / f"{account}.kubeconfig", sandbox.layout
    write_json(file, kubeconfig_with_token(account, server or layout.api_server, layout.pki.ca, issued.token))
    try:
        own = (f"--registries-conf={sandbox.registries_conf}", *flags)
        async with run("taints", sandbox, home, folder / f"{name or account}.log", *own, kubeconfig=file) as running:
            await until(running.ready, seconds=60)
            yield running
    finally:
        await client.delete(CLUSTER_ROLE_BINDINGS, account)
        await client.delete(CLUSTER_ROLES, account)


def tolerated(document: dict[str, Any]) -> list[str]:
    """Architectures whose taint a pod, or a template, tolerates because of us, in order."""
    return [each["value"] for each in document["spec"].get("tolerations") or () if each.get("key") == KEY]


def has_gate(document: dict[str, Any]) -> bool:
    return {"name": names.GATE} in (document["spec"].get("schedulingGates") or [])


async def warnings(client: Client, namespace: str, name: str) -> list[dict[str, Any]]:
    """The role's events about an object, oldest first."""
    found = [
        event
        for event in (await client.list(EVENTS, namespace=namespace)).items
        if event.get("regarding", {}).get("name") == name and event.get("reportingController") == "polyarch.dev/taints"
    ]
    return sorted(found, key=lambda event: event["eventTime"])
