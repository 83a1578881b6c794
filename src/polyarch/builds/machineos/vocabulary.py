"""Names of the machine-config API that stock components and users rely on (BD-270, BD-275, BD-279 to BD-281, BD-285).

They are others' names: none is ours to change. What is our own is in ``builds.names``.
"""

from typing import Final

from polyarch.builds import names
from polyarch.builds.facts.facts import Entitlement
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
"""The stock builder: it and ours are never run side by side (BD-260)."""

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
"""Architectures that this API can name (BD-262)."""
ANY_ARCHITECTURE: Final = "NoArch"


def entitlements(pool: str) -> tuple[Entitlement, ...]:
    """What there may be in the namespace of builds for a pool (BD-074)."""
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


def ephemeral(build: str) -> dict[str, str]:
    """Stock names of the objects that live as long as a build (BD-275)."""
    prefixes = (
        *("containerfile", "mc", "additionaltrustbundle", "etc-policy", "etc-registries"),
        *("digest", "base", "final"),
    )
    return {prefix: f"{prefix}-{build}" for prefix in prefixes}


def record(build: str) -> str:
    """The ConfigMap with the children of a build (BD-049)."""
    return f"arch-{build}"


def labels(*, config: str, pool: str, rendered: str) -> dict[str, str]:
    """Of a MachineOSBuild (BD-270)."""
    return {POOL_LABEL: pool, RENDERED_LABEL: rendered, CONFIG_LABEL: config}


def ephemeral_labels(*, config: str, pool: str, rendered: str, build: str) -> dict[str, str]:
    """Of everything that is made for a build, also of pod templates (BD-275)."""
    own = {EPHEMERAL_LABEL: "", LAYERING_LABEL: "", BUILD_LABEL: build}
    return labels(config=config, pool=pool, rendered=rendered) | own
