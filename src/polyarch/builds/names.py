"""Names that users and tools rely on: kinds, labels, annotations, conditions, reasons.

All other modules take them from here. They are never changed and never reused with another meaning."""

import hashlib
from functools import lru_cache
from typing import Final

import msgspec

from polyarch import names as shared
from polyarch.kube.resources import Resource
from polyarch.oci import reference

GROUP: Final = shared.OWN_GROUP
IMAGE_BUILDS: Final = Resource(GROUP, "v1alpha1", "imagebuilds", "ImageBuild")
IMAGE_BUILD_RUNS: Final = Resource(GROUP, "v1alpha1", "imagebuildruns", "ImageBuildRun")

ARCH_KEY: Final = shared.ARCH_KEY
OS_KEY: Final = shared.OS_KEY
ARCH_TAINT_KEYS: Final = (ARCH_KEY, "supported-arch")
"""Keys of taints by architecture that build pods tolerate wherever they run."""
CONTROL_PLANE_KEYS: Final = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")

# Labels of Jobs, of their pods, and of every object made for a build.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
MANAGER: Final = "polyarch"
BUILD_PODS_LABEL: Final = f"{GROUP}/privileged-pods"
"""On a namespace: ``builds`` admits pods beyond Pod Security ``baseline`` only as those of builds."""
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

SETTINGS_ANNOTATION: Final = f"{GROUP}/settings"
"""On the Job of an architecture: what of the spec its pod was made of besides what its key covers, as JSON."""

ARCHITECTURES_ANNOTATION: Final = f"{GROUP}/architectures"
"""On builds, executions and pools: the architectures, sorted, comma-separated."""
IGNORE_FILE_ANNOTATION: Final = f"{GROUP}/ignore-file"
"""On an ImageBuild whose Containerfile had an ignore file of its own when its context was pushed: that file's name."""
ARCHITECTURES_CONFIGMAP: Final = "polyarch-architectures"
ARCHITECTURES_FILE: Final = "architectures.json"
IMAGES_FINALIZER: Final = f"{GROUP}/images"
PUSH_SECRET_ANNOTATION: Final = f"{GROUP}/push-secret"
"""On executions with that finalizer: the Secret with which their images can be deleted."""
REGISTRY_JOB_ANNOTATION: Final = f"{GROUP}/registry-job"
"""On such executions where a Job deletes the images: what its pods need besides that Secret, as JSON."""
HMAC_SECRET: Final = "polyarch-build-hmac"
NAMESPACE_ROLE: Final = "polyarch-builds"
"""ClusterRole that an admin binds in a namespace to let its builds use Secrets there."""

# The role.
ROLE: Final = shared.BUILDER
"""Deployment, Service, ServiceAccount, ClusterRole of the role."""
LEASE: Final = ROLE

# Build pods: their containers, and what they mount.
CONTAINERS: Final = ("build", "push", "index", "prune")
ARCHITECTURES_MOUNT: Final = "/polyarch/architectures"

# Exit codes of the build pods' containers.
NOT_IN_USER_NAMESPACE: Final = 40
EMULATOR_MISSING: Final = 41
USER_ERROR: Final = 42
WRONG_ARCHITECTURE: Final = 43
PUSH_DENIED: Final = 44
LAYOUT_INVALID: Final = 45
CONTEXT_UNAVAILABLE: Final = 46
BUILDER_UNUSABLE: Final = 47


# -- names that are made of inputs -------------------------------------------------------------------------------------


MAX_NAME = 253
MAX_LABEL = 63
MAX_TAG = 128
_HASH_DIGITS = 10
CACHED_NAMES: Final = 2048
"""Names of images whose canonical form is kept: every plan of a build reads the same few."""


def shortened(text: str, length: int) -> str:
    """The text if it has at most ``length`` characters; else its beginning and a hash of all of it."""
    if len(text) <= length:
        return text
    digits = hashlib.sha256(text.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{text[: length - _HASH_DIGITS - 1].rstrip('-._')}-{digits}"


def run_name(image_build: str, build_key: str, serial: int) -> str:
    """Name of an ImageBuildRun."""
    return shortened(f"{image_build}-{build_key[:_HASH_DIGITS]}-{serial}", MAX_NAME)


def record_name(execution: str) -> str:
    """Name of the ConfigMap that lists an ImageBuildRun's children."""
    return shortened(f"{execution}-arch", MAX_NAME)


def job_name(execution: str, architecture: str) -> str:
    """Name of the Job that builds one architecture of an ImageBuildRun."""
    return shortened(f"{execution}-{architecture}", MAX_LABEL)


def index_job_name(execution: str) -> str:
    """Name of the Job that assembles the index of an ImageBuildRun, where Jobs do that."""
    return shortened(f"{execution}-{INDEX_ROLE}", MAX_LABEL)


def prune_job_name(repository: str) -> str:
    """Name of the Job that deletes images of a repository."""
    digits = hashlib.sha256(repository.encode()).hexdigest()[:_HASH_DIGITS]
    return f"polyarch-{PRUNE_ROLE}-{digits}"


def machine_job_name(build: str, architecture: str, architectures: int) -> str:
    """Name of a MachineOSBuild's Job: the stock name where it builds one architecture only."""
    return shortened(f"build-{build}" if architectures == 1 else f"build-{build}-{architecture}", MAX_LABEL)


def machine_index_job_name(build: str) -> str:
    """Name of the index Job of a MachineOSBuild."""
    return shortened(f"build-{build}-{INDEX_ROLE}", MAX_LABEL)


def result_tag(execution: str) -> str:
    """The tag of an execution's result; a MachineOSBuild's name is never longer than a tag."""
    return shortened(execution, MAX_TAG)


def child_tag(execution: str, architecture: str) -> str:
    """The tag of one architecture's child."""
    return shortened(f"{execution}-{architecture}", MAX_TAG)


@lru_cache(CACHED_NAMES)
def normalised_repository(text: str) -> str:
    """The normalised ``host/repository``; other text stays as it is, since it is refused elsewhere."""
    try:
        return reference.parse_located(text).name
    except reference.InvalidReference:
        return text


@lru_cache(CACHED_NAMES)
def canonical_image(text: str) -> str:
    """The canonical reference of an image; other text stays as it is, since it is refused elsewhere."""
    try:
        return reference.parse(text).canonical
    except reference.InvalidReference:
        return text


class ObjectLabels(msgspec.Struct, frozen=True, kw_only=True):
    """Labels, and the annotations that hold in full what a label cannot."""

    labels: dict[str, str]
    annotations: dict[str, str]


def object_labels(
    *, image_build: str, execution: str, role: str, architecture: str = "", arch_key: str = ""
) -> ObjectLabels:
    """What every object made for a build carries; members without a value are left out."""
    values = {
        BUILD_LABEL: image_build,
        RUN_LABEL: execution,
        ARCHITECTURE_LABEL: architecture,
        ROLE_LABEL: role,
    }
    labels = {key: shortened(value, MAX_LABEL) for key, value in values.items() if value}
    annotations = {key: value for key, value in values.items() if len(value) > MAX_LABEL}
    if arch_key:
        labels[KEY_LABEL] = arch_key[:16]
        annotations[KEY_ANNOTATION] = arch_key
    return ObjectLabels(labels={MANAGED_BY: MANAGER, **labels}, annotations=annotations)
