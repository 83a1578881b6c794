"""A rule is found by its id: a constant is called after it, and holds what people are told."""

import re
from pathlib import Path

import pytest

from polyarch.manifests import rules
from polyarch.manifests.rules import bundles, constraints, documents, images, pods, sources, subscriptions
from polyarch.manifests.rules.catalogue import RULES

MODULES = (images, constraints, pods, bundles, subscriptions, sources, documents)
ROOM = Path(next(iter(rules.__path__)))


@pytest.mark.req("MF-021")
@pytest.mark.parametrize("rule", RULES)
def test_a_constant_with_an_id_holds_that_rule(rule: str) -> None:
    """Who reads MA102 in a report searches for it and finds the rule."""
    holders = [module for module in MODULES if RULES[rule] in module.RULES]
    assert [getattr(module, rule) for module in holders] == [RULES[rule]]
    assert RULES[rule].id == rule


@pytest.mark.req("MF-020")
def test_every_rule_is_defined_once_and_listed() -> None:
    """None is said twice, and none is left out of the catalogue."""
    ids = [
        found
        for path in ROOM.glob("*.py")
        for found in re.findall(r"^(MA\d{3}) = Rule\(", path.read_text(), re.MULTILINE)
    ]
    assert sorted(ids) == list(RULES)
    assert sum(len(module.RULES) for module in MODULES) == len(RULES)
