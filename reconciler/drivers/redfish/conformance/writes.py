"""Checks that write. Each puts back what it found, and raises NotPutBack where that can't be shown.

Each reads the serial number again before it writes (pitfall A14), and judges by what is read afterwards (A3, A7).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from reconciler.drivers.redfish.bmc import RedfishBmc
from reconciler.drivers.redfish.conformance.protocol import Broken
from reconciler.drivers.redfish.fields import Unknown
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.abilities import Abilities, Ability
from reconciler.model.conformance import Check
from reconciler.model.errors import DriverError
from reconciler.model.observed import DISCS, Answered, AttributeValue, BootOverride, RedfishHot
from reconciler.model.ports import PowerAction
from reconciler.model.vocab import Power

_POWER_S: Final = 300.0  # of wall-clock time, for a machine to switch: eight GPUs take minutes
_POLL_S: Final = 2.0
_UNSET: Final = "Disabled"


class NotTried(Exception):
    """Raised where a check would harm, or lacks what it needs; the message says what."""


class NotPutBack(Exception):
    """Raised where a machine may still have what a check wrote. Nothing more may be written to it, power above all."""


@dataclass(frozen=True, slots=True)
class WriteBench:
    """The BMC that the checks write to. `bios`: the attribute to stage, and its value; None: none was named."""

    bmc: RedfishBmc
    serial: str
    abilities: Abilities
    bios: tuple[str, AttributeValue] | None
    poll_s: float = _POLL_S
    power_s: float = _POWER_S

    async def hot(self) -> RedfishHot:
        found = await self.bmc.hot()
        if not isinstance(found, Answered):
            raise Broken(f"the BMC can't be read: {found.detail}")
        if found.value.serial != self.serial:
            raise NotTried(f"the BMC answers for {found.value.serial}, not for {self.serial}")
        return found.value

    def require(self, ability: Ability) -> None:
        if lack := self.abilities.lacks.get(ability.value):
            raise Unknown(lack)

    async def power(self, wanted: Power) -> None:
        """Wait until the machine is switched. Raise Broken where it is not."""
        deadline = asyncio.get_running_loop().time() + self.power_s
        while (now := (await self.hot()).power) is not wanted:
            if asyncio.get_running_loop().time() > deadline:
                raise Broken(f"PowerState is {now or 'unknown'} {self.power_s:g} s later, not {wanted}")
            await asyncio.sleep(self.poll_s)


@asynccontextmanager
async def _put_back(
    bench: WriteBench, what: str, restore: Callable[[], Awaitable[None]], is_back: Callable[[RedfishHot], bool]
) -> AsyncIterator[None]:
    """Restore what the body writes, however it ends, and read it. Raise NotPutBack; else Broken in place of NotTried.

    Where another machine answers by now, nothing is written to it.
    """
    try:
        yield
    except NotTried as other:
        raise Broken(str(other)) from None
    finally:
        refused = ""
        try:
            await bench.hot()
            try:
                await restore()
            except (Broken, DriverError) as error:
                refused = f": {error.detail if isinstance(error, DriverError) else error}"
            back = is_back(await bench.hot())
        except (Broken, NotTried) as error:
            raise NotPutBack(f"{what} was not put back: {error}") from error
        if not back:
            raise NotPutBack(f"{what} was not put back{refused}")


async def locator(bench: WriteBench) -> str:
    before = (await bench.hot()).indicator
    if before is None:
        raise Unknown("the BMC shows no locator LED")
    async with _put_back(
        bench,
        f"the LED, {'on' if before else 'off'} before,",
        lambda: bench.bmc.set_indicator(before),
        lambda hot: hot.indicator is before,
    ):
        await bench.bmc.set_indicator(not before)
        if (await bench.hot()).indicator is before:
            raise Broken("the write was accepted, and the LED is as it was")
    return f"switched {'off and on' if before else 'on and off'} again"


async def boot_override(bench: WriteBench) -> str:
    bench.require(Ability.BOOT_ONCE)
    before = _override(await bench.hot())
    if before.enabled != _UNSET:  # of any target: the way to take an override back sets Disabled, and no other
        raise NotTried(f"an override is set already: {before.target}, {before.enabled}; it is somebody else's")
    async with _put_back(
        bench,
        "the boot override, Disabled before,",
        bench.bmc.clear_boot_override,
        lambda hot: _override(hot).enabled == _UNSET,
    ):
        await bench.bmc.boot_once("cd")
        during = _override(await bench.hot())
        if during.target not in DISCS:
            raise Broken(f"the override was accepted, and is {during.target}, {during.enabled}")
    return f"{during.target} {during.enabled}, then {_UNSET} again"


def _override(hot: RedfishHot) -> BootOverride:
    if hot.boot_override is None:
        raise Broken(f"the override can't be read: {hot.unknown.get('boot_override', 'no reason')}")
    return hot.boot_override


async def bios_staging(bench: WriteBench) -> str:
    bench.require(Ability.BIOS)
    if bench.bios is None:
        raise NotTried("name a harmless attribute with another value: --bios NAME=VALUE")
    waiting = (await bench.hot()).pending_bios
    if waiting is None:
        raise Broken("pending settings can't be read")
    if waiting:
        raise NotTried(f"{len(waiting)} settings wait for the next boot already, and are somebody else's")
    if not await bench.bmc.ask(_has_settings_object):
        raise NotTried("this BIOS has no settings object: a value would be in force at once")
    name, value = bench.bios
    async with _put_back(
        bench, f"{name}, staged for the next boot,", bench.bmc.clear_bios, lambda hot: hot.pending_bios == {}
    ):
        await bench.bmc.stage_bios({name: value})
        staged = (await bench.hot()).pending_bios or {}
        if name not in staged:
            raise Broken(f"{name} was accepted, and does not wait; is it {value!r} already?")
    return f"{name} waited for the next boot, and was dropped"


def _has_settings_object(tree: Tree) -> bool:
    return tree.bios_settings(tree.system().body) is not None


async def power(bench: WriteBench) -> str:
    """Switch the machine to the other state and back, each request twice: the second finds it done (A7)."""
    bench.require(Ability.POWER)
    now = await bench.hot()
    before = now.power
    if before not in (Power.ON, Power.OFF):
        raise NotTried(f"PowerState is {before or 'unknown'}: neither on nor off")
    if waiting := _waiting(now):
        raise NotTried(f"{waiting} for the next boot, which this would be; it is somebody else's")
    there, back = (Power.OFF, Power.ON) if before is Power.ON else (Power.ON, Power.OFF)

    async def restore() -> None:
        await bench.bmc.power(_action(back))
        await bench.power(back)

    async with _put_back(bench, f"the power, {back} before,", restore, lambda hot: hot.power is back):
        for _ in range(2):
            await bench.bmc.power(_action(there))
            await bench.power(there)
    return f"{there} and {back} again; a request for the state that it has is no error"


def _waiting(hot: RedfishHot) -> str:
    """Return what the next boot would put into force or use up; "" = nothing that is known."""
    if hot.pending_bios:
        return f"{len(hot.pending_bios)} BIOS settings wait"
    override = hot.boot_override
    if override is None or not override.boots(override.target) or override.target == "None":
        return ""
    harmless = (override.enabled, override.target) == ("Continuous", "Hdd")  # what some makes show at rest
    return "" if harmless else f"an override waits ({override.target}, {override.enabled})"


def _action(state: Power) -> PowerAction:
    return PowerAction.ON if state is Power.ON else PowerAction.FORCE_OFF


WriteProbe = Callable[[WriteBench], Awaitable[str]]
WRITES: Final[tuple[tuple[Check, WriteProbe], ...]] = (
    (
        Check(
            "write-locator-led",
            "DSP0266 7.6 PATCH (update)",
            "repairs go without the light",
            ("A1",),
            "switches the locator LED, and back",
        ),
        locator,
    ),
    (
        Check(
            "write-boot-override",
            "DSP0266 7.6 PATCH (update); ComputerSystem.Boot",
            "it installs nothing on this machine",
            ("A1", "D2", "D5"),
            "has the next boot come from a disc, and takes that back",
        ),
        boot_override,
    ),
    (
        Check(
            "write-bios-settings",
            "DSP0266 9.9 Settings resource",
            "the node fails when its BIOS is to be set",
            ("A1", "G1", "G2", "G3"),
            "stages a BIOS attribute, and drops it",
        ),
        bios_staging,
    ),
    (
        Check(
            "write-power",
            "DSP0266 7.11 POST (Action); ComputerSystem.Reset",
            "every action that restarts this machine fails",
            ("A3", "A7", "C1"),
            "switches the machine hard to its other state, and back",
        ),
        power,
    ),
)
