"""MA210: a newer bundle of a catalog promises less than an older one.

A file-based catalog lists packages, channels and bundles as documents with a ``schema``, in one or many files. If the
newest bundle of the default channel has fewer architecture labels than an older one, clusters of that architecture
stay on the old version without a notice. Unlike other rules this one needs all files of the catalog at once.

Pure.
"""

import binascii
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from polyarch.manifests.bundle.labels import ARCHITECTURE_PREFIX, SUPPORTED, SYSTEM_PREFIX
from polyarch.manifests.bundle.service_version import KIND
from polyarch.manifests.finding import Severity
from polyarch.manifests.lint.facts import Draft
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.scan.nodes import get, text_of, value
from polyarch.manifests.scan.objects import KubeObject
from polyarch.manifests.scan.untyped import at, mapping, mappings

RULE = Rule(
    id="MA210",
    severity=Severity.INFO,
    title="A newer bundle has fewer labels than an older one",
    meaning="The head of the default channel of a catalog lacks labels that an older bundle of the channel has.",
)

_DEFAULTS = {ARCHITECTURE_PREFIX: "amd64", SYSTEM_PREFIX: "linux"}


@dataclass(frozen=True, eq=False)
class _Blob:
    """One document of a catalog."""

    object: KubeObject
    schema: str
    package: str
    name: str

    @property
    def value(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = value(self.object.node)
        return found


def check(objects: Iterable[KubeObject]) -> Iterator[tuple[KubeObject, Draft]]:
    """A draft for each affected package of the catalogs in these files, with the bundle object."""
    blobs = list(_blobs(objects))
    channels = {(each.package, each.name): each for each in blobs if each.schema == "olm.channel"}
    bundles = {(each.package, each.name): each for each in blobs if each.schema == "olm.bundle"}
    for package in blobs:
        if package.schema == "olm.package":
            channel = channels.get((package.name, str(package.value.get("defaultChannel"))))
            if channel is not None:
                yield from _lost(package.name, channel, bundles)


def _blobs(objects: Iterable[KubeObject]) -> Iterator[_Blob]:
    for subject in objects:
        schema = text_of(get(subject.node, "schema")) or ""
        if schema in ("olm.package", "olm.channel", "olm.bundle"):
            package = text_of(get(subject.node, "package")) or ""
            yield _Blob(subject, schema, package, text_of(get(subject.node, "name")) or "")


def _lost(package: str, channel: _Blob, bundles: Mapping[tuple[str, str], _Blob]) -> Iterator[tuple[KubeObject, Draft]]:
    entries = mappings(channel.value.get("entries"))
    superseded = {str(each.get("replaces")) for each in entries}
    superseded |= {str(skipped) for each in entries for skipped in each.get("skips") or ()}
    names = [str(each.get("name")) for each in entries]
    heads = [name for name in names if name not in superseded]
    head = bundles.get((package, heads[0])) if len(heads) == 1 else None
    if head is None:
        return  # a channel needs exactly one head; opm reports others
    kept = _labels(head)
    older: dict[str, list[str]] = {}
    for name in names:
        bundle = bundles.get((package, name))
        if bundle is not None and bundle is not head:
            for key in sorted(_labels(bundle)):
                if key not in kept and not _is_default(key, kept):
                    older.setdefault(key, []).append(name)
    if older:
        lost = "; ".join(f"{key} ({', '.join(holders)} had it)" for key, holders in sorted(older.items()))
        draft = Draft(
            rule=RULE,
            message=f"{head.name}, the head of the default channel {channel.name} of {package}, lacks labels that "
            f"older bundles have: {lost}",
            hint="add the labels of the older bundles, or announce the end of support in the release notes",
            node=get(head.object.node, "name") or head.object.node,
            pointer=f"{head.object.pointer}/name",
        )
        yield head.object, draft


def _is_default(key: str, kept: frozenset[str]) -> bool:
    """Whether a label is the default, which applies without any label of the prefix."""
    prefix = next(each for each in _DEFAULTS if key.startswith(each))
    return key == prefix + _DEFAULTS[prefix] and not any(each.startswith(prefix) for each in kept)


def _labels(bundle: _Blob) -> frozenset[str]:
    """The keys with the value ``supported``, from the metadata of the ClusterServiceVersion or the embedded object."""
    found: set[str] = set()
    for entry in mappings(bundle.value.get("properties")):
        if entry.get("type") == "olm.csv.metadata":
            found |= _promising(at(entry, "value", "labels"))
        elif entry.get("type") == "olm.bundle.object":
            found |= _promising(_embedded(at(entry, "value", "data")))
    return frozenset(found)


def _embedded(data: object) -> object:
    """The labels of a ClusterServiceVersion in base64; None for anything else."""
    try:
        document = msgspec.json.decode(b64decode(data, validate=True)) if isinstance(data, str) else None
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return None
    return at(document, "metadata", "labels") if at(document, "kind") == KIND else None


def _promising(labels: object) -> set[str]:
    return {
        str(key) for key, each in mapping(labels).items() if each == SUPPORTED and str(key).startswith(tuple(_DEFAULTS))
    }
