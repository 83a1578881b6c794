"""Install and run polyarch in the sandbox (SB-006): CRDs, RBAC and processes, as in a real deployment.

Each role runs as a process on this machine, with a token of its own ServiceAccount; webhooks are registered by URL.
The administrator applies the objects and registers the webhooks, as the operator role will do in a real cluster.
``TABLE`` lists the roles: a new role is a new row.
"""

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from polyarch.kube.client.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.process.roles import Addresses
from polyarch.kube.resources import CRDS, MUTATING_WEBHOOKS, PODS, Resource, by_kind
from polyarch.model.meta import PartialObjectMetadata
from polyarch.placement import names
from polyarch.placement.api import crds
from polyarch.placement.api.resources import CPPCS
from polyarch.placement.operator import operands, rbac, webhooks
from polyarch.sandbox import processes
from polyarch.sandbox.control_plane import kubeconfigs
from polyarch.sandbox.control_plane import starting as controlplane
from polyarch.sandbox.control_plane.components import Layout
from polyarch.sandbox.control_plane.health import Probe, until_healthy
from polyarch.sandbox.errors import ProcessFailed
from polyarch.sandbox.files import write_json
from polyarch.sandbox.processes import Command, Record, failure, inputs_of, is_running
from polyarch.sandbox.state import LOOPBACK, NAMESPACE, Folder, Settings
from polyarch.sandbox.tasks import together, until

START_SECONDS = 60.0
ESTABLISHED_SECONDS = 30.0
TOKEN_SECONDS = 365 * 24 * 3600
"""Tokens are issued anew by every ``up``."""
GLOBAL_PULL_SECRET = "global-pull-secret"
"""The Secret in polyarch's namespace that, if it exists, serves as pull secret of every pod."""

Document = dict[str, Any]


class Feature(NamedTuple):
    """The objects that an installation of a feature applies, as functions that build them."""

    definitions: Callable[[], Sequence[Document]]
    """CustomResourceDefinitions."""
    objects: Callable[[], Sequence[Document]]
    """ServiceAccounts and RBAC."""
    switch: Resource
    configuration: Callable[[], Document]
    """The custom resource, of type ``switch``, that switches the feature on."""


class Webhook(NamedTuple):
    """How a role's webhook is registered with the API server."""

    resource: Resource
    configuration: Callable[[str, bytes], Document]
    """Built from the URL and the CA (PEM) of its certificate."""
    is_asked: Callable[[Client], Awaitable[bool]]
    """Whether the API server calls the webhook already."""


class SandboxRole(NamedTuple):
    """One role of ``polyarch run``: its ServiceAccount, the feature that it belongs to, and its webhook."""

    name: str
    account: str
    feature: Feature
    webhook: Webhook | None = None


def cluster_configuration() -> Document:
    """The ClusterPodPlacementConfig that switches placement on, all defaults."""
    return {
        "apiVersion": CPPCS.api_version,
        "kind": CPPCS.kind,
        "metadata": {"name": names.SINGLETON},
        "spec": {"logVerbosity": "Normal"},
    }


def _placement_objects() -> list[Document]:
    parts = rbac.Parts(
        namespace=NAMESPACE,
        node_aware=True,
        sweeps=True,
        compares_nodes=True,
        evicts=True,
        share_readings=True,
        global_pull_secret=(NAMESPACE, GLOBAL_PULL_SECRET),
    )
    readings = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": names.READINGS_SECRET, "namespace": NAMESPACE},
        "type": names.READINGS_TYPE,
    }
    return [*rbac.service_accounts(NAMESPACE), *rbac.rbac(parts), readings]


def _pod_webhook(url: str, authority: bytes) -> Document:
    return webhooks.webhook_configuration(NAMESPACE, url=url, ca_bundle=authority)


async def _pods_are_placed(client: Client) -> bool:
    """Whether a pod that is created as a dry run gets polyarch's label."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "polyarch-sandbox-probe"},
        "spec": {"containers": [{"name": "pause", "image": "registry.k8s.io/pause:3.10"}]},
    }
    seen = await client.create(PODS, pod, namespace="default", type=PartialObjectMetadata, dry_run=True)
    return names.SCHEDULING_GATE_LABEL in (seen.metadata.labels or {})


WEBHOOK: Final = "placement-webhook"
CONTROLLER: Final = "placement-controller"
PLACEMENT: Final = Feature(crds.crds, _placement_objects, CPPCS, cluster_configuration)
TABLE: Final = (
    SandboxRole(WEBHOOK, names.WEBHOOK, PLACEMENT, Webhook(MUTATING_WEBHOOKS, _pod_webhook, _pods_are_placed)),
    SandboxRole(CONTROLLER, names.CONTROLLER, PLACEMENT),
)
ROLES: Final = {role.name: role for role in TABLE}
USERS: Final = {f"system:serviceaccount:{NAMESPACE}:{role.account}": role.name for role in TABLE}
"""User name in the audit log → role."""


def addresses(output: Path) -> Addresses | None:
    """Where a role listens, from the first line of its output; None while it has not printed it."""
    try:
        line, newline, _ = output.read_bytes().partition(b"\n")
    except FileNotFoundError:
        return None
    return msgspec.json.decode(line, type=Addresses) if newline else None


def probes(folder: Folder) -> dict[str, Probe]:
    """Readiness probes of the roles that have printed their addresses."""
    found: dict[str, Probe] = {}
    for role in ROLES:
        if (at := addresses(folder.output(role))) is not None:
            found[role] = Probe(f"{at.health}/readyz")
    return found


def command(layout: Layout, role: SandboxRole, settings: Settings) -> Command:
    """``polyarch run <role>`` as its Deployment starts it, but on loopback and with ports that the kernel chooses."""
    flags = [
        f"--namespace={NAMESPACE}",
        f"--kubeconfig={layout.folder.kubeconfig_of(role.name)}",
        f"--bind={LOOPBACK}",
        "--metrics-port=0",
        "--health-port=0",
        f"--registries-conf={layout.folder.registries_conf}",
        # In a cluster polyarch never connects to a registry on loopback (RG-103); here it must.
        f"--allow-address={LOOPBACK}/8",
        f"--global-pull-secret-namespace={NAMESPACE}",
        f"--global-pull-secret-name={GLOBAL_PULL_SECRET}",
        "--log-format=json",
    ]
    if role.webhook is not None:
        flags += ["--port=0", f"--cert-dir={layout.pki.webhook_folder}"]
    if settings.ca:
        flags.append(f"--ca={settings.ca}")
    program = "import sys; from polyarch.cli import main; sys.exit(main())"
    return Command(
        name=role.name,
        arguments=(sys.executable, "-c", program, "run", role.name, *flags),
        environment=layout.environment_with_proxies,
        log=str(layout.folder.log(role.name)),
        output=str(layout.folder.output(role.name)),
        inputs=inputs_of(*flags, files=[layout.folder.registries_conf, settings.ca]),
    )


async def start(layout: Layout, client: Client, settings: Settings) -> None:
    """Start all roles and register their webhooks; when this returns, the next pod is placed."""
    await install(client)
    for feature in _features():
        await client.apply(feature.switch, feature.configuration())
    await together(_start_role(layout, client, role, settings) for role in TABLE)
    await register(layout.folder, client)


async def install(client: Client) -> None:
    """Apply CRDs, namespace, ServiceAccounts and RBAC; start nothing."""
    definitions = [definition for feature in _features() for definition in feature.definitions()]
    await together(client.apply(CRDS, definition) for definition in definitions)
    await together(_established(client, definition["metadata"]["name"]) for definition in definitions)
    await _apply(client, operands.namespace(NAMESPACE))
    for feature in _features():
        for document in feature.objects():
            await _apply(client, document)


def _features() -> list[Feature]:
    return list(dict.fromkeys(role.feature for role in TABLE))


async def _apply(client: Client, document: dict[str, Any]) -> None:
    resource = by_kind(document["apiVersion"], document["kind"])
    await client.apply(resource, document, namespace=document["metadata"].get("namespace", ""))


async def _established(client: Client, name: str) -> None:
    async def is_served() -> bool:
        definition = await client.get(CRDS, name)
        conditions = definition.get("status", {}).get("conditions") or ()  # null right after creation
        return any(each["type"] == "Established" and each["status"] == "True" for each in conditions)

    if not await until(is_served, seconds=ESTABLISHED_SECONDS):
        raise ProcessFailed(f"the API server does not serve {name} after {ESTABLISHED_SECONDS:.0f} s; see its log")


async def _start_role(layout: Layout, client: Client, role: SandboxRole, settings: Settings) -> Record:
    folder = layout.folder
    token = await client.token(NAMESPACE, role.account, expiration_seconds=TOKEN_SECONDS)
    kubeconfig = kubeconfigs.with_token(role.name, layout.api_server, layout.pki.ca, token.token)
    write_json(folder.kubeconfig_of(role.name), kubeconfig)
    record = await controlplane.ensure(layout, command(layout, role, settings))

    async def listening() -> Addresses | None:
        at = addresses(Path(record.output))
        if at is None and not is_running(record):
            raise failure(record, "ended while starting")
        return at

    at = await until(listening, seconds=START_SECONDS)
    if at is None:
        raise failure(record, f"has printed no addresses after {START_SECONDS:.0f} s")
    url = at.admission or at.health
    if record.url != url:
        processes.save(msgspec.structs.replace(record, url=url), folder.records)
    await until_healthy(record, Probe(f"{at.health}/readyz"), seconds=START_SECONDS)
    return record


async def register(folder: Folder, client: Client) -> None:
    """Register the webhooks by the URLs of their processes (PL-100)."""
    authority = (folder.pki / "ca.crt").read_bytes()
    for role, webhook in _webhooks():
        at = addresses(folder.output(role.name))
        if at is None:
            raise ProcessFailed(f"{role.name} does not run; bring it up with `polyarch up --name {folder.name}`")
        await client.apply(webhook.resource, webhook.configuration(at.admission, authority))
        await until_asked(client, role)


async def unregister(client: Client) -> None:
    """Remove the webhook configurations: when this returns, pods are created without polyarch."""
    for role, webhook in _webhooks():
        try:
            await client.delete(webhook.resource, webhook.configuration("", b"")["metadata"]["name"])
        except NotFound:
            continue
        await until_asked(client, role, asked=False)


def _webhooks() -> list[tuple[SandboxRole, Webhook]]:
    return [(role, role.webhook) for role in TABLE if role.webhook is not None]


async def until_asked(client: Client, role: SandboxRole, *, asked: bool = True) -> None:
    """Wait until the API server calls the role's webhook, or no longer calls it; it learns of the change by a watch."""
    webhook = role.webhook
    if webhook is None:
        return

    async def is_as_wanted() -> bool:
        return await webhook.is_asked(client) == asked

    if not await until(is_as_wanted, seconds=ESTABLISHED_SECONDS):
        raise ProcessFailed(
            f"the API server {'does not call' if asked else 'still calls'} {role.name} after "
            f"{ESTABLISHED_SECONDS:.0f} s; see the logs of kube-apiserver and {role.name}"
        )


async def stop(layout: Layout, client: Client) -> None:
    """Stop polyarch in a running sandbox; its objects and custom resources stay."""
    await unregister(client)
    records = processes.load(layout.folder.records)
    await processes.stop([records[role] for role in ROLES if role in records], records=layout.folder.records)
