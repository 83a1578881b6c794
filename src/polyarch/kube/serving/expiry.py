"""When does a certificate expire? Read from its bytes, so that a role that only serves one does not load the library
``cryptography``, which takes 7 MiB (PL-810).

The certificate is one that OpenSSL has loaded already; here one field of it is looked up (RFC 5280, 4.1).
Pure.
"""

import binascii
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

_PEM: Final = re.compile(rb"-----BEGIN CERTIFICATE-----(.*?)-----END CERTIFICATE-----", re.DOTALL)
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_CENTURY: Final = 50
"""Two digits from here on are of the twentieth century (RFC 5280, 4.1.2.5.1)."""


def not_after(text: bytes) -> datetime:
    """The expiry of the first certificate in a PEM text. Raises ValueError if there is none."""
    found = _PEM.search(text)
    if found is None:
        raise ValueError("there is none")
    try:
        certificate = binascii.a2b_base64(found[1])
        _, whole = next(_elements(certificate))
        _, signed = next(_elements(whole))
        fields = [content for tag, content in _elements(signed) if tag != _VERSION]
        _, (tag, end) = _elements(fields[3])  # serial number, signature, issuer, validity
        written = end.decode("ascii")
        if tag == _UTC_TIME:
            written = f"{19 if int(written[:2]) >= _CENTURY else 20}{written}"
        return datetime.strptime(written, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, StopIteration, binascii.Error) as error:
        raise ValueError(f"it is damaged: {error!r}") from None


def _elements(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The elements of a DER sequence: tag and content."""
    at = 0
    while at < len(content):
        tag, length, at = content[at], content[at + 1], at + 2
        if length & 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(content[at : at + size]), at + size
        yield tag, content[at : at + length]
        at += length
