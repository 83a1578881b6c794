"""The work of ``polyarch bundle validate`` and ``polyarch-olm-validator``: a bundle is read, judged and reported.

Native mode runs the rules of ``polyarch lint`` over the bundle. Compat mode prints what operator-sdk's ``multiarch``
validator would print, for scripts that read its words.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from polyarch.cli.errors import CommandError, UsageError
from polyarch.cli.images.resolve import resolve_all
from polyarch.cli.input.manifests import read_bundle, read_subscription
from polyarch.cli.input.objects import load_platforms_file
from polyarch.cli.lint.lint import rendered
from polyarch.cli.lint.settings import settle
from polyarch.cli.options.common import Output, emit
from polyarch.cli.options.images import ImageOptions, RuleOptions
from polyarch.cli.output.messages import Messages
from polyarch.manifests import operator_sdk
from polyarch.manifests.bundle import Bundle, BundleNotValid
from polyarch.manifests.finding import Finding, Severity, Span
from polyarch.manifests.operator_sdk import misshapen
from polyarch.manifests.report import (
    ExaminedFile,
    Report,
    image_answers,
    incomplete_images,
)
from polyarch.manifests.rules import bundle_run
from polyarch.manifests.rules.bundles import BundleImageAnswer
from polyarch.manifests.scan.nodes import value
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.oci.platforms_file import AnswerFile

COMPAT_FORMATS = ("text", "json-alpha1")


class BundleValidateOptions(NamedTuple):
    """The command line of ``polyarch bundle validate`` without the options that it shares."""

    directory: str
    is_compat: bool = False
    subscription: str | None = None
    bundle_image: str | None = None
    container_tools: str = ""


def run_validate(
    asked: BundleValidateOptions,
    rules: RuleOptions,
    images: ImageOptions,
    outputs: Sequence[Output],
    *,
    messages: Messages,
) -> int:
    """Judge a bundle and print what was found; returns the exit code."""
    settings = settle(rules, images, fail_on="error", messages=messages)
    overrides = read_subscription(asked.subscription) if asked.subscription is not None else None
    if asked.is_compat:
        for each in outputs:
            if each.format not in COMPAT_FORMATS:
                raise UsageError(f"--output {each.format}: --mode compat prints text or json-alpha1")
        if overrides is not None or asked.bundle_image is not None:
            raise UsageError("--subscription and --bundle-image are for --mode native")
        found, name = judge_compat(asked.directory, images, asked.container_tools, file=settings.platforms_file)
        return _print_compat(found, name, outputs)
    tools = operator_sdk.CONTAINER_TOOLS
    if asked.container_tools and asked.container_tools.lower() not in tools:
        raise UsageError(f"--container-tools {asked.container_tools}: expected one of {', '.join(tools)}")
    try:
        bundle = read_bundle(asked.directory)
    except BundleNotValid as problem:
        report = Report.of([_not_valid(asked.directory, problem)], fail_on=settings.fail_on)
        return _print_native(report, "", outputs, messages)
    texts = bundle_run.images(bundle, settings.options)
    every = (*texts, *((asked.bundle_image,) if asked.bundle_image else ()))
    answers = resolve_all(every, images, file=settings.platforms_file, messages=messages)
    shipped = _shipped(asked.bundle_image, answers)
    scans = (overrides,) if overrides is not None else ()
    problems = bundle_run.validate(bundle, answers, settings.options, subscriptions=scans, bundle_image=shipped)
    known = image_answers(answers.of(text) for text in texts)
    report = Report.of(
        (problem.finding for problem in problems),
        files=[
            ExaminedFile(each.source.path, tuple(subject.reference for subject in each.objects), len(each.pod_specs))
            for each in (*bundle.scans, *scans)
        ],
        images=known,
        incomplete=incomplete_images(known) if rules.unresolved == "auto" else (),
        fail_on=settings.fail_on,
    )
    return _print_native(report, bundle.name, outputs, messages)


def judge_compat(
    directory: str, images: ImageOptions, container_tool: str = "", *, file: AnswerFile | None
) -> tuple[tuple[operator_sdk.Output, ...], str]:
    """What the validator would say, and the name of the ClusterServiceVersion (or the directory)."""
    try:
        bundle = read_bundle(directory)
    except BundleNotValid as problem:
        return (
            operator_sdk.no_service_version() if problem.missing else operator_sdk.no_bundle(str(problem)),
        ), directory
    document = value(bundle.service_version.object.node)
    if problem_of_type := misshapen(document):
        return (operator_sdk.no_bundle(f"{bundle.name}: {problem_of_type}"),), directory
    answers = resolve_all(bundle_run.images(bundle), images, file=file)
    return operator_sdk.validate(document, answers, container_tool=container_tool), bundle.name


def judge_native(directory: str, images: ImageOptions, *, file: AnswerFile | None) -> tuple[list[Finding], Bundle]:
    """The findings of native mode; raises ``BundleNotValid``."""
    bundle = read_bundle(directory)
    answers = resolve_all(bundle_run.images(bundle), images, file=file)
    return [problem.finding for problem in bundle_run.validate(bundle, answers)], bundle


def _shipped(text: str | None, answers: ImageInspections) -> BundleImageAnswer | None:
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
        hint="give the directory that contains manifests/ and metadata/",
        file=directory,
        span=Span(0, 0, 1, 1, 1, 1),
    )


def _print_native(report: Report, name: str, outputs: Sequence[Output], messages: Messages) -> int:
    def render(form: str, colour: bool) -> str:
        if form != "json-alpha1":
            return rendered(report, form, colour=colour, brief=messages.quiet)
        found = (
            (
                str(each.severity.value),
                f"{each.severity.value.capitalize()}: Value {name}: {each.rule}: {each.message}",
            )
            for each in report.findings
        )
        return _json_alpha1(found, passed=report.summary.errors == 0)

    emit(outputs, render)
    return report.exit_code


def _print_compat(found: tuple[operator_sdk.Output, ...], name: str, outputs: Sequence[Output]) -> int:
    passed = operator_sdk.passed(found)

    def render(form: str, _: bool) -> str:
        if form == "json-alpha1":
            return _json_alpha1(((each.level, operator_sdk.line(each, name)) for each in found), passed=passed)
        return "".join(f"{operator_sdk.line(each, name)}\n" for each in found)

    emit(outputs, render)
    if passed:  # warnings do not keep operator-sdk from saying so
        sys.stderr.write("All validation tests have completed successfully\n")
    return 0 if passed else 1


def _json_alpha1(messages: Iterable[tuple[str, str]], *, passed: bool) -> str:
    return operator_sdk.json_alpha1(messages, passed=passed) + "\n"


# -- ``polyarch-olm-validator DIR``: an external validator for ``operator-sdk bundle validate``


USAGE = "usage: polyarch-olm-validator DIR"
HELP = f"""{USAGE}

Judges the operator bundle in DIR for operator-sdk, which runs it:
operator-sdk bundle validate DIR --alpha-select-external "$(command -v polyarch-olm-validator)"

Environment:
  POLYARCH_OLM_MODE        native (default) or compat
  POLYARCH_PLATFORMS_FILE  a file of answers, as --platforms-file of polyarch bundle validate
  POLYARCH_OFFLINE         true: ask no registry
"""
_TRUE = frozenset({"1", "true", "yes", "on"})
_FALSE = frozenset({"", "0", "false", "no", "off"})


def main(arguments: Sequence[str] | None = None, environment: Mapping[str, str] = os.environ) -> int:
    """Judge one bundle and print the result; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given in (["--help"], ["-h"]):
        sys.stdout.write(HELP)
        return 0
    try:
        sys.stdout.write(_result(given, environment))
    except CommandError as error:
        sys.stderr.write(f"polyarch-olm-validator: {error}\n")
        return error.exit_code
    return 0


def _result(given: Sequence[str], environment: Mapping[str, str]) -> str:
    if len(given) != 1:
        raise UsageError(USAGE)
    directory = given[0]
    mode = environment.get("POLYARCH_OLM_MODE") or "native"
    platforms_file = environment.get("POLYARCH_PLATFORMS_FILE")
    file = load_platforms_file(platforms_file) if platforms_file else None
    images = ImageOptions(offline=_truth("POLYARCH_OFFLINE", environment))
    if mode == "compat":
        outputs, name = judge_compat(directory, images, file=file)
        return operator_sdk.result(name, operator_sdk.compat_entries(outputs, name))
    if mode != "native":
        raise UsageError(f"POLYARCH_OLM_MODE is {mode!r}; expected native or compat")
    try:
        findings, bundle = judge_native(directory, images, file=file)
    except BundleNotValid as problem:
        return operator_sdk.result(directory, [operator_sdk.invalid(str(problem), directory)])
    return operator_sdk.result(bundle.name, operator_sdk.native_entries(findings, bundle.name))


def _truth(name: str, environment: Mapping[str, str]) -> bool:
    text = environment.get(name, "").strip().lower()
    if text not in _TRUE | _FALSE:
        raise UsageError(f"{name} is {environment[name]!r}; expected true or false")
    return text in _TRUE


if __name__ == "__main__":
    sys.exit(main())
