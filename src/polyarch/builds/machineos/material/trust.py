"""The CAs that nodes trust in addition, as a ControllerConfig has them (BD-074). Pure."""

import base64
from typing import Final

CERTIFICATE: Final = "-----BEGIN CERTIFICATE-----"


def bundle(encoded: str) -> str | None:
    """The CAs (PEM), empty for none; None for what holds none: a build would fail over it, nodes pass over it."""
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return None
    return text if not text.strip() or CERTIFICATE in text else None
