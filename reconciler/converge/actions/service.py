"""Restart one service of a host, as the row of a signal names it."""

from __future__ import annotations

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, action, poll
from reconciler.model.outcome import Done, Outcome, Transient

STARTS_S = 90.0  # systemd's own limit for a start (systemd-system.conf(5), DefaultTimeoutStartSec)
LASTS_S = 10.0  # a unit that fails at once is active for a moment


@action
async def restart_service(ctx: ActionContext) -> Outcome:
    """Restart the unit that the action's target names, and see that it stays active."""
    unit = ctx.action.target
    ctx.step(f"restarting {unit}")
    await run(ctx, ("systemctl", "restart", unit), seconds=STARTS_S)

    async def probe() -> bool | None:
        return True if await is_active(ctx, unit) else None

    if not await poll(ctx, probe, within_s=STARTS_S, every_s=5.0, soon=True):
        return Transient(f"{unit} was restarted and is not active")
    await ctx.clock.sleep(LASTS_S)
    if not await is_active(ctx, unit):
        return Transient(f"{unit} was restarted and ended again")
    return Done(f"{unit} was restarted and is active")


async def is_active(ctx: ActionContext, unit: str) -> bool:
    """Return whether a unit is active; one that the host does not have is not."""
    result = await ctx.host.run(("systemctl", "is-active", unit), timeout=max(2.0, ctx.clock.real_seconds(30.0)))
    return result.exit_status == 0 and result.stdout.strip() == "active"
