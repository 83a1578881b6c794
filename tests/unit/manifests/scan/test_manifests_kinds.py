"""Each kind of the table has an example as its project documents it; what is found in it is written down here."""

import re
from pathlib import Path

import pytest

from polyarch.manifests.fix import FixRequest, fix
from polyarch.manifests.proof import prove
from polyarch.manifests.scan.kinds import NAMES
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
        "",
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
        assert {each.finding.rule for each in result.refused} == ({"MA101"} if word == REFUSED else set())
        return
    assert prove(source, result.text, result.operations) is None
    after = scan(source.replaced(result.text))
    assert [each.pointer for each in after.pod_specs] == list(places)
    assert all(each.required is not None for each in after.pod_specs)
    assert not fix(source.replaced(result.text), ANSWERS, FixRequest()).changed


def test_the_guide_lists_every_kind() -> None:
    page = (Path(__file__).parents[4] / "docs" / "guide" / "lint.md").read_text()
    table = page[page.index("## Kinds with pods inside") :].split("\n## ")[0]
    named = set(re.findall(r"`([A-Z]\w+)`", "".join(line for line in table.splitlines() if line.startswith("|"))))
    assert named == set(NAMES)
