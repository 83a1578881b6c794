"""The layout of polyarch itself (``layout.py`` says what is measured), room by room."""

from pathlib import Path

import layout
import pytest

SRC = Path(__file__).parents[2] / "src"
LAZY = ("polyarch.cli",)
"""A command's module imports what only some of its runs need within a function: a start costs what it must."""

LONGER = {
    *("polyarch.builds.api.spec_schema", "polyarch.builds.plan.planner"),
    *("polyarch.kube.objects.apply_set", "polyarch.numa.scheduling.ledger.account"),
    *("polyarch.oci.auth.authorization", "polyarch.oci.platforms_file"),
    *("polyarch.sandbox.nodes.kubelets", "polyarch.sandbox.nodes.lifecycle"),
}
"""Modules of one idea that takes a few lines more. No other one may be as long, and these no longer than that."""
MOST_OF_ALL = 460


def package() -> dict[str, layout.Source]:
    tree = {}
    for path in sorted(SRC.glob("polyarch/**/*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        is_room = parts[-1] == "__init__"
        tree[".".join(parts[:-1] if is_room else parts)] = layout.Source(path.read_text(), is_room)
    return tree


TREE = package()
SHORT = {name: source for name, source in TREE.items() if name not in LONGER}
FOUND = [
    *(each for each in layout.violations(TREE, lazily=LAZY) if each.rule != "length"),
    *layout.lengths(SHORT),
]


@pytest.mark.parametrize("room", sorted(name for name, source in TREE.items() if source.is_room))
@pytest.mark.parametrize("rule", ["size", "length", "circle", "ending"])
def test_every_room_keeps_the_rules_of_the_layout(rule: str, room: str) -> None:
    broken = [str(each) for each in FOUND if (each.rule, each.room) == (rule, room)]
    assert not broken, "\n".join(broken)


def test_what_is_longer_than_the_others_is_not_much_longer() -> None:
    assert [name for name in LONGER if TREE[name].text.count("\n") > MOST_OF_ALL] == []


def test_every_folder_with_modules_is_a_package() -> None:
    """One without an ``__init__`` would be passed over by the rules above."""
    folders = {path.parent for path in SRC.glob("polyarch/**/*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
