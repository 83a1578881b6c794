"""The annotation ``polyarch.dev/placement-decision``: what was decided, in at most 1 KiB of JSON (PL-246).

It is also how a later call knows which expressions on the pod are ours, so that a manifest copied from a placed pod, or
a second round of admission, is decided afresh (PL-200). It is a claim, not a proof: whoever reads it compares it with
what stands on the pod, and a forged one changes nothing but its owner's own pod (PL-853).
"""

from collections.abc import Mapping
from typing import Final

import msgspec

from polyarch.placement.decide.decision import Decision
from polyarch.placement.names import DECISION_ANNOTATION

VERSION: Final = 1
MAX_BYTES: Final = 1024
MAX_IMAGES: Final = 8


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=False):
    """The annotation's content. ``terms`` left out means any term; ``more_arch`` counts values that found no room."""

    v: int
    by: str
    mode: str
    reason: str
    arch: tuple[str, ...] = ()
    more_arch: int | msgspec.UnsetType = msgspec.UNSET
    os: str | msgspec.UnsetType = msgspec.UNSET
    terms: tuple[int, ...] | msgspec.UnsetType = msgspec.UNSET
    created: bool = False
    preferred: tuple[tuple[str, int], ...] = ()
    images: dict[str, str | int] = msgspec.field(default_factory=dict)
    stale: bool | msgspec.UnsetType = msgspec.UNSET

    def names_term(self, index: int) -> bool:
        return self.terms is msgspec.UNSET or index in self.terms

    def names_values(self, values: list[str] | None) -> bool:
        """Whether an expression with these values can be the one that was written."""
        if not values or not self.arch:
            return False
        if self.more_arch is msgspec.UNSET:
            return tuple(values) == self.arch
        return len(values) == len(self.arch) + self.more_arch and tuple(values[: len(self.arch)]) == self.arch


_decode = msgspec.json.Decoder(Record).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def read(annotations: Mapping[str, str] | None) -> Record | None:
    """The record of a pod, or None if there is none, or one that we cannot have written (PL-750)."""
    text = annotations.get(DECISION_ANNOTATION) if annotations else None
    if text is None or len(text) > MAX_BYTES:
        return None
    try:
        record = _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return record if record.v == VERSION else None


def write(decision: Decision, *, by: str, mode: str) -> str:
    """The annotation's text. It holds no time, so it is the same on every call with the same facts."""
    texts = [(finding.text, finding.note) for finding in decision.images]
    for count in range(min(len(texts), MAX_IMAGES), -1, -1):
        images: dict[str, str | int] = dict(texts[:count])
        if len(texts) > count:
            images["more"] = len(texts) - count
        record = Record(
            VERSION,
            by,
            mode,
            decision.reason.value,
            arch=decision.architectures,
            os=decision.os or msgspec.UNSET,
            terms=decision.terms,
            created=decision.created,
            preferred=decision.preferred,
            images=images,
            stale=decision.stale or msgspec.UNSET,
        )
        encoded = _encode(record)
        if len(encoded) <= MAX_BYTES:
            return encoded.decode()
    return _cut(record)


def _cut(record: Record) -> str:
    """For a pod with hundreds of terms, or an index with hundreds of architectures: say less, within the limit."""
    record = msgspec.structs.replace(record, terms=msgspec.UNSET)
    kept = len(record.arch)
    while len(encoded := _encode(record)) > MAX_BYTES and kept:
        kept -= 1
        record = msgspec.structs.replace(record, arch=record.arch[:kept], more_arch=(record.more_arch or 0) + 1)
    return encoded.decode()
