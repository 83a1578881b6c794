"""The annotation ``polyarch.dev/placement-decision``: the decision in at most 1 KiB of JSON (PL-246).

It tells later calls which expressions on the pod are ours, so that a manifest copied from a placed pod, or a second
round of admission, is decided as if new (PL-200). Readers verify its signature and compare it with the pod, so a forged
or copied record cannot make polyarch remove the user's expressions (PL-853).
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
"""Bytes that the signature adds."""
_DIGEST: Final = 12
"""Bytes of a digest of image references."""


class Record(msgspec.Struct, frozen=True, gc=False, omit_defaults=False):
    """The annotation's content. Without ``terms``: any term. ``more_arch`` counts values left out for length."""

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
    """Digest of the pod's image references, if ``images`` does not name all of them."""
    sig: str | msgspec.UnsetType = msgspec.UNSET
    stale: bool | msgspec.UnsetType = msgspec.UNSET

    @property
    def named_images(self) -> tuple[str, ...] | None:
        """The images it was made for; None if they are not all named."""
        if isinstance(self.images.get("more"), int):
            return None
        return tuple(self.images)

    def is_of(self, images: Iterable[str]) -> bool:
        """Whether it was made for these references, whoever wrote it (PL-372)."""
        own = set(images)
        if self.of is not msgspec.UNSET:
            return self.of == _digest(own)
        named = {text for text, note in self.images.items() if isinstance(note, str)}
        more = sum(note for note in self.images.values() if isinstance(note, int))
        return not self.images or (named <= own and len(named) + more == len(own))

    def names_term(self, index: int) -> bool:
        return self.terms is msgspec.UNSET or index in self.terms

    def names_values(self, values: list[str] | None) -> bool:
        """Whether an expression with these values can be the recorded one."""
        if not values or not self.arch:
            return False
        if self.more_arch is msgspec.UNSET:
            return tuple(values) == self.arch
        return len(values) == len(self.arch) + self.more_arch and tuple(values[: len(self.arch)]) == self.arch


_decode = msgspec.json.Decoder(Record).decode
_encode = msgspec.json.Encoder(order="sorted").encode


def read(annotations: Mapping[str, str] | None) -> Record | None:
    """The record in a pod's annotations; None if there is none or it cannot be ours (PL-750)."""
    text = annotations.get(DECISION_ANNOTATION) if annotations else None
    if text is None or len(text) > MAX_BYTES:
        return None
    try:
        record = _decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return record if record.v == VERSION else None


class Scope(NamedTuple):
    """What a record is bound to: the namespace and the pod's image references; and the key that signs it."""

    namespace: str
    images: tuple[str, ...]
    seal: Seal = UNSEALED
    was_sent: bool = True
    """The pod's creator sent the record. If not, an earlier call of this admission wrote it, and another webhook may
    have changed the images since (PL-114)."""


def is_believed(record: Record, scope: Scope) -> bool:
    """Whether polyarch wrote the record for a pod in this namespace with these images (PL-853)."""
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
    """The annotation's value. It has no timestamp, so equal facts give equal text."""
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
    """The record of a decision, shortened to fit the limit with a signature."""
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
    """Shorten the record of a pod with hundreds of terms or architectures to the limit."""
    record = msgspec.structs.replace(record, terms=msgspec.UNSET)
    kept = len(record.arch)
    while not _fits(record) and kept:
        kept -= 1
        record = msgspec.structs.replace(record, arch=record.arch[:kept], more_arch=(record.more_arch or 0) + 1)
    return record
