"""The client against a server that answers by script."""

import asyncio
import gzip
import stat
import sys

import msgspec
import pytest
from manual_clock import ManualClock
from scripted_server import document, drop, listing, pod, serving, status, stream

from polyarch import __version__, proxies
from polyarch.kube import errors
from polyarch.kube.client import Client
from polyarch.kube.credentials import Credential
from polyarch.kube.patches import JsonPatch, MergePatch, add
from polyarch.kube.requests import Retries
from polyarch.kube.resources import DEPLOYMENTS, LEASES, NODES, PODS
from polyarch.kube.settings import Configuration, ExecSettings, User
from polyarch.kube.transport import TransportSettings
from polyarch.objects import PartialObjectMetadata


class Slim(msgspec.Struct, frozen=True):
    kind: str
    metadata: dict[str, object]


class Instant(ManualClock):
    """Sleeping takes no time, but is remembered and moves the clock."""

    def __init__(self) -> None:
        super().__init__(0)
        self.slept: list[float] = []

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.advance(max(seconds, 0))
        await asyncio.sleep(0)


class Counter:
    def __init__(self) -> None:
        self.requests: list[tuple[str, str, int]] = []

    def request(self, verb: str, resource: str, code: int) -> None:
        self.requests.append((verb, resource, code))


@pytest.fixture
async def api():
    async with serving() as server:
        yield server


@pytest.fixture
def clock():
    return Instant()


@pytest.fixture
async def client(api, clock):
    settings = TransportSettings(retries=Retries(deadline=30, base=1.0, cap=8))
    async with Client(api.configuration(), clock=clock, settings=settings, chance=lambda: 0.5) as client:
        yield client


# -- verbs and types ----------------------------------------------------------------------------------------------


@pytest.mark.req("KR-004")
async def test_get_decodes_into_the_type_asked_for(api, client):
    api.otherwise = document(pod("web", 5))
    assert await client.get(PODS, "web", namespace="demo", type=Slim) == Slim("Pod", pod("web", 5)["metadata"])
    assert (await client.get(PODS, "web", namespace="demo"))["kind"] == "Pod"
    found = await client.get(PODS, "web", namespace="demo", type=PartialObjectMetadata)
    assert found.metadata.resource_version == "5"
    assert "as=PartialObjectMetadata;g=meta.k8s.io;v=v1" in api.last.headers["Accept"]


@pytest.mark.req("KR-004")
async def test_an_answer_of_another_shape_is_an_error_that_says_where(api, client):
    api.script(document({"kind": 5}))
    with pytest.raises(
        errors.UnreadableAnswer, match=r"get pods web: .* as Slim: Expected `str`, got `int` - at `\$.kind`"
    ):
        await client.get(PODS, "web", namespace="demo", type=Slim)
    api.script(document({"metadata": {}, "items": [pod("a", 1), {"kind": 1}]}))
    with pytest.raises(errors.UnreadableAnswer, match=r"items\[1\]"):
        await client.list(PODS, type=Slim)


@pytest.mark.req("KR-003")
async def test_a_list_is_read_in_pages(api, client):
    api.script(listing(pod("a", 1), version="7", token="next"), listing(pod("b", 2), version="7"))
    found = await client.list(PODS, namespace="demo", label_selector="x=y", limit=1)
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert found.resource_version == "7"
    assert [request.query for request in api.requests] == [
        {"labelSelector": "x=y", "limit": "1"},
        {"labelSelector": "x=y", "limit": "1", "continue": "next"},
    ]


@pytest.mark.req("KR-003")
async def test_pages_that_expire_on_the_way_are_read_again_from_the_first(api, client):
    """410 inside paging restarts; nothing comes twice."""
    api.script(
        listing(pod("a", 1), version="7", token="next"),
        status(410, "Expired"),
        listing(pod("a", 1), version="9", token="next"),
        listing(pod("b", 8), version="9"),
    )
    found = await client.list(PODS)
    assert [item["metadata"]["name"] for item in found.items] == ["a", "b"]
    assert found.resource_version == "9"


@pytest.mark.req("KR-003")
async def test_a_list_that_always_expires_ends(api, client):
    for _ in range(10):
        api.script(listing(pod("a", 1), token="next"), status(410, "Expired"))
    with pytest.raises(errors.Gone):
        await client.list(PODS)
    assert len(api.requests) == 8


@pytest.mark.req("KR-003", "KR-005")
async def test_writes_answer_with_metadata_only_unless_the_answer_is_read(api, client):
    api.otherwise = document(pod("web", 6))
    done = await client.patch(PODS, "web", JsonPatch((add("/metadata/labels/a", "b"),)), namespace="demo")
    assert done.metadata.resource_version == "6"
    assert api.last.headers["Accept"].startswith("application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1")
    assert api.last.headers["Content-Type"] == "application/json-patch+json"
    assert api.last.query == {"fieldManager": "polyarch"}
    read = await client.patch(PODS, "web", MergePatch({}), namespace="demo", type=Slim, subresource="status")
    assert read.kind == "Pod"
    assert api.last.headers["Accept"] == "application/json"
    assert api.last.path.endswith("/pods/web/status")


@pytest.mark.req("KR-003")
async def test_create_apply_replace_delete_and_scale(api, client):
    api.otherwise = document(pod("web", 6))
    await client.create(PODS, {"metadata": {"generateName": "web-"}}, namespace="demo", dry_run=True)
    assert (api.last.method, api.last.path) == ("POST", "/api/v1/namespaces/demo/pods")
    assert api.last.query["dryRun"] == "All"
    await client.apply(DEPLOYMENTS, {"metadata": {"name": "web"}}, namespace="demo")
    assert api.last.query == {"fieldManager": "polyarch", "force": "true"}
    await client.replace(LEASES, {"metadata": {"name": "l", "resourceVersion": "1"}}, namespace="demo")
    assert api.last.method == "PUT"
    await client.delete(PODS, "web", namespace="demo", uid="u")
    assert api.last.document["preconditions"] == {"uid": "u"}
    await client.scale(DEPLOYMENTS, "web", 3, namespace="demo")
    assert api.last.path.endswith("/deployments/web/scale")
    assert api.last.document == {"spec": {"replicas": 3}}


@pytest.mark.req("KR-003")
async def test_binding_eviction_token_and_log(api, client):
    api.otherwise = document({"kind": "Status", "status": "Success"})
    await client.bind("demo", "web", "n1", "u1")
    await client.evict("demo", "web", uid="u1")
    api.script(document({"status": {"token": "t", "expirationTimestamp": "2030-01-01T00:00:00Z"}}, 201))
    issued = await client.token("demo", "robot")
    assert issued.token == "t"
    assert "'t'" not in repr(issued)
    api.script(document(b"exec \xff format error\n"))
    assert await client.log("demo", "web", container="c") == "exec � format error\n"


@pytest.mark.req("KR-003")
async def test_an_eviction_that_a_budget_forbids_is_not_repeated(api, client):
    api.otherwise = status(429, "TooManyRequests", "Cannot evict pod", headers={"Retry-After": "10"})
    with pytest.raises(errors.TooManyRequests, match="Cannot evict pod"):
        await client.evict("demo", "web")
    assert len(api.requests) == 1


async def test_discovery_of_a_group(api, client):
    api.script(
        document({"versions": [{"version": "v1alpha1"}, {"version": "v1"}], "preferredVersion": {"version": "v1"}}),
        document(
            {
                "resources": [
                    {"name": "things", "kind": "Thing", "namespaced": True},
                    {"name": "things/status", "kind": "Thing", "namespaced": True},
                ]
            }
        ),
        document({"resources": [{"name": "things", "kind": "Thing", "namespaced": True}]}),
        status(404, "NotFound"),
    )
    found = await client.discover("example.com")
    assert [(resource.version, resource.plural) for resource in found] == [("v1", "things"), ("v1alpha1", "things")]
    assert await client.discover("gone.example.com") == ()


async def test_discovery_that_cannot_be_read_is_told_with_its_path(api, client):
    """Something in front of the API server may answer 200 to everything."""
    api.otherwise = document({"kind": "Welcome"})
    with pytest.raises(errors.UnreadableAnswer, match=r"/apis/example.com: .*versions"):
        await client.discover("example.com")
    with pytest.raises(errors.UnreadableAnswer, match=r"/apis: .*groups"):
        await client.is_served(DEPLOYMENTS)


async def test_whether_a_kind_is_served_in_any_version(api, client):
    api.script(
        document({"resources": [{"name": "pods", "kind": "Pod", "namespaced": True}]}),
        document({"groups": [{"name": "apps", "versions": [{"version": "v1beta1"}, {"version": "v1"}]}]}),
        document({"resources": []}),
        document({"resources": [{"name": "deployments", "kind": "Deployment", "namespaced": True}]}),
        document({"groups": []}),
        status(404, "NotFound"),
    )
    assert await client.is_served(PODS)
    assert await client.is_served(DEPLOYMENTS), "in a version that is not the preferred one"
    assert not await client.is_served(DEPLOYMENTS)
    with pytest.raises(errors.NotFound):
        await client.is_served(DEPLOYMENTS)


async def test_raw_paths(api, client):
    api.script(document(b"ok"))
    assert await client.raw("GET", "/readyz", query="verbose=1", accept="*/*") == b"ok"
    assert (api.last.path, api.last.query) == ("/readyz", {"verbose": "1"})


async def test_a_server_below_a_path_is_reached_there(api, clock):
    api.otherwise = document(pod("web", 1))
    async with Client(Configuration(server=f"{api.url}/k8s/clusters/c-1"), clock=clock) as client:
        await client.get(PODS, "web", namespace="demo")
    assert api.last.path == "/k8s/clusters/c-1/api/v1/namespaces/demo/pods/web"


# -- who we say we are ---------------------------------------------------------------------------------------------


@pytest.mark.req("KR-005")
async def test_the_user_agent_names_role_and_version(api, clock):
    api.otherwise = document(pod("web", 1))
    async with Client(api.configuration(), role="placement-webhook", clock=clock) as client:
        await client.get(PODS, "web", namespace="demo")
    assert api.last.headers["User-Agent"] == f"polyarch-placement-webhook/{__version__}"
    assert api.last.headers["Accept-Encoding"] == "identity"


async def test_a_compressed_answer_is_understood_on_the_command_line(api, client):
    api.script(document(gzip.compress(msgspec.json.encode(pod("web", 1))), headers={"Content-Encoding": "gzip"}))
    assert (await client.get(PODS, "web", namespace="demo"))["kind"] == "Pod"
    assert "gzip" in api.last.headers["Accept-Encoding"]


# -- errors and retries --------------------------------------------------------------------------------------------


@pytest.mark.req("KR-002")
async def test_429_waits_as_told_and_succeeds(api, client, clock):
    api.script(
        status(429, headers={"Retry-After": "3"}), status(429, headers={"Retry-After": "1"}), document(pod("w", 1))
    )
    await client.create(PODS, {}, namespace="demo")
    assert clock.slept == [3 + 0.5, 1 + 1.0]


@pytest.mark.req("KR-002")
async def test_a_dropped_connection_and_5xx_are_tried_again_where_that_is_safe(api, client):
    api.script(drop(), status(503), status(500, "InternalError"), document(pod("web", 1)))
    await client.patch(PODS, "web", MergePatch({}), namespace="demo")
    assert len(api.requests) == 4


@pytest.mark.req("KR-002")
@pytest.mark.parametrize(("answer", "kind"), [(drop(), errors.ConnectionFailed), (status(503), errors.Unavailable)])
async def test_a_create_whose_answer_was_lost_is_not_repeated(api, client, answer, kind):
    """A second one could make a second object."""
    api.otherwise = answer
    with pytest.raises(kind):
        await client.create(PODS, {}, namespace="demo")
    assert len(api.requests) == 1


@pytest.mark.req("KR-002")
@pytest.mark.parametrize("code", [400, 403, 404, 409, 410, 422])
async def test_an_answer_of_4xx_is_final(api, client, code):
    api.otherwise = status(code)
    with pytest.raises(errors.ApiError):
        await client.patch(PODS, "web", MergePatch({}), namespace="demo")
    assert len(api.requests) == 1


@pytest.mark.req("KR-002")
async def test_trying_ends_at_the_deadline_with_the_last_error(api, client, clock):
    api.otherwise = status(503, "ServiceUnavailable", "etcd is away")
    with pytest.raises(errors.Unavailable, match="etcd is away"):
        await client.get(PODS, "web", namespace="demo")
    assert 10 < clock.monotonic() <= 30
    assert clock.slept[:4] == [0.5, 1.0, 2.0, 4.0]


@pytest.mark.req("KR-002")
async def test_who_asks_for_no_retry_gets_the_first_failure(api, client):
    api.otherwise = status(503)
    with pytest.raises(errors.Unavailable):
        await client.get(PODS, "web", namespace="demo", retry=False)
    assert len(api.requests) == 1


@pytest.mark.req("KR-002")
async def test_a_server_that_is_not_there_fails_soon_and_says_so(clock, unused_tcp_port):
    async with Client(Configuration(server=f"http://127.0.0.1:{unused_tcp_port}"), clock=clock) as client:
        with pytest.raises(
            errors.ConnectionFailed, match=f"get pods: no answer from 127.0.0.1:{unused_tcp_port}"
        ) as caught:
            await client.get(PODS, "web", namespace="demo")
    assert not caught.value.sent
    assert len(clock.slept) == 2


@pytest.mark.req("KR-002")
async def test_an_answer_that_does_not_come_in_time_is_a_failure(api):
    api.otherwise = stream(b"{", then="hold")
    settings = TransportSettings(timeout=0.05)
    async with Client(api.configuration(), settings=settings) as client:
        with pytest.raises(errors.ConnectionFailed, match=r"no answer within 0\.05 s"):
            await client.get(PODS, "web", namespace="demo", retry=False)


@pytest.mark.req("KR-002")
async def test_an_answer_cut_off_in_the_middle_is_tried_again(api, client):
    api.script(stream(b'{"kind":', then="cut"), document(pod("web", 1)))
    assert (await client.get(PODS, "web", namespace="demo"))["kind"] == "Pod"


@pytest.mark.req("KR-002")
async def test_requests_share_a_bounded_number_of_connections(api, clock):
    """One session; a burst does not open a connection each."""
    api.otherwise = document(pod("web", 1))
    async with Client(api.configuration(), clock=clock, settings=TransportSettings(in_flight=3)) as client:
        await asyncio.gather(*(client.get(PODS, "web", namespace="demo") for _ in range(30)))
    assert len(api.requests) == 30
    assert len(api.connections) <= 3


@pytest.mark.req("KR-002")
async def test_connections_of_a_burst_come_to_rest(api, clock):
    """They were taken in turn, so that none rested for long enough to be closed: each costs 0.3 MiB with TLS."""
    everybody = asyncio.Barrier(8)

    async def answer(request):
        if request.query.get("limit"):
            await everybody.wait()
        return await document(listed)(request)

    listed = {"metadata": {"resourceVersion": "1"}, "items": []}
    api.otherwise = answer
    async with Client(api.configuration(), clock=clock) as client:
        await asyncio.gather(*(client.list(PODS) for _ in range(8)))
        assert len(api.connections) == 8
        api.connections.clear()
        api.otherwise = document(pod("web", 1))
        for _ in range(20):
            await client.get(PODS, "web", namespace="demo")
    assert len(api.connections) == 1


@pytest.mark.req("KR-030")
async def test_a_lease_does_not_wait_behind_requests_that_hang(api, clock):
    """An overloaded API server answers Leases first; leadership must not be lost in our own queue."""
    api.script(stream(then="hold"), document({"metadata": {"name": "lease"}}))
    async with Client(api.configuration(), clock=clock, settings=TransportSettings(in_flight=1)) as client:
        hanging = asyncio.create_task(client.get(PODS, "web", namespace="demo"))
        while not api.requests:
            await asyncio.sleep(0)
        async with asyncio.timeout(5):
            assert (await client.get(LEASES, "lease", namespace="demo"))["metadata"]["name"] == "lease"
        assert not hanging.done()
        hanging.cancel()


async def test_requests_are_counted_by_verb_resource_and_code(api, clock):
    metrics = Counter()
    api.script(status(503), drop(), document(pod("web", 1)), status(404))
    async with Client(api.configuration(), clock=clock, metrics=metrics) as client:
        await client.patch(PODS, "web", MergePatch({}), namespace="demo", subresource="status")
        with pytest.raises(errors.NotFound):
            await client.get(NODES, "n1")
    assert metrics.requests == [
        ("patch", "pods/status", 503),
        ("patch", "pods/status", 0),
        ("patch", "pods/status", 200),
        ("get", "nodes", 404),
    ]


async def test_a_redirect_is_not_followed_with_our_token(api, clock):
    api.script(document({}, 302, {"Location": f"{api.url}/elsewhere"}))
    async with Client(api.configuration(user=User(token="t")), clock=clock) as client:
        with pytest.raises(errors.ApiError, match="302"):
            await client.get(PODS, "web", namespace="demo")
    assert [request.path for request in api.requests] == ["/api/v1/namespaces/demo/pods/web"]


async def test_a_warning_of_the_server_is_logged_once(api, client, capsys):
    api.otherwise = document(pod("web", 1), headers={"Warning": '299 - "unknown field \\"spec.x\\""'})
    for _ in range(2):
        await client.get(PODS, "web", namespace="demo")
    assert capsys.readouterr().out.count('unknown field "spec.x"') == 1


# -- credentials on the way ----------------------------------------------------------------------------------------


@pytest.mark.req("KR-001")
async def test_a_401_makes_the_token_file_be_read_again(api, clock, tmp_path):
    path = tmp_path / "token"
    path.write_text("old")
    api.script(document(pod("web", 1)), status(401), document(pod("web", 1)))
    async with Client(api.configuration(user=User(token_file=str(path))), clock=clock) as client:
        await client.get(PODS, "web", namespace="demo")
        path.write_text("new")
        await client.get(PODS, "web", namespace="demo")
    assert [request.headers["Authorization"] for request in api.requests] == ["Bearer old", "Bearer old", "Bearer new"]


@pytest.mark.req("KR-001")
async def test_a_token_that_stays_refused_is_tried_only_once(api, clock, tmp_path):
    (tmp_path / "token").write_text("old")
    api.otherwise = status(401, "Unauthorized", "Unauthorized")
    async with Client(api.configuration(user=User(token_file=str(tmp_path / "token"))), clock=clock) as client:
        with pytest.raises(errors.Unauthorized):
            await client.get(PODS, "web", namespace="demo")
    assert len(api.requests) == 1


@pytest.mark.req("KR-001")
async def test_a_plugin_runs_again_after_a_401(api, clock, tmp_path):
    script = tmp_path / "login"
    script.write_text(f"""#!{sys.executable}
import json, os
n = len(os.listdir({str(tmp_path)!r}))
open({str(tmp_path)!r} + f"/run-{{n}}", "w")
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
                   "status": {{"token": f"token-{{n}}"}}}}))
""")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    plugin = ExecSettings("k", "f", str(script), "client.authentication.k8s.io/v1", interactive_mode="Never")
    api.script(status(401), document(pod("web", 1)))
    async with Client(api.configuration(user=User(exec=plugin)), clock=clock) as client:
        await client.get(PODS, "web", namespace="demo")
    assert [request.headers["Authorization"] for request in api.requests] == ["Bearer token-1", "Bearer token-2"]


@pytest.mark.req("KR-001")
async def test_a_proxy_is_used_and_named_when_it_does_not_work(api, clock, unused_tcp_port):
    api.otherwise = document(pod("web", 1))
    through = proxies.parse(api.url.replace("//", "//me:secret@"))
    async with Client(Configuration(server="http://api.invalid:80", proxy=through), clock=clock) as client:
        await client.get(PODS, "web", namespace="demo")
    assert api.last.headers["Host"] == "api.invalid"
    assert api.last.headers["Proxy-Authorization"] == "Basic bWU6c2VjcmV0"
    dead = proxies.parse(f"http://me:secret@127.0.0.1:{unused_tcp_port}")
    async with Client(Configuration(server="http://api.invalid:80", proxy=dead), clock=clock) as client:
        with pytest.raises(errors.ConnectionFailed, match="the proxy does not connect us") as caught:
            await client.get(PODS, "web", namespace="demo")
    assert "secret" not in str(caught.value)


@pytest.mark.req("KR-001")
async def test_a_login_may_take_longer_than_a_request(api):
    """The deadline of a request does not cut off the person who is asked for a password."""

    class Slow:
        async def current(self):
            await asyncio.sleep(0.3)
            return Credential((("Authorization", "Bearer late"),))

        async def refused(self, credential):
            return False

    api.otherwise = document(pod("web", 1))
    settings = TransportSettings(timeout=0.2)
    async with Client(api.configuration(), settings=settings, credentials=Slow()) as client:
        await client.get(PODS, "web", namespace="demo", retry=False)
    assert api.last.headers["Authorization"] == "Bearer late"
