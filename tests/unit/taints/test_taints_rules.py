"""The outcome for a pod: tolerations, a gate, a fallback, a refusal."""

from typing import Any

import pytest
from placement_cases import APP, SIDE, answers, arch, failure, index, neutral, pod, term, unknown
from taint_cases import admitted, facts, reconciled, settings, tolerating, toleration

from polyarch.platforms import ASSUMED_ARCHITECTURES
from polyarch.taints import names
from polyarch.taints.decision import TolerationLookupProgress
from polyarch.taints.pod_rules import Waited, assess, decide_after, examine, next_change

BOTH = index(APP, "amd64", "arm64")
DOWN = failure(APP)
GATE = {"gates": [names.GATE], "labels": {names.GATED_LABEL: names.GATED}}


# -- what is added -----------------------------------------------------------------------------------------------------


@pytest.mark.req("TN-032")
def test_exactly_the_missing_tolerations_are_added_sorted_and_at_the_end() -> None:
    held = [{"key": "team", "operator": "Exists"}, toleration("arm64", operator=None, effect=None)]
    found = admitted(pod(tolerations=held), answers(index(APP, "s390x", "arm64", "amd64")))
    assert found.tolerations == [*held, *tolerating("amd64", "s390x")]
    assert found.told == ("Images", "tolerated", ("amd64", "s390x"))


@pytest.mark.req("TN-032")
def test_an_expiring_toleration_does_not_cover_with_no_execute() -> None:
    held = [toleration("arm64", effect="NoExecute", tolerationSeconds=60)]
    found = admitted(pod(tolerations=held), answers(BOTH), settings(effect="NoExecute", given=frozenset({"arm64"})))
    assert found.tolerations == [*held, toleration("arm64", effect="NoExecute")]


@pytest.mark.req("TN-032")
def test_in_secondary_only_mode_primary_architectures_get_no_toleration() -> None:
    found = admitted(pod(), answers(BOTH), settings(mode="secondary-only"))
    assert found.decision.architectures == ("amd64", "arm64")
    assert found.decision.added == ("arm64",)
    both = admitted(pod(), answers(BOTH), settings(mode="both"))
    assert both.decision.added == ("amd64", "arm64")


@pytest.mark.req("TN-001")
def test_key_effect_and_value_come_from_the_configuration() -> None:
    using = settings(key="kubernetes.io/arch", effect="NoExecute", primary=frozenset({"arm64"}), mode="secondary-only")
    found = admitted(pod(), answers(BOTH), using)
    assert found.tolerations == [toleration("amd64", key="kubernetes.io/arch", effect="NoExecute")]


@pytest.mark.req("TN-034")
def test_never_more_than_the_pod_can_use_and_never_a_bare_exists() -> None:
    narrow = pod(nodeSelector={"kubernetes.io/arch": "arm64"})
    assert [each["value"] for each in admitted(narrow, answers(BOTH)).tolerations] == ["arm64"]
    every = admitted(narrow, answers(DOWN), settings(on_unknown="all"))
    assert every.tolerations == tolerating("arm64")
    anywhere = admitted(pod(), answers(DOWN), settings(on_unknown="all"))
    assert anywhere.tolerations == tolerating(*ASSUMED_ARCHITECTURES)


# -- answers are missing -----------------------------------------------------------------------------------------------


@pytest.mark.req("TN-046")
@pytest.mark.parametrize("missing", [{}, answers(DOWN), answers(unknown(APP))], ids=["not in time", "error", "unknown"])
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("gate", ("ArchitectureUnknown", "gated", ())),
        ("primary-only", ("PrimaryFallback", "tolerated", ("amd64",))),
        ("all", ("AllFallback", "tolerated", ASSUMED_ARCHITECTURES)),
        ("none", ("ArchitectureUnknown", "passed", ())),
    ],
)
def test_missing_answers_at_admission(missing: dict[str, Any], policy: str, expected: tuple[Any, ...]) -> None:
    found = admitted(pod(), missing, settings(on_unknown=policy))
    assert found.told == expected
    assert APP in found.decision.message


@pytest.mark.req("TN-046")
def test_nobody_would_lift_a_gate_so_the_pod_passes() -> None:
    found = admitted(pod(), {}, progress=TolerationLookupProgress.UNGUARDED)
    assert found.told == ("ArchitectureUnknown", "passed", ())
    assert found.operations == ()
    copied = admitted(pod(**GATE), {}, progress=TolerationLookupProgress.UNGUARDED)
    assert copied.told == found.told
    assert copied.document["spec"]["schedulingGates"] == []
    fallback = admitted(pod(), {}, settings(on_unknown="primary-only"), progress=TolerationLookupProgress.UNGUARDED)
    assert fallback.decision.added == ("amd64",)


@pytest.mark.req("TN-046")
def test_known_images_restrict_every_fallback() -> None:
    known = index(SIDE, "arm64", "s390x")
    for policy, added in (("all", ("arm64", "s390x")), ("primary-only", ())):
        found = admitted(pod(APP, SIDE), answers(known), settings(on_unknown=policy))
        assert found.decision.added == added
    primary = settings(on_unknown="primary-only", primary=frozenset({"amd64", "arm64"}))
    assert admitted(pod(APP, SIDE), answers(known), primary).told == ("PrimaryFallback", "tolerated", ("arm64",))


@pytest.mark.req("TN-046")
def test_a_primary_architecture_that_is_not_usual_is_a_fallback_too() -> None:
    using = settings(on_unknown="primary-only", primary=frozenset({"riscv64"}))
    assert admitted(pod(), {}, using).decision.added == ("riscv64",)


@pytest.mark.req("TN-046")
def test_a_fallback_that_adds_nothing_leaves_the_pod_to_be_completed() -> None:
    """In mode secondary-only an untouched pod stays on primary nodes."""
    found = admitted(pod(), {}, settings(on_unknown="primary-only", mode="secondary-only"))
    assert found.told == ("PrimaryFallback", "passed", ())
    assert found.operations == ()


@pytest.mark.req("TN-046")
@pytest.mark.parametrize(
    ("policy", "progress", "gated", "expected"),
    [
        ("gate", TolerationLookupProgress.WAITING, True, ("ArchitectureUnknown", "gated", ())),
        ("gate", TolerationLookupProgress.FAILING, True, ("ArchitectureUnknown", "gated", ())),
        ("gate", TolerationLookupProgress.FAILING, False, ("ArchitectureUnknown", "passed", ())),
        ("all", TolerationLookupProgress.WAITING, False, ("ArchitectureUnknown", "passed", ())),
        ("primary-only", TolerationLookupProgress.FAILING, False, ("PrimaryFallback", "tolerated", ("amd64",))),
        ("none", TolerationLookupProgress.FAILING, True, ("ArchitectureUnknown", "passed", ())),
        ("none", TolerationLookupProgress.ENDED, False, ("ArchitectureUnknown", "passed", ())),
    ],
)
def test_missing_answers_of_a_stored_pod(
    policy: str, progress: TolerationLookupProgress, gated: bool, expected: tuple[Any, ...]
) -> None:
    """No policy is applied before each image has answered or failed; a gate is never added to a stored pod."""
    found = reconciled(pod(**(GATE if gated else {})), answers(DOWN), settings(on_unknown=policy), progress=progress)
    assert found.told == expected
    gates = found.document["spec"].get("schedulingGates") or []
    assert bool(gates) == (expected[1] == "gated")


@pytest.mark.req("TN-046")
def test_answers_of_a_gated_pod_lift_the_gate_with_the_tolerations() -> None:
    found = reconciled(pod(**GATE), answers(BOTH))
    assert found.told == ("Images", "tolerated", ("amd64", "arm64"))
    assert found.document["spec"]["schedulingGates"] == []
    assert found.tolerations == tolerating("amd64", "arm64")


# -- the time of the gate is over --------------------------------------------------------------------------------------


@pytest.mark.req("TN-048")
@pytest.mark.parametrize(
    ("policy", "expected", "stays"),
    [
        ("primary-only", ("PrimaryFallback", "tolerated", ("amd64",)), False),
        ("all", ("AllFallback", "tolerated", ASSUMED_ARCHITECTURES), False),
        ("none", ("ArchitectureUnknown", "passed", ()), False),
        ("keep", ("ArchitectureUnknown", "gated", ()), True),
    ],
)
def test_the_time_of_the_gate_is_over(policy: str, expected: tuple[Any, ...], stays: bool) -> None:
    found = reconciled(pod(**GATE), answers(DOWN), settings(on_timeout=policy), progress=TolerationLookupProgress.ENDED)
    assert found.told == expected
    assert found.decision.timed_out
    assert bool(found.document["spec"]["schedulingGates"]) is stays
    assert (found.document["metadata"]["labels"].get(names.GATED_LABEL) == names.GATED) is stays


@pytest.mark.req("TN-048")
def test_seconds_decide_when_the_time_is_over_whatever_is_pending() -> None:
    using = settings(gate_timeout=300.0)
    case = examine(facts(pod(**GATE), using, stored=True))
    waiting = decide_after(case, {}, Waited(299.0, pending=True))
    assert waiting.keeps_gate
    assert next_change(waiting, using, Waited(299.0, pending=True)) == 1.0
    over = decide_after(case, {}, Waited(300.0, pending=True))
    assert over.reason == "PrimaryFallback"
    assert next_change(over, using, Waited(300.0)) is None


@pytest.mark.req("TN-046")
def test_on_timeout_applies_when_placement_lifts_its_gate_without_answers() -> None:
    case = examine(facts(pod(gates=["multiarch.openshift.io/scheduling-gate"]), stored=True))
    assert decide_after(case, {}, Waited(1.0, pending=True)).outcome == "passed"
    released = decide_after(case, {}, Waited(1.0, pending=True, released=True))
    assert (released.reason, released.added, released.timed_out) == ("PrimaryFallback", ("amd64",), True)
    kept = examine(facts(pod(), settings(on_timeout="keep"), stored=True))
    assert decide_after(kept, {}, Waited(1.0, released=True)).outcome == "passed"


@pytest.mark.req("TN-048")
@pytest.mark.parametrize("state", ["paused", "removing"])
def test_gates_are_lifted_without_tolerations_while_paused_or_removing(state: str) -> None:
    found = reconciled(pod(**GATE), answers(BOTH), settings(state=state))
    assert found.document["spec"]["schedulingGates"] == []
    assert names.GATED_LABEL not in found.document["metadata"]["labels"]
    assert found.tolerations == []


# -- no node can run the pod -------------------------------------------------------------------------------------------


@pytest.mark.req("TN-047")
def test_no_common_architecture_names_the_fewest_images() -> None:
    third = "quay.io/team/third:3"
    given = answers(index(APP, "amd64", "arm64"), index(SIDE, "s390x"), index(third, "amd64"))
    found = admitted(pod(third, APP, SIDE), given)
    assert found.told == ("NoCommonArchitecture", "unchanged", ())
    assert SIDE in found.decision.message
    assert third not in found.decision.message or APP not in found.decision.message


@pytest.mark.req("TN-047")
@pytest.mark.parametrize(
    ("document", "answer", "named"),
    [
        (pod(nodeSelector={"kubernetes.io/arch": "s390x"}), BOTH, "nodeSelector"),
        (pod(terms=[term(arch("s390x"))]), BOTH, "node affinity"),
        (pod(terms=[term(arch("mips"))]), neutral(APP), "node affinity"),
        (pod(os={"name": "windows"}), BOTH, "operating system is windows"),
        (pod(), index(APP), f"{APP} has no platform"),
    ],
)
def test_no_common_architecture_names_the_cause(document: dict[str, Any], answer: Any, named: str) -> None:
    found = admitted(document, answers(answer))
    assert found.told == ("NoCommonArchitecture", "unchanged", ())
    assert named in found.decision.message
    assert found.operations == ()


@pytest.mark.req("TN-047")
def test_denied_at_creation_with_the_same_sentence() -> None:
    given = answers(BOTH, index(SIDE, "s390x"))
    told = admitted(pod(APP, SIDE), given)
    denied = admitted(pod(APP, SIDE), given, settings(on_no_common="deny"))
    assert denied.told == ("NoCommonArchitecture", "denied", ())
    assert denied.decision.message == told.decision.message
    assert denied.operations == ()
    assert reconciled(pod(APP, SIDE), given, settings(on_no_common="deny")).told[1] == "unchanged"


@pytest.mark.req("TN-047")
def test_never_gated_for_images_that_exclude_each_other_and_a_gate_is_lifted() -> None:
    """A third image without an answer cannot change that."""
    third = "quay.io/team/third:3"
    given = answers(BOTH, index(SIDE, "s390x"))
    assert admitted(pod(APP, SIDE, third), given).told == ("NoCommonArchitecture", "unchanged", ())
    assert reconciled(pod(APP, SIDE, **GATE), given).document["spec"]["schedulingGates"] == []


@pytest.mark.req("TN-047")
def test_a_pod_without_any_answer_is_not_impossible() -> None:
    """Its image may have the architecture that its constraints ask for, which is not among the usual ones."""
    document = pod(nodeSelector={"kubernetes.io/arch": "riscv64"})
    assert admitted(document, {}).told == ("ArchitectureUnknown", "gated", ())
    assert admitted(document, answers(index(APP, "riscv64"))).decision.added == ("riscv64",)


@pytest.mark.req("RG-046")
def test_whoever_looks_images_up_can_ask_whether_the_answers_exclude_each_other() -> None:
    case = examine(facts(pod(APP, SIDE)))
    assert assess(case, answers(BOTH, index(SIDE, "s390x"))).is_impossible
    assert not assess(case, answers(BOTH)).is_impossible
    assert not assess(case, {}).is_impossible
    assert not assess(case, answers(BOTH, neutral(SIDE, "bundle"))).is_impossible


# -- one decision for all ----------------------------------------------------------------------------------------------


@pytest.mark.req("TN-002")
def test_every_decision_has_a_reason_and_one_sentence() -> None:
    found = admitted(pod(APP, SIDE), answers(BOTH, neutral(SIDE)))
    assert found.decision.message == f"Pod tolerates the taints of amd64 and arm64: supported by {APP}."
    whole = admitted(pod(SIDE), answers(neutral(SIDE)), settings(given=frozenset({"arm64"})))
    assert whole.decision.message == "Pod tolerates the taint of arm64: its image fits any platform."
    late = reconciled(pod(**GATE), answers(DOWN), progress=TolerationLookupProgress.ENDED)
    assert late.decision.message == (
        f"Image {APP} could not be inspected: quay.io returned a server error (transient, HTTP 503); pod tolerates the "
        "taint of amd64 by spec.pods.onTimeout primary-only; correct the image or its pull secret."
    )
    assert "SECRET" not in late.decision.message
