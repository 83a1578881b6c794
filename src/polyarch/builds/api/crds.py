"""The CustomResourceDefinitions of builds: ImageBuild and ImageBuildRun (BD-010, BD-013, BD-014, BD-020, BD-022).

The API server refuses what BD-012 refuses, without a webhook of ours; ``validation`` makes the same checks of a file.
Pure.
"""

from typing import Final, get_args

from polyarch.builds.api import settings
from polyarch.builds.api.spec_schema import image_build_spec
from polyarch.builds.names import IMAGE_BUILD_RUNS, IMAGE_BUILDS
from polyarch.kube.schema import (
    Schema,
    array,
    column,
    conditions,
    custom_resource,
    integer,
    obj,
    rule,
    text,
    text_map,
    version,
)

KEY: Final = "^[0-9a-f]{64}$"
DIGEST: Final = "^sha(256|384|512):[0-9a-f]{64,128}$"
MESSAGE: Final = 1024
"""Characters of a message about one architecture (BD-022)."""
IMMUTABLE: Final = (
    "spec of an ImageBuildRun never changes: change the ImageBuild that it belongs to, and another run is made"
)
MOST_PINS: Final = 1024


def crds() -> tuple[Schema, ...]:
    """Every CustomResourceDefinition of builds."""
    return image_builds(), image_build_runs()


def image_builds() -> Schema:
    """BD-010 to BD-014."""
    columns = [
        column("Ready", '.status.conditions[?(@.type=="Ready")].status'),
        column("Architectures", ".status.summary"),
        column("Run", ".status.currentRun"),
        column("Image", ".status.image") | {"priority": 1},
        column("Age", ".metadata.creationTimestamp", "date"),
    ]
    description = "One image, built natively for every architecture that is wanted, and published as one index."
    stored = version(
        IMAGE_BUILDS.version,
        description,
        image_build_spec(),
        _build_status(),
        columns=columns,
        required=("spec",),
    )
    return custom_resource(IMAGE_BUILDS, [stored], short_names=("ib",))


def image_build_runs() -> Schema:
    """BD-020, BD-022."""
    columns = [
        column("Phase", ".status.phase"),
        column("Architectures", ".status.summary"),
        column("Result", ".status.result") | {"priority": 1},
        column("Duration", ".status.duration"),
        column("Age", ".metadata.creationTimestamp", "date"),
    ]
    description = "One execution of an ImageBuild. The builder makes them; nobody else has to."
    stored = version(
        IMAGE_BUILD_RUNS.version, description, _run_spec(), _run_status(), columns=columns, required=("spec",)
    )
    return custom_resource(IMAGE_BUILD_RUNS, [stored], short_names=("ibr",))


def _build_status() -> Schema:
    image = obj(
        {
            "architecture": text(description="The architecture."),
            "reference": text(description="Its image, by digest."),
        },
        required=("architecture", "reference"),
    )
    child = obj(
        {"architecture": text(description="The architecture."), "digest": text(description="Digest of its image.")},
        required=("architecture", "digest"),
    )
    base = obj(
        {
            "reference": text(description="As the Containerfile names it, written in full."),
            "digest": text(description="What the reference led to."),
            "children": _by_architecture(child, "The image of each architecture."),
            "resolvedTime": text(description="When it was looked up.", format="date-time"),
        },
        required=("reference",),
    )
    failure = obj(
        {
            "run": text(description="The ImageBuildRun."),
            "reason": text(description="Why, in one word."),
            "message": text(description="Why, for people.", max_length=32768),
            "architectures": _names("Architectures that failed."),
        },
        description="The last failure, until a build succeeds.",
    )
    return obj(
        {
            "observedGeneration": _generation("The generation that it speaks of."),
            "conditions": conditions(),
            "architectures": _names("Architectures that are wanted now."),
            "image": text(description="What is published: repository@digest."),
            "images": _by_architecture(image, "The image of each architecture in it, by digest."),
            "tags": array(text(), description="Tags that are on it.", list_type="set"),
            "currentRun": text(description="The ImageBuildRun whose result is published."),
            "activeRun": text(description="The ImageBuildRun that is under way."),
            "buildKey": text(description="Hash of everything that the wanted result depends on."),
            "bases": array(base, description="What base images led to.", list_type="map", map_keys=("reference",)),
            "rebuildToken": text(description="The last value of spec.rebuild.token that was honoured."),
            "lastFailure": failure,
            "summary": text(description="Architectures that are built, of those wanted, and what failed."),
        },
        description="What is published, and how far the next build is.",
    )


def _run_spec() -> Schema:
    build = obj(
        {
            "name": text(description="Its name.", min_length=1, max_length=253),
            "uid": text(description="Its UID.", min_length=1, max_length=128),
            "generation": _generation("Its generation when the run was made."),
        },
        description="The ImageBuild that it belongs to.",
        required=("name", "uid"),
    )
    key = obj(
        {
            "architecture": _architecture(),
            "key": text(description="Hash of everything that its image depends on.", max_length=64, pattern=KEY),
        },
        required=("architecture", "key"),
    )
    pin = obj(
        {
            "reference": text(description="As the Containerfile names it, written in full.", max_length=1024),
            "architecture": _architecture(),
            "digest": text(description="What is pulled.", max_length=160, pattern=DIGEST),
        },
        required=("reference", "architecture", "digest"),
    )
    most = settings.MOST_ARCHITECTURES
    return obj(
        {
            "imageBuild": build,
            "serial": integer(description="Counts the runs of these inputs.", format="int64", minimum=1, default=1),
            "buildKey": text(description="Hash of everything that the result depends on.", max_length=64, pattern=KEY),
            "architectures": array(
                key,
                description="The architectures, and the key of each.",
                list_type="map",
                map_keys=("architecture",),
                max_items=most,
            ),
            "pins": array(
                pin,
                description="What base images led to.",
                list_type="map",
                map_keys=("reference", "architecture"),
                max_items=MOST_PINS,
            ),
            "repository": text(description="Where the result goes.", max_length=255),
            "format": text(
                description="Format of images and index.", enum=get_args(settings.ImageFormat), default="OCI"
            ),
            "index": text(description="Whether an index is made.", enum=get_args(settings.IndexMode), default="Auto"),
            "indexAnnotations": text_map("Annotations of the index.", most=settings.ANNOTATIONS)
            | {"additionalProperties": text(max_length=settings.ARGUMENT_LENGTH)},
            "attestations": text(
                description="Whether attestations go into the index.",
                enum=get_args(settings.Attestations),
                default="Drop",
            ),
            "required": _names("Architectures without which nothing is published; absent: all.", most=most),
            "forced": obj(
                {
                    "token": text(description="The token.", max_length=settings.TOKEN_LENGTH),
                    "architectures": _names("Architectures that are built in any case.", most=most),
                },
                description="The wish for a rebuild that it answers.",
            ),
        },
        description="What is made; it never changes.",
        required=("imageBuild", "buildKey", "architectures", "repository"),
        rules=[rule("self == oldSelf", IMMUTABLE)],
    )


def _run_status() -> Schema:
    architecture = obj(
        {
            "architecture": text(description="The architecture."),
            "phase": text(description="How far it is.", enum=get_args(settings.Phase)),
            "key": text(description="Hash of everything that its image depends on."),
            "execution": text(
                description="Whether it is built on its own architecture.", enum=get_args(settings.BuiltBy)
            ),
            "host": text(description="The architecture of the nodes where it is built."),
            "job": text(description="The Job that builds it."),
            "jobUID": text(description="UID of that Job."),
            "node": text(description="The node of its pod."),
            "attempts": _count("Pods that were started for it and counted."),
            "digest": text(description="Digest of its image."),
            "size": _count("Bytes of the image's manifest."),
            "mediaType": text(description="Media type of the image's manifest."),
            "variant": text(description="Variant of the architecture that the image says it is for."),
            "reusedFrom": text(description="The run whose image it is."),
            "startTime": text(description="When its build started.", format="date-time"),
            "completionTime": text(description="When it ended.", format="date-time"),
            "reason": text(description="Why, in one word."),
            "message": text(description="Why, for people.", max_length=MESSAGE),
        },
        required=("architecture",),
    )
    index = obj(
        {
            "mediaType": text(description="Its media type."),
            "digest": text(description="Its digest."),
            "size": _count("Its bytes."),
            "pushedTime": text(description="When it was in the repository.", format="date-time"),
        },
        description="The index; absent where one image is published alone.",
    )
    return obj(
        {
            "phase": text(description="How far it is.", enum=get_args(settings.ExecutionPhase)),
            "architectures": _by_architecture(architecture, "How far each architecture is."),
            "index": index,
            "result": text(description="What was published: repository@digest."),
            "conditions": conditions(),
            "startTime": text(description="When it began.", format="date-time"),
            "completionTime": text(description="When it ended.", format="date-time"),
            "duration": text(description="How long it took, once it has ended."),
            "summary": text(description="Architectures that are built, of those wanted, and what failed."),
        },
        description="How far it is.",
    )


def _by_architecture(entry: Schema, description: str) -> Schema:
    return array(entry, description=description, list_type="map", map_keys=("architecture",))


def _names(description: str, *, most: int | None = None) -> Schema:
    return array(text(max_length=63), description=description, list_type="set", max_items=most)


def _architecture() -> Schema:
    return text(description="The architecture.", max_length=63)


def _generation(description: str) -> Schema:
    return integer(description=description, format="int64", minimum=0)


def _count(description: str) -> Schema:
    return integer(description=description, format="int64", minimum=0)
