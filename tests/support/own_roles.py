"""Placement without its operator, for tests and benches that start webhook and controller themselves.

They kill these processes, put proxies before them or choose their flags, which an operator would set right again. The
objects are those of an installation and of the operator; none is listed here.
"""

from typing import get_args

from polyarch.installation import objects, wait
from polyarch.installation.objects import cluster_configuration
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.client import Client
from polyarch.kube.resources import CRDS, by_kind
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator.components import placement_objects
from polyarch.operator.settings import OperatorSettings
from polyarch.placement import names
from polyarch.placement.api import CPPCS
from polyarch.placement.decision import parse_keys
from polyarch.placement.settings import WarmUpKind
from polyarch.sandbox.cluster import Sandbox
from polyarch.sandbox.operator import GLOBAL_PULL_SECRET, until_asked
from polyarch.sandbox.tasks import together

__all__ = [
    "ACCOUNTS",
    "CONTROLLER",
    "GLOBAL_PULL_SECRET",
    "USERS",
    "WEBHOOK",
    "install",
    "review_key",
    "until_asked",
]

WEBHOOK, CONTROLLER = "placement-webhook", "placement-controller"
ACCOUNTS = {WEBHOOK: names.WEBHOOK, CONTROLLER: names.CONTROLLER}
"""Role of ``polyarch run`` → its ServiceAccount."""
USERS = {f"system:serviceaccount:{DEFAULT_NAMESPACE}:{account}": role for role, account in ACCOUNTS.items()}
"""User name in the audit log → role."""


def review_key(sandbox: Sandbox) -> bytes:
    """The key of the roles that a test starts itself, for the tokens of the webhooks that it registers."""
    return parse_keys((sandbox.pki.webhook_folder / "record.key").read_bytes())[0]


async def install(client: Client) -> None:
    """CustomResourceDefinitions, namespace, ServiceAccounts, rights, configuration; no process and no webhook."""
    settings = InstallationSettings()
    definitions = objects.definitions(settings)
    await together(client.apply(CRDS, definition) for definition in definitions)
    await wait.established(client, [definition["metadata"]["name"] for definition in definitions])
    pull_secret = (DEFAULT_NAMESPACE, GLOBAL_PULL_SECRET)
    parts = placement_objects.OptionalFeatures(
        asks_for_nodes=True,
        sweeps=True,
        evicts=True,
        warm_up=get_args(WarmUpKind),
        share_readings=True,
        reports=True,
        global_pull_secret=pull_secret,
    )
    rights = (*placement_objects.service_accounts(OperatorSettings()), *placement_objects.rbac(parts))
    kept = (
        placement_objects.readings_secret(DEFAULT_NAMESPACE),
        placement_objects.report_config_map(DEFAULT_NAMESPACE),
    )
    for document in (*objects.own_namespace(settings), *rights, *kept):
        resource = by_kind(document["apiVersion"], document["kind"])
        await client.apply(resource, document, namespace=document["metadata"].get("namespace", ""))
    await client.apply(CPPCS, cluster_configuration())
