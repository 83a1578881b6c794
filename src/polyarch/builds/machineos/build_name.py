"""The name of a MachineOSBuild: the stock builder's where a pool has one architecture.

Stock builders hash YAML texts, so ours have to agree with theirs to the byte: they use a port of libyaml to Go, which
chooses styles of its own (:func:`needs_quotes`).
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from typing import Any, Final

import yaml
from yaml.emitter import Emitter, ScalarAnalysis

SALT: Final = bytes.fromhex(
    "107ccee48b38afaf4fe586769d9ad36e195d2ffdac6a2507ae0da0b96e115734db830cceda8d7487bcb5c097e93e7ea5"
    "4053b3770fa8d0c5926b3ae385bcee1a211aebca20ad1fea2990944f06ce1716"
)
"""A constant of stock builders, kept for compatibility."""
ANY_ARCHITECTURE: Final = "NoArch"
_OBJECT_REFERENCE: Final = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")


_RESERVED = frozenset(
    {"", "~"}
    | {
        form
        for word in ("y", "yes", "true", "on", "n", "no", "false", "off", "null")
        for form in (word, word.capitalize(), word.upper())
    }
    | {f"{sign}.{form}" for sign in ("", "+", "-") for form in ("inf", "Inf", "INF")}
    | {".nan", ".NaN", ".NAN"}
)
_INTEGER = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]([0-7]+)|0([0-7]*)|([1-9][0-9]*))", re.ASCII)
_BASES = (16, 2, 8, 8, 10)
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)
_SEXAGESIMAL = re.compile(r"[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:(?:[Tt]|( +))([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,][0-9]+)?(Z|[-+][0-9]{2}:[0-9]{2})?)?",
    re.ASCII,
)


def stock_name(
    config: str, *, configuration: Mapping[str, Any], spec: Mapping[str, Any], os_images: Mapping[str, str]
) -> str:
    """Bit for bit what stock builders make of ``spec.configuration`` of the pool and ``spec`` of the MachineOSConfig.

    ``os_images``: see :func:`os_images`. Objects are taken as they are stored.
    """
    return _named(
        config,
        block_yaml(configuration_of(configuration)),
        block_yaml(spec_of(spec)),
        block_yaml(dict(os_images)),
    )


def mixed_name(config: str, *, configuration: Mapping[str, Any], build_key: str) -> str:
    """The name where there is more than one architecture, or a text for one of them only."""
    return _named(config, block_yaml(configuration_of(configuration)), build_key.encode())


def keeps_stock_name(architectures: Iterable[str], entries: Iterable[Mapping[str, Any]] | None) -> bool:
    """Whether a build for these architectures, with these ``containerFile`` entries, has the stock name."""
    texts = (entry.get("containerfileArch") or ANY_ARCHITECTURE for entry in entries or ())
    return len(set(architectures)) == 1 and all(each == ANY_ARCHITECTURE for each in texts)


def os_images(*, os_image: str, extensions_image: str, release: str) -> dict[str, str]:
    """What the stock builder hashes of the rendered config and its release."""
    return {
        "BaseOSContainerImage": os_image,
        "BaseOSExtensionsContainerImage": extensions_image,
        "OSImageURL": "",
        "ReleaseVersion": release,
    }


def configuration_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """``spec.configuration`` of a pool with the fields of v1 only."""
    found = _reference(stored)
    if source := stored.get("source"):
        found["source"] = [_reference(each) for each in source]
    return found


def spec_of(stored: Mapping[str, Any]) -> dict[str, Any]:
    """``spec`` of a MachineOSConfig with the fields of v1 only; without ``containerFile`` that is null."""
    entries = stored.get("containerFile")
    found: dict[str, Any] = {
        "machineConfigPool": {"name": _text(stored, "machineConfigPool", "name")},
        "imageBuilder": {"imageBuilderType": _text(stored, "imageBuilder", "imageBuilderType")},
        "renderedImagePushSecret": {"name": _text(stored, "renderedImagePushSecret", "name")},
        "renderedImagePushSpec": stored.get("renderedImagePushSpec") or "",
        "containerFile": None if entries is None else [_entry(each) for each in entries],
    }
    if stored.get("baseImagePullSecret") is not None:
        found["baseImagePullSecret"] = {"name": _text(stored, "baseImagePullSecret", "name")}
    return found


def _named(config: str, *parts: bytes) -> str:
    digest = hashlib.md5(SALT + b"".join(parts), usedforsecurity=False)
    return f"{config}-{digest.hexdigest()}"


def _entry(stored: Mapping[str, Any]) -> dict[str, Any]:
    found = {"content": stored.get("content") or ""}
    if architecture := stored.get("containerfileArch"):
        found["containerfileArch"] = architecture
    return found


def _reference(stored: Mapping[str, Any]) -> dict[str, Any]:
    return {field: stored[field] for field in _OBJECT_REFERENCE if stored.get(field)}


def _text(stored: Mapping[str, Any], *path: str) -> str:
    value: Any = stored
    for each in path:
        value = value.get(each) if isinstance(value, Mapping) else None
    return value if isinstance(value, str) else ""


# -- YAML as the stock builder writes it -------------------------------------------------------------------------------


def block_yaml(value: Any) -> bytes:
    """The document as the stock builder writes it: mappings with text keys, lists, texts, integers, booleans and None.

    The Go port indents no quote after a line separator that ends a text, so such texts are written with a mark that is
    taken out again with the indentation. It ends no text that ends with line breaks by ``...`` either.
    """
    stream = io.StringIO()
    emitter = _Emitter(stream, width=80, allow_unicode=True)
    for event in (
        yaml.StreamStartEvent(),
        yaml.DocumentStartEvent(explicit=False),
        *_events(value),
        yaml.DocumentEndEvent(explicit=False),
        yaml.StreamEndEvent(),
    ):
        emitter.emit(event)
    return _LEFT_OUT.sub("", stream.getvalue()).encode()


class _Emitter(Emitter):
    """PyYAML's emitter with the two rules in which libyaml, a port of it, differs.

    libyaml itself is not asked: PyYAML may be built without it, and no name may depend on where the leader runs.
    """

    def analyze_scalar(self, scalar: str) -> ScalarAnalysis:
        """Fewer characters are printable, and a text with others is escaped."""
        analysis = super().analyze_scalar(scalar)
        if _UNPRINTABLE.search(scalar):
            analysis.allow_flow_plain = analysis.allow_block_plain = False
            analysis.allow_single_quoted = analysis.allow_block = False
        return analysis

    def write_double_quoted(self, text: str, split: bool = True) -> None:
        """Lines are folded at spaces alone, and only beyond the width."""
        self.write_indicator('"', True)
        for position, character in enumerate(text):
            inner = 0 < position < len(text) - 1 and text[position - 1] != " "
            if character == " " and split and inner and self.column > self.best_width:
                self.write_indent()
                piece = "\\" if text[position + 1] == " " else ""
            else:
                piece = _ESCAPED.sub(_escape, character)
            self.column += len(piece)
            self.stream.write(piece)
        self.write_indicator('"', False)


_UNPRINTABLE: Final = re.compile(r"[\x85\U00010000-\U0010ffff]")
_ESCAPED: Final = re.compile(r"[^\x20-\x7e\xa0-\ud7ff\ue000-\ufffd]|[\"\\\u2028\u2029\ufeff]")


def _escape(match: re.Match[str]) -> str:
    code, short = ord(match[0]), Emitter.ESCAPE_REPLACEMENTS.get(match[0])
    if short is not None:
        return f"\\{short}"
    return f"\\x{code:02X}" if code <= 0xFF else f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


_MARK: Final = "\ue00f\ue00e\ue00f"
_LEFT_OUT: Final = re.compile(rf" *{_MARK}|(?<=[\n\u2028\u2029])\.\.\.\n\Z")


def _events(value: Any) -> Iterator[yaml.Event]:
    match value:
        case str():
            style = "|" if "\n" in value else '"' if needs_quotes(value) else None
            mark = _MARK if style is None and value.endswith(("\u2028", "\u2029")) else ""
            yield yaml.ScalarEvent(None, None, (True, True), value + mark, style=style)
        case Mapping():
            yield yaml.MappingStartEvent(None, None, implicit=True, flow_style=not value)
            for name in sorted(value):
                yield from _events(name)
                yield from _events(value[name])
            yield yaml.MappingEndEvent()
        case Sequence():
            yield yaml.SequenceStartEvent(None, None, implicit=True, flow_style=not value)
            for item in value:
                yield from _events(item)
            yield yaml.SequenceEndEvent()
        case None | int():
            yield yaml.ScalarEvent(None, None, (True, True), "null" if value is None else str(value).lower())
        case _:
            raise TypeError(f"{value!r} has no place in an object that is hashed")


def needs_quotes(text: str) -> bool:
    """Whether YAML 1.1 would read the plain text as something other than a text."""
    if text in _RESERVED or _SEXAGESIMAL.fullmatch(text):
        return True
    if text[0] == ".":
        return _is_float(text)
    if text[0] not in "+-0123456789":
        return False
    plain = text.replace("_", "")
    return _is_timestamp(text) or _is_integer(plain) or _is_float(plain)


def _is_integer(text: str) -> bool:
    """Whether it is an integer of 64 bits; a longer one is a float, where its digits are those of one."""
    match = _INTEGER.fullmatch(text)
    if match is None:
        return False
    sign, *groups = match.groups()
    digits, base = next((group, base) for group, base in zip(groups, _BASES, strict=True) if group is not None)
    significant = digits.lstrip("0")
    if len(significant) > 64:
        return False
    value = int(significant or "0", base)
    return value <= 2**63 if sign == "-" else value < (2**63 if sign else 2**64)


def _is_float(text: str) -> bool:
    return _FLOAT.fullmatch(text) is not None and abs(float(text)) != float("inf")


def _is_timestamp(text: str) -> bool:
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        return False
    year, month, day, spaces, hour, minute, second, zone = match.groups()
    try:
        date(int(year) or 2000, int(month), int(day))
    except ValueError:
        return False
    if hour is None:
        return True
    in_range = int(hour) < 24 and int(minute) < 60 and int(second) < 60
    return in_range and (zone is None) is (spaces is not None)
