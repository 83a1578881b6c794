"""What a registry answers, read by us, by containerd's resolver and by crane (``tools/peers/runtimes``): what nodes and
the usual tool can pull, polyarch can read. Two scripted registries behave at random: they fail and recover, redirect to
each other, want tokens, know no HEAD and compress unasked."""

import asyncio
import gzip
import json
import random
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
import pytest
from manual_clock import ManualClock
from scripted_registry import Answer, ScriptedRegistry

from polyarch.oci.documents import digest_of
from polyarch.oci.inspection import Inspection, Status
from polyarch.oci.inspector import Inspector
from polyarch.oci.reference import parse
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.interface import Timeouts
from polyarch.oci.transport.tls import TrustSettings, TrustStore
from polyarch.proxies import Proxies

pytestmark = pytest.mark.req("RG-084", "RG-061")

CASES: Final = 150
INDEX: Final = "application/vnd.oci.image.index.v1+json"
BODY: Final = json.dumps(
    {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            {
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "digest": f"sha256:{'a' * 64}",
                "size": 5,
                "platform": {"os": "linux", "architecture": architecture},
            }
            for architecture in ("amd64", "arm64")
        ],
    }
).encode()
CLIENTS: Final = ("containerd", "crane", "ours")


class Behaviour(msgspec.Struct, frozen=True):
    """How the registry behaves for one repository."""

    redirect: str
    """Where manifests are: here, at another path, at the other host, or there after two hops."""
    auth: str
    """Who wants a token: nobody, the first host, the other one, or that one from a realm at the first."""
    head: int
    failures: tuple[int, ...]
    """Statuses of the first answers for a manifest."""
    page: bool
    """These failures have a web page."""
    encoding: str
    field: str
    """What the token is called."""
    token_failures: int


def _behaviour(chance: random.Random) -> Behaviour:
    statuses = (500, 502, 503, 504, 408, 499, 522, 424, 425, 520, 404, 403, 400, 410, 418)
    return Behaviour(
        redirect=chance.choice(("here", "here", "path", "other", "other", "hops")),
        auth=chance.choice(("nobody", "nobody", "first", "other", "other", "realm")),
        head=chance.choice((200, 200, 200, 404, 405, 403, 0)),
        failures=tuple(chance.choice(statuses) for _ in range(chance.choice((0, 0, 0, 1, 2)))),
        page=chance.random() < 0.5,
        encoding=chance.choice(("", "", "", "gzip")),
        field=chance.choice(("token", "access_token")),
        token_failures=chance.choice((0, 0, 0, 1)),
    )


class TwoHosts:
    """The answers of both registries."""

    def __init__(self, behaviours: dict[str, Behaviour]) -> None:
        self.behaviours = behaviours
        self.first = self.other = ""
        self.credentials: list[str] = []
        self._failed: Counter[tuple[str, str]] = Counter()

    def answer(self, request: Any) -> Answer:
        at_first = request.host == self.first
        if shown := request.headers.get("Authorization"):
            self.credentials.append(shown)
        if request.path == "/token":
            return self._token(request)
        if request.path in ("/v2/", "/v2"):
            return Answer(200, b"{}")
        name = request.path.removeprefix("/v2/").partition("/")[0]
        behaviour = self.behaviours[name.rpartition("-")[0]]
        away = behaviour.redirect in ("other", "hops")
        is_moved = "/moved/" in request.path
        if at_first and not is_moved and behaviour.redirect != "here":
            wants = behaviour.auth == "first" and not self._has_token(request)
            path = request.path.replace("/app/", "/moved/app/")
            host = self.other if away else self.first
            return self._challenge(request) if wants else Answer(307, headers={"Location": f"http://{host}{path}"})
        if behaviour.redirect == "hops" and "/again" not in request.query_string and not at_first:
            location = f"http://{self.other}{request.path}?/again"
            return Answer(302, headers={"Location": location})
        token_is_due = behaviour.auth == "first" if at_first else behaviour.auth in ("other", "realm")
        if token_is_due and not self._has_token(request):
            return self._challenge(request, self.first if behaviour.auth == "realm" else "")
        return self._manifest(request, name, behaviour)

    def _manifest(self, request: Any, name: str, behaviour: Behaviour) -> Answer:
        done = self._failed[name, "manifest"]
        if done < len(behaviour.failures):
            self._failed[name, "manifest"] += 1
            body = b"<html>error</html>" if behaviour.page else b'{"errors":[{"code":"UNKNOWN","message":"x"}]}'
            kind = "text/html" if behaviour.page else "application/json"
            return Answer(behaviour.failures[done], body, {"Content-Type": kind})
        headers = {"Content-Type": INDEX, "Docker-Content-Digest": digest_of(BODY)}
        if request.method == "HEAD":
            if behaviour.head not in (0, 200):
                return Answer(behaviour.head)
            if not behaviour.head:
                del headers["Docker-Content-Digest"]
            return Answer(200, b"", headers)
        if behaviour.encoding:
            return Answer(200, gzip.compress(BODY), headers | {"Content-Encoding": "gzip"})
        return Answer(200, BODY, headers)

    def _token(self, request: Any) -> Answer:
        name = request.query.get("service", "")
        behaviour = self.behaviours[name.rpartition("-")[0]]
        if self._failed[name, "token"] < behaviour.token_failures:
            self._failed[name, "token"] += 1
            return Answer(503, b"{}")
        return Answer(200, json.dumps({behaviour.field: f"anonymous-{name}"}).encode())

    def _has_token(self, request: Any) -> bool:
        name = request.path.removeprefix("/v2/").partition("/")[0]
        return bool(request.headers.get("Authorization") == f"Bearer anonymous-{name}")

    def _challenge(self, request: Any, realm: str = "") -> Answer:
        name = request.path.removeprefix("/v2/").partition("/")[0]
        where = f'realm="http://{realm or request.host}/token",service="{name}"'
        headers = {"WWW-Authenticate": f'Bearer {where},scope="repository:{name}/app:pull"'}
        return Answer(401, b'{"errors":[{"code":"UNAUTHORIZED"}]}', headers)


REALM_FAILED = "the realm failed once, and is not asked again"
NO_HEAD = "the registry refuses HEAD, and is not asked by GET"
FAILED = "the registry failed at first, which is not tried again"
NO_PING = "/v2/ asks for no token, so none is got when the manifest does"
MOVED = "the host that a redirect leads to wants a token of its own"
REASONS: Final = (
    ("containerd", REALM_FAILED),
    ("containerd", NO_HEAD),
    ("containerd", FAILED),
    ("crane", NO_PING),
    ("crane", MOVED),
    ("crane", FAILED),
)
"""Why we read what another client does not, by client. Each is something that a user would want to be read."""


def why_not(client: str, behaviour: Behaviour) -> str:
    """Why a client does not read what we read; empty if there is no reason that we know of."""
    moves = behaviour.redirect in ("other", "hops")
    wants_token = behaviour.auth == "first" or (behaviour.auth in ("other", "realm") and moves)
    if client == "containerd":
        if wants_token and behaviour.token_failures:
            return REALM_FAILED
        if behaviour.head in (403, 404):
            return NO_HEAD
    elif behaviour.auth == "first":
        return NO_PING
    elif wants_token:
        return MOVED
    return FAILED if behaviour.failures else ""


async def _asked(peer: str, questions: Iterable[dict[str, str]]) -> list[dict[str, str]]:
    process = await asyncio.create_subprocess_exec(
        peer, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    lines = "".join(f"{json.dumps(each)}\n" for each in questions)
    async with asyncio.timeout(900):
        answered, _ = await process.communicate(lines.encode())
    return [json.loads(line) for line in answered.splitlines()]


async def _ours(stack: AsyncExitStack, references: Iterable[str]) -> list[Inspection]:
    transport = AiohttpTransport(
        policy=AddressPolicy(), trust=TrustStore(TrustSettings(system=False)), timeouts=Timeouts(), proxies=Proxies({})
    )
    stack.push_async_callback(transport.close)
    inspector = Inspector(transport=transport, clock=ManualClock(10_000.0, skips=True))
    stack.push_async_callback(inspector.close)
    return [await inspector.inspect(parse(each)) for each in references]


async def test_what_runtimes_and_crane_read_is_read(peer: Callable[[str], str]) -> None:
    chance = random.Random(27)
    behaviours = {f"c{number}": _behaviour(chance) for number in range(CASES)}
    hosts = TwoHosts(behaviours)
    async with AsyncExitStack() as stack:
        first, other = [await stack.enter_async_context(ScriptedRegistry()) for _ in range(2)]
        hosts.first, hosts.other = first.host, other.host
        for each in (first, other):
            each.script("*", "", hosts.answer, forever=True)
        names = {client: [f"{first.host}/{case}-{client}/app:1" for case in behaviours] for client in CLIENTS}
        theirs = [
            await _asked(peer("image-runtimes"), [{"reference": each, "client": client} for each in names[client]])
            for client in CLIENTS[:2]
        ]
        ours = await _ours(stack, names["ours"])
    told: Counter[str] = Counter()
    unexplained = []
    for behaviour, containerd, crane, own in zip(behaviours.values(), *theirs, ours, strict=True):
        read = {"containerd": bool(containerd["containerd"]), "crane": bool(crane["crane"])}
        if own.status is not Status.RESOLVED:
            assert not any(read.values()), (behaviour, own.error, containerd, crane)
            told["nobody"] += 1
            continue
        assert own.digest == digest_of(BODY)
        reasons = {client: why_not(client, behaviour) for client, has in read.items() if not has}
        if not all(reasons.values()):
            unexplained.append((reasons, behaviour, containerd, crane))
        told["all" if not reasons else "we and one" if len(reasons) == 1 else "we alone"] += 1
        told.update(f"{client}: {why}" for client, why in reasons.items())
    assert unexplained == []
    assert all(each.startswith("Bearer anonymous-") for each in hosts.credentials)
    assert told["all"] > CASES / 4, told
    for client, reason in REASONS:
        assert 0 < told[f"{client}: {reason}"] < CASES / 2, told
