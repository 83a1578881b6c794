"""Informers against a server that refuses, forgets, lies and hangs up."""

import asyncio
import gc
from contextlib import asynccontextmanager

import msgspec
import pytest
from manual_clock import ManualClock
from scripted_server import bookmark, document, drop, event, listing, pod, serving, status, stream

from polyarch.kube import errors, responses
from polyarch.kube.client import Client
from polyarch.kube.informer import Informer, InformerFactory, OnDemandInformer
from polyarch.kube.metrics import Metrics
from polyarch.kube.requests import ListOptions
from polyarch.kube.resources import NODES, PODS, Resource
from polyarch.kube.watch import Bookmark
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata, Unstructured


class Pod(msgspec.Struct, frozen=True, gc=False):
    metadata: ObjectMeta
    kind: str = ""


class Impatient(ManualClock):
    """Backoff takes no time, but is remembered."""

    def __init__(self):
        super().__init__(0)
        self.slept = []

    async def sleep(self, seconds):
        if seconds:
            self.slept.append(seconds)
        self.advance(max(seconds, 0))
        await asyncio.sleep(0)


@pytest.fixture
async def api():
    async with serving() as server:
        server.otherwise = stream(then="hold")
        yield server


@pytest.fixture
def clock():
    return Impatient()


@pytest.fixture
async def client(api, clock):
    async with Client(api.configuration(), clock=clock) as client:
        yield client


@asynccontextmanager
async def running(*tasks):
    async with asyncio.timeout(20):
        running = [asyncio.create_task(task.run()) for task in tasks]
        try:
            yield
        finally:
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def until(condition):
    """Waits for the work of other tasks to show; the timeout is that of ``running``."""
    while not condition():
        await asyncio.sleep(0.005)


@pytest.fixture
def informer(client, clock):
    return Informer(client, PODS, Pod, clock=clock, chance=lambda: 0.5)


def names(informer):
    return sorted(key.name for key in informer.store)


def watched(api):
    """What was asked for, in words."""
    words = []
    for request in api.requests:
        query = request.query
        if query.get("sendInitialEvents"):
            words.append("stream")
        elif query.get("watch"):
            words.append(f"watch {query.get('resourceVersion')}")
        else:
            words.append(f"page {query.get('continue', '')}".strip())
    return words


STREAMED = (event("ADDED", pod("a", 1)), event("ADDED", pod("b", 2)), bookmark(7, end=True))


@pytest.mark.req("KR-011")
async def test_a_streaming_list_fills_the_store(api, informer):
    api.script(stream(*STREAMED, event("MODIFIED", pod("a", 8)), event("DELETED", pod("b", 9)), then="hold"))
    async with running(informer):
        await informer.synced()
        await until(lambda: names(informer) == ["a"])
        assert informer.store.get(ObjectKey("demo", "a")).metadata.resource_version == "8"
    assert watched(api) == ["stream"]
    assert api.last.query["allowWatchBookmarks"] == "true"


@pytest.mark.req("KR-011")
async def test_nothing_is_complete_before_the_end_mark(api, informer):
    end = asyncio.Event()
    api.script(stream(event("ADDED", pod("a", 1)), bookmark(5), end, bookmark(7, end=True), then="hold"))
    async with running(informer):
        await until(lambda: len(api.requests) == 1)
        await asyncio.sleep(0.05)
        assert not informer.has_synced
        assert len(informer.store) == 0
        end.set()
        await informer.synced()
        assert names(informer) == ["a"]


@pytest.mark.req("KR-011")
@pytest.mark.parametrize("code", [400, 422])
async def test_a_server_without_streaming_lists_is_read_in_pages(api, informer, clock, code, capsys):
    """As servers without the feature, and older ones, answer to sendInitialEvents."""
    message = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"
    api.script(
        status(code, "Invalid", message),
        listing(pod("a", 1), version="5", token="more"),
        listing(pod("b", 2), version="5"),
        stream(event("ADDED", pod("c", 6)), then="hold"),
    )
    async with running(informer):
        await until(lambda: names(informer) == ["a", "b", "c"])
    assert watched(api) == ["stream", "page", "page more", "watch 5"]
    assert clock.slept == []
    assert informer.blind_seconds == 0
    told = capsys.readouterr().out
    assert "listing pages" in told
    assert "warning" not in told, "there is nothing to look after"


@pytest.mark.req("KR-012")
async def test_410_as_http_status_leads_to_a_fresh_list(api, informer):
    """What vanished while we did not look is deleted."""
    changes = []
    informer.add_handler(lambda change: changes.append((change.kind, change.key.name, change.initial)))
    api.script(
        stream(*STREAMED),
        status(410, "Expired"),
        stream(event("ADDED", pod("b", 2)), event("ADDED", pod("c", 20)), bookmark(21, end=True), then="hold"),
    )
    async with running(informer):
        await until(lambda: names(informer) == ["b", "c"])
    assert watched(api) == ["stream", "watch 7", "stream"]
    assert changes == [("apply", "a", True), ("apply", "b", True), ("apply", "c", False), ("delete", "a", False)]


@pytest.mark.req("KR-012")
async def test_410_as_error_event_leads_to_a_fresh_list(api, informer):
    gone = event("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"})
    api.script(stream(*STREAMED, gone, then="hold"), stream(bookmark(30, end=True), then="hold"))
    async with running(informer):
        await until(lambda: watched(api) == ["stream", "stream"])
        await until(lambda: names(informer) == [])


@pytest.mark.req("KR-012")
async def test_410_between_pages_begins_the_list_again(api, informer):
    api.script(
        status(400),
        listing(pod("a", 1), version="5", token="more"),
        status(410, "Expired"),
        listing(pod("b", 8), version="9"),
    )
    async with running(informer):
        await informer.synced()
        assert names(informer) == ["b"]
        await until(lambda: len(api.requests) == 5)
    assert watched(api) == ["stream", "page", "page more", "page", "watch 9"]


@pytest.mark.req("KR-012")
async def test_the_watch_resumes_after_the_last_event_or_bookmark(api, informer):
    """Nothing is listed again when a connection ends or breaks."""
    api.script(
        stream(*STREAMED, event("MODIFIED", pod("a", 12)), then="cut"),
        stream(bookmark(40), then="end"),
        drop(),
        stream(event("ADDED", pod("c", 41)), then="hold"),
    )
    async with running(informer):
        await until(lambda: names(informer) == ["a", "b", "c"])
    assert watched(api) == ["stream", "watch 12", "watch 40", "watch 40"]


@pytest.mark.req("KR-013")
@pytest.mark.parametrize("how", ["cut", "end"])
async def test_an_event_cut_off_in_the_middle_of_its_line_is_not_lost(api, informer, how):
    """Its resourceVersion was not seen either, so it comes again."""
    half = event("MODIFIED", pod("a", 12))
    api.script(stream(*STREAMED, half[: len(half) // 2], then=how), stream(half, then="hold"))
    async with running(informer):
        await until(
            lambda: len(informer.store) and informer.store.get(ObjectKey("demo", "a")).metadata.resource_version == "12"
        )
    assert watched(api) == ["stream", "watch 7"]


@pytest.mark.req("KR-012")
async def test_a_garbled_stream_leads_to_a_fresh_list(api, informer):
    """What came before the nonsense is kept."""
    api.script(
        stream(
            *STREAMED, event("ADDED", pod("c", 9)), b"<html>504</html>\n", event("DELETED", pod("a", 10)), then="hold"
        ),
        stream(event("ADDED", pod("d", 20)), bookmark(21, end=True), then="hold"),
    )
    seen = []
    informer.add_handler(lambda change: seen.append(change.key.name))
    async with running(informer):
        await until(lambda: names(informer) == ["d"])
    assert seen == ["a", "b", "c", "d", "a", "b", "c"]


@pytest.mark.req("KR-012")
async def test_the_server_is_asked_to_end_the_watch_after_five_to_ten_minutes(api, client, clock):
    """At random, so that the watches of a restarted server do not all end together."""
    for chance in (0.0, 0.5, 0.999):
        async with running(Informer(client, PODS, Pod, clock=clock, chance=lambda value=chance: value)):
            await until(lambda: api.requests)
        assert api.requests.pop(0).query["timeoutSeconds"] == str(300 + int(chance * 300))


@pytest.mark.req("KR-012")
async def test_a_watch_that_falls_silent_is_given_up_just_above_its_timeout(api, client, monkeypatch):
    """A half-open connection would otherwise hide every change for ever."""
    api.script(stream(bookmark(1), then="hold"))
    batches = []
    monkeypatch.setattr(responses, "IDLE_MARGIN", responses.IDLE_MARGIN - 14.9)

    async def read():
        async with client.watch(PODS, ListOptions(), type=Pod, resource_version="1", timeout_seconds=0) as events:
            async for batch in events:
                batches.append(batch)  # noqa: PERF401 - what came before the failure counts

    with pytest.raises(errors.ConnectionFailed, match="silent for too long"):
        await read()
    assert batches == [[Bookmark("1")]]


@pytest.mark.req("KR-012")
async def test_failures_wait_with_jitter_and_do_not_end_the_informer(api, informer, clock):
    # Two drops: aiohttp itself asks once more when an answer to a GET is cut off.
    api.script(drop(), drop(), status(503), status(429, headers={"Retry-After": "9"}), listing(version="5"))
    async with running(informer):
        await informer.synced()
    assert clock.slept[:3] == [0.25, 0.5, 9 + 1.0]
    assert informer.last_error is None


@pytest.mark.req("KR-012")
async def test_a_refusal_says_which_verb_on_which_resource_is_missing(api, client, clock):
    """Readiness is off while it lasts, the process goes on, and recovers by itself."""
    informers = InformerFactory(client, clock=clock, chance=lambda: 0.5, freeze=False)
    informer = informers.informer(PODS, Pod, namespace="demo")
    message = 'pods is forbidden: User "robot" cannot watch resource "pods" in API group "" in the namespace "demo"'
    allowed = asyncio.Event()

    async def until_allowed(request):
        if not allowed.is_set():
            return await status(403, "Forbidden", message)(request)
        if "watch" in request.query:
            return await stream(then="hold")(request)
        return await listing(pod("a", 1), version="5")(request)

    api.otherwise = until_allowed
    async with running(informers):
        await until(lambda: informer.problem is not None)
        assert "not allowed to" in informer.problem
        assert "pods in namespace demo" in informer.problem
        assert 'User "robot" cannot watch' in informer.problem
        assert informers.problems == [informer.problem]
        allowed.set()
        await informers.synced()
        await until(lambda: not informers.problems)
        assert names(informer) == ["a"]


@pytest.mark.req("KR-012")
async def test_a_refusal_after_the_first_list_keeps_the_store_and_turns_readiness_off(api, informer):
    api.script(stream(*STREAMED))
    api.otherwise = status(403, "Forbidden", "no more")
    async with running(informer):
        await until(lambda: informer.problem is not None)
        assert names(informer) == ["a", "b"]
        assert informer.problem.startswith("not allowed to watch pods: grant get, list and watch")


@pytest.mark.req("KR-012")
async def test_expired_credentials_are_told_from_missing_rights(api, informer):
    api.otherwise = status(401, "Unauthorized", "Unauthorized")
    async with running(informer):
        await until(lambda: informer.problem is not None)
    assert "does not accept our credentials" in informer.problem


@pytest.mark.req("KR-012", "PL-107")
async def test_the_time_in_which_nothing_is_seen_is_known(api, informer, clock):
    """Silence then means nothing."""
    api.script(stream(*STREAMED), *[drop()] * 12, listing(version="7"), stream(then="hold"))
    async with running(informer):
        await until(lambda: informer.blind_seconds > 0 and informer.last_error is None)
        blind = informer.blind_seconds
        assert blind <= sum(clock.slept)
        await clock.sleep(60)
        assert informer.blind_seconds == blind


@pytest.mark.req("KR-012")
@pytest.mark.parametrize(
    ("version", "then"), [("7", "watch 7"), ("9", "watch 7"), ("6", "stream")], ids=["same", "later", "restored"]
)
async def test_a_server_that_was_away_is_asked_whether_its_storage_was_restored(api, informer, version, then):
    """A watch from a resourceVersion that is yet to come would be silent, and what was undone stay known."""
    undone = stream(event("ADDED", pod("c", 2)), bookmark(6, end=True), then="hold")
    lost = [drop()] * 2  # aiohttp sends the first again, as the connection had been used before
    api.script(stream(*STREAMED), *lost, listing(version=version), undone if then == "stream" else stream(then="hold"))
    async with running(informer):
        await until(lambda: len(api.requests) == 5)
        if then == "stream":
            await until(lambda: names(informer) == ["c"])
    assert watched(api) == ["stream", "watch 7", "watch 7", "page", then]
    assert api.requests[3].query["limit"] == "1"


@pytest.mark.req("KR-012")
async def test_an_unreachable_server_does_not_turn_readiness_off(api, informer):
    """What is known serves on; all replicas unready at once would help nobody."""
    api.script(stream(*STREAMED))
    api.otherwise = drop()
    async with running(informer):
        await until(lambda: len(api.requests) > 10 and informer.last_error is not None)
        assert informer.problem is None
        assert names(informer) == ["a", "b"]
        assert "cut off" in informer.last_error


@pytest.mark.req("PL-531")
async def test_a_watch_that_is_lost_shows_in_a_metric_and_a_line_each_minute(api, client, clock, capsys):
    """No restart brings the API server back, so that is all that happens."""
    metrics = Metrics()
    informers = InformerFactory(client, clock=clock, chance=lambda: 1.0, metrics=metrics, freeze=False)
    informer = informers.informer(PODS, Pod, namespace="demo")
    api.script(stream(*STREAMED), *[drop()] * 80, listing(version="7"), stream(then="hold"))

    def broken():
        return metrics.registry.get_sample_value("polyarch_watch_broken_seconds", {"resource": "pods in demo"})

    assert broken() == 0
    worst = 0.0
    async with running(informers):
        await informer.synced()
        while len(api.requests) < 83:
            worst = max(worst, broken())
            await asyncio.sleep(0.001)
        await until(lambda: informer.last_error is None)
        assert broken() == 0
    assert 60 < worst <= sum(clock.slept)
    lines = [line for line in capsys.readouterr().out.splitlines() if "retrying" in line]
    assert sum(clock.slept) / 60 - 1 <= len(lines) <= sum(clock.slept) / 60 + 1


@pytest.mark.req("KR-015")
async def test_one_watch_serves_everybody_who_asks_for_the_same(api, client, clock):
    """And indexes add up."""
    informers = InformerFactory(client, clock=clock, freeze=False)
    by_name = {"name": lambda object_: [object_.metadata.name]}
    by_uid = {"uid": lambda object_: [object_.metadata.uid]}
    one = informers.informer(PODS, Pod, label_selector="a=b", indexes=by_name)
    assert informers.informer(PODS, Pod, label_selector="a=b", indexes=by_uid) is one
    assert informers.informer(PODS, Pod) is not one
    assert informers.informer(PODS, Pod, namespace="demo") is not informers.informer(PODS, Pod)
    api.otherwise = stream(*STREAMED, then="hold")
    async with running(informers):
        await informers.synced()
        assert one.store.by_index("name", "a") == one.store.by_index("uid", "uid-a") == [ObjectKey("demo", "a")]
    assert len(api.requests) == 3


class Spec(msgspec.Struct, frozen=True, gc=False):
    node_name: int = msgspec.field(default=0, name="nodeName")


class Strict(msgspec.Struct, frozen=True, gc=False):
    """A type that not every pod of these tests fits."""

    metadata: ObjectMeta
    spec: Spec = Spec()


def odd(version, node_name="not a number"):
    return {**pod("odd", version), "spec": {"nodeName": node_name}}


@pytest.mark.req("KR-050")
@pytest.mark.parametrize("streaming", [True, False], ids=["streaming list", "pages"])
async def test_several_types_of_one_resource_share_one_watch(api, client, clock, streaming):
    """Before, the second type was a ValueError, and two roles could not stand in one process."""
    informers = InformerFactory(client, clock=clock, freeze=False)
    pods = informers.informer(PODS, Pod)
    metadata = informers.informer(PODS, PartialObjectMetadata, indexes={"name": lambda each: [each.metadata.name]})
    strict = informers.informer(PODS, Strict)
    told = []
    strict.add_handler(lambda change: told.append((change.kind, change.key.name)))
    live = (event("MODIFIED", pod("a", 8)), event("DELETED", pod("b", 9)), event("MODIFIED", odd(10, 5)))
    if streaming:
        start = (event("ADDED", pod("a", 1)), event("ADDED", pod("b", 2)), event("ADDED", odd(4)))
        api.script(stream(*start, bookmark(7, end=True), bookmark(7), *live, then="hold"))
    else:
        api.script(status(400, "Invalid", "no"), listing(pod("a", 1), pod("b", 2), odd(4), version="7"))
        api.script(stream(*live, then="hold"))
    async with running(informers):
        await informers.synced()
        await until(lambda: names(pods) == names(metadata) == ["a", "odd"])
        await until(lambda: names(strict) == ["a", "odd"])
        assert type(pods.store.get(ObjectKey("demo", "a"))) is Pod
        assert type(metadata.store.get(ObjectKey("demo", "a"))) is PartialObjectMetadata
        assert metadata.store.by_index("name", "a") == [ObjectKey("demo", "a")]
        assert [key for kind, key in told if kind == "apply"] == ["a", "b", "a", "odd"], "odd only when it fits"
    assert watched(api) == (["stream"] if streaming else ["stream", "page", "watch 7"])
    assert "as=PartialObjectMetadata" not in api.last.headers["Accept"], (
        "who wants metadata alone gets it from the rest"
    )


@pytest.mark.req("KR-050")
async def test_an_object_that_ceases_to_fit_one_type_is_gone_for_that_type_alone(api, client, clock):
    informers = InformerFactory(client, clock=clock, freeze=False)
    pods, strict = informers.informer(PODS, Pod), informers.informer(PODS, Strict)
    api.script(stream(event("ADDED", odd(1, 5)), bookmark(2, end=True), event("MODIFIED", odd(4)), then="hold"))
    async with running(informers):
        await until(lambda: pods.store and pods.store.get(ObjectKey("demo", "odd")).metadata.resource_version == "4")
        assert names(strict) == []


@pytest.mark.req("KR-050")
async def test_another_type_asked_for_later_begins_the_watch_anew(api, client, clock):
    """Objects have to be read again; those who have them already keep them meanwhile."""
    informers = InformerFactory(client, clock=clock, freeze=False)
    first = informers.informer(PODS, Pod)
    api.otherwise = stream(*STREAMED, then="hold")
    async with running(informers):
        await first.synced()
        changes = []
        first.add_handler(lambda change: changes.append((change.key.name, change.initial)))
        late = informers.informer(PODS, PartialObjectMetadata)
        assert not informers.has_synced
        assert names(first) == ["a", "b"]
        await late.synced()
        assert names(first) == names(late) == ["a", "b"]
        assert changes == [("a", True), ("b", True)], "of what did not change nobody is told again"
    assert watched(api) == ["stream", "stream"]


@pytest.mark.req("KR-055")
async def test_metadata_alone_is_asked_for_where_nobody_wants_more(api, client, clock):
    """The API server leaves out the rest, which of Nodes and ConfigMaps is most."""
    informers = InformerFactory(client, clock=clock, freeze=False)
    informers.informer(NODES, PartialObjectMetadata)
    async with running(informers):
        await until(lambda: api.requests)
    assert "as=PartialObjectMetadata" in api.last.headers["Accept"]


@pytest.mark.req("PL-301")
async def test_an_informer_on_demand_watches_only_while_it_is_wanted(api, client, clock):
    """And nobody waits for it, as it may be refused."""
    metrics = Metrics()
    informers = InformerFactory(client, clock=clock, metrics=metrics, freeze=False)
    heard = []
    pods = OnDemandInformer(informers, PODS, Pod, lambda change: heard.append(change.key.name))
    api.otherwise = status(403, "Forbidden", "no")
    async with running(informers):
        await informers.synced()
        assert (pods.is_wanted, pods.is_known, pods.problem, list(pods.values())) == (False, False, None, [])
        await pods.synced()
        pods.want(True)
        pods.want(True)
        await informers.synced()
        await until(lambda: pods.problem is not None)
        assert informers.problems == [], "that is for whoever wants it"

        async def allowed(request):
            answer = stream(then="hold") if "watch" in request.query else listing(pod("a", 1), pod("b", 2), version="5")
            return await answer(request)

        api.otherwise = allowed
        await pods.synced()
        assert heard == ["a", "b"]
        assert pods.get(ObjectKey("demo", "a")).metadata.name == "a"
        assert 'resource="pods"' in metrics.render()[0].decode()
        pods.want(False)
        assert (pods.is_known, pods.get(ObjectKey("demo", "a"))) == (False, None)
        await until(lambda: not any("watch pods" in task.get_name() for task in asyncio.all_tasks()))
        assert 'resource="pods"' not in metrics.render()[0].decode()
        api.otherwise = stream(*STREAMED, then="hold")
        pods.want(True)
        await pods.synced()
        assert heard == ["a", "b", "a", "b"], "it is listed once more"


@pytest.mark.req("KR-015")
async def test_nobody_waits_for_an_informer_that_was_released_before_its_first_list(api, client, clock):
    """A setting that asks for objects and is taken back at once must not hold up the start for ever."""
    informers = InformerFactory(client, clock=clock, freeze=False)
    api.otherwise = status(403, "Forbidden", "no")
    required = informers.informer(PODS, Pod)
    passing = OnDemandInformer(informers, NODES, Pod, lambda change: None)
    async with running(informers):
        passing.want(True)
        waiting = [asyncio.create_task(each.synced()) for each in (informers, passing)]
        await asyncio.sleep(0)
        informers.release(required)
        passing.want(False)
        await asyncio.gather(*waiting)
    assert not required.has_synced


async def test_an_informer_on_demand_leaves_what_others_need(api, client, clock):
    informers = InformerFactory(client, clock=clock, freeze=False)
    lasting = informers.informer(PODS, Pod)
    heard = []
    passing = OnDemandInformer(informers, PODS, Pod, lambda change: heard.append(change.key.name))
    gate = asyncio.Event()
    api.otherwise = stream(*STREAMED, gate, event("ADDED", pod("c", 9)), then="hold")
    async with running(informers):
        await informers.synced()
        passing.want(True)
        assert heard == ["a", "b"]
        passing.want(False)
        gate.set()
        await until(lambda: "c" in names(lasting))
    assert heard == ["a", "b"]
    assert watched(api) == ["stream"]


@pytest.mark.req("KR-051")
async def test_whole_objects_can_be_watched(api, client, clock):
    """For those few that are compared as a whole, in a list and in events."""
    informer = Informer(client, PODS, Unstructured, clock=clock)
    gate = asyncio.Event()
    changed = event("MODIFIED", {**pod("a", 8), "spec": {"x": [1]}})
    api.script(stream(*STREAMED, gate, changed, then="hold"))
    async with running(informer):
        await informer.synced()
        assert informer.store.get(ObjectKey("demo", "a")).document["metadata"]["uid"] == "uid-a"
        gate.set()
        await until(lambda: informer.store.get(ObjectKey("demo", "a")).metadata.resource_version == "8")
    assert informer.store.get(ObjectKey("demo", "a")).document["spec"] == {"x": [1]}


@pytest.mark.req("KR-015")
async def test_a_handler_added_late_hears_of_everything(api, informer):
    api.script(stream(*STREAMED, then="hold"))
    async with running(informer):
        await informer.synced()
        late = []
        informer.add_handler(lambda change: late.append((change.key.name, change.initial)))
        assert late == [("a", True), ("b", True)]


@pytest.mark.req("KR-015")
async def test_a_handler_that_fails_harms_nobody_else(api, informer, capsys):
    heard = []

    def broken(change):
        raise RuntimeError("a bug")

    informer.add_handler(broken)
    informer.add_handler(lambda change: heard.append(change.key.name))
    api.script(stream(*STREAMED, then="hold"))
    async with running(informer):
        await until(lambda: heard == ["a", "b"])
    assert names(informer) == ["a", "b"]
    assert "handler failed" in capsys.readouterr().out


@pytest.mark.req("KR-015")
async def test_an_informer_asked_for_later_starts_at_once(api, client, clock):
    informers = InformerFactory(client, clock=clock, freeze=False)
    informers.informer(PODS, Pod)
    api.otherwise = stream(*STREAMED, then="hold")
    async with running(informers):
        await informers.synced()
        nodes = informers.informer(NODES, Pod)
        assert not informers.has_synced
        assert informers.problems == ["the cache of nodes is not complete yet"]
        await informers.synced()
        assert nodes.has_synced


@pytest.mark.req("KR-014")
async def test_after_the_first_sync_the_caches_are_out_of_the_collectors_way(api, client, clock):
    informers = InformerFactory(client, clock=clock)
    informers.informer(PODS, Pod)
    api.otherwise = stream(*STREAMED, then="hold")
    gc.unfreeze()
    try:
        async with running(informers):
            await informers.synced()
            await until(lambda: gc.get_freeze_count() > 0)
    finally:
        gc.unfreeze()


@pytest.mark.req("KR-022")
async def test_the_informers_memory_of_own_writes_follows_its_watch(api, informer):
    seen = asyncio.Event()
    api.script(stream(*STREAMED, seen, event("MODIFIED", pod("a", 12)), then="hold"))
    async with running(informer):
        await informer.synced()
        informer.writes.note_write(ObjectKey("demo", "a"), "12")
        assert informer.writes.is_stale(ObjectKey("demo", "a"))
        seen.set()
        await until(lambda: len(informer.writes) == 0)


@pytest.mark.req("KR-012")
async def test_a_bug_met_by_one_object_does_not_end_the_cache(api, informer, capsys, monkeypatch):
    """It is logged, and the list is read again."""
    take, calls = informer.store.take, []

    def fails_once(output):
        calls.append(output)
        if len(calls) == 1:
            raise RuntimeError("a bug")
        return take(output)

    monkeypatch.setattr(informer.store, "take", fails_once)
    api.script(stream(*STREAMED, then="hold"), stream(*STREAMED, then="hold"))
    async with running(informer):
        await informer.synced()
    assert names(informer) == ["a", "b"]
    assert "listing again" in capsys.readouterr().out


@pytest.mark.req("KR-012")
async def test_a_cancellation_that_was_not_meant_for_the_watch_does_not_end_the_cache(api, informer, monkeypatch):
    """A connection attempt that is shared with a cancelled request must not end the cache in silence."""
    take, calls = informer.store.take, []

    def cancelled_once(output):
        calls.append(output)
        if len(calls) == 1:
            raise asyncio.CancelledError
        return take(output)

    monkeypatch.setattr(informer.store, "take", cancelled_once)
    api.script(stream(*STREAMED, then="hold"), stream(*STREAMED, then="hold"))
    async with running(informer):
        await informer.synced()
    assert names(informer) == ["a", "b"]


def test_an_informer_is_named_as_people_name_it(client):
    selected = Informer(client, PODS, Pod, selection=ListOptions("demo", "app=web", "spec.nodeName="))
    assert str(selected) == "pods in demo (app=web, spec.nodeName=)"


async def test_a_page_without_what_a_list_must_have_is_an_error_not_an_empty_cache(api, informer):
    api.script(status(400), document({"kind": "PodList"}), listing(pod("a", 1), version="5"))
    async with running(informer):
        await informer.synced()
    assert names(informer) == ["a"]


# -- kinds that are not there ------------------------------------------------------------------------------------------

THINGS = Resource("example.com", "v1", "things", "Thing")


class Definitions:
    """An API server that has kinds of these versions; each has one object."""

    def __init__(self, *versions):
        self.versions = versions
        self.is_discoverable = True
        self.ended = asyncio.Event()
        """Watches end then."""

    async def __call__(self, request):
        group, entries = THINGS.group, [{"name": THINGS.plural, "kind": THINGS.kind, "namespaced": True}]
        others = {"name": "apps", "versions": [{"version": "v1"}]}
        first = (event("ADDED", pod("a", 1)), bookmark(7, end=True)) if "sendInitialEvents" in request.query else ()
        objects = stream(*first, self.ended) if "watch" in request.query else listing(pod("a", 1), version="7")
        found = {f"/apis/{group}/{version}/{THINGS.plural}": objects for version in self.versions}
        if self.is_discoverable:
            ours = {"name": group, "versions": [{"version": each} for each in self.versions]}
            found["/apis"] = document({"groups": [others, *([ours] if self.versions else [])]})
            found |= {f"/apis/{group}/{each}": document({"resources": entries}) for each in self.versions}
        return await found.get(request.path, status(404, "NotFound", "the server could not find it"))(request)


@pytest.mark.req("KR-012")
async def test_a_process_does_without_a_kind_and_takes_it_up_when_it_is_there(api, client, clock):
    """An operator that is newer than the definitions in the cluster works for those that exist."""
    api.otherwise = definitions = Definitions()
    informers = InformerFactory(client, clock=clock, chance=lambda: 0.5)
    informer = informers.informer(THINGS, Pod)
    changes = []
    informer.add_handler(changes.append)
    async with running(informers):
        await informers.synced()
        assert informers.has_synced
        assert informers.problems == []
        assert informers.missing == ["things.example.com is not served: apply its definition"]
        assert names(informer) == []
        assert informer.broken_seconds == 0
        definitions.versions = ("v1",)
        await until(lambda: names(informer) == ["a"])
        assert informers.missing == []
    assert [change.key.name for change in changes] == ["a"]


@pytest.mark.req("KR-012")
async def test_a_kind_whose_definition_is_deleted_has_no_objects_left(api, client, clock):
    api.otherwise = definitions = Definitions("v1")
    informers = InformerFactory(client, clock=clock, chance=lambda: 0.5)
    informer = informers.informer(THINGS, Pod)
    async with running(informers):
        await informers.synced()
        assert names(informer) == ["a"]
        definitions.versions = ()
        definitions.ended.set()
        await until(lambda: names(informer) == [])
        await until(lambda: informers.missing)


@pytest.mark.req("KR-012")
@pytest.mark.parametrize(
    "definitions",
    [
        pytest.param(lambda: Definitions("v2"), id="it exists in another version, with objects"),
        pytest.param(lambda: unanswering(), id="whoever answers with 404 is no API server"),
    ],
)
async def test_a_404_alone_does_not_say_that_there_are_no_objects(api, client, clock, definitions):
    """An operator would remove what it made."""
    api.otherwise = definitions()
    informers = InformerFactory(client, clock=clock, chance=lambda: 0.5)
    informer = informers.informer(THINGS, Pod)
    async with running(informers):
        await until(lambda: len(api.requests) > 20)
        assert not informer.has_synced
        assert informers.missing == []
        assert informers.problems == ["the cache of things.example.com is not complete yet"]
        assert informer.broken_seconds > 0


@pytest.mark.req("KR-012", "KR-050")
async def test_a_second_type_of_a_missing_kind_is_complete_as_well(api, client, clock):
    api.otherwise = Definitions()
    informers = InformerFactory(client, clock=clock, chance=lambda: 0.5)
    informers.informer(THINGS, Pod)
    async with running(informers):
        await informers.synced()
        later = informers.informer(THINGS, PartialObjectMetadata)
        await later.synced()
        assert later.is_missing


def unanswering():
    found = Definitions()
    found.is_discoverable = False
    return found
