"""The work of ``polyarch report``: facts from a cluster, files or a snapshot; inspections; report; exit code."""

import asyncio
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import msgspec

from polyarch.cli.errors import CouldNotComplete, UsageError
from polyarch.cli.input.files import write_file
from polyarch.cli.options.common import USUAL_CLUSTER, ClusterFlags, Output, emit
from polyarch.cli.options.images import ImageOptions
from polyarch.cli.output.messages import Messages, complain, errors_only
from polyarch.cli.report.inputs import AlternativeOptions, ImageAnswers, Notes, ask, facts_from
from polyarch.cli.report.output import rendered
from polyarch.kube import config
from polyarch.kube.client import Client
from polyarch.kube.errors import ConfigurationError, KubernetesError
from polyarch.oci.reference import InvalidReference, parse
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.platforms import InvalidPlatform, NodePlatform, Platform
from polyarch.reports.document import Report, Verdict
from polyarch.reports.facts import (
    InvalidFile,
    ReportFacts,
    decode_report,
    decode_snapshot,
    encode_snapshot,
)
from polyarch.reports.gather import NECESSARY, ClusterIdentity, gather
from polyarch.reports.report import NoTarget, ReportOptions, compare, make_report, targets_of
from polyarch.reports.sums import suggestions_of
from polyarch.reports.wording import counted, percent


@dataclass(frozen=True, kw_only=True)
class ReportCommandOptions:
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
    cluster: ClusterFlags = USUAL_CLUSTER


@dataclass(frozen=True, repr=False)
class ReportInputs:
    """Facts, and what images say. Without a representation: asyncio makes one of a result, and this one is long."""

    facts: ReportFacts
    found: ImageAnswers


def run_report(
    asked: ReportCommandOptions, images: ImageOptions, outputs: Sequence[Output], *, messages: Messages
) -> int:
    """Make the report and print it; returns the exit code."""
    errors_only(verbose=messages.verbose)
    images.check()
    wishes = ReportOptions(
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
    known = _known(
        asked, images, wishes, AlternativeOptions(substitutes, wishes.targets, asked.suggest), notes, messages
    )
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
    code = limit.exit_code(report, notes.left_out)
    if not known.found.complete:
        return complain("interrupted: images that were not asked for yet count as unknown", 3)
    missing = [each for each in known.facts.unread if each in NECESSARY]
    if missing:
        return complain(f"not allowed to list {' and '.join(missing)}: without them a report says little", 3)
    for problem in limit.problems(report, notes.left_out):
        complain(problem, code)
    return code


def _known(
    asked: ReportCommandOptions,
    images: ImageOptions,
    wishes: ReportOptions,
    beyond: AlternativeOptions,
    notes: Notes,
    messages: Messages,
) -> ReportInputs:
    if asked.snapshot is not None:
        try:
            kept = decode_snapshot(_read(asked.snapshot, "--snapshot"))
        except InvalidFile as error:
            raise UsageError(f"--snapshot {asked.snapshot}: {error}") from None
        return ReportInputs(kept.facts, ImageAnswers(kept.answers, kept.complete))
    try:
        if asked.files:
            facts = facts_from(asked.files, notes)
            _check_targets(facts, wishes)
            return ReportInputs(facts, asyncio.run(ask(facts, images, messages, client=None, beyond=beyond)))
        return asyncio.run(_of_cluster(asked, images, wishes, beyond, messages))
    except (InvalidSetting, ConfigurationError) as error:
        raise UsageError(f"report: {error}") from None
    except KubernetesError as error:
        raise CouldNotComplete(f"report: {error}") from None


async def _of_cluster(
    asked: ReportCommandOptions,
    images: ImageOptions,
    wishes: ReportOptions,
    beyond: AlternativeOptions,
    messages: Messages,
) -> ReportInputs:
    configuration = config.load(asked.cluster.kubeconfig, asked.cluster.context)
    async with Client(configuration, role="cli") as client:
        now = datetime.now(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")
        facts = await gather(client, ClusterIdentity(configuration.context), taken_at=now)
        _check_targets(facts, wishes)
        secrets = client if asked.pull_secrets else None
        found = await ask(facts, images, messages, client=secrets, beyond=beyond)
    return ReportInputs(facts, found)


def _check_targets(facts: ReportFacts, wishes: ReportOptions) -> None:
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


# -- options: targets, prices, thresholds


def targets_from(given: Sequence[str]) -> tuple[NodePlatform, ...]:
    """Comma-separated and repeated, each once; none: those of the nodes, and arm64."""
    return tuple(dict.fromkeys(_platform("--target", text) for text in _split(given)))


def prices_of(given: Sequence[str]) -> dict[str, float]:
    """By target, as reports spell it."""
    prices = {}
    for text in _split(given):
        target, _, price = text.partition("=")
        name = _platform("--price", target).short_name
        try:
            prices[name] = float(price)
        except ValueError:
            prices[name] = math.nan
        if not 0 <= prices[name] < math.inf:
            raise UsageError(f"--price {text}: expected TARGET=PRICE with a number, 0 or more, such as arm64=0.0336")
    return prices


def substitutes_from(path: str | None) -> dict[str, str]:
    """Image to the equal image of another repository, as references of both."""
    if path is None:
        return {}
    from polyarch.cli.input.objects import StrictLoader, load_yaml

    expected = "a YAML file that maps images to images"
    data = load_yaml("--substitutes", path, expected=expected, loader=StrictLoader)
    found = data.get("substitutes", data) if isinstance(data, dict) else data
    if not isinstance(found, dict) or not all(isinstance(each, str) for pair in found.items() for each in pair):
        raise UsageError(f"--substitutes {path}: expected {expected}")
    for image in (each for pair in found.items() for each in pair):
        try:
            parse(image)
        except InvalidReference as error:
            raise UsageError(f"--substitutes {path}: {error}") from None
    return found


class ExitThresholds(NamedTuple):
    """What the exit code depends on."""

    fail_under: float | None
    max_unknown: int | None

    def exit_code(self, report: Report, left_out: int = 0) -> int:
        """3: too much is unknown to tell; 1: less than ``--fail-under`` could run on a target. ``left_out``: what may
        run besides, and was not understood."""
        if self.max_unknown is not None and unknown_workloads(report) + left_out > self.max_unknown:
            return 3
        return 1 if any(self._short(report)) else 0

    def problems(self, report: Report, left_out: int = 0) -> Iterator[str]:
        """In words."""
        unknown = unknown_workloads(report)
        if self.max_unknown is not None and left_out and unknown + left_out > self.max_unknown:
            said = counted(left_out, "object was", "objects were")
            yield f"{said} left out, which count as unknown, and at most {self.max_unknown} may be (--max-unknown)"
        elif self.max_unknown is not None and unknown > self.max_unknown:
            said = counted(unknown, "workload is", "workloads are")
            yield f"{said} unknown, and at most {self.max_unknown} may be (--max-unknown)"
        yield from self._short(report)

    def _short(self, report: Report) -> Iterator[str]:
        if self.fail_under is None:
            return
        for each in report.sums:
            share = 100 * (each.ready_share if each.ready_share is not None else 1.0)
            if round(share, 6) < self.fail_under:  # as a float 100 * 0.57 is a little less than 57
                said = percent(each.ready_share)
                yield f"{said} could run on {each.target}, less than {self.fail_under:.15g} % (--fail-under)"


def limits(fail_under: float | None, max_unknown: int | None) -> ExitThresholds:
    """``UsageError`` for numbers that are none."""
    if fail_under is not None and not 0 <= fail_under <= 100:
        raise UsageError(f"--fail-under {fail_under:.15g}: expected a percentage from 0 to 100")
    if max_unknown is not None and max_unknown < 0:
        raise UsageError(f"--max-unknown {max_unknown}: expected 0 or more")
    if max_unknown is None and fail_under is not None:
        max_unknown = 0
    return ExitThresholds(fail_under, max_unknown)


def unknown_workloads(report: Report) -> int:
    """How many are unknown for some target."""
    return sum(any(each.verdict is Verdict.UNKNOWN for each in row.answers) for row in report.workloads)


def _split(given: Sequence[str]) -> Iterator[str]:
    return (part.strip() for text in given for part in text.split(",") if part.strip())


def _platform(option: str, text: str) -> NodePlatform:
    try:
        return Platform.parse_node(text)
    except InvalidPlatform as error:
        raise UsageError(f"{option}: {error}") from None
