"""The flags of roles as help shows them: builder, exec-monitor, operator, taints. Their defaults are in ``flags``.

``polyarch run operator`` takes the builder's, too, and hands them to the builder that it deploys. A flag is declared
once for all roles: of two flags with one name only the first would be set.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.options.values import (
    Directory,
    File,
    Image,
    KeyValue,
    Name,
    Namespace,
    Number,
    Placeholder,
    flag,
    option,
    subject,
)
from polyarch.cli.roles.flags import TAINT_KEYS, USUAL
from polyarch.operator.settings import PROVIDERS_DIRECTORY

BUILDER = subject("Builder")
MachineOS = Annotated[Literal["auto", "on", "off"], Placeholder("WHEN")]
TaintKey = Annotated[str, Placeholder("KEY")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BuilderFlags:
    """Builds name images and profiles of their own only where these allow it."""

    builder_image: Annotated[Image, option("Image of build containers: sh and buildah", group=BUILDER)] = (
        USUAL.builder_image
    )
    push_image: Annotated[
        Image,
        option(
            "Image of push containers: polyarch's",
            group=BUILDER,
            show_default="each build names one; for run operator its own image",
        ),
    ] = USUAL.push_image
    allow_privileged_builds: Annotated[bool, flag("Allow builds to ask for privileged containers", group=BUILDER)] = (
        USUAL.allow_privileged_builds
    )
    arch_taint_key: Annotated[
        list[TaintKey] | None,
        option(
            "Key of an architecture taint that build pods tolerate; repeatable",
            group=BUILDER,
            show_default=", ".join(TAINT_KEYS),
        ),
    ] = None
    max_active_jobs: Annotated[
        Number, option("Build Jobs at work in the cluster, shared by namespaces", group=BUILDER)
    ] = USUAL.max_active_jobs
    machine_os: Annotated[
        MachineOS | None,
        option(
            "Build MachineOSConfigs too; auto: where the cluster has that kind",
            group=BUILDER,
            show_default="auto, for run operator off",
        ),
    ] = None
    machine_os_namespace: Annotated[Namespace, option("Namespace of MachineOSConfig builds", group=BUILDER)] = (
        USUAL.machine_os_namespace
    )


DEFAULT_BUILDER = BuilderFlags()

# -- exec-monitor


MONITOR = subject("Exec-format-error monitor")
Side = Annotated[Literal["node", "handler"], Placeholder("SIDE")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MonitorFlags:
    """The node side runs on every node and reports to the handler, which tells the pods."""

    side: Annotated[Side, option("The side: node on every node, or their handler", group=MONITOR)] = USUAL.side
    node_name: Annotated[Name, option("The node's name", group=MONITOR, show_default=False)] = USUAL.node_name
    tracefs: Annotated[
        Directory, option("Mount point of tracefs", group=MONITOR, show_default="/sys/kernel/tracing")
    ] = USUAL.tracefs
    proc: Annotated[Directory, option("Mount point of proc", group=MONITOR)] = USUAL.proc
    pod_logs: Annotated[Directory, option("The kubelet's directory of pod logs", group=MONITOR)] = USUAL.pod_logs


ANY_NODE = MonitorFlags()

# -- operator


OPERATOR = subject("Operator")
PullPolicy = Annotated[Literal["Always", "IfNotPresent", "Never"], Placeholder("POLICY")]
Certificates = Annotated[Literal["self-managed", "cert-manager", "service-ca"], Placeholder("MODE")]
SecretAccess = Annotated[Literal["byName", "none"], Placeholder("HOW")]
ProviderMount = Annotated[Literal["auto", "imageVolume", "copy", "hostPath"], Placeholder("HOW")]
RoleKeyValue = Annotated[str, Placeholder("[ROLE:]KEY=VALUE")]
ResourceWebhooks = Annotated[Literal["operator", "olm"], Placeholder("WHO")]
When = Annotated[Literal["auto", "on", "off"], Placeholder("WHEN")]
Platform = Annotated[Literal["auto", "kubernetes", "openshift", "hypershift"], Placeholder("PLATFORM")]
Taint = Annotated[str, Placeholder("KEY[=VALUE][:EFFECT]")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OperatorFlags:
    """What the operator needs to know of the roles that it deploys."""

    image: Annotated[Image, option("Image of the roles", group=OPERATOR, show_default="of the operator itself")] = (
        USUAL.image
    )
    image_pull_policy: Annotated[
        PullPolicy | None, option("Pull policy of the roles", group=OPERATOR, show_default="of the operator itself")
    ] = None
    image_pull_secret: Annotated[
        list[Name] | None,
        option(
            "Secret of the namespace to pull the image with; repeatable",
            group=OPERATOR,
            show_default="those of the operator itself",
        ),
    ] = None
    certificates: Annotated[Certificates, option("Who issues the serving certificates", group=OPERATOR)] = (
        USUAL.certificates
    )
    resource_webhooks: Annotated[
        ResourceWebhooks, option("Who registers the webhooks of polyarch's own resources", group=OPERATOR)
    ] = USUAL.resource_webhooks
    network_policies: Annotated[
        bool, Parameter(help="Make NetworkPolicies; on by default", group=OPERATOR, show_default=False)
    ] = USUAL.network_policies
    admission_policies: Annotated[
        bool,
        Parameter(help="Narrow by policies what roles may write; on by default", group=OPERATOR, show_default=False),
    ] = USUAL.admission_policies
    webhook_replicas: Annotated[Number, option("Replicas of placement-webhook", group=OPERATOR)] = (
        USUAL.webhook_replicas
    )
    controller_replicas: Annotated[Number, option("Replicas of placement-controller", group=OPERATOR)] = (
        USUAL.controller_replicas
    )
    handler_replicas: Annotated[Number, option("Replicas of exec-monitor, side handler", group=OPERATOR)] = (
        USUAL.handler_replicas
    )
    taints_replicas: Annotated[Number, option("Replicas of taints", group=OPERATOR)] = USUAL.taints_replicas
    registries_configmap: Annotated[
        Name, option("ConfigMap of the namespace with registries.conf and ca.crt for the roles", group=OPERATOR)
    ] = USUAL.registries_configmap
    credential_provider_image: Annotated[
        Image, option("Image with the kubelet's credential plugins, for roles that ask registries", group=OPERATOR)
    ] = USUAL.credential_provider_image
    credential_provider_directory: Annotated[
        Directory,
        option(
            "Their directory in that image, on nodes with hostPath, else in polyarch's image",
            group=OPERATOR,
            show_default=PROVIDERS_DIRECTORY,
        ),
    ] = USUAL.credential_provider_directory
    credential_provider_mount: Annotated[
        ProviderMount,
        option("How pods get at them: auto mounts the image from Kubernetes 1.35 on, else copies", group=OPERATOR),
    ] = USUAL.credential_provider_mount
    service_account_annotation: Annotated[
        list[RoleKeyValue] | None,
        option("Annotation of ServiceAccounts of roles that ask registries, or of one; repeatable", group=OPERATOR),
    ] = None
    role_pod_label: Annotated[
        list[KeyValue] | None, option("Label of the pods of roles that ask registries; repeatable", group=OPERATOR)
    ] = None
    priority_class: Annotated[Name, option("Priority class of the roles; empty for none", group=OPERATOR)] = (
        USUAL.priority_class
    )
    node_selector: Annotated[
        list[KeyValue] | None, option("Label of the nodes that the roles may run on; repeatable", group=OPERATOR)
    ] = None
    toleration: Annotated[list[Taint] | None, option("Taint that the roles tolerate; repeatable", group=OPERATOR)] = (
        None
    )

    builds: Annotated[
        When,
        option("Run the builder: auto while there are ImageBuilds or their runs, or with --machine-os", group=OPERATOR),
    ] = USUAL.builds
    builder_replicas: Annotated[Number, option("Replicas of builder", group=OPERATOR)] = USUAL.builder_replicas

    numa: Annotated[
        When, option("Run the controllers of NUMA: auto while their definitions are there", group=OPERATOR)
    ] = USUAL.numa
    platform: Annotated[
        Platform, option("What tells the nodes of a NUMA group: auto as the cluster is", group=OPERATOR)
    ] = USUAL.platform
    numa_namespace: Annotated[
        Namespace,
        option("Namespace of NUMA exporters and scheduler", group=OPERATOR, show_default="that of the operator"),
    ] = USUAL.numa_namespace
    manage_namespace: Annotated[
        bool, flag("Set the Pod Security level that NUMA exporters need on their namespace", group=OPERATOR)
    ] = USUAL.manage_namespace
    kubelet_root: Annotated[Directory, option("Directory of the kubelets, for NUMA exporters", group=OPERATOR)] = (
        USUAL.kubelet_root
    )


AS_USUAL = OperatorFlags()

# -- taints


TAINTS = subject("Taints")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TaintFlags:
    """The object ArchitectureTaints as a file, for clusters that do not have its kind."""

    config: Annotated[
        File, option("ArchitectureTaints as a file", group=TAINTS, show_default="the object in the cluster")
    ] = USUAL.config


FROM_THE_CLUSTER = TaintFlags()
