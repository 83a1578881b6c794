"""The work of ``polyarch inspect``: references in, answers or a plan out (RG-097, RG-140 to RG-143).

Everything that can be wrong with the command line, the files it names and the references is found before the first
request. Rows or one document go to stdout, progress and remarks of registries to stderr.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from polyarch.cli.errors import UsageError
from polyarch.cli.images import inspect_output
from polyarch.cli.images.http_client import load_http_client
from polyarch.cli.images.image_lists import Given, given_images
from polyarch.cli.images.inspect_output import Answered, Planned
from polyarch.cli.images.resolve import how
from polyarch.cli.options.manifests import Depth, ImageOptions
from polyarch.cli.options.outputs import Output, emit
from polyarch.cli.options.registries import cache_directory
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.messages import Messages
from polyarch.cli.output.tables import table
from polyarch.oci.answer import Inspection, InspectionError
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.concurrent import map_concurrently
from polyarch.oci.mirrors import sources as mirrors
from polyarch.oci.mirrors.short_names import passes_over, search
from polyarch.oci.mirrors.sources import Blocked, Configuration, InvalidConfiguration
from polyarch.oci.opening import Wiring, open_inspector
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.signature_policy import InvalidPolicy, SignaturePolicy, Signed
from polyarch.oci.traffic.pacing import RateLimit
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.platforms import InvalidPlatform, NodePlatform, Platform

SETTLED_AT_ONCE = 8


class Asked(NamedTuple):
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


def run_inspect(asked: Asked, options: ImageOptions, outputs: Sequence[Output], *, messages: Messages) -> int:
    """Ask and print; returns the exit code (RG-141)."""
    required = _required(asked.require)
    options.check()
    access = options.access
    answers = None
    if options.platforms_file is not None:
        from polyarch.cli.input.platforms_file import load_platforms_file  # it loads YAML

        answers = load_platforms_file(options.platforms_file)
    configuration = access.configuration()
    given = given_images(asked.images, asked.from_file, search=configuration if asked.searches else None)
    credentials = access.credentials()
    signatures = _signatures(asked.policy, asked.policy_signed)
    _check_names(given, configuration)
    if asked.plan:
        return _print_plan(given, configuration, credentials, signatures, outputs)
    wiring = Wiring(
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
            return table(inspect_output.HEADER, inspect_output.rows(answered, required), colour=colour)
        if form == "csv":
            return inspect_output.csv_text(answered, required)
        return document_text(inspect_output.document(answered, required, limits), form)

    emit(outputs, render)
    if asked.rate_limit and not limits:
        messages.note("no registry reported a rate limit (a cached answer makes no request: --fresh asks again)")
    elif asked.rate_limit:
        sys.stderr.write(table(inspect_output.LIMIT_HEADER, inspect_output.limit_rows(limits)))
    return inspect_output.exit_code([each.answer for each in answered], required)


async def _ask(
    given: Sequence[Given],
    wiring: Wiring,
    credentials: CredentialStore,
    *,
    fresh: bool,
    deep: Depth | None,
    messages: Messages,
) -> tuple[list[Answered], dict[str, RateLimit]]:
    """The answers in the order given; what stands there twice is asked once."""
    shown = messages.progress("inspecting images", len(set(given)))

    def advance(_: Inspection) -> None:
        if deep is None:
            shown.advance()

    try:
        async with open_inspector(wiring, credentials=credentials, notice=shown.remark) as inspector:

            async def settle(pair: tuple[Given, Inspection]) -> Answered:
                (text, reference, others), answer = pair
                if others and passes_over(answer):
                    answer = await search((reference, *others), inspector.inspect)
                if deep is not None:
                    from polyarch.oci.layers.deep import look_deeper  # few need it, and it loads archives

                    answer = await look_deeper(inspector.connection, answer, deep)
                    shown.advance()
                return Answered(Given(text, answer.reference), answer)

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
    given: Sequence[Given],
    configuration: Configuration,
    credentials: CredentialStore,
    signatures: SignaturePolicy | None,
    outputs: Sequence[Output],
) -> int:
    """Where would be asked (RG-097); without a request, and without running a credential helper, which may make one."""
    if any(each.format == "csv" for each in outputs):
        raise UsageError("--plan has no CSV output; use -o text, json or yaml")
    places = [Given(each.text, reference) for each in given for reference in (each.reference, *each.others)]
    plans = [(each, _planned(each, configuration, credentials, signatures)) for each in places]

    def render(form: str, colour: bool) -> str:
        if form == "text":
            return table(inspect_output.PLAN_HEADER, inspect_output.plan_rows(plans), colour=colour)
        return document_text(inspect_output.plan_document(plans), form)

    emit(outputs, render)
    return 3 if any(isinstance(plan, InspectionError) for _, plan in plans) else 0


def _planned(
    given: Given, configuration: Configuration, credentials: CredentialStore, signatures: SignaturePolicy | None
) -> list[Planned] | InspectionError:
    judged = signatures.judge(given.reference) if signatures is not None else None
    if isinstance(judged, InspectionError):
        return judged
    try:
        sources = mirrors.sources(given.reference, configuration)
    except Blocked as error:
        return InspectionError.of("blocked", str(error))
    if not sources:
        return InspectionError.of("layout", f"{given.reference}: a layout directory is asked from nobody")
    planned = []
    for source in sources:
        known = credentials.cached_candidates(given.reference, source)
        planned.append(Planned(source, "a credential helper (not run now)" if known is None else known[0].origin))
    return planned


def _required(texts: Sequence[str]) -> list[NodePlatform]:
    found: dict[NodePlatform, None] = {}
    for text in (part.strip() for each in texts for part in each.split(",")):
        try:
            found[Platform.parse(text).node] = None
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


def _check_names(given: Sequence[Given], configuration: Configuration) -> None:
    """A mirror rule that makes an impossible name of an image is a mistake in its file, known before any request."""
    for each in given:
        try:
            mirrors.sources(each.reference, configuration)
        except Blocked:
            continue
        except InvalidConfiguration as error:
            raise UsageError(str(error)) from None
