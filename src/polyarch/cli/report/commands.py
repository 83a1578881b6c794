"""``polyarch report``: which workloads can move to a platform, what holds back the rest, and what it is worth.

The command line alone; ``assessment`` does the work."""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import (
    AS_USUAL,
    USUAL_CLUSTER,
    ClusterFlags,
    Verbosity,
    output_option,
    outputs,
    refuse_overwriting,
)
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.images import DEFAULT_IMAGES, ImageOptions
from polyarch.cli.options.values import IMAGES, File, Number, Placeholder, Platforms, flag, option, subject

FORMATS = ("text", "json", "yaml", "csv", "markdown", "html")
CapabilityFormat = Annotated[Literal["text", "json", "yaml", "csv", "markdown", "html"], Placeholder("FORMAT[=FILE]")]
Label = Annotated[str, Placeholder("LABEL")]
Prices = Annotated[str, Placeholder("TARGET=PRICE")]
Percent = Annotated[float, Placeholder("PERCENT")]

EPILOGUE = epilogue(
    note="Nothing is changed anywhere. A share is of the CPU that workloads request.",
    examples=(
        ("Ask about every platform of the nodes, and arm64", "polyarch report"),
        ("Write a page to pass on", "polyarch report -o html=report.html"),
        ("Ask about manifests, before there is a cluster", "polyarch report -f deploy/ --target arm64"),
        ("Fail below 80 percent, as a check in CI", "polyarch report --target arm64 --fail-under 80"),
        ("Estimate what moving would save", "polyarch report --price amd64=0.0416,arm64=0.0336"),
        ("Keep the facts, and report from them elsewhere", "polyarch report --save facts.json"),
        ("Make a report of them", "polyarch report --snapshot facts.json -o markdown"),
        ("Compare with a former report", "polyarch report --compare old.json"),
    ),
    exits=(
        (0, "the report is made"),
        (1, "less than --fail-under could run on a target"),
        (2, "the command line or a file it names is wrong"),
        (3, "the API server did not tell pods or nodes, more than --max-unknown are unknown, or it was interrupted"),
    ),
)
REPORTED = subject("What to report on")


def make_report(
    *,
    file: Annotated[
        list[File] | None,
        option(
            "Manifests instead of a cluster; files, directories, - for standard input; repeatable",
            "-f",
            "--file",
            group=REPORTED,
            hyphen=True,
        ),
    ] = None,
    snapshot: Annotated[File | None, option("Facts and answers that --save wrote, instead", group=REPORTED)] = None,
    save: Annotated[
        File | None, option("Write facts and answers here; no Secret, no environment, no command", group=REPORTED)
    ] = None,
    target: Annotated[
        list[Platforms] | None,
        option(
            "Platforms to ask about, comma-separated; arm64 is short for linux/arm64",
            group=REPORTED,
            show_default="those of the nodes, and arm64",
        ),
    ] = None,
    by: Annotated[
        Label | None, option("Also sum up by this label of nodes, such as a node pool's", group=REPORTED)
    ] = None,
    team_label: Annotated[Label, option("Also sum up by this label of pods", group=REPORTED)] = "team",
    price: Annotated[
        list[Prices] | None,
        option("Price of a requested vCPU-hour by target, comma-separated, in any unit", group=REPORTED),
    ] = None,
    compare: Annotated[
        File | None, option("Say what changed since a report that -o json wrote", group=REPORTED)
    ] = None,
    diff_nodes: Annotated[bool, flag("Also list pods that their node could not start again", group=REPORTED)] = False,
    fail_under: Annotated[
        Percent | None, option("Exit with 1 if less than this could run on a target", group=REPORTED)
    ] = None,
    max_unknown: Annotated[
        Number | None,
        option(
            "Exit with 3 if more workloads are unknown", group=REPORTED, show_default="0 with --fail-under, else any"
        ),
    ] = None,
    substitutes: Annotated[
        File | None, option("YAML file: image to the equal image of another repository", group=IMAGES)
    ] = None,
    suggest: Annotated[bool, flag("Ask up to 3 newer tags of each image that is in the way", group=IMAGES)] = False,
    pull_secrets: Annotated[
        bool, flag("Ask with the pull secrets that workloads name, too; each is read by name", group=IMAGES)
    ] = False,
    output: Annotated[list[CapabilityFormat | str] | None, output_option(*FORMATS)] = None,
    cluster: ClusterFlags = USUAL_CLUSTER,
    images: ImageOptions = DEFAULT_IMAGES,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Say which workloads could run where, and what is in the way; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS)
    if file is not None and snapshot is not None:
        raise UsageError("report takes either -f with manifests or --snapshot, not both; without them the cluster")
    if (file is not None or snapshot is not None) and pull_secrets:
        raise UsageError("--pull-secrets needs the cluster; leave it out with -f and --snapshot")
    if snapshot is not None and save is not None:
        raise UsageError("--save would write what --snapshot already is; leave one of them out")
    asking = {
        "--suggest": suggest,
        "--platforms-file": images.platforms_file is not None,
        "--deep": images.deep is not None,
        "--fresh": images.fresh,
    }
    if snapshot is not None and any(asking.values()):
        given = " and ".join(each for each, is_given in asking.items() if is_given)
        raise UsageError(
            f"{given}: with --snapshot nobody is asked, for it holds the answers; give this where --save writes it"
        )
    refuse_overwriting(wanted, [*(file or ()), snapshot, compare, substitutes, images.platforms_file], saved=save)
    from polyarch.cli.report.report import ReportCommandOptions, run_report

    asked = ReportCommandOptions(
        files=tuple(file or ()),
        snapshot=snapshot,
        save=save,
        targets=tuple(target or ()),
        by=by or "",
        team_label=team_label,
        prices=tuple(price or ()),
        compare=compare,
        diff_nodes=diff_nodes,
        fail_under=fail_under,
        max_unknown=max_unknown,
        substitutes=substitutes,
        suggest=suggest,
        pull_secrets=pull_secrets,
        cluster=cluster,
    )
    return run_report(asked, images, wanted, messages=messages)


report = App(name="report", help_epilogue=EPILOGUE)
report.default(make_report)
