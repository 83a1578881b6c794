"""After any sequence of dropped watches, 410s, duplicates, reordering across objects and restarts, the store
equals the server at rest. Watch machine and store are driven by a model of an API server, without sockets.

The server keeps a log; a stream shows a prefix of it. Events of different objects may change places within a window and
any event may come again; what was delivered before a connection broke is always a prefix, as with a real server.
"""

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from polyarch.kube import errors
from polyarch.kube.store import Store
from polyarch.kube.watch import (
    Bookmark,
    Empty,
    KindNotServed,
    ObjectChanged,
    ObjectDeleted,
    Page,
    RequestFailed,
    StorageVersion,
    StreamEnded,
    Streaming,
    StreamOpened,
    Watching,
    WatchState,
    request_for,
    step,
)
from polyarch.objects import ObjectKey, ObjectMeta, PartialObjectMetadata

pytestmark = pytest.mark.req("KR-040")

NAMES = ["a", "b", "c", "d"]
GONE = errors.Gone(410, reason="Expired")
RESTART = "the process is killed and starts anew"
BREAKS = [
    RESTART,
    StreamEnded(0.0),
    StreamEnded(600.0),
    RequestFailed(errors.ConnectionFailed("reset")),
    RequestFailed(errors.Unavailable(503), lasted=600.0),
    RequestFailed(errors.UnreadableAnswer("garbled")),
    RequestFailed(errors.Forbidden(403)),
    RequestFailed(GONE),
]


class Server:
    """Objects, and the log of what happened to them."""

    def __init__(self) -> None:
        self.version = 1
        self.compacted = 1
        self.objects: dict[str, PartialObjectMetadata] = {}
        self.log: list[tuple[int, str, ObjectChanged | ObjectDeleted]] = []
        self.snapshots: dict[str, tuple[int, list[PartialObjectMetadata]]] = {}
        self.streaming = True

    def write(self, name: str) -> None:
        self.version += 1
        old = self.objects.get(name)
        uid = old.metadata.uid if old else f"{name}-{self.version}"
        tier = ["even", "odd"][self.version % 2]
        metadata = ObjectMeta(
            name=name, namespace="demo", uid=uid, resource_version=str(self.version), labels={"tier": tier}
        )
        self.objects[name] = PartialObjectMetadata(metadata)
        self.log.append((self.version, name, ObjectChanged(self.objects[name])))

    def delete(self, name: str) -> None:
        if self.objects.pop(name, None) is not None:
            self.version += 1
            self.log.append((self.version, name, ObjectDeleted(ObjectKey("demo", name), str(self.version))))

    def restore(self, version: int) -> None:
        """From a backup of ``version``; what happened since has never been."""
        self.version = version
        self.compacted = min(self.compacted, version)
        self.log = [entry for entry in self.log if entry[0] <= version]
        self.snapshots.clear()
        self.objects = {}
        for _, name, event in self.log:
            if isinstance(event, ObjectChanged):
                self.objects[name] = event.object
            else:
                del self.objects[name]

    def since(self, version: int) -> list[tuple[int, str, ObjectChanged | ObjectDeleted]]:
        return [entry for entry in self.log if entry[0] > version]


class Connection:
    """A stream as the server fills it: first the list, if one was asked for, then the log from ``position`` on."""

    def __init__(self, server: Server, position: int, first: list[tuple[int, str, object]]) -> None:
        self.server = server
        self.position = position
        self.first = first

    def take(self, count: int) -> list[tuple[str, object]]:
        window = self.first[:count]
        self.first = self.first[count:]
        if not window:
            window = self.server.since(self.position)[:count]
            if window:
                self.position = window[-1][0]
        return [(name, event) for _, name, event in window]


class WatchMachine(RuleBasedStateMachine):
    @initialize(streaming=st.booleans())
    def start(self, streaming: bool) -> None:
        self.server = Server()
        self.server.streaming = streaming
        self.restart()

    def restart(self) -> None:
        """The process starts anew: nothing is known."""
        self.store: Store[PartialObjectMetadata] = Store({"tier": lambda thing: (thing.metadata.labels or {}).values()})
        self.state: WatchState = Empty()
        self.connection: Connection | None = None
        self.mirror: dict[ObjectKey, PartialObjectMetadata] = {}

    @rule(name=st.sampled_from(NAMES))
    def write(self, name: str) -> None:
        self.server.write(name)

    @rule(name=st.sampled_from(NAMES))
    def delete(self, name: str) -> None:
        self.server.delete(name)

    @rule()
    def compact(self) -> None:
        """What is older than now cannot be watched, nor paged, any more."""
        self.server.compacted = self.server.version

    @rule(limit=st.integers(1, 3), shuffle=st.randoms(use_true_random=False))
    def ask(self, limit: int, shuffle) -> None:
        if self.connection is None:
            self.request(limit, shuffle)

    def request(self, limit: int, shuffle) -> None:
        """One request, as the machine wants it."""
        server, asked = self.server, request_for(self.state)
        if asked.verify:
            self.feed(StorageVersion(str(server.version)))
            asked = request_for(self.state)
        match asked.kind:
            case "streaming-list" if not server.streaming:
                self.feed(RequestFailed(errors.Invalid(422)))
            case "streaming-list":
                first = [(0, name, ObjectChanged(thing)) for name, thing in server.objects.items()]
                shuffle.shuffle(first)
                self.connection = Connection(
                    server, server.version, [*first, (0, "", Bookmark(str(server.version), initial_end=True))]
                )
                self.feed(StreamOpened())
            case "watch" if int(asked.resource_version) < server.compacted:
                self.feed(RequestFailed(GONE))
            case "watch":
                self.connection = Connection(server, int(asked.resource_version), [])
                self.feed(StreamOpened())
            case "page":
                self.page(asked.continue_token, limit)

    def page(self, token: str, limit: int) -> None:
        version, left = self.server.snapshots.get(token, (self.server.version, list(self.server.objects.values())))
        if version < self.server.compacted:
            self.feed(RequestFailed(GONE))
            return
        rest, token = left[limit:], ""
        if rest:
            token = f"token-{len(self.server.snapshots)}"
            self.server.snapshots[token] = (version, rest)
        self.feed(Page(left[:limit], str(version), token))

    @rule(count=st.integers(1, 6), shuffle=st.randoms(use_true_random=False), again=st.booleans(), mark=st.booleans())
    def deliver(self, count: int, shuffle, again: bool, mark: bool) -> None:
        """A window of events arrives: mixed across objects, some of them twice, perhaps followed by a bookmark."""
        if self.connection is None:
            return
        window = self.connection.take(count)
        order = [name for name, _ in window]
        if "" not in order:  # the end of a list stays at its end
            shuffle.shuffle(order)
        queues = {name: [event for other, event in window if other == name] for name in order}
        for name in order:
            event = queues[name].pop(0)
            self.feed(event)
            if again and not isinstance(event, Bookmark):
                self.feed(event)
        if again and isinstance(self.state, Watching):
            old = [event for version, _, event in self.server.log if version <= self.connection.position]
            for event in shuffle.sample(old, min(2, len(old))):
                self.feed(event)
        if mark and isinstance(self.state, Watching):
            self.feed(Bookmark(str(self.connection.position)))

    @rule(broken=st.sampled_from(BREAKS))
    def broken(self, broken) -> None:
        """The connection ends, or a request fails."""
        if broken == RESTART:
            self.restart()
        elif self.connection is not None or isinstance(broken, RequestFailed):
            self.connection = None
            self.feed(broken)

    @rule(lost=st.integers(1, 10), shuffle=st.randoms(use_true_random=False))
    def restored(self, lost: int, shuffle) -> None:
        """From a backup; the server was away meanwhile, and is asked as soon as it is back."""
        self.server.restore(max(1, self.server.version - lost))
        self.connection = None
        if isinstance(self.state, Streaming):
            self.feed(StreamEnded(600.0))
        self.feed(RequestFailed(errors.ConnectionFailed("refused")))
        self.request(3, shuffle)

    @rule()
    def definition_deleted(self) -> None:
        """All objects go with the definition of their kind; then it is applied again."""
        for name in list(self.server.objects):
            self.server.delete(name)
        self.connection = None
        self.feed(RequestFailed(errors.NotFound(404)))
        self.feed(KindNotServed())
        assert isinstance(self.state, Empty)
        self.compare()

    @rule()
    def at_rest(self) -> None:
        """Left in peace for a moment, the store equals the server."""
        for _ in range(60):
            if self.connection is None:
                self.request(2, _Still())
                continue
            if not self.connection.first and self.connection.position == self.server.version:
                break
            for _, event in self.connection.take(5):
                self.feed(event)
        assert isinstance(self.state, Watching)
        self.compare()

    def feed(self, event) -> None:
        self.state, outputs = step(self.state, event)
        for output in outputs:
            for change in self.store.take(output):
                assert change.old == self.mirror.get(change.key), "a handler is told what it was told before"
                if change.kind == "delete":
                    del self.mirror[change.key]
                else:
                    assert change.new != change.old
                    self.mirror[change.key] = change.new

    @invariant()
    def what_was_delivered_is_what_is_known(self) -> None:
        connection = getattr(self, "connection", None)
        if connection and isinstance(self.state, Watching) and connection.position == self.server.version:
            self.compare()

    def compare(self) -> None:
        assert dict(self.store.items()) == {
            ObjectKey("demo", name): thing for name, thing in self.server.objects.items()
        }

    @invariant()
    def handlers_know_what_the_store_has(self) -> None:
        if hasattr(self, "store"):
            assert self.mirror == dict(self.store.items())

    @invariant()
    def indexes_fit_the_objects(self) -> None:
        if hasattr(self, "store"):
            for tier in ("even", "odd"):
                expected = {key for key, thing in self.store.items() if thing.metadata.labels["tier"] == tier}
                assert set(self.store.by_index("tier", tier)) == expected

    @invariant()
    def half_a_list_is_never_complete(self) -> None:
        if hasattr(self, "state") and isinstance(self.state, Streaming):
            assert self.connection is not None


class _Still:
    """Chance that changes nothing."""

    def shuffle(self, items: list) -> None:
        pass


TestWatchMachine = WatchMachine.TestCase
TestWatchMachine.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
