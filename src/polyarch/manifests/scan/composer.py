"""Composes YAML text into marked nodes, fast and within limits, and reads the values of scalars.

PyYAML's C parser does the work; its Python callbacks for each node are replaced here. Tags of plain scalars are
cached by text, and nesting depth is counted during composition if the text could be deep, so that a file of a million
brackets is refused before recursion ends the process. No tag constructs an object: only nodes are made.

Pure: imports yaml and nothing of polyarch.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from math import inf, isinf
from typing import Any

import yaml
from yaml import CSafeLoader, events
from yaml.composer import ComposerError
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode
from yaml.resolver import Resolver

from polyarch.yaml_loader import MAX_DEPTH

MAX_EXPANDED = 1_000_000
"""Nodes of a document after its aliases are followed."""

STRING = "tag:yaml.org,2002:str"
_KINDS: dict[type[Node], str] = {SequenceNode: "tag:yaml.org,2002:seq", MappingNode: "tag:yaml.org,2002:map"}
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_INDENTED = re.compile(r"[ ?:\-]{50}")
_FAR_RIGHT = re.compile(r"\n[ ?:\-]{50}")
_UNUSUAL = "&!\r\x85\u2028\u2029"
_resolver = Resolver()


class BeyondLimit(yaml.MarkedYAMLError):
    """Nesting beyond :data:`MAX_DEPTH`, or aliases that expand beyond :data:`MAX_EXPANDED`."""


@lru_cache(maxsize=50_000)
def plain_tag(value: str) -> str:
    """The tag of a plain scalar with this text in YAML 1.1, or of the number that Kubernetes reads besides."""
    tag = str(_resolver.resolve(ScalarNode, value, (True, False)))  # type: ignore[no-untyped-call]
    if tag not in (STRING, _INT) or (number := plain_number(value)) is None:
        return tag
    return _INT if isinstance(number, int) else _FLOAT


def compose_text(text: str) -> list[Node]:
    """The root nodes of the documents of a text; raises yaml.YAMLError."""
    try:
        roots = list(_nodes(_loader(text)))
    except ComposerError as error:
        if "duplicate anchor" not in str(error.context):
            raise
        roots = list(_from_events(_loader(text)))
    except yaml.scanner.ScannerError as error:
        # JSON writes characters beyond U+FFFF as two escapes, which YAML refuses; no rule looks at such texts.
        if "character escape" not in str(error.problem) or not _is_json(text):
            raise
        roots = list(_nodes(_loader(_SURROGATE.sub(r"\\ufffd", text))))
    if "*" in text and "&" in text:
        for root in roots:
            _check_expansion(root)
    return roots


def children(node: Node) -> list[Node]:
    """The nodes directly below, keys included; aliases as their targets."""
    if isinstance(node, SequenceNode):
        return list(node.value)
    if isinstance(node, MappingNode):
        return [child for pair in node.value for child in pair]
    return []


def _is_json(text: str) -> bool:
    try:
        json.loads(text.removeprefix("---"))
    except (ValueError, RecursionError):
        return False
    return True


class _Loader(CSafeLoader):
    """For a text that cannot be deep: the C composer's callbacks for each node are built-in functions that do nothing,
    which saves a twentieth of the time.
    """

    descend_resolver: Callable[..., None] = staticmethod({}.get)
    ascend_resolver: Callable[[], None] = staticmethod({}.clear)

    def resolve(self, kind: type[Node], value: str, implicit: tuple[bool, bool]) -> str:
        if kind is ScalarNode:
            return plain_tag(value) if implicit[0] else STRING
        return _KINDS[kind]


class _CountingLoader(_Loader):
    """Refuses nesting deeper than :data:`MAX_DEPTH`."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.depth = 0

    def descend_resolver(self, parent: Node | None, index: object) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _too_deep(parent)

    def ascend_resolver(self) -> None:
        self.depth -= 1


def _loader(text: str) -> _Loader:
    """A loader that counts depth, unless the text cannot be deep.

    A block collection starts further right than its parent, or is a list at the column of its key; a flow collection
    has a bracket. So a text with little indentation and few brackets is never deep. Depth is counted if the text has
    tags, anchors or unusual line breaks.
    """
    few = text.count("[") + text.count("{") < MAX_DEPTH // 4
    usual = few and not any(mark in text for mark in _UNUSUAL)
    shallow = usual and not _INDENTED.match(text) and not _FAR_RIGHT.search(text)
    return _Loader(text) if shallow else _CountingLoader(text)


def _nodes(loader: _Loader) -> Iterator[Node]:
    while loader.check_node():
        node = loader.get_node()
        if node is not None:
            yield node


def _from_events(parser: _Loader) -> Iterator[Node]:
    """The same, but an anchor may be defined again: YAML and kubectl allow it, the C composer does not."""
    anchors: dict[str, Node] = {}
    stack: list[tuple[CollectionNode, list[Node]]] = []
    while (event := parser.get_event()) is not None:
        if isinstance(event, events.DocumentStartEvent):
            anchors.clear()
        if isinstance(event, events.CollectionEndEvent):
            collection, children = stack.pop()
            collection.end_mark = event.end_mark
            pairs = list(zip(*[iter(children)] * 2, strict=True)) if isinstance(collection, MappingNode) else children
            collection.value = pairs
            node: Node = collection
        elif isinstance(event, events.NodeEvent):
            node = _of_event(event, anchors)
            if stack:
                stack[-1][1].append(node)
            if isinstance(event, events.CollectionStartEvent) and isinstance(node, CollectionNode):
                stack.append((node, []))
                if len(stack) > MAX_DEPTH:
                    raise _too_deep(node)
        else:
            continue
        if not stack:
            yield node


def _of_event(event: Any, anchors: dict[str, Node]) -> Node:
    if isinstance(event, events.AliasEvent):
        if event.anchor not in anchors:
            mark: Any = event.start_mark  # the stubs know one of the two Mark classes
            raise yaml.MarkedYAMLError(problem=f"found undefined alias {event.anchor!r}", problem_mark=mark)
        return anchors[event.anchor]
    start: Any = event.start_mark
    end: Any = event.end_mark
    tag = None if event.tag == "!" else event.tag
    if isinstance(event, events.ScalarEvent):
        tag = tag or (plain_tag(event.value) if event.implicit[0] else STRING)
        node: Node = ScalarNode(tag, event.value, start, end, event.style)
    else:
        kind = SequenceNode if isinstance(event, events.SequenceStartEvent) else MappingNode
        node = kind(tag or _KINDS[kind], [], start, end, event.flow_style)
    if event.anchor is not None:
        anchors[event.anchor] = node
    return node


def _too_deep(parent: Node | None) -> BeyondLimit:
    mark = parent.start_mark if parent is not None else None
    return BeyondLimit(problem=f"nesting is deeper than {MAX_DEPTH} levels", problem_mark=mark)


def _check_expansion(root: Node) -> None:
    """Refuses excessive expansion by aliases, and nodes that contain themselves."""
    measured: dict[int, tuple[int, int]] = {}
    unfinished: set[int] = set()

    def measure(node: Node) -> tuple[int, int]:
        """Number of nodes and depth with aliases followed."""
        known = measured.get(id(node))
        if known is not None:
            return known
        if id(node) in unfinished:
            raise _beyond("an alias points to a node that contains it", node)
        unfinished.add(id(node))
        below = [measure(child) for child in children(node)]
        total = 1 + sum(size for size, _ in below)
        if total > MAX_EXPANDED:
            raise _beyond(f"aliases expand to more than {MAX_EXPANDED} nodes", node)
        measured[id(node)] = total, 1 + max((depth for _, depth in below), default=0)
        return measured[id(node)]

    if measure(root)[1] > MAX_DEPTH + 1:
        raise _beyond(f"aliases nest deeper than {MAX_DEPTH} levels", root)


def _beyond(problem: str, node: Node) -> BeyondLimit:
    return BeyondLimit(problem=problem, problem_mark=node.start_mark)


# -- values of plain scalars, as Kubernetes reads YAML (as JSON) rather than as YAML 1.1 defines them ------------------
# libyaml resolves tags by YAML 1.1. Where the two differ, Kubernetes wins: a timestamp is a string, and so is ``1:30``,
# which only YAML 1.1 takes for ninety. ``1e1``, ``.5e1``, ``0o20`` and ``08`` are numbers, as ``sigs.k8s.io/yaml`` has
# them (``resolve`` of ``go.yaml.in/yaml/v2``, with the integers of Go).


NULL = "tag:yaml.org,2002:null"
_BOOL = "tag:yaml.org,2002:bool"
_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_TRUE = frozenset({"yes", "true", "on"})
_DIGITS = re.compile(r"([-+]?)(?:0([xXbBoO]))?([0-9a-fA-F]{1,64})", re.ASCII)
_RADIX = {"x": 16, "b": 2, "o": 8}
_DECIMAL = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?", re.ASCII)


def scalar_value(node: ScalarNode) -> str | int | float | bool | None:
    """The scalar as Kubernetes reads it; a string if the text does not match its tag."""
    text = str(node.value)
    if node.tag == NULL:
        return None
    if node.tag == _BOOL:
        return text.lower() in _TRUE
    if node.tag == _FLOAT:
        return _float(text)
    number = plain_number(text) if node.tag == _INT else None
    return number if isinstance(number, int) else text


def plain_number(text: str) -> int | float | None:
    """The number that Kubernetes reads in a plain scalar; None where it reads none. ``5.0`` is a float here, which JSON
    writes as 5.
    """
    if text[:1] not in tuple("+-.0123456789"):
        return None
    digits = text if text.startswith(".") else text.replace("_", "")
    if match := _DIGITS.fullmatch(digits):
        sign, prefix, numeral = match.groups()
        radix = _RADIX[prefix.lower()] if prefix else 8 if numeral.startswith("0") else 10
        try:
            number = int(sign + numeral, radix)
        except ValueError:
            number = None
        if number is not None and -(2**63) <= number < 2**64:
            return number
    decimal = float(digits) if _DECIMAL.fullmatch(digits) else inf
    return None if isinf(decimal) else decimal


def _float(text: str) -> float | str:
    digits = text.replace("_", "").lower()
    match digits.lstrip("+-"):
        case ".inf":
            return float("-inf") if digits.startswith("-") else float("inf")
        case ".nan":
            return float("nan")
    number = plain_number(text)
    return text if number is None else float(number)
