"""``polyarch explain -f``: what would become of manifests, from files alone."""

import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from polyarch.cli import main
from polyarch.cli.explain import explain as deciding
from polyarch.cli.explain.pods import GivenPod, SeenPod, configuration_from
from polyarch.images.node_templates import KINDS as TEMPLATE_KINDS
from polyarch.kube.patches import Operation, apply_patch
from polyarch.objects import Pod
from polyarch.oci.auth.credential_stores import NoCredentials
from polyarch.placement import names

ANSWERS = {
    "web:1": ["linux/amd64", "linux/arm64"],
    "side:1": ["linux/arm64", "linux/s390x"],
    "amd:1": {"platforms": ["linux/amd64"], "kind": "image"},
    "z:1": {"platforms": ["linux/s390x"], "kind": "image"},
    "gone:1": {"error": "not-found"},
    "away:1": {"error": "network"},
    "old:1": {"unknown": True},
    "latest": ["linux/amd64", "linux/arm64"],
    "small:1": ["linux/386"],
}


def pod(*images: str, name: str = "app", **metadata: Any) -> dict[str, Any]:
    containers = [{"name": f"c{at}", "image": image} for at, image in enumerate(images)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **metadata},
        "spec": {"containers": containers, "futureField": {"a": 1}},
    }


def policy(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "polyarch.dev/v1alpha1",
        "kind": "PlacementPolicy",
        "metadata": {"name": "cluster"},
        "spec": spec,
    }


def cppc(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "multiarch.openshift.io/v1beta1",
        "kind": "ClusterPodPlacementConfig",
        "metadata": {"name": "cluster"},
        "spec": spec,
    }


class Explained:
    """One run of the command."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def pods(self) -> list[dict[str, Any]]:
        document = json.loads(self.out)
        assert document["schemaVersion"] == "polyarch.dev/explain/v1"
        return document["pods"]


@pytest.fixture
def explain(tmp_path: Path, capsys, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    answers = tmp_path / "answers.yaml"
    answers.write_text(yaml.safe_dump(ANSWERS))

    def run(*documents: Any, objects: Any = (), args: tuple[str, ...] = ("-o", "json")) -> Explained:
        file = tmp_path / "manifests.yaml"
        file.write_text(
            documents[0] if isinstance(documents[0], str) else yaml.safe_dump_all(documents, sort_keys=False)
        )
        given = ["explain", "-f", str(file), "--platforms-file", str(answers), "--offline", *args]
        if objects:
            (tmp_path / "objects.yaml").write_text(yaml.safe_dump_all(objects))
            given += ["--objects", str(tmp_path / "objects.yaml")]
        code = main(given)
        captured = capsys.readouterr()
        return Explained(code, captured.out, captured.err)

    return run


def values(entry: dict[str, Any]) -> list[str] | None:
    after = entry["required"]["after"]
    return after["nodeSelectorTerms"][0]["matchExpressions"][0]["values"] if after else None


@pytest.mark.req("PL-731", "PL-732")
def test_a_pod_is_placed_as_the_webhook_would(explain):
    (entry,) = explain(pod("web:1", "side:1")).pods
    assert entry["path"] == "inline"
    assert entry["decision"]["reason"] == "ArchitecturesSet"
    assert values(entry) == ["arm64"]
    assert entry["required"]["before"] is None
    assert entry["labels"][names.SCHEDULING_GATE_LABEL] == "removed"
    assert entry["gates"] == []
    assert entry["events"] == []
    assert entry["next"] is None
    assert [image["platforms"] for image in entry["decision"]["images"]] == [
        ["linux/amd64", "linux/arm64"],
        ["linux/arm64", "linux/s390x"],
    ]


NULLS = {
    "terms": (
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: }}}",
        "InvalidPod",
    ),
    "a term": (
        "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [null]}}}",
        "ArchitectureAlreadyRequired",  # a term without expressions, which no node satisfies
    ),
    "a preference": (
        "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, preference: null}]}}",
        ["amd64", "arm64"],
    ),
    "a preferred term": (
        "affinity: {nodeAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [null]}}",
        ["amd64", "arm64"],
    ),
    "an expression": (
        (
            "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
            "[{matchExpressions: [null]}]}}}"
        ),
        "ArchitecturesSet",
    ),
    "affinity": ("affinity: ~", ["amd64", "arm64"]),
    "a label of the selector": ("nodeSelector: {disk: ~}", ["amd64", "arm64"]),
    "gates and tolerations": ("schedulingGates: [null]\n  tolerations: ~\n  volumes: [null]", ["amd64", "arm64"]),
    "containers of the start": ("initContainers: ~", ["amd64", "arm64"]),
}


@pytest.mark.req("PL-731")
@pytest.mark.parametrize(("members", "expected"), NULLS.values(), ids=NULLS)
@pytest.mark.parametrize("stage", ["admission", "controller"])
def test_null_is_read_as_the_api_server_reads_it(explain, members, expected, stage):
    """Charts whose values were left out render it, at any place; the texts are printed too."""
    text = f"""
kind: Pod
metadata: {{name: a, namespace: shop}}
spec:
  {members}
  containers: [{{name: a, image: "web:1"}}]
---
{yaml.safe_dump(pod("side:1", name="b"))}"""
    first, second = explain(text, args=("-o", "json", "--stage", stage)).pods
    assert values(second) == ["arm64", "s390x"]
    found = values(first) if isinstance(expected, list) else first["decision"]["reason"]
    assert found == expected
    assert "/b  (" in explain(text, args=("--stage", stage)).out


@pytest.mark.req("PL-731")
def test_what_cannot_be_read_keeps_nothing_else_from_being_explained(explain):
    broken = pod("web:1", name="broken")
    broken["spec"]["containers"] = "none"
    found = explain(pod("web:1"), broken, pod("side:1", name="last"))
    assert (found.code, len(found.pods)) == (2, 2)
    assert "document 2" in found.err
    assert "containers" in found.err


@pytest.mark.req("PL-202")
@pytest.mark.parametrize(
    ("selector", "code", "said"),
    [
        ({"kubernetes.io/arch": "s390x"}, 1, "can run nowhere: it requires s390x"),
        ({"kubernetes.io/arch": "amd64"}, 0, None),
        ({"kubernetes.io/arch": "x86_64"}, 1, "can run nowhere"),
    ],
)
def test_a_pod_that_requires_what_its_images_lack_is_told(explain, selector, code, said):
    document = pod("web:1")
    document["spec"]["nodeSelector"] = selector
    found = explain(document)
    [entry] = found.pods
    assert (found.code, entry["decision"]["reason"]) == (code, "ArchitectureAlreadyRequired")
    assert any(said in warning for warning in entry["warnings"]) if said else not entry["warnings"]


@pytest.mark.req("PL-731")
def test_a_directory_is_searched_for_manifests_as_lint_searches_it(tmp_path: Path, capsys, monkeypatch):
    """What cannot be read in it is said and left out; what is named has to be readable."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "answers.yaml").write_text(yaml.safe_dump(ANSWERS))
    (tmp_path / "deploy" / "base").mkdir(parents=True)
    (tmp_path / "deploy" / "a.yaml").write_text(yaml.safe_dump(pod("web:1", name="a")))
    (tmp_path / "deploy" / "base" / "b.yaml").write_text(yaml.safe_dump(pod("side:1", name="b")))
    (tmp_path / "deploy" / "broken.yaml").write_text("a: [")
    common = ("--offline", "--platforms-file", str(tmp_path / "answers.yaml"), "-o", "json")
    assert main(["explain", "-f", str(tmp_path / "deploy"), *common]) == 0
    found = capsys.readouterr()
    assert [each["name"] for each in json.loads(found.out)["pods"]] == ["a", "b"]
    assert "left out: " in found.err
    assert "broken.yaml" in found.err
    assert main(["explain", "-f", str(tmp_path / "deploy" / "broken.yaml"), *common]) == 2


@pytest.mark.req("PL-101", "PL-731")
def test_the_patch_makes_the_pod_that_is_printed_and_keeps_unknown_fields(explain):
    document = pod("web:1")
    (entry,) = explain(document).pods
    operations = [
        Operation(each["op"], each["path"], **({"value": each["value"]} if "value" in each else {}))
        for each in entry["patch"]
    ]
    assert apply_patch(document, operations) == entry["pod"]
    assert entry["pod"]["spec"]["futureField"] == {"a": 1}


@pytest.mark.req("PL-731")
def test_cold_says_what_is_gated(explain):
    result = explain(pod("web:1"), args=("-o", "json", "--cold"))
    (entry,) = result.pods
    assert entry["path"] == "gated"
    assert entry["gates"] == [names.GATE]
    assert entry["next"]["images"] == ["web:1"]
    assert result.code == 0


@pytest.mark.req("PL-731")
def test_the_controllers_answer_starts_from_the_gated_pod(explain):
    """Gates, labels and events as the controller leaves them."""
    (entry,) = explain(pod("web:1"), args=("-o", "json", "--stage", "controller")).pods
    assert entry["gates"] == []
    assert entry["labels"][names.SCHEDULING_GATE_LABEL] == "removed"
    assert [event["reason"] for event in entry["events"]] == ["ArchAwarePredicateSet"]
    assert json.loads(entry["annotations"][names.DECISION_ANNOTATION])["by"] == "controller"


@pytest.mark.req("PL-230", "PL-731")
@pytest.mark.parametrize(
    ("action", "reason", "gated"),
    [
        ("release", "ReleasedUnconstrained", False),
        ("hold", "HeldByPolicy", True),
        ("fallback", "FallbackSet", False),
    ],
)
def test_what_the_controller_does_when_an_image_cannot_be_had(explain, action, reason, gated):
    objects = [policy(onUnresolved={"action": action, "fallbackArchitectures": ["ppc64le"]})]
    result = explain(pod("gone:1"), objects=objects, args=("-o", "json", "--stage", "controller"))
    (entry,) = result.pods
    assert entry["decision"]["reason"] == reason
    assert (names.GATE in entry["gates"]) == gated
    assert result.code == 0


@pytest.mark.req("PL-731")
@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", ("spec", "template")),
        ("StatefulSet", ("spec", "template")),
        ("Job", ("spec", "template")),
        ("CronJob", ("spec", "jobTemplate", "spec", "template")),
    ],
)
def test_workloads_count_by_their_template(explain, kind, path):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "web:1"}]}}
    for member in reversed(path):
        template = {member: template}
    workload = {"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "shop", "namespace": "team"}, **template}
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "passed over"}}
    (entry,) = explain(service, workload).pods
    assert (entry["namespace"], entry["name"]) == ("team", "shop-")
    assert values(entry) == ["amd64", "arm64"]
    assert f"{kind} shop" in entry["source"]


@pytest.mark.req("PL-201", "PL-731")
def test_a_daemon_set_is_left_alone(explain):
    template = {"spec": {"containers": [{"name": "c", "image": "web:1"}]}}
    (entry,) = explain({"kind": "DaemonSet", "metadata": {"name": "d"}, "spec": {"template": template}}).pods
    assert entry["path"] == "ignored"
    assert entry["decision"]["rule"] == "DaemonSetPod"


@pytest.mark.req("PL-731")
def test_the_objects_given_count(explain):
    """Configuration, policy with an override by namespace label, scoring."""
    scoring = {"enabled": True, "platforms": [{"architecture": "arm64", "weight": 70}]}
    override = {"name": "trial", "namespaceSelector": {"matchLabels": {"trial": "yes"}}, "mode": "audit"}
    objects = [
        cppc(plugins={"nodeAffinityScoring": scoring}),
        policy(overrides=[override]),
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "try", "labels": {"trial": "yes"}}},
    ]
    placed, audited = explain(pod("web:1"), pod("web:1", name="b", namespace="try"), objects=objects).pods
    assert placed["preferred"]["after"][0]["weight"] == 70
    assert audited["path"] == "audit"
    assert audited["required"]["after"] is None


@pytest.mark.req("PL-218", "PL-731")
def test_nodes_given_count_where_the_policy_is_node_aware(explain):
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n", "labels": {"kubernetes.io/arch": "amd64"}}}
    (entry,) = explain(pod("web:1"), objects=[policy(nodeAware={"mode": "narrow"}), node]).pods
    assert values(entry) == ["amd64"]


@pytest.mark.req("PL-731")
def test_a_list_counts_as_its_items(explain):
    listed = {"apiVersion": "v1", "kind": "List", "items": [pod("web:1", name="a"), pod("side:1", name="b")]}
    assert [entry["name"] for entry in explain(listed).pods] == ["a", "b"]


@pytest.mark.req("PL-730")
@pytest.mark.parametrize(
    ("images", "code"),
    [
        (("web:1",), 0),
        (("amd:1", "z:1"), 1),
        (("away:1",), 3),
        (("gone:1",), 0),
        (("old:1",), 0),
    ],
    ids=["clean", "can run nowhere", "a registry is away", "does not exist: a policy's case", "does not say"],
)
def test_exit_codes(explain, images, code):
    assert explain(pod(*images)).code == code


@pytest.mark.req("PL-731")
def test_what_is_assumed_is_said_on_stderr_only(explain):
    result = explain(pod("web:1"))
    assert "no ClusterPodPlacementConfig" in result.err
    assert "no ClusterPodPlacementConfig" not in result.out
    assert "ClusterPodPlacementConfig" not in explain(pod("web:1"), objects=[cppc()]).err


@pytest.mark.req("PL-730")
def test_text_for_people_names_images_decision_and_terms(explain):
    out = explain(pod("amd:1", "z:1"), args=()).out
    assert "default/app" in out
    assert "NoSupportedArchitecture" in out
    assert "amd:1  linux/amd64" in out
    out = explain(pod("web:1"), args=()).out
    assert "+ kubernetes.io/arch In amd64,arm64" in out


@pytest.mark.req("PL-730")
def test_a_line_of_the_text_is_never_wrapped(explain, monkeypatch):
    """In a pipe every line is as long as it is, so that it can be searched."""
    monkeypatch.setenv("COLUMNS", "80")
    lines = explain(pod(*ANSWERS), args=()).out.splitlines()
    message = next(line for line in lines if "No node can run the pod" in line)
    assert len(message) > 80
    assert message.endswith("publish the images for a common platform, or choose other tags.")


@pytest.mark.req("PL-731")
def test_the_patch_alone(explain):
    """Of one pod the operations, of several by name."""
    one = json.loads(explain(pod("web:1"), args=("-o", "patch")).out)
    assert {"op", "path", "value"} <= one[0].keys()
    two = json.loads(explain(pod("web:1", name="a"), pod("side:1", name="b"), args=("-o", "patch")).out)
    assert two.keys() == {"default/a", "default/b"}


@pytest.mark.req("PL-731")
def test_a_pod_without_metadata_is_explained_too(explain):
    """What is tried before it is applied may lack what the API server asks for."""
    bare = {name: value for name, value in pod("web:1").items() if name != "metadata"}
    found = explain(bare)
    assert (found.code, found.pods[0]["decision"]["reason"]) == (0, "ArchitecturesSet")


@pytest.mark.req("PL-732")
def test_yaml_is_the_same_document(explain):
    as_yaml = yaml.safe_load(explain(pod("web:1"), args=("-o", "yaml")).out)
    assert as_yaml["pods"] == explain(pod("web:1")).pods


@pytest.mark.req("PL-731", "PL-751")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: b: c\n", "document 1, line 1: mapping values are not allowed"),
        ("kind: Service\n---\n- a\n", "document 2, line 3: expected a Kubernetes object (a mapping), found a list"),
        (
            "kind: Pod\nmetadata: {name: x}\nspec:\n  containers:\n  - name: a\n    image: 3\n",
            "document 1, line 6: Pod 'x': spec.containers[0].image: Expected `str`, got `int`",
        ),
        (
            "kind: Deployment\nmetadata: {name: x}\nspec:\n  template:\n    spec:\n      containers: {}\n",
            "document 1, line 6: Pod 'x-': spec.containers: Expected",
        ),
        ("kind: Deployment\nmetadata: {name: x}\n", "a Deployment needs a pod template at spec.template.spec"),
        ("kind: Service\n", "nothing to explain"),
    ],
    ids=["no YAML", "no object", "wrong type", "wrong type in a template", "no template", "no pod"],
)
def test_errors_name_file_document_and_line(explain, text, problem):
    result = explain(text)
    assert result.code == 2
    assert "manifests.yaml" in result.err.replace("\n", "")
    assert problem in " ".join(result.err.split())


@pytest.mark.req("PL-731", "PL-751")
def test_objects_of_other_kinds_or_names_are_refused(explain):
    result = explain(pod("web:1"), objects=[{"kind": "ConfigMap", "metadata": {"name": "x"}}])
    assert result.code == 2
    assert "--objects takes ClusterPodPlacementConfig" in result.err
    assert all(each.kind in result.err for each in TEMPLATE_KINDS)
    other = policy()
    other["metadata"]["name"] = "other"
    assert "must be named 'cluster', not 'other'" in explain(pod("web:1"), objects=[other]).err


@pytest.mark.req("PL-750")
def test_a_value_that_the_schema_would_refuse_is_told(explain):
    result = explain(pod("web:1"), objects=[cppc(), policy(mode="on")])
    assert "not used: spec.mode" in result.err
    assert values(result.pods[0]) == ["amd64", "arm64"]


@pytest.mark.req("PL-751")
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"onUnresolved": {"retryWindow": 30}},
            "spec.onUnresolved.retryWindow: must be a text, not 30; write a duration such as 30s",
        ),
        ({"sweep": "off"}, "spec.sweep: must be an object, not 'off'; write members below it, of action, scope"),
        ({"osConstraint": False}, "spec.osConstraint: must be a text, not false; write one in quotes, of off, auto"),
        ({"sweep": {"maxEvictionsPerMinute": "5"}}, "must be a whole number, not '5'; write one from 1 to 100 without"),
        ({"nodeAware": {"assumeArchitectures": "arm64"}}, "must be a list, not 'arm64'; write a list such as [amd64]"),
        ({"warmUp": {"kinds": ["Job", 1]}}, "spec.warmUp.kinds[1]: must be a text, not 1; write one of Deployment,"),
        ({"overrides": [1]}, "spec.overrides[0]: must be an object, not 1; write members below it"),
        (
            {"overrides": [{"inline": {"enabled": "no"}}]},
            "spec.overrides[0].inline.enabled: must be true or false, not 'no'; write one of them without quotes",
        ),
    ],
)
def test_a_policy_with_a_value_of_another_type_names_its_line(explain, spec, problem):
    result = explain(pod("web:1"), objects=[policy(**spec)])
    assert result.code == 2
    assert problem in " ".join(result.err.split())


@pytest.mark.req("PL-751", "TN-012")
@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"mode": True}, "spec.mode: must be a text, not true; write one in quotes, of tolerations, secondary-only"),
        (
            {"pods": {"gateTimeout": 300}},
            "spec.pods.gateTimeout: must be a text, not 300; write a duration such as 30s",
        ),
        ({"nodes": {"perMinute": "7"}}, "spec.nodes.perMinute: must be a whole number, not '7'; write one from 1 to"),
        ({"architectures": "arm64"}, "spec.architectures: must be a list, not 'arm64'; write a list such as [386]"),
        ({"nodes": {"selector": "gpu"}}, "spec.nodes.selector: must be an object, not 'gpu'; write members below it"),
    ],
)
def test_taints_with_a_value_of_another_type_say_what_to_write(explain, spec, problem):
    result = explain(pod("web:1"), objects=[TAINTS | {"spec": spec}])
    assert result.code == 2
    assert problem in " ".join(result.err.split())


@pytest.mark.req("PL-730")
@pytest.mark.parametrize("arguments", [["explain"], ["explain", "pod", "-f", "x.yaml"]], ids=["neither", "both"])
def test_a_pod_or_files(arguments, capsys):
    assert main(arguments) == 2
    assert "give one of them" in capsys.readouterr().err


def test_a_workload_by_name_is_a_usage_error_that_says_how_to_explain_it(capsys):
    """It was a traceback."""
    assert main(["explain", "deploy/web"]) == 2
    assert "kubectl get deploy/web -o yaml | polyarch explain -f -" in capsys.readouterr().err


@pytest.mark.req("RG-132")
def test_a_platforms_file_that_cannot_be_used_is_a_usage_error(tmp_path, capsys):
    (tmp_path / "pod.yaml").write_text(yaml.safe_dump(pod("web:1")))
    (tmp_path / "answers.yaml").write_text("web:1: {kin: index}\n")
    arguments = ["explain", "-f", str(tmp_path / "pod.yaml"), "--platforms-file", str(tmp_path / "answers.yaml")]
    assert main(arguments) == 2
    assert "answers.yaml" in capsys.readouterr().err.replace("\n", "")


@pytest.mark.req("PL-731")
def test_a_manifest_is_read_from_standard_input(tmp_path, capsys, monkeypatch):
    """``kubectl kustomize … | polyarch explain -f -``."""
    monkeypatch.setenv("HOME", str(tmp_path))
    answers = tmp_path / "answers.yaml"
    answers.write_text(yaml.safe_dump(ANSWERS))
    monkeypatch.setattr("sys.stdin", io.StringIO(yaml.safe_dump(pod("web:1"))))
    assert main(["explain", "-f", "-", "--platforms-file", str(answers), "--offline", "-o", "json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["pods"]
    assert values(entry) == ["amd64", "arm64"]


@pytest.mark.req("PL-730", "PL-751")
def test_an_image_that_the_platforms_file_does_not_have_is_no_clean_answer(explain):
    """The question is open, and the way on is named."""
    result = explain(pod("web:1", "other:1"))
    assert result.code == 3
    assert "no platforms file names other:1" in result.err
    assert "polyarch inspect -o json other:1" in result.err


@pytest.mark.req("PL-730")
@pytest.mark.parametrize(("annotated", "code"), [(True, 0), (False, 1)], ids=["placed", "missed"])
def test_a_pod_of_the_cluster_that_the_webhook_missed_ends_with_1(
    explain, tmp_path, monkeypatch, capsys, annotated, code
):
    (placed,) = explain(pod("web:1", namespace="team")).pods
    stored = placed["pod"] if annotated else pod("web:1", namespace="team")

    async def read(name: str, **_: Any) -> SeenPod:
        given = GivenPod(stored, msgspec.convert(stored, Pod), "team", name)
        return SeenPod(given, configuration_from([]), NoCredentials(), 60.0)

    monkeypatch.setattr(deciding, "read_pod", read)
    arguments = ["explain", "app", "--platforms-file", str(tmp_path / "answers.yaml"), "--offline"]
    assert main(arguments) == code
    shown = capsys.readouterr().out
    assert ("ArchitecturesSet amd64, arm64: the same as now" in shown) is annotated
    assert ("nothing: differs from now" in shown) is not annotated
    assert main([*arguments, "-o", "json"]) == code
    (entry,) = json.loads(capsys.readouterr().out)["pods"]
    assert (entry["patch"], entry["pod"]) == ([], stored)


@pytest.mark.req("PL-730")
def test_where_polyarch_is_not_installed_nothing_is_said_to_be_done(explain, tmp_path, monkeypatch, capsys):
    """It is what would be done, and nothing that somebody missed."""
    explain(pod("web:1"))
    stored = pod("web:1", namespace="team")

    async def read(name: str, **_: Any) -> SeenPod:
        given = GivenPod(stored, msgspec.convert(stored, Pod), "team", name)
        configuration = msgspec.structs.replace(configuration_from([]), is_installed=False)
        return SeenPod(given, configuration, NoCredentials(), 60.0)

    monkeypatch.setattr(deciding, "read_pod", read)
    assert main(["explain", "app", "--platforms-file", str(tmp_path / "answers.yaml"), "--offline"]) == 0
    shown = capsys.readouterr().out
    assert "Nothing was done to the pod, since this cluster has no ClusterPodPlacementConfig; with one: Pod is" in shown


@pytest.mark.req("PL-730")
def test_a_decision_that_differs_because_an_image_has_no_answer_here_names_the_options(
    explain, tmp_path, monkeypatch, capsys
):
    """The operator may reach the registry through a mirror that this machine does not know."""
    (placed,) = explain(pod("web:1", namespace="team")).pods

    async def read(name: str, **_: Any) -> SeenPod:
        given = GivenPod(placed["pod"], msgspec.convert(placed["pod"], Pod), "team", name)
        return SeenPod(given, configuration_from([]), NoCredentials(), 60.0)

    monkeypatch.setattr(deciding, "read_pod", read)
    answers = tmp_path / "answers.yaml"
    arguments = ["explain", "app", "--platforms-file", str(answers), "--offline"]
    for platforms, code, hinted in ((ANSWERS["web:1"], 0, False), ({"error": "not-found"}, 1, True)):
        answers.write_text(yaml.safe_dump({"web:1": platforms}))
        assert main(arguments) == code
        assert ("--registries-conf and --ca" in " ".join(capsys.readouterr().err.split())) is hinted


def container(image: str) -> dict[str, Any]:
    return {"name": "c", "image": image}


def spec(image: str) -> dict[str, Any]:
    return {"spec": {"containers": [container(image)]}}


@pytest.mark.req("MF-011", "PL-731")
@pytest.mark.parametrize(
    ("kind", "content", "names_and_values"),
    [
        ("Rollout", {"template": spec("web:1")}, [("x-", ["amd64", "arm64"])]),
        ("DeploymentConfig", {"template": spec("amd:1")}, [("x-", ["amd64"])]),
        (
            "LeaderWorkerSet",
            {"leaderWorkerTemplate": {"leaderTemplate": spec("amd:1"), "workerTemplate": spec("z:1")}},
            [("x-leader-", ["amd64"]), ("x-worker-", ["s390x"])],
        ),
        (
            "ClusterServiceVersion",
            {"install": {"spec": {"deployments": [{"name": "manager", "spec": {"template": spec("web:1")}}]}}},
            [("x-manager-", ["amd64", "arm64"])],
        ),
        (
            "JobSet",
            {"replicatedJobs": [{"name": "a", "template": {"spec": {"template": spec("amd:1")}}}]},
            [("x-a-", ["amd64"])],
        ),
        (
            "TFJob",
            {"tfReplicaSpecs": {"Worker": {"template": spec("amd:1")}, "PS": {"template": spec("z:1")}}},
            [("x-worker-", ["amd64"]), ("x-ps-", ["s390x"])],
        ),
        (
            "Workflow",
            {"templates": [{"name": "build", "container": {"image": "amd:1"}, "sidecars": [container("web:1")]}]},
            [("x-build-", ["amd64"])],
        ),
        (
            "PipelineRun",
            {
                "podTemplate": {},
                "pipelineSpec": {
                    "tasks": [
                        {"name": "one", "taskSpec": {"steps": [container("amd:1")]}},
                        {"name": "two", "taskSpec": {"steps": [container("z:1")]}},
                    ]
                },
            },
            [("x-one-", ["amd64"]), ("x-two-", ["s390x"])],
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_kind_that_lint_knows_is_explained(explain, kind, content, names_and_values):
    """One pod for each template."""
    found = explain({"apiVersion": "x/v1", "kind": kind, "metadata": {"name": "x"}, "spec": content}).pods
    assert [(entry["name"], values(entry)) for entry in found] == names_and_values


@pytest.mark.req("MF-011")
def test_what_holds_for_a_whole_workflow_holds_for_its_pods(explain):
    """Affinity and node selector of the spec count where a template has none."""
    workflow = {
        "kind": "CronWorkflow",
        "metadata": {"name": "nightly"},
        "spec": {
            "workflowSpec": {
                "nodeSelector": {"kubernetes.io/arch": "arm64"},
                "templates": [{"name": "one", "script": {"image": "web:1", "source": "true"}}],
            }
        },
    }
    (entry,) = explain(workflow).pods
    assert entry["pod"]["spec"]["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert entry["source"].startswith("CronWorkflow nightly, ")


def test_a_core_service_and_a_bundle_without_deployments_are_no_pods(explain):
    found = explain(
        {"kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": []}},
        {"kind": "ClusterServiceVersion", "metadata": {"name": "c"}, "spec": {}},
        pod("web:1"),
    )
    assert [entry["name"] for entry in found.pods] == ["app"]


@pytest.mark.req("RG-140")
def test_explain_takes_the_options_of_whoever_asks_registries(explain, tmp_path):
    """Their mistakes are told as everywhere."""
    for arguments, problem in (
        (("--insecure", "https://x"), "--insecure https://x"),
        (("--authfile", str(tmp_path / "none.json")), "none.json"),
        (("--timeout", "0"), "--timeout 0"),
        (("--deep", "config"), "--deep needs registries"),
    ):
        result = explain(pod("web:1"), args=arguments)
        assert result.code == 2
        assert problem in result.err


def test_the_explanation_in_several_forms_at_once(explain, tmp_path):
    file = tmp_path / "explained.json"
    result = explain(pod("web:1"), args=("-q", "-o", "text", "-o", f"json={file}"))
    assert "default/app" in result.out
    assert json.loads(file.read_text())["pods"][0]["name"] == "app"
    assert result.err == ""


TAINTS = {
    "apiVersion": "polyarch.dev/v1alpha1",
    "kind": "ArchitectureTaints",
    "metadata": {"name": "cluster"},
    "spec": {},
}


def tainted_node(name: str, architecture: str, *values: str) -> dict[str, Any]:
    taints = [{"key": "supported-arch", "value": value, "effect": "NoSchedule"} for value in values]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/arch": architecture}},
        "spec": {"taints": taints},
    }


@pytest.mark.req("TN-084")
def test_taints_and_what_covers_them_are_shown(explain: Any) -> None:
    objects = [TAINTS, tainted_node("a", "amd64"), tainted_node("b", "arm64", "arm64"), tainted_node("c", "s390x")]
    found = explain(pod("web:1"), objects=objects, args=())
    assert found.code == 0
    rows = [line.strip() for line in found.out.splitlines()]
    assert rows[rows.index("taints    Images") :][:5] == [
        "taints    Images",
        "Pod tolerates the taint of arm64: supported by web:1.",
        "amd64 (1 node): no taint",
        "arm64 (1 node): supported-arch=arm64:NoSchedule: gets a toleration",
        "s390x (1 node): supported-arch=s390x:NoSchedule on 0: not tolerated",
    ]


@pytest.mark.req("TN-084")
def test_without_an_architecture_taints_nothing_is_said_of_taints(explain: Any) -> None:
    found = explain(pod("web:1"), objects=[tainted_node("b", "arm64", "arm64")])
    assert "tolerations" not in json.loads(found.out)["pods"][0]


@pytest.mark.req("TN-084")
def test_an_image_that_placement_does_not_need_is_looked_at_for_its_tolerations(explain: Any) -> None:
    """A pod with a constraint of its own is none of placement's business; taints asks for its images all the same."""
    bound = pod("web:1")
    bound["spec"]["nodeSelector"] = {"kubernetes.io/arch": "arm64"}
    entry = json.loads(explain(bound, objects=[TAINTS]).out)["pods"][0]
    assert entry["decision"]["images"] == []
    assert entry["tolerations"]["adds"] == ["arm64"]


@pytest.mark.req("TN-046", "TN-084")
@pytest.mark.parametrize("namespace", ["default", "polyarch-system"])
def test_an_image_that_nobody_knows_holds_pods_of_others_alone(explain: Any, namespace: str) -> None:
    (entry,) = json.loads(explain(pod("nobody/knows:1", namespace=namespace), objects=[TAINTS]).out)["pods"]
    assert ("stays gated" in entry["tolerations"]["message"]) == (namespace == "default")


# -- which nodes take the pod ------------------------------------------------------------------------------------------


def node(name: str, architecture: str, *taints: dict[str, str], os: str = "linux", **spec: Any) -> dict[str, Any]:
    labels = {"kubernetes.io/arch": architecture, "kubernetes.io/os": os}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": list(taints), **spec},
        "status": {"nodeInfo": {"architecture": architecture, "operatingSystem": os}},
    }


DEDICATED = {"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}
LEAVING = {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}


@pytest.mark.req("PL-733")
@pytest.mark.parametrize(
    ("image", "nodes", "code", "fitting"),
    [
        pytest.param("web:1", [node("a", "amd64")], 0, {"linux/amd64": 1}, id="a node without taints"),
        pytest.param("web:1", [node("a", "amd64", DEDICATED)], 1, {"linux/amd64": 0}, id="a taint on every node"),
        pytest.param("web:1", [node("a", "amd64", LEAVING)], 0, {"linux/amd64": 1}, id="a taint that goes away"),
        pytest.param("web:1", [node("a", "amd64", unschedulable=True)], 0, {"linux/amd64": 1}, id="a cordon"),
        pytest.param("amd:1", [node("b", "arm64")], 1, {"linux/arm64": 0}, id="no node for the image"),
        pytest.param(
            "amd:1",
            [node("a", "amd64", DEDICATED), node("w", "amd64", os="windows")],
            1,
            {"linux/amd64": 0, "windows/amd64": 0},
            id="a Windows node for a Linux image",
        ),
        pytest.param("away:1", [node("b", "arm64")], 3, {"linux/arm64": 1}, id="an image that nobody knows"),
    ],
)
def test_a_pod_that_no_node_takes_is_a_finding(explain, image, nodes, code, fitting) -> None:
    found = explain(pod(image), objects=nodes)
    assert found.code == code
    assert {row["platform"]: row["fitting"] for row in found.pods[0]["nodes"]} == fitting


@pytest.mark.req("PL-733")
def test_text_says_for_each_platform_why_its_nodes_do_not_take_the_pod(explain) -> None:
    nodes = [node("a", "amd64", DEDICATED), node("b", "amd64"), node("c", "arm64")]
    found = explain(pod("amd:1"), objects=nodes, args=())
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    assert "nodes amd64: 1 of 2 nodes take it: it does not tolerate dedicated=gpu:NoSchedule (1)" in lines
    assert "arm64: 0 of 1 node takes it: its images run on linux/amd64, and not on linux/arm64" in lines


@pytest.mark.req("PL-733")
def test_a_runtime_class_adds_its_selector_before_anybody_decides(explain) -> None:
    on_arm = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "arm"},
        "handler": "runc",
        "scheduling": {"nodeSelector": {"kubernetes.io/arch": "arm64"}, "tolerations": [DEDICATED]},
    }
    asked = pod("web:1")
    asked["spec"]["runtimeClassName"] = "arm"
    found = explain(asked, objects=[on_arm, node("a", "amd64"), node("b", "arm64", DEDICATED)])
    assert (found.code, found.pods[0]["decision"]["reason"]) == (0, "ArchitectureAlreadyRequired")
    assert found.pods[0]["pod"]["spec"]["nodeSelector"] == {"kubernetes.io/arch": "arm64"}
    assert [row["fitting"] for row in found.pods[0]["nodes"]] == [0, 1]
    asked["spec"]["runtimeClassName"] = "other"
    found = explain(asked, objects=[on_arm])
    assert found.code == 1
    assert found.pods[0]["refused"].startswith("there is no RuntimeClass other")


def _tolerates(**members: Any) -> dict[str, Any]:
    return {"tolerations": [{"key": "a", **members}]}


def _gates(*gates: str) -> dict[str, Any]:
    return {"schedulingGates": [{"name": name} for name in gates]}


def _with_term(**term: Any) -> dict[str, Any]:
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


@pytest.mark.req("PL-733")
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        pytest.param(None, "spec.containers", id="no spec"),
        pytest.param({"containers": None}, "spec.containers", id="no containers"),
        pytest.param({"containers": []}, "spec.containers", id="an empty list of containers"),
        pytest.param({"containers": [None]}, "spec.containers[0].name", id="a null container"),
        pytest.param({"initContainers": [None]}, "spec.initContainers[0].name", id="a null init container"),
        pytest.param({"containers": [{"name": "a", "image": None}]}, "spec.containers[0].image", id="a null image"),
        pytest.param({"containers": [{"name": "a", "image": " "}]}, "spec.containers[0].image", id="a blank image"),
        pytest.param({"tolerations": [None]}, "spec.tolerations[0].operator", id="a null toleration"),
        pytest.param({"schedulingGates": [None]}, "spec.schedulingGates[0].name", id="a null gate"),
        pytest.param(_with_term(matchExpressions=[None]), "nodeSelectorTerms[0].matchExpressions[0].key", id="a term"),
        pytest.param(
            _with_term(matchExpressions=[{"key": "a", "operator": "In", "values": None}]),
            "matchExpressions[0].values",
            id="no values",
        ),
        pytest.param(_with_term(matchFields=[{"key": "a", "operator": "In", "values": ["b"]}]), ".key", id="a field"),
        pytest.param(
            {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [None]}}},
            "preferredDuringSchedulingIgnoredDuringExecution[0].weight",
            id="a null preference",
        ),
        pytest.param({"nodeSelector": {"bad key": "a"}}, "spec.nodeSelector: 'bad key'", id="a label's key"),
        pytest.param({"nodeSelector": {"a/b/c": "a"}}, "spec.nodeSelector: 'a/b/c'", id="a key of three parts"),
        pytest.param({"nodeSelector": {"a": "a b"}}, "spec.nodeSelector[a]: 'a b'", id="a label's value"),
        pytest.param({"nodeSelector": {"a": "x" * 64}}, "spec.nodeSelector[a]", id="a long value"),
        pytest.param(_tolerates(operator="Exists", value="v"), "tolerations[0].value", id="Exists with a value"),
        pytest.param(_tolerates(operator="Equals", value="v"), "tolerations[0].operator", id="no operator"),
        pytest.param(_tolerates(operator="exists"), "tolerations[0].operator", id="an operator in small letters"),
        pytest.param(_tolerates(value="a b"), "tolerations[0].value", id="a toleration's value"),
        pytest.param(_tolerates(key="a b", operator="Exists"), "tolerations[0].key", id="a toleration's key"),
        pytest.param(_tolerates(effect="NoSched"), "tolerations[0].effect", id="no effect"),
        pytest.param(
            _tolerates(effect="NoSchedule", tolerationSeconds=5), "tolerations[0].effect", id="seconds of NoSchedule"
        ),
        pytest.param(_tolerates(tolerationSeconds=0), "tolerations[0].effect", id="seconds of every effect"),
        pytest.param({"os": {"name": "darwin"}}, "spec.os.name: 'darwin'", id="another operating system"),
        pytest.param({"os": {"name": "Linux"}}, "spec.os.name", id="Linux in capitals"),
        pytest.param({"os": {}}, "spec.os.name", id="an empty operating system"),
        pytest.param(_gates("a.example/b", "c.example/d", "a.example/b"), "schedulingGates[2].name", id="a gate twice"),
        pytest.param({**_gates("a.example/b"), "nodeName": "n"}, "spec.nodeName", id="a gate and a node"),
        pytest.param({"containers": [{"name": "a", "image": " web:1"}]}, "containers[0].image", id="a leading space"),
        pytest.param(
            {"initContainers": [{"name": "b", "image": "web:1\n"}]}, "initContainers[0].image", id="a line's end"
        ),
    ],
)
def test_a_pod_that_the_api_server_refuses_is_said_to_be_refused(explain, spec, field) -> None:
    usual = {"containers": [{"name": "a", "image": "web:1"}]}
    found = explain({**pod(), "spec": spec if spec is None else {**usual, **spec}})
    assert (found.code, field in found.pods[0]["refused"]) == (1, True)
    assert found.pods[0]["decision"]["message"] == f"Nothing comes of the pod: {found.pods[0]['refused']}."


@pytest.mark.req("PL-733")
@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"example.com/a_b": ""}},
        {"tolerations": [{"operator": "Exists"}, {"key": "a", "effect": "NoExecute", "tolerationSeconds": -1}]},
        {"tolerations": [{"key": "a", "operator": "Gt", "value": "5", "effect": "PreferNoSchedule"}]},
        {"os": {"name": "windows"}, "schedulingGates": [{"name": "a.example/b"}, {"name": "a.example/c"}]},
        {"os": None, "tolerations": None, "nodeSelector": None, "schedulingGates": None},
    ],
)
def test_a_pod_that_the_api_server_takes_is_not_called_refused(explain, spec) -> None:
    usual = {"containers": [{"name": "a", "image": "web:1"}]}
    assert explain({**pod(), "spec": {**usual, **spec}}).pods[0]["refused"] == ""


@pytest.mark.req("PL-733")
def test_what_a_controller_completes_is_not_called_refused(explain) -> None:
    """Knative names the container of a Service by itself."""
    template = {"spec": {"containers": [{"image": "web:1"}]}}
    service = {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": "s"}}
    found = explain({**service, "spec": {"template": template}})
    assert (found.code, found.pods[0]["refused"]) == (0, "")
    found = explain({**service, "apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": template}})
    assert (found.code, found.pods[0]["refused"][:24]) == (1, "spec.containers[0].name:")


@pytest.mark.req("PL-733")
@pytest.mark.parametrize(
    ("os", "image", "line"),
    [
        ("linux", "web:1", "linux of unknown architecture: 0 of 1 node takes it: its images run on "),
        ("windows", "web:1", "windows of unknown architecture: 0 of 1 node takes it: its images run on "),
    ],
)
def test_a_node_that_says_no_architecture_is_described_as_that(explain, os: str, image: str, line: str) -> None:
    machine = node("a", "", os=os)
    machine["metadata"]["labels"].pop("kubernetes.io/arch")
    out = " ".join(explain(pod(image), objects=[machine], args=()).out.split())
    assert line in out
    assert ", and nothing says the node's architecture" in out


@pytest.mark.req("PL-731")
@pytest.mark.parametrize("weight", ["5.0", "5.", "0.5e1", "+5.0", "5_0.0"])
def test_a_whole_number_may_be_written_with_a_point(explain, weight: str) -> None:
    manifest = f"""\
apiVersion: v1
kind: Pod
metadata: {{name: p}}
spec:
  containers: [{{name: a, image: "web:1"}}]
  tolerations: [{{key: a, effect: NoExecute, tolerationSeconds: 30.0}}]
  affinity:
    nodeAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: {weight}
        preference: {{matchExpressions: [{{key: a, operator: Exists}}]}}
"""
    found = explain(manifest)
    assert (found.code, found.err if found.code else "") == (0, "")
    assert "refused" not in explain(manifest.replace(weight, "5.5")).out
    assert "weight" in explain(manifest.replace(weight, "5.5")).err


@pytest.mark.parametrize("taints", [None, [None], []])
def test_nulls_among_the_taints_of_a_node_are_no_taints(explain, taints) -> None:
    machine = node("a", "amd64")
    machine["spec"] = {"taints": taints}
    found = explain(pod("web:1"), objects=[machine])
    assert (found.code, found.pods[0]["nodes"][0]["fitting"]) == (0, 1)


@pytest.mark.req("PL-733", "PL-219")
def test_nodes_count_by_what_their_runtime_takes(explain) -> None:
    """One of containerd and one of CRI-O, and an image of 32 bits."""
    machines = [node("a", "amd64"), node("b", "amd64")]
    for machine, runtime in zip(machines, ("containerd://2.1.4", "cri-o://1.34.1"), strict=True):
        machine["status"]["nodeInfo"]["containerRuntimeVersion"] = runtime
    both = explain(pod("small:1"), objects=machines)
    assert "the runtimes of the nodes of amd64 disagree" in both.pods[0]["decision"]["message"]
    (row,) = both.pods[0]["nodes"]
    assert (row["fitting"], row["mismatches"][0]["message"]) == (
        1,
        "its CRI-O finds nothing for linux/amd64 in the index of an image",
    )
    crio = explain(pod("small:1"), objects=machines[1:])
    assert (crio.code, values(crio.pods[0])) == (1, ["386"])


@pytest.mark.req("PL-215")
def test_templates_of_nodes_are_objects_to_decide_with(explain) -> None:
    needs = [{"key": "kubernetes.io/os", "operator": "In", "values": ["windows"]}]
    template = {"spec": {"requirements": needs}}
    pool = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "w"}}
    found = explain(pod("web:1"), objects=[{**pool, "spec": {"template": template}}])
    terms = found.pods[0]["required"]["after"]["nodeSelectorTerms"]
    assert [each["key"] for each in terms[0]["matchExpressions"]] == ["kubernetes.io/arch", "kubernetes.io/os"]
