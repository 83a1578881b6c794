"""Image references: parsing and canonical text.

Container tools disagree about short names, upper-case letters and ports. A parsed reference has a registry, a
repository, and a tag or digest; its canonical text parses to the same value. Ambiguous or invalid text is refused, with
the reason and a correction, before any request is made.

Pure: imports neither asyncio nor aiohttp."""

import ipaddress
import re
from typing import Literal, NoReturn

import msgspec

DOCKER_HUB = "docker.io"
DOCKER_HUB_HOST = "registry-1.docker.io"
DOCKER_HUB_NAMES = frozenset({DOCKER_HUB, "index.docker.io", DOCKER_HUB_HOST})
DIGEST_DIGITS = {"sha256": 64, "sha384": 96, "sha512": 128}
MAX_NAME = 255

_COMPONENT = re.compile(r"[a-z0-9]+(?:(?:\.|__?|-+)[a-z0-9]+)*", re.ASCII)
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}", re.ASCII)
_LAYOUT_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]{0,127}", re.ASCII)
_TAG_CHARACTERS = re.compile(r"[A-Za-z0-9_.-]*", re.ASCII)
_HEX = re.compile(r"[0-9a-f]+", re.ASCII)
_IMAGE_ID = re.compile(r"[0-9a-f]{64}", re.ASCII)
_HOST_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}", re.ASCII)
_URL_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://", re.ASCII)

Transport = Literal["docker", "oci"]


class InvalidReference(ValueError):  # noqa: N818 - the name says what is the matter
    """Text that is not an image reference. ``position`` counts characters from 1, where one character is wrong."""

    def __init__(self, text: str, problem: str, hint: str = "", position: int | None = None) -> None:
        shown = text if len(text) <= 200 else f"{text[:200]}…"
        message = f"invalid image reference {shown!r}: {problem}"
        if position is not None:
            message += f" (at character {position})"
        if hint:
            message += f"; {hint}"
        super().__init__(message)
        self.text = text
        self.problem = problem
        self.hint = hint
        self.position = position


class Reference(msgspec.Struct, frozen=True, gc=False):
    """A parsed reference. For ``oci`` the registry is empty and ``repository`` is the directory."""

    transport: Transport
    registry: str
    repository: str
    tag: str | None = None
    digest: str | None = None

    @property
    def name(self) -> str:
        """``registry/repository``; for a layout directory its path."""
        return f"{self.registry}/{self.repository}" if self.registry else self.repository

    @property
    def canonical(self) -> str:
        """The full text: every default written out; ``parse(r.canonical) == r``."""
        prefix = "oci:" if self.transport == "oci" else ""
        return f"{prefix}{self.name}{self._suffix}"

    @property
    def familiar(self) -> str:
        """Without ``docker.io/`` and ``library/``, where leaving them out keeps the meaning."""
        if self.registry != DOCKER_HUB:
            return self.canonical
        name = self.repository
        rest = name.removeprefix("library/")
        if "/" not in rest and not _IMAGE_ID.fullmatch(rest):
            name = rest
        first, slash, _ = name.partition("/")
        if slash and _is_host(first):  # docker.io/team.x/app: the first component alone would be read as a host
            return self.canonical
        return f"{name}{self._suffix}"

    @property
    def host_for_requests(self) -> str:
        """The host for requests: Docker Hub's registry has another name than its references."""
        return DOCKER_HUB_HOST if self.registry == DOCKER_HUB else self.registry

    @property
    def selector(self) -> str:
        """The digest if there is one, else the tag."""
        return self.digest or self.tag or ""

    def at(self, digest: str) -> "Reference":
        """The same image with this digest; the tag is kept for display."""
        return Reference(self.transport, self.registry, self.repository, self.tag, digest)

    @property
    def _suffix(self) -> str:
        tag = f":{self.tag}" if self.tag is not None else ""
        return f"{tag}@{self.digest}" if self.digest is not None else tag

    def __str__(self) -> str:
        return self.canonical


def parse(text: str) -> Reference:
    """Parse a reference. Raises :class:`InvalidReference` for invalid or ambiguous text."""
    _check_characters(text)
    if text.startswith("oci:"):
        return _parse_layout(text)
    body = text.removeprefix("docker://")
    offset = len(text) - len(body)
    if scheme := _URL_SCHEME.match(body):
        rest = body[scheme.end() :]
        hint = f"write {rest!r} without the scheme" if rest else "write an image name such as quay.io/team/app:1.0"
        raise InvalidReference(text, f"{scheme[0]!r} is not part of an image name", hint, offset + 1)
    if not body:
        raise InvalidReference(text, "there is no image name", "write an image name such as quay.io/team/app:1.0")
    if body[0] in ":@/":
        raise InvalidReference(text, f"it begins with {body[0]!r}", "begin with a registry or a name", offset + 1)
    named, digest = _split_digest(text, body, offset)
    _check_slashes(text, named, offset)
    name, tag = _split_tag(text, named, offset)
    registry, repository = _split_name(text, name, offset)
    if tag is None and digest is None:
        tag = "latest"
    return Reference("docker", registry, repository, tag, digest)


def check_digest(digest: str) -> str | None:
    """The problem with an ``ALG:HEX`` digest, or None if it is valid."""
    algorithm, colon, digits = digest.partition(":")
    expected = DIGEST_DIGITS.get(algorithm)
    if not colon or not algorithm:
        return "a digest is ALGORITHM:HEX, for example sha256 and 64 hexadecimal digits"
    if expected is None:
        return f"unknown digest algorithm {_shown(algorithm)}; expected {', '.join(DIGEST_DIGITS)}"
    if len(digits) != expected:
        return f"a {algorithm} digest has {expected} hexadecimal digits, not {len(digits)}"
    if not _HEX.fullmatch(digits):
        return f"a {algorithm} digest has {expected} lower-case hexadecimal digits and nothing else"
    return None


def parse_host(host: str) -> str:
    """The lower-case ``host[:port]``; ValueError with the problem if it is invalid."""
    if not host.isascii():
        raise ValueError(f"{_shown(host)} is not a host name: write an international name in its xn-- form")
    host = host.lower()
    if host.startswith("["):
        address, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError("an IPv6 address is written [ADDRESS] or [ADDRESS]:PORT")
        try:
            ipaddress.IPv6Address(address)
        except ValueError:
            raise ValueError(f"{_shown(address)} is not an IPv6 address") from None
        if "%" in address:
            raise ValueError("an IPv6 zone cannot be part of a registry's name")
        colon, port = rest[:1], rest[1:]
    else:
        name, colon, port = host.partition(":")
        if len(name) > 253 or not all(_HOST_LABEL.fullmatch(label) for label in name.split(".")):
            raise ValueError(f"{_shown(name)} is not a host name")
    if colon and not (_PORT.fullmatch(port) and int(port) <= 65535):
        raise ValueError(f"{_shown(port)} is not a port between 1 and 65535")
    return host


def _check_characters(text: str) -> None:
    if not text:
        raise InvalidReference(text, "the text is empty", "write an image name such as quay.io/team/app:1.0")
    if text.isprintable() and " " not in text:
        return
    for position, character in enumerate(text, start=1):
        if character.isspace():
            hint = f"write {_shown(text.strip())}" if len(text.split()) == 1 else "remove it"
            raise InvalidReference(text, "it contains white space", hint, position)
        if not character.isprintable():
            raise InvalidReference(text, "it contains a control character", "remove it", position)


def _parse_layout(text: str) -> Reference:
    offset = len("oci:")
    body = text[offset:]
    if not body or body[0] in ":@":
        raise InvalidReference(
            text, "there is no directory", "write oci:DIRECTORY, oci:DIRECTORY:TAG or oci:DIRECTORY@DIGEST"
        )
    named, digest = _split_digest(text, body, offset)
    _check_slashes(text, named, offset)
    path, tag = _split_tag(text, named, offset, _LAYOUT_TAG)
    if tag is not None and digest is not None:
        raise InvalidReference(text, "a layout directory takes a tag or a digest, not both", "leave one of them out")
    return Reference("oci", "", path, tag, digest)


def _split_digest(text: str, body: str, offset: int) -> tuple[str, str | None]:
    named, at, digest = body.partition("@")
    if not at:
        return named, None
    position = offset + len(named) + 2
    if "@" in digest:
        raise InvalidReference(text, "it has two '@'", "keep one digest", position + digest.index("@"))
    if not digest:
        raise InvalidReference(text, "the digest after '@' is empty", "write @sha256:… or leave '@' out", position)
    if problem := check_digest(digest):
        lower = digest.lower()
        hint = f"write {named}@{lower}" if check_digest(lower) is None else "copy the digest again"
        raise InvalidReference(text, problem, hint, position)
    return named, digest


def _check_slashes(text: str, named: str, offset: int) -> None:
    if "//" in named:
        position = offset + named.index("//") + 2
        raise InvalidReference(text, "it contains '//'", "write one '/' between components", position)
    if named.endswith("/"):
        rest = named.rstrip("/")
        hint = f"write {_shown(text[:offset] + rest)}" if rest else "name a directory below it"
        raise InvalidReference(text, "it ends with '/'", hint, offset + len(named))


def _split_tag(text: str, named: str, offset: int, allowed: re.Pattern[str] | None = None) -> tuple[str, str | None]:
    last = named.rfind("/") + 1
    colon = named.rfind(":", last)
    if colon < 0:
        return named, None
    if colon == last:
        raise InvalidReference(text, "there is no name before ':'", "write NAME:TAG", offset + colon + 1)
    tag = named[colon + 1 :]
    if not tag:
        raise InvalidReference(text, "the tag after ':' is empty", "write :TAG or leave ':' out", offset + colon + 1)
    if not (allowed or _TAG).fullmatch(tag):
        begin = offset + colon + 2
        if len(tag) > 128:
            raise InvalidReference(text, f"a tag has at most 128 characters, not {len(tag)}", "shorten the tag", begin)
        good = _TAG_CHARACTERS.match(tag)
        wrong = good.end() if good is not None else 0
        if wrong == len(tag):  # every character may be in a tag, so it is the first that may not begin one
            wrong = 0
        problem = f"the tag {_shown(tag)} has {tag[wrong]!r} where it cannot be"
        raise InvalidReference(
            text, problem, "a tag has letters, digits, '_', '.' and '-', the last two not first", begin + wrong
        )
    return named[:colon], tag


def _is_host(component: str) -> bool:
    return "." in component or ":" in component or component == "localhost" or component.startswith("[")


def parse_located(text: str) -> Reference:
    """Like :func:`parse` for text that always begins with a host, in any case, as in configuration files of registries.

    Without tag or digest none is added: such text names a place, not an image.
    """
    _check_characters(text)
    named, digest = _split_digest(text, text, 0)
    _check_slashes(text, named, 0)
    host, slash, _ = named.partition("/")
    if not slash:
        raise InvalidReference(text, "there is no repository after the host", "write HOST[:PORT]/NAME")
    name, tag = _split_tag(text, named, 0)
    registry, repository = _located(text, host, name[len(host) + 1 :], 0)
    return Reference("docker", registry, repository, tag, digest)


def _split_name(text: str, name: str, offset: int) -> tuple[str, str]:
    first, slash, rest = name.partition("/")
    if slash and _is_host(first):
        return _located(text, first, rest, offset)
    if _IMAGE_ID.fullmatch(name):
        raise InvalidReference(text, "64 hexadecimal digits are an image id, not a name", "write NAME@sha256:DIGEST")
    return _checked(text, DOCKER_HUB, name, offset)


def _located(text: str, host: str, repository: str, offset: int) -> tuple[str, str]:
    try:
        registry = parse_host(host)
    except ValueError as error:
        raise InvalidReference(text, str(error), "write HOST[:PORT]/NAME", offset + 1) from None
    registry = DOCKER_HUB if registry in DOCKER_HUB_NAMES else registry
    return _checked(text, registry, repository, offset + len(host) + 1)


def _checked(text: str, registry: str, repository: str, begin: int) -> tuple[str, str]:
    _check_repository(text, repository, begin)
    if registry == DOCKER_HUB and "/" not in repository:
        repository = f"library/{repository}"
    length = len(registry) + 1 + len(repository)
    if length > MAX_NAME:
        problem = f"host and repository have {length} characters where at most {MAX_NAME} are possible"
        raise InvalidReference(text, problem, "use a shorter repository name")
    return registry, repository


def _check_repository(text: str, repository: str, begin: int) -> None:
    position = begin
    for component in repository.split("/"):
        if not _COMPONENT.fullmatch(component):
            _refuse_component(text, repository, component, position)
        position += len(component) + 1


def _refuse_component(text: str, repository: str, component: str, position: int) -> NoReturn:
    lower = component.lower()
    if lower != component and _COMPONENT.fullmatch(lower):
        wrong = next(index for index, letter in enumerate(component) if letter != letter.lower())
        problem = f"the repository {_shown(repository)} has the upper-case letter {component[wrong]!r}"
        raise InvalidReference(text, problem, f"write {_shown(repository.lower())}", position + wrong + 1)
    good = _COMPONENT.match(component)
    wrong = good.end() if good is not None else 0
    problem = f"the repository component {_shown(component)} has {component[wrong]!r} where it cannot be"
    hint = "a component has lower-case letters and digits, separated by one '.', one or two '_', or any number of '-'"
    raise InvalidReference(text, problem, hint, position + wrong + 1)


def _shown(text: str, limit: int = 80) -> str:
    return repr(text if len(text) <= limit else text[:limit] + "…")


# -- names without a registry ------------------------------------------------------------------------------------------


ANYWHERE = "*"
"""Placeholder for the registry of a short name; no host has this name."""


def is_short(text: str, reference: Reference) -> bool:
    """Whether the text names no registry; ``docker://`` and a host do name one."""
    if reference.transport != "docker" or text.startswith("docker://"):
        return False
    first, slash, _ = text.partition("/")
    return not (slash and ("." in first or ":" in first or first == "localhost" or first.startswith("[")))


def unqualified(text: str) -> Reference | None:
    """A short name as a reference with registry :data:`ANYWHERE`, one key until its registry is known; None for a name
    with a registry.
    """
    reference = parse(text)
    if not is_short(text, reference):
        return None
    return Reference("docker", ANYWHERE, text[: name_end(text)], reference.tag, reference.digest)


def name_end(text: str) -> int:
    """Index of the end of the name, where its tag or digest begins."""
    tag_at = text.find(":", text.rfind("/") + 1)
    return min(at for at in (tag_at, text.find("@"), len(text)) if at >= 0)
