"""``polyarch lint --rules`` and ``--explain``: the catalogue for people and programs."""

from collections.abc import Sequence
from typing import Any

from polyarch.cli.errors import UsageError
from polyarch.cli.options.common import FORMATS, Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.tables import Row, table
from polyarch.manifests import examples
from polyarch.manifests.finding import Rule
from polyarch.manifests.rules.catalogue import RULES

SCHEMA_VERSION = "polyarch.dev/rules/v1"


def print_rules(explained: str | None, outputs: Sequence[Output]) -> int:
    """All rules as a table, or one with meaning, example and fix. ``UsageError`` for one that does not exist."""
    for each in outputs:
        if each.format not in FORMATS:
            raise UsageError(f"--output {each.format}: rules are printed as {', '.join(FORMATS)}")
    rules = [_rule(explained)] if explained is not None else list(RULES.values())

    def render(format: str, colour: bool) -> str:
        if format != "text":
            return document_text({"schemaVersion": SCHEMA_VERSION, "rules": [_entry(rule) for rule in rules]}, format)
        return explanation(rules[0]) if explained is not None else _listed(rules, colour=colour)

    emit(outputs, render)
    return 0


def _rule(name: str) -> Rule:
    rule = RULES.get(name.upper())
    if rule is None:
        raise UsageError(f"--explain {name}: unknown rule; polyarch lint --rules lists them")
    return rule


def _listed(rules: Sequence[Rule], *, colour: bool) -> str:
    rows = [
        Row([rule.id, rule.severity.value, "always" if rule.default else "if configured or included", rule.title])
        for rule in rules
    ]
    return table(["RULE", "SEVERITY", "RUNS", "TITLE"], rows, colour=colour)


def _entry(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "severity": rule.severity.value,
        "default": rule.default,
        "title": rule.title,
        "meaning": rule.meaning,
        "subs": list(rule.subs),
        "fix": rule.fix,
        "flag": rule.flag,
        "upstream": rule.upstream,
    }


def explanation(rule: Rule) -> str:
    """The text of ``--explain``."""
    parts = [f"{rule.id} ({rule.severity.value}): {rule.title}", rule.meaning]
    if rule.subs:
        parts.append(f"Sub-codes: {', '.join(rule.subs)}.")
    if not rule.default:
        parts.append("It runs if it is configured or included.")
    if rule.upstream:
        parts.append(f"In the checks of operator-sdk's multiarch validator this is {rule.upstream}.")
    flag = f" It needs {rule.flag}." if rule.flag else ""
    parts.append(f"Fix: {rule.fix}{flag}" if rule.fix else "Fix: none that a program could make.")
    example = _example(rule.id)
    return "\n\n".join(part.rstrip("\n") for part in (*parts, *example)) + "\n"


def _example(rule: str) -> list[str]:
    """What the package shows of a rule: bad, and fixed or good. Some cannot be shown in a text."""
    if rule not in examples.ids():
        return []
    shown = examples.load(rule)
    better = f"Fixed:\n\n{shown.fixed}" if shown.fixed else f"Good:\n\n{shown.good}"
    known = shown.platforms_file()
    return [
        f"Example, {shown.file}:\n\n{shown.bad}",
        *([f"With this file for --platforms-file:\n\n{known}"] if known else []),
        better,
    ]
