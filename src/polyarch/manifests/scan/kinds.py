"""Where kinds have pods: a table of what is known, taken from their resource definitions and their operators' code.

A row says where a mapping with ``nodeSelector`` and ``affinity`` is, which images its pods have besides the containers
there, what the operator adds, and what the kind does not accept. Only the kind is compared, unless the same kind means
something else in another group: a fork of an operator keeps the kind and changes the group.

Pure data.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache

TEMPLATE = "spec.template.spec"


@dataclass(frozen=True)
class PodPlace:
    """Pods of an object. A path is keys with dots; ``*`` is every element or member, ``*X`` every key that ends in X.
    A path that starts with a dot is relative to ``at``, the others to the object.
    """

    at: str = TEMPLATE
    """The mapping with ``nodeSelector`` and ``affinity``; what follows a ``|`` may be missing, and is written then."""
    images: tuple[str, ...] = ()
    """Images beside containers; of ``a|b`` the first that is there. The operator has one where only the last key of
    such a path is missing.
    """
    containers: tuple[str, ...] = ()
    """Lists of containers besides ``containers`` and ``initContainers``, relative to ``at``."""
    selector: str = "nodeSelector"
    """The node selector, relative to ``at``."""
    architecture: str = ""
    """A field of ``at`` that requires nodes of an architecture."""
    inherits: tuple[str, ...] = ()
    """Mappings whose node selector and affinity hold where there is none at ``at``, the nearest first."""
    completed: bool = False
    """A container without an image is one of the operator's."""
    refused: str = ""
    """Why no constraint is written where there is none."""
    apart: str = ""
    """Why the object does not say all that its pods require: only its own contents are checked."""
    variants: tuple["PlaceVariant", ...] = ()
    """What holds instead by what a field of the object says; the first that applies."""


@dataclass(frozen=True)
class PlaceVariant:
    """Another reading of the same place, for objects with one of these values in a field."""

    field: tuple[str, ...]
    values: tuple[str, ...]
    place: PodPlace


USUAL = PodPlace()
"""A pod template, or any other mapping with containers."""


@dataclass(frozen=True)
class Kind:
    """The places of a kind, of one group or of any."""

    name: str
    places: tuple[PodPlace, ...] = ()
    group: str = ""
    of: str = ""
    """The project, for the documentation; empty for Kubernetes' own."""


def _pods(*paths: str) -> tuple[PodPlace, ...]:
    return tuple(PodPlace(path) for path in paths)


_KNATIVE = (
    "Knative Serving accepts affinity only with the feature flag kubernetes.podspec-affinity; where it is enabled, "
    "write the affinity by hand"
)
_KSERVE = (
    "KServe makes Knative services unless the annotation serving.kserve.io/deploymentMode is Standard, and Knative "
    "Serving accepts affinity only with the feature flag kubernetes.podspec-affinity; where it is enabled, write the "
    "affinity by hand"
)
TASKS_APART = "the pods of a task get their constraints from the runs that use it"
RUNTIME_APART = "the pods of a job get their constraints from the runtime that it names and from its overrides"
SIDECARS = "the container is added to the pods of other objects, which have their own constraints"
ELSEWHERE = (TASKS_APART, RUNTIME_APART, SIDECARS)
"""Why kinds whose images are known say nothing of where these run."""


def _prometheus(name: str, *images: str) -> Kind:
    place = PodPlace("spec", images=("spec.image", *images), completed=True)
    return Kind(name, (place,), of="Prometheus Operator")


def _strimzi(name: str) -> Kind:
    return Kind(name, (PodPlace("spec|template.pod", images=("spec.image",)),), of="Strimzi")


def _elastic(name: str, *paths: str) -> Kind:
    places = tuple(PodPlace(path, images=("spec.image",), completed=True) for path in paths)
    return Kind(name, places, of="Elastic Cloud on Kubernetes")


def _spark(name: str, spec: str) -> Kind:
    roles = ("driver", "executor")
    places = tuple(
        PodPlace(
            f"{spec}.{role}",
            images=(f"{spec}.{role}.image|{spec}.image",),
            containers=("sidecars",),
            inherits=(spec,),
        )
        for role in roles
    )
    beside = "fields beside the template say the rest"
    templates = (PodPlace(f"{spec}.{role}.template.spec", completed=True, apart=beside) for role in roles)
    return Kind(name, (*places, *templates), of="Spark Operator")


def _collector() -> Kind:
    collector = PodPlace("spec", images=("spec.image",), containers=("additionalContainers",))
    sidecar = PlaceVariant(("spec", "mode"), ("sidecar",), replace(collector, apart=SIDECARS))
    allocator = PodPlace("spec.targetAllocator", images=("spec.targetAllocator.image",))
    return Kind(
        "OpenTelemetryCollector", (replace(collector, variants=(sidecar,)), allocator), of="OpenTelemetry Operator"
    )


def _inference(part: str) -> PodPlace:
    place = PodPlace(f"spec.{part}", images=(".model.image",), completed=True)
    mode = ("metadata", "annotations", "serving.kserve.io/deploymentMode")
    deployment = PlaceVariant(mode, ("Standard", "RawDeployment"), place)
    return replace(place, refused=_KSERVE, variants=(deployment,))


def _ray(name: str, cluster: str, *more: str) -> Kind:
    head = PodPlace(
        f"{cluster}.headGroupSpec.template.spec",
        images=(f"{cluster}.*autoscalerOptions.image",),  # without it that of the head: the ``*`` asks for no other
    )
    return Kind(name, (head, *_pods(f"{cluster}.workerGroupSpecs.*.template.spec", *more)), of="KubeRay")


def _runtime(name: str) -> Kind:
    jobs = "spec.template.spec.replicatedJobs.*.template.spec.template.spec"
    return Kind(name, (PodPlace(jobs, completed=True),), of="Kubeflow Trainer")


_DISKS = (".volumes.*.containerDisk.image", ".domain.firmware.kernelBoot.*container.image")

KINDS: tuple[Kind, ...] = (
    Kind("Pod", _pods("spec")),
    Kind("PodTemplate", _pods("template.spec")),
    Kind("ReplicationController", _pods(TEMPLATE)),
    Kind("ReplicaSet", _pods(TEMPLATE)),
    Kind("Deployment", _pods(TEMPLATE)),
    Kind("StatefulSet", _pods(TEMPLATE)),
    Kind("DaemonSet", _pods(TEMPLATE)),
    Kind("Job", _pods(TEMPLATE, "spec.tasks.*.template.spec")),  # the second is Volcano's
    Kind("CronJob", _pods("spec.jobTemplate.spec.template.spec")),
    Kind("DeploymentConfig", _pods(TEMPLATE), of="OpenShift"),
    Kind(
        "ClusterServiceVersion",
        _pods("spec.install.spec.deployments.*.spec.template.spec"),
        of="Operator Lifecycle Manager",
    ),
    Kind("CatalogSource", (PodPlace("spec|grpcPodConfig", images=("spec.image",)),), of="Operator Lifecycle Manager"),
    Kind("JobSet", _pods("spec.replicatedJobs.*.template.spec.template.spec"), of="JobSet"),
    Kind(
        "LeaderWorkerSet",
        _pods("spec.leaderWorkerTemplate.leaderTemplate.spec", "spec.leaderWorkerTemplate.workerTemplate.spec"),
        of="LeaderWorkerSet",
    ),
    Kind("Rollout", _pods(TEMPLATE), of="Argo Rollouts"),
    Kind("CloneSet", _pods(TEMPLATE), of="OpenKruise"),
    Kind("BroadcastJob", _pods(TEMPLATE), of="OpenKruise"),
    Kind(
        "UnitedDeployment",
        _pods(
            *(
                f"spec.template.{each}Template.{TEMPLATE}"
                for each in ("statefulSet", "advancedStatefulSet", "cloneSet", "deployment")
            )
        ),
        of="OpenKruise",
    ),
    Kind(
        "AdvancedCronJob",
        _pods(*(f"spec.template.{each}Template.{TEMPLATE}" for each in ("job", "broadcastJob"))),
        of="OpenKruise",
    ),
    Kind("SidecarSet", (PodPlace("spec", apart=SIDECARS),), of="OpenKruise"),
    # Knative; the core Service has no template.
    Kind("Service", (PodPlace(refused=_KNATIVE),), of="Knative Serving"),
    Kind("Configuration", (PodPlace(refused=_KNATIVE),), group="serving.knative.dev", of="Knative Serving"),
    Kind("Revision", (PodPlace("spec", refused=_KNATIVE),), group="serving.knative.dev", of="Knative Serving"),
    _prometheus("Prometheus", "spec.thanos.image"),
    _prometheus("PrometheusAgent"),
    _prometheus("Alertmanager"),
    _prometheus("ThanosRuler"),
    Kind(
        "Kafka",
        (
            PodPlace("spec.kafka|template.pod", images=("spec.kafka.image",)),
            PodPlace("spec.zookeeper|template.pod", images=("spec.zookeeper.image",)),
            PodPlace(
                "spec.entityOperator|template.pod",
                images=("spec.entityOperator.topicOperator.image", "spec.entityOperator.userOperator.image"),
            ),
            PodPlace("spec.kafkaExporter|template.pod", images=("spec.kafkaExporter.image",)),
            PodPlace("spec.cruiseControl|template.pod", images=("spec.cruiseControl.image",)),
        ),
        of="Strimzi",
    ),
    Kind(
        "KafkaNodePool",
        (PodPlace("spec|template.pod", apart="the image is that of the Kafka which the pool belongs to"),),
        of="Strimzi",
    ),
    _strimzi("KafkaConnect"),
    _strimzi("KafkaMirrorMaker2"),
    _strimzi("KafkaBridge"),
    Kind(
        "FlinkDeployment",
        (
            PodPlace("spec|podTemplate.spec", images=("spec.image",), completed=True),
            PodPlace(
                "spec.jobManager.podTemplate.spec",
                images=("spec.image",),
                completed=True,
                inherits=("spec.podTemplate.spec",),
            ),
            PodPlace(
                "spec.taskManager.podTemplate.spec",
                images=("spec.image",),
                completed=True,
                inherits=("spec.podTemplate.spec",),
            ),
        ),
        of="Flink Operator",
    ),
    _spark("SparkApplication", "spec"),
    _spark("ScheduledSparkApplication", "spec.template"),
    _ray("RayCluster", "spec"),
    _ray("RayJob", "spec.rayClusterSpec", "spec.submitterPodTemplate.spec"),
    _ray("RayService", "spec.rayClusterConfig"),
    Kind("Notebook", _pods(TEMPLATE), of="Kubeflow"),
    _collector(),
    Kind(
        "TargetAllocator",
        (PodPlace("spec", images=("spec.image",), containers=("additionalContainers",)),),
        of="OpenTelemetry Operator",
    ),
    Kind("OpAMPBridge", (PodPlace("spec", images=("spec.image",)),), of="OpenTelemetry Operator"),
    Kind(
        "Instrumentation",
        (
            PodPlace(
                "spec",
                images=(
                    *(
                        f"spec.{each}.image"
                        for each in ("java", "nodejs", "python", "dotnet", "go", "apacheHttpd", "nginx")
                    ),
                    "spec.java.extensions.*.image",
                ),
                apart=SIDECARS,
            ),
        ),
        of="OpenTelemetry Operator",
    ),
    Kind(
        "Cluster",
        (PodPlace("spec", images=("spec.imageName",), selector="affinity.nodeSelector"),),
        group="postgresql.cnpg.io",
        of="CloudNativePG",
    ),
    Kind("Pooler", (PodPlace("spec|template.spec", completed=True),), group="postgresql.cnpg.io", of="CloudNativePG"),
    _elastic("Elasticsearch", "spec.nodeSets.*|podTemplate.spec"),
    _elastic("Kibana", "spec|podTemplate.spec"),
    _elastic("ApmServer", "spec|podTemplate.spec"),
    _elastic("EnterpriseSearch", "spec|podTemplate.spec"),
    _elastic("ElasticMapsServer", "spec|podTemplate.spec"),
    _elastic("Logstash", "spec|podTemplate.spec"),
    _elastic("Beat", "spec.daemonSet|podTemplate.spec", "spec.deployment|podTemplate.spec"),
    _elastic(
        "Agent",
        "spec.daemonSet|podTemplate.spec",
        "spec.deployment|podTemplate.spec",
        "spec.statefulSet|podTemplate.spec",
    ),
    *(
        Kind(
            name,
            (PodPlace(path, images=_DISKS, architecture="architecture"),),
            of="KubeVirt",
        )
        for name, path in (
            ("VirtualMachine", TEMPLATE),
            ("VirtualMachineInstance", "spec"),
            ("VirtualMachineInstanceReplicaSet", TEMPLATE),
            ("VirtualMachinePool", "spec.virtualMachineTemplate.spec.template.spec"),
        )
    ),
    Kind(
        "InferenceService",
        tuple(map(_inference, ("predictor", "transformer", "explainer"))),
        of="KServe",
    ),
    Kind("ScaledJob", _pods("spec.jobTargetRef.template.spec"), of="KEDA"),
    Kind(
        "AutoscalingRunnerSet",
        (USUAL, PodPlace("spec.listenerTemplate.spec", completed=True)),
        of="Actions Runner Controller",
    ),
    Kind(
        "TrainJob",
        (PodPlace("spec", images=("spec.*trainer.image",), apart=RUNTIME_APART),),
        of="Kubeflow Trainer",
    ),
    _runtime("TrainingRuntime"),
    _runtime("ClusterTrainingRuntime"),
    # Kubeflow's training jobs, of any kind: tfReplicaSpecs, pytorchReplicaSpecs, mpiReplicaSpecs …
    Kind("*", _pods("spec.*ReplicaSpecs.*.template.spec"), of="Kubeflow"),
)

WORKFLOWS = {
    "Workflow": "spec",
    "WorkflowTemplate": "spec",
    "ClusterWorkflowTemplate": "spec",
    "CronWorkflow": "spec.workflowSpec",
}
"""Argo Workflows: where the workflow is. Each of its templates with a container is a pod."""
RUNS = ("TaskRun", "PipelineRun")
"""Tekton: each task of a run is a pod, with a pod template of its own or of the run."""
TASKS = ("Task", "ClusterTask", "Pipeline", "StepAction")
"""Tekton: what runs are made of."""

BY_NAME: dict[str, tuple[Kind, ...]] = {
    name: tuple(kind for kind in KINDS if kind.name == name) for name in dict.fromkeys(kind.name for kind in KINDS)
}
NAMES = (*(name for name in BY_NAME if name != "*"), *WORKFLOWS, *RUNS, *TASKS)
"""All kinds that are known by name."""


@lru_cache(maxsize=1024)
def rows(kind: str, group: str) -> tuple[tuple[PodPlace, str, str], ...]:
    """The places of a kind, and those that every kind may have, each with the two parts of the way to it."""
    own = (*BY_NAME.get(kind, ()), *BY_NAME["*"])
    places = [place for row in own if row.group in ("", group) for place in row.places]
    return tuple((place, place.at.partition("|")[0], place.at.partition("|")[2]) for place in places)


_WITHOUT_PODS = re.compile(
    r"|apps|batch|policy|autoscaling|extensions|(?:.+\.)?k8s\.io|kind\.x-k8s\.io|config\.kubernetes\.io"
    r"|(?:config|image|operator|machineconfiguration|build|route)\.openshift\.io"
    r"|operators\.coreos\.com|(?:.+\.)?operatorframework\.io|polyarch\.dev|multiarch\.openshift\.io"
)


def runs_nothing(group: str) -> bool:
    """Whether the kinds of a group are either in the table or run no image that they name."""
    return bool(_WITHOUT_PODS.fullmatch(group))


@lru_cache(maxsize=1024)
def is_known(kind: str, group: str) -> bool:
    """Whether the table says where the pods of a kind are."""
    return (
        kind in WORKFLOWS or kind in (*RUNS, *TASKS) or any(row.group in ("", group) for row in BY_NAME.get(kind, ()))
    )
