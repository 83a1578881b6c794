"""No circles of imports, no folder that this check passes over, and no two files of tests with one name."""

from collections import Counter
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


def test_every_file_of_tests_has_a_name_of_its_own() -> None:
    """Of two with one name pytest collects only one, if it is given both."""
    names = Counter(path.name for path in SRC.parent.glob("tests/**/test_*.py"))
    assert [name for name, files in names.items() if files > 1] == []
