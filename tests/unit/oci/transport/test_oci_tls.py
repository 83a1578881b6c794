"""Trust per host, and the order in which an insecure source is tried. Handshakes are tested with the transport."""

import ssl
from pathlib import Path

import msgspec
import pytest
import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from polyarch.oci.mirror_files import ClientCertificate, Tls
from polyarch.oci.pull_sources import Configuration, PullSource, sources
from polyarch.oci.reference import parse
from polyarch.oci.transport.addresses import InvalidSetting
from polyarch.oci.transport.interface import Cause, TransportError
from polyarch.oci.transport.tls import TransportMode, TrustSettings, TrustStore, transport_modes, try_next

VERIFIED, UNVERIFIED, PLAIN = TransportMode


def source(image: str = "r.example/x", **changes: object) -> PullSource:
    return msgspec.structs.replace(sources(parse(image), Configuration())[0], **changes)


ORDERS = {
    "an ordinary source": (source(), False, (VERIFIED,)),
    "configured insecure": (source(insecure=True), False, (VERIFIED, UNVERIFIED, PLAIN)),
    "loopback in the command line": (source("localhost:5000/x"), True, (VERIFIED, UNVERIFIED, PLAIN)),
    "a loopback literal in the command line": (source("127.0.0.1:5000/x"), True, (VERIFIED, UNVERIFIED, PLAIN)),
    "loopback in a cluster": (source("localhost:5000/x"), False, (VERIFIED,)),
    "another host in the command line": (source(), True, (VERIFIED,)),
    "plain http by a containerd file": (source(base_url="http://r.example", insecure=True), False, (PLAIN,)),
    "skip_verify is never plain http": (source(tls=Tls(skip_verify=True)), False, (UNVERIFIED,)),
    "skip_verify and insecure": (source(tls=Tls(skip_verify=True), insecure=True), False, (UNVERIFIED, PLAIN)),
}


@pytest.mark.req("RG-101")
@pytest.mark.parametrize(("place", "loopback", "expected"), ORDERS.values(), ids=ORDERS.keys())
def test_less_than_verified_tls_is_for_insecure_sources(
    place: PullSource, loopback: bool, expected: tuple[TransportMode, ...]
) -> None:
    assert transport_modes(place, loopback=loopback) == expected


def test_a_channel_changes_the_scheme_only() -> None:
    assert PLAIN.url("https://r.example:5000") == "http://r.example:5000"
    assert UNVERIFIED.url("https://r.example:5000") == "https://r.example:5000"
    assert (VERIFIED.verified, UNVERIFIED.verified, PLAIN.verified) == (True, False, False)


@pytest.mark.req("RG-101")
@pytest.mark.parametrize(
    ("kind", "cause", "expected"),
    [
        ("tls", "handshake", True),
        ("connect", "refused", True),
        ("tls", "", False),
        ("connect", "", False),
        ("timeout", "", False),
        ("refused-address", "", False),
    ],
)
def test_the_next_channel_is_for_failed_handshakes_and_closed_ports(kind: str, cause: Cause, expected: bool) -> None:
    """Not for a host that is slow, away or forbidden, nor for a certificate file that is unusable."""
    error = TransportError(kind, phase="connect", host="h", detail="d", cause=cause)  # type: ignore[arg-type]
    assert try_next(error) is expected


def ca_file(path: Path) -> trustme.CA:
    authority = trustme.CA()
    path.parent.mkdir(parents=True, exist_ok=True)
    authority.cert_pem.write_to_path(str(path))
    return authority


def client_files(folder: Path, name: str = "client") -> ClientCertificate:
    folder.mkdir(parents=True, exist_ok=True)
    issued = trustme.CA().issue_cert("client@example")
    certificate, key = folder / f"{name}.cert", folder / f"{name}.key"
    certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    key.write_bytes(issued.private_key_pem.bytes())
    return ClientCertificate(str(certificate), str(key))


def settings(tmp_path: Path, **environ: str) -> TrustSettings:
    return TrustSettings.of(
        certs_dir=str(tmp_path / "certs"), environ={"HOME": str(tmp_path / "home"), **environ}, system_directories=()
    )


def count(context: ssl.SSLContext) -> int:
    return len(context.get_ca_certs())


@pytest.mark.req("RG-100")
async def test_all_places_of_trust_count_together(tmp_path: Path) -> None:
    """SSL_CERT_FILE, --ca, given data, and certs.d of three places for one host."""
    for name in (
        "env.pem",
        "option.pem",
        "certs/r.example:5000/a.crt",
        "home/.config/containers/certs.d/r.example:5000/b.crt",
    ):
        ca_file(tmp_path / name)
    system = tmp_path / "etc"
    ca_file(system / "r.example:5000/c.crt")
    ca_file(system / "r.example:5000/ignored.pem")
    ca_file(system / "r.example/other.crt")
    wanted = TrustSettings.of(
        ca=[str(tmp_path / "option.pem")],
        ca_data=trustme.CA().cert_pem.bytes().decode(),
        certs_dir=str(tmp_path / "certs"),
        environ={"HOME": str(tmp_path / "home"), "SSL_CERT_FILE": str(tmp_path / "env.pem")},
        system_directories=(str(system),),
    )
    trust = TrustStore(msgspec.structs.replace(wanted, system=False))
    assert count(await trust.context("r.example:5000")) == 6
    assert count(await trust.context("r.example")) == 4
    assert count(await trust.context("other.example")) == 3


@pytest.mark.req("RG-100")
async def test_the_usual_places_are_looked_in(tmp_path: Path) -> None:
    found = TrustSettings.of(environ={"HOME": "/home/u"})
    assert found.directories == (
        "/home/u/.config/containers/certs.d",
        "/etc/containers/certs.d",
        "/etc/docker/certs.d",
    )
    assert TrustSettings.of(certs_dir="/mine", environ={}).directories[0] == "/mine"


async def test_docker_hub_has_its_name_in_certs_d(tmp_path: Path) -> None:
    """Container tools look for docker.io, requests go to registry-1.docker.io."""
    ca_file(tmp_path / "certs/docker.io/a.crt")
    trust = TrustStore(msgspec.structs.replace(settings(tmp_path), system=False))
    assert count(await trust.context("registry-1.docker.io")) == 1


@pytest.mark.req("RG-100")
async def test_tls_is_at_least_1_2_and_verified() -> None:
    context = await TrustStore().context("r.example")
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname is True


@pytest.mark.req("RG-101")
async def test_unverified_tls_is_unverified(tmp_path: Path) -> None:
    context = await TrustStore(settings(tmp_path)).context("r.example", verified=False)
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_NONE, False)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_hosts_without_files_of_their_own_share_one_context(tmp_path: Path) -> None:
    """A thousand registries must not cost a thousand trust stores."""
    ca_file(tmp_path / "certs/special.example/a.crt")
    trust = TrustStore(settings(tmp_path))
    ordinary = await trust.context("a.example")
    assert await trust.context("b.example") is ordinary
    assert await trust.context("a.example") is ordinary
    assert await trust.context("special.example") is not ordinary
    assert await trust.context("a.example", verified=False) is not ordinary
    extra = tmp_path / "extra.crt"
    ca_file(extra)
    mirrored = await trust.context("a.example", tls=Tls(ca=(str(extra),)))
    assert mirrored is not ordinary
    assert await trust.context("a.example", tls=Tls(ca=(str(extra),))) is mirrored


@pytest.mark.req("RG-161")
@pytest.mark.parametrize("named", ["store.pem", "link.pem"])
async def test_a_store_that_is_named_twice_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    """``SSL_CERT_FILE`` often names the system's store, and reading that takes as long as ten images."""
    read = []

    load = ssl.SSLContext.load_verify_locations

    def counting(self: ssl.SSLContext, cafile: str) -> None:
        read.append(cafile)
        load(self, cafile)

    store = tmp_path / "store.pem"
    ca_file(store)
    (tmp_path / "link.pem").symlink_to(store)
    paths = ssl.get_default_verify_paths()._replace(openssl_cafile=str(store))
    monkeypatch.setattr(ssl, "get_default_verify_paths", lambda: paths)
    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", counting)
    trust = TrustStore(settings(tmp_path, SSL_CERT_FILE=str(tmp_path / named)))
    assert count(await trust.context("r.example")) == 1
    assert read == [str(tmp_path / named)]


@pytest.mark.req("RG-100")
async def test_what_was_read_at_first_becomes_one_context_only(tmp_path: Path) -> None:
    """What holds for one host is not trusted for another, whichever is asked first."""
    ca_file(tmp_path / "all.crt")
    ca_file(tmp_path / "certs/special.example/a.crt")
    client_files(tmp_path / "certs/known.example", "me")
    trust = TrustStore(msgspec.structs.replace(settings(tmp_path), system=False, ca_files=(str(tmp_path / "all.crt"),)))
    contexts = [await trust.context(host) for host in ("special.example", "known.example", "a.example")]
    assert [count(context) for context in contexts] == [2, 1, 1]
    assert len(set(map(id, contexts))) == 3


@pytest.mark.req("PL-424")
async def test_replaced_trust_holds_for_new_connections(tmp_path: Path) -> None:
    """A ConfigMap with CAs that changes."""
    trust = TrustStore(msgspec.structs.replace(settings(tmp_path), system=False))
    before = await trust.context("r.example")
    trust.replace(ca_data=trustme.CA().cert_pem.bytes().decode())
    after = await trust.context("r.example")
    assert (count(before), count(after)) == (0, 1)
    with pytest.raises(InvalidSetting, match="additional CA bundle"):
        trust.replace(ca_data="no certificates")
    assert await trust.context("r.example") is after


@pytest.mark.req("RG-094", "RG-100")
async def test_files_of_containerd_are_used(tmp_path: Path) -> None:
    """Ca and client of hosts.toml; a certificate's file may hold the key too."""
    pair = client_files(tmp_path / "pair")
    both = tmp_path / "both.pem"
    both.write_bytes(Path(pair.certificate).read_bytes() + Path(pair.key).read_bytes())
    ca_file(tmp_path / "mirror.crt")
    trust = TrustStore(msgspec.structs.replace(settings(tmp_path), system=False))
    tls = Tls(ca=(str(tmp_path / "mirror.crt"),), clients=(pair, ClientCertificate(str(both))))
    assert count(await trust.context("r.example", tls=tls)) == 1


@pytest.mark.req("RG-100")
async def test_a_damaged_general_ca_is_a_usage_error_before_the_first_request(tmp_path: Path) -> None:
    bad = tmp_path / "bad.pem"
    bad.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(InvalidSetting, match=r"bad\.pem holds no PEM certificates, or a damaged one"):
        TrustStore(TrustSettings.of(ca=[str(bad)], environ={}))
    with pytest.raises(InvalidSetting, match=r"CA file .*missing\.pem cannot be read: No such file"):
        TrustStore(TrustSettings.of(environ={"SSL_CERT_FILE": str(tmp_path / "missing.pem")}))


@pytest.mark.req("RG-100")
async def test_a_damaged_file_for_one_host_harms_only_that_host(tmp_path: Path) -> None:
    """The file is named."""
    folder = tmp_path / "certs/r.example"
    folder.mkdir(parents=True)
    (folder / "bad.crt").write_text("x")
    trust = TrustStore(settings(tmp_path))
    with pytest.raises(InvalidSetting, match=r"bad\.crt holds no PEM"):
        await trust.context("r.example")
    await trust.context("other.example")
    (folder / "bad.crt").unlink()
    await trust.context("r.example")


@pytest.mark.req("RG-100")
@pytest.mark.parametrize(("present", "missing"), [("cert", "key"), ("key", "cert")])
async def test_half_a_client_certificate_is_named(tmp_path: Path, present: str, missing: str) -> None:
    """X.cert needs X.key."""
    client_files(tmp_path / "certs/r.example", "me")
    (tmp_path / f"certs/r.example/me.{missing}").unlink()
    with pytest.raises(InvalidSetting, match=rf"r\.example/me\.{missing} is missing"):
        await TrustStore(settings(tmp_path)).context("r.example")


@pytest.mark.req("RG-100")
async def test_a_client_certificate_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """An encrypted key must not make OpenSSL ask on the terminal."""
    folder = tmp_path / "certs/r.example"
    client_files(folder, "me")
    other = client_files(tmp_path / "other")
    (folder / "me.key").write_bytes(Path(other.key).read_bytes())
    with pytest.raises(InvalidSetting, match=r"me\.cert and .*me\.key are not a PEM certificate with its key"):
        await TrustStore(settings(tmp_path)).context("r.example")
    (folder / "me.key").write_bytes(encrypted_key())
    with pytest.raises(InvalidSetting, match="unencrypted"):
        await TrustStore(settings(tmp_path)).context("r.example")


def encrypted_key() -> bytes:
    return ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
