"""Certificates are followed and rotated, and no connection fails while they are."""

import asyncio
import base64
import math
import ssl
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import aiohttp
import pytest
import structlog
import trustme
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)
from fake_api import FakeApi
from manual_clock import ManualClock

from polyarch.kube.certificate_rotation import LOADING, PROPAGATION, SelfManaged, SelfManagedSettings
from polyarch.kube.certificates import (
    CertificateError,
    Certificates,
    FileCertificates,
    KeyPair,
    SecretCertificates,
    WatchedCertificates,
    not_after,
    server_context,
)
from polyarch.kube.errors import Conflict, NotFound, Unavailable
from polyarch.kube.metrics import Metrics
from polyarch.kube.resources import CRDS, MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from polyarch.kube.server import HttpServer
from polyarch.kube.x509 import RENEW_AT, certificates_of, make_authority
from polyarch.objects import ObjectKey, Secret

CA = trustme.CA()


def pair(name: str = "127.0.0.1", **options) -> KeyPair:
    issued = CA.issue_cert(name, **options)
    return KeyPair(issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes())


def serial(pem: bytes) -> int:
    return x509.load_pem_x509_certificate(pem).serial_number


class Source:
    """Something certificates are read from; ``content`` is a pair or an error."""

    def __init__(self, content: KeyPair | CertificateError) -> None:
        self.content = content

    async def __call__(self) -> KeyPair:
        if isinstance(self.content, CertificateError):
            raise self.content
        return self.content


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(start=0, now=datetime.now(UTC))


async def which(request: web.BaseRequest) -> web.Response:
    """Says by which connection the request came."""
    return web.Response(text=str(request.transport.get_extra_info("peername")[1]))


def trusting(ca: trustme.CA = CA) -> ssl.SSLContext:
    context = ssl.create_default_context()
    ca.configure_trust(context)
    return context


async def served_serial(server: HttpServer, trust: ssl.SSLContext) -> int:
    """The serial number of the certificate that a new connection is shown."""
    _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
    der = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    await writer.wait_closed()
    return x509.load_der_x509_certificate(der).serial_number


# -- following a source -----------------------------------------------------------------------------------------------


@pytest.mark.req("KR-033")
async def test_a_new_certificate_is_served_without_dropping_connections(clock):
    first, second = pair(), pair()
    source = Source(first)
    certificates = Certificates(source, "test", clock=clock)
    await certificates.load()
    async with HttpServer(which, tls=certificates.context) as server:
        connector = aiohttp.TCPConnector(ssl=trusting())
        async with aiohttp.ClientSession(server.url, connector=connector) as session:
            async with session.get("/") as response:
                connection = await response.text()
            assert await served_serial(server, trusting()) == serial(first.certificate)

            source.content = second
            assert await certificates.load() is True
            assert await served_serial(server, trusting()) == serial(second.certificate)
            async with session.get("/") as response:
                assert await response.text() == connection, "the connection of before goes on"


@pytest.mark.req("KR-033")
async def test_what_does_not_load_is_reported_and_the_one_in_force_stays(clock):
    good, other = pair(), pair()
    source = Source(good)
    certificates = Certificates(source, "Secret a/b", clock=clock)
    await certificates.load()
    async with HttpServer(which, tls=certificates.context) as server:
        source.content = KeyPair(other.certificate, good.key)
        with pytest.raises(CertificateError, match="Secret a/b"):
            await certificates.load()
        assert certificates.loaded
        assert certificates.not_ready() is None, "it serves, with the old one"
        assert certificates.problem is not None
        assert await served_serial(server, trusting()) == serial(good.certificate)


@pytest.mark.req("KR-033")
@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param(lambda good: KeyPair(b"", b""), id="empty"),
        pytest.param(lambda good: KeyPair(b"no certificate", good.key), id="no PEM"),
        pytest.param(lambda good: KeyPair(good.certificate[:200], good.key), id="half a file"),
        pytest.param(lambda good: KeyPair(good.key, good.certificate), id="swapped"),
        pytest.param(lambda good: KeyPair(good.certificate, b""), id="no key"),
        pytest.param(
            lambda good: KeyPair(
                b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
                good.key,
            ),
            id="not a certificate inside",
        ),
    ],
)
async def test_a_source_of_garbage_never_becomes_ready(clock, spoiled):
    certificates = Certificates(Source(spoiled(pair())), "folder x", clock=clock)
    with pytest.raises(CertificateError, match="folder x"):
        await certificates.load()
    assert not certificates.loaded
    assert "folder x" in certificates.not_ready()


@pytest.mark.req("KR-033")
async def test_an_encrypted_key_is_refused_and_nobody_is_asked_for_a_password(clock):
    good = pair()
    key = load_pem_private_key(good.key, None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    with pytest.raises(CertificateError, match="unencrypted"):
        await Certificates(Source(KeyPair(good.certificate, encrypted)), "x", clock=clock).load()


@pytest.mark.req("KR-033")
async def test_the_source_is_polled_and_each_problem_logged_once(clock):
    source = Source(CertificateError("Secret a/b does not exist"))
    certificates = Certificates(source, "Secret a/b", clock=clock, interval=10)
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(certificates.run())
        await clock.run(5)
        assert certificates.not_ready() == "Secret a/b does not exist"
        source.content = pair()
        await clock.run(1)
        assert certificates.not_ready() is None
        old = certificates.expires_at
        source.content = pair(not_after=datetime.now(UTC) + timedelta(days=3))
        await clock.run(10)
        assert certificates.expires_at < old
        task.cancel()
        await asyncio.wait([task])
    assert [entry["log_level"] for entry in logs] == ["warning", "info", "info"]


@pytest.mark.req("KR-033")
async def test_files_of_a_mounted_secret_are_followed(tmp_path, clock):
    certificates = FileCertificates(tmp_path, clock=clock)
    with pytest.raises(CertificateError, match=r"tls\.crt cannot be read"):
        await certificates.load()
    for content in (pair(), pair()):
        (tmp_path / "tls.crt").write_bytes(content.certificate)
        (tmp_path / "tls.key").write_bytes(content.key)
        assert await certificates.load() is True
        assert await certificates.load() is False, "same content, same certificate"
        assert certificates.expires_at == x509.load_pem_x509_certificate(content.certificate).not_valid_after_utc


def secret(**entries: bytes) -> dict:
    data = {name.replace("_", "."): base64.b64encode(content).decode() for name, content in entries.items()}
    return {"metadata": {"name": "certs", "namespace": "polyarch"}, "data": data}


@pytest.mark.req("KR-033")
async def test_a_secret_is_followed_by_name(clock):
    api = FakeApi()
    certificates = SecretCertificates(api, "polyarch", "certs", clock=clock)
    with pytest.raises(CertificateError, match="Secret polyarch/certs does not exist"):
        await certificates.load()
    content = pair()
    api.put(SECRETS, secret(tls_crt=content.certificate))
    with pytest.raises(CertificateError, match=r"no entry tls\.key"):
        await certificates.load()
    api.put(SECRETS, secret(tls_crt=content.certificate, tls_key=content.key))
    assert await certificates.load()

    async def down(verb, resource, name):
        raise Unavailable(503)

    api.hook = down
    with pytest.raises(CertificateError, match="cannot be read"):
        await certificates.load()
    assert certificates.not_ready() is None, "an API server that is away does not end serving"
    assert {request[0] for request in api.requests} == {"get"}


class WatchedSecrets:
    """An informer that has read nothing until it is told so."""

    def __init__(self) -> None:
        self.store: dict[ObjectKey, Secret] = {}
        self.read = asyncio.Event()

    async def synced(self) -> None:
        await self.read.wait()

    def add_handler(self, handler: object) -> None: ...


@pytest.mark.req("KR-033")
@pytest.mark.parametrize("exists", [True, False])
async def test_nothing_is_said_of_a_secret_that_was_not_read_yet(clock, exists):
    """A restarted process said that its certificate does not exist, and loaded it a moment later."""
    secrets, key, content = WatchedSecrets(), ObjectKey("polyarch", "certs"), pair()
    certificates = WatchedCertificates(secrets, key, clock=clock)
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(certificates.run())
        await clock.run(5)
        assert logs == []
        assert certificates.not_ready() == "no certificate was loaded from Secret polyarch/certs yet"
        if exists:
            secrets.store[key] = Secret(data={"tls.crt": content.certificate, "tls.key": content.key})
        secrets.read.set()
        await clock.run(1)
        task.cancel()
        await asyncio.wait([task])
    assert [entry["event"] for entry in logs] == ["certificate loaded" if exists else "certificate not usable"]


@pytest.mark.parametrize("year", [2030, 2049, 2050, 2120])
def test_the_end_of_the_validity_is_read_as_cryptography_reads_it(year):
    content = pair(not_after=datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC))
    assert not_after(content.certificate, "x") == datetime(year, 12, 31, 23, 59, 59, tzinfo=UTC)


@pytest.mark.req("KR-033")
async def test_the_expiry_is_a_metric(clock):
    metrics = Metrics()
    end = clock.now() + timedelta(days=5)
    certificates = Certificates(Source(pair(not_after=end)), "x", clock=clock, metrics=metrics)

    def value() -> float:
        return metrics.registry.get_sample_value("polyarch_certificate_expiry_seconds")

    assert math.isnan(value()), "no certificate is not an expired one"
    await certificates.load()
    assert value() == pytest.approx(5 * 86400, abs=2)
    clock.advance(86400)
    assert value() == pytest.approx(4 * 86400, abs=2)


@pytest.mark.req("PL-854")
async def test_only_tls_1_2_or_newer_and_http_1_1_are_spoken(clock):
    assert server_context().minimum_version == ssl.TLSVersion.TLSv1_2
    certificates = Certificates(Source(pair()), "x", clock=clock)
    await certificates.load()
    async with HttpServer(which, tls=certificates.context) as server:
        trust = trusting()
        trust.set_alpn_protocols(["h2", "http/1.1"])
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=trust)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"
        writer.close()
        await writer.wait_closed()


def test_a_key_is_not_shown_when_a_pair_is_printed():
    content = pair()
    assert "PRIVATE" not in repr(content)
    issued = make_authority("ca", now=datetime.now(UTC), lifetime=timedelta(days=1))
    assert "PRIVATE" not in repr(issued)


# -- self-managed -----------------------------------------------------------------------------------------------------

SETTINGS = SelfManagedSettings(
    namespace="polyarch",
    secret="certs",
    authority_secret="ca",
    names=("webhook.polyarch.svc", "webhook.polyarch.svc.cluster.local", "127.0.0.1"),
    mutating_webhooks=("pods",),
    validating_webhooks=("configs",),
    conversions=("things",),
)


class Cluster:
    """An API server with the objects that have to trust our CA, and one replica that follows the Secret."""

    def __init__(self, clock: ManualClock) -> None:
        self.api = FakeApi()
        self.clock = clock
        self.managed = SelfManaged(self.api, SETTINGS, clock=clock)
        self.replica = SecretCertificates(self.api, "polyarch", "certs", clock=clock)
        for resource, name in ((MUTATING_WEBHOOKS, "pods"), (VALIDATING_WEBHOOKS, "configs")):
            hooks = [{"name": n, "clientConfig": {"service": {"name": "w"}}, "rules": []} for n in ("one", "two")]
            self.api.put(resource, {"metadata": {"name": name}, "webhooks": hooks})
        conversion = {"strategy": "Webhook", "webhook": {"clientConfig": {}, "conversionReviewVersions": ["v1"]}}
        self.api.put(CRDS, {"metadata": {"name": "things"}, "spec": {"group": "g", "conversion": conversion}})

    async def reconcile(self) -> None:
        """One pass, and another when it asked for one because API servers had to learn of a CA first."""
        result = await self.managed.reconcile(self.managed.key)
        if result.seconds <= PROPAGATION:
            self.clock.advance(result.seconds)
            await self.managed.reconcile(self.managed.key)

    def bundles(self) -> list[bytes]:
        """caBundle everywhere it has to be."""
        found = [
            webhook["clientConfig"].get("caBundle", "")
            for resource, name in ((MUTATING_WEBHOOKS, "pods"), (VALIDATING_WEBHOOKS, "configs"))
            for webhook in self.api.read(resource, name)["webhooks"]
        ]
        found.append(self.api.read(CRDS, "things")["spec"]["conversion"]["webhook"]["clientConfig"].get("caBundle", ""))
        return [base64.b64decode(bundle) for bundle in found]

    @property
    def data(self) -> dict[str, bytes]:
        """The entries of both Secrets that are there."""
        there = [document for key, document in self.api.objects.items() if key[0] is SECRETS]
        return {name: base64.b64decode(value) for each in there for name, value in each["data"].items()}

    @property
    def leaf(self) -> x509.Certificate:
        return x509.load_pem_x509_certificate(self.data["tls.crt"])

    @property
    def authorities(self) -> tuple[x509.Certificate, ...]:
        return certificates_of(self.data["ca.crt"])


@pytest.fixture
def cluster(clock) -> Cluster:
    return Cluster(clock)


def trusted_by(bundle: bytes, leaf: bytes) -> bool:
    """Would a client with this caBundle accept this leaf (validity aside)?"""
    certificate = x509.load_pem_x509_certificate(leaf)
    for authority in certificates_of(bundle):
        try:
            certificate.verify_directly_issued_by(authority)
        except Exception:  # noqa: BLE001 - any failure to verify means not trusted
            continue
        return True
    return False


@asynccontextmanager
async def watched(cluster: Cluster, leaves: list[bytes]):
    """After each request of the pass: every leaf in ``leaves`` and the one stored are trusted by every caBundle."""
    broken: list[str] = []

    async def check(verb, resource, name):
        known = list(leaves)
        if "tls.crt" in cluster.data:
            known.append(cluster.data["tls.crt"])
        if not all(trusted_by(bundle, leaf) for bundle in cluster.bundles() for leaf in known):
            broken.append(f"before {verb} {resource}/{name} a replica was not trusted")

    cluster.api.hook = check
    yield
    await check("end", "", "")
    cluster.api.hook = None
    assert broken == []


@pytest.mark.req("KR-033")
async def test_from_nothing_everything_is_made_and_trusted(cluster):
    await cluster.reconcile()
    assert cluster.bundles() == [cluster.data["ca.crt"]] * 5
    assert trusted_by(cluster.data["ca.crt"], cluster.data["tls.crt"])
    assert base64.b64decode(cluster.managed.ca_bundle) == cluster.data["ca.crt"]
    names = cluster.leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {str(name.value) for name in names} == set(SETTINGS.names)


@pytest.mark.req("PL-540")
async def test_the_ca_is_in_a_secret_that_no_server_has_to_read(cluster):
    """Whoever reads the Secret of the leaf cannot sign names for our webhooks."""
    await cluster.reconcile()
    leaf = cluster.api.read(SECRETS, "certs", "polyarch")
    assert leaf["data"].keys() == {"tls.crt", "tls.key"}
    assert leaf["type"] == "kubernetes.io/tls"
    assert cluster.api.read(SECRETS, "ca", "polyarch")["data"].keys() == {"ca.crt", "ca.key"}
    await cluster.replica.load()
    assert cluster.api.requests[-1] == ("get", str(SECRETS), "certs")


@pytest.mark.req("PL-540")
async def test_a_leaf_of_a_new_ca_waits_until_every_api_server_can_know_that_ca(cluster, clock):
    """A caBundle reaches API servers by a watch; before, the new leaf was served at once."""
    first = await cluster.managed.reconcile(cluster.managed.key)
    assert first.seconds == SETTINGS.interval, "nobody trusts another CA: there is nothing to wait for"
    clock.advance(2350 * 86400)
    await cluster.managed.reconcile(cluster.managed.key)
    old_leaf, old_ca = cluster.leaf, cluster.authorities[0]
    clock.advance(30 * 86400)
    assert (await cluster.managed.reconcile(cluster.managed.key)).seconds == 30
    assert cluster.authorities[0] != old_ca
    assert cluster.leaf == old_leaf
    clock.advance(29)
    assert (await cluster.managed.reconcile(cluster.managed.key)).seconds == pytest.approx(1)
    other = SelfManaged(cluster.api, SETTINGS, clock=clock)
    assert (await other.reconcile(other.key)).seconds == 30, "another leader does not know for how long it is trusted"
    assert cluster.leaf == old_leaf
    clock.advance(1)
    await cluster.managed.reconcile(cluster.managed.key)
    assert cluster.leaf != old_leaf


@pytest.mark.req("PL-540")
@pytest.mark.parametrize("days", [100, 2400, 4000], ids=["leaf", "leaf, and the CA is due", "leaf and CA"])
async def test_what_expired_while_nobody_ran_is_replaced_at_once(cluster, clock, days):
    """A leaf that expired keeps no webhook alive, so its successor need not wait until its CA is known."""
    await cluster.reconcile()
    clock.advance(days * 86400)
    returned = SelfManaged(cluster.api, SETTINGS, clock=clock)
    assert (await returned.reconcile(returned.key)).seconds == SETTINGS.interval
    assert cluster.leaf.not_valid_after_utc > clock.now()
    assert trusted_by(cluster.data["ca.crt"], cluster.data["tls.crt"])
    assert cluster.bundles() == [cluster.data["ca.crt"]] * 5


@pytest.mark.req("PL-540")
async def test_lifetimes_and_keys_are_as_promised(cluster, clock):
    await cluster.reconcile()
    now = clock.now()
    assert cluster.authorities[0].not_valid_after_utc - now == pytest.approx(
        timedelta(days=3650), abs=timedelta(seconds=1)
    )
    assert cluster.leaf.not_valid_after_utc - now == pytest.approx(timedelta(days=90), abs=timedelta(seconds=1))
    assert cluster.leaf.not_valid_before_utc < now, "clients with a slow clock"
    for name in ("ca.key", "tls.key"):
        assert load_pem_private_key(cluster.data[name], None).curve.name == "secp256r1"


@pytest.mark.req("KR-033")
async def test_a_real_client_connects_to_what_was_made(cluster):
    await cluster.reconcile()
    await cluster.replica.load()
    trust = ssl.create_default_context(cadata=cluster.data["ca.crt"].decode())
    async with (
        HttpServer(which, tls=cluster.replica.context) as server,
        aiohttp.ClientSession(server.url, connector=aiohttp.TCPConnector(ssl=trust)) as session,
        session.get("/") as response,
    ):
        assert response.status == 200


@pytest.mark.req("KR-033")
async def test_a_pass_that_finds_nothing_to_do_writes_nothing(cluster, clock):
    await cluster.reconcile()
    done = len(cluster.api.writes())
    clock.advance(30 * 86400)
    result = await cluster.managed.reconcile(cluster.managed.key)
    assert len(cluster.api.writes()) == done
    assert 0 < result.seconds <= 3600


@pytest.mark.req("KR-033")
async def test_the_leaf_is_renewed_before_two_thirds_of_its_life_by_the_same_ca(cluster, clock):
    await cluster.reconcile()
    first, authority = cluster.leaf, cluster.authorities
    clock.advance(55 * 86400)
    await cluster.reconcile()
    assert cluster.leaf == first
    clock.advance(4.9 * 86400)
    await cluster.reconcile()
    assert cluster.leaf != first
    assert cluster.authorities == authority


@pytest.mark.req("KR-033")
async def test_no_admission_fails_while_the_ca_is_rotated(cluster, clock):
    await cluster.reconcile()
    clock.advance(6 * 365 * 86400)
    await cluster.reconcile()
    old_leaf, old_authority = cluster.data["tls.crt"], cluster.authorities[0]
    clock.advance(0.55 * 365 * 86400)
    async with watched(cluster, [old_leaf]):
        await cluster.reconcile()
    new_authority = cluster.authorities[0]
    assert new_authority != old_authority
    assert cluster.authorities == (new_authority, old_authority)
    assert trusted_by(cluster.data["ca.crt"].split(b"-----END CERTIFICATE-----\n")[0] + END, cluster.data["tls.crt"])

    clock.advance(80 * 86400)
    async with watched(cluster, [old_leaf]):
        await cluster.reconcile()
    assert old_authority in cluster.authorities, "a replica may still serve the old leaf"
    clock.advance(15 * 86400)
    await cluster.reconcile()
    assert cluster.authorities == (new_authority,), "the old leaf has expired, nobody can serve it"
    assert cluster.bundles() == [cluster.data["ca.crt"]] * 5


END = b"-----END CERTIFICATE-----\n"


@pytest.mark.req("KR-033")
async def test_a_rotation_cut_off_at_any_request_breaks_nothing_and_is_finished_later(clock):
    for cut in range(40):
        cluster = Cluster(ManualClock(start=0, now=clock.now()))
        await cluster.reconcile()
        old_leaf = cluster.data["tls.crt"]
        cluster.clock.advance(7 * 365 * 86400)
        left = cut

        async def crash(verb, resource, name):
            nonlocal left
            left -= 1
            if left < 0:
                raise Unavailable(503, message="cut off")

        cluster.api.hook = crash
        try:
            await cluster.reconcile()
            complete = True
        except Unavailable:
            complete = False
        cluster.api.hook = None
        cluster.managed = SelfManaged(cluster.api, SETTINGS, clock=cluster.clock)  # the next leader remembers nothing
        stored = cluster.data["tls.crt"]
        assert all(trusted_by(bundle, leaf) for bundle in cluster.bundles() for leaf in (old_leaf, stored)), cut
        await cluster.reconcile()
        assert trusted_by(b"".join(cluster.data["ca.crt"].partition(END)[:2]), cluster.data["tls.crt"]), cut
        if complete:
            assert cut > 10
            return
    pytest.fail("a rotation takes more requests than thought")


@pytest.mark.req("KR-033")
async def test_lost_secrets_leave_replicas_trusted_that_serve_them_from_memory(cluster, clock):
    await cluster.reconcile()
    old_leaf = cluster.data["tls.crt"]
    cluster.api.remove(SECRETS, "certs", "polyarch")
    cluster.api.remove(SECRETS, "ca", "polyarch")
    async with watched(cluster, [old_leaf]):
        await cluster.reconcile()
    assert cluster.data["tls.crt"] != old_leaf
    for bundle in cluster.bundles():
        assert trusted_by(bundle, old_leaf)
        assert trusted_by(bundle, cluster.data["tls.crt"])
    clock.advance(58 * 86400)
    await cluster.reconcile()
    clock.advance(40 * 86400)
    await cluster.reconcile()
    assert cluster.bundles() == [cluster.data["ca.crt"]] * 5


@pytest.mark.req("KR-033")
@pytest.mark.parametrize("entry", ["ca.crt", "ca.key", "tls.crt", "tls.key"])
@pytest.mark.parametrize("garbage", ["", "bm90IFBFTQ==", "%%%"])
async def test_damaged_entries_are_made_anew(cluster, entry, garbage):
    await cluster.reconcile()
    damaged = cluster.api.read(SECRETS, "ca" if entry.startswith("ca") else "certs", "polyarch")
    damaged["data"][entry] = garbage
    cluster.api.put(SECRETS, damaged)
    await cluster.reconcile()
    assert await cluster.replica.load()
    assert all(trusted_by(bundle, cluster.data["tls.crt"]) for bundle in cluster.bundles())


@pytest.mark.req("KR-033")
async def test_a_changed_bundle_is_restored_and_everything_else_left_alone(cluster):
    await cluster.reconcile()
    configuration = cluster.api.read(MUTATING_WEBHOOKS, "pods")
    configuration["webhooks"][1]["clientConfig"]["caBundle"] = ""
    configuration["webhooks"][1]["unknownField"] = 7
    cluster.api.put(MUTATING_WEBHOOKS, configuration)
    await cluster.reconcile()
    assert cluster.bundles() == [cluster.data["ca.crt"]] * 5
    assert cluster.api.read(MUTATING_WEBHOOKS, "pods")["webhooks"][1]["unknownField"] == 7


@pytest.mark.req("KR-033")
async def test_a_foreign_ca_in_a_bundle_is_not_kept(cluster):
    configuration = cluster.api.read(MUTATING_WEBHOOKS, "pods")
    foreign = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    configuration["webhooks"][0]["clientConfig"]["caBundle"] = foreign
    cluster.api.put(MUTATING_WEBHOOKS, configuration)
    await cluster.reconcile()
    assert cluster.bundles() == [cluster.data["ca.crt"]] * 5


@pytest.mark.req("IN-004", "PL-540")
async def test_somebody_elses_leaf_is_replaced_and_no_admission_fails(cluster, clock):
    """Its CA stays trusted until every replica has loaded ours, and no longer."""
    authority = trustme.CA()
    leaf = authority.issue_cert("webhook.polyarch.svc")
    entries = {"tls.crt": leaf.cert_chain_pems[0].bytes(), "tls.key": leaf.private_key_pem.bytes()}
    data = {name: base64.b64encode(content).decode() for name, content in entries.items()}
    cluster.api.put(SECRETS, {"metadata": {"name": "certs", "namespace": "polyarch"}, "data": data})
    trusted = base64.b64encode(authority.cert_pem.bytes()).decode()
    for resource, name in ((MUTATING_WEBHOOKS, "pods"), (VALIDATING_WEBHOOKS, "configs")):
        configuration = cluster.api.read(resource, name)
        for each in configuration["webhooks"]:
            each["clientConfig"]["caBundle"] = trusted
        cluster.api.put(resource, configuration)
    definition = cluster.api.read(CRDS, "things")
    definition["spec"]["conversion"]["webhook"]["clientConfig"]["caBundle"] = trusted
    cluster.api.put(CRDS, definition)
    async with watched(cluster, [entries["tls.crt"]]):
        await cluster.reconcile()
        assert cluster.data["tls.crt"] != entries["tls.crt"]
        clock.advance(LOADING - PROPAGATION)
        await cluster.reconcile()
    clock.advance(2 * PROPAGATION)
    await cluster.reconcile()
    assert cluster.bundles() == [cluster.data["ca.crt"]] * 5


@pytest.mark.req("KR-033")
async def test_configurations_that_do_not_exist_yet_hold_nothing_up(clock):
    api = FakeApi()
    managed = SelfManaged(api, SETTINGS, clock=clock)
    await managed.reconcile(managed.key)
    assert "tls.crt" in api.read(SECRETS, "certs", "polyarch")["data"]
    with pytest.raises(NotFound):
        await api.get(MUTATING_WEBHOOKS, "pods")


@pytest.mark.req("KR-033")
async def test_new_names_lead_to_a_new_leaf(cluster, clock):
    await cluster.reconcile()
    first = cluster.leaf
    names = (*SETTINGS.names, "metrics.polyarch.svc")
    settings = SelfManagedSettings(namespace="polyarch", secret="certs", authority_secret="ca", names=names)
    managed = SelfManaged(cluster.api, settings, clock=clock)
    await managed.reconcile(managed.key)
    assert cluster.leaf != first


@pytest.mark.req("KR-033")
async def test_of_two_that_rotate_at_once_one_steps_back(cluster, clock):
    await cluster.reconcile()
    clock.advance(7 * 365 * 86400)
    other = SelfManaged(cluster.api, SETTINGS, clock=clock)
    meet = asyncio.Barrier(2)
    met = False

    async def together(verb, resource, name):
        nonlocal met
        if verb == "patch" and resource is SECRETS and not met:
            await meet.wait()
            met = True

    cluster.api.hook = together
    results = await asyncio.gather(cluster.reconcile(), other.reconcile(other.key), return_exceptions=True)
    assert [type(result) for result in results if isinstance(result, Exception)] == [Conflict]
    cluster.api.hook = None
    await cluster.reconcile()
    assert len(cluster.authorities) == 2


def test_a_leaf_without_names_is_refused():
    with pytest.raises(ValueError, match="at least one name"):
        SelfManaged(FakeApi(), SelfManagedSettings(namespace="n", names=()))


@pytest.mark.req("KR-033")
def test_renewal_is_due_before_two_thirds_of_the_life():
    assert RENEW_AT < 2 / 3


@pytest.mark.req("KR-033")
async def test_what_was_made_by_a_clock_that_was_ahead_is_replaced(clock):
    """A certificate that is valid next year only is refused by every client until then."""
    ahead = ManualClock(start=0, now=clock.now() + timedelta(days=400))
    cluster = Cluster(ahead)
    await cluster.reconcile()
    cluster.clock, cluster.managed = clock, SelfManaged(cluster.api, SETTINGS, clock=clock)
    await cluster.reconcile()
    assert cluster.leaf.not_valid_before_utc < clock.now()
    assert cluster.authorities[0].not_valid_before_utc < clock.now()
    assert all(trusted_by(bundle, cluster.data["tls.crt"]) for bundle in cluster.bundles())


@pytest.mark.req("KR-033")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", id="another thing"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----\n", id="nothing in it"),
        pytest.param(b"-----BEGIN CERTIFICATE-----\nMAMwAQE=\n-----END CERTIFICATE-----\n", id="damaged"),
    ],
)
def test_what_is_no_certificate_has_no_expiry(text):
    with pytest.raises(CertificateError, match="does not begin with a certificate"):
        not_after(text, "x")
