"""Names that users and tools rely on: labels, annotations, gates, finalizers, objects.

Manifests, dashboards, alerts and scripts written for the predecessor use these names. They are never changed and never
reused with another meaning; additions are allowed. All other modules take them from here, and a test compares them
with the CRDs and manifests.
"""

from typing import Final

from polyarch import names as shared
from polyarch.platforms import ASSUMED_ARCHITECTURES

GROUP: Final = shared.GROUP
OWN_GROUP: Final = shared.OWN_GROUP

# Gate and finalizers.
GATE: Final = f"{GROUP}/scheduling-gate"
POD_PLACEMENT_FINALIZER: Final = f"finalizers.{GROUP}/pod-placement"
NO_POD_PLACEMENT_CONFIG_FINALIZER: Final = f"finalizers.{GROUP}/no-pod-placement-config"
ENOEXEC_EVENTS_FINALIZER: Final = f"finalizers.{GROUP}/enoexec-events"

# State labels: always the state after the last reconcile.
SCHEDULING_GATE_LABEL: Final = f"{GROUP}/scheduling-gate"
NODE_AFFINITY_LABEL: Final = f"{GROUP}/node-affinity"
PREFERRED_NODE_AFFINITY_LABEL: Final = f"{GROUP}/preferred-node-affinity"
NOT_SET: Final = "not-set"
SET: Final = "set"
GATED: Final = "gated"
REMOVED: Final = "removed"

# Result labels: present only with the outcome that they name.
SINGLE_ARCH_LABEL: Final = f"{GROUP}/single-arch"
MULTI_ARCH_LABEL: Final = f"{GROUP}/multi-arch"
ARCHITECTURE_LABELS: Final = {name: f"{GROUP}/{name}" for name in ASSUMED_ARCHITECTURES}
NO_SUPPORTED_ARCH_LABEL: Final = f"{GROUP}/no-supported-arch"
FALLBACK_ARCH_LABEL: Final = f"{GROUP}/fallback-arch"
IMAGE_INSPECT_ERROR_LABEL: Final = f"{GROUP}/image-inspect-error"
IMAGE_INSPECT_ERROR_COUNT_LABEL: Final = f"{GROUP}/image-inspect-error-count"
EXEC_FORMAT_ERROR_LABEL: Final = f"{GROUP}/exec-format-error"
RETRYING_COUNT: Final = "1"
GIVEN_UP_COUNT: Final = "5"
"""The value that existing tooling waits for."""

# Annotations.
IMAGE_INSPECT_ERROR_ANNOTATION: Final = f"{GROUP}/image-inspect-error"
PREFERRED_AFFINITY_SOURCES_ANNOTATION: Final = f"{GROUP}/preferred-affinity-sources"
DECISION_ANNOTATION: Final = f"{OWN_GROUP}/placement-decision"
SKIP_ANNOTATION: Final = f"{OWN_GROUP}/skip-placement"
"""Set by users; the only one of our keys that is read as input."""

# On a ClusterPodPlacementConfig served as v1alpha1.
FALLBACK_ANNOTATION: Final = f"{GROUP}/fallback-architecture"
PLUGINS_ANNOTATION: Final = f"{OWN_GROUP}/v1beta1-plugins"

STATE_LABELS: Final = (SCHEDULING_GATE_LABEL, NODE_AFFINITY_LABEL, PREFERRED_NODE_AFFINITY_LABEL)
INSPECT_ERROR_LABELS: Final = frozenset({IMAGE_INSPECT_ERROR_LABEL, IMAGE_INSPECT_ERROR_COUNT_LABEL})
RESULT_LABELS: Final = (
    SINGLE_ARCH_LABEL,
    MULTI_ARCH_LABEL,
    *ARCHITECTURE_LABELS.values(),
    NO_SUPPORTED_ARCH_LABEL,
    FALLBACK_ARCH_LABEL,
    IMAGE_INSPECT_ERROR_LABEL,
    IMAGE_INSPECT_ERROR_COUNT_LABEL,
    EXEC_FORMAT_ERROR_LABEL,
)
OWN_LABELS: Final = frozenset((*STATE_LABELS, *RESULT_LABELS))
OWN_ANNOTATIONS: Final = frozenset(
    {IMAGE_INSPECT_ERROR_ANNOTATION, PREFERRED_AFFINITY_SOURCES_ANNOTATION, DECISION_ANNOTATION}
)

# Node label keys, also used in the expressions that placement writes.
ARCH_KEY: Final = shared.ARCH_KEY
OS_KEY: Final = shared.OS_KEY
BETA_OS_KEY: Final = "beta.kubernetes.io/os"
OS_KEYS: Final = (OS_KEY, BETA_OS_KEY)
NO_SUPPORTED_ARCH_KEY: Final = NO_SUPPORTED_ARCH_LABEL
CONTROL_PLANE_KEYS: Final = ("node-role.kubernetes.io/master", "node-role.kubernetes.io/control-plane")

# On ENoExecEvents.
ENOEXEC_EVENT_ERROR_LABEL: Final = f"{GROUP}/enoexec-event-error"
ENOEXEC_EVENT_ERRORS: Final = (
    "wrong-namespace",
    "pod-not-found",
    "node-not-found",
    "container-not-found",
    "reconciliation-error",
)

# Objects.
SINGLETON: Final = "cluster"
OPERATOR: Final = shared.OPERATOR
CONTROLLER: Final = shared.PLACEMENT_CONTROLLER
WEBHOOK: Final = shared.PLACEMENT_WEBHOOK
ENOEXEC_HANDLER: Final = shared.ENOEXEC_HANDLER
ENOEXEC_DAEMON: Final = "enoexec-event-daemon"
POD_POLICY: Final = f"{CONTROLLER}.polyarch.dev"
ENOEXEC_POLICY: Final = f"{ENOEXEC_DAEMON}.polyarch.dev"
"""ValidatingAdmissionPolicy and its binding."""
WEBHOOK_CONFIGURATION: Final = "pod-placement-mutating-webhook-configuration"
POD_WEBHOOK: Final = f"pod-placement-scheduling-gate.{GROUP}"
POD_WEBHOOK_PATH: Final = "/add-pod-scheduling-gate"
CPPC_WEBHOOK: Final = f"validate-clusterpodplacementconfig.{GROUP}"
CPPC_WEBHOOK_PATH: Final = "/validate-multiarch-openshift-io-v1beta1-clusterpodplacementconfig"
PPC_WEBHOOK: Final = f"validate-podplacementconfig.{GROUP}"
PPC_WEBHOOK_PATH: Final = "/validate-multiarch-openshift-io-v1beta1-podplacementconfig"
CPPC_DEFAULTS: Final = f"default-clusterpodplacementconfig.{GROUP}"
CPPC_DEFAULTS_PATH: Final = "/default-multiarch-openshift-io-v1beta1-clusterpodplacementconfig"
CPPC_KEPT: Final = f"keep-clusterpodplacementconfig.{GROUP}"
CPPC_KEPT_PATH: Final = "/keep-multiarch-openshift-io-v1alpha1-clusterpodplacementconfig"
CONVERSION_PATH: Final = "/convert"
PROMETHEUS_RULES: Final = ("multiarch-tuning-operator", "execformaterrormonitor", "execformaterrorsdetected")
_LEASE_SUFFIX: Final = f"208d7abd.{GROUP}"
OPERATOR_LEASE: Final = f"operator-{_LEASE_SUFFIX}"
OPERATOR_SETTLED: Final = f"{OWN_GROUP}/settled"
"""Annotation of that Lease: the holder, once it has looked at everything and applied what differed."""
CONTROLLER_LEASE: Final = shared.PLACEMENT_LEASE
ENOEXEC_LEASE: Final = f"enoexecevent-controllers-{_LEASE_SUFFIX}"
CERTIFICATES_SECRET: Final = shared.CERTIFICATES_SECRET
AUTHORITY_SECRET: Final = shared.AUTHORITY_SECRET
READINGS_SECRET: Final = "polyarch-image-readings"
READINGS_TYPE: Final = f"{OWN_GROUP}/image-readings"
READINGS_KEY: Final = "readings"
"""The member of the Secret's data."""
REPORT_CONFIGMAP: Final = "polyarch-report"
REPORT_KEY: Final = "report.json"
"""The member of the ConfigMap's data."""
OPERAND_LABEL: Final = shared.OPERAND_LABEL
OPERAND: Final = shared.PLACEMENT
CONTROLLER_LABEL: Final = shared.CONTROLLER_LABEL

# Objects of OpenShift.
CONFIG_HOME: Final = shared.CONFIG_HOME
"""Namespace of the objects that OpenShift's cluster configuration refers to."""
TRUSTED_CA: Final = shared.TRUSTED_CA
"""ConfigMap in polyarch's namespace with additional registry CAs."""

# Sources of preferences.
CLUSTER_SOURCE: Final = "ClusterPodPlacementConfig"
NAMESPACED_SOURCE_PREFIX: Final = "PodPlacementConfig-"
