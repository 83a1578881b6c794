"""TLS as a kubeconfig describes it, and certificates that change while we run."""

import ssl
from pathlib import Path

import pytest
import trustme
from manual_clock import ManualClock
from scripted_server import document, pod, serving

from polyarch.kube import errors
from polyarch.kube.client import Client
from polyarch.kube.credentials import ClientCertificate, Credential, TlsContexts
from polyarch.kube.resources import PODS
from polyarch.kube.settings import PemSource, TlsSettings


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


def pem(data: bytes | None = None, *, file: Path | None = None, field: str = "x") -> PemSource:
    return PemSource(path="/kubeconfig", field=field, data=data, file=str(file or ""))


def trusting(authority: trustme.CA) -> PemSource:
    return pem(authority.cert_pem.bytes(), field="certificate-authority-data")


def server_context(authority: trustme.CA, *names: str, clients: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    if clients is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        clients.configure_trust(context)
    return context


def shown(request) -> str:
    """The common name of the certificate that a client showed."""
    subject = request.transport.get_extra_info("peercert")["subject"]
    return dict(pair for group in subject for pair in group)["commonName"]


async def fetch(api, tls: TlsSettings, **settings):
    async with Client(api.configuration(tls=tls), **settings) as client:
        return await client.get(PODS, "web", namespace="demo")


@pytest.mark.req("KR-001")
async def test_a_server_known_by_the_configured_authority(authority):
    async with serving(server_context(authority, "127.0.0.1")) as api:
        api.otherwise = document(pod("web", 1))
        assert (await fetch(api, TlsSettings(ca=trusting(authority))))["kind"] == "Pod"


@pytest.mark.req("KR-001", "KR-002")
async def test_a_foreign_server_is_refused_at_once_with_the_reason(authority):
    """Not retried, it would not get better."""
    async with serving(server_context(trustme.CA(), "127.0.0.1")) as api:
        with pytest.raises(errors.ConnectionFailed, match=r"certificate is not accepted: .*certificate verify failed"):
            await fetch(api, TlsSettings(ca=trusting(authority)))
        with pytest.raises(errors.ConnectionFailed, match="certificate is not accepted"):
            await fetch(api, TlsSettings())
    assert api.requests == []


@pytest.mark.req("KR-001")
async def test_a_server_of_another_name_needs_tls_server_name(authority):
    async with serving(server_context(authority, "inner.example")) as api:
        api.otherwise = document(pod("web", 1))
        ca = trusting(authority)
        with pytest.raises(errors.ConnectionFailed, match=r"not valid for '127\.0\.0\.1'"):
            await fetch(api, TlsSettings(ca=ca))
        assert (await fetch(api, TlsSettings(ca=ca, server_name="inner.example")))["kind"] == "Pod"


@pytest.mark.req("KR-001")
async def test_insecure_skip_tls_verify(authority):
    async with serving(server_context(trustme.CA(), "elsewhere.example")) as api:
        api.otherwise = document(pod("web", 1))
        assert (await fetch(api, TlsSettings(skip_verify=True)))["kind"] == "Pod"


@pytest.mark.req("KR-001")
async def test_the_servers_own_certificate_as_authority_is_enough():
    """As in Go, where any certificate in the bundle is a root."""
    authority = trustme.CA()
    certificate = authority.issue_cert("127.0.0.1")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate.configure_cert(context)
    async with serving(context) as api:
        api.otherwise = document(pod("web", 1))
        leaf = pem(certificate.cert_chain_pems[0].bytes())
        assert (await fetch(api, TlsSettings(ca=leaf)))["kind"] == "Pod"


def write(folder: Path, certificate: trustme.LeafCert) -> None:
    (folder / "client.crt").write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
    (folder / "client.key").write_bytes(certificate.private_key_pem.bytes())


@pytest.mark.req("KR-001")
async def test_client_certificate_files_are_taken_over_when_they_change(authority, tmp_path):
    """After a minute the new certificate is shown, on a new connection; nothing is restarted."""
    names = []

    async def answer(request):
        names.append(shown(request))
        return await document(pod("web", 1))(request)

    write(tmp_path, authority.issue_cert(common_name="first"))
    settings = TlsSettings(
        ca=trusting(authority),
        certificate=pem(file=tmp_path / "client.crt"),
        key=pem(file=tmp_path / "client.key"),
    )
    clock = ManualClock()
    async with serving(server_context(authority, "127.0.0.1", clients=authority)) as api:
        api.otherwise = answer
        async with Client(api.configuration(tls=settings), clock=clock) as client:
            await client.get(PODS, "web", namespace="demo")
            write(tmp_path, authority.issue_cert(common_name="second"))
            clock.advance(59)
            await client.get(PODS, "web", namespace="demo")
            clock.advance(1)
            await client.get(PODS, "web", namespace="demo")
    assert names == ["first", "first", "second"]
    assert len(api.connections) == 2


@pytest.mark.req("KR-001")
async def test_a_plugins_client_certificate_is_shown_and_its_successor_too(authority):
    names = []

    async def answer(request):
        names.append(shown(request))
        return await document(pod("web", 1))(request)

    class Rotating:
        name = "one"

        def __init__(self):
            self.known = {}

        async def current(self):
            if self.name not in self.known:
                leaf = authority.issue_cert(common_name=self.name)
                chain = b"".join(part.bytes() for part in leaf.cert_chain_pems)
                self.known[self.name] = Credential((), ClientCertificate(chain, leaf.private_key_pem.bytes()))
            return self.known[self.name]

        async def refused(self, credential):
            return False

    credentials = Rotating()
    async with serving(server_context(authority, "127.0.0.1", clients=authority)) as api:
        api.otherwise = answer
        tls = TlsSettings(ca=trusting(authority))
        async with Client(api.configuration(tls=tls), credentials=credentials) as client:
            await client.get(PODS, "web", namespace="demo")
            await client.get(PODS, "web", namespace="demo")
            credentials.name = "two"
            await client.get(PODS, "web", namespace="demo")
    assert names == ["one", "one", "two"]


@pytest.mark.req("KR-001")
@pytest.mark.parametrize(
    ("settings", "field", "problem"),
    [
        (TlsSettings(ca=pem(b"nonsense", field="ca-data")), "ca-data", "no certificate in PEM form"),
        (
            TlsSettings(certificate=pem(b"nonsense", field="cert-data"), key=pem(b"nonsense")),
            "cert-data",
            "do not belong together, or are not in PEM form",
        ),
    ],
)
def test_certificates_that_cannot_be_read_name_their_field(settings, field, problem):
    with pytest.raises(errors.ConfigurationError, match=problem) as caught:
        TlsContexts(settings, ManualClock()).current()
    assert caught.value.field == field


@pytest.mark.req("KR-001")
def test_a_key_of_another_certificate_is_noticed(authority, tmp_path):
    write(tmp_path, authority.issue_cert(common_name="a"))
    other = authority.issue_cert(common_name="b").private_key_pem.bytes()
    settings = TlsSettings(certificate=pem(file=tmp_path / "client.crt", field="client-certificate"), key=pem(other))
    with pytest.raises(errors.ConfigurationError, match=r"client-certificate: .*do not belong together.*client\.crt"):
        TlsContexts(settings, ManualClock()).current()


@pytest.mark.req("KR-001")
def test_an_encrypted_key_is_refused_without_asking_on_the_terminal(authority):
    from cryptography.hazmat.primitives import serialization

    leaf = authority.issue_cert(common_name="a")
    key = serialization.load_pem_private_key(leaf.private_key_pem.bytes(), None).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"word"),
    )
    settings = TlsSettings(certificate=pem(leaf.cert_chain_pems[0].bytes()), key=pem(key))
    with pytest.raises(errors.ConfigurationError, match="the client key is encrypted"):
        TlsContexts(settings, ManualClock()).current()


@pytest.mark.req("KR-001")
def test_certificate_files_that_are_being_written_do_not_stop_the_requests(authority, tmp_path, capsys):
    """Certificate and key are two files; between the two writes, or without them, the last ones serve."""
    write(tmp_path, authority.issue_cert(common_name="first"))
    settings = TlsSettings(
        ca=trusting(authority),
        certificate=pem(file=tmp_path / "client.crt"),
        key=pem(file=tmp_path / "client.key"),
    )
    clock = ManualClock()
    contexts = TlsContexts(settings, clock)
    first = contexts.current()
    successor = authority.issue_cert(common_name="second")
    (tmp_path / "client.crt").write_bytes(successor.cert_chain_pems[0].bytes())
    clock.advance(60)
    assert contexts.current() is first
    assert "do not belong together" in capsys.readouterr().out
    (tmp_path / "client.key").unlink()
    clock.advance(60)
    assert contexts.current() is first
    write(tmp_path, successor)
    clock.advance(60)
    assert contexts.current() is not first


@pytest.mark.req("KR-001")
def test_nothing_changed_means_the_same_context_and_so_the_same_connections(authority):
    clock = ManualClock()
    contexts = TlsContexts(TlsSettings(ca=trusting(authority)), clock)
    first = contexts.current()
    clock.advance(3600)
    assert contexts.current() is first
