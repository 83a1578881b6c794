"""The CustomResourceDefinitions of ImageBuild and ImageBuildRun. Pure.

The messages of their rules say what to write instead, because users read them in ``kubectl apply``.
"""

from typing import Final, get_args

from polyarch.builds.api import formats
from polyarch.builds.api.resources import BaseImages, ImageBuildSpec
from polyarch.builds.names import IMAGE_BUILD_RUNS, IMAGE_BUILDS
from polyarch.kube.schema import (
    DNS_SUBDOMAIN,
    Schema,
    array,
    boolean,
    cel_text,
    checked_label_selector,
    column,
    conditions,
    custom_resource,
    duration,
    integer,
    obj,
    quantity,
    rule,
    text,
    text_map,
    toleration,
    version,
)
from polyarch.tolerations import EFFECTS

NAME_LENGTH: Final = 253
REFERENCE_LENGTH: Final = 512


def architecture_name(field: str, description: str = "") -> Schema:
    """One architecture; the message of a refusal says what to write instead."""
    others = "{" + ", ".join(f"{cel_text(one)}: {cel_text(right)}" for one, right in formats.SPELLINGS.items()) + "}"
    lower = "self.lowerAscii()"
    wrong = [name for name in (*formats.SPELLINGS, formats.NEUTRAL) if formats.matches(formats.ARCHITECTURE, name)]
    advice = (
        f"{lower} == '{formats.NEUTRAL}' ? {cel_text(formats.NEUTRAL_ADVICE)} : {lower} in {others} ? {others}[{lower}]"
        f" : {lower}.matches('{formats.ARCHITECTURE}') ? {lower} : {cel_text(formats.ARCHITECTURE_ADVICE)}"
    )
    expression = f"'{field}: \\'' + self + '\\' is not an architecture as Go names it; write ' + ({advice})"
    allowed = f"self.matches('{formats.ARCHITECTURE}') && !(self in [{', '.join(map(cel_text, wrong))}])"
    return text(description=description, max_length=63, rules=[rule(allowed, message_expression=expression)])


def architecture_names(
    field: str, description: str, *, list_type: str = "set", least: int | None = None, default: tuple[str, ...] = ()
) -> Schema:
    """A list of architectures."""
    return array(
        architecture_name(field),
        description=description,
        list_type=list_type,
        min_items=least,
        max_items=formats.MAX_ARCHITECTURES,
        default=default or None,
    )


def object_name(description: str) -> Schema:
    """The name of an object."""
    return text(description=description, min_length=1, max_length=NAME_LENGTH, pattern=DNS_SUBDOMAIN)


def data_key(description: str) -> Schema:
    """A key of a ConfigMap or Secret."""
    return text(description=description, min_length=1, max_length=NAME_LENGTH, pattern=formats.DATA_KEY)


def name_reference(description: str) -> Schema:
    """An object of the same namespace, by its name."""
    return obj({"name": object_name("Its name.")}, description=description, required=("name",))


def image(description: str) -> Schema:
    """An image reference; what it means is for its reader to tell."""
    return text(description=description, min_length=1, max_length=REFERENCE_LENGTH, pattern=r"^[!-~]+$")


def bounded_texts(description: str, most: int) -> Schema:
    """Texts by name, so many at most."""
    return text_map(description, most=most) | {"additionalProperties": text(max_length=formats.ARGUMENT_LENGTH)}


# -- what is built -----------------------------------------------------------------------------------------------------


def source() -> Schema:
    """``spec.source``: everything in it is part of the keys."""
    containerfile, reference = _containerfile("spec.source.containerfile"), _containerfile_from()
    anywhere = (
        "has(self.containerfile) || has(self.containerfileFrom)"
        " || (has(self.overrides) && self.overrides.exists(o, has(o.containerfile) || has(o.containerfileFrom)))"
    )
    override = obj(
        {
            "architecture": architecture_name("spec.source.overrides[].architecture", "The architecture it is for."),
            "containerfile": _containerfile("spec.source.overrides[].containerfile"),
            "containerfileFrom": reference,
            "buildArgs": _arguments("spec.source.overrides[].buildArgs", "Arguments instead of the common ones."),
        },
        required=("architecture",),
        rules=[_one_containerfile("spec.source.overrides[]")],
    )
    secret = obj(
        {
            "id": text(
                description="How RUN --mount=type=secret names it.",
                min_length=1,
                max_length=formats.TOKEN_LENGTH,
                pattern=formats.SECRET_ID,
            ),
            "secret": obj(
                {"name": object_name("Name of the Secret."), "key": data_key("The key in it.")},
                description="Where it comes from, in the same namespace.",
                required=("name", "key"),
            ),
            "rebuildOnChange": boolean(description="Whether other content makes a new image.", default=False),
        },
        required=("id", "secret"),
    )
    return obj(
        {
            "containerfile": containerfile,
            "containerfileFrom": reference,
            "overrides": array(
                override,
                description="What single architectures have instead of the common Containerfile and arguments.",
                list_type="map",
                map_keys=("architecture",),
                max_items=formats.MAX_ARCHITECTURES,
            ),
            "buildArgs": _arguments(
                "spec.source.buildArgs", "Arguments of the build. They are not secrets: images and Jobs show them."
            ),
            "target": text(
                description="The stage that is the image; absent: the last one.", max_length=128, pattern=formats.STAGE
            ),
            "context": _context(),
            "secrets": array(
                secret,
                description="Files that RUN --mount=type=secret sees, and no image contains.",
                list_type="map",
                map_keys=("id",),
                max_items=formats.SECRETS,
            ),
        },
        description="What is built.",
        rules=[rule(anywhere, formats.NO_CONTAINERFILE), _one_containerfile("spec.source")],
    )


def _containerfile(field: str) -> Schema:
    short_enough = f"size(bytes(self)) <= {formats.CONTAINERFILE_BYTES}"
    return text(
        description="The text of a Containerfile.",
        min_length=1,
        max_length=formats.CONTAINERFILE_BYTES,
        rules=[rule(short_enough, f"{field} {formats.CONTAINERFILE_TOO_LONG}")],
    )


def _containerfile_from() -> Schema:
    key = data_key("The key in it.") | {"default": formats.CONTAINERFILE_KEY}
    return obj(
        {"name": object_name("Name of the ConfigMap."), "key": key},
        description="A ConfigMap of the same namespace with the Containerfile.",
        required=("name",),
    )


def _one_containerfile(field: str) -> Schema:
    return rule("!(has(self.containerfile) && has(self.containerfileFrom))", f"{field} {formats.TWO_CONTAINERFILES}")


def _arguments(field: str, description: str) -> Schema:
    automatic = ", ".join(map(cel_text, formats.AUTOMATIC_ARGUMENTS))
    value = text(
        max_length=formats.ARGUMENT_LENGTH,
        rules=[rule(f"self.matches({cel_text(formats.ARGUMENT_VALUE)})", f"{field}.* {formats.ARGUMENT_LINES}")],
    )
    schema = text_map(description, most=formats.ARGUMENTS) | {"additionalProperties": value}
    return schema | {
        "x-kubernetes-validations": [
            rule(f"self.all(name, name.matches('{formats.ARGUMENT_NAME}'))", f"{field} {formats.ARGUMENT_NAMES}"),
            rule(f"!self.exists(name, name in [{automatic}])", f"{field} {formats.AUTOMATIC}"),
        ]
    }


def _context() -> Schema:
    def needs(kind: str, member: str) -> Schema:
        return rule(
            f"(has(self.type) && self.type == '{kind}') == has(self.{member})", formats.union_member(kind, member)
        )

    git = obj(
        {
            "url": text(
                description="Where the repository is, by http or https.",
                max_length=2048,
                rules=[
                    rule(f"self.matches('{formats.HTTP}')", formats.URL_SCHEME),
                    rule(f"!self.matches({cel_text(formats.USER_INFO)})", formats.URL_USER),
                    rule(
                        f"!self.matches('{formats.HTTP}') || self.matches({cel_text(formats.USER_INFO)})"
                        f" || self.matches({cel_text(formats.GIT_URL)})",
                        formats.URL_FORM,
                    ),
                ],
            ),
            "commit": text(
                description="The commit in full, 40 or 64 hex digits.",
                max_length=1024,
                rules=[rule(f"self.matches('{formats.COMMIT}')", formats.COMMIT_FORM)],
            ),
            "directory": text(
                description="The directory in it that is the context; absent: the whole repository.",
                max_length=1024,
                rules=[rule("!self.startsWith('/') && !self.contains('..')", formats.DIRECTORY_FORM)],
            ),
            "credentials": name_reference("A Secret of the same namespace with the credentials for the repository."),
        },
        description="A commit of a Git repository.",
        required=("url", "commit"),
    )
    return obj(
        {
            "type": text(
                description="None: there are no files besides the Containerfile; ConfigMap: the keys of a ConfigMap; "
                "Git: a commit; Image: an archive in a registry, as polyarch build run --context makes it.",
                enum=get_args(formats.ContextType),
                default="None",
            ),
            "configMap": name_reference("A ConfigMap of the same namespace, each key of which is a file."),
            "git": git,
            "image": obj(
                {
                    "reference": image("The archive in a registry, by its digest.")
                    | {
                        "x-kubernetes-validations": [
                            rule(f"self.matches('{formats.BY_DIGEST}')", formats.IMAGE_BY_DIGEST),
                        ]
                    }
                },
                description="An archive in a registry.",
                required=("reference",),
            ),
        },
        description="The files that COPY and ADD see.",
        rules=[needs(kind, member) for kind, member in formats.MEMBERS.items()],
        default={},
    )


def base_images() -> Schema:
    """``spec.baseImages``."""
    substitute = obj(
        {
            "from": image("What the Containerfile names."),
            "to": image("What is pulled instead."),
        },
        required=("from", "to"),
    )
    interval = "!(has(self.policy) && self.policy == 'Interval') || has(self.interval)"
    return obj(
        {
            "policy": text(
                description="When the tags of base images are looked up again: Never, with every build of something "
                "else (OnBuild), or every spec.baseImages.interval, which builds what has moved.",
                enum=get_args(formats.BasePolicy),
                default=BaseImages().policy,
            ),
            "interval": duration(
                "spec.baseImages.interval",
                *formats.INTERVAL,
                description="With policy Interval, how often.",
            ),
            "preflight": text(
                description="Whether a base image that lacks an architecture ends the build before it starts "
                "(Required) or is only warned of (Warn).",
                enum=get_args(formats.Preflight),
                default=BaseImages().preflight,
            ),
            "substitute": array(
                substitute,
                description="Other images to pull where the Containerfile names these.",
                list_type="map",
                map_keys=("from",),
                max_items=formats.SUBSTITUTES,
            ),
        },
        description="The images that the build begins with.",
        rules=[rule(interval, formats.NEEDS_INTERVAL)],
        default={},
    )


# -- spec of an ImageBuild ---------------------------------------------------------------------------------------------


DEFAULTS: Final = ImageBuildSpec()


def image_build_spec() -> Schema:
    several_without_index = (
        "!(has(self.output.index) && self.output.index == 'Never' && has(self.architectures)"
        " && has(self.architectures.list) && size(self.architectures.list) > 1)"
    )
    return obj(
        {
            "source": source(),
            "baseImages": base_images(),
            "architectures": _architectures(),
            "output": _output(),
            "strategy": text(
                description="Native: each image is built on nodes of its architecture; PreferNative: elsewhere, with "
                "emulation, if there are none; Emulated: on nodes of emulation.hosts.",
                enum=get_args(formats.Strategy),
                default=DEFAULTS.strategy,
            ),
            "emulation": obj(
                {
                    "hosts": architecture_names(
                        "spec.emulation.hosts",
                        "Architectures whose nodes may emulate others, the preferred one first.",
                        list_type="atomic",
                        least=1,
                        default=formats.EMULATION_HOSTS,
                    )
                },
                description="Where images are built that are not built on their own architecture.",
                default={},
            ),
            "failFast": boolean(
                description="Whether the first failed architecture cancels the others, which else end by themselves.",
                default=DEFAULTS.fail_fast,
            ),
            "retries": integer(
                description="How many pods of an architecture may fail by themselves and are replaced.",
                minimum=formats.RETRIES[0],
                maximum=formats.RETRIES[1],
                default=DEFAULTS.retries,
            ),
            "timeouts": _timeouts(),
            "scheduling": _scheduling(),
            "builder": _builder(),
            "reproducible": obj(
                {
                    "enabled": boolean(
                        description="Whether files and history get a fixed time, so that equal inputs give equal "
                        "images.",
                        default=DEFAULTS.reproducible.enabled,
                    ),
                    "timestamp": integer(
                        description="That time, in seconds since 1970.",
                        format="int64",
                        minimum=0,
                        default=DEFAULTS.reproducible.timestamp,
                    ),
                },
                description="Whether equal inputs give equal images.",
                default={},
            ),
            "registryAccess": text(
                description="Who looks at registries and pushes the index: the controller, or a Job, where the "
                "controller has no way there or must not read push secrets.",
                enum=get_args(formats.RegistryAccess),
                default=DEFAULTS.registry_access,
            ),
            "history": _history(),
            "rebuild": _rebuild(),
            "suspend": boolean(
                description="Whether nothing new is started; what runs goes on.", default=DEFAULTS.suspend
            ),
        },
        description="What is built, for which architectures, and where it goes.",
        required=("source", "output"),
        rules=[rule(several_without_index, formats.INDEX_NEEDED)],
    )


def _architectures() -> Schema:
    usual = DEFAULTS.architectures
    explicit = "(has(self.mode) && self.mode == 'Explicit')"
    return obj(
        {
            "mode": text(
                description="Auto: those of the nodes; Explicit: spec.architectures.list.",
                enum=get_args(formats.ArchitectureMode),
                default=usual.mode,
            ),
            "list": architecture_names("spec.architectures.list", "With mode Explicit, the architectures.", least=1),
            "include": architecture_names("spec.architectures.include", "With mode Auto, also these."),
            "exclude": architecture_names("spec.architectures.exclude", "With mode Auto, none of these."),
            "nodeSelector": checked_label_selector(
                "spec.architectures.nodeSelector",
                "With mode Auto, the nodes that will run the image, not those where it is built; absent: all linux "
                "nodes that are not of the control plane.",
            ),
            "settle": duration(
                "spec.architectures.settle",
                *formats.SETTLE,
                description="How old a node of a new architecture has to be before the architecture is built for.",
                default=formats.BuildTimes.of(DEFAULTS).settle,
            ),
            "empty": text(
                description="If no node matches: take all worker nodes, or wait.",
                enum=get_args(formats.WhenEmpty),
                default=usual.empty,
            ),
            "onNewArchitecture": text(
                description="Whether an architecture that joins is built at once, or with the next build.",
                enum=get_args(formats.OnNewArchitecture),
                default=usual.on_new_architecture,
            ),
        },
        description="Which architectures the image is built for.",
        rules=[
            rule(f"!{explicit} || has(self.list)", formats.NEEDS_LIST),
            rule(f"{explicit} || !has(self.list)", formats.LIST_FORBIDDEN),
            rule(f"!{explicit} || !(has(self.include) || has(self.exclude))", formats.ONLY_AUTO),
            rule(
                "!(has(self.include) && has(self.exclude)) || !self.include.exists(a, a in self.exclude)",
                formats.OVERLAP,
            ),
        ],
        default={},
    )


def _output() -> Schema:
    usual = DEFAULTS.output
    return obj(
        {
            "repository": _repository("spec.output.repository", "Where the image goes: HOST/NAME, without a tag."),
            "tags": array(
                text(max_length=256, rules=[rule(f"self.matches('{formats.TAG}')", formats.TAG_FORM)]),
                description="Tags that are moved to the image once it is complete.",
                list_type="set",
                max_items=formats.TAGS,
            ),
            "pushSecret": name_reference(
                "A Secret (kubernetes.io/dockerconfigjson) of the same namespace, to push with."
            ),
            "pullSecrets": array(
                name_reference(""),
                description="Such Secrets to pull base images with.",
                list_type="map",
                map_keys=("name",),
                max_items=formats.PULL_SECRETS,
            ),
            "format": text(
                description="Format of images and index.", enum=get_args(formats.ImageFormat), default=usual.format
            ),
            "labels": bounded_texts("Labels of the images.", formats.LABELS),
            "annotations": bounded_texts("Annotations of the index.", formats.ANNOTATIONS),
            "index": text(
                description="Auto: an index if there are several architectures; Always: also for one; Never: one image "
                "alone.",
                enum=get_args(formats.IndexMode),
                default=usual.index,
            ),
            "attestations": text(
                description="Whether attestations that come with the images go into the index.",
                enum=get_args(formats.Attestations),
                default=usual.attestations,
            ),
            "stagingRepository": _repository(
                "spec.output.stagingRepository", "Where the images wait for each other; absent: in the repository."
            ),
            "archTags": text(
                description="Whether the image of each architecture keeps a tag, without which the clean-up of many "
                "registries deletes it.",
                enum=get_args(formats.ArchTags),
                default=usual.arch_tags,
            ),
            "partial": obj(
                {
                    "required": architecture_names(
                        "spec.output.partial.required", "Architectures without which nothing is published.", least=1
                    )
                },
                description="Publish an index of what succeeded; absent: all architectures or nothing.",
                required=("required",),
            ),
        },
        description="Where the image goes, and in which form.",
        required=("repository",),
        rules=[
            rule(
                "!has(self.stagingRepository) || self.stagingRepository != self.repository",
                formats.SAME_STAGING,
            ),
            rule(
                "!(has(self.format) && self.format == 'Docker' && has(self.annotations) && size(self.annotations) > 0)",
                formats.LIST_ANNOTATIONS,
            ),
        ],
    )


def _repository(field: str, description: str) -> Schema:
    named = f"self.matches({cel_text(formats.HOST)})"
    selects = f"self.matches({cel_text(formats.TAGGED)})"
    return text(
        description=description,
        max_length=formats.REPOSITORY_LENGTH,
        rules=[
            rule(named, f"{field} {formats.NEEDS_HOST}"),
            rule(f"!{named} || !{selects}", f"{field} {formats.HAS_SELECTOR}"),
            rule(
                f"!{named} || {selects} || self.matches({cel_text(formats.REPOSITORY)})",
                f"{field} {formats.REPOSITORY_FORM}",
            ),
        ],
    )


def _timeouts() -> Schema:
    usual = formats.BuildTimes.of(DEFAULTS)
    meanings = {
        "preflight": (usual.preflight, "Looking up base images."),
        "nodeWait": (usual.node_wait, "Waiting for a node, or for a quota."),
        "build": (usual.build, "Building one architecture."),
        "index": (usual.index, "Assembling and pushing the index."),
    }
    return obj(
        {
            name: duration(f"spec.timeouts.{name}", *formats.TIMEOUT, description=meaning, default=default)
            for name, (default, meaning) in meanings.items()
        },
        description="How long each part may take.",
        default={},
    )


def _scheduling() -> Schema:
    labels = ", ".join(map(cel_text, formats.PLATFORM_LABELS))
    node_selector = text_map("Labels of the nodes where it is built, besides its architecture.", most=16)
    amounts: Schema = {"type": "object", "additionalProperties": quantity(), "maxProperties": 16}
    entry = obj(
        {
            "architecture": architecture_name(
                "spec.scheduling.perArchitecture[].architecture", "The architecture it is for."
            ),
            "nodeSelector": node_selector
            | {
                "x-kubernetes-validations": [
                    rule(f"!self.exists(key, key in [{labels}])", formats.PLATFORM_SELECTED),
                ]
            },
            "tolerations": array(
                toleration(
                    operators=("Exists", "Equal"),
                    effects=EFFECTS,
                    bounded=True,
                    field="spec.scheduling.perArchitecture[].tolerations[]",
                ),
                description="Taints that its pod tolerates, besides those by architecture.",
                max_items=16,
            ),
            "resources": obj(
                {
                    "requests": amounts | {"description": "What the build asks of its node."},
                    "limits": amounts | {"description": "What it may use."},
                },
                description="Resources of the build.",
            ),
            "buildTimeout": duration(
                "spec.scheduling.perArchitecture[].buildTimeout",
                *formats.TIMEOUT,
                description="Instead of spec.timeouts.build.",
            ),
            "runtimeClassName": object_name("RuntimeClass of its pod."),
            "priorityClassName": object_name("PriorityClass of its pod."),
        },
        required=("architecture",),
    )
    return obj(
        {
            "maxParallel": integer(
                description="Architectures that build at the same time; 0: all.",
                minimum=0,
                default=DEFAULTS.scheduling.max_parallel,
            ),
            "perArchitecture": array(
                entry,
                description="What single architectures need.",
                list_type="map",
                map_keys=("architecture",),
                max_items=formats.MAX_ARCHITECTURES,
            ),
        },
        description="Where and how images are built.",
        default={},
    )


def _builder() -> Schema:
    usual = DEFAULTS.builder
    return obj(
        {
            "image": image("The image that builds: it has sh and buildah; absent: that of the installation."),
            "pushImage": image("The image that pushes: polyarch's own; absent: that of the installation."),
            "serviceAccount": object_name("ServiceAccount of the pods; they get no token of it.")
            | {"default": usual.service_account},
            "securityProfile": text(
                description="UserNamespace: root in a user namespace of the pod; Rootless: root in one that the build "
                "makes; Privileged: only where the builder allows it. Auto: UserNamespace where all nodes of the "
                "architecture have user namespaces of pods, else Rootless.",
                enum=get_args(formats.SecurityProfileName),
                default=usual.security_profile,
            ),
        },
        description="Who builds, and with which rights.",
        default={},
    )


def _history() -> Schema:
    usual = DEFAULTS.history
    kept = {"successful": (formats.SUCCESSFUL, usual.successful), "failed": (formats.FAILED, usual.failed)}
    return obj(
        {
            **{
                name: integer(
                    description=f"How many {name} ImageBuildRuns are kept.",
                    minimum=bounds[0],
                    maximum=bounds[1],
                    default=default,
                )
                for name, (bounds, default) in kept.items()
            },
            "images": text(
                description="Whether the images of ImageBuildRuns that are not kept stay in the registry, or are "
                "deleted once nothing refers to them.",
                enum=get_args(formats.KeptImages),
                default=usual.images,
            ),
        },
        description="What is kept of former builds.",
        default={},
    )


def _rebuild() -> Schema:
    with_token = (
        "!has(self.architectures) || size(self.architectures) == 0 || (has(self.token) && size(self.token) > 0)"
    )
    return obj(
        {
            "token": text(
                description="A value that it did not have before asks for a rebuild.",
                max_length=formats.TOKEN_LENGTH,
            ),
            "architectures": architecture_names(
                "spec.rebuild.architectures", "Which architectures are rebuilt; absent: all, or those that failed."
            ),
        },
        description="A wish to build again what has not changed.",
        rules=[rule(with_token, formats.NEEDS_TOKEN)],
        default={},
    )


# -- definitions -------------------------------------------------------------------------------------------------------


KEY: Final = "^[0-9a-f]{64}$"
DIGEST: Final = "^sha(256|384|512):[0-9a-f]{64,128}$"
MESSAGE: Final = 1024
"""Characters of a message about one architecture."""
IMMUTABLE: Final = (
    "spec of an ImageBuildRun never changes: change the ImageBuild that it belongs to, and another run is made"
)
MAX_PINS: Final = 1024


def crds() -> tuple[Schema, ...]:
    """Every CustomResourceDefinition of builds."""
    return image_builds(), image_build_runs()


def image_builds() -> Schema:
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
    most = formats.MAX_ARCHITECTURES
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
                max_items=MAX_PINS,
            ),
            "repository": text(description="Where the result goes.", max_length=255),
            "format": text(
                description="Format of images and index.", enum=get_args(formats.ImageFormat), default="OCI"
            ),
            "index": text(description="Whether an index is made.", enum=get_args(formats.IndexMode), default="Auto"),
            "indexAnnotations": text_map("Annotations of the index.", most=formats.ANNOTATIONS)
            | {"additionalProperties": text(max_length=formats.ARGUMENT_LENGTH)},
            "attestations": text(
                description="Whether attestations go into the index.",
                enum=get_args(formats.Attestations),
                default="Drop",
            ),
            "required": _names("Architectures without which nothing is published; absent: all.", most=most),
            "forced": obj(
                {
                    "token": text(description="The token.", max_length=formats.TOKEN_LENGTH),
                    "architectures": _names("Architectures that are built in any case.", most=most),
                },
                description="The wish for a rebuild that it answers.",
            ),
            "builder": obj(
                {
                    "image": image("The image that builds, as it is named."),
                    "digest": text(description="What that led to.", max_length=160, pattern=DIGEST),
                    "pushImage": image("The image that pushes, as it is named."),
                    "pushDigest": text(description="What that led to.", max_length=160, pattern=DIGEST),
                },
                description="What its Jobs run. Without a digest each node pulls what the name leads to then.",
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
            "phase": text(description="How far it is.", enum=get_args(formats.Phase)),
            "key": text(description="Hash of everything that its image depends on."),
            "execution": text(
                description="Whether it is built on its own architecture.", enum=get_args(formats.BuiltBy)
            ),
            "host": text(description="The architecture of the nodes where it is built."),
            "profile": text(description="The security profile of its pod, and why it was chosen."),
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
            "phase": text(description="How far it is.", enum=get_args(formats.ExecutionPhase)),
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
