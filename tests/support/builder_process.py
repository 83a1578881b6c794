"""The builder started by a test itself, with its own ServiceAccount and exactly the rights that its parts declare."""

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from placement_cluster import until
from placement_process import Running, run

from polyarch.builds import names
from polyarch.builds.api.crd import crds
from polyarch.builds.controller.image_builds import ARCHITECTURES_RIGHTS
from polyarch.builds.controller.informers import INFORMER_RIGHTS, POD_RIGHTS
from polyarch.builds.controller.machine_os import MACHINE_OS_NAMESPACE_RIGHTS, MACHINE_OS_RIGHTS
from polyarch.builds.controller.pruner import PRUNE_JOB_RIGHTS, PRUNER_RIGHTS
from polyarch.builds.controller.resolver import CONFIG_MAP_RIGHTS, HMAC_RIGHTS, NAMED_OBJECT_RIGHTS
from polyarch.builds.controller.writes import MACHINE_RIGHTS, NAMESPACE_RIGHTS, SECRET_COPY_RIGHTS, WRITE_RIGHTS
from polyarch.installation import wait
from polyarch.kube import events, lease
from polyarch.kube.client import Client
from polyarch.kube.rbac import granted, union
from polyarch.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CRDS, SERVICE_ACCOUNTS, by_kind
from polyarch.kube.server import SCRAPER_RIGHTS
from polyarch.operator.settings import DEFAULT_IMAGE
from polyarch.sandbox.certificates import kubeconfig_with_token
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.files import write_json

BUILDER_IMAGE = "quay.io/buildah/stable:v1"
EVERY = ["linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"]
CLUSTER_RULES = union(
    *(*INFORMER_RIGHTS, *WRITE_RIGHTS, *CONFIG_MAP_RIGHTS, *events.RIGHTS, *SCRAPER_RIGHTS),
    *(*PRUNER_RIGHTS, *NAMED_OBJECT_RIGHTS, *PRUNE_JOB_RIGHTS, *POD_RIGHTS),
)
OWN_RULES = union(*lease.rights(names.LEASE), *ARCHITECTURES_RIGHTS, *HMAC_RIGHTS)

MACHINE_CLUSTER_RULES = union(*MACHINE_OS_RIGHTS, *SECRET_COPY_RIGHTS, *MACHINE_RIGHTS)
MACHINE_RULES = union(*MACHINE_OS_NAMESPACE_RIGHTS, *NAMESPACE_RIGHTS)


async def define(client: Client) -> None:
    """The custom resources of builds."""
    for definition in crds():
        await client.apply(CRDS, definition)
    await wait.established(client, [definition["metadata"]["name"] for definition in crds()])


async def seed(sandbox: Sandbox, *bases: str) -> None:
    """The images of build pods, and base images for every architecture."""
    await sandbox.registry.seed(dict.fromkeys((BUILDER_IMAGE, DEFAULT_IMAGE, *bases), EVERY))


@asynccontextmanager
async def account(
    sandbox: Sandbox, client: Client, home: str, folder: Path, *, server: str = "", machine_os: bool = False
) -> AsyncIterator[Path]:
    """A ServiceAccount with the builder's rights; its kubeconfig. ``server``: what it takes for the API server.

    ``machine_os``: also with those for machine OS images, whose Jobs are in ``home`` too.
    """
    name = f"builder-{secrets.token_hex(4)}"
    document = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    await client.create(SERVICE_ACCOUNTS, document, namespace=home)
    more = (MACHINE_CLUSTER_RULES, MACHINE_RULES) if machine_os else ((), ())
    for namespace, rules in (("", union(*CLUSTER_RULES, *more[0])), (home, union(*OWN_RULES, *more[1]))):
        for each in granted(name, rules, [(home, name)], namespace=namespace):
            await client.apply(by_kind(each["apiVersion"], each["kind"]), each, namespace=namespace)
    issued = await client.token(home, name)
    file, layout = folder / f"{name}.kubeconfig", sandbox.layout
    write_json(file, kubeconfig_with_token(name, server or layout.api_server, layout.pki.ca, issued.token))
    try:
        yield file
    finally:
        await client.delete(CLUSTER_ROLE_BINDINGS, name)
        await client.delete(CLUSTER_ROLES, name)


def flags(
    sandbox: Sandbox, home: str, *, machine_os: bool = False, registries_conf: Path | None = None
) -> tuple[str, ...]:
    machine = ("--machine-os=on", f"--machine-os-namespace={home}") if machine_os else ("--machine-os=off",)
    return (
        f"--registries-conf={registries_conf or sandbox.registries_conf}",
        f"--builder-image={BUILDER_IMAGE}",
        f"--push-image={DEFAULT_IMAGE}",
        *machine,
    )


@asynccontextmanager
async def builder(
    sandbox: Sandbox,
    client: Client,
    home: str,
    folder: Path,
    *more: str,
    name: str = "builder",
    machine_os: bool = False,
    registries_conf: Path | None = None,
) -> AsyncIterator[Running]:
    """One process in the namespace ``home``, ready."""
    given = (*flags(sandbox, home, machine_os=machine_os, registries_conf=registries_conf), *more)
    async with (
        account(sandbox, client, home, folder, machine_os=machine_os) as kubeconfig,
        run("builder", sandbox, home, folder / f"{name}.log", *given, kubeconfig=kubeconfig) as running,
    ):
        await until(running.ready, seconds=60)
        yield running


def image_build(name: str, repository: str, containerfile: str, **spec: Any) -> dict[str, Any]:
    """An ImageBuild for the nodes that there are."""
    source = {"containerfile": containerfile, **spec.pop("source", {})}
    output = {"repository": repository, **spec.pop("output", {})}
    return {
        "apiVersion": names.IMAGE_BUILDS.api_version,
        "kind": names.IMAGE_BUILDS.kind,
        "metadata": {"name": name},
        "spec": {"source": source, "output": output, **spec},
    }


def condition(document: dict[str, Any], type: str) -> tuple[str, str]:
    """Status and reason of a condition; empty if there is none."""
    for each in (document.get("status") or {}).get("conditions") or ():
        if each["type"] == type:
            return each["status"], each["reason"]
    return "", ""


async def settled(client: Client, namespace: str, name: str, *, seconds: float = 120) -> dict[str, Any]:
    """The ImageBuild once nothing of it is under way."""
    found: dict[str, Any] = {}

    async def done() -> bool:
        nonlocal found
        found = await client.get(names.IMAGE_BUILDS, name, namespace=namespace)
        status = found.get("status") or {}
        seen = status.get("observedGeneration") == found["metadata"]["generation"]
        return seen and not status.get("activeRun") and condition(found, "Progressing")[0] == "False"

    try:
        await until(done, seconds=seconds)
    except TimeoutError as error:
        error.add_note(str(found.get("status")))
        raise
    return found


async def runs(client: Client, namespace: str) -> list[dict[str, Any]]:
    """The ImageBuildRuns of a namespace, the oldest first."""
    found = (await client.list(names.IMAGE_BUILD_RUNS, namespace=namespace)).items
    return sorted(found, key=lambda each: (each["metadata"]["creationTimestamp"], each["spec"]["serial"]))


async def story(client: Client, namespace: str) -> str:
    """What became of the Runs of a namespace, for a test that did not expect it."""
    told = [
        f"{run['metadata']['name']} {each['architecture']}: {each['phase']} {each.get('reason')} {each.get('message')}"
        for run in await runs(client, namespace)
        for each in (run.get("status") or {}).get("architectures") or ()
    ]
    return "\n".join(told)
