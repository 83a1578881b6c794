"""Each kind of the table has an example as its project documents it; what is found in it is written down here."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from polyarch.manifests.fix import FixRequest, fix
from polyarch.manifests.proof import prove
from polyarch.manifests.scan.kinds import NAMES, RUNS, TASKS, WORKFLOWS, PodPlace, rows
from polyarch.manifests.scan.scanning import Scan, scan
from polyarch.manifests.scan.sets import ImageInspections
from polyarch.manifests.scan.text import SourceText
from polyarch.oci.platforms_file import AnswerFile
from polyarch.oci.reference import parse

pytestmark = pytest.mark.req("MF-011")

TEMPLATE = "template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a:1}]}}"
PLAIN = {"/spec/template/spec": ["a:1"]}
APART = "apart"
REFUSED = "refused"

# kind → (apiVersion, what follows metadata, pods: pointer → images, and a word where no constraint is written)
EXAMPLES: dict[str, tuple[str, str, dict[str, list[str]], str]] = {
    "Pod": ("v1", "spec: {containers: [{name: a, image: a:1}]}", {"/spec": ["a:1"]}, ""),
    "PodTemplate": ("v1", TEMPLATE, {"/template/spec": ["a:1"]}, ""),
    "ReplicationController": ("v1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    "ReplicaSet": ("apps/v1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    "Deployment": ("apps/v1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    "StatefulSet": ("apps/v1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    "DaemonSet": ("apps/v1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    "Job": (
        "batch.volcano.sh/v1alpha1",
        f"spec: {{tasks: [{{replicas: 2, {TEMPLATE}}}]}}",
        {"/spec/tasks/0/template/spec": ["a:1"]},
        "",
    ),
    "CronJob": (
        "batch/v1",
        f"spec: {{jobTemplate: {{spec: {{{TEMPLATE}}}}}}}",
        {"/spec/jobTemplate/spec/template/spec": ["a:1"]},
        "",
    ),
    "DeploymentConfig": ("apps.openshift.io/v1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    "ClusterServiceVersion": (
        "operators.coreos.com/v1alpha1",
        f"spec: {{install: {{spec: {{deployments: [{{name: m, spec: {{{TEMPLATE}}}}}]}}}}}}",
        {"/spec/install/spec/deployments/0/spec/template/spec": ["a:1"]},
        "",
    ),
    "UnitedDeployment": (
        "apps.kruise.io/v1alpha1",
        f"spec: {{template: {{statefulSetTemplate: {{spec: {{{TEMPLATE}}}}}}}}}",
        {"/spec/template/statefulSetTemplate/spec/template/spec": ["a:1"]},
        "",
    ),
    "AdvancedCronJob": (
        "apps.kruise.io/v1alpha1",
        f"spec: {{schedule: '* * * * *', template: {{broadcastJobTemplate: {{spec: {{{TEMPLATE}}}}}}}}}",
        {"/spec/template/broadcastJobTemplate/spec/template/spec": ["a:1"]},
        "",
    ),
    "TargetAllocator": (
        "opentelemetry.io/v1alpha1",
        "spec: {image: t:1, additionalContainers: [{name: a, image: a:1}]}",
        {"/spec": ["t:1", "a:1"]},
        "",
    ),
    "OpAMPBridge": ("opentelemetry.io/v1alpha1", "spec: {image: o:1}", {"/spec": ["o:1"]}, ""),
    "TrainJob": (
        "trainer.kubeflow.org/v1alpha1",
        "spec: {runtimeRef: {name: torch}, trainer: {image: t:1, numNodes: 2}}",
        {"/spec": ["t:1"]},
        APART,
    ),
    **{
        kind: (
            "trainer.kubeflow.org/v1alpha1",
            f"spec: {{template: {{spec: {{replicatedJobs: [{{template: {{spec: {{{TEMPLATE}}}}}}}]}}}}}}",
            {"/spec/template/spec/replicatedJobs/0/template/spec/template/spec": ["a:1"]},
            "",
        )
        for kind in ("TrainingRuntime", "ClusterTrainingRuntime")
    },
    "CatalogSource": (
        "operators.coreos.com/v1alpha1",
        "spec: {sourceType: grpc, image: c:1}",
        {"/spec/grpcPodConfig": ["c:1"]},
        "",
    ),
    "JobSet": (
        "jobset.x-k8s.io/v1alpha2",
        f"spec: {{replicatedJobs: [{{name: w, template: {{spec: {{{TEMPLATE}}}}}}}]}}",
        {"/spec/replicatedJobs/0/template/spec/template/spec": ["a:1"]},
        "",
    ),
    "LeaderWorkerSet": (
        "leaderworkerset.x-k8s.io/v1",
        (
            "spec: {leaderWorkerTemplate: {leaderTemplate: {spec: {containers: [{name: l, image: l:1}]}}, "
            "workerTemplate: {spec: {containers: [{name: w, image: w:1}]}}}}"
        ),
        {
            "/spec/leaderWorkerTemplate/leaderTemplate/spec": ["l:1"],
            "/spec/leaderWorkerTemplate/workerTemplate/spec": ["w:1"],
        },
        "",
    ),
    "Rollout": ("argoproj.io/v1alpha1", f"spec: {{strategy: {{canary: {{}}}}, {TEMPLATE}}}", PLAIN, ""),
    "CloneSet": ("apps.kruise.io/v1alpha1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    "BroadcastJob": ("apps.kruise.io/v1alpha1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    "SidecarSet": ("apps.kruise.io/v1alpha1", "spec: {containers: [{name: s, image: s:1}]}", {"/spec": ["s:1"]}, APART),
    "Service": ("serving.knative.dev/v1", f"spec: {{{TEMPLATE}}}", PLAIN, REFUSED),
    "Configuration": ("serving.knative.dev/v1", f"spec: {{{TEMPLATE}}}", PLAIN, REFUSED),
    "Revision": ("serving.knative.dev/v1", "spec: {containers: [{name: a, image: a:1}]}", {"/spec": ["a:1"]}, REFUSED),
    "Prometheus": (
        "monitoring.coreos.com/v1",
        "spec: {image: p:1, thanos: {image: t:1}, containers: [{name: prometheus, args: [x]}, {name: s, image: s:1}]}",
        {"/spec": ["p:1", "t:1", "s:1"]},
        "",
    ),
    "PrometheusAgent": ("monitoring.coreos.com/v1alpha1", "spec: {image: p:1}", {"/spec": ["p:1"]}, ""),
    "Alertmanager": (
        "monitoring.coreos.com/v1",
        "spec: {image: m:1, initContainers: [{name: i, image: i:1}]}",
        {"/spec": ["m:1", "i:1"]},
        "",
    ),
    "ThanosRuler": ("monitoring.coreos.com/v1", "spec: {image: t:1, queryEndpoints: [x]}", {"/spec": ["t:1"]}, ""),
    "Kafka": (
        "kafka.strimzi.io/v1beta2",
        (
            "spec: {kafka: {image: k:1, replicas: 3}, zookeeper: {image: z:1, template: {pod: {securityContext: {}}}}, "
            "entityOperator: {topicOperator: {image: t:1}, userOperator: {image: u:1}}}"
        ),
        {
            "/spec/kafka/template/pod": ["k:1"],
            "/spec/zookeeper/template/pod": ["z:1"],
            "/spec/entityOperator/template/pod": ["t:1", "u:1"],
        },
        "",
    ),
    "KafkaNodePool": (
        "kafka.strimzi.io/v1beta2",
        "spec: {template: {pod: {}}, image: x}",
        {"/spec/template/pod": []},
        APART,
    ),
    "KafkaConnect": ("kafka.strimzi.io/v1beta2", "spec: {image: c:1}", {"/spec/template/pod": ["c:1"]}, ""),
    "KafkaMirrorMaker2": ("kafka.strimzi.io/v1beta2", "spec: {image: c:1}", {"/spec/template/pod": ["c:1"]}, ""),
    "KafkaBridge": ("kafka.strimzi.io/v1beta2", "spec: {image: c:1}", {"/spec/template/pod": ["c:1"]}, ""),
    "FlinkDeployment": (
        "flink.apache.org/v1beta1",
        (
            "spec: {image: f:1, podTemplate: {spec: {containers: [{name: flink-main-container, env: []}]}}, "
            "taskManager: {podTemplate: {spec: {containers: [{name: s, image: s:1}]}}}}"
        ),
        {"/spec/podTemplate/spec": ["f:1"], "/spec/taskManager/podTemplate/spec": ["f:1", "s:1"]},
        "",
    ),
    "SparkApplication": (
        "sparkoperator.k8s.io/v1beta2",
        "spec: {image: s:1, driver: {cores: 1}, executor: {image: e:1, sidecars: [{name: x, image: x:1}]}}",
        {"/spec/driver": ["s:1"], "/spec/executor": ["e:1", "x:1"]},
        "",
    ),
    "ScheduledSparkApplication": (
        "sparkoperator.k8s.io/v1beta2",
        "spec: {schedule: '@every 5m', template: {image: s:1, driver: {cores: 1}, executor: {cores: 1}}}",
        {"/spec/template/driver": ["s:1"], "/spec/template/executor": ["s:1"]},
        "",
    ),
    "RayCluster": (
        "ray.io/v1",
        f"spec: {{headGroupSpec: {{{TEMPLATE}}}, workerGroupSpecs: [{{groupName: w, {TEMPLATE}}}]}}",
        {"/spec/headGroupSpec/template/spec": ["a:1"], "/spec/workerGroupSpecs/0/template/spec": ["a:1"]},
        "",
    ),
    "RayJob": (
        "ray.io/v1",
        f"spec: {{rayClusterSpec: {{headGroupSpec: {{{TEMPLATE}}}}}}}",
        {"/spec/rayClusterSpec/headGroupSpec/template/spec": ["a:1"]},
        "",
    ),
    "RayService": (
        "ray.io/v1",
        f"spec: {{rayClusterConfig: {{headGroupSpec: {{{TEMPLATE}}}}}}}",
        {"/spec/rayClusterConfig/headGroupSpec/template/spec": ["a:1"]},
        "",
    ),
    "Notebook": ("kubeflow.org/v1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    "OpenTelemetryCollector": (
        "opentelemetry.io/v1beta1",
        "spec: {image: o:1, additionalContainers: [{name: s, image: s:1}]}",
        {"/spec": ["o:1", "s:1"]},
        "",
    ),
    "Instrumentation": ("opentelemetry.io/v1alpha1", "spec: {java: {image: j:1}}", {"/spec": ["j:1"]}, APART),
    "Cluster": (
        "postgresql.cnpg.io/v1",
        "spec: {imageName: p:1, affinity: {nodeSelector: {kubernetes.io/os: linux}}}",
        {"/spec": ["p:1"]},
        "",
    ),
    "Pooler": (
        "postgresql.cnpg.io/v1",
        "spec: {template: {spec: {containers: [{name: pgbouncer, image: b:1}]}}}",
        PLAIN | {"/spec/template/spec": ["b:1"]},
        "",
    ),
    **{
        kind: (
            f"{kind.lower()}.k8s.elastic.co/v1",
            "spec: {image: e:1, podTemplate: {spec: {containers: [{name: main, env: []}]}}}",
            {"/spec/podTemplate/spec": ["e:1"]},
            "",
        )
        for kind in ("Kibana", "ApmServer", "EnterpriseSearch", "ElasticMapsServer", "Logstash")
    },
    "Elasticsearch": (
        "elasticsearch.k8s.elastic.co/v1",
        (
            "spec: {image: e:1, nodeSets: [{name: d, count: 1}, "
            "{name: m, podTemplate: {spec: {initContainers: [{name: sysctl, command: [x]}]}}}]}"
        ),
        {"/spec/nodeSets/0/podTemplate/spec": ["e:1"], "/spec/nodeSets/1/podTemplate/spec": ["e:1"]},
        "",
    ),
    "Beat": (
        "beat.k8s.elastic.co/v1beta1",
        "spec: {image: b:1, daemonSet: {}}",
        {"/spec/daemonSet/podTemplate/spec": ["b:1"]},
        "",
    ),
    "Agent": (
        "agent.k8s.elastic.co/v1alpha1",
        "spec: {image: b:1, deployment: {replicas: 1}}",
        {"/spec/deployment/podTemplate/spec": ["b:1"]},
        "",
    ),
    "VirtualMachine": (
        "kubevirt.io/v1",
        "spec: {template: {spec: {domain: {}, volumes: [{name: d, containerDisk: {image: d:1}}]}}}",
        {"/spec/template/spec": ["d:1"]},
        "",
    ),
    "VirtualMachineInstance": (
        "kubevirt.io/v1",
        "spec: {domain: {}, volumes: [{name: d, containerDisk: {image: d:1}}, {name: c, cloudInitNoCloud: {}}]}",
        {"/spec": ["d:1"]},
        "",
    ),
    "VirtualMachineInstanceReplicaSet": (
        "kubevirt.io/v1",
        "spec: {template: {spec: {volumes: [{name: d, containerDisk: {image: d:1}}]}}}",
        {"/spec/template/spec": ["d:1"]},
        "",
    ),
    "VirtualMachinePool": (
        "pool.kubevirt.io/v1alpha1",
        "spec: {virtualMachineTemplate: {spec: {template: {spec: {volumes: [{containerDisk: {image: d:1}}]}}}}}",
        {"/spec/virtualMachineTemplate/spec/template/spec": ["d:1"]},
        "",
    ),
    "InferenceService": (
        "serving.kserve.io/v1beta1",
        "spec: {predictor: {model: {image: m:1}}, transformer: {containers: [{name: t, image: t:1}]}}",
        {"/spec/predictor": ["m:1"], "/spec/transformer": ["t:1"]},
        REFUSED,
    ),
    "ScaledJob": (
        "keda.sh/v1alpha1",
        f"spec: {{jobTargetRef: {{{TEMPLATE}}}}}",
        {"/spec/jobTargetRef/template/spec": ["a:1"]},
        "",
    ),
    "AutoscalingRunnerSet": ("actions.github.com/v1alpha1", f"spec: {{{TEMPLATE}}}", PLAIN, ""),
    **{
        kind: (
            "argoproj.io/v1alpha1",
            (
                "spec: {templates: [{name: a, container: {image: a:1}}, "
                "{name: d, dag: {tasks: [{name: x, inline: {script: {image: s:1, source: ls}}}]}}]}"
            ),
            {"/spec/templates/0": ["a:1"], "/spec/templates/1/dag/tasks/0/inline": ["s:1"]},
            "",
        )
        for kind in ("Workflow", "WorkflowTemplate", "ClusterWorkflowTemplate")
    },
    "CronWorkflow": (
        "argoproj.io/v1alpha1",
        (
            "spec: {workflowSpec: {templateDefaults: {container: {image: d:1}}, "
            "templates: [{name: a, container: {args: [x]}}]}}"
        ),
        {"/spec/workflowSpec/templates/0": ["d:1"]},
        "",
    ),
    "TaskRun": (
        "tekton.dev/v1",
        "spec: {taskSpec: {stepTemplate: {image: t:1}, steps: [{name: a, script: x}, {ref: {name: r}}, {image: s:1}]}}",
        {"/spec/podTemplate": ["t:1", "s:1"]},
        "",
    ),
    "PipelineRun": (
        "tekton.dev/v1",
        (
            "spec: {pipelineSpec: {tasks: [{name: one, taskSpec: {steps: [{image: a:1}]}}, "
            "{name: two, taskRef: {name: t}}]}}"
        ),
        {"/spec/taskRunTemplate/podTemplate": ["a:1"]},
        "",
    ),
    "Task": ("tekton.dev/v1", "spec: {steps: [{name: a, image: a:1}]}", {"/spec": ["a:1"]}, APART),
    "ClusterTask": ("tekton.dev/v1beta1", "spec: {steps: [{name: a, image: a:1}]}", {"/spec": ["a:1"]}, APART),
    "StepAction": ("tekton.dev/v1beta1", "spec: {image: a:1, script: x}", {"/spec": ["a:1"]}, APART),
    "Pipeline": (
        "tekton.dev/v1",
        "spec: {tasks: [{name: one, taskSpec: {steps: [{name: a, image: a:1}]}}]}",
        {"/spec/tasks/0/taskSpec": ["a:1"]},
        APART,
    ),
    "PyTorchJob": (
        "kubeflow.org/v1",
        f"spec: {{pytorchReplicaSpecs: {{Worker: {{replicas: 1, {TEMPLATE}}}}}}}",
        {"/spec/pytorchReplicaSpecs/Worker/template/spec": ["a:1"]},
        "",
    ),
}
IMAGES = {f"{letter}:1": ["linux/amd64"] for letter in "abcdefghijklmnopqrstuvwxyz"}
KNOWN = AnswerFile.from_mapping(IMAGES)
ANSWERS = ImageInspections({text: answer for text in IMAGES if (answer := KNOWN.get(parse(text))) is not None})


def example(kind: str) -> SourceText:
    version, body, _, _ = EXAMPLES[kind]
    text = f"# image\napiVersion: {version}\nkind: {kind}\nmetadata: {{name: web}}\n{body}\n"
    return SourceText.of("web.yaml", text.encode())


def pods(found: Scan) -> dict[str, list[str]]:
    return {each.pointer: [image.text for image in each.images] for each in found.pod_specs}


def test_every_kind_has_an_example() -> None:
    assert set(EXAMPLES) - {"PyTorchJob"} == set(NAMES)


@pytest.mark.parametrize("kind", EXAMPLES)
def test_the_pods_of_a_kind_are_found_with_all_their_images(kind: str) -> None:
    assert pods(scan(example(kind))) == EXAMPLES[kind][2]


@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_constraint_is_written_where_the_kind_takes_it_and_nowhere_else(kind: str) -> None:
    """All images run on amd64 only; what is written is proven, and enough for a second run."""
    source = example(kind)
    result = fix(source, ANSWERS, FixRequest())
    assert result.unproven is None
    _, _, places, word = EXAMPLES[kind]
    operations = [each.pointer for some in result.operations.values() for each in some]
    if word:
        assert operations == []
        elsewhere = any(each.constrained_elsewhere for each in scan(source).pod_specs)
        assert {each.finding.rule for each in result.refused} == ({"MA101"} if word == REFUSED or elsewhere else set())
        return
    assert prove(source, result.text, result.operations) is None
    after = scan(source.replaced(result.text))
    assert [each.pointer for each in after.pod_specs] == list(places)
    assert all(each.required is not None for each in after.pod_specs)
    assert not fix(source.replaced(result.text), ANSWERS, FixRequest()).changed


COLLECTOR = "apiVersion: opentelemetry.io/{}\nkind: OpenTelemetryCollector\nmetadata: {{name: c}}\nspec: {}\n"
SERVED = (
    "apiVersion: serving.kserve.io/v1beta1\nkind: InferenceService\n"
    "metadata: {{name: m, annotations: {}}}\nspec: {{predictor: {{model: {{image: m:1}}}}}}\n"
)
KNATIVE = "Knative"
MODES = [
    (COLLECTOR.format("v1beta1", "{mode: sidecar, image: o:1}"), "other objects"),
    (COLLECTOR.format("v1alpha1", '{mode: "sidecar", image: o:1}'), "other objects"),
    (
        COLLECTOR.format("v1beta1", "{mode: sidecar, image: o:1, initContainers: [{name: i, image: i:1}]}"),
        "other objects",
    ),
    (COLLECTOR.format("v1beta1", "{mode: daemonset, image: o:1}"), ""),
    (COLLECTOR.format("v1beta1", "{mode: null, image: o:1}"), ""),
    (COLLECTOR.format("v1beta1", "{mode: [sidecar], image: o:1}"), ""),
    (SERVED.format("{serving.kserve.io/deploymentMode: Serverless}"), KNATIVE),
    (SERVED.format("{serving.kserve.io/deploymentMode: Knative}"), KNATIVE),
    (SERVED.format("null"), KNATIVE),
    (SERVED.format("{serving.kserve.io/deploymentMode: RawDeployment}"), ""),
    (SERVED.format("{serving.kserve.io/deploymentMode: Standard}"), ""),
]


@pytest.mark.parametrize(("text", "reason"), MODES)
def test_a_mode_that_takes_no_affinity_gets_none(text: str, reason: str) -> None:
    """The collector's operator: "mode … sidecar, which does not support the attribute 'affinity'"."""
    result = fix(SourceText.of("web.yaml", text.encode()), ANSWERS, FixRequest())
    told = [each.note for each in result.refused if each.finding.rule == "MA101"]
    assert ("affinity" in result.text) == (not reason)
    assert len(told) == (1 if reason else 0)
    assert all(reason in each for each in told)


def test_the_guide_lists_every_kind() -> None:
    page = (Path(__file__).parents[4] / "docs" / "guide" / "lint.md").read_text()
    table = page[page.index("## Kinds with pods inside") :].split("\n## ")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", "".join(line for line in table.splitlines() if line.startswith("|"))))
    assert named == set(NAMES)


# The table against the types into which the operators decode their kinds ---------------------------------------------

SCHEMAS = [json.loads(line) for line in (Path(__file__).parent / "kinds.jsonl").read_text().splitlines()]
"""What ``tools/peers/kinds`` says of them; a test of ``make long`` compares the file with the program."""
LEFT_OUT: Mapping[str, str] = {
    "DeploymentConfig spec.strategy.customParams.image": "the deployer is a pod of its own",
    "DeploymentConfig spec.triggers.*.imageChangeParams.lastTriggeredImage": "what OpenShift has written",
    "Prometheus spec.baseImage": "deprecated, and without a version no image",
    "Prometheus spec.thanos.baseImage": "deprecated, and without a version no image",
    "Alertmanager spec.baseImage": "deprecated, and without a version no image",
    "ClusterServiceVersion spec.relatedImages.*.image": "the rules for bundles",
    "TrainJob spec.podSpecOverrides.*": "overrides of what the runtime says",
    "SparkApplication spec": "inherited",
    "ScheduledSparkApplication spec.template": "inherited",
}


def named(schema: Mapping[str, Any]) -> str:
    return f"{schema['kind']} {schema['group']}/{schema['version']}"


def at(place: PodPlace) -> str:
    return place.at.replace("|", ".")


def alternatives(place: PodPlace) -> list[str]:
    """The paths of all images that a row names, from the object on."""
    paths = [path for way in place.images for path in way.split("|")]
    return [at(place) + path if path.startswith(".") else path for path in paths]


def same(pattern: str, path: str) -> bool:
    """Whether a path of the table, with its ``*X``, is one of the schema."""
    pairs = list(zip(pattern.split("."), path.split("."), strict=False))
    equal = pattern.count(".") == path.count(".")
    return equal and all(one == other or (one[:1] == "*" and other.endswith(one[1:])) for one, other in pairs)


def missing(paths: Iterable[str], patterns: Iterable[str]) -> list[str]:
    known = list(patterns)
    return [path for path in paths if not any(same(pattern, path) for pattern in known)]


@pytest.mark.parametrize("schema", SCHEMAS, ids=named)
def test_every_pod_and_image_of_a_schema_is_in_the_table(schema: Mapping[str, Any]) -> None:
    """Or there is a reason; Argo's and Tekton's pods are put together in code."""
    kind = schema["kind"]
    if kind in (*WORKFLOWS, *RUNS, *TASKS):
        assert kind in EXAMPLES
        return
    places = [place for place, _, _ in rows(kind, schema["group"])]
    lists = ("containers", "initContainers", "ephemeralContainers")
    left = [
        *missing(schema["pods"], map(at, places)),
        *missing(
            {*schema["affinities"], *schema["selectors"]},
            (f"{at(each)}{sub}" for each in places for sub in ("", ".affinity")),
        ),
        *missing(schema["images"], (path for place in places for path in alternatives(place))),
        *missing(
            schema["containers"], (f"{at(each)}.{name}" for each in places for name in (*lists, *each.containers))
        ),
    ]
    assert [path for path in left if f"{kind} {path}" not in LEFT_OUT] == []


@pytest.mark.parametrize("schema", SCHEMAS, ids=named)
def test_every_path_of_the_table_is_in_the_schema(schema: Mapping[str, Any]) -> None:
    """Of the kinds that one group has; of those that Kubernetes has, too, one place has to be."""
    kind, group = schema["kind"], schema["group"]
    if kind in (*WORKFLOWS, *RUNS, *TASKS):
        return
    own = [place for place, _, _ in rows(kind, group) if "ReplicaSpecs" not in place.at]
    holders = [*schema["pods"], *schema["affinities"], *schema["selectors"]]
    found = [
        place
        for place in own
        if any(same(at(place), path) or same(f"{at(place)}.affinity", path) for path in holders) or place.apart
    ]
    assert found == own or (kind == "Job" and found)
    for place in found:
        assert [path for path in alternatives(place) if not any(same(path, image) for image in schema["images"])] == []
        assert missing((f"{at(place)}.{name}" for name in place.containers), schema["containers"]) == []
        assert missing(place.inherits, holders) == []


def test_nothing_is_left_out_that_no_schema_has() -> None:
    fields = ("pods", "affinities", "selectors", "images", "containers")
    assert LEFT_OUT.keys() <= {f"{each['kind']} {path}" for each in SCHEMAS for field in fields for path in each[field]}
