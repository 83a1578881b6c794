"""Names that users and tools rely on: kinds, labels, annotations, conditions, reasons (BD-048, BD-081, BD-240).

All other modules take them from here. They are never changed and never reused with another meaning.
"""

from typing import Final

from polyarch import names as shared
from polyarch.kube.resources import Resource

GROUP: Final = shared.OWN_GROUP
IMAGE_BUILDS: Final = Resource(GROUP, "v1alpha1", "imagebuilds", "ImageBuild")
IMAGE_BUILD_RUNS: Final = Resource(GROUP, "v1alpha1", "imagebuildruns", "ImageBuildRun")

ARCH_KEY: Final = shared.ARCH_KEY
OS_KEY: Final = shared.OS_KEY
ARCH_TAINT_KEYS: Final = (ARCH_KEY, "supported-arch")
"""Keys of taints by architecture that build pods tolerate wherever they run (BD-140)."""
CONTROL_PLANE_KEYS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

# Labels of Jobs, of their pods, and of every object made for a build (BD-081).
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "polyarch"
BUILD_LABEL: Final = f"{GROUP}/image-build"
RUN_LABEL: Final = f"{GROUP}/run"
ARCHITECTURE_LABEL: Final = f"{GROUP}/architecture"
ROLE_LABEL: Final = f"{GROUP}/role"
ARCH_ROLE: Final = "arch"
INDEX_ROLE: Final = "index"
PRUNE_ROLE: Final = "prune"
KEY_LABEL: Final = f"{GROUP}/arch-key"
"""The first 16 hex digits; the annotation of the same key has all 64."""
KEY_ANNOTATION: Final = KEY_LABEL

REPOSITORY_ANNOTATION: Final = f"{GROUP}/repository"
"""On the Job of an architecture: where its child goes."""

ARCHITECTURES_ANNOTATION: Final = f"{GROUP}/architectures"
"""On builds, executions and pools: the architectures, sorted, comma-separated (BD-048)."""
IGNORE_FILE_ANNOTATION: Final = f"{GROUP}/ignore-file"
"""On an ImageBuild whose Containerfile had an ignore file of its own when its context was pushed: that file's name."""
ARCHITECTURES_CONFIGMAP: Final = "polyarch-architectures"
ARCHITECTURES_FILE: Final = "architectures.json"
IMAGES_FINALIZER: Final = f"{GROUP}/images"
PUSH_SECRET_ANNOTATION: Final = f"{GROUP}/push-secret"
"""On executions with that finalizer: the Secret with which their images can be deleted (BD-233)."""
REGISTRY_JOB_ANNOTATION: Final = f"{GROUP}/registry-job"
"""On such executions where a Job deletes the images: what its pods need besides that Secret, as JSON (BD-178)."""
HMAC_SECRET: Final = "polyarch-build-hmac"
NAMESPACE_ROLE: Final = "polyarch-builds"
"""ClusterRole that an admin binds in a namespace to let its builds use Secrets there (BD-331)."""

# The role.
ROLE: Final = shared.BUILDER
"""Deployment, Service, ServiceAccount, ClusterRole of the role."""
LEASE: Final = ROLE

# Build pods: their containers, and what they mount (BD-049, BD-144, BD-145).
CONTAINERS: Final = ("build", "push", "index", "prune")
ARCHITECTURES_MOUNT: Final = "/polyarch/architectures"

# Exit codes of the build pods' containers (BD-147).
NOT_IN_USER_NAMESPACE: Final = 40
EMULATOR_MISSING: Final = 41
USER_ERROR: Final = 42
WRONG_ARCHITECTURE: Final = 43
PUSH_DENIED: Final = 44
LAYOUT_INVALID: Final = 45
CONTEXT_UNAVAILABLE: Final = 46
