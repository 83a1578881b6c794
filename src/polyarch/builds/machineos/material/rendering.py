"""The Containerfile of an operating system image (BD-269): a stage ``configs``, and the user's text after it.

The stage takes the pinned OS image and applies the rendered MachineConfig with the tools that are in that image; what
is installed comes from the extensions image of the same release. The user's text goes on in it, or begins stages.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from polyarch.builds.containerfile.text import normalised
from polyarch.builds.executions.wanted import LARGE_PAGES

STAGE: Final = "configs"
CONFIG_FILE: Final = "machineconfig.json.gz"
"""The rendered MachineConfig in the build context: gzip, then base64."""
TRUST_FILE: Final = "openshift-config-user-ca-bundle.crt"
"""The CAs that nodes trust in addition, in the build context."""
REALTIME: Final = "realtime"

EXTENSION_PACKAGES: Final[Mapping[str, tuple[str, ...]]] = {
    "ipsec": ("NetworkManager-libreswan", "libreswan"),
    "kerberos": ("krb5-workstation", "libkadm5"),
    "kernel-devel": ("kernel-devel", "kernel-headers"),
    "sandboxed-containers": ("kata-containers",),
    "sysstat": ("sysstat",),
    "two-node-ha": ("pacemaker", "pcs", "fence-agents-all"),
    "usbguard": ("usbguard",),
    "wasm": ("crun-wasm",),
}
"""Extension → the packages that it stands for; one that is not listed is a package itself."""
_KERNEL: Final = ("kernel", "kernel-core", "kernel-modules", "kernel-modules-core", "kernel-modules-extra")
_KERNELS: Final[Mapping[str, tuple[str, ...]]] = {
    REALTIME: ("kernel-rt-core", "kernel-rt-modules", "kernel-rt-modules-core", "kernel-rt-modules-extra"),
    LARGE_PAGES: ("kernel-64k-core", "kernel-64k-modules", "kernel-64k-modules-core", "kernel-64k-modules-extra"),
}
_PACKAGES: Final = "/usr/share/rpm-ostree/extensions/"
"""Where an extensions image has them."""


class Rendering(msgspec.Struct, frozen=True, kw_only=True):
    """What the text is made of. Images are pinned: ``repository@digest`` of the child."""

    os_image: str
    extensions_image: str = ""
    pool: str
    rendered: str
    """Name of the rendered MachineConfig."""
    kernel_type: str = ""
    extensions: tuple[str, ...] = ()
    has_trust: bool = False
    user_text: str = ""


def containerfile(given: Rendering) -> str:
    """The whole text."""
    lines = [
        f"FROM {given.os_image} AS {STAGE}",
        f"COPY {CONFIG_FILE} /tmp/{CONFIG_FILE}",
        (
            "RUN set -e; mkdir -p /etc/machine-config-daemon; "
            f"base64 -d /tmp/{CONFIG_FILE} | gunzip > /etc/machine-config-daemon/currentconfig; rm /tmp/{CONFIG_FILE}"
        ),
        (
            "RUN set -e; jq .spec.config /etc/machine-config-daemon/currentconfig > /tmp/ignition.json; "
            "export container=oci; "
            "(exec -a ignition-apply /usr/lib/dracut/modules.d/30ignition/ignition --ignore-unsupported "
            "/tmp/ignition.json); rm /tmp/ignition.json; ostree container commit"
        ),
    ]
    if given.has_trust:
        lines += [
            f"COPY {TRUST_FILE} /etc/pki/ca-trust/source/anchors/{TRUST_FILE}",
            "RUN update-ca-trust && ostree container commit",
        ]
    lines += _packages(given)
    lines += [
        f"LABEL machineconfig={given.rendered}",
        f"LABEL machineconfigpool={given.pool}",
        f"LABEL baseOSContainerImage={given.os_image}",
    ]
    return normalised("\n".join([*lines, given.user_text]))


def packages(extensions: Iterable[str]) -> tuple[str, ...]:
    """The packages of a set of extensions, sorted."""
    return tuple(sorted({each for name in extensions for each in EXTENSION_PACKAGES.get(name, (name,))}))


def _packages(given: Rendering) -> Sequence[str]:
    kernel, wanted = _KERNELS.get(given.kernel_type, ()), packages(given.extensions)
    if not given.extensions_image or not (kernel or wanted):
        return ()
    repository = "/etc/yum.repos.d/coreos-extensions.repo"
    source = "/tmp/extensions"  # noqa: S108 - a directory in the image that is built
    steps = [
        "set -e",
        (
            rf"printf '[extensions]\nenabled=1\ngpgcheck=0\nbaseurl=file://{source}{_PACKAGES}\n' "
            f"> {repository}"
        ),
    ]
    if kernel:
        installs = " ".join(f"--install {each}" for each in kernel)
        steps.append(f"rpm-ostree override remove {' '.join(_KERNEL)} {installs}")
    if wanted:
        steps.append(f"rpm-ostree install {' '.join(wanted)}")
    steps += [f"rm {repository}", "ostree container commit"]
    mount = f"--mount=type=bind,from={given.extensions_image},source=/,target={source}"
    return [f"RUN {mount} {'; '.join(steps)}"]
