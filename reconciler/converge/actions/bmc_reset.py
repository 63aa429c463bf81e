"""Reset a BMC that answers nobody, from the host that it belongs to: no workload there notices."""

from __future__ import annotations

from typing import Final

from reconciler.converge.actions.activation import answers_again
from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, action
from reconciler.model.observed import Answered
from reconciler.model.outcome import Done, Outcome, Transient

_BACK_S: Final = 900.0
_GRACE_S: Final = 30.0  # one that has not gone down yet may answer
# ipmitool speaks to the BMC by the host's own interface (KCS), which works while its network or web server hangs.
_RESET: Final = ("ipmitool", "mc", "reset", "cold")


@action
async def reset_bmc_from_host(ctx: ActionContext) -> Outcome:
    """Have the host reset its BMC, and wait until that answers. The host itself goes on."""
    if isinstance(await ctx.bmc.hot(), Answered):
        return Done("the BMC answers")
    ctx.step("resetting the BMC from its host")
    await run(ctx, _RESET, seconds=60.0)
    await ctx.clock.sleep(_GRACE_S)
    if not await answers_again(ctx, _BACK_S):
        return Transient("the BMC does not answer after its host has reset it")
    return Done("the BMC answers again, after its host has reset it")
