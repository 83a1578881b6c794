"""The flags of ``polyarch run operator``: how it deploys the other roles (``OperatorSettings``)."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from polyarch.cli.errors import UsageError
from polyarch.cli.options.values import (
    Directory,
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
from polyarch.cli.roles.builder_flags import BuilderFlags

if TYPE_CHECKING:
    from polyarch.operator.settings import OperatorSettings

OPERATOR = subject("Operator")
PullPolicy = Annotated[Literal["Always", "IfNotPresent", "Never"], Placeholder("POLICY")]
Certificates = Annotated[Literal["self-managed", "cert-manager", "service-ca"], Placeholder("MODE")]
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
        allow_addresses: tuple[str, ...],
        builder: BuilderFlags,
    ) -> "OperatorSettings":
        """With the flags that the roles have, too. Raises ``UsageError`` for a number of replicas that cannot be."""
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
            webhook_replicas=self.webhook_replicas,
            controller_replicas=self.controller_replicas,
            handler_replicas=self.handler_replicas,
            taints_replicas=self.taints_replicas,
            global_pull_secret=global_pull_secret,
            registries_configmap=self.registries_configmap,
            allow_addresses=allow_addresses,
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
