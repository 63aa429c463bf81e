"""The network of the lab's installers: it makes over HTTP the calls that they want, by the URL in their boot medium."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import ClientError, ClientSession, ClientTimeout, web

from reconciler.lab.fleet import Lab, golden_images, measured_images
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.state import InstallerCall
from reconciler.model.desired import Fleet
from reconciler.model.errors import UsageError
from reconciler.model.install import (
    CREDENTIAL_SIZE,
    AttemptCredential,
    ContractError,
    InstallDocument,
    empty_credential,
    load_contract,
)

TICK_S = 0.2  # how often installers are looked at
_TIMEOUT = ClientTimeout(total=10, connect=3)
# What BMCs accept as an ISO. Nothing in it is run: the lab plays the installer.
BOOT_MEDIUM = (b"\0" * 32768 + b"\x01CD001\x01").ljust(34816, b"\0") + empty_credential()
_PLACEHOLDER = slice(len(BOOT_MEDIUM) - CREDENTIAL_SIZE, len(BOOT_MEDIUM))


class InstallNetwork:
    """`reread`: reads the spec again, for an image that was added to it since the lab began."""

    def __init__(self, lab: Lab, reread: Callable[[], Fleet]) -> None:
        self._lab = lab
        self._reread = reread
        self._urls: dict[str, str] = {}  # medium -> the URL in its credential

    async def run(self) -> None:
        """Make the calls of all installers until this is cancelled."""
        calls: dict[str, asyncio.Task[None]] = {}
        async with ClientSession(timeout=_TIMEOUT) as session, asyncio.TaskGroup() as group:
            while True:
                for machine in self._lab.machines.values():
                    machine.catch_up()
                    run = machine.state.installer
                    busy = calls.get(machine.name)
                    if run is not None and run.wants is not None and (busy is None or busy.done()):
                        made = self._call(session, machine, run.medium, run.wants)
                        calls[machine.name] = group.create_task(made)
                await asyncio.sleep(TICK_S)

    async def _call(self, session: ClientSession, machine: Machine, medium: str, wanted: InstallerCall) -> None:
        """Make one call, and give the machine the answer."""
        text = None
        try:
            if wanted.body is None:
                self._urls[medium] = await self._boot(session, medium)
            url = self._urls[medium] + wanted.url.removeprefix(medium.rpartition("/")[0])
            async with session.request("GET" if wanted.body is None else "POST", url, data=wanted.body) as answer:
                text = await answer.text() if answer.ok else None
        except (ClientError, TimeoutError, ContractError, KeyError):
            text = None
        if text is not None and wanted.body is None:
            self._learn_image(text)
        machine.answer(text)

    @staticmethod
    async def _boot(session: ClientSession, medium: str) -> str:
        """Read the medium, and return its URL. Raise ContractError if nothing boots from it (E5)."""
        async with session.get(medium) as boot:
            content = await boot.read()
        if boot.status != web.HTTPOk.status_code:
            raise ContractError(f"{medium} answers {boot.status}")
        return load_contract(AttemptCredential, content[_PLACEHOLDER]).url

    def _learn_image(self, document: str) -> None:
        """Read the spec again when a document names an image that it lacked: the lab's images follow the spec."""
        try:
            image = load_contract(InstallDocument, document).image
            if (image.name, image.version) not in self._lab.images:
                fleet = self._reread()
                self._lab.images.update(golden_images(fleet))
                for machine in self._lab.machines.values():
                    machine.measured = measured_images(fleet)
        except (ContractError, UsageError):
            return  # the installer says what is wrong with it
