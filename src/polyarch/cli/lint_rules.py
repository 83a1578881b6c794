"""``polyarch lint --rules`` and ``--explain``: the catalogue for people (MF-021)."""

import sys
from importlib import resources

from polyarch.cli.errors import UsageError
from polyarch.cli.render import Row, print_table
from polyarch.manifests.catalogue import RULES, Rule


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
    example = example_of(rule.id)
    if example:
        parts.append(f"Example:\n\n{example}")
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def example_of(rule: str) -> str:
    """The example that the package has for a rule, as text; empty if there is none."""
    file = resources.files("polyarch.manifests").joinpath("examples", f"{rule}.yaml")
    return file.read_text("utf-8") if file.is_file() else ""
