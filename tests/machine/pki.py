"""Keys of a small fleet: a CA of BMCs and of the install server, CAs of SSH, the reconciler's own key, minisign,
and the key of Secure Boot."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import bcrypt

BMC_USER, BMC_PASSWORD = "admin", "correct horse battery"


def _run(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True, capture_output=True)


@dataclass(frozen=True)
class Pki:
    """Files in `home`. Private halves stand beside public ones, mode 600."""

    home: Path
    address: str

    @property
    def ca(self) -> Path:
        return self.home / "ca.pem"

    @property
    def certificate(self) -> Path:
        """Of the servers at `address`: the BMC, and the installer's."""
        return self.home / "server.pem"

    @property
    def key(self) -> Path:
        return self.home / "server.key"

    @property
    def host_ca(self) -> Path:
        return self.home / "host_ca"

    @property
    def reconciler_ssh(self) -> Path:
        return self.home / "reconciler"

    @property
    def minisign(self) -> Path:
        return self.home / "release.key"

    @property
    def boot_key(self) -> Path:
        """What boot media are signed with for Secure Boot; `boot_certificate` is in the firmware's PK, KEK and db."""
        return self.home / "db.key"

    @property
    def boot_certificate(self) -> Path:
        return self.home / "db.pem"

    @cached_property
    def minisign_public(self) -> str:
        return (self.home / "release.pub").read_text().splitlines()[1]

    def make(self) -> None:
        self.home.mkdir(parents=True)
        # RSA: the firmware, which boots over HTTPS, was built without elliptic curves.
        rsa = ["-newkey", "rsa:2048", "-nodes"]
        usage = ["-addext", "basicConstraints=critical,CA:true", "-addext", "keyUsage=critical,keyCertSign,cRLSign"]
        authority = self.home / "ca.key"
        _run(
            *("openssl", "req", "-x509", *rsa, "-keyout", authority, "-out", self.ca, "-days", "3650"),
            *("-subj", "/CN=machine test CA", *usage),
        )
        _run(
            *("openssl", "req", "-x509", *rsa, "-keyout", self.key, "-out", self.certificate, "-days", "3650"),
            *("-subj", f"/CN={self.address}", "-CA", self.ca, "-CAkey", authority),
            *("-addext", f"subjectAltName=IP:{self.address},IP:127.0.0.1", "-addext", "basicConstraints=CA:false"),
        )
        _run(
            *("openssl", "req", "-x509", *rsa, "-keyout", self.boot_key),
            *("-out", self.boot_certificate, "-days", "3650", "-subj", "/CN=machine test boot"),
        )
        for name in (self.host_ca, self.home / "user_ca", self.reconciler_ssh):
            _run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name.name, "-f", name)
        self.certificate.chmod(0o600)  # a secret as any other, though it is none
        _run("minisign", "-G", "-W", "-p", self.home / "release.pub", "-s", self.minisign)
        digest = bcrypt.hashpw(BMC_PASSWORD.encode(), bcrypt.gensalt(4)).decode()
        (self.home / "htpasswd").write_text(f"{BMC_USER}:{digest}\n")
        secret = self.home / "bmc.json"
        secret.touch(mode=0o600)
        secret.write_text(json.dumps({"username": BMC_USER, "password": BMC_PASSWORD}))
