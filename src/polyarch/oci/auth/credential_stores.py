"""Credential stores say which credentials may be sent to a source for an image.

A store answers for the *source* of the request, not for the registry of the reference: a mirror's credential is looked
up for the mirror, so none is ever forwarded from one host to another. Anonymous is always last.

``FileCredentials`` reads the files of Docker, Podman, Skopeo and CI systems, which have nearly the same format. They
are tried in a fixed order and the first with an entry for the image wins; within a file, the most specific entry wins.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from polyarch.oci.auth.credential_plugins import Helper, HelperFailure, ProgramHelper, ask_helper
from polyarch.oci.auth.credentials import (
    ANONYMOUS,
    Credential,
    CredentialWarning,
    Document,
    Keyring,
    MalformedDocument,
    deduplicated,
    hub,
    member,
    read_entry,
    read_object,
    split_key,
)
from polyarch.oci.reference import Reference

if TYPE_CHECKING:
    from polyarch.oci.pull_sources import PullSource


INLINE = "DOCKER_AUTH_CONFIG"
AUTHFILE = "REGISTRY_AUTH_FILE"


class InvalidCredentialFile(ValueError):  # noqa: N818 - it says what the file is
    """A named credential file is missing, or an existing one is unreadable: a usage error."""

    def __init__(self, origin: str, problem: str, hint: str) -> None:
        super().__init__(f"{origin}: {problem}; {hint}")
        self.origin = origin
        self.problem = problem


class _Ask(NamedTuple):
    """A step of a lookup: run this credential helper."""

    helper: str


@dataclass(frozen=True, slots=True)
class _Take:
    """A step of a lookup: read this entry. The entry's content stays out of ``repr``."""

    origin: str
    key: str
    entry: object = field(repr=False)


class _File:
    """One file with its entries, indexed by host and path."""

    def __init__(self, origin: str, content: Mapping[str, Any], *, legacy: bool) -> None:
        self.origin = origin
        entries = content if legacy else member(content, "auths")
        self._helpers = {} if legacy else _helper_names(member(content, "credHelpers"))
        store = None if legacy else content.get("credsStore")
        if store is not None and not isinstance(store, str):
            raise MalformedDocument("'credsStore' is not a string")
        self._store = store or ""
        self._paths: dict[str, list[_Take]] = defaultdict(list)
        self._hosts: dict[str, list[_Take]] = defaultdict(list)
        for key, entry in entries.items():
            take = _Take(origin, key, entry)
            if not legacy and (path := _path_key(key)):
                self._paths[path].append(take)
            if host := _host_key(key, legacy=legacy):
                self._hosts[host].append(take)

    def steps(self, host: str, repository: str) -> Iterator[_Ask | _Take]:
        """The steps of a lookup, in order. ``host`` is ``docker.io`` for every name of Docker Hub."""
        if name := self._helpers.get(host):
            yield _Ask(name)
        seen: list[_Take] = []
        parts = [host, *repository.split("/")]
        for end in range(len(parts), 0, -1):
            seen += self._paths.get("/".join(parts[:end]), ())
        yield from seen
        yield from (take for take in self._hosts.get(host, ()) if take not in seen)
        if self._store:
            yield _Ask(self._store)


class FileCredentials:
    """Credentials of container tools on this machine: a :class:`CredentialStore`.

    :meth:`load` reads the files once; each helper runs once per host.
    """

    def __init__(self, files: Sequence[_File], *, environ: Mapping[str, str], helper: Helper) -> None:
        self._files = tuple(files)
        self._environ = dict(environ)
        self._helper = helper
        self._answers: dict[tuple[str, str], Credential | None] = {}
        self._asking: dict[tuple[str, str], asyncio.Lock] = defaultdict(asyncio.Lock)
        self._warnings: dict[str, dict[CredentialWarning, None]] = defaultdict(dict)

    @classmethod
    def load(
        cls,
        authfile: str | os.PathLike[str] | None = None,
        environ: Mapping[str, str] | None = None,
        helper: Helper | None = None,
    ) -> "FileCredentials":
        """Read the files in their order. ``authfile`` (or ``REGISTRY_AUTH_FILE``) replaces all others.

        Raises :class:`InvalidCredentialFile` if a named file is missing, or any file is malformed.
        """
        environ = os.environ if environ is None else environ
        named = os.fspath(authfile) if authfile is not None else environ.get(AUTHFILE, "")
        if named:
            files = [_read(Path(named), missing_ok=False)]
        else:
            files = [_inline(environ[INLINE])] if environ.get(INLINE) else []
            files += [_read(path, missing_ok=True) for path in _default_places(environ)]
        found = [file for file in files if file is not None]
        return cls(found, environ=environ, helper=ProgramHelper() if helper is None else helper)

    @property
    def origins(self) -> tuple[str, ...]:
        """The files that exist, in the order they are tried."""
        return tuple(file.origin for file in self._files)

    async def candidates(self, reference: Reference, source: "PullSource") -> list[Credential]:
        host = hub(source.host)
        for step in self._steps(host, source.repository):
            found = await self._ask(step.helper, host) if isinstance(step, _Ask) else self._take(step, host)
            if found is not None:
                return deduplicated([found])
        return deduplicated([])

    def cached_candidates(self, reference: Reference, source: "PullSource") -> list[Credential] | None:
        host = hub(source.host)
        for step in self._steps(host, source.repository):
            if isinstance(step, _Take):
                found = self._take(step, host)
            elif (step.helper, host) in self._answers:
                found = self._answers[step.helper, host]
            else:
                return None
            if found is not None:
                return deduplicated([found])
        return deduplicated([])

    def warnings(self, source: "PullSource") -> Sequence[CredentialWarning]:
        return tuple(self._warnings.get(hub(source.host), ()))

    def _steps(self, host: str, repository: str) -> Iterator[_Ask | _Take]:
        for file in self._files:
            yield from file.steps(host, repository)

    def _take(self, step: _Take, host: str) -> Credential | None:
        found = read_entry(step.entry, source=step.origin, key=step.key)
        if isinstance(found, CredentialWarning):
            self._warnings[host][found] = None
            return None
        return found

    async def _ask(self, name: str, host: str) -> Credential | None:
        place = (name, host)
        async with self._asking[place]:
            if place not in self._answers:
                try:
                    self._answers[place] = await ask_helper(self._helper, name, host, environ=self._environ)
                except HelperFailure as failure:
                    self._warnings[host][CredentialWarning("credential-helper", str(failure))] = None
                    self._answers[place] = None
        return self._answers[place]


def _default_places(environ: Mapping[str, str]) -> Iterator[Path]:
    home = environ.get("HOME", "")
    if runtime := environ.get("XDG_RUNTIME_DIR"):
        yield Path(runtime, "containers", "auth.json")
    if configuration := environ.get("XDG_CONFIG_HOME") or (home and f"{home}/.config"):
        yield Path(configuration, "containers", "auth.json")
    if docker := environ.get("DOCKER_CONFIG") or (home and f"{home}/.docker"):
        yield Path(docker, "config.json")
    if home:
        yield Path(home, ".dockercfg")


def _read(path: Path, *, missing_ok: bool) -> _File | None:
    origin = str(path)
    try:
        body = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        if missing_ok:
            return None
        raise InvalidCredentialFile(origin, "there is no such file", "name the file that a login wrote") from None
    except OSError as error:
        raise InvalidCredentialFile(
            origin, f"it cannot be read: {error.strerror}", f"make it readable, or name another one with {AUTHFILE}"
        ) from None
    return _parse(origin, body, legacy=path.name == ".dockercfg")


def _inline(text: str) -> _File:
    return _parse(INLINE, text.encode("utf-8", "surrogateescape"), legacy=False)


def _parse(origin: str, body: bytes, *, legacy: bool) -> _File:
    try:
        content = read_object(body)
        return _File(origin, content, legacy=legacy and "auths" not in content)
    except MalformedDocument as error:
        raise InvalidCredentialFile(origin, str(error), "correct it, or log in again to write it anew") from None


def _helper_names(helpers: Mapping[str, Any]) -> dict[str, str]:
    names: dict[str, str] = {}
    for key, name in helpers.items():
        if not isinstance(name, str):
            raise MalformedDocument("'credHelpers' has a value that is not a string")
        host = _host_key(key, legacy=False)
        if host and name and (host not in names or key == host):
            names[host] = name
    return names


def _path_key(key: str) -> str:
    """``host/path`` of the key; ``""`` if it has a scheme."""
    if "://" in key:
        return ""
    host, slash, path = key.strip().partition("/")
    return f"{hub(host.lower())}{slash}{path.rstrip('/')}" if slash and path.rstrip("/") else hub(host.lower())


def _host_key(key: str, *, legacy: bool) -> str:
    """The host, if the key stands for the whole host; ``""`` if it stands for a path, or has a tag or digest.

    Keys with a scheme come from tools that knew hosts only; the path in them is ignored.
    """
    host, path = split_key(key)
    if "@" in path or ":" in path.rpartition("/")[2]:
        return ""
    return host if legacy or not path.strip("/") or "://" in key else ""


# -- stores ------------------------------------------------------------------------------------------------------------


MAX_REMEMBERED = 4096


class CredentialStore(Protocol):
    """Interface of all stores. Never raises for an unavailable credential; it warns and continues."""

    async def candidates(self, reference: Reference, source: "PullSource") -> list[Credential]:
        """The credentials to try for this source, in order; the last is :data:`ANONYMOUS`.

        Asynchronous because a store may run programs, which have ended when it returns.
        """
        ...

    def cached_candidates(self, reference: Reference, source: "PullSource") -> list[Credential] | None:
        """The same list without I/O, or ``None`` if I/O is needed."""
        ...

    def warnings(self, source: "PullSource") -> Sequence[CredentialWarning]:
        """Problems so far with credentials for this source; they name places, never secrets."""
        ...


class NoCredentials:
    """Anonymous access only."""

    __slots__ = ()

    async def candidates(self, reference: Reference, source: "PullSource") -> list[Credential]:
        return [ANONYMOUS]

    def cached_candidates(self, reference: Reference, source: "PullSource") -> list[Credential] | None:
        return [ANONYMOUS]

    def warnings(self, source: "PullSource") -> Sequence[CredentialWarning]:
        return ()


class KeyringCredentials:
    """Pull secrets of a pod or a cluster, used like a kubelet uses them.

    Immutable: a changed secret needs a new store. ``problems`` name unusable documents and entries without quoting
    them.
    """

    __slots__ = ("_keyring", "_remembered")

    def __init__(self, documents: Iterable[Document]) -> None:
        self._keyring = Keyring(documents)
        self._remembered: dict[tuple[str, str], list[Credential]] = {}

    @property
    def problems(self) -> tuple[str, ...]:
        return self._keyring.problems

    async def candidates(self, reference: Reference, source: "PullSource") -> list[Credential]:
        return self.cached_candidates(reference, source)

    def cached_candidates(self, reference: Reference, source: "PullSource") -> list[Credential]:
        place = (source.host, source.repository)
        found = self._remembered.get(place)
        if found is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            found = self._remembered[place] = deduplicated(self._keyring.lookup(*place))
        return list(found)

    def warnings(self, source: "PullSource") -> Sequence[CredentialWarning]:
        return tuple(CredentialWarning("credential-document", problem) for problem in self.problems)


class ChainedCredentials:
    """The credentials of several stores, in order, each secret once and anonymous last."""

    __slots__ = ("_stores",)

    def __init__(self, stores: Iterable[CredentialStore]) -> None:
        self._stores = tuple(stores)

    async def candidates(self, reference: Reference, source: "PullSource") -> list[Credential]:
        found: list[Credential] = []
        for store in self._stores:
            found += await store.candidates(reference, source)
        return deduplicated(found)

    def cached_candidates(self, reference: Reference, source: "PullSource") -> list[Credential] | None:
        found: list[Credential] = []
        for store in self._stores:
            part = store.cached_candidates(reference, source)
            if part is None:
                return None
            found += part
        return deduplicated(found)

    def warnings(self, source: "PullSource") -> Sequence[CredentialWarning]:
        return tuple(warning for store in self._stores for warning in store.warnings(source))
