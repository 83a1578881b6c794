"""``polyarch numa top -o json``: the schema ``polyarch.dev/numa-top.v1``. Amounts are quantities, exact."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from polyarch.cli.numa.top.lines import Amount, NodeLines
from polyarch.numa.snapshot import Source
from polyarch.quantity import spelled

VERSION: Final = "polyarch.dev/numa-top.v1"


def document(found: Sequence[NodeLines], total: Mapping[str, Amount], *, source: Source, check: bool) -> dict[str, Any]:
    """Nodes in the order of the lines."""
    return {
        "schemaVersion": VERSION,
        "source": source,
        "nodes": [_node(each, check=check) for each in found],
        "totals": {"nodes": len(found), "cells": sum(len(each.cells) for each in found), "resources": _amounts(total)},
    }


def _node(found: NodeLines, *, check: bool) -> dict[str, Any]:
    node, settings = found.node, found.node.facts.settings
    return {
        "node": node.name,
        "policy": settings.policy,
        "scope": settings.scope,
        "ageSeconds": None if node.age is None else int(node.age),
        "marks": list(found.marks),
        "cells": [{"cell": each.cell, "resources": _amounts(each.amounts)} for each in found.cells],
        **({"findings": list(found.findings)} if check else {}),
    }


def _amounts(amounts: Mapping[str, Amount]) -> dict[str, Any]:
    return {name: {field: spelled(value) for field, value in each._asdict().items()} for name, each in amounts.items()}
