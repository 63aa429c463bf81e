"""A server of install documents on loopback, with everything that an installer and a BMC ask it for."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from aiohttp import ClientSession

from reconciler.drivers.installer import HttpInstaller
from reconciler.drivers.ledger import SqlLedger
from reconciler.drivers.secrets import SecretStore
from reconciler.drivers.secrets_file import SecretsFile, SecretSource, SignerSource
from reconciler.model.access import InstallerPolicy
from reconciler.model.install import (
    InstallDocument,
    InstallImage,
    MachineIdentity,
    RootDisk,
    empty_credential,
)

TOKEN = "5f" * 16
NODE = "gpu-a001"
PAYLOAD = bytes(range(256)) * 512  # 128 KiB on both sides of the placeholder

DOCUMENT = InstallDocument(
    node=NODE,
    hostname=f"{NODE}.example.com",
    nonce="0badc0de" * 4,
    machine=MachineIdentity(serial="S1", uuid=None),
    image=InstallImage(name="ubuntu", version="2", url="http://images/a.raw.zst", sha256="0" * 64, size=1000_000_000),
    root_disk=RootDisk(serial="D1"),
)


@dataclass
class Time:
    """A fleet's clock that a test moves."""

    at: datetime = datetime(2026, 11, 22, 12, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at

    def pass_by(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@dataclass
class Site:
    """A machine that serves, its files, and how to ask it."""

    folder: Path
    policy: InstallerPolicy
    secrets: SecretStore
    time: Time
    authority: asyncssh.SSHKey
    ledgers: list[SqlLedger] = field(default_factory=list)
    attestor: Any = None

    @property
    def trust(self) -> str:
        return self.authority.export_public_key().decode().strip()

    def ledger(self) -> SqlLedger:
        """Open the ledger as another process would."""
        self.ledgers.append(SqlLedger(self.folder / "ledger.sqlite"))
        return self.ledgers[-1]

    @contextlib.asynccontextmanager
    async def serving(self, store: SqlLedger | None = None, **changes: Any) -> AsyncIterator[HttpInstaller]:
        installer = HttpInstaller(
            replace(self.policy, **changes),
            self.secrets,
            self.time.now,
            store=store,
            authorities=(self.trust,),
            attestor=self.attestor,
        )
        try:
            yield installer
        finally:
            await installer.close()


@dataclass(frozen=True)
class Answer:
    status: int
    body: bytes
    headers: Any

    @property
    def text(self) -> str:
        return self.body.decode().strip()


async def ask(method: str, url: str, **options: Any) -> Answer:
    async with ClientSession() as session, session.request(method, url, **options) as answer:
        return Answer(answer.status, await answer.read(), answer.headers)


async def report(base: str, phase: str, **values: Any) -> Answer:
    return await ask("POST", f"{base}/status", json={"phase": phase, **values})


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def write_secret(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def boot_medium(path: Path, *placeholders: bytes) -> Path:
    """Write a file with placeholders between parts of PAYLOAD."""
    path.write_bytes(PAYLOAD + b"".join(one + PAYLOAD for one in placeholders or (empty_credential(),)))
    return path


MakeSite = Callable[..., Site]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    authority = asyncssh.generate_private_key("ssh-ed25519")
    write_secret(tmp_path / "host-ca", authority.export_private_key().decode())
    medium = boot_medium(tmp_path / "installer.iso")
    policy = InstallerPolicy("127.0.0.1:0", None, str(medium), host_ca="host-ca")
    contents = SecretsFile(
        secrets={name: SecretSource(file=name) for name in ("host-ca", "tls-cert", "tls-key", "other-ca")},
        signers={"program": SignerSource(exec=("./signer",))},
    )
    return Site(tmp_path, policy, SecretStore(contents, tmp_path / "secrets.yaml"), Time(), authority)


def new_host_key(folder: Path, name: str = "ssh_host_ed25519_key", *options: str) -> str:
    """Make a key with the real ssh-keygen; return its public half."""
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", f"root@{name}", "-f", str(folder / name), *options]
    subprocess.run(command, check=True)
    return (folder / f"{name}.pub").read_text()
