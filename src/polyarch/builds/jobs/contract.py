"""The contract of build pods: what they find, where they write, and what they say at the end.

Three sides keep to it: the manifests of the Jobs, the programs in the pods (``build.sh`` in the builder image and
``polyarch run build-push``), and whoever plays a node in tests. The pod of one architecture:

* init container ``build`` reads ``CONTAINERFILE``, ``BUILD_DOCUMENT`` and the context, runs ``BUILD_SCRIPT`` and writes
  an OCI layout with one image into ``LAYOUT``, readable for other users;
* container ``push`` checks that layout and uploads it. Its arguments are ``PUSH_COMMAND`` and the flags of
  :func:`push_arguments`. Its last act is to write its termination message.

The termination log is not below ``/dev``: buildah shows the container's ``/dev`` to every ``RUN``, which could write
there."""

from collections.abc import Mapping
from typing import Final, Literal

import msgspec

from polyarch.builds import names

BUILD_CONTAINER, PUSH_CONTAINER, INDEX_CONTAINER, PRUNE_CONTAINER = names.CONTAINERS

ROOT: Final = "/polyarch"
TERMINATION_LOG: Final = f"{ROOT}/termination-log"
MESSAGE_LIMIT: Final = 4096
"""Bytes of a termination message, which kubelets keep."""

# The ConfigMap ``<job>-in`` and its files.
IN_VOLUME: Final = "in"
IN: Final = f"{ROOT}/in"
CONTAINERFILE: Final = "Containerfile"
BUILD_SCRIPT: Final = "build.sh"
BUILD_DOCUMENT: Final = "build.json"
"""What ``build.sh`` says, as :class:`BuildDocument`: for people, and for programs that play buildah."""
INDEX_DOCUMENT: Final = "index.json"
PRUNE_DOCUMENT: Final = "prune.json"
REGISTRIES_CONF: Final = "registries.conf"
"""How registries are reached, where the role has it."""
TRUST_FILE: Final = "ca-bundle.crt"
"""CAs to trust in addition, where the role has them; mounted alone, at ``TRUST``."""
PROBE: Final = "probe"
"""Emulated builds only: a tiny static program of the target architecture (binaryData)."""

# What both containers share, and what ``build`` has for itself.
LAYOUT_VOLUME: Final = "layout"
LAYOUT_MOUNT: Final = f"{ROOT}/layout"
LAYOUT: Final = f"{LAYOUT_MOUNT}/image"
"""The OCI layout: ``oci-layout``, ``index.json`` with one manifest, ``blobs/``."""
STORAGE_VOLUME: Final = "storage"
STORAGE: Final = f"{ROOT}/storage"
CONTEXT_VOLUME: Final = "context"
CONTEXT: Final = f"{ROOT}/context"
"""ConfigMap contexts are mounted here, from an immutable copy; for others it is empty."""
CONTAINERS_VOLUME: Final = "containers"
CONTAINERS: Final = f"{STORAGE}/.config/containers"
"""Where buildah looks for ``policy.json`` and ``registries.conf`` of a user first: ``$HOME`` is ``STORAGE``."""
ENTITLED: Final = f"{ROOT}/entitled"
"""A folder for each entitlement of a machine OS build."""
TRUST_VOLUME: Final = "trust"
TRUST: Final = f"{ROOT}/trust"
ARCHITECTURES_VOLUME: Final = "architectures"
ARCHITECTURES: Final = names.ARCHITECTURES_MOUNT
TEMPORARY_VOLUME: Final = "tmp"
TEMPORARY: Final = "/tmp"  # noqa: S108 - of a pod's own
"""The temporary directory of containers whose root is read-only."""

# Credentials: those for pulling and building in ``build`` only, that for pushing in ``push`` only.
PULL_VOLUME: Final = "pull"
PULL: Final = f"{ROOT}/pull"
"""``0.json``, ``1.json`` …: one Docker configuration for each pull secret, in order."""
SECRETS_VOLUME: Final = "secrets"
SECRETS: Final = f"{ROOT}/secrets"
"""``0``, ``1`` …: the values of ``source.secrets``, in order."""
GIT_VOLUME: Final = "git"
GIT: Final = f"{ROOT}/git"
"""``username`` and ``password`` of a Git context's credentials."""
PUSH_VOLUME: Final = "credentials"
PUSH: Final = f"{ROOT}/credentials"
PUSH_FILE: Final = "config.json"

BUILD_COMMAND: Final = ("/bin/sh", f"{IN}/{BUILD_SCRIPT}")
PUSH_COMMAND: Final = ("polyarch", "run", "build-push")
INDEX_COMMAND: Final = ("polyarch", "run", "build-index")
PRUNE_COMMAND: Final = ("polyarch", "run", "build-prune")

TRANSIENT: Final = 1
"""The exit code of everything that another attempt may mend."""

EXIT_REASONS: Final[Mapping[int, tuple[str, ...]]] = {
    names.NOT_IN_USER_NAMESPACE: ("UserNamespaceUnavailable",),
    names.EMULATOR_MISSING: ("EmulatorMissing",),
    names.USER_ERROR: ("ContainerfileInvalid", "BaseImageNotFound", "BaseImageUnauthorized"),
    names.WRONG_ARCHITECTURE: ("ArchitectureMismatch",),
    names.PUSH_DENIED: ("PushDenied", "PushTooLarge", "QuotaExceeded", "RepositoryMissing", "TagImmutable"),
    names.LAYOUT_INVALID: (
        "LayoutInvalid",
        *("MixedFormats", "DuplicatePlatform", "IndexForbidden", "RegistryInconsistent"),  # of the index Job
    ),
    names.CONTEXT_UNAVAILABLE: ("InputMissing",),
    names.BUILDER_UNUSABLE: ("BuilderImageUnusable",),
}
"""The reasons that an exit code may have, the first where the message says none of them. Other codes:
``BuildFailed``, whatever the message says."""

Role = Literal["arch", "index", "prune"]


class BuildDocument(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """``build.json``: the build of one architecture, without anything secret."""

    v: int = 1
    architecture: str
    format: str = "OCI"
    target: str = ""
    arguments: Mapping[str, str] = {}
    labels: Mapping[str, str] = {}
    timestamp: int | None = None
    images: Mapping[str, str] = {}
    """What the Containerfile names → what is pulled for it."""
    secrets: tuple[str, ...] = ()
    """The ids, in the order of their files."""
    context: str = "None"
    emulated: bool = False


class PushMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The termination message of ``push`` after success."""

    v: int = 1
    digest: str
    size: int
    media_type: str
    os: str
    architecture: str
    variant: str = ""
    config: str = ""
    """Digest of the config blob."""


class IndexMessage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The termination message of the index Job: of an index ``os``, ``architecture`` and ``config`` are empty.

    ``missing`` names the architectures whose child is not in the registry: then nothing was pushed, and ``digest`` is
    empty.
    """

    v: int = 1
    digest: str = ""
    size: int = 0
    media_type: str = ""
    os: str = ""
    architecture: str = ""
    variant: str = ""
    config: str = ""
    missing: tuple[str, ...] = ()


class PruneMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The termination message of the prune Job: how many images are gone, how many the registry does not delete."""

    v: int = 1
    deleted: int = 0
    kept: int = 0


class FailureMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The termination message of any container about its own failure."""

    v: int = 1
    reason: str
    message: str


def configmap_name(job: str) -> str:
    """The ConfigMap with the inputs of a Job."""
    return f"{job}-in"


def context_name(job: str) -> str:
    """The copy of a ConfigMap context, as it was when its hash became part of the key."""
    return f"{job}-context"


def push_arguments(*, repository: str, architecture: str, tag: str, authenticated: bool) -> tuple[str, ...]:
    """The flags of ``polyarch run build-push``; no ``tag`` with ``archTags: None``."""
    return (
        f"--layout={LAYOUT}",
        f"--repository={repository}",
        f"--architecture={architecture}",
        *([f"--tag={tag}"] if tag else []),
        *([f"--authfile={PUSH}/{PUSH_FILE}"] if authenticated else []),
        f"--termination-log={TERMINATION_LOG}",
    )


def registry_job_arguments(document: str, *, authenticated: bool) -> tuple[str, ...]:
    """The flags of ``polyarch run build-index`` and ``build-prune``."""
    return (
        f"--document={IN}/{document}",
        *([f"--authfile={PUSH}/{PUSH_FILE}"] if authenticated else []),
        f"--termination-log={TERMINATION_LOG}",
    )
