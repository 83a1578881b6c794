"""Nobody is told of an image that he may not read, whatever happened before.

Random tenants ask for random images while rights are given and taken away, tags move and time passes. Every answer is
held against what the registry really said: a cached one needs a success of this tenant or of anybody, recent enough, in
this very repository; and its tag must have named that digest within the time that a check is good for.

Nor does it matter who else asks, and of whom: with a hostile registry that answers everybody differently every time,
and a tenant that asks it, victims get the answers that they get without both.
"""

import asyncio
import base64
import hashlib
import json
from collections import defaultdict
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec
import pytest
from hypothesis import event, example, given, settings
from hypothesis import strategies as st

from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.inspection import Status
from polyarch.oci.inspector import Inspector
from polyarch.oci.reference import parse
from polyarch.oci.settings import PLACEMENT, InspectorSettings
from polyarch.oci.transport.addresses import AddressClass
from polyarch.oci.transport.interface import Headers, TransportError

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

    async def read(self, limit, hold):
        return self.body

    async def read_some(self, limit):
        return self.body[:limit]


class Holding:
    def __init__(self, tenant, host=HOST):
        own = [Credential(tenant, "password", source="secret", key=host)] if tenant else []
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


# -- an attacker, and the same without --------------------------------------------------------------------------------

EVIL = "evil.example"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
SCHEMA1 = "application/vnd.docker.distribution.manifest.v1+json"
BUNDLE = "operators.operatorframework.io.bundle.package.v1"
BLOBS = {}
"""All manifests and configs by digest. Both registries have them all."""


def stored(document):
    body = json.dumps(document).encode()
    digest = "sha256:" + hashlib.sha256(body).hexdigest()
    BLOBS[digest] = body
    return {"digest": digest, "size": len(body)}


def image(architecture, **labels):
    config = stored({"os": "linux", "architecture": architecture, "config": {"Labels": labels}})
    return stored({"schemaVersion": 2, "config": {"mediaType": CONFIG, **config}, "layers": []})


def listed(*entries):
    return stored({"schemaVersion": 2, "manifests": [{"mediaType": MANIFEST, **entry} for entry in entries]})


IMAGES = tuple(
    each["digest"]
    for each in (
        image("arm64"),
        listed(image("amd64"), image("s390x")),  # no platforms: the children have to be asked
        listed({**image("riscv64", **{BUNDLE: "x"}), "platform": {"os": "linux", "architecture": "riscv64"}}),
        listed(
            {**image("ppc64le"), "platform": {"os": "linux", "architecture": "ppc64le"}},
            {**listed(image("386")), "mediaType": INDEX},
        ),
    )
)
CHILDREN = tuple(digest for digest in BLOBS if digest not in IMAGES)
MOODS = {
    "right": lambda digest, other: (200, {"Docker-Content-Digest": digest}, BLOBS[digest]),
    "another type": lambda digest, other: (200, {"Content-Type": SCHEMA1}, BLOBS[digest]),
    "another digest": lambda digest, other: (200, {"Docker-Content-Digest": other, "ETag": "x"}, BLOBS[digest]),
    "other bytes": lambda digest, other: (200, {"Docker-Content-Digest": digest, "ETag": "x"}, BLOBS[other]),
    "a page": lambda digest, other: (200, {"Content-Type": "text/html"}, b"<html>"),
    "unchanged": lambda digest, other: (304, {"ETag": "x"}, b""),
    "missing": lambda digest, other: (404, {}, b""),
    "refused": lambda digest, other: (403, {}, b""),
    "a password": lambda digest, other: (401, {"WWW-Authenticate": "Basic realm=x"}, b""),
    "a realm": lambda digest, other: (401, {"WWW-Authenticate": f'Bearer realm="https://{HOST}/busy"'}, b""),
    "a dead realm": lambda digest, other: (401, {"WWW-Authenticate": f'Bearer realm="https://{HOST}/dead"'}, b""),
    "led to a pause": lambda digest, other: (307, {"Location": f"https://{HOST}/busy"}, b""),
    "led to nothing": lambda digest, other: (307, {"Location": f"https://{HOST}/dead"}, b""),
    "led to a tag": lambda digest, other: (307, {"Location": f"https://{HOST}/v2/one/manifests/latest"}, b""),
    "busy": lambda digest, other: (429, {"Retry-After": "86400"}, b""),
    "away": lambda digest, other: (503, {"Retry-After": "86400"}, b""),
    "broken": lambda digest, other: (500, {}, b""),
}
"""What the hostile registry answers when it is asked for a digest; ``other`` is another one."""


class FixedClock(Clock):
    """Only the test moves it: who asks more waits no longer."""

    async def sleep(self, seconds):
        await asyncio.sleep(0)


class Registries:
    """A transport: an honest registry, and one that answers as ``moods`` say, one after another."""

    def __init__(self, moods):
        self.moods = moods
        self.hostile = 0
        self.readers = {repository: {"", "ann", "bob"} for repository in REPOSITORIES}
        self.readers["two"] = {"ann"}
        self.tags = dict.fromkeys(REPOSITORIES, IMAGES[1])

    @asynccontextmanager
    async def request(self, method, url, *, headers=None, **_):
        for _ in range(3):
            await asyncio.sleep(0)
        host, _, path = url.removeprefix("https://").partition("/")
        if path.startswith("dead"):
            raise TransportError("connect", phase="connect", host=host, detail="refused")
        if path.startswith("busy"):
            yield Answer(429, Headers([("Retry-After", "86400")]))
            return
        repository, _, selector = path.removeprefix("v2/").split("/")
        status, found, body = (self.lie if host == EVIL else self.truth)(repository, selector, headers or {})
        if "Content-Type" not in found:
            found = {**found, "Content-Type": INDEX if b'"manifests"' in body else MANIFEST}
        yield Answer(status, Headers(list(found.items())), b"" if method == "HEAD" else body)

    def truth(self, repository, selector, headers):
        shown = headers.get("Authorization", "")
        tenant = base64.b64decode(shown.partition(" ")[2]).decode().partition(":")[0]
        if tenant == "eve":
            return 429, {"Retry-After": "86400"}, b""
        if tenant not in self.readers[repository]:
            return 401, {"WWW-Authenticate": "Basic realm=x"}, b""
        digest = selector if ":" in selector else self.tags[repository]
        return 200, {"Docker-Content-Digest": digest, "ETag": digest}, BLOBS[digest]

    def lie(self, repository, selector, headers):
        mood = self.moods[self.hostile % len(self.moods)]
        self.hostile += 1
        digest = selector if selector in BLOBS else IMAGES[self.hostile % len(IMAGES)]
        others = CHILDREN if digest in CHILDREN else IMAGES
        return MOODS[mood](digest, others[(others.index(digest) + 1) % len(others)])

    async def close(self):
        """Nothing to close."""


def questions(who, hosts):
    return st.tuples(
        st.sampled_from(who), st.sampled_from(hosts), repositories, st.sampled_from(("latest", *IMAGES)), st.booleans()
    )


def rounds(hosts, *changes):
    """Rounds of questions that are asked together, and what happens between them."""
    victims = st.lists(questions(TENANTS, (HOST,)), max_size=3, unique_by=lambda question: question[0])
    attackers = st.lists(questions(("eve",), hosts), max_size=8)
    together = st.tuples(st.just("ask"), attackers, victims, st.booleans())
    wait = st.tuples(st.just("wait"), st.sampled_from((1, 6, 61, 601, 3601, 86_401)))
    return st.lists(st.one_of(together, together, together, wait, *changes), min_size=3, max_size=15)


CHANGES = (
    st.tuples(st.just("grant"), tenants, repositories),
    st.tuples(st.just("deny"), tenants, repositories),
    st.tuples(st.just("move"), repositories, st.sampled_from(IMAGES)),
)
lies = st.lists(st.sampled_from(sorted(MOODS)), min_size=1, max_size=12)


@pytest.mark.req("RG-117", "RG-118")
@settings(max_examples=100, deadline=None)
@given(happens=rounds((EVIL,), *CHANGES), moods=lies)
def test_a_hostile_registry_changes_no_answer_of_another(happens, moods):
    compare(happens, moods)


@pytest.mark.req("RG-117", "RG-118")
@settings(max_examples=100, deadline=None)
@given(happens=rounds((EVIL, HOST, HOST)), moods=lies)
def test_nor_does_a_tenant_that_asks_the_victims_registry(happens, moods):
    """Here nothing moves and no right changes; else answers may be as old as those that the others have got."""
    compare(happens, moods)


def compare(happens, moods):
    alone, attacked = (asyncio.run(answers(happens, moods, attack=attack)) for attack in (False, True))
    assert alone.keys() == attacked.keys()
    for key, (asked, right) in alone.items():
        _, found = attacked[key]
        if right is None:  # a peek: it may know more, and all that it knows is right
            assert found is None or found.status is Status.ERROR or content(found) == content(ALONE[found.digest]), (
                asked
            )
        else:
            event(f"{right.status} for a victim")
            assert content(found) == content(right), asked


def content(answer):
    """All that an answer says of the image."""
    error = answer.error.code if answer.error is not None else ""
    return answer.status, answer.kind, answer.digest, answer.media_type, answer.entries, answer.skipped, error


async def answers(happens, moods, *, attack):
    """What the victims are told, by round and place: the question, and the answer."""
    clock, told = FixedClock(), {}
    registries = Registries(moods)
    limits = msgspec.structs.replace(PLACEMENT, requests_per_host=2, waiting_per_tenant=4, attempts=2)
    inspector = Inspector(transport=registries, clock=clock, settings=limits)

    async def ask(tenant, host, repository, selector, fresh):
        joint = "@" if ":" in selector else ":"
        reference = parse(f"{host}/{repository}{joint}{selector}")
        known = inspector.peek(reference, Holding(tenant, host))
        answer = await inspector.inspect(
            reference, credentials=Holding(tenant, host), fresh=fresh, tenant=tenant or "nobody"
        )
        return known, answer

    for number, (what, *arguments) in enumerate(happens):
        if what == "grant":
            registries.readers[arguments[1]].add(arguments[0])
        elif what == "deny":
            registries.readers[arguments[1]].discard(arguments[0])
        elif what == "move":
            registries.tags[arguments[0]] = arguments[1]
        elif what == "wait":
            clock.time += arguments[0]
        else:
            attackers, victims, first = arguments
            asked = [*victims] if not attack else [*attackers, *victims] if first else [*victims, *attackers]
            found = await asyncio.gather(*(ask(*question) for question in asked))
            for question, given_ in zip(asked, found, strict=True):
                if question[0] != "eve":
                    told |= {(number, question, at): (question, each) for at, each in enumerate(given_)}
    await inspector.close()
    return told


async def right_answers():
    inspector = Inspector(transport=Registries([]), clock=FixedClock(), settings=PLACEMENT)
    found = {digest: await inspector.inspect(f"{HOST}/one@{digest}") for digest in IMAGES}
    await inspector.close()
    return found


ALONE = asyncio.run(right_answers())
