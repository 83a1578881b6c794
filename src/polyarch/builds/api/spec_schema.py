"""The schema of an ImageBuild's spec: every field with its limits, default and meaning (BD-010, BD-012).

Words, bounds and forms are those of ``settings`` and ``forms``. A default is itself checked by the rules, before its
members have theirs: hence ``has()`` also of members with a default. Pure.
"""

from typing import Final, get_args

from polyarch.builds.api import forms, settings
from polyarch.builds.api.fields import (
    architecture_name,
    architecture_names,
    at_least,
    bounded_texts,
    image,
    name_reference,
    object_name,
)
from polyarch.builds.api.resources import ImageBuildSpec
from polyarch.builds.api.source_schema import base_images, source
from polyarch.kube.schema import (
    Schema,
    array,
    boolean,
    cel_text,
    checked_label_selector,
    duration,
    integer,
    obj,
    quantity,
    rule,
    text,
    text_map,
)
from polyarch.tolerations import EFFECTS

DEFAULTS: Final = ImageBuildSpec()


def image_build_spec() -> Schema:
    """BD-010."""
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
                enum=get_args(settings.Strategy),
                default=DEFAULTS.strategy,
            ),
            "emulation": obj(
                {
                    "hosts": architecture_names(
                        "spec.emulation.hosts",
                        "Architectures whose nodes may emulate others, the preferred one first.",
                        list_type="atomic",
                        least=1,
                        default=settings.EMULATION_HOSTS,
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
                minimum=settings.RETRIES[0],
                maximum=settings.RETRIES[1],
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
                enum=get_args(settings.RegistryAccess),
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
        rules=[rule(several_without_index, forms.INDEX_NEEDED)],
    )


def _architectures() -> Schema:
    usual = DEFAULTS.architectures
    explicit = "(has(self.mode) && self.mode == 'Explicit')"
    return obj(
        {
            "mode": text(
                description="Auto: those of the nodes; Explicit: spec.architectures.list.",
                enum=get_args(settings.ArchitectureMode),
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
                *settings.SETTLE,
                description="How old a node of a new architecture has to be before the architecture is built for.",
                default=settings.BuildTimes.of(DEFAULTS).settle,
            ),
            "empty": text(
                description="If no node matches: take all worker nodes, or wait.",
                enum=get_args(settings.WhenEmpty),
                default=usual.empty,
            ),
            "onNewArchitecture": text(
                description="Whether an architecture that joins is built at once, or with the next build.",
                enum=get_args(settings.OnNewArchitecture),
                default=usual.on_new_architecture,
            ),
        },
        description="Which architectures the image is built for.",
        rules=[
            rule(f"!{explicit} || has(self.list)", forms.NEEDS_LIST),
            rule(f"{explicit} || !has(self.list)", forms.LIST_FORBIDDEN),
            rule(f"!{explicit} || !(has(self.include) || has(self.exclude))", forms.ONLY_AUTO),
            rule(
                "!(has(self.include) && has(self.exclude)) || !self.include.exists(a, a in self.exclude)",
                forms.OVERLAP,
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
                text(max_length=256, rules=[rule(f"self.matches('{forms.TAG}')", forms.TAG_FORM)]),
                description="Tags that are moved to the image once it is complete.",
                list_type="set",
                max_items=settings.TAGS,
            ),
            "pushSecret": name_reference(
                "A Secret (kubernetes.io/dockerconfigjson) of the same namespace, to push with."
            ),
            "pullSecrets": array(
                name_reference(""),
                description="Such Secrets to pull base images with.",
                list_type="map",
                map_keys=("name",),
                max_items=settings.PULL_SECRETS,
            ),
            "format": text(
                description="Format of images and index.", enum=get_args(settings.ImageFormat), default=usual.format
            ),
            "labels": bounded_texts("Labels of the images.", settings.LABELS),
            "annotations": bounded_texts("Annotations of the index.", settings.ANNOTATIONS),
            "index": text(
                description="Auto: an index if there are several architectures; Always: also for one; Never: one image "
                "alone.",
                enum=get_args(settings.IndexMode),
                default=usual.index,
            ),
            "attestations": text(
                description="Whether attestations that come with the images go into the index.",
                enum=get_args(settings.Attestations),
                default=usual.attestations,
            ),
            "stagingRepository": _repository(
                "spec.output.stagingRepository", "Where the images wait for each other; absent: in the repository."
            ),
            "archTags": text(
                description="Whether the image of each architecture keeps a tag, without which the clean-up of many "
                "registries deletes it.",
                enum=get_args(settings.ArchTags),
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
                forms.SAME_STAGING,
            ),
            rule(
                "!(has(self.format) && self.format == 'Docker' && has(self.annotations) && size(self.annotations) > 0)",
                forms.LIST_ANNOTATIONS,
            ),
        ],
    )


def _repository(field: str, description: str) -> Schema:
    named = f"self.matches({cel_text(forms.HOST)})"
    selects = f"self.matches({cel_text(forms.TAGGED)})"
    return text(
        description=description,
        max_length=forms.REPOSITORY_LENGTH,
        rules=[
            rule(named, f"{field} {forms.NEEDS_HOST}"),
            rule(f"!{named} || !{selects}", f"{field} {forms.HAS_SELECTOR}"),
            rule(
                f"!{named} || {selects} || self.matches({cel_text(forms.REPOSITORY)})",
                f"{field} {forms.REPOSITORY_FORM}",
            ),
        ],
    )


def _timeouts() -> Schema:
    usual = settings.BuildTimes.of(DEFAULTS)
    meanings = {
        "preflight": (usual.preflight, "Looking up base images."),
        "nodeWait": (usual.node_wait, "Waiting for a node, or for a quota."),
        "build": (usual.build, "Building one architecture."),
        "index": (usual.index, "Assembling and pushing the index."),
    }
    return obj(
        {
            name: at_least(f"spec.timeouts.{name}", settings.SHORTEST_TIMEOUT, meaning, default=default)
            for name, (default, meaning) in meanings.items()
        },
        description="How long each part may take.",
        default={},
    )


def _scheduling() -> Schema:
    labels = ", ".join(map(cel_text, forms.PLATFORM_LABELS))
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
                    rule(f"!self.exists(key, key in [{labels}])", forms.PLATFORM_SELECTED),
                ]
            },
            "tolerations": array(
                _toleration(), description="Taints that its pod tolerates, besides those by architecture.", max_items=16
            ),
            "resources": obj(
                {
                    "requests": amounts | {"description": "What the build asks of its node."},
                    "limits": amounts | {"description": "What it may use."},
                },
                description="Resources of the build.",
            ),
            "buildTimeout": at_least(
                "spec.scheduling.perArchitecture[].buildTimeout",
                settings.SHORTEST_TIMEOUT,
                "Instead of spec.timeouts.build.",
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
                max_items=settings.MOST_ARCHITECTURES,
            ),
        },
        description="Where and how images are built.",
        default={},
    )


def _toleration() -> Schema:
    keyed = "(has(self.key) && size(self.key) > 0) || (has(self.operator) && self.operator == 'Exists')"
    exists = "has(self.operator) && self.operator == 'Exists' && has(self.value) && size(self.value) > 0"
    eviction = "!has(self.tolerationSeconds) || (has(self.effect) && self.effect == 'NoExecute')"
    field = "spec.scheduling.perArchitecture[].tolerations[]"
    return obj(
        {
            "key": text(description="Key of the taint; absent with operator Exists: every taint.", max_length=317),
            "operator": text(description="Absent: Equal.", enum=("Exists", "Equal")),
            "value": text(description="Value of the taint.", max_length=63),
            "effect": text(description="Effect of the taint; absent: every effect.", enum=EFFECTS),
            "tolerationSeconds": integer(description="How long a NoExecute taint is tolerated.", format="int64"),
        },
        rules=[
            rule(keyed, f"{field} {forms.KEYLESS}"),
            rule(f"!({exists})", f"{field} {forms.EXISTS_VALUE}"),
            rule(eviction, f"{field} {forms.SECONDS_EFFECT}"),
        ],
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
                description="UserNamespace: root in a user namespace; Rootless: user 1000; Privileged: only where the "
                "builder allows it. Auto: UserNamespace where all nodes of the architecture have user namespaces, else "
                "Rootless.",
                enum=get_args(settings.SecurityProfile),
                default=usual.security_profile,
            ),
        },
        description="Who builds, and with which rights.",
        default={},
    )


def _history() -> Schema:
    usual = DEFAULTS.history
    kept = {"successful": (settings.SUCCESSFUL, usual.successful), "failed": (settings.FAILED, usual.failed)}
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
                enum=get_args(settings.KeptImages),
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
                max_length=settings.TOKEN_LENGTH,
            ),
            "architectures": architecture_names(
                "spec.rebuild.architectures", "Which architectures are rebuilt; absent: all, or those that failed."
            ),
        },
        description="A wish to build again what has not changed.",
        rules=[rule(with_token, forms.NEEDS_TOKEN)],
        default={},
    )
