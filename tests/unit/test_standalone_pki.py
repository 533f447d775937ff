"""Certificates: who they speak for, how long they are kept, who may read their keys."""

import datetime
import stat
from pathlib import Path

from cryptography import x509
from leeway_standalone.pki import CREDENTIAL_LIFE, RENEW_BEFORE, Authority, Identity

NOW = datetime.datetime(2026, 11, 29, tzinfo=datetime.UTC)
SERVER = Identity("kube-apiserver", ("system:x",), served_names=("localhost", "127.0.0.1"))


def test_a_credential_speaks_for_its_identity_and_is_signed_by_the_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path, NOW)
    files = authority.issue("server", SERVER)
    certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(authority.files.certificate.read_bytes()))
    assert certificate.subject.rfc4514_string() == "CN=kube-apiserver,O=system:x"
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(address) for address in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]


def test_keys_are_the_owners_alone(tmp_path: Path) -> None:
    authority = Authority(tmp_path, NOW)
    for key in (authority.files.key, authority.issue("client", Identity("me")).key, authority.signing_key("sa").key):
        assert stat.S_IMODE(key.stat().st_mode) == 0o600


def test_credentials_are_kept_until_they_are_near_their_end_or_no_longer_fit(tmp_path: Path) -> None:
    first = Authority(tmp_path, NOW).issue("server", SERVER).certificate.read_bytes()
    assert Authority(tmp_path, NOW).issue("server", SERVER).certificate.read_bytes() == first
    near_end = NOW + CREDENTIAL_LIFE - RENEW_BEFORE + datetime.timedelta(hours=1)
    renewed = Authority(tmp_path, near_end).issue("server", SERVER).certificate.read_bytes()
    assert renewed != first
    other_names = Identity(SERVER.user, SERVER.groups, (*SERVER.served_names, "10.0.0.1"))
    assert Authority(tmp_path, near_end).issue("server", other_names).certificate.read_bytes() != renewed


def test_a_new_authority_makes_all_old_credentials_unfit(tmp_path: Path) -> None:
    first = Authority(tmp_path, NOW).issue("client", Identity("me")).certificate.read_bytes()
    (tmp_path / "ca.key").unlink()
    authority = Authority(tmp_path, NOW)
    again = authority.issue("client", Identity("me")).certificate.read_bytes()
    assert again != first
    x509.load_pem_x509_certificate(again).verify_directly_issued_by(
        x509.load_pem_x509_certificate(authority.files.certificate.read_bytes())
    )


def test_a_damaged_certificate_is_replaced(tmp_path: Path) -> None:
    authority = Authority(tmp_path, NOW)
    authority.issue("client", Identity("me")).certificate.write_text("not a certificate")
    x509.load_pem_x509_certificate(authority.issue("client", Identity("me")).certificate.read_bytes())
