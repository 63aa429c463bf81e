"""Sign SSH host keys: by a private key that the secrets file names, or by a program that keeps the key to itself.

Who is certified, and for how long, is decided by the caller from the ledger and the spec. What comes back is checked,
whoever signed: a certificate for another key or name is handed to nobody.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import asyncssh
from asyncssh.public_key import CERT_TYPE_HOST, SSHOpenSSHCertificate
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from reconciler.drivers.children import reap
from reconciler.drivers.secrets import SecretStore
from reconciler.model.errors import DriverError, Failure

SIGN_TIMEOUT_S: Final = 30.0
_STRONG: Final = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521")
_RSA_BITS: Final = 3072
_CERTIFICATE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class CertificateRequest:
    """A host key, as a line without comment, and what its certificate is to say."""

    key: str
    identity: str
    principals: tuple[str, ...]
    valid_after: datetime
    valid_before: datetime


class Signer(Protocol):
    """The holder of the private half of a host CA."""

    async def sign(self, request: CertificateRequest) -> str:
        """Return an OpenSSH host certificate, as a line. DriverError: it can't be had."""


def normal_key(text: str) -> str:
    """Return an OpenSSH public key as type and base64. ValueError says why it is not one that a host may have."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) != 1:
        raise ValueError("send one public key, as a line of ssh_host_ed25519_key.pub")
    try:
        key = asyncssh.import_public_key(lines[0].strip())
    except (asyncssh.KeyImportError, ValueError):
        raise ValueError("not an OpenSSH public key") from None
    kind, data, *_ = key.export_public_key("openssh").decode().split()
    strong = isinstance(key.pyca_key, RSAPublicKey) and key.pyca_key.key_size >= _RSA_BITS
    if kind not in _STRONG and not strong:
        raise ValueError(f"a host key of type {kind} is not certified; make one of type ed25519")
    return f"{kind} {data}"


class KeySigner:
    """Signs with a private key in OpenSSH format. `text` returns it when it is needed."""

    def __init__(self, text: Callable[[], str]) -> None:
        self._text = text

    def _key(self) -> asyncssh.SSHKey:
        try:
            return asyncssh.import_private_key(self._text())
        except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
            # asyncssh's own text may quote the key.
            why = "installer.hostCa of the Fleet is no private key that can be read without a passphrase"
            raise DriverError(Failure.REJECTED, why) from None

    def public_key(self) -> str:
        return normal_key(self._key().export_public_key("openssh").decode())

    async def sign(self, request: CertificateRequest) -> str:
        certificate = self._key().generate_host_certificate(
            asyncssh.import_public_key(request.key),
            request.identity,
            serial=secrets.randbits(63),
            principals=list(request.principals),
            valid_after=request.valid_after,
            valid_before=request.valid_before,
            comment=None,
        )
        return certificate.export_certificate("openssh").decode().strip()


class ProgramSigner:
    """Signs by a program: the public key is on its stdin, what to certify in its environment, the certificate on its
    stdout. It runs in the directory of the secrets file.
    """

    def __init__(self, argv: Sequence[str], directory: Path) -> None:
        self._argv = argv
        self._directory = directory

    async def sign(self, request: CertificateRequest) -> str:
        settings = {
            "RECONCILER_IDENTITY": request.identity,
            "RECONCILER_PRINCIPALS": ",".join(request.principals),
            "RECONCILER_VALID_AFTER": request.valid_after.strftime("%Y%m%d%H%M%SZ"),
            "RECONCILER_VALID_BEFORE": request.valid_before.strftime("%Y%m%d%H%M%SZ"),
        }
        try:
            child = await asyncio.create_subprocess_exec(
                *self._argv,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
                cwd=self._directory, env=os.environ | settings, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise DriverError(Failure.REJECTED, f"the signer {self._argv[0]}: {error.strerror}") from error
        try:
            async with asyncio.timeout(SIGN_TIMEOUT_S):
                output, _ = await child.communicate(request.key.encode() + b"\n")
        except TimeoutError:
            why = f"the signer {self._argv[0]} gave no certificate within {SIGN_TIMEOUT_S:g} s"
            raise DriverError(Failure.TIMEOUT, why) from None
        finally:
            await reap(child)
        if child.returncode:
            raise DriverError(Failure.UNREACHABLE, f"the signer {self._argv[0]} ended with status {child.returncode}")
        return output[:_CERTIFICATE_BYTES].decode(errors="replace").strip()


def find_signer(name: str, store: SecretStore, authorities: Sequence[str]) -> Signer:
    """Return the signer of this name in the secrets file, or one that signs with the secret of this name.

    `authorities`: lines of the CAs that we trust; none of them checks nothing. DriverError: the secret is another key.
    """
    program = store.signer(name)
    if program is not None:
        return ProgramSigner(*program)
    signer = KeySigner(lambda: store.resolve(name, fresh=True).reveal())
    if authorities and signer.public_key() not in map(normal_key, authorities):
        why = "installer.hostCa of the Fleet is the private half of no CA in ssh.hostKeys.authorities"
        raise DriverError(Failure.REJECTED, f"{why}: nobody would trust the keys that it signs")
    return signer


def _certificate(line: str) -> SSHOpenSSHCertificate:
    found = asyncssh.import_certificate(line)
    if isinstance(found, SSHOpenSSHCertificate):
        return found
    raise ValueError("it is of another kind")


def check_certificate(line: str, request: CertificateRequest, authorities: Sequence[str]) -> str:
    """Return a certificate, as a line, if it says what was asked for. DriverError: it does not."""
    try:
        found = _certificate(line)
        key = normal_key(found.key.export_public_key("openssh").decode())
        by = normal_key(found.signing_key.export_public_key("openssh").decode())
        names = tuple(found.principals)
        found.validate(CERT_TYPE_HOST, request.principals[0])
    except (asyncssh.KeyImportError, ValueError) as error:
        raise DriverError(Failure.MALFORMED, f"the signer gave no host certificate: {error}") from None
    if key != request.key:
        raise DriverError(Failure.MALFORMED, "the signer certified another key than it was given")
    if sorted(names) != sorted(request.principals):
        why = f"the signer certified {', '.join(names)}, and was asked to certify {', '.join(request.principals)}"
        raise DriverError(Failure.MALFORMED, why)
    if authorities and by not in map(normal_key, authorities):
        raise DriverError(Failure.MALFORMED, "the signer is no CA in ssh.hostKeys.authorities of the Fleet")
    return " ".join(line.split()[:2])
