"""The operator's own objects, which whoever installs polyarch applies; it makes all others itself.

They are made as those of the other roles are. Its settings are environment variables, so that an OLM Subscription or a
kustomize patch can override them by name. Pure.
"""

from typing import Any, Final

from polyarch import __version__
from polyarch.installation.settings import InstallationSettings
from polyarch.kube.rbac import granted
from polyarch.operator import operands, owned_objects
from polyarch.operator.components.operator_rbac import operator_permissions
from polyarch.operator.settings import ClusterCapabilities, OperatorSettings
from polyarch.placement import names
from polyarch.taints.settings import PRESET_KEYS

Document = dict[str, Any]

OPERATOR: Final = names.OPERATOR
PART_OF: Final = "app.kubernetes.io/part-of"
PRODUCT: Final = "polyarch"
VERSION: Final = "app.kubernetes.io/version"
NUMA_SWITCH: Final = "POLYARCH_NUMA"
BUILDS_SWITCH: Final = "POLYARCH_BUILDS"
NUMA_NAMESPACE: Final = "POLYARCH_NUMA_NAMESPACE"


def rights(settings: OperatorSettings, cluster: ClusterCapabilities) -> list[Document]:
    """Its ClusterRole, its Roles and their bindings."""
    allowed = operator_permissions(settings, cluster)
    account = [(settings.namespace, OPERATOR)]
    marks = owned_objects.labels(OPERATOR)
    documents = granted(OPERATOR, allowed.cluster, account, labels=marks)
    for namespace, rules in allowed.namespaces.items():
        documents += granted(OPERATOR, rules, account, namespace=namespace, labels=marks)
    return documents


def workload_objects(
    settings: InstallationSettings, own: OperatorSettings, cluster: ClusterCapabilities
) -> list[Document]:
    """Service, NetworkPolicy, PodDisruptionBudget and Deployment."""
    workload = operands.OperandDeployment(
        name=OPERATOR,
        container=operands.OPERATOR_CONTAINER,
        role="operator",
        replicas=settings.operator.replicas,
        cpu="50m",
        memory="80Mi",
        memory_limit="256Mi",
        webhook=True,
    )
    *others, deployment = operands.operand_objects(workload, own.tolerating(*tolerated(settings)), cluster)
    return [*others, _configured(deployment, settings, own)]


def tolerated(settings: InstallationSettings) -> tuple[str, ...]:
    """Keys of taints by architecture that the operator tolerates: those of the presets, and that of the settings.

    The operator adds the key in force to what it makes. Its own Deployment is not its own to change, and tolerating a
    taint that no node has does nothing.
    """
    key = ((settings.taints.configuration or {}).get("taint") or {}).get("key")
    return (*PRESET_KEYS.values(), *([key] if key else []))


def environment(settings: OperatorSettings) -> dict[str, str]:
    """The flags of ``polyarch run operator`` that differ from their defaults, as environment variables.

    Image, pull policy and pull secrets are not among them: the operator takes them from its own pod, so that whoever
    changes its image (``kubectl set image``, kustomize's ``images``, OLM) changes that of every role. Whether NUMA is
    on is always said, so that a patch can change it.
    """
    usual = _variables(OperatorSettings())
    return {name: value for name, value in _variables(settings).items() if value != usual[name] or name == NUMA_SWITCH}


def _variables(settings: OperatorSettings) -> dict[str, str]:
    secret = settings.global_pull_secret or ("", "")
    values = {
        "CERTIFICATES": settings.certificates,
        "NETWORK_POLICIES": str(settings.network_policies).lower(),
        "ADMISSION_POLICIES": str(settings.admission_policies).lower(),
        "WEBHOOK_REPLICAS": str(settings.webhook_replicas),
        "CONTROLLER_REPLICAS": str(settings.controller_replicas),
        "HANDLER_REPLICAS": str(settings.handler_replicas),
        "TAINTS_REPLICAS": str(settings.taints_replicas),
        "GLOBAL_PULL_SECRET_NAMESPACE": secret[0],
        "GLOBAL_PULL_SECRET_NAME": secret[1],
        "REGISTRIES_CONFIGMAP": settings.registries_configmap,
        "CREDENTIAL_PROVIDER_IMAGE": settings.credential_provider_image,
        "CREDENTIAL_PROVIDER_DIRECTORY": settings.credential_provider_directory,
        "CREDENTIAL_PROVIDER_MOUNT": settings.credential_provider_mount,
        "SERVICE_ACCOUNT_ANNOTATION": " ".join(settings.service_account_annotations),
        "ROLE_POD_LABEL": " ".join(settings.role_pod_labels),
        "SECRET_ACCESS": settings.secret_access,
        "ALLOW_ADDRESS": " ".join(settings.allow_addresses),
        "DENY_ADDRESS": " ".join(settings.deny_addresses),
        "PRIORITY_CLASS": settings.priority_class,
        "NODE_SELECTOR": " ".join(settings.node_selector),
        "TOLERATION": " ".join(settings.tolerations),
        "BUILDS": settings.builds,
        "BUILDER_REPLICAS": str(settings.builder_replicas),
        "BUILDER_IMAGE": settings.builder_image,
        "ALLOW_PRIVILEGED_BUILDS": str(settings.allow_privileged_builds).lower(),
        "MAX_ACTIVE_JOBS": str(settings.max_active_jobs),
        "MACHINE_OS": settings.machine_os,
        "MACHINE_OS_NAMESPACE": settings.machine_os_namespace,
        "NUMA": settings.numa,
        "PLATFORM": settings.platform,
        "NUMA_NAMESPACE": settings.numa_namespace,
        "MANAGE_NAMESPACE": str(settings.manage_namespace).lower(),
        "KUBELET_ROOT": settings.kubelet_root,
    }
    return {f"POLYARCH_{name}": value for name, value in values.items()}


def _configured(deployment: Document, settings: InstallationSettings, own: OperatorSettings) -> Document:
    """The Deployment with what its values say, and with settings instead of flags."""
    pods = settings.operator
    deployment["metadata"]["labels"][VERSION] = __version__
    template = deployment["spec"]["template"]
    template["metadata"]["labels"] = {**pods.labels, **template["metadata"]["labels"], PART_OF: PRODUCT}
    if annotations := {**pods.annotations, **template["metadata"].get("annotations", {})}:
        template["metadata"]["annotations"] = annotations
    spec = template["spec"]
    spec["affinity"] = _merged(pods.affinity, spec["affinity"])
    del spec["volumes"]  # it reads its certificate from the API server, so that it starts before there is one
    (container,) = spec["containers"]
    del container["volumeMounts"]
    container["args"] = ["run", "operator"]
    values = {"POLYARCH_NAMESPACE": "$(POD_NAMESPACE)", "POLYARCH_BIND": "$(POD_IP)", **environment(own)}
    container["env"] += [{"name": name, "value": value} for name, value in (values | pods.environment).items()]
    if pods.resources:
        container["resources"] = pods.resources
    return deployment


def _merged(theirs: Document, ours: Document) -> Document:
    """The user's affinity, with the architectures and the operating system that the image needs in every term.

    What the user says of other pods replaces our preference for different nodes.
    """
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    (needed,) = ours["nodeAffinity"][key]["nodeSelectorTerms"]
    node = theirs.get("nodeAffinity") or {}
    terms: list[Document] = (node.get(key) or {}).get("nodeSelectorTerms") or [{}]
    narrowed = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), *needed["matchExpressions"]]}
        for term in terms
    ]
    return {**ours, **theirs, "nodeAffinity": {**node, key: {"nodeSelectorTerms": narrowed}}}
