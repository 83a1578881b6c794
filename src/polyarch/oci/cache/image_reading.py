"""Readings: the platforms of one digest, which never change (RG-110).

A reading depends on the bytes below a digest and on nothing else: not on tag, source, header, credential or time. That
makes it safe to keep, export and share with everybody (RG-117). An answer combines a reading with one request: its
reference, its source, and whether operator bundles count as images (RG-046).

Pure: no I/O, no clock.
"""

from typing import Final, Literal

import msgspec

from polyarch.oci.answer import Entry, Inspection, InspectionWarning, Kind, Skipped, SourceUsed, Status
from polyarch.oci.reference import Reference

VERSION: Final = 2
"""Raised whenever the same bytes give another reading, so that no kept one outlives the rule that made it."""

BundleMode = Literal["auto", "always", "never"]
OPERATOR_BUNDLE = "operator-bundle"


class Reading(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The platforms of one digest. ``bundle`` is None until the labels of an index's image were checked."""

    digest: str
    kind: Kind
    media_type: str
    status: Status
    entries: tuple[Entry, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    warnings: tuple[InspectionWarning, ...] = ()
    neutral_reason: str = ""
    bundle: bool | None = None

    def settles(self, mode: BundleMode) -> bool:
        """Whether the reading answers in this mode; False if the bundle labels have to be read first (RG-046)."""
        if self.bundle is not None or self.kind != "index" or not self.entries or mode == "never":
            return True
        return mode == "auto" and len(self.entries) != 1

    @property
    def size(self) -> int:
        """Approximate size in memory, in bytes; digests are most of it."""
        texts = sum(len(warning.code) + len(warning.message) for warning in self.warnings)
        return 700 + 330 * len(self.entries) + 230 * len(self.skipped) + 200 * len(self.warnings) + texts

    def answer(
        self,
        reference: Reference,
        *,
        mode: BundleMode,
        source: SourceUsed | None,
        warnings: tuple[InspectionWarning, ...] = (),
        cached: bool = False,
        requests: int = 0,
        checked_at: float | None = None,
        public: bool = False,
    ) -> Inspection:
        """The answer for a reference; ``warnings`` of this request follow those of the content."""
        status, reason, found = self.status, self.neutral_reason, self.warnings
        if self.bundle and mode != "never":
            status, reason, found = Status.NEUTRAL, OPERATOR_BUNDLE, ()
        return Inspection(
            reference=reference,
            status=status,
            kind=self.kind,
            digest=self.digest,
            media_type=self.media_type,
            entries=self.entries,
            skipped=self.skipped,
            warnings=found + warnings if warnings else found,
            neutral_reason=reason,
            source=source,
            cached=cached,
            requests=requests,
            checked_at=None if reference.digest else checked_at,
            public=public,
        )
