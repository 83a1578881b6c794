"""Every rule does what its example says: finds the bad text, is silent about the good one, repairs."""

import re
from collections import Counter
from pathlib import Path

import msgspec
import pytest
import yaml

from polyarch.manifests import examples
from polyarch.manifests.bundle import KIND, Bundle, ServiceVersion
from polyarch.manifests.edit.editor import render
from polyarch.manifests.examples import Example
from polyarch.manifests.fix import FixRequest, fix
from polyarch.manifests.proof import prove
from polyarch.manifests.rules.bundle_run import lint_catalog, validate
from polyarch.manifests.rules.bundles import BundleImageAnswer
from polyarch.manifests.rules.catalogue import RULES
from polyarch.manifests.rules.engine import RepairableFinding, lint, lint_source
from polyarch.manifests.rules.source_files import is_source
from polyarch.manifests.rules.suppression import suppressed
from polyarch.manifests.scan.scanning import scan
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.manifests.scan.text import SourceText, splice

MINE = ("MA0", "MA1", "MA2", "MA3")
ALSO = ("MA901", "MA902", "MA903")


def found(example: Example, text: str) -> tuple[RepairableFinding, ...]:
    source = SourceText.of(example.file, text.encode())
    images = example.images()
    answers = ImageInspections(images, {text: images[shown] for text, shown in example.indexes.items()})
    if is_source(example.file):
        return lint_source(source, answers, example.lint_options())
    scanned, options = scan(source), example.lint_options()
    csv = next((subject for subject in scanned.objects if subject.kind == KIND), None)
    if csv is not None:
        bundle = Bundle(ServiceVersion.of(csv, scanned.pod_specs), (scanned,))
        named = re.search(r"--bundle-image (\S+)", text)
        image = BundleImageAnswer(named[1], images[named[1]]) if named else None
        return validate(bundle, answers, options, bundle_image=image)
    return suppressed(scanned, (*lint(scanned, answers, options), *lint_catalog([scanned], options)))


def settled(example: Example, rule: str) -> str:
    """The bad text after the repairs of one rule, one by one; documents that a repair adds are left out."""
    text = example.bad
    for _ in range(20):
        problem = next(
            (each for each in found(example, text) if each.finding.rule == rule and each.finding.fixable), None
        )
        if problem is None:
            return text
        if problem.edits:
            text = splice(text, problem.edits)
            continue
        assert problem.repair is not None
        source = SourceText.of(example.file, text.encode())
        document = scan(source).document(problem.repair.document)
        edited = splice(text, render(source, document, problem.repair.operations))
        assert prove(source, edited, {document.index: problem.repair.operations}) is None
        text = edited
    raise AssertionError(f"{rule} is never settled")


@pytest.mark.req("MF-020", "MF-023")
@pytest.mark.parametrize("rule", examples.ids())
def test_a_rule_finds_its_bad_example_and_not_its_good_one(rule: str) -> None:
    example = examples.load(rule)
    findings = [each.finding for each in found(example, example.bad) if each.finding.rule == rule]
    assert findings, f"{rule} does not find its own example"
    for finding in findings:
        assert finding.severity is (example.severity or RULES[rule].severity) or RULES[rule].subs
        assert finding.message[-1] not in ".!"
        assert "\n" not in finding.message
        assert finding.hint
        assert finding.file == example.file
        assert finding.span.line >= 1
        assert not RULES[rule].subs or finding.sub in RULES[rule].subs
    assert rule not in {each.finding.rule for each in found(example, example.good)}


@pytest.mark.req("MF-050", "MF-051", "MF-052", "MF-053", "MF-054")
@pytest.mark.parametrize("rule", [rule for rule in examples.ids() if examples.load(rule).fixed])
def test_a_repair_makes_the_fixed_example(rule: str) -> None:
    """The finding is gone and a second repair changes nothing."""
    example = examples.load(rule)
    assert settled(example, rule) == example.fixed
    assert not [each for each in found(example, example.fixed) if each.finding.rule == rule and each.finding.fixable]


@pytest.mark.req("MF-021")
def test_every_rule_has_an_example_and_every_repair_is_shown() -> None:
    shown = set(examples.ids())
    for rule in RULES.values():
        if rule.id.startswith(MINE) or rule.id in ALSO:
            assert rule.id in shown, f"{rule.id} has no example"
            repaired = bool(rule.fix) and rule.flag != "--update-lock"
            assert bool(examples.load(rule.id).fixed) == repaired, f"{rule.id}: fixed text without a repair, or none"


@pytest.mark.req("MF-020", "MF-021")
def test_ids_are_those_of_the_contract() -> None:
    """Each kind counts from one and leaves no number out, and MA4xx is left to live clusters."""
    numbers = sorted(int(rule.removeprefix("MA")) for rule in RULES)
    kinds = {number // 100: [each % 100 for each in numbers if each // 100 == number // 100] for number in numbers}
    assert kinds == {kind: [*range(1, len(ids) + 1)] for kind, ids in kinds.items()}
    assert kinds.keys() == {0, 1, 2, 3, 9}


@pytest.mark.req("MF-021")
def test_an_unknown_rule_has_no_example() -> None:
    with pytest.raises(KeyError):
        examples.load("MA000")


# What rules must not mention ------------------------------------------------------------------------------------------


class QuietManifest(Example, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A manifest after a real one, in ``good``, and the rules that look at something in it and find nothing."""

    name: str
    rules: tuple[str, ...]
    bad: str = ""


QUIET = msgspec.convert(yaml.safe_load((Path(__file__).parent / "quiet.yaml").read_text()), list[QuietManifest])
IMAGE = r"\bimage: "
LABEL = r"kubernetes\.io/(?:arch|os)"
LOOKED_AT = {
    "MA004": "@sha256:",
    "MA008": IMAGE,
    "MA103": "In, values|operator: In|kubernetes.io/arch: ",
    "MA106": LABEL,
    "MA107": "matchExpressions",
    "MA108": LABEL,
    "MA109": "nodeSelector|nodeAffinity",
    "MA110": LABEL,
    "MA111": "preferred",
    "MA112": "kubernetes.io|image",
    "MA113": "kind: DaemonSet",
    "MA114": "initContainers|containers",
    "MA115": "os: \\{name|kubernetes.io/os",
    "MA116": "env:|args|command",
    "MA117": "multiarch",
    "MA118": "nodeSelector|nodeAffinity",
    "MA2": "olm\\.|operators.coreos.com",
    "MA301": "FROM",
    "MA302": "platforms?|GOARCH",
    "MA303": "corev1",
    "MA901": r"\{\{",
    "MA902": r'\t|\w\||"[^"\n]*\{\{',  # marks that would be syntax elsewhere
    "MA903": "polyarch|annotations",
    "MA905": r"(?s)kind: (?:ConfigMap|PrometheusRule|Component)\n.*(?:\bimages?\b|Image\w*: )",
}
"""What a manifest has to have if a rule's silence about it is to mean something: by rule, or by the start of its id."""


@pytest.mark.req("MF-020")
@pytest.mark.parametrize("manifest", QUIET, ids=lambda manifest: manifest.name)
def test_a_real_manifest_is_not_mentioned_by_the_rules_that_look_at_it(manifest: QuietManifest) -> None:
    findings = [each.finding for each in found(manifest, manifest.good)]
    assert [each for each in findings if each.rule in manifest.rules] == []
    for rule in manifest.rules:
        sign = next((LOOKED_AT[key] for key in (rule, rule[:3]) if key in LOOKED_AT), IMAGE)
        assert re.search(sign, manifest.good), f"{manifest.name} has nothing for {rule}"


EDITED = (
    *("node-exporter", "coredns", "kube-flannel", "cluster-autoscaler", "grafana", "aws-node"),
    *("operator-bundle", "operator-bundle-of-two-deployments"),
)
"""Manifests that need an edit if their images are of amd64 only."""


@pytest.mark.req("MF-020", "MF-054")
@pytest.mark.parametrize("name", EDITED)
def test_an_edit_of_a_real_manifest_is_always_verified(name: str) -> None:
    """MA904; every pod of the edited text requires amd64 or runs there only."""
    manifest = next(each for each in QUIET if each.name == name)
    only = msgspec.structs.replace(manifest, answers={text: ["linux/amd64"] for text in manifest.answers})
    source = SourceText.of(only.file, only.good.encode())
    result = fix(source, ImageInspections(only.images()), FixRequest(options=only.lint_options()))
    assert result.unproven is None
    assert result.operations
    assert result.text != only.good
    constrained = [each.required for each in scan(source.replaced(result.text)).pod_specs if each.images]
    assert constrained
    for required in constrained:
        assert required is not None
        assert [each.values for term in required.terms for each in term.expressions if "arch" in each.key] == [
            ("amd64",)
        ]


@pytest.mark.req("MF-020")
def test_every_rule_has_three_real_manifests_that_it_does_not_mention() -> None:
    """MA904 is of edits."""
    quiet = Counter(rule for manifest in QUIET for rule in set(manifest.rules))
    quiet["MA904"] = len(EDITED)
    assert {rule: quiet[rule] for rule in RULES if quiet[rule] < 3} == {}
    assert len({manifest.name for manifest in QUIET}) == len(QUIET)
