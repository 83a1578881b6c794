"""``polyarch inspect``: on which platforms can these images run? (RG-140 to RG-143)

Everything that can be wrong with the command line, the files it names and the references is found before the first
request. Rows or one document go to stdout, progress and remarks of registries to stderr.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.images import inspect_output
from polyarch.cli.images.http_client import load_http_client
from polyarch.cli.images.image_lists import Given, given_images
from polyarch.cli.images.inspect_output import Answered, Planned
from polyarch.cli.options.registries import DEFAULT_OPTIONS, RegistryOptions, cache_directory, flag, several
from polyarch.cli.output.progress import progress
from polyarch.cli.output.render import print_document, print_table, remarks
from polyarch.oci.answer import Inspection, InspectionError
from polyarch.oci.auth.credentials import CredentialStore
from polyarch.oci.mirrors import sources as mirrors
from polyarch.oci.mirrors.short_names import passes_over, search
from polyarch.oci.mirrors.sources import Blocked, Configuration, InvalidConfiguration
from polyarch.oci.opening import Wiring, open_inspector
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.signature_policy import InvalidPolicy, SignaturePolicy, Signed
from polyarch.oci.traffic.pacing import RateLimit
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.oci.write.together import together
from polyarch.platforms import InvalidPlatform, NodePlatform, Platform

SETTLED_AT_ONCE = 8
Output = Literal["text", "json", "yaml", "csv"]
Depth = Literal["config", "elf"]

EPILOGUE = """Examples:

- `polyarch inspect nginx:1.27 quay.io/prometheus/node-exporter` prints one row per image
- `polyarch inspect --require amd64,arm64 -f images.txt` ends with 1 if an image lacks one of them
- `polyarch inspect -o json nginx > platforms.json` prints a document that `--platforms-file` takes again
- `polyarch inspect --offline --platforms-file platforms.json nginx` gives the same answer without a registry
- `polyarch inspect --deep elf quay.io/team/app:1.0` looks at the program of every platform, too
- `polyarch inspect --plan --registries-conf mirrors.conf nginx` says which mirrors would be asked, in order

Exit codes:

- 0: all is well
- 1: an image is unknown, has no platform, lacks a required one, or --deep found another than its index says
- 2: the command line, a file or a reference is wrong; nothing was asked
- 3: an image could not be inspected
"""


def inspect_images(
    *images: Annotated[str, Parameter(help="References, such as quay.io/team/app:1.0 or nginx@sha256:….")],
    file: Annotated[
        str | None,
        Parameter(
            name=["--file", "-f"],
            allow_leading_hyphen=True,
            help="A list, one reference per line; - is standard input.",
        ),
    ] = None,
    output: Annotated[Output, Parameter(name=["--output", "-o"], help="How to print the answers.")] = "text",
    require: Annotated[
        list[str] | None, several("Platforms every image must have, by commas; arm64 means linux/arm64.")
    ] = None,
    platforms_file: Annotated[str | None, Parameter(help="Answers given by hand, YAML or JSON.")] = None,
    offline: Annotated[bool, flag("Ask nobody: --platforms-file answers, or nothing.")] = False,
    deep: Annotated[
        Depth | None, Parameter(help="Look into every child: at its config, or at the program that it starts, too.")
    ] = None,
    policy: Annotated[str | None, Parameter(help="A signature policy, as containers-policy.json(5).")] = None,
    policy_signed: Annotated[
        Signed, Parameter(help="What to do with an image that the policy wants signatures of: none are checked here.")
    ] = "warn",
    short_names: Annotated[
        Literal["hub", "search"], Parameter(help="Whose are names like nginx: Docker Hub's, or to be searched for.")
    ] = "hub",
    cache_dir: Annotated[str | None, Parameter(help="Where readings are kept between runs.")] = None,
    no_cache: Annotated[bool, flag("Keep nothing and use nothing kept.")] = False,
    fresh: Annotated[bool, flag("Check every tag now, whatever is kept.")] = False,
    jobs: Annotated[int, Parameter(help="Requests at a time to one registry.")] = 8,
    rate_limit: Annotated[bool, flag("Print the rate limits that registries told, on stderr.")] = False,
    plan: Annotated[bool, flag("Print where would be asked, and ask nobody.")] = False,
    access: RegistryOptions = DEFAULT_OPTIONS,
) -> int:
    """Print the platforms that images can run on; returns the exit code (RG-141)."""
    required = _required(require or [])
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least 1 request at a time is needed")
    access.check()
    if no_cache and cache_dir is not None:
        raise UsageError("--no-cache and --cache-dir exclude each other: leave one of them out")
    if deep is not None and offline:
        raise UsageError("--deep looks into images, which --offline keeps it from: leave one of them out")
    answers = None
    if platforms_file is not None:
        from polyarch.cli.input.platforms_file import load_platforms_file  # it loads YAML

        answers = load_platforms_file(platforms_file)
    configuration = access.configuration()
    given = given_images(images, file, search=configuration if short_names == "search" else None)
    credentials = access.credentials()
    signatures = _signatures(policy, policy_signed)
    _check_names(given, configuration)
    if plan:
        return _print_plan(given, configuration, credentials, signatures, output)
    wiring = Wiring(
        settings=InspectorSettings(
            timeout=access.timeout,
            max_wait=access.max_wait,
            requests_per_host=jobs,
            requests=max(jobs, InspectorSettings().requests),
            layouts=True,
        ),
        configuration=configuration,
        trust=access.trust(),
        cache_directory=None if no_cache else cache_directory(cache_dir),
        answers=answers,
        offline=offline,
        signatures=signatures,
    )
    load_http_client()
    answered, limits = asyncio.run(_ask(given, wiring, credentials, fresh=fresh, deep=deep))
    _print(answered, required, limits, output)
    if rate_limit:
        print_table(inspect_output.LIMIT_HEADER, inspect_output.limit_rows(limits), to=remarks())
    return inspect_output.exit_code([each.answer for each in answered], required)


async def _ask(
    given: Sequence[Given], wiring: Wiring, credentials: CredentialStore, *, fresh: bool, deep: Depth | None
) -> tuple[list[Answered], dict[str, RateLimit]]:
    """The answers in the order given; what stands there twice is asked once."""
    shown = progress("inspecting images", len(set(given)))

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
                settled = await together(settle, zip(asked, found, strict=True), at_once=SETTLED_AT_ONCE)
            answered = dict(zip(asked, settled, strict=True))
            return [answered[each] for each in given], inspector.rate_limits
    except InvalidSetting as error:
        raise UsageError(str(error)) from None


def _print(
    answered: Sequence[Answered], required: Sequence[NodePlatform], limits: dict[str, RateLimit], output: Output
) -> None:
    if output == "text":
        print_table(inspect_output.HEADER, inspect_output.rows(answered, required))
    elif output == "csv":
        sys.stdout.write(inspect_output.csv_text(answered, required))
    else:
        print_document(inspect_output.document(answered, required, limits), output)


def _print_plan(
    given: Sequence[Given],
    configuration: Configuration,
    credentials: CredentialStore,
    signatures: SignaturePolicy | None,
    output: Output,
) -> int:
    """Where would be asked (RG-097); without a request, and without running a credential helper, which may make one."""
    if output == "csv":
        raise UsageError("--plan has no CSV form: leave -o out, or take -o json")
    places = [Given(each.text, reference) for each in given for reference in (each.reference, *each.others)]
    plans = [(each, _planned(each, configuration, credentials, signatures)) for each in places]
    if output == "text":
        print_table(inspect_output.PLAN_HEADER, inspect_output.plan_rows(plans))
    else:
        print_document(inspect_output.plan_document(plans), output)
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
        raise UsageError(f"--policy {path}: {error.strerror}; name a signature policy") from None
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


inspect = App(name="inspect", help_epilogue=EPILOGUE)
inspect.default(inspect_images)
