"""``polyarch uninstall``: polyarch out of a cluster, and nothing left of it.

The command line alone; ``teardown`` does the work."""

import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import msgspec

from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.options.common import ClusterFlags, Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages, confirm
from polyarch.cli.output.terminal import is_terminal
from polyarch.installation import uninstall as removing
from polyarch.installation.uninstall import ManagedElsewhere, UninstallResult, affected
from polyarch.kube.client import Client
from polyarch.kube.resources import few
from polyarch.names import DEFAULT_NAMESPACE

SCHEMA_VERSION = "polyarch.dev/uninstall/v1"


class UninstallCommandResult(msgspec.Struct, kw_only=True):
    """One uninstall, when it has ended."""

    namespace: str
    seconds: float
    removal: UninstallResult


def uninstall(
    namespace: str | None,
    cluster: ClusterFlags,
    chosen: Sequence[Output],
    *,
    keep_crds: bool,
    force: bool,
    yes: bool,
    messages: Messages,
) -> int:
    """Returns the exit code: 0 if nothing is left."""

    async def home_of(client: Client) -> str:
        home = namespace or await removing.find(client) or DEFAULT_NAMESPACE
        if not force:
            await removing.refuse_foreign(client, home)
        return home

    async def question(client: Client) -> str:
        home, taken = await home_of(client), await affected(client)
        return f"This removes polyarch from namespace {home} of {client.configuration.server}; {taken}. Go on?"

    async def work(client: Client) -> UninstallCommandResult:
        began = time.monotonic()
        home = await home_of(client)

        def tell(text: str) -> None:
            messages.remark(f"{time.monotonic() - began:5.1f} s  {text}")

        removal = await removing.remove(client, home, keep_crds=keep_crds, force=force, tell=tell)
        return UninstallCommandResult(namespace=home, seconds=time.monotonic() - began, removal=removal)

    try:
        if not yes and is_terminal(sys.stdin):  # a script has decided, and nobody could answer
            confirm("uninstall", yes=False, question=asyncio.run(on_cluster("uninstall", cluster, question)))
        done = asyncio.run(on_cluster("uninstall", cluster, work))
    except ManagedElsewhere as error:
        raise CouldNotComplete(f"uninstall: {error}") from None
    emit(chosen, lambda form, colour: _text(done) if form == "text" else document_text(_document(done), form))
    if done.removal.left:
        raise CouldNotComplete(f"uninstall: still there after {done.seconds:.0f} s: {few(done.removal.left)}")
    return 0


def _text(done: UninstallCommandResult) -> str:
    removal = done.removal
    lines = [f"kept: {each}" for each in removal.kept]
    if removal.by_force:
        lines.append(f"done without the operator: {removal.by_force}")
    if removal.released:
        lines.append(f"{removal.released} pods run without a constraint: their gates were removed without a decision")
    if not removal.left:
        what = (
            f"{len(removal.deleted)} objects deleted in {done.seconds:.0f} s" if removal.deleted else "there was none"
        )
        also = " but what is kept" if removal.kept else ""
        lines.append(f"polyarch in namespace {done.namespace}: {what}; nothing is left of it{also}")
    return "".join(f"{line}\n" for line in lines)


def _document(done: UninstallCommandResult) -> dict[str, Any]:
    removal = done.removal
    return {
        "schemaVersion": SCHEMA_VERSION,
        "namespace": done.namespace,
        "seconds": round(done.seconds, 1),
        "deleted": [each.document() for each in removal.deleted],
        "releasedPods": removal.released,
        "byForce": removal.by_force,
        "kept": removal.kept,
        "left": removal.left,
    }
