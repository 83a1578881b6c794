"""Credentials, and the entries of credential files that they are read from (RG-082, RG-087).

One reading serves every place that has entries: files of container tools, pull secrets of a cluster, answers of the
kubelet's plugins. A secret leaves this module in a :class:`Credential` only, and a credential shows where it comes
from, never what it is.

Pure: imports neither asyncio nor aiohttp.
"""

import base64
import hashlib
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True)
class Credential:
    """What a registry is shown, and where it was found.

    ``registry_token`` is a bearer token as it is; ``identity_token`` is exchanged for one at the token endpoint, with
    user and password as the other way if both are there (RG-072). ``source`` names the file, helper or secret and
    ``key`` the entry in it; they are all that ``repr`` shows (RG-087). A dataclass, because the ``repr`` of a msgspec
    Struct, and what ``rich`` makes of one, cannot leave members out.
    """

    username: str = field(default="", repr=False)
    password: str = field(default="", repr=False)
    identity_token: str = field(default="", repr=False)
    registry_token: str = field(default="", repr=False)
    source: str = ""
    key: str = ""

    @property
    def is_anonymous(self) -> bool:
        """Nothing to show."""
        return not (self.username or self.password or self.identity_token or self.registry_token)

    @property
    def origin(self) -> str:
        """Where it comes from, for people: ``FILE (key)``, or ``anonymous``."""
        if self.is_anonymous:
            return "anonymous"
        return f"{self.source} ({self.key})" if self.key else self.source

    @property
    def basic(self) -> str | None:
        """The value of an ``Authorization`` header with user and password; ``None`` if there is neither."""
        if not (self.username or self.password):
            return None
        pair = f"{self.username}:{self.password}".encode("utf-8", "surrogateescape")
        return f"Basic {base64.b64encode(pair).decode()}"

    def fingerprint(self, key: bytes) -> str:
        """A keyed hash of the secret parts, equal for equal secrets wherever they were found; ``""`` for anonymous.

        ``key`` has 1 to 64 bytes and is random per cache (RG-110), so that a fingerprint tells nothing by itself.
        """
        if self.is_anonymous:
            return ""
        digest = hashlib.blake2b(key=key, digest_size=16)
        for part in (self.username, self.password, self.identity_token, self.registry_token):
            data = part.encode("utf-8", "surrogateescape")
            digest.update(len(data).to_bytes(8, "big") + data)
        return digest.hexdigest()

    def same_secret(self, other: "Credential") -> bool:
        """Whether a registry could not tell them apart."""
        return self.secret == other.secret

    @property
    def secret(self) -> tuple[str, str, str, str]:
        """The secret parts, to compare credentials by; never to be shown."""
        return (self.username, self.password, self.identity_token, self.registry_token)


ANONYMOUS = Credential()


class CredentialWarning(msgspec.Struct, frozen=True):
    """Something about credentials that a user should know: a code of RG-060 or RG-074's kind, and a sentence."""

    code: str
    message: str
