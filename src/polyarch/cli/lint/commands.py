"""``polyarch lint`` and ``polyarch fix``: the command lines.

Findings go to stdout or files, progress and notes to stderr. Nothing is imported before the command line is known to
be more than a question for help.
"""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import (
    AS_USUAL,
    FORMATS,
    OUTPUT_OPTION,
    Format,
    Verbosity,
    output_option,
    outputs,
    refuse_overwriting,
)
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.images import (
    CHECKED,
    DEFAULT_IMAGES,
    DEFAULT_RULES,
    REPORT_FORMATS,
    ImageOptions,
    ReportFormat,
    RuleOptions,
)
from polyarch.cli.options.usage_errors import refuse_misspelt
from polyarch.cli.options.values import (
    IMAGES,
    OUTPUT,
    RULES,
    Directory,
    File,
    Number,
    Path,
    Placeholder,
    Platforms,
    Rule,
    Rules,
    Weights,
    flag,
    option,
    subject,
)

LINT_EPILOGUE = epilogue(
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
    show_suppressed: Annotated[bool, flag("Also print suppressed findings", group=OUTPUT)] = False,
    selection: RuleOptions = DEFAULT_RULES,
    images: ImageOptions = DEFAULT_IMAGES,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Check manifests: what pods admit against what their images support; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, REPORT_FORMATS)
    if explain is not None or rules:
        from polyarch.cli.lint.rules import print_rules

        return print_rules(explain, wanted)
    refuse_misspelt(paths, lint)
    refuse_overwriting(wanted, (*paths, baseline, write_baseline, lock, selection.config, images.platforms_file))
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: expected 1 or more")
    from polyarch.cli.lint.lint import BaselineOptions, LintRun, judged, write_reports
    from polyarch.cli.lint.lint import lint_files as over
    from polyarch.cli.lint.settings import settle

    settings = settle(selection, images, only=only, lock=lock, update_lock=update_lock, messages=messages)
    keeping = BaselineOptions.of(baseline, write_baseline, update_lock=update_lock)
    run = LintRun.over(paths or (".",), settings, images, messages=messages)
    report = judged(over(run, jobs=jobs), settings, keeping, messages=messages, show_suppressed=show_suppressed)
    write_reports(report, wanted, messages=messages)
    if not report.summary.objects and report.summary.complete:
        if not report.findings:
            messages.note("no checkable objects in the given paths")
        return max(report.exit_code, 1 if fail_if_no_objects else 0)
    return report.exit_code


lint = App(name="lint", help_epilogue=LINT_EPILOGUE)
lint.default(lint_files)

# -- polyarch fix


FIX_EPILOGUE = epilogue(
    examples=(
        ("Show what would change", "polyarch fix"),
        ("Apply it", "polyarch fix --write deploy/"),
        ("Fix what a chart renders", "helm template CHART | polyarch fix - | kubectl apply -f -"),
        ("Fix two rules only", "polyarch fix --only MA102,MA106 --write web.yaml"),
        ("Write a kustomize component instead", "polyarch fix --emit kustomize deploy/ > polyarch/kustomization.yaml"),
        (
            "Restore what an override takes from the operator in a bundle",
            "polyarch fix --bundle bundle/ --write subscription.yaml",
        ),
        ("Assume amd64 for images without an answer", "polyarch fix --assume linux/amd64 --write"),
    ),
    exits=(
        (0, "nothing to change, or everything was changed"),
        (1, "a diff was shown, or a finding that reaches --fail-on remains"),
        (2, "the command line, the configuration or a file it names is wrong"),
        (3, "a file could not be read, proven or written, or an image could not be inspected"),
    ),
)
FIXES = subject("What to fix")
Emission = Annotated[Literal["yaml", "kustomize"], Placeholder("KIND")]


def fix_files(
    *paths: Annotated[
        Path,
        option("Files, directories or globs to fix; - is standard input", group=CHECKED, show_default=".", hyphen=True),
    ],
    write: Annotated[bool, flag("Apply the fixes to the files", group=FIXES)] = False,
    diff: Annotated[bool, flag("Show the fixes as a diff; the default", group=FIXES)] = False,
    emit: Annotated[
        Emission | None,
        option("Print the fixed manifests, or a kustomize component; leave the files alone", group=FIXES),
    ] = None,
    only: Annotated[
        list[Rules] | None, option("Fix findings of these rules only, comma-separated; MA1* is a prefix", group=FIXES)
    ] = None,
    assume: Annotated[
        list[Platforms] | None, option("Platforms of images without an answer, comma-separated", group=FIXES)
    ] = None,
    limit_to_universe: Annotated[bool, flag("Write platforms of --platforms only", group=FIXES)] = False,
    widen: Annotated[bool, flag("Add platforms that images support and constraints exclude", group=FIXES)] = False,
    replace: Annotated[bool, flag("Replace constraints that no image satisfies", group=FIXES)] = False,
    remove_labels: Annotated[
        bool, flag("Remove bundle labels that promise more than the images support", group=FIXES)
    ] = False,
    prefer: Annotated[list[Weights] | None, option("Add preferred terms, comma-separated", group=FIXES)] = None,
    uncomment: Annotated[
        bool, flag("Uncomment and correct a commented-out affinity instead of adding one", group=FIXES)
    ] = False,
    bundle: Annotated[
        Directory | None, option("The bundle that the given subscriptions install (MA209)", group=CHECKED)
    ] = None,
    baseline: Annotated[File | None, option("Ignore the findings saved in this baseline", group=CHECKED)] = None,
    lock: Annotated[
        File | None, option("Compare tags with the digests and platforms in this lock file", group=IMAGES)
    ] = None,
    output: Annotated[list[Format | str] | None, OUTPUT_OPTION] = None,
    selection: RuleOptions = DEFAULT_RULES,
    images: ImageOptions = DEFAULT_IMAGES,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Fix manifests so that pods admit what their images support; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS)
    refuse_overwriting(wanted, [*paths, baseline, lock, selection.config, images.platforms_file])
    refuse_misspelt(paths, fix)
    paths = paths or (".",)
    if sum((write, diff, emit is not None)) > 1:
        raise UsageError("--write, --diff and --emit cannot be combined; keep one of them")
    if "-" in paths and len(paths) > 1:
        raise UsageError("- cannot be combined with files")
    if limit_to_universe and not selection.platforms and selection.config is None:
        from polyarch.cli.lint.settings import configured

        if not configured(None)[0].platforms:
            raise UsageError("--limit-to-universe needs the platforms of the cluster: give --platforms")
    from polyarch.cli.lint.fix import FixRunOptions, run_fix

    asked = FixRunOptions(
        paths=paths,
        way="write" if write or (paths == ("-",) and not diff and emit is None) else emit or "diff",
        only=tuple(only or ()),
        assume=tuple(assume or ()),
        prefer=tuple(prefer or ()),
        limit_to_universe=limit_to_universe,
        widen=widen,
        replace=replace,
        remove_labels=remove_labels,
        uncomment=uncomment,
        bundle=bundle,
        baseline=baseline,
        lock=lock,
    )
    return run_fix(asked, selection, images, wanted, messages=messages)


fix = App(name="fix", help_epilogue=FIX_EPILOGUE)
fix.default(fix_files)
