"""A rule is found by its id: the module is called after it, and holds what people are told (MF-020, MF-021)."""

import importlib
import re
from pathlib import Path

import pytest

from polyarch.manifests import lint
from polyarch.manifests.lint.catalogue import RULES

ROOM = Path(next(iter(lint.__path__)))
MODULES = sorted(str(path.relative_to(ROOM).with_suffix("")).replace("/", ".") for path in ROOM.glob("*/ma[0-9]*.py"))


@pytest.mark.parametrize("name", MODULES)
def test_a_module_with_an_id_holds_that_rule(name: str) -> None:
    """MF-021: who reads MA102 in a report opens the one file with ma102 in its name."""
    found = importlib.import_module(f"polyarch.manifests.lint.{name}").RULE
    assert name.split(".")[1].startswith(f"{found.id.lower()}_")
    assert RULES[found.id] is found


def test_every_rule_has_one_module() -> None:
    """MF-020: none is said twice, and none is left out of the catalogue."""
    ids = [match[1].upper() for name in MODULES if (match := re.search(r"\.(ma\d{3})_", name))]
    assert sorted(ids) == list(RULES)
