"""``polyarch bundle validate``: does an operator's bundle keep what it promises?

The command line alone; ``judging`` does the work."""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.options.common import AS_USUAL, Verbosity, output_option, outputs, refuse_overwriting
from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.images import (
    DEFAULT_IMAGES,
    REPORT_FORMATS,
    FailOnOption,
    ImageOptions,
    RuleOptions,
    Unresolved,
)
from polyarch.cli.options.values import RULES, Directory, File, Image, Placeholder, option, subject

FORMATS = (*REPORT_FORMATS, "json-alpha1")
Mode = Annotated[Literal["native", "compat"], Placeholder("MODE")]
BundleFormat = Annotated[
    Literal["text", "json", "yaml", "sarif", "junit", "github", "markdown", "csv", "json-alpha1"],
    Placeholder("FORMAT[=FILE]"),
]
Tool = Annotated[str, Placeholder("TOOL")]

EPILOGUE = epilogue(
    examples=(
        ("Check labels, images, deployments and pins", "polyarch bundle validate bundle/"),
        ("Check without registries", "polyarch bundle validate --offline --platforms-file platforms.json bundle/"),
        (
            "Check what the overrides of a Subscription would take away",
            "polyarch bundle validate --subscription subscription.yaml bundle/",
        ),
        (
            "Print what operator-sdk's multiarch validator would",
            "polyarch bundle validate --mode compat -o json-alpha1 bundle/",
        ),
    ),
    exits=(
        (0, "no finding reaches --fail-on"),
        (1, "a finding does, or the directory has no valid bundle"),
        (2, "the command line or a file it names is wrong"),
        (3, "an image could not be inspected (native mode)"),
    ),
)
BUNDLE = subject("What to check")

app = App(name="bundle", help="Validate operator bundles.")


@app.command(help="Check that an operator bundle keeps what it promises", help_epilogue=EPILOGUE)
def validate(
    directory: Annotated[
        Directory, option("The bundle: metadata/ and manifests/, or the manifests alone", group=BUNDLE)
    ],
    /,
    *,
    subscription: Annotated[
        File | None, option("A Subscription or ClusterExtension to check with the bundle", group=BUNDLE)
    ] = None,
    bundle_image: Annotated[Image | None, option("The image of the bundle itself", group=BUNDLE)] = None,
    config: Annotated[
        File | None, option("Configuration file", group=BUNDLE, show_default="the nearest .polyarch.yaml")
    ] = None,
    mode: Annotated[
        Mode, option("Apply polyarch's rules (native), or operator-sdk's multiarch validator's (compat)", group=RULES)
    ] = "native",
    container_tools: Annotated[
        Tool, option("docker, podman or none; checked in compat mode, nothing is pulled", group=RULES)
    ] = "",
    fail_on: Annotated[
        FailOnOption | None,
        option("Exit with 1 for findings of at least this severity", group=RULES, show_default="error"),
    ] = None,
    unresolved: Annotated[
        Unresolved,
        option("If images could not be inspected: exit with 3 (auto), report only (finding), or ignore", group=RULES),
    ] = "auto",
    output: Annotated[list[BundleFormat | str] | None, output_option(*FORMATS)] = None,
    images: ImageOptions = DEFAULT_IMAGES,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Check an operator's bundle; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS)
    refuse_overwriting(wanted, [subscription, config, images.platforms_file])
    from polyarch.cli.bundle_validation import BundleValidateOptions, run_validate

    asked = BundleValidateOptions(
        directory=directory,
        is_compat=mode == "compat",
        subscription=subscription,
        bundle_image=bundle_image,
        container_tools=container_tools,
    )
    rules = RuleOptions(fail_on=fail_on, unresolved=unresolved, config=config)
    return run_validate(asked, rules, images, wanted, messages=messages)
