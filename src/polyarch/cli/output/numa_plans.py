"""A plan of the NUMA operator as YAML: the objects it would apply, and the custom resource with its new status.

Conditions have no times, since nothing has happened.
"""

from collections.abc import Iterator
from typing import Any

import msgspec

from polyarch.cli.output.documents import manifest_text
from polyarch.kube.objects.refs import few
from polyarch.numa.operator.observed import Observed
from polyarch.numa.operator.outcome import Plan


def plan_text(observed: Observed, planned: Plan) -> str:
    """Every document, the custom resource last."""
    return manifest_text(_documents(observed, planned))


def remarks(planned: Plan) -> Iterator[str]:
    """What the documents do not show, for people."""
    if planned.conditions is None:
        yield "reconciliation is paused: nothing is changed, the status neither"
    elif planned.documents is None:
        yield "nothing is created, changed or deleted"
    for group, nodes in planned.group_nodes.items():
        count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        yield f"node group {group}: {count}{f' ({few(nodes)})' if nodes else ''}"
    if (signed := planned.certificate) is not None:
        yield f"the operator signs Secret {signed.namespace}/{signed.secret} for {', '.join(signed.dns_names)}"
    for each in planned.announcements:
        yield each.message


def _documents(observed: Observed, planned: Plan) -> Iterator[dict[str, Any]]:
    if planned.namespace is not None:
        yield planned.namespace
    yield from planned.documents or ()
    if planned.conditions is not None:
        given = observed.object
        status = {**(planned.status or {}), "conditions": msgspec.to_builtins(planned.conditions)}
        name = (given.get("metadata") or {}).get("name")
        yield {"apiVersion": given["apiVersion"], "kind": given["kind"], "metadata": {"name": name}, "status": status}
