"""One MachineOSConfig with everything that its builds follow from, as stored. No decision is made here. Pure."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from polyarch.builds.machineos import vocabulary

Document = Mapping[str, Any]


class StoredRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The arch ConfigMap of a MachineOSBuild (BD-049)."""

    name: str
    build: str
    """The MachineOSBuild that it is, or was, for."""
    owners: frozenset[str] = frozenset()
    """UIDs."""
    deleting: bool = False
    """Its images go, and are not used again (BD-282)."""
    architectures: str = ""
    """``architectures.json``."""
    execution: str = ""
    """``execution.json``: what the planner has to know of the execution, which a MachineOSBuild has no place for."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """A MachineOSConfig and what belongs to it."""

    namespace: str
    """Of Jobs, ConfigMaps and Secrets."""
    config: Document
    pool: Document | None = None
    rendered: Document | None = None
    """The MachineConfig that is the pool's current configuration."""
    trust: str = ""
    """The CAs (PEM) that nodes trust in addition."""
    builds: tuple[Document, ...] = ()
    """The MachineOSBuilds that this very config controls."""
    records: tuple[StoredRecord, ...] = ()
    """Those of its builds, and those that builds have left to it."""

    @property
    def name(self) -> str:
        return name_of(self.config)

    @property
    def spec(self) -> Document:
        return self.config.get("spec") or {}

    @property
    def annotations(self) -> Mapping[str, str]:
        return (self.config.get("metadata") or {}).get("annotations") or {}

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
        return str(named or vocabulary.GLOBAL_PULL_SECRET)

    def build(self, name: str) -> Document | None:
        return next((each for each in self.builds if name_of(each) == name), None)

    def record(self, build: Document) -> StoredRecord | None:
        """The record that is this build's, and not one that a former build of the same name has left."""
        uid = uid_of(build)
        return next((each for each in self.records if uid in each.owners), None)

    @property
    def left(self) -> tuple[StoredRecord, ...]:
        """Records of builds that are gone: their images are still good (BD-092)."""
        known = {uid_of(each) for each in self.builds}
        return tuple(each for each in self.records if not each.deleting and not each.owners & known)


def name_of(document: Document) -> str:
    return str((document.get("metadata") or {}).get("name") or "")


def uid_of(document: Document) -> str:
    return str((document.get("metadata") or {}).get("uid") or "")


def controlled_by(documents: Iterable[Document], uid: str) -> tuple[Document, ...]:
    """Those whose controller has this UID (BD-282)."""
    return tuple(
        each
        for each in documents
        if any(
            owner.get("controller") and owner.get("uid") == uid
            for owner in (each.get("metadata") or {}).get("ownerReferences") or ()
        )
    )


def condition(document: Document | None, type: str) -> str:
    """The status of a condition; empty if there is none."""
    for each in ((document or {}).get("status") or {}).get("conditions") or ():
        if each.get("type") == type:
            return str(each.get("status") or "")
    return ""
