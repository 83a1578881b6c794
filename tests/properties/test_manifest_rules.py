"""Repairs against brute force: where a pod may run afterwards is where it might before and its images run.

The judge is not the code under test: manifests are judged by ``polyarch.selectors``, which is Kubernetes' own
reading of selectors on the labels of one node, and nodes are made up of every platform of the universe and of every
value of another label that the manifest names.
"""

from itertools import product
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from polyarch.manifests import operations as tree
from polyarch.manifests.edit.editor import render
from polyarch.manifests.proof import prove
from polyarch.manifests.rules.engine import RepairableFinding, lint
from polyarch.manifests.rules.options import FixOptions, LintOptions
from polyarch.manifests.scan import sets
from polyarch.manifests.scan.scanning import scan
from polyarch.manifests.scan.text import SourceText, splice
from polyarch.oci.inspection import Entry, Inspection, Status
from polyarch.oci.reference import parse
from polyarch.platforms import NodePlatform, Platform
from polyarch.selectors import NodeTerm, Requirement, admits

ARCHITECTURES = ("amd64", "arm64", "s390x")
UNIVERSE = tuple(NodePlatform(system, each) for system in ("linux", "windows") for each in ARCHITECTURES)
IMAGES = ("quay.io/acme/a:1", "quay.io/acme/b:1")
ZONES = ("a", "b")
REPAIRS = ("MA101", "MA102", "MA106", "MA107")

values = st.lists(st.sampled_from(ARCHITECTURES), min_size=1, max_size=3, unique=True)
systems = st.lists(st.sampled_from(("linux", "windows")), min_size=1, max_size=2, unique=True)


def expression(key: str, operator: str, chosen: list[str]) -> dict[str, Any]:
    return {"key": key, "operator": operator} | ({"values": chosen} if operator in ("In", "NotIn") else {})


operators = st.sampled_from(("In", "In", "In", "NotIn", "Exists"))
expressions = st.one_of(
    st.builds(expression, st.just("kubernetes.io/arch"), operators, values),
    st.builds(expression, st.just("kubernetes.io/os"), operators, systems),
    st.builds(expression, st.just("zone"), operators, st.lists(st.sampled_from(ZONES), min_size=1, unique=True)),
)
about_architectures = st.builds(
    expression, st.just("kubernetes.io/arch"), st.sampled_from(("In", "In", "NotIn")), values
)
terms = st.one_of(
    st.just({}),
    *[st.lists(expressions, min_size=1, max_size=3).map(lambda each: {"matchExpressions": each})] * 2,
    *[
        st.tuples(about_architectures, st.lists(expressions, max_size=2)).map(
            lambda two: {"matchExpressions": [two[0], *two[1]]}
        )
    ]
    * 4,
)
selectors = st.fixed_dictionaries(
    {},
    optional={
        "kubernetes.io/arch": st.sampled_from(ARCHITECTURES),
        "kubernetes.io/os": st.sampled_from(("linux", "windows")),
        "zone": st.sampled_from(ZONES),
    },
)
affinities = st.lists(terms, min_size=1, max_size=3).map(
    lambda each: {
        "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": each}},
    }
)
pod_specs = st.fixed_dictionaries(
    {
        "containers": st.just([{"name": f"c{index}", "image": image} for index, image in enumerate(IMAGES)]),
        "affinity": st.one_of(*[affinities] * 6, st.none(), st.just({})),
    },
    optional={"nodeSelector": selectors},
)
# Most pods have images that agree in something; what they do not agree in is what repairs are about.
supports = st.sets(st.sampled_from(UNIVERSE), min_size=1)
pairs = st.one_of(
    st.tuples(supports, supports), *[st.tuples(supports, supports).map(lambda two: (two[0], two[0] | two[1]))] * 3
)


def answered(platforms: dict[str, set[NodePlatform]]) -> sets.ImageInspections:
    return sets.ImageInspections(
        {
            image: Inspection(
                parse(image),
                Status.RESOLVED,
                "index",
                entries=tuple(Entry(Platform.of(*each), "") for each in sorted(chosen)),
            )
            for image, chosen in platforms.items()
        }
    )


def found(text: str, answers: sets.ImageInspections, options: LintOptions) -> tuple[RepairableFinding, ...]:
    return lint(scan(SourceText.of("pod.yaml", text.encode())), answers, options)


def name(problem: RepairableFinding) -> str:
    return f"{problem.finding.rule}/{problem.finding.sub}"


def settled(text: str, answers: sets.ImageInspections, options: LintOptions) -> tuple[str, list[str]]:
    """The text after all repairs, edited and proven one after the other, and the rules applied."""
    applied: list[str] = []
    for _ in range(20):
        problems = [each for each in found(text, answers, options) if each.finding.fixable]
        if not problems:
            return text, applied
        chosen = min(
            problems, key=lambda each: REPAIRS[::-1].index(each.finding.rule) if each.finding.rule in REPAIRS else 9
        )
        assert chosen.repair is not None
        source = SourceText.of("pod.yaml", text.encode())
        document = scan(source).document(chosen.repair.document)
        edited = splice(text, render(source, document, chosen.repair.operations))
        assert prove(source, edited, {document.index: chosen.repair.operations}) is None
        text = edited
        applied.append(name(chosen))
    raise AssertionError(f"never settles: {applied}")


def runs(pod_spec: dict[str, Any], labels: dict[str, str]) -> bool:
    """Kubernetes' reading for one node."""
    required = ((pod_spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    each = None
    if required is not None:
        each = [
            NodeTerm(tuple(Requirement(e["key"], e["operator"], tuple(e.get("values") or ())) for e in clauses))
            for clauses in ((term or {}).get("matchExpressions") or [] for term in required["nodeSelectorTerms"])
        ]
    return admits(each, labels, node_selector=pod_spec.get("nodeSelector"))


def nodes() -> list[tuple[NodePlatform, dict[str, str]]]:
    return [
        (platform, {"kubernetes.io/arch": platform.architecture, "kubernetes.io/os": platform.os, **zone})
        for platform, zone in product(UNIVERSE, ({}, {"zone": "a"}, {"zone": "b"}))
    ]


def manifest(pod_spec: dict[str, Any]) -> str:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": pod_spec}
    return str(yaml.safe_dump(pod, sort_keys=False))


@pytest.mark.req("MF-054", "MF-092")
@settings(max_examples=120, deadline=None)
@given(pod_specs, pairs)
def test_a_repaired_pod_runs_where_it_might_before_and_its_images_run(
    pod_spec: dict[str, Any], images: tuple[set[NodePlatform], set[NodePlatform]]
) -> None:
    """An iff over all nodes of the universe, unless there is nothing that a pod could run on (MA104, MA105)."""
    answers = answered(dict(zip(IMAGES, images, strict=True)))
    options = LintOptions(platforms=UNIVERSE)
    text = manifest(pod_spec)
    before = {each.finding.rule for each in found(text, answers, options)}
    after, applied = settled(text, answers, options)
    repaired = yaml.safe_load(after)["spec"]
    common = images[0] & images[1]
    for platform, labels in nodes():
        possible = runs(pod_spec, labels)
        if before & {"MA104", "MA105"}:
            assert not possible or platform not in common, "something could run: MA104 and MA105 are wrong"
            assert runs(repaired, labels) <= possible
        else:
            assert runs(repaired, labels) == (possible and platform in common), (platform, labels, applied)
    left = {name(each) for each in found(after, answers, options)}
    assert not left & set(applied), "what was repaired is still found"


@pytest.mark.req("MF-003")
@settings(max_examples=80, deadline=None)
@given(pod_specs, pairs)
def test_the_sets_agree_with_kubernetes(
    pod_spec: dict[str, Any], images: tuple[set[NodePlatform], set[NodePlatform]]
) -> None:
    """A platform is admitted iff some node of it is."""
    (found_spec,) = scan(SourceText.of("pod.yaml", manifest(pod_spec).encode())).pod_specs
    of = sets.constraints(found_spec)
    admitted = sets.admitted(of, UNIVERSE)
    # Kubernetes joins the expressions of a term on one label; other labels than the platform's may match by MF-003.
    possible = {platform for platform, labels in nodes() if runs(pod_spec, labels)}
    assert possible <= admitted
    assert admitted == sets.admitted(sets.constraints_of(pod_spec), UNIVERSE)
    answers = answered(dict(zip(IMAGES, images, strict=True)))
    assert set(sets.supported(found_spec, answers).platforms) == images[0] & images[1]


@pytest.mark.req("MF-050")
@settings(max_examples=80, deadline=None)
@given(pod_specs, pairs)
def test_widened_or_replaced_pods_run_only_where_their_images_do(
    pod_spec: dict[str, Any], images: tuple[set[NodePlatform], set[NodePlatform]]
) -> None:
    """What --widen and --replace admit beyond the text is never beyond the images."""
    answers = answered(dict(zip(IMAGES, images, strict=True)))
    options = LintOptions(platforms=UNIVERSE, fixes=FixOptions(widen=True, replace=True))
    common = images[0] & images[1]
    text = manifest(pod_spec)
    after, applied = settled(text, answers, options)
    left = {each.finding.rule for each in found(after, answers, options)}
    repaired = yaml.safe_load(after)["spec"]
    if not left & {"MA104", "MA105"}:
        for platform, labels in nodes():
            assert platform in common or not runs(repaired, labels), (platform, labels, applied)
            if "MA104/" not in applied:
                assert runs(repaired, labels) or not runs(pod_spec, labels) or platform not in common


@pytest.mark.req("MF-022")
@settings(max_examples=60, deadline=None)
@given(st.lists(supports, min_size=1, max_size=5))
def test_a_conflict_is_minimal(chosen: list[set[NodePlatform]]) -> None:
    """No image of the set can be left out, and there is one iff there is no common platform."""
    images = [f"quay.io/acme/i{index}:1" for index in range(len(chosen))]
    containers = [{"name": f"c{index}", "image": image} for index, image in enumerate(images)]
    (pod_spec,) = scan(SourceText.of("pod.yaml", manifest({"containers": containers}).encode())).pod_specs
    supported = sets.supported(pod_spec, answered(dict(zip(images, chosen, strict=True))))
    if set.intersection(*chosen):
        assert supported.platforms
        return
    conflict = [set(image.platforms) for image in supported.conflict if image.platforms is not None]
    assert not set.intersection(*conflict)
    for index in range(len(conflict)):
        rest = conflict[:index] + conflict[index + 1 :]
        assert rest == [] or set.intersection(*rest)


@pytest.mark.req("MF-054")
def test_the_operations_and_the_editor_agree_on_an_example() -> None:
    """What the properties rely on is not vacuous."""
    text = manifest({"containers": [{"name": "c", "image": IMAGES[0]}]})
    answers = answered({IMAGES[0]: {NodePlatform("linux", "amd64")}})
    (problem,) = found(text, answers, LintOptions(platforms=UNIVERSE))
    assert problem.repair is not None
    after = tree.apply(yaml.safe_load(text), problem.repair.operations)
    assert yaml.safe_load(settled(text, answers, LintOptions(platforms=UNIVERSE))[0]) == after
