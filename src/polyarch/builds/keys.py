"""Build keys: the inputs of each architecture, and the hash of everything that can change its image. Pure.

Equal inputs have one spelling and so one hash: UTF-8 JSON, members sorted by code point, no white space, non-ASCII
unescaped, integers only.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec

from polyarch.builds import names
from polyarch.builds.api.resources import Context, KeyReference, Output, Override, Source, Substitute
from polyarch.builds.containerfile import (
    MAX_BYTES,
    Containerfile,
    ExternalImage,
    external_images,
    normalised_text,
    parse_containerfile,
    target_problem,
)
from polyarch.builds.facts.build_facts import BuildRequest, InputData, MachineOSInputs, Problem, SecretFacts
from polyarch.builds.names import canonical_image, normalised_repository
from polyarch.objects import DOCKER_CONFIG, DOCKER_CONFIG_JSON
from polyarch.oci import reference


def canonical_json(value: Any) -> bytes:
    """The canonical bytes. TypeError or ValueError for what has no canonical form, such as floats."""
    _refuse_floats(value)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def canonical_digest(value: Any) -> str:
    """SHA-256 of the canonical bytes: 64 lower-case hex digits."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without top-level members that are null, ``""``, ``[]`` or ``{}``; 0 and false stay."""
    return {name: value for name, value in document.items() if value is not None and value not in ("", [], {}, ())}


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise TypeError(f"{value!r} cannot be part of a key: numbers are integers there")
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for member in members:
        if not isinstance(member, str):
            _refuse_floats(member)


# -- objects that a build names ----------------------------------------------------------------------------------------


DEFAULT_KEY = "Containerfile"
NOT_ENABLED = "NamespaceNotEnabled"
"""The reason where the builder may not read the Secrets of a namespace."""


class InputObjects:
    """Looks objects up and collects what is wrong with them."""

    def __init__(self, namespace: str, data: InputData, operator_namespace: str) -> None:
        self._namespace = namespace
        self._data = data
        self._operator_namespace = operator_namespace
        self._refused = False
        self.problems: list[Problem] = []
        self.unread: set[str] = set()
        """Secrets that nobody has read yet, since no key depends on what is in them."""

    def problem(self, reason: str, message: str, architecture: str = "") -> None:
        self.problems.append(Problem(reason=reason, message=message, architecture=architecture))

    def config_map(self, name: str, field: str) -> Mapping[str, Any] | None:
        found = self._data.config_maps.get(name)
        if found is None:
            self._missing(f"ConfigMap {self._namespace}/{name}", field)
        return found

    def text(self, wanted: KeyReference, field: str) -> str | None:
        """The text under a key of a ConfigMap; an empty key means ``Containerfile``."""
        found = self.config_map(wanted.name, field)
        if found is None:
            return None
        key = wanted.key or DEFAULT_KEY
        text = (found.get("data") or {}).get(key)
        if isinstance(text, str):
            return text
        what = f"key {key!r} of ConfigMap {self._namespace}/{wanted.name}"
        if key in (found.get("binaryData") or {}):
            self.problem("ContainerfileInvalid", f"{what}, which {field} names, is not text; expected it under data")
        else:
            self._missing(what, field, having=found.get("data") or {})
        return None

    def secret(self, wanted: KeyReference, field: str, *, keyed: bool) -> SecretFacts | None:
        """A Secret that has the key; ``keyed``: its content is part of a key, so it has to have been read."""
        found = self._secret(wanted.name, field, keyed=keyed)
        if found is not None and wanted.key not in found.keys:
            self._missing(f"key {wanted.key!r} of Secret {self._namespace}/{wanted.name}", field, having=found.keys)
            return None
        return found

    def credentials(self, output: Output, context: Context, *, machine: bool) -> None:
        """Secrets for registries and Git, which are not inputs, but have to be usable."""
        wanted = [("output.pushSecret.name", output.push_secret)]
        wanted += [(f"output.pullSecrets[{each.name}]", each) for each in output.pull_secrets or ()]
        if machine:
            fields = ("spec.renderedImagePushSecret.name", "spec.baseImagePullSecret.name")
            wanted = [(fields[min(at, 1)], each) for at, (_, each) in enumerate(wanted)]
        types = (DOCKER_CONFIG_JSON, DOCKER_CONFIG) if machine else (DOCKER_CONFIG_JSON,)
        for field, each in wanted:
            if each is None or not each.name:
                continue
            found = self._secret(each.name, field)
            if found is not None and not found.invalid and found.type not in types:
                message = f"Secret {self._namespace}/{each.name}, which {field} names, has the type {found.type!r}; "
                self.problem("SecretInvalid", f"{message}expected {' or '.join(types)}")
            if found is not None and found.has_helpers:
                message = (
                    f"Secret {self._namespace}/{each.name}, which {field} names, has credHelpers or credsStore: "
                    "programs that builds do not have, so they are ignored; write the credentials under auths"
                )
                self.problems.append(Problem(reason="CredentialHelpersIgnored", message=message, severity="Warning"))
        if context.type == "Git" and context.git is not None and context.git.credentials is not None:
            self._secret(context.git.credentials.name, "source.context.git.credentials.name")

    def _secret(self, name: str, field: str, *, keyed: bool = False) -> SecretFacts | None:
        if not self._data.readable:
            self._refuse()
            return None
        if name not in self._data.secrets and not keyed:
            self.unread.add(name)
            return None
        found = self._data.secrets.get(name)
        if found is None:
            self._missing(f"Secret {self._namespace}/{name}", field)
        elif found.invalid:
            message = f"Secret {self._namespace}/{name}, which {field} names, cannot be used: {found.invalid}"
            self.problem("SecretInvalid", message)
        return found

    def _refuse(self) -> None:
        if not self._refused:
            self._refused = True
            self.problem(
                NOT_ENABLED,
                f"the builder may not read Secrets in namespace {self._namespace}; an administrator enables it with: "
                f"kubectl create rolebinding {names.NAMESPACE_ROLE} --namespace {self._namespace} "
                f"--clusterrole {names.NAMESPACE_ROLE} --serviceaccount {self._operator_namespace}:{names.ROLE}",
            )

    def _missing(self, what: str, field: str, having: Any = ()) -> None:
        there = f" (it has {', '.join(sorted(having)[:8])})" if having else ""
        self.problem(
            "InputMissing", f"{what}, which {field} names, does not exist{there}; create it or correct the name"
        )


# -- inputs ------------------------------------------------------------------------------------------------------------


MAX_IMAGES = 64
"""Images from outside that one build may name, whichever architectures do: with 16 of those they are 1024 pins."""
COMMON = "common"
"""How messages name the text that is not an override's."""
_NUMBER = re.compile(r"([0-9]{1,18})")
MACHINE_STAGES = ("configs",)
"""Stages that the rendered Containerfile of a machine OS has before the user's text."""


class BaseImage(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An external reference of one architecture's Containerfile."""

    name: str
    """Its canonical reference, as the Containerfile has it: the name that the key knows it by."""
    pull: str
    """The canonical reference to look up and to pin: ``name``, or what substitutes it."""
    written: tuple[str, ...] = ()
    """The texts by which the Containerfile names it, of a FROM also before expansion: what the builder has to be told
    the pin for."""
    for_target: bool = True
    """True where the image is needed for the architecture that is built."""
    for_build: bool = False
    """True where it is needed for the architecture where the build runs (``FROM --platform=$BUILDPLATFORM``)."""
    platform: str = ""
    """The architecture that ``FROM --platform`` names, where files of another one's image are only copied."""
    lines: tuple[int, ...] = ()


class ArchitectureInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What differs between architectures."""

    architecture: str
    containerfile: str
    """Normalised."""
    text_name: str = COMMON
    """``common``, or the architecture whose override it is."""
    args: Mapping[str, str] = {}
    bases: tuple[BaseImage, ...] = ()


class BuildInputs(msgspec.Struct, frozen=True, kw_only=True):
    """What a build is made from. With an Error among the ``problems`` nothing may be built."""

    per_architecture: Mapping[str, ArchitectureInputs] = {}
    target: str = ""
    context: Mapping[str, Any] = {}
    """The context as it stands in keys."""
    secrets: Mapping[str, str] = {}
    """The secrets as they stand in keys."""
    format: str = "OCI"
    labels: Mapping[str, str] = {}
    timestamp: int | None = None
    """None: not reproducible."""
    machine: MachineOSInputs | None = None
    problems: tuple[Problem, ...] = ()
    unused_overrides: tuple[str, ...] = ()
    """Overrides of architectures that are not wanted."""
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
            found |= {canonical_image(each) for each in (self.machine.os_image, self.machine.extensions_image) if each}
        return tuple(sorted(found))


def effective_inputs(
    request: BuildRequest, data: InputData, architectures: Sequence[str], *, operator_namespace: str = "polyarch"
) -> BuildInputs:
    """The inputs of every architecture, and everything that is wrong with them."""
    source, output = request.spec.source, request.spec.output
    objects = InputObjects(request.namespace, data, operator_namespace)
    overrides = {override.architecture: override for override in source.overrides or ()}
    substitutes = _substitutes(request.spec.base_images.substitute or (), objects)
    parse = _Parser(MACHINE_STAGES if request.machine is not None else (), source.target, objects)
    per_architecture: dict[str, ArchitectureInputs] = {}
    for architecture in sorted(set(architectures)):
        override = overrides.get(architecture)
        text = _text(source, override, architecture, objects)
        if text is None:
            continue
        own = (override.build_args if override else None) or {}
        args = dict(sorted({**(source.build_args or {}), **own}.items()))
        parsed = parse(*text)
        external = external_images(parsed, architecture=architecture, args=args, target=source.target)
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
    leaves_secrets_alone = request.spec.registry_access == "Job"
    if not leaves_secrets_alone:
        objects.credentials(output, source.context, machine=request.machine is not None)
    reproducible = request.spec.reproducible.enabled and request.machine is None
    return BuildInputs(
        per_architecture=per_architecture,
        target=source.target,
        context=context,
        secrets=secrets,
        format=output.format,
        labels=dict(sorted((output.labels or {}).items())),
        timestamp=request.spec.reproducible.timestamp if reproducible else None,
        machine=_with_entitlements(request.machine, data) if request.machine is not None else None,
        problems=_merged(objects.problems, frozenset(architectures)),
        unused_overrides=tuple(sorted(set(overrides) - set(architectures))),
        unread_secrets=() if leaves_secrets_alone else tuple(sorted(objects.unread)),
    )


def _with_entitlements(machine: MachineOSInputs, data: InputData) -> MachineOSInputs:
    """The inputs with the names of the entitlements that exist."""
    places = {"Secret": data.secrets, "ConfigMap": data.config_maps}
    found = (each.name for each in machine.entitled if places[each.kind].get(each.object) is not None)
    return msgspec.structs.replace(machine, entitlements=tuple(sorted({*machine.entitlements, *found})))


class _Parser:
    """Parses each text once, whichever architectures have it."""

    def __init__(self, inside: tuple[str, ...], target: str, objects: InputObjects) -> None:
        self._inside = inside
        self._target = target
        self._objects = objects
        self._parsed: dict[tuple[str, str], Containerfile] = {}

    def __call__(self, name: str, text: str) -> Containerfile:
        found = self._parsed.get((name, text))
        if found is None:
            found = self._parsed[name, text] = parse_containerfile(text, name=name, inside=self._inside)
            faults = list(found.faults)
            if not faults and (fault := target_problem(found, self._target)):
                faults.append(fault)
            architecture = "" if name == COMMON else name
            for each in faults:
                self._objects.problem("ContainerfileInvalid", each.message, architecture)
        return found


def _text(
    source: Source, override: Override | None, architecture: str, objects: InputObjects
) -> tuple[str, str] | None:
    """The name and the normalised text of an architecture's Containerfile; None with a problem noted."""
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
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        problem = f"Containerfile ({name}): it is longer than {MAX_BYTES} bytes; move parts of it into the context"
        objects.problem("ContainerfileInvalid", problem, "" if name == COMMON else name)
        return None
    return name, normalised_text(text)


def _bases(external: Iterable[ExternalImage], substitutes: Mapping[str, str]) -> tuple[BaseImage, ...]:
    found: dict[str, list[ExternalImage]] = {}
    for each in external:
        found.setdefault(each.canonical, []).append(each)
    return tuple(
        BaseImage(
            name=name,
            pull=substitutes.get(name, name),
            written=tuple(sorted({text for each in uses for text in (each.written, each.unexpanded)})),
            for_target=not all(each.for_build for each in uses),
            for_build=any(each.for_build for each in uses),
            platform=uses[0].platform,
            lines=tuple(sorted({each.line for each in uses})),
        )
        for name, uses in sorted(found.items())
    )


def _count_images(inputs: Iterable[ArchitectureInputs], objects: InputObjects) -> None:
    """Each is looked up, and pinned for each architecture in objects that have an end."""
    named = {base.name for each in inputs for base in each.bases}
    if len(named) > MAX_IMAGES:
        objects.problem(
            "ContainerfileInvalid",
            f"the Containerfiles name {len(named)} images from outside; a build has at most {MAX_IMAGES}: join them "
            "in fewer images, or make several builds",
        )


def _substitutes(listed: Iterable[Substitute], objects: InputObjects) -> dict[str, str]:
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


def _reference(text: str, field: str, objects: InputObjects) -> str:
    try:
        return reference.parse(text).canonical
    except reference.InvalidReference as error:
        objects.problem("InputInvalid", f"{field}: {error}")
        return ""


def _context(context: Context, objects: InputObjects) -> dict[str, Any]:
    """The context as it stands in keys."""
    if context.type == "ConfigMap" and context.config_map is not None:
        found = objects.config_map(context.config_map.name, "source.context.configMap.name")
        if found is None:
            return {}
        content = {part: dict(found.get(part) or {}) for part in ("binaryData", "data")}
        return {"type": "ConfigMap", "digest": f"sha256:{canonical_digest(without_empty(content))}"}
    if context.type == "Git" and context.git is not None:
        git = {"type": "Git", "commit": context.git.commit, "directory": context.git.directory}
        return without_empty(git)
    if context.type == "Image" and context.image is not None:
        return {"type": "Image", "digest": context.image.reference.rpartition("@")[2]}
    return {}


def _secrets(source: Source, objects: InputObjects) -> dict[str, str]:
    """The secrets as they stand in keys."""
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


# -- keys --------------------------------------------------------------------------------------------------------------


VERSION = 1
UNRESOLVED = "unresolved"
"""Stands for the digest of a base that is not pinned."""


class KeyDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A key document and its hash."""

    document: Mapping[str, Any]
    hex: str


def arch_key_document(inputs: BuildInputs, architecture: str, pins: Mapping[str, str]) -> KeyDocument:
    """The key of one architecture's child. ``pins``: canonical reference, as named → child digest for it."""
    own = inputs.per_architecture[architecture]
    return _key_document(
        {
            "v": VERSION,
            "arch": architecture,
            "containerfile": own.containerfile,
            "target": inputs.target,
            "args": dict(own.args),
            "bases": {base.name: pins.get(base.name, UNRESOLVED) for base in own.bases},
            "context": dict(inputs.context),
            "secrets": dict(inputs.secrets),
            "format": inputs.format,
            "labels": dict(inputs.labels),
            "timestamp": inputs.timestamp,
            "machine": None if inputs.machine is None else _machine(inputs.machine, pins),
        }
    )


def build_key_document(output: Output, keys: Mapping[str, str]) -> KeyDocument:
    """The key of a whole build. ``keys``: architecture → key of its child, for every architecture wanted."""
    return _key_document(
        {
            "v": VERSION,
            "arches": dict(keys),
            "attestations": None if output.attestations == "Drop" else output.attestations,
            "format": output.format,
            "index": output.index,
            "indexAnnotations": dict(output.annotations or {}),
            "repository": normalised_repository(output.repository),
        }
    )


def _machine(machine: MachineOSInputs, pins: Mapping[str, str]) -> dict[str, Any]:
    return without_empty(
        {
            "osImage": _pinned(machine.os_image, pins),
            "extensionsImage": _pinned(machine.extensions_image, pins),
            "kernelType": "" if machine.kernel_type == "default" else machine.kernel_type,
            "extensions": sorted(set(machine.extensions)),
            "kernelArguments": list(machine.kernel_arguments),
            "trust": machine.trust,
            "entitlements": sorted(set(machine.entitlements)),
        }
    )


def _pinned(image: str, pins: Mapping[str, str]) -> str:
    return pins.get(canonical_image(image), UNRESOLVED) if image else ""


def _key_document(members: Mapping[str, Any]) -> KeyDocument:
    document = without_empty(members)
    return KeyDocument(document=document, hex=canonical_digest(document))


# -- differences between keys ------------------------------------------------------------------------------------------


OUTLINES_FILE = "outlines.json"
"""The key of the ConfigMap with an execution's children that holds the outlines: architecture → outline."""
_DIGITS = 8
_MAPPINGS = ("args", "bases", "labels", "secrets", "context", "machine")
_SEPARATOR = "/"
_WORDS = {
    "arch": "architecture",
    "args": "build argument",
    "bases": "base image",
    "labels": "label",
    "secrets": "secret",
    "machine/osImage": "OS image",
    "machine/extensionsImage": "extensions image",
    "machine/kernelType": "kernel type",
    "machine/extensions": "extensions",
    "machine/kernelArguments": "kernel arguments",
    "machine/trust": "trust bundle",
    "machine/entitlements": "entitlements",
    "v": "version of the key",
}

KeyOutline = Mapping[str, str]
KeyChange = Literal["added", "removed", "changed"]


class KeyDifference(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One member of a key document that has changed."""

    member: str
    """``containerfile``, or ``args/MODE`` for an entry."""
    change: KeyChange

    def __str__(self) -> str:
        group, separator, entry = self.member.partition(_SEPARATOR)
        named = _WORDS.get(self.member)
        if named is None and separator and group != "context":
            named = f"{_WORDS.get(group, group)} {entry}"
        return f"{named or _WORDS.get(group, group)} {self.change}"


def key_outline(document: Mapping[str, Any]) -> dict[str, str]:
    """Member → short hash, the entries of mappings one by one."""
    found: dict[str, str] = {}
    for name, value in document.items():
        if name in _MAPPINGS and isinstance(value, Mapping):
            found |= {f"{name}{_SEPARATOR}{entry}": _hashed(inner) for entry, inner in value.items()}
        else:
            found[name] = _hashed(value)
    return dict(sorted(found.items()))


def key_differences(before: KeyOutline, after: KeyOutline) -> tuple[KeyDifference, ...]:
    """What is not the same, by member; nothing for equal keys."""
    found: list[KeyDifference] = []
    for member in sorted({*before, *after}):
        if before.get(member) == after.get(member):
            continue
        change: KeyChange = "added" if member not in before else "removed" if member not in after else "changed"
        found.append(KeyDifference(member=member, change=change))
    return tuple(found)


def difference_sentence(found: Iterable[KeyDifference], *, most: int = 4) -> str:
    """``containerfile changed, build argument MODE added``; further ones are counted."""
    texts = list(dict.fromkeys(str(each) for each in found))
    more = [f"{len(texts) - most} more"] if len(texts) > most else []
    return ", ".join(texts[:most] + more)


def _hashed(value: Any) -> str:
    return canonical_digest(value)[:_DIGITS]
