"""Random pods with tolerations, and random settings of ArchitectureTaints, for the properties of tolerations."""

from typing import Any

import msgspec
from hypothesis import strategies as st
from placement_pods import ARCHITECTURES, BROKEN_IMAGES, IMAGES, Answers, Json
from placement_pods import pods as plain_pods

from polyarch.kube.patches import apply_patch
from polyarch.objects import Pod
from polyarch.taints import names
from polyarch.taints.decision import PodDecision, TolerationLookupProgress
from polyarch.taints.patch import admission_patch, stored_patch
from polyarch.taints.pod_rules import Case, PodFacts, decide, examine
from polyarch.taints.settings import TaintSettings

KEY = "supported-arch"
PROGRESS = st.sampled_from(list(TolerationLookupProgress))

tolerations = st.fixed_dictionaries(
    {},
    optional={
        "key": st.sampled_from([KEY, KEY, KEY, "other", ""]),
        "operator": st.sampled_from(["Equal", "Equal", "Exists", ""]),
        "value": st.sampled_from(["", *ARCHITECTURES]),
        "effect": st.sampled_from(["", "NoSchedule", "NoExecute"]),
        "tolerationSeconds": st.sampled_from([0, 300]),
    },
)

settings = st.builds(
    TaintSettings,
    mode=st.sampled_from(["tolerations", "secondary-only", "both"]),
    primary=st.sampled_from([frozenset({"amd64"}), frozenset({"arm64", "amd64"})]),
    given=st.sampled_from([frozenset(), frozenset(), frozenset({"amd64", "arm64", "s390x"})]),
    effect=st.sampled_from(["NoSchedule", "NoSchedule", "NoExecute"]),
    on_unknown=st.sampled_from(["gate", "primary-only", "all", "none"]),
    on_timeout=st.sampled_from(["primary-only", "all", "none", "keep"]),
    on_no_common=st.sampled_from(["admit", "deny"]),
    compatibility=st.sampled_from([(), (), (("arm64", frozenset({"riscv64"})),)]),
)


@st.composite
def pods(draw: st.DrawFn, *, ours: bool = True, broken: bool = False) -> Json:
    """Pods with tolerations of every kind; ``ours``: some with our gate, label and annotations."""
    images = (*IMAGES, *BROKEN_IMAGES) if broken else IMAGES
    document: Json = draw(plain_pods(clean=True, images=images))
    held = draw(st.one_of(st.none(), st.lists(tolerations, max_size=4)))
    if held is not None or draw(st.booleans()):
        document["spec"]["tolerations"] = held
    if ours and draw(st.booleans()):
        gates = document["spec"].get("schedulingGates") or []
        document["spec"]["schedulingGates"] = [*gates, {"name": names.GATE}]
        document["metadata"]["labels"] = (document["metadata"].get("labels") or {}) | {names.GATED_LABEL: "gated"}
    if ours and draw(st.booleans()):
        record = draw(st.lists(st.sampled_from(ARCHITECTURES), unique=True).map(",".join))
        annotations = document["metadata"].get("annotations") or {}
        document["metadata"]["annotations"] = annotations | {names.TOLERATIONS_ANNOTATION: record}
    return document


def case_of(document: Json, using: TaintSettings, **more: Any) -> Case:
    return examine(PodFacts(pod=msgspec.convert(document, Pod), namespace="shop", settings=using, **more))


def admitted(
    document: Json,
    known: Answers,
    using: TaintSettings,
    reached: TolerationLookupProgress = TolerationLookupProgress.FIRST,
) -> tuple[Json, PodDecision]:
    """The pod after one admission."""
    case = case_of(document, using)
    decision = decide(case, known, reached)
    return apply_patch(document, admission_patch(case, decision)), decision


def written(
    document: Json,
    known: Answers,
    using: TaintSettings,
    reached: TolerationLookupProgress = TolerationLookupProgress.FAILING,
) -> tuple[Json, PodDecision]:
    """The stored pod after one PATCH."""
    case = case_of(document, using, stored=True)
    decision = decide(case, known, reached)
    return apply_patch(document, stored_patch(case, decision)), decision
