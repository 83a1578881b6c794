"""Nobody is told of an image that he may not read, whatever happened before.

Random tenants ask for random images while rights are given and taken away, tags move and time passes. Every answer is
held against what the registry really said: a cached one needs a success of this tenant or of anybody, recent enough, in
this very repository; and its tag must have named that digest within the time that a check is good for.
"""

import asyncio
import base64
import hashlib
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.inspection import Status
from polyarch.oci.inspector import Inspector
from polyarch.oci.reference import parse
from polyarch.oci.settings import InspectorSettings
from polyarch.oci.transport.addresses import AddressClass
from polyarch.oci.transport.interface import Headers

pytestmark = pytest.mark.req("PL-852", "RG-111", "RG-112")

HOST = "r.example"
TENANTS = ("", "ann", "bob")
REPOSITORIES = ("one", "two")
INDEX = "application/vnd.oci.image.index.v1+json"
ARCHITECTURES = ("amd64", "arm64", "s390x")


def index(architecture):
    child = "sha256:" + hashlib.sha256(architecture.encode()).hexdigest()
    entries = [
        {"mediaType": "application/vnd.oci.image.manifest.v1+json", "digest": child, "platform": platform}
        for platform in ({"os": "linux", "architecture": architecture}, {"os": "linux", "architecture": "ppc64le"})
    ]
    return json.dumps({"schemaVersion": 2, "mediaType": INDEX, "manifests": entries}).encode()


DOCUMENTS = {"sha256:" + hashlib.sha256(body).hexdigest(): body for body in map(index, ARCHITECTURES)}
DIGESTS = tuple(DOCUMENTS)
HELD = {"one": DIGESTS, "two": DIGESTS[:2]}


class Clock:
    def __init__(self):
        self.time = 0.0

    def monotonic(self):
        return self.time

    def now(self):
        return datetime.fromtimestamp(self.time, UTC)

    async def sleep(self, seconds):
        self.time += max(seconds, 0.0)


class Registry:
    """A transport that is its own registry: Basic, two repositories with some of the documents and one tag each."""

    def __init__(self, clock):
        self.clock = clock
        self.readers = {repository: {"ann", "bob"} for repository in REPOSITORIES}
        self.tags = dict.fromkeys(REPOSITORIES, DIGESTS[0])
        self.named = defaultdict(list)  # repository -> (time from which on, digest)
        self.granted = {}  # (repository, tenant) -> time of the last success
        self.given_away = set()  # digests that were read anonymously, anywhere
        for repository in REPOSITORIES:
            self.name(repository, DIGESTS[0])

    def name(self, repository, digest):
        if digest not in HELD[repository]:
            return
        self.tags[repository] = digest
        self.named[repository].append((self.clock.time, digest))

    def named_since(self, repository, since):
        """The digests that the tag named at any time from then on."""
        history = self.named[repository]
        ends = [start for start, _ in history[1:]] + [float("inf")]
        return {digest for (_, digest), end in zip(history, ends, strict=True) if end >= since}

    @asynccontextmanager
    async def request(self, method, url, *, headers=None, **_):
        await asyncio.sleep(0)
        repository, _, selector = url.removeprefix(f"https://{HOST}/v2/").partition("/manifests/")
        shown = (headers or {}).get("Authorization", "")
        tenant = base64.b64decode(shown.partition(" ")[2]).decode().partition(":")[0]
        if tenant not in self.readers[repository]:
            yield Answer(401, Headers([("WWW-Authenticate", "Basic realm=x")]))
            return
        digest = selector if ":" in selector else self.tags[repository]
        if digest not in HELD[repository]:
            yield Answer(404, Headers())
            return
        self.granted[repository, tenant] = self.clock.time
        if not tenant:
            self.given_away.add(digest)
        found = [("Docker-Content-Digest", digest), ("Content-Type", INDEX)]
        yield Answer(200, Headers(found), DOCUMENTS[digest])

    async def close(self):
        """Nothing to close."""


class Answer:
    peer_class = AddressClass.PUBLIC

    def __init__(self, status, headers, body=b""):
        self.status = status
        self.headers = headers
        self.body = body

    async def read(self, limit):
        return self.body

    async def read_some(self, limit):
        return self.body[:limit]


class Holding:
    def __init__(self, tenant):
        own = [Credential(tenant, "password", source="secret", key=HOST)] if tenant else []
        self.credentials = [*own, ANONYMOUS]

    async def candidates(self, reference, source):
        return self.credentials

    def cached_candidates(self, reference, source):
        return self.credentials

    def warnings(self, source):
        return ()


tenants, repositories = st.sampled_from(TENANTS), st.sampled_from(REPOSITORIES)
selectors = st.sampled_from(("latest", *DIGESTS))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("inspect"), tenants, repositories, selectors, st.booleans()),
        st.tuples(st.just("inspect"), tenants, repositories, selectors, st.booleans()),
        st.tuples(st.just("peek"), tenants, repositories, selectors),
        st.tuples(st.just("grant"), tenants, repositories),
        st.tuples(st.just("deny"), tenants, repositories),
        st.tuples(st.just("move"), repositories, st.sampled_from(DIGESTS)),
        st.tuples(st.just("wait"), st.sampled_from((1, 30, 61, 599, 601, 3600, 90_000))),
    ),
    min_size=12,
    max_size=40,
)


ELSEWHERE = [
    ("inspect", "ann", "one", DIGESTS[2], False),
    ("inspect", "bob", "two", "latest", False),
    ("inspect", "bob", "two", DIGESTS[2], False),
]
"""Who may read one repository asks it for a digest that was read with credentials in another."""

OWN_EYES = [
    ("inspect", "", "one", "latest", False),  # refused: from now on the host is shown credentials first
    ("grant", "", "one"),
    ("inspect", "", "one", "latest", True),  # fresh: the refusal is remembered otherwise
    ("inspect", "", "two", "latest", True),
    ("grant", "", "two"),
    ("inspect", "", "two", "latest", True),  # both are known to be open to all now
    ("inspect", "ann", "one", DIGESTS[2], False),
    ("inspect", "", "two", DIGESTS[2], False),
]
"""What somebody read with credentials in one open repository a stranger then asks of the other, which has it not."""

CLOSED_AGAIN = [*OWN_EYES[:-2], ("deny", "", "one"), *OWN_EYES[-2:]]
"""The same, and by then the first is open no more, which nobody has noticed yet."""


@example(steps=CLOSED_AGAIN, probing=False)
@example(steps=OWN_EYES, probing=False)
@example(steps=ELSEWHERE, probing=False)
@settings(max_examples=120, deadline=None)
@given(steps=steps, probing=st.booleans())
def test_nobody_is_told_what_he_may_not_read(steps, probing):
    asyncio.run(play(steps, probing=probing))


async def play(steps, *, probing):
    clock = Clock()
    registry = Registry(clock)
    limits = InspectorSettings(public_probe=probing, head_first_hosts=(HOST,) if probing else ())
    inspector = Inspector(transport=registry, clock=clock, settings=limits)
    for what, *arguments in steps:
        if what == "grant":
            registry.readers[arguments[1]].add(arguments[0])
        elif what == "deny":
            registry.readers[arguments[1]].discard(arguments[0])
        elif what == "move":
            registry.name(*arguments)
        elif what == "wait":
            clock.time += arguments[0]
        else:
            tenant, repository, selector, *fresh = arguments
            joint = "@" if ":" in selector else ":"
            reference = parse(f"{HOST}/{repository}{joint}{selector}")
            asked_at = clock.time
            if what == "peek":
                answer = inspector.peek(reference, Holding(tenant))
            else:
                answer = await inspector.inspect(reference, credentials=Holding(tenant), fresh=fresh[0])
            if answer is not None and answer.status is Status.RESOLVED:
                check(registry, limits, tenant, repository, selector, answer, asked_at, fresh=any(fresh))
    await inspector.close()


def check(registry, limits, tenant, repository, selector, answer, asked_at, *, fresh):
    now = registry.clock.time
    public_for = limits.public_ttl if limits.public_probe else limits.proof_ttl
    own = now - registry.granted.get((repository, tenant), float("-inf")) < limits.proof_ttl
    public = now - registry.granted.get((repository, ""), float("-inf")) < public_for
    assert own or public, f"{tenant!r} was told of {repository}"
    assert not answer.public or public
    assert answer.digest in HELD[repository] or answer.digest in registry.given_away
    if ":" in selector:
        assert answer.digest == selector
    else:
        since = asked_at - (limits.revalidate_interval if fresh else limits.tag_ttl)
        assert answer.digest in registry.named_since(repository, since)
    assert answer.entries[0].platform.architecture == ARCHITECTURES[DIGESTS.index(answer.digest)]
