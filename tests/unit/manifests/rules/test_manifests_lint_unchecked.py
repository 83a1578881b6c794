"""What is filled in later, refused by the API server, or of a kind that nobody told about is not interpreted."""

from typing import Any

import pytest
import yaml
from linting import answers, names, problems, rule, scanned

from polyarch.manifests.finding import Severity
from polyarch.manifests.fix import FixRequest, fix
from polyarch.manifests.rules.engine import lint
from polyarch.manifests.rules.options import FixOptions, LintOptions
from polyarch.manifests.scan.text import SourceText
from polyarch.platforms import NodePlatform

AMD = {"r.example/a:1": ["linux/amd64"]}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
ALL = FixOptions(widen=True, replace=True, remove_labels=True)


def pod(**spec: Any) -> str:
    containers = [{"name": "a", "image": "r.example/a:1"}]
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p"},
        "spec": {"containers": containers, **spec},
    }
    return yaml.safe_dump(document, sort_keys=False)


def requiring(*expressions: Any, **more: Any) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": list(expressions), **more}]}}}


def arch(**members: Any) -> dict[str, Any]:
    return {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"], **members}


# Filled in later ------------------------------------------------------------------------------------------------------


@pytest.mark.req("MF-005")
@pytest.mark.parametrize(
    "value",
    [
        "{{inputs.parameters.arch}}",
        "$(params.arch)",
        "${ARCH}",
        "$ARCH",
        "__ARCH__",
        "<arch>",
        "%ARCH%",
        "@ARCH@",
        "((arch))",
        "[[arch]]",
        "linux-{{ arch }}",
    ],
)
@pytest.mark.parametrize("place", ["selector", "expression"])
def test_an_architecture_that_is_filled_in_later_is_unknown_and_stays(value: str, place: str) -> None:
    """No finding, and nothing that a fix with every flag changes."""
    said = {"nodeSelector": {"kubernetes.io/arch": value}}
    text = pod(**said) if place == "selector" else pod(affinity=requiring(arch(values=["amd64", value])))
    assert names(problems(text, AMD)) == []
    result = fix(SourceText.of("web.yaml", text.encode()), answers(AMD), FixRequest(options=LintOptions(fixes=ALL)))
    assert result.text == text


@pytest.mark.req("MF-005")
def test_what_is_deprecated_or_without_a_platform_in_common_is_said_beside_a_variable() -> None:
    text = pod(nodeSelector={"beta.kubernetes.io/arch": "$(arch)"}).replace(
        "  nodeSelector", "  - {name: b, image: 'r.example/arm:1'}\n  nodeSelector"
    )
    assert names(problems(text, {**AMD, "r.example/arm:1": ["linux/arm64"]})) == ["MA105", "MA108"]


@pytest.mark.req("MF-005")
def test_an_image_that_is_filled_in_later_says_so() -> None:
    (found,) = problems(pod().replace("r.example/a:1", "'{{inputs.parameters.image}}'"), AMD)
    assert "a variable that is not filled in" in found.finding.message


# Refused by the API server --------------------------------------------------------------------------------------------


@pytest.mark.req("MF-020")
@pytest.mark.parametrize(
    ("spec", "words", "corrected"),
    [
        pytest.param({"nodeSelector": {"a": 386}}, "386 is not a text", {"nodeSelector": {"a": "386"}}, id="a number"),
        pytest.param({"nodeSelector": {"a": True}}, "true is not a text", {"nodeSelector": {"a": "true"}}, id="a bool"),
        pytest.param({"nodeSelector": ["a"]}, "nodeSelector is not a mapping", None, id="a list of labels"),
        pytest.param({"affinity": []}, "affinity is not a mapping", None, id="a list of affinities"),
        pytest.param(
            {"affinity": requiring(arch(operator="in"))},
            "in is no operator",
            {"affinity": requiring(arch())},
            id="an operator in lower case",
        ),
        pytest.param({"affinity": requiring(arch(operator="Equals"))}, "Equals is no operator", None, id="another one"),
        pytest.param({"affinity": requiring({"key": "a"})}, "has no operator", None, id="no operator"),
        pytest.param({"affinity": requiring({"operator": "Exists"})}, "has no key", None, id="no key"),
        pytest.param({"affinity": requiring(arch(key=None))}, "has no key", None, id="a key that is null"),
        pytest.param({"affinity": requiring(arch(key=["a"]))}, "not a text", None, id="a list as key"),
        pytest.param(
            {"affinity": requiring(arch(key=5))},
            "5 is not a text without quotes",
            {"affinity": requiring(arch(key="5"))},
            id="a number as key",
        ),
        pytest.param(
            {"affinity": requiring(None)}, "expression is not a mapping", None, id="an expression that is null"
        ),
        pytest.param(
            {"affinity": requiring(matchFields=[{"key": "metadata.uid", "operator": "In", "values": ["a"]}])},
            "'metadata.uid' is no field",
            None,
            id="another field",
        ),
        pytest.param(
            {"affinity": requiring(matchFields=[{"key": "metadata.name", "operator": "Exists"}])},
            "In or NotIn with one value",
            None,
            id="another operator of a field",
        ),
        pytest.param(
            {"affinity": requiring(arch(values="amd64"))},
            "values of In is not a list",
            {"affinity": requiring(arch())},
            id="values as a text",
        ),
        pytest.param(
            {"affinity": requiring(arch(values=[386, "amd64"]))},
            "386 is not a text",
            {"affinity": requiring(arch(values=["386", "amd64"]))},
            id="a number among values",
        ),
        pytest.param({"affinity": requiring(arch(key="a", values=[]))}, "In needs values", None, id="no values"),
        pytest.param({"affinity": requiring(arch(operator="NotIn", values=[]))}, "NotIn needs", None, id="not in none"),
        pytest.param({"affinity": requiring(arch(operator="Exists"))}, "Exists takes no values", None, id="too many"),
        pytest.param({"affinity": requiring(arch(operator="Gt", values=["1", "2"]))}, "Gt takes one", None, id="Gt"),
        pytest.param({"affinity": requiring(arch(), matchLabels={"a": "b"})}, "no matchLabels", None, id="labels"),
        pytest.param({"affinity": {"nodeAffinity": {REQUIRED: [{}]}}}, f"{REQUIRED} is not", None, id="required list"),
        pytest.param({"nodeAffinity": {}}, "nodeAffinity stands beside affinity", None, id="nodeAffinity in spec"),
    ],
)
def test_what_the_api_server_refuses_is_named_and_nothing_is_added_beside_it(
    spec: dict[str, Any], words: str, corrected: dict[str, Any] | None
) -> None:
    """The correction is written where only one thing can be meant."""
    text = pod(**spec)
    found = problems(text, AMD)
    assert {each.finding.rule for each in found} == {"MA118"}
    assert words in found[0].finding.message
    request = FixRequest(options=LintOptions(fixes=ALL), only=("MA118",))
    result = fix(SourceText.of("web.yaml", text.encode()), answers(AMD), request)
    assert yaml.safe_load(result.text) == yaml.safe_load(text if corrected is None else pod(**corrected))


@pytest.mark.req("MF-020")
def test_constraints_that_are_right_and_those_of_a_variable_are_no_mistakes() -> None:
    """Nor are fields of patches, nulls, and an integer that Gt compares."""
    right = requiring(arch(), {"key": "a", "operator": "Exists"}, {"key": "b", "operator": "Gt", "values": ["1"]})
    filled_in = requiring(arch(operator="$(OPERATOR)"))
    for spec in (
        {"affinity": right},
        {"affinity": filled_in},
        {"affinity": None},
        {"nodeSelector": None},
        {"nodeSelector": {"a": "1"}},
    ):
        assert "MA118" not in names(problems(pod(**spec), AMD))


@pytest.mark.req("MF-020")
def test_terms_that_are_all_empty_are_one_finding() -> None:
    text = pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, {}, {}]}}})
    assert names(problems(text, AMD)) == ["MA107/empty-term"]


# Unknown kinds --------------------------------------------------------------------------------------------------------


def custom(spec: str, kind: str = "Gateway", version: str = "example.org/v1") -> str:
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: web}}\n{spec}\n"


@pytest.mark.req("MF-012")
@pytest.mark.parametrize(
    "spec",
    [
        "spec: {image: 'r.example/a:1'}",
        "spec: {proxyImage: 'envoy:v1.30'}",
        "spec: {sidecar: {imageName: r.example/a}}",
        f"spec: {{image: 'web@sha256:{'a' * 64}'}}",
        "spec: {parts: [{image: {repository: r.example/a, tag: '1'}}, {image: 'b:1'}]}",
        "spec: {image: 'r.example/a:1', containers: [{name: s, image: 'r.example/a:1'}]}",
    ],
)
def test_something_like_an_image_in_an_unknown_kind_is_said_once(spec: str) -> None:
    """An error with --require; a line of the configuration silences it."""
    text = custom(spec)
    found = [each for each in problems(text, AMD) if each.finding.rule == "MA905"]
    assert [each.finding.severity for each in found] == [Severity.INFO]
    required = problems(text, AMD, require=(NodePlatform("linux", "arm64"),))
    assert rule(required, "MA905").finding.severity is Severity.ERROR


@pytest.mark.req("MF-012")
@pytest.mark.parametrize(
    "text",
    [
        custom("spec: {backgroundImage: /img/sky.png, image: https://x.example/a.png}"),
        custom("spec: {image: a picture, logo: 'r.example/a:1', imagePullPolicy: Always}"),
        custom("spec: {image: '{{ .image }}:1'}"),
        custom("data: {image: 'r.example/a:1'}", "ConfigMap", "v1"),
        custom("images: [{name: a, newName: 'r.example/a'}]", "Kustomization", "kustomize.config.k8s.io/v1beta1"),
        custom(
            "spec: {tags: [{from: {kind: DockerImage, name: 'r.example/a:1'}}]}", "ImageStream", "image.openshift.io/v1"
        ),
        custom("nodes: [{role: worker, image: 'kindest/node:v1.35.1'}]", "Cluster", "kind.x-k8s.io/v1alpha4"),
        "image: r.example/a:1\nreplicas: 2\n",
    ],
)
def test_what_is_no_image_or_runs_nowhere_is_not_mentioned(text: str) -> None:
    assert names(problems(text, AMD)) == []


@pytest.mark.req("MF-011")
def test_a_pod_spec_patch_is_said_once_and_nothing_else_of_constraints() -> None:
    text = custom(
        "spec: {nodeSelector: {kubernetes.io/arch: arm64}, podSpecPatch: '{}', "
        "templates: [{name: a, container: {image: 'r.example/a:1'}}, {name: b, container: {image: 'r.example/a:1'}}]}",
        "Workflow",
        "argoproj.io/v1alpha1",
    )
    assert names(problems(text, AMD)) == ["MA905/patched"]


@pytest.mark.req("MF-012")
@pytest.mark.parametrize(
    "text",
    [
        "type: Microsoft.App/containerApps\nproperties: {containers: [{name: a, image: 'r.example/a:1'}]}\n",
        "apiVersion: 2019-12-01\nproperties: {containers: [{name: a, image: 'r.example/a:1'}]}\n",
        "version: '2.4'\ncontainers: [{name: a, image: 'r.example/a:1'}]\n",
        "image: {repository: a}\ninitContainers: []\ncontainers:\n- {name: x, image: 'r.example/a:1'}\n",
        '{"family": "x", "containers": [{"name": "a", "image": "r.example/a:1"}]}\n',
    ],
)
def test_containers_outside_of_kubernetes_objects_get_no_affinity(text: str) -> None:
    """Their images are looked at all the same."""
    assert names(problems(text, AMD)) == []
    assert names(problems(text, AMD, require=(NodePlatform("linux", "arm64"),))) == ["MA002"]


INNER = "{apiVersion: v1, kind: Pod, spec: {containers: [{name: a, image: 'r.example/a:1'}]}}"


@pytest.mark.req("MF-012")
@pytest.mark.parametrize(
    "text",
    [
        f"- hosts: all\n  tasks: [{{k8s: {{definition: {INNER}}}}}]\n",
        custom(f"spec: {{forProvider: {{manifest: {INNER}}}}}", "Object", "kubernetes.crossplane.io/v1alpha2"),
        custom(
            "spec: {resources: [{base: {apiVersion: argoproj.io/v1alpha1, kind: Workflow, spec: {containers: [], "
            "templates: [{name: a, container: {image: 'r.example/a:1'}}]}}}]}",
            "Composition",
            "apiextensions.crossplane.io/v1",
        ),
        "nodeSelector: {kubernetes.io/os: linux}\ncontainers: [{name: a, image: 'r.example/a:1'}]\n",
    ],
)
def test_objects_inside_of_others_are_checked(text: str) -> None:
    assert names(problems(text, AMD)) == ["MA101"]


# Pods of one object that share a pod template -------------------------------------------------------------------------


PIPELINE = """apiVersion: tekton.dev/v1
kind: PipelineRun
metadata: {name: r}
spec:
  pipelineSpec:
    tasks:
    - {name: one, taskSpec: {steps: [{name: s, image: "r.example/a:1"}]}}
    - {name: two, taskSpec: {steps: [{name: s, image: "r.example/IMAGE:1"}]}}
"""


@pytest.mark.req("MF-053")
def test_tasks_that_share_a_pod_template_are_fixed_together_or_not_at_all() -> None:
    """Two architectures are two pods; one template cannot require both."""
    images = {**AMD, "r.example/b:1": ["linux/amd64"], "r.example/arm:1": ["linux/arm64"]}
    same = SourceText.of("web.yaml", PIPELINE.replace("IMAGE", "b").encode())
    after = yaml.safe_load(fix(same, answers(images), FixRequest()).text)
    assert "affinity" in after["spec"]["taskRunTemplate"]["podTemplate"]
    text = PIPELINE.replace("IMAGE", "arm")
    assert names(problems(text, images)) == ["MA101", "MA101"]
    result = fix(SourceText.of("web.yaml", text.encode()), answers(images), FixRequest())
    assert not result.changed
    assert all("which needs a different change" in each.note for each in result.refused)


@pytest.mark.req("MF-011")
def test_a_template_inherits_where_its_node_selector_is_empty() -> None:
    """As Argo's controller does; its affinity is its own if there is one at all."""
    text = custom(
        "spec: {nodeSelector: {kubernetes.io/arch: arm64, kubernetes.io/os: linux}, "
        "templates: [{name: a, nodeSelector: {}, container: {image: 'r.example/a:1'}}]}",
        "Workflow",
        "argoproj.io/v1alpha1",
    )
    assert names(problems(text, AMD)) == ["MA104"]


@pytest.mark.req("MF-052")
def test_what_is_inherited_counts_before_architectures_are_replaced() -> None:
    """Its own architecture would be replaced in vain: the workflow's affinity admits no node at all."""
    nowhere = {"key": "kubernetes.io/os", "operator": "NotIn", "values": ["linux", "windows"]}
    text = custom(
        f"spec: {{affinity: {requiring(nowhere)}, templates: [{{name: a, "
        "nodeSelector: {kubernetes.io/arch: s390x}, container: {image: 'r.example/a:1'}}]}",
        "Workflow",
        "argoproj.io/v1alpha1",
    )
    result = fix(SourceText.of("web.yaml", text.encode()), answers(AMD), FixRequest(options=LintOptions(fixes=ALL)))
    assert (result.changed, result.unproven) == (False, None)
    assert {each.finding.rule for each in result.refused} >= {"MA104"}


@pytest.mark.req("MF-053")
def test_an_image_that_an_operator_adds_makes_the_platforms_inexact() -> None:
    text = custom(
        "spec: {nodeSelector: {kubernetes.io/arch: amd64, kubernetes.io/os: linux}, "
        "containers: [{name: s, image: 'r.example/two:1'}]}",
        "Prometheus",
        "monitoring.coreos.com/v1",
    )
    two = {"r.example/two:1": ["linux/amd64", "linux/arm64"]}
    assert names(problems(text, two)) == []
    (found,) = problems(
        text.replace("spec: {nodeSelector: {kubernetes.io/arch: amd64, kubernetes.io/os: linux}, ", "spec: {"), two
    )
    assert found.repair is not None
    assert "the image that the operator takes without spec.image" in found.repair.note


@pytest.mark.req("MF-001")
def test_an_image_of_a_trigger_is_told_from_a_missing_one() -> None:
    trigger = "metadata: {annotations: {image.openshift.io/triggers: '[]'}}\n"
    text = "kind: Deployment\n" + trigger + "spec: {template: {spec: {containers: [{name: a, image: ' '}]}}}\n"
    file = scanned(text)
    (found,) = lint(file, answers({}), LintOptions())
    assert "by an ImageChange trigger" in found.finding.message
    (found,) = lint(scanned(text.replace(trigger, "")), answers({}), LintOptions())
    assert "names no image" in found.finding.message


@pytest.mark.req("MF-012")
def test_items_of_a_list_have_its_kind_where_they_name_none() -> None:
    """As an API server prints them: ``kubectl get --raw``."""
    item = "{metadata: {name: web}, spec: {containers: [{name: a, image: amd:1}]}}"
    for version, kind, spec in (("v1", "PodList", item), ("apps/v1", "DeploymentList", None)):
        text = item if spec else item.replace("spec: ", "spec: {template: {spec: ") + "}}"
        (found,) = problems(f"apiVersion: {version}\nkind: {kind}\nitems:\n- {text}\n", {"amd:1": ["linux/amd64"]})
        assert found.finding.rule == "MA101"
        assert str(found.finding.object) == f"{kind.removesuffix('List')} web"
        assert found.finding.fixable
    for items in ("null", "[null, 5, {}]", "{}"):
        assert names(problems(f"apiVersion: v1\nkind: PodList\nitems: {items}\n# image\n", {})) == []


@pytest.mark.req("MF-011")
@pytest.mark.parametrize(
    ("kind", "spec"),
    [
        ("Task", "steps: [{name: a, image: amd:1}]"),
        ("Task", "stepTemplate: {image: amd:1}, steps: [{name: a}]"),
        ("ClusterTask", "sidecars: [{name: s, image: amd:1}], steps: [{name: a, image: two:1}]"),
        ("Pipeline", "tasks: [{name: t, taskSpec: {steps: [{name: a, image: amd:1}]}}]"),
        ("StepAction", "image: amd:1"),
    ],
)
def test_a_task_that_does_not_run_everywhere_is_said_without_anything_being_required(kind: str, spec: str) -> None:
    images = {"amd:1": ["linux/amd64"], "two:1": ["linux/amd64", "linux/arm64", "linux/ppc64le", "linux/s390x"]}
    text = f"apiVersion: tekton.dev/v1beta1\nkind: {kind}\nmetadata: {{name: build}}\nspec: {{{spec}}}\n"
    (found,) = problems(text, images)
    assert (found.finding.rule, found.finding.severity, found.finding.fixable) == ("MA101", Severity.INFO, False)
    assert "amd:1 has only linux/amd64" in found.finding.message
    assert "from the runs that use it" in found.finding.message
    assert names(problems(text.replace("amd:1", "two:1"), images)) == []
    assert problems(text, images, platforms=(NodePlatform("linux", "amd64"),)) == ()


@pytest.mark.req("MF-020")
def test_where_a_constraint_is_invalid_no_other_rule_speaks_of_it() -> None:
    wrong = {"nodeSelector": {"kubernetes.io/arch": True}, "affinity": requiring(arch(values=["x86_64"]))}
    assert set(names(problems(pod(**wrong), AMD))) == {"MA118"}
    wrong = {"nodeSelector": {"beta.kubernetes.io/arch": "amd64"}, "affinity": requiring(arch(operator="in"))}
    assert set(names(problems(pod(**wrong), AMD))) == {"MA118"}
