"""Runs programs that hold credentials: ``docker-credential-*`` helpers and the kubelet's credential-provider plugins.

Such programs print secrets, so errors and warnings never contain their output: only the name, the exit status and what
was expected. A program runs without a shell, in its own process group, with limits on time and output, and has ended
when the call returns.
"""

import asyncio
import contextlib
import copy
import ipaddress
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol
from urllib.parse import unquote

import msgspec

from polyarch.clock import Clock, SystemClock, deadline
from polyarch.durations import InvalidDuration, parse_go_duration
from polyarch.oci.auth.credentials import Credential, CredentialWarning, deduplicated, hub
from polyarch.oci.concurrency import RequestPriority, RequestQueue
from polyarch.oci.lru_cache import FairLRUCache
from polyarch.oci.reference import DOCKER_HUB, DOCKER_HUB_NAMES, Reference
from polyarch.oci.settings import Share

if TYPE_CHECKING:
    from polyarch.oci.pull_sources import PullSource


HELPER_TIMEOUT = 10.0
MAX_OUTPUT = 1024 * 1024
DOCKER_HUB_SERVER = "https://index.docker.io/v1/"
_NAME = re.compile(r"[A-Za-z0-9_.-]+", re.ASCII)
_NOT_FOUND = b"credentials not found"
_KILL_WAIT = 5.0


class HelperFailure(Exception):  # noqa: N818 - the name says what happened
    """A program gave no usable answer. The message has its name and the cause, and none of its output."""


class HelperTimeout(HelperFailure):
    """The program was ended because it took too long."""


class HelperOutput(msgspec.Struct, frozen=True):
    """Exit status and standard output of a program."""

    status: int
    output: bytes

    def __repr__(self) -> str:
        return f"HelperOutput(status={self.status}, output=<{len(self.output)} bytes>)"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("status", self.status)]


class Helper(Protocol):
    """Interface that runs one program to its end."""

    async def run(
        self, program: str, arguments: Sequence[str], *, stdin: bytes, environ: Mapping[str, str], timeout: float
    ) -> HelperOutput:
        """Run ``program``, found on ``environ``'s PATH unless it has a slash. :class:`HelperFailure` if it is missing,
        cannot be started or prints more than 1 MiB, :class:`HelperTimeout` if it exceeds ``timeout`` seconds.
        """
        ...


class ProgramHelper:
    """Runs programs on this machine."""

    __slots__ = ()

    async def run(
        self, program: str, arguments: Sequence[str], *, stdin: bytes, environ: Mapping[str, str], timeout: float
    ) -> HelperOutput:
        path = shutil.which(program, path=environ.get("PATH", os.defpath))
        if path is None:
            place = "is missing or not executable" if "/" in program else "is not on PATH"
            raise HelperFailure(f"{program} {place}; install it or remove it from the configuration")
        try:
            process = await asyncio.create_subprocess_exec(
                path,
                *arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
                env=dict(environ),
                start_new_session=True,
            )
        except (OSError, ValueError) as error:
            raise HelperFailure(f"{program} cannot be started: {_reason(error)}") from None
        try:
            async with asyncio.timeout(timeout):
                return await _converse(process, program, stdin)
        except TimeoutError:
            raise HelperTimeout(f"{program} did not answer within {timeout:g} s") from None
        finally:
            await _end(process)


async def ask_helper(
    helper: Helper, name: str, registry: str, *, environ: Mapping[str, str], timeout: float = HELPER_TIMEOUT
) -> Credential | None:
    """The answer of ``docker-credential-NAME get`` for a registry host; ``None`` if it reports no credentials.

    :class:`HelperFailure` for anything but an answer.
    """
    if not _NAME.fullmatch(name):
        raise HelperFailure(
            f"credential helper {name[:80]!r} cannot be run: a name has letters, digits, '_', '.' and '-' only"
        )
    program = f"docker-credential-{name}"
    server = DOCKER_HUB_SERVER if registry in DOCKER_HUB_NAMES else registry
    output = await helper.run(program, ("get",), stdin=server.encode(), environ=environ, timeout=timeout)
    if output.status != 0:
        if _NOT_FOUND in output.output:
            return None
        raise HelperFailure(f"{program} ended with status {output.status} for {server}; run it by hand to see why")
    try:
        answer = msgspec.json.decode(output.output, type=_Answer)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HelperFailure(f"{program} did not answer with JSON that has Username and Secret") from None
    if not answer.secret:
        return None
    source = f"credential helper {name}"
    key = DOCKER_HUB if registry in DOCKER_HUB_NAMES else registry
    if answer.username == "<token>":
        return Credential(identity_token=answer.secret, source=source, key=key)
    return Credential(answer.username, answer.secret, source=source, key=key)


class _Answer(msgspec.Struct, frozen=True):
    secret: str = msgspec.field(name="Secret")
    username: str = msgspec.field(name="Username", default="")


async def _converse(process: asyncio.subprocess.Process, program: str, stdin: bytes) -> HelperOutput:
    reader, writer = process.stdout, process.stdin
    if reader is None or writer is None:
        raise HelperFailure(f"{program} has no pipes to talk through")
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a program may answer without reading
        writer.write(stdin)
        await writer.drain()
    writer.close()
    parts = bytearray()
    while part := await reader.read(65536):
        parts += part
        if len(parts) > MAX_OUTPUT:
            raise HelperFailure(f"{program} printed more than {MAX_OUTPUT // 1024} KiB")
    return HelperOutput(await process.wait(), bytes(parts))


async def _end(process: asyncio.subprocess.Process) -> None:
    """Kill what is left: the program, or a child that still holds its output open.

    The group is signalled only while a member is known to exist (the program is not reaped, or its output is still
    open), so the id cannot belong to another process yet.
    """
    reader = process.stdout
    if process.returncode is not None and (reader is None or reader.at_eof()):
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILL_WAIT):
            while reader is not None and await reader.read(65536):
                pass
            await process.wait()


def _reason(error: BaseException) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "its arguments are not usable"


# -- credential-provider plugins of the kubelet ------------------------------------------------------------------------
# A kubelet gets credentials for cloud registries, which live for a short time, from a program of the cloud provider,
# set up by a ``CredentialProviderConfig``. With the same configuration and programs, polyarch gets the credentials that
# the node gets: the same image patterns, the same requests, and the same cache times.
#
# The configuration is usually YAML; this package reads no YAML, so the caller passes parsed data.


PROVIDER_TIMEOUT = 15.0
"""With :data:`PROVIDER_QUEUE_TIMEOUT` less than the lookup of an admission may take (``images.resolver``): a run that
is cancelled before its time proves nothing."""
PROVIDER_QUEUE_TIMEOUT = 8.0
"""For how long an image waits for others that the same plugin is asked for."""
PLUGIN_GROUP = "credentialprovider.kubelet.k8s.io/"
API_VERSION = f"{PLUGIN_GROUP}v1"
API_VERSIONS = (API_VERSION, f"{PLUGIN_GROUP}v1beta1", f"{PLUGIN_GROUP}v1alpha1")
CONFIG_KIND = "CredentialProviderConfig"
CONFIG_GROUP = "kubelet.config.k8s.io/"
MAX_CACHED = 4096
MAX_CACHED_BYTES = 8 * 1024 * 1024
"""Memory of the answers of one plugin."""
MAX_KEYS = 1000
"""Keys of one answer: all of them are compared with each image that the plugin matches."""
FAILURE_REST = 30.0
PLUGIN_RUNS = Share(1, minimum=1, maximum=4)
"""Programs of one plugin at a time: each has memory of its own within the limit of the container."""

MAX_DURATION = 64
"""Characters of a duration."""

CacheKeyType = Literal["Image", "Registry", "Global"]


class InvalidProviderConfiguration(ValueError):  # noqa: N818 - it says what the configuration is
    """An unusable plugin configuration: file, member and reason."""

    def __init__(self, origin: str, member: str, problem: str) -> None:
        super().__init__(f"{origin}: {member}: {problem}" if member else f"{origin}: {problem}")
        self.origin = origin
        self.member = member
        self.problem = problem


class Provider(msgspec.Struct, frozen=True):
    """One plugin of the configuration. ``environment`` may hold secrets and is not in ``repr``."""

    name: str
    match_images: tuple[str, ...]
    default_cache_duration: float
    arguments: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()
    api_version: str = API_VERSION
    needs_token: bool = False
    """It answers for pods with a service account alone, by a token of it (KEP-4412), so it is never run."""

    def __repr__(self) -> str:
        return f"Provider(name={self.name!r}, match_images={self.match_images!r})"

    def __rich_repr__(self) -> list[tuple[str, object]]:
        return [("name", self.name), ("match_images", self.match_images)]


class ProviderConfiguration(msgspec.Struct, frozen=True):
    """A ``CredentialProviderConfig`` and the directory of the plugins."""

    providers: tuple[Provider, ...]
    directory: str
    origin: str = ""

    @classmethod
    def from_mapping(
        cls, data: object, *, directory: str, origin: str = "credential provider configuration"
    ) -> "ProviderConfiguration":
        """Read the parsed file. :class:`InvalidProviderConfiguration` names the invalid member."""
        try:
            file = msgspec.convert(data, type=_ConfigurationFile)
        except msgspec.ValidationError as error:
            raise InvalidProviderConfiguration(origin, "", str(error)) from None
        if file.kind != CONFIG_KIND or not file.api_version.startswith(CONFIG_GROUP):
            problem = f"expected kind {CONFIG_KIND} of {CONFIG_GROUP}v1"
            raise InvalidProviderConfiguration(origin, "kind", problem)
        if not file.providers:
            raise InvalidProviderConfiguration(origin, "providers", "there is none")
        providers = tuple(_provider(item, origin, f"providers[{place}]") for place, item in enumerate(file.providers))
        names = [provider.name for provider in providers]
        for name in names:
            if names.count(name) > 1:
                raise InvalidProviderConfiguration(origin, "providers", f"the name {name!r} is there twice")
        return cls(providers, directory, origin)


class ProviderCredentials:
    """Credentials of plugins. A :class:`~polyarch.oci.auth.credential_stores.CredentialStore`.

    All plugins that match an image run, and all their credentials make one keyring, as in a kubelet. One that fails
    yields a ``credential-helper`` warning and no credentials, and is skipped for :data:`FAILURE_REST` seconds for
    images of the same tenant at the same host; if it hangs, for all images of the tenant. Authors of pods choose the
    hosts that it fails for, so a failure says nothing to other tenants. A tenant's runs follow one another.
    """

    __slots__ = ("_plugins", "_tenant")  # a view for each set of pull secrets is kept

    def __init__(
        self,
        configuration: ProviderConfiguration,
        *,
        helper: Helper | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._plugins = tuple(
            _Plugin(
                provider,
                program=os.path.join(configuration.directory, provider.name),  # noqa: PTH118 - text for the Helper
                helper=ProgramHelper() if helper is None else helper,
                environ=os.environ if environ is None else environ,
                clock=SystemClock() if clock is None else clock,
            )
            for provider in configuration.providers
        )
        self._tenant = ""

    def of(self, tenant: str) -> "ProviderCredentials":
        """The same plugins, asked on behalf of this tenant, with its warnings."""
        view = copy.copy(self)
        view._tenant = tenant
        return view

    async def candidates(self, reference: Reference, source: "PullSource") -> list[Credential]:
        host = hub(source.host)
        found: list[_Entry] = []
        for plugin in self._plugins:
            if plugin.matches(host, source.repository):
                found += await plugin.credentials(host, source.repository, self._tenant)
        return _keyring(found, host, source.repository)

    def cached_candidates(self, reference: Reference, source: "PullSource") -> list[Credential] | None:
        host = hub(source.host)
        found: list[_Entry] = []
        for plugin in self._plugins:
            if plugin.matches(host, source.repository):
                part = plugin.cached(host, source.repository, self._tenant)
                if part is None:
                    return None
                found += part
        return _keyring(found, host, source.repository)

    def warnings(self, source: "PullSource") -> Sequence[CredentialWarning]:
        host, repository = hub(source.host), source.repository
        matching = (plugin for plugin in self._plugins if plugin.matches(host, repository))
        failures = (plugin.failure(host, repository, self._tenant) for plugin in matching)
        return tuple(CredentialWarning("credential-helper", failure) for failure in failures if failure)


class _Failure(NamedTuple):
    """Why a plugin gave no answer, and until when it is not asked again."""

    message: str
    rests_until: float


class _Plugin:
    """One plugin, its cached answers and the last failures."""

    def __init__(
        self, provider: Provider, *, program: str, helper: Helper, environ: Mapping[str, str], clock: Clock
    ) -> None:
        self._provider = provider
        self._program = program
        self._helper = helper
        self._environ = {**environ, **dict(provider.environment)}
        self._clock = clock
        self._patterns = tuple(filter(None, map(ImagePattern.of, provider.match_images)))
        self._queue = RequestQueue(PLUGIN_RUNS)
        self._failures: FairLRUCache[tuple[str, str], _Failure] = FairLRUCache(MAX_CACHED)
        """By tenant and host, until the plugin has answered; without a host: it hung."""
        self._answers: FairLRUCache[tuple[CacheKeyType, str], tuple[float, tuple[_Entry, ...]]] = FairLRUCache(
            MAX_CACHED, weight=MAX_CACHED_BYTES
        )
        self._name = f"credential provider {provider.name}"

    def matches(self, host: str, repository: str) -> bool:
        return any(pattern.matches(host, repository) for pattern in self._patterns)

    async def credentials(self, host: str, repository: str, tenant: str) -> Sequence["_Entry"]:
        """None if it fails; then :meth:`failure` says why."""
        found = self.cached(host, repository, tenant)
        if found is not None:
            return found
        # A tenant that it hung for last time waits until others had their turn.
        priority = RequestPriority.BLOB if self._failures.get((tenant, "")) else RequestPriority.MANIFEST
        try:
            async with deadline(self._clock, PROVIDER_QUEUE_TIMEOUT):
                slot = await self._queue.enter(priority, tenant)
        except TimeoutError:
            self._fails(
                tenant, host, f"{self._name} is busy with other images; a later attempt asks it again", rest=0.0
            )
            return []
        try:  # one by one: an answer may serve many
            found = self.cached(host, repository, tenant)
            return await self._run(host, repository, tenant) if found is None else found
        except HelperFailure as failure:
            self._fails(tenant, "" if isinstance(failure, HelperTimeout) else host, str(failure))
            return []
        finally:
            self._queue.leave(slot)

    def cached(self, host: str, repository: str, tenant: str) -> Sequence["_Entry"] | None:
        """Without running it; None: it has to be asked."""
        if self._provider.needs_token:
            return []
        if (kept := self._kept(host, repository)) is not None:
            return kept
        now = self._clock.monotonic()
        return [] if any(now < failure.rests_until for failure in self._failures_of(tenant, host)) else None

    def failure(self, host: str, repository: str, tenant: str) -> str:
        """Why the tenant has no credentials of it; empty if it has, or nobody has asked."""
        if self._provider.needs_token:
            return (
                f"{self._name} wants a token of the pod's service account, which polyarch does not ask for; give "
                "polyarch a provider that does without, or the pod a pull secret"
            )
        if self._kept(host, repository) is not None:
            return ""
        return next((failure.message for failure in self._failures_of(tenant, host)), "")

    def _kept(self, host: str, repository: str) -> Sequence["_Entry"] | None:
        now = self._clock.monotonic()
        for place in _places(host, repository):
            kept = self._answers.get(place)
            if kept is not None and now < kept[0]:
                return kept[1]
        return None

    def _failures_of(self, tenant: str, host: str) -> list[_Failure]:
        return [each for place in (host, "") if (each := self._failures.get((tenant, place))) is not None]

    def _fails(self, tenant: str, host: str, message: str, *, rest: float = FAILURE_REST) -> None:
        self._failures.put((tenant, host), _Failure(message, self._clock.monotonic() + rest), owner=tenant)

    async def _run(self, host: str, repository: str, tenant: str) -> Sequence["_Entry"]:
        version = self._provider.api_version
        request = {"kind": "CredentialProviderRequest", "apiVersion": version, "image": f"{host}/{repository}"}
        began = self._clock.monotonic()
        try:
            result = await self._helper.run(
                self._program,
                self._provider.arguments,
                stdin=msgspec.json.encode(request),
                environ=self._environ,
                timeout=PROVIDER_TIMEOUT,
            )
        except asyncio.CancelledError:
            if self._clock.monotonic() - began >= PROVIDER_TIMEOUT:
                self._fails(tenant, "", f"{self._name} did not answer within {PROVIDER_TIMEOUT:g} s")
            raise
        if result.status != 0:
            raise HelperFailure(f"{self._name} ended with status {result.status}; run it by hand to see why")
        answer, duration = _read_answer(result.output, self._name, self._provider)
        keys = _entries(answer.auth or {}, self._name)
        for place in (host, ""):  # it works again
            self._failures.pop((tenant, place))
        if duration > 0:
            places = {place[0]: place for place in _places(host, repository)}
            until = self._clock.monotonic() + duration
            weight = ANSWER_WEIGHT + sum(map(_weight, keys))
            self._answers.put(places[answer.cache_key_type], (until, keys), weight=weight, owner=tenant)
        return keys


class _Variable(msgspec.Struct, frozen=True):
    name: str
    value: str = ""


class _TokenAttributes(msgspec.Struct, frozen=True, rename="camel"):
    service_account_token_audience: str
    require_service_account: bool
    cache_type: Literal["ServiceAccount", "Token"]
    required_service_account_annotation_keys: list[str] | None = None


class _ProviderEntry(msgspec.Struct, frozen=True, rename="camel"):
    name: str
    match_images: list[str]
    default_cache_duration: str
    api_version: str
    args: list[str] | None = None
    env: list[_Variable] | None = None
    token_attributes: _TokenAttributes | None = None


class _ConfigurationFile(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    providers: list[_ProviderEntry]


class _AuthEntry(msgspec.Struct, frozen=True):
    username: str = ""
    password: str = ""


class _Response(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    api_version: str
    cache_key_type: CacheKeyType
    cache_duration: str | None = None
    auth: dict[str, _AuthEntry] | None = None


def _provider(item: _ProviderEntry, origin: str, member: str) -> Provider:
    if not item.name.isprintable() or item.name in ("", ".", "..") or "/" in item.name or " " in item.name:
        raise InvalidProviderConfiguration(origin, f"{member}.name", "it is not the name of a program in a directory")
    if item.api_version not in API_VERSIONS:
        known = ", ".join(API_VERSIONS)
        raise InvalidProviderConfiguration(
            origin, f"{member}.apiVersion", f"{item.api_version!r} is not known; known are {known}"
        )
    if problem := _wrong_token(item):
        raise InvalidProviderConfiguration(origin, f"{member}.tokenAttributes", problem)
    if not item.match_images:
        raise InvalidProviderConfiguration(origin, f"{member}.matchImages", "it is empty, so the plugin is never asked")
    for text in item.match_images:
        if ImagePattern.of(text) is None:
            raise InvalidProviderConfiguration(origin, f"{member}.matchImages", f"{text!r} is not a pattern of images")
    duration = parse_duration(item.default_cache_duration)
    if duration is None:
        raise InvalidProviderConfiguration(
            origin,
            f"{member}.defaultCacheDuration",
            f"{item.default_cache_duration[:MAX_DURATION]!r} is not a duration such as 12h",
        )
    environment = tuple((variable.name, variable.value) for variable in item.env or ())
    token = item.token_attributes
    return Provider(
        item.name,
        tuple(item.match_images),
        duration,
        tuple(item.args or ()),
        environment,
        item.api_version,
        # Where none is required, kubelets run the plugin without a token for pods without a service account.
        needs_token=token is not None and token.require_service_account,
    )


def _wrong_token(item: _ProviderEntry) -> str:
    token = item.token_attributes
    if token is None:
        return ""
    if not token.service_account_token_audience:
        return "it has no serviceAccountTokenAudience"
    if item.api_version != API_VERSION:
        return f"only {API_VERSION} has it"
    if token.required_service_account_annotation_keys and not token.require_service_account:
        return "requiredServiceAccountAnnotationKeys need requireServiceAccount: true"
    return ""


def parse_duration(text: str) -> float | None:
    """Seconds of a Go duration (``1h30m``, ``0``, ``10.5s``); ``None`` if it is invalid, negative or very long."""
    text = text.strip() if len(text) <= MAX_DURATION else ""
    try:
        seconds = parse_go_duration(text)
    except InvalidDuration:
        return None
    return seconds if seconds >= 0 else None


def _read_answer(output: bytes, name: str, provider: Provider) -> tuple[_Response, float]:
    try:
        answer = msgspec.json.decode(output, type=_Response)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise HelperFailure(
            f"{name} did not answer with a CredentialProviderResponse of {provider.api_version}"
        ) from None
    if answer.kind != "CredentialProviderResponse" or answer.api_version != provider.api_version:
        raise HelperFailure(
            f"{name} answered with another kind than CredentialProviderResponse of {provider.api_version}"
        )
    if len(answer.auth or ()) > MAX_KEYS:
        raise HelperFailure(f"{name} answered with more than {MAX_KEYS} keys")
    if answer.cache_duration is None:
        return answer, provider.default_cache_duration
    duration = parse_duration(answer.cache_duration)
    if duration is None:
        raise HelperFailure(f"{name} answered with a cacheDuration that is no duration")
    return answer, duration


def _places(host: str, repository: str) -> tuple[tuple[CacheKeyType, str], ...]:
    return (("Image", f"{host}/{repository}"), ("Registry", host), ("Global", ""))


# What an image matches. A kubelet parses patterns, and the keys of answers, as URLs without a scheme, by Go's net/url:
# so of all characters of globs only ``*`` can be in a host, letters keep their case, and what such a URL may not have
# matches nothing.

_HOST = re.compile(r"[A-Za-z0-9\-._~!$&'()*+,;=:<>\"\]]*", re.ASCII)
_ESCAPE = re.compile(r"%(?![0-9A-Fa-f]{2})")
_USER_INFO = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*", re.ASCII)
_PORT = re.compile(r"(?::[0-9]*)?", re.ASCII)
_NOTHING = re.compile(r"(?!)")
_DEFAULT_REGISTRY = "index.docker.io"


class ImagePattern:
    """An entry of ``matchImages``, or a key of an answer: a host whose labels may have ``*``, and a prefix of paths."""

    __slots__ = ("_labels", "_path", "_port", "text")

    def __init__(self, host: str, path: str) -> None:
        self.text = host + path
        labels, self._port = _split(host)
        # Go takes an address in brackets, which it keeps without a port, for a set of characters: it matches no host.
        self._labels = tuple(
            _NOTHING if label[:1] == "[" else _glob(label) if "*" in label else label for label in labels
        )
        self._path = path

    @classmethod
    def of(cls, text: str) -> "ImagePattern | None":
        """None: a kubelet cannot parse it."""
        parsed = _parsed(text)
        return None if parsed is None else cls(*parsed)

    def matches(self, host: str, repository: str) -> bool:
        """Whether it matches ``host[:port]/repository``."""
        labels, port = _split(host)
        return (
            port == self._port
            and len(labels) == len(self._labels)
            and f"/{repository}".startswith(self._path)
            and all(
                mine == label if isinstance(mine, str) else mine.fullmatch(label) is not None
                for mine, label in zip(self._labels, labels, strict=True)
            )
        )

    @property
    def size(self) -> int:
        """Bytes of memory of its parts."""
        labels = sum(
            sys.getsizeof(label) + (0 if isinstance(label, str) else 128 + sys.getsizeof(label.pattern))
            for label in self._labels
        )
        return labels + sum(map(sys.getsizeof, (self._labels, self._path, self._port, self.text)))


_Entry = tuple[ImagePattern, Credential]

ANSWER_WEIGHT = 512
ENTRY_WEIGHT = 256
"""Bytes of an answer and of each of its keys, beside texts."""


def _weight(entry: _Entry) -> int:
    pattern, credential = entry
    return ENTRY_WEIGHT + pattern.size + sys.getsizeof(credential.username) + sys.getsizeof(credential.password)


def _entries(auth: Mapping[str, _AuthEntry], source: str) -> tuple[_Entry, ...]:
    """The keys of an answer. They may be URLs, and ``/v1/`` and ``/v2/`` count as the host alone."""
    found = []
    for text, entry in auth.items():
        bare = text.removeprefix("https://") if text.startswith("https://") else text.removeprefix("http://")
        parsed = _parsed(bare)
        if parsed is None:
            continue
        host, path = parsed
        if path.startswith(("/v1/", "/v2/")):
            path = path[3:]
        pattern = ImagePattern.of(host + ("" if path == "/" else path))
        if pattern is not None:
            credential = Credential(entry.username, entry.password, source=source, key=pattern.text)
            found.append((pattern, credential))
    return tuple(found)


def _keyring(entries: Sequence[_Entry], host: str, repository: str) -> list[Credential]:
    """The credentials to try, those of the greater key first; those of Docker Hub by its other name if there are no
    others."""
    ordered = sorted(entries, key=lambda entry: entry[0].text.encode("utf-8", "surrogateescape"), reverse=True)
    found = [credential for pattern, credential in ordered if pattern.matches(host, repository)]
    if not found and host == DOCKER_HUB:
        found = [credential for pattern, credential in ordered if pattern.text == _DEFAULT_REGISTRY]
    return deduplicated(found)


def _parsed(text: str) -> tuple[str, str] | None:
    """Host and path of a URL without a scheme; None: Go cannot parse it."""
    if any(ord(character) < 0x20 or ord(character) == 0x7F for character in text):
        return None
    rest, _, fragment = text.partition("#")
    authority, slash, path = rest.partition("?")[0].partition("/")
    user, at, host = authority.rpartition("@")
    if _ESCAPE.search(path) or _ESCAPE.search(fragment):
        return None
    if at and (_USER_INFO.fullmatch(user) is None or _ESCAPE.search(user)):
        return None
    checked = _address(host) if host.startswith("[") else _name(host)
    return None if checked is None else (checked, unquote(slash + path, errors="surrogateescape"))


def _name(host: str) -> str | None:
    name, colon, port = host.partition(":")
    if "[" in host or _PORT.fullmatch(colon + port) is None or _ESCAPE.search(host):
        return None
    # Only characters beyond ASCII may be escaped.
    ascii_ = "".join(character for character in re.sub("%[89A-Fa-f][0-9A-Fa-f]", "", name) if character.isascii())
    return unquote(host, errors="surrogateescape") if _HOST.fullmatch(ascii_) else None


def _address(host: str) -> str | None:
    address, _, rest = host[1:].rpartition("]")
    try:
        ipaddress.IPv6Address(address.replace("%25", "%", 1) if "%25" in address else address)
    except ValueError:
        return None
    return f"[{unquote(address)}]{rest}" if _PORT.fullmatch(rest) else None


def _split(host: str) -> tuple[tuple[str, ...], str]:
    """Labels and port; an address loses its brackets where there is a port."""
    if host.startswith("["):
        address, _, port = host.partition("]")
        return (tuple(address[1:].split(".")), port[1:]) if port.startswith(":") else (tuple(host.split(".")), "")
    name, _, port = host.partition(":")
    return tuple(name.split(".")), port


def _glob(label: str) -> re.Pattern[str]:
    """``*`` is any text; possessive, so that many of them cost no more than the length of both."""
    first, *parts = (re.escape(part) for part in re.split(r"\*+", label))
    if not parts:
        return re.compile(first, re.DOTALL)
    middle = "".join(f"(?>.*?{part})" for part in parts[:-1])
    return re.compile(f"{first}{middle}.*{parts[-1]}", re.DOTALL)
