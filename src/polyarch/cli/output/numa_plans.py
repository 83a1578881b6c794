"""A plan of the NUMA operator as YAML: the objects it would apply, and the custom resource with its new status.

Conditions have no times, since nothing has happened.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from polyarch.cli.output.documents import manifest_text
from polyarch.kube.resources import few
from polyarch.objects import Condition
from polyarch.operator.components.numa_exporter_plan import plan_exporters
from polyarch.operator.components.numa_facts import ExporterFacts, ExporterPlan, four
from polyarch.operator.components.numa_scheduler_plan import SchedulerFacts
from polyarch.operator.components.numa_scheduler_plan import plan_scheduler as scheduler_plan

Document = Mapping[str, Any]


class ShownPlan(msgspec.Struct, frozen=True):
    """The plan for one custom resource."""

    given: Document
    documents: Sequence[Document] | None
    """None: nothing is changed."""
    status: Document
    conditions: Sequence[Condition] | None
    """None: the status is left alone, too."""
    remarks: Sequence[str] = ()
    """What the documents do not show, for people."""

    @classmethod
    def of(cls, observed: ExporterFacts | SchedulerFacts) -> "ShownPlan":
        if isinstance(observed, ExporterFacts):
            made = plan_exporters(observed)
            namespace = [made.namespace] if made.namespace is not None else []
            documents = None if made.documents is None else [*namespace, *made.documents]
            return cls(observed.object, documents, made.status or {}, made.conditions, tuple(_remarks(made)))
        found = scheduler_plan(observed)
        conditions = (*four(found.verdict), *found.extra)
        return cls(observed.document, found.documents, found.status, conditions)

    @property
    def is_degraded(self) -> bool:
        return any(each.type == "Degraded" and each.status == "True" for each in self.conditions or ())


def plans_text(plans: Iterable[ShownPlan]) -> str:
    """Every document of a plan, then its custom resource."""
    return manifest_text(document for each in plans for document in _documents(each))


def remarks(shown: ShownPlan) -> Iterator[str]:
    """What to say besides."""
    if shown.conditions is None:
        yield "reconciliation is paused: nothing is changed, the status neither"
    elif shown.documents is None:
        yield f"nothing is created, changed or deleted for {shown.given['kind']}"
    yield from shown.remarks


def _remarks(made: ExporterPlan) -> Iterator[str]:
    for group, nodes in made.group_nodes.items():
        count = "1 node" if len(nodes) == 1 else f"{len(nodes)} nodes"
        yield f"node group {group}: {count}{f' ({few(nodes)})' if nodes else ''}"
    if (signed := made.certificate) is not None:
        yield f"the operator signs Secret {signed.namespace}/{signed.secret} for {', '.join(signed.dns_names)}"
    for each in made.announcements:
        yield each.message


def _documents(shown: ShownPlan) -> Iterator[Document]:
    yield from shown.documents or ()
    if shown.conditions is not None:
        given = shown.given
        status = {**shown.status, "conditions": msgspec.to_builtins(shown.conditions)}
        name = (given.get("metadata") or {}).get("name")
        yield {"apiVersion": given["apiVersion"], "kind": given["kind"], "metadata": {"name": name}, "status": status}
