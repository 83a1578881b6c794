"""Taints without the operator, for tests that start the role themselves: definitions, account, rights and webhook.

They kill the process and put proxies before it, which an operator would set right again.
"""

from taint_process import define

from polyarch.kube.client import Client
from polyarch.kube.resources import MUTATING_WEBHOOKS, NAMESPACES, by_kind
from polyarch.operator.components.taints_objects import rbac, webhook_configuration
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.sandbox.state import NAMESPACE
from polyarch.taints.settings import TaintSettings


async def install(client: Client) -> None:
    """CustomResourceDefinitions, namespace, account and rights; no process, no webhook, no ArchitectureTaints."""
    await define(client)
    await client.apply(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    settings = OperatorSettings(namespace=NAMESPACE, image="", image_pull_policy=None)
    for document in rbac(settings, ClusterCapabilities(), evicts=False):
        resource = by_kind(document["apiVersion"], document["kind"])
        await client.apply(resource, document, namespace=document["metadata"].get("namespace", ""))


async def register(client: Client, settings: TaintSettings, url: str, authority: bytes, *, review_key: bytes) -> None:
    """The webhooks of pods and templates, asked at ``url``."""
    document = webhook_configuration(settings, url=url, ca_bundle=authority, review_key=review_key)
    await client.apply(MUTATING_WEBHOOKS, document)
