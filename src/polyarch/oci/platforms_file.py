"""Platforms files: answers written by hand, for use without a registry.

A platforms file makes checks repeatable and lets them run offline. It is trusted like a registry's answer, so anything
unknown in it is refused with file and key. The output of ``polyarch inspect -o json`` is a valid platforms file.

Pure: imports neither asyncio nor aiohttp, and no YAML; the caller passes the parsed content.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

import msgspec

from polyarch.oci.image.parsing import platform_warnings
from polyarch.oci.inspection import (
    ERROR_CODES,
    WASM,
    Entry,
    Inspection,
    InspectionError,
    InspectionWarning,
    Kind,
    SkippedEntry,
    Status,
)
from polyarch.oci.reference import InvalidReference, Reference, check_digest, parse
from polyarch.platforms import InvalidPlatform, Platform, are_wasm

SCHEMA_VERSION = "polyarch.dev/inspect/v1"

_KINDS = ("index", "image", "artifact", "schema1")
_MEMBERS = frozenset({"platforms", "kind", "neutral", "unknown", "error", "digest", "children", "warnings"})
_PRINTED_TOP = frozenset({"schemaVersion", "images", "rateLimits", "summary"})
_PRINTED = frozenset(
    {
        "image",
        "reference",
        "status",
        "kind",
        "digest",
        "mediaType",
        "platforms",
        "nodePlatforms",
        "neutralReason",
        "skipped",
        "warnings",
        "missing",
        "source",
        "cached",
        "requests",
        "error",
    }
)
_PRINTED_PLATFORM = frozenset(
    {"platform", "os", "architecture", "variant", "osVersion", "osFeatures", "digest", "size"}
)


class InvalidAnswers(ValueError):  # noqa: N818 - the name says what is the matter
    """An unusable platforms file: a usage error with file, key and reason."""

    def __init__(self, origin: str, key: str, problem: str) -> None:
        place = ": ".join(part for part in (origin, key) if part)
        super().__init__(f"{place or 'platforms file'}: {problem}")
        self.origin = origin
        self.key = key
        self.problem = problem


class AnswerFile:
    """The answers of one file; :meth:`get` looks a reference up."""

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self._exact: dict[str, Inspection] = {}
        self._repositories: dict[str, Inspection] = {}
        self._digests: dict[tuple[str, str], Inspection] = {}
        self._children: dict[tuple[str, str], Entry] = {}
        self._keys: dict[str | tuple[str, str], str] = {}
        """The key as written that first gave a reference, a digest or a child: a contradiction names both."""

    @classmethod
    def from_mapping(cls, data: object, *, origin: str = "") -> "AnswerFile":
        """Read the content: a mapping from reference to answer, the same under ``images``, or ``polyarch inspect``
        JSON.

        Raises :class:`InvalidAnswers` at the first error.
        """
        file = cls(origin)
        if not isinstance(data, Mapping):
            raise InvalidAnswers(origin, "", f"expected a mapping from image to platforms, not {_kind_of(data)}")
        if "schemaVersion" in data:
            file._read_printed(data)
        elif isinstance(data.get("images"), Mapping):
            for name in data:
                if name != "images":
                    raise InvalidAnswers(origin, str(name), "unknown member beside 'images'; put images below 'images'")
            file._read(data["images"])
        else:
            file._read(data)
        return file

    def get(self, reference: Reference) -> Inspection | None:
        """The answer, by the first of: same digest, same reference, ``repository:*``, child digest."""
        answer: Inspection | None
        if reference.digest is not None:
            answer = self._digests.get((_name(reference), reference.digest))
            if answer is not None:
                return msgspec.structs.replace(answer, reference=reference)
        answer = self._exact.get(reference.canonical) or self._repositories.get(_name(reference))
        if answer is not None:
            return msgspec.structs.replace(answer, reference=reference)
        if reference.digest is not None:
            child = self._children.get((_name(reference), reference.digest))
            if child is not None:
                return Inspection(reference, Status.RESOLVED, "image", digest=child.digest, entries=(child,))
        return None

    def __len__(self) -> int:
        return len(self._exact) + len(self._repositories)

    def _read(self, images: Mapping[Any, Any]) -> None:
        for key, answer in images.items():
            if not isinstance(key, str):
                raise InvalidAnswers(self.origin, str(key), f"expected an image reference, not {_kind_of(key)}")
            place = _Place(self.origin, key)
            if key.endswith(":*"):
                reference = place.reference(f"{key[:-2]}:any")
                self._add(place, self._repositories, _name(reference), reference, _answer(place, answer))
            else:
                reference = place.reference(key)
                self._add(place, self._exact, reference.canonical, reference, _answer(place, answer))

    def _read_printed(self, data: Mapping[Any, Any]) -> None:
        top = _Place(self.origin, "schemaVersion")
        if data["schemaVersion"] != SCHEMA_VERSION:
            top.fail(f"is {data['schemaVersion']!r}; expected {SCHEMA_VERSION!r}")
        _Place(self.origin, "").members(data, _PRINTED_TOP)
        images = _Place(self.origin, "images").sequence(data.get("images"))
        for index, image in enumerate(images):
            place = _Place(self.origin, f"images[{index}]")
            members = place.mapping(image)
            place.members(members, _PRINTED)
            written = place.text(members, "reference") or place.text(members, "image")
            reference = place.reference(written)
            place = _Place(self.origin, place.key, written=f"{place.key} ({written})")
            self._add(place, self._exact, reference.canonical, reference, _printed_answer(place, members))

    def _add(
        self, place: "_Place", table: dict[str, Inspection], key: str, reference: Reference, answer: Inspection
    ) -> None:
        answer = msgspec.structs.replace(answer, reference=reference)
        digest = reference.digest or answer.digest
        if reference.digest is not None:
            if answer.digest and answer.digest != reference.digest:
                place.fail(f"the answer's digest {answer.digest} is not the image's")
            answer = msgspec.structs.replace(answer, digest=reference.digest)
        other = table.setdefault(key, answer)
        if not _agree(other, answer) or other.digest != answer.digest or other.entries != answer.entries:
            place.fail(f"another answer for {key} than {self._first(key, place)} has")
        self._first(key, place)
        name = _name(reference)
        if reference.digest or (digest and answer.status is not Status.ERROR):
            other = self._digests.setdefault((name, digest), answer)
            first = self._first((name, digest), place)
            if not _agree(other, answer):
                place.fail(f"another answer than {first} has for the same digest {digest}")
        for entry in answer.entries:
            if entry.digest:
                child = self._children.setdefault((name, entry.digest), entry)
                first = self._first((f"{name} child", entry.digest), place)
                if child.platform != entry.platform:
                    place.fail(f"child {entry.digest} is {entry.platform} here and {child.platform} in {first}")

    def _first(self, what: str | tuple[str, str], place: "_Place") -> str:
        return repr(self._keys.setdefault(what, place.written or place.key))


class _Place:
    """A position in the file: reads members by type and raises errors that name the position."""

    def __init__(self, origin: str, key: str, *, written: str = "") -> None:
        """``written``: the image as written in the file, where that is not the key."""
        self.origin = origin
        self.key = key
        self.written = written

    def fail(self, problem: str) -> NoReturn:
        raise InvalidAnswers(self.origin, self.key, problem)

    def at(self, member: str) -> "_Place":
        return _Place(self.origin, f"{self.key}: {member}" if self.key else member)

    def reference(self, text: str) -> Reference:
        try:
            return parse(text)
        except InvalidReference as error:
            self.fail(str(error))

    def platform(self, text: object) -> Platform:
        if not isinstance(text, str):
            self.fail(f"expected a platform such as 'linux/arm64', not {_kind_of(text)} {_shown(text)}; quote it")
        try:
            return Platform.parse(text)
        except InvalidPlatform as error:
            self.fail(str(error))

    def digest(self, members: Mapping[Any, Any], name: str) -> str:
        digest = self.text(members, name)
        if digest and (problem := check_digest(digest)):
            self.at(name).fail(problem)
        return digest

    def members(self, members: Mapping[Any, Any], known: frozenset[str]) -> None:
        for name in members:
            if name not in known:
                self.fail(f"unknown member {_shown(name)}; expected {', '.join(sorted(known))}")

    def mapping(self, value: object) -> Mapping[Any, Any]:
        if not isinstance(value, Mapping):
            self.fail(f"expected a mapping, not {_kind_of(value)}")
        return value

    def sequence(self, value: object) -> Sequence[Any]:
        if not isinstance(value, list | tuple):
            self.fail(f"expected a list, not {_kind_of(value)}")
        return value

    def text(self, members: Mapping[Any, Any], name: str) -> str:
        value = members.get(name)
        if value is not None and not isinstance(value, str):
            self.at(name).fail(f"expected a text, not {_kind_of(value)}")
        return value or ""

    def boolean(self, members: Mapping[Any, Any], name: str) -> bool:
        value = members.get(name, False)
        if not isinstance(value, bool):
            self.at(name).fail(f"expected true or false, not {_kind_of(value)}")
        return value

    def kind(self, members: Mapping[Any, Any]) -> Kind:
        kind = self.text(members, "kind")
        if kind and kind not in _KINDS:
            self.at("kind").fail(f"{kind!r} is unknown; expected one of {', '.join(_KINDS)}")
        return cast("Kind", kind)

    def warnings(self, members: Mapping[Any, Any]) -> tuple[InspectionWarning, ...]:
        place = self.at("warnings")
        warnings = []
        for each in place.sequence(members.get("warnings") or []):
            if isinstance(each, str):
                warnings.append(InspectionWarning(each, ""))
            else:
                place.members(place.mapping(each), frozenset({"code", "message"}))
                warnings.append(InspectionWarning(place.text(each, "code"), place.text(each, "message")))
        return tuple(warnings)


# Replaced by the reference that is asked for; an answer by itself has none.
_NO_REFERENCE = Reference("docker", "", "")


def _answer(place: _Place, answer: object) -> Inspection:
    """One answer as written by hand."""
    if isinstance(answer, list | tuple):
        answer = {"platforms": answer}
    if not isinstance(answer, Mapping):
        place.fail(f"expected a list of platforms or a mapping, not {_kind_of(answer)}")
    place.members(answer, _MEMBERS)
    kind, digest, warnings = place.kind(answer), place.digest(answer, "digest"), place.warnings(answer)
    code = place.text(answer, "error")
    given = [name for name in ("neutral", "unknown") if place.boolean(answer, name)]
    given += ["error"] if code else []
    given += ["platforms"] if "platforms" in answer or "children" in answer else []
    given += ["kind: artifact"] if kind == "artifact" and "neutral" not in given else []
    if len(given) != 1:
        place.fail(f"{' and '.join(given)} contradict each other" if given else "says nothing; give platforms")
    if code:
        error = _error(place, code, f"{code}, as {place.origin or 'the platforms file'} says")
        return Inspection(_NO_REFERENCE, Status.ERROR, error=error, warnings=warnings)
    if given == ["unknown"]:
        return Inspection(_NO_REFERENCE, Status.UNKNOWN, kind or "index", digest, warnings=warnings)
    if given != ["platforms"]:
        reason = "artifact" if kind == "artifact" else "platforms-file"
        return Inspection(
            _NO_REFERENCE, Status.NEUTRAL, kind or "index", digest, warnings=warnings, neutral_reason=reason
        )
    entries = _entries(place, answer)
    if kind == "image" and len(entries) != 1:
        place.fail(f"an image has one platform, not {len(entries)}; leave out kind for an index")
    return _resolved(kind or "index", digest, entries, warnings)


def _entries(place: _Place, answer: Mapping[Any, Any]) -> tuple[Entry, ...]:
    children: dict[Platform, str] = {}
    names: dict[Platform, str] = {}
    within = place.at("children")
    stated_children = within.mapping(answer.get("children") or {})
    for name in stated_children:
        platform = within.platform(name)
        if platform in children:
            within.fail(f"{platform} is given twice, as {names[platform]!r} and as {name!r}")
        children[platform], names[platform] = within.digest(stated_children, name), name
    if answer.get("platforms") is None:
        return tuple(Entry(platform, digest) for platform, digest in children.items())
    within = place.at("platforms")
    platforms = dict.fromkeys(within.platform(each) for each in within.sequence(answer["platforms"]))
    if missing := [platform for platform in children if platform not in platforms]:
        place.at("children").fail(f"{missing[0]} is not one of the platforms")
    return tuple(Entry(platform, children.get(platform, "")) for platform in platforms)


def _printed_answer(place: _Place, members: Mapping[Any, Any]) -> Inspection:
    """One answer as ``polyarch inspect -o json`` prints it."""
    try:
        status = Status(place.text(members, "status"))
    except ValueError:
        place.at("status").fail(f"{members.get('status')!r} is unknown; expected one of {', '.join(Status)}")
    entries = tuple(_printed_entries(place.at("platforms"), members.get("platforms")))
    within = place.at("skipped")
    skipped = [within.mapping(each) for each in within.sequence(members.get("skipped") or [])]
    error = None
    if status is Status.ERROR:
        within = place.at("error")
        fields = within.mapping(members.get("error"))
        within.members(fields, frozenset({"code", "class", "message", "status", "retryAfter", "attempts"}))
        error = _error(within, within.text(fields, "code"), within.text(fields, "message"))
    return Inspection(
        reference=_NO_REFERENCE,
        status=status,
        kind=place.kind(members),
        digest=place.digest(members, "digest"),
        media_type=place.text(members, "mediaType"),
        entries=entries,
        skipped=tuple(SkippedEntry(within.text(each, "digest"), within.text(each, "reason")) for each in skipped),
        warnings=place.warnings(members),
        error=error,
        neutral_reason=place.text(members, "neutralReason"),
    )


def _printed_entries(place: _Place, platforms: object) -> Iterator[Entry]:
    for index, each in enumerate(place.sequence(platforms or [])):
        within = place.at(f"[{index}]")
        members = within.mapping(each)
        within.members(members, _PRINTED_PLATFORM)
        features = within.sequence(members.get("osFeatures") or [])
        size = members.get("size")
        if not all(isinstance(feature, str) for feature in features):
            within.at("osFeatures").fail("expected a list of texts")
        if size is not None and (not isinstance(size, int) or isinstance(size, bool)):
            within.at("size").fail(f"expected a number, not {_kind_of(size)}")
        system, architecture = within.text(members, "os"), within.text(members, "architecture")
        if not system or not architecture:
            within.fail("os and architecture are both needed")
        variant, version = within.text(members, "variant"), within.text(members, "osVersion")
        platform = Platform.of(system, architecture, variant, version, features)
        yield Entry(platform, within.digest(members, "digest"), size)


def _resolved(
    kind: Kind, digest: str, entries: tuple[Entry, ...], warnings: tuple[InspectionWarning, ...]
) -> Inspection:
    warnings += tuple(platform_warnings(entry.platform for entry in entries))
    if are_wasm(entry.platform for entry in entries):
        return Inspection(
            _NO_REFERENCE, Status.NEUTRAL, kind, digest, entries=entries, warnings=warnings, neutral_reason=WASM
        )
    if not entries:
        warnings += (InspectionWarning("no-platforms", "the platforms file lists none"),)
    return Inspection(_NO_REFERENCE, Status.RESOLVED, kind, digest, entries=entries, warnings=warnings)


def _error(place: _Place, code: str, message: str) -> InspectionError:
    if code not in ERROR_CODES:
        place.fail(f"error code {code!r} is unknown; expected one of {', '.join(ERROR_CODES)}")
    return InspectionError.of(code, message)


def _agree(one: Inspection, other: Inspection) -> bool:
    return (one.status, one.kind, one.platforms, one.error, one.neutral_reason) == (
        other.status,
        other.kind,
        other.platforms,
        other.error,
        other.neutral_reason,
    )


def _name(reference: Reference) -> str:
    return f"oci:{reference.name}" if reference.transport == "oci" else reference.name


def _kind_of(value: object) -> str:
    names = {
        dict: "a mapping",
        list: "a list",
        str: "a text",
        bool: "a truth value",
        int: "a number",
        type(None): "null",
    }
    return names.get(type(value), type(value).__name__)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "…"
