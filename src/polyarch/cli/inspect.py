"""``polyarch inspect``: on which platforms can these images run? (RG-140 to RG-143)

Everything that can be wrong with the command line, the files it names and the references is found before the first
request. Rows or one document go to stdout, progress and remarks of registries to stderr.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from polyarch.cli import inspect_output
from polyarch.cli.errors import UsageError
from polyarch.cli.image_lists import Given, given_images
from polyarch.cli.inspect_output import Answered, Planned
from polyarch.cli.platforms_file import load_platforms_file
from polyarch.cli.render import print_document, print_table, progress, remarks
from polyarch.oci import mirrors
from polyarch.oci.addresses import InvalidSetting
from polyarch.oci.authfiles import FileCredentials, InvalidCredentialFile
from polyarch.oci.credentials import CredentialStore
from polyarch.oci.inspection import Inspection, InspectionError
from polyarch.oci.mirrors import Blocked, Configuration, InvalidConfiguration
from polyarch.oci.opening import Wiring, open_inspector
from polyarch.oci.pacing import RateLimit
from polyarch.oci.reference import parse_host
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.tls import TrustSettings
from polyarch.platforms import InvalidPlatform, NodePlatform, Platform

Output = Literal["text", "json", "yaml", "csv"]

EPILOGUE = """Examples:

- `polyarch inspect nginx:1.27 quay.io/prometheus/node-exporter` prints one row per image
- `polyarch inspect --require amd64,arm64 -f images.txt` ends with 1 if an image lacks one of them
- `polyarch inspect -o json nginx > platforms.json` prints a document that `--platforms-file` takes again
- `polyarch inspect --offline --platforms-file platforms.json nginx` gives the same answer without a registry
- `polyarch inspect --plan --registries-conf mirrors.conf nginx` says which mirrors would be asked, in order

Exit codes:

- 0: all is well
- 1: an image is unknown, has no platform, or lacks a required one
- 2: the command line, a file or a reference is wrong; nothing was asked
- 3: an image could not be inspected
"""


def _flag(help: str) -> Parameter:
    return Parameter(help=help, negative="", show_default=False)


def _several(help: str) -> Parameter:
    return Parameter(help=help, negative="")


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
        list[str] | None, _several("Platforms every image must have, by commas; arm64 means linux/arm64.")
    ] = None,
    platforms_file: Annotated[str | None, Parameter(help="Answers given by hand, YAML or JSON.")] = None,
    offline: Annotated[bool, _flag("Ask nobody: --platforms-file answers, or nothing.")] = False,
    authfile: Annotated[str | None, Parameter(help="The only credential file to use.")] = None,
    registries_conf: Annotated[str | None, Parameter(help="Mirrors, as containers-registries.conf(5).")] = None,
    hosts_dir: Annotated[str | None, Parameter(help="Mirrors, as containerd's hosts.toml folders.")] = None,
    certs_dir: Annotated[str | None, Parameter(help="Certificates by host, HOST[:PORT]/*.crt.")] = None,
    ca: Annotated[list[str] | None, _several("Certificates (PEM) to trust; may be repeated.")] = None,
    insecure: Annotated[
        list[str] | None, _several("A HOST[:PORT] that may be asked without verified TLS; may be repeated.")
    ] = None,
    cache_dir: Annotated[str | None, Parameter(help="Where readings are kept between runs.")] = None,
    no_cache: Annotated[bool, _flag("Keep nothing and use nothing kept.")] = False,
    fresh: Annotated[bool, _flag("Check every tag now, whatever is kept.")] = False,
    jobs: Annotated[int, Parameter(help="Requests at a time to one registry.")] = 8,
    timeout: Annotated[float, Parameter(help="Seconds that the requests for one image may take.")] = 60.0,
    max_wait: Annotated[float, Parameter(help="Seconds to wait for a registry's rate limit, per image.")] = 60.0,
    rate_limit: Annotated[bool, _flag("Print the rate limits that registries told, on stderr.")] = False,
    plan: Annotated[bool, _flag("Print where would be asked, and ask nobody.")] = False,
) -> int:
    """Print the platforms that images can run on; returns the exit code (RG-141)."""
    required = _required(require or [])
    given = given_images(images, file)
    _check_numbers(jobs=jobs, timeout=timeout, max_wait=max_wait)
    if no_cache and cache_dir is not None:
        raise UsageError("--no-cache and --cache-dir exclude each other: leave one of them out")
    answers = load_platforms_file(platforms_file) if platforms_file is not None else None
    configuration = _configuration(registries_conf, hosts_dir, insecure or [])
    credentials = _credentials(authfile)
    _check_names(given, configuration)
    if plan:
        return _print_plan(given, configuration, credentials, output)
    wiring = Wiring(
        settings=InspectorSettings(
            timeout=timeout, max_wait=max_wait, requests_per_host=jobs, requests=max(jobs, InspectorSettings().requests)
        ),
        configuration=configuration,
        trust=_trust(ca or [], certs_dir),
        cache_directory=None if no_cache else _cache_directory(cache_dir),
        answers=answers,
        offline=offline,
    )
    found, limits = asyncio.run(_ask(given, wiring, credentials, fresh=fresh))
    answered = [Answered(each, answer) for each, answer in zip(given, found, strict=True)]
    _print(answered, required, limits, output)
    if rate_limit:
        print_table(inspect_output.LIMIT_HEADER, inspect_output.limit_rows(limits), to=remarks())
    return inspect_output.exit_code(found, required)


async def _ask(
    given: Sequence[Given], wiring: Wiring, credentials: CredentialStore, *, fresh: bool
) -> tuple[list[Inspection], dict[str, RateLimit]]:
    references = [each.reference for each in given]
    shown = progress("inspecting images", len(set(references)))
    try:
        async with open_inspector(wiring, credentials=credentials, notice=shown.remark) as inspector:
            with shown:
                found = await inspector.inspect_many(references, fresh=fresh, on_answer=lambda _: shown.advance())
            return found, inspector.rate_limits
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
    given: Sequence[Given], configuration: Configuration, credentials: CredentialStore, output: Output
) -> int:
    """Where would be asked (RG-097); without a request, and without running a credential helper, which may make one."""
    if output == "csv":
        raise UsageError("--plan has no CSV form: leave -o out, or take -o json")
    plans = [(each, _planned(each, configuration, credentials)) for each in given]
    if output == "text":
        print_table(inspect_output.PLAN_HEADER, inspect_output.plan_rows(plans))
    else:
        print_document(inspect_output.plan_document(plans), output)
    return 3 if any(isinstance(plan, InspectionError) for _, plan in plans) else 0


def _planned(
    given: Given, configuration: Configuration, credentials: CredentialStore
) -> list[Planned] | InspectionError:
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


def _check_numbers(*, jobs: int, timeout: float, max_wait: float) -> None:
    if jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least 1 request at a time is needed")
    if not 0 < timeout < float("inf"):
        raise UsageError(f"--timeout {timeout:g}: give the seconds for one image, more than 0")
    if not 0 <= max_wait < float("inf"):
        raise UsageError(f"--max-wait {max_wait:g}: give seconds, 0 to wait for no rate limit")


def _configuration(registries_conf: str | None, hosts_dir: str | None, insecure: Sequence[str]) -> Configuration:
    hosts = []
    for text in insecure:
        try:
            hosts.append(parse_host(text))
        except ValueError as error:
            raise UsageError(f"--insecure {text}: {error}; write HOST or HOST:PORT") from None
    _check_folder("--hosts-dir", hosts_dir)
    try:
        return Configuration.load(registries_conf, hosts_dir, insecure_hosts=hosts)
    except InvalidConfiguration as error:
        raise UsageError(str(error)) from None


def _credentials(authfile: str | None) -> FileCredentials:
    try:
        return FileCredentials.load(authfile)
    except InvalidCredentialFile as error:
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


def _trust(ca: Sequence[str], certs_dir: str | None) -> TrustSettings:
    _check_folder("--certs-dir", certs_dir)
    for path in ca:
        if not Path(path).is_file():
            raise UsageError(f"--ca {path}: there is no such file; name a PEM file with certificates")
    return TrustSettings.of(ca=ca, certs_dir=certs_dir)


def _check_folder(option: str, path: str | None) -> None:
    if path is not None and not Path(path).is_dir():
        raise UsageError(f"{option} {path}: there is no such folder")


def _cache_directory(named: str | None) -> Path | None:
    """``--cache-dir``, else ``$XDG_CACHE_HOME/polyarch``, else ``~/.cache/polyarch``; None without a home (RG-114)."""
    if named is not None:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if base:
        return Path(base, "polyarch")
    home = os.environ.get("HOME", "")
    return Path(home, ".cache", "polyarch") if home else None


inspect = App(name="inspect", help_epilogue=EPILOGUE)
inspect.default(inspect_images)
