"""Eject the boot medium of an installation whose run died: it is not served any more, and nothing else ejects it."""

from __future__ import annotations

import re

from reconciler.converge.actions.context import ActionContext, tolerate
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import DISCS, HTTP, PXE, Answered, RedfishHot, Silent
from reconciler.planner.node.actions import spec_of

REPEATABLE = (Failure.AMBIGUOUS, Failure.BUSY, Failure.CONFLICT)
_SET_BY_US = (*DISCS, HTTP, PXE, "Hdd")
_OURS = re.compile(r"/[0-9a-f]{32}/boot\.iso$")  # the URLs of ports.Installer; other media are not ours to eject


async def eject_left_over(ctx: ActionContext) -> None:
    """Eject our medium after an unfinished installation. A running installer would lose its file system (E1)."""
    attempts = reversed(ctx.record.attempts)
    last = next((attempt for attempt in attempts if spec_of(attempt.action).boots_installer), None)
    if last is None or last.outcome == "done" or ctx.bmc_port is None:
        return
    url = await _inserted(ctx)
    if url is not None and _OURS.search(url):
        ctx.step("ejecting the medium of an install that was not ended")
        await eject(ctx)
    await drop_override(ctx, await ctx.bmc.hot())


async def eject(ctx: ActionContext) -> None:
    """Eject the medium. A BMC without virtual media has none."""
    await tolerate(ctx.bmc.eject_media(), *REPEATABLE, Failure.UNSUPPORTED)


async def _inserted(ctx: ActionContext) -> str | None:
    try:
        return await ctx.bmc.media()
    except DriverError as error:
        if error.kind is not Failure.UNSUPPORTED:
            raise
        return None


async def drop_override(ctx: ActionContext, hot: Answered[RedfishHot] | Silent) -> None:
    """Clear an override of ours that the BMC keeps: each boot would be into the installer again (pitfall I8).

    One that stays on the disk outdoes the boot order.
    """
    override = hot.value.boot_override if isinstance(hot, Answered) else None
    if override is not None and override.enabled == "Continuous" and override.target in _SET_BY_US:
        ctx.step("clearing a boot override that stays")
        await tolerate(ctx.bmc.clear_boot_override(), *REPEATABLE, Failure.REJECTED, Failure.UNSUPPORTED)
