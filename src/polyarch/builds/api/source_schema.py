"""The schema of what is built: ``spec.source`` and ``spec.baseImages`` of an ImageBuild (BD-010, BD-012).

Words, bounds and forms are those of ``settings`` and ``forms``. A default is itself checked by the rules, before its
members have theirs: hence ``has()`` also of members with a default. Pure.
"""

from typing import get_args

from polyarch.builds.api import forms, settings
from polyarch.builds.api.fields import (
    architecture_name,
    at_least,
    data_key,
    image,
    name_reference,
    object_name,
)
from polyarch.builds.api.resources import BaseImages
from polyarch.kube.schema import Schema, array, boolean, cel_text, obj, rule, text, text_map


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
                max_length=settings.TOKEN_LENGTH,
                pattern=forms.SECRET_ID,
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
                max_items=settings.MOST_ARCHITECTURES,
            ),
            "buildArgs": _arguments(
                "spec.source.buildArgs", "Arguments of the build. They are not secrets: images and Jobs show them."
            ),
            "target": text(
                description="The stage that is the image; absent: the last one.", max_length=128, pattern=forms.STAGE
            ),
            "context": _context(),
            "secrets": array(
                secret,
                description="Files that RUN --mount=type=secret sees, and no image contains.",
                list_type="map",
                map_keys=("id",),
                max_items=settings.SECRETS,
            ),
        },
        description="What is built.",
        rules=[rule(anywhere, forms.NO_CONTAINERFILE), _one_containerfile("spec.source")],
    )


def _containerfile(field: str) -> Schema:
    short_enough = f"size(bytes(self)) <= {settings.CONTAINERFILE_BYTES}"
    return text(
        description="The text of a Containerfile.",
        min_length=1,
        max_length=settings.CONTAINERFILE_BYTES,
        rules=[rule(short_enough, f"{field} {forms.CONTAINERFILE_TOO_LONG}")],
    )


def _containerfile_from() -> Schema:
    key = data_key("The key in it.") | {"default": settings.CONTAINERFILE_KEY}
    return obj(
        {"name": object_name("Name of the ConfigMap."), "key": key},
        description="A ConfigMap of the same namespace with the Containerfile.",
        required=("name",),
    )


def _one_containerfile(field: str) -> Schema:
    return rule("!(has(self.containerfile) && has(self.containerfileFrom))", f"{field} {forms.TWO_CONTAINERFILES}")


def _arguments(field: str, description: str) -> Schema:
    automatic = ", ".join(map(cel_text, forms.AUTOMATIC_ARGUMENTS))
    value = text(
        max_length=settings.ARGUMENT_LENGTH,
        rules=[rule(f"self.matches({cel_text(forms.ARGUMENT_VALUE)})", f"{field}.* {forms.ARGUMENT_LINES}")],
    )
    schema = text_map(description, most=settings.ARGUMENTS) | {"additionalProperties": value}
    return schema | {
        "x-kubernetes-validations": [
            rule(f"self.all(name, name.matches('{forms.ARGUMENT_NAME}'))", f"{field} {forms.ARGUMENT_NAMES}"),
            rule(f"!self.exists(name, name in [{automatic}])", f"{field} {forms.AUTOMATIC}"),
        ]
    }


def _context() -> Schema:
    def needs(kind: str, member: str) -> Schema:
        return rule(
            f"(has(self.type) && self.type == '{kind}') == has(self.{member})", forms.union_member(kind, member)
        )

    git = obj(
        {
            "url": text(
                description="Where the repository is, by http or https.",
                max_length=2048,
                rules=[
                    rule(f"self.matches('{forms.HTTP}')", forms.URL_SCHEME),
                    rule(f"!self.matches({cel_text(forms.USER_INFO)})", forms.URL_USER),
                    rule(
                        f"!self.matches('{forms.HTTP}') || self.matches({cel_text(forms.USER_INFO)})"
                        f" || self.matches({cel_text(forms.GIT_URL)})",
                        forms.URL_FORM,
                    ),
                ],
            ),
            "commit": text(
                description="The commit in full, 40 or 64 hex digits.",
                max_length=1024,
                rules=[rule(f"self.matches('{forms.COMMIT}')", forms.COMMIT_FORM)],
            ),
            "directory": text(
                description="The directory in it that is the context; absent: the whole repository.",
                max_length=1024,
                rules=[rule("!self.startsWith('/') && !self.contains('..')", forms.DIRECTORY_FORM)],
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
                enum=get_args(settings.ContextType),
                default="None",
            ),
            "configMap": name_reference("A ConfigMap of the same namespace, each key of which is a file."),
            "git": git,
            "image": obj(
                {
                    "reference": image("The archive in a registry, by its digest.")
                    | {
                        "x-kubernetes-validations": [
                            rule(f"self.matches('{forms.BY_DIGEST}')", forms.IMAGE_BY_DIGEST),
                        ]
                    }
                },
                description="An archive in a registry.",
                required=("reference",),
            ),
        },
        description="The files that COPY and ADD see.",
        rules=[needs(kind, member) for kind, member in forms.MEMBERS.items()],
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
                enum=get_args(settings.BasePolicy),
                default=BaseImages().policy,
            ),
            "interval": at_least(
                "spec.baseImages.interval", settings.SHORTEST_INTERVAL, "With policy Interval, how often."
            ),
            "preflight": text(
                description="Whether a base image that lacks an architecture ends the build before it starts "
                "(Required) or is only warned of (Warn).",
                enum=get_args(settings.Preflight),
                default=BaseImages().preflight,
            ),
            "substitute": array(
                substitute,
                description="Other images to pull where the Containerfile names these.",
                list_type="map",
                map_keys=("from",),
                max_items=settings.SUBSTITUTES,
            ),
        },
        description="The images that the build begins with.",
        rules=[rule(interval, forms.NEEDS_INTERVAL)],
        default={},
    )
