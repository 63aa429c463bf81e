"""The ports that only what acts or lasts uses: the installer, firmware files and the events that BMCs push.

Their drivers serve and fetch over HTTP, and to load that client and server takes 0.15 s of CPU: a plan never does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from reconciler.app.extensions import other_installer
from reconciler.app.posted_events import PostedEvents
from reconciler.drivers.attestor import TpmAttestor
from reconciler.drivers.endpoints import Overlay
from reconciler.drivers.firmware_files import HttpFirmwareFiles
from reconciler.drivers.installer import HttpInstaller
from reconciler.drivers.redfish import RedfishBmc
from reconciler.drivers.redfish.event_stream import BmcEventWatch
from reconciler.drivers.secrets import SecretStore
from reconciler.gate.attestation.exchange import Expected
from reconciler.gate.attestation.expected import expected_of_installer
from reconciler.model.access import InstallerPolicy
from reconciler.model.desired import Fleet
from reconciler.model.ledger_ports import InstallLedger
from reconciler.model.ports import Clock, Installer


class ActingPorts:
    """The installer, firmware files and the watch on BMCs of one fabric. `bmc_of`: returns the BMC of a node."""

    def __init__(
        self,
        fleet: Fleet,
        clock: Clock,
        secrets: SecretStore,
        overlay: Overlay | None,
        ledger: InstallLedger | None,
        bmc_of: Callable[[str], RedfishBmc | None],
    ) -> None:
        self._fleet = fleet
        self._clock = clock
        self._secrets = secrets
        self._overlay = overlay
        self._ledger = ledger
        self._bmc_of = bmc_of
        self._installer: HttpInstaller | None = None
        self._posted_events = PostedEvents(fleet, secrets, ledger, bmc_of, in_lab=overlay is not None)
        self.firmware_files = HttpFirmwareFiles() if overlay is None else HttpFirmwareFiles(overlay.firmware)

    def bmc_events(self, bmcs: Callable[[], Collection[str]]) -> BmcEventWatch:
        return BmcEventWatch(bmcs, self._bmc_of, self._posted_events.posts)

    def installer(self) -> Installer | None:
        settings = self._fleet.settings
        policy, authorities = settings.installer, settings.host_keys.authorities
        if self._overlay is not None and self._overlay.installer is not None:
            target, authorities = self._overlay.installer, ()
            policy = InstallerPolicy(target.listen, None, target.iso, host_ca=target.host_ca)
        if policy is None:
            return None
        if policy.via:
            return other_installer(settings.extensions, policy, self._secrets)
        if self._installer is None:
            self._installer = HttpInstaller(
                policy, self._secrets, self._clock.now,
                store=self._ledger, authorities=authorities, attestor=self._attestor(),
            )  # fmt: skip
        return self._installer

    def _attestor(self) -> TpmAttestor | None:
        return None if self._ledger is None else TpmAttestor(self._expected_boot, self._ledger, self._clock.now)

    def _expected_boot(self, node: str) -> Expected | str:
        """Return what the installer on a node must prove, by the spec of now; else why that is not known."""
        desired = self._fleet.nodes.get(node)
        return expected_of_installer(desired, self._fleet.settings.installer) if desired else "it has left the spec"

    async def refit(self, fleet: Fleet) -> None:
        """Switch to a new spec."""
        before, self._fleet = self._fleet, fleet
        if before.settings.installer != fleet.settings.installer and self._installer is not None:
            await self._installer.close()
            self._installer = None
        await self._posted_events.refit(fleet)

    async def close(self) -> None:
        await asyncio.gather(self.firmware_files.close(), self._posted_events.close())
        if self._installer is not None:
            await self._installer.close()
