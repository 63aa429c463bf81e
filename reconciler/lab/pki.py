"""Keys and certificates of one lab, made when it starts: TLS authority, SSH host authority, user, image key."""

from __future__ import annotations

import base64
import hashlib
import secrets
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import asyncssh
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LIFETIME = timedelta(days=30)


class TlsAuthority:
    """A CA and one server certificate for loopback, shared by all BMCs and the Kubernetes API."""

    def __init__(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab BMC CA")])
        ca = (
            _certificate(name, name, key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_key_usage(ca=True), critical=True)
            .sign(key, hashes.SHA256())
        )
        server_key = ec.generate_private_key(ec.SECP256R1())
        alternatives = [x509.DNSName("localhost"), *(x509.IPAddress(ip_address(ip)) for ip in ("127.0.0.1", "::1"))]
        server = (
            _certificate(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "lab")]), name, server_key.public_key())
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_key_usage(ca=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        self.pem = ca.public_bytes(serialization.Encoding.PEM).decode()
        self._server = server.public_bytes(serialization.Encoding.PEM) + server_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def server_context(self, scratch: Path) -> ssl.SSLContext:
        """Return the TLS context. `scratch`: a file to write, because OpenSSL reads keys only from files."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        write_private(scratch, self._server)
        context.load_cert_chain(scratch)
        scratch.unlink()
        return context


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + _LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _key_usage(*, ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not ca,
        key_cert_sign=ca,
        crl_sign=ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


@dataclass(frozen=True, slots=True)
class HostKey:
    """A host key in OpenSSH format: both halves, and its certificate with the node's name."""

    private: str
    public: str
    certificate: str


class SshAuthority:
    """Signs host keys, and holds the key of the one user that hosts accept."""

    def __init__(self) -> None:
        self._ca = asyncssh.generate_private_key("ssh-ed25519", comment="lab host CA")
        user = asyncssh.generate_private_key("ssh-ed25519", comment="reconciler")
        self.public_key = self._ca.export_public_key().decode()
        self.private_key = self._ca.export_private_key().decode()
        self.user_private_key = user.export_private_key().decode()
        self.user_public_key = user.export_public_key().decode()

    def host_key(self, node: str) -> HostKey:
        key = asyncssh.generate_private_key("ssh-ed25519", comment=node)
        certificate = self._ca.generate_host_certificate(key, node, principals=[node])
        public = key.export_public_key().decode().strip()
        return HostKey(key.export_private_key().decode(), public, certificate.export_certificate().decode())


class ImageKey:
    """An Ed25519 key in minisign's format. It signs the line `<name> <version> <sha256>` of an image."""

    def __init__(self, seed: bytes | None = None) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed) if seed else Ed25519PrivateKey.generate()
        self._id = hashlib.blake2b(self._raw_public(), digest_size=8).digest()

    def _raw_public(self) -> bytes:
        return self._key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)

    @property
    def public_text(self) -> str:
        """Return the public key as one line, as in a `keys` entry of a secrets file."""
        return base64.b64encode(b"Ed" + self._id + self._raw_public()).decode()

    def sign_image(self, name: str, version: str, sha256: str) -> str:
        """Return the four lines of a prehashed .minisig file."""
        line = f"{name} {version} {sha256}\n".encode()
        signature = self._key.sign(hashlib.blake2b(line).digest())
        comment = f"image {name} version {version} sha256 {sha256}"
        whole = self._key.sign(signature + comment.encode())
        return "\n".join(
            (
                "untrusted comment: signature of a lab image",
                base64.b64encode(b"ED" + self._id + signature).decode(),
                f"trusted comment: {comment}",
                base64.b64encode(whole).decode(),
            )
        )


def write_private(path: Path, text: str | bytes) -> None:
    """Write a file that only its owner can read, from its creation on."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.touch(mode=0o600)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


def new_password() -> str:
    return secrets.token_urlsafe(18)
