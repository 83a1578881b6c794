"""The signature of decision annotations: proves that placement wrote them (PL-853).

Whoever creates a pod can write any annotation. Without a signature a forged or copied record would let them name an
expression that another webhook put on their pod, and have it taken off as ours. So a record is signed together with the
namespace and the images that it was made for, under a key that only polyarch's own processes have.

Keys come from a file of up to two lines (:func:`keys_in`), the newest first; both are believed, so a rotation forgets
nothing. A process without a key believes every record. Pure.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Sequence
from typing import Final

KEYS: Final = 2
"""How many keys count."""
LEAST: Final = 16
"""Bytes of a key."""
_BYTES: Final = 16
"""Of a signature."""


class Seal:
    """Signs with one key and believes all of them."""

    __slots__ = ("_keys", "_signing")

    def __init__(self, keys: Sequence[bytes] = (), *, signing: int = 0) -> None:
        """``signing``: the position of the key to sign with; another than the newest one while not every process may
        have that yet."""
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
        """Whether one of the keys has made this signature."""
        given = signature.encode(errors="replace")
        return any(hmac.compare_digest(_signature(key, content).encode(), given) for key in self._keys)


UNSEALED: Final = Seal()


def _signature(key: bytes, content: bytes) -> str:
    made = hmac.digest(key, content, hashlib.sha256)[:_BYTES]
    return base64.urlsafe_b64encode(made).rstrip(b"=").decode()


def keys_in(content: bytes) -> tuple[bytes, ...]:
    """The keys of a key file: one per line, base64, the newest first; what follows the second is not read.

    Raises ``ValueError`` with a sentence that holds nothing of the content.
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
