"""Laws of tolerations that hold for every pod and every node."""

import json
from typing import Any

import msgspec
import pytest
import yaml
from hypothesis import assume, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from placement_pods import ARCHITECTURES, REQUIRED, Answers, Json, answers
from taint_pods import PROGRESS, admitted, case_of, pods, settings, written

from polyarch.images.pod_images import ImageEffect
from polyarch.manifests.rules.engine import lint
from polyarch.manifests.rules.options import LintOptions, Taints
from polyarch.manifests.scan.scanning import scan
from polyarch.manifests.scan.sets import ImageInspections as LintAnswers
from polyarch.manifests.scan.text import SourceText
from polyarch.platforms import KNOWN_ARCHITECTURES
from polyarch.selectors import NodeTerm, Requirement, admits
from polyarch.taints import names
from polyarch.taints.decision import Reason, TolerationLookupProgress, TolerationOutcome
from polyarch.taints.pod_rules import decide
from polyarch.taints.settings import TaintSettings
from polyarch.tolerations import Toleration, is_tolerated

MANY = hypothesis_settings(max_examples=200, deadline=None)
ZONES = ("a", "b", "")


def held(document: Json) -> list[Toleration]:
    return msgspec.convert(document["spec"].get("tolerations") or [], list[Toleration])


@pytest.mark.req("TN-032", "TN-093")
@given(pods(), answers(), settings, PROGRESS, st.booleans())
@MANY
def test_added_tolerations_are_minimal_and_sufficient(
    document: Json, known: Answers, using: TaintSettings, reached: TolerationLookupProgress, stored: bool
) -> None:
    """All that is wanted is covered, and without any one of those that were added something is not."""
    after, decision = (written if stored else admitted)(document, known, using, reached)
    before, now = held(document), held(after)
    assert now[: len(before)] == before
    wanted = [using.taint(each) for each in decision.architectures if each in using.tainted]
    if decision.outcome is TolerationOutcome.TOLERATED:
        assert all(is_tolerated(taint, now) for taint in wanted)
    for index in range(len(before), len(now)):
        assert not all(is_tolerated(taint, [*now[:index], *now[index + 1 :]]) for taint in wanted)
    added = now[len(before) :]
    assert tuple(each.value for each in added) == decision.added == tuple(sorted(decision.added))
    assert all((each.operator, each.key, each.toleration_seconds) == ("Equal", using.key, None) for each in added)


@pytest.mark.req("TN-034", "TN-093")
@given(pods(), answers(), settings, PROGRESS, st.booleans())
@MANY
def test_a_pod_can_run_on_every_node_whose_taint_it_tolerates_because_of_us(
    document: Json, known: Answers, using: TaintSettings, reached: TolerationLookupProgress, stored: bool
) -> None:
    """Its images have the platform (or the node runs theirs), and some node like this satisfies its
    constraints. Judged here by the scheduler's rule on whole nodes, and image by image."""
    after, decision = (written if stored else admitted)(document, known, using, reached)
    everywhere = [(each, system) for each in sorted(KNOWN_ARCHITECTURES) for system in ("linux", "windows")]
    assume(any(_takes(document, *platform) for platform in everywhere))
    for taint in map(using.taint, sorted(KNOWN_ARCHITECTURES)):
        if not is_tolerated(taint, held(after)) or is_tolerated(taint, held(document)):
            continue
        assert _takes(document, taint.value, decision.system)
        runs = {taint.value}.union(*(foreign for node, foreign in using.compatibility if node == taint.value))
        for finding in decision.images:
            if finding.effect is ImageEffect.CONSTRAINS:
                platforms = {(each.os, each.architecture) for each in known[finding.text].platforms}
                assert platforms & {(decision.system, each) for each in runs}


def _takes(document: Json, architecture: str, system: str) -> bool:
    """Whether a node of this platform, in some zone, takes the pod."""
    return any(_takes_in(document, architecture, system, zone) for zone in ZONES)


def _takes_in(document: Json, architecture: str, system: str, zone: str) -> bool:
    labels = {
        **dict.fromkeys(("kubernetes.io/arch", "beta.kubernetes.io/arch"), architecture),
        **dict.fromkeys(("kubernetes.io/os", "beta.kubernetes.io/os"), system),
        "multiarch.openshift.io/no-supported-arch": "",
    }
    labels |= {"zone": zone} if zone else {}
    selector = dict(document["spec"].get("nodeSelector") or {})
    labels |= {"disk": selector["disk"]} if "disk" in selector else {}
    required = ((document["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED)
    if required is None:
        return admits(None, labels, node_selector=selector)
    terms = [
        NodeTerm(
            tuple(
                Requirement(each["key"], each["operator"], tuple(each.get("values") or ()))
                for each in term.get("matchExpressions") or ()
            ),
            tuple(
                Requirement(each["key"], each["operator"], tuple(each["values"]))
                for each in term.get("matchFields") or ()
            ),
        )
        for term in required.get("nodeSelectorTerms") or ()
    ]
    return admits(terms, labels, node_selector=selector, node_name="n1")


@pytest.mark.req("TN-033")
@given(pods(), answers(), settings, st.randoms(use_true_random=False))
@MANY
def test_order_and_repetition_of_containers_do_not_matter(
    document: Json, known: Answers, using: TaintSettings, random: Any
) -> None:
    """A true intersection. A container keeps its pull policy."""
    containers = [*document["spec"]["containers"], *(document["spec"].get("initContainers") or ())]
    shuffled = [*containers, *random.choices(containers, k=random.randrange(3))]
    random.shuffle(shuffled)
    cut = random.randrange(1, len(shuffled) + 1)
    other = document | {
        "spec": document["spec"] | {"containers": shuffled[:cut], "initContainers": shuffled[cut:] or None}
    }
    first, second = (decide(case_of(each, using), known) for each in (document, other))
    assert (first.reason, first.outcome, first.architectures, first.added) == (
        second.reason,
        second.outcome,
        second.architectures,
        second.added,
    )


@pytest.mark.req("TN-053", "TN-093")
@given(pods(), answers(), settings, PROGRESS, st.booleans())
@MANY
def test_a_second_decision_about_our_own_output_is_nothing(
    document: Json, known: Answers, using: TaintSettings, reached: TolerationLookupProgress, stored: bool
) -> None:
    act = written if stored else admitted
    after, first = act(document, known, using, reached)
    again, second = act(after, known, using, reached)
    assert again == after
    assert second.added == ()
    assert (first.outcome is TolerationOutcome.GATED) == (second.outcome is TolerationOutcome.GATED)


@pytest.mark.req("TN-032", "TN-042")
@given(pods(), answers(), settings, PROGRESS, st.booleans())
@MANY
def test_a_patch_changes_nothing_but_our_own_parts(
    document: Json, known: Answers, using: TaintSettings, reached: TolerationLookupProgress, stored: bool
) -> None:
    """Without our label, annotations, gate and new tolerations it is the pod that was given."""
    after, _ = (written if stored else admitted)(document, known, using, reached)
    assert _without_ours(after, len(document["spec"].get("tolerations") or ())) == _without_ours(
        document, len(document["spec"].get("tolerations") or ())
    )


def _without_ours(document: Json, count: int) -> Json:
    bare: Json = json.loads(json.dumps(document))
    for member, keys in (
        ("labels", {names.GATED_LABEL}),
        ("annotations", {names.TOLERATIONS_ANNOTATION, names.REASON_ANNOTATION}),
    ):
        kept = {key: value for key, value in (bare["metadata"].pop(member, None) or {}).items() if key not in keys}
        bare["metadata"][member] = kept
    gates = [gate for gate in bare["spec"].get("schedulingGates") or () if gate["name"] != names.GATE]
    return bare | {
        "spec": bare["spec"]
        | {"schedulingGates": gates, "tolerations": (bare["spec"].get("tolerations") or [])[:count]}
    }


@pytest.mark.req("TN-046")
@given(pods(), answers(), settings, PROGRESS)
@MANY
def test_a_gate_is_ours_to_lift_exactly_if_the_pod_waits(
    document: Json, known: Answers, using: TaintSettings, reached: TolerationLookupProgress
) -> None:
    """No stored pod gets a gate, and no decision but ``gated`` leaves one."""
    for act in (written, admitted):
        after, decision = act(document, known, using, reached)
        if decision.outcome is TolerationOutcome.DENIED:
            continue
        had = _is_gated(document)
        assert _is_gated(after) == (decision.outcome is TolerationOutcome.GATED and (had or act is admitted))
        assert ((after["metadata"].get("labels") or {}).get(names.GATED_LABEL) == "gated") == _is_gated(after)


def _is_gated(document: Json) -> bool:
    return any(gate["name"] == names.GATE for gate in document["spec"].get("schedulingGates") or ())


@pytest.mark.req("TN-002")
@given(pods(broken=True), answers(), settings, PROGRESS, st.booleans())
@MANY
def test_the_rules_are_total_and_every_decision_has_one_sentence(
    document: Json, known: Answers, using: TaintSettings, reached: TolerationLookupProgress, stored: bool
) -> None:
    """No pod, no answer and no text of an image makes them raise."""
    decision = decide(case_of(document, using, stored=stored), known, reached)
    assert decision.message.endswith(".")
    assert (decision.outcome is TolerationOutcome.TOLERATED) == bool(decision.added)


@pytest.mark.req("MF-003", "TN-031")
@given(pods(ours=False), answers(known=True), st.sampled_from([None, ("amd64", "arm64", "s390x", "riscv64")]))
@MANY
def test_lint_asks_daemon_sets_for_what_admission_would_add(
    template: Json, known: Answers, architectures: tuple[str, ...] | None
) -> None:
    """MA113: both judge by the same sets, so a manifest that lint finds no fault with is not changed."""
    spec = {key: value for key, value in template["spec"].items() if key not in ("schedulingGates", "unknown")}
    node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    assume(node_affinity.get(REQUIRED, {}) is not None)  # an error in a manifest, which lint takes for no term
    keyless = [each for each in spec.get("tolerations") or [] if not each.get("key")]
    assume(all(each.get("operator") == "Exists" for each in keyless))  # the API server refuses others
    text = yaml.safe_dump(
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "agent"},
            "spec": {"template": {"spec": spec}},
        }
    )
    managed = frozenset(architectures or ARCHITECTURES)
    using = TaintSettings(mode="tolerations", given=managed, key="k")
    decision = decide(case_of(template | {"spec": spec}, using, stored=True), known)
    assume(all(each.effect == "constrains" for each in decision.images) or decision.reason is Reason.COVERED)
    options = LintOptions(taints=Taints("k", architectures=tuple(sorted(managed))))
    file = scan(SourceText.of("agent.yaml", text.encode()))
    found = [each for each in lint(file, LintAnswers(known), options) if each.finding.rule == "MA113"]
    asked = {each["value"] for problem in found for each in _added(problem)}
    assert asked == set(decision.added)


def _added(problem: Any) -> list[Json]:
    """The tolerations that the repair writes."""
    values = [operation.value for operation in problem.repair.operations]
    return [each for value in values for each in (value if isinstance(value, list) else [value])]
