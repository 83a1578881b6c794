"""``polyarch fix``: fix what ``polyarch lint`` finds, and touch no other character (MF-050).

Shows a diff unless it is told to write. Standard input becomes standard output, so it can stand in a pipe behind
``helm template`` or be a post-renderer. What could not be fixed is said on stderr with its reason.
"""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.manifests import (
    CHECKED,
    DEFAULT_IMAGES,
    DEFAULT_RULES,
    ImageOptions,
    RuleOptions,
)
from polyarch.cli.options.misspelt import refuse_misspelt
from polyarch.cli.options.outputs import FORMATS, OUTPUT_OPTION, Format, outputs, refuse_overwriting
from polyarch.cli.options.values import (
    IMAGES,
    Directory,
    File,
    Path,
    Placeholder,
    Platforms,
    Rules,
    Weights,
    flag,
    option,
    subject,
)
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

EPILOGUE = epilogue(
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
    wanted = outputs(output, FORMATS, messages=messages)
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
    from polyarch.cli.lint.repair import Asked, run_fix

    asked = Asked(
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


fix = App(name="fix", help_epilogue=EPILOGUE)
fix.default(fix_files)
