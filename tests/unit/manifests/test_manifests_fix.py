"""Repairs in rounds: what is written, what is refused and why, and that nothing else changes."""

import json
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from linting import answers, deployment, required, terms_of
from reporting import IMAGES, WEB

from polyarch.kube.patches import pointer
from polyarch.manifests import fix as fixing
from polyarch.manifests.fix import FixRequest, FixResult, fix
from polyarch.manifests.operations import apply, same
from polyarch.manifests.rules.options import FixOptions, LintOptions, Selection, Taints
from polyarch.manifests.scan.sets import ImageInspections
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


@pytest.mark.req("MF-052", "MF-060")
def test_the_value_goes_and_no_other_character() -> None:
    result = fixed(WEB, only=("MA102",))
    assert result.text == WEB.replace("[amd64, arm64, s390x]", "[amd64, arm64]")
    assert rules(result) == ["MA102"]


@pytest.mark.req("MF-050")
def test_what_one_repair_makes_possible_the_next_round_does() -> None:
    """Rounds, at most one repair per pod specification in each."""
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


@pytest.mark.req("MF-054")
def test_a_second_run_changes_nothing() -> None:
    """Idempotence, and none of the repaired findings is left."""
    first = fixed(WEB + "---\n" + deployment(""))
    second = fixed(first.text)
    assert not second.changed
    assert second.applied == ()
    assert not {finding.rule for finding in first.applied} & {finding.rule for finding in second.remaining}


@pytest.mark.req("MF-050")
@pytest.mark.parametrize("only", [("MA106",), ("MA1*6",), ("MA106", "MA2*")])
def test_only_what_is_named_is_repaired(only: tuple[str, ...]) -> None:
    """--only."""
    result = fixed(WEB, only=only)
    assert set(rules(result)) <= {"MA106"}
    assert "s390x" in result.text


@pytest.mark.req("MF-032")
def test_suppressed_findings_are_left_alone() -> None:
    text = WEB.replace("  namespace: shop\n", "  annotations: {ignore-check.polyarch.dev/MA102: later}\n")
    assert rules(fixed(text)) == ["MA106"]


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    ("images", "words"),
    [
        ({"quay.io/acme/web:2": {"error": "network"}}, "--assume"),
        ({"quay.io/acme/web:2": {"unknown": True}}, "--assume"),
    ],
)
def test_what_is_not_known_is_not_written(images: dict[str, Any], words: str) -> None:
    """P inexact."""
    text = deployment(required("arch In amd64,s390x")) + "      - name: b\n        image: quay.io/acme/b:1\n"
    result = fixed(text, {**images, "quay.io/acme/b:1": ["linux/amd64"]})
    assert not result.changed
    assert any(words in refusal.note for refusal in result.refused)


@pytest.mark.req("MF-053")
def test_an_assumption_stands_in_for_what_is_not_known() -> None:
    """What is known still restricts."""
    text = (
        deployment(required("arch In amd64,s390x; os In linux")) + "      - name: b\n        image: quay.io/acme/b:1\n"
    )
    images = {"quay.io/acme/web:2": {"error": "network"}, "quay.io/acme/b:1": ["linux/amd64", "linux/arm64"]}
    result = fixed(text, images, assume=(AMD64, NodePlatform("linux", "s390x")))
    assert terms_of(yaml.safe_load(result.text)) == [["arch In amd64", "os In linux"]]


@pytest.mark.req("MF-050")
def test_flags_are_asked_for_in_the_note() -> None:
    """Without --only every finding is repaired whose repair needs no flag."""
    text = deployment(required("arch In s390x; os In linux"))
    refused = fixed(text)
    assert not refused.changed
    assert refused.refused[0].note.startswith("--replace")
    assert terms_of(yaml.safe_load(fixed(text, replace=True).text)) == [["arch In amd64,arm64", "os In linux"]]


@pytest.mark.req("MF-052")
def test_architectures_are_not_replaced_with_those_that_the_cluster_lacks() -> None:
    """The pod could still run nowhere."""
    text = deployment(required("arch In amd64; os In linux"))
    result = fixed(text, {"quay.io/acme/web:2": ["linux/s390x"]}, platforms=(AMD64,), replace=True)
    assert (result.text, result.applied) == (text, ())
    assert "MA104" in [refusal.finding.rule for refusal in result.refused]
    assert "the cluster has no platform" in result.refused[0].note


@pytest.mark.req("MF-051")
def test_platforms_are_cut_to_the_universe_only_when_asked() -> None:
    images = {"quay.io/acme/web:2": ["linux/amd64", "linux/arm64"]}
    universe = (AMD64, NodePlatform("linux", "s390x"))
    whole = fixed(deployment(""), images, platforms=universe)
    cut = fixed(deployment(""), images, platforms=universe, limit_to_universe=True)
    assert terms_of(yaml.safe_load(whole.text)) == [["arch In amd64,arm64", "os In linux"]]
    assert terms_of(yaml.safe_load(cut.text)) == [["arch In amd64", "os In linux"]]


@pytest.mark.req("MF-053")
def test_a_shared_specification_is_edited_once_if_all_uses_need_the_same() -> None:
    text = (
        "kind: PodTemplate\nmetadata: {name: a}\ntemplate: &t\n  spec:\n    containers:\n    - name: c\n"
        "      image: quay.io/acme/web:2\nother:\n  template: *t\n"
    )
    result = fixed(text)
    assert result.text.count("affinity:") == 1
    assert yaml.safe_load(result.text)["other"]["template"]["spec"]["affinity"]


# Shared text ----------------------------------------------------------------------------------------------------------

AFFINITY = """    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: kubernetes.io/arch, operator: In, values: &v [amd64, arm64, s390x]}
          - {key: kubernetes.io/os, operator: In, values: [linux]}
"""
POD = f"kind: Pod\nmetadata: {{name: p}}\nspec:\n  affinity:\n{AFFINITY}"
CONTAINER = "  containers:\n  - {name: a, image: 'quay.io/acme/web:2'}\n"
WITH_ARGUMENTS = CONTAINER.replace("}", ", args: *v}")
TERM = POD.replace("matchExpressions:\n", "&t\n          matchExpressions:\n").replace(
    "          - {", "            - {"
)
VALUES = (
    "/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/matchExpressions"
)
VOLUME = (
    "- kind: PersistentVolume\n  metadata: {name: v}\n  spec: {nodeAffinity: {required: {nodeSelectorTerms: *t}}}\n"
)
ITEMS = "kind: List\nitems:\n- " + (POD + CONTAINER).replace("\n", "\n  ").rstrip(" ")
CHILD = f"quay.io/acme/pinned:1@sha256:{'b' * 64}"


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    ("text", "here", "anchor", "elsewhere"),
    [
        pytest.param(POD + WITH_ARGUMENTS, "`values` at line 9", "&v", "/spec/containers/0/args at line 12", id="args"),
        pytest.param(
            POD.replace("[linux]}\n", "[linux]}\n          - {key: team, operator: In, values: *v}\n") + CONTAINER,
            "`values` at line 9",
            "&v",
            f"{VALUES}/2/values at line 11",
            id="another expression of the term",
        ),
        pytest.param(
            POD + "    podAntiAffinity: {x: {values: *v}}\n" + CONTAINER,
            "`values` at line 9",
            "&v",
            "/spec/affinity/podAntiAffinity/x/values at line 11",
            id="anti-affinity",
        ),
        pytest.param(
            "x: &v [amd64, s390x]\n" + POD.replace("&v [amd64, arm64, s390x]", "*v") + CONTAINER,
            "`values` at line 10",
            "&v",
            "/x at line 1",
            id="an anchor outside of the object's fields",
        ),
        pytest.param(
            ITEMS.replace("nodeSelectorTerms:", "nodeSelectorTerms: &t") + VOLUME,
            "`nodeSelectorTerms` at line 9",
            "&t",
            "/items/1/spec/nodeAffinity/required/nodeSelectorTerms at line 17",
            id="a volume",
        ),
        pytest.param(
            POD.replace("matchExpressions:", "matchExpressions: &m") + CONTAINER + "status: {conditions: *m}\n",
            "`matchExpressions` at line 8",
            "&m",
            "/status/conditions at line 13",
            id="matchExpressions",
        ),
        pytest.param(
            POD.replace("nodeAffinity:", "nodeAffinity: &n") + CONTAINER + "status: {<<: *n, a: b}\n",
            "`requiredDuringSchedulingIgnoredDuringExecution` at line 6",
            "&n",
            "/status/requiredDuringSchedulingIgnoredDuringExecution at line 13",
            id="a merge key",
        ),
        pytest.param(
            f"kind: Pod\nspec: &s\n{CONTAINER}---\n" + f"kind: Pod\nspec: &s\n{CONTAINER}x: {{<<: *s, a: b}}\n",
            "`spec` at line 7",
            "&s",
            "/x at line 10",
            id="a merged pod specification",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {labels: &l {kubernetes.io/arch: x86_64, kubernetes.io/os: linux}}\n"
            f"spec:\n  nodeSelector: *l\n{CONTAINER}",
            "`nodeSelector` at line 4",
            "&l",
            "/metadata/labels at line 2",
            id="labels",
        ),
        pytest.param(
            "kind: Pod\nmetadata: {annotations: {a: &a x86_64}}\n"
            f"spec:\n  nodeSelector: {{kubernetes.io/arch: *a, kubernetes.io/os: linux}}\n{CONTAINER}",
            "`kubernetes.io/arch` at line 4",
            "&a",
            "/metadata/annotations/a at line 2",
            id="an annotation",
        ),
        pytest.param(
            "kind: Job\nspec: {template: {spec: &s {containers: [{name: a, image: 'quay.io/acme/web:2'}], "
            "nodeSelector: &n {beta.kubernetes.io/arch: amd64}}}}\ndata: [*n]\n",
            "`spec/nodeSelector` at line 2",
            "&n",
            "/data/0 at line 3",
            id="a list of a map",
        ),
    ],
)
def test_text_that_something_else_uses_is_not_changed_and_the_reason_names_both(
    text: str, here: str, anchor: str, elsewhere: str
) -> None:
    result = fixed(text).with_places_before()
    notes = [refusal.note for refusal in result.refused]
    said = f"{here} is shared through the anchor {anchor} with {elsewhere}; write it out for each first"
    assert any(said.removeprefix("`spec/") in note or said.replace("spec/", "") in note for note in notes), notes
    assert unintended(text, result) == []


def unintended(before: str, result: FixResult) -> list[str]:
    """The places where the written-out documents differ and no change was listed."""
    old, new = (list(yaml.safe_load_all(each)) for each in (before, result.text))
    listed = [f"/{number}{path.removesuffix('/-')}" for number, _, path in result.changes()]
    lists = {f"/{number}{path.rpartition('/')[0]}" for number, _, path in result.changes() if path[-1] in "-0123456789"}
    found = differences(dict(enumerate(old)), dict(enumerate(new)))
    return [place for place in found if not any(f"{place}/".startswith(f"{each}/") for each in [*listed, *lists])]


def differences(left: Any, right: Any, here: str = "") -> list[str]:
    """Pointers of all leaves that differ."""
    if isinstance(left, dict) and isinstance(right, dict):
        keys = dict.fromkeys((*left, *right))
        return [
            place for key in keys for place in differences(left.get(key), right.get(key), f"{here}{pointer(str(key))}")
        ]
    if isinstance(left, list) and isinstance(right, list):
        longer = range(max(len(left), len(right)))
        one, other = (dict(enumerate(each)) for each in (left, right))
        return [place for key in longer for place in differences(one.get(key), other.get(key), f"{here}/{key}")]
    return [] if left == right else [here]


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            POD.replace(
                "[linux]}\n",
                "[linux]}\n        - matchExpressions: [{key: kubernetes.io/arch, operator: In, "
                "values: *v}, {key: kubernetes.io/os, operator: In, values: [linux]}]\n",
            )
            + CONTAINER,
            id="two terms of a pod",
        ),
        pytest.param(
            ITEMS
            + ITEMS.partition("items:\n")[2].replace("&v [amd64, arm64, s390x]", "*v").replace("name: p", "name: q"),
            id="values of two pods",
        ),
        pytest.param(
            f"kind: List\nitems:\n- kind: Pod\n  spec: &s\n  {CONTAINER.replace(chr(10), chr(10) + '  ')}\n"
            "- kind: Pod\n  spec: *s\n",
            id="the specification of two pods",
        ),
        pytest.param(
            f"base: &b\n{POD.partition('spec:')[2]}{CONTAINER}web: {{<<: *b, restartPolicy: Never}}\n", id="a merge key"
        ),
    ],
)
def test_text_whose_every_use_needs_the_same_is_changed_once_as_if_it_were_written_out(text: str) -> None:
    written_out = yaml.safe_load(json.dumps(yaml.safe_load(text)))
    result = fixed(text)
    assert result.changed
    assert result.refused == ()
    assert yaml.safe_load(result.text) == yaml.safe_load(fixed(json.dumps(written_out)).text) != written_out
    assert unintended(text, result) == []
    assert result.text.count("*") == text.count("*")


@pytest.mark.req("MF-032", "MF-053")
def test_text_is_not_changed_for_a_use_whose_finding_is_suppressed() -> None:
    other = ITEMS.partition("items:\n")[2].replace("&v [amd64, arm64, s390x]", "*v").replace("name: p", "name: q")
    text = ITEMS + other.replace("name: q", "name: q, annotations: {ignore-check.polyarch.dev/MA102: for a reason}")
    result = fixed(text)
    assert not result.changed
    assert [refusal.note.partition(" at line")[0] for refusal in result.refused] == ["`values`"]


@pytest.mark.req("MF-053")
def test_an_image_is_pinned_anew_only_where_every_use_of_its_text_is_an_image() -> None:
    """MA004:"""
    index = {"platforms": ["linux/amd64"], "digest": f"sha256:{'a' * 64}"}
    known = answers({"quay.io/acme/pinned:1": {**index, "children": {"linux/amd64": f"sha256:{'b' * 64}"}}}, [CHILD])
    known = ImageInspections(known.images, {CHILD: known.images["quay.io/acme/pinned:1"]})

    def after(text: str) -> FixResult:
        return fix(SourceText.of("web.yaml", text.encode()), known, FixRequest(only=("MA004",)))

    twice = f"kind: Pod\nspec:\n  containers:\n  - {{name: a, image: &i '{CHILD}'}}\n  - {{name: b, image: *i}}\n"
    assert after(twice).text == twice.replace("b" * 64, "a" * 64)
    passed = twice.replace("name: b, image: *i", "name: b, image: x, args: [*i]")
    assert after(passed).text == passed
    assert (
        "`image` at line 4 is shared through the anchor &i with /spec/containers/1/args/0"
        in after(passed).refused[0].note
    )


@pytest.mark.req("MF-053")
def test_a_template_is_never_edited() -> None:
    """MA901."""
    result = fixed(WEB.replace("name: web\n  name", "name: {{ .Values.name }}\n  name") + "x: {{ y }}\n")
    assert not result.changed
    assert [finding.rule for finding in result.remaining] == ["MA901"]


@pytest.mark.req("MF-053")
def test_duplicate_keys_are_a_reason() -> None:
    result = fixed(WEB.replace("      containers:", "      nodeName: a\n      nodeName: b\n      containers:"))
    assert not result.changed
    assert "nodeName is duplicated" in " ".join(refusal.note for refusal in result.refused)


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            f"base: &b\n{POD.partition('spec:')[2]}{CONTAINER}kind: Pod\nspec:\n  affinity: {{}}\n  <<: *b\n",
            id="own and merged",
        ),
        pytest.param(
            "kind: List\nitems:\n- kind: Pod\n  spec: &s\n    affinity: {podAntiAffinity: {}}\n"
            "    containers: [{name: a, image: quay.io/acme/web:2}]\n"
            "- kind: Pod\n  spec:\n    affinity: {nodeAffinity: {}}\n    <<: *s\n",
            id="two pods",
        ),
    ],
)
def test_what_parsers_take_from_different_places_is_not_changed(text: str) -> None:
    """A key before ``<<`` counts for YAML, the merged one for kubectl."""
    result = fixed(text)
    assert (result.text, result.applied) == (text, ())
    assert "MA902" in [finding.rule for finding in result.remaining]
    assert fixed(text.replace("    affinity: {nodeAffinity: {}}\n", "").replace("  affinity: {}\n", "")).changed


@pytest.mark.req("MF-054")
def test_fixes_that_change_nothing_leave_the_file_alone_and_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bug in a rule."""
    monkeypatch.setattr(fixing._Fixing, "_written", lambda self, found, changes: found.source.text)
    result = fixed(WEB)
    assert (result.changed, result.applied) == (False, ())
    assert result.unproven is not None
    assert "change nothing, or undo each other" in result.unproven.message


@pytest.mark.req("MF-054")
def test_an_edit_that_cannot_be_proven_leaves_the_file_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """MA904."""
    monkeypatch.setattr(fixing, "prove", lambda *_, **__: "it reads otherwise")
    result = fixed(WEB)
    assert not result.changed
    assert result.unproven is not None
    assert [finding.rule for finding in result.remaining][:1] == ["MA904"]
    assert "it reads otherwise" in result.unproven.message


@pytest.mark.req("MF-053")
def test_what_the_editor_cannot_write_is_noted_and_the_rest_is_repaired() -> None:
    """A reason for each; the other documents do not suffer."""
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


@pytest.mark.req("MF-050", "MF-063")
def test_a_commented_affinity_counts_when_asked_with_its_values_corrected() -> None:
    """--uncomment."""
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


@pytest.mark.parametrize("end", ["", "spec: {}\n", "  annotations:\n    note: |\n      a"])
def test_a_document_is_added_once_however_many_objects_ask_for_it(end: str) -> None:
    """MA117; so none has to stand behind the last one, whose end would change."""
    result = fixed(f"{OBSOLETE}---\n{OBSOLETE}{end}")
    kinds = [document["kind"] for document in yaml.safe_load_all(result.text)]
    assert kinds == ["ClusterPodPlacementConfig", "PlacementPolicy", "ClusterPodPlacementConfig"]
    assert result.text.endswith(end)
    assert not fixed(result.text).changed


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    ("scalar", "added"),
    [
        *((f"{mark}\n      a", False) for mark in ("|", ">", "|+", "&x |", "&x !!str |", ">2", "|2+")),
        *((f"{mark}\n      a", True) for mark in ("|-", ">2-", "|-2", "&x |-", "!!str |-")),
        *(("|\n    a  ", False), ("|\n    a # b", False), ("|\n    a\n# b", True), ("|\n    a\n", True)),
        *((text, True) for text in ("a", "'a\n\n    b'", "[]", "", "a # b")),
    ],
)
def test_no_document_is_added_behind_a_scalar_that_would_take_its_line_break(scalar: str, added: bool) -> None:
    """Its own repair is refused, those of the other documents are written."""
    text = f"{WEB}---\n{OBSOLETE}  annotations:\n   note: {scalar}"
    result = fixed(text)
    assert result.unproven is None
    assert {"MA102", "MA106"} <= set(rules(result))
    assert [each.note for each in result.refused if each.finding.rule == "MA117"] == (
        [] if added else ["a block scalar ends the file without a line break"]
    )
    old, new = (list(yaml.safe_load_all(each))[1]["metadata"]["annotations"] for each in (text, result.text))
    assert old == new


@pytest.mark.req("MF-053")
def test_a_reason_stands_beside_its_finding_when_a_document_was_added_before_it() -> None:
    odd = WEB.replace("values: [amd64, arm64, s390x]", "? values\n                : [amd64, arm64, s390x]")
    result = fixed(f"{OBSOLETE}---\n{odd}")
    assert rules(result) == ["MA117"]
    (refusal, _) = result.refused
    assert refusal.note.endswith("has an explicit key (`? key`)")
    assert refusal.finding.document == 2
    (before, _) = result.with_places_before().refused
    assert before.finding.document == 1
    assert before.note == f"line {OBSOLETE.count(chr(10)) + 17} has an explicit key (`? key`)"


LABELLED = """\
apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: web.v1
  labels: {labels}
spec:
  install:
    strategy: deployment
    spec:
      deployments:
      - name: web
        spec: {{template: {{spec: {{containers: [{{name: web, image: "quay.io/acme/web:2"}}]}}}}}}
"""


@pytest.mark.req("MF-054")
@pytest.mark.parametrize(
    "labels",
    [
        "!!map\n    operatorframework.io/arch.s390x: supported",
        "!!map {operatorframework.io/arch.s390x: supported}",
        "!<tag:yaml.org,2002:map>\n    operatorframework.io/arch.s390x: supported",
    ],
)
def test_what_the_editor_cannot_write_at_first_it_writes_once_another_repair_has_made_it_possible(labels: str) -> None:
    """A tagged mapping cannot lose its last label; it has others after the next repair (MA202)."""
    result = fixed(LABELLED.format(labels=labels), TWO, remove_labels=True)
    assert {"MA201", "MA202"} <= set(rules(result))
    assert "s390x" not in result.text
    assert not fixed(result.text, TWO, remove_labels=True).changed


@pytest.mark.parametrize(
    "selector",
    [
        "{kubernetes.io/arch: amd64}",
        "{kubernetes.io/arch: amd64, beta.kubernetes.io/arch: amd64}",
        "{kubernetes.io/arch: !!str amd64}",
        "{kubernetes.io/arch: s390x, beta.kubernetes.io/arch: amd64}",
    ],
)
@pytest.mark.parametrize("expressions", ["arch In s390x", "arch In arm64,s390x", "arch In s390x; os In linux"])
def test_a_value_that_is_right_already_is_no_change(selector: str, expressions: str) -> None:
    """MA104: the node selector has what the images support, the affinity has not."""
    text = deployment(f"nodeSelector: {selector}\n" + required(expressions))
    result = fixed(text, {"quay.io/acme/web:2": ["linux/amd64"]}, only=("MA104",), replace=True)
    assert rules(result) == ["MA104"]
    value = yaml.safe_load(text)
    for operation in result.operations[0]:
        changed = apply(value, (operation,))
        assert not same(changed, value), operation
        value = changed
    assert same(value, yaml.safe_load(result.text))


@pytest.mark.req("MF-053")
@pytest.mark.parametrize("template", ["text", "[{}]", "[]", "5", "true", "'${TEMPLATE}'"])
def test_a_field_that_is_no_mapping_is_no_place_for_an_affinity(template: str) -> None:
    """Kafka, whose pods get their affinity in a mapping that may be missing."""
    text = (
        "apiVersion: kafka.strimzi.io/v1beta2\nkind: Kafka\nmetadata: {name: web}\n"
        f"spec: {{kafka: {{image: quay.io/acme/web:2, template: {template}}}}}\n"
    )
    result = fixed(text)
    assert (result.text, result.unproven) == (text, None)
    assert "/spec/kafka/template is not a mapping" in {each.note for each in result.refused}


@pytest.mark.req("MF-042")
def test_what_remains_is_where_it_was_before_the_repair_on_request() -> None:
    """A finding behind new documents, removed values and inserted lines has its old place."""
    behind = deployment("nodeSelector: {kubernetes.io/os: linux, kubernetes.io/arch: s390x}")
    text = "\n---\n".join([OBSOLETE, WEB, behind])
    result = fixed(text)
    (after,) = [each.finding for each in result.refused if each.finding.rule == "MA104"]
    (before,) = [each.finding for each in result.with_places_before().refused if each.finding.rule == "MA104"]
    assert result.text[after.span.start : after.span.end] == "s390x"
    assert text[before.span.start : before.span.end] == "s390x"
    assert before.span.line == text[: text.rindex("s390x")].count("\n") + 1 != after.span.line


@pytest.mark.req("MF-020")
def test_json_values_without_a_separator_are_repaired_one_by_one() -> None:
    """Each is a document; what stands between them stays."""
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
    assert (result.changed, result.unproven) == (False, None)
    assert [each.note for each in result.refused] == ["a JSON file holds one document only, and it takes a second one"]


def test_lines_of_build_files_are_repaired() -> None:
    """MA301 has edits instead of operations."""
    request = FixRequest(options=LintOptions(selection=fixing.Selection(include=("MA301",))))
    source = SourceText.of("Dockerfile", b"FROM golang:1\nRUN GOARCH=amd64 go build .\n")
    result = fix(source, answers({}), request)
    assert "ARG TARGETARCH" in result.text
    assert "GOARCH=${TARGETARCH}" in result.text
    assert rules(result) == ["MA301"]
    assert not fix(source.replaced(result.text), answers({}), request).changed


@pytest.mark.req("MF-032")
def test_a_suppressed_line_of_a_build_file_stays() -> None:
    """What somebody does not want to see is not repaired either."""
    request = FixRequest(options=LintOptions(selection=fixing.Selection(include=("MA301",))))
    text = b"FROM golang:1\n# polyarch:ignore MA301 cross-compiled\nRUN GOARCH=amd64 go build .\n"
    result = fix(SourceText.of("Dockerfile", text), answers({}), request)
    assert not result.changed
    assert [finding.suppressed for finding in result.remaining] == ["cross-compiled"]


@pytest.mark.req("MF-061")
def test_windows_line_breaks_and_marks_stay() -> None:
    text = "\ufeff" + WEB.replace("\n", "\r\n")
    result = fixed(text)
    data = result.source.encode(result.text)
    assert data.startswith(b"\xef\xbb\xbf")
    assert b"\n" not in data.replace(b"\r\n", b"")
    assert yaml.safe_load(data)


# Shapes ---------------------------------------------------------------------------------------------------------------

SHAPES: list[Any] = [None, "x", 5, True, [], ["amd64"], [None], {}, {"a": None}]
WHOLE = """kind: Deployment
metadata: {name: w, labels: {a: b}, annotations: {ignore-check.polyarch.dev/MA001: for a reason}}
spec:
  template:
    spec:
      os: {name: linux}
      nodeSelector: {beta.kubernetes.io/arch: s390x}
      tolerations: [{key: a}]
      affinity:
        nodeAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [s390x]}]
          preferredDuringSchedulingIgnoredDuringExecution:
          - {weight: 5, preference: {matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [s390x]}]}}
      initContainers: [{name: i, image: "quay.io/acme/web:2", args: ["--image=a:1"]}]
      containers: [{name: c, image: "quay.io/acme/web:2", env: [{name: RELATED_IMAGE_A, value: "a:1"}]}]
      volumes: [{name: v, image: {reference: "quay.io/acme/web:2"}}]
---
kind: Workflow
spec: {affinity: {nodeAffinity: {}}, templates: [{name: a, container: {image: "quay.io/acme/web:2"}}]}
---
kind: PipelineRun
spec: {podTemplate: {nodeSelector: {}}, pipelineSpec: {tasks: [{taskSpec: {steps: [{image: "quay.io/acme/web:2"}]}}]}}
---
kind: ClusterServiceVersion
metadata: {name: a, labels: {operatorframework.io/arch.amd64: supported}}
spec:
  install: {spec: {deployments: [{name: a, spec: {template: {spec: {containers: [{name: a, image: "a:1"}]}}}}]}}
  relatedImages: [{name: a, image: "quay.io/acme/web:2"}]
---
kind: Subscription
spec: {config: {affinity: {nodeAffinity: {}}, nodeSelector: {a: b}, tolerations: [{key: a}]}}
"""


def paths(value: Any, here: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [here, *(path for key, member in members for path in paths(member, (*here, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    fresh = value.copy()
    fresh[path[0]] = put(value[path[0]], path[1:], new)
    return fresh


@pytest.mark.req("MF-093")
@pytest.mark.parametrize("number", range(5))
def test_whatever_stands_where_something_else_is_expected_there_is_a_finding_or_none(number: int) -> None:
    """No shape of an object ends in an error of the program, or in a change that is not proven."""
    document = list(yaml.safe_load_all(WHOLE))[number]
    options = LintOptions(
        selection=Selection(include=("MA*",)),
        fixes=FixOptions(widen=True, replace=True, remove_labels=True, prefer=True),
        prefer={"arm64": 5},
        taints=Taints("k"),
    )
    known = answers(TWO)
    for turn, path in enumerate(paths(document)):
        for shape in SHAPES[turn % 3 :: 3]:
            source = SourceText.of("web.yaml", yaml.safe_dump(put(document, path, shape)).encode())
            result = fix(source, known, FixRequest(options=options, uncomment=True))
            assert result.unproven is None, (path, shape, result.unproven.message)


@pytest.mark.req("MF-052")
@pytest.mark.parametrize("values", ["amd64", "null", "", "5", "{a: b}", "{'-': a}", "[]"])
def test_replacing_values_that_are_no_list_writes_a_list_or_says_why_not(values: str) -> None:
    """MA104, MA118."""
    text = POD.replace("&v [amd64, arm64, s390x]", values) + CONTAINER
    result = fixed(text, replace=True)
    found = yaml.safe_load(result.text)["spec"]["affinity"]["nodeAffinity"]
    terms = found["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    if values in ("null", "", "[]", "5"):
        assert terms[0]["matchExpressions"][0]["values"] == ["amd64", "arm64"]
    elif values == "amd64":
        assert terms[0]["matchExpressions"][0]["values"] == ["amd64"]
    else:
        assert result.text == text
        assert "only its author knows what is meant" in {refusal.note for refusal in result.refused}
