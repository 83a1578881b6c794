"""Access list of the registry: who may read and write which repository.

A repository that is not in the list is open. The administrator, as whom the sandbox pushes images, may do everything.
"""

import base64
import binascii
import hmac
from pathlib import Path
from typing import Literal

import msgspec

from polyarch.sandbox.files import write_json

ADMINISTRATOR = "sandbox"
SERVICE = "polyarch-sandbox"

Scheme = Literal["bearer", "basic"]


class Repository(msgspec.Struct, frozen=True, rename="camel"):
    """A private repository: its users with their passwords, and the authentication scheme."""

    users: dict[str, str] = msgspec.field(default_factory=dict)
    scheme: Scheme = "bearer"
    identity_tokens: dict[str, str] = msgspec.field(default_factory=dict)
    """Identity token → user; a credential helper may store a token instead of a password."""


class AccessList(msgspec.Struct, frozen=True, rename="camel"):
    """The content of the access file."""

    administrator_password: str = ""
    private: dict[str, Repository] = msgspec.field(default_factory=dict)
    slow: dict[str, int] = msgspec.field(default_factory=dict)
    """Repository → delay of its manifests in milliseconds, to simulate a distant registry."""

    def user_of_password(self, user: str, password: str) -> bool:
        """Whether this is the administrator's password, or that of a user of any private repository."""
        if user == ADMINISTRATOR:
            return bool(self.administrator_password) and _same(password, self.administrator_password)
        return any(_same(password, known.users[user]) for known in self.private.values() if user in known.users)

    def user_of_identity_token(self, token: str) -> str | None:
        for repository in self.private.values():
            for known, user in repository.identity_tokens.items():
                if _same(token, known):
                    return user
        return None

    def allows(self, user: str | None, repository: str) -> bool:
        """Whether ``user`` (None: anonymous) may read and write this repository."""
        private = self.private.get(repository)
        return private is None or user == ADMINISTRATOR or (user is not None and user in private.users)

    def with_private(self, repository: str, access: Repository) -> "AccessList":
        """The list with this private repository added or replaced."""
        return msgspec.structs.replace(self, private={**self.private, repository: access})

    def with_delay(self, repository: str, milliseconds: int) -> "AccessList":
        """The list with this delay of a repository; 0 removes it."""
        others = {name: delay for name, delay in self.slow.items() if name != repository}
        return msgspec.structs.replace(self, slow=others | ({repository: milliseconds} if milliseconds else {}))


def _same(given: str, known: str) -> bool:
    return hmac.compare_digest(given.encode(), known.encode())


def parse_basic(header: str) -> tuple[str, str] | None:
    """User and password of an ``Authorization: Basic`` header; None for any other header."""
    scheme, _, value = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        user, colon, password = base64.b64decode(value.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None
    return (user, password) if colon else None


class AccessFile:
    """The list on disk: read for every request, since it is short, and replaced atomically."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def current(self) -> AccessList:
        """The present list; empty if there is no file."""
        try:
            return msgspec.json.decode(self.path.read_bytes(), type=AccessList)
        except FileNotFoundError:
            return AccessList()

    def write(self, content: AccessList) -> None:
        write_json(self.path, content)
