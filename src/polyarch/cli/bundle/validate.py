"""``polyarch bundle validate``: does an operator's bundle keep what it promises? (MF-071)

Native mode is the rules of ``polyarch lint`` over the bundle; compat mode says what operator-sdk's ``multiarch``
validator would say, for scripts that read its words.
"""

import sys
from collections.abc import Iterable
from typing import Annotated, Literal

from cyclopts import App, Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.images.resolve import resolve_all
from polyarch.cli.input.bundles import read_bundle, read_subscription
from polyarch.cli.lint.reports import write_reports
from polyarch.cli.lint.settings import settle
from polyarch.cli.options.manifests import DEFAULT_IMAGES, FailOnOption, ImageOptions, RuleOptions
from polyarch.manifests.bundle import compat
from polyarch.manifests.bundle.loader import Bundle, BundleNotValid
from polyarch.manifests.bundle.shape import misshapen
from polyarch.manifests.finding import Finding, Severity, Span
from polyarch.manifests.lint import bundle_run
from polyarch.manifests.lint.bundles.ma208_bundle_image import BundleImageAnswer
from polyarch.manifests.lint.options import Unresolved
from polyarch.manifests.report import (
    ExaminedFile,
    Report,
    image_answers,
    incomplete_images,
)
from polyarch.manifests.scan.nodes import value
from polyarch.manifests.scan.sets import Answers
from polyarch.oci.platforms_file import AnswerFile

Mode = Literal["native", "compat"]
Format = Literal["text", "json", "json-alpha1", "sarif", "junit", "github", "markdown", "csv"]

EPILOGUE = """Examples:

- `polyarch bundle validate bundle/` judges labels, images, deployments and pins
- `polyarch bundle validate --offline --platforms-file platforms.json bundle/` needs no registry
- `polyarch bundle validate --subscription subscription.yaml bundle/` also says what its overrides would take away
- `polyarch bundle validate --mode compat -o json-alpha1 bundle/` prints what operator-sdk's validator would

Exit codes:

- 0: no error
- 1: an error was found, or the directory holds no valid bundle
- 2: the command line or a file it names is wrong
- 3: an image could not be inspected (native mode)
"""

app = App(name="bundle", help="Operator bundles: check what they promise.")


@app.command(help_epilogue=EPILOGUE)
def validate(
    directory: Annotated[str, Parameter(help="The bundle: metadata/ and manifests/, or the manifests alone.")],
    /,
    *,
    mode: Annotated[
        Mode, Parameter(help="The rules of polyarch lint, or operator-sdk's results and words.")
    ] = "native",
    output: Annotated[Format, Parameter(name=["--output", "-o", "--format"], help="How to print.")] = "text",
    subscription: Annotated[
        str | None, Parameter(help="A Subscription or ClusterExtension to judge with the bundle.")
    ] = None,
    bundle_image: Annotated[str | None, Parameter(help="The image that the bundle is shipped as.")] = None,
    container_tools: Annotated[
        str, Parameter(help="docker, podman or none; compat mode checks the value, nothing is pulled.")
    ] = "",
    fail_on: Annotated[FailOnOption | None, Parameter(help="The severity that ends with 1: error.")] = None,
    unresolved: Annotated[
        Unresolved, Parameter(help="Images that could not be inspected: end with 3, only report, or ignore.")
    ] = "auto",
    images: ImageOptions = DEFAULT_IMAGES,
) -> int:
    """Check an operator's bundle; returns the exit code."""
    settings = settle(RuleOptions(fail_on=fail_on, unresolved=unresolved), images, fail_on="error")
    overrides = read_subscription(subscription) if subscription is not None else None
    if mode == "compat":
        if output not in ("text", "json-alpha1"):
            raise UsageError(f"--mode compat has no form {output}; take text or json-alpha1")
        if overrides is not None or bundle_image is not None:
            raise UsageError("--subscription and --bundle-image are for --mode native")
        outputs, name = judge_compat(directory, images, container_tools, file=settings.platforms_file)
        return _print_compat(outputs, name, output)
    if container_tools and container_tools.lower() not in compat.CONTAINER_TOOLS:
        raise UsageError(f"--container-tools {container_tools}: expected one of {', '.join(compat.CONTAINER_TOOLS)}")
    options = settings.options
    try:
        bundle = read_bundle(directory)
    except BundleNotValid as problem:
        report = Report.of([_not_valid(directory, problem)], fail_on=settings.fail_on)
        return _print_native(report, "", output)
    texts = bundle_run.images(bundle, options)
    answers = resolve_all((*texts, *((bundle_image,) if bundle_image else ())), images, file=settings.platforms_file)
    shipped = _shipped(bundle_image, answers)
    scans = (overrides,) if overrides is not None else ()
    problems = bundle_run.validate(bundle, answers, options, subscriptions=scans, bundle_image=shipped)
    known = image_answers(answers.of(text) for text in texts)
    report = Report.of(
        (problem.finding for problem in problems),
        files=[
            ExaminedFile(each.source.path, tuple(subject.reference for subject in each.objects), len(each.pod_specs))
            for each in (*bundle.scans, *scans)
        ],
        images=known,
        incomplete=incomplete_images(known) if unresolved == "auto" else (),
        fail_on=settings.fail_on,
    )
    return _print_native(report, bundle.name, output)


def judge_compat(
    directory: str, images: ImageOptions, container_tool: str = "", *, file: AnswerFile | None
) -> tuple[tuple[compat.Output, ...], str]:
    """What the validator would say, and the name of the ClusterServiceVersion (or the directory)."""
    try:
        bundle = read_bundle(directory)
    except BundleNotValid as problem:
        return (compat.no_service_version() if problem.missing else compat.no_bundle(str(problem)),), directory
    document = value(bundle.service_version.object.node)
    if problem_of_type := misshapen(document):
        return (compat.no_bundle(f"{bundle.name}: {problem_of_type}"),), directory
    answers = resolve_all(bundle_run.images(bundle), images, file=file)
    return compat.validate(document, answers, container_tool=container_tool), bundle.name


def judge_native(directory: str, images: ImageOptions, *, file: AnswerFile | None) -> tuple[list[Finding], Bundle]:
    """The findings of native mode; raises ``BundleNotValid``."""
    bundle = read_bundle(directory)
    answers = resolve_all(bundle_run.images(bundle), images, file=file)
    return [problem.finding for problem in bundle_run.validate(bundle, answers)], bundle


def _shipped(text: str | None, answers: Answers) -> BundleImageAnswer | None:
    if text is None:
        return None
    answer = answers.of(text)
    if answer.inspection is None:
        raise UsageError(f"--bundle-image {text}: {answer.problem}")
    return BundleImageAnswer(text, answer.inspection)


def _not_valid(directory: str, problem: BundleNotValid) -> Finding:
    return Finding(
        rule="BundleNotValid",
        severity=Severity.ERROR,
        message=str(problem),
        hint="name the directory that has manifests/ and metadata/ in it",
        file=directory,
        span=Span(0, 0, 1, 1, 1, 1),
    )


def _print_native(report: Report, name: str, output: Format) -> int:
    if output == "json-alpha1":
        _print_json_alpha1(
            (
                (
                    str(each.severity.value),
                    f"{each.severity.value.capitalize()}: Value {name}: {each.rule}: {each.message}",
                )
                for each in report.findings
            ),
            passed=report.summary.errors == 0,
        )
    else:
        write_reports(report, [(output, "-")])
    return report.exit_code


def _print_compat(outputs: tuple[compat.Output, ...], name: str, output: Format) -> int:
    passed = compat.passed(outputs)
    if output == "json-alpha1":
        _print_json_alpha1(((each.level, compat.line(each, name)) for each in outputs), passed=passed)
    else:
        sys.stdout.write("".join(f"{compat.line(each, name)}\n" for each in outputs))
    if passed:  # warnings do not keep operator-sdk from saying so
        sys.stderr.write("All validation tests have completed successfully\n")
    return 0 if passed else 1


def _print_json_alpha1(messages: Iterable[tuple[str, str]], *, passed: bool) -> None:
    sys.stdout.write(compat.json_alpha1(messages, passed=passed) + "\n")
