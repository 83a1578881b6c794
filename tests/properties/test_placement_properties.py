"""Laws of placement that hold for every pod."""

import json

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from placement_pods import (
    ARCHITECTURES,
    BROKEN_IMAGES,
    IMAGES,
    PREFERRED,
    REQUIRED,
    Answers,
    Json,
    admitted,
    answer,
    answers,
    case_of,
    controlled,
    pods,
    preferred_terms,
    progress,
    pruned,
    required_terms,
    sources,
    without_ours,
)
from placement_pods import settings as any_settings

from polyarch.kube.patches import apply_patch
from polyarch.oci.inspection import Inspection
from polyarch.placement import explain, names
from polyarch.placement.admission import admit, decision_cache
from polyarch.placement.decision import MAX_RECORD_BYTES, LookupProgress, PlacementOutcome, Reason
from polyarch.placement.events import events_for
from polyarch.placement.patch import AdmissionPath, admission_patch, controller_patch
from polyarch.placement.rules import decide
from polyarch.placement.settings import ScoringSource, Settings
from polyarch.platforms import Platform
from polyarch.selectors import NodeTerm, Requirement, admits

FEW = settings(max_examples=100, deadline=None)
SELECTIVE = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
LABEL_VALUE_CHARACTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")


@pytest.mark.req("PL-101")
@given(pods(clean=True), answers(), any_settings, sources)
@FEW
def test_removing_our_keys_from_the_admitted_pod_gives_the_pod_that_arrived(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...]
) -> None:
    after, decision, admission = admitted(document, known, using, scoring)
    if admission.path is not AdmissionPath.INLINE:
        decision = type(decision)(reason=decision.reason, outcome=decision.outcome, message="")
    assert pruned(without_ours(after, decision)) == pruned(document)


@pytest.mark.req("PL-101", "PL-303")
@given(pods(clean=True), answers(), any_settings, sources, progress)
@FEW
def test_removing_our_keys_from_the_released_pod_gives_the_pod_that_was_stored(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...], reached: LookupProgress
) -> None:
    after, decision = controlled(document, known, using, scoring, reached)
    assert pruned(without_ours(after, decision)) == pruned(document)


@pytest.mark.req("PL-114")
@given(pods(clean=False), answers(), any_settings, sources)
@FEW
def test_a_second_call_on_our_own_output_is_empty(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...]
) -> None:
    """Also where the pod arrived with forged or stale keys of ours."""
    after, _, _ = admitted(document, known, using, scoring)
    assert admitted(after, known, using, scoring)[2].operations == ()


@pytest.mark.req("PL-303")
@given(pods(clean=False), answers(), any_settings, sources, progress)
@FEW
def test_a_second_pass_of_the_controller_finds_nothing_to_write(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...], reached: LookupProgress
) -> None:
    """A pod that waits or is held gets one write."""
    after, decision = controlled(document, known, using, scoring, reached)
    assume(decision.outcome is not PlacementOutcome.PLACED)
    case = case_of(after, using, scoring, stored=True)
    assert controller_patch(case, decide(case, known, reached)) == ()


@pytest.mark.req("PL-114", "PL-200")
@given(pods(clean=True), answers(), answers(), any_settings, sources, sources)
@FEW
def test_no_trace_of_the_first_decision_remains(
    document: Json,
    first: Answers,
    second: Answers,
    using: Settings,
    before: tuple[ScoringSource, ...],
    after: tuple[ScoringSource, ...],
) -> None:
    """Deciding twice is deciding once, by the later facts."""
    twice = admitted(admitted(document, first, using, before)[0], second, using, after)[0]
    once = admitted(document, second, using, after)[0]
    assert pruned(twice) == pruned(once)


@pytest.mark.req("PL-111")
@given(pods(clean=True), answers(known=True), any_settings, sources)
@SELECTIVE
def test_webhook_and_controller_reach_the_same_pod_but_for_by(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...]
) -> None:
    inline, _, admission = admitted(document, known, using, scoring)
    assume(admission.path is AdmissionPath.INLINE)
    case = case_of(document, using, scoring)
    gate = admission_patch(case, decide(case, {}), AdmissionPath.GATED)
    late, _ = controlled(apply_patch(document, gate), known, using, scoring)
    for each, by in ((inline, "admission"), (late, "controller")):
        notes = each["metadata"]["annotations"]
        record = json.loads(notes[names.DECISION_ANNOTATION])
        assert record.pop("by") == by
        notes[names.DECISION_ANNOTATION] = record
    assert pruned(inline) == pruned(late)


OWN_PATHS = (
    "/metadata/labels",
    "/metadata/annotations",
    "/metadata/uid",
    "/metadata/resourceVersion",
    "/spec/affinity",
    "/spec/schedulingGates",
)


@pytest.mark.req("PL-101", "PL-102")
@given(pods(clean=False), answers(), any_settings, sources, progress)
@FEW
def test_operations_touch_only_what_is_ours(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...], reached: LookupProgress
) -> None:
    """Keys of ours, node affinity, our gate."""
    inline = case_of(document, using, scoring)
    stored = case_of(document, using, scoring, stored=True)
    operations = (
        *admit(inline, decide(inline, known), controller_available=True).operations,
        *controller_patch(stored, decide(stored, known, reached)),
    )
    for each in operations:
        assert each.path.startswith(OWN_PATHS)
        member, _, key = each.path.removeprefix("/metadata/").partition("/")
        if key and member in ("labels", "annotations"):
            assert key.replace("~1", "/") in names.OWN_LABELS | names.OWN_ANNOTATIONS
        if each.path in ("/metadata/labels", "/metadata/annotations"):
            assert each.op == "add"
            assert set(each.value) <= names.OWN_LABELS | names.OWN_ANNOTATIONS


@pytest.mark.req("PL-005", "PL-221")
@given(pods(clean=False), answers(), any_settings, sources, progress)
@FEW
def test_terms_of_a_stored_pod_only_grow_at_their_end(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...], reached: LookupProgress
) -> None:
    """What the API server allows on a gated pod, and all that we do."""
    after, _ = controlled(document, known, using, scoring, reached)
    before, now = required_terms(document), required_terms(after)
    if not before:
        assert now in (before, None) or len(now or ()) == 1
        return
    assert now is not None
    assert len(now) == len(before)
    for old, new in zip(before, now, strict=True):
        given_expressions = old.get("matchExpressions") or []
        assert (new.get("matchExpressions") or [])[: len(given_expressions)] == given_expressions
        assert {k: v for k, v in new.items() if k != "matchExpressions"} == {
            k: v for k, v in old.items() if k != "matchExpressions"
        }
        if not given_expressions and not old.get("matchFields"):
            assert new == old


@pytest.mark.req("PL-105", "PL-303")
@given(pods(clean=True), answers(), any_settings, sources)
@FEW
def test_foreign_gates_keep_their_order_and_ours_is_there_at_most_once(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...]
) -> None:
    after, _, admission = admitted(document, known, using, scoring)
    before = [gate["name"] for gate in document["spec"].get("schedulingGates") or ()]
    ours = [names.GATE] if admission.path is AdmissionPath.GATED else []
    assert [gate["name"] for gate in after["spec"].get("schedulingGates") or ()] == before + ours


ODD_NAMES = st.one_of(
    st.sampled_from([*ARCHITECTURES, "", " ", "a b", "-x", "x-", "a/b", "é", "x" * 63, "x" * 64, "Q_9.z"]),
    st.text(max_size=6),
)


@pytest.mark.req("PL-233")
@given(
    pods(clean=True, images=IMAGES[:1]),
    answer(IMAGES[0], st.builds(Platform, st.sampled_from(["linux", "windows", ""]), ODD_NAMES), known=True),
    any_settings,
    progress,
)
@FEW
def test_every_value_written_is_a_valid_label_value(
    document: Json, known: Inspection, using: Settings, reached: LookupProgress
) -> None:
    after, decision = controlled(document, {IMAGES[0]: known}, using, (), reached)
    for value in decision.architectures:
        assert 1 <= len(value) <= 63
        assert set(value) <= LABEL_VALUE_CHARACTERS
        assert value[0].isalnum()
        assert value[-1].isalnum()
    for key in names.OWN_LABELS & set(after["metadata"].get("labels") or ()):
        assert len(after["metadata"]["labels"][key]) <= 63
    if decision.terms and decision.reason is not Reason.NO_SUPPORTED_ARCHITECTURE:
        assert decision.architectures


NODES = [
    {names.ARCH_KEY: architecture, names.OS_KEY: system, "zone": zone, names.BETA_OS_KEY: system}
    for architecture in ARCHITECTURES
    for system in ("linux", "windows")
    for zone in ("a", "b")
]


@pytest.mark.req("PL-220", "PL-221", "PL-222")
@given(pods(clean=True), answers(known=True), any_settings)
@SELECTIVE
def test_nodes_that_match_afterwards_are_those_that_matched_and_have_an_architecture_of_the_images(
    document: Json, known: Answers, using: Settings
) -> None:
    """Against the node-matching of ``polyarch.selectors``."""
    after, decision, admission = admitted(document, known, using)
    assume(admission.path is AdmissionPath.INLINE and decision.reason is Reason.ARCHITECTURES_SET)
    before = [NodeTerm.parse(term) for term in required_terms(document) or ()]
    written = Requirement(names.ARCH_KEY, "In", decision.architectures)
    for node in NODES:
        expected = any(
            term.matches(node, "n1")
            and (any(each.key == names.ARCH_KEY for each in term.expressions) or written.matches(node))
            and (index not in decision.os_terms or node[names.OS_KEY] == decision.os)
            for index, term in enumerate(before)
        )
        if not before:
            expected = written.matches(node) and decision.os in ("", node[names.OS_KEY])
        assert admits(required_terms(after), node, node_name="n1") is expected


@pytest.mark.req("PL-213", "PL-215")
@given(pods(clean=True), answers(known=True))
@SELECTIVE
def test_with_the_os_constrained_no_node_gets_an_image_that_it_cannot_run(document: Json, known: Answers) -> None:
    """Whoever says nothing of platforms themselves is never placed on a wrong node."""
    document["spec"].pop("nodeSelector", None)
    document["spec"].pop("os", None)
    own_words = {names.ARCH_KEY, names.OS_KEY, names.BETA_OS_KEY}
    assume(
        not any(
            each["key"] in own_words
            for term in required_terms(document) or ()
            for each in term.get("matchExpressions") or ()
        )
    )
    after, decision, admission = admitted(document, known, Settings(os_constraint="always"))
    assume(admission.path is AdmissionPath.INLINE and decision.reason is Reason.ARCHITECTURES_SET)
    used = {each["image"] for each in document["spec"]["containers"]}
    for node in NODES:
        if admits(required_terms(after), node, node_name="n1"):
            for text in used:
                pairs = known[text].node_platforms
                assert not known[text].constrains or (node[names.OS_KEY], node[names.ARCH_KEY]) in pairs


@pytest.mark.req("PL-118", "PL-246", "PL-306", "PL-750")
@given(pods(clean=False, images=(*IMAGES, *BROKEN_IMAGES)), answers(), any_settings, sources, progress)
@FEW
def test_no_pod_and_no_answer_makes_the_rules_raise(
    document: Json, known: Answers, using: Settings, scoring: tuple[ScoringSource, ...], reached: LookupProgress
) -> None:
    """And whatever is said keeps within its limits."""
    case = case_of(document, using, scoring)
    admission = admit(case, decide(case, known), controller_available=False)
    entry = explain.explain_admission(document, case, admission)
    stored = case_of(document, using, scoring, stored=True)
    decision = decide(stored, known, reached)
    explain.explain_controller(document, stored, decision)
    assert len(admission.warnings) <= 2
    assert all(len(warning) <= 200 for warning in admission.warnings)
    assert all(len(event.note.encode()) <= 1024 for event in events_for(stored, decision))
    assert len(decision.failure) <= 256
    notes = entry["annotations"]
    if names.DECISION_ANNOTATION in notes and admission.operations:
        assert len(notes[names.DECISION_ANNOTATION].encode()) <= MAX_RECORD_BYTES


@pytest.mark.req("PL-242")
@given(pods(clean=True), answers(known=True), sources)
@SELECTIVE
def test_the_sources_annotation_never_contradicts_the_terms_on_the_pod(
    document: Json, known: Answers, scoring: tuple[ScoringSource, ...]
) -> None:
    """Every platform of every source once, and exactly the ones not skipped are on the pod."""
    after, decision, admission = admitted(document, known, Settings(), scoring)
    assume(admission.path is AdmissionPath.INLINE)
    text = after["metadata"]["annotations"].get(names.PREFERRED_AFFINITY_SOURCES_ANNOTATION, "")
    entries = [entry.split(":") for entry in text.split(",") if entry]
    applied = [(entry[0], int(entry[1])) for entry in entries if entry[-1] != "skipped"]
    ours = preferred_terms(after)[len(preferred_terms(document)) :]
    assert applied == list(decision.preferred)
    assert [(each["preference"]["matchExpressions"][0]["values"][0], each["weight"]) for each in ours] == applied
    assert len({tuple(entry) for entry in entries}) == len(entries)
    assert {(entry[0], int(entry[1]), entry[2]) for entry in entries} == {
        (architecture, weight, source.name) for source in scoring for architecture, weight in source.platforms
    }


def test_the_strategies_know_the_members_of_node_affinity() -> None:
    """A typo there would leave most properties without a term to look at."""
    assert REQUIRED.startswith("required")
    assert PREFERRED.startswith("preferred")
    document = {"spec": {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}]}}}}}
    assert required_terms(document) == [{}]


@pytest.mark.req("PL-801")
@given(
    st.tuples(pods(clean=False), pods(clean=False)),
    st.tuples(answers(), answers()),
    any_settings,
    sources,
    st.lists(st.tuples(*[st.sampled_from([0, 1])] * 3, st.booleans(), st.booleans()), min_size=6, max_size=12),
)
@FEW
def test_an_answer_from_a_series_is_what_the_rules_say(
    documents: tuple[Json, Json],
    known: tuple[Answers, Answers],
    using: Settings,
    scoring: tuple[ScoringSource, ...],
    admissions: list[tuple[int, int, int, bool, bool]],
) -> None:
    """Whatever was asked before, though names differ; each spec comes with each metadata."""
    series = decision_cache(capacity=3)
    for number, (spec, metadata, answered, lives, leaving) in enumerate(admissions):
        document = documents[spec] | {"metadata": documents[metadata]["metadata"] | {"name": f"web-{number}"}}
        case = case_of(document, using, scoring)
        expected = admit(
            case, decide(case, known[answered]), controller_available=lives, deprovisioning=leaving and not lives
        )
        assert expected == series.get(case.facts).admission(
            known[answered], controller_available=lives, deprovisioning=leaving and not lives
        )
