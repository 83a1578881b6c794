"""Names that users and tools rely on: labels, annotations, gate, finalizer, objects.

All other modules take them from here. They are never changed and never reused with another meaning.
"""

from typing import Final

from polyarch import names as shared

GROUP: Final = shared.OWN_GROUP
SINGLETON: Final = "cluster"

ARCH_KEY: Final = shared.ARCH_KEY
OS_KEY: Final = shared.OS_KEY
CONTROL_PLANE_KEYS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

# On pods.
GATE: Final = shared.TOLERATIONS_GATE
GATED_LABEL: Final = f"{GROUP}/tolerations"
GATED: Final = "gated"
CHANGED: Final = "changed"
"""Value of the same label: an image was changed, and what follows is for the leader."""
TOLERATIONS_ANNOTATION: Final = f"{GROUP}/tolerations"
"""The architectures that were added, sorted, comma-separated."""
REASON_ANNOTATION: Final = f"{GROUP}/tolerations-reason"
MIRROR_ANNOTATION: Final = "kubernetes.io/config.mirror"

# On pods, namespaces and nodes, set by users.
OPT_OUT: Final = f"{GROUP}/taints"
DISABLED: Final = "disabled"

# On nodes.
MANAGED_TAINTS_ANNOTATION: Final = f"{GROUP}/managed-taints"
"""What we wrote: comma-separated ``key=value:effect``."""

# On DaemonSets.
ADDED_TOLERATIONS_ANNOTATION: Final = f"{GROUP}/added-tolerations"
"""A JSON list of exactly what we added, sorted."""
ROLLOUT_CONFIRMED_ANNOTATION: Final = f"{GROUP}/rollout-confirmed"
"""The generation whose slow rollout an admin accepts: others need not wait for it."""

# Objects.
FINALIZER: Final = f"{GROUP}/architecture-taints"
ROLE: Final = shared.TAINTS
"""Deployment, Service, ServiceAccount, ClusterRole and webhook configuration of the role."""
LEASE: Final = ROLE
ADMISSION_ROLE: Final = f"{ROLE}-admission"
"""ClusterRole of every process that adds tolerations at admission."""
REGISTRATION_POLICY: Final = "polyarch-architecture-taints"
"""MutatingAdmissionPolicy and its binding."""
POD_POLICY: Final = f"{ROLE}-pods.{GROUP}"
TEMPLATE_POLICY: Final = f"{ROLE}-templates.{GROUP}"
"""ValidatingAdmissionPolicies that say what the role writes."""
POD_WEBHOOK: Final = f"pod-tolerations.{GROUP}"
POD_WEBHOOK_PATH: Final = "/add-pod-tolerations"
TEMPLATE_WEBHOOK: Final = f"template-tolerations.{GROUP}"
TEMPLATE_WEBHOOK_PATH: Final = "/add-template-tolerations"
