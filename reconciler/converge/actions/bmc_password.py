"""Give a BMC a new password: kept before the BMC has it, and proved before the one before is forgotten.

No password passes through here: the driver has them from the secret and puts them into it. Whatever ends this between
two steps, the secret has what the BMC takes, and the next attempt goes on with the same new password.
"""

from __future__ import annotations

from reconciler.converge.actions.context import ActionContext, action, tolerate
from reconciler.converge.guarded_ports import known
from reconciler.model.errors import Failure
from reconciler.model.outcome import Done, Outcome, Permanent, Transient
from reconciler.model.password_port import REFUSALS


@action
async def rotate_bmc_password(ctx: ActionContext) -> Outcome:
    """Change the password of the account that we log in with. The host goes on as it is."""
    if tasks := known(await ctx.bmc.hot()).tasks:
        return Transient(f"the BMC is at work on {tasks[0].uri}")
    ctx.step("keeping a new password in the secret")
    await ctx.bmc.stage_password()
    ctx.step("giving it to the BMC")
    failed = await tolerate(ctx.bmc.change_password(), Failure.AMBIGUOUS, *REFUSALS)
    ctx.step("logging in with it")
    refused = failed is not None and failed.kind in REFUSALS
    if not refused and await ctx.bmc.is_password_proved():
        await ctx.bmc.keep_password()
        return Done("the BMC has a new password, which its secret has alone")
    ctx.step("putting the password before back")
    await ctx.bmc.put_password_back()
    back = "the password before is proved to be in force"
    if failed is None:
        return Permanent(f"the BMC accepted a new password and does not let us in by it; {back}")
    return Permanent(f"{failed.detail}; {back}") if refused else Transient(f"{failed.detail}; {back}")
