"""Kubernetes objects and other YAML or JSON from files, with the place of what is wrong in them.

A file holds any number of documents; a ``List`` counts as its items. Texts are composed within the limits of ``polyarch
lint`` and read as Kubernetes reads YAML: no tag constructs anything, times are texts, and a file of a million brackets
is refused.
"""

import re
import sys
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec
import yaml

from polyarch.cli.errors import UsageError
from polyarch.cli.input.files import find_files
from polyarch.kube.schema import Schema, mistyped, stored_schema, without_nulls
from polyarch.manifests.scan.composer import compose_text
from polyarch.manifests.scan.nodes import chunks, value
from polyarch.objects import without_null_values
from polyarch.oci.platforms_file import AnswerFile, InvalidAnswers
from polyarch.yaml_loader import SafeLoader

if TYPE_CHECKING:
    from polyarch.taints.api import ArchitectureTaints

T = TypeVar("T")
STDIN = "-"
STANDARD_INPUT = "standard input"
"""What it is called where a file would be named."""
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


class FileDocument(msgspec.Struct, frozen=True):
    """One object and its place: ``file``, the number of its document in it (from 1) and the line it begins at."""

    file: str
    number: int
    content: dict[str, Any]
    node: Any = None

    @property
    def line(self) -> int:
        return int(self.node.start_mark.line) + 1 if self.node is not None else 1

    @property
    def kind(self) -> str:
        return str(self.content.get("kind") or "")

    @property
    def name(self) -> str:
        """Empty if it has none."""
        return self._metadata("name")

    @property
    def namespace(self) -> str:
        """Empty if it names none."""
        return self._metadata("namespace")

    @property
    def where(self) -> str:
        return f"{self.file}, document {self.number} (line {self.line})"

    def into(self, type: type[T], crd: Schema | None = None) -> T:
        """The object as this type; :class:`UsageError` names the line of the member that is not as expected, and says
        what to write there in the words of its CustomResourceDefinition, if that is given."""
        for field, problem in mistyped(stored_schema(crd), without_nulls(self.content)) if crd is not None else ():
            raise self._misfit(f".{field}", field, problem)
        try:
            return msgspec.convert(without_null_values(self.content, type), type)
        except msgspec.ValidationError as error:
            problem, _, path = str(error).rstrip("`").partition(" - at `")
            raise self._misfit(path, path.removeprefix("$.") or "the object", problem) from None

    def _misfit(self, path: str, field: str, problem: str) -> UsageError:
        return UsageError(
            f"{self.file}, document {self.number}, line {self.line_of(path)}: {self.kind or 'object'}"
            f"{self._named()}: {field}: {problem}"
        )

    def part(self, path: Iterable[str], content: dict[str, Any]) -> "FileDocument":
        """A part of the object, rewritten as ``content``, whose errors name the lines where it stands."""
        node = self.node
        for name in path:
            node = _element(node, int(name)) if name.isdecimal() else _member(node, name)
        return FileDocument(self.file, self.number, content, node or self.node)

    def error(self, problem: str) -> UsageError:
        """An error about the object as a whole."""
        return UsageError(f"{self.where}: {problem}")

    def _named(self) -> str:
        name = self.name or self._metadata("generateName")
        return f" {name!r}" if name else ""

    def _metadata(self, member: str) -> str:
        metadata = self.content.get("metadata")
        return str(metadata.get(member) or "") if isinstance(metadata, dict) else ""

    def line_of(self, path: str) -> int:
        """The line of the deepest member on a path such as ``.spec.containers[0].image`` that exists."""
        node = self.node
        for name, index in _STEP.findall(path):
            found = _member(node, name) if name else _element(node, int(index))
            if found is None:
                break
            node = found
        return int(node.start_mark.line) + 1 if node is not None else 1


def read_documents(path: str) -> list[FileDocument]:
    """The objects of a file, ``-`` for standard input. :class:`UsageError` names file, document and line."""
    try:
        text = sys.stdin.read() if path == STDIN else Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{path}: {error.strerror or error}; give a file with Kubernetes objects, or - for standard input"
        ) from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8 (byte {error.start})") from None
    shown = STANDARD_INPUT if path == STDIN else path
    return list(_documents(text, shown))


def documents_in(paths: Sequence[str], note: Callable[[str], None]) -> Iterator[FileDocument]:
    """The objects of files, of directories with manifests and of patterns, ``-`` for standard input.

    A directory holds other YAML, too: what cannot be read there is noted and left out.
    """
    given = find_files(paths)
    for path, problem in given.unreadable:
        note(f"{path}: {problem}")
    named = {str(path) for path in given.named}
    for path in given.files:
        try:
            yield from read_documents(STDIN if path in given.streams and path not in named else path)
        except UsageError as error:
            if path in named or path in given.streams:
                raise
            note(f"left out: {error}")


def _documents(text: str, file: str) -> Iterator[FileDocument]:
    try:
        roots = compose_text(text)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        number = sum(start <= mark.index for start, _ in chunks(text)) if mark is not None else 1
        line = f", line {mark.line + 1}" if mark is not None else ""
        raise UsageError(f"{file}, document {number}{line}: {error.problem or error.context}") from None
    except yaml.YAMLError as error:
        raise UsageError(f"{file}: {error}") from None
    for number, root in enumerate(roots, 1):
        content = value(root)
        if content is None:
            continue
        _make_whole(content)
        if not isinstance(content, dict):
            raise UsageError(
                f"{file}, document {number}, line {root.start_mark.line + 1}: "
                f"expected a Kubernetes object (a mapping), found a {type(content).__name__}"
            )
        yield from _items(FileDocument(file, number, content, root))


_LEAST_WITH_EXPONENT: Final = 1e21
"""From here on JSON has an exponent, which no whole number may have."""


def _make_whole(content: dict[str, Any] | list[Any]) -> None:
    """Whole numbers with a point become integers, in place: JSON, which kubectl makes of YAML, writes 5.0 as 5."""
    seen: set[int] = set()
    open_: list[Any] = [content]
    while open_:
        holder = open_.pop()
        if not isinstance(holder, dict | list) or id(holder) in seen:
            continue
        seen.add(id(holder))
        for key, member in holder.items() if isinstance(holder, dict) else enumerate(holder):
            if isinstance(member, float) and member.is_integer() and abs(member) < _LEAST_WITH_EXPONENT:
                holder[key] = int(member)
            else:
                open_.append(member)


def _items(document: FileDocument) -> Iterator[FileDocument]:
    items = document.content.get("items")
    if not document.kind.endswith("List") or not isinstance(items, list):
        yield document
        return
    nodes = _member(document.node, "items")
    for index, item in enumerate(items):
        if isinstance(item, dict):
            yield FileDocument(document.file, document.number, item, _element(nodes, index))


def _member(node: Any, name: str) -> Any:
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == name), None)
    return None


def _element(node: Any, index: int) -> Any:
    if isinstance(node, yaml.SequenceNode) and index < len(node.value):
        return node.value[index]
    return None


# -- files that an option names


class StrictLoader(SafeLoader):
    """Refuses a key that a mapping has twice."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        texts = {key_node.value for key_node, _ in node.value if isinstance(key_node, yaml.ScalarNode)}
        if len(texts) < len(node.value):  # keys that are no texts are refused whatever they are
            self._check_keys(node)
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        return found

    def _check_keys(self, node: yaml.MappingNode) -> None:
        seen: set[Hashable] = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if isinstance(key, Hashable):
                if key in seen:
                    raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", key_node.start_mark)
                seen.add(key)


def load_yaml(option: str, path: str, *, expected: str, loader: Any = SafeLoader) -> Any:
    """The content; ``UsageError`` with file, place and reason, and with what was ``expected`` if there is no file.

    ``loader`` is a subclass of a safe one; ``-`` is standard input.
    """
    try:
        content = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return yaml.load(content, loader)  # noqa: S506 - safe
    except OSError as error:
        raise UsageError(f"{option} {path}: {error.strerror}; expected {expected}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark is not None else path
        raise UsageError(f"{place}: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path}: not YAML ({' '.join(str(error).split())})") from None


def load_platforms_file(path: str) -> AnswerFile:
    """The answers of the file; ``UsageError`` with file, place and reason if it cannot be used."""
    data = load_yaml("--platforms-file", path, expected="a YAML or JSON file of answers", loader=StrictLoader)
    try:
        return AnswerFile.from_mapping(data, origin=path)
    except InvalidAnswers as error:
        raise UsageError(str(error)) from None


def read_taints(path: str) -> "ArchitectureTaints":
    """The one object ArchitectureTaints of a file, refused for what the cluster would refuse.

    Raises :class:`UsageError` that names the file, the line and every field that is wrong.
    """
    from polyarch.taints.api import ARCHITECTURE_TAINTS
    from polyarch.taints.crd import InvalidTaintsConfiguration, validated

    kind, version = ARCHITECTURE_TAINTS.kind, ARCHITECTURE_TAINTS.api_version
    documents = read_documents(path)
    if len(documents) != 1:
        raise UsageError(f"{path}: expected one object, {kind} of {version}; it has {len(documents)}")
    (document,) = documents
    try:
        return validated(document.content)
    except InvalidTaintsConfiguration as error:
        problems = "; ".join(f"line {document.line_of(f'.{each.field}')}: {each}" for each in error.problems)
        raise UsageError(f"{document.where}: {problems}") from None
