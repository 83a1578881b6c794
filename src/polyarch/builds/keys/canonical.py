"""One spelling for every value, so that equal inputs have equal hashes (BD-070).

UTF-8 JSON, members sorted by code point, no white space, non-ASCII unescaped, integers only. The rule about what is
left out of a key document (BD-071) is here too, since every key document follows it.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def encode(value: Any) -> bytes:
    """The canonical bytes. TypeError or ValueError for what has no canonical form, such as floats."""
    _refuse_floats(value)
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def digest(value: Any) -> str:
    """SHA-256 of the canonical bytes: 64 lower-case hex digits."""
    return hashlib.sha256(encode(value)).hexdigest()


def without_empty(document: Mapping[str, Any]) -> dict[str, Any]:
    """Without top-level members that are null, ``""``, ``[]`` or ``{}``; 0 and false stay (BD-071)."""
    return {name: value for name, value in document.items() if value is not None and value not in ("", [], {}, ())}


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise TypeError(f"{value!r} cannot be part of a key: numbers are integers there")
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    for member in members:
        if not isinstance(member, str):
            _refuse_floats(member)
