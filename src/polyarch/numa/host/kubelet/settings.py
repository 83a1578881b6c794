"""Where the kubelet's settings come from, and when they are read again (NE-100 – NE-103).

Sources in order: the exporter's own options, the kubelet's ``/configz``, the kubelet's configuration file. ``/configz``
is preferred over the file because it shows what flags and drop-ins changed. A kubelet applies a new configuration when
it starts, so ``/configz`` is asked when its socket is another one; the file is looked at with every scan, which costs
less than a stat of it saves.

What was known once stays in use when no source answers any more: ``Settings.stale`` says then what the matter is.
"""

import hashlib
from collections.abc import Hashable
from typing import Final, Literal, Protocol

import msgspec

from polyarch.clock import Clock
from polyarch.numa.decide.facts import KubeletSettings
from polyarch.numa.host.kubelet.configuration import UnusableConfiguration, chosen, from_configz, from_files
from polyarch.numa.host.tree import Tree, reason

REFUSED_SECONDS: Final = 600.0
"""After a refusal ``/configz`` is asked again: rights and certificates change seldom."""
FAILED_SECONDS: Final = 10.0
"""The same after a first failure: a kubelet that starts listens in a moment. After each further one it is twice as
long, as a port that a firewall closes holds up the scan that asks."""
DROP_IN: Final = ".conf"


class ConfigzUnavailable(Exception):  # noqa: N818 - the name says what is the matter
    """``/configz`` gave no answer."""

    def __init__(self, message: str, *, refused: bool) -> None:
        """``refused``: it will not give one soon (401, 403, 404, a certificate that does not verify)."""
        super().__init__(message)
        self.refused = refused


class Configz(Protocol):
    """The seam to the kubelet's port."""

    async def get(self) -> bytes:
        """The answer of ``/configz``; raises ConfigzUnavailable."""
        ...


class NoKubeletSettings(Exception):  # noqa: N818 - the name says what is the matter
    """No source is usable, and none ever was (NE-103): the exporter ends with 2. ``problem`` names all of them."""

    def __init__(self, problem: str) -> None:
        self.problem = f"the kubelet's settings are not known: {problem}"
        super().__init__(
            f"{self.problem}; give --kubelet-config-file, or --topology-manager-policy and --topology-manager-scope"
        )


class Sources(msgspec.Struct, frozen=True, kw_only=True):
    """Which sources there are; all paths are below the tree."""

    policy: str | None = None
    scope: str | None = None
    """With ``policy`` these are the settings, and no kubelet is asked."""
    mode: Literal["auto", "configz", "file"] = "auto"
    file: str = "/podresources/config.yaml"
    directory: str = ""
    """Of drop-ins; empty: none."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings in use."""

    kubelet: KubeletSettings
    origin: Literal["options", "configz", "file"]
    stale: str = ""
    """Why they are not known any more to be the kubelet's (condition ``TopologySettingsStale``); empty: they are."""


class KubeletSettingsSource:
    """The settings for one scan after the other."""

    def __init__(self, sources: Sources, tree: Tree, *, clock: Clock, configz: Configz | None = None) -> None:
        """Without ``configz`` the file alone is read."""
        self._sources = sources
        self._configz = configz if sources.mode != "file" else None
        self._clock = clock
        self._file = _File(tree, sources.file, sources.directory)
        self._kubelet: Hashable = None
        self._due = float("-inf")
        self._answer: KubeletSettings | None = None
        """What ``/configz`` said; None while the file counts."""
        self._failures = 0
        self._problem = ""
        """Why it gave no answer the last time."""
        self._known: Settings | None = None

    async def current(self, kubelet: Hashable = None) -> Settings:
        """The settings as of now; ``kubelet`` is the identity of its socket. Raises NoKubeletSettings."""
        sources, problems = self._sources, []
        if sources.policy is not None and sources.scope is not None:
            return _given(sources.policy, sources.scope)
        if self._configz is not None:
            await self._ask(self._configz, kubelet)
            if self._answer is not None:
                self._known = Settings(kubelet=self._answer, origin="configz", stale=self._problem)
                return self._known
            problems.append(self._problem)
        if sources.mode != "configz":
            try:
                self._known = Settings(kubelet=self._file.settings(), origin="file")
            except UnusableConfiguration as error:
                problems.append(str(error))
            else:
                return self._known
        stale = "; ".join(problems) or "/configz is not asked here"
        if self._known is None:
            raise NoKubeletSettings(stale)
        self._known = msgspec.structs.replace(self._known, stale=stale)
        return self._known

    async def _ask(self, configz: Configz, kubelet: Hashable) -> None:
        now = self._clock.monotonic()
        if kubelet == self._kubelet and now < self._due:
            return
        failures = self._failures if kubelet == self._kubelet else 0
        self._kubelet, self._failures, wait = kubelet, 0, REFUSED_SECONDS
        try:
            self._answer, self._problem = from_configz(await configz.get()), ""
        except (ConfigzUnavailable, UnusableConfiguration) as error:
            self._problem = str(error)
            if isinstance(error, ConfigzUnavailable) and error.refused:
                self._answer = None
            else:
                self._failures = failures + 1
                wait = min(FAILED_SECONDS * 2.0 ** min(failures, 6), REFUSED_SECONDS)
        self._due = now + wait


class _File:
    """The configuration file with its drop-ins, decoded again when the content of one of them changes."""

    def __init__(self, tree: Tree, path: str, directory: str) -> None:
        self._tree = tree
        self._path = path
        self._directory = directory
        self._digest = b""
        self._found: KubeletSettings | UnusableConfiguration | None = None

    def settings(self) -> KubeletSettings:
        """What they say now; raises UnusableConfiguration."""
        try:
            contents = [(self._tree.path(path), self._tree.bytes(path)) for path in self._paths()]
        except OSError as error:
            raise UnusableConfiguration(reason(error)) from None
        digest = _digest(contents)
        if self._found is None or digest != self._digest:
            self._digest, self._found = digest, _decoded(contents)
        if isinstance(self._found, UnusableConfiguration):
            raise self._found
        return self._found

    def _paths(self) -> list[str]:
        """The file, then drop-ins as a kubelet takes them: by name. A directory that is not there has none."""
        if not self._directory:
            return [self._path]
        try:
            names = self._tree.names(self._directory)
        except FileNotFoundError:
            names = []
        return [self._path, *(f"{self._directory}/{name}" for name in names if name.endswith(DROP_IN))]


def _given(policy: str, scope: str) -> Settings:
    """What the exporter was told; the rest is not known, and empty (NE-100)."""
    try:
        known = chosen(policy, scope, place="the exporter's options")
    except UnusableConfiguration as error:
        raise NoKubeletSettings(str(error)) from None
    return Settings(
        kubelet=KubeletSettings(policy=known[0], scope=known[1], cpu_manager_policy="", memory_manager_policy=""),
        origin="options",
    )


def _decoded(contents: list[tuple[str, bytes]]) -> KubeletSettings | UnusableConfiguration:
    try:
        return from_files(contents[0], contents[1:])
    except UnusableConfiguration as error:
        return error


def _digest(contents: list[tuple[str, bytes]]) -> bytes:
    found = hashlib.sha256()
    for place, content in contents:
        found.update(f"{place}\0{len(content)}\0".encode() + content)
    return found.digest()
