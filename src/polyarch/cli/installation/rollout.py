"""The work of ``polyarch install``: checks, then one object after another, then a summary (IN-002).

The answer goes to stdout, as text or as a document of schema ``polyarch.dev/install/v1``; checks and progress go to
stderr.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from polyarch import __version__
from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.installation.cluster import Access, on_cluster
from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.output.documents import document_text, manifest_text
from polyarch.cli.output.messages import Messages
from polyarch.installation import apply, preflight, wait
from polyarch.installation.apply import Applied, ApplyRefused
from polyarch.installation.objects import documents, images, remembering
from polyarch.installation.preflight import Check
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.client import Client
from polyarch.kube.resources import Ref

Document = dict[str, Any]

SCHEMA_VERSION = "polyarch.dev/install/v1"
MARKS = {"ok": "✓", "note": "!", "refused": "✗"}
OPENSHIFT = "config.openshift.io"


class Manner(NamedTuple):
    """How it is done."""

    dry_run: Literal["", "client", "server"] = ""
    wait: float | None = None
    """Seconds to wait until it is available; None: not at all."""


class Outcome(msgspec.Struct, kw_only=True):
    """What came of it; filled while it is done, so that it can be printed wherever it ends."""

    settings: InstallationSettings
    namespace: str
    dry_run: str
    checks: tuple[Check, ...] = ()
    applied: list[Applied] = []
    refused: ApplyRefused | None = None
    available: bool | None = None
    problem: str = ""


def print_images(settings: InstallationSettings, chosen: Sequence[Output]) -> int:
    """One image a line."""
    found = images(settings)

    def render(form: str, colour: bool) -> str:
        if form == "text":
            return "".join(f"{each}\n" for each in found)
        return document_text({"schemaVersion": SCHEMA_VERSION, "version": __version__, "images": found}, form)

    emit(chosen, render)
    return 0


def print_manifests(settings: InstallationSettings, namespace: str, chosen: Sequence[Output]) -> int:
    """YAML documents in the order of applying; with ``-o json`` a List."""
    made = documents(settings, namespace=namespace)

    def render(form: str, colour: bool) -> str:
        return (
            document_text({"apiVersion": "v1", "kind": "List", "items": made}, form)
            if form == "json"
            else manifest_text(made)
        )

    emit(chosen, render)
    return 0


def install(
    settings: InstallationSettings,
    namespace: str,
    manner: Manner,
    access: Access,
    chosen: Sequence[Output],
    *,
    messages: Messages,
) -> int:
    """Returns the exit code. A failure is printed with what was done until then."""
    outcome = Outcome(settings=settings, namespace=namespace, dry_run=manner.dry_run)
    if manner.dry_run == "client":
        outcome.applied = [
            Applied(preflight.ref_of(each), "untried") for each in documents(settings, namespace=namespace)
        ]
    else:
        asyncio.run(on_cluster("install", access, lambda client: _install(client, outcome, manner, messages)))
    emit(chosen, lambda form, colour: _text(outcome) if form == "text" else document_text(_document(outcome), form))
    if outcome.problem:
        raise CouldNotComplete(outcome.problem)
    return 0


async def documents_for(client: Client, settings: InstallationSettings, namespace: str) -> tuple[Document, ...]:
    """The documents for this cluster; they remember the values as they were given."""
    found = settings
    if settings.openshift is None:
        found = msgspec.structs.replace(settings, openshift=bool(await client.discover(OPENSHIFT)))
    return remembering(documents(found, namespace=namespace), settings)


async def _install(client: Client, outcome: Outcome, manner: Manner, messages: Messages) -> None:
    wanted = await documents_for(client, outcome.settings, outcome.namespace)
    facts = await preflight.gather(client, wanted)
    outcome.checks = preflight.checks(facts, namespace=outcome.namespace)
    tell_checks(outcome.checks, messages)
    if any(check.outcome == "refused" for check in outcome.checks):
        outcome.problem = "install: nothing was written, because a check failed; see above"
        return
    with messages.progress("Installing", len(wanted)) as progress:

        def tell(applied: Applied) -> None:
            outcome.applied.append(applied)
            if applied.verb != "unchanged":
                taken = f" ({'; '.join(applied.taken)}: taken over)" if applied.taken else ""
                progress.remark(f"{_shown(applied.ref)} {_word(applied, outcome.dry_run)}{taken}")
            progress.advance()

        try:
            await apply.apply_all(client, wanted, facts, dry_run=bool(manner.dry_run), tell=tell)
        except ApplyRefused as error:
            outcome.refused = error
            outcome.problem = f"install: {_shown(error.ref)}: {error.problem}; {error.action}"
            return
    if manner.wait is not None:
        switched_on = {each.ref.resource for each in outcome.applied}
        try:
            await wait.available(
                client, outcome.namespace, switched_on=switched_on, seconds=manner.wait, tell=messages.remark
            )
            outcome.available = True
        except wait.NotInTime as error:
            outcome.available = False
            outcome.problem = f"install: {error}; kubectl get pods -n {outcome.namespace} shows more"


def tell_checks(checks: Sequence[Check], messages: Messages) -> None:
    """One line each."""
    for check in checks:
        action = f"; {check.action}" if check.action else ""
        messages.remark(f"{MARKS[check.outcome]} {check.name}: {check.message}{action}")


def _shown(ref: Ref) -> str:
    return f"{ref.resource.kind} {ref.key}"


def _word(applied: Applied, dry_run: str) -> str:
    if applied.verb == "untried":
        return "would be applied" if dry_run == "client" else "would be created (cannot be tried before others exist)"
    return f"would be {applied.verb}" if dry_run else applied.verb


def _text(outcome: Outcome) -> str:
    if outcome.problem:
        return ""
    if outcome.dry_run == "client":
        return "".join(f"{_shown(each.ref)} {_word(each, outcome.dry_run)}\n" for each in outcome.applied)
    count = {verb: sum(each.verb == verb for each in outcome.applied) for verb in ("created", "configured", "untried")}
    changed = [f"{number} {'not tried' if verb == 'untried' else verb}" for verb, number in count.items() if number]
    what = f"polyarch {__version__} in namespace {outcome.namespace}"
    if outcome.dry_run:
        return f"{what}: a dry run; {', '.join(changed) or 'nothing would change'}\n"
    if not changed:
        return f"{what}: nothing to change\n"
    state = "; it is available" if outcome.available else ""
    return f"{what}: {', '.join(changed)}{state}\n"


def _document(outcome: Outcome) -> dict[str, Any]:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "version": __version__,
        "namespace": outcome.namespace,
        "image": outcome.settings.image.reference,
        "components": list(outcome.settings.components),
        "dryRun": outcome.dry_run,
        "checks": [msgspec.to_builtins(each) for each in outcome.checks],
        "objects": [each.ref.document() | {"result": each.verb, "taken": list(each.taken)} for each in outcome.applied],
        "changed": sum(each.verb in ("created", "configured") for each in outcome.applied),
        "available": outcome.available,
        "problem": outcome.problem,
    }
