"""``polyarch taint plan --emit``: what other parts of the cluster need, as manifests or as a document (TN-027, TN-028,
TN-054)."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import msgspec

from polyarch.cli.output.documents import document_text, manifest_text
from polyarch.cli.output.tables import Row, table
from polyarch.kube.client import Client
from polyarch.kube.resources import NODES
from polyarch.objects import Node
from polyarch.taints.cluster import read_node_templates
from polyarch.taints.documents import (
    GROUP,
    VERSIONS,
    KubeletFlag,
    NodeTemplate,
    guard_policies,
    kubelet_flags,
    newest_served,
    registration_policy,
    runtime_classes,
)
from polyarch.taints.node_rules import architecture_of
from polyarch.taints.settings import TaintSettings

What = Literal["registration-policy", "guard-policies", "kubelet-flags", "nodepools", "runtimeclasses"]
FLAGS_VERSION: Final = "polyarch.dev/kubelet-flags/v1"
NODE_TEMPLATES_VERSION: Final = "polyarch.dev/node-templates/v1"

Emitted = Sequence[dict[str, Any]] | Sequence[KubeletFlag] | Sequence[NodeTemplate]


async def emitted(client: Client, what: What, settings: TaintSettings, *, handler: str) -> Emitted:
    """Reads what it takes, and writes nothing."""
    if what == "guard-policies":
        return guard_policies(settings)
    if what == "nodepools":
        return await read_node_templates(client, settings)
    nodes = (await client.list(NODES, type=Node)).items
    existing = frozenset(filter(None, map(architecture_of, nodes)))
    if what == "runtimeclasses":
        return runtime_classes(settings, existing, handler=handler)
    if what == "kubelet-flags":
        return kubelet_flags(settings, existing)
    version = newest_served(await client.discover(GROUP)) or VERSIONS[0]
    return registration_policy(settings, settings.tainted & (settings.given | existing), version=version)


def emission_text(what: What, found: Emitted, form: str, *, colour: bool = False) -> str:
    """The text of a format."""
    match what:
        case "kubelet-flags":
            return _flags([each for each in found if isinstance(each, KubeletFlag)], form, colour)
        case "nodepools":
            return _node_templates([each for each in found if isinstance(each, NodeTemplate)], form)
        case _:
            documents = [each for each in found if isinstance(each, dict)]
            if form == "json":
                return document_text({"apiVersion": "v1", "kind": "List", "items": documents}, form)
            return manifest_text(documents)


def _flags(found: Iterable[KubeletFlag], form: str, colour: bool) -> str:
    if form == "text":
        rows = [Row((each.architecture, each.flag)) for each in found]
        return table(("ARCHITECTURE", "KUBELET FLAG"), rows, colour=colour)
    return document_text({"schemaVersion": FLAGS_VERSION, "flags": msgspec.to_builtins(list(found))}, form)


def _node_templates(found: Iterable[NodeTemplate], form: str) -> str:
    if form == "text":
        lines = [
            line
            for each in found
            for line in (f"# {each.resource.kind} {each.name}: {each.detail}", each.command if each.patch else "")
        ]
        return "".join(f"{line}\n" for line in lines if line)
    entries = [
        {
            "apiVersion": each.resource.api_version,
            "kind": each.resource.kind,
            "namespace": each.namespace,
            "name": each.name,
            "architectures": list(each.architectures),
            "detail": each.detail,
            "patch": msgspec.to_builtins(each.patch),
        }
        for each in found
    ]
    return document_text({"schemaVersion": NODE_TEMPLATES_VERSION, "templates": entries}, form)
