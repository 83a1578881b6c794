"""The work of ``polyarch taint plan``: read, judge, print; nothing is written (TN-060)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from polyarch.cli.errors import UsageError
from polyarch.cli.images.pod_images import PodImages, open_pod_images
from polyarch.cli.installation.cluster import Access, on_cluster
from polyarch.cli.options.manifests import ImageOptions
from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.taint.configuration import Configured, Given, configured, given
from polyarch.cli.taint.emission import What, emission_text, emitted
from polyarch.cli.taint.plan_output import plan_document, plan_text
from polyarch.cli.taint.taint_flags import ConfigurationFlags
from polyarch.clock import SystemClock
from polyarch.kube.client import Client
from polyarch.objects import Pod
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.placement.names import OPERATOR_LEASE
from polyarch.taints.cluster import is_renewed, read_inventory, read_live, webhook_problem
from polyarch.taints.inventory import Inventory
from polyarch.taints.names import LEASE
from polyarch.taints.plan import Judge, Plan, plan
from polyarch.taints.settings import TaintSettings

BRIEFLY = 8.0
"""Seconds in which a Lease that is held is renewed more than once."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command line of ``plan`` without the options that it shares."""

    emit: What | None = None
    handler: str | None = None


def run_plan(
    asked: Asked,
    flags: ConfigurationFlags,
    access: Access,
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
        return _emit(what, asked.handler or "", configuration, access, chosen, messages)

    async def work(client: Client) -> tuple[Plan, Configured]:
        found = await configured(client, configuration)
        messages.detail("reading nodes, templates and pods")
        inventory = await read_inventory(client)
        async with opened(client, images, messages) as looked:
            judgement = (await judge_of(inventory, found.settings, looked)).judgement()
        live = await read_live(client, inventory, found.settings, comes=await _comes(client, found))
        return plan(judgement, live), found

    made, found = asyncio.run(on_cluster("taint plan", access, work))
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
    what: What, handler: str, configuration: Given, access: Access, chosen: Sequence[Output], messages: Messages
) -> int:
    async def work(client: Client) -> tuple[Configured, Callable[[str, bool], str]]:
        found = await configured(client, configuration)
        things = await emitted(client, what, found.settings, handler=handler)
        return found, lambda form, colour: emission_text(what, things, form, colour=colour)

    found, render = asyncio.run(on_cluster("taint plan", access, work))
    emit(chosen, render)
    for note in found.notes:
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


async def judge_of(inventory: Inventory, settings: TaintSettings, looked: PodImages) -> Judge:
    """A judge of the inventory who knows what its images say."""
    now = datetime.now(UTC)
    judge = Judge(inventory, settings, looked.of, lambda pod: _age(pod, now))
    await looked.ask(judge.pods())
    await looked.look_again(judge.nowhere())
    return judge


def _age(pod: Pod, now: datetime) -> float:
    created = pod.metadata.creation_timestamp
    return max(0.0, (now - datetime.fromisoformat(created)).total_seconds()) if created else 0.0


async def _comes(client: Client, found: Configured) -> bool:
    """Whether somebody brings what admission lacks. Looked for only if it lacks something, as it takes some seconds."""
    if not found.served or not await webhook_problem(client):
        return found.served
    clock = SystemClock()
    return any([await is_renewed(client, name, clock=clock, patience=BRIEFLY) for name in (LEASE, OPERATOR_LEASE)])
