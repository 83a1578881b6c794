"""Tokens that prove that a review comes from an API server. Pure.

Every pod can post to a webhook's port, and most API servers show no client certificate. But an API server knows the
path from the webhook configuration, which only administrators of the cluster may read. So whoever registers a webhook
that uses credentials appends a token to its path (:func:`path_with_token`): a digest of the path, keyed with a key that
the webhook has, too. A token is good for one path and tells nothing about the key.

Only for webhooks with the failure policy ``Ignore``: with ``Fail`` an API server tells the user the whole URL when a
call fails.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any, Final

_BYTES: Final = 20
_CONTEXT: Final = b"review path"
"""Keeps tokens apart from whatever else is made with the same key."""


def review_token(key: bytes, path: str) -> str:
    """The token of a path: 40 hexadecimal digits, since a segment of a webhook's path has to be a DNS name."""
    short = key if len(key) <= hashlib.blake2b.MAX_KEY_SIZE else hashlib.sha512(key).digest()
    return hashlib.blake2b(path.encode(), key=short, person=_CONTEXT, digest_size=_BYTES).hexdigest()


def path_with_token(path: str, key: bytes) -> str:
    """The path to register; as it is without a key."""
    return f"{path}/{review_token(key, path)}" if key else path


def path_without_token(path: str) -> str:
    """The path (or URL) that was registered, without its token."""
    bare, _, last = path.rpartition("/")
    return bare if len(last) == 2 * _BYTES and set(last) <= set("0123456789abcdef") else path


def has_tokens(configuration: Mapping[str, Any]) -> bool:
    """Whether an entry of a webhook configuration has a token in its path."""
    clients = [webhook.get("clientConfig") or {} for webhook in configuration.get("webhooks") or ()]
    paths = [str((client.get("service") or {}).get("path") or client.get("url") or "") for client in clients]
    return any(path_without_token(path) != path for path in paths)


class ReviewTokens:
    """The tokens that count now: one of each path for each key."""

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = tuple(keys)
        self._tokens: dict[str, tuple[bytes, ...]] = {}

    def take(self, keys: Sequence[bytes]) -> None:
        """Other keys count from now on."""
        self._keys = tuple(keys)
        self._tokens.clear()

    def prove(self, path: str, token: str) -> bool:
        """Whether it is a token of this path, one of the paths that are served. In constant time."""
        known = self._tokens.get(path)
        if known is None:
            known = self._tokens[path] = tuple(review_token(key, path).encode() for key in self._keys)
        given = token.encode("utf-8", "surrogateescape")
        return sum(hmac.compare_digest(each, given) for each in known) > 0
