"""The work of ``polyarch inspect``: reads image references, asks registries, and prints answers or a plan."""

import asyncio
import csv
import importlib
import io
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.images.resolve import how
from polyarch.cli.options.common import Output, emit
from polyarch.cli.options.images import Depth, ImageOptions, cache_directory
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import Row, table
from polyarch.oci import pull_sources
from polyarch.oci.auth.credential_stores import CredentialStore
from polyarch.oci.concurrency import map_concurrently
from polyarch.oci.inspection import Entry, Inspection, InspectionError, InspectionWarning, Status
from polyarch.oci.inspector import InspectorOptions, open_inspector
from polyarch.oci.mirror_files import InvalidMirrorConfiguration
from polyarch.oci.platforms_file import SCHEMA_VERSION
from polyarch.oci.pull_sources import Blocked, Configuration, PullSource, candidates, passes_over, search
from polyarch.oci.reference import InvalidReference, Reference, parse
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.signature_policy import InvalidPolicy, SignaturePolicy, Signed
from polyarch.oci.traffic.rate_limiter import RateLimit
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.oci.write.assembly import RequestedPlatform
from polyarch.platforms import InvalidPlatform

SETTLED_AT_ONCE = 8


class InspectOptions(NamedTuple):
    """The command line of ``polyarch inspect`` without the options that it shares."""

    images: tuple[str, ...]
    from_file: str | None = None
    require: tuple[str, ...] = ()
    searches: bool = False
    """Short names are looked for where registries.conf says."""
    policy: str | None = None
    policy_signed: Signed = "warn"
    plan: bool = False
    rate_limit: bool = False


def run_inspect(asked: InspectOptions, options: ImageOptions, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Ask and print; returns the exit code."""
    required = _required(asked.require)
    options.check()
    access = options.access
    answers = None
    if options.platforms_file is not None:
        from polyarch.cli.input.objects import load_platforms_file  # it loads YAML

        answers = load_platforms_file(options.platforms_file)
    configuration = access.configuration()
    given = given_images(asked.images, asked.from_file, search=configuration if asked.searches else None)
    credentials = access.credentials()
    signatures = _signatures(asked.policy, asked.policy_signed)
    _check_names(given, configuration)
    if asked.plan:
        return _print_plan(given, configuration, credentials, signatures, outputs)
    wiring = InspectorOptions(
        settings=InspectorSettings(
            timeout=access.timeout,
            max_wait=access.max_wait,
            requests_per_host=access.concurrency,
            requests=max(access.concurrency, InspectorSettings().requests),
            layouts=True,
        ),
        configuration=configuration,
        trust=access.trust(),
        cache_directory=None if options.no_cache else cache_directory(options.cache_dir),
        answers=answers,
        offline=options.offline,
        signatures=signatures,
    )
    load_http_client()
    work = _ask(given, wiring, credentials, fresh=options.fresh, deep=options.deep, messages=messages)
    answered, limits = asyncio.run(work)

    def render(form: str, colour: bool) -> str:
        if form == "text":
            return table(HEADER, rows(answered, required), colour=colour)
        if form == "csv":
            return csv_text(answered, required)
        return document_text(document(answered, required, limits), form)

    emit(outputs, render)
    if asked.rate_limit and not limits:
        messages.note("no registry reported a rate limit (a cached answer makes no request: --fresh asks again)")
    elif asked.rate_limit:
        sys.stderr.write(table(LIMIT_HEADER, limit_rows(limits)))
    return exit_code([each.answer for each in answered], required)


class ImageArgument(NamedTuple):
    """One image as it was written, and what it names; ``others`` are the places to search for a short name next."""

    text: str
    reference: Reference
    others: tuple[Reference, ...] = ()


class InspectedImage(NamedTuple):
    """An image as it was given, and its answer."""

    given: ImageArgument
    answer: Inspection


async def _ask(
    given: Sequence[ImageArgument],
    wiring: InspectorOptions,
    credentials: CredentialStore,
    *,
    fresh: bool,
    deep: Depth | None,
    messages: Messages,
) -> tuple[list[InspectedImage], dict[str, RateLimit]]:
    """The answers in the order given; what stands there twice is asked once."""
    shown = messages.progress("inspecting images", len(set(given)))

    def advance(_: Inspection) -> None:
        if deep is None:
            shown.advance()

    try:
        async with open_inspector(wiring, credentials=credentials, notice=shown.remark) as inspector:

            async def settle(pair: tuple[ImageArgument, Inspection]) -> InspectedImage:
                (text, reference, others), answer = pair
                if others and passes_over(answer):
                    answer = await search((reference, *others), inspector.inspect)
                if deep is not None:
                    from polyarch.oci.image.deep_inspection import look_deeper  # few need it, and it loads archives

                    answer = await look_deeper(inspector.connection, answer, deep)
                    shown.advance()
                return InspectedImage(ImageArgument(text, answer.reference), answer)

            with shown:
                asked = list(dict.fromkeys(given))
                found = await inspector.inspect_many([each.reference for each in asked], fresh=fresh, on_answer=advance)
                settled = await map_concurrently(settle, zip(asked, found, strict=True), at_once=SETTLED_AT_ONCE)
            for each in settled:
                messages.detail(how(each.answer))
            answered = dict(zip(asked, settled, strict=True))
            return [answered[each] for each in given], inspector.rate_limits
    except InvalidSetting as error:
        raise UsageError(str(error)) from None


def _print_plan(
    given: Sequence[ImageArgument],
    configuration: Configuration,
    credentials: CredentialStore,
    signatures: SignaturePolicy | None,
    outputs: Sequence[Output],
) -> int:
    """Where would be asked; without a request, and without running a credential helper, which may make one."""
    if any(each.format == "csv" for each in outputs):
        raise UsageError("--plan has no CSV output; use -o text, json or yaml")
    places = [ImageArgument(each.text, reference) for each in given for reference in (each.reference, *each.others)]
    plans = [(each, _planned(each, configuration, credentials, signatures)) for each in places]

    def render(form: str, colour: bool) -> str:
        if form == "text":
            return table(PLAN_HEADER, plan_rows(plans), colour=colour)
        return document_text(plan_document(plans), form)

    emit(outputs, render)
    return 3 if any(isinstance(plan, InspectionError) for _, plan in plans) else 0


class PlannedLookup(NamedTuple):
    """A source in the order of asking; ``credential`` says where that would come from."""

    source: PullSource
    credential: str


def _planned(
    given: ImageArgument, configuration: Configuration, credentials: CredentialStore, signatures: SignaturePolicy | None
) -> list[PlannedLookup] | InspectionError:
    judged = signatures.judge(given.reference) if signatures is not None else None
    if isinstance(judged, InspectionError):
        return judged
    try:
        sources = pull_sources.sources(given.reference, configuration)
    except Blocked as error:
        return InspectionError.of("blocked", str(error))
    if not sources:
        return InspectionError.of("layout", f"{given.reference}: a layout directory is asked from nobody")
    planned = []
    for source in sources:
        known = credentials.cached_candidates(given.reference, source)
        planned.append(PlannedLookup(source, "a credential helper (not run now)" if known is None else known[0].origin))
    return planned


def _required(texts: Sequence[str]) -> list[RequestedPlatform]:
    found: dict[RequestedPlatform, None] = {}
    for text in (part.strip() for each in texts for part in each.split(",")):
        try:
            requested = RequestedPlatform.parse(text)
            found[msgspec.structs.replace(requested, text="")] = None
        except InvalidPlatform as error:
            raise UsageError(f"--require: {error}") from None
    return list(found)


def _signatures(path: str | None, signed: Signed) -> SignaturePolicy | None:
    if path is None:
        return None
    try:
        return SignaturePolicy.from_json(Path(path).read_bytes(), origin=path, signed=signed)
    except OSError as error:
        raise UsageError(f"--policy {path}: {error.strerror}; expected a signature policy") from None
    except InvalidPolicy as error:
        raise UsageError(str(error)) from None


def _check_names(given: Sequence[ImageArgument], configuration: Configuration) -> None:
    """A mirror rule that makes an impossible name of an image is a mistake in its file, known before any request."""
    for each in given:
        try:
            pull_sources.sources(each.reference, configuration)
        except Blocked:
            continue
        except InvalidMirrorConfiguration as error:
            raise UsageError(str(error)) from None


# -- the HTTP client


STORE = ("SSL_CERT_FILE", "SSL_CERT_DIR")


def load_http_client() -> None:
    """Imports aiohttp, if nobody has yet; the environment is afterwards what it was."""
    if "aiohttp" in sys.modules:
        return
    before = {name: os.environ.get(name) for name in STORE}
    os.environ.update(dict.fromkeys(STORE, os.devnull))
    try:
        importlib.import_module("aiohttp")
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# -- image arguments: from the command line and from lists, all checked before anything is sent


MAX_SHOWN = 20


def given_images(
    images: Sequence[str], file: str | None = None, *, search: Configuration | None = None
) -> list[ImageArgument]:
    """The images in order, those of the file (``-``: standard input) last. ``UsageError`` unless all are references.

    With ``search`` short names are looked for where that configuration says, else they are Docker Hub's.
    """
    found: list[ImageArgument] = []
    problems: list[str] = []
    for place, text in _texts(images, file):
        try:
            first, *others = (parse(text),) if search is None else candidates(text, search)
            found.append(ImageArgument(text, first, tuple(others)))
        except InvalidReference as error:
            problems.append(f"{place}{error}")
    if problems:
        more = [f"and {len(problems) - MAX_SHOWN} more"] if len(problems) > MAX_SHOWN else []
        raise UsageError("\n".join([*problems[:MAX_SHOWN], *more]))
    if not found:
        raise UsageError("no image given; pass references such as quay.io/team/app:1.0, or --from-file FILE")
    return found


def _texts(images: Sequence[str], file: str | None) -> Iterator[tuple[str, str]]:
    for image in images:
        yield "", image
    if file is None:
        return
    name = "standard input" if file == "-" else file
    for number, line in enumerate(_read(file, name).splitlines(), start=1):
        text = _without_comment(line).strip()
        if text:
            yield f"{name}:{number}: ", text


def _read(file: str, name: str) -> str:
    try:
        body = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return body.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}; expected a file with one image reference per line") from None
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{name}: not UTF-8 at byte {error.start}; expected a text file with image references"
        ) from None


def _without_comment(line: str) -> str:
    position = line.find("#")
    while position > 0 and not line[position - 1].isspace():
        position = line.find("#", position + 1)
    return line if position < 0 else line[:position]


# -- output: one document, and the rows, the CSV and the exit code made of the same answers


PLAN_SCHEMA_VERSION = "polyarch.dev/inspect-plan/v1"
HEADER = ("IMAGE", "KIND", "DIGEST", "PLATFORMS", "NOTES")
PLAN_HEADER = ("IMAGE", "SOURCE", "REPOSITORY", "TAG OR DIGEST", "ROLE", "CREDENTIAL", "NOTES")
LIMIT_HEADER = ("HOST", "LIMIT", "REMAINING", "WINDOW")
CSV_HEADER = (
    "image",
    "reference",
    "status",
    "kind",
    "digest",
    "platforms",
    "missing",
    "warnings",
    "error",
    "message",
)
FINDINGS = frozenset({"mislabelled", "child-missing", "wrong-binary"})
"""Warnings that make the exit code 1."""


def missing(answer: Inspection, required: Sequence[RequestedPlatform]) -> list[str]:
    """The required platforms that a resolved image lacks; whoever is neutral lacks nothing.

    Where neither a variant nor a version is stated, it is enough that nodes of the platform pull and run the image.
    """
    if not answer.constrains:
        return []
    there = answer.pulled_platforms
    return [
        str(each.platform if is_exact else each.platform.node)
        for each in required
        for is_exact in [bool(each.variant or each.platform.os_version)]
        if not (any(map(each.is_served_by, answer.platforms)) if is_exact else each.platform.node in there)
    ]


def exit_code(answers: Iterable[Inspection], required: Sequence[RequestedPlatform]) -> int:
    """3 if an answer is an error, 1 if one is a finding, else 0."""
    code = 0
    for answer in answers:
        if answer.status is Status.ERROR:
            return 3
        empty = answer.constrains and not answer.entries
        findings = any(warning.code in FINDINGS for warning in answer.warnings)
        if answer.status is Status.UNKNOWN or empty or findings or missing(answer, required):
            code = 1
    return code


def document(
    answered: Sequence[InspectedImage], required: Sequence[RequestedPlatform], limits: Mapping[str, RateLimit]
) -> dict[str, Any]:
    """``polyarch.dev/inspect/v1``: every key is always there."""
    counts = Counter(str(each.answer.status) for each in answered)
    return {
        "schemaVersion": SCHEMA_VERSION,
        "images": [_image(each.given, each.answer, required) for each in answered],
        "rateLimits": {
            host: {"limit": rate.limit, "remaining": rate.remaining, "window": rate.window}
            for host, rate in sorted(limits.items())
        },
        "summary": {str(status): counts[str(status)] for status in Status},
    }


def rows(answered: Iterable[InspectedImage], required: Sequence[RequestedPlatform]) -> list[Row]:
    """One row per image."""
    return [_row(each.given, each.answer, required) for each in answered]


def csv_text(answered: Iterable[InspectedImage], required: Sequence[RequestedPlatform]) -> str:
    """The same as comma-separated values, one line per image; lists are separated by blanks."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(CSV_HEADER)
    for given, answer in answered:
        writer.writerow(
            (
                given.text,
                given.reference.canonical,
                str(answer.status),
                answer.kind,
                answer.digest,
                " ".join(str(entry.platform) for entry in _sorted(answer)),
                " ".join(missing(answer, required)),
                " ".join(dict.fromkeys(warning.code for warning in answer.warnings)),
                answer.error.code if answer.error is not None else "",
                answer.error.message if answer.error is not None else "",
            )
        )
    return out.getvalue()


def plan_document(plans: Sequence[tuple[ImageArgument, Sequence[PlannedLookup] | InspectionError]]) -> dict[str, Any]:
    """``polyarch.dev/inspect-plan/v1``: where each image would be asked for."""
    return {
        "schemaVersion": PLAN_SCHEMA_VERSION,
        "images": [
            {
                "image": given.text,
                "reference": given.reference.canonical,
                "sources": []
                if isinstance(plan, InspectionError)
                else [
                    {
                        "url": _base(each.source),
                        "repository": each.source.repository,
                        "tag": each.source.tag,
                        "digest": each.source.digest,
                        "mirror": each.source.mirror,
                        "insecure": each.source.insecure,
                        "query": each.source.query,
                        "configuredBy": each.source.origin,
                        "credential": each.credential,
                    }
                    for each in plan
                ],
                "error": _error(plan) if isinstance(plan, InspectionError) else None,
            }
            for given, plan in plans
        ],
    }


def plan_rows(plans: Iterable[tuple[ImageArgument, Sequence[PlannedLookup] | InspectionError]]) -> list[Row]:
    """One row per source, in the order of asking."""
    found: list[Row] = []
    for given, plan in plans:
        if isinstance(plan, InspectionError):
            found.append(Row((given.text, "", "", "", "", "", _said(given, plan)), "red"))
            continue
        for planned in plan:
            source = planned.source
            notes = [
                *(["insecure"] if source.insecure else []),
                *([f"?{source.query}"] if source.query else []),
                *([f"by {source.origin}"] if source.origin else []),
            ]
            role = "mirror" if source.mirror else "primary"
            selector = source.digest or source.tag or ""
            cells = (given.text, _base(source), source.repository, selector, role, planned.credential, ", ".join(notes))
            found.append(Row(cells))
    return found


def limit_rows(limits: Mapping[str, RateLimit]) -> list[Row]:
    """What the registries said of their rate limits."""
    return [
        Row((host, str(rate.limit), str(rate.remaining), f"{rate.window} s" if rate.window else ""))
        for host, rate in sorted(limits.items())
    ]


def _base(source: PullSource) -> str:
    return f"{source.base_url}{source.path_prefix}"


def _sorted(answer: Inspection) -> list[Entry]:
    return sorted(answer.entries, key=lambda entry: entry.platform)


def _image(given: ImageArgument, answer: Inspection, required: Sequence[RequestedPlatform]) -> dict[str, Any]:
    source = answer.source
    return {
        "image": given.text,
        "reference": given.reference.canonical,
        "status": str(answer.status),
        "kind": answer.kind,
        "digest": answer.digest,
        "mediaType": answer.media_type,
        "platforms": [
            {
                "platform": str(entry.platform),
                "os": entry.platform.os,
                "architecture": entry.platform.architecture,
                "variant": entry.platform.variant,
                "osVersion": entry.platform.os_version,
                "osFeatures": list(entry.platform.os_features),
                "digest": entry.digest,
                "size": entry.size,
            }
            for entry in _sorted(answer)
        ],
        "nodePlatforms": [str(each) for each in answer.node_platforms],
        "neutralReason": answer.neutral_reason,
        "skipped": [{"digest": each.digest, "reason": each.reason} for each in answer.skipped],
        "warnings": [{"code": each.code, "message": each.message} for each in answer.warnings],
        "missing": missing(answer, required),
        "source": None
        if source is None
        else {"host": source.host, "mirror": source.mirror, "insecure": source.insecure},
        "cached": answer.cached,
        "requests": answer.requests,
        "error": _error(answer.error) if answer.error is not None else None,
    }


def _error(error: InspectionError) -> dict[str, Any]:
    return {
        "code": error.code,
        "class": error.error_class,
        "message": error.message,
        "status": error.status,
        "retryAfter": error.retry_after,
        "attempts": list(error.attempts),
    }


def _row(given: ImageArgument, answer: Inspection, required: Sequence[RequestedPlatform]) -> Row:
    if answer.error is not None:
        return Row((given.text, answer.kind, "", "", _said(given, answer.error)), "red")
    lacking = missing(answer, required)
    notes = [
        *([f"lacks {', '.join(lacking)}"] if lacking else []),
        *([answer.neutral_reason.replace("-", " ")] if answer.neutral_reason else []),
        *dict.fromkeys(_noted(warning) for warning in answer.warnings),
        *([f"from mirror {answer.source.host}"] if answer.source is not None and answer.source.mirror else []),
    ]
    finding = exit_code([answer], required) == 1
    digest = answer.digest.partition(":")[2][:12]
    return Row((given.text, answer.kind, digest, _platforms(answer), ", ".join(notes)), "yellow" if finding else "")


def _noted(warning: InspectionWarning) -> str:
    """What is a finding is told in full: it cannot be guessed from its code."""
    return f"{warning.code}: {warning.message}" if warning.code in FINDINGS else warning.code


def _platforms(answer: Inspection) -> str:
    if answer.status is Status.NEUTRAL:
        return "any"
    if answer.status is Status.UNKNOWN:
        return "unknown"
    return ",".join(str(entry.platform) for entry in _sorted(answer)) or "none"


def _said(given: ImageArgument, error: InspectionError) -> str:
    """The error without the image's name, which stands in its own column."""
    return error.message.removeprefix(f"{given.reference.canonical}: ")
