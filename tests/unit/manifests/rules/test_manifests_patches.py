"""What a kustomization names as a patch is a part of an object, and is not judged or repaired as a whole."""

from collections.abc import Mapping
from typing import Any

import pytest
from linting import answers, names

from polyarch.manifests.fix import FixRequest, FixResult, fix
from polyarch.manifests.rules.engine import RepairableFinding, lint
from polyarch.manifests.rules.options import FixOptions, LintOptions, Taints
from polyarch.manifests.scan.nodes import compose
from polyarch.manifests.scan.scanning import Kustomizations, read_kustomization, scan
from polyarch.manifests.scan.text import SourceText

IMAGES: Mapping[str, Any] = {"one:1": ["linux/amd64"], "two:1": ["linux/amd64", "linux/arm64"]}
EVERYTHING = LintOptions(
    prefer={"arm64": 50},
    taints=Taints("supported-arch"),
    fixes=FixOptions(widen=True, replace=True, remove_labels=True, prefer=True),
)
PATCH = "overlays/prod/patches/web.yaml"


def kustomizations(text: str, folder: str = "overlays/prod") -> Kustomizations:
    source = SourceText.of(f"{folder}/kustomization.yaml", text.encode())
    return Kustomizations({folder: read_kustomization(compose(source))})


NAMED = kustomizations("patches: [{path: patches/web.yaml}]\n")


def problems(text: str, options: LintOptions = EVERYTHING) -> tuple[RepairableFinding, ...]:
    found = scan(SourceText.of(PATCH, text.encode()), kustomizations=NAMED)
    return lint(found, answers(IMAGES), options)


def fixed(text: str) -> FixResult:
    request = FixRequest(options=EVERYTHING)
    return fix(SourceText.of(PATCH, text.encode()), answers(IMAGES), request, kustomizations=NAMED)


def workload(spec: str, kind: str = "Deployment") -> str:
    return f"apiVersion: apps/v1\nkind: {kind}\nmetadata: {{name: web}}\nspec: {{template: {{spec: {spec}}}}}\n"


def terms(of: str) -> str:
    return f"affinity: {{nodeAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: {of}}}}}"


def arch(values: str, key: str = "kubernetes.io/arch") -> str:
    return terms(f"{{nodeSelectorTerms: [{{matchExpressions: [{{key: {key}, operator: In, values: [{values}]}}]}}]}}")


@pytest.mark.req("MF-020")
@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("patches: [{path: patches/web.yaml}]", True),
        ("patches: [{path: ./patches/../patches/web.yaml, target: {kind: Deployment}}]", True),
        ("patches: [patches/web.yaml]", True),
        ("patchesStrategicMerge: [patches/web.yaml]", True),
        ("patchesJson6902: [{path: patches/web.yaml, target: {kind: Deployment, name: web}}]", True),
        ("kind: Component\npatches: [{path: patches/web.yaml}]", True),
        ("resources: [patches/web.yaml]", False),
        ("patchesStrategicMerge:\n- |-\n  kind: Deployment\n  metadata: {name: web}\n", False),
        ("patches: [{patch: 'kind: Deployment'}, null, {path: null}]\npatchesJson6902: x", False),
    ],
)
def test_a_kustomization_says_which_files_are_patches(text: str, named: bool) -> None:
    """By any of its three lists; paths are relative to its folder."""
    assert (kustomizations(text).patched_by(PATCH) == "overlays/prod") is named


@pytest.mark.req("MF-020")
@pytest.mark.parametrize(
    "spec",
    [
        pytest.param("{containers: [{name: web}]}", id="MA001: the image is that of the base"),
        pytest.param("{containers: [{name: web, image: ''}]}", id="MA001: an empty image is none"),
        pytest.param("{containers: [{name: web, image: 'one:1'}]}", id="MA101: the base may have the constraint"),
        pytest.param(f"{{{arch('amd64')}, containers: [{{name: web, image: 'one:1'}}]}}", id="MA106, MA112, MA113"),
        pytest.param(f"{{{arch('amd64')}, containers: [{{name: web, image: 'two:1'}}]}}", id="MA103"),
        pytest.param(
            "{nodeSelector: {kubernetes.io/arch: null, beta.kubernetes.io/os: null}, containers: [{name: web}]}",
            id="MA108, MA110: null takes the entry of the base away",
        ),
        pytest.param(f"{{{terms('null')}, containers: [{{name: web}}]}}", id="MA107: null takes the terms away"),
        pytest.param(f"{{{terms('{}')}, containers: [{{name: web}}]}}", id="MA107: nothing is said"),
        pytest.param(
            "{initContainers: [{name: i, image: 'one:1'}], containers: [{name: c, image: 'two:1'}]}", id="MA114"
        ),
    ],
)
def test_what_only_the_whole_can_show_is_not_found_in_a_patch(spec: str) -> None:
    """The base says the rest, so nothing is found and nothing repaired."""
    text = workload(spec, kind="DaemonSet")
    assert names(problems(text)) == []
    assert fixed(text).text == text


@pytest.mark.req("MF-020")
def test_the_same_texts_as_resources_are_judged() -> None:
    """An overlay's own resource is no patch."""
    found = scan(SourceText.of("overlays/prod/web.yaml", workload("{containers: [{name: web}]}").encode()))
    assert names(lint(found, answers(IMAGES), LintOptions())) == ["MA001/not-a-reference"]


@pytest.mark.req("MF-020")
@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (f"{{{arch('amd64, arm64')}, containers: [{{name: web, image: 'one:1'}}]}}", ["MA102"]),
        (f"{{{arch('arm64')}, containers: [{{name: web, image: 'one:1'}}]}}", ["MA104"]),
        ("{nodeSelector: {kubernetes.io/arch: arm64}, containers: [{name: web, image: 'one:1'}]}", ["MA104"]),
        (f"{{{arch('x86_64')}, containers: [{{name: web}}]}}", ["MA110"]),
        (f"{{{arch('amd64', 'beta.kubernetes.io/arch')}, containers: [{{name: web}}]}}", ["MA108"]),
        (f"{{{terms('{nodeSelectorTerms: [{}]}')}, containers: [{{name: web}}]}}", ["MA107/empty-term"]),
        ("{containers: [{name: web, image: 'gone:1'}]}", ["MA001/offline-miss"]),
    ],
)
def test_what_a_patch_says_itself_is_judged_and_left_as_it_is(spec: str, expected: list[str]) -> None:
    """No fix writes platforms into a patch, whatever the flags; the note says where the repair goes."""
    text = workload(spec)
    assert names(problems(text, LintOptions())) == expected
    result = fixed(text)
    assert (result.text, result.applied) == (text, ())
    if expected[0] not in ("MA107/empty-term", "MA001/offline-miss"):
        (note,) = {refusal.note for refusal in result.refused}
        assert note == "it is a patch of a kustomization; fix the resource that it patches"


@pytest.mark.req("MF-020")
def test_a_json_patch_is_a_patch() -> None:
    """A list of operations, one of which brings a pod specification."""
    text = "- op: replace\n  path: /spec/template/spec\n  value:\n    containers: [{name: web, image: one:1}]\n"
    assert names(problems(text)) == []
    assert fixed(text).text == text


@pytest.mark.req("MF-020")
def test_a_patch_of_a_bundle_is_not_judged_as_a_bundle() -> None:
    """Labels, related images and pins are the whole ClusterServiceVersion's."""
    text = (
        "apiVersion: operators.coreos.com/v1alpha1\nkind: ClusterServiceVersion\nmetadata: {name: op}\nspec: {install: "
        "{spec: {deployments: [{name: op, spec: {template: {spec: {containers: [{name: op, image: 'two:1'}]}}}}]}}}\n"
    )
    assert names(problems(text)) == []
