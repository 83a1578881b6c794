"""What is found in a file."""

from typing import Any

import pytest
import yaml

from polyarch.manifests.finding import Finding, Severity
from polyarch.manifests.rules.catalogue import DOCUMENT_RULES
from polyarch.manifests.scan.nodes import compose
from polyarch.manifests.scan.scanning import (
    ImageEntry,
    Kustomization,
    Kustomizations,
    Scan,
    read_kustomization,
    resolve,
    scan,
    worth_reading,
)
from polyarch.manifests.scan.text import SourceText

POD = "containers: [{name: web, image: web:1}]"


def scanned(text: str, path: str = "web.yaml", **options: Any) -> Scan:
    return scan(SourceText.of(path, text.encode()), **options)


def problems(found: Scan) -> list[Finding]:
    """What the rules on documents say of a file: MA901 and MA902."""
    return [problem for rule in DOCUMENT_RULES for problem in rule.check(found)]


def manifest(kind: str, body: Any) -> str:
    return yaml.safe_dump({"apiVersion": "example.org/v1", "kind": kind, "metadata": {"name": "web"}, **body})


def nested(path: str, leaf: Any) -> Any:
    """``a.b[].c`` around a value; ``[]`` makes a list."""
    for part in reversed(path.split(".")):
        leaf = {part.removesuffix("[]"): [leaf] if part.endswith("[]") else leaf}
    return leaf


BARE = {"containers": [{"name": "web"}]}  # without an image: found by its place, not by its shape


@pytest.mark.req("MF-011")
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Pod", "spec"),
        ("PodTemplate", "template.spec"),
        ("ReplicationController", "spec.template.spec"),
        ("ReplicaSet", "spec.template.spec"),
        ("Deployment", "spec.template.spec"),
        ("StatefulSet", "spec.template.spec"),
        ("DaemonSet", "spec.template.spec"),
        ("Job", "spec.template.spec"),
        ("DeploymentConfig", "spec.template.spec"),
        ("Rollout", "spec.template.spec"),
        ("CloneSet", "spec.template.spec"),
        ("CronJob", "spec.jobTemplate.spec.template.spec"),
        ("ClusterServiceVersion", "spec.install.spec.deployments[].spec.template.spec"),
        ("JobSet", "spec.replicatedJobs[].template.spec.template.spec"),
        ("LeaderWorkerSet", "spec.leaderWorkerTemplate.leaderTemplate.spec"),
        ("LeaderWorkerSet", "spec.leaderWorkerTemplate.workerTemplate.spec"),
        ("Service", "spec.template.spec"),
        ("PyTorchJob", "spec.pytorchReplicaSpecs.Worker.template.spec"),
    ],
)
def test_pod_specifications_stand_where_their_kind_has_them(kind: str, path: str) -> None:
    """Whatever the group, and also when a container has no image."""
    text = f"image: x\n{manifest(kind, nested(path, BARE))}"
    (pod_spec,) = scanned(text).pod_specs
    assert pod_spec.pointer == "/" + path.replace("[]", "/0").replace(".", "/")
    assert [(image.text, image.role, image.container) for image in pod_spec.images] == [("", "container", "web")]
    assert (pod_spec.object.kind, pod_spec.object.name) == (kind, "web")


@pytest.mark.req("MF-011")
def test_a_core_service_has_no_pods() -> None:
    """Knative's Service has the kind of another thing."""
    assert scanned("kind: Service\nspec: {selector: {image: x}}\n").pod_specs == ()


@pytest.mark.req("MF-011")
def test_lists_of_any_kind_hold_objects() -> None:
    """Any kind that ends in List, to any depth."""
    text = (
        f"kind: List\nitems:\n- kind: Pod\n  metadata: {{name: a}}\n  spec: {{{POD}}}\n"
        f"- kind: PodList\n  items:\n  - kind: Pod\n    metadata: {{name: b}}\n    spec: {{{POD}}}\n"
    )
    found = scanned(text)
    assert [(each.name, each.pointer) for each in found.objects] == [("a", "/items/0"), ("b", "/items/1/items/0")]
    assert [each.pointer for each in found.pod_specs] == ["/items/0/spec", "/items/1/items/0/spec"]


@pytest.mark.req("MF-011")
def test_a_kind_that_ends_in_list_without_items_is_an_object() -> None:
    """An access list, say, is nothing but its kind's name."""
    (found,) = scanned("kind: AccessList\nmetadata: {name: image}\n").objects
    assert found.kind == "AccessList"


WORKFLOW = """kind: Workflow
metadata: {generateName: build-}
spec:
  nodeSelector: {kubernetes.io/arch: arm64}
  affinity: {nodeAffinity: {}}
  templates:
  - name: steps
    steps: []
  - name: one
    nodeSelector: {kubernetes.io/os: linux}
    container: {image: one:1}
    initContainers: [{name: i, image: init:1}]
    sidecars: [{name: s, image: side:1}]
  - name: two
    script: {image: two:1, source: x}
  - name: set
    containerSet: {containers: [{name: a, image: a:1}, {name: b, image: b:1}]}
"""


@pytest.mark.req("MF-011")
def test_each_template_of_a_workflow_is_a_pod() -> None:
    """Argo's affinity and node selector are the template's, else the workflow's."""
    found = scanned(WORKFLOW).pod_specs
    assert [(each.pointer, [image.text for image in each.images]) for each in found] == [
        ("/spec/templates/1", ["one:1", "init:1", "side:1"]),
        ("/spec/templates/2", ["two:1"]),
        ("/spec/templates/3", ["a:1", "b:1"]),
    ]
    assert [[(entry.value, entry.pointer) for entry in each.node_selector] for each in found[:2]] == [
        [("linux", "/spec/templates/1/nodeSelector/kubernetes.io~1os")],
        [("arm64", "/spec/nodeSelector/kubernetes.io~1arch")],
    ]
    assert [each.node_affinity[1] for each in found] == ["/spec/affinity/nodeAffinity"] * 3
    assert [image.pointer for image in found[2].images][1] == "/spec/templates/3/containerSet/containers/1/image"
    assert found[0].images[1].role == "init"


@pytest.mark.req("MF-012")
def test_a_custom_resource_beside_a_workflow_is_found() -> None:
    """The templates of workflows do without the word that others are counted by."""
    web = {"kind": "Web", "pod": {"containers": [{"name": "w", "image": "w:1"}]}}
    text = yaml.safe_dump({"kind": "List", "items": [yaml.safe_load(WORKFLOW), web]})
    assert [each.pointer for each in scanned(text).pod_specs][-1] == "/items/1/pod"


@pytest.mark.req("MF-011")
def test_a_cron_workflow_has_its_templates_deeper() -> None:
    """CronWorkflow."""
    template = nested("spec.workflowSpec.templates[]", {"container": {"image": "x:1"}})
    (found,) = scanned(manifest("CronWorkflow", template)).pod_specs
    assert found.pointer == "/spec/workflowSpec/templates/0"


@pytest.mark.req("MF-011")
@pytest.mark.parametrize("path", ["podTemplate", "taskRunTemplate.podTemplate"])
def test_the_pod_template_of_a_pipeline_holds_for_its_steps(path: str) -> None:
    """Tekton; steps of tasks that are only referred to are not in the text."""
    tasks = [{"taskSpec": {"steps": [{"image": "a:1"}], "sidecars": [{"image": "b:1"}]}}, {"taskRef": {"name": "x"}}]
    spec = {"pipelineSpec": {"tasks": tasks}, **nested(path, {"nodeSelector": {"kubernetes.io/arch": "arm64"}})}
    (found,) = scanned(manifest("PipelineRun", {"spec": spec})).pod_specs
    assert found.pointer == "/spec/" + path.replace(".", "/")
    assert [image.text for image in found.images] == ["a:1", "b:1"]
    assert [entry.value for entry in found.node_selector] == ["arm64"]


@pytest.mark.req("MF-012")
def test_any_mapping_of_the_shape_is_a_pod_specification() -> None:
    """A list of containers of which each has a name and an image."""
    text = (
        f"apiVersion: example.org/v1\nkind: Web\nspec:\n  pod: {{{POD}}}\n"
        "  not: {containers: [{name: a, image: b}, {name: c}]}\n"
        "  nor: {containers: []}\n  names: {containers: [a, b]}\n  text: {containers: web}\n"
    )
    found = scanned(text)
    assert [(each.pointer, each.object.kind) for each in found.pod_specs] == [("/spec/pod", "Web")]


@pytest.mark.req("MF-012")
def test_a_text_without_a_kind_is_searched_too() -> None:
    """A values file, or a list of things."""
    assert [each.pointer for each in scanned(f"a:\n- b: {{{POD}}}\n").pod_specs] == ["/a/0/b"]
    assert [each.pointer for each in scanned(f"- {{{POD}}}\n").pod_specs] == ["/0"]


@pytest.mark.req("MF-012")
def test_a_pod_specification_is_reported_once_by_its_node() -> None:
    """Known place, shape and aliases lead to the same text; every use is known."""
    text = f"kind: Deployment\nspec:\n  template:\n    spec: &pod\n      {POD}\n  other: *pod\n"
    (found,) = scanned(text).pod_specs
    assert found.pointer == "/spec/template/spec"
    assert found.uses == ("/spec/template/spec", "/spec/other")


@pytest.mark.req("MF-012")
def test_shared_containers_make_a_pod_of_each_mapping() -> None:
    """The list is one text, the pod specifications are two; a merge key brings containers too."""
    shared = "kind: Web\na: {containers: &c [{name: web, image: web:1}]}\nb: {containers: *c}\n"
    assert [each.pointer for each in scanned(shared).pod_specs] == ["/a", "/b"]
    merged = f"kind: Pod\nbase: &base {{{POD}}}\nspec: {{<<: *base, restartPolicy: Never}}\n"
    found = scanned(merged).pod_specs
    assert [each.pointer for each in found] == ["/base", "/spec"]
    assert [each.images[0].text for each in found] == ["web:1", "web:1"]


@pytest.mark.req("MF-012")
def test_pod_specifications_come_in_the_order_of_the_text() -> None:
    """Also where one is found by its kind and the other by its shape."""
    text = f"kind: Pod\nmetadata: {{x: {{{POD}}}}}\nspec: {{{POD}}}\n"
    assert [each.pointer for each in scanned(text).pod_specs] == ["/metadata/x", "/spec"]


IMAGES = """kind: Pod
spec:
  volumes:
  - name: data
    image: {reference: data:1}
  - name: other
    emptyDir: {}
  ephemeralContainers: [{name: debug, image: debug:1}]
  containers:
  - {name: a, image: a:1}
  - {name: b, image: "$(REGISTRY)/b:1"}
  - {name: c, image: ""}
  - {name: d}
  initContainers: [{name: init, image: init:1, restartPolicy: Always}]
"""


@pytest.mark.req("MF-005")
def test_images_of_all_containers_and_volumes_are_looked_at() -> None:
    """In the order of fields; what is missing is an empty text with a place."""
    (found,) = scanned(IMAGES).pod_specs
    assert [(image.text, image.role, image.container, image.pointer) for image in found.images] == [
        ("a:1", "container", "a", "/spec/containers/0/image"),
        ("$(REGISTRY)/b:1", "container", "b", "/spec/containers/1/image"),
        ("", "container", "c", "/spec/containers/2/image"),
        ("", "container", "d", "/spec/containers/3/image"),
        ("init:1", "init", "init", "/spec/initContainers/0/image"),
        ("debug:1", "ephemeral", "debug", "/spec/ephemeralContainers/0/image"),
        ("data:1", "volume", "data", "/spec/volumes/0/image/reference"),
    ]
    lines = [found.document.span(image.node).line for image in found.images]
    assert lines == [10, 11, 12, 13, 14, 8, 5]


AFFINITY = """kind: Pod
spec:
  os: {name: linux}
  containers: [{name: a, image: a:1}]
  tolerations: [{key: x}]
  nodeSelector: {kubernetes.io/arch: amd64, number: 1}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
        - matchExpressions:
          - {key: kubernetes.io/arch, operator: In, values: [amd64, 386]}
          - {operator: Exists}
        - null
        - {matchFields: [{key: metadata.name, operator: In, values: [n]}]}
        - {}
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 5
        preference: {matchExpressions: [{key: a, operator: Exists}]}
      - matchExpressions: [{key: b, operator: Exists}]
"""


def test_what_a_pod_asks_of_nodes_is_represented_as_it_is_written() -> None:
    (found,) = scanned(AFFINITY).pod_specs
    assert [(entry.key, entry.value) for entry in found.node_selector] == [
        ("kubernetes.io/arch", "amd64"),
        ("number", "1"),
    ]
    required = found.required
    assert required is not None
    assert required.terms_pointer.endswith("/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms")
    assert [term.is_empty for term in required.terms] == [False, True, False, True]
    first, second = required.terms[0].expressions
    assert (first.key, first.operator, first.values) == ("kubernetes.io/arch", "In", ("amd64", "386"))
    assert (second.key, second.operator, second.key_node) == ("", "Exists", None)
    assert first.pointer == required.pointer + "/nodeSelectorTerms/0/matchExpressions/0"
    assert [expression.values for expression in required.terms[2].fields] == [("n",)]
    good, bare = found.preferred
    assert (good.weight, good.bare) == ("5", None)
    assert good.preference is not None
    assert good.preference.expressions[0].pointer.endswith("/0/preference/matchExpressions/0")
    assert (bare.weight, bare.preference) == (None, None)
    assert bare.bare is not None
    assert bare.bare.expressions[0].key == "b"
    assert (found.os_name, len(found.tolerations)) == ("linux", 1)


@pytest.mark.parametrize(
    ("affinity", "terms"),
    [
        ("", None),
        ("affinity: ", None),
        ("affinity: {nodeAffinity: {}}", None),
        ("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: }}", None),
        ("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}", 0),
        ("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [null]}}}", 1),
    ],
)
def test_a_requirement_without_terms_differs_from_none(affinity: str, terms: int | None) -> None:
    (found,) = scanned(f"kind: Pod\nspec:\n  containers: [{{name: a, image: a:1}}]\n  {affinity}\n").pod_specs
    assert (None if found.required is None else len(found.required.terms)) == terms


@pytest.mark.req("MF-013")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("{{- if .Values.web }}\nkind: Pod\nimage: x\n{{- end }}\n", id="helm"),
        pytest.param(f"kind: Pod\nname: {{{{ .Values.name }}}}\nspec: {{{POD}}}\n", id="unquoted value"),
        pytest.param(f"spec: {{{POD}}}\n{{{{ .Values.key }}}}: x\n", id="unquoted key"),
        pytest.param("image: x\n{% for x in y %}\na: b\n{% endfor %}\n", id="jinja"),
        pytest.param("image: x\n<% if x %>\na: b\n", id="erb"),
        pytest.param("kind: Pod\nimage: x\n---\na: {{ x }}\n", id="another document of the file"),
    ],
)
def test_templates_are_told_and_never_guessed(text: str) -> None:
    """MA901 and nothing else from the file."""
    found = scanned(text)
    (problem,) = problems(found)
    assert (problem.rule, problem.severity, found.template is not None) == ("MA901", Severity.INFO, True)
    assert found.source.text[problem.span.start :].startswith(("{{", "{%", "<%"))
    assert (found.objects, found.pod_specs) == ((), ())
    assert "helm template" in problem.hint


@pytest.mark.req("MF-013")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("# {{ .x }}\nimage: x\n a: [\n", id="a line"),
        pytest.param("image: x # {% y %}\n\ta: b\n", id="behind a value"),
        pytest.param("image: x\r\n# <% y %>\r\na: [\r\n", id="CR LF"),
    ],
)
def test_a_mark_in_a_comment_makes_no_template_of_what_does_not_parse(text: str) -> None:
    """MA902: a mistake is told as one, and fails the run."""
    found = scanned(text)
    assert [(each.rule, each.sub) for each in problems(found)] == [("MA902", "syntax")]
    assert found.template is None


@pytest.mark.req("MF-013")
def test_a_mark_in_a_comment_makes_no_template_of_a_mapping_as_key() -> None:
    """Other marks than those of comments would."""
    text = f"# {{{{ .x }}}}\n{{a: b}}: c\nspec: {{{POD}}}\n"
    assert (len(scanned(text).pod_specs), scanned(text).template) == (1, None)
    assert scanned(text.replace(": c\n", ": '{{ .y }}'\n")).template is not None


@pytest.mark.req("MF-013")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("a: '{{ .x }}'", id="single quotes"),
        pytest.param('a: "{% x %}"', id="double quotes"),
        pytest.param("a: |\n  {{ .x }}", id="block scalar"),
        pytest.param("a: b {{ .x }} <% y %>", id="inside a plain scalar"),
        pytest.param("a: <% x %>", id="a plain scalar that begins with a mark"),
        pytest.param("# {{ .x }}\na: b", id="comment"),
        pytest.param("a: {b: {c: d}}", id="nested flow mappings"),
    ],
)
def test_marks_inside_texts_are_fine(text: str) -> None:
    """A scalar may contain what it likes."""
    found = scanned(f"kind: Pod\n{text}\nspec: {{{POD}}}\n")
    assert (problems(found), len(found.pod_specs)) == ([], 1)


@pytest.mark.req("MF-013")
def test_the_origin_is_shown_beside_the_place() -> None:
    """What helm and kustomize write into their output."""
    text = (
        f"---\n# Source: shop/templates/web.yaml\nkind: Pod\nspec: {{{POD}}}\n"
        f"---\nkind: Pod\nspec: {{{POD}}}\n"
        "---\nkind: Pod\nmetadata:\n  annotations:\n    config.kubernetes.io/origin: |\n      path: base/web.yaml\n"
    )
    assert [each.origin for each in scanned(text).objects] == [
        "shop/templates/web.yaml",
        "",
        "path: base/web.yaml",
    ]


def test_what_does_not_parse_is_one_finding_with_its_place() -> None:
    """MA902: line, column, problem."""
    found = scanned(f"kind: Pod\nspec: {{{POD}}}\n---\n\ta: b: c\n")
    (problem,) = problems(found)
    assert (problem.rule, problem.sub, problem.severity) == ("MA902", "syntax", Severity.ERROR)
    assert (problem.span.line, problem.span.column) == (4, 1)
    assert "line 4, column 1" in problem.message
    assert found.template is None
    assert found.pod_specs == ()


@pytest.mark.req("MF-053")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param(f"kind: Pod\nspec: {{}}\nspec:\n  {POD}\n", 3, id="on the way"),
        pytest.param(f"kind: Pod\nspec:\n  {POD}\n  nodeSelector: {{}}\n  nodeSelector: {{}}\n", 5, id="in it"),
        pytest.param("kind: Pod\nspec:\n  containers:\n  - name: a\n    image: b\n    image: c\n", 6, id="container"),
        pytest.param(f"kind: Pod\nspec:\n  {POD}\n  nodeSelector:\n    a: b\n    a: c\n", 6, id="node selector"),
        pytest.param(f"kind: Pod\nspec:\n  {POD}\n  affinity:\n    x: [{{a: 1,\n      a: 2}}]\n", 6, id="affinity"),
    ],
)
def test_a_repeated_key_around_a_pod_specification_is_an_error(text: str, line: int) -> None:
    """MA902 ``duplicate-key``: parsers disagree about which one counts; MF-053: it is not edited."""
    found = scanned(text)
    (problem,) = problems(found)
    assert (problem.rule, problem.sub, problem.span.line) == ("MA902", "duplicate-key", line)
    assert all(pod_spec.duplicates for pod_spec in found.pod_specs)


def test_a_repeated_label_of_a_bundle_is_an_error() -> None:
    """MA902 ``duplicate-key``: the bundle promises by its labels."""
    labels = "    operatorframework.io/arch.arm64: supported\n"
    text = f"kind: ClusterServiceVersion\nmetadata:\n  name: op\n  labels:\n{labels}{labels}"
    (problem,) = problems(scanned(text))
    assert (problem.rule, problem.sub, problem.span.line, problem.path) == (
        "MA902", "duplicate-key", 6, "/metadata/labels"
    )  # fmt: skip


def test_a_repeated_key_elsewhere_is_nobodys_business() -> None:
    assert problems(scanned(f"kind: Pod\nmetadata: {{labels: {{a: 1, a: 2}}}}\nspec: {{{POD}}}\n")) == []


@pytest.mark.req("MF-014")
@pytest.mark.parametrize(
    ("entry", "image", "resolved"),
    [
        (ImageEntry("web", new_name="quay.io/acme/web"), "web:1", "quay.io/acme/web:1"),
        (ImageEntry("web", new_tag="2"), "web:1", "web:2"),
        (ImageEntry("web", new_tag="2"), "web", "web:2"),
        (ImageEntry("web", new_tag="2"), "web@sha256:abc", "web:2"),
        (ImageEntry("web", digest="sha256:def"), "web:1", "web@sha256:def"),
        (ImageEntry("web", new_tag="2", digest="sha256:def"), "web:1", "web:2@sha256:def"),
        (ImageEntry("web", new_name="x", new_tag="2"), "web:1@sha256:abc", "x:2"),
        (ImageEntry("web", new_name="x"), "web:1@sha256:abc", "x:1@sha256:abc"),
        (ImageEntry("web", tag_suffix="-alpine"), "web:1", "web:1-alpine"),
        (ImageEntry("web", tag_suffix="-alpine", new_name="x"), "web:1@sha256:abc", "x:1-alpine"),
        (ImageEntry("web", tag_suffix="-alpine"), "web", "web:-alpine"),
        (ImageEntry("web", tag_suffix="-alpine", new_tag="2"), "web:1", "web:2"),
        (ImageEntry("web", tag_suffix="-alpine", digest="sha256:def"), "web:1", "web@sha256:def"),
        (ImageEntry("web", new_name="x"), "webs:1", "webs:1"),
        (ImageEntry("web", new_name="x"), "quay.io/web:1", "quay.io/web:1"),
        (ImageEntry("we.", new_name="x"), "web:1", "web:1"),
    ],
)
def test_images_of_a_kustomization_are_applied_as_kustomize_does(entry: ImageEntry, image: str, resolved: str) -> None:
    """newName, newTag, digest, tagSuffix; a new tag or digest replaces both and keeps the suffix out."""
    assert entry.apply(image) == resolved


KUSTOMIZATION = """apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
images:
- name: web
  newName: quay.io/acme/web
- {name: quay.io/acme/web, newTag: 5}
- {name: side, tagSuffix: -alpine}
- newTag: nothing
"""


@pytest.mark.req("MF-014")
def test_the_nearest_kustomization_upward_counts() -> None:
    """For what is asked of registries; the text keeps its name."""
    kustomization = read_kustomization(compose(SourceText.of("base/kustomization.yaml", KUSTOMIZATION.encode())))
    assert [each.tag_suffix for each in kustomization.images] == ["", "", "-alpine"]
    found = Kustomizations({"base": kustomization, "base/far": Kustomization()})
    paths = ["base/web.yaml", "base/deep/er/web.yaml", "base/far/web.yaml", "web.yaml"]
    seen = [scanned(f"kind: Pod\nspec: {{{POD}}}\n", path, kustomizations=found).pod_specs[0] for path in paths]
    assert [each.images[0].resolved_text for each in seen] == ["quay.io/acme/web:5"] * 2 + ["web:1"] * 2
    assert {each.images[0].text for each in seen} == {"web:1"}
    for folder, path in (("", "web.yaml"), ("/t", "/t/a/web.yaml")):
        entries = Kustomizations({folder: kustomization}).entries_for(path)
        assert resolve("web:1", entries) == "quay.io/acme/web:5"


DEFINITION = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nspec:\n  image:\n    type: string\n"


@pytest.mark.req("MF-015")
@pytest.mark.parametrize(
    ("data", "worth"),
    [
        (b"kind: ConfigMap\ndata: {a: b}\n", False),
        (b"kind: Pod\nspec: {containers: [{image: x}]}\n", True),
        (b"spec: {nodeSelector: {}}\n", True),
        (b"kind: Subscription\n", True),
        (b"operatorframework.io/arch.arm64: supported\n", True),
        (b"kind: PodPlacementConfig\n", True),
        (DEFINITION.encode(), False),
        (b'{\n  "kind": "CustomResourceDefinition",\n  "image": {}\n}\n', False),
        (DEFINITION.encode() + b"  default: {image: quay.io/x}\n", True),
        (DEFINITION.encode() + b"---\nkind: Pod\n", True),
        (b"description: a CustomResourceDefinition of an image\n", True),
        ("\ufeffkind: ConfigMap".encode("utf-16-le"), True),
    ],
)
def test_bytes_tell_whether_a_file_matters(data: bytes, worth: bool) -> None:
    """What has none of the words is not parsed; a UTF-16 file is read in order to be refused."""
    assert worth_reading(data) is worth


@pytest.mark.req("MF-015")
def test_a_resource_definition_is_not_parsed() -> None:
    """Beside it, other documents are; its number is counted."""
    found = scanned(f"{DEFINITION}  broken: [\n---\nkind: Pod\nspec: {{{POD}}}\n")
    assert problems(found) == []
    assert [(each.document.index, each.kind) for each in found.objects] == [(1, "Pod")]
    assert found.document(1) is found.documents[0]


@pytest.mark.req("MF-093")
def test_a_file_of_megabytes_is_a_finding_with_the_limit() -> None:
    """Beyond the limit there is MA902."""
    (problem,) = problems(scan(SourceText("big.yaml", "", size=65 * 1024 * 1024)))
    assert (problem.rule, problem.sub) == ("MA902", "syntax")
    assert "67108864" in problem.message
