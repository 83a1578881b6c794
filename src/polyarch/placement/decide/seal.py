"""The signature of decision annotations: proves that placement wrote them (PL-853).

A pod's creator can write any annotation. A forged or copied record could claim that an expression added by another
webhook is ours, and polyarch would remove it. So each record is signed together with its namespace and images, with a
key that only polyarch's processes have.

Keys come from a file of up to two lines (:func:`keys_in`), the newest first. Both verify, so records stay valid through
a rotation. A process without a key accepts every record. Pure.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

KEYS: Final = 2
"""Keys that are used; others in the file are ignored."""
LEAST: Final = 16
"""Minimum bytes of a key."""
_BYTES: Final = 16
"""Bytes of a signature."""


class Seal:
    """Signs with one key and verifies with all of them."""

    __slots__ = ("_keys", "_signing")

    def __init__(self, keys: Sequence[bytes] = (), *, signing: int = 0) -> None:
        """``signing``: index of the key to sign with; not the newest while some processes may not have it yet."""
        self._keys = tuple(keys[:KEYS])
        self._signing = signing

    def __repr__(self) -> str:
        return f"<Seal of {len(self._keys)} keys>"

    @property
    def has_key(self) -> bool:
        return bool(self._keys)

    def sign(self, content: bytes) -> str:
        """The signature in base64url, 22 characters; empty without a key."""
        return _signature(self._keys[self._signing], content) if self._keys else ""

    def fits(self, signature: str, content: bytes) -> bool:
        """Whether the signature was made with one of the keys."""
        given = signature.encode(errors="replace")
        return any(hmac.compare_digest(_signature(key, content).encode(), given) for key in self._keys)


UNSEALED: Final = Seal()


def _signature(key: bytes, content: bytes) -> str:
    made = hmac.digest(key, content, hashlib.sha256)[:_BYTES]
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


def keys_in(content: bytes) -> tuple[bytes, ...]:
    """The keys of a key file: one per line, base64, the newest first; lines after the second are ignored.

    Raises ``ValueError`` with a message that contains nothing of the file.
    """
    lines = [line.strip() for line in content.splitlines() if line.strip()][:KEYS]
    if not lines:
        raise ValueError("it is empty; expected one or two lines as `openssl rand -base64 32` prints them")
    keys = []
    for number, line in enumerate(lines, start=1):
        try:
            key = base64.b64decode(line, validate=True)
        except (binascii.Error, ValueError):
            raise ValueError(f"line {number} is not base64; expected what `openssl rand -base64 32` prints") from None
        if len(key) < LEAST:
            raise ValueError(f"the key in line {number} has {len(key)} bytes; expected {LEAST} or more")
        keys.append(key)
    return tuple(keys)
