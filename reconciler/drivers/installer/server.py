"""Serve one install document per attempt, under a URL of its own (DESIGN 7.5).

A token is the only credential that an installer has, as for every network installer: it is unguessable, lives for one
attempt, and its document carries no secret but the nonce. URLs have no query and end in .iso (pitfall E3). Whatever
must outlive this process is in the ledger, so a server that starts again continues.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime
from ipaddress import ip_address
from typing import Any, Final

from aiohttp import web

from reconciler.drivers.installer.calls import Calls, credential
from reconciler.drivers.installer.host_keys import HostKeys
from reconciler.drivers.installer.in_place import attempt_files
from reconciler.drivers.installer.medium import MediumSource
from reconciler.drivers.installer.signer import Signer, find_signer
from reconciler.drivers.secrets import SecretError, SecretStore
from reconciler.drivers.server_certificate import ServerCertificate
from reconciler.model.access import InstallerPolicy
from reconciler.model.attestor import Attestor
from reconciler.model.confined import Confined
from reconciler.model.errors import DriverError, Failure
from reconciler.model.install import (
    AnyDocument,
    AttemptCredential,
    ContractError,
    EraseDocument,
    InstallDocument,
    dump_contract,
    load_contract,
)
from reconciler.model.install_progress import InstallAttempt, InstallProgress, closed, digest_of
from reconciler.model.ledger_ports import InstallStore

_BEAT_S: Final = 5.0  # wall clock
_GAP_S: Final = 20.0  # between two beats: this process was stopped, and answered nobody
_BACKLOG: Final = 512


class HttpInstaller(Confined):
    """Implements ports.Installer. It listens from the first document on, until `close`.

    `now`: the fleet's clock. `store`: None forgets everything with this object. `authorities`: of host keys; none of
    them trusts whatever the host CA signs. `attestor`: None refuses documents that ask for attestation.
    """

    def __init__(
        self,
        policy: InstallerPolicy,
        secrets: SecretStore,
        now: Callable[[], datetime],
        *,
        store: InstallStore | None = None,
        authorities: Sequence[str] = (),
        attestor: Attestor | None = None,
    ) -> None:
        self._policy = policy
        self._secrets = secrets
        self._now = now
        self._store: InstallStore = store or _Forgetful()
        self._authorities = authorities
        self._attestor = attestor
        self._source = MediumSource(policy.iso)
        self._host_keys = HostKeys(self._store, authorities, policy.host_certificate_s, now)
        self._calls = Calls(
            self._store,
            self._host_keys,
            medium=self._source.current, base=lambda: self._base, signer=self._signer, attestor=attestor, now=now,
        )  # fmt: skip
        self._certificate = ServerCertificate(policy.certificate, policy.key, secrets, "installer")
        self._runner: web.AppRunner | None = None
        self._base = ""
        self._starting = asyncio.Lock()
        self._listening_since = now()  # of no meaning until it listens
        self._beats: asyncio.Task[None] | None = None

    async def publish(
        self, token: str, document: AnyDocument, attempt: AttemptCredential | None, *, pxe: bool = False
    ) -> str:
        await self._start()
        medium = await self._source.current()
        self._check(document)
        node, text = document.node, dump_contract(document)
        digest, now = digest_of(token), self._now()
        async with self._calls.lock(digest):
            known = self._store.install(digest) or InstallAttempt(digest, node, text, "", now)
            network = known.network if attempt is None else dump_contract(attempt)
            served = replace(known, document=text, network=network, token=token, closed_at=None)
            try:
                if pxe:
                    self._offer(token, network)
                contents = credential(served, f"{self._base}/{token}")
            except ContractError as error:
                raise DriverError(Failure.REJECTED, str(error)) from None
            self._store.save_install(served, now)
        self._calls.serve(digest, medium, contents)
        return f"{self._base}/{token}/boot.iso"

    def _offer(self, token: str, network: str) -> None:
        mac = load_contract(AttemptCredential, network).mac if network else None
        if mac is None or not self._policy.pxe:
            why = "the attempt names no MAC address" if self._policy.pxe else "the Fleet's installer does not offer it"
            raise DriverError(Failure.REJECTED, f"no boot over PXE: {why}")
        self._calls.offers.offer(mac, token)

    async def progress(self, token: str) -> InstallProgress:
        found = self._store.install(digest_of(token))
        since = self._now() if self._runner is None else self._listening_since
        if found is None or found.closed_at is not None:
            return InstallProgress(since)
        return found.progress(since)

    async def token(self, digest: str) -> str:
        found = self._store.install(digest)
        return "" if found is None or found.closed_at is not None else found.token

    async def withdraw(self, token: str) -> None:
        digest = digest_of(token)
        async with self._calls.lock(digest):
            self._calls.forget(digest)
            self._calls.offers.withdraw(token)
            found = self._store.install(digest)
            if found is not None and found.closed_at is None:
                now = self._now()
                self._store.save_install(closed(found, now), now)

    def in_place(self, document: InstallDocument, folder: str, unit: str) -> str:
        name = document.image.key
        try:
            key = None if name is None else self._secrets.public_key(name)
        except SecretError as error:
            raise DriverError(Failure.REJECTED, str(error)) from None
        if key is None:
            raise DriverError(Failure.REJECTED, f"{document.node}: no public key {name} is known")
        return attempt_files(document, key, folder, unit)

    async def certify(self, document: InstallDocument, key: str) -> str:
        signer = self._signer()
        if signer is None:
            raise DriverError(Failure.REJECTED, "installer.hostCa of the Fleet names nobody who signs host keys")
        line, _ = await self._host_keys.sign(document, key, signer)
        return line

    async def close(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._beats
            self._beats = None
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        self._source.close()

    def _check(self, document: AnyDocument) -> None:
        """Refuse what an installer would fail at in the end, before a machine is touched."""
        if isinstance(document, EraseDocument):
            return
        if document.attest and self._attestor is None:
            why = "the document asks for attestation, and this reconciler has nobody who judges it"
            raise DriverError(Failure.REJECTED, f"{document.node}: {why}")
        self._signer()

    def _signer(self) -> Signer | None:
        name = self._policy.host_ca
        return None if name is None else find_signer(name, self._secrets, self._authorities)

    # --- listening ---

    async def _start(self) -> None:
        async with self._starting:
            if self._runner is not None:
                self._certificate.load()
                return
            self._certificate.load()
            runner = web.AppRunner(self._calls.application(), access_log=None, shutdown_timeout=0.5)
            await runner.setup()
            host, _, port = self._policy.listen.rpartition(":")
            site = web.TCPSite(
                runner, host.strip("[]"), int(port), ssl_context=self._certificate.context, backlog=_BACKLOG
            )
            try:
                await site.start()
            except OSError as error:
                await runner.cleanup()
                raise DriverError(
                    Failure.REJECTED,
                    f"can't serve install documents on {self._policy.listen}: {error.strerror}; "
                    "another run may hold it, or Fleet.installer.listen names an address that this machine lacks",
                ) from error
            self._runner = runner
            self._listening_since = self._now()
            self._beats = asyncio.create_task(self._watch_gaps())
            self._base = (self._policy.url or self._address(runner)).rstrip("/")

    def _address(self, runner: web.AppRunner) -> str:
        host, port = runner.addresses[0][:2]
        with contextlib.suppress(ValueError):
            host = f"[{host}]" if ip_address(host).version == 6 else host
        return f"{'http' if self._certificate.context is None else 'https'}://{host}:{port}"

    async def _watch_gaps(self) -> None:
        """Notice that this process was stopped: what installers sent meanwhile was not heard."""
        last = time.monotonic()
        while True:
            await asyncio.sleep(_BEAT_S)
            beat = time.monotonic()
            if beat - last > _GAP_S:
                self._listening_since = self._now()
            last = beat


class _Forgetful:
    """An InstallStore in memory, for what has no ledger."""

    id = ""

    def __init__(self) -> None:
        self._attempts: dict[str, InstallAttempt] = {}

    @contextlib.contextmanager
    def batch(self) -> Any:
        yield

    def save_install(self, attempt: InstallAttempt, now: datetime, told: str = "") -> None:  # noqa: ARG002 - the port's signature
        self._attempts[attempt.digest] = attempt

    def install(self, digest: str) -> InstallAttempt | None:
        return self._attempts.get(digest)

    def open_install(self, node: str) -> InstallAttempt | None:
        found = [one for one in self._attempts.values() if one.node == node and one.closed_at is None]
        return max(found, key=lambda one: one.begun_at, default=None)

    def certified_install(self, node: str) -> InstallAttempt | None:
        found = [one for one in self._attempts.values() if one.node == node and one.certificate]
        return max(found, key=lambda one: one.begun_at, default=None)

    def revoked_host_keys(self) -> Sequence[str]:
        return [key for one in self._attempts.values() for key in one.revoked]
