"""The CAs that nodes trust in addition, as a ControllerConfig has them (BD-074). Pure."""

import base64


def bundle(encoded: str) -> str | None:
    """The CAs (PEM), empty for none; None for what cannot be read."""
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except ValueError:
        return None
