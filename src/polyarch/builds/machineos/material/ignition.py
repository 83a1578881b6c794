"""Files of a rendered MachineConfig, as its Ignition config has them: data URLs (RFC 2397), perhaps gzipped. Pure."""

import base64
import binascii
import zlib
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote_to_bytes

MOST_BYTES: Final = 1024 * 1024
"""What fits into a ConfigMap, and into an object at all; a file that unpacks to more is none that a build can use."""
_GZIP: Final = 31
"""Window bits of zlib for gzip."""


class UnreadableFile(ValueError):  # noqa: N818 - what it is
    """The message names the file, and quotes none of its content."""


def file(rendered: Mapping[str, Any], path: str) -> str | None:
    """The text of a file of the config; None if there is none. Raises :class:`UnreadableFile`."""
    config: Mapping[str, Any] = (rendered.get("spec") or {}).get("config") or {}
    for each in (config.get("storage") or {}).get("files") or ():
        if each.get("path") == path:
            return _text(each.get("contents") or {}, path)
    return None


def _text(contents: Mapping[str, Any], path: str) -> str:
    source = str(contents.get("source") or "")
    header, comma, body = source.partition(",")
    if not comma or not header.startswith("data:"):
        raise UnreadableFile(f"file {path} of the rendered MachineConfig is not written as a data URL")
    try:
        content = unquote_to_bytes(body)
        if header.endswith(";base64"):
            content = base64.b64decode(content, validate=True)
        if contents.get("compression") == "gzip":
            unpacking = zlib.decompressobj(_GZIP)
            content = unpacking.decompress(content, MOST_BYTES)
            if unpacking.unconsumed_tail:
                raise UnreadableFile(f"file {path} of the rendered MachineConfig is larger than {MOST_BYTES} bytes")
        return content.decode()
    except (binascii.Error, zlib.error, UnicodeDecodeError) as error:
        raise UnreadableFile(f"file {path} of the rendered MachineConfig cannot be read: {error}") from None
