"""``polyarch lint``: which pod specifications and their images disagree? (MF-030, MF-040)

Findings go to stdout or files, progress and notes to stderr. Nothing is imported before the command line is known to
be more than a question for help.
"""

from typing import Annotated

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.manifests import (
    CHECKED,
    DEFAULT_IMAGES,
    DEFAULT_RULES,
    REPORT_FORMATS,
    ImageOptions,
    ReportFormat,
    RuleOptions,
)
from polyarch.cli.options.misspelt import refuse_misspelt
from polyarch.cli.options.outputs import EARLIER_FORMAT, output_option, outputs, refuse_overwriting
from polyarch.cli.options.values import IMAGES, OUTPUT, RULES, File, Number, Path, Rule, Rules, flag, option
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

EPILOGUE = epilogue(
    examples=(
        ("Check every manifest below this directory", "polyarch lint"),
        ("Check what a chart renders", "helm template CHART | polyarch lint -"),
        (
            "Require two platforms; exit with 1 for errors only",
            "polyarch lint --require amd64,arm64 --fail-on error deploy/",
        ),
        ("Check for the nodes of your cluster", "polyarch lint --platforms amd64,arm64 deploy/"),
        ("Print findings, and write them to a SARIF file", "polyarch lint -o text -o sarif=polyarch.sarif"),
        ("Check without registries", "polyarch lint --offline --platforms-file platforms.json"),
        ("Explain a rule", "polyarch lint --explain MA102"),
    ),
    exits=(
        (0, "no finding reaches --fail-on"),
        (1, "a finding does"),
        (2, "the command line, the configuration or a file it names is wrong"),
        (3, "a file could not be read, or an image could not be inspected"),
    ),
)


def lint_files(
    *paths: Annotated[
        Path,
        option(
            "Files, directories or globs to check; - is standard input", group=CHECKED, show_default=".", hyphen=True
        ),
    ],
    baseline: Annotated[File | None, option("Ignore the findings saved in this baseline", group=CHECKED)] = None,
    write_baseline: Annotated[File | None, option("Save current findings as a baseline", group=CHECKED)] = None,
    fail_if_no_objects: Annotated[bool, flag("Exit with 1 if there is nothing to check", group=CHECKED)] = False,
    jobs: Annotated[
        Number | None, option("Parallel processes", group=CHECKED, show_default="one per CPU, for large trees")
    ] = None,
    only: Annotated[
        list[Rules] | None,
        option("Run these rules only, comma-separated; MA1* is a prefix. Syntax errors are always found", group=RULES),
    ] = None,
    explain: Annotated[
        Rule | None, option("Explain a rule, with an example and its fix, and exit", group=RULES)
    ] = None,
    rules: Annotated[bool, flag("List all rules with their severity, and exit", group=RULES)] = False,
    lock: Annotated[
        File | None, option("Compare tags with the digests and platforms in this lock file", group=IMAGES)
    ] = None,
    update_lock: Annotated[bool, flag("Write current digests and platforms to the lock file", group=IMAGES)] = False,
    output: Annotated[list[ReportFormat | str] | None, output_option(*REPORT_FORMATS)] = None,
    format: EARLIER_FORMAT = None,
    show_suppressed: Annotated[bool, flag("Also print suppressed findings", group=OUTPUT)] = False,
    selection: RuleOptions = DEFAULT_RULES,
    images: ImageOptions = DEFAULT_IMAGES,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Check manifests: what pods admit against what their images support; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, REPORT_FORMATS, messages=messages, earlier=format)
    if explain is not None or rules:
        from polyarch.cli.lint.rules import print_rules

        return print_rules(explain, wanted)
    refuse_misspelt(paths, lint)
    refuse_overwriting(wanted, (*paths, baseline, write_baseline, lock, selection.config, images.platforms_file))
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: expected 1 or more")
    from polyarch.cli.lint.examination import Run
    from polyarch.cli.lint.examination import lint_files as over
    from polyarch.cli.lint.printing import write_reports
    from polyarch.cli.lint.settings import settle
    from polyarch.cli.lint.state import Keeping, judged

    settings = settle(selection, images, only=only, lock=lock, update_lock=update_lock, messages=messages)
    keeping = Keeping.of(baseline, write_baseline, update_lock=update_lock)
    run = Run.over(paths or (".",), settings, images, messages=messages)
    report = judged(over(run, jobs=jobs), settings, keeping, messages=messages, show_suppressed=show_suppressed)
    write_reports(report, wanted, messages=messages)
    if not report.summary.objects and report.summary.complete:
        messages.note("no checkable objects in the given paths")
        return max(report.exit_code, 1 if fail_if_no_objects else 0)
    return report.exit_code


lint = App(name="lint", help_epilogue=EPILOGUE)
lint.default(lint_files)
