"""JSON that is nested deeper than the decoder follows.

An API server takes objects of up to ten thousand levels and stores them where a schema has
``x-kubernetes-preserve-unknown-fields``. msgspec gives up earlier with a RecursionError, also in a part that it only
skips: so not even the object's name can be read, and one such object would keep the cache of its kind from ever being
complete.
"""

import re
from typing import Final

DEEPEST: Final = 200
"""Levels that are kept. Objects of Kubernetes have about a dozen, the schemas of large CRDs some sixty."""
MARK: Final = "polyarch: what stood here is nested too deeply"
"""What takes the place of the rest: a JSON string."""
PROBLEM: Final = f"it is nested more than {DEEPEST} levels deep"

_TOKENS: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\]]', re.DOTALL)


def cut(text: bytes) -> bytes:
    """The JSON text, with each object or array below ``DEEPEST`` levels replaced by ``MARK``."""
    kept: list[bytes] = []
    depth = begin = 0
    for token in _TOKENS.finditer(text):
        match token[0]:
            case b"{" | b"[":
                depth += 1
                if depth == DEEPEST + 1:
                    kept += [text[begin : token.start()], b'"', MARK.encode(), b'"']
            case b"}" | b"]":
                depth -= 1
                if depth == DEEPEST:
                    begin = token.end()
    if depth > DEEPEST:
        return b"".join(kept)  # it ends in the middle: no JSON anyway
    return b"".join([*kept, text[begin:]])
