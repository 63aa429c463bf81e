"""Boot an installer: from a virtual disc, or over UEFI HTTP where the BMC offers no disc; and boot the disk afterwards.

What was set is read back before power comes on: BMCs accept what they do not keep (pitfalls D2, D11, E2).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from reconciler.converge.actions.context import ActionContext, Stop, outcome_of, tolerate
from reconciler.converge.actions.medium import REPEATABLE, eject
from reconciler.converge.actions.power import ensure_off, ensure_on
from reconciler.converge.guarded_ports import known
from reconciler.model.abilities import Abilities, Ability
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import BootOverride
from reconciler.model.outcome import Transient

TRIES = 2
BETWEEN_S = 5.0


async def prepare_installer(ctx: ActionContext, url: str, abilities: Abilities | None) -> None:
    """Power off, and set a one-time boot from our medium alone. Raise Stop if it can't be done."""
    await ensure_off(ctx)  # first: ejecting under a running system corrupts it (E1)
    if by_http(abilities):
        ctx.step("setting a one-time boot over HTTP")
        await _boot_once(ctx, lambda: ctx.bmc.boot_http(url), lambda override: override.boots_http)
        if (shown := await ctx.bmc.http_boot_uri()) != url:
            raise Stop(Transient(f"accepted, but the BMC shows as URI to boot from: {shown or 'none'} (D11)"))
        return
    ctx.step("inserting the boot medium")
    await _insert(ctx, url)
    await _boot_once(ctx, lambda: ctx.bmc.boot_once("cd"), lambda override: override.boots_disc)


def by_http(abilities: Abilities | None) -> bool:
    """Return whether the BMC lacks virtual discs, or a boot from them, and can boot over HTTP."""
    if abilities is None or abilities.why_not(Ability.HTTP_BOOT):
        return False
    return any(abilities.why_not(ability) for ability in (Ability.MEDIA, Ability.BOOT_ONCE))


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
