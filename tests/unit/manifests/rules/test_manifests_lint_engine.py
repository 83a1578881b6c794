"""What concerns all rules: selection, severities, order, bundles, shared places."""

from typing import Any

import pytest
import yaml
from linting import answers, deployment, names, problems, required, rule, scanned

from polyarch.manifests.edit.editor import render
from polyarch.manifests.finding import Severity
from polyarch.manifests.proof import prove
from polyarch.manifests.rules.engine import lint
from polyarch.manifests.rules.options import FixOptions, LintOptions, Selection
from polyarch.manifests.scan.text import SourceText, splice
from polyarch.platforms import NodePlatform

WEB = "quay.io/acme/web:2"
TWO = {WEB: ["linux/amd64", "linux/arm64"]}


@pytest.mark.req("MF-030")
@pytest.mark.parametrize(
    ("include", "exclude", "default", "selected"),
    [
        ((), (), True, True),
        ((), (), False, False),
        (("MA1*",), (), False, True),
        (("MA3*",), (), False, False),
        ((), ("MA1*",), True, False),
        (("MA102",), ("MA*",), True, True),
        (("MA1*",), ("MA102",), True, False),
        (("MA102",), ("MA102",), True, False),
        (("MA10",), (), False, False),
        (("*",), (), False, True),
    ],
)
def test_rules_are_selected_by_the_longest_pattern(
    include: tuple[str, ...], exclude: tuple[str, ...], default: bool, selected: bool
) -> None:
    assert Selection(include, exclude).selects("MA102", default=default) is selected


@pytest.mark.req("MF-030", "MF-031")
def test_excluded_rules_say_nothing_and_severities_are_configured() -> None:
    text = deployment("nodeSelector: {beta.kubernetes.io/os: linux}")
    assert sorted(names(problems(text, TWO))) == ["MA101", "MA108"]
    assert names(problems(text, TWO, selection=Selection(exclude=("MA101",)))) == ["MA108"]
    severities = {"MA1*": Severity.INFO, "MA108": Severity.ERROR}
    found = problems(text, TWO, severities=severities)
    assert {each.finding.rule: each.finding.severity for each in found} == {
        "MA101": Severity.INFO,
        "MA108": Severity.ERROR,
    }


@pytest.mark.req("MF-041")
def test_findings_are_in_the_order_of_the_text_and_always_the_same() -> None:
    text = deployment(required("arch In s390x,x86_64"), images=(WEB, "$(X)"))
    text += "---\n" + deployment("", images=(WEB,)).replace("web\n", "second\n")
    found = problems(text, TWO)
    places = [(each.finding.span.line, each.finding.span.column, each.finding.rule) for each in found]
    assert places == sorted(places)
    assert len({each.finding.fingerprint for each in found}) == len(found)
    again = problems(text, TWO)
    assert [each.finding for each in again] == [each.finding for each in found]
    assert [each.finding.document for each in found if each.finding.rule == "MA101"] == [1]


@pytest.mark.req("MF-033")
def test_fingerprints_do_not_change_when_lines_move() -> None:
    text = deployment(required("arch In s390x,amd64; os In linux"))
    before = {each.finding.fingerprint for each in problems(text, TWO)}
    assert {each.finding.fingerprint for each in problems(f"# moved\n\n{text}", TWO)} == before


@pytest.mark.req("MF-013", "MF-020")
def test_what_keeps_a_file_from_being_read_is_a_finding_like_others() -> None:
    """MA901 and MA902 with severity and fingerprint."""
    (template,) = problems("image: {{ .x }}\n", {}, severities={"MA901": Severity.ERROR})
    assert (template.finding.rule, template.finding.severity) == ("MA901", Severity.ERROR)
    assert len(template.finding.fingerprint) == 16
    (broken,) = problems("image: [\n", {})
    assert (broken.finding.rule, broken.finding.sub) == ("MA902", "syntax")
    assert problems("image: [\n", {}, selection=Selection(exclude=("MA9*",))) == ()


CSV = """apiVersion: operators.coreos.com/v1alpha1
kind: ClusterServiceVersion
metadata:
  name: acme.v1
  labels:
    operatorframework.io/arch.amd64: supported
    operatorframework.io/arch.arm64: supported
spec:
  install:
    spec:
      deployments:
      - name: manager
        spec:
          template:
            spec:
              containers:
              - name: manager
                image: quay.io/acme/web:2
"""


@pytest.mark.req("MF-075")
def test_deployments_of_a_bundle_have_a_rule_of_their_own() -> None:
    """MA205: sub is the base rule, whose severity holds; either id excludes it; MF-075 numbers it."""
    base = rule(problems(deployment(""), TWO), "MA101").finding
    found = problems(CSV, TWO, selection=Selection(exclude=("MA207",)))
    assert names(found) == ["MA205/MA101"]
    finding = found[0].finding
    assert (finding.severity, finding.upstream, finding.fixable) == (base.severity, "V5", True)
    assert finding.message.startswith("ClusterServiceVersion acme.v1, manager admits")
    platforms = (NodePlatform("linux", "amd64"), NodePlatform("linux", "s390x"))
    strict = problems(CSV, TWO, platforms=platforms, selection=Selection(exclude=("MA207",)))
    assert strict[0].finding.severity is Severity.ERROR
    for excluded in ("MA101", "MA205"):
        assert problems(CSV, TWO, selection=Selection(exclude=("MA207", excluded))) == ()
    raised = problems(CSV, TWO, selection=Selection(exclude=("MA207",)), severities={"MA101": Severity.INFO})
    assert raised[0].finding.severity is Severity.INFO


def edited(text: str, images: dict[str, Any], name: str, **options: Any) -> str:
    """The text after the repairs of a rule, as the editor writes and the proof accepts them."""
    repairs = [each.repair for each in problems(text, images, **options) if each.finding.rule == name]
    assert repairs
    assert all(each is not None and each.operations for each in repairs), repairs
    once = {str(each.operations): each.operations for each in repairs if each is not None}
    operations = [operation for own in once.values() for operation in own]
    source = SourceText.of("web.yaml", text.encode())
    document = scanned(text).document(0)
    after = splice(text, render(source, document, operations))
    assert prove(source, after, {document.index: operations}) is None
    return after


SHARED = """apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Pod
  metadata: {name: a}
  spec:
    affinity: &here
      nodeAffinity:
        requiredDuringSchedulingIgnoredDuringExecution:
          nodeSelectorTerms:
          - matchExpressions:
            - key: kubernetes.io/arch
              operator: In
              values: [amd64, arm64, s390x]
            - {key: kubernetes.io/os, operator: In, values: [linux]}
    containers:
    - {name: a, image: quay.io/acme/web:2}
- apiVersion: v1
  kind: Pod
  metadata: {name: b}
  spec:
    affinity: *here
    containers:
    - {name: b, image: OTHER}
"""


@pytest.mark.req("MF-053")
def test_a_shared_affinity_is_edited_once_if_every_user_needs_the_same() -> None:
    text = SHARED.replace("OTHER", WEB)
    after = edited(text, TWO, "MA102")
    assert after == text.replace(", s390x]", "]")
    assert problems(after, TWO) == ()


@pytest.mark.req("MF-053")
def test_a_shared_affinity_is_not_edited_if_its_users_need_different_edits() -> None:
    images = {**TWO, "quay.io/acme/other:1": ["linux/amd64", "linux/s390x"]}
    found = problems(SHARED.replace("OTHER", "quay.io/acme/other:1"), images)
    changes = [each for each in found if each.finding.rule == "MA102"]
    assert len(changes) == 2
    for each in changes:
        assert each.repair is not None
        assert each.repair.operations == ()
        assert "shared with Pod" in each.repair.note
        assert not each.finding.fixable


@pytest.mark.req("MF-053")
def test_a_pod_specification_used_twice_is_edited_at_its_anchor() -> None:
    """One finding, one edit, for every use."""
    text = """apiVersion: example.org/v1
kind: Twins
first: &spec
  containers:
  - {name: a, image: quay.io/acme/web:2}
second: *spec
"""
    found = problems(text, TWO)
    assert names(found) == ["MA101"]
    after = edited(text, TWO, "MA101")
    values = yaml.safe_load(after)
    assert "affinity" in values["first"]
    assert values["second"] == values["first"]


WORKFLOW = """apiVersion: argoproj.io/v1alpha1
kind: Workflow
metadata: {name: w}
spec:
  nodeSelector:
    kubernetes.io/os: linux
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: kubernetes.io/arch, operator: In, values: [amd64, s390x]}
  templates:
  - name: one
    container: {image: quay.io/acme/web:2}
  - name: two
    container: {image: OTHER}
"""


@pytest.mark.req("MF-053")
def test_an_inherited_affinity_is_edited_only_for_all_heirs() -> None:
    """MF-053 for what a workflow's templates inherit."""
    same = WORKFLOW.replace("OTHER", WEB)
    assert edited(same, TWO, "MA102") == same.replace("[amd64, s390x]", "[amd64]")
    images = {**TWO, "quay.io/acme/other:1": ["linux/amd64", "linux/s390x"]}
    problem = rule(problems(WORKFLOW.replace("OTHER", "quay.io/acme/other:1"), images), "MA102")
    assert problem.repair is not None
    assert problem.repair.operations == ()


@pytest.mark.req("MF-053")
def test_duplicate_keys_are_not_edited() -> None:
    text = deployment("nodeSelector: {}\nnodeSelector: {beta.kubernetes.io/os: linux}")
    found = problems(text, TWO)
    assert sorted(names(found)) == ["MA101", "MA108", "MA902/duplicate-key"]
    assert not any(each.finding.fixable for each in found)
    assert all("is duplicated" in each.repair.note for each in found if each.repair)


@pytest.mark.req("MF-090")
def test_the_same_answers_serve_many_files() -> None:
    """An image is read once for a run."""
    known = answers(TWO)
    first = known.of(WEB)
    assert names(lint(scanned(deployment("")), known, LintOptions())) == ["MA101"]
    assert known.of(WEB) is first


@pytest.mark.req("MF-052")
def test_replace_moves_a_node_selector_that_has_one_value_for_many() -> None:
    """MA104."""
    images = {WEB: ["linux/ppc64le", "linux/s390x"]}
    replace = FixOptions(replace=True)
    selector = deployment(
        "nodeSelector:\n  kubernetes.io/arch: amd64\n" + required("arch In arm64; os In linux", "disk Exists")
    )
    after = yaml.safe_load(edited(selector, images, "MA104", fixes=replace))["spec"]["template"]["spec"]
    assert "nodeSelector" not in after
    one = deployment("nodeSelector:\n  kubernetes.io/arch: amd64")
    single = yaml.safe_load(edited(one, {WEB: ["linux/s390x"]}, "MA104", fixes=replace))["spec"]["template"]["spec"]
    assert single["nodeSelector"] == {"kubernetes.io/arch": "s390x"}
    excluded = problems(deployment(required("arch NotIn s390x,ppc64le")), images, fixes=replace)
    refused = rule(excluded, "MA104").repair
    assert refused is not None
    assert "excludes" in refused.note
    windows = problems(deployment("nodeSelector: {kubernetes.io/os: windows}"), images, fixes=replace)
    refused = rule(windows, "MA104").repair
    assert refused is not None
    assert "system" in refused.note
