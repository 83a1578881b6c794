"""The flags of ``polyarch run ROLE`` as plain values, and the settings that they make.

``commands`` and ``options`` declare each with its help, and take its default from here. What is here needs no library
of the command line, so that a pod starts without (``pod_start``).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Any, Final, Literal

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.roles.reexec import ReexecSettings
from polyarch.kube.settings import ProcessSettings
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.operator.registry_settings import wrong_providers_place
from polyarch.operator.settings import (
    ASKING_ROLES,
    MAX_REPLICAS,
    Builds,
    Certificates,
    MachineOS,
    Numa,
    OperatorSettings,
    Platform,
    ProviderMount,
    PullPolicy,
    ResourceWebhooks,
    SecretAccess,
)
from polyarch.run.settings import BuilderSettings, LogFormat, MonitorSettings

TAINT_KEYS: Final = BuilderSettings().arch_taint_keys
_PROCESS: Final = ProcessSettings(namespace=DEFAULT_NAMESPACE)
_OPERATOR: Final = OperatorSettings()
_MONITOR: Final = MonitorSettings()


class RoleChoice(Enum):
    """What can be run: the modules of ``polyarch.run`` whose roles are played together in the process."""

    OPERATOR = ("operator",)
    PLACEMENT_WEBHOOK = ("placement_webhook",)
    PLACEMENT_CONTROLLER = ("placement_controller",)
    EXEC_MONITOR = ("exec_monitor",)
    TAINTS = ("taints",)
    BUILDER = ("builder",)
    ALL = ("placement_webhook", "placement_controller", "taints")

    @property
    def label(self) -> str:
        """As it is typed."""
        return self.name.lower().replace("_", "-")


class RoleFlags(msgspec.Struct, frozen=True, kw_only=True):
    """Every flag of ``polyarch run ROLE`` that is a setting; a field is named like its flag."""

    bind: str = _PROCESS.bind
    port: int = _PROCESS.port
    metrics_port: int = _PROCESS.metrics_port
    health_port: int = _PROCESS.health_port
    cert_dir: str = _PROCESS.cert_dir
    leader_elect: bool = _PROCESS.leader_elect
    namespace: str = DEFAULT_NAMESPACE
    kubeconfig: str | None = None
    context: str | None = None
    log_format: LogFormat = "json"
    quiet: bool = False
    verbose: bool = False

    global_pull_secret_namespace: str = ""
    global_pull_secret_name: str = ""
    registries_conf: str | None = None
    ca: tuple[str, ...] = ()
    registries_dir: str = ""
    allow_address: tuple[str, ...] = ()
    deny_address: tuple[str, ...] = ()
    secret_access: SecretAccess = _OPERATOR.secret_access
    image_credential_provider_config: str = ""
    image_credential_provider_bin_dir: str = ""

    image: str = ""
    image_pull_policy: PullPolicy | None = None
    image_pull_secret: tuple[str, ...] = ()
    certificates: Certificates = _OPERATOR.certificates
    resource_webhooks: ResourceWebhooks = _OPERATOR.resource_webhooks
    network_policies: bool = _OPERATOR.network_policies
    admission_policies: bool = _OPERATOR.admission_policies
    webhook_replicas: int = _OPERATOR.webhook_replicas
    controller_replicas: int = _OPERATOR.controller_replicas
    handler_replicas: int = _OPERATOR.handler_replicas
    taints_replicas: int = _OPERATOR.taints_replicas
    registries_configmap: str = _OPERATOR.registries_configmap
    credential_provider_image: str = _OPERATOR.credential_provider_image
    credential_provider_directory: str = _OPERATOR.credential_provider_directory
    credential_provider_mount: ProviderMount = _OPERATOR.credential_provider_mount
    service_account_annotation: tuple[str, ...] = ()
    role_pod_label: tuple[str, ...] = ()
    priority_class: str = _OPERATOR.priority_class
    node_selector: tuple[str, ...] = ()
    toleration: tuple[str, ...] = ()
    builds: Builds = _OPERATOR.builds
    builder_replicas: int = _OPERATOR.builder_replicas
    numa: Numa = _OPERATOR.numa
    platform: Platform = _OPERATOR.platform
    numa_namespace: str = _OPERATOR.numa_namespace
    manage_namespace: bool = _OPERATOR.manage_namespace
    kubelet_root: str = _OPERATOR.kubelet_root

    builder_image: str = _OPERATOR.builder_image
    push_image: str = _OPERATOR.push_image
    allow_privileged_builds: bool = _OPERATOR.allow_privileged_builds
    arch_taint_key: tuple[str, ...] = ()
    max_active_jobs: int = _OPERATOR.max_active_jobs
    machine_os: MachineOS | None = None
    machine_os_namespace: str = _OPERATOR.machine_os_namespace

    side: Literal["node", "handler"] = _MONITOR.side
    node_name: str = _MONITOR.node_name
    tracefs: str = _MONITOR.tracefs
    proc: str = _MONITOR.proc
    pod_logs: str = _MONITOR.pod_logs

    config: str = ""

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "RoleFlags":
        """With these values where they are not None. Raises ``msgspec.ValidationError`` for one of a wrong type."""
        return msgspec.convert({name: value for name, value in values.items() if value is not None}, cls)

    def settings(self, role: RoleChoice) -> ReexecSettings:
        """What the role is started with. Raises ``UsageError`` for values that cannot be, or not together."""
        if self.quiet and self.verbose:
            raise UsageError("--quiet and --verbose cannot be combined; remove one of them")
        if bool(self.global_pull_secret_namespace) != bool(self.global_pull_secret_name):
            raise UsageError(
                "--global-pull-secret-namespace and --global-pull-secret-name go together: give both or none"
            )
        providers = self.image_credential_provider_config, self.image_credential_provider_bin_dir
        if bool(providers[0]) != bool(providers[1]) and not (providers[1] and self.registries_dir):
            raise UsageError(
                "--image-credential-provider-config and --image-credential-provider-bin-dir go together: "
                "give both or none"
            )
        if role is RoleChoice.EXEC_MONITOR and self.side == "node" and not self.node_name:
            raise UsageError("run exec-monitor: --node-name is needed with --side node, as reports name the node")
        if role is RoleChoice.BUILDER:
            self._check_jobs("builder")
        return ReexecSettings(
            name=role.label,
            modules=role.value,
            process=ProcessSettings(
                namespace=self.namespace,
                bind=self.bind,
                port=self.port,
                metrics_port=self.metrics_port,
                health_port=self.health_port,
                cert_dir=self.cert_dir,
                leader_elect=self.leader_elect,
            ),
            kubeconfig=self.kubeconfig,
            context=self.context,
            log_format=self.log_format,
            log_level="warning" if self.quiet else "debug" if self.verbose else "info",
            global_pull_secret=self._global_pull_secret,
            registries_conf=self.registries_conf,
            registries_dir=self.registries_dir,
            ca=self.ca,
            allow_addresses=self.allow_address,
            deny_addresses=self.deny_address,
            secret_access=self.secret_access,
            credential_providers=(self.image_credential_provider_config, self.image_credential_provider_bin_dir),
            operator=self.operator_settings(),
            monitor=MonitorSettings(
                side=self.side,
                node_name=self.node_name,
                tracefs=self.tracefs,
                proc=self.proc,
                pod_logs=self.pod_logs,
            ),
            taints=self.config if RoleChoice.TAINTS.value[0] in role.value else "",
            builder=BuilderSettings(
                builder_image=self.builder_image,
                push_image=self.push_image,
                allow_privileged=self.allow_privileged_builds,
                arch_taint_keys=tuple(dict.fromkeys(self.arch_taint_key)) if self.arch_taint_key else TAINT_KEYS,
                max_active_jobs=self.max_active_jobs,
                machine_os=self.machine_os or "auto",
                machine_os_namespace=self.machine_os_namespace,
            ),
        )

    def operator_settings(self) -> OperatorSettings:
        """Those of the operator. Raises ``UsageError`` for a value that cannot be."""
        for name in (
            "webhook_replicas",
            "controller_replicas",
            "handler_replicas",
            "taints_replicas",
            "builder_replicas",
        ):
            if not 1 <= (number := getattr(self, name)) <= MAX_REPLICAS:
                raise UsageError(f"run operator: --{name.replace('_', '-')} {number}: expected 1 to {MAX_REPLICAS}")
        self._check_jobs("operator")
        if not self.kubelet_root.startswith("/"):
            raise UsageError(f"run operator: --kubelet-root {self.kubelet_root}: expected an absolute path")
        for flag, texts in (
            ("node-selector", self.node_selector),
            ("service-account-annotation", self.service_account_annotation),
            ("role-pod-label", self.role_pod_label),
        ):
            if wrong := [text for text in texts if "=" not in text]:
                raise UsageError(f"run operator: --{flag} {wrong[0]}: expected KEY=VALUE")
        self._check_providers()
        return OperatorSettings(
            namespace=self.namespace,
            image=self.image,
            image_pull_policy=self.image_pull_policy,
            image_pull_secrets=self.image_pull_secret,
            certificates=self.certificates,
            resource_webhooks=self.resource_webhooks,
            network_policies=self.network_policies,
            admission_policies=self.admission_policies,
            webhook_replicas=self.webhook_replicas,
            controller_replicas=self.controller_replicas,
            handler_replicas=self.handler_replicas,
            taints_replicas=self.taints_replicas,
            global_pull_secret=self._global_pull_secret,
            registries_configmap=self.registries_configmap,
            credential_provider_image=self.credential_provider_image,
            credential_provider_directory=self.credential_provider_directory,
            credential_provider_mount=self.credential_provider_mount,
            service_account_annotations=self.service_account_annotation,
            role_pod_labels=self.role_pod_label,
            allow_addresses=self.allow_address,
            deny_addresses=self.deny_address,
            secret_access=self.secret_access,
            priority_class=self.priority_class,
            node_selector=self.node_selector,
            tolerations=self.toleration,
            builds=self.builds,
            builder_replicas=self.builder_replicas,
            builder_image=self.builder_image,
            push_image=self.push_image,
            arch_taint_keys=self.arch_taint_key,
            allow_privileged_builds=self.allow_privileged_builds,
            max_active_jobs=self.max_active_jobs,
            machine_os=self.machine_os or "off",
            machine_os_namespace=self.machine_os_namespace,
            numa=self.numa,
            platform=self.platform,
            numa_namespace=self.numa_namespace,
            manage_namespace=self.manage_namespace,
            kubelet_root=self.kubelet_root,
        )

    @property
    def _global_pull_secret(self) -> tuple[str, str] | None:
        if not self.global_pull_secret_name:
            return None
        return self.global_pull_secret_namespace, self.global_pull_secret_name

    def _check_providers(self) -> None:
        """What the API server would refuse of each Deployment, and what two places of the plugins would leave open."""
        if problem := wrong_providers_place(
            self.credential_provider_image, self.credential_provider_directory, self.credential_provider_mount
        ):
            raise UsageError(f"run operator: --credential-provider-{problem}")
        for text in self.service_account_annotation:
            named, colon, _ = text.partition("=")[0].partition(":")
            if colon and named not in ASKING_ROLES:
                known = ", ".join(ASKING_ROLES)
                raise UsageError(
                    f"run operator: --service-account-annotation {text}: no role {named!r}; known: {known}"
                )

    def _check_jobs(self, role: str) -> None:
        """A limit that lets no build begin is none."""
        if self.max_active_jobs < 1:
            raise UsageError(f"run {role}: --max-active-jobs {self.max_active_jobs}: expected 1 or more")


USUAL: Final = RoleFlags()
KINDS: Final = {
    name: str if (usual := getattr(USUAL, name)) is None else type(usual) for name in RoleFlags.__struct_fields__
}
"""Flag → str, int, bool or tuple."""
