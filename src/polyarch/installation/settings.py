"""Settings of an installation: the values of the chart, and of ``polyarch install --values``.

One field is one value. Its name in a file is camelCase, and its description is what the chart's README and
``values.schema.json`` say. A field that does not exist is refused, so a misspelt value never passes unnoticed.

The namespace is no value: it is given to the tool that installs. What placement does is no value either, apart from
the first configuration: it is set in the ClusterPodPlacementConfig and the PlacementPolicy. Pure.
"""

import copy
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from polyarch import __version__
from polyarch.operator.registry_settings import AUTHORITIES, CONFIGURATION, PROVIDERS
from polyarch.operator.settings import (
    DEFAULT_BUILDER_IMAGE,
    DEFAULT_IMAGE,
    MACHINE_OS_NAMESPACE,
    MAX_REPLICAS,
    PROVIDERS_DIRECTORY,
    Certificates,
    MachineOS,
    OperatorSettings,
    ProviderMount,
    PullPolicy,
    SecretAccess,
)

Document = dict[str, Any]

REGISTRIES_CONFIGMAP: Final = "polyarch-registries"
"""The ConfigMap made of the values ``registries.configuration``, ``registries.authorities`` and
``registries.credentialProviders.configuration``."""
NUMA: Final = "numa"
"""The component without which the operator has no rights for NUMA, and does nothing for it."""
BUILDS: Final = "builds"
"""The component without which the operator has no rights for builds, and runs no builder."""
REPOSITORY: Final = DEFAULT_IMAGE.partition(":")[0]
_USUAL: Final = OperatorSettings()
Replicas = Annotated[int, Meta(ge=1, le=MAX_REPLICAS)]
"""Of a role that the operator deploys: with any other number it would not start."""
ComponentName = Literal["placement", "taints", "builds", "numa"]
AddressRange = Annotated[
    str,
    Meta(
        title="an address range such as 10.0.0.0/8",
        pattern=r"^([0-9]{1,3}(\.[0-9]{1,3}){3}|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)(/[0-9]{1,3})?$",
    ),
]
"""The pattern finds what cannot be one, also in the chart; ``registry_settings`` knows exactly what is one."""


AnnotationValue = Annotated[str, Meta(title="a value without spaces", pattern=r"^\S*$")]
"""The operator gets annotations as a list with spaces between."""
AbsolutePath = Annotated[
    str, Meta(title="an absolute path without '..', spaces or quotes", pattern=r"^(/[A-Za-z0-9._@%+,:=-]*)*$")
]
"""``registry_settings.wrong_providers_place`` is exact; this finds most in the chart, too."""


EVERY_NODE: Final[Document] = {
    "nodeGroups": [{"poolName": "all", "nodeSelector": {"matchLabels": {"kubernetes.io/os": "linux"}}}]
}
"""One group of all nodes that can run an exporter."""


class Image(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The image of every role."""

    repository: Annotated[str, Meta(description="Registry and repository, without a tag.", min_length=1)] = REPOSITORY
    tag: Annotated[str, Meta(description="Tag; empty: the version of what installs.")] = ""
    digest: Annotated[
        str,
        Meta(
            title="sha256: and 64 hexadecimal digits",
            description="Digest (`sha256:…`); wins over the tag.",
            pattern="^(sha256:[0-9a-f]{64})?$",
        ),
    ] = ""
    pull_policy: Annotated[PullPolicy, Meta(description="When nodes pull the image.")] = "IfNotPresent"
    pull_secrets: Annotated[tuple[str, ...], Meta(description="Names of Secrets with credentials for the image.")] = ()

    @property
    def reference(self) -> str:
        """As a pod names it."""
        return f"{self.repository}@{self.digest}" if self.digest else f"{self.repository}:{self.tag or __version__}"


class SecretName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A Secret by namespace and name."""

    namespace: Annotated[str, Meta(description="Its namespace.", min_length=1)]
    name: Annotated[str, Meta(description="Its name.", min_length=1)]


class CredentialProviders(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The kubelet's credential plugins, for images that nodes pull by an identity of their own."""

    configuration: Annotated[
        str,
        Meta(
            description="Text of a `CredentialProviderConfig`, as the kubelet's `--image-credential-provider-config`."
        ),
    ] = ""
    image: Annotated[
        str, Meta(description="An image with the plugins, for every architecture that polyarch's pods run on.")
    ] = ""
    directory: Annotated[
        AbsolutePath,
        Meta(
            description="Their directory: in `image`, on every node with `mount: hostPath`, else in polyarch's own "
            f"image. Empty: `{PROVIDERS_DIRECTORY}` of `image`."
        ),
    ] = ""
    mount: Annotated[
        ProviderMount,
        Meta(
            description="How pods get at them: a volume of the image (`imageVolume`), a `copy` at their start, which "
            "takes `sh`, `mkdir` and `cp` in the image, or `hostPath`. `auto`: a volume from Kubernetes 1.35 on, a "
            "copy before and on OpenShift."
        ),
    ] = "auto"


class CloudIdentity(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """By what a cloud knows the roles that ask registries."""

    annotations: Annotated[
        dict[str, AnnotationValue],
        Meta(description="Annotations of their ServiceAccounts, such as `eks.amazonaws.com/role-arn`."),
    ] = {}
    roles: Annotated[
        dict[Literal["placement-webhook", "placement-controller", "taints", "builder"], dict[str, AnnotationValue]],
        Meta(description="Further annotations by role, which win."),
    ] = {}
    pod_labels: Annotated[
        dict[str, AnnotationValue], Meta(description="Labels of their pods, such as `azure.workload.identity/use`.")
    ] = {}

    @property
    def account_annotations(self) -> tuple[str, ...]:
        """As the operator's flags have them."""
        shared = (f"{key}={value}" for key, value in sorted(self.annotations.items()))
        own = (
            f"{role}:{key}={value}" for role in sorted(self.roles) for key, value in sorted(self.roles[role].items())
        )
        return (*shared, *own)


class Registries(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """How webhook and controller reach registries."""

    configuration: Annotated[
        str, Meta(description="Text of a `registries.conf` with mirrors, see containers-registries.conf(5).")
    ] = ""
    authorities: Annotated[str, Meta(description="Additional CA certificates (PEM) to trust for registries.")] = ""
    config_map: Annotated[
        str,
        Meta(
            description="Instead of these two, a ConfigMap of yours with `registries.conf` and, optionally, `ca.crt`; "
            "instead of `credentialProviders.configuration` its `credential-providers.yaml`."
        ),
    ] = ""
    credential_providers: Annotated[CredentialProviders, Meta(description="The kubelet's credential plugins.")] = (
        CredentialProviders()
    )
    identity: Annotated[CloudIdentity, Meta(description="The identity of the roles in a cloud.")] = msgspec.field(
        default_factory=CloudIdentity
    )
    global_pull_secret: Annotated[
        SecretName | None,
        Meta(
            description="Pull secret for all pods; null: `openshift-config/pull-secret` on OpenShift, elsewhere none."
        ),
    ] = None
    allow_addresses: Annotated[
        tuple[AddressRange, ...],
        Meta(description="Address ranges (CIDR) of registries that are refused otherwise, such as loopback."),
    ] = ()
    deny_addresses: Annotated[
        tuple[AddressRange, ...],
        Meta(
            description="Address ranges (CIDR) in which no registry is asked, such as those of the cluster's pods and "
            "Services, but for narrower ones of `allowAddresses`. Loopback, link-local and metadata services never are."
        ),
    ] = ()

    secret_access: Annotated[
        SecretAccess,
        Meta(
            description="`byName`: the pull secrets that pods name are read; `none`: no role, nor the operator, has a "
            "right to read Secrets of other namespaces, whatever the policy says."
        ),
    ] = "byName"

    @property
    def mounted(self) -> str:
        """The name of the ConfigMap that webhook and controller mount; empty: none."""
        return self.config_map or (REGISTRIES_CONFIGMAP if self.files else "")

    @property
    def files(self) -> dict[str, str]:
        """The data of the ConfigMap that is made."""
        given = {
            CONFIGURATION: self.configuration,
            AUTHORITIES: self.authorities,
            PROVIDERS: self.credential_providers.configuration,
        }
        return {name: text for name, text in given.items() if text}


class Toleration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A toleration, as in a pod."""

    key: Annotated[str, Meta(description="Key of the taint; empty: every taint.")] = ""
    operator: Annotated[Literal["Exists", "Equal", ""], Meta(description="`Equal` compares the value.")] = ""
    value: Annotated[str, Meta(description="Value of the taint.")] = ""
    effect: Annotated[
        Literal["NoSchedule", "PreferNoSchedule", "NoExecute", ""], Meta(description="Effect; empty: every effect.")
    ] = ""

    def __str__(self) -> str:
        """As a flag: ``key[=value][:effect]``, or ``:`` for every taint: an empty one would be lost among others."""
        compared = self.key and self.operator != "Exists"
        return f"{self.key}{f'={self.value}' if compared else ''}{f':{self.effect}' if self.effect else ''}" or ":"


class OperatorPods(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The Deployment of the operator."""

    replicas: Annotated[int, Meta(description="Replicas; one leads, the others stand by.", ge=0)] = 2
    resources: Annotated[
        Document,
        Meta(
            description="Requests and limits; empty: 50m CPU, 80Mi memory, at most 256Mi. With less than 25m CPU a "
            "busy node may end the operator before it has started."
        ),
    ] = msgspec.field(default_factory=dict)
    affinity: Annotated[Document, Meta(description="Affinity; what the image needs is added.")] = msgspec.field(
        default_factory=dict
    )
    labels: Annotated[dict[str, str], Meta(description="Additional labels of its pods.")] = {}
    annotations: Annotated[dict[str, str], Meta(description="Additional annotations of its pods.")] = {}
    environment: Annotated[
        dict[str, str],
        Meta(
            description="Additional environment variables; of these, proxies such as `HTTPS_PROXY` reach the roles "
            "that ask registries, too."
        ),
    ] = {}


class Placement(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Component placement: every pod is constrained to the architectures that all of its images support."""

    webhook_replicas: Annotated[Replicas, Meta(description="Replicas of the pod webhook.")] = _USUAL.webhook_replicas
    controller_replicas: Annotated[Replicas, Meta(description="Replicas of the controller of gated pods.")] = (
        _USUAL.controller_replicas
    )
    handler_replicas: Annotated[
        Replicas, Meta(description="Replicas of the exec-format-error monitor's handler, where the monitor is enabled.")
    ] = _USUAL.handler_replicas
    configuration: Annotated[
        Document | None,
        Meta(description="`spec` of the ClusterPodPlacementConfig, which turns placement on; null: you make it."),
    ] = msgspec.field(default_factory=dict)
    policy: Annotated[
        Document | None, Meta(description="`spec` of the PlacementPolicy `cluster`; null: none is created.")
    ] = None


class Taints(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Component taints: nodes are tainted with their architecture, and pods get the tolerations they need."""

    replicas: Annotated[Replicas, Meta(description="Replicas of the role; each adds tolerations, one leads.")] = (
        _USUAL.taints_replicas
    )
    configuration: Annotated[
        Document | None,
        Meta(
            description="`spec` of the ArchitectureTaints, which turns component `taints` on if it is among the "
            "`components`; null: you make it."
        ),
    ] = msgspec.field(default_factory=dict)


class Builds(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Component builds: one native image build for each architecture, joined in one index."""

    mode: Annotated[
        Literal["on", "auto"],
        Meta(description="`on`: the builder always runs; `auto`: while there are ImageBuilds, or with `machineOs`."),
    ] = "on"
    replicas: Annotated[Replicas, Meta(description="Replicas of the builder; one leads, the others stand by.")] = (
        _USUAL.builder_replicas
    )
    builder_image: Annotated[
        str,
        Meta(description="The image in which images are built: it has `sh` and buildah 1.28 or newer.", min_length=1),
    ] = DEFAULT_BUILDER_IMAGE
    allow_privileged: Annotated[
        bool, Meta(description="Whether an ImageBuild may ask for the security profile `Privileged`.")
    ] = False
    max_active_jobs: Annotated[
        int, Meta(description="Build Jobs of the cluster at the same time, shared by the namespaces that build.", ge=1)
    ] = _USUAL.max_active_jobs
    machine_os: Annotated[
        MachineOS,
        Meta(
            description="Whether MachineOSConfigs are built as well. `auto`: on OpenShift, once the cluster has that "
            "kind; `on`: on any cluster."
        ),
    ] = "off"
    machine_os_namespace: Annotated[
        str, Meta(description="The namespace of MachineOSConfigs' Secrets, which has to be there.", min_length=1)
    ] = MACHINE_OS_NAMESPACE


class Numa(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Component numa: nodes publish their NUMA zones, and schedulers place pods by them."""

    configuration: Annotated[
        Document | None,
        Meta(
            description="`spec` of the NUMAResourcesOperator, whose groups of nodes publish their zones, if `numa` is "
            "among the `components`; null: you make it."
        ),
    ] = msgspec.field(default_factory=lambda: copy.deepcopy(EVERY_NODE))
    scheduler: Annotated[
        Document | None, Meta(description="`spec` of the NUMAResourcesScheduler; null: none is created.")
    ] = None


class InstallationSettings(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """All values of an installation; the defaults suit most clusters."""

    components: Annotated[tuple[ComponentName, ...], Meta(description="What is installed.", min_length=1)] = (
        "placement",
    )
    image: Annotated[Image, Meta(description="The image of every role.")] = Image()
    certificates: Annotated[
        Certificates,
        Meta(
            description="Who issues the certificates of the webhooks: the operator itself (`self-managed`), "
            "`cert-manager`, or OpenShift's `service-ca`."
        ),
    ] = "self-managed"
    network_policies: Annotated[bool, Meta(description="Whether NetworkPolicies are created.")] = True
    admission_policies: Annotated[
        bool, Meta(description="Whether admission policies narrow what the accounts of roles may write.")
    ] = True
    priority_class_name: Annotated[
        str, Meta(description="Priority class of all pods; empty: none, where the provider refuses this one.")
    ] = _USUAL.priority_class
    node_selector: Annotated[dict[str, str], Meta(description="Node labels that all pods need.")] = {}
    tolerations: Annotated[tuple[Toleration, ...], Meta(description="Taints that all pods tolerate.")] = ()
    registries: Annotated[Registries, Meta(description="How registries are reached.")] = Registries()
    operator: Annotated[OperatorPods, Meta(description="The Deployment of the operator.")] = msgspec.field(
        default_factory=OperatorPods
    )
    placement: Annotated[Placement, Meta(description="Component placement.")] = msgspec.field(default_factory=Placement)
    taints: Annotated[Taints, Meta(description="Component taints.")] = msgspec.field(default_factory=Taints)
    builds: Annotated[Builds, Meta(description="Component builds.")] = msgspec.field(default_factory=Builds)
    numa: Annotated[Numa, Meta(description="Component numa.")] = msgspec.field(default_factory=Numa)
    openshift: Annotated[
        bool | None, Meta(description="Whether the cluster is OpenShift; null: found out, without a cluster no.")
    ] = None
    labels: Annotated[dict[str, str], Meta(description="Additional labels of every object.")] = {}
    annotations: Annotated[dict[str, str], Meta(description="Additional annotations of every object.")] = {}

    def operator_settings(self, namespace: str) -> OperatorSettings:
        """The operator's flags that these values amount to."""
        secret = self.registries.global_pull_secret
        return OperatorSettings(
            namespace=namespace,
            image=self.image.reference,
            image_pull_policy=self.image.pull_policy,
            image_pull_secrets=self.image.pull_secrets,
            certificates=self.certificates,
            network_policies=self.network_policies,
            admission_policies=self.admission_policies,
            webhook_replicas=self.placement.webhook_replicas,
            controller_replicas=self.placement.controller_replicas,
            handler_replicas=self.placement.handler_replicas,
            taints_replicas=self.taints.replicas,
            global_pull_secret=(secret.namespace, secret.name) if secret is not None else None,
            registries_configmap=self.registries.mounted,
            credential_provider_image=self.registries.credential_providers.image,
            credential_provider_directory=self.registries.credential_providers.directory,
            credential_provider_mount=self.registries.credential_providers.mount,
            service_account_annotations=self.registries.identity.account_annotations,
            role_pod_labels=tuple(
                f"{key}={value}" for key, value in sorted(self.registries.identity.pod_labels.items())
            ),
            allow_addresses=self.registries.allow_addresses,
            deny_addresses=self.registries.deny_addresses,
            secret_access=self.registries.secret_access,
            priority_class=self.priority_class_name,
            node_selector=tuple(f"{key}={value}" for key, value in self.node_selector.items()),
            tolerations=tuple(map(str, self.tolerations)),
            builds=self.builds.mode if BUILDS in self.components else "off",
            builder_replicas=self.builds.replicas,
            builder_image=self.builds.builder_image,
            allow_privileged_builds=self.builds.allow_privileged,
            max_active_jobs=self.builds.max_active_jobs,
            machine_os=self.builds.machine_os if BUILDS in self.components else "off",
            machine_os_namespace=self.builds.machine_os_namespace,
            numa="auto" if self.has_numa else "off",  # who has no use for it grants no rights for it
            manage_namespace=self.has_numa,
        )

    @property
    def has_numa(self) -> bool:
        """Whether component ``numa`` is installed: its exporters need a privileged namespace."""
        return NUMA in self.components


def recorded(settings: InstallationSettings) -> str:
    """The values that differ from the defaults, as JSON: an installation remembers them for its upgrade."""
    found = _beyond(msgspec.to_builtins(settings), msgspec.to_builtins(InstallationSettings()))
    return msgspec.json.encode(found, order="sorted").decode()


def of_record(text: str) -> InstallationSettings:
    """The values of an earlier installation; those that this version does not have are left out."""
    given = msgspec.json.decode(text)
    known = msgspec.to_builtins(InstallationSettings())
    return msgspec.convert(_known(given, known), InstallationSettings)


def _beyond(values: Document, usual: Document) -> Document:
    found = {}
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(usual.get(name), dict) and usual[name]:
            if inner := _beyond(value, usual[name]):
                found[name] = inner
        elif value != usual.get(name):
            found[name] = value
    return found


def _known(given: Document, known: Document) -> Document:
    return {
        name: _known(value, known[name])
        if isinstance(value, dict) and isinstance(known[name], dict) and known[name]
        else value
        for name, value in given.items()
        if name in known
    }
