"""The standalone's own certificate authority, and one credential for each component."""

import datetime
import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_LIFE = datetime.timedelta(days=3650)
CREDENTIAL_LIFE = datetime.timedelta(days=365)
RENEW_BEFORE = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Identity:
    """Who a certificate speaks for: the user (CN), its groups (O), and the names it serves under, if any."""

    user: str
    groups: tuple[str, ...] = ()
    served_names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Credential:
    """Files of a certificate and of its private key (PEM; the key is readable by its owner alone)."""

    certificate: Path
    key: Path


class Authority:
    """A certificate authority that keeps everything it issued in one folder."""

    def __init__(self, folder: Path, now: datetime.datetime) -> None:
        """Open the authority in `folder`, or found one there."""
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder = folder
        self._now = now
        self.files = Credential(folder / "ca.crt", folder / "ca.key")
        if not _is_current(self.files, now):
            key = ec.generate_private_key(ec.SECP256R1())
            name = _name(Identity("leeway-standalone"))
            builder = self._builder(name, name, key.public_key(), AUTHORITY_LIFE).add_extension(
                x509.BasicConstraints(ca=True, path_length=0), critical=True
            )
            usage = _key_usage(sign_certificates=True)
            _write(self.files, builder.add_extension(usage, critical=True).sign(key, hashes.SHA256()), key)
        self._certificate = x509.load_pem_x509_certificate(self.files.certificate.read_bytes())
        key_pem = self.files.key.read_bytes()
        self._key = serialization.load_pem_private_key(key_pem, password=None)

    def issue(self, file_name: str, identity: Identity) -> Credential:
        """Return the credential kept under `file_name`, making a new one if it is missing, other or near its end."""
        files = Credential(self._folder / f"{file_name}.crt", self._folder / f"{file_name}.key")
        if _is_current(files, self._now, identity, self._certificate):
            return files
        assert isinstance(self._key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if identity.served_names:
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = (
            self._builder(_name(identity), self._certificate.subject, key.public_key(), CREDENTIAL_LIFE)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(sign_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if identity.served_names:
            builder = builder.add_extension(_served(identity), critical=False)
        _write(files, builder.sign(self._key, hashes.SHA256()), key)
        return files

    def signing_key(self, file_name: str) -> Credential:
        """Return a bare key pair (public half in `certificate`), as service-account tokens are signed with."""
        files = Credential(self._folder / f"{file_name}.pub", self._folder / f"{file_name}.key")
        if not (files.certificate.exists() and files.key.exists()):
            key = ec.generate_private_key(ec.SECP256R1())
            _write_key(files.key, key)
            public = key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            )
            files.certificate.write_bytes(public)
        return files

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, life: datetime.timedelta
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - datetime.timedelta(minutes=5))
            .not_valid_after(self._now + life)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        )


def _name(identity: Identity) -> x509.Name:
    groups = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in identity.groups]
    return x509.Name([*groups, x509.NameAttribute(NameOID.COMMON_NAME, identity.user)])


def _served(identity: Identity) -> x509.SubjectAlternativeName:
    names: list[x509.GeneralName] = []
    for name in identity.served_names:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(name)))
        except ValueError:
            names.append(x509.DNSName(name))
    return x509.SubjectAlternativeName(names)


def _key_usage(*, sign_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=sign_certificates,
        crl_sign=sign_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _is_current(
    files: Credential,
    now: datetime.datetime,
    identity: Identity | None = None,
    issuer: x509.Certificate | None = None,
) -> bool:
    """Whether the files hold a certificate that is whole, far from its end, and of this identity by this issuer."""
    try:
        certificate = x509.load_pem_x509_certificate(files.certificate.read_bytes())
        serialization.load_pem_private_key(files.key.read_bytes(), password=None)
        if certificate.not_valid_after_utc - now < RENEW_BEFORE:
            return False
        if identity is None or issuer is None:
            return True
        certificate.verify_directly_issued_by(issuer)
        served = _served_by(certificate)
    except (OSError, ValueError, TypeError, InvalidSignature):
        return False
    return certificate.subject == _name(identity) and served == (_served(identity) if identity.served_names else None)


def _served_by(certificate: x509.Certificate) -> x509.SubjectAlternativeName | None:
    try:
        return certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None


def _write(files: Credential, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    _write_key(files.key, key)
    files.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    text = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(text)
