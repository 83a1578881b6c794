"""Repairs in rounds: what is written, what is refused and why, and that nothing else changes (MF-050 – MF-054)."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from linting import answers, deployment, required, terms_of
from reporting import IMAGES, WEB

from polyarch.manifests.lint.options import FixOptions, LintOptions
from polyarch.manifests.repair import fix as fixing
from polyarch.manifests.repair.fix import fix
from polyarch.manifests.repair.fix_result import FixRequest, FixResult
from polyarch.manifests.scan.text import SourceText
from polyarch.platforms import NodePlatform

TWO = {"quay.io/acme/web:2": ["linux/amd64", "linux/arm64"]}
AMD64 = NodePlatform("linux", "amd64")


def fixed(
    text: str,
    images: Mapping[str, Any] = IMAGES,
    *,
    path: str = "web.yaml",
    only: tuple[str, ...] = (),
    uncomment: bool = False,
    platforms: tuple[NodePlatform, ...] = (),
    **flags: Any,
) -> FixResult:
    request = FixRequest(
        options=LintOptions(fixes=FixOptions(**flags), platforms=platforms), only=only, uncomment=uncomment
    )
    known = answers(images, [word for line in text.splitlines() for word in line.split() if "/" in word])
    return fix(SourceText.of(path, text.encode()), known, request)


def rules(result: FixResult) -> list[str]:
    return [finding.rule for finding in result.applied]


def test_the_value_goes_and_no_other_character() -> None:
    """MF-052, MF-060."""
    result = fixed(WEB, only=("MA102",))
    assert result.text == WEB.replace("[amd64, arm64, s390x]", "[amd64, arm64]")
    assert rules(result) == ["MA102"]


def test_what_one_repair_makes_possible_the_next_round_does() -> None:
    """MF-050: rounds, at most one repair per pod specification in each."""
    text = deployment(required("arch In x86_64,arm64,s390x"))
    result = fixed(text)
    assert terms_of(yaml.safe_load(result.text)) == [["arch In amd64,arm64", "os In linux"]]
    assert len(result.rounds) == len(rules(result)) == 3


def test_several_pod_specifications_are_repaired_in_one_round() -> None:
    text = "---\n".join(deployment(required("arch In amd64,s390x; os In linux")) for _ in range(3))
    result = fixed(text)
    assert len(result.rounds) == 1
    assert rules(result) == ["MA102"] * 3
    assert sorted(result.operations) == [0, 1, 2]


def test_a_second_run_changes_nothing() -> None:
    """MF-054: idempotence, and none of the repaired findings is left."""
    first = fixed(WEB + "---\n" + deployment(""))
    second = fixed(first.text)
    assert not second.changed
    assert second.applied == ()
    assert not {finding.rule for finding in first.applied} & {finding.rule for finding in second.remaining}


@pytest.mark.parametrize("only", [("MA106",), ("MA1*6",), ("MA106", "MA2*")])
def test_only_what_is_named_is_repaired(only: tuple[str, ...]) -> None:
    """MF-050: --only."""
    result = fixed(WEB, only=only)
    assert set(rules(result)) <= {"MA106"}
    assert "s390x" in result.text


def test_suppressed_findings_are_left_alone() -> None:
    """MF-032."""
    text = WEB.replace("  namespace: shop\n", "  annotations: {ignore-check.polyarch.dev/MA102: later}\n")
    assert rules(fixed(text)) == ["MA106"]


@pytest.mark.parametrize(
    ("images", "words"),
    [
        ({"quay.io/acme/web:2": {"error": "network"}}, "--assume"),
        ({"quay.io/acme/web:2": {"unknown": True}}, "--assume"),
    ],
)
def test_what_is_not_known_is_not_written(images: dict[str, Any], words: str) -> None:
    """MF-053: P inexact."""
    text = deployment(required("arch In amd64,s390x")) + "      - name: b\n        image: quay.io/acme/b:1\n"
    result = fixed(text, {**images, "quay.io/acme/b:1": ["linux/amd64"]})
    assert not result.changed
    assert any(words in refusal.note for refusal in result.refused)


def test_an_assumption_stands_in_for_what_is_not_known() -> None:
    """MF-053: what is known still restricts."""
    text = (
        deployment(required("arch In amd64,s390x; os In linux")) + "      - name: b\n        image: quay.io/acme/b:1\n"
    )
    images = {"quay.io/acme/web:2": {"error": "network"}, "quay.io/acme/b:1": ["linux/amd64", "linux/arm64"]}
    result = fixed(text, images, assume=(AMD64, NodePlatform("linux", "s390x")))
    assert terms_of(yaml.safe_load(result.text)) == [["arch In amd64", "os In linux"]]


def test_flags_are_asked_for_in_the_note() -> None:
    """MF-050: without --only every finding is repaired whose repair needs no flag."""
    text = deployment(required("arch In s390x; os In linux"))
    refused = fixed(text)
    assert not refused.changed
    assert refused.refused[0].note.startswith("--replace")
    assert terms_of(yaml.safe_load(fixed(text, replace=True).text)) == [["arch In amd64,arm64", "os In linux"]]


def test_platforms_are_cut_to_the_universe_only_when_asked() -> None:
    """MF-051."""
    images = {"quay.io/acme/web:2": ["linux/amd64", "linux/arm64"]}
    universe = (AMD64, NodePlatform("linux", "s390x"))
    whole = fixed(deployment(""), images, platforms=universe)
    cut = fixed(deployment(""), images, platforms=universe, limit_to_universe=True)
    assert terms_of(yaml.safe_load(whole.text)) == [["arch In amd64,arm64", "os In linux"]]
    assert terms_of(yaml.safe_load(cut.text)) == [["arch In amd64", "os In linux"]]


def test_a_shared_specification_is_edited_once_if_all_uses_need_the_same() -> None:
    """MF-053."""
    text = (
        "kind: PodTemplate\nmetadata: {name: a}\ntemplate: &t\n  spec:\n    containers:\n    - name: c\n"
        "      image: quay.io/acme/web:2\nother:\n  template: *t\n"
    )
    result = fixed(text)
    assert result.text.count("affinity:") == 1
    assert yaml.safe_load(result.text)["other"]["template"]["spec"]["affinity"]


def test_a_template_is_never_edited() -> None:
    """MF-053: MA901."""
    result = fixed(WEB.replace("name: web\n  name", "name: {{ .Values.name }}\n  name") + "x: {{ y }}\n")
    assert not result.changed
    assert [finding.rule for finding in result.remaining] == ["MA901"]


def test_duplicate_keys_are_a_reason() -> None:
    """MF-053."""
    result = fixed(WEB.replace("      containers:", "      nodeName: a\n      nodeName: b\n      containers:"))
    assert not result.changed
    assert "nodeName is duplicated" in " ".join(refusal.note for refusal in result.refused)


def test_an_edit_that_cannot_be_proven_leaves_the_file_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """MF-054: MA904."""
    monkeypatch.setattr(fixing, "prove", lambda *_: "it reads otherwise")
    result = fixed(WEB)
    assert not result.changed
    assert result.unproven is not None
    assert [finding.rule for finding in result.remaining][:1] == ["MA904"]
    assert "it reads otherwise" in result.unproven.message


def test_what_the_editor_cannot_write_is_noted_and_the_rest_is_repaired() -> None:
    """MF-053: a reason for each; the other documents do not suffer."""
    odd = WEB.replace("values: [amd64, arm64, s390x]", "? values\n                : [amd64, arm64, s390x]")
    result = fixed(odd + "---\n" + WEB)
    assert result.text.startswith(odd)
    assert result.text.endswith("image: quay.io/acme/web:2\n")
    assert rules(result) == ["MA102", "MA106"]
    assert [refusal.note for refusal in result.refused] == ["line 16 has an explicit key (`? key`)"] * 2


COMMENTED = """\
apiVersion: apps/v1
kind: Deployment
metadata:
  name: manager
spec:
  template:
    spec:
      # affinity:
      #   nodeAffinity:
      #     requiredDuringSchedulingIgnoredDuringExecution:
      #       nodeSelectorTerms:
      #         - matchExpressions:
      #           - key: kubernetes.io/arch
      #             operator: In
      #             values:
      #               - amd64
      #               - s390x
      #           - key: kubernetes.io/os
      #             operator: In
      #             values:
      #               - linux
      containers:
      - name: manager
        image: quay.io/acme/web:2
"""


def test_a_commented_affinity_counts_when_asked_with_its_values_corrected() -> None:
    """MF-050, MF-063: --uncomment."""
    result = fixed(COMMENTED, uncomment=True)
    assert "# affinity" not in result.text
    assert terms_of(yaml.safe_load(result.text)) == [["arch In amd64,arm64", "os In linux"]]
    assert not fixed(result.text, uncomment=True).changed


def test_a_commented_affinity_of_other_platforms_is_replaced() -> None:
    """Nobody chose what stands in a comment."""
    only = COMMENTED.replace("      #               - amd64\n", "")
    assert terms_of(yaml.safe_load(fixed(only, uncomment=True).text)) == [["arch In amd64,arm64", "os In linux"]]


def test_without_it_the_comment_stays() -> None:
    result = fixed(COMMENTED)
    assert all(line in result.text for line in COMMENTED.splitlines())
    assert terms_of(yaml.safe_load(result.text)) == [["arch In amd64,arm64", "os In linux"]]


OBSOLETE = "apiVersion: multiarch.openshift.io/v1alpha1\nkind: PodPlacementConfig\nmetadata:\n  name: old # keep\n"


@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("kind: Secret\n---\n", ""), ("", "---\nkind: Secret\n"), ("", "...\n")]
)
def test_a_repair_may_add_a_document(before: str, after: str) -> None:
    """MA117: the policy stands behind the object it belongs to."""
    result = fixed(before + OBSOLETE + after)
    kinds = [document["kind"] for document in yaml.safe_load_all(result.text)]
    assert kinds.index("PlacementPolicy") == kinds.index("ClusterPodPlacementConfig") + 1
    assert "# keep" in result.text
    assert result.text.startswith(before)
    assert not fixed(result.text).changed


def test_what_remains_is_where_it_was_before_the_repair_on_request() -> None:
    """MF-042: a finding behind new documents, removed values and inserted lines has its old place."""
    behind = deployment("nodeSelector: {kubernetes.io/os: linux, kubernetes.io/arch: s390x}")
    text = "\n---\n".join([OBSOLETE, WEB, behind])
    result = fixed(text)
    (after,) = [each.finding for each in result.refused if each.finding.rule == "MA104"]
    (before,) = [each.finding for each in result.with_places_before().refused if each.finding.rule == "MA104"]
    assert result.text[after.span.start : after.span.end] == "s390x"
    assert text[before.span.start : before.span.end] == "s390x"
    assert before.span.line == text[: text.rindex("s390x")].count("\n") + 1 != after.span.line


def test_json_values_without_a_separator_are_repaired_one_by_one_mf_020() -> None:
    """MF-020: each is a document; what stands between them stays."""
    value = json.dumps(yaml.safe_load(deployment(required("arch In amd64,s390x; os In linux"))), indent=2)
    text = f'{{"kind": "List"}}{value}\n\n{value}'
    result = fixed(text, TWO, path="rendered.json")
    assert result.text == text.replace(',\n                        "s390x"', "")
    assert rules(result) == ["MA102", "MA102"]
    assert not fixed(result.text, TWO, path="rendered.json").changed


def test_a_document_is_not_added_to_json() -> None:
    """One JSON file is one document: the file is left as it is."""
    text = (
        '{"apiVersion": "multiarch.openshift.io/v1alpha1", "kind": "PodPlacementConfig", '
        '"metadata": {"name": "cluster"}}\n'
    )
    result = fixed(text, path="a.json")
    assert not result.changed
    assert result.unproven is not None


def test_lines_of_build_files_are_repaired() -> None:
    """MA301 has edits instead of operations."""
    request = FixRequest(options=LintOptions(selection=fixing.Selection(include=("MA301",))))
    source = SourceText.of("Dockerfile", b"FROM golang:1\nRUN GOARCH=amd64 go build .\n")
    result = fix(source, answers({}), request)
    assert "ARG TARGETARCH" in result.text
    assert "GOARCH=${TARGETARCH}" in result.text
    assert rules(result) == ["MA301"]
    assert not fix(source.replaced(result.text), answers({}), request).changed


def test_a_suppressed_line_of_a_build_file_stays_mf_032() -> None:
    """MF-032: what somebody does not want to see is not repaired either."""
    request = FixRequest(options=LintOptions(selection=fixing.Selection(include=("MA301",))))
    text = b"FROM golang:1\n# polyarch:ignore MA301 cross-compiled\nRUN GOARCH=amd64 go build .\n"
    result = fix(SourceText.of("Dockerfile", text), answers({}), request)
    assert not result.changed
    assert [finding.suppressed for finding in result.remaining] == ["cross-compiled"]


def test_windows_line_breaks_and_marks_stay() -> None:
    """MF-061."""
    text = "\ufeff" + WEB.replace("\n", "\r\n")
    result = fixed(text)
    data = result.source.encode(result.text)
    assert data.startswith(b"\xef\xbb\xbf")
    assert b"\n" not in data.replace(b"\r\n", b"")
    assert yaml.safe_load(data)
