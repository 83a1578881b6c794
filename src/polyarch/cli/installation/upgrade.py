"""``polyarch upgrade``: an installation at the version of this command.

The command line alone; ``comparison`` does the work."""

import asyncio
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from polyarch import __version__
from polyarch.cli.cluster import on_cluster
from polyarch.cli.errors import CouldNotComplete
from polyarch.cli.installation import install
from polyarch.cli.options.common import ClusterFlags, Output, emit
from polyarch.cli.output.documents import document_text, manifest_text, unified_diff
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.terminal import styled
from polyarch.installation import preflight, uninstall
from polyarch.installation.objects import VALUES
from polyarch.installation.operator import OPERATOR
from polyarch.installation.preflight import PreflightCheck
from polyarch.installation.settings import InstallationSettings
from polyarch.installation.upgrade import PlannedChange, UpgradeWarning, compare, findings, installed_version
from polyarch.kube.client import Client
from polyarch.kube.errors import NotFound
from polyarch.kube.resources import DEPLOYMENTS

SCHEMA_VERSION = "polyarch.dev/upgrade/v1"
COLOURS = {"+": "green", "-": "red", "@": "cyan"}


class UpgradeOptions(NamedTuple):
    """What the command line says."""

    namespace: str | None
    values: str | None
    image: str


class Comparison(msgspec.Struct, kw_only=True):
    """What ``--check`` found."""

    namespace: str
    installed: str
    checks: tuple[PreflightCheck, ...]
    findings: list[UpgradeWarning]
    changes: list[PlannedChange]

    @property
    def refused(self) -> list[str]:
        found = [each.message for each in self.findings if each.outcome == "refused"]
        return [*(f"{each.name}: {each.message}" for each in self.checks if each.outcome == "refused"), *found]


def check(wanted: UpgradeOptions, cluster: ClusterFlags, chosen: Sequence[Output], *, messages: Messages) -> int:
    """Prints the comparison; returns 0 if nothing would change, otherwise 1."""
    found = asyncio.run(on_cluster("upgrade", cluster, lambda client: _compare(client, wanted, messages)))
    emit(
        chosen,
        lambda form, colour: _text(found, colour=colour) if form == "text" else document_text(_document(found), form),
    )
    if found.refused:
        raise CouldNotComplete(f"upgrade: in the way: {'; '.join(found.refused)}")
    return 1 if found.changes else 0


def upgrade(
    wanted: UpgradeOptions, cluster: ClusterFlags, chosen: Sequence[Output], *, wait: float | None, messages: Messages
) -> int:
    """Installs this version with the values of the installation, if nothing stands in the way."""

    async def look(client: Client) -> tuple[str, InstallationSettings]:
        namespace, settings = await _settings(client, wanted, messages)
        made = await install.documents_for(client, settings, namespace)
        found = await findings(client, made, await preflight.gather(client, made))
        if refused := [each.message for each in found if each.outcome == "refused"]:
            raise CouldNotComplete(f"upgrade: in the way: {'; '.join(refused)}; nothing was written")
        return namespace, settings

    namespace, settings = asyncio.run(on_cluster("upgrade", cluster, look))
    return install.install(
        settings, namespace, install.InstallRunOptions(wait=wait), cluster, chosen, messages=messages
    )


async def _compare(client: Client, wanted: UpgradeOptions, messages: Messages) -> Comparison:
    namespace, settings = await _settings(client, wanted, messages)
    made = await install.documents_for(client, settings, namespace)
    facts = await preflight.gather(client, made)
    checks = preflight.checks(facts, namespace=namespace)
    install.tell_checks(checks, messages)
    is_refused = any(each.outcome == "refused" for each in checks)
    return Comparison(
        namespace=namespace,
        installed=installed_version(facts, namespace),
        checks=checks,
        findings=await findings(client, made, facts),
        changes=[] if is_refused else await compare(client, made, facts),
    )


async def _settings(client: Client, wanted: UpgradeOptions, messages: Messages) -> tuple[str, InstallationSettings]:
    """The namespace and the values of the installation, with what the command line says."""
    namespace = wanted.namespace or await uninstall.find(client)
    if namespace is None:
        raise CouldNotComplete("upgrade: no polyarch is in this cluster; install it with `polyarch install`")
    earlier = None
    try:
        deployment = await client.get(DEPLOYMENTS, OPERATOR, namespace=namespace)
    except NotFound:
        record = None
    else:
        record = (deployment["metadata"].get("annotations") or {}).get(VALUES)
    if record is not None and wanted.values is None:
        earlier = install.earlier_settings(record)
        # Its own tag or digest is that of the version which is replaced.
        earlier = msgspec.structs.replace(earlier, image=msgspec.structs.replace(earlier.image, tag="", digest=""))
    elif wanted.values is None:
        messages.note("the installation has no record of its values; those not given by --values are the defaults")
    return namespace, install.settings(wanted.values, image=wanted.image, earlier=earlier)


def _text(found: Comparison, *, colour: bool) -> str:
    lines = [f"{'in the way' if each.outcome == 'refused' else 'note'}: {each.message}\n" for each in found.findings]
    for change in found.changes:
        name = f"{change.ref.resource.kind}/{change.ref.key}"
        before = manifest_text([change.before]) if change.before is not None else ""
        diff = unified_diff(name, before, manifest_text([change.after]))
        lines += [styled(line.rstrip("\n"), _style(line), colour=colour) + "\n" for line in diff.splitlines()]
    count = len(found.changes)
    verdict = f"{count} object{'s' if count != 1 else ''} would change" if count else "nothing would change"
    lines.append(f"polyarch {found.installed or 'unknown'} → {__version__} in namespace {found.namespace}: {verdict}\n")
    return "".join(lines)


def _style(line: str) -> str:
    return COLOURS.get(line[:1], "")


def _document(found: Comparison) -> dict[str, Any]:
    return {
        "schemaVersion": SCHEMA_VERSION,
        "namespace": found.namespace,
        "installed": found.installed,
        "version": __version__,
        "checks": [msgspec.to_builtins(each) for each in found.checks],
        "findings": [msgspec.to_builtins(each) for each in found.findings],
        "changes": [each.ref.document() | {"before": each.before, "after": each.after} for each in found.changes],
    }
