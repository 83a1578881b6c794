"""The work of ``polyarch taint plan``: reads the cluster, judges it and prints the plan. Writes nothing."""

from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec

from polyarch.cli.cluster import run_on_cluster
from polyarch.cli.errors import UsageError
from polyarch.cli.images.pod_images import PodImages, open_pod_images
from polyarch.cli.options.common import ClusterFlags, Output, emit
from polyarch.cli.options.images import ImageOptions
from polyarch.cli.output.documents import document_text, manifest_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import Row, table
from polyarch.cli.output.terminal import printable
from polyarch.cli.taint.configuration import FlagConfiguration, TaintConfiguration, configured, given
from polyarch.cli.taint.options import ConfigurationFlags
from polyarch.cli.taint.output import plan_document, plan_text
from polyarch.clock import SystemClock
from polyarch.kube.client import Client
from polyarch.kube.resources import NODES
from polyarch.objects import Node, Pod
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.placement.names import OPERATOR_LEASE
from polyarch.taints.cluster import is_renewed, read_inventory, read_live, read_node_templates, webhook_problem
from polyarch.taints.documents import (
    GROUP,
    VERSIONS,
    KubeletFlag,
    guard_policies,
    kubelet_flags,
    newest_served,
    registration_policy,
    runtime_classes,
)
from polyarch.taints.inventory import ClusterSnapshot
from polyarch.taints.names import LEASE
from polyarch.taints.node_rules import architecture_of
from polyarch.taints.node_templates import NodeTemplates
from polyarch.taints.plan import Plan, PlanBuilder, plan
from polyarch.taints.settings import TaintSettings

BRIEFLY = 8.0
"""Seconds in which a Lease that is held is renewed more than once."""
What = Literal["registration-policy", "guard-policies", "kubelet-flags", "nodepools", "runtimeclasses"]


@dataclass(frozen=True, kw_only=True)
class TaintPlanOptions:
    """The command line of ``plan`` without the options that it shares."""

    emit: What | None = None
    handler: str | None = None


def run_plan(
    asked: TaintPlanOptions,
    flags: ConfigurationFlags,
    cluster: ClusterFlags,
    images: ImageOptions,
    chosen: Sequence[Output],
    *,
    messages: Messages,
) -> int:
    """Returns the exit code: 1 if there are blockers."""
    if asked.emit == "runtimeclasses" and not asked.handler:
        raise UsageError(
            "--emit runtimeclasses needs --handler: the name of a handler that the nodes' container runtime knows"
        )
    if asked.handler and asked.emit != "runtimeclasses":
        raise UsageError("--handler belongs to --emit runtimeclasses")
    images.check()
    configuration = given(flags)
    what = asked.emit
    if what is not None:
        return _emit(what, asked.handler or "", configuration, cluster, chosen, messages)

    async def work(client: Client) -> tuple[Plan, TaintConfiguration]:
        found = await configured(client, configuration)
        messages.detail("reading nodes, templates and pods")
        inventory = await read_inventory(client)
        async with opened(client, images, messages) as looked:
            judge = await judge_of(inventory, found.settings, looked)
            judgement = judge.judgement()
            comes = await _comes(client, found)
            live = await read_live(client, inventory, found.settings, comes=comes, platforms_of=judge.platforms)
        return plan(judgement, live), found

    made, found = run_on_cluster("taint plan", cluster, work)
    emit(
        chosen,
        lambda form, colour: (
            plan_text(made, found, colour=colour) if form == "text" else document_text(plan_document(made, found), form)
        ),
    )
    for note in (*found.notes, *made.live.notes):
        messages.note(note)
    return 1 if made.blockers else 0


def _emit(
    what: What,
    handler: str,
    configuration: FlagConfiguration,
    cluster: ClusterFlags,
    chosen: Sequence[Output],
    messages: Messages,
) -> int:
    async def work(client: Client) -> tuple[TaintConfiguration, Emitted]:
        found = await configured(client, configuration)
        return found, await emitted(client, what, found.settings, handler=handler)

    found, things = run_on_cluster("taint plan", cluster, work)
    emit(chosen, lambda form, colour: emission_text(what, things, form, colour=colour))
    for note in (*found.notes, *(things.notes if isinstance(things, NodeTemplates) else ())):
        messages.note(note)
    return 0


@asynccontextmanager
async def opened(client: Client, images: ImageOptions, messages: Messages) -> AsyncIterator[PodImages]:
    """The look-ups of a command. ``UsageError`` for options that cannot be used."""
    try:
        async with open_pod_images(client, images, messages) as looked:
            yield looked
    except InvalidSetting as error:
        raise UsageError(str(error)) from None


async def judge_of(inventory: ClusterSnapshot, settings: TaintSettings, looked: PodImages) -> PlanBuilder:
    """A judge of the inventory who knows what its images say."""
    now = datetime.now(UTC)
    judge = PlanBuilder(inventory, settings, looked.of, lambda pod: _age(pod, now))
    await looked.ask(judge.pods())
    await looked.look_again(judge.nowhere())
    return judge


def _age(pod: Pod, now: datetime) -> float:
    created = pod.metadata.creation_timestamp
    return max(0.0, (now - datetime.fromisoformat(created)).total_seconds()) if created else 0.0


async def _comes(client: Client, found: TaintConfiguration) -> bool:
    """Whether somebody brings what admission lacks. Looked for only if it lacks something, as it takes some seconds."""
    if not found.served or not await webhook_problem(client):
        return found.served
    clock = SystemClock()
    return any([await is_renewed(client, name, clock=clock, patience=BRIEFLY) for name in (LEASE, OPERATOR_LEASE)])


# -- ``--emit``: what other parts of the cluster need, as manifests or as a document


FLAGS_VERSION: Final = "polyarch.dev/kubelet-flags/v1"
NODE_TEMPLATES_VERSION: Final = "polyarch.dev/node-templates/v1"
Emitted = Sequence[dict[str, Any]] | Sequence[KubeletFlag] | NodeTemplates


async def emitted(client: Client, what: What, settings: TaintSettings, *, handler: str) -> Emitted:
    """Reads what it takes, and writes nothing."""
    if what == "guard-policies":
        return guard_policies(settings)
    nodes = (await client.list(NODES, type=Node)).items
    if what == "nodepools":
        return await read_node_templates(client, settings, nodes)
    existing = frozenset(filter(None, map(architecture_of, nodes)))
    if what == "runtimeclasses":
        return runtime_classes(settings, existing, handler=handler)
    if what == "kubelet-flags":
        return kubelet_flags(settings, existing)
    version = newest_served(await client.discover(GROUP)) or VERSIONS[0]
    return registration_policy(settings, settings.tainted & (settings.given | existing), version=version)


def emission_text(what: What, found: Emitted, form: str, *, colour: bool = False) -> str:
    """The text of a format."""
    if isinstance(found, NodeTemplates):
        return _node_templates(found, form)
    if what == "kubelet-flags":
        return _flags([each for each in found if isinstance(each, KubeletFlag)], form, colour)
    documents = [each for each in found if isinstance(each, dict)]
    if form == "json":
        return document_text({"apiVersion": "v1", "kind": "List", "items": documents}, form)
    return manifest_text(documents)


def _flags(found: Iterable[KubeletFlag], form: str, colour: bool) -> str:
    if form == "text":
        rows = [Row((each.architecture, each.flag)) for each in found]
        return table(("ARCHITECTURE", "KUBELET FLAG"), rows, colour=colour)
    return document_text({"schemaVersion": FLAGS_VERSION, "flags": msgspec.to_builtins(list(found))}, form)


def _node_templates(found: NodeTemplates, form: str) -> str:
    if form == "text":
        lines = [line for each in found.lacking for line in (f"# {each.kind} {each.name}: {each.detail}", each.command)]
        return "".join(f"{printable(line)}\n" for line in lines if line)
    entries = [
        {
            "apiVersion": each.api_version,
            "kind": each.kind,
            "namespace": each.namespace,
            "name": each.name,
            "architectures": list(each.architectures),
            "detail": each.detail,
            "patch": msgspec.to_builtins(each.patch),
            "command": each.command,
        }
        for each in found.lacking
    ]
    notes = list(found.notes)
    return document_text({"schemaVersion": NODE_TEMPLATES_VERSION, "templates": entries, "notes": notes}, form)
