"""The flags of roles, as settings: builder, exec-monitor, operator, taints.

``polyarch run operator`` takes the builder's, too, and hands them to the builder that it deploys. A flag is declared
once for all roles: of two flags with one name only the first would be set.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.errors import UsageError
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

if TYPE_CHECKING:
    from polyarch.operator.settings import OperatorSettings
    from polyarch.run.settings import BuilderSettings, MonitorSettings

BUILDER = subject("Builder")
MachineOS = Annotated[Literal["auto", "on", "off"], Placeholder("WHEN")]
TaintKey = Annotated[str, Placeholder("KEY")]
_TAINT_KEYS = ("kubernetes.io/arch", "supported-arch")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class BuilderFlags:
    """Builds name images and profiles of their own only where these allow it."""

    builder_image: Annotated[Image, option("Image of build containers: sh and buildah", group=BUILDER)] = (
        "quay.io/buildah/stable:v1"
    )
    push_image: Annotated[
        Image,
        option(
            "Image of push containers: polyarch's",
            group=BUILDER,
            show_default="each build names one; for run operator its own image",
        ),
    ] = ""
    allow_privileged_builds: Annotated[bool, flag("Allow builds to ask for privileged containers", group=BUILDER)] = (
        False
    )
    arch_taint_key: Annotated[
        list[TaintKey] | None,
        option(
            "Key of an architecture taint that build pods tolerate; repeatable",
            group=BUILDER,
            show_default=", ".join(_TAINT_KEYS),
        ),
    ] = None
    max_active_jobs: Annotated[
        Number, option("Build Jobs at work in the cluster, shared by namespaces", group=BUILDER)
    ] = 20
    machine_os: Annotated[
        MachineOS | None,
        option(
            "Build MachineOSConfigs too; auto: where the cluster has that kind",
            group=BUILDER,
            show_default="auto, for run operator off",
        ),
    ] = None
    machine_os_namespace: Annotated[Namespace, option("Namespace of MachineOSConfig builds", group=BUILDER)] = (
        "openshift-machine-config-operator"
    )

    def settings(self) -> "BuilderSettings":
        """The same as a value of the process."""
        from polyarch.run.settings import BuilderSettings

        return BuilderSettings(
            builder_image=self.builder_image,
            push_image=self.push_image,
            allow_privileged=self.allow_privileged_builds,
            arch_taint_keys=tuple(dict.fromkeys(self.arch_taint_key)) if self.arch_taint_key else _TAINT_KEYS,
            max_active_jobs=self.max_active_jobs,
            machine_os=self.machine_os or "auto",
            machine_os_namespace=self.machine_os_namespace,
        )

    def check(self, role: str) -> None:
        """Raises ``UsageError`` for a limit that lets no build begin."""
        if self.max_active_jobs < 1:
            raise UsageError(f"run {role}: --max-active-jobs {self.max_active_jobs}: expected 1 or more")


DEFAULT_BUILDER = BuilderFlags()

# -- exec-monitor


MONITOR = subject("Exec-format-error monitor")
Side = Annotated[Literal["node", "handler"], Placeholder("SIDE")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class MonitorFlags:
    """The node side runs on every node and reports to the handler, which tells the pods."""

    side: Annotated[Side, option("The side: node on every node, or their handler", group=MONITOR)] = "handler"
    node_name: Annotated[Name, option("The node's name", group=MONITOR, show_default=False)] = ""
    tracefs: Annotated[
        Directory, option("Mount point of tracefs", group=MONITOR, show_default="/sys/kernel/tracing")
    ] = ""
    proc: Annotated[Directory, option("Mount point of proc", group=MONITOR)] = "/proc"
    pod_logs: Annotated[Directory, option("The kubelet's directory of pod logs", group=MONITOR)] = "/var/log/pods"

    def settings(self) -> "MonitorSettings":
        """The same as a value of the process."""
        from polyarch.run.settings import MonitorSettings

        return MonitorSettings(
            side=self.side, node_name=self.node_name, tracefs=self.tracefs, proc=self.proc, pod_logs=self.pod_logs
        )

    def check(self) -> None:
        """Raises ``UsageError`` for a node side that does not know its node."""
        if self.side == "node" and not self.node_name:
            raise UsageError("run exec-monitor: --node-name is needed with --side node, as reports name the node")


ANY_NODE = MonitorFlags()

# -- operator


OPERATOR = subject("Operator")
PullPolicy = Annotated[Literal["Always", "IfNotPresent", "Never"], Placeholder("POLICY")]
Certificates = Annotated[Literal["self-managed", "cert-manager", "service-ca"], Placeholder("MODE")]
SecretAccess = Annotated[Literal["byName", "none"], Placeholder("HOW")]
ResourceWebhooks = Annotated[Literal["operator", "olm"], Placeholder("WHO")]
When = Annotated[Literal["auto", "on", "off"], Placeholder("WHEN")]
Platform = Annotated[Literal["auto", "kubernetes", "openshift", "hypershift"], Placeholder("PLATFORM")]
Taint = Annotated[str, Placeholder("KEY[=VALUE][:EFFECT]")]


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class OperatorFlags:
    """What the operator needs to know of the roles that it deploys."""

    image: Annotated[Image, option("Image of the roles", group=OPERATOR, show_default="of the operator itself")] = ""
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
        "self-managed"
    )
    resource_webhooks: Annotated[
        ResourceWebhooks, option("Who registers the webhooks of polyarch's own resources", group=OPERATOR)
    ] = "operator"
    network_policies: Annotated[
        bool, Parameter(help="Make NetworkPolicies; on by default", group=OPERATOR, show_default=False)
    ] = True
    admission_policies: Annotated[
        bool,
        Parameter(help="Narrow by policies what roles may write; on by default", group=OPERATOR, show_default=False),
    ] = True
    webhook_replicas: Annotated[Number, option("Replicas of placement-webhook", group=OPERATOR)] = 3
    controller_replicas: Annotated[Number, option("Replicas of placement-controller", group=OPERATOR)] = 2
    handler_replicas: Annotated[Number, option("Replicas of exec-monitor, side handler", group=OPERATOR)] = 2
    taints_replicas: Annotated[Number, option("Replicas of taints", group=OPERATOR)] = 2
    registries_configmap: Annotated[
        Name, option("ConfigMap of the namespace with registries.conf and ca.crt for the roles", group=OPERATOR)
    ] = ""
    priority_class: Annotated[Name, option("Priority class of the roles; empty for none", group=OPERATOR)] = (
        "system-cluster-critical"
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
    ] = "off"
    builder_replicas: Annotated[Number, option("Replicas of builder", group=OPERATOR)] = 2

    numa: Annotated[
        When, option("Run the controllers of NUMA: auto while their definitions are there", group=OPERATOR)
    ] = "auto"
    platform: Annotated[
        Platform, option("What tells the nodes of a NUMA group: auto as the cluster is", group=OPERATOR)
    ] = "auto"
    numa_namespace: Annotated[
        Namespace,
        option("Namespace of NUMA exporters and scheduler", group=OPERATOR, show_default="that of the operator"),
    ] = ""
    manage_namespace: Annotated[
        bool, flag("Set the Pod Security level that NUMA exporters need on their namespace", group=OPERATOR)
    ] = False
    kubelet_root: Annotated[Directory, option("Directory of the kubelets, for NUMA exporters", group=OPERATOR)] = (
        "/var/lib/kubelet"
    )

    def settings(
        self,
        namespace: str,
        global_pull_secret: tuple[str, str] | None,
        addresses: tuple[tuple[str, ...], tuple[str, ...]],
        builder: BuilderFlags,
        secret_access: SecretAccess = "byName",
    ) -> "OperatorSettings":
        """With the flags that the roles have, too; ``addresses``: allowed and denied ones.

        Raises ``UsageError`` for a number of replicas that cannot be."""
        from polyarch.operator.settings import MAX_REPLICAS, OperatorSettings

        for name in (
            "webhook_replicas",
            "controller_replicas",
            "handler_replicas",
            "taints_replicas",
            "builder_replicas",
        ):
            if not 1 <= (number := getattr(self, name)) <= MAX_REPLICAS:
                raise UsageError(f"run operator: --{name.replace('_', '-')} {number}: expected 1 to {MAX_REPLICAS}")
        builder.check("operator")
        if not self.kubelet_root.startswith("/"):
            raise UsageError(f"run operator: --kubelet-root {self.kubelet_root}: expected an absolute path")
        if wrong := [each for each in self.node_selector or () if "=" not in each]:
            raise UsageError(f"run operator: --node-selector {wrong[0]}: expected KEY=VALUE")
        return OperatorSettings(
            namespace=namespace,
            image=self.image,
            image_pull_policy=self.image_pull_policy,
            image_pull_secrets=tuple(self.image_pull_secret or ()),
            certificates=self.certificates,
            resource_webhooks=self.resource_webhooks,
            network_policies=self.network_policies,
            admission_policies=self.admission_policies,
            webhook_replicas=self.webhook_replicas,
            controller_replicas=self.controller_replicas,
            handler_replicas=self.handler_replicas,
            taints_replicas=self.taints_replicas,
            global_pull_secret=global_pull_secret,
            registries_configmap=self.registries_configmap,
            allow_addresses=addresses[0],
            deny_addresses=addresses[1],
            secret_access=secret_access,
            priority_class=self.priority_class,
            node_selector=tuple(self.node_selector or ()),
            tolerations=tuple(self.toleration or ()),
            builds=self.builds,
            builder_replicas=self.builder_replicas,
            builder_image=builder.builder_image,
            push_image=builder.push_image,
            arch_taint_keys=tuple(builder.arch_taint_key or ()),
            allow_privileged_builds=builder.allow_privileged_builds,
            max_active_jobs=builder.max_active_jobs,
            machine_os=builder.machine_os or "off",
            machine_os_namespace=builder.machine_os_namespace,
            numa=self.numa,
            platform=self.platform,
            numa_namespace=self.numa_namespace,
            manage_namespace=self.manage_namespace,
            kubelet_root=self.kubelet_root,
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
    ] = ""


FROM_THE_CLUSTER = TaintFlags()
