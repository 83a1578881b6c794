"""The machine-config API: names that stock components and users rely on, and its objects as they are stored.

The names are others': none is ours to change. Our own are in ``builds.names``.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.build_facts import Entitlement
from polyarch.kube.resources import Resource

GROUP: Final = "machineconfiguration.openshift.io"
NAMESPACE: Final = "openshift-machine-config-operator"
"""Where Jobs, ConfigMaps and Secrets of machine OS builds are, unless the role is told otherwise."""
CONFIGS: Final = Resource(GROUP, "v1", "machineosconfigs", "MachineOSConfig", namespaced=False)
BUILDS: Final = Resource(GROUP, "v1", "machineosbuilds", "MachineOSBuild", namespaced=False)
POOLS: Final = Resource(GROUP, "v1", "machineconfigpools", "MachineConfigPool", namespaced=False)
RENDERED: Final = Resource(GROUP, "v1", "machineconfigs", "MachineConfig", namespaced=False)

CONTROLLER_CONFIGS: Final = Resource(GROUP, "v1", "controllerconfigs", "ControllerConfig", namespaced=False)
CONTROLLER_CONFIG: Final = "machine-config-controller"
"""The only one: it has the CAs that nodes, and so builds, trust in addition."""

PREFIX: Final = f"{GROUP}/"
POOL_LABEL: Final = f"{PREFIX}target-machine-config-pool"
RENDERED_LABEL: Final = f"{PREFIX}rendered-machine-config"
CONFIG_LABEL: Final = f"{PREFIX}machine-os-config"
BUILD_LABEL: Final = f"{PREFIX}machine-os-build"
EPHEMERAL_LABEL: Final = f"{PREFIX}ephemeral-build-object"
LAYERING_LABEL: Final = f"{PREFIX}on-cluster-layering"
PRE_BUILT: Final = f"{PREFIX}pre-built-image"
"""Annotation of a config, label of the build that is made of it."""
PUSH_SECRET: Final = f"{PREFIX}rendered-image-push-secret"
CURRENT_BUILD: Final = f"{PREFIX}current-machine-os-build"
REBUILD: Final = f"{PREFIX}rebuild"
JOB_UID: Final = f"{PREFIX}job-uid"
RELEASE: Final = f"{PREFIX}release-image-version"
CONTROLLER: Final = f"{PREFIX}generated-by-controller-version"
ENTITLED: Final = f"{PREFIX}has-"
"""Annotation of what is made for a build that has an entitlement, before its name."""
FINALIZER: Final = "foregroundDeletion"

GLOBAL_PULL_SECRET: Final = "global-pull-secret-copy"
STOCK_DEPLOYMENT: Final = "machine-os-builder"
"""The stock builder: it and ours are never run side by side."""

STRATEGY: Final = f"{names.GROUP}/strategy"
FAIL_FAST: Final = f"{names.GROUP}/fail-fast"
MISSING: Final = f"{names.GROUP}/missing-containerfile"
ON_NEW: Final = f"{names.GROUP}/on-new-architecture"
INDEX: Final = f"{names.GROUP}/index"
NODE_WAIT: Final = f"{names.GROUP}/node-wait"
BUILD_TIMEOUT: Final = f"{names.GROUP}/build-timeout"
MAX_PARALLEL: Final = f"{names.GROUP}/max-parallel"

ARCHITECTURES: Final = {"AMD64": "amd64", "ARM64": "arm64", "PPC64LE": "ppc64le", "S390X": "s390x"}
"""``containerfileArch`` → our name."""
SUPPORTED: Final = tuple(ARCHITECTURES.values())
"""Architectures that this API can name."""
ANY_ARCHITECTURE: Final = "NoArch"


def entitlements(pool: str) -> tuple[Entitlement, ...]:
    """What there may be in the namespace of builds for a pool."""
    return (
        Entitlement(
            name="etc-pki-entitlement",
            kind="Secret",
            object=f"etc-pki-entitlement-{pool}",
            path="/etc/pki/entitlement",
        ),
        Entitlement(name="etc-pki-rpm-gpg", kind="Secret", object="etc-pki-rpm-gpg", path="/etc/pki/rpm-gpg"),
        Entitlement(name="etc-yum-repos-d", kind="ConfigMap", object="etc-yum-repos-d", path="/etc/yum.repos.d"),
    )


def ephemeral_name(build: str) -> dict[str, str]:
    """Stock names of the objects that live as long as a build."""
    prefixes = (
        *("containerfile", "mc", "additionaltrustbundle", "etc-policy", "etc-registries"),
        *("digest", "base", "final"),
    )
    return {prefix: f"{prefix}-{build}" for prefix in prefixes}


def record_name(build: str) -> str:
    """The ConfigMap with the children of a build."""
    return f"arch-{build}"


def build_labels(*, config: str, pool: str, rendered: str) -> dict[str, str]:
    """Labels of a MachineOSBuild."""
    return {POOL_LABEL: pool, RENDERED_LABEL: rendered, CONFIG_LABEL: config}


def ephemeral_labels(*, config: str, pool: str, rendered: str, build: str) -> dict[str, str]:
    """Labels of everything that is made for a build, also of pod templates."""
    own = {EPHEMERAL_LABEL: "", LAYERING_LABEL: "", BUILD_LABEL: build}
    return build_labels(config=config, pool=pool, rendered=rendered) | own


# -- objects as they are stored ----------------------------------------------------------------------------------------


Document = Mapping[str, Any]


class ExecutionConfigMap(msgspec.Struct, frozen=True, kw_only=True):
    """The arch ConfigMap of a MachineOSBuild."""

    name: str
    build: str
    """The MachineOSBuild that it is, or was, for."""
    owners: frozenset[str] = frozenset()
    """UIDs."""
    deleting: bool = False
    """Its images go, and are not used again."""
    architectures: str = ""
    """``architectures.json``."""
    execution: str = ""
    """``execution.json``: what the planner has to know of the execution, which a MachineOSBuild has no place for."""


class MachineOSConfigFacts(msgspec.Struct, frozen=True, kw_only=True):
    """A MachineOSConfig and what belongs to it."""

    namespace: str
    """The namespace of Jobs, ConfigMaps and Secrets."""
    document: Document
    pool: Document | None = None
    rendered: Document | None = None
    """The MachineConfig that is the pool's current configuration."""
    trust: str = ""
    """The CAs (PEM) that nodes trust in addition."""
    builds: tuple[Document, ...] = ()
    """The MachineOSBuilds that this very config controls."""
    records: tuple[ExecutionConfigMap, ...] = ()
    """Records of its builds, and those that builds have left to it."""

    @property
    def name(self) -> str:
        return name_of(self.document)

    @property
    def spec(self) -> Document:
        return self.document.get("spec") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return (self.document.get("metadata") or {}).get("annotations") or {}

    @property
    def configuration(self) -> Document:
        """``spec.configuration`` of the pool."""
        return ((self.pool or {}).get("spec") or {}).get("configuration") or {}

    @property
    def pool_name(self) -> str:
        return str((self.spec.get("machineConfigPool") or {}).get("name") or "")

    @property
    def rendered_name(self) -> str:
        return str(self.configuration.get("name") or "")

    @property
    def push_secret(self) -> str:
        return str((self.spec.get("renderedImagePushSecret") or {}).get("name") or "")

    @property
    def pull_secret(self) -> str:
        named = (self.spec.get("baseImagePullSecret") or {}).get("name")
        return str(named or GLOBAL_PULL_SECRET)

    def build(self, name: str) -> Document | None:
        return next((each for each in self.builds if name_of(each) == name), None)

    def record(self, build: Document) -> ExecutionConfigMap | None:
        """The record that is this build's, and not one that a former build of the same name has left."""
        uid = uid_of(build)
        return next((each for each in self.records if uid in each.owners), None)

    @property
    def left(self) -> tuple[ExecutionConfigMap, ...]:
        """Records of builds that are gone: their images are still good."""
        known = {uid_of(each) for each in self.builds}
        return tuple(each for each in self.records if not each.deleting and not each.owners & known)


def name_of(document: Document) -> str:
    return str((document.get("metadata") or {}).get("name") or "")


def uid_of(document: Document) -> str:
    return str((document.get("metadata") or {}).get("uid") or "")


def controlled_by(documents: Iterable[Document], uid: str) -> tuple[Document, ...]:
    """The documents whose controller has this UID."""
    return tuple(
        each
        for each in documents
        if any(
            owner.get("controller") and owner.get("uid") == uid
            for owner in (each.get("metadata") or {}).get("ownerReferences") or ()
        )
    )


def stored_condition(document: Document | None, type: str) -> str:
    """The status of a condition; empty if there is none."""
    for each in ((document or {}).get("status") or {}).get("conditions") or ():
        if each.get("type") == type:
            return str(each.get("status") or "")
    return ""
