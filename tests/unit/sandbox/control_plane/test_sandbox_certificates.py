"""Certificates (SB-003): whom they make one, and that they are made once."""

import datetime as dt
import ipaddress
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from polyarch.sandbox.control_plane.certificates import CLIENTS, Authority, Identity, Pki

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def certificate(pem: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pem)


def usages(found: x509.Certificate) -> set[x509.ObjectIdentifier]:
    return set(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)


def test_sb_003_a_client_certificate_carries_user_and_groups() -> None:
    pair = Authority.create("ca", NOW).client(Identity("alice", ("one", "two")), NOW)
    subject = certificate(pair.certificate).subject
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["alice"]
    assert [name.value for name in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["one", "two"]
    assert usages(certificate(pair.certificate)) == {ExtendedKeyUsageOID.CLIENT_AUTH}


def test_sb_003_a_server_certificate_is_for_loopback_and_signed_by_its_authority() -> None:
    authority = Authority.create("ca", NOW)
    found = certificate(authority.server("kube-apiserver", NOW).certificate)
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.IPAddress) == [ipaddress.ip_address("127.0.0.1")]
    found.verify_directly_issued_by(certificate(authority.pair.certificate))
    key = certificate(authority.pair.certificate).public_key()
    assert isinstance(key, ec.EllipticCurvePublicKey)


def test_sb_003_everything_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    pki.ensure(NOW)
    first = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    pki.ensure(NOW)
    assert {path: path.read_bytes() for path in first} == first
    assert all(path.stat().st_mode & 0o077 == 0 for path in first)
    assert {Path(pki.client(name).certificate) for name in CLIENTS} <= set(first)


def test_sb_003_an_attempt_that_was_cut_off_is_made_again(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    pki.ensure(NOW)
    before = Path(pki.ca).read_bytes()
    (tmp_path / "complete").unlink()
    pki.ensure(NOW)
    assert Path(pki.ca).read_bytes() != before


def test_sb_003_etcd_trusts_nobody_who_is_only_a_user_of_the_cluster(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    pki.ensure(NOW)
    admin = certificate(Path(pki.client("admin").certificate).read_bytes())
    with pytest.raises(ValueError, match=r"[Ii]ssuer"):
        admin.verify_directly_issued_by(certificate(Path(pki.etcd_ca).read_bytes()))
