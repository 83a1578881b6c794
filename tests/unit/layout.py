"""What the layout of a package is measured by: how full its rooms are, circles of imports, names that are too alike.

Pure: names and source texts in, sentences out; nothing is imported to be looked at. A *room* is a folder, that is, a
package. Four rules:

* **size**: a room holds at most a dozen modules; its ``__init__`` and its sub-rooms are not counted.
* **length**: a module has at most 400 lines: more is more than one idea. Generated ones (protobuf) do not count.
* **circle**: what lies side by side in a room (modules and sub-rooms) imports each other in one direction only. A
  sub-room imports whatever any module in it imports. Imports for type checking count, as do those within functions and
  ``importlib.import_module`` with a constant: they tell that two modules cannot be understood one without the other,
  whenever they are executed. ``lazily`` names the packages in which imports within functions do not count: the command
  line's, which defer what a start does not need, and are executed when everything has been imported.
* **ending**: of two modules of one feature (a room of the root, with all below it) the names do not differ in an
  ending only: ``fix`` and ``fixing``, ``retry`` and ``retries``, ``cache`` and ``caches``, ``auth`` and ``auth_file``.
  The same name in two rooms is no such pair, nor are names that say different things: ``fix`` and ``fix_result``.
"""

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple

MOST_MODULES: Final = 12
MOST_LINES: Final = 400
GENERATED: Final = ("_pb2", "_grpc")
ENDINGS: Final = (
    *("s", "es", "e", "y", "ies", "ed", "ing", "ings", "er", "ers", "or", "ors", "ion", "ions", "ation", "ations"),
    *("_file", "_files"),
)
SHORTEST_STEM: Final = 3


class Source(NamedTuple):
    """A module as it is on disk."""

    text: str
    is_room: bool = False
    """It is the ``__init__`` of a package."""


Tree = Mapping[str, Source]
"""Modules by their full name, packages among them."""


class Violation(NamedTuple):
    """One rule broken in one room, and how, in words."""

    rule: str
    room: str
    words: str

    def __str__(self) -> str:
        return f"{self.room}: {self.words}"


def violations(tree: Tree, *, lazily: Collection[str] = ()) -> list[Violation]:
    """Everything wrong with this tree, ordered by room."""
    rooms = sorted(name for name, source in tree.items() if source.is_room)
    edges = {name: imported(name, tree, lazily=lazily) for name in tree}
    found = [*sizes(tree, rooms), *lengths(tree), *circles(edges, rooms), *endings(tree)]
    return sorted(found, key=lambda each: (each.room, each.rule, each.words))


# -- size --------------------------------------------------------------------------------------------------------------


def sizes(tree: Tree, rooms: Sequence[str]) -> Iterator[Violation]:
    """Rooms with more than a dozen modules."""
    for room in rooms:
        count = sum(not source.is_room and name.rpartition(".")[0] == room for name, source in tree.items())
        if count > MOST_MODULES:
            yield Violation("size", room, f"{count} modules, at most {MOST_MODULES} fit")


# -- length ------------------------------------------------------------------------------------------------------------


def lengths(tree: Tree) -> Iterator[Violation]:
    """Modules with more than 400 lines."""
    for name, source in tree.items():
        room, _, module = name.rpartition(".")
        lines = source.text.count("\n")
        if lines > MOST_LINES and not module.endswith(GENERATED):
            yield Violation("length", name if source.is_room else room, f"{name} has {lines} lines")


# -- circles -----------------------------------------------------------------------------------------------------------


def imported(name: str, tree: Tree, *, lazily: Collection[str] = ()) -> set[str]:
    """The modules of the tree that this one imports."""
    deferred = any(name == each or name.startswith(f"{each}.") for each in lazily)
    package = name if tree[name].is_room else name.rpartition(".")[0]
    found: set[str] = set()
    for node in _nodes(ast.parse(tree[name].text), within_functions=not deferred):
        match node:
            case ast.Import(names=aliases):
                found |= {alias.name for alias in aliases}
            case ast.ImportFrom(module=module, names=aliases, level=level):
                above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*above, *([module] if module else [])])
                inner = {f"{base}.{alias.name}" for alias in aliases}
                found |= inner & tree.keys()
                if inner - tree.keys():
                    found.add(base)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(module)), *_]):
                found.add(module)
            case _:
                pass
    return (found & tree.keys()) - {name}


def _nodes(node: ast.AST, *, within_functions: bool) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        if within_functions or not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from _nodes(child, within_functions=within_functions)


def circles(edges: Mapping[str, Collection[str]], rooms: Sequence[str]) -> Iterator[Violation]:
    """Per room, the groups of modules and sub-rooms that import each other in a circle, each with one way round."""
    for room in rooms:
        beside: dict[str, set[str]] = {}
        for name, targets in edges.items():
            if (here := _child(name, room)) is None:
                continue
            there = {_child(target, room) for target in targets} - {None, here}
            beside.setdefault(here, set()).update(each for each in there if each is not None)
        for way, group in _ways_round(beside):
            others = sorted(group - set(way))
            more = f" (and, in circles with these, {', '.join(others)})" if others else ""
            yield Violation("circle", room, " → ".join([*way, way[0]]) + more)


def _child(name: str, room: str) -> str | None:
    """Which of the room's own modules and sub-rooms this is, or is in; ``__init__`` is the room itself."""
    if name == room:
        return "__init__"
    return name.removeprefix(f"{room}.").partition(".")[0] if name.startswith(f"{room}.") else None


def _ways_round(graph: Mapping[str, Collection[str]]) -> Iterator[tuple[list[str], set[str]]]:
    """Each group of nodes that reach each other, after the shortest circle through its first one."""
    reach = {node: _reached(node, graph) for node in graph}
    told: set[str] = set()
    for node in sorted(graph):
        if node in reach[node] and node not in told:
            group = {other for other in reach[node] if node in reach[other]}
            told |= group
            yield _shortest_circle(node, graph, group), group


def _reached(start: str, graph: Mapping[str, Collection[str]]) -> set[str]:
    seen: set[str] = set()
    ahead = list(graph[start])
    while ahead:
        node = ahead.pop()
        if node not in seen:
            seen.add(node)
            ahead += graph.get(node, ())
    return seen


def _shortest_circle(start: str, graph: Mapping[str, Collection[str]], group: Collection[str]) -> list[str]:
    paths = [[start]]
    seen = {start}
    for path in paths:
        for following in sorted(graph[path[-1]]):
            if following == start:
                return path
            if following in group and following not in seen:
                seen.add(following)
                paths.append([*path, following])
    raise AssertionError(f"{start} is in no circle")


# -- endings -----------------------------------------------------------------------------------------------------------


def endings(tree: Tree) -> Iterator[Violation]:
    """Pairs of modules of a feature whose names differ in an ending only."""
    features: dict[str, set[str]] = {}
    for name, source in tree.items():
        parts = name.split(".")
        if len(parts) > 2 and not source.is_room:
            features.setdefault(".".join(parts[:2]), set()).add(parts[-1])
    for feature, names in features.items():
        for one, other in combinations(sorted(names), 2):
            if alike(one, other):
                yield Violation("ending", feature, f"{one} and {other} differ in an ending only")


def alike(one: str, other: str) -> bool:
    """Whether two different names are one stem with two endings, or one of them with another ending added."""
    return one != other and not _stems(one).isdisjoint(_stems(other))


def _stems(name: str) -> set[str]:
    """The name, and the name without each ending it has; a consonant that was doubled for an ending is single again."""
    stems = {name}
    for ending in ENDINGS:
        stem = name.removesuffix(ending)
        if stem != name and len(stem) >= SHORTEST_STEM:
            stems.add(stem)
            if len(stem) > SHORTEST_STEM and stem[-1] == stem[-2] and ending[0] in "aeiou":
                stems.add(stem[:-1])
    return stems
