"""``polyarch inspect``: which platforms images support; ``polyarch index``: image indexes, created and shown."""

from typing import Annotated, Literal

from cyclopts import App

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
from polyarch.cli.options.images import DEFAULT_IMAGES, DEFAULT_OPTIONS, ImageOptions, RegistryOptions
from polyarch.cli.options.values import (
    OUTPUT,
    File,
    Image,
    KeyValue,
    Placeholder,
    Platforms,
    Tag,
    flag,
    option,
    subject,
)

INSPECT_FORMATS = ("text", "json", "yaml", "csv")
InspectFormat = Annotated[Literal["text", "json", "yaml", "csv"], Placeholder("FORMAT[=FILE]")]
ShortNames = Annotated[Literal["hub", "search"], Placeholder("WHERE")]
SignedAction = Annotated[Literal["skip", "warn", "deny"], Placeholder("ACTION")]
INSPECT_EPILOGUE = epilogue(
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
    output: Annotated[list[InspectFormat | str] | None, output_option(*INSPECT_FORMATS)] = None,
    rate_limit: Annotated[bool, flag("Print the registries' rate limits, on stderr", group=OUTPUT)] = False,
    answers: ImageOptions = DEFAULT_IMAGES,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Print the platforms that images can run on; returns the exit code."""
    messages = verbosity.messages()
    wanted = outputs(output, INSPECT_FORMATS)
    refuse_overwriting(wanted, [from_file, policy])  # a platforms file may be written anew from itself
    from polyarch.cli.images.inspect import InspectOptions, run_inspect

    asked = InspectOptions(
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


inspect = App(name="inspect", help_epilogue=INSPECT_EPILOGUE)
inspect.default(inspect_images)

# -- polyarch index


Kind = Annotated[Literal["auto", "oci", "docker"], Placeholder("TYPE")]
Fate = Annotated[Literal["drop", "keep"], Placeholder("ACTION")]
Destination = Annotated[str, Placeholder("DEST")]
Source = Annotated[str, Placeholder("SRC")]
Template = Annotated[str, Placeholder("TEMPLATE")]
CREATE_EPILOGUE = epilogue(
    examples=(
        (
            "Join two images",
            "polyarch index create quay.io/team/app:1.0 quay.io/team/app:1.0-amd64 quay.io/team/app:1.0-arm64",
        ),
        (
            "Name a platform, and take an image from an OCI layout",
            "polyarch index create quay.io/team/app:1.0 linux/arm/v6=quay.io/team/app:pi oci:build/out:1.0",
        ),
        (
            "Expand a template",
            "polyarch index create quay.io/team/app:1.0 --template quay.io/team/app:1.0-ARCH --platforms amd64,arm64",
        ),
        (
            "Add a platform to an index",
            "polyarch index create --amend quay.io/team/app:1.0 quay.io/team/app:1.0-s390x --require amd64,s390x",
        ),
        ("Show what a spec file would push", "polyarch index create --from-spec app.yaml --dry-run -o json"),
    ),
    exits=(
        (0, "pushed, or unchanged"),
        (1, "refused, nothing was pushed"),
        (2, "the command line or a file is wrong; no registry was asked"),
        (3, "a registry failed; the same command again completes the work"),
    ),
)
INSPECT_INDEX_EPILOGUE = epilogue(
    examples=(
        ("Print every entry, attestations and others that do not run too", "polyarch index inspect nginx:1.27"),
        ("Print the index of an OCI layout as JSON", "polyarch index inspect oci:build/out -o json"),
    ),
    exits=(
        (0, "all is well"),
        (2, "the command line or a reference is wrong; no registry was asked"),
        (3, "the index could not be read"),
    ),
)
CREATED, INSPECTED_INDEX = subject("What to create"), subject("What to inspect")
app = App(name="index", help="Create and inspect image indexes.")


@app.command(help="Join images in registries into one image index, and push it", help_epilogue=CREATE_EPILOGUE)
def create(
    destination: Annotated[
        Destination | None, option("Where to push the index, such as quay.io/team/app:1.0", group=CREATED)
    ] = None,
    /,
    *sources: Annotated[
        Source, option("Images, indexes and OCI layouts (oci:DIR[:TAG]), or PLATFORM=REFERENCE", group=CREATED)
    ],
    type: Annotated[Kind, option("Media types of the index; its images must have the same", group=CREATED)] = "auto",
    tag: Annotated[list[Tag] | None, option("Also tag the index with TAG; repeatable", group=CREATED)] = None,
    platform: Annotated[
        list[Platforms] | None, option("Take only these platforms from the sources, comma-separated", group=CREATED)
    ] = None,
    require: Annotated[
        list[Platforms] | None, option("Platforms that the index must have, comma-separated", group=CREATED)
    ] = None,
    annotation: Annotated[list[KeyValue] | None, option("Annotate the index; repeatable", group=CREATED)] = None,
    attestations: Annotated[Fate, option("What to do with attestations of the sources", group=CREATED)] = "drop",
    keep_order: Annotated[bool, flag("Order entries as the sources, not by platform", group=CREATED)] = False,
    ignore_missing: Annotated[bool, flag("Skip sources that do not exist", group=CREATED)] = False,
    amend: Annotated[
        bool, flag("Start from the index at DEST; a source replaces the same platform", group=CREATED)
    ] = False,
    from_spec: Annotated[
        File | None, option("Read destination, sources and the rest from a YAML or JSON file", group=CREATED)
    ] = None,
    template: Annotated[
        Template | None, option("A source for each of --platforms; OS, ARCH and VARIANT are replaced", group=CREATED)
    ] = None,
    platforms: Annotated[
        list[Platforms] | None, option("Platforms for --template, comma-separated", group=CREATED)
    ] = None,
    dry_run: Annotated[bool, flag("Print what would be pushed, and push nothing", group=CREATED)] = False,
    output: Annotated[list[Format | str] | None, OUTPUT_OPTION] = None,
    access: RegistryOptions = DEFAULT_OPTIONS,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Put an image index together from images that are in registries already, and push it."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS)
    refuse_overwriting(wanted, [from_spec])
    from polyarch.cli.images.index import IndexCreateOptions, run_create

    asked = IndexCreateOptions(
        destination=destination,
        sources=sources,
        kind=type,
        tags=tag or (),
        platform=platform or (),
        require=require or (),
        annotations=annotation or (),
        attestations=attestations,
        keep_order=keep_order,
        ignore_missing=ignore_missing,
        amend=amend,
        from_spec=from_spec,
        template=template,
        platforms=platforms or (),
        dry_run=dry_run,
    )
    return run_create(asked, access, wanted, messages=messages)


@app.command(name="inspect", help="Print all entries of an image index", help_epilogue=INSPECT_INDEX_EPILOGUE)
def inspect_index(
    image: Annotated[Image, option("A reference, or oci:DIR[:TAG]", group=INSPECTED_INDEX)],
    /,
    *,
    output: Annotated[list[Format | str] | None, OUTPUT_OPTION] = None,
    access: RegistryOptions = DEFAULT_OPTIONS,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Show everything that an index names, and what of it can run."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS)
    from polyarch.cli.images.index import show_index

    return show_index(image, access, wanted, messages=messages)
