"""What an API server gets back for what it sends, over real TLS connections."""

import asyncio
import base64
import io
import json
import ssl
from contextlib import asynccontextmanager

import aiohttp
import msgspec
import pytest
import structlog
import trustme
from manual_clock import ManualClock

from polyarch.clock import SystemClock
from polyarch.kube.admission import (
    MAX_BODY,
    AdmissionRequest,
    AdmissionResponse,
    NotAReview,
    Reviewer,
    Route,
    Webhooks,
    fit_warnings,
    timeout_of,
)
from polyarch.kube.connections import KEEP_ALIVE
from polyarch.kube.metrics import Metrics
from polyarch.kube.patches import add, pointer
from polyarch.kube.resources import PODS
from polyarch.kube.server import HttpServer
from polyarch.objects import ObjectMeta


class Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class Pod(msgspec.Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()
    spec: Spec = Spec()


def review(**request) -> dict:
    """An AdmissionReview as an API server sends it for the creation of a pod."""
    return {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1",
        "request": {
            "uid": "5d3c1a52",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
            "requestResource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {"username": "alice", "groups": ["system:authenticated"], "extra": {"a": ["b"]}},
            "object": {
                "kind": "Pod",
                "apiVersion": "v1",
                "metadata": {"generateName": "web-", "labels": {"app": "web"}},
                "spec": {"nodeName": "n1", "futureField": {"x": 1}},
            },
            "oldObject": None,
            "dryRun": False,
            "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
        }
        | request,
    }


async def admit(request: AdmissionRequest[Pod]) -> AdmissionResponse:
    return AdmissionResponse()


def route(handler=admit, **options) -> Route[Pod]:
    defaults = {"path": "/pods", "name": "placement", "type": Pod, "on_error": "allow", "resource": PODS}
    return Route(handler=handler, **(defaults | options))


async def answer(body, handler=admit, *, clock=None, timeout: float = 10, **options) -> dict:
    """The response of a route to a body, without a network."""
    clock = clock or SystemClock()
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    encoded = await Reviewer(route(handler, **options), clock).answer(
        body, timeout=timeout, arrived_at=clock.monotonic()
    )
    answered = json.loads(encoded)
    assert (answered["apiVersion"], answered["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
    return answered["response"]


class Certificate:
    """A serving certificate whose context the test can look at and load another one into."""

    def __init__(self) -> None:
        self.ca = trustme.CA()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.ca.issue_cert("127.0.0.1").configure_cert(self.context)

    def client(self) -> ssl.SSLContext:
        context = ssl.create_default_context()
        self.ca.configure_trust(context)
        return context


@asynccontextmanager
async def serving(*routes, **options):
    """A server on a free port and a client session that trusts it."""
    certificate = Certificate()
    server = HttpServer(Webhooks(list(routes), **options).serve, tls=certificate.context)
    await server.start()
    try:
        connector = aiohttp.TCPConnector(ssl=certificate.client())
        async with aiohttp.ClientSession(server.url, connector=connector) as session:
            yield server, session
    finally:
        await server.stop()


# -- the handler's view ------------------------------------------------------------------------------------------------


@pytest.mark.req("KR-032")
async def test_a_handler_gets_the_typed_object_and_everything_the_api_server_said():
    seen: list[AdmissionRequest[Pod]] = []

    async def handler(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        seen.append(request)
        return AdmissionResponse()

    clock = ManualClock(start=50)
    response = await answer(review(dryRun=True), handler, clock=clock, timeout=5)
    assert response == {"uid": "5d3c1a52", "allowed": True}
    request = seen[0]
    assert request.object == Pod(ObjectMeta(generate_name="web-", labels={"app": "web"}), Spec("n1"))
    assert request.old_object is None
    assert (request.namespace, request.name, request.operation, request.dry_run) == ("shop", "", "CREATE", True)
    assert request.user.username == "alice"
    assert (request.timeout_seconds, request.arrived_at) == (5, 50)
    assert json.loads(bytes(request.raw_object))["spec"]["futureField"] == {"x": 1}


@pytest.mark.req("KR-032")
async def test_the_answer_carries_patch_warnings_and_audit_annotations():
    operations = (add(pointer("metadata", "labels", "a/b"), "x"), add("/spec/schedulingGates", [{"name": "g"}]))

    async def handler(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        return AdmissionResponse(
            patch=operations, warnings=("mind the gap",), audit_annotations={"decision": "ArchitecturesSet amd64"}
        )

    response = await answer(review(), handler)
    assert response["patchType"] == "JSONPatch"
    assert json.loads(base64.b64decode(response["patch"])) == [
        {"op": "add", "path": "/metadata/labels/a~1b", "value": "x"},
        {"op": "add", "path": "/spec/schedulingGates", "value": [{"name": "g"}]},
    ]
    assert response["warnings"] == ["mind the gap"]
    assert response["auditAnnotations"] == {"decision": "ArchitecturesSet amd64"}
    assert "status" not in response


@pytest.mark.req("KR-032")
async def test_a_refusal_carries_its_code_and_message():
    async def handler(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        return AdmissionResponse(allowed=False, code=400, message="create the ClusterPodPlacementConfig first")

    response = await answer(review(), handler)
    assert response["allowed"] is False
    assert response["status"] == {"code": 400, "message": "create the ClusterPodPlacementConfig first"}


async def test_a_route_for_deletions_gets_no_object_but_the_old_one():
    async def handler(request) -> AdmissionResponse:
        assert request.object is None
        return AdmissionResponse(allowed=request.old_object.metadata.name != "cluster", message="still in use")

    body = review(operation="DELETE", object=None, oldObject={"metadata": {"name": "cluster"}})
    response = await answer(body, handler, type=Pod | None, on_error="deny")
    assert response["status"]["message"] == "still in use"


@pytest.mark.req("KR-032")
@pytest.mark.parametrize(
    ("warnings", "shown"),
    [
        pytest.param(("a" * 300,), ["a" * 255 + "…"], id="too long for the terminal"),
        pytest.param(("two\nlines\x07 \x1b[31m",), ["two lines [31m"], id="control characters"),
        pytest.param(("same", "same", ""), ["same"], id="repeated and empty"),
        pytest.param(tuple(f"{n:03}" + "x" * 253 for n in range(20)), None, id="too many"),
    ],
)
def test_warnings_are_made_to_fit_what_the_api_server_passes_on(warnings, shown):
    fitting = fit_warnings(warnings)
    if shown is None:
        assert 0 < sum(map(len, fitting)) <= 4096
    else:
        assert fitting == shown


# -- when the handler is not the one to answer ------------------------------------------------------------------------


async def broken(request: AdmissionRequest[Pod]) -> AdmissionResponse:
    raise KeyError("password=hunter2")


@pytest.mark.req("KR-032")
async def test_a_lookup_that_somebody_else_cancels_is_answered_by_policy():
    """Not with a connection that is cut off, which the API server would meet with its failurePolicy."""

    async def shared(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        lookup = asyncio.get_running_loop().create_future()
        lookup.cancel()
        return await lookup

    response = await answer(review(), shared, on_error="allow")
    assert response["allowed"]
    assert "an internal error occurred" in response["warnings"][0]


@pytest.mark.req("KR-032")
@pytest.mark.parametrize("policy", ["allow", "deny"])
async def test_an_exception_is_answered_by_the_routes_policy_and_logged_with_the_uid(policy):
    failures: list[str] = []
    with structlog.testing.capture_logs() as logs:
        response = await answer(review(), broken, on_error=policy, failed=failures.append)
    assert response["allowed"] is (policy == "allow")
    said = response["warnings"][0] if policy == "allow" else response["status"]["message"]
    assert "5d3c1a52" in said
    assert "hunter2" not in said, "what an exception says is not for pod owners"
    assert logs[0]["uid"] == "5d3c1a52"
    assert failures == ["exception"]


@pytest.mark.req("KR-032")
async def test_a_handler_is_cancelled_before_the_api_server_stops_waiting():
    ended: list[str] = []

    async def slow(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return AdmissionResponse()

    clock, failures = ManualClock(start=0), []
    task = asyncio.create_task(answer(review(), slow, clock=clock, timeout=5, failed=failures.append))
    await clock.run(4.4)
    assert not task.done()
    await clock.run(0.2)
    response = await task
    assert response["allowed"] is True
    assert "within 5 s" in response["warnings"][0]
    assert ended == ["cancelled"]
    assert failures == ["deadline"]


@pytest.mark.req("KR-032")
async def test_the_time_a_body_took_to_arrive_counts_against_the_deadline():
    clock = ManualClock(start=100)
    reviewer = Reviewer(route(lambda request: asyncio.sleep(3600)), clock)
    task = asyncio.create_task(reviewer.answer(json.dumps(review()).encode(), timeout=10, arrived_at=92))
    await clock.run(1.6)
    assert json.loads(await task)["response"]["allowed"] is True


@pytest.mark.req("PL-103")
@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param({"spec": {"nodeName": 7}}, id="field of another type"),
        pytest.param({"spec": []}, id="object instead of list"),
        pytest.param({"metadata": {"labels": {"a": None}}}, id="null as a label"),
        pytest.param(5, id="not an object at all"),
        pytest.param(None, id="null"),
    ],
)
@pytest.mark.parametrize("policy", ["allow", "deny"])
async def test_an_object_of_unexpected_types_is_answered_by_policy_and_never_a_4xx(spoiled, policy):
    failures: list[str] = []
    response = await answer(review(object=spoiled), on_error=policy, failed=failures.append)
    assert response["uid"] == "5d3c1a52"
    assert response["allowed"] is (policy == "allow")
    assert "patch" not in response
    said = response["warnings"][0] if policy == "allow" else response["status"]["message"]
    assert "$.request.object" in said, "it says which field"
    assert failures == ["undecodable"]


@pytest.mark.req("PL-750")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"resource": {"group": "apps", "version": "v1", "resource": "deployments"}}, id="another kind"),
        pytest.param({"subResource": "ephemeralcontainers"}, id="a subresource"),
        pytest.param({"operation": "UPDATE"}, id="another operation"),
        pytest.param({"operation": "DELETE", "object": None}, id="another operation without object"),
    ],
)
async def test_reviews_the_route_was_not_made_for_are_allowed_without_a_patch(change):
    response = await answer(review(**change), broken, on_error="deny", operations=frozenset({"CREATE"}))
    assert response == {"uid": "5d3c1a52", "allowed": True}


@pytest.mark.req("PL-750")
@pytest.mark.parametrize(
    ("body", "problem"),
    [
        pytest.param(b"", "cannot|JSON", id="empty"),
        pytest.param(b"hello", "JSON", id="not JSON"),
        pytest.param(b'{"a":"\xff', "JSON", id="not UTF-8"),
        pytest.param(b"[" * 100_000, "JSON", id="nested without end"),
        pytest.param(b"[]", "JSON", id="a list"),
        pytest.param({"kind": "Pod", "apiVersion": "v1"}, "AdmissionReview", id="another kind"),
        pytest.param(review() | {"apiVersion": "admission.k8s.io/v1beta1"}, "v1beta1", id="v1beta1"),
        pytest.param(review() | {"request": None}, "request", id="no request"),
        pytest.param(review(uid=None), "request", id="no uid"),
        pytest.param({}, "found apiVersion none", id="empty object"),
    ],
)
async def test_what_is_no_review_is_refused_with_a_sentence(body, problem):
    with pytest.raises(NotAReview, match=problem):
        await answer(body)


# -- over the network -------------------------------------------------------------------------------------------------


@pytest.mark.req("KR-032")
async def test_reviews_are_answered_over_tls_on_a_kept_connection():
    metrics = Metrics()
    async with serving(route(), metrics=metrics) as (server, session):
        for _ in range(3):
            async with session.post("/pods?timeout=5s", json=review()) as response:
                assert response.status == 200
                assert response.content_type == "application/json"
                assert (await response.json())["response"]["allowed"] is True
                assert response.headers.get("Connection") != "close"
        assert server.port != 0
    assert metrics.registry.get_sample_value("polyarch_admission_seconds_count", {"route": "placement"}) == 3
    assert KEEP_ALIVE > 90


@pytest.mark.req("KR-032")
async def test_the_deadline_is_read_from_the_url():
    seen: list[float] = []

    async def handler(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        seen.append(request.timeout_seconds)
        return AdmissionResponse()

    async with serving(route(handler)) as (_, session):
        for query in ("?timeout=5s", ""):
            async with session.post("/pods" + query, json=review()) as response:
                assert response.status == 200
    assert seen == [5, 10]


@pytest.mark.req("KR-032")
@pytest.mark.parametrize(
    ("query", "seconds"),
    [
        ("timeout=10s", 10),
        ("timeout=1m30s", 30),
        ("timeout=1.5s", 1.5),
        ("timeout=500ms", 0.5),
        ("a=b&timeout=3s", 3),
        ("", 10),
        ("timeout=", 10),
        ("timeout=0s", 10),
        ("timeout=-5s", 10),
        ("timeout=5", 10),
        ("timeout=nan", 10),
        ("timeout=99999999999999h", 30),
    ],
)
def test_timeouts_are_go_durations_up_to_what_kubernetes_allows(query, seconds):
    assert timeout_of(query) == seconds


@pytest.mark.req("PL-750")
@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        pytest.param("POST", "/pods", b"hello", 400, id="not a review"),
        pytest.param("POST", "/pods", b"x" * (MAX_BODY + 1), 413, id="larger than 8 MiB"),
        pytest.param("POST", "/elsewhere", b"{}", 404, id="unknown path"),
        pytest.param("GET", "/pods", b"", 405, id="wrong method"),
    ],
)
async def test_what_cannot_be_answered_gets_a_plain_sentence(method, path, body, status):
    async with serving(route()) as (_, session), session.request(method, path, data=io.BytesIO(body)) as response:
        said = await response.text()
        assert response.status == status
        assert response.content_type == "text/plain"
        assert "Traceback" not in said
        assert len(said.strip().splitlines()) == 1


@pytest.mark.req("PL-750")
async def test_a_body_of_unknown_length_is_not_read_beyond_8_mib():
    async def endless():
        for _ in range(9):
            yield b" " * 2**20

    async with serving(route()) as (_, session):
        try:
            async with session.post("/pods", data=endless()) as response:
                assert response.status == 413
        except aiohttp.ClientConnectionError:
            pytest.fail("the answer has to reach the client")


@pytest.mark.req("KR-032")
async def test_a_body_of_nearly_8_mib_is_taken():
    padding = "x" * (MAX_BODY - 4096)
    body = review(object={"metadata": {"annotations": {"a": padding}}})
    data = io.BytesIO(json.dumps(body).encode())
    async with serving(route()) as (_, session), session.post("/pods", data=data) as response:
        assert (await response.json())["response"]["allowed"] is True


@pytest.mark.req("KR-034")
async def test_reviews_under_way_are_finished_at_the_end_and_clients_sent_elsewhere():
    entered, gate = asyncio.Event(), asyncio.Event()

    async def handler(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        entered.set()
        await gate.wait()
        return AdmissionResponse(warnings=("finished",))

    async with serving(route(handler)) as (server, session):
        pending = asyncio.create_task(session.post("/pods", json=review()))
        await entered.wait()
        server.retire()
        stopping = asyncio.create_task(server.stop(30))
        await asyncio.sleep(0)
        gate.set()
        async with await pending as response:
            assert (await response.json())["response"]["warnings"] == ["finished"]
            assert response.headers["Connection"] == "close"
        await stopping
        with pytest.raises(aiohttp.ClientConnectorError):
            await session.post("/pods", json=review())


@pytest.mark.req("KR-034")
async def test_a_review_that_does_not_end_does_not_hold_up_the_end():
    entered = asyncio.Event()

    async def handler(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        entered.set()
        await asyncio.Event().wait()
        return AdmissionResponse()

    async with serving(route(handler)) as (server, session):
        pending = asyncio.create_task(session.post("/pods?timeout=30s", json=review()))
        await entered.wait()
        async with asyncio.timeout(10):
            await server.stop(0.05)
        with pytest.raises(aiohttp.ClientConnectionError):
            await pending


@pytest.mark.req("KR-032")
async def test_a_body_that_does_not_arrive_in_time_is_given_up():
    async with serving(route()) as (server, session):
        trust = session.connector._ssl
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
        writer.write(b"POST /pods?timeout=50ms HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{")
        assert b" 408 " in await reader.readline()
        writer.close()
        await writer.wait_closed()


@pytest.mark.req("KR-032")
async def test_a_body_in_many_pieces_is_put_together():
    async def pieces():
        body = json.dumps(review()).encode()
        for start in range(0, len(body), 100):
            yield body[start : start + 100]
            await asyncio.sleep(0)

    async with serving(route()) as (_, session), session.post("/pods", data=pieces()) as response:
        assert (await response.json())["response"]["allowed"] is True


@pytest.mark.req("KR-057")
@pytest.mark.parametrize("made_up", [{"object": {"spec": 5}}, {"resource": {"resource": "secrets"}}, {}])
async def test_a_namespace_that_cannot_exist_reaches_no_handler_whatever_else_the_review_says(made_up: dict) -> None:
    asked: list[str] = []

    async def keep(request: AdmissionRequest[Pod]) -> AdmissionResponse:
        asked.append(request.namespace)
        return AdmissionResponse()

    await answer(review(namespace="n" * 63), keep)
    assert len(asked) == 1
    with pytest.raises(NotAReview, match="no namespace has a name of 64 characters"):
        await answer(review(namespace="n" * 64, **made_up), keep)
    assert len(asked) == 1


@pytest.mark.req("KR-057")
async def test_names_of_any_length_cost_a_log_line_of_bounded_length() -> None:
    with structlog.testing.capture_logs() as logs:
        response = await answer(review(uid="u" * 10**6, name="n" * 10**6, object={"spec": 5}))
    assert response["allowed"]
    assert [len(entry[key]) for entry in logs for key in ("uid", "name")] == [253, 253]
    assert len(str(logs)) < 2000
