"""One request and what can happen to it: headers, HEAD, redirects, limits, retries, pauses."""

import asyncio
import gzip
import json
import socket
import zlib

import pytest

from polyarch import __version__
from polyarch.oci.documents import digest_of
from polyarch.oci.inspection import Status
from polyarch.oci.reference import parse
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.interface import Timeouts
from polyarch.oci.transport.tls import TrustSettings, TrustStore
from polyarch.proxies import Proxies

pytestmark = pytest.mark.req("RG-031")

SIX = {
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
    "application/vnd.docker.distribution.manifest.v1+prettyjws",
    "application/vnd.docker.distribution.manifest.v1+json",
}
INDEX = "application/vnd.oci.image.index.v1+json"


@pytest.fixture
def image(registry, ref):
    """An index in the registry, and its reference."""
    registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
    return ref("team/app:1")


@pytest.mark.req("RG-030")
class TestHeaders:
    async def test_every_manifest_request_accepts_all_six_types_in_one_header(self, registry, inspector, ref, clock):
        child = registry.push_image("team/app", None, "linux/arm64")
        registry.push_index("team/app", "1", "linux/amd64", entries=[registry.entry(None, child)])
        await inspector.inspect(ref("team/app:1"))
        clock.advance(601)
        await inspector.inspect(ref("team/app:1"))
        asked = [seen for seen in registry.seen if "/manifests/" in seen.path]
        assert [seen.method for seen in asked] == ["GET", "GET", "HEAD"]
        assert all({each.strip() for each in seen.headers["accept"].split(",")} == SIX for seen in asked)

    async def test_nothing_is_compressed_and_we_say_who_we_are(self, registry, inspector, image):
        await inspector.inspect(image)
        headers = registry.seen[0].headers
        assert headers["accept-encoding"] == "identity"
        assert headers["user-agent"] == f"polyarch/{__version__}"
        assert "cookie" not in headers

    async def test_the_registry_is_never_pinged(self, registry, inspector, image):
        await inspector.inspect(image)
        assert [str(seen) for seen in registry.seen] == ["GET team/app/manifests/1"]

    @pytest.mark.req("RG-094")
    async def test_a_mirrors_query_and_path_and_headers_are_sent_to_it(self, registry, make_inspector, ref, tmp_path):
        """RG-094 use: ``ns``, ``override_path``, ``header``."""
        from polyarch.oci.pull_sources import Configuration
        from polyarch.oci.reference import parse

        registry.push_index("proxy/team/app", "1", "linux/amd64", "linux/arm64")
        folder = tmp_path / "r.example"
        folder.mkdir()
        (folder / "hosts.toml").write_text(
            f'[host."http://{registry.host}/v2/proxy"]\noverride_path = true\n'
            f'[host."http://{registry.host}/v2/proxy".header]\nx-team = "us"\n'
        )
        inspector = make_inspector(configuration=Configuration.load(hosts_dirs=[tmp_path], environ={}))
        answer = await inspector.inspect(parse("r.example/team/app:1"))
        assert answer.status is Status.RESOLVED, answer.error
        (seen,) = registry.seen
        assert (seen.path, seen.query, seen.headers["x-team"]) == ("proxy/team/app/manifests/1", "ns=r.example", "us")

    @pytest.mark.req("RG-094")
    async def test_all_values_of_a_header_are_sent(self, registry, make_inspector, ref, tmp_path):
        """A name may have a list of values, and stand there in two spellings."""
        from polyarch.oci.pull_sources import Configuration
        from polyarch.oci.reference import parse

        registry.push_image("team/app", "1", "linux/amd64")
        folder = tmp_path / "r.example"
        folder.mkdir()
        (folder / "hosts.toml").write_text(
            f'[host."http://{registry.host}"]\n[host."http://{registry.host}".header]\n'
            'x-team = ["us", "them"]\nX-Team = "all"\ncookie = ["a=1", "b=2"]\n'
        )
        inspector = make_inspector(configuration=Configuration.load(hosts_dirs=[tmp_path], environ={}))
        assert (await inspector.inspect(parse("r.example/team/app:1"))).status is Status.RESOLVED
        assert {(seen.headers["x-team"], seen.headers["cookie"]) for seen in registry.seen} == {
            ("us, them, all", "a=1; b=2")
        }
        assert len(registry.seen) == 2


@pytest.mark.req("RG-032")
class TestHead:
    @pytest.fixture
    async def expired(self, inspector, image, clock):
        await inspector.inspect(image)
        clock.advance(601)
        return image

    @pytest.mark.parametrize("status", [400, 403, 405, 406, 501])
    async def test_a_host_without_head_is_asked_by_get_and_remembered(
        self, registry, inspector, expired, answer, clock, status
    ):
        registry.script("HEAD", "", answer(status), forever=True)
        assert (await inspector.inspect(expired)).status is Status.RESOLVED
        assert registry.requests()[1:] == ["HEAD team/app/manifests/1", "GET team/app/manifests/1"]
        clock.advance(601)
        await inspector.inspect(expired)
        assert registry.requests()[3:] == ["GET team/app/manifests/1"]
        clock.advance(3601)
        await inspector.inspect(expired)
        assert registry.requests()[4:] == ["HEAD team/app/manifests/1", "GET team/app/manifests/1"]

    @pytest.mark.parametrize(
        "headers",
        [
            pytest.param({"Content-Type": INDEX}, id="no digest"),
            pytest.param({"Content-Type": INDEX, "Docker-Content-Digest": "sha256:short"}, id="a malformed digest"),
            pytest.param({"Content-Type": "text/html", "Docker-Content-Digest": f"sha256:{'0' * 64}"}, id="a page"),
        ],
    )
    async def test_unusable_headers_lead_to_one_get(self, registry, inspector, expired, answer, headers):
        registry.script("HEAD", "", answer(200, headers=headers))
        found = await inspector.inspect(expired)
        assert found.status is Status.RESOLVED
        assert registry.requests("GET")[1:] == ["GET team/app/manifests/1"]

    async def test_where_head_does_not_work_an_etag_says_that_nothing_changed(
        self, registry, inspector, expired, answer
    ):
        registry.script("HEAD", "", answer(405), forever=True)
        found = await inspector.inspect(expired)
        assert registry.seen[-1].headers["if-none-match"] == f'"{found.digest}"'
        assert (found.cached, found.status) == (True, Status.RESOLVED)

    async def test_a_404_is_believed_once_a_get_says_so_too(self, registry, inspector, expired, answer):
        registry.script("HEAD", "", answer(404))
        found = await inspector.inspect(expired)
        asked = ["HEAD team/app/manifests/1", "GET team/app/manifests/1"]
        assert (found.status, registry.requests()[1:]) == (Status.RESOLVED, asked)

    async def test_a_tag_that_is_gone_is_not_found(self, registry, inspector, expired, answer):
        registry.script("HEAD", "", answer(404))
        registry.script("GET", "", answer(404))
        assert (await inspector.inspect(expired)).error.code == "not-found"


@pytest.mark.req("RG-050")
class TestLimits:
    async def test_a_declared_length_beyond_the_limit_is_refused_before_the_body(
        self, registry, inspector, ref, answer
    ):
        registry.script(
            "GET", "", answer(200, b"x", {"Content-Length": str(5 * 2**20), "Content-Type": INDEX}, drop=True)
        )
        found = await inspector.inspect(ref("team/app:1"))
        assert found.error.code == "too-large"
        assert str(5 * 2**20) in found.error.message
        assert str(4 * 2**20) in found.error.message

    async def test_reading_stops_at_the_limit(self, registry, inspector, ref):
        registry.push("team/app", "1", b"[" + b" " * (4 * 2**20) + b"]", INDEX)
        found = await inspector.inspect(ref("team/app:1"))
        assert found.error.code == "too-large"
        assert found.error.error_class == "content"

    async def test_a_config_has_half_of_that(self, registry, inspector, ref, answer):
        registry.push_image("team/app", "1", "linux/amd64")
        registry.script("GET", "/blobs/", answer(200, b" " * (2 * 2**20 + 1)))
        assert (await inspector.inspect(ref("team/app:1"))).error.code == "too-large"

    @pytest.mark.parametrize(
        ("encoding", "packed"), [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress)]
    )
    async def test_what_a_proxy_compresses_unasked_is_read(self, registry, inspector, ref, answer, encoding, packed):
        """As by Go's clients. The digest is that of the content."""
        index = {
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": [registry.entry("linux/s390x", f"sha256:{'a' * 64}")],
        }
        body = json.dumps(index).encode()
        headers = {"Content-Encoding": encoding, "Content-Type": INDEX, "Docker-Content-Digest": digest_of(body)}
        registry.script("GET", "", answer(200, packed(body), headers))
        found = await inspector.inspect(ref("team/app:1"), bundle="never")
        assert ([str(each) for each in found.platforms], found.digest) == (["linux/s390x"], digest_of(body))

    async def test_compressed_bodies_have_the_limit_of_others(self, registry, inspector, ref, answer):
        bomb = gzip.compress(b" " * 50 * 2**20)
        registry.script("GET", "", answer(200, bomb, {"Content-Encoding": "gzip", "Content-Type": INDEX}))
        assert (await inspector.inspect(ref("team/app:1"))).error.code == "too-large"

    async def test_a_compressed_body_that_breaks_off_passes(self, registry, inspector, ref, answer):
        half = gzip.compress(b"{}" * 9999)[:30]
        registry.script("GET", "", answer(200, half, {"Content-Encoding": "gzip", "Content-Type": INDEX}))
        assert (await inspector.inspect(ref("team/app:1"))).error.error_class == "transient"

    @pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, br"])
    async def test_other_encodings_are_told(self, registry, inspector, ref, answer, encoding):
        registry.script("GET", "", answer(200, b"x", {"Content-Encoding": encoding, "Content-Type": INDEX}))
        found = await inspector.inspect(ref("team/app:1"))
        assert (found.error.code, encoding in found.error.message) == ("unsupported-encoding", True)

    async def test_a_thousand_entries_are_read_and_one_more_is_not(self, registry, inspector, ref):
        for tag, count in (("fits", 1000), ("beyond", 1001)):
            entries = [registry.entry("linux/amd64", f"sha256:{number:064x}") for number in range(count)]
            registry.push_index("team/app", tag, entries=entries)
        fits = await inspector.inspect(ref("team/app:fits"), bundle="never")
        assert (fits.status, [str(each) for each in fits.platforms]) == (Status.RESOLVED, ["linux/amd64"])
        assert (await inspector.inspect(ref("team/app:beyond"))).error.code == "too-complex"

    async def test_malformed_json_names_the_first_bad_member(self, registry, inspector, ref):
        body = json.dumps({"mediaType": INDEX, "manifests": [{"digest": 5}]}).encode()
        registry.push("team/app", "1", body, INDEX)
        found = await inspector.inspect(ref("team/app:1"))
        assert found.error.code == "malformed"
        assert "$.manifests[0].digest" in found.error.message


@pytest.mark.req("RG-051")
class TestTime:
    async def test_a_slow_first_byte_is_told_with_phase_and_host(self, registry, make_inspector, image):
        inspector = make_inspector(timeouts=Timeouts(first_byte=0.05), attempts=1)
        registry.delay = 1.0
        found = await inspector.inspect(image)
        assert (found.error.code, found.error.error_class) == ("timeout", "transient")
        assert "first byte" in found.error.message
        assert registry.host in found.error.message

    async def test_the_whole_image_has_a_time_of_its_own(self, registry, make_inspector, image):
        inspector = make_inspector(timeout=0.1)
        registry.delay = 5.0
        found = await inspector.inspect(image)
        assert found.error.code == "timeout"
        assert "0.1 s for one image" in found.error.message

    async def test_waiting_in_line_does_not_count(self, registry, make_inspector, ref):
        """Twelve images, one at a time: the last waits longer than it may take."""
        from polyarch.clock import SystemClock

        inspector = make_inspector(timeout=1.0, requests_per_host=1, clock=SystemClock())
        registry.delay = 0.12
        for number in range(12):
            registry.push_index("team/app", str(number), "linux/amd64", f"linux/{number}")
        answers = await inspector.inspect_many([ref(f"team/app:{number}") for number in range(12)])
        assert [answer.status for answer in answers] == [Status.RESOLVED] * 12


@pytest.mark.req("RG-060")
class TestRetries:
    @pytest.mark.parametrize("status", [408, 500, 502, 503, 504])
    async def test_what_may_pass_is_tried_again(self, registry, inspector, image, answer, clock, status):
        registry.script("GET", "", answer(status), answer(status), answer(status))
        assert (await inspector.inspect(image)).status is Status.RESOLVED
        assert len(registry.seen) == 4
        assert all(delay <= 0.25 * 2**turn for turn, delay in enumerate(clock.slept, start=1))

    async def test_after_four_attempts_it_is_told(self, registry, inspector, image, answer):
        registry.script(
            "GET", "", answer(502, b'{"errors":[{"code":"UNKNOWN","message":"bad\\u0007 day"}]}'), forever=True
        )
        found = await inspector.inspect(image)
        assert (found.error.code, found.error.status, len(registry.seen)) == ("server-error", 502, 4)
        for part in (image.canonical, registry.host, "HTTP 502", "UNKNOWN", '"bad day"', "4 attempts", "try again"):
            assert part in found.error.message

    async def test_a_truncated_body_is_tried_again(self, registry, inspector, image, answer):
        registry.script("GET", "", answer(200, b'{"schema', {"Content-Type": INDEX}, drop=True))
        assert (await inspector.inspect(image)).status is Status.RESOLVED
        assert len(registry.seen) == 2

    @pytest.mark.parametrize("status", [s for s in range(400, 600) if s != 429])
    async def test_the_class_of_a_failure_decides_how_often_a_status_is_asked_for(
        self, registry, inspector, image, answer, status
    ):
        registry.script("GET", "", answer(status), forever=True)
        error = (await inspector.inspect(image)).error
        attempts = 4 if error.error_class == "transient" else 1
        assert (len(registry.seen), error.status) == (attempts, status)

    @pytest.mark.parametrize("status", [402, 408, 418, 421, 423, 424, 425, 498, 499, 500, 507, 509, *range(520, 531)])
    async def test_a_server_that_recovers_is_read_after_all(self, registry, inspector, image, answer, status):
        for _ in range(2):
            registry.script("GET", "", answer(status, b"<html>error page", {"Content-Type": "text/html"}))
        assert (await inspector.inspect(image)).status is Status.RESOLVED

    async def test_delays_end_with_the_images_time(self, registry, make_inspector, image, answer):
        inspector = make_inspector(timeout=0.0)
        registry.script("GET", "", answer(500), forever=True)
        assert (await inspector.inspect(image)).error.error_class == "transient"
        assert len(registry.seen) <= 1

    @pytest.mark.req("PL-113", "RG-061")
    async def test_five_failed_connections_open_the_circuit(self, start_registry, make_inspector, ref, clock):
        """Left alone for its rest, then asked again."""
        inspector = make_inspector(circuit_rest=5.0)
        registry = await start_registry()
        reference = ref("team/app:1", registry)
        await registry.__aexit__()
        first = await inspector.inspect(reference)
        assert (first.error.code, "4 attempts" in first.error.message) == ("network", True)
        await inspector.inspect(reference)
        assert inspector.host_busy(reference)
        again = await inspector.inspect(reference)
        assert (again.error.code, again.requests) == ("network", 0)
        assert "circuit open" in again.error.message
        assert 0 < again.error.retry_after <= 5
        clock.advance(5)
        assert not inspector.host_busy(reference)

    @pytest.mark.req("PL-330")
    async def test_a_host_that_does_not_exist_is_configuration_and_asked_for_once(self, make_inspector):
        """No circuit opens, or the next answer would be of another class."""

        class NoSuchName:
            async def resolve(self, host):
                raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

        policy = AddressPolicy()
        transport = AiohttpTransport(
            policy=policy, trust=TrustStore(TrustSettings(system=False)), proxies=Proxies({}), resolver=NoSuchName()
        )
        inspector = make_inspector(transport=transport, policy=policy)
        try:
            for _ in range(10):
                error = (await inspector.inspect(parse("mirror.example/team/app:1"), fresh=True)).error
                assert (error.code, error.error_class) == ("unknown-host", "configuration")
                assert error.message.startswith("mirror.example/team/app:1: mirror.example: there is no host")
                assert "attempts" not in error.message
        finally:
            await transport.close()

    async def test_an_absence_is_answered_from_memory_for_a_minute(self, registry, inspector, ref, clock):
        first = await inspector.inspect(ref("team/none:1"))
        assert (first.error.code, first.error.error_class, first.error.status) == ("not-found", "absent", 404)
        for part in (ref("team/none:1").canonical, registry.host, "404", "MANIFEST_UNKNOWN", "check the spelling"):
            assert part in first.error.message
        clock.advance(59)
        assert (await inspector.inspect(ref("team/none:1"))).cached
        clock.advance(1)
        await inspector.inspect(ref("team/none:1"))
        assert len(registry.seen) == 2


@pytest.mark.req("RG-062")
class TestPauses:
    async def test_a_pause_is_waited_out(self, registry, inspector, image, answer, clock):
        registry.script("GET", "", answer(429, headers={"Retry-After": "20"}))
        found = await inspector.inspect(image)
        assert (found.status, clock.slept) == (Status.RESOLVED, [20.0])

    async def test_503_with_retry_after_is_a_pause_too(self, registry, inspector, image, answer, clock):
        registry.script("GET", "", answer(503, headers={"Retry-After": "3"}))
        assert (await inspector.inspect(image)).status is Status.RESOLVED
        assert clock.slept == [3.0]

    async def test_pauses_together_are_no_longer_than_max_wait(self, registry, inspector, image, answer, clock):
        registry.script("GET", "", answer(429, headers={"Retry-After": "25"}), forever=True)
        found = await inspector.inspect(image)
        assert (found.error.code, found.error.retry_after) == ("rate-limited", 25.0)
        assert clock.slept == [25.0, 25.0]  # a third would be beyond 60 s, and is not begun

    async def test_a_pause_that_is_too_long_is_not_begun(self, registry, inspector, image, answer, clock):
        registry.script("GET", "", answer(429, b'{"errors":[{"code":"TOOMANYREQUESTS"}]}', {"Retry-After": "61"}))
        found = await inspector.inspect(image)
        assert (found.error.code, found.error.status, clock.slept) == ("rate-limited", 429, [])
        assert "TOOMANYREQUESTS" in found.error.message

    async def test_without_the_header_two_four_eight(self, registry, inspector, image, answer, clock):
        registry.script("GET", "", *[answer(429)] * 3)
        assert (await inspector.inspect(image)).status is Status.RESOLVED
        assert clock.slept == [2.0, 4.0, 8.0]

    async def test_controllers_are_answered_at_once_and_the_host_is_left_alone(
        self, registry, make_inspector, image, ref, answer, clock
    ):
        inspector = make_inspector(wait=False)
        registry.script("GET", "", answer(429, headers={"Retry-After": "20"}))
        assert (await inspector.inspect(image)).error.retry_after == 20.0
        clock.advance(5)
        other = await inspector.inspect(ref("team/other:1"))
        assert (other.error.code, other.error.retry_after, other.requests) == ("rate-limited", 15.0, 0)
        assert clock.slept == []
        clock.advance(15)
        assert (await inspector.inspect(image)).status is Status.RESOLVED

    @pytest.mark.req("RG-063")
    async def test_the_rate_limit_keeps_a_reserve_and_heads_go_on(self, registry, make_inspector, image, ref, clock):
        inspector = make_inspector(wait=False, reserve=10)
        registry.headers = {"RateLimit-Limit": "100;w=21600", "RateLimit-Remaining": "10;w=21600"}
        registry.push_index("team/app", "2", "linux/amd64", "linux/arm64")
        assert (await inspector.inspect(image)).status is Status.RESOLVED
        assert inspector.rate_limits[registry.host][:3] == (100, 10, 21600)
        refused = await inspector.inspect(ref("team/app:3"))
        assert (refused.error.code, refused.requests) == ("rate-limited", 0)
        assert "reserve" in refused.error.message
        clock.advance(601 - 0)
        assert (await inspector.inspect(image)).requests == 1  # the HEAD of an expired tag

    @pytest.mark.req("PL-851")
    async def test_a_tenant_with_too_many_requests_is_told_to_come_back(self, registry, make_inspector, ref):
        inspector = make_inspector(requests_per_host=1, waiting_per_tenant=2, wait=False)
        for number in range(8):
            registry.push_index("team/app", str(number), "linux/amd64", "linux/arm64")
        await inspector.inspect(ref("team/app:6"))
        registry.delay = 0.05
        loud = [asyncio.create_task(inspector.inspect(ref(f"team/app:{n}"), tenant="loud")) for n in range(6)]
        await asyncio.sleep(0.01)
        quiet = await inspector.inspect(ref("team/app:7"), tenant="quiet")
        assert quiet.status is Status.RESOLVED
        codes = sorted(found.error.code if found.error else "" for found in await asyncio.gather(*loud))
        assert codes == ["", "", "", "tenant-limit", "tenant-limit", "tenant-limit"]

    @pytest.mark.req("RG-064")
    async def test_warnings_of_a_registry_are_shown_once_per_text(self, registry, make_inspector, ref, image):
        notices = []
        inspector = make_inspector(notice=notices.append)
        registry.headers = {"Warning": '299 - "this registry\t moves \\"soon\\""'}
        await inspector.inspect(image)
        await inspector.inspect(ref("team/none:1"))
        assert notices == [f'{registry.host} says: this registry moves "soon"']


@pytest.mark.req("RG-052")
class TestConcurrency:
    async def test_eight_at_a_time_per_host(self, registry, inspector, ref):
        registry.delay = 0.03
        for number in range(30):
            registry.push_index("team/app", str(number), "linux/amd64", "linux/arm64")
        await inspector.inspect_many([ref(f"team/app:{number}") for number in range(30)])
        assert registry.most_concurrent == 8

    async def test_and_so_many_in_all(self, registry, start_registry, make_inspector, ref):
        inspector = make_inspector(requests=3)
        registries = [registry, await start_registry(), await start_registry()]
        running = most = 0

        for each in registries:
            each.push_index("team/app", "1", "linux/amd64", "linux/arm64")
            each.push_index("team/app", "2", "linux/amd64", "linux/arm64")
            each.delay = 0.03
        references = [ref(f"team/app:{tag}", each) for each in registries for tag in ("1", "2")]

        async def watch():
            nonlocal running, most
            while True:
                most = max(most, sum(each.concurrent for each in registries))
                await asyncio.sleep(0.002)

        watching = asyncio.create_task(watch())
        await inspector.inspect_many(references)
        watching.cancel()
        await asyncio.wait([watching])
        assert 0 < most <= 3

    async def test_manifests_go_before_blobs(self, registry, make_inspector, ref):
        inspector = make_inspector(requests_per_host=1)
        registry.delay = 0.01
        for number in range(4):
            registry.push_image("team/app", str(number), "linux/amd64")
        await inspector.inspect_many([ref(f"team/app:{number}") for number in range(4)])
        kinds = ["blob" if "/blobs/" in each else "manifest" for each in registry.requests()]
        assert kinds == ["manifest"] * 4 + ["blob"] * 4


@pytest.mark.req("RG-105")
class TestRedirects:
    async def blob_via(self, registry, inspector, ref, answer, location, status=307):
        registry.push_image("team/app", "1", "linux/s390x")
        registry.script("GET", "/blobs/", answer(status, headers={"Location": location}))
        return await inspector.inspect(ref("team/app:1"))

    @pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
    async def test_they_are_followed_to_another_origin_without_authorization(
        self, start_registry, make_inspector, ref, answer, status
    ):
        from polyarch.oci.auth.credentials import Credential

        registry, storage = await start_registry(auth="basic"), await start_registry()
        registry.users["robot"] = "password"
        inspector = make_inspector(credentials=_Holding(Credential("robot", "password", source="f", key="k")))
        registry.push_image("team/app", "1", "linux/s390x")
        ((_, digest), body), *_ = registry.blobs.items()
        registry.script("GET", "/blobs/", answer(status, headers={"Location": f"{storage.url}/some/where?signature=x"}))
        storage.script("GET", "some/where", answer(200, body))
        found = await inspector.inspect(ref("team/app:1", registry))
        assert [str(each) for each in found.platforms] == ["linux/s390x"], found.error
        assert "authorization" in registry.seen[-1].headers
        (seen,) = storage.seen
        assert (seen.query, "authorization" in seen.headers, digest in seen.path) == ("signature=x", False, False)

    async def test_within_the_origin_the_credential_goes_along(self, start_registry, make_inspector, ref, answer):
        from polyarch.oci.auth.credentials import Credential

        registry = await start_registry(auth="basic")
        registry.users["robot"] = "password"
        inspector = make_inspector(credentials=_Holding(Credential("robot", "password", source="f", key="k")))
        registry.push_image("team/app", "1", "linux/s390x")
        registry.push_index("team/moved", "1", "linux/amd64", "linux/arm64")
        await inspector.inspect(ref("team/moved:1", registry))
        registry.script("GET", "team/app/manifests", answer(301, headers={"Location": "/v2/team/moved/manifests/1"}))
        found = await inspector.inspect(ref("team/app:1", registry))
        assert found.status is Status.RESOLVED
        assert "authorization" in registry.seen[-1].headers

    async def test_no_more_than_five(self, registry, inspector, ref, answer):
        registry.script("GET", "/blobs/|^loop", answer(302, headers={"Location": "/loop"}), forever=True)
        registry.push_image("team/app", "1", "linux/s390x")
        found = await inspector.inspect(ref("team/app:1"))
        assert (found.error.code, found.error.error_class) == ("refused-redirect", "configuration")
        assert len(registry.seen) == 1 + 6

    @pytest.mark.parametrize(
        "location",
        ["ftp://files.example/x", "http://user:marker@127.0.0.1/", "http://[broken", "javascript:alert(1)"],
    )
    async def test_what_is_no_place_for_a_request_is_refused(self, registry, inspector, ref, answer, location):
        found = await self.blob_via(registry, inspector, ref, answer, location)
        assert found.error.code == "refused-redirect"
        assert "marker" not in found.error.message

    @pytest.mark.req("RG-103")
    async def test_a_private_place_named_by_a_public_registry_is_refused(self, registry, make_inspector, ref, answer):
        """What a server names must be public, or of the registry's own class."""
        found = await self.blob_via(registry, make_inspector(), ref, answer, "http://169.254.169.254/latest/meta-data/")
        assert (found.error.code, "169.254.169.254" in found.error.message) == ("refused-address", True)


@pytest.mark.req("PL-851", "RG-103")
async def test_a_cluster_does_not_reach_loopback(registry, make_inspector, image):
    """Pod authors choose hosts."""
    inspector = make_inspector(policy=AddressPolicy.of("cluster"), insecure_loopback=False)
    found = await inspector.inspect(image)
    assert (found.error.code, found.error.error_class, registry.seen) == ("refused-address", "configuration", [])


@pytest.mark.req("RG-101")
class TestTls:
    @pytest.fixture
    def authority(self):
        import trustme

        return trustme.CA()

    @pytest.fixture
    async def secure(self, authority, start_registry):
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("127.0.0.1").configure_cert(context)
        registry = await start_registry(ssl_context=context)
        registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
        return registry

    async def test_an_unknown_authority_is_final_and_says_what_to_do(self, secure, make_inspector, ref):
        inspector = make_inspector(insecure_loopback=False)
        found = await inspector.inspect(ref("team/app:1", secure))
        assert (found.error.code, found.error.error_class) == ("tls", "configuration")
        assert "--ca" in found.error.message

    async def test_on_loopback_the_command_line_makes_do_without_verification(self, secure, make_inspector, ref):
        inspector = make_inspector()
        found = await inspector.inspect(ref("team/app:1", secure))
        assert (found.status, found.requests) == (Status.RESOLVED, 1)

    async def test_a_trusted_authority_is_verified(self, secure, authority, stack, make_inspector, ref, tmp_path):
        from polyarch.oci.transport.http import AiohttpTransport
        from polyarch.oci.transport.tls import TrustSettings, TrustStore
        from polyarch.proxies import Proxies

        file = tmp_path / "ca.pem"
        authority.cert_pem.write_to_path(file)
        transport = AiohttpTransport(
            trust=TrustStore(TrustSettings(ca_files=(str(file),), system=False)), proxies=Proxies({})
        )
        stack.push_async_callback(transport.close)
        inspector = make_inspector(transport=transport, insecure_loopback=False)
        assert (await inspector.inspect(ref("team/app:1", secure))).status is Status.RESOLVED

    async def test_the_way_that_worked_is_remembered(self, registry, make_inspector, ref):
        from collections import Counter

        from polyarch.oci.metrics import NoMetrics

        results = Counter()

        class Counting(NoMetrics):
            def request(self, host, operation, result, seconds):
                results[result] += 1

        inspector = make_inspector(metrics=Counting())
        for number in range(4):
            registry.push_index("team/app", str(number), "linux/amd64", "linux/arm64")
            await inspector.inspect(ref(f"team/app:{number}"))
        assert results == {"tls": 2, "200": 4}


@pytest.mark.req("RG-162")
async def test_failing_requests_leak_no_connection(registry, make_inspector, ref, answer, stack):
    """Here a thousand; the soak test does the rest."""
    from polyarch.oci.transport.http import AiohttpTransport
    from polyarch.oci.transport.tls import TrustSettings, TrustStore
    from polyarch.proxies import Proxies

    transport = AiohttpTransport(trust=TrustStore(TrustSettings(system=False)), proxies=Proxies({}))
    stack.push_async_callback(transport.close)
    inspector = make_inspector(transport=transport, attempts=1)
    failures = [
        answer(500, b"x" * 40_000),
        answer(404, b"{}"),
        answer(200, b"{", {"Content-Type": INDEX}, drop=True),
        answer(200, b"x", {"Content-Length": str(2**30)}, drop=True),
        answer(302, headers={"Location": "ftp://x"}),
    ]
    registry.script("GET", "", *failures * 200)
    await inspector.inspect_many([ref(f"team/app:{number}") for number in range(1000)])
    assert len(registry.seen) >= 1000
    connector = transport._session.connector
    assert len(connector._acquired) == 0


class _Holding:
    """A store with these credentials, then anonymous."""

    def __init__(self, *credentials):
        from polyarch.oci.auth.credentials import ANONYMOUS

        self.credentials = [*credentials, ANONYMOUS]

    async def candidates(self, reference, source):
        return list(self.credentials)

    def cached_candidates(self, reference, source):
        return list(self.credentials)

    def warnings(self, source):
        return ()
