"""What the content of a digest says about platforms: read once, true for ever (RG-110).

A reading depends on the bytes below a digest and on nothing else: not on the tag, the source, the credential or the
time of asking. That is what makes it worth keeping, exporting and sharing. An answer is a reading seen by one request:
with its reference, its source, and the question whether operator bundles are told from images (RG-046).

Pure: no I/O, no clock.
"""

from typing import Literal

import msgspec

from polyarch.oci.answer import Entry, Inspection, InspectionWarning, Kind, Skipped, SourceUsed, Status
from polyarch.oci.reference import Reference

BundleMode = Literal["auto", "always", "never"]
OPERATOR_BUNDLE = "operator-bundle"


class Reading(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The platforms of one digest. ``bundle`` is None while nobody has looked at the labels of an index's image."""

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
        """Whether the reading answers in this mode, or a bundle's labels have to be looked at first (RG-046)."""
        if self.bundle is not None or self.kind != "index" or not self.entries or mode == "never":
            return True
        return mode == "auto" and len(self.entries) != 1

    @property
    def size(self) -> int:
        """About how many bytes it takes in memory; digests are most of it."""
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
        """The answer for a reference; ``warnings`` are those of this request, after those of the content."""
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
