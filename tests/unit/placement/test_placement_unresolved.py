"""When retrying ends with unresolved images."""

from typing import Any

import pytest
from placement_cases import (
    APP,
    SIDE,
    answers,
    arch,
    controlled,
    failure,
    index,
    look,
    neutral,
    pod,
    preferences,
    required,
    settings,
    source,
    term,
    zone,
)

from polyarch.oci.inspection import Entry, Inspection
from polyarch.placement import names
from polyarch.placement.decision import LookupProgress, PlacementOutcome, Reason
from polyarch.placement.rules import decide, without_affinity
from polyarch.platforms import Platform

LOST = "quay.io/team/lost:1"


@pytest.mark.req("PL-230")
@pytest.mark.parametrize(
    ("action", "fallback", "others", "reason", "values"),
    [
        ("release", (), [], Reason.RELEASED_UNCONSTRAINED, ()),
        ("release", (), [index(SIDE, "amd64", "arm64")], Reason.PARTIALLY_CONSTRAINED, ("amd64", "arm64")),
        ("release", (), [neutral(SIDE)], Reason.RELEASED_UNCONSTRAINED, ()),
        ("release", ("amd64",), [index(SIDE, "arm64")], Reason.PARTIALLY_CONSTRAINED, ("arm64",)),
        ("fallback", ("amd64", "arm64"), [], Reason.FALLBACK_SET, ("amd64", "arm64")),
        ("fallback", ("amd64", "arm64"), [index(SIDE, "arm64", "s390x")], Reason.FALLBACK_SET, ("arm64",)),
        ("fallback", ("amd64",), [index(SIDE, "arm64")], Reason.PARTIALLY_CONSTRAINED, ("arm64",)),
        ("fallback", ("amd64",), [neutral(SIDE)], Reason.FALLBACK_SET, ("amd64",)),
        (None, ("amd64",), [], Reason.FALLBACK_SET, ("amd64",)),
        (None, (), [], Reason.RELEASED_UNCONSTRAINED, ()),
        (None, (), [index(SIDE, "s390x")], Reason.PARTIALLY_CONSTRAINED, ("s390x",)),
    ],
)
def test_what_is_known_always_constrains(
    action: Any, fallback: tuple[str, ...], others: list[Inspection], reason: Reason, values: tuple[str, ...]
) -> None:
    using = settings(action=action, fallback_architectures=fallback)
    result = controlled(
        pod(LOST, SIDE),
        answers(failure(LOST), *(others or [neutral(SIDE)])),
        progress=LookupProgress.ENDED,
        using=using,
    )
    assert result.decision.reason is reason
    assert required(result.pod) == ([term(arch(*values))] if values else None)
    labels = result.pod["metadata"]["labels"]
    assert labels[names.SCHEDULING_GATE_LABEL] == "removed"
    assert labels[names.IMAGE_INSPECT_ERROR_LABEL] == ""
    assert labels[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"
    assert labels[names.NODE_AFFINITY_LABEL] == ("set" if values else "not-set")
    assert labels.get(names.FALLBACK_ARCH_LABEL) == (".".join(values) if reason is Reason.FALLBACK_SET else None)
    assert {names.SINGLE_ARCH_LABEL, names.MULTI_ARCH_LABEL, *names.ARCHITECTURE_LABELS.values()}.isdisjoint(labels)
    annotation = result.pod["metadata"]["annotations"][names.IMAGE_INSPECT_ERROR_ANNOTATION]
    assert annotation == "transient quay.io HTTP 503 (server-error)"


@pytest.mark.req("PL-230")
def test_hold_keeps_the_gate_and_writes_no_constraint() -> None:
    document = pod(LOST, SIDE, gates=["other", names.GATE])
    result = controlled(
        document,
        answers(failure(LOST), index(SIDE, "arm64")),
        progress=LookupProgress.ENDED,
        using=settings(action="hold"),
    )
    assert result.decision.reason is Reason.HELD_BY_POLICY
    assert result.decision.outcome is PlacementOutcome.HELD
    assert result.pod["spec"] == document["spec"]
    labels = result.pod["metadata"]["labels"]
    assert labels[names.SCHEDULING_GATE_LABEL] == "gated"
    assert labels[names.IMAGE_INSPECT_ERROR_COUNT_LABEL] == "5"


@pytest.mark.req("PL-230")
def test_after_the_hold_limit_it_is_a_release() -> None:
    case = look(pod(LOST, SIDE), stored=True, using=settings(action="hold", hold_limit=600.0))
    known = answers(failure(LOST), index(SIDE, "arm64"))
    assert decide(case, known, LookupProgress.HOLD_ENDED).reason is Reason.PARTIALLY_CONSTRAINED
    assert decide(case, answers(failure(LOST)), LookupProgress.HOLD_ENDED).reason is Reason.RELEASED_UNCONSTRAINED


@pytest.mark.req("PL-043")
def test_fallback_without_a_fallback_architecture_holds() -> None:
    using = settings(action="fallback")
    assert using.lacks_fallback
    decision = decide(look(pod(LOST), stored=True, using=using), answers(failure(LOST)), LookupProgress.ENDED)
    assert decision.reason is Reason.HELD_BY_POLICY


@pytest.mark.req("PL-231")
def test_preferences_are_applied_on_release_and_fallback() -> None:
    for action in ("release", "fallback"):
        using = settings(action=action, fallback_architectures=("amd64",))
        result = controlled(
            pod(LOST), answers(failure(LOST)), progress=LookupProgress.ENDED, using=using, sources=(source(arm64=7),)
        )
        assert preferences(result.pod) == [{"weight": 7, "preference": term(arch("arm64"))}]
        assert result.pod["metadata"]["labels"][names.PREFERRED_NODE_AFFINITY_LABEL] == "set"


@pytest.mark.req("PL-232")
def test_a_fallback_never_overrides_a_term_of_the_user() -> None:
    using = settings(fallback_architectures=("amd64",))
    document = pod(LOST, terms=[term(arch("s390x")), term(zone("a"))])
    result = controlled(document, answers(failure(LOST)), progress=LookupProgress.ENDED, using=using)
    assert required(result.pod) == [term(arch("s390x")), term(zone("a"), arch("amd64"))]


@pytest.mark.req("PL-232")
def test_the_label_joins_the_architectures_by_dots() -> None:
    using = settings(fallback_architectures=("amd64", "arm64"))
    result = controlled(pod(LOST), answers(failure(LOST)), progress=LookupProgress.ENDED, using=using)
    assert result.pod["metadata"]["labels"][names.FALLBACK_ARCH_LABEL] == "amd64.arm64"


@pytest.mark.req("PL-233", "PL-900 row 5")
@pytest.mark.parametrize("odd", ["", "a/b", "x" * 64, "-amd64", "ämd64", "arm 64"])
def test_odd_architecture_names_never_become_values(odd: str) -> None:
    entry = Entry(Platform("linux", odd), "sha256:00")
    alone = controlled(pod(APP), answers(index(APP, entries=(entry,))))
    assert alone.decision.reason is Reason.NO_SUPPORTED_ARCHITECTURE
    beside = controlled(pod(APP), answers(index(APP, entries=(entry, Entry(Platform("linux", "amd64"), "sha256:01")))))
    assert required(beside.pod) == [term(arch("amd64"))]


@pytest.mark.req("PL-750")
def test_an_architecture_unknown_to_us_is_passed_on() -> None:
    assert required(controlled(pod(APP), answers(index(APP, "quantum9"))).pod) == [term(arch("quantum9"))]


@pytest.mark.req("PL-332")
@pytest.mark.parametrize("progress", [LookupProgress.FIRST, LookupProgress.WAITING, LookupProgress.FAILING])
def test_while_waiting_nothing_is_constrained(progress: LookupProgress) -> None:
    decision = decide(look(pod(LOST, SIDE), stored=True), answers(failure(LOST), index(SIDE, "arm64")), progress)
    assert decision.reason is Reason.IMAGES_NOT_RESOLVED_YET
    assert decision.outcome is (
        PlacementOutcome.FAILING if progress is LookupProgress.FAILING else PlacementOutcome.WAITING
    )


@pytest.mark.req("PL-332")
def test_an_image_that_is_only_slow_does_not_fail() -> None:
    decision = decide(look(pod(LOST), stored=True), {}, LookupProgress.FAILING)
    assert decision.outcome is PlacementOutcome.WAITING


@pytest.mark.req("PL-230")
def test_an_image_never_answered_within_the_window_is_unresolved_and_says_so() -> None:
    result = controlled(pod(LOST), {}, progress=LookupProgress.ENDED)
    assert result.decision.reason is Reason.RELEASED_UNCONSTRAINED
    assert result.pod["metadata"]["annotations"][names.IMAGE_INSPECT_ERROR_ANNOTATION] == "not answered yet"


@pytest.mark.req("PL-004", "PL-751", "PL-850")
def test_the_failure_annotation_has_at_most_256_characters_and_no_text_of_the_registry() -> None:
    long = f"{'a' * 200}.example.com/x:1"
    broken = failure(long)
    error = broken.error
    assert error is not None
    result = controlled(pod(long), answers(broken), progress=LookupProgress.ENDED)
    text = result.pod["metadata"]["annotations"][names.IMAGE_INSPECT_ERROR_ANNOTATION]
    assert len(text) <= 256
    assert "SECRET" in error.message
    assert "SECRET" not in str(result.pod) + result.decision.message


@pytest.mark.req("PL-305")
def test_without_the_affinity_the_pod_is_released_and_says_why() -> None:
    case = look(pod(APP, gates=[names.GATE]), stored=True, sources=(source(arm64=1),))
    decision = without_affinity(decide(case, answers(index(APP, "amd64"))), "HTTP 403")
    assert decision.reason is Reason.RELEASED_UNCONSTRAINED
    assert "HTTP 403" in decision.message
    assert (decision.terms, decision.preferred, decision.architectures) == ((), (), ())
