"""Settings of the operator: how it deploys the other roles, and what its cluster offers.

The settings are the operator's flags. The installer, the chart and the bundle write them, and nothing else configures
the operator: what placement itself does comes from the ClusterPodPlacementConfig and the PlacementPolicy. Pure.
"""

from typing import Final, Literal

import msgspec

from polyarch import __version__
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.platforms import IMAGE_ARCHITECTURES

Certificates = Literal["self-managed", "cert-manager", "service-ca"]
ResourceWebhooks = Literal["operator", "olm"]
Numa = Literal["auto", "on", "off"]
Builds = Literal["auto", "on", "off"]
MachineOS = Literal["auto", "on", "off"]
Platform = Literal["auto", "kubernetes", "openshift", "hypershift"]
SecretAccess = Literal["byName", "none"]
ProviderMount = Literal["auto", "imageVolume", "copy", "hostPath"]
PullPolicy = Literal["Always", "IfNotPresent", "Never"]

DEFAULT_IMAGE: Final = f"ghcr.io/polyarch/polyarch:{__version__}"
"""The image of every role, of this version."""
DEFAULT_KUBELET_ROOT: Final = "/var/lib/kubelet"
DEFAULT_BUILDER_IMAGE: Final = "quay.io/buildah/stable:v1"
"""The image in which images are built; for all architectures that ours is for."""
MACHINE_OS_NAMESPACE: Final = "openshift-machine-config-operator"
MAX_REPLICAS: Final = 20
"""Replicas of a role that the operator deploys; the least is 1."""
IMAGE_VOLUMES: Final = (1, 35)
"""Since this version clusters have image volumes unless they are switched off."""
PROVIDERS_DIRECTORY: Final = "/credential-providers"
"""Where an image has credential plugins unless it is said."""
ASKING_ROLES: Final = ("placement-webhook", "placement-controller", "taints", "builder")
"""Roles that ask registries, as ``polyarch run`` names them."""
OLDEST_KUBERNETES: Final = (1, 30)
"""The operator deploys nothing on an older one."""


class OperatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The flags of ``polyarch run operator`` that shape the objects it makes."""

    namespace: str = DEFAULT_NAMESPACE
    image: str = DEFAULT_IMAGE
    """Empty: as the operator's own pod has it."""
    image_pull_policy: PullPolicy | None = "IfNotPresent"
    """None: as the operator's own pod has it."""
    image_pull_secrets: tuple[str, ...] = ()
    """Names of Secrets in the operator's namespace. Empty: as the operator's own pod has them."""
    certificates: Certificates = "self-managed"
    """Who issues the serving certificates."""
    resource_webhooks: ResourceWebhooks = "operator"
    """Who registers the webhooks and the conversion of custom resources."""
    network_policies: bool = True
    """Whether NetworkPolicies are made."""
    admission_policies: bool = True
    """Whether ValidatingAdmissionPolicies narrow what accounts of roles may write."""
    webhook_replicas: int = 3
    controller_replicas: int = 2
    handler_replicas: int = 2
    """Replicas of the exec-format-error monitor's handler."""
    taints_replicas: int = 2
    global_pull_secret: tuple[str, str] | None = None
    """Namespace and name; None: ``openshift-config/pull-secret`` on OpenShift, elsewhere no secret."""
    registries_configmap: str = ""
    """A ConfigMap in the operator's namespace with ``registries.conf`` and, optionally, ``ca.crt``."""
    allow_addresses: tuple[str, ...] = ()
    """Address ranges (CIDR) of registries that are refused otherwise."""
    deny_addresses: tuple[str, ...] = ()
    """Address ranges (CIDR) in which no registry is asked, but for narrower ones of ``allow_addresses``."""
    credential_provider_image: str = ""
    """An image with the kubelet's credential plugins, for the roles that ask registries."""
    credential_provider_directory: str = ""
    """Their directory: in that image, on nodes with ``hostPath``, else in polyarch's own image. Empty: the usual one of
    an image, or no plugins."""
    credential_provider_mount: ProviderMount = "auto"
    """How pods get at them; ``auto``: a volume of the image from :data:`IMAGE_VOLUMES` on, else a copy at their start.
    """
    service_account_annotations: tuple[str, ...] = ()
    """``[ROLE:]KEY=VALUE``: annotations of the ServiceAccounts of the roles that ask registries."""
    role_pod_labels: tuple[str, ...] = ()
    """``KEY=VALUE``: further labels of the pods of these roles."""
    proxies: tuple[tuple[str, str], ...] = ()
    """Variables such as ``HTTPS_PROXY`` for the roles that ask registries: the operator passes on its own."""
    priority_class: str = "system-cluster-critical"
    """Some providers refuse this class outside ``kube-system``; empty: none."""
    node_selector: tuple[str, ...] = ()
    """Node labels that pods need, ``key=value``."""
    tolerations: tuple[str, ...] = ()
    """Taints that pods tolerate, as kubectl writes them: ``key[=value][:Effect]``."""

    secret_access: SecretAccess = "byName"
    """``none``: no role reads Secrets of other namespaces, whatever a policy says, and the operator grants no such
    right and has none."""

    builds: Builds = "off"
    """Whether the role builder runs; ``auto``: while there are ImageBuilds or their runs, or with ``machine_os``."""
    builder_replicas: int = 2
    builder_image: str = DEFAULT_BUILDER_IMAGE
    """The image for ImageBuilds that name none."""
    push_image: str = ""
    """Image of the containers that push; empty: polyarch's own image."""
    arch_taint_keys: tuple[str, ...] = ()
    """Keys of taints that build pods tolerate besides those found on nodes; empty: the usual ones."""
    allow_privileged_builds: bool = False
    """Whether an ImageBuild may ask for the security profile ``Privileged``."""
    max_active_jobs: int = 20
    """Build Jobs of the cluster at the same time, shared by the namespaces."""
    machine_os: MachineOS = "off"
    """Whether images of nodes are built as well; ``auto``: on OpenShift, once MachineOSConfigs are served."""
    machine_os_namespace: str = MACHINE_OS_NAMESPACE
    """Where MachineOSConfigs have their Secrets; it has to be there."""

    numa: Numa = "auto"
    """Whether the controllers of NUMA run; ``auto``: while their CRDs are there."""
    platform: Platform = "auto"
    """What the nodes of a NUMA group are found by; ``auto``: what the cluster shows."""
    numa_namespace: str = ""
    """Where exporters and scheduler of NUMA run; empty: in the operator's own namespace."""
    manage_namespace: bool = False
    """Whether the operator sets the Pod Security level that exporters need on that namespace."""
    kubelet_root: str = DEFAULT_KUBELET_ROOT
    """The kubelets' directory on the nodes of groups that name no other."""

    @property
    def numa_home(self) -> str:
        """The namespace of exporters and scheduler of NUMA."""
        return self.numa_namespace or self.namespace

    @property
    def provides_credentials(self) -> bool:
        """Whether the roles that ask registries have credential plugins."""
        return bool(self.credential_provider_image or self.credential_provider_directory)

    @property
    def mounts_plugins_of_nodes(self) -> bool:
        """Whether pods mount a directory of their nodes, which only a ``privileged`` namespace allows."""
        return self.credential_provider_mount == "hostPath" and bool(self.credential_provider_directory)

    def account_annotations(self, role: str) -> dict[str, str]:
        """Annotations of the ServiceAccount of a role that asks registries; those for the role alone win."""
        given = [text.partition("=") for text in self.service_account_annotations]
        shared = {key: value for key, _, value in given if ":" not in key}
        own = ((*key.partition(":"), value) for key, _, value in given if ":" in key)
        return shared | {key: value for named, _, key, value in own if named == role}

    def machine_os_in(self, cluster: "ClusterCapabilities") -> MachineOS:
        """Off, too, with ``auto`` where the cluster is not OpenShift: there is no namespace to grant anything in."""
        return "off" if self.machine_os == "auto" and not cluster.openshift else self.machine_os

    def tolerating(self, *keys: str) -> "OperatorSettings":
        """The same, where pods also tolerate every taint with these keys."""
        return msgspec.structs.replace(self, tolerations=tuple(dict.fromkeys((*self.tolerations, *keys))))


class ClusterCapabilities(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server serves, and where the image of every role runs."""

    openshift: bool = False
    """The group ``config.openshift.io``."""
    monitoring: bool = False
    """ServiceMonitors and PrometheusRules (``monitoring.coreos.com/v1``)."""
    version: tuple[int, int] = OLDEST_KUBERNETES
    """Major and minor version of Kubernetes."""
    image_architectures: tuple[str, ...] = IMAGE_ARCHITECTURES
    """Linux architectures of the image of every role, sorted; the released image's where nobody can say."""
