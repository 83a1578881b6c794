"""Random pods, answers and settings for the properties of placement, and what a pod is without anything of ours."""

import json
from collections.abc import Mapping
from typing import Any

import msgspec
from hypothesis import strategies as st

from polyarch.kube.patches import apply_patch
from polyarch.objects import Pod
from polyarch.oci.inspection import Entry, Inspection, InspectionError, Status
from polyarch.oci.reference import parse
from polyarch.placement import names
from polyarch.placement.admission import Admission, admit
from polyarch.placement.decision import LookupProgress, PlacementDecision
from polyarch.placement.patch import controller_patch
from polyarch.placement.rules import ExaminedPod, PodFacts, decide, examine
from polyarch.placement.settings import ScoringSource, Settings
from polyarch.platforms import NodePlatform, Platform

Json = dict[str, Any]
Answers = dict[str, Inspection]

IMAGES = ("quay.io/a/one:1", "quay.io/b/two:2", "nginx", "ghcr.io/c/three@sha256:" + "c" * 64)
BROKEN_IMAGES = ("", "UPPER/case", "a//b", "x" * 300)
ARCHITECTURES = ("amd64", "arm64", "s390x", "riscv64")
NODES = frozenset({NodePlatform("linux", "arm64")})
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"

ZONES = st.sampled_from(["a", "b"])
_words = st.sampled_from(["", "x", "true", "amd64", "é", "a/b"])


def _expression(key: str, operator: str, *values: str) -> Json:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


expressions = st.one_of(
    ZONES.map(lambda zone: _expression("zone", "In", zone)),
    ZONES.map(lambda zone: _expression("zone", "NotIn", zone) | {"someday": {"kept": [1]}}),
    st.sampled_from(ARCHITECTURES).map(lambda value: _expression(names.ARCH_KEY, "In", value)),
    st.sampled_from(["NotIn", "Exists"]).map(
        lambda operator: _expression(names.ARCH_KEY, operator, *(["arm64"] if operator == "NotIn" else []))
    ),
    st.sampled_from(["linux", "windows"]).map(lambda value: _expression(names.OS_KEY, "In", value)),
    st.just(_expression(names.BETA_OS_KEY, "Exists")),
    st.just(_expression(names.NO_SUPPORTED_ARCH_KEY, "Exists")),
)
_fields = st.just([_expression("metadata.name", "In", "n1")])
terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.one_of(st.none(), st.lists(expressions, max_size=3)),
        "matchFields": st.one_of(st.none(), st.just([]), _fields),
        "future": st.just({"x": None}),
    },
)
_preferred_terms = st.fixed_dictionaries(
    {"weight": st.integers(1, 100), "preference": terms}, optional={"later": st.just([0])}
)
_node_affinity = st.fixed_dictionaries(
    {},
    optional={
        REQUIRED: st.one_of(
            st.none(),
            st.fixed_dictionaries(
                {}, optional={"nodeSelectorTerms": st.one_of(st.none(), st.lists(terms, max_size=4))}
            ),
        ),
        PREFERRED: st.one_of(st.none(), st.lists(_preferred_terms, max_size=3)),
        "unknown": st.just(True),
    },
)
_affinity = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {}, optional={"nodeAffinity": st.one_of(st.none(), _node_affinity), "podAffinity": st.just({"k": 1})}
    ),
)
_policies = st.sampled_from(["Always", "IfNotPresent", "Never", ""])


def _containers(images: st.SearchStrategy[str]) -> st.SearchStrategy[list[Json]]:
    return st.lists(
        st.fixed_dictionaries({"image": images, "imagePullPolicy": _policies}, optional={"ports": st.just([{}])}),
        min_size=1,
        max_size=3,
    )


def _claims() -> st.SearchStrategy[str]:
    """Texts of the decision annotation: ours, forged, or nonsense."""
    record = st.fixed_dictionaries(
        {
            "v": st.sampled_from([1, 1, 2]),
            "by": st.just("admission"),
            "mode": st.sampled_from(["enforce", "audit"]),
            "reason": st.sampled_from(["ArchitecturesSet", "NoSupportedArchitecture", "FallbackSet"]),
            "arch": st.lists(st.sampled_from(ARCHITECTURES), max_size=2),
            "terms": st.lists(st.integers(0, 3), max_size=3),
            "created": st.booleans(),
        },
        optional={
            "os": st.sampled_from(["linux", "windows"]),
            "preferred": st.lists(st.tuples(st.sampled_from(ARCHITECTURES), st.integers(1, 3)), max_size=2),
        },
    )
    return st.one_of(record.map(json.dumps), st.text(max_size=20), st.just('{"v":1'))


def pods(*, clean: bool, images: tuple[str, ...] = IMAGES) -> st.SearchStrategy[Json]:
    """Pod documents; ``clean``: without any key, gate or annotation of ours."""
    label_keys = st.sampled_from(["app", "tier", *([] if clean else sorted(names.OWN_LABELS))])
    labels = st.one_of(st.none(), st.dictionaries(label_keys, _words, max_size=4))
    notes: Json = {"note": _words, names.SKIP_ANNOTATION: st.sampled_from(["yes", "false"])}
    if not clean:
        notes |= {names.IMAGE_INSPECT_ERROR_ANNOTATION: _words, names.DECISION_ANNOTATION: _claims()}
    gates = st.sampled_from(["first", "second", *([] if clean else [names.GATE])])
    owners = st.lists(
        st.fixed_dictionaries(
            {"kind": st.sampled_from(["ReplicaSet"] * 4 + ["Job", "DaemonSet"])}, optional={"controller": st.booleans()}
        ),
        max_size=1,
    )
    chosen = st.sampled_from(images)
    return st.fixed_dictionaries(
        {
            "metadata": st.fixed_dictionaries(
                {"name": st.just("web"), "uid": st.just("u-1"), "resourceVersion": st.just("7")},
                optional={
                    "labels": labels,
                    "annotations": st.one_of(st.none(), st.fixed_dictionaries({}, optional=notes)),
                    "ownerReferences": owners,
                    "managedFields": st.just([{"f:x": {}}]),
                },
            ),
            "spec": st.fixed_dictionaries(
                {"containers": _containers(chosen)},
                optional={
                    "initContainers": _containers(chosen),
                    "volumes": st.lists(chosen.map(lambda text: {"image": {"reference": text}}), max_size=1),
                    "affinity": _affinity,
                    "nodeSelector": st.dictionaries(
                        st.sampled_from(["disk"] * 5 + [names.OS_KEY, names.ARCH_KEY]),
                        st.sampled_from(["linux", "arm64"]),
                        max_size=1,
                    ),
                    "schedulingGates": st.one_of(
                        st.none(), st.lists(gates.map(lambda name: {"name": name}), max_size=3, unique_by=str)
                    ),
                    "os": st.sampled_from([{"name": "linux"}, {"name": "windows"}]),
                    "unknown": st.just([{"deep": None}]),
                },
            ),
            "status": st.just({"phase": "Pending", "new": 1}),
        }
    )


_platforms = st.builds(
    Platform, st.sampled_from(["linux", "linux", "linux", "windows", "darwin"]), st.sampled_from(ARCHITECTURES)
)


def _resolved(text: str, platforms: tuple[Platform, ...], kind: Any, stale: bool) -> Inspection:
    entries = tuple(Entry(platform, "sha256:" + "e" * 64) for platform in platforms)
    digest = "sha256:" + "d" * 64
    return Inspection(parse(text), Status.RESOLVED, kind=kind, digest=digest, entries=entries, stale=stale)


def _unresolved(text: str, code: str) -> Inspection:
    return Inspection(parse(text), Status.ERROR, error=InspectionError.of(code, "no", status=500, host="h"))


def answer(
    text: str, platforms: st.SearchStrategy[Platform] = _platforms, *, known: bool = False
) -> st.SearchStrategy[Inspection | None]:
    """An answer for one image; ``known``: one that an admission can decide by."""
    kinds = st.sampled_from(["index", "index", "image"])
    sure = [
        st.builds(
            _resolved,
            st.just(text),
            st.lists(platforms, min_size=3 if known else 0, max_size=6, unique=known).map(tuple),
            kinds,
            st.booleans() if not known else st.just(False),
        ),
        st.just(Inspection(parse(text), Status.NEUTRAL, kind="artifact")),
    ]
    if known:
        return st.one_of(*sure)
    codes = st.sampled_from(["server-error", "not-found", "malformed", "tls"])
    return st.one_of(
        *sure,
        st.none(),
        st.just(Inspection(parse(text), Status.UNKNOWN)),
        codes.map(lambda code: _unresolved(text, code)),
    )


def answers(*, known: bool = False) -> st.SearchStrategy[Answers]:
    """Answers for :data:`IMAGES`."""
    each = st.tuples(*(answer(text, known=known) for text in IMAGES))
    return each.map(lambda found: {text: one for text, one in zip(IMAGES, found, strict=True) if one is not None})


settings = st.builds(
    Settings,
    action=st.sampled_from([None, "hold", "fallback", "release"]),
    fallback_architectures=st.sampled_from([(), ("amd64",), ("arm64", "s390x")]),
    os_constraint=st.sampled_from(["off", "auto", "always"]),
    inline_enabled=st.sampled_from([True, True, True, False]),
    node_aware=st.sampled_from(["off", "off", "report", "narrow"]),
    pod_opt_out=st.sampled_from(["allowed", "forbidden"]),
    events=st.sampled_from(["problems", "lean", "full"]),
)
sources = st.lists(
    st.builds(
        ScoringSource,
        st.sampled_from(["PodPlacementConfig-a", "PodPlacementConfig-b", "ClusterPodPlacementConfig"]),
        st.lists(st.tuples(st.sampled_from(ARCHITECTURES), st.integers(1, 3)), max_size=3).map(tuple),
    ),
    max_size=2,
).map(tuple)
progress = st.sampled_from(list(LookupProgress))


def case_of(
    document: Json, using: Settings, scoring: tuple[ScoringSource, ...] = (), *, stored: bool = False
) -> ExaminedPod:
    facts = PodFacts(
        pod=msgspec.convert(document, Pod),
        namespace="shop",
        settings=using,
        sources=scoring,
        stored=stored,
        nodes=NODES,
    )
    return examine(facts)


def admitted(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...] = ()
) -> tuple[Json, PlacementDecision, Admission]:
    """The pod after one admission."""
    case = case_of(document, using, scoring)
    decision = decide(case, known)
    admission = admit(case, decision, controller_available=True)
    return apply_patch(document, admission.operations), decision, admission


def controlled(
    document: Json,
    known: Answers,
    using: Settings,
    scoring: tuple[ScoringSource, ...] = (),
    reached: LookupProgress = LookupProgress.WAITING,
) -> tuple[Json, PlacementDecision]:
    """The pod after one write of the controller."""
    case = case_of(document, using, scoring, stored=True)
    decision = decide(case, known, reached)
    return apply_patch(document, controller_patch(case, decision)), decision


def required_terms(document: Json) -> list[Json] | None:
    """None where no node affinity is required."""
    selector = _node_affinity_of(document).get(REQUIRED)
    return selector.get("nodeSelectorTerms") if selector else None


def preferred_terms(document: Json) -> list[Json]:
    return _node_affinity_of(document).get(PREFERRED) or []


def _node_affinity_of(document: Json) -> Json:
    return ((document["spec"].get("affinity") or {}).get("nodeAffinity")) or {}


def pruned(value: Any) -> Any:
    """Without empty or null parents where placement may create or leave some: they say nothing to Kubernetes."""
    document = json.loads(json.dumps(value))
    affinity = document["spec"].get("affinity") or {}
    node_affinity = affinity.get("nodeAffinity") or {}
    selector = node_affinity.get(REQUIRED) or {}
    for term in selector.get("nodeSelectorTerms") or ():
        _drop_empty(term, "matchExpressions")
    for parent, member in (
        (selector, "nodeSelectorTerms"),
        (node_affinity, REQUIRED),
        (node_affinity, PREFERRED),
        (affinity, "nodeAffinity"),
        (document["spec"], "affinity"),
        (document["spec"], "schedulingGates"),
        (document["metadata"], "labels"),
        (document["metadata"], "annotations"),
    ):
        _drop_empty(parent, member)
    return document


def _drop_empty(parent: Mapping[str, Any], member: str) -> None:
    if isinstance(parent, dict) and not parent.get(member):
        parent.pop(member, None)


def without_ours(document: Json, decision: PlacementDecision) -> Json:
    """The pod without what this decision put on it: taken off by hand, not by the code under test."""
    bare: Json = json.loads(json.dumps(document))
    for member, keys in (("labels", names.OWN_LABELS), ("annotations", names.OWN_ANNOTATIONS)):
        for key in keys & set(bare["metadata"].get(member) or ()):
            del bare["metadata"][member][key]
    spec = bare["spec"]
    if spec.get("schedulingGates"):
        spec["schedulingGates"] = [gate for gate in spec["schedulingGates"] if gate["name"] != names.GATE]
    on_pod = required_terms(bare) or []
    for index in decision.terms:
        del on_pod[index]["matchExpressions"][-2 if index in decision.os_terms else -1 :]
    if decision.created:
        on_pod.clear()
    if decision.preferred:
        del preferred_terms(bare)[-len(decision.preferred) :]
    return bare
