"""Find staged settings and firmware, and verify that a reboot brought them into effect."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.converge.actions.context import ActionContext, Stop, poll
from reconciler.converge.guarded_ports import known
from reconciler.diff import normalise
from reconciler.model.desired import DesiredFirmware
from reconciler.model.observed import Answered, AttributeValue, RedfishInventory, Silent
from reconciler.model.outcome import Permanent, Transient
from reconciler.model.vocab import Activation
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.staged import NOT_ACTIVATED, is_staged

STEADY_READS = 3  # pitfall F1: a BMC that has just restarted gives inconsistent answers for a while
BETWEEN_READS_S = 10.0
STEADY_S = 600.0


@dataclass(frozen=True, slots=True)
class Pending:
    """Staged values: BIOS attributes that the BMC shows as pending, and firmware that we staged."""

    bios: Mapping[str, AttributeValue]
    firmware: tuple[DesiredFirmware, ...]


async def pending_settings(ctx: ActionContext) -> Pending:
    """Return what this action is to activate."""
    classes = spec_of(ctx.action.name).activates
    bios = known(await ctx.bmc.hot()).pending_bios if Activation.REBOOT in classes else None
    staged = tuple(
        item
        for item in ctx.desired.profile.firmware
        if item.activation in classes and is_staged(ctx.record, "update_firmware", item.component, item.activation)
    )
    return Pending(dict(bios or {}), staged)


async def verify_activation(ctx: ActionContext, pending: Pending) -> None:
    """Verify by three equal readings that all that was pending is in effect; raise Stop if it is not."""
    if not pending.bios and not pending.firmware:
        return
    ctx.step("checking what the reboot brought in")
    inventory = await steady_inventory(ctx)
    found = inventory.bios or {}
    stale = [
        f"BIOS {name} is {found.get(name)!r}, {value!r} was staged"
        for name, value in sorted(pending.bios.items())
        if name not in found or normalise.attribute(found[name]) != normalise.attribute(value)
    ]
    resets_bios = any(item.component == "bios" for item in pending.firmware)
    if resets_bios:
        stale.clear()  # flashing the BIOS returns its settings to factory defaults (pitfall G6): they are staged again
    for item in pending.firmware:
        version = version_of(inventory, item)
        if not satisfies(item, version):
            stale.append(f"{item.component} runs {version}, {item.version} was staged")
    if stale:
        raise Stop(Permanent(f"{NOT_ACTIVATED}: {'; '.join(stale)}"))


async def steady_inventory(ctx: ActionContext) -> RedfishInventory:
    """Return the inventory once three readings in a row agree; raise Stop if they do not agree in time."""
    reads: list[tuple[object, ...]] = []

    async def probe() -> RedfishInventory | None:
        inventory, hot = await ctx.bmc.inventory(), await ctx.bmc.hot()
        if isinstance(inventory, Silent) or isinstance(hot, Silent):
            reads.clear()
            return None
        value = inventory.value
        reads.append((value.firmware, value.bios, value.secure_boot, hot.value.power, hot.value.serial))
        return value if len(reads) >= STEADY_READS and reads[-STEADY_READS:] == [reads[-1]] * STEADY_READS else None

    inventory = await poll(ctx, probe, within_s=STEADY_S, every_s=BETWEEN_READS_S)
    if inventory is None:
        raise Stop(Transient("the BMC does not give the same answer three times in a row"))
    return inventory


def version_of(inventory: RedfishInventory, item: DesiredFirmware) -> str | None:
    found = (inventory.firmware or {}).get(item.inventory_id)
    return None if found is None else found.version


def satisfies(item: DesiredFirmware, version: str | None) -> bool:
    """Return whether a version is the desired one, or at least as high where the policy is `min`."""
    if version is None:
        return False
    if item.policy == "min":
        return normalise.version_key(version) >= normalise.version_key(item.version)
    return normalise.version(version) == normalise.version(item.version)


async def answers_again(ctx: ActionContext, within_s: float) -> bool:
    """Wait for the BMC; return whether it answered in time."""

    async def probe() -> bool | None:
        return True if isinstance(await ctx.bmc.hot(), Answered) else None

    return bool(await poll(ctx, probe, within_s=within_s, every_s=10.0))
