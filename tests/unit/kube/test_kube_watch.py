"""The watch as a pure machine, driven by hand through what servers and networks do."""

import pytest

from polyarch.kube import errors
from polyarch.kube.watch import (
    Apply,
    Bookmark,
    Delete,
    Empty,
    Init,
    InitApply,
    InitDone,
    KindNotServed,
    ObjectChanged,
    ObjectDeleted,
    Page,
    Paging,
    RequestFailed,
    StorageVersion,
    StreamEnded,
    Streaming,
    StreamOpened,
    WatchHealth,
    Watching,
    WatchRequest,
    delay_before,
    newer,
    refused,
    request_for,
    step,
)
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata

GONE = errors.Gone(410, reason="Expired")
FORBIDDEN = errors.Forbidden(403)
RESET = errors.ConnectionFailed("reset")
GARBLED = errors.UnreadableAnswer("what?")


def thing(name, version):
    return PartialObjectMetadata(ObjectMeta(name=name, namespace="demo", resource_version=str(version)))


def history(state, *events):
    """Feeds events one after the other; the last state and all outputs."""
    outputs = []
    for event in events:
        state, more = step(state, event)
        outputs += more
    return state, outputs


A1, A2, B1 = thing("a", 1), thing("a", 2), thing("b", 1)
WATCHING = Watching("10", WatchHealth())


@pytest.mark.req("KR-010", "KR-011")
def test_a_streaming_list_then_the_watch():
    """One stream brings the list, its end mark and what follows."""
    assert request_for(Empty()) == WatchRequest("streaming-list")
    state, outputs = history(
        Empty(),
        StreamOpened(),
        ObjectChanged(A1),
        ObjectChanged(B1),
        Bookmark("7"),
        Bookmark("9", initial_end=True),
        ObjectChanged(A2),
        Bookmark("20"),
    )
    assert outputs == [Init(), InitApply(A1), InitApply(B1), InitDone("9"), Apply(A2)]
    assert request_for(state) == WatchRequest("watch", resource_version="20")


@pytest.mark.req("KR-010")
def test_pages_then_the_watch():
    """The watch begins at the version of the first page."""
    state = Empty(WatchHealth(streaming=False))
    assert request_for(state) == WatchRequest("page")
    state, outputs = step(state, Page([A1], "5", "next"))
    assert outputs == (Init(), InitApply(A1))
    assert request_for(state) == WatchRequest("page", continue_token="next")
    state, outputs = step(state, Page([B1], "6"))
    assert outputs == (InitApply(B1), InitDone("5"))
    assert request_for(state) == WatchRequest("watch", resource_version="5")


@pytest.mark.req("KR-010")
def test_an_empty_list_is_complete_too():
    assert history(Empty(WatchHealth(streaming=False)), Page([], "5"))[1] == [Init(), InitDone("5")]
    assert history(Empty(), StreamOpened(), Bookmark("5", initial_end=True))[1] == [Init(), InitDone("5")]


@pytest.mark.req("KR-011")
@pytest.mark.parametrize("status", [400, 405, 406, 422])
def test_a_server_that_refuses_streaming_lists_is_never_asked_again(status):
    """No delay, no failure counted: the next request is the first page."""
    error = errors.error_for(status, b"{}")
    state, outputs = history(Empty(), RequestFailed(error))
    assert outputs == []
    assert request_for(state) == WatchRequest("page")
    assert delay_before(state, lambda: 1.0) == 0
    state, _ = history(state, Page([A1], "5"), StreamOpened(), RequestFailed(GONE))
    assert request_for(state) == WatchRequest("page")


@pytest.mark.req("KR-011")
def test_a_streaming_list_that_keeps_breaking_gives_way_to_pages():
    """Whatever the reason, such as a server that never sends the end mark."""
    state = Empty()
    for _ in range(2):
        assert request_for(state) == WatchRequest("streaming-list")
        state, _ = history(state, StreamOpened(), ObjectChanged(A1), RequestFailed(RESET))
    assert request_for(state) == WatchRequest("page")


@pytest.mark.req("KR-010")
def test_a_broken_streaming_list_starts_from_nothing():
    """Half a list is no list."""
    _, outputs = history(
        Empty(),
        StreamOpened(),
        ObjectChanged(A1),
        StreamEnded(1.0),
        StreamOpened(),
        ObjectChanged(B1),
        Bookmark("9", initial_end=True),
    )
    assert outputs == [Init(), InitApply(A1), Init(), InitApply(B1), InitDone("9")]


@pytest.mark.req("KR-010")
def test_an_object_deleted_during_the_list_is_not_in_it():
    _, outputs = history(Empty(), StreamOpened(), ObjectChanged(A1), ObjectDeleted(ObjectKey("demo", "a"), "2"))
    assert outputs[-1] == Delete(ObjectKey("demo", "a"), "2")


@pytest.mark.req("KR-012")
@pytest.mark.parametrize("error", [RESET, errors.Unavailable(503)], ids=["unreachable", "503"])
def test_after_an_outage_storage_is_asked_whether_it_was_restored(error):
    """A watch from a resourceVersion that is yet to come would be silent."""
    state, _ = history(WATCHING, RequestFailed(error), RequestFailed(errors.error_for(429, b"{}")))
    assert request_for(state) == WatchRequest("watch", resource_version="10", verify=True)
    assert request_for(step(state, StorageVersion("9"))[0]) == WatchRequest("streaming-list")
    for later in ("10", "11"):
        assert request_for(step(state, StorageVersion(later))[0]) == WatchRequest("watch", resource_version="10")


@pytest.mark.req("KR-012")
@pytest.mark.parametrize(
    "event", [StreamEnded(400.0), RequestFailed(RESET, lasted=3.0), RequestFailed(errors.error_for(429, b"{}"))]
)
def test_a_watch_that_ends_is_resumed_without_a_question(event):
    assert not request_for(step(WATCHING, event)[0]).verify


@pytest.mark.req("KR-012")
def test_the_watch_resumes_from_the_last_thing_seen():
    state, outputs = history(
        WATCHING,
        StreamOpened(),
        ObjectChanged(thing("a", 12)),
        ObjectDeleted(ObjectKey("demo", "b"), "14"),
        StreamEnded(300.0),
    )
    assert [type(output) for output in outputs] == [Apply, Delete]
    assert request_for(state) == WatchRequest("watch", resource_version="14")
    state, _ = history(state, Bookmark("99"), RequestFailed(RESET, lasted=1.0))
    assert request_for(state) == WatchRequest("watch", resource_version="99")


@pytest.mark.req("KR-012")
@pytest.mark.parametrize("error", [GONE, errors.NotFound(404), GARBLED, errors.BadRequest(400)])
def test_what_makes_the_known_version_useless_leads_to_a_fresh_list(error):
    """410 as HTTP status and as ERROR event are the same input here."""
    state, outputs = history(WATCHING, StreamOpened(), RequestFailed(error, lasted=5.0))
    assert isinstance(state, Empty)
    assert outputs == []


@pytest.mark.req("KR-012")
def test_a_kind_that_does_not_exist_is_a_complete_list_without_objects():
    """And the next request is for a list again."""
    state, outputs = history(
        WATCHING, RequestFailed(errors.NotFound(404)), RequestFailed(errors.NotFound(404)), KindNotServed()
    )
    assert outputs == [Init(), InitDone()]
    assert isinstance(state, Empty)
    assert delay_before(state, lambda: 1.0) > 0


@pytest.mark.req("KR-012")
def test_a_version_from_the_future_leads_to_a_fresh_list():
    """Etcd was restored from a backup."""
    cause = errors.StatusCause(reason="ResourceVersionTooLarge")
    state, _ = history(WATCHING, RequestFailed(errors.ServerTimeout(504, causes=(cause,))))
    assert isinstance(state, Empty)


@pytest.mark.req("KR-012")
@pytest.mark.parametrize("error", [RESET, errors.Unavailable(503), errors.TooManyRequests(429), FORBIDDEN])
def test_what_may_pass_keeps_what_is_known(error):
    """No list is read again for a connection that broke."""
    state, _ = history(WATCHING, RequestFailed(error))
    assert (request_for(state).kind, request_for(state).resource_version) == ("watch", "10")


@pytest.mark.req("KR-012")
def test_410_between_pages_begins_the_list_again():
    state, outputs = history(Empty(WatchHealth(streaming=False)), Page([A1], "5", "next"), RequestFailed(GONE))
    assert request_for(state) == WatchRequest("page")
    state, outputs = step(state, Page([B1], "9"))
    assert outputs == (Init(), InitApply(B1), InitDone("9"))


@pytest.mark.req("KR-012")
def test_a_page_that_fails_for_now_is_asked_for_again():
    state, _ = history(
        Empty(WatchHealth(streaming=False)), Page([A1], "5", "next"), RequestFailed(errors.Unavailable(503))
    )
    assert request_for(state) == WatchRequest("page", continue_token="next")


@pytest.mark.req("KR-012")
@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (errors.ServerTimeout(504), [0.5, 1, 2, 4, 8, 10, 10, 10, 10]),
        (RESET, [0.5, 1, 2, 2, 2, 2, 2, 2, 2]),
        (errors.Unavailable(503), [0.5, 1, 2, 2, 2, 2, 2, 2, 2]),
        (FORBIDDEN, [0.5, 1, 2, 2, 2, 2, 2, 2, 2]),
    ],
    ids=["it fails", "nobody answers", "a balancer without a server", "it knows no roles yet"],
)
def test_failures_in_a_row_wait_longer_with_full_jitter_and_a_cap(error, expected):
    """A server that is away or only just back is found soon, as it is asked for nothing of weight."""
    state, waits = WATCHING, []
    for _ in range(9):
        state, _ = step(state, RequestFailed(error))
        waits.append(delay_before(state, lambda: 1.0))
    assert waits == expected
    assert delay_before(state, lambda: 0.0) == 0


@pytest.mark.req("KR-012")
def test_who_is_refused_for_long_asks_more_seldom():
    """Then it is the role that is missing."""
    state, _ = history(WATCHING, *[RequestFailed(FORBIDDEN)] * 16)
    assert delay_before(state, lambda: 1.0) == 10


@pytest.mark.req("PL-811")
def test_what_was_missed_in_an_outage_is_listed_at_once_when_it_is_over():
    """A restarted API server knows no old resourceVersion, and the backoff of the outage is not its."""
    state, _ = history(WATCHING, *[RequestFailed(RESET)] * 12, RequestFailed(GONE))
    assert isinstance(state, Empty)
    assert delay_before(state, lambda: 1.0) == 0.5


@pytest.mark.req("KR-012")
def test_a_quiet_stream_forgets_its_failures():
    """Being accepted is not enough, the stream has to hold."""
    state, _ = history(WATCHING, *[RequestFailed(RESET)] * 5)
    accepted, _ = history(state, StreamOpened(), StreamEnded(1.0))
    assert accepted.health.failures == 6
    quiet, _ = history(state, StreamOpened(), StreamEnded(30.0))
    assert delay_before(quiet, lambda: 1.0) == 0
    cut, _ = history(state, StreamOpened(), RequestFailed(RESET, lasted=30.0))
    assert delay_before(cut, lambda: 1.0) == 0.5


@pytest.mark.req("KR-012")
def test_a_list_in_pages_never_waits_between_them():
    """40 pages after six failures took 200 s, and the continue token of a large list had expired by then."""
    state, _ = history(Empty(WatchHealth(streaming=False)), *[RequestFailed(RESET)] * 6)
    assert delay_before(state, lambda: 1.0) == 2
    for _ in range(40):
        state, _ = step(state, Page([A1], "5", "next"))
        assert delay_before(state, lambda: 1.0) == 0
    failed, _ = step(state, RequestFailed(errors.Unavailable(503)))
    assert delay_before(failed, lambda: 1.0) == 0.5, "a page that fails is asked for again after a pause"
    state, _ = step(failed, Page([A1], "5", "next"))
    assert delay_before(state, lambda: 1.0) == 0


@pytest.mark.req("KR-012")
@pytest.mark.parametrize(
    "list_",
    [(StreamOpened(), Bookmark("5", initial_end=True)), (Page([A1], "5"),)],
    ids=["streaming list", "page"],
)
def test_a_complete_list_resets_the_backoff(list_):
    """The watch after it is asked for at once."""
    state, _ = history(Empty(), *[RequestFailed(RESET)] * 6, *list_)
    assert delay_before(state, lambda: 1.0) == 0


@pytest.mark.req("KR-012")
@pytest.mark.parametrize(
    "round_",
    [
        (Page([A1], "5"), RequestFailed(GONE)),
        (Page([A1], "5", "next"), RequestFailed(GONE)),
        (Page([A1], "5"), StreamOpened(), RequestFailed(GARBLED, lasted=1.0)),
    ],
    ids=["each watch is gone at once", "each list expires half-way", "each watch is garbled"],
)
def test_lists_that_lead_nowhere_are_read_ever_more_seldom(round_):
    """The backoff that a page resets must not become a loop of lists of 20 000 pods."""
    state, waits = Empty(WatchHealth(streaming=False)), []
    for _ in range(7):
        state, _ = history(state, *round_)
        waits.append(delay_before(state, lambda: 1.0))
    assert waits == [0.5, 1, 2, 4, 8, 10, 10]
    quiet, _ = history(state, Page([], "5"), StreamOpened(), StreamEnded(30.0), RequestFailed(GONE))
    assert delay_before(quiet, lambda: 1.0) == 0.5, "a stream that held makes good for it"


@pytest.mark.req("KR-012")
def test_a_server_that_ends_every_watch_at_once_is_not_hammered():
    state, _ = history(WATCHING, *[StreamOpened(), StreamEnded(0.0)] * 10)
    assert delay_before(state, lambda: 1.0) == 10


@pytest.mark.req("KR-012")
def test_retry_after_is_honoured():
    state, _ = history(WATCHING, RequestFailed(errors.TooManyRequests(429, retry_after=7)))
    assert delay_before(state, lambda: 0.0) == 7
    state, _ = history(state, StreamOpened())
    assert delay_before(state, lambda: 0.0) == 0


@pytest.mark.req("KR-012")
def test_retry_after_does_not_blind_for_long():
    """A maintenance page of something before the API server says an hour; nobody would see a pod so long."""
    state, _ = history(WATCHING, RequestFailed(errors.Unavailable(503, retry_after=3600)))
    assert delay_before(state, lambda: 1.0) <= 60.5


@pytest.mark.req("KR-012")
def test_repeated_refusals_are_a_problem_until_the_server_accepts():
    """One 403 may be a role that is only just being bound."""
    state, _ = history(Empty(), RequestFailed(FORBIDDEN))
    assert not refused(state)
    state, _ = history(state, RequestFailed(errors.Unauthorized(401)))
    assert refused(state)
    for again in (StreamOpened(), Page([], "1")):
        assert not refused(history(state, again)[0])
    assert not refused(history(state, RequestFailed(RESET))[0])


@pytest.mark.req("KR-010")
@pytest.mark.parametrize(
    ("state", "event"),
    [
        (Empty(), ObjectChanged(A1)),
        (Empty(), StreamEnded(1.0)),
        (Empty(), Bookmark("1")),
        (Paging("t", "1", WatchHealth()), StreamOpened()),
        (Streaming(WatchHealth()), Page([], "1")),
        (WATCHING, Page([], "1")),
    ],
)
def test_an_event_that_cannot_be_is_a_bug_of_the_driver(state, event):
    with pytest.raises(ValueError, match="cannot see"):
        step(state, event)


@pytest.mark.parametrize(
    ("one", "other", "later"),
    [("9", "10", "10"), ("10", "9", "10"), ("10", "", "10"), ("", "5", "5"), ("abc", "abb", "abb"), ("7", "x", "x")],
)
def test_resource_versions_are_compared_as_decimals_where_they_are_some(one, other, later):
    assert newer(one, other) == later


@pytest.mark.req("KR-011")
def test_watches_that_break_do_not_count_against_streaming_lists():
    """And a list that was complete starts the count anew."""
    state, _ = history(Empty(), StreamOpened(), RequestFailed(RESET), StreamOpened(), Bookmark("5", initial_end=True))
    state, _ = history(state, *[RequestFailed(RESET)] * 5, RequestFailed(GONE))
    assert request_for(state) == WatchRequest("streaming-list")
