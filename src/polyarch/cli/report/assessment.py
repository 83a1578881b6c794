"""The work of ``polyarch report``: facts from a cluster, files or a snapshot; answers; the report; the exit code."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.input.files import write_file
from polyarch.cli.options.manifests import ImageOptions
from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.output.logs import errors_only
from polyarch.cli.output.messages import Messages
from polyarch.cli.report.asking import Beyond, Found, ask
from polyarch.cli.report.forms.rendering import rendered
from polyarch.cli.report.from_files import Notes, facts_from
from polyarch.cli.report.wishes import limits, prices_of, substitutes_from, targets_from
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ConfigurationError, KubernetesError
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.reports.document import Report
from polyarch.reports.facts import Facts, InvalidFile, decode_report, decode_snapshot, encode_snapshot
from polyarch.reports.gather import NECESSARY, Place, gather
from polyarch.reports.report import NoTarget, Wishes, compare, make_report, targets_of
from polyarch.reports.sums import suggestions_of


@dataclass(frozen=True, kw_only=True)
class Asked:
    """The command line of ``polyarch report`` without the options that it shares."""

    files: Sequence[str] = ()
    snapshot: str | None = None
    save: str | None = None
    targets: Sequence[str] = ()
    by: str = ""
    team_label: str = ""
    prices: Sequence[str] = ()
    compare: str | None = None
    diff_nodes: bool = False
    fail_under: float | None = None
    max_unknown: int | None = None
    substitutes: str | None = None
    suggest: bool = False
    pull_secrets: bool = False
    kubeconfig: str | None = None
    context: str | None = None


@dataclass(frozen=True, repr=False)
class Known:
    """Facts, and what images say. Without a representation: asyncio makes one of a result, and this one is long."""

    facts: Facts
    found: Found


def run_report(asked: Asked, images: ImageOptions, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Make the report and print it; returns the exit code (RP-023, RP-031, RP-051)."""
    errors_only(verbose=messages.verbose)
    images.check()
    wishes = Wishes(
        targets=targets_from(asked.targets),
        prices=prices_of(asked.prices),
        pool_label=asked.by,
        team_label=asked.team_label,
        node_drift=asked.diff_nodes,
    )
    limit = limits(asked.fail_under, asked.max_unknown)
    former = _former(asked.compare)
    notes = Notes()
    substitutes = substitutes_from(asked.substitutes)
    known = _known(asked, images, wishes, Beyond(substitutes, wishes.targets, asked.suggest), notes, messages)
    if asked.save is not None:
        content = encode_snapshot(known.facts, known.found.answers, complete=known.found.complete)
        write_file(asked.save, content)
    try:
        report = make_report(known.facts, known.found.answers, wishes, complete=known.found.complete)
        suggestions = suggestions_of(report.blockers, known.found.answers, substitutes)
        if suggestions:
            wishes = msgspec.structs.replace(wishes, suggestions=suggestions)
            report = make_report(known.facts, known.found.answers, wishes, complete=known.found.complete)
    except NoTarget as error:
        raise UsageError(str(error)) from None
    if former is not None:
        report = msgspec.structs.replace(report, comparison=compare(report, former))
    emit(outputs, lambda form, colour: rendered(report, form, colour=colour))
    for note in notes.texts:
        messages.note(note)
    code = limit.exit_code(report)
    if not known.found.complete:
        messages.note("interrupted: images that were not asked for yet count as unknown")
        return 3
    missing = [each for each in known.facts.unread if each in NECESSARY]
    if missing:
        messages.note(f"not allowed to list {' and '.join(missing)}: without them a report says little")
        return 3
    for problem in limit.problems(report):
        messages.note(problem)
    return code


def _known(
    asked: Asked, images: ImageOptions, wishes: Wishes, beyond: Beyond, notes: Notes, messages: Messages
) -> Known:
    if asked.snapshot is not None:
        try:
            kept = decode_snapshot(_read(asked.snapshot, "--snapshot"))
        except InvalidFile as error:
            raise UsageError(f"--snapshot {asked.snapshot}: {error}") from None
        return Known(kept.facts, Found(kept.answers, kept.complete))
    try:
        if asked.files:
            facts = facts_from(asked.files, notes)
            _check_targets(facts, wishes)
            return Known(facts, asyncio.run(ask(facts, images, messages, client=None, beyond=beyond)))
        return asyncio.run(_of_cluster(asked, images, wishes, beyond, messages))
    except (InvalidSetting, ConfigurationError) as error:
        raise UsageError(f"report: {error}") from None
    except KubernetesError as error:
        raise CouldNotComplete(f"report: {error}") from None


async def _of_cluster(asked: Asked, images: ImageOptions, wishes: Wishes, beyond: Beyond, messages: Messages) -> Known:
    configuration = config.load(asked.kubeconfig, asked.context)
    async with Client(configuration, role="cli") as client:
        now = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        facts = await gather(client, Place(configuration.context), taken_at=now)
        _check_targets(facts, wishes)
        secrets = client if asked.pull_secrets else None
        found = await ask(facts, images, messages, client=secrets, beyond=beyond)
    return Known(facts, found)


def _check_targets(facts: Facts, wishes: Wishes) -> None:
    """Before anybody is asked about images."""
    try:
        targets_of(facts, wishes.targets)
    except NoTarget as error:
        raise UsageError(f"report: {error}") from None


def _former(path: str | None) -> Report | None:
    if path is None:
        return None
    try:
        return decode_report(_read(path, "--compare"))
    except InvalidFile as error:
        raise UsageError(f"--compare {path}: {error}") from None


def _read(path: str, option: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror or error}") from None
