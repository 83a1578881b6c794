"""Readings shared by all replicas: who writes them, when, and what is taken of them."""

import asyncio
import base64

import pytest
from fake_api import FakeApi
from manual_clock import ManualClock
from placement_world import OPERATOR, FakeSecrets, FakeWatches, facts_of, policy

from polyarch.images.pull_secrets import GlobalPullSecret, PullSecrets
from polyarch.kube.resources import SECRETS
from polyarch.kube.store import ObjectChange
from polyarch.objects import DOCKER_CONFIG_JSON, ObjectKey, ObjectMeta, Secret
from polyarch.oci.cache import Cache, ImageReading, RepositoryLocation, TagRecord
from polyarch.oci.inspection import Entry, Status
from polyarch.placement import names
from polyarch.placement.shared_readings import SharedReadings
from polyarch.platforms import Platform

PUBLIC, SHARED, PRIVATE = (RepositoryLocation("r.example", name) for name in ("public", "shared", "private"))
SEPARATE = {"seconds": 3600.0, "public_seconds": 3600.0}


def stored(**content):
    """The Secret of the readings, with this content."""
    metadata = {"name": names.READINGS_SECRET, "namespace": OPERATOR}
    return {"metadata": metadata, "type": names.READINGS_TYPE, **content}


class Replica:
    """A process: its cache, its view of the global pull secret, and the shared readings."""

    def __init__(self, api, clock, **configuration):
        self.api, self.clock = api, clock
        self.watches = FakeWatches()
        self.facts = facts_of(self.watches, clock, **configuration)
        self.cache = Cache(clock)
        self.secrets = PullSecrets(FakeSecrets(), clock)
        self.shared = SharedReadings(
            informers=self.watches,
            client=api,
            facts=self.facts,
            secrets=self.secrets,
            cache=self.cache,
            clock=clock,
            namespace=OPERATOR,
        )
        forget = lambda gone: self.cache.drop_proofs([each.fingerprint(self.cache.key) for each in gone])  # noqa: E731
        self._global = GlobalPullSecret(self.secrets, "infra/pull", forget)
        self.tasks = []

    async def start(self, *, leading=False):
        self.tasks = [asyncio.create_task(self.facts.run()), asyncio.create_task(self.shared.run())]
        await self.clock.settle()
        if "secrets" in self.watches.informers:
            self.api.follow(SECRETS, self.watches["secrets"])
        await self.shared.synced()
        if leading:
            self.tasks.append(asyncio.create_task(self.shared.export()))
        await self.clock.run(0)
        return self

    async def end(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)

    def global_secret(self, version, password="global-marker"):
        config = b'{"auths":{"r.example":{"username":"u","password":"%s"}}}' % password.encode()
        metadata = ObjectMeta(name="pull", namespace="infra", uid="u", resource_version=version)
        secret = Secret(metadata, DOCKER_CONFIG_JSON, {".dockerconfigjson": config})
        change = ObjectChange("apply", ObjectKey("infra", "pull"), None, secret)
        self._global.observe(change)
        self.shared.global_secret_changed(change)

    def fingerprint(self, password="global-marker"):
        from polyarch.oci.auth.credentials import Credential

        return Credential("u", password).fingerprint(self.cache.key)

    def read(self, number, place=PUBLIC, proof=""):
        self.cache.put_reading(reading(number), place, public=not proof)
        self.cache.put_tag(place, f"v{number}", TagRecord(reading(number).digest, self.clock.monotonic()))
        self.cache.put_proof(place, proof)

    @property
    def document(self):
        return self.api.read(SECRETS, names.READINGS_SECRET, OPERATOR)

    def knows(self, number):
        return self.cache.reading(reading(number).digest) is not None


def reading(number):
    digest = f"sha256:{number:064x}"
    return ImageReading(digest, "index", "application/x", Status.RESOLVED, (Entry(Platform("linux", "arm64"), digest),))


@pytest.fixture
async def world():
    """``await world()``: another replica of the same cluster."""
    clock, api, replicas = ManualClock(), FakeApi(), []
    api.put(SECRETS, stored())

    async def replica(*, leading=False, start=True, **configuration):
        made = Replica(api, clock, **configuration)
        replicas.append(made)
        return await made.start(leading=leading) if start else made

    yield replica
    for each in replicas:
        await each.end()


@pytest.mark.req("PL-410")
async def test_what_the_leader_has_read_every_replica_knows(world):
    """Within two seconds, with no request to a registry."""
    leader, webhook = await world(leading=True), await world()
    leader.read(1)
    await leader.clock.run(2)
    assert webhook.knows(1)
    assert webhook.cache.proof(PUBLIC, (), **SEPARATE).public
    assert webhook.cache.tag(PUBLIC, "v1") is not None


@pytest.mark.req("PL-410", "PL-500", "PL-800")
async def test_nothing_is_written_while_nothing_changes(world):
    leader = await world(leading=True)
    leader.read(1)
    await leader.clock.run(30)
    writes = len(leader.api.patches)
    await leader.clock.run(600)
    assert len(leader.api.patches) == writes == 1


@pytest.mark.req("PL-410", "PL-800")
async def test_at_most_six_writes_a_minute(world):
    """At most once in ten seconds, however much is read."""
    leader = await world(leading=True)
    await leader.clock.run(10)
    before = len(leader.api.patches)
    for number in range(120):
        leader.read(number)
        await leader.clock.run(0.5)
    assert 5 <= len(leader.api.patches) - before <= 6


@pytest.mark.req("PL-410")
async def test_checks_of_known_tags_are_written_once_a_minute(world):
    """A busy cluster checks its tags all the time."""
    leader = await world(leading=True)
    leader.read(1)
    await leader.clock.run(30)
    before = len(leader.api.patches)
    for _ in range(60):
        leader.read(1)
        await leader.clock.run(5)
    assert 4 <= len(leader.api.patches) - before <= 5


@pytest.mark.req("PL-410", "PL-530")
async def test_a_takeover_starts_warm_and_writes_nothing(world):
    leader = await world(leading=True)
    leader.read(1)
    await leader.clock.run(15)
    await leader.end()
    writes = len(leader.api.patches)
    successor = await world(leading=True)
    assert successor.knows(1)
    await successor.clock.run(120)
    assert len(successor.api.patches) == writes


@pytest.mark.req("PL-852", "RG-111", "RG-114")
async def test_what_a_tenants_secret_opened_stays_here(world):
    """Neither the reading, nor the tag, nor that there is such an image."""
    leader, webhook = await world(leading=True), await world()
    leader.read(1)
    leader.read(2, PRIVATE, "fingerprint of a tenant")
    await leader.clock.run(5)
    assert webhook.knows(1)
    assert not webhook.knows(2)
    assert webhook.cache.tag(PRIVATE, "v2") is None


@pytest.mark.req("PL-410", "PL-423")
async def test_what_the_global_pull_secret_opened_is_shared_as_long_as_it_is_the_same(world):
    """A new one drops what the former one proved, here and in what is stored."""
    leader, webhook = await world(leading=True), await world()
    for replica in (leader, webhook):
        replica.global_secret("1")
    leader.read(1, SHARED, leader.fingerprint())
    await leader.clock.run(15)
    assert webhook.cache.proof(SHARED, (webhook.fingerprint(),), **SEPARATE) is not None
    webhook.global_secret("2", "another")
    late = await world(start=False)
    late.global_secret("2", "another")
    await late.start()
    for replica in (webhook, late):
        assert replica.cache.proof(SHARED, (replica.fingerprint("another"),), **SEPARATE) is None
        assert replica.cache.proof(SHARED, (replica.fingerprint(),), **SEPARATE) is None
    leader.global_secret("2", "another")
    await leader.clock.run(15)
    empty = await world()
    empty.global_secret("2", "another")
    assert not empty.knows(1)


@pytest.mark.req("PL-410")
async def test_a_webhook_that_sees_the_new_global_secret_late_takes_its_readings_then(world):
    """Which watch is first decides nothing."""
    leader, webhook = await world(leading=True), await world()
    leader.global_secret("1")
    leader.read(1, SHARED, leader.fingerprint())
    await leader.clock.run(15)
    assert webhook.cache.proof(SHARED, (webhook.fingerprint(),), **SEPARATE) is None
    webhook.global_secret("1")
    await webhook.clock.run(1)
    assert webhook.cache.proof(SHARED, (webhook.fingerprint(),), **SEPARATE) is not None


@pytest.mark.req("PL-410", "PL-750")
@pytest.mark.parametrize(
    "content",
    [
        pytest.param({"type": "Opaque", "data": {names.READINGS_KEY: "AAAA"}}, id="of another type"),
        pytest.param({"data": {names.READINGS_KEY: base64.b64encode(b"no gzip").decode()}}, id="damaged"),
    ],
)
async def test_foreign_or_damaged_content_is_ignored_with_one_log_line(world, content, capsys):
    webhook = await world()
    for _ in range(3):
        webhook.api.put(SECRETS, stored(**content))
        await webhook.clock.run(1)
    assert capsys.readouterr().out.count("shared readings are not used") == 1
    assert list(webhook.cache.readings()) == []


@pytest.mark.req("PL-410")
async def test_what_is_damaged_is_written_anew_and_what_is_foreign_is_left(world):
    leader = await world(leading=True)
    leader.read(1)
    await leader.clock.run(20)
    damaged = base64.b64encode(b"no gzip").decode()
    leader.api.put(SECRETS, stored(data={names.READINGS_KEY: damaged}))
    await leader.clock.run(20)
    assert leader.document["data"] != {names.READINGS_KEY: damaged}
    leader.api.put(SECRETS, {**leader.document, "type": "Opaque"})
    foreign = leader.document
    leader.read(2)
    await leader.clock.run(60)
    assert leader.document == foreign


@pytest.mark.req("PL-410")
async def test_a_refused_write_is_told_once_and_tried_again(world, capsys):
    leader = await world(leading=True)
    leader.api.refuse(SECRETS, "patch")
    leader.read(1)
    await leader.clock.run(60)
    assert capsys.readouterr().out.count("shared readings are not used") == 1
    leader.api.allow()
    await leader.clock.run(15)
    assert leader.document.get("data")


@pytest.mark.req("PL-040", "PL-044")
async def test_a_policy_that_shares_nothing_neither_watches_nor_writes(world):
    """PL-040 images.shareReadings, PL-044: a change needs no restart."""
    leader = await world(leading=True, policy={"images": {"shareReadings": False}})
    assert "secrets" not in leader.watches.informers
    leader.read(1)
    await leader.clock.run(30)
    assert leader.api.patches == []
    leader.watches["placementpolicies"].put(policy(images={"shareReadings": True}))
    await leader.clock.run(1)
    leader.api.follow(SECRETS, leader.watches["secrets"])
    await leader.clock.run(15)
    assert len(leader.api.patches) == 1


@pytest.mark.req("PL-410")
async def test_a_process_that_may_not_read_them_starts_without(world):
    """A help, never a condition."""
    webhook = await world(start=False)
    webhook.tasks = [asyncio.create_task(webhook.facts.run()), asyncio.create_task(webhook.shared.run())]
    synced = asyncio.create_task(webhook.shared.synced())
    await webhook.clock.run(9)
    assert not synced.done()
    await webhook.clock.run(2)
    assert synced.done()
    assert webhook.shared.problems == []
