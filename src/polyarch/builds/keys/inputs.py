"""What each architecture is really built from, once overrides, ConfigMaps and Secrets are looked up (BD-055, BD-064).

The result is what keys are made of and what Jobs are given; whatever stands in the way of building is listed beside it,
all at once. Text of Secrets never gets here: only fingerprints do.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from polyarch.builds.api.resources import Context, Override, Source, Substitute
from polyarch.builds.containerfile import parsing, references
from polyarch.builds.containerfile import text as texts
from polyarch.builds.facts.facts import InputData, MachineInputs, Wish
from polyarch.builds.facts.problem import Problem
from polyarch.builds.keys import canonical, handles
from polyarch.builds.keys.objects import Objects
from polyarch.oci import reference

MOST_IMAGES = 64
"""Images from outside that one build may name, whichever architectures do: with 16 of those they are 1024 pins."""
COMMON = "common"
"""How messages name the text that is not an override's."""
_NUMBER = re.compile(r"([0-9]{1,18})")
MACHINE_STAGES = ("configs",)
"""Stages that the rendered Containerfile of a machine OS has before the user's text (BD-269)."""


class Base(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An external reference of one architecture's Containerfile."""

    name: str
    """Its canonical reference, as the Containerfile has it: the name that the key knows it by (BD-071)."""
    pull: str
    """The canonical reference to look up and to pin: ``name``, or what substitutes it."""
    written: tuple[str, ...] = ()
    """The texts by which the Containerfile names it, of a FROM also before expansion: what the builder has to be told
    the pin for."""
    for_target: bool = True
    """It is needed for the architecture that is built."""
    for_build: bool = False
    """It is needed for the architecture where the build runs (``FROM --platform=$BUILDPLATFORM``, BD-059)."""
    lines: tuple[int, ...] = ()


class ArchitectureInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between architectures."""

    architecture: str
    containerfile: str
    """Normalised (BD-056)."""
    text_name: str = COMMON
    """``common``, or the architecture whose override it is."""
    args: Mapping[str, str] = {}
    bases: tuple[Base, ...] = ()


class Inputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a build is made from. With an Error among the ``problems`` nothing may be built."""

    per_architecture: Mapping[str, ArchitectureInputs] = {}
    target: str = ""
    context: Mapping[str, Any] = {}
    """As BD-072 writes it into keys."""
    secrets: Mapping[str, str] = {}
    """As BD-073 writes them into keys."""
    format: str = "OCI"
    labels: Mapping[str, str] = {}
    timestamp: int | None = None
    """None: not reproducible."""
    machine: MachineInputs | None = None
    problems: tuple[Problem, ...] = ()
    unused_overrides: tuple[str, ...] = ()
    """Overrides of architectures that are not wanted (BD-105)."""
    unread_secrets: tuple[str, ...] = ()
    """Names of Secrets that Jobs need and nobody has looked at yet: to be read before a Job is made."""

    @property
    def errors(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "Error")

    @property
    def warnings(self) -> tuple[Problem, ...]:
        return tuple(problem for problem in self.problems if problem.severity == "Warning")

    def images(self, architecture: str) -> tuple[str, ...]:
        """The canonical references that one architecture's child is made from: bases, and those of a machine OS."""
        found = {base.pull for base in self.per_architecture[architecture].bases}
        if self.machine is not None:
            found |= {handles.image(each) for each in (self.machine.os_image, self.machine.extensions_image) if each}
        return tuple(sorted(found))


def effective(
    wish: Wish, data: InputData, architectures: Sequence[str], *, operator_namespace: str = "polyarch"
) -> Inputs:
    """The inputs of every architecture, and everything that is wrong with them (BD-055, BD-064)."""
    source, output = wish.spec.source, wish.spec.output
    objects = Objects(wish.namespace, data, operator_namespace)
    overrides = {override.architecture: override for override in source.overrides or ()}
    substitutes = _substitutes(wish.spec.base_images.substitute or (), objects)
    parse = _Parser(MACHINE_STAGES if wish.machine is not None else (), source.target, objects)
    per_architecture: dict[str, ArchitectureInputs] = {}
    for architecture in sorted(set(architectures)):
        override = overrides.get(architecture)
        text = _text(source, override, architecture, objects)
        if text is None:
            continue
        own = (override.build_args if override else None) or {}
        args = dict(sorted({**(source.build_args or {}), **own}.items()))
        parsed = parse(*text)
        external = references.external(parsed, architecture=architecture, args=args)
        objects.problems.extend(external.problems)
        per_architecture[architecture] = ArchitectureInputs(
            architecture=architecture,
            containerfile=text[1],
            text_name=text[0],
            args=args,
            bases=_bases(external.references, substitutes),
        )
    _count_images(per_architecture.values(), objects)
    context, secrets = _context(source.context, objects), _secrets(source, objects)
    leaves_secrets_alone = wish.spec.registry_access == "Job"
    if not leaves_secrets_alone:
        objects.credentials(output, source.context, machine=wish.machine is not None)
    reproducible = wish.spec.reproducible.enabled and wish.machine is None
    return Inputs(
        per_architecture=per_architecture,
        target=source.target,
        context=context,
        secrets=secrets,
        format=output.format,
        labels=dict(sorted((output.labels or {}).items())),
        timestamp=wish.spec.reproducible.timestamp if reproducible else None,
        machine=_with_entitlements(wish.machine, data) if wish.machine is not None else None,
        problems=_merged(objects.problems, frozenset(architectures)),
        unused_overrides=tuple(sorted(set(overrides) - set(architectures))),
        unread_secrets=() if leaves_secrets_alone else tuple(sorted(objects.unread)),
    )


def _with_entitlements(machine: MachineInputs, data: InputData) -> MachineInputs:
    """With the names of those that are there."""
    places = {"Secret": data.secrets, "ConfigMap": data.config_maps}
    found = (each.name for each in machine.entitled if places[each.kind].get(each.object) is not None)
    return msgspec.structs.replace(machine, entitlements=tuple(sorted({*machine.entitlements, *found})))


class _Parser:
    """Parses each text once, whichever architectures have it."""

    def __init__(self, inside: tuple[str, ...], target: str, objects: Objects) -> None:
        self._inside = inside
        self._target = target
        self._objects = objects
        self._parsed: dict[tuple[str, str], parsing.Containerfile] = {}

    def __call__(self, name: str, text: str) -> parsing.Containerfile:
        found = self._parsed.get((name, text))
        if found is None:
            found = self._parsed[name, text] = parsing.parse(text, name=name, inside=self._inside)
            faults = list(found.faults)
            if not faults and (fault := references.target_fault(found, self._target)):
                faults.append(fault)
            architecture = "" if name == COMMON else name
            for each in faults:
                self._objects.problem("ContainerfileInvalid", each.message, architecture)
        return found


def _text(source: Source, override: Override | None, architecture: str, objects: Objects) -> tuple[str, str] | None:
    """The name and the normalised text of an architecture's Containerfile; None with a problem noted (BD-055)."""
    own = override is not None and (override.containerfile is not None or override.containerfile_from is not None)
    name, place = (architecture, override) if override is not None and own else (COMMON, source)
    text = place.containerfile
    if text is None and place.containerfile_from is not None:
        field = f"source.overrides[{architecture}].containerfileFrom" if own else "source.containerfileFrom"
        text = objects.text(place.containerfile_from, field)
        if text is None:
            return None
    if text is None:
        objects.problem(
            "ContainerfileMissing",
            f"there is no Containerfile for {architecture}; add one to source.overrides for it, or a common one as "
            "source.containerfile",
            architecture,
        )
        return None
    if len(text.encode("utf-8", "surrogatepass")) > texts.MAX_BYTES:
        problem = (
            f"Containerfile ({name}): it is longer than {texts.MAX_BYTES} bytes; move parts of it into the context"
        )
        objects.problem("ContainerfileInvalid", problem, "" if name == COMMON else name)
        return None
    return name, texts.normalised(text)


def _bases(external: Iterable[references.External], substitutes: Mapping[str, str]) -> tuple[Base, ...]:
    found: dict[str, list[references.External]] = {}
    for each in external:
        found.setdefault(each.canonical, []).append(each)
    return tuple(
        Base(
            name=name,
            pull=substitutes.get(name, name),
            written=tuple(sorted({text for each in uses for text in (each.written, each.unexpanded)})),
            for_target=not all(each.for_build for each in uses),
            for_build=any(each.for_build for each in uses),
            lines=tuple(sorted({each.line for each in uses})),
        )
        for name, uses in sorted(found.items())
    )


def _count_images(inputs: Iterable[ArchitectureInputs], objects: Objects) -> None:
    """Each is looked up, and pinned for each architecture in objects that have an end."""
    named = {base.name for each in inputs for base in each.bases}
    if len(named) > MOST_IMAGES:
        objects.problem(
            "ContainerfileInvalid",
            f"the Containerfiles name {len(named)} images from outside; a build has at most {MOST_IMAGES}: join them "
            "in fewer images, or make several builds",
        )


def _substitutes(listed: Iterable[Substitute], objects: Objects) -> dict[str, str]:
    """What to pull instead, by canonical references."""
    found: dict[str, str] = {}
    for each in listed:
        pair = [
            _reference(text, f"baseImages.substitute[{each.source}].{end}", objects)
            for text, end in ((each.source, "from"), (each.to, "to"))
        ]
        if pair[0] and pair[1]:
            found[pair[0]] = pair[1]
    return found


def _reference(text: str, field: str, objects: Objects) -> str:
    try:
        return reference.parse(text).canonical
    except reference.InvalidReference as error:
        objects.problem("InputInvalid", f"{field}: {error}")
        return ""


def _context(context: Context, objects: Objects) -> dict[str, Any]:
    """As it stands in keys (BD-072)."""
    if context.type == "ConfigMap" and context.config_map is not None:
        found = objects.config_map(context.config_map.name, "source.context.configMap.name")
        if found is None:
            return {}
        content = {part: dict(found.get(part) or {}) for part in ("binaryData", "data")}
        return {"type": "ConfigMap", "digest": f"sha256:{canonical.digest(canonical.without_empty(content))}"}
    if context.type == "Git" and context.git is not None:
        git = {"type": "Git", "commit": context.git.commit, "directory": context.git.directory}
        return canonical.without_empty(git)
    if context.type == "Image" and context.image is not None:
        return {"type": "Image", "digest": context.image.reference.rpartition("@")[2]}
    return {}


def _secrets(source: Source, objects: Objects) -> dict[str, str]:
    """As they stand in keys (BD-073)."""
    found: dict[str, str] = {}
    for each in source.secrets or ():
        secret = objects.secret(each.secret, f"source.secrets[{each.id}].secret", keyed=each.rebuild_on_change)
        known = secret is not None and each.rebuild_on_change
        found[each.id] = secret.fingerprints.get(each.secret.key, "") if secret is not None and known else ""
    return dict(sorted(found.items()))


def _merged(problems: Iterable[Problem], architectures: frozenset[str]) -> tuple[Problem, ...]:
    """Each once; what is the same for every architecture is said without naming one."""
    where: dict[Problem, set[str]] = {}
    for problem in problems:
        where.setdefault(msgspec.structs.replace(problem, architecture=""), set()).add(problem.architecture)
    found: list[Problem] = []
    for problem, concerned in where.items():
        everywhere = "" in concerned or (len(concerned) > 1 and concerned >= architectures)
        names = ("",) if everywhere else sorted(concerned)
        found.extend(msgspec.structs.replace(problem, architecture=name) for name in names)
    return tuple(sorted(found, key=_as_read))


def _as_read(problem: Problem) -> tuple[str, list[str | int], str]:
    """Line 2 comes before line 10."""
    words = (int(each) if each.isdecimal() and each.isascii() else each for each in _NUMBER.split(problem.message))
    return problem.reason, list(words), problem.architecture
