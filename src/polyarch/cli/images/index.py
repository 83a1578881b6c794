"""``polyarch index create`` and ``polyarch index inspect``: image indexes, written and shown (RG-150 to RG-157).

The command line alone; ``assembling`` does the work.
"""

from typing import Annotated, Literal

from cyclopts import App

from polyarch.cli.options.help_page import epilogue
from polyarch.cli.options.outputs import FORMATS, OUTPUT_OPTION, Format, outputs, refuse_overwriting
from polyarch.cli.options.registries import DEFAULT_OPTIONS, RegistryOptions
from polyarch.cli.options.values import (
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
from polyarch.cli.options.verbosity import AS_USUAL, Verbosity

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
INSPECT_EPILOGUE = epilogue(
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
CREATED, INSPECTED = subject("What to create"), subject("What to inspect")

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
    wanted = outputs(output, FORMATS, messages=messages)
    refuse_overwriting(wanted, [from_spec])
    from polyarch.cli.images.assembling import Asked, run_create

    asked = Asked(
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


@app.command(help="Print all entries of an image index", help_epilogue=INSPECT_EPILOGUE)
def inspect(
    image: Annotated[Image, option("A reference, or oci:DIR[:TAG]", group=INSPECTED)],
    /,
    *,
    output: Annotated[list[Format | str] | None, OUTPUT_OPTION] = None,
    access: RegistryOptions = DEFAULT_OPTIONS,
    verbosity: Verbosity = AS_USUAL,
) -> int:
    """Show everything that an index names, and what of it can run."""
    messages = verbosity.messages()
    wanted = outputs(output, FORMATS, messages=messages)
    from polyarch.cli.images.assembling import show_index

    return show_index(image, access, wanted, messages=messages)
