"""What one tenant's registry says of a digest is nothing to another tenant.

Both registries are real servers and one process asks both. The attacker has the bytes of the victim's image, as
everybody can have those of a public one, and serves them in a way that makes them look like something else.
"""

import asyncio
import base64
import gzip
import json

import pytest
from scripted_registry import OCI_CONFIG, OCI_INDEX, OCI_MANIFEST, Answer, ScriptedRegistry, digest_of, encode

from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.cache import VERSION, Cache
from polyarch.oci.cache_sharing import CacheExporter, CacheImporter, DamagedExport, drained
from polyarch.oci.disk_cache import DiskCache
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.settings import CLUSTER, MIB
from polyarch.oci.traffic.rate_limiter import FAILURES_TO_OPEN
from polyarch.oci.transport.interface import Timeouts

pytestmark = pytest.mark.req("RG-117")

DOCKER_LIST = "application/vnd.docker.distribution.manifest.list.v2+json"
SCHEMA1 = "application/vnd.docker.distribution.manifest.v1+json"
SCHEMA1_SIGNED = "application/vnd.docker.distribution.manifest.v1+prettyjws"
APP = "team/app"


def plain_index(*entries):
    """An index that does not state its type, as OCI allows."""
    return encode({"schemaVersion": 2, "manifests": list(entries)})


def plain_image(registry, platform, **config):
    os, architecture = platform.split("/")
    body = encode({"os": os, "architecture": architecture, **config})
    config_of = {"mediaType": OCI_CONFIG, "digest": registry.push_blob(APP, body), "size": len(body)}
    return encode({"schemaVersion": 2, "config": config_of, "layers": []})


def copy(good, evil):
    """Everything that the victim's registry has."""
    evil.manifests.update(good.manifests)
    evil.tags.update(good.tags)
    evil.blobs.update(good.blobs)


class Attacks:
    """Each gives both registries their content."""

    @staticmethod
    def index_as(content_type):
        def attack(good, evil):
            body = plain_index(good.entry("linux/amd64"), good.entry("linux/arm64"))
            good.push(APP, "1", body, OCI_INDEX)
            evil.push(APP, "1", body, content_type)

        return attack

    @staticmethod
    def image_as(content_type):
        def attack(good, evil):
            body = plain_image(good, "linux/arm64")
            good.push(APP, "1", body, OCI_MANIFEST)
            copy(good, evil)
            evil.push(APP, "1", body, content_type)

        return attack

    @staticmethod
    def child_as_schema1(good, evil):
        children = [
            good.push(APP, None, plain_image(good, f"linux/{each}"), OCI_MANIFEST) for each in ("amd64", "arm64")
        ]
        good.push(APP, "1", plain_index(*(good.entry(None, each) for each in children)), OCI_INDEX)
        copy(good, evil)
        for child in children:
            evil.push(APP, None, evil.manifests[APP, child][0], SCHEMA1)

    @staticmethod
    def bundle_child_as_an_index(good, evil):
        """Whether an index of one image is an operator bundle stands in its child."""
        child = good.push(APP, None, plain_image(good, "linux/arm64"), OCI_MANIFEST)
        good.push(APP, "1", plain_index(good.entry("linux/arm64", child)), OCI_INDEX)
        copy(good, evil)
        evil.push(APP, None, evil.manifests[APP, child][0], SCHEMA1)

    @staticmethod
    def child_withheld(answer):
        def attack(good, evil):
            children = [good.push_image(APP, None, f"linux/{each}") for each in ("amd64", "arm64")]
            good.push_index(APP, "1", entries=[good.entry(None, each) for each in children])
            copy(good, evil)
            evil.script("GET", children[1], answer, forever=True)

        return attack

    @staticmethod
    def config_withheld(answer):
        def attack(good, evil):
            good.push_index(APP, "1", entries=[good.entry(None, good.push_image(APP, None, "linux/amd64"))])
            other = good.push_image(APP, None, "linux/s390x")
            index = json.loads(good.manifests[APP, good.tags[APP, "1"]][0])
            good.push(APP, "1", {**index, "manifests": [*index["manifests"], good.entry(None, other)]})
            copy(good, evil)
            config = json.loads(good.manifests[APP, other][0])["config"]["digest"]
            evil.script("GET", config, answer, forever=True)

        return attack

    @staticmethod
    def forged_child(good, evil):
        """Other bytes under the digest of a child, and under that of a config."""
        children = [good.push_image(APP, None, f"linux/{each}") for each in ("amd64", "arm64")]
        good.push_index(APP, "1", entries=[good.entry(None, each) for each in children])
        copy(good, evil)
        evil.manifests[APP, children[1]] = (plain_image(evil, "linux/s390x"), OCI_MANIFEST)
        config = json.loads(good.manifests[APP, children[0]][0])["config"]["digest"]
        evil.blobs[APP, config] = encode({"os": "linux", "architecture": "s390x"})

    @staticmethod
    def inner_index_withheld(answer):
        def attack(good, evil):
            inner = good.push_index(APP, None, "linux/arm64")
            good.push_index(APP, "1", entries=[good.entry("linux/amd64"), good.entry(None, inner, mediaType=OCI_INDEX)])
            copy(good, evil)
            evil.script("*", inner, answer, forever=True)

        return attack

    @staticmethod
    def signed(good, evil):
        """The victim's bytes as the payload of a signed schema 1 manifest, which has their digest."""
        body = plain_index(good.entry("linux/amd64"), good.entry("linux/arm64"))
        digest = good.push(APP, "1", body, OCI_INDEX)
        tail = base64.urlsafe_b64encode(body[-1:]).decode().rstrip("=")
        protected = base64.urlsafe_b64encode(encode({"formatLength": len(body) - 1, "formatTail": tail}))
        more = {
            "schemaVersion": 1,
            "architecture": "s390x",
            "signatures": [{"protected": protected.decode().rstrip("=")}],
        }
        evil.manifests[APP, digest] = (body[:-1] + b"," + encode(more)[1:], SCHEMA1_SIGNED)
        evil.tags[APP, "1"] = digest

    @staticmethod
    def another_parent(good, evil):
        """An index of the attacker's states another platform, type and size for the victim's image."""
        child = good.push_image(APP, "1", "linux/arm64")
        copy(good, evil)
        evil.push_index(APP, "1", entries=[evil.entry("linux/s390x", child, size=7, mediaType=DOCKER_LIST)])
        evil.push_index(APP, "2", entries=[evil.entry("linux/s390x", child), evil.entry("linux/amd64")])

    @staticmethod
    def header_digest(good, evil):
        """Other bytes, said to have the victim's digest."""
        digest = good.push_index(APP, "1", "linux/amd64", "linux/arm64")
        evil.push(APP, "1", plain_index(evil.entry("linux/s390x"), evil.entry("linux/amd64")), digest=digest)

    @staticmethod
    def head_digest(good, evil):
        """A HEAD that names the victim's digest, where there is nothing behind it but a page."""
        digest = good.push_index(APP, "1", "linux/amd64", "linux/arm64")
        evil.push_index(APP, "1", "linux/s390x", "linux/amd64")
        evil.script(
            "HEAD", "", Answer(200, headers={"Content-Type": SCHEMA1, "Docker-Content-Digest": digest}), forever=True
        )
        evil.script("GET", digest, Answer(200, b"<html>", {"Content-Type": "text/html"}), forever=True)


ATTACKS = {
    **{
        f"an index as {each}": Attacks.index_as(each)
        for each in (SCHEMA1, SCHEMA1_SIGNED, OCI_MANIFEST, "text/html", "")
    },
    **{f"an image as {each}": Attacks.image_as(each) for each in (SCHEMA1, OCI_INDEX, DOCKER_LIST)},
    "a child as schema 1": Attacks.child_as_schema1,
    "a bundle's child as schema 1": Attacks.bundle_child_as_an_index,
    **{f"a child withheld by {each}": Attacks.child_withheld(Answer(each)) for each in (404, 401, 403, 500)},
    "a child withheld by 429": Attacks.child_withheld(Answer(429, headers={"Retry-After": "1"})),
    "a child that is a page": Attacks.child_withheld(Answer(200, b"<html>")),
    "a config withheld": Attacks.config_withheld(Answer(404)),
    "a config that is a page": Attacks.config_withheld(Answer(200, b"<html>")),
    **{f"an inner index withheld by {each}": Attacks.inner_index_withheld(Answer(each)) for each in (404, 403, 503)},
    "the payload of a signed manifest": Attacks.signed,
    "other bytes for a child": Attacks.forged_child,
    "another parent": Attacks.another_parent,
    "a digest in a header": Attacks.header_digest,
    "a digest of a HEAD": Attacks.head_digest,
}


def seen(answer):
    """All that an answer says of the content."""
    return (answer.status, answer.kind, answer.digest, answer.media_type, answer.entries, answer.skipped, answer.error)


@pytest.fixture
async def evil(start_registry):
    return await start_registry()


@pytest.fixture(params=ATTACKS.values(), ids=ATTACKS)
def attacked(request, registry, evil):
    request.param(registry, evil)


@pytest.fixture
def process(make_inspector, clock):
    """An inspector as placement's roles have it; ``restored`` from what the leader wrote."""

    def start(*, restored=None):
        cache = Cache(clock)
        if restored is not None:
            drained(CacheImporter(cache, clock).steps(restored))
        inspector = make_inspector(public_probe=True, cache=cache, attempts=1)
        return inspector, lambda: drained(CacheExporter(cache, clock).steps())

    return start


WAYS = {
    "by digest": lambda digest: (f"{APP}@{digest}", {}),
    "by tag": lambda digest: (f"{APP}:1", {}),
    "by tag with Always": lambda digest: (f"{APP}:1", {"fresh": True}),
}


async def strike(inspector, ref, evil, digest, clock):
    """The attacker's pods, all of them and again."""
    for _ in range(2):
        for image in (f"{APP}:1", f"{APP}:2", f"{APP}@{digest}"):
            await inspector.inspect(ref(image, evil))
            await inspector.inspect(ref(image, evil), fresh=True)
        clock.advance(5)


@pytest.mark.usefixtures("attacked")
class TestAnAttackersRegistry:
    @pytest.mark.parametrize("way", WAYS)
    async def test_what_it_says_first_is_nothing_to_the_victim(self, registry, evil, process, ref, clock, way):
        digest = registry.tags[APP, "1"]
        image, how = WAYS[way](digest)
        alone, _ = process()
        right = await alone.inspect(ref(image), **how)
        assert right.platforms
        inspector, _ = process()
        await strike(inspector, ref, evil, digest, clock)
        assert seen(await inspector.inspect(ref(image), **how)) == seen(right)

    @pytest.mark.parametrize("way", WAYS)
    async def test_what_it_says_later_changes_nothing(self, registry, evil, process, ref, clock, way):
        digest = registry.tags[APP, "1"]
        image, how = WAYS[way](digest)
        inspector, _ = process()
        right = await inspector.inspect(ref(image), **how)
        await strike(inspector, ref, evil, digest, clock)
        assert seen(await inspector.inspect(ref(image), **how)) == seen(right)

    @pytest.mark.req("PL-410")
    @pytest.mark.parametrize("way", WAYS)
    @pytest.mark.parametrize("first", ["attacker", "victim"])
    async def test_it_reaches_no_other_replica(self, registry, evil, process, ref, clock, first, way):
        """Through the Secret, and back to a leader that has read the image itself."""
        digest = registry.tags[APP, "1"]
        image, how = WAYS[way](digest)
        leader, exported = process()
        right = await leader.inspect(ref(image), **how) if first == "victim" else None
        await strike(leader, ref, evil, digest, clock)
        replica, _ = process(restored=exported())
        found = await replica.inspect(ref(image), **how)
        if right is None:
            alone, _ = process()
            right = await alone.inspect(ref(image), **how)
        assert seen(found) == seen(right)

    async def test_it_leaves_nothing_in_the_cache_on_disk(self, registry, evil, make_inspector, ref, clock, tmp_path):
        digest = registry.tags[APP, "1"]
        right = await make_inspector().inspect(ref(f"{APP}@{digest}"))
        for _ in range(2):
            cache = Cache(clock, backing=DiskCache(tmp_path, clock, warn=pytest.fail))
            inspector = make_inspector(cache=cache, attempts=1)
            await strike(inspector, ref, evil, digest, clock)
            await inspector.close()
        cache = Cache(clock, backing=DiskCache(tmp_path, clock, warn=pytest.fail))
        assert seen(await make_inspector(cache=cache).inspect(ref(f"{APP}@{digest}"))) == seen(right)


LIMITS = {"public_probe": True, "requests_per_host": 1, "waiting_per_tenant": 4, "stale_for": 3600.0}


@pytest.mark.req("RG-118")
class TestATenantAtItsLimit:
    """It has as many requests waiting as it may: that is said to itself, of images that others ask for as well."""

    @pytest.fixture
    def crowd(self, registry, ref):
        """The greedy tenant asks for the image, then for so many others that its children find no room."""
        children = [registry.push_image(APP, None, f"linux/{each}") for each in ("amd64", "arm64", "s390x", "ppc64le")]
        registry.push_index(APP, "1", entries=[registry.entry(None, each) for each in children])
        for number in range(4):
            registry.push_index("greedy/other", str(number), "linux/amd64")
        registry.delay = 0.02

        async def crowd(inspector, **how):
            async with asyncio.TaskGroup() as tasks:
                first = tasks.create_task(inspector.inspect(ref(f"{APP}:1"), tenant="greedy", **how))
                await asyncio.sleep(0.01)
                for number in range(4):
                    tasks.create_task(inspector.inspect(ref(f"greedy/other:{number}"), tenant="greedy"))
                modest = tasks.create_task(inspector.inspect(ref(f"{APP}:1"), tenant="modest", **how))
            return first.result(), modest.result()

        return crowd

    @pytest.mark.parametrize("public_probe", [True, False], ids=["as in a cluster", "with the caller's credentials"])
    async def test_who_shares_its_lookup_does_not_share_its_limit(self, make_inspector, crowd, public_probe):
        inspector = make_inspector(**LIMITS | {"public_probe": public_probe})
        greedy, modest = await crowd(inspector)
        assert greedy.error.error_class == "limit"
        assert modest.error is None
        assert len(modest.platforms) == 4

    async def test_the_tags_of_others_do_not_count_as_failing(self, make_inspector, registry, crowd, ref, clock):
        """A tag whose check failed is answered with what it named before, although it has moved."""
        inspector = make_inspector(**LIMITS)
        assert (await inspector.inspect(ref(f"{APP}:1"))).platforms
        clock.advance(inspector.settings.tag_ttl + 1)
        children = [
            registry.push_image(APP, None, f"linux/{each}", salt="2") for each in ("386", "arm", "mips", "loong64")
        ]
        registry.push_index(APP, "1", entries=[registry.entry(None, each) for each in children])
        async with asyncio.TaskGroup() as tasks:
            greedy = tasks.create_task(inspector.inspect(ref(f"{APP}:1"), tenant="greedy"))
            await asyncio.sleep(0.01)
            for number in range(4):
                tasks.create_task(inspector.inspect(ref(f"greedy/other:{number}"), tenant="greedy"))
        assert greedy.result().error.error_class == "limit"
        assert inspector.peek(ref(f"{APP}:1")) is None

    async def test_images_of_large_documents_come_to_their_end_one_after_another(self, registry, make_inspector, ref):
        """Where others hold all that is shared, and two of them have no room at once."""
        number = 10
        for tag in range(number):
            body = plain_image(registry, "linux/arm64", config={"Labels": {"x": "y" * 60_000}}, created=str(tag))
            registry.push(APP, str(tag), encode({**json.loads(body), "annotations": {"x": "y" * 50_000}}), OCI_MANIFEST)
        inspector = make_inspector(bytes_in_flight=CLUSTER.bytes_in_flight, public_probe=True)
        capacity = inspector.connection.rate_limiter.bytes_in_flight
        for name in ("a", "b", "c"):
            assert capacity.hold(name, "image", 8 * MIB)
        left = [ref(f"{APP}:{tag}") for tag in range(number)]
        for _ in range(number):
            answers = await asyncio.gather(*(inspector.inspect(each, tenant="modest", fresh=True) for each in left))
            left = [each.reference for each in answers if each.error is not None]
        assert not left
        assert capacity.used == 24 * MIB
        assert capacity.held("modest") == 0


class Holding:
    """A credential of a namespace's own, and anonymous access."""

    def __init__(self, user, password):
        self.credentials = [Credential(user, password, source=f"secret {user}/pull", key="registry"), ANONYMOUS]

    async def candidates(self, reference, source):
        return self.credentials

    def cached_candidates(self, reference, source):
        return self.credentials

    def warnings(self, source):
        return ()


@pytest.mark.req("RG-118")
class TestHostsThatAnAttackerLeadsTo:
    """A hostile registry names the victim's as the place of its tokens or its content, and finds an address there that
    says 429, or that nobody serves: pauses and circuits of what is led there are not those of the host itself."""

    PAUSED = Answer(429, headers={"Retry-After": "86400"})

    @staticmethod
    def by_realm(evil, url):
        evil.auth, evil.realm = "bearer", url

    @staticmethod
    def by_redirect(evil, url):
        evil.script("*", APP, Answer(307, headers={"Location": url}), forever=True)

    @pytest.mark.parametrize("lead", [by_realm, by_redirect])
    async def test_a_pause_there_is_the_attackers(self, registry, evil, make_inspector, ref, lead):
        registry.push_index(APP, "1", "linux/arm64")
        registry.script("*", "busy", self.PAUSED, forever=True)
        lead(evil, f"{registry.url}/busy")
        inspector = make_inspector(public_probe=True, wait=False)
        answer = await inspector.inspect(ref(f"{APP}:1", evil))
        assert answer.error.code == "rate-limited"
        assert (await inspector.inspect(ref(f"{APP}:1"))).platforms
        assert not inspector.host_busy(ref(f"{APP}:1"))

    @pytest.mark.parametrize("lead", [by_realm, by_redirect])
    async def test_failed_connections_there_are_the_attackers(self, start_registry, evil, make_inspector, ref, lead):
        async with ScriptedRegistry() as away:
            pass
        lead(evil, f"{away.url}/x")
        inspector = make_inspector(public_probe=True, wait=False, attempts=1)
        for number in range(FAILURES_TO_OPEN + 1):
            assert (await inspector.inspect(ref(f"{APP}:{number}", evil))).error.code == "network"
        assert not inspector.host_busy(ref(f"{APP}:1", away))

    async def test_wrong_passwords_pause_nobody_but_their_owner(self, start_registry, make_inspector, ref):
        shared = await start_registry(auth="bearer")
        shared.users, shared.readers = {"ann": "right"}, {APP: {"ann"}}
        shared.push_index(APP, "1", "linux/arm64")

        def token(request):
            return self.PAUSED if "Authorization" in request.headers and wrong else Answer(401)

        wrong = True
        shared.script("GET", "token", *[token] * 4)
        inspector = make_inspector(public_probe=True, wait=False)
        answer = await inspector.inspect(ref(f"{APP}:1", shared), credentials=Holding("eve", "guess"))
        assert answer.error.code == "rate-limited"
        shared.clear_scripts()
        answer = await inspector.inspect(ref(f"{APP}:1", shared), credentials=Holding("ann", "right"))
        assert answer.platforms, answer.error
        again = await inspector.inspect(ref(f"{APP}:1", shared), credentials=Holding("eve", "guess"), fresh=True)
        assert again.error.code == "rate-limited"


@pytest.mark.req("RG-094", "RG-118")
class TestAMirrorOfAllRegistries:
    """One host passes on what each registry says (``ns=``); some are the attacker's."""

    @pytest.fixture
    def mirrored(self, registry, make_inspector, tmp_path):
        (tmp_path / "_default").mkdir()
        (tmp_path / "_default" / "hosts.toml").write_text(f'[host."{registry.url}"]\n')
        registry.push_index(APP, "1", "linux/arm64")
        configuration = Configuration.load(hosts_dirs=[tmp_path], environ={})
        timeouts = Timeouts(first_byte=0.1)
        return make_inspector(configuration=configuration, public_probe=True, wait=False, attempts=1, timeouts=timeouts)

    async def test_a_pause_of_one_is_not_that_of_another(self, registry, mirrored):
        registry.script("*", "evil", TestHostsThatAnAttackerLeadsTo.PAUSED, forever=True)
        await mirrored.inspect("evil.example/evil/app:1")
        assert (await mirrored.inspect(f"good.example/{APP}:1")).platforms

    async def test_silence_of_one_opens_no_circuit_for_another(self, registry, mirrored):
        registry.script("*", "evil", Answer(delay=1.0), forever=True)
        for number in range(FAILURES_TO_OPEN + 1):
            await mirrored.inspect(f"evil.example/evil/app:{number}")
        assert (await mirrored.inspect(f"good.example/{APP}:1")).platforms

    async def test_head_is_given_up_for_the_one_that_answers_none(self, registry, mirrored, clock):
        registry.push_index("evil/app", "1", "linux/arm64")
        registry.script("HEAD", "evil", Answer(405), forever=True)
        for image in ("evil.example/evil/app:1", f"good.example/{APP}:1"):
            await mirrored.inspect(image)
            clock.advance(mirrored.settings.tag_ttl + 1)
            await mirrored.inspect(image)
        assert registry.requests("HEAD", APP)

    async def test_a_realm_of_one_gets_no_credential_of_another(self, registry, mirrored, evil, clock):
        """Not even where it is shown at once, since the repository is known to be private."""
        ann = Holding("ann", "right")
        registry.auth, registry.users = "basic", {"ann": "right"}
        evil.auth, evil.users = "bearer", {"ann": "right"}
        assert (await mirrored.inspect(f"good.example/{APP}:1", credentials=ann)).platforms
        realm = f'Bearer realm="{evil.url}/token"'
        registry.script("*", "evil", Answer(401, headers={"WWW-Authenticate": realm}), forever=True)
        await mirrored.inspect("evil.example/evil/app:1")
        answer = await mirrored.inspect(f"good.example/{APP}:1", credentials=ann, not_before=clock.monotonic() + 1)
        assert answer.platforms, answer.error
        assert not any("authorization" in seen.headers for seen in evil.seen)


@pytest.mark.req("RG-119")
class TestImagesOfVeryManyEntries:
    """Anybody can push an index of a thousand entries; the containers of one pod name a hundred."""

    @pytest.fixture
    def flood(self, evil):
        for number in range(30):
            entries = [
                {
                    "mediaType": OCI_MANIFEST,
                    "digest": digest_of(b"%d %d" % (number, at)),
                    "size": 1,
                    "platform": platform,
                }
                for at in range(1000)
                for platform in ({"os": "linux", "architecture": f"a{at}"},)
            ]
            evil.push_index(APP, str(number), entries=entries)

        async def flood(inspector, ref):
            for number in range(30):
                assert (await inspector.inspect(ref(f"{APP}:{number}", evil))).platforms

        return flood

    async def test_they_leave_the_readings_of_others_in_memory(self, registry, flood, make_inspector, ref, clock):
        registry.push_index(APP, "1", "linux/amd64", "linux/arm64")
        inspector = make_inspector(public_probe=True, cache=Cache(clock, max_bytes=8 * 2**20))
        await inspector.inspect(ref(f"{APP}:1"))
        await flood(inspector, ref)
        assert inspector.peek(ref(f"{APP}:1")) is not None

    @pytest.mark.req("PL-410")
    async def test_they_leave_room_in_what_replicas_share(self, registry, flood, process, ref):
        registry.push_index(APP, "1", "linux/amd64", "linux/arm64")
        inspector, exported = process()
        await inspector.inspect(ref(f"{APP}:1"))
        await flood(inspector, ref)
        replica, _ = process(restored=exported())
        assert replica.peek(ref(f"{APP}:1")) is not None


@pytest.mark.parametrize(
    ("version", "restored"), [(VERSION, True), (1, False)], ids=["this format", "the first format"]
)
async def test_readings_of_the_first_format_are_not_restored(process, registry, ref, clock, version, restored):
    """A Secret with them may hold what a header said: it is replaced, not believed."""
    body = plain_index(registry.entry("linux/amd64"), registry.entry("linux/arm64"))
    registry.push(APP, "1", body, OCI_INDEX)
    leader, exported = process()
    await leader.inspect(ref(f"{APP}:1"))
    document = json.loads(gzip.decompress(exported()))
    document["readings"][0]["reading"] |= {"kind": "schema1", "status": "unknown", "entries": []}
    document["version"] = version
    forged, cache = gzip.compress(encode(document)), Cache(clock)
    if restored:
        assert drained(CacheImporter(cache, clock).steps(forged)) == 1
        return
    with pytest.raises(DamagedExport, match="version"):
        drained(CacheImporter(cache, clock).steps(forged))
    assert list(cache.readings()) == []
