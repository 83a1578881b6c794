"""Circles of imports between what lies side by side in a package.

Pure: names and source texts in, circles out; nothing is imported to be looked at. What lies side by side in a package
(modules and sub-packages) imports each other in one direction only. A sub-package imports whatever any module in it
imports. Imports for type checking count, as do those within functions and ``importlib.import_module`` with a constant:
they tell that two modules cannot be understood one without the other, whenever they are executed. ``lazily`` names the
packages in which imports within functions do not count: the command line's, which defer what a start does not need, and
are executed when everything has been imported.
"""

import ast
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple


class Source(NamedTuple):
    """A module as it is on disk."""

    text: str
    is_package: bool = False
    """The module is the ``__init__`` of a package."""


Tree = Mapping[str, Source]
"""Modules by their full name, packages among them."""


class Circle(NamedTuple):
    """A circle of imports in one package, in words."""

    package: str
    words: str

    def __str__(self) -> str:
        return f"{self.package}: {self.words}"


def imported(name: str, tree: Tree, *, lazily: Collection[str] = ()) -> set[str]:
    """The modules of the tree that this one imports."""
    deferred = any(name == each or name.startswith(f"{each}.") for each in lazily)
    package = name if tree[name].is_package else name.rpartition(".")[0]
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


def circles(tree: Tree, *, lazily: Collection[str] = ()) -> list[Circle]:
    """The circles of each package, ordered by package: each group of modules and sub-packages that import each other,
    with its shortest way round.
    """
    edges = {name: imported(name, tree, lazily=lazily) for name in tree}
    return [
        Circle(package, words)
        for package in sorted(name for name, source in tree.items() if source.is_package)
        for words in _circles_of(package, edges)
    ]


def _circles_of(package: str, edges: Mapping[str, Collection[str]]) -> Iterator[str]:
    beside: dict[str, set[str]] = {}
    for name, targets in edges.items():
        if (here := _child(name, package)) is None:
            continue
        there = {_child(target, package) for target in targets} - {None, here}
        beside.setdefault(here, set()).update(each for each in there if each is not None)
    for way, group in _ways_round(beside):
        others = sorted(group - set(way))
        more = f" (and, in circles with these, {', '.join(others)})" if others else ""
        yield " → ".join([*way, way[0]]) + more


def _child(name: str, package: str) -> str | None:
    """The module or sub-package directly in ``package`` that is, or holds, ``name``; ``__init__`` is the package."""
    if name == package:
        return "__init__"
    return name.removeprefix(f"{package}.").partition(".")[0] if name.startswith(f"{package}.") else None


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
