"""Boot an installer: from a virtual disc, over UEFI HTTP or over PXE; and boot the disk afterwards.

What was set is read back before power comes on: BMCs accept what they do not keep (pitfalls D2, D11, E2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from reconciler.converge.actions.context import ActionContext, Stop, outcome_of, poll, tolerate
from reconciler.converge.actions.medium import REPEATABLE, eject
from reconciler.converge.actions.power import ensure_off, ensure_on
from reconciler.converge.guarded_ports import known
from reconciler.model.abilities import URL, Abilities
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import DISCS, HTTP, PXE, Answered, AttributeValue, BootOverride
from reconciler.model.outcome import Transient
from reconciler.model.units import format_duration
from reconciler.model.vocab import BootWay

TRIES = 2
BETWEEN_S = 5.0
POST_S = 1800.0  # servers with eight GPUs take 5 to 12 minutes, and some restart once more to apply a setting


async def prepare_installer(ctx: ActionContext, url: str, way: BootWay, abilities: Abilities | None) -> None:
    """Power off, and set a one-time boot from our medium alone. Raise Stop if it can't be done."""
    await ensure_off(ctx)  # first: ejecting under a running system corrupts it (E1)
    match way:
        case BootWay.HTTP:
            if abilities is not None and abilities.http_attributes:
                await _set_uri(ctx, url, abilities.http_attributes)
            ctx.step("setting a one-time boot over HTTP")
            await _boot_once(ctx, lambda: ctx.bmc.boot_http(url), lambda override: override.boots(HTTP))
            if (shown := await ctx.bmc.http_boot_uri()) != url:
                raise Stop(Transient(f"accepted, but the BMC shows as URI to boot from: {shown or 'none'} (D11)"))
        case BootWay.PXE:
            ctx.step("setting a one-time boot over PXE")
            await _boot_once(ctx, lambda: ctx.bmc.boot_once("pxe"), lambda override: override.boots(PXE))
        case BootWay.VIRTUAL_MEDIA:
            ctx.step("inserting the boot medium")
            await _insert(ctx, url)
            await _boot_once(ctx, lambda: ctx.bmc.boot_once("cd"), lambda override: override.boots(*DISCS))


async def _set_uri(ctx: ActionContext, url: str, attributes: Mapping[str, str]) -> None:
    """Set the URI where it is a BIOS attribute, which is in force after a POST; end with the power off.

    What waits for a boot already is staged again with it, since a BMC drops it or refuses ours otherwise (G3).
    """
    wanted: dict[str, AttributeValue] = {name: value.replace(URL, url) for name, value in attributes.items()}
    hot = known(await ctx.bmc.hot())
    if hot.pending_bios is None:
        raise Stop(Transient("the BMC does not say which BIOS settings are pending"))
    ctx.step("setting the URI to boot from in the BIOS")
    await tolerate(ctx.bmc.stage_bios({**hot.pending_bios, **wanted}), Failure.AMBIGUOUS)
    await ensure_on(ctx)

    async def in_force() -> bool | None:
        hot, inventory = await ctx.bmc.hot(), await ctx.bmc.inventory()
        if not isinstance(hot, Answered) or not isinstance(inventory, Answered) or hot.value.pending_bios != {}:
            return None
        found = inventory.value.bios or {}
        return True if all(found.get(name) == value for name, value in wanted.items()) else None

    done = await poll(ctx, in_force, within_s=POST_S, every_s=BETWEEN_S)
    await ensure_off(ctx)
    if not done:
        names = ", ".join(wanted)
        raise Stop(Transient(f"accepted, but {format_duration(POST_S)} after power-on the BIOS lacks {names} (D11)"))


async def boot_disk(ctx: ActionContext) -> None:
    """Boot the disk once, of a machine that is off, without our medium."""
    ctx.step("ejecting the medium, and booting from disk")
    await eject(ctx)
    # Without this order the boot order decides, in which the disk is all that is left to boot.
    await tolerate(ctx.bmc.boot_once("disk"), *REPEATABLE, Failure.REJECTED, Failure.UNSUPPORTED)
    await ensure_on(ctx)


async def _boot_once(
    ctx: ActionContext, order: Callable[[], Awaitable[None]], is_set: Callable[[BootOverride], bool]
) -> None:
    shown, failed = "nothing", None
    for _ in range(TRIES):
        failed = await tolerate(order(), *REPEATABLE)
        override = known(await ctx.bmc.hot()).boot_override
        if override is not None and is_set(override):
            return  # one that stays is replaced before the disk is booted
        shown = f"{override.target}, {override.enabled}" if override is not None else "nothing"
        await ctx.clock.sleep(BETWEEN_S)
    raise Stop(Transient(f"{failed or 'accepted'}, but the BMC shows as one-time boot: {shown} (D2)"))


async def _insert(ctx: ActionContext, url: str) -> None:
    """Eject what is inserted and insert our medium; read back both: BMCs show media that are not there (E2)."""
    failed: DriverError | None = None
    for _ in range(TRIES):
        failed = await tolerate(ctx.bmc.eject_media(), *REPEATABLE)
        if await ctx.bmc.media() is not None:
            continue
        failed = await tolerate(ctx.bmc.insert_media(url), *REPEATABLE)
        if await ctx.bmc.media() == url:
            return
    raise Stop(outcome_of(failed) if failed else Transient("the BMC does not show our medium as inserted"))
