"""The numbers that ``docs/design`` defines are those that tests are marked with, ``@pytest.mark.req("PL-300")``."""

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = ROOT / "docs" / "design"
ROW: Final = re.compile(r"^\|.*\| ([A-Z]{2})-… \|$", re.MULTILINE)
NUMBER: Final = r"\b([A-Z]{2})-(\d{3}[a-z]?)\b"


def defined() -> set[str]:
    """Numbers of each page, with those between the ends of a range; prefixes are those of the table of pages."""
    prefixes = set(ROW.findall((PAGES / "README.md").read_text()))
    found: set[str] = set()
    for page in PAGES.glob("*.md"):
        text = page.read_text().replace("**", "")
        found |= {f"{prefix}-{number}" for prefix, number in re.findall(NUMBER, text) if prefix in prefixes}
        for prefix, first, other, last in re.findall(rf"{NUMBER}\s*(?:–|to)\s*{NUMBER}", text):
            if prefix == other:
                found |= {f"{prefix}-{number:03}" for number in range(int(first), int(last) + 1)}
    return found


@functools.cache
def trees() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple((path, ast.parse(path.read_text())) for path in sorted((ROOT / "tests").rglob("test_*.py")))


def marked() -> Iterator[tuple[str, str]]:
    """Number and place of every mark; a row of a table may follow the number: ``PL-201 row 4``."""
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "pytest.mark.req":
                assert node.args, f"{path}:{node.lineno}: a mark without a number"
                for each in node.args:
                    assert isinstance(each, ast.Constant), f"{path}:{node.lineno}: numbers are written out"
                    yield str(each.value), f"{path.relative_to(ROOT)}:{node.lineno}"


def test_every_mark_is_a_requirement_of_the_design() -> None:
    known = defined()
    unknown = [f"{place}: {number}" for number, place in marked() if number.split()[0] not in known]
    assert unknown == [], "define them in docs/design, or correct them"


def test_every_requirement_of_the_design_has_a_test() -> None:
    assert sorted(defined() - {number.split()[0] for number, _ in marked()}) == []


def test_no_name_of_a_test_has_a_number() -> None:
    known = {number.lower().replace("-", "_") for number in defined()}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}"
        for path, tree in trees()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and known & set(re.findall(r"(?<=_)[a-z]{2}_\d{3}[a-z]?(?=_|$)", node.name))
    ]
    assert found == [], 'a name is a sentence; numbers stand in @pytest.mark.req("PL-300")'
