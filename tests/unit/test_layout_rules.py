"""The rules of the layout on small packages of these tests' own."""

import layout
import pytest
from layout import Source, Tree

ROOM = Source("", is_room=True)


def tree(**texts: str) -> Tree:
    """``tree(a="import …", b__c="…")``: modules of the feature ``p.f``, ``b`` a sub-room of it."""
    found = {"p": ROOM, "p.f": ROOM}
    for name, text in texts.items():
        *rooms, last = name.split("__")
        for depth in range(len(rooms)):
            found.setdefault(".".join(["p.f", *rooms[: depth + 1]]), ROOM)
        found[".".join(["p.f", *rooms, last])] = Source(text)
    return found


def said(found: Tree, **options: tuple[str, ...]) -> list[str]:
    return [str(each) for each in layout.violations(found, **options)]


def test_a_room_holds_a_dozen_modules_and_no_more() -> None:
    names = ["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay", "koi", "lynx"]
    full = tree(**dict.fromkeys(names, ""))
    assert said(full) == []
    assert said({**full, "p.f.mole": Source("")}) == ["p.f: 13 modules, at most 12 fit"]
    assert said({**full, "p.f.sub": ROOM, "p.f.sub.newt": Source("")}) == []


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


def test_rooms_beside_each_other_must_not_need_each_other_by_any_of_their_modules() -> None:
    found = tree(
        north__ant="from p.f.south.bee import x", south__bee="", south__cat="import p.f.north.dog", north__dog=""
    )
    assert said(found) == ["p.f: north → south → north"]
    one_way = tree(north__ant="from p.f.south import bee, cat", south__bee="", south__cat="", north__dog="")
    assert said(one_way) == []


def test_a_module_and_a_room_beside_it_are_looked_at_alike() -> None:
    found = tree(ant="from p.f.south.bee import x", south__bee="from p.f import ant")
    assert said(found) == ["p.f: ant → south → ant"]


def test_what_a_room_says_of_itself_must_not_need_who_needs_it() -> None:
    found = {**tree(ant="from p.f import leg"), "p.f": Source("from p.f.ant import tail", is_room=True)}
    assert said(found) == ["p.f: __init__ → ant → __init__"]


def test_imports_within_functions_do_not_count_where_they_only_defer_a_start() -> None:
    lazy = tree(ant="from p.f import bee", bee="class B:\n    async def run(self):\n        from p.f import ant")
    assert said(lazy) == ["p.f: ant → bee → ant"]
    assert said(lazy, lazily=("p.f",)) == []
    assert said(lazy, lazily=("p.fi",)) == ["p.f: ant → bee → ant"]
    at_once = tree(ant="from p.f import bee", bee="class B:\n    from p.f import ant")
    assert said(at_once, lazily=("p.f",)) == ["p.f: ant → bee → ant"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("pod", "pods"), ("index", "indexes"), ("retry", "retries"), ("fix", "fixing"), ("plan", "planning")),
        *(
            ("cache", "caching"),
            ("edit", "editor"),
            ("editor", "edits"),
            ("reader", "reading"),
            ("inspect", "inspection"),
        ),
        *(("auth", "auth_file"), ("auth_file", "auth_files"), ("lint_rule", "lint_rules"), ("fit", "fitted")),
    ],
)
def test_names_that_differ_in_an_ending(one: str, other: str) -> None:
    assert layout.alike(one, other)
    assert layout.alike(other, one)
    assert said(tree(**{one: "", f"room__{other}": ""})) == [
        f"p.f: {min(one, other)} and {max(one, other)} differ in an ending only"
    ]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("fix", "fix_result"), ("tls", "tree"), ("lint", "layout"), ("config", "kubeconfig"), ("node", "number")),
        *(("pods", "pods"), ("image_names", "images"), ("as", "a"), ("all", "always")),
    ],
)
def test_names_that_say_different_things(one: str, other: str) -> None:
    assert not layout.alike(one, other)


def test_names_are_compared_within_a_feature() -> None:
    found = {
        "p": ROOM,
        "p.f": ROOM,
        "p.g": ROOM,
        "p.f.fix": Source(""),
        "p.g.fixing": Source(""),
        "p.fixes": Source(""),
    }
    assert said(found) == []


def test_a_module_of_more_than_400_lines_is_told_by_its_length() -> None:
    """Generated ones are as long as they are."""
    long = Source("x = 1\n" * 401)
    tree = {"a": Source("", True), "a.b": long, "a.c": Source("x = 1\n" * 400), "a.d_pb2": long}
    assert [str(each) for each in layout.lengths(tree)] == ["a: a.b has 401 lines"]
