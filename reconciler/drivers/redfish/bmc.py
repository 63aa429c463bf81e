"""`RedfishBmc`, which implements model.ports.Bmc."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from reconciler.drivers.redfish import boot, drives, firmware, indicator, integrity, power, staging, subscription
from reconciler.drivers.redfish.account import OwnAccount, Replace
from reconciler.drivers.redfish.fields import path, quote
from reconciler.drivers.redfish.hot import Tasks, read_hot
from reconciler.drivers.redfish.inventory import read_inventory
from reconciler.drivers.redfish.log_news import LogNews
from reconciler.drivers.redfish.media import Media
from reconciler.drivers.redfish.port import RedfishPort
from reconciler.drivers.secrets import Credentials
from reconciler.model.errors import DriverError, Failure
from reconciler.model.event_tokens import owner_mark
from reconciler.model.measurements import SignedMeasurements
from reconciler.model.observed import Answered, AttributeValue, BmcEvent, BmcTask, RedfishHot, RedfishInventory, Silent
from reconciler.model.ports import Bmc, FirmwareFile, PowerAction

_MEASURING_POLL_S = 1.0  # of wall-clock time; a root of trust takes seconds to sign
# Fleet seconds in which a BMC may be gone: after its reset, and during a flash, which may be its own.
_RESET_S, _FLASH_S = 900.0, 3600.0


def _keeps_none(_before: Credentials, _new: Credentials) -> None:
    raise DriverError(Failure.UNSUPPORTED, "its secret has no writer")


class RedfishBmc(RedfishPort, Bmc):
    """One node's BMC. What the constructor takes is that of `RedfishPort`, and what replaces its secret."""

    def __init__(self, address: str, *, replace: Replace = _keeps_none, **reached: Any) -> None:
        super().__init__(address, **reached)
        self._account = OwnAccount(self._tree, reached["credentials"], replace)
        self._tasks = Tasks(self._tree)
        self._media = Media(self._tree)
        self._log_news = LogNews(self._tree)

    # --- reads ---------------------------------------------------------------------------------------------------

    async def hot(self) -> Answered[RedfishHot] | Silent:
        return await self._read(lambda: read_hot(self._tree, self._tasks))

    async def inventory(self) -> Answered[RedfishInventory] | Silent:
        return await self._read(lambda: read_inventory(self._tree))

    async def log_news(self, told: Sequence[BmcEvent]) -> Answered[bool] | Silent:
        return await self._read(lambda: self._log_news.since(told, self._now()))

    async def media(self) -> str | None:
        return await self._run(self._media.url)

    async def task(self, uri: str) -> BmcTask | None:
        where = path(uri)
        if where is None:
            raise DriverError(Failure.REJECTED, f"{quote(uri)!r} is not a task on a BMC")
        found = await self._run(lambda: firmware.read_task(self._tree, where))
        return found or self._tasks.starting(where, self._now())

    async def tasks(self) -> Sequence[str]:
        return await self._run(lambda: [uri for uri, _ in self._tree.tasks()[1]])

    async def signed_measurements(self, component: str, nonce: bytes) -> SignedMeasurements:
        found = await self._run(lambda: integrity.ask(self._tree, component, nonce))
        while isinstance(found, str):
            await asyncio.sleep(_MEASURING_POLL_S)
            found = await self._run(partial(integrity.result, self._tree, component, found)) or found
        return found

    # --- writes --------------------------------------------------------------------------------------------------

    async def power(self, action: PowerAction) -> None:
        await self._run(lambda: power.power(self._tree, action))

    async def stage_bios(self, attributes: Mapping[str, AttributeValue]) -> None:
        await self._run(lambda: staging.stage_bios(self._tree, attributes))

    async def clear_bios(self) -> None:
        await self._run(lambda: staging.clear_bios(self._tree))

    async def set_secure_boot(self, enabled: bool) -> None:
        await self._run(lambda: boot.set_secure_boot(self._tree, enabled))

    async def set_boot_order(self, order: Sequence[str]) -> None:
        await self._run(lambda: boot.set_boot_order(self._tree, order))

    async def boot_once(self, device: str) -> None:
        await self._run(lambda: boot.boot_once(self._tree, device))

    async def clear_boot_override(self) -> None:
        await self._run(lambda: boot.clear_override(self._tree))

    async def insert_media(self, url: str) -> None:
        await self._run(lambda: self._media.insert(url))

    async def eject_media(self) -> None:
        await self._run(self._media.eject)

    async def boot_http(self, url: str) -> None:
        await self._run(lambda: boot.boot_http(self._tree, url))

    async def http_boot_uri(self) -> str | None:
        return await self._run(lambda: boot.http_boot_uri(self._tree))

    async def update_firmware(self, inventory_id: str, file: FirmwareFile) -> str:
        try:
            uri = await self._run(lambda: firmware.start_update(self._tree, inventory_id, file))
        finally:
            self._gate.expect_absence(_FLASH_S)
        self._tasks.expect(uri, self._now())
        return uri

    async def secure_erase(self, serial: str) -> str:
        uri = await self._run(lambda: drives.secure_erase(self._tree, serial))
        self._tasks.expect(uri, self._now())
        return uri

    async def set_indicator(self, lit: bool) -> None:
        await self._run(lambda: indicator.switch(self._tree, lit=lit))

    async def stage_password(self) -> None:
        await self._run(self._account.stage)

    async def change_password(self) -> None:
        await self._run(self._account.change)

    async def is_password_proved(self) -> bool:
        return await self._run(self._account.is_proved)

    async def keep_password(self) -> None:
        await self._run(self._account.keep)

    async def put_password_back(self) -> None:
        await self._run(self._account.put_back)

    async def unsubscribe(self, ledger: str) -> int:
        return await self._run(lambda: subscription.unsubscribe(self._tree, owner_mark(ledger)))

    async def reset(self) -> None:
        try:
            await self._run(lambda: power.reset_bmc(self._tree))
        finally:
            self._gate.expect_absence(_RESET_S)
