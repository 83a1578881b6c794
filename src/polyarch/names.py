"""Names of the objects that all features share: Deployments, Secrets, labels.

A feature's own names are in its ``names`` module, which takes these over. They are never changed and never reused with
another meaning.
"""

from typing import Final

GROUP: Final = "multiarch.openshift.io"
OWN_GROUP: Final = "polyarch.dev"

ARCH_KEY: Final = "kubernetes.io/arch"
OS_KEY: Final = "kubernetes.io/os"

DEFAULT_NAMESPACE: Final = "polyarch-system"
"""The namespace of polyarch where nothing else is said."""

OPERATOR: Final = "polyarch-operator"
PLACEMENT_WEBHOOK: Final = "pod-placement-web-hook"
PLACEMENT_CONTROLLER: Final = "pod-placement-controller"
ENOEXEC_HANDLER: Final = "enoexec-event-handler-controller"
TAINTS: Final = "polyarch-taints"
BUILDER: Final = "polyarch-builder"
NUMA_EXPORTER: Final = "polyarch-numa-exporter"
"""The part of all that a NUMAResourcesOperator brings: its objects have the names that tools know."""
NUMA_SCHEDULER: Final = "polyarch-numa-scheduler"
"""The part of all that a NUMAResourcesScheduler brings."""

# Objects of OpenShift.
CONFIG_HOME: Final = "openshift-config"
"""Namespace of the objects that OpenShift's cluster configuration refers to."""
TRUSTED_CA: Final = "multiarch-tuning-operator-trusted-ca"
"""ConfigMap in polyarch's namespace with additional registry CAs."""

PLACEMENT_LEASE: Final = f"ppc-controllers-208d7abd.{GROUP}"
"""Lease of placement's controller, by which taints knows whether that lets pods go."""

TOLERATIONS_GATE: Final = f"{OWN_GROUP}/tolerations"
"""The scheduling gate of taints; whoever adds tolerations lifts it."""

CERTIFICATES_SECRET: Final = "polyarch-certificates"
AUTHORITY_SECRET: Final = "polyarch-ca"

CONTROLLER_LABEL: Final = "controller"
"""Its value is the Deployment or DaemonSet that an object belongs to."""
OPERAND_LABEL: Final = f"{GROUP}/operand"
"""Its value is the part that an object is applied, pruned and removed with."""
PLACEMENT: Final = PLACEMENT_CONTROLLER
"""The part of all that placement consists of."""
