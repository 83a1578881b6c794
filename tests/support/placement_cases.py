"""Pods, answers and one-line ways through the rules, for tables of given / when / then."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from polyarch.kube.patches import Operation, apply_patch
from polyarch.objects import Pod
from polyarch.oci.inspection import Entry, Inspection, InspectionError, Status
from polyarch.oci.reference import parse
from polyarch.placement import names
from polyarch.placement.admission import Admission, admit
from polyarch.placement.decision import NO_SIGNER, LookupProgress, PlacementDecision, RecordSigner
from polyarch.placement.patch import controller_patch
from polyarch.placement.rules import ExaminedPod, PodFacts, decide, examine
from polyarch.placement.settings import ScoringSource, Settings
from polyarch.platforms import NO_RUNTIMES, NodePlatform, NodeRuntimes, Platform

APP = "quay.io/team/app:1"
SIDE = "quay.io/team/side:2"
UID = "6f3c3c0e-0000-4000-8000-000000000001"
Document = dict[str, Any]


def digest_of(reference: str) -> str:
    return "sha256:" + reference.encode().hex().rjust(64, "0")[-64:]


def index(reference: str, *platforms: str, **changes: Any) -> Inspection:
    """An index with these platforms; one part alone is linux/<it>."""
    entries = tuple(Entry(_platform(text), digest_of(text)) for text in platforms)
    answer = Inspection(
        parse(reference), Status.RESOLVED, kind="index", digest=digest_of(reference), entries=entries, checked_at=0.0
    )
    return msgspec.structs.replace(answer, **changes)


def _platform(text: str) -> Platform:
    os, slash, rest = text.partition("/")
    if not slash:
        return Platform("linux", os)
    architecture, _, variant = rest.partition("/")
    return Platform(os, architecture, variant)


def neutral(reference: str, kind: Any = "artifact") -> Inspection:
    return Inspection(parse(reference), Status.NEUTRAL, kind=kind, neutral_reason=kind)


def unknown(reference: str) -> Inspection:
    return Inspection(parse(reference), Status.UNKNOWN, kind="image", digest=digest_of(reference))


def failure(reference: str, code: str = "server-error", status: int | None = 503, **changes: Any) -> Inspection:
    host = parse(reference).registry
    error = InspectionError.of(code, "SECRET text of the registry", status=status, host=host)
    return msgspec.structs.replace(Inspection(parse(reference), Status.ERROR, error=error), **changes)


def answers(*inspections: Inspection, **by_text: Inspection) -> dict[str, Inspection]:
    return {answer.reference.canonical: answer for answer in inspections} | by_text


def requirement(key: str, operator: str, *values: str) -> Document:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def arch(*values: str) -> Document:
    return requirement("kubernetes.io/arch", "In", *values)


def os_is(value: str) -> Document:
    return requirement("kubernetes.io/os", "In", value)


def zone(value: str) -> Document:
    return requirement("topology.kubernetes.io/zone", "In", value)


MARKER = requirement("multiarch.openshift.io/no-supported-arch", "Exists")


def term(*expressions: Document, fields: Sequence[Document] = ()) -> Document:
    content: Document = {}
    if expressions:
        content["matchExpressions"] = list(expressions)
    if fields:
        content["matchFields"] = list(fields)
    return content


def preference(weight: int, *expressions: Document) -> Document:
    return {"weight": weight, "preference": {"matchExpressions": list(expressions)}}


def pod(
    *images: str,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    terms: Sequence[Document] | None = None,
    preferred: Sequence[Document] | None = None,
    gates: Sequence[str] | None = None,
    owner: str | None = None,
    policy: str = "IfNotPresent",
    **spec: Any,
) -> Document:
    """A pod as the API server would hand it over; ``spec`` members as they are."""
    metadata: Document = {"name": "web", "namespace": "shop", "uid": UID, "resourceVersion": "41"}
    if labels is not None:
        metadata["labels"] = dict(labels)
    if annotations is not None:
        metadata["annotations"] = dict(annotations)
    if owner is not None:
        metadata["ownerReferences"] = [{"apiVersion": "apps/v1", "kind": owner, "name": "o", "controller": True}]
    content: Document = {
        "containers": [
            {"name": f"c{at}", "image": image, "imagePullPolicy": policy, "unknownField": {"kept": [at]}}
            for at, image in enumerate(images or (APP,))
        ],
        "someday": {"unknown": True},
    }
    affinity: Document = {}
    if terms is not None:
        affinity["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": list(terms)}
    if preferred is not None:
        affinity["preferredDuringSchedulingIgnoredDuringExecution"] = list(preferred)
    if affinity:
        content["affinity"] = {"nodeAffinity": affinity}
    if gates is not None:
        content["schedulingGates"] = [{"name": gate} for gate in gates]
    return {"metadata": metadata, "spec": content | spec}


def source(name: str = "ClusterPodPlacementConfig", **weights: int) -> ScoringSource:
    return ScoringSource(name, tuple(weights.items()))


def settings(**changes: Any) -> Settings:
    return msgspec.structs.replace(Settings(operator_namespace="polyarch-system"), **changes)


def look(
    document: Document,
    *,
    namespace: str = "shop",
    using: Settings | None = None,
    sources: tuple[ScoringSource, ...] = (),
    stored: bool = False,
    nodes: Sequence[str] = (),
    coming: Sequence[str] = (),
    runtimes: Mapping[str, str] | None = None,
    signer: RecordSigner = NO_SIGNER,
    record_was_sent: bool = True,
) -> ExaminedPod:
    """The pod, examined."""
    return examine(
        PodFacts(
            pod=msgspec.convert(document, Pod),
            namespace=namespace,
            settings=using if using is not None else settings(),
            sources=sources,
            stored=stored,
            nodes=frozenset(Platform.parse(each).node for each in nodes),
            coming=frozenset(NodePlatform(*each.partition("/")[::2]) for each in coming),
            runtimes=NO_RUNTIMES
            if runtimes is None
            else NodeRuntimes.of(
                (Platform.parse(each).node, runtime)
                for each, several in runtimes.items()
                for runtime in several.split()
            ),
            signer=signer,
            record_was_sent=record_was_sent,
        )
    )


class Admitted(NamedTuple):
    """What admission makes of a pod."""

    case: ExaminedPod
    decision: PlacementDecision
    admission: Admission
    pod: Document

    @property
    def labels(self) -> Document:
        return dict(self.pod["metadata"].get("labels") or {})

    @property
    def annotations(self) -> Document:
        return dict(self.pod["metadata"].get("annotations") or {})

    @property
    def gates(self) -> list[str]:
        return [gate["name"] for gate in self.pod["spec"].get("schedulingGates") or ()]


def admitted(
    document: Document,
    known: Mapping[str, Inspection] | None = None,
    *,
    controller_available: bool = True,
    **facts: Any,
) -> Admitted:
    """The pod after one admission with these answers."""
    case = look(document, **facts)
    decision = decide(case, known or {})
    admission = admit(case, decision, controller_available=controller_available)
    return Admitted(case, admission.decision, admission, apply_patch(document, admission.operations))


class Controlled(NamedTuple):
    """What the controller makes of a stored pod."""

    case: ExaminedPod
    decision: PlacementDecision
    operations: tuple[Operation, ...]
    pod: Document


def controlled(
    document: Document,
    known: Mapping[str, Inspection] | None = None,
    *,
    progress: LookupProgress = LookupProgress.WAITING,
    **facts: Any,
) -> Controlled:
    """The pod after one write of the controller."""
    case = look(document, stored=True, **facts)
    decision = decide(case, known or {}, progress)
    operations = controller_patch(case, decision)
    return Controlled(case, decision, operations, apply_patch(document, operations))


def required(document: Document) -> list[Document] | None:
    affinity = (document["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    selector = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return selector["nodeSelectorTerms"] if selector is not None else None


def preferences(document: Document) -> list[Document] | None:
    affinity = (document["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return affinity.get("preferredDuringSchedulingIgnoredDuringExecution")


def record(document: Document) -> Document | None:
    text = (document["metadata"].get("annotations") or {}).get(names.DECISION_ANNOTATION)
    return msgspec.json.decode(text) if text is not None else None


def gated(document: Document) -> Document:
    """The document with our gate, as the webhook leaves it."""
    return admitted(document).pod
