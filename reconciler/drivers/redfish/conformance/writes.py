"""Checks that write. Each puts back what it found, and says so when it could not.

Each reads serial number and UUID again before it writes (pitfall A14), and judges by what is read afterwards (A3, A7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from reconciler.drivers.redfish.bmc import RedfishBmc
from reconciler.drivers.redfish.conformance.protocol import Broken
from reconciler.drivers.redfish.fields import Unknown
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.abilities import Abilities, Ability
from reconciler.model.conformance import Check
from reconciler.model.observed import DISCS, Answered, AttributeValue, BootOverride, RedfishHot
from reconciler.model.ports import PowerAction
from reconciler.model.vocab import Power

_POWER_S: Final = 300.0  # of wall-clock time, for a machine to switch: eight GPUs take minutes
_POLL_S: Final = 2.0
_UNSET: Final = ("Disabled",)


class NotTried(Exception):
    """Raised where a check would harm, or lacks what it needs; the message says what."""


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


async def locator(bench: WriteBench) -> str:
    before = (await bench.hot()).indicator
    if before is None:
        raise Unknown("the BMC shows no locator LED")
    try:
        await bench.bmc.set_indicator(not before)
        if (await bench.hot()).indicator is before:
            raise Broken("the write was accepted, and the LED is as it was")
    finally:
        await bench.bmc.set_indicator(before)
    if (await bench.hot()).indicator is not before:
        raise Broken(f"the LED was not put back: {'on' if before else 'off'} before")
    return f"switched {'off and on' if before else 'on and off'} again"


async def boot_override(bench: WriteBench) -> str:
    bench.require(Ability.BOOT_ONCE)
    before = _override(await bench.hot())
    if before.enabled not in _UNSET and before.target not in ("None", "Hdd"):
        raise NotTried(f"an override waits already: {before.target}, {before.enabled}; it is somebody else's")
    try:
        await bench.bmc.boot_once("cd")
        during = _override(await bench.hot())
        if during.target not in DISCS:
            raise Broken(f"the override was accepted, and is {during.target}, {during.enabled}")
    finally:
        await bench.bmc.clear_boot_override()
    after = _override(await bench.hot())
    if after.target in DISCS and after.enabled not in _UNSET:
        raise Broken(f"the override was not taken back: {after.target}, {after.enabled}; clear it before a boot")
    return f"{during.target} {during.enabled}, then {after.target} {after.enabled}"


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
    try:
        await bench.bmc.stage_bios({name: value})
        staged = (await bench.hot()).pending_bios or {}
        if name not in staged:
            raise Broken(f"{name} was accepted, and does not wait; is it {value!r} already?")
    finally:
        await bench.bmc.clear_bios()
    if (await bench.hot()).pending_bios:
        raise Broken(f"{name} still waits for the next boot, and can't be dropped: reset the BIOS settings by hand")
    return f"{name} waited for the next boot, and was dropped"


def _has_settings_object(tree: Tree) -> bool:
    return tree.bios_settings(tree.system().body) is not None


async def power(bench: WriteBench) -> str:
    """Switch the machine to the other state and back, each request twice: the second finds it done (A7)."""
    bench.require(Ability.POWER)
    before = (await bench.hot()).power
    if before not in (Power.ON, Power.OFF):
        raise NotTried(f"PowerState is {before or 'unknown'}: neither on nor off")
    there, back = (Power.OFF, Power.ON) if before is Power.ON else (Power.ON, Power.OFF)
    try:
        for _ in range(2):
            await bench.bmc.power(_action(there))
            await bench.power(there)
    finally:
        await bench.bmc.power(_action(back))
    await bench.power(back)
    return f"{there} and {back} again; a request for the state that it has is no error"


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
