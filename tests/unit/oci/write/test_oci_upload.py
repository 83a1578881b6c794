"""An upload that a registry sends to another host, such as an object store with signed URLs.

That host gets the bytes, and nothing that is meant for the registry: not its credentials, not the headers and the
client certificate that ``hosts.toml`` has for it, not its permission to be insecure.
"""

import ssl

import pytest
import trustme
from image_parts import WritableRegistry
from scripted_registry import Answer, ScriptedRegistry, digest_of

from polyarch.oci.auth.credentials import ANONYMOUS, Credential
from polyarch.oci.mirror_files import ClientCertificate, Header, HostsFile, MirrorEndpoint, Tls
from polyarch.oci.pull_sources import Configuration
from polyarch.oci.reference import parse
from polyarch.oci.traffic.exchange import Stream
from polyarch.oci.traffic.failures import Failure
from polyarch.oci.transport.addresses import AddressPolicy
from polyarch.oci.transport.http import AiohttpTransport
from polyarch.oci.transport.tls import TrustSettings, TrustStore
from polyarch.oci.write.push import open_destination
from polyarch.proxies import Proxies

BLOB = bytes(range(256)) * 8
DIGEST = digest_of(BLOB)


class Ann:
    """Has credentials for every host that is asked for."""

    async def candidates(self, reference, source):
        return [Credential("ann", "secret", source="test"), ANONYMOUS]

    def cached_candidates(self, reference, source):
        return None

    def warnings(self, source):
        return ()


@pytest.fixture(scope="module")
def authority():
    return trustme.CA()


@pytest.fixture
async def registry(stack):
    """Its ``hosts.toml`` says plain HTTP, a header and a client certificate; it asks for ann's password."""
    registry = await stack.enter_async_context(WritableRegistry(auth="basic"))
    registry.users["ann"] = "secret"
    return registry


@pytest.fixture
async def storage(stack, authority):
    """Another host, with https. It takes any PUT, and writes down which client certificates it is shown."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.configure_trust(context)
    context.verify_mode = ssl.CERT_OPTIONAL
    storage = await stack.enter_async_context(ScriptedRegistry(ssl_context=context))
    storage.certificates = []

    def take(request):
        storage.certificates.append(request.transport.get_extra_info("peercert"))
        return Answer(201)

    storage.script("PUT", "bucket/", take, forever=True)
    return storage


@pytest.fixture
def client_certificate(authority, tmp_path):
    issued = authority.issue_cert("ann@example")
    certificate, key = tmp_path / "ann.pem", tmp_path / "ann.key"
    issued.cert_chain_pems[0].write_to_path(str(certificate))
    issued.private_key_pem.write_to_path(str(key))
    return ClientCertificate(str(certificate), str(key))


@pytest.fixture
def writer(registry, authority, client_certificate, make_inspector, stack):
    """``await writer()``: writes to a repository of the registry. ``trusted``: the CA of the other host is known.
    ``insecure``: the registry is not in plain HTTP by its file; whatever answers will do."""

    async def writer(*, trusted=True, insecure=False):
        endpoint = MirrorEndpoint(
            "https" if insecure else "http",
            "",
            tls=Tls(clients=(client_certificate,)),
            headers=(Header("X-Tenant", "acme-marker"),),
        )
        known = authority.cert_pem.bytes().decode() if trusted else ""
        transport = AiohttpTransport(
            policy=AddressPolicy(), trust=TrustStore(TrustSettings(system=False, ca_data=known)), proxies=Proxies({})
        )
        stack.push_async_callback(transport.close)
        inspector = make_inspector(
            transport=transport,
            credentials=Ann(),
            configuration=Configuration(
                hosts={registry.host: HostsFile("hosts.toml", server=endpoint)},
                insecure_hosts=frozenset({registry.host} if insecure else ()),
            ),
        )
        return await open_destination(inspector.connection, parse(f"{registry.host}/team/app:1"))

    return writer


async def upload(writer):
    async def chunks():
        yield BLOB

    await writer.send(await writer.begin(), DIGEST, Stream(chunks(), len(BLOB)))


@pytest.mark.req("RG-106")
async def test_an_upload_at_the_registry_has_its_headers_and_credentials(writer, registry):
    """The same origin. What the tests below miss at the other host is sent where it belongs."""
    made = await writer()
    await made.digest_of("1")  # learns that the registry asks for a password: a body that streams is sent only once
    await upload(made)
    (put,) = (each for each in registry.seen if each.method == "PUT")
    assert put.headers["x-tenant"] == "acme-marker"
    assert put.headers["authorization"].startswith("Basic ")
    assert registry.blobs["team/app", DIGEST] == BLOB


@pytest.mark.req("RG-094", "RG-101", "RG-106")
async def test_another_host_gets_the_bytes_and_nothing_that_is_the_registrys(writer, registry, storage):
    """RG-106: another https origin without credentials; RG-101, RG-094: nor with headers or certificates of the
    registry. The signature of the URL stays in front of the digest."""
    registry.location = f"{storage.url}/bucket/7?signature=abc"
    await upload(await writer())
    (put,) = storage.seen
    assert (put.method, put.path, put.body) == ("PUT", "bucket/7", BLOB)
    assert put.query == f"signature=abc&digest={DIGEST}"
    assert not {"authorization", "x-tenant", "cookie"} & put.headers.keys()
    assert "acme-marker" not in str(put.headers)
    assert storage.certificates == [None]
    begun = [each for each in registry.seen if each.method == "POST"]
    assert begun[-1].headers["authorization"].startswith("Basic ")
    assert {each.headers["x-tenant"] for each in begun} == {"acme-marker"}


@pytest.mark.req("RG-106")
async def test_another_host_that_asks_for_a_password_gets_none(writer, registry, storage):
    """Not even for a challenge, although credentials for that host could be found."""
    registry.location = f"{storage.url}/closed/7"
    storage.script("PUT", "closed/", Answer(401, headers={"WWW-Authenticate": 'Basic realm="x"'}), forever=True)
    with pytest.raises(Failure) as caught:
        await upload(await writer())
    assert caught.value.error.error_class == "auth"
    assert storage.seen
    assert all("authorization" not in each.headers for each in storage.seen)


@pytest.mark.req("RG-101")
async def test_another_host_has_to_prove_who_it_is_although_the_registry_need_not(writer, registry, storage):
    """A registry that may be insecure does not make other hosts so."""
    registry.location = f"{storage.url}/bucket/7"
    made = await writer(trusted=False, insecure=True)
    with pytest.raises(Failure) as caught:
        await upload(made)
    assert (caught.value.error.code, storage.seen) == ("tls", [])
