"""Certificates: whom they make one, and that they are made once."""

import datetime as dt
import ipaddress
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polyarch.sandbox.certificates import CLIENTS, Pki

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def certificate(path: str) -> x509.Certificate:
    return x509.load_pem_x509_certificate(Path(path).read_bytes())


def usages(found: x509.Certificate) -> set[x509.ObjectIdentifier]:
    return set(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    made = Pki(tmp_path)
    made.ensure(NOW)
    return made


@pytest.mark.req("SB-003")
def test_a_client_certificate_carries_user_and_groups(pki: Pki) -> None:
    found = certificate(pki.client("admin").certificate)
    common = [name.value for name in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    groups = [name.value for name in found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
    assert (common, groups) == (["polyarch-sandbox-admin"], ["system:masters"])
    assert usages(found) == {ExtendedKeyUsageOID.CLIENT_AUTH}


@pytest.mark.req("SB-003")
def test_a_server_certificate_is_for_loopback_and_signed_by_its_authority(pki: Pki) -> None:
    found = certificate(pki.server.certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    found.verify_directly_issued_by(certificate(pki.ca))
    assert isinstance(certificate(pki.ca).public_key(), ec.EllipticCurvePublicKey)
    assert found.not_valid_after_utc - NOW > dt.timedelta(days=3000)


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.req("SB-003")
def test_everything_is_made_once_and_only_its_owner_reads_it(pki: Pki) -> None:
    first = files(pki.folder)
    pki.ensure(NOW + dt.timedelta(days=1))
    assert files(pki.folder) == first
    assert all(path.stat().st_mode & 0o077 == 0 for path in pki.folder.rglob("*") if path.is_file())
    assert {"webhook/tls.crt", "webhook/record.key"} <= set(first)
    assert {Path(pki.client(name).certificate).name for name in CLIENTS} <= set(first)


@pytest.mark.req("SB-003")
@pytest.mark.parametrize("name", ["client-nodes", "server", "webhook/tls", "service-account"])
def test_an_identity_that_an_older_version_did_not_know_is_made_and_the_others_stay(pki: Pki, name: str) -> None:
    """Before, a sandbox of an older version could not be brought up any more."""
    first = files(pki.folder)
    for path in pki.folder.glob(f"{name}.*"):
        path.unlink()
    pki.ensure(NOW)
    again = files(pki.folder)
    assert again.keys() == first.keys()
    assert {Path(changed).stem for changed in first if again[changed] != first[changed]} == {Path(name).name}


@pytest.mark.req("SB-003")
@pytest.mark.parametrize("lost", ["ca.key", "ca.crt"])
def test_a_first_start_that_was_cut_off_is_made_up_for(pki: Pki, lost: str) -> None:
    """An authority without its other half is made anew, and with it all that it signed."""
    (pki.folder / lost).unlink()
    etcd = certificate(pki.etcd_server.certificate)
    pki.ensure(NOW)
    for files_of in (pki.server, *map(pki.client, CLIENTS)):
        certificate(files_of.certificate).verify_directly_issued_by(certificate(pki.ca))
    assert certificate(pki.etcd_server.certificate) == etcd


@pytest.mark.req("SB-003")
def test_etcd_trusts_nobody_who_is_only_a_user_of_the_cluster(pki: Pki) -> None:
    with pytest.raises(ValueError, match=r"[Ii]ssuer"):
        certificate(pki.client("admin").certificate).verify_directly_issued_by(certificate(pki.etcd_ca))


def test_a_server_of_a_test_gets_a_certificate_that_clients_of_the_sandbox_trust(pki: Pki, tmp_path: Path) -> None:
    serving = pki.serving("fault-proxy", tmp_path / "elsewhere", NOW)
    certificate(serving.certificate).verify_directly_issued_by(certificate(pki.ca))
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(serving.certificate, serving.key)
