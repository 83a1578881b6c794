"""``polyarch fix``: repair what ``polyarch lint`` finds, and touch no other character (MF-050).

Shows a diff unless it is told to write. Standard input becomes standard output, so it can stand in a pipe behind
``helm template`` or be a post-renderer. What could not be repaired is said on stderr with its reason.
"""

from typing import Annotated, Literal

from cyclopts import App, Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.manifests import DEFAULT_IMAGES, DEFAULT_RULES, ImageOptions, RuleOptions
from polyarch.cli.options.misspelt import refuse_misspelt
from polyarch.cli.options.registries import flag, several

EPILOGUE = """Examples:

- `polyarch fix .` shows what would change
- `polyarch fix --write deploy/` changes the files
- `helm template CHART | polyarch fix - | kubectl apply -f -` repairs what a chart makes
- `polyarch fix --only MA102,MA106 --write web.yaml` repairs these findings only
- `polyarch fix --emit kustomize deploy/ > polyarch/kustomization.yaml` writes a component of patches instead
- `polyarch fix --bundle bundle/ --write subscription.yaml` gives back what an override takes from the operator
- `polyarch fix --assume linux/amd64 --write .` takes images nobody knows for amd64 ones

Exit codes:

- 0: nothing to change, or everything was changed
- 1: a diff was shown, or a finding as bad as --fail-on remains
- 2: the command line, the configuration or a file it names is wrong
- 3: a file could not be read, proven or written, or an image could not be asked about
"""


def fix_files(
    *paths: Annotated[str, Parameter(allow_leading_hyphen=True, help="Files, directories or patterns; - is stdin.")],
    write: Annotated[bool, flag("Change the files.")] = False,
    diff: Annotated[bool, flag("Show what would change; this is what happens without --write.")] = False,
    only: Annotated[list[str] | None, several("Rules to repair, MA102 or MA1*, by commas; all without it.")] = None,
    emit: Annotated[
        Literal["yaml", "kustomize"] | None,
        Parameter(help="Print the repaired manifests, or a kustomize component, and change no file."),
    ] = None,
    assume: Annotated[list[str] | None, several("Platforms of images that nobody knows, by commas.")] = None,
    limit_to_universe: Annotated[bool, flag("Write only platforms of --platforms.")] = False,
    widen: Annotated[bool, flag("Add what images support and constraints leave out.")] = False,
    replace: Annotated[bool, flag("Replace constraints that no image can meet.")] = False,
    remove_labels: Annotated[bool, flag("Remove labels of bundles that promise too much.")] = False,
    prefer: Annotated[list[str] | None, several("ARCH=WEIGHT, by commas: add preferred terms.")] = None,
    uncomment: Annotated[bool, flag("Make a commented affinity count, instead of a new one beside it.")] = False,
    bundle: Annotated[
        str | None, Parameter(help="Directory of the bundle that subscriptions install: what they take away from it.")
    ] = None,
    baseline: Annotated[str | None, Parameter(help="Findings to leave alone, as --write-baseline wrote them.")] = None,
    lock: Annotated[str | None, Parameter(help="What each tag showed when it was locked.")] = None,
    selection: RuleOptions = DEFAULT_RULES,
    images: ImageOptions = DEFAULT_IMAGES,
) -> int:
    """Repair manifests so that pods admit what their images support; returns the exit code."""
    if not paths:
        raise UsageError("nothing to repair is named; give files or directories, . for this one, - for standard input")
    refuse_misspelt(paths, fix)
    if sum((write, diff, emit is not None)) > 1:
        raise UsageError("--write, --diff and --emit exclude each other: leave all but one out")
    if "-" in paths and len(paths) > 1:
        raise UsageError("standard input is repaired alone: give - or files, not both")
    if limit_to_universe and not selection.platforms and selection.config is None:
        from polyarch.cli.lint.settings import configured

        if not configured(None)[0].platforms:
            raise UsageError("--limit-to-universe needs to know the universe: give --platforms")
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
    return run_fix(asked, selection, images)


fix = App(name="fix", usage="polyarch fix [OPTIONS] PATH...", help_format="plaintext", help_epilogue=EPILOGUE)
fix.default(fix_files)
