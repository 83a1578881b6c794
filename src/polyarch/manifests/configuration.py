"""Reads ``.polyarch.yaml``, the settings that a repository shares.

Command-line options override it. Unknown keys and wrong types are errors with their line: a misspelt key would
silently check less than its author believes.

Pure: text in, values out. The command line decides which file is read.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import NoReturn

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from polyarch.manifests.finding import Severity
from polyarch.manifests.report import FailOn
from polyarch.manifests.rules.catalogue import RULES
from polyarch.manifests.rules.options import TAINT_PRESETS, Taints
from polyarch.manifests.scan.nodes import Document, SyntaxProblem, compose, duplicate_keys, entries, is_null, value
from polyarch.manifests.scan.text import SourceText
from polyarch.platforms import ASSUMED_ARCHITECTURES, KNOWN_ARCHITECTURES, InvalidPlatform, NodePlatform, Platform

FILE_NAME = ".polyarch.yaml"
FAIL_ON: Mapping[str, FailOn] = {"error": "error", "warning": "warning", "info": "info", "never": "never"}
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class InvalidLintConfiguration(ValueError):  # noqa: N818 - reads as a noun
    """An invalid configuration: file, line, column, what is wrong and what to do."""

    def __init__(self, path: str, line: int, column: int, problem: str) -> None:
        super().__init__(f"{path}:{line}:{column}: {problem}")


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the file; None or empty where it has none. Paths are as written, relative to the file."""

    platforms: tuple[NodePlatform, ...] = ()
    require: tuple[NodePlatform, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    severity: Mapping[str, Severity] = {}
    fail_on: FailOn | None = None
    prefer: Mapping[str, int] = {}
    taints: Taints | None = None
    ignore_paths: tuple[str, ...] = ()
    lock: str | None = None
    platforms_file: str | None = None

    @classmethod
    def read(cls, source: SourceText) -> "Configuration":
        """Raises :class:`InvalidConfiguration`; an empty file is an empty configuration."""
        try:
            documents = compose(source)
        except SyntaxProblem as problem:
            raise InvalidLintConfiguration(source.path, problem.line, problem.column, problem.problem) from None
        if len(documents) > 1:
            line, column = source.place(documents[1].chunk_start)
            raise InvalidLintConfiguration(source.path, line, column, "a second document; a configuration has only one")
        if not documents or is_null(documents[0].root):
            return cls()
        return _Reader(documents[0]).read()


def check_pattern(text: str) -> str | None:
    """What is wrong with a rule's id or prefix (``MA1*``); None if it names at least one rule."""
    if text in RULES:
        return None
    if text.endswith("*") and any(rule.startswith(text[:-1]) for rule in RULES):
        return None
    return f"{text!r} matches no rule; polyarch lint --rules lists them"


def node_platform(text: str) -> NodePlatform:
    """A node platform: ``linux/arm64`` or ``arm64``. Raises ``InvalidPlatform``."""
    return Platform.parse_node(text)


class _Reader:
    """Reads members by type; errors name their position."""

    def __init__(self, document: Document) -> None:
        self.document = document

    def fail(self, node: Node, problem: str) -> NoReturn:
        line, column = self.document.source.place(self.document.start(node))
        raise InvalidLintConfiguration(self.document.source.path, line, column, problem)

    def read(self) -> Configuration:
        readers: dict[str, tuple[str, Callable[[Node, str], object]]] = {
            "platforms": ("platforms", self.platforms),
            "require": ("require", self.platforms),
            "include": ("include", self.patterns),
            "exclude": ("exclude", self.patterns),
            "severity": ("severity", self.severities),
            "failOn": ("fail_on", self.fail_on),
            "prefer": ("prefer", self.preferences),
            "taints": ("taints", self.taints),
            "ignorePaths": ("ignore_paths", self.texts),
            "lock": ("lock", self.text),
            "platformsFile": ("platforms_file", self.text),
        }
        fields: dict[str, object] = {}
        for key, _, member in self.members(self.document.root, "the configuration", tuple(readers)):
            name, reader = readers[key]
            fields[name] = reader(member, key)
        return Configuration(**fields)  # type: ignore[arg-type]

    def members(self, node: Node, what: str, known: tuple[str, ...] = ()) -> Iterator[tuple[str, Node, Node]]:
        if not isinstance(node, MappingNode):
            self.fail(node, f"{what} must be a mapping, not {_kind(node)}")
        for key, repeated in duplicate_keys(node):
            self.fail(repeated, f"{key} is duplicated; remove one")
        for key, key_node, member in entries(node):
            if known and key not in known:
                self.fail(key_node, f"unknown key {key!r}; expected one of {', '.join(known)}")
            yield key, key_node, member

    def text(self, node: Node, key: str) -> str:
        found = value(node)
        if not isinstance(found, str) or not found:
            self.fail(node, f"{key} must be a string, not {_kind(node)}")
        return found

    def texts(self, node: Node, key: str) -> tuple[str, ...]:
        if not isinstance(node, SequenceNode):
            self.fail(node, f"{key} must be a list, not {_kind(node)}")
        return tuple(self.text(element, f"an element of {key}") for element in node.value)

    def platforms(self, node: Node, key: str) -> tuple[NodePlatform, ...]:
        found: dict[NodePlatform, None] = {}
        texts = self.texts(node, key)
        for element, text in zip(node.value, texts, strict=True):
            try:
                found[node_platform(text)] = None
            except InvalidPlatform as error:
                self.fail(element, f"{key}: {error}")
        return tuple(found)

    def patterns(self, node: Node, key: str) -> tuple[str, ...]:
        texts = self.texts(node, key)
        return tuple(self.pattern(element, text) for element, text in zip(node.value, texts, strict=True))

    def pattern(self, node: Node, text: str) -> str:
        problem = check_pattern(text.upper())
        if problem:
            self.fail(node, problem)
        return text.upper()

    def severities(self, node: Node, key: str) -> dict[str, Severity]:
        found = {}
        for pattern, pattern_node, member in self.members(node, key):
            found[self.pattern(pattern_node, pattern)] = Severity(
                self.one_of(member, f"the severity of {pattern}", tuple(Severity))
            )
        return found

    def fail_on(self, node: Node, key: str) -> FailOn:
        return FAIL_ON[self.one_of(node, key, tuple(FAIL_ON))]

    def one_of(self, node: Node, what: str, known: tuple[str, ...]) -> str:
        found = value(node)
        if not isinstance(found, str) or found not in known:
            self.fail(node, f"{what} must be one of {', '.join(known)}, not {_shown(node)}")
        return found

    def preferences(self, node: Node, key: str) -> dict[str, int]:
        found = {}
        for name, name_node, member in self.members(node, key):
            if name not in KNOWN_ARCHITECTURES:
                known = ", ".join(ASSUMED_ARCHITECTURES)
                self.fail(name_node, f"{name!r} is not a node architecture; use {known} or another one")
            weight = value(member)
            if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= 100:
                self.fail(member, f"the weight of {name} must be a number from 1 to 100, not {_shown(member)}")
            found[name] = weight
        return found

    def taints(self, node: Node, key: str) -> Taints:
        taint_key, effect, preset = "", "NoSchedule", ""
        architectures: tuple[str, ...] = ()
        for name, _, member in self.members(node, key, ("preset", "key", "effect", "architectures")):
            match name:
                case "preset":
                    preset = self.one_of(member, "taints.preset", tuple(TAINT_PRESETS))
                case "key":
                    taint_key = self.text(member, "taints.key")
                case "effect":
                    effect = self.one_of(member, "taints.effect", EFFECTS)
                case _:
                    architectures = self.architectures(member)
        if bool(preset) == bool(taint_key):
            self.fail(node, "taints needs either preset or key")
        return Taints(taint_key or TAINT_PRESETS[preset], effect, architectures)

    def architectures(self, node: Node) -> tuple[str, ...]:
        texts = self.texts(node, "taints.architectures")
        for element, text in zip(node.value, texts, strict=True):
            if text not in KNOWN_ARCHITECTURES:
                self.fail(element, f"{text!r} is not a node architecture")
        return texts


def _kind(node: Node) -> str:
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    return "nothing" if is_null(node) else _shown(node)


def _shown(node: Node) -> str:
    if not isinstance(node, ScalarNode):
        return _kind(node)
    text = str(node.value)
    return repr(text if len(text) <= 60 else text[:60] + "…")
