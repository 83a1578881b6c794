"""Names that users and tools rely on: groups, attributes, annotations, labels, objects.

All other modules take them from here. They are never changed and never reused with another meaning. Pure.
"""

from typing import Final

PREFIX: Final = "numa.polyarch.dev/"
"""Of every attribute, annotation and label of our own."""

# Groups of the APIs that exist already.
TOPOLOGY_GROUP: Final = "topology.node.k8s.io"
OPERATOR_GROUP: Final = "nodetopology.openshift.io"

# Top attributes of a NodeResourceTopology that other consumers know.
POLICY: Final = "topologyManagerPolicy"
SCOPE: Final = "topologyManagerScope"
MAX_NUMA_NODES: Final = "topologyManagerMaxNUMANodes"
FINGERPRINT: Final = "nodeTopologyPodsFingerprint"
FINGERPRINT_METHOD: Final = "nodeTopologyPodsFingerprintMethod"
PLACEMENT_METADATA: Final = f"{TOPOLOGY_GROUP}/numaplacement-metadata"
PLACEMENT_VECTOR: Final = f"{TOPOLOGY_GROUP}/numaplacement-vector"
"""Of a zone."""

# Top attributes of our own.
CPU_MANAGER_POLICY: Final = f"{PREFIX}cpu-manager-policy"
CPU_MANAGER_OPTIONS: Final = f"{PREFIX}cpu-manager-options"
TOPOLOGY_MANAGER_OPTIONS: Final = f"{PREFIX}topology-manager-options"
MEMORY_MANAGER_POLICY: Final = f"{PREFIX}memory-manager-policy"
THREADS_PER_CORE: Final = f"{PREFIX}threads-per-core"
REFRESH_PERIOD: Final = f"{PREFIX}refresh-period"
POD_LEVEL_MANAGERS: Final = f"{PREFIX}pod-level-managers"
POD_EXCLUDE: Final = f"{PREFIX}pod-exclude"

# Attributes of a zone of our own.
ZONE_CPUS: Final = f"{PREFIX}cpus"
ZONE_SOCKET: Final = f"{PREFIX}socket"
ZONE_SPLIT_CPUS: Final = f"{PREFIX}split-cpus"
"""How many free CPUs share their core with a reserved one; said where the kubelet hands out whole cores only."""
ZONE_MEMORY_GROUP: Final = f"{PREFIX}memory-group"

# Labels and annotations of a NodeResourceTopology.
NODE_GROUP_LABEL: Final = f"{PREFIX}node-group"
LAST_SCAN: Final = f"{PREFIX}last-scan"
LEGACY_FINGERPRINT: Final = f"{TOPOLOGY_GROUP}/fingerprint"
TRIGGER: Final = "k8stopoawareschedwg/rte-update"
SLEEP_DURATION: Final = "k8stopoawareschedwg/sleep-duration"
UPDATE_INTERVAL: Final = "k8stopoawareschedwg/update-interval"

# Conditions of an exporter's own Pod, also its readiness gates.
PODRESOURCES_FETCHED: Final = "PodresourcesFetched"
TOPOLOGY_UPDATED: Final = "NodeTopologyUpdated"
READINESS_GATES: Final = (PODRESOURCES_FETCHED, TOPOLOGY_UPDATED)
SETTINGS_STALE: Final = "TopologySettingsStale"
"""No readiness gate: the last settings are good enough to go on with."""

# Objects of the operator.
OPERATOR_SINGLETON: Final = "numaresourcesoperator"
SCHEDULER_SINGLETON: Final = "numaresourcesscheduler"
FINALIZER: Final = f"{PREFIX}cleanup"
EXPORTER: Final = "rte"
"""ServiceAccount, Role, RoleBinding, ClusterRole and ClusterRoleBinding of the exporters."""
SCHEDULER: Final = "secondary-scheduler"
"""Deployment, ServiceAccount and container of the scheduler."""

# Objects and labels of the exporters.
EXPORTER_SERVICE: Final = "numaresources-rte-metrics-service"
EXPORTER_CERTIFICATE: Final = "rte-metrics-service-cert"
"""Secret with the serving certificate of the exporters."""
EXPORTER_POLICY: Final = f"rte.{PREFIX.removesuffix('/')}"
"""ValidatingAdmissionPolicy and its binding."""
EXPORTER_CONTAINER: Final = "resource-topology-exporter"
REFERENCE_CONTAINER: Final = "shared-pool-container"
EXPORTER_POD_LABELS: Final = {"name": "resource-topology"}
OPERATOR_LABEL: Final = f"numaresourcesoperator.{OPERATOR_GROUP}/name"
"""Its value is :data:`OPERATOR_SINGLETON`."""
GROUP_LABEL: Final = f"nodegroup.{OPERATOR_GROUP}/machineconfigpool"
"""Its value is the name of the node group."""
CONFIG_HASH: Final = f"{PREFIX}config-hash"
"""Annotation of pods: a digest of the ConfigMap, by which a change replaces them."""

# Nodes of a group.
NODE_POOL_LABEL: Final = "hypershift.openshift.io/nodePool"
NODE_ROLE_PREFIX: Final = "node-role.kubernetes.io/"
POOL_LABEL_PREFIX: Final = "pools.operator.machineconfiguration.openshift.io/"

# Annotations that are understood.
PAUSE: Final = "config.numa-operator.openshift.io/pause-reconciliation"
API_DEFINITION: Final = "config.numa-operator.openshift.io/nrt-api-definition"
QOS_REQUEST: Final = "config.numa-operator.openshift.io/scheduler-qos-request"
SELINUX_POLICY: Final = "config.node.openshift-kni.io/selinux-policy"
MULTIPLE_POOLS: Final = "config.node.openshift-kni.io/multiple-pools-per-tree"
KUBELET_ROOT: Final = f"{PREFIX}kubelet-root"
KUBELET_STATE: Final = f"{PREFIX}kubelet-state"
REFERENCE: Final = f"{PREFIX}reference-container"
PLACEMENT_VECTORS: Final = f"{PREFIX}placement-vectors"
HEARTBEAT: Final = f"{PREFIX}heartbeat"
SCHEDULING_MODE: Final = f"{PREFIX}scheduling-mode"
RESTRICTED_POLICY: Final = f"{PREFIX}restricted-policy"
CANDIDATES: Final = f"{PREFIX}candidates"
IGNORABLE: Final = f"{PREFIX}ignorable"
REQUIRE: Final = f"{PREFIX}require"
"""Of a pod; ``aligned``: only nodes whose kubelet guarantees alignment will do."""

# The extender beside the scheduler.
EXTENDER_PORT: Final = 9448
"""On 127.0.0.1 alone: scheduler and extender are containers of one pod."""
STATUS_PORT: Final = 8448
STATE_PATH: Final = "/numa/state"
KICK: Final = "polyarch-numa-kick"
"""The CSIStorageCapacity by which the extender wakes rejected pods, and its storage class, which does not exist."""
KICKS: Final = f"{PREFIX}kicked-at"
"""Annotation of what is written to wake rejected pods."""
