"""The table of outcomes on the pod, the annotation and the sentence, row by row."""

from collections.abc import Callable
from typing import Any

import pytest
from placement_cases import (
    APP,
    SIDE,
    Admitted,
    Controlled,
    admitted,
    answers,
    controlled,
    failure,
    index,
    neutral,
    pod,
    record,
    settings,
    source,
)

from polyarch.placement import names
from polyarch.placement.decision import LookupProgress, Reason

M = names.GROUP + "/"
Result = Admitted | Controlled
SCORING = (source(arm64=5),)
FAILED = {"image-inspect-error": "", "image-inspect-error-count": "5"}


def not_eligible(**facts: Any) -> Result:
    return admitted(pod(owner="DaemonSet"), **facts)


def unavailable(**facts: Any) -> Result:
    return admitted(pod(), controller_available=False, **facts)


def waiting(**facts: Any) -> Result:
    return admitted(pod(), **facts)


def failing(**facts: Any) -> Result:
    return controlled(pod(gates=[names.GATE]), answers(failure(APP)), progress=LookupProgress.FAILING, **facts)


def one_architecture(**facts: Any) -> Result:
    return admitted(pod(), answers(index(APP, "arm64")), **facts)


def several_architectures(**facts: Any) -> Result:
    return admitted(pod(), answers(index(APP, "arm64", "riscv64")), **facts)


def preferences_only(**facts: Any) -> Result:
    return controlled(pod(gates=[names.GATE], nodeSelector={"kubernetes.io/arch": "arm64"}), **facts)


def all_neutral(**facts: Any) -> Result:
    return admitted(pod(), answers(neutral(APP)), **facts)


def no_supported(**facts: Any) -> Result:
    known = answers(index(APP, "arm64"), index(SIDE, "amd64"))
    return controlled(pod(APP, SIDE, gates=[names.GATE]), known, **facts)


def ended(action: Any, *others: str, **facts: Any) -> Result:
    known = answers(failure(APP), *(index(SIDE, other) for other in others))
    document = pod(APP, *([SIDE] if others else []), gates=[names.GATE])
    using = settings(action=action, fallback_architectures=("arm64",))
    return controlled(document, known, progress=LookupProgress.ENDED, using=using, **facts)


def fallback(**facts: Any) -> Result:
    return ended("fallback", **facts)


def partially(**facts: Any) -> Result:
    return ended("release", "s390x", **facts)


def released(**facts: Any) -> Result:
    return ended("release", **facts)


def held(**facts: Any) -> Result:
    return ended("hold", **facts)


def no_longer(**facts: Any) -> Result:
    return controlled(pod(gates=[names.GATE], owner="DaemonSet"), **facts)


ROWS: list[tuple[Callable[..., Result], Reason, bool, str, str, str, dict[str, str]]] = [
    (not_eligible, Reason.DAEMON_SET_POD, False, "not-set", "not-set", "not-set", {}),
    (unavailable, Reason.CONTROLLER_UNAVAILABLE, False, "not-set", "not-set", "not-set", {}),
    (waiting, Reason.IMAGES_NOT_RESOLVED_YET, True, "gated", "not-set", "not-set", {}),
    (
        failing,
        Reason.IMAGES_NOT_RESOLVED_YET,
        True,
        "gated",
        "not-set",
        "not-set",
        {"image-inspect-error": "", "image-inspect-error-count": "1"},
    ),
    (one_architecture, Reason.ARCHITECTURES_SET, False, "removed", "set", "set", {"single-arch": "", "arm64": ""}),
    (several_architectures, Reason.ARCHITECTURES_SET, False, "removed", "set", "set", {"multi-arch": "", "arm64": ""}),
    (preferences_only, Reason.PREFERENCES_ONLY, False, "removed", "not-set", "set", {}),
    (all_neutral, Reason.ALL_IMAGES_NEUTRAL, False, "removed", "not-set", "set", {}),
    (no_supported, Reason.NO_SUPPORTED_ARCHITECTURE, False, "removed", "set", "set", {"no-supported-arch": ""}),
    (fallback, Reason.FALLBACK_SET, False, "removed", "set", "set", {"fallback-arch": "arm64", **FAILED}),
    (partially, Reason.PARTIALLY_CONSTRAINED, False, "removed", "set", "set", FAILED),
    (released, Reason.RELEASED_UNCONSTRAINED, False, "removed", "not-set", "set", FAILED),
    (held, Reason.HELD_BY_POLICY, True, "gated", "not-set", "not-set", FAILED),
    (no_longer, Reason.NO_LONGER_ELIGIBLE, False, "removed", "not-set", "not-set", {}),
]
IDS = [row[0].__name__.replace("_", " ") for row in ROWS]


@pytest.mark.req("PL-245", "PL-310", "PL-900")
@pytest.mark.parametrize(("way", "reason", "gate", "gated", "affinity", "preferred", "others"), ROWS, ids=IDS)
@pytest.mark.parametrize("scoring", [True, False], ids=["scoring", "no scoring"])
def test_the_row(
    scoring: bool,
    way: Callable[..., Result],
    reason: Reason,
    gate: bool,
    gated: str,
    affinity: str,
    preferred: str,
    others: dict[str, str],
) -> None:
    """``no-supported-arch`` is among them. No longer eligible."""
    if way is preferences_only and not scoring:
        reason, affinity = Reason.NO_LONGER_ELIGIBLE, "not-set"
    result = way(sources=SCORING if scoring else ())
    assert result.decision.reason is reason
    wanted = {"scheduling-gate": gated, "node-affinity": affinity, **others}
    if scoring:
        wanted["preferred-node-affinity"] = preferred
    assert result.pod["metadata"]["labels"] == {M + key: value for key, value in wanted.items()}
    gates = [each["name"] for each in result.pod["spec"].get("schedulingGates") or ()]
    assert gates == ([names.GATE] if gate else [])
    annotations = result.pod["metadata"].get("annotations", {})
    assert (names.IMAGE_INSPECT_ERROR_ANNOTATION in annotations) is ("image-inspect-error" in others)
    recorded = reason not in NOT_RECORDED
    assert (names.DECISION_ANNOTATION in annotations) is recorded


NOT_RECORDED = (
    Reason.DAEMON_SET_POD,
    Reason.CONTROLLER_UNAVAILABLE,
    Reason.IMAGES_NOT_RESOLVED_YET,
    Reason.HELD_BY_POLICY,
    Reason.NO_LONGER_ELIGIBLE,
)


@pytest.mark.req("PL-245", "PL-900 row 21")
@pytest.mark.parametrize("before", [failing, held], ids=["failing", "held"])
def test_a_later_success_removes_every_trace_of_the_failure(before: Any) -> None:
    stored = before().pod
    done = controlled(stored, answers(index(APP, "arm64"))).pod
    assert not {*names.INSPECT_ERROR_LABELS} & done["metadata"]["labels"].keys()
    assert names.IMAGE_INSPECT_ERROR_ANNOTATION not in done["metadata"]["annotations"]


@pytest.mark.req("PL-246")
def test_the_annotation_is_compact_sorted_json_without_time() -> None:
    known = answers(
        index(APP, "linux/amd64", "windows/amd64", digest="sha256:0123456789abcdef" + "0" * 48), neutral(SIDE)
    )
    result = admitted(pod(APP, SIDE), known, sources=(source(arm64=7),))
    assert result.annotations[names.DECISION_ANNOTATION] == (
        '{"arch":["amd64"],"by":"admission","created":true,'
        '"images":{"quay.io/team/app:1":"0123456789ab","quay.io/team/side:2":"neutral"},'
        '"mode":"enforce","os":"linux","preferred":[["arm64",7]],"reason":"ArchitecturesSet","terms":[0],"v":1}'
    )


@pytest.mark.req("PL-246")
def test_stale_readings_are_named() -> None:
    written = record(admitted(pod(), answers(index(APP, "amd64", stale=True))).pod)
    assert written is not None
    assert written["stale"] is True


@pytest.mark.req("PL-247")
@pytest.mark.parametrize(("way", "reason"), [row[:2] for row in ROWS], ids=IDS)
def test_every_decision_says_one_sentence(way: Callable[..., Result], reason: Reason) -> None:
    message = way(sources=SCORING).decision.message
    assert message.endswith(".")
    assert message[0].isupper()
    assert ". " not in message
    assert "SECRET" not in message
    if reason not in {Reason.DAEMON_SET_POD, Reason.NO_LONGER_ELIGIBLE, Reason.PREFERENCES_ONLY}:
        assert APP in message


@pytest.mark.req("PL-247", "PL-751")
@pytest.mark.parametrize(
    ("way", "next_action"),
    [
        (no_supported, "publish the images"),
        (released, "correct the image or its pull secret"),
        (held, "correct the image or its pull secret"),
        (fallback, "check that the images support it"),
        (unavailable, "pod-placement-controller"),
    ],
)
def test_what_went_wrong_says_what_to_do_next(way: Callable[..., Result], next_action: str) -> None:
    assert next_action in way().decision.message
