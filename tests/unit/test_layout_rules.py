"""Circles of imports in small packages of these tests' own."""

import layout
import pytest
from layout import Source, Tree

PACKAGE = Source("", is_package=True)


def tree(**texts: str) -> Tree:
    """``tree(a="import …", b__c="…")``: modules of the feature ``p.f``, ``b`` a sub-package of it."""
    found = {"p": PACKAGE, "p.f": PACKAGE}
    for name, text in texts.items():
        *packages, last = name.split("__")
        for depth in range(len(packages)):
            found.setdefault(".".join(["p.f", *packages[: depth + 1]]), PACKAGE)
        found[".".join(["p.f", *packages, last])] = Source(text)
    return found


def said(found: Tree, **options: tuple[str, ...]) -> list[str]:
    return [str(each) for each in layout.circles(found, **options)]


@pytest.mark.parametrize(
    "back",
    [
        "import p.f.ant",
        "from p.f import ant",
        "from p.f.ant import leg",
        "from . import ant",
        "from .ant import leg",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.f.ant import leg",
        "def later():\n    from p.f.ant import leg",
        "try:\n    import p.f.ant\nexcept ImportError:\n    pass",
        "import importlib\nant = importlib.import_module('p.f.ant')",
    ],
)
def test_two_modules_that_need_each_other_are_a_circle(back: str) -> None:
    assert said(tree(ant="from p.f import bee", bee=back)) == ["p.f: ant → bee → ant"]


@pytest.mark.parametrize("text", ["", "import os", "from p.f.antelope import x", "'''from p.f import ant'''"])
def test_one_way_is_no_circle(text: str) -> None:
    assert said(tree(ant="from p.f import bee", antelope="", bee=text)) == []


def test_a_circle_is_told_once_by_its_shortest_way_and_with_all_that_are_in_it() -> None:
    found = tree(
        ant="from p.f import bee, dog", bee="from p.f import cat", cat="from p.f import ant", dog="import p.f.ant"
    )
    assert said(found) == ["p.f: ant → dog → ant (and, in circles with these, bee, cat)"]


def test_packages_beside_each_other_must_not_need_each_other_by_any_of_their_modules() -> None:
    found = tree(
        north__ant="from p.f.south.bee import x", south__bee="", south__cat="import p.f.north.dog", north__dog=""
    )
    assert said(found) == ["p.f: north → south → north"]
    one_way = tree(north__ant="from p.f.south import bee, cat", south__bee="", south__cat="", north__dog="")
    assert said(one_way) == []


def test_a_module_and_a_package_beside_it_are_looked_at_alike() -> None:
    found = tree(ant="from p.f.south.bee import x", south__bee="from p.f import ant")
    assert said(found) == ["p.f: ant → south → ant"]


def test_what_a_package_says_of_itself_must_not_need_who_needs_it() -> None:
    found = {**tree(ant="from p.f import leg"), "p.f": Source("from p.f.ant import tail", is_package=True)}
    assert said(found) == ["p.f: __init__ → ant → __init__"]


def test_imports_within_functions_do_not_count_where_they_only_defer_a_start() -> None:
    lazy = tree(ant="from p.f import bee", bee="class B:\n    async def run(self):\n        from p.f import ant")
    assert said(lazy) == ["p.f: ant → bee → ant"]
    assert said(lazy, lazily=("p.f",)) == []
    assert said(lazy, lazily=("p.fi",)) == ["p.f: ant → bee → ant"]
    at_once = tree(ant="from p.f import bee", bee="class B:\n    from p.f import ant")
    assert said(at_once, lazily=("p.f",)) == ["p.f: ant → bee → ant"]
