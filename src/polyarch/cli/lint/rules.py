"""``polyarch lint --rules`` and ``--explain``: the catalogue for people (MF-021)."""

import sys

from polyarch.cli.errors import UsageError
from polyarch.cli.output.render import Row, print_table
from polyarch.manifests import examples
from polyarch.manifests.lint.catalogue import RULES
from polyarch.manifests.lint.rule import Rule


def print_rules() -> int:
    """One row for each rule."""
    rows = [
        Row([rule.id, rule.severity.value, "" if rule.default else "when configured or included", rule.title])
        for rule in RULES.values()
    ]
    print_table(["RULE", "SEVERITY", "RUNS", "TITLE"], rows)
    return 0


def print_rule(name: str) -> int:
    """What a rule means, an example, its fix. ``UsageError`` for one that does not exist."""
    rule = RULES.get(name.upper())
    if rule is None:
        raise UsageError(f"--explain {name}: there is no such rule; polyarch lint --rules lists them")
    sys.stdout.write(explanation(rule))
    return 0


def explanation(rule: Rule) -> str:
    """The text of ``--explain``."""
    parts = [f"{rule.id} ({rule.severity.value}): {rule.title}", rule.meaning]
    if rule.subs:
        parts.append(f"Sub-codes: {', '.join(rule.subs)}.")
    if not rule.default:
        parts.append("It runs when it is configured or included.")
    if rule.upstream:
        parts.append(f"In the checks of operator-sdk's multiarch validator this is {rule.upstream}.")
    flag = f" It needs {rule.flag}." if rule.flag else ""
    parts.append(f"Fix: {rule.fix}{flag}" if rule.fix else "Fix: none that a program could make.")
    example = _example(rule.id)
    return "\n\n".join(part.rstrip("\n") for part in (*parts, *example)) + "\n"


def _example(rule: str) -> list[str]:
    """What the package shows of a rule: bad, and repaired or good. Some cannot be shown in a text."""
    if rule not in examples.ids():
        return []
    shown = examples.load(rule)
    better = f"Repaired:\n\n{shown.fixed}" if shown.fixed else f"Good:\n\n{shown.good}"
    known = shown.platforms_file()
    return [
        f"Example, {shown.file}:\n\n{shown.bad}",
        *([f"With this file for --platforms-file:\n\n{known}"] if known else []),
        better,
    ]
