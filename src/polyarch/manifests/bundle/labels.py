"""The labels with which a bundle promises architectures and operating systems.

``operatorframework.io/arch.<a>`` and ``operatorframework.io/os.<o>`` with the value ``supported`` decide where
catalogs show an operator. Without a label of a prefix the default is amd64 or linux; *any* key with the prefix,
whatever its value, removes that default (MF-072). Architectures and operating systems are judged separately, not as a
product: a bundle for linux/amd64, linux/arm64 and windows/amd64 may label both systems and both architectures.

Pure.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

from polyarch.manifests.bundle.service_version import KIND, ServiceVersion
from polyarch.manifests.scan.pod_specs import LabelEntry
from polyarch.manifests.scan.scanning import Scan
from polyarch.manifests.scan.sets import meant_architecture, meant_system
from polyarch.platforms import KNOWN_ARCHITECTURES, KNOWN_SYSTEMS, NodePlatform, PlatformSet

ARCHITECTURE_PREFIX = "operatorframework.io/arch."
SYSTEM_PREFIX = "operatorframework.io/os."
SUPPORTED = "supported"


@dataclass(frozen=True, eq=False)
class Axis:
    """Architectures or operating systems: their labels, and their half of a platform."""

    noun: str
    plural: str
    prefix: str
    default: str
    known: frozenset[str]
    meant: Callable[[str], str]
    of: Callable[[NodePlatform], str]


ARCHITECTURES = Axis(
    noun="architecture",
    plural="architectures",
    prefix=ARCHITECTURE_PREFIX,
    default="amd64",
    known=KNOWN_ARCHITECTURES,
    meant=meant_architecture,
    of=lambda platform: platform.architecture,
)
SYSTEMS = Axis(
    noun="operating system",
    plural="operating systems",
    prefix=SYSTEM_PREFIX,
    default="linux",
    known=KNOWN_SYSTEMS,
    meant=meant_system,
    of=lambda platform: platform.os,
)


@dataclass(frozen=True, eq=False)
class AxisLabels:
    """The labels of one prefix."""

    axis: Axis
    entries: tuple[LabelEntry, ...]

    def name(self, entry: LabelEntry) -> str:
        """The part after the prefix."""
        return entry.key[len(self.axis.prefix) :]

    def entry(self, name: str) -> LabelEntry | None:
        return next((each for each in self.entries if self.name(each) == name), None)

    @cached_property
    def promised(self) -> tuple[str, ...]:
        """The known names with the value ``supported``, or the default without labels."""
        if not self.entries:
            return (self.axis.default,)
        names = (self.name(each) for each in self.entries if each.value == SUPPORTED)
        return tuple(name for name in names if name in self.axis.known)

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """All names with a label, whatever its value and spelling."""
        return frozenset(self.axis.meant(self.name(each)) for each in self.entries)

    @property
    def hidden(self) -> bool:
        """The prefix is used but nothing is supported: catalogs show the operator nowhere."""
        return bool(self.entries) and not self.promised


@dataclass(frozen=True, eq=False)
class BundleLabels:
    """Both prefixes."""

    architectures: AxisLabels
    systems: AxisLabels

    @property
    def both(self) -> tuple[tuple[AxisLabels, AxisLabels], ...]:
        """Each axis with the other one."""
        return (self.architectures, self.systems), (self.systems, self.architectures)


def labels_of(service_version: ServiceVersion) -> BundleLabels:
    """Keys are compared as a whole: prefix, then name (MF-074)."""
    return BundleLabels(*(_axis_labels(axis, service_version.labels) for axis in (ARCHITECTURES, SYSTEMS)))


def promised_architectures(scan: Scan) -> tuple[str, ...]:
    """Labelled architectures of a file's ClusterServiceVersions, without defaults, for MA302."""
    found: dict[str, None] = {}
    for subject in scan.objects:
        if subject.kind == KIND:
            labels = labels_of(ServiceVersion.of(subject, ())).architectures
            found |= dict.fromkeys(labels.promised if labels.entries else ())
    return tuple(found)


def _axis_labels(axis: Axis, entries: Iterable[LabelEntry]) -> AxisLabels:
    return AxisLabels(axis, tuple(each for each in entries if each.key.startswith(axis.prefix)))


def names_in(platforms: PlatformSet, labels: AxisLabels, other: AxisLabels) -> frozenset[str]:
    """The names of an axis that occur in platforms with a promised name of the other axis.

    ``platforms`` must not be everything.
    """
    promised = frozenset(other.promised)
    return frozenset(labels.axis.of(each) for each in platforms if other.axis.of(each) in promised)


def keeps(platforms: PlatformSet, name: str, labels: AxisLabels, other: AxisLabels) -> bool:
    """Whether an image keeps the promise of one label: it has a platform of that name and a promised name of the other
    axis. Without any promise on the other axis no image breaks it.
    """
    return platforms.is_everything or not other.promised or name in names_in(platforms, labels, other)


def addable(platforms: PlatformSet, labels: AxisLabels, other: AxisLabels) -> tuple[str, ...]:
    """The names to label, sorted, if all images have ``platforms`` in common (MF-073).

    They include the default if there is no label yet, because adding one removes the default.
    """
    if platforms.is_everything:
        return ()
    axis = labels.axis
    found = names_in(platforms, labels, other) & axis.known
    if labels.entries:
        return tuple(sorted(found - labels.mentioned))
    return tuple(sorted(found)) if found - {axis.default} else ()
