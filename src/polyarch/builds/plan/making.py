"""Orders: what the Job of one architecture is made from, once everything about it is decided (S4). Pure."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.builds.architectures.hosts import auto_profile, scheduling_of
from polyarch.builds.executions.target import Target
from polyarch.builds.facts.facts import Facts, Question
from polyarch.builds.facts.problem import Problem
from polyarch.builds.jobs.index_outcome import IndexWork
from polyarch.builds.jobs.order import ArchitectureOrder, Identity, Image, ProfileName
from polyarch.builds.jobs.registry_jobs import RegistryOrder
from polyarch.builds.jobs.security import forbidden_by_pod_security
from polyarch.builds.keys.inputs import Base, Inputs
from polyarch.oci.reference import parse

LARGEST_INPUTS: Final = 1024 * 1024
"""Bytes that API servers take in one ConfigMap."""


class Making(msgspec.Struct, frozen=True, kw_only=True):
    """The Job of one architecture, as far as the planner knows it."""

    facts: Facts
    target: Target
    inputs: Inputs
    architecture: str
    execution: str
    """Name of the execution that the Job is for."""
    owner: dict[str, Any]
    """Reference to that execution."""
    job: str
    host: str
    """The architecture of the nodes where it runs."""
    tag: str
    """The tag of the child; empty: none."""


def order(making: Making, identity: Identity) -> ArchitectureOrder:
    """The order for a Job that belongs to this identity."""
    facts, spec = making.facts, making.facts.wish.spec
    own = making.inputs.per_architecture[making.architecture]
    return ArchitectureOrder(
        identity=identity,
        spec=spec,
        architecture=making.architecture,
        host=making.host,
        profile=profile(facts, making.architecture, making.host),
        containerfile=own.containerfile,
        arguments=own.args,
        images=[_image(base, making) for base in own.bases],
        context_data=_context(facts),
        repository=making.target.pushed_to,
        tag=making.tag,
        settings=facts.settings,
    )


def index_order(facts: Facts, work: IndexWork, identity: Identity) -> RegistryOrder:
    """The order for the Job that publishes a result."""
    return RegistryOrder(identity=identity, spec=facts.wish.spec, settings=facts.settings, document=work.document)


def profile(facts: Facts, architecture: str, host: str) -> ProfileName:
    """The security profile of the pod (BD-151, BD-152)."""
    match facts.wish.spec.builder.security_profile:
        case "UserNamespace":
            return "UserNamespace"
        case "Rootless":
            return "Rootless"
        case "Privileged":
            return "Privileged"
        case _:
            return auto_profile(facts, architecture, host).name


def unread_runtimes(facts: Facts, architectures: Iterable[str]) -> tuple[Question, ...]:
    """RuntimeClasses whose handlers have to be known before Jobs of these architectures are made (BD-152)."""
    named = {name for _, name in _runtimes(facts, architectures)} - facts.runtime_handlers.keys()
    return tuple(Question(reference=each, what="runtimeclass") for each in sorted(named))


def _runtimes(facts: Facts, architectures: Iterable[str]) -> list[tuple[str, str]]:
    found = ((each, scheduling_of(facts, each).runtime_class_name) for each in sorted(architectures))
    return [(architecture, name) for architecture, name in found if name]


def forbidden(facts: Facts, architectures: Iterable[str]) -> Sequence[Problem]:
    """What keeps pods of builds from being made, said before a Job is (BD-064, BD-151, BD-153)."""
    found = []
    if facts.wish.spec.builder.security_profile == "Privileged" and not facts.settings.allow_privileged:
        message = (
            "spec.builder.securityProfile is Privileged, which the builder does not allow: use Auto, or have the "
            "administrator set builds.allowPrivileged: true in the values of the installation."
        )
        found.append(Problem(reason="ProfileForbidden", message=message))
    for architecture, name in _runtimes(facts, architectures):
        if name in facts.runtime_handlers and facts.runtime_handlers[name] is None:
            field = f"spec.scheduling.perArchitecture[{architecture}].runtimeClassName"
            message = f"RuntimeClass {name}, which {field} names, does not exist; create it or correct the name."
            found.append(Problem(reason="InputMissing", message=message, architecture=architecture))
    said = forbidden_by_pod_security(facts.wish.namespace, facts.inputs.pod_security)
    if said is not None:
        found.append(Problem(reason="PodSecurityForbids", message=f"{said[:1].upper()}{said[1:]}."))
    return found


def oversized(manifests: Iterable[Mapping[str, Any]]) -> Sequence[Problem]:
    """What of these objects no API server takes: a Run of it would only wait to fail. The largest one is told."""
    found = [
        (sum(sizes.values()), sizes) for each in manifests if each["kind"] == "ConfigMap" for sizes in [_sizes(each)]
    ]
    size, sizes = max(found, key=lambda each: each[0], default=(0, {}))
    if size <= LARGEST_INPUTS:
        return ()
    files = ", ".join(f"{name} {sizes[name]}" for name in sorted(sizes, key=sizes.__getitem__, reverse=True)[:3])
    message = (
        f"What a Job would be given is {size} bytes ({files}), and a ConfigMap takes {LARGEST_INPUTS}: have fewer or "
        "shorter build arguments and labels, which it holds twice, or move parts of the Containerfile into the context."
    )
    return (Problem(reason="InvalidSpec", message=message),)


def _sizes(config_map: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of each file, as API servers count them."""
    texts = {name: len(text.encode("utf-8", "surrogatepass")) for name, text in (config_map.get("data") or {}).items()}
    binary = {name: len(base64.b64decode(text)) for name, text in (config_map.get("binaryData") or {}).items()}
    return texts | binary


def _image(base: Base, making: Making) -> Image:
    """What is pulled for a base: the pinned child, for the stages of the host its own (BD-061, BD-062)."""
    pulled = {(pin.reference, pin.architecture): pin.digest for pin in making.target.pins}
    architecture = making.architecture if base.for_target else making.host
    digest = pulled.get((base.name, architecture))
    return Image(written=base.written, pull=f"{parse(base.pull).name}@{digest}" if digest else base.pull)


def _context(facts: Facts) -> Mapping[str, Any] | None:
    context = facts.wish.spec.source.context
    if context.type != "ConfigMap" or context.config_map is None:
        return None
    return facts.inputs.config_maps.get(context.config_map.name)
