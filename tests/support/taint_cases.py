"""One-line ways through the rules of tolerations, for tables of given / when / then."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec
from placement_cases import Document

from polyarch.kube.patches import Operation, apply_patch
from polyarch.objects import DaemonSet, Pod
from polyarch.oci.inspection import Inspection
from polyarch.taints.decision import PodDecision, TolerationLookupProgress
from polyarch.taints.patch import admission_patch, stored_patch, stored_template_patch, template_patch
from polyarch.taints.pod_rules import Case, PodFacts, TemplateFacts, decide, examine, examine_template
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Toleration

EVERYWHERE = TaintSettings(mode="tolerations")
"""Every known architecture is tainted."""


class Judged(NamedTuple):
    """A pod's decision, its patch, and the object with it."""

    case: Case
    decision: PodDecision
    operations: tuple[Operation, ...]
    document: Document

    @property
    def tolerations(self) -> list[Document]:
        return self.document["spec"].get("tolerations") or []

    @property
    def told(self) -> tuple[str, str, tuple[str, ...]]:
        """Reason, outcome and the architectures that are added."""
        return self.decision.reason.value, self.decision.outcome.value, self.decision.added


def settings(**changes: Any) -> TaintSettings:
    return msgspec.structs.replace(EVERYWHERE, **changes)


def facts(document: Document, using: TaintSettings | None = None, **more: Any) -> PodFacts:
    given: dict[str, Any] = {"namespace": "shop", "settings": using or EVERYWHERE} | more
    return PodFacts(pod=msgspec.convert(document, Pod), **given)


def admitted(
    document: Document,
    answers: Mapping[str, Inspection],
    using: TaintSettings | None = None,
    *,
    progress: TolerationLookupProgress = TolerationLookupProgress.FIRST,
    gated_elsewhere: bool = False,
    **more: Any,
) -> Judged:
    """A pod that is being created."""
    case = examine(facts(document, using, **more))
    decision = decide(case, answers, progress)
    operations = admission_patch(case, decision, gated_elsewhere=gated_elsewhere)
    return Judged(case, decision, operations, apply_patch(document, operations))


def reconciled(
    document: Document,
    answers: Mapping[str, Inspection],
    using: TaintSettings | None = None,
    *,
    progress: TolerationLookupProgress = TolerationLookupProgress.FAILING,
    **more: Any,
) -> Judged:
    """A stored pod."""
    case = examine(facts(document, using, stored=True, **more))
    decision = decide(case, answers, progress)
    operations = stored_patch(case, decision)
    return Judged(case, decision, operations, apply_patch(document, operations))


def daemon_set(template: Document, annotations: Mapping[str, str] | None = None) -> Document:
    """A DaemonSet whose pods are like this one."""
    metadata: Document = {"name": "agent", "namespace": "shop", "uid": "u-1", "resourceVersion": "7"}
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    kept = {key: template["metadata"][key] for key in ("labels", "annotations") if key in template["metadata"]}
    return {"metadata": metadata, "spec": {"template": {"metadata": kept, "spec": template["spec"]}}}


def templated(
    document: Document,
    answers: Mapping[str, Inspection],
    using: TaintSettings | None = None,
    *,
    stored: bool = False,
    **more: Any,
) -> Judged:
    """A DaemonSet; ``document`` of the result is the DaemonSet."""
    subject = msgspec.convert(document, DaemonSet)
    chosen = using or EVERYWHERE
    case = examine_template(TemplateFacts(daemon_set=subject, namespace="shop", settings=chosen, **more))
    decision = decide(case, answers)
    patch = stored_template_patch if stored else template_patch
    operations = patch(subject, decision, chosen)
    return Judged(case, decision, operations, apply_patch(document, operations))


def toleration(architecture: str, **changes: Any) -> Document:
    """One as polyarch writes it."""
    usual = {"key": "supported-arch", "operator": "Equal", "value": architecture, "effect": "NoSchedule"}
    return {key: value for key, value in (usual | changes).items() if value is not None}


def tolerating(*architectures: str) -> list[Document]:
    return [toleration(each) for each in architectures]


def read(documents: list[Document]) -> list[Toleration]:
    return msgspec.convert(documents, list[Toleration])
