"""Bearer tokens: token requests, their answers, and the token cache (RG-072 to RG-075).

This module builds requests and reads answers; ``authorization`` sends them. Tokens are cached in memory only, per
source, realm, service, scope and credential, and never outlive the process.
"""

import json
import string
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

from polyarch.clock import Clock
from polyarch.oci.auth.entries import Credential
from polyarch.oci.cache.recent import Recent

CLIENT_ID = "polyarch"
SHORTEST_LIFE = 60.0
LONGEST_LIFE = 24 * 3600.0
RENEWED_BEFORE_END = 10.0
TOKENS_KEPT = 10_000
TOKENS_BYTES = 16 * 2**20
LONGEST_TOKEN = 16 * 1024
"""Servers accept no longer headers."""
_TOKEN_CHARACTERS = frozenset(string.ascii_letters + string.digits + string.punctuation)


class TokenKey(NamedTuple):
    """Cache key of a token; ``credential`` is a fingerprint, ``""`` for anonymous."""

    source: str
    realm: str
    service: str
    scopes: tuple[str, ...]
    credential: str


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A request to a token endpoint; ``repr`` leaves out its secret parts."""

    method: str
    url: str
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)


class NoToken(ValueError):  # noqa: N818 - the name says what is the matter
    """The endpoint's answer has no usable token; the text says why and quotes nothing."""


class NoTokenAnswer(NoToken):
    """It is not even the answer of a token endpoint (RG-065)."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and the monotonic time at which its use ends."""

    value: str = field(repr=False)
    until: float


def pull_scope(repository: str) -> str:
    return f"repository:{repository}:pull"


def push_scopes(repository: str, mounted_from: Sequence[str] = ()) -> tuple[str, ...]:
    """``pull,push`` for the target and ``pull`` for the repositories blobs are mounted from, in one token (RG-075)."""
    return (f"repository:{repository}:pull,push", *(pull_scope(source) for source in mounted_from))


def named_scopes(scope: str, repository: str) -> tuple[str, ...] | None:
    """The scopes of a challenge if all of them name this repository, else None (RG-072)."""
    scopes = tuple(scope.split())
    ours = f"repository:{repository}:"
    return scopes if scopes and all(each.startswith(ours) and ":" not in each[len(ours) :] for each in scopes) else None


def token_requests(key: TokenKey, credential: Credential) -> list[TokenRequest]:
    """The requests to try in order; the next one only if the endpoint has no POST (404 or 405; RG-072)."""
    common = [("service", key.service)] if key.service else []
    requests: list[TokenRequest] = []
    if credential.identity_token:
        form = [
            ("grant_type", "refresh_token"),
            *common,
            ("client_id", CLIENT_ID),
            ("scope", " ".join(key.scopes)),
            ("refresh_token", credential.identity_token),
        ]
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        requests.append(TokenRequest("POST", key.realm, headers, urlencode(form).encode("ascii")))
        if not credential.password:
            return requests
    query = urlencode([*common, *(("scope", scope) for scope in key.scopes), ("client_id", CLIENT_ID)])
    joint = "&" if urlsplit(key.realm).query else "?"
    basic = credential.basic
    url = f"{key.realm.rstrip('?&')}{joint}{query}"
    requests.append(TokenRequest("GET", url, {"Authorization": basic} if basic else {}))
    return requests


def read_token(body: bytes, received_at: float) -> Token:
    """The token and its lifetime, counted from receipt (RG-073); ``NoToken`` if there is none."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict) or not {"token", "access_token"} & document.keys():
        raise NoTokenAnswer("the token endpoint answered without a token")
    value = next((v for v in map(document.get, ("token", "access_token")) if isinstance(v, str) and v), None)
    if value is None:
        raise NoToken("the token endpoint answered without a token")
    if len(value) > LONGEST_TOKEN or not _TOKEN_CHARACTERS.issuperset(value):
        raise NoToken("the token endpoint answered with a token that cannot be in a header")
    life = document.get("expires_in")
    seconds = min(life, LONGEST_LIFE) if isinstance(life, int | float) and life > SHORTEST_LIFE else SHORTEST_LIFE
    return Token(value, received_at + seconds - RENEWED_BEFORE_END)


class Tokens:
    """Cache of the most recently used tokens."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens: Recent[TokenKey, Token] = Recent(TOKENS_KEPT, weight=TOKENS_BYTES)

    def get(self, key: TokenKey) -> Token | None:
        token = self._tokens.get(key)
        if token is not None and token.until <= self._clock.monotonic():
            self._tokens.pop(key)
            return None
        return token

    def put(self, key: TokenKey, token: Token) -> None:
        self._tokens.put(key, token, weight=500 + len(token.value) + len(key.realm))

    def drop(self, key: TokenKey, token: Token) -> None:
        """Drop a refused token, unless a newer one has replaced it."""
        if self._tokens.get(key) is token:
            self._tokens.pop(key)
