"""Stage BIOS attributes and boot settings, and read them back. The next reboot brings them into effect."""

from __future__ import annotations

from reconciler.converge.actions.context import ActionContext, Stop, action, poll, tolerate
from reconciler.converge.guarded_ports import known
from reconciler.diff import normalise
from reconciler.diff.boot_order import NoSuchEntry, is_as_wanted, options_of, resolve
from reconciler.model.errors import Failure
from reconciler.model.observed import AttributeValue, RedfishHot, RedfishInventory
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.vocab import BootPhase, Concern

_READ_BACK_S = 20.0


@action
async def set_bios(ctx: ActionContext) -> Outcome:
    """Stage the attributes that drifted. Reading them back catches a BMC that answers 200 and forgets them."""
    wanted: dict[str, AttributeValue] = {
        item.path.removeprefix("bios."): item.desired for item in ctx.drift_to_remove(Concern.BIOS)
    }
    missing = _missing(wanted, known(await ctx.bmc.hot()))
    if not missing:
        return Done("already staged" if wanted else "nothing to stage", changed=False)
    ctx.step(f"staging {', '.join(sorted(missing))}")
    # Send all of them: the driver takes a pending attribute that is not among them for another's, and refuses (G3).
    failed = await tolerate(ctx.bmc.stage_bios(wanted), Failure.AMBIGUOUS)

    async def staged() -> bool | None:
        return None if await _unseen(ctx, wanted) else True

    if await poll(ctx, staged, within_s=_READ_BACK_S, every_s=5.0):
        return Done(f"staged {', '.join(f'{name}={value}' for name, value in sorted(missing.items()))}")
    forgotten = ", ".join(sorted(await _unseen(ctx, wanted)))
    return Transient(f"{failed or 'accepted'}, but the BMC shows neither as pending nor in force: {forgotten}")


async def _unseen(ctx: ActionContext, wanted: dict[str, AttributeValue]) -> dict[str, AttributeValue]:
    """Return what is neither pending nor in force: a BIOS without a settings object applies values at once."""
    missing = _missing(wanted, known(await ctx.bmc.hot()))
    if not missing:
        return {}
    found = known(await ctx.bmc.inventory()).bios or {}
    return {
        name: value
        for name, value in missing.items()
        if name not in found or normalise.attribute(found[name]) != normalise.attribute(value)
    }


def _missing(wanted: dict[str, AttributeValue], hot: RedfishHot) -> dict[str, AttributeValue]:
    if hot.pending_bios is None:
        raise Stop(Transient("the BMC does not say which BIOS settings are pending"))
    pending = {name: normalise.attribute(value) for name, value in hot.pending_bios.items()}
    return {name: value for name, value in wanted.items() if pending.get(name) != normalise.attribute(value)}


@action
async def set_boot(ctx: ActionContext) -> Outcome:
    """Set secure boot and boot order. The order is read back; secure boot shows only after the reboot."""
    items = {item.path: item.desired for item in ctx.drift_to_remove(Concern.BOOT)}
    if not items:
        return Done("nothing to set", changed=False)
    if known(await ctx.bmc.hot()).boot_phase is BootPhase.POST:
        return Transient("the machine is in POST, which refuses boot settings", 30.0)  # pitfall A8
    if "boot.secure_boot" in items:
        ctx.step("setting secure boot")
        # The next boot shows whether the write took effect, with an answer or without one.
        await tolerate(ctx.bmc.set_secure_boot(bool(items["boot.secure_boot"])), Failure.AMBIGUOUS)
    if "boot.order" not in items:
        return Done("secure boot set, for the next boot")
    wanted = tuple(map(str, items["boot.order"]))
    await _check_entries(ctx, wanted)
    ctx.step("setting the boot order")
    failed = await tolerate(ctx.bmc.set_boot_order(wanted), Failure.AMBIGUOUS)

    async def shown() -> bool | None:
        return True if shows(known(await ctx.bmc.inventory()), wanted) else None

    if not await poll(ctx, shown, within_s=_READ_BACK_S, every_s=5.0):
        return Transient(f"{failed or 'accepted'}, but the BMC does not show the boot order {', '.join(wanted)}")
    return Done(f"boot order {', '.join(wanted)}")


async def _check_entries(ctx: ActionContext, wanted: tuple[str, ...]) -> None:
    """Raise Stop unless the BMC has every declared entry."""
    options = options_of(known(await ctx.bmc.inventory()))
    if options is None:
        raise Stop(Declined("unknown", "the BMC does not report its boot order"))
    try:
        resolve(wanted, options)
    except NoSuchEntry as error:
        raise Stop(Declined("no_such_entry", str(error))) from None


def shows(found: RedfishInventory, wanted: tuple[str, ...]) -> bool:
    """Return whether the order is as wanted now, or will be at the next boot."""
    options = options_of(found)
    if options is None:
        return False
    by_reference = {option.reference: option for option in options}
    waiting = tuple(by_reference[reference] for reference in found.staged_boot_order if reference in by_reference)
    try:
        return is_as_wanted(wanted, options) or (bool(waiting) and is_as_wanted(wanted, waiting))
    except NoSuchEntry:
        return False
