"""polyarch's own packages: no circles of imports, and no folder that the check of circles would pass over."""

from pathlib import Path

import layout

SRC = Path(__file__).parents[2] / "src"
LAZY = ("polyarch.cli",)
"""A command's module imports what only some of its runs need within a function: a start costs what it must."""


def sources() -> dict[str, layout.Source]:
    tree = {}
    for path in sorted(SRC.glob("polyarch/**/*.py")):
        parts = path.relative_to(SRC).with_suffix("").parts
        is_package = parts[-1] == "__init__"
        tree[".".join(parts[:-1] if is_package else parts)] = layout.Source(path.read_text(), is_package)
    return tree


def test_no_package_has_a_circle_of_imports() -> None:
    circles = layout.circles(sources(), lazily=LAZY)
    assert not circles, "\n".join(map(str, circles))


def test_every_folder_with_modules_is_a_package() -> None:
    """A folder without an ``__init__`` would be passed over by the check of circles."""
    folders = {path.parent for path in SRC.glob("polyarch/**/*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
