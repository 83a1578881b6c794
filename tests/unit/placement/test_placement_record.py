"""Only what placement wrote itself is taken off a pod again."""

import base64
import json
from typing import Any

import pytest
from placement_cases import (
    APP,
    SIDE,
    admitted,
    answers,
    arch,
    controlled,
    gated,
    index,
    look,
    pod,
    preference,
    preferences,
    record,
    required,
    settings,
    source,
    term,
    zone,
)

from polyarch.placement import names
from polyarch.placement.decision import MAX_RECORD_BYTES, Reason, RecordSigner, parse_keys

KEY, LATER, LATEST = b"k" * 32, b"l" * 32, b"m" * 32
SEAL = RecordSigner([KEY])
BOTH = answers(index(APP, "amd64", "arm64"), index(SIDE, "amd64", "arm64"))
ARM = answers(index(APP, "arm64"), index(SIDE, "arm64"))
ANOTHERS = term(arch("amd64"))
"""What another mutating webhook of the cluster demands."""


def forged(**content: Any) -> dict[str, str]:
    full = {"v": 1, "by": "admission", "mode": "enforce", "reason": "ArchitecturesSet"} | content
    return {names.DECISION_ANNOTATION: json.dumps(full)}


@pytest.mark.req("PL-853")
@pytest.mark.parametrize(
    "sig", [{}, {"sig": ""}, {"sig": "A" * 22}, {"sig": "\ud800é"}], ids=["none", "empty", "made up", "odd"]
)
@pytest.mark.parametrize(
    "claim", [{"terms": [0]}, {"terms": [0], "created": True}, {}], ids=["named", "created", "any"]
)
def test_a_forged_record_takes_nothing_from_another_webhook(claim: dict[str, Any], sig: dict[str, str]) -> None:
    """Its expression stands, and the pod counts as constrained by it."""
    document = pod(terms=[ANOTHERS], annotations=forged(arch=["amd64"], **claim, **sig))
    result = admitted(document, ARM, signer=SEAL)
    assert required(result.pod) == [ANOTHERS]
    assert result.decision.rule is Reason.ARCHITECTURE_ALREADY_REQUIRED
    assert record(result.pod) is None
    assert not result.case.view.own_preferred


@pytest.mark.req("PL-853")
def test_nor_does_a_forged_record_with_an_opt_out() -> None:
    """Not being placed is no way to have it taken off either."""
    annotations = forged(arch=["amd64"], terms=[0], created=True) | {names.SKIP_ANNOTATION: "true"}
    result = admitted(pod(terms=[ANOTHERS], annotations=annotations), ARM, signer=SEAL)
    assert required(result.pod) == [ANOTHERS]


@pytest.mark.req("PL-853")
def test_a_forged_record_takes_no_preference_of_others() -> None:
    """On a stored pod preferences could still be changed."""
    others = preference(7, arch("arm64"))
    document = gated(pod(preferred=[others]))
    document["metadata"]["annotations"] = forged(preferred=[["arm64", 7]])
    result = controlled(document, BOTH, signer=SEAL)
    assert preferences(result.pod) == [others]


@pytest.mark.req("PL-114", "PL-853")
def test_a_record_of_another_process_of_ours_is_believed() -> None:
    """All replicas have the key."""
    first = admitted(pod(terms=[term(zone("a"))]), BOTH, signer=RecordSigner([KEY]), sources=(source(arm64=5),))
    again = admitted(first.pod, BOTH, signer=RecordSigner([KEY]), sources=(source(arm64=5),))
    assert again.admission.operations == ()
    changed = admitted(first.pod, ARM, signer=RecordSigner([KEY]))
    assert required(changed.pod) == [term(zone("a"), arch("arm64"))]
    assert preferences(changed.pod) is None


@pytest.mark.req("PL-853")
@pytest.mark.parametrize(
    ("keys", "believed"),
    [([KEY], True), ([LATER, KEY], True), ([LATEST, LATER], False)],
    ids=["the same", "the one before", "two rotations ago"],
)
def test_the_last_two_keys_count(keys: list[bytes], believed: bool) -> None:
    """A rotation forgets nothing."""
    first = admitted(pod(), BOTH, signer=SEAL)
    again = admitted(first.pod, ARM, signer=RecordSigner(keys))
    assert required(again.pod) == [term(arch("arm64") if believed else arch("amd64", "arm64"))]


@pytest.mark.req("PL-118", "PL-853")
@pytest.mark.parametrize("changed", ["namespace", "images"])
def test_a_record_copied_to_another_pod_is_not_of_that_pod(changed: str) -> None:
    """And whoever copied it is told what follows."""
    copy = admitted(pod(), BOTH, signer=SEAL).pod
    if changed == "images":
        copy["spec"]["containers"][0]["image"] = SIDE
    result = admitted(copy, ARM, signer=SEAL, namespace="other" if changed == "namespace" else "shop")
    assert required(result.pod) == [term(arch("amd64", "arm64"))]
    assert result.decision.rule is Reason.ARCHITECTURE_ALREADY_REQUIRED
    [warning] = result.admission.warnings
    assert "was not made for this pod" in warning
    assert len(warning) <= 200


@pytest.mark.req("PL-200")
def test_a_manifest_copied_with_its_images_is_decided_afresh() -> None:
    """In its own namespace."""
    copy = admitted(pod(APP, SIDE), BOTH, signer=SEAL).pod
    copy["spec"]["containers"].reverse()
    assert required(admitted(copy, ARM, signer=SEAL).pod) == [term(arch("arm64"))]


@pytest.mark.req("PL-114", "PL-853")
@pytest.mark.parametrize("change", ["added", "replaced"])
def test_images_that_another_webhook_changed_are_decided_in_the_second_round(change: str) -> None:
    """No trace of the first round remains; but who sends such a pod is not in a second round."""
    first = admitted(pod(), BOTH, signer=SEAL).pod
    if change == "added":
        first["spec"]["containers"].append({"name": "injected", "image": SIDE, "imagePullPolicy": "IfNotPresent"})
    else:
        first["spec"]["containers"][0]["image"] = SIDE
    known = BOTH | answers(index(SIDE, "arm64"))
    second = admitted(first, known, signer=SEAL, record_was_sent=False)
    assert required(second.pod) == [term(arch("arm64"))]
    assert admitted(second.pod, known, signer=SEAL, record_was_sent=False).admission.operations == ()
    assert required(admitted(first, {}, signer=SEAL, record_was_sent=False).pod) is None, "not known yet: gated"
    sent = admitted(first, known, signer=SEAL)
    assert sent.decision.rule is Reason.ARCHITECTURE_ALREADY_REQUIRED
    assert required(sent.pod) == required(first)


@pytest.mark.req("PL-114")
def test_a_second_round_of_a_pod_with_more_images_than_its_record_names() -> None:
    images = [f"quay.io/team/{'x' * 100}-{number}:1" for number in range(20)]
    known = answers(*(index(image, "amd64", "arm64") for image in images), index(SIDE, "arm64"))
    first = admitted(pod(*images), known, signer=SEAL).pod
    first["spec"]["containers"][0]["image"] = SIDE
    second = admitted(first, known, signer=SEAL, record_was_sent=False)
    assert required(second.pod) == [term(arch("arm64"))]


@pytest.mark.req("PL-853")
def test_a_second_round_needs_a_signature_as_well() -> None:
    """What some webhook writes into our annotation is not ours."""
    document = pod(terms=[ANOTHERS], annotations=forged(arch=["amd64"], terms=[0]))
    assert required(admitted(document, ARM, signer=SEAL, record_was_sent=False).pod) == [ANOTHERS]


@pytest.mark.req("PL-114")
def test_preferences_alone_stand_when_another_webhook_adds_an_image() -> None:
    first = admitted(pod(nodeSelector={"kubernetes.io/arch": "arm64"}), sources=(source(arm64=1),), signer=SEAL).pod
    first["spec"]["containers"].append({"name": "injected", "image": SIDE, "imagePullPolicy": "IfNotPresent"})
    second = admitted(first, sources=(source(arm64=1),), signer=SEAL, record_was_sent=False).pod
    assert preferences(second) == preferences(first)
    again = admitted(second, sources=(source(arm64=1),), signer=SEAL, record_was_sent=False)
    assert again.admission.operations == ()


@pytest.mark.req("PL-853")
def test_a_record_of_preferences_alone_is_not_for_a_pod_with_other_images() -> None:
    """Copied there, it had taken off what another webhook prefers."""
    first = admitted(pod(nodeSelector={"kubernetes.io/arch": "arm64"}), sources=(source(arm64=7),), signer=SEAL).pod
    others = preference(7, arch("arm64"))
    document = pod(SIDE, preferred=[others], annotations=dict(first["metadata"]["annotations"]))
    result = admitted(document, ARM, signer=SEAL)
    assert preferences(result.pod) == [others]
    assert not result.case.view.own_preferred


@pytest.mark.req("PL-853")
def test_a_record_that_does_not_name_all_images_needs_a_signature_as_well() -> None:
    """In a second round as in the first."""
    claim = forged(arch=["amd64"], terms=[0], created=True, images={"more": 9}, sig="A" * 22)
    document = pod(terms=[ANOTHERS], annotations=claim)
    assert required(admitted(document, ARM, signer=SEAL, record_was_sent=False).pod) == [ANOTHERS]


@pytest.mark.req("PL-853")
def test_every_part_of_the_record_is_signed() -> None:
    first = admitted(pod(), BOTH, signer=SEAL).pod
    written = record(first)
    assert written is not None
    changes: dict[str, Any] = {
        "by": "controller",
        "reason": "FallbackSet",
        "arch": ["arm64"],
        "os": "linux",
        "terms": [0, 1],
        "created": False,
        "preferred": [["arm64", 1]],
        "images": {},
        "stale": True,
    }
    for member, value in changes.items():
        first["metadata"]["annotations"] = {names.DECISION_ANNOTATION: json.dumps(written | {member: value})}
        assert look(first, signer=SEAL).view.has_foreign_record, member


@pytest.mark.req("PL-853")
def test_without_a_key_records_are_believed_as_before() -> None:
    """Signed ones as well."""
    for document in (admitted(pod(), BOTH).pod, admitted(pod(), BOTH, signer=SEAL).pod):
        assert required(admitted(document, ARM).pod) == [term(arch("arm64"))]
    assert "sig" not in (record(admitted(pod(), BOTH).pod) or {})


@pytest.mark.req("PL-246", "PL-853")
def test_a_signed_record_of_a_large_pod_keeps_to_its_size() -> None:
    images = [f"quay.io/team/{'x' * 100}-{number}:1" for number in range(20)]
    known = answers(*(index(image, "amd64", "arm64") for image in images))
    first = admitted(pod(*images), known, signer=SEAL)
    text = first.annotations[names.DECISION_ANNOTATION]
    assert len(text) <= MAX_RECORD_BYTES
    assert json.loads(text)["images"]["more"] > 0
    assert admitted(first.pod, known, signer=SEAL).admission.operations == ()


@pytest.mark.req("PL-130")
def test_an_audit_is_signed_and_takes_nothing_back() -> None:
    audited = admitted(pod(), BOTH, signer=SEAL, using=settings(mode="audit"))
    assert len((record(audited.pod) or {})["sig"]) == 22
    assert admitted(audited.pod, BOTH, signer=SEAL, using=settings(mode="audit")).admission.operations == ()


@pytest.mark.req("PL-850", "PL-853")
@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "it is empty"),
        (b"\n \n", "it is empty"),
        (b"two words\n", "line 1 is not base64"),
        (base64.b64encode(b"short"), "the key in line 1 has 5 bytes"),
        (base64.b64encode(KEY) + b"\n\xff\xfe", "line 2 is not base64"),
    ],
)
def test_a_key_file_that_cannot_be_used_is_told_without_its_content(content: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as error:
        parse_keys(content)
    assert not any(word in str(error.value) for word in ("two words", "c2hvcnQ", "short"))


@pytest.mark.req("PL-853")
def test_a_key_file_has_the_newest_key_first() -> None:
    lines = [base64.b64encode(key) for key in (LATEST, LATER, KEY)]
    assert parse_keys(b"\r\n".join(lines)) == (LATEST, LATER)
    assert "l" * 4 not in repr(RecordSigner([LATER]))
