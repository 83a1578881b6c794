"""Authenticates requests: anonymously first, then with each credential in order.

A host's first 401 says which scheme it wants; that is cached, so later requests send a token or password at once. Only
challenges from the source's own origin count: the target of a redirect could otherwise name a realm of its own and
collect the credentials. A credential is rejected if the registry or its token endpoint answers 401 or 403 to it; then
the next one is tried, anonymous access last. ``SourceCredentials`` remembers which credential worked, so that an
image's config is fetched with the credential of its manifest.
"""

import json
import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from urllib.parse import quote_plus, urlencode, urlsplit

from polyarch.clock import Clock
from polyarch.oci.auth.challenges import parse_challenges
from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.concurrency import SingleFlight
from polyarch.oci.documents import TOKEN_LIMIT
from polyarch.oci.lru_cache import LRUCache
from polyarch.oci.pull_sources import PullSource
from polyarch.oci.traffic.exchange import (
    CompleteResponse,
    Exchange,
    Request,
    RequestContext,
    is_error_page,
    modes_of,
    not_as_asked,
    origin_host,
)
from polyarch.oci.traffic.failures import (
    NO_CREDENTIALS,
    Failure,
    RegistryError,
    clean,
    is_callers_own,
    read_errors,
)
from polyarch.oci.traffic.rate_limiter import HOSTS_KEPT
from polyarch.oci.transport.addresses import NAMED, HostProvenance, RegistryServer, UrlRejected, check_realm
from polyarch.oci.transport.interface import NO_TLS
from polyarch.oci.transport.tls import transport_modes

CLIENT_ID = "polyarch"
SHORTEST_LIFE = 60.0
LONGEST_LIFE = 24 * 3600.0
RENEWED_BEFORE_END = 10.0
TOKENS_KEPT = 10_000
TOKENS_BYTES = 16 * 2**20
MAX_TOKENS_ELSEWHERE = 4
"""Anonymous tokens that one request shows to targets of redirects, a renewed one included."""
MAX_SCOPES_ELSEWHERE = 4
"""Scopes that such a target may state; of more, the one of the request's path is asked for."""
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
    """It is not even the answer of a token endpoint."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token and the monotonic time at which its use ends."""

    value: str = field(repr=False)
    until: float


def pull_scope(repository: str) -> str:
    return f"repository:{repository}:pull"


def push_scopes(repository: str, mounted_from: Sequence[str] = ()) -> tuple[str, ...]:
    """``pull,push`` for the target and ``pull`` for the repositories blobs are mounted from, in one token."""
    return (f"repository:{repository}:pull,push", *(pull_scope(source) for source in mounted_from))


def named_scopes(scope: str, repository: str) -> tuple[str, ...] | None:
    """The scopes of a challenge if all of them name this repository, else None."""
    scopes = tuple(scope.split())
    ours = f"repository:{repository}:"
    return scopes if scopes and all(each.startswith(ours) and ":" not in each[len(ours) :] for each in scopes) else None


def token_requests(key: TokenKey, credential: Credential) -> list[TokenRequest]:
    """The requests to try in order; the next one only if the endpoint has no POST (404 or 405)."""
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
    """The token and its lifetime, counted from receipt; ``NoToken`` if there is none."""
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
    """Cache of the most recently used tokens.

    They are cached in memory only, per source, realm, service, scope and credential, and never outlive the process.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tokens: LRUCache[TokenKey, Token] = LRUCache(TOKENS_KEPT, weight=TOKENS_BYTES)

    def get(self, key: TokenKey) -> Token | None:
        token = self._tokens.get(key)
        if token is not None and token.until <= self._clock.monotonic():
            self._tokens.pop(key)
            return None
        return token

    def put(self, key: TokenKey, token: Token) -> None:
        scopes = sum(60 + len(each) for each in key.scopes)
        weight = 500 + len(token.value) + len(key.realm) + len(key.service) + len(key.source) + scopes
        self._tokens.put(key, token, weight=weight)

    def forget(self, key: TokenKey) -> None:
        self._tokens.pop(key)

    def drop(self, key: TokenKey, token: Token) -> None:
        """Drop a refused token, unless a newer one has replaced it."""
        if self._tokens.get(key) is token:
            self._tokens.pop(key)


# -- authenticated requests --------------------------------------------------------------------------------------------


CREDENTIALS_REJECTED = "credentials-rejected"
"""The warning that credentials were refused where anonymous access works."""
NOT_A_REGISTRY = "not-a-registry"
MAX_NAMED = 3
"""Maximum of credentials named in one message."""


@dataclass(frozen=True, slots=True)
class HostAuthScheme:
    """A host's authentication scheme, from its last challenge. ``provenance``: who named the realm."""

    realm: str = ""
    service: str = ""
    basic: bool = False
    provenance: HostProvenance = NAMED
    unusable: str = ""
    """Why the realm may not be used, if it may not."""

    @property
    def bearer(self) -> bool:
        return bool(self.realm)

    def same_as(self, other: "HostAuthScheme") -> bool:
        return (self.realm, self.service, self.basic) == (other.realm, other.service, other.basic)


class CredentialAttempt(NamedTuple):
    """One credential that was tried: rejected by the source (``response``) or by the token endpoint (``failure``);
    neither if the source has no scheme for it.
    """

    credential: Credential
    response: CompleteResponse | None = None
    failure: Failure | None = None

    @property
    def rank(self) -> tuple[bool, int]:
        """Sort key for the refusal to report: real credentials before anonymous, then 403, 401, a refused token."""
        if self.response is not None:
            weight = 3 if self.response.status == 403 else 2
        else:
            weight = 1 if self.failure is not None else 0
        return not self.credential.is_anonymous, weight


class SourceCredentials:
    """A source with the credentials to try for it; ``scopes`` is pull unless given."""

    __slots__ = ("_pull_only", "_tokens", "accepted", "credentials", "modes", "refused", "scopes", "source")

    def __init__(
        self,
        source: PullSource,
        credentials: Sequence[Credential],
        *,
        scopes: Sequence[str] = (),
        loopback: bool = False,
    ) -> None:
        self.source = source
        self.modes = transport_modes(source, loopback=loopback)
        self.scopes = tuple(scopes) or (pull_scope(source.repository),)
        self._pull_only = not scopes
        self._tokens: set[str] = set()
        unique = {credential.secret: credential for credential in reversed(credentials)}
        self.credentials = [each for each in credentials if unique.get(each.secret) is each]
        self.accepted: Credential | None = None
        """The credential of the last success."""
        self.refused: list[Credential] = []

    @property
    def candidates(self) -> list[Credential]:
        """The credentials to try: the one accepted last, then the others in order."""
        if self.accepted is None:
            return self.credentials
        return [self.accepted, *(each for each in self.credentials if each != self.accepted)]

    @property
    def name(self) -> str:
        """Cache key for schemes and tokens: registries below different paths of one host, and those behind a mirror of
        several (``ns=``), have realms of their own."""
        source = self.source
        return f"{source.base_url}{source.path_prefix}{'?' if source.query else ''}{source.query}"

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that must not appear in a message."""
        found = {value for _, value in self.source.headers} | self._tokens
        for credential in self.credentials:
            found.update(credential.secret)
            found.add((credential.basic or "").removeprefix("Basic "))
        found |= {quote_plus(text, errors="surrogateescape") for text in found}
        return frozenset(text for text in found if len(text) > 3)

    def show(self, token: Token) -> str:
        """The ``Authorization`` value for a token, which counts as a secret from now on."""
        self._tokens.add(token.value)
        return f"Bearer {token.value}"

    def adopt(self, scopes: tuple[str, ...] | None) -> None:
        """Use the scopes of a challenge, which name the same repository, unless scopes were given."""
        if scopes and self._pull_only:
            self.scopes = scopes

    def refuse(self, credential: Credential) -> None:
        if credential not in self.refused:
            self.refused.append(credential)


class _TokenRefused(Exception):  # noqa: N818 - the name says what is the matter
    """The token endpoint refused the credential. It has no name here: who shares the request has another."""

    def __init__(self, status: int, registry_error: RegistryError) -> None:
        super().__init__(f"HTTP {status}{registry_error.words}")
        self._status = status

    def told(self, host: str, credential: Credential) -> Failure:
        """The failure for one of them, by the name of its own credential."""
        who = f"the credential from {credential.origin}" if not credential.is_anonymous else "anonymous access"
        action = None if not credential.is_anonymous else NO_CREDENTIALS
        what = f"{self}: the token endpoint refused {who}"
        return Failure.of("unauthorized", host, what, status=self._status, action=action)


class _Fetch(NamedTuple):
    """One request to a source, with the credentials to try."""

    request: Request
    access: SourceCredentials
    context: RequestContext


class Authorization:
    """Tokens and authentication schemes of all sources; ``key`` makes the fingerprints in token keys."""

    def __init__(self, exchange: Exchange, *, clock: Clock, key: bytes) -> None:
        self._exchange = exchange
        self._clock = clock
        self._key = key
        self._schemes: LRUCache[str, HostAuthScheme] = LRUCache(HOSTS_KEPT)
        self._tokens = Tokens(clock)
        self._token_calls: SingleFlight[TokenKey, Token] = SingleFlight(is_callers_own)

    async def close(self) -> None:
        await self._token_calls.close()

    async def fetch(self, request: Request, access: SourceCredentials, context: RequestContext) -> CompleteResponse:
        """The response to the first credential that is not rejected, then in ``access.accepted``; else a failure of
        class auth.

        If all get 403 on a HEAD, that response is returned: some registries forbid the method.
        """
        request = replace(request, secrets=access.secrets)
        fetch = _Fetch(request, access, context)
        scheme = self._schemes.get(access.name)
        plainly: CredentialAttempt | None = None
        if scheme is None and access.accepted in (None, ANONYMOUS):
            response = await self._send(request, fetch)
            if not _refuses(response):
                return self._accept(fetch, ANONYMOUS, response)
            plainly = CredentialAttempt(ANONYMOUS, response)
            scheme = self._learn(access, response)
        scheme = scheme or HostAuthScheme()
        attempts: list[CredentialAttempt] = []
        passing: Failure | None = None
        for credential in access.candidates:
            taken = plainly if credential.is_anonymous and not scheme.bearer else None
            try:
                attempt, scheme = (taken, scheme) if taken else await self._attempt(credential, scheme, fetch)
            except Failure as failure:
                if failure.error.code != NOT_A_REGISTRY:
                    raise
                passing = passing or failure  # a login page for nobody may be a token for somebody
                continue
            if attempt.response is not None and not _refuses(attempt.response):
                return self._accept(fetch, credential, attempt.response)
            if attempt.response is not None and is_error_page(attempt.response):
                if request.method == "HEAD":  # without a body nobody can tell: GET will
                    access.accepted = None
                    return attempt.response
                passing = passing or not_as_asked(request, attempt.response, "what it should be", access.secrets)
                continue
            if taken is None:
                access.refuse(credential)
            attempts.append(attempt)
        access.accepted = None
        if passing is not None:
            raise passing
        told = max(attempts, key=lambda attempt: attempt.rank)
        if told.failure is not None:
            raise told.failure
        if told.response is not None and told.response.status == 403 and request.method == "HEAD":
            return told.response
        raise _refusal(fetch, attempts, told, scheme)

    async def _attempt(
        self, credential: Credential, scheme: HostAuthScheme, fetch: _Fetch
    ) -> tuple[CredentialAttempt, HostAuthScheme]:
        """Try one credential; returns its result and the source's current scheme. Raises ``Failure`` other than
        refusals.
        """
        try:
            response, scheme = await self._show(credential, scheme, fetch)
        except Failure as refusal:
            if refusal.error.error_class != "auth":
                raise
            return CredentialAttempt(credential, failure=refusal), scheme
        return CredentialAttempt(credential, response), scheme

    async def _show(
        self, credential: Credential, scheme: HostAuthScheme, fetch: _Fetch
    ) -> tuple[CompleteResponse | None, HostAuthScheme]:
        """The response to one credential, retried with one new token and after one changed challenge.

        None if this scheme cannot use the credential.
        """
        renewals = {"token", "scope", "scheme"}
        while True:
            token: Token | None = None
            reused = False
            shown: str | None = None
            scopes = fetch.access.scopes
            key = TokenKey(fetch.access.name, scheme.realm, scheme.service, scopes, credential.fingerprint(self._key))
            if credential.registry_token:
                shown = f"Bearer {credential.registry_token}"
            elif scheme.bearer:
                token, reused = await self._token(key, credential, scheme, fetch)
                shown = fetch.access.show(token)
            elif scheme.basic:
                shown = credential.basic
            if shown is None and not credential.is_anonymous:
                return None, scheme
            response = await self._send(_authorized(fetch, shown, key.credential), fetch)
            if response.status != 401 or response.elsewhere:
                return response, scheme
            renewed = self._learn(fetch.access, response)
            if token is not None:
                self._tokens.drop(key, token)
            if reused and "token" in renewals:
                renewals.remove("token")
            elif fetch.access.scopes != scopes and "scope" in renewals:
                renewals.remove("scope")
            elif not renewed.same_as(scheme) and "scheme" in renewals:
                renewals.remove("scheme")
            else:
                return response, renewed
            scheme = renewed

    async def _send(self, request: Request, fetch: _Fetch) -> CompleteResponse:
        """The response; where redirects lead to a registry of its own, as names of vanity do, with an anonymous token
        for it, if it wants one. No credential of the source, nor of anybody, goes there.
        """
        response = await self._exchange.fetch(request, fetch.context)
        shown: dict[TokenKey, bool] = {}
        for _ in range(MAX_TOKENS_ELSEWHERE):
            if response.status != 401 or not response.elsewhere or response.request is None:
                break
            token = await self._token_elsewhere(response, fetch, shown)
            if token is None:
                break
            headers = {"Authorization": fetch.access.show(token)}
            again = replace(response.request, own_headers=headers, secrets=fetch.access.secrets)
            response = await self._exchange.fetch(again, fetch.context, registry=response.registry)
        return response

    async def _token_elsewhere(
        self, response: CompleteResponse, fetch: _Fetch, shown: dict[TokenKey, bool]
    ) -> Token | None:
        """An anonymous token for the target of a redirect; None if it does not take tokens, or refused a new one.

        ``shown``: the tokens that this request has shown, and whether each came from the cache. The realm may be plain
        HTTP only where the target is, and its address is judged as the target's own.
        """
        registry = response.registry
        if registry is None:
            return None
        for challenge in parse_challenges(response.headers.get_all("www-authenticate")):
            if challenge.scheme != "bearer":
                continue
            realm, service = (challenge.parameters.get(name, "") for name in ("realm", "service"))
            here = RegistryServer(response.url, registry.address_class)
            judged = check_realm(realm, here, self._exchange.policy, named_by=registry)
            if isinstance(judged, UrlRejected):
                continue
            stated = tuple(challenge.parameters.get("scope", "").split())
            scopes = stated if 0 < len(stated) <= MAX_SCOPES_ELSEWHERE else _scopes_of_path(response.url)
            scheme = HostAuthScheme(realm=realm, service=service, provenance=judged)
            key = TokenKey(f"{fetch.access.name} {origin_host(response.url)}", realm, service, scopes, "")
            if key in shown:
                if not shown[key]:
                    return None
                self._tokens.forget(key)
            token, shown[key] = await self._token(key, ANONYMOUS, scheme, fetch)
            return token
        return None

    async def _token(
        self, key: TokenKey, credential: Credential, scheme: HostAuthScheme, fetch: _Fetch
    ) -> tuple[Token, bool]:
        """A token, and whether it came from the cache."""
        token = self._tokens.get(key)
        if token is not None:
            return token, True
        try:
            token = await self._token_calls.join(
                key, lambda: self._fetch_token(key, credential, scheme, fetch), tenants=fetch.context.tenants
            )
            return token, False
        except _TokenRefused as refused:
            failure = refused.told(origin_host(key.realm), credential)
        except Failure as error:
            failure = error
        refused_by_endpoint = failure.error.error_class == "auth" and failure.error.status in (401, 403)
        if (
            not refused_by_endpoint
            and failure.error.error_class != "limit"
            and self._schemes.get(fetch.access.name) == scheme
        ):
            self._schemes.pop(fetch.access.name)  # the endpoint may have moved: start again from the source's challenge
        raise failure

    async def _fetch_token(self, key: TokenKey, credential: Credential, scheme: HostAuthScheme, fetch: _Fetch) -> Token:
        host = origin_host(key.realm)
        requests = token_requests(key, credential)
        for position, token_request in enumerate(requests):
            request = _token_request(token_request, scheme, fetch.access, key.credential)
            response = await self._exchange.fetch(request, fetch.context)
            if 200 <= response.status < 300:
                try:
                    token = read_token(response.body, self._clock.monotonic())
                except NoTokenAnswer:
                    raise not_as_asked(
                        request, response, "the answer of a token endpoint", fetch.access.secrets
                    ) from None
                except NoToken as error:
                    raise Failure.of("unauthorized", host, str(error), status=200) from None
                self._tokens.put(key, token)
                return token
            if response.status in (404, 405) and position + 1 < len(requests):
                continue
            if is_error_page(response):
                raise not_as_asked(request, response, "the answer of a token endpoint", fetch.access.secrets)
            if 400 <= response.status < 500:
                registry_error = read_errors(response.body, fetch.access.secrets)
                raise _TokenRefused(response.status, registry_error)
            what = f"HTTP {response.status} from the token endpoint"
            raise Failure.of("server-error", host, what, status=response.status)
        raise AssertionError("there is at least one token request")

    def _learn(self, access: SourceCredentials, response: CompleteResponse) -> HostAuthScheme:
        """The scheme in the challenges of a 401; cached if it is usable."""
        challenges = parse_challenges(response.headers.get_all("www-authenticate"))
        bearers = [each.parameters for each in challenges if each.scheme == "bearer"]
        parameters: Mapping[str, str] = {}
        provenance = NAMED
        unusable = ""
        for each in bearers:
            judged = check_realm(
                each.get("realm", ""), RegistryServer(response.url, response.peer), self._exchange.policy
            )
            if not isinstance(judged, UrlRejected):
                parameters, provenance = each, judged
                break
            if judged.code == "refused-address":
                raise Failure.of(
                    "refused-address", access.source.host, clean(judged.message, access.secrets, limit=400)
                )
            unusable = unusable or clean(judged.message, access.secrets, limit=400)
        access.adopt(named_scopes(parameters.get("scope", ""), access.source.repository))
        scheme = HostAuthScheme(
            realm=parameters.get("realm", ""),
            service=parameters.get("service", ""),
            basic=any(each.scheme == "basic" for each in challenges),
            provenance=provenance,
            unusable="" if parameters else unusable,
        )
        if scheme.bearer or scheme.basic:
            self._schemes.put(access.name, scheme)
        return scheme

    def _accept(self, fetch: _Fetch, credential: Credential, response: CompleteResponse) -> CompleteResponse:
        """Record the accepted credential; ``Failure`` if a redirect target refuses, which is sent no credential."""
        fetch.access.accepted = credential
        # A URL may be signed for GET only: return a HEAD that the redirect target refuses as it is.
        if (
            response.elsewhere
            and response.status in (401, 403)
            and (fetch.request.method, response.status) != ("HEAD", 403)
        ):
            if is_error_page(response):
                raise not_as_asked(fetch.request, response, "what it should be", fetch.access.secrets)
            raise _refused_elsewhere(fetch, response)
        if credential.is_anonymous and 200 <= response.status < 300:
            host = fetch.access.source.host
            for refused in fetch.access.refused:
                if not refused.is_anonymous:
                    what = f"{host} refused the credential from {refused.origin}; anonymous access worked"
                    fetch.context.warn(CREDENTIALS_REJECTED, what)
        return response


def _scopes_of_path(url: str) -> tuple[str, ...]:
    """The scope of a manifest's or blob's URL, for a challenge that names none."""
    repository = _REPOSITORY_OF_PATH.fullmatch(urlsplit(url).path)
    return (pull_scope(repository[1]),) if repository else ()


_REPOSITORY_OF_PATH = re.compile(r".*/v2/(.+)/(?:manifests|blobs)/[^/]+")


def _authorized(fetch: _Fetch, shown: str | None, account: str) -> Request:
    if shown is None:
        return fetch.request
    own: Mapping[str, str] = {**fetch.request.own_headers, "Authorization": shown}
    return replace(fetch.request, own_headers=own, secrets=fetch.access.secrets, account=account)


def _token_request(
    token_request: TokenRequest, scheme: HostAuthScheme, access: SourceCredentials, account: str
) -> Request:
    """The token request; the realm gets the source's TLS settings only on the source's own host and port."""
    source = access.source
    at_home = scheme.provenance.named
    return Request(
        method=token_request.method,
        url=token_request.url,
        operation="token",
        what="a token",
        limit=TOKEN_LIMIT,
        own_headers=token_request.headers,
        body=token_request.body,
        token=True,
        account=account,
        provenance=scheme.provenance,
        via=source.query if at_home else source.query or source.host,
        modes=modes_of(token_request.url, access.modes) if at_home else modes_of(token_request.url),
        tls=source.tls if at_home else NO_TLS,
        secrets=access.secrets,
    )


def _refuses(response: CompleteResponse) -> bool:
    """Whether the source itself refused the credential."""
    return response.status in (401, 403) and not response.elsewhere


def _refused_elsewhere(fetch: _Fetch, response: CompleteResponse) -> Failure:
    words = read_errors(response.body, fetch.access.secrets).words
    what = (
        f"the redirect to {origin_host(response.url)} ended with HTTP {response.status}{words} for {fetch.request.what}"
    )
    code = "denied" if response.status == 403 else "unauthorized"
    action = "no credential but an anonymous token is sent to the target of a redirect: name the image by that registry"
    return Failure.of(code, fetch.access.source.host, what, status=response.status, action=action)


def _refusal(
    fetch: _Fetch, attempts: Sequence[CredentialAttempt], told: CredentialAttempt, scheme: HostAuthScheme
) -> Failure:
    host = fetch.access.source.host
    response = told.response or next(
        (attempt.response for attempt in reversed(attempts) if attempt.response is not None), None
    )
    registry_error = read_errors(response.body, fetch.access.secrets) if response is not None else RegistryError("", "")
    status = response.status if response is not None else None
    real = [attempt for attempt in attempts if not attempt.credential.is_anonymous and attempt.rank == told.rank]
    shown = ", ".join(attempt.credential.origin for attempt in real[:MAX_NAMED])
    if len(real) > MAX_NAMED:
        shown += f" and {len(real) - MAX_NAMED} more"
    code = "denied" if status == 403 else "unauthorized"
    answer = (
        f"HTTP {status}{registry_error.words} for {fetch.request.what}" if status is not None else "access was refused"
    )
    if told.response is not None and shown:
        return Failure.of(code, host, f"{answer} with the credentials from {shown}", status=status)
    if scheme.unusable:
        what = f"{answer}; its token endpoint may not be asked: {scheme.unusable}"
        return Failure.of(code, host, what, status=status, action="check the registry's authentication settings")
    if not shown:
        return Failure.of(code, host, answer, status=status, action=NO_CREDENTIALS)
    what = f"{answer}; it offers no way to show the credentials from {shown}"
    return Failure.of(code, host, what, status=status, action="check the registry's authentication settings")
