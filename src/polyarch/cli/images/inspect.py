"""``polyarch inspect``: on which platforms can these images run? (RG-140 to RG-143)

The command line alone; ``inquiry`` does the work.
"""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.manifests import DEFAULT_IMAGES, ImageOptions
from polyarch.cli.options.outputs import output_option, outputs, refuse_overwriting
from polyarch.cli.options.values import OUTPUT, File, Image, Placeholder, Platforms, flag, option, subject
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

FORMATS = ("text", "json", "yaml", "csv")
InspectFormat = Annotated[Literal["text", "json", "yaml", "csv"], Placeholder("FORMAT[=FILE]")]
ShortNames = Annotated[Literal["hub", "search"], Placeholder("WHERE")]
SignedAction = Annotated[Literal["skip", "warn", "deny"], Placeholder("ACTION")]

EPILOGUE = epilogue(
    examples=(
        ("Print the platforms of two images", "polyarch inspect nginx:1.27 quay.io/prometheus/node-exporter"),
        ("Exit with 1 if an image lacks a platform", "polyarch inspect --require amd64,arm64 --from-file images.txt"),
        ("Save the answers", "polyarch inspect -o json=platforms.json nginx:1.27"),
        ("Use them without a registry", "polyarch inspect --offline --platforms-file platforms.json nginx:1.27"),
        ("Also check the entrypoint binary of every platform", "polyarch inspect --deep elf quay.io/team/app:1.0"),
        ("Show which mirrors would be asked", "polyarch inspect --plan --registries-conf mirrors.conf nginx:1.27"),
    ),
    exits=(
        (0, "all is well"),
        (1, "an image is unknown, has no platform, lacks a required one, or contradicts its index (--deep)"),
        (2, "the command line, a file or a reference is wrong; no registry was asked"),
        (3, "an image could not be inspected"),
    ),
)
INSPECTED = subject("What to inspect")


def inspect_images(
    *images: Annotated[Image, option("Image references, such as quay.io/team/app:1.0", group=INSPECTED)],
    from_file: Annotated[
        File | None,
        option("Read references from a file, one per line; - is standard input", group=INSPECTED, hyphen=True),
    ] = None,
    require: Annotated[
        list[Platforms] | None,
        option("Platforms every image must support, comma-separated; arm64 means linux/arm64", group=INSPECTED),
    ] = None,
    short_names: Annotated[
        ShortNames, option("Look for names like nginx on Docker Hub (hub), or as registries.conf says", group=INSPECTED)
    ] = "hub",
    policy: Annotated[File | None, option("Signature policy, see containers-policy.json(5)", group=INSPECTED)] = None,
    policy_signed: Annotated[
        SignedAction,
        option("What to do with images whose signatures the policy requires; none are verified here", group=INSPECTED),
    ] = "warn",
    plan: Annotated[bool, flag("Print which registries and mirrors would be asked, and exit", group=INSPECTED)] = False,
    output: Annotated[list[InspectFormat | str] | None, output_option(*FORMATS)] = None,
    rate_limit: Annotated[bool, flag("Print the registries' rate limits, on stderr", group=OUTPUT)] = False,
    answers: ImageOptions = DEFAULT_IMAGES,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Print the platforms that images can run on; returns the exit code (RG-141)."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS, messages=messages)
    refuse_overwriting(wanted, [from_file, policy])  # a platforms file may be written anew from itself
    from polyarch.cli.images.inquiry import Asked, run_inspect

    asked = Asked(
        images=images,
        from_file=from_file,
        require=tuple(require or ()),
        searches=short_names == "search",
        policy=policy,
        policy_signed=policy_signed,
        plan=plan,
        rate_limit=rate_limit,
    )
    return run_inspect(asked, answers, wanted, messages=messages)


inspect = App(name="inspect", help_epilogue=EPILOGUE)
inspect.default(inspect_images)
