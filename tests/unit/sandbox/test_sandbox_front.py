"""Who may have what from the registry: the front before a storage that answers everything."""

import base64
import io
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from polyarch.oci.auth.challenges import parse_challenges
from polyarch.sandbox.registry.access import ADMINISTRATOR, AccessFile, AccessList, Repository, parse_basic
from polyarch.sandbox.registry.proxy import RegistryProxy, Tokens, parse_path, repository_of

ACCESS = AccessList(
    administrator_password="secret",
    private={
        "acme/private": Repository(users={"alice": "wonderland"}, identity_tokens={"identity-1": "alice"}),
        "acme/basic": Repository(users={"bob": "builder"}, scheme="basic"),
    },
    slow={},
)


class Storage:
    """The registry behind: says what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        body = (await request.read()).decode()
        self.asked.append((request.method, request.raw_path, body))
        assert "Authorization" not in request.headers
        return web.Response(text="content", headers={"Docker-Content-Digest": "sha256:0"})


@pytest.fixture
async def storage() -> AsyncIterator[tuple[Storage, str]]:
    storage = Storage()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", storage.answer)
    server = TestServer(application, host="127.0.0.1")
    await server.start_server()
    yield storage, f"http://127.0.0.1:{server.port}"
    await server.close()


@pytest.fixture
def log() -> io.BytesIO:
    return io.BytesIO()


@pytest.fixture
def access(tmp_path: Path) -> AccessFile:
    file = AccessFile(tmp_path / "access.json")
    file.write(ACCESS)
    return file


@pytest.fixture
async def client(
    storage: tuple[Storage, str], access: AccessFile, log: io.BytesIO
) -> AsyncIterator[aiohttp.ClientSession]:
    front = RegistryProxy(access, storage=storage[1], address="127.0.0.1:5000", log=log)
    server = TestServer(front.application(), host="127.0.0.1")
    await server.start_server()
    async with aiohttp.ClientSession(f"http://127.0.0.1:{server.port}") as session:
        yield session
    await server.close()


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"}


async def status(client: aiohttp.ClientSession, path: str, headers: dict[str, str] | None = None) -> int:
    async with client.get(path, headers=headers) as answer:
        return answer.status


async def token(client: aiohttp.ClientSession, headers: dict[str, str] | None = None) -> str:
    async with client.get("/token", params={"service": "polyarch-sandbox"}, headers=headers) as answer:
        assert answer.status == 200
        return str((await answer.json())["token"])


@pytest.mark.req("SB-005")
async def test_an_open_repository_is_read_and_written_by_anybody(
    client: aiohttp.ClientSession, storage: tuple[Storage, str]
) -> None:
    assert await status(client, "/v2/library/nginx/manifests/1.27") == 200
    async with client.put("/v2/library/nginx/manifests/2", data="body") as answer:
        assert answer.status == 200
        assert answer.headers["Docker-Content-Digest"] == "sha256:0"
    assert storage[0].asked == [
        ("GET", "/v2/library/nginx/manifests/1.27", ""),
        ("PUT", "/v2/library/nginx/manifests/2", "body"),
    ]


@pytest.mark.req("SB-005")
async def test_a_private_repository_sends_one_to_the_token_endpoint(client: aiohttp.ClientSession) -> None:
    async with client.get("/v2/acme/private/manifests/1") as answer:
        assert answer.status == 401
        (challenge,) = parse_challenges(answer.headers.getall("WWW-Authenticate"))
    assert challenge.scheme == "bearer"
    assert challenge.parameters["realm"] == "http://127.0.0.1:5000/token"
    assert challenge.parameters["scope"] == "repository:acme/private:pull"


@pytest.mark.req("SB-005")
@pytest.mark.parametrize(
    ("user", "password", "expected"),
    [("alice", "wonderland", 200), (ADMINISTRATOR, "secret", 200), ("bob", "builder", 401)],
)
async def test_a_token_opens_what_its_user_may_see(
    client: aiohttp.ClientSession, user: str, password: str, expected: int
) -> None:
    bearer = {"Authorization": f"Bearer {await token(client, basic(user, password))}"}
    assert await status(client, "/v2/acme/private/manifests/1", bearer) == expected


@pytest.mark.req("SB-005")
async def test_an_anonymous_token_opens_what_is_open(client: aiohttp.ClientSession) -> None:
    bearer = {"Authorization": f"Bearer {await token(client)}"}
    assert await status(client, "/v2/library/nginx/manifests/1", bearer) == 200
    assert await status(client, "/v2/acme/private/manifests/1", bearer) == 401


@pytest.mark.req("SB-005")
async def test_a_wrong_password_gets_no_token(client: aiohttp.ClientSession) -> None:
    for user, password in (("alice", "wrong"), ("nobody", ""), (ADMINISTRATOR, "")):
        assert await status(client, "/token", basic(user, password)) == 401


@pytest.mark.req("SB-005")
async def test_an_invented_token_is_refused_even_for_an_open_repository(client: aiohttp.ClientSession) -> None:
    async with client.get("/v2/library/nginx/manifests/1", headers={"Authorization": "Bearer x"}) as answer:
        assert answer.status == 401
        assert 'error="invalid_token"' in answer.headers["WWW-Authenticate"]


@pytest.mark.req("SB-005")
async def test_a_basic_repository_asks_for_the_password_itself(client: aiohttp.ClientSession) -> None:
    async with client.get("/v2/acme/basic/manifests/1") as answer:
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Basic ")
    assert await status(client, "/v2/acme/basic/manifests/1", basic("bob", "builder")) == 200
    assert await status(client, "/v2/acme/basic/manifests/1", basic("bob", "burglar")) == 401


@pytest.mark.req("SB-005")
@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ({"grant_type": "refresh_token", "refresh_token": "identity-1"}, 200),
        ({"grant_type": "refresh_token", "refresh_token": "identity-2"}, 401),
        ({"grant_type": "password", "username": "alice", "password": "wonderland"}, 200),
        ({"grant_type": "password", "username": "alice", "password": "x"}, 401),
        ({}, 401),
    ],
)
async def test_identity_tokens_are_exchanged(
    client: aiohttp.ClientSession, form: dict[str, str], expected: int
) -> None:
    async with client.post("/token", data=form) as answer:
        assert answer.status == expected
        if expected == 200:
            bearer = {"Authorization": f"Bearer {(await answer.json())['token']}"}
            assert await status(client, "/v2/acme/private/manifests/1", bearer) == 200


@pytest.mark.req("SB-005")
async def test_the_ping_tells_how_to_log_in_only_if_there_is_something_private(
    client: aiohttp.ClientSession, access: AccessFile
) -> None:
    assert await status(client, "/v2/") == 401
    access.write(msgspec.structs.replace(ACCESS, private={}))
    assert await status(client, "/v2/") == 200


@pytest.mark.req("SB-005")
async def test_a_change_of_the_access_list_needs_no_restart(client: aiohttp.ClientSession, access: AccessFile) -> None:
    assert await status(client, "/v2/library/nginx/manifests/1") == 200
    access.write(ACCESS.with_private("library/nginx", Repository(users={"carol": "x"})))
    assert await status(client, "/v2/library/nginx/manifests/1") == 401


@pytest.mark.req("SB-010")
async def test_every_request_is_one_line_of_the_log(client: aiohttp.ClientSession, log: io.BytesIO) -> None:
    await status(client, "/v2/library/nginx/manifests/1.27?ns=docker.io")
    await status(client, "/v2/acme/private/blobs/sha256:abc", basic("alice", "wonderland"))
    await status(client, "/v2/acme/private/manifests/1")
    await status(client, "/healthz")
    lines = [msgspec.json.decode(line) for line in log.getvalue().splitlines()]
    told = [(each["method"], each["repository"], each["reference"], each["user"], each["status"]) for each in lines]
    assert told == [
        ("GET", "library/nginx", "1.27", "", 200),
        ("GET", "acme/private", "sha256:abc", "alice", 200),
        ("GET", "acme/private", "1", "", 401),
    ]
    assert b"wonderland" not in log.getvalue()


@pytest.mark.req("SB-005")
async def test_storage_that_is_away_is_said_to_be(access: AccessFile, unused_tcp_port: int) -> None:
    front = RegistryProxy(
        access, storage=f"http://127.0.0.1:{unused_tcp_port}", address="127.0.0.1:1", log=io.BytesIO()
    )
    async with TestServer(front.application(), host="127.0.0.1") as server, aiohttp.ClientSession() as session:
        assert await status(session, f"http://127.0.0.1:{server.port}/v2/a/manifests/1") == 503
        assert await status(session, f"http://127.0.0.1:{server.port}/healthz") == 503


@pytest.mark.req("SB-005")
@pytest.mark.parametrize(
    ("path", "repository", "parsed"),
    [
        ("/v2/a/b/manifests/latest", "a/b", ("a/b", "manifests", "latest")),
        ("/v2/a/manifests/manifests/1", "a/manifests", ("a/manifests", "manifests", "1")),
        ("/v2/a/blobs/sha256:0", "a", ("a", "blobs", "sha256:0")),
        ("/v2/a/b/blobs/uploads/", "a/b", ("a/b", "blobs", "uploads/")),
        ("/v2/a/b/blobs/uploads/uuid", "a/b", ("a/b", "blobs", "uploads/uuid")),
        ("/v2/a/tags/list", "a", ("a", "tags", "list")),
        ("/v2/", "", ("", "", "")),
        ("/v2/_catalog", "", ("", "", "")),
    ],
)
def test_the_repository_of_a_path(path: str, repository: str, parsed: tuple[str, str, str]) -> None:
    assert repository_of(path) == repository
    assert parse_path(path) == parsed


@pytest.mark.req("SB-005")
@pytest.mark.parametrize(
    "header", ["", "Bearer x", "Basic", "Basic !!!", f"Basic {base64.b64encode(b'nocolon').decode()}"]
)
def test_a_header_that_is_no_password_is_none(header: str) -> None:
    assert parse_basic(header) is None


@pytest.mark.req("SB-005")
def test_tokens_end() -> None:
    tokens = Tokens()
    issued = tokens.issue("alice", 0.0)
    assert tokens.user(issued, 299.0) == "alice"
    assert tokens.user(issued, 300.0) is None
