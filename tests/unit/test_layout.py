"""The layout of polyarch itself (``layout.py`` says what is measured), room by room."""

from pathlib import Path

import layout
import pytest

SRC = Path(__file__).parents[2] / "src"
LAZY = ("polyarch.cli",)
"""A command's module imports what only some of its runs need within a function: a start costs what it must."""


def package() -> dict[str, layout.Source]:
    tree = {}
    for path in sorted(SRC.glob("polyarch/**/*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        is_room = parts[-1] == "__init__"
        tree[".".join(parts[:-1] if is_room else parts)] = layout.Source(path.read_text(), is_room)
    return tree


TREE = package()
FOUND = layout.violations(TREE, lazily=LAZY)


@pytest.mark.parametrize("room", sorted(name for name, source in TREE.items() if source.is_room))
@pytest.mark.parametrize("rule", ["size", "circle", "ending"])
def test_every_room_keeps_the_rules_of_the_layout(rule: str, room: str) -> None:
    broken = [str(each) for each in FOUND if (each.rule, each.room) == (rule, room)]
    assert not broken, "\n".join(broken)


def test_every_folder_with_modules_is_a_package() -> None:
    """One without an ``__init__`` would be passed over by the rules above."""
    folders = {path.parent for path in SRC.glob("polyarch/**/*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
