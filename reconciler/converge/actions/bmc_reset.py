"""Reset a BMC that answers nobody, from the host that it belongs to: no workload there notices."""

from __future__ import annotations

from typing import Final

from reconciler.converge.actions.activation import answers_again
from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, action
from reconciler.model.observed import Answered
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.planner.node.bmc_reset import HANGS

_BACK_S: Final = 900.0
_GRACE_S: Final = 30.0  # one that has not gone down yet may answer
# ipmitool speaks to the BMC by the host's own interface (KCS), which works while its network or web server hangs.
_RESET: Final = ("ipmitool", "mc", "reset", "cold")


@action
async def reset_bmc_from_host(ctx: ActionContext) -> Outcome:
    """Have the host reset its BMC, and wait until that answers. The host itself goes on."""
    found = await ctx.bmc.hot()
    if isinstance(found, Answered):
        return Done("the BMC answers")
    if found.reason not in HANGS:  # it has come to life meanwhile: no reset gives it our password back
        return Declined("bmc_refuses", f"the BMC works and refuses us: {found.detail}")
    ctx.step("resetting the BMC from its host")
    await run(ctx, _RESET, seconds=60.0)
    await ctx.clock.sleep(_GRACE_S)
    if not await answers_again(ctx, _BACK_S):
        return Transient("the BMC does not answer after its host has reset it")
    return Done("the BMC answers again, after its host has reset it")
