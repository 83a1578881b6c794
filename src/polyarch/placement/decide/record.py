"""The annotation ``polyarch.dev/placement-decision``: what was decided, in at most 1 KiB of JSON (PL-246).

A later call learns from it which expressions on the pod are ours, so that a manifest copied from a placed pod, or
a second round of admission, is decided afresh (PL-200). It is only a claim: readers verify its signature
and compare it with the pod, so a forged or copied record removes nothing that is not ours (PL-853).
"""

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from polyarch.placement.decide.decision import Decision
from polyarch.placement.decide.seal import UNSEALED, Seal
from polyarch.placement.names import DECISION_ANNOTATION

VERSION: Final = 1
MAX_BYTES: Final = 1024
MAX_IMAGES: Final = 8
_SIGNED: Final = len('"of":"0123456789abcdef","sig":"0123456789012345678901",')
"""What the signature adds to the text."""
_DIGEST: Final = 12
"""Bytes of a digest of references."""


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
    of: str | msgspec.UnsetType = msgspec.UNSET
    """A digest of the pod's references, where ``images`` does not name all of them."""
    sig: str | msgspec.UnsetType = msgspec.UNSET
    stale: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def named_images(self) -> tuple[str, ...] | None:
        """The images that it was made for; None if they were too many to name all of them."""
        if isinstance(self.images.get("more"), int):
            return None
        return tuple(self.images)

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


class Scope(NamedTuple):
    """What a record is made for: the namespace, the pod's images as they stand there, and who signs."""

    namespace: str
    images: tuple[str, ...]
    seal: Seal = UNSEALED
    was_sent: bool = True
    """The pod's creator sent the record. If not, it was written in this very admission, and the images may have been
    changed by another webhook since (PL-114)."""


def is_believed(record: Record, scope: Scope) -> bool:
    """Whether we made the record, for a pod of this namespace and with these images (PL-853)."""
    if not scope.seal.has_key:
        return True
    if record.sig is msgspec.UNSET:
        return False
    bare = msgspec.structs.replace(record, sig=msgspec.UNSET)
    images: Iterable[str] | None = scope.images if scope.was_sent else record.named_images
    if record.of is not msgspec.UNSET:
        if scope.was_sent and record.of != _digest(scope.images):
            return False
        images = ()
    return images is not None and scope.seal.fits(record.sig, _signed(bare, scope.namespace, images))


def write(decision: Decision, *, by: str, mode: str, scope: Scope) -> str:
    """The annotation's text. It holds no time, so it is the same on every call with the same facts."""
    record = made(decision, by=by, mode=mode)
    if scope.seal.has_key:
        images = scope.images
        if set(record.named_images or ()) != set(images):
            record, images = msgspec.structs.replace(record, of=_digest(images)), ()
        signature = scope.seal.sign(_signed(record, scope.namespace, images))
        record = msgspec.structs.replace(record, sig=signature)
    return _encode(record).decode()


def _digest(images: Iterable[str]) -> str:
    digest = hashlib.sha256(_encode(sorted(set(images)))).digest()[:_DIGEST]
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


def _signed(record: Record, namespace: str, images: Iterable[str]) -> bytes:
    return _encode((namespace, sorted(set(images)), record))


def made(decision: Decision, *, by: str, mode: str) -> Record:
    """The record of a decision, short enough to be written with a signature."""
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
        if _fits(record):
            return record
    return _cut(record)


def _fits(record: Record) -> bool:
    return len(_encode(record)) <= MAX_BYTES - _SIGNED


def _cut(record: Record) -> Record:
    """For a pod with hundreds of terms, or an index with hundreds of architectures: say less, within the limit."""
    record = msgspec.structs.replace(record, terms=msgspec.UNSET)
    kept = len(record.arch)
    while not _fits(record) and kept:
        kept -= 1
        record = msgspec.structs.replace(record, arch=record.arch[:kept], more_arch=(record.more_arch or 0) + 1)
    return record
