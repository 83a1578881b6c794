"""Metrics and health of an exporter on one port, by mode."""

import asyncio
import ssl
from contextlib import asynccontextmanager

import aiohttp
import pytest
import trustme

from polyarch.clock import SystemClock
from polyarch.kube.metrics import Metrics
from polyarch.kube.server import Health
from polyarch.numa.exporter.server import ExporterServer
from polyarch.numa.exporter.settings import CIPHER_SUITES, TLS_VERSIONS, MetricsSettings, openssl_ciphers

CA = trustme.CA()


@asynccontextmanager
async def serving(**settings):
    health, metrics = Health(), Metrics()
    metrics.counter("scans_total", "Scans").inc()
    endpoints = ExporterServer(MetricsSettings(port=0, **settings), health=health, metrics=metrics, clock=SystemClock())
    health.readiness.add("certificate", endpoints.not_ready)
    tasks = [endpoints.run()] + ([endpoints.certificates.run()] if endpoints.certificates else [])
    await endpoints.start()
    running = [asyncio.create_task(each) for each in tasks]
    try:
        yield endpoints
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await endpoints.stop()


def trusting(**client):
    context = ssl.create_default_context()
    CA.configure_trust(context)
    for certificate in client.values():
        certificate.configure_cert(context)
    return context


async def ask(url, path, context=None):
    connector = aiohttp.TCPConnector(ssl=context or True)
    async with aiohttp.ClientSession(connector=connector) as session, session.get(f"{url}{path}") as answer:
        return answer.status, await answer.text()


def certify(folder):
    issued = CA.issue_cert("127.0.0.1")
    (folder / "tls.key").write_bytes(issued.private_key_pem.bytes())
    (folder / "tls.crt").write_bytes(issued.cert_chain_pems[0].bytes())


async def over_tls(endpoints):
    async with asyncio.timeout(20):
        while not endpoints.url.startswith("https"):
            await asyncio.sleep(0.01)
        while True:
            try:
                return await ask(endpoints.url, "/readyz", trusting())
            except aiohttp.ClientError:
                await asyncio.sleep(0.01)


@pytest.mark.req("NE-121")
async def test_disabled_metrics_leave_health_on_the_loopback_alone():
    async with serving(mode="disabled", address="0.0.0.0") as endpoints:
        assert endpoints.url.startswith("http://127.0.0.1:")
        assert (await ask(endpoints.url, "/healthz"))[0] == 200
        assert (await ask(endpoints.url, "/metrics"))[0] == 404


@pytest.mark.req("NE-121")
async def test_plain_http_answers_metrics_and_health_on_one_port():
    async with serving(mode="http", address="127.0.0.1") as endpoints:
        assert (await ask(endpoints.url, "/readyz"))[0] == 200
        status, page = await ask(endpoints.url, "/metrics")
        assert (status, "scans_total 1.0" in page) == (200, True)


@pytest.mark.req("NE-121")
async def test_a_missing_certificate_is_waited_for_and_readiness_says_so(tmp_path):
    async with serving(mode="httptls", address="127.0.0.1", certs_dir=str(tmp_path)) as endpoints:
        async with asyncio.timeout(20):
            while str(tmp_path / "tls.crt") not in (report := await ask(endpoints.url, "/readyz"))[1]:
                assert report[0] == 503, "it is not ready before it has looked either"
                await asyncio.sleep(0.01)
        assert report[0] == 503
        assert (await ask(endpoints.url, "/healthz"))[0] == 200
        assert (await ask(endpoints.url, "/metrics"))[0] == 503
        port = endpoints.url.rpartition(":")[2]
        certify(tmp_path)
        assert (await over_tls(endpoints))[0] == 200
        assert endpoints.url == f"https://127.0.0.1:{port}"
        assert (await ask(endpoints.url, "/metrics", trusting()))[0] == 200


@pytest.mark.req("NE-122")
async def test_scrapers_need_a_certificate_if_that_is_wanted_and_probes_do_not(tmp_path):
    certify(tmp_path)
    CA.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    settings = {"mode": "httptls", "address": "127.0.0.1", "certs_dir": str(tmp_path)}
    async with serving(**settings, want_client_certificates=True) as endpoints:
        assert (await over_tls(endpoints))[0] == 200
        assert (await ask(endpoints.url, "/metrics", trusting()))[0] == 401
        scraper = trusting(scraper=CA.issue_cert("scraper"))
        assert (await ask(endpoints.url, "/metrics", scraper))[0] == 200


@pytest.mark.req("NE-122")
async def test_an_older_tls_than_wanted_is_refused(tmp_path):
    certify(tmp_path)
    settings = {"mode": "httptls", "address": "127.0.0.1", "certs_dir": str(tmp_path)}
    async with serving(**settings, min_tls_version="VersionTLS13") as endpoints:
        assert (await over_tls(endpoints))[0] == 200
        older = trusting()
        older.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(aiohttp.ClientConnectorError):
            await ask(endpoints.url, "/healthz", older)


@pytest.mark.req("NE-122")
async def test_with_tls_1_2_only_the_wanted_ciphers_are_spoken(tmp_path):
    certify(tmp_path)
    wanted = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
    settings = {"mode": "httptls", "address": "127.0.0.1", "certs_dir": str(tmp_path)}
    async with serving(**settings, cipher_suites=(wanted,)) as endpoints:
        assert (await over_tls(endpoints))[0] == 200
        for name, spoken in ((wanted, True), ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256", False)):
            context = trusting()
            context.maximum_version = ssl.TLSVersion.TLSv1_2
            context.set_ciphers(CIPHER_SUITES[name])
            if spoken:
                assert (await ask(endpoints.url, "/healthz", context))[0] == 200
            else:
                with pytest.raises(aiohttp.ClientConnectorError):
                    await ask(endpoints.url, "/healthz", context)


@pytest.mark.req("NE-122")
def test_every_name_means_something_to_openssl():
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    for name, openssl in CIPHER_SUITES.items():
        if openssl:
            context.set_ciphers(openssl)
            assert openssl in {each["name"] for each in context.get_ciphers()}, name
    assert {ssl.TLSVersion[member] for member in TLS_VERSIONS.values()} == {
        ssl.TLSVersion.TLSv1_2,
        ssl.TLSVersion.TLSv1_3,
    }


@pytest.mark.req("NE-122")
def test_suites_of_tls_1_3_cannot_be_chosen_and_do_no_harm():
    assert openssl_ciphers(("TLS_AES_128_GCM_SHA256",)) == ""
    with pytest.raises(KeyError):
        openssl_ciphers(("TLS_OF_MY_OWN",))
