"""``polyarch lint``: which pod specifications and their images disagree? (MF-030, MF-040)

Findings go to stdout or files, progress and remarks to stderr. Nothing is imported before the command line is known to
be more than a question for help.
"""

import sys
from typing import Annotated

from cyclopts import App, Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.manifests import DEFAULT_IMAGES, DEFAULT_RULES, Format, ImageOptions, RuleOptions
from polyarch.cli.options.misspelt import refuse_misspelt
from polyarch.cli.options.registries import flag

EPILOGUE = """Examples:

- `polyarch lint .` checks every manifest below this directory
- `helm template CHART | polyarch lint -` checks what a chart makes
- `polyarch lint --require amd64,arm64 --fail-on error deploy/` ends with 1 only for errors
- `polyarch lint --offline --platforms-file platforms.json .` gives the same answer without a registry
- `polyarch lint -o text --output - -o sarif --output polyarch.sarif .` prints one form and writes another
- `polyarch lint --lock polyarch.lock --update-lock .` notes what each tag shows today
- `polyarch lint --explain MA102` says what a rule means

Exit codes:

- 0: nothing found, or nothing as bad as --fail-on
- 1: a finding is as bad
- 2: the command line, the configuration or a file it names is wrong
- 3: a file could not be read, or an image could not be asked about
"""


def lint_files(
    *paths: Annotated[str, Parameter(allow_leading_hyphen=True, help="Files, directories or patterns; - is stdin.")],
    format: Annotated[
        list[Format] | None, Parameter(name=["--format", "-o"], negative="", help="How to print.")
    ] = None,
    output: Annotated[
        list[str] | None,
        Parameter(negative="", allow_leading_hyphen=True, help="Where to, one for each --format; - is stdout."),
    ] = None,
    baseline: Annotated[str | None, Parameter(help="Findings to pass over, as --write-baseline wrote them.")] = None,
    write_baseline: Annotated[str | None, Parameter(help="Write what is found there, to be passed over later.")] = None,
    lock: Annotated[str | None, Parameter(help="What each tag showed when it was locked.")] = None,
    update_lock: Annotated[bool, flag("Write to the lock file what each tag shows now.")] = False,
    show_suppressed: Annotated[bool, flag("Print suppressed findings, too.")] = False,
    fail_if_no_objects: Annotated[bool, flag("End with 1 if there is nothing to check.")] = False,
    jobs: Annotated[int | None, Parameter(help="Processes for large trees; as many as there are processors.")] = None,
    explain: Annotated[
        str | None, Parameter(help="Print what a rule means, an example and its fix; check nothing.")
    ] = None,
    rules: Annotated[bool, flag("List all rules with their severity; check nothing.")] = False,
    selection: RuleOptions = DEFAULT_RULES,
    images: ImageOptions = DEFAULT_IMAGES,
) -> int:
    """Check manifests: what pods admit against what their images support; returns the exit code."""
    if explain is not None or rules:
        from polyarch.cli.lint.rules import print_rule, print_rules

        return print_rule(explain) if explain is not None else print_rules()
    if not paths:
        raise UsageError("nothing to check is named; give files or directories, . for this one, - for standard input")
    refuse_misspelt(paths, lint)
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least 1 process is needed")
    from polyarch.cli.lint.examination import Run
    from polyarch.cli.lint.examination import lint_files as over
    from polyarch.cli.lint.reports import pairs, write_reports
    from polyarch.cli.lint.settings import settle
    from polyarch.cli.lint.state import Keeping, judged

    outputs = pairs(format or [], output or [])
    settings = settle(selection, images, lock=lock, update_lock=update_lock)
    keeping = Keeping.of(baseline, write_baseline, update_lock=update_lock)
    run = Run.over(paths, settings, images)
    report = judged(over(run, jobs=jobs), settings, keeping, show_suppressed=show_suppressed)
    write_reports(report, outputs)
    if not report.summary.objects and report.summary.complete:
        print("polyarch: no Kubernetes object was found in what is named", file=sys.stderr)
        return max(report.exit_code, 1 if fail_if_no_objects else 0)
    return report.exit_code


lint = App(name="lint", usage="polyarch lint [OPTIONS] PATH...", help_format="plaintext", help_epilogue=EPILOGUE)
lint.default(lint_files)
