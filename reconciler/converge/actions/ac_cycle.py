"""Cut a node off from mains at the outlets of its rack PDUs, and give it power again.

Nodes that share these outlets are taken along: each is drained and counted by work of its own, waits here until all
are ready, and comes back by itself. If one of them is not, nobody is cut off.

An outlet is bound to its node by the spec alone, and cables are swapped by people. So the cut is proved: the node's own
BMC, which answered before, must fall silent, and no BMC of a bystander may. If either is not so the outlets give power
again at once, the attempt is a permanent failure, and a hold keeps everybody from trying again (pitfalls C4, K6).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from reconciler.converge.actions.activation import answers_again, pending_settings, verify_activation
from reconciler.converge.actions.context import ActionContext, Stop, action, poll, tolerate
from reconciler.converge.actions.power import ensure_off, ensure_on, has_rebooted, wait_for_host
from reconciler.converge.guarded_ports import GuardedBmc, TimedBmc, TimedPdu
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Silent
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.units import format_duration
from reconciler.planner.node.power_variants import WITH

SWITCHES_S = 60.0  # until an outlet tells that it was switched
FALLS_SILENT_S = 120.0  # power supplies hold up for less than a second; a BMC's connections take longer to end
RESTORES_S = 1800.0
EMPTY_S = 30.0  # until capacitors are empty, so that standby logic starts anew
BMC_BOOT_S = 900.0
BEGINS_S = 1800.0  # until those that share its outlets are drained, beside the time of their drains
SHUTS_DOWN_S = 600.0
CUT_LASTS_S = RESTORES_S + 2 * SWITCHES_S + FALLS_SILENT_S + EMPTY_S + SHUTS_DOWN_S
HOLDER = "reconciler"
NO_ANSWER = "the outlets give power, and the BMC does not answer"


@action
async def ac_cycle(ctx: ActionContext) -> Outcome:
    """Power the machine off, switch all of its outlets off and on, and wait for a new boot id."""
    if ctx.action.target.startswith(WITH):
        return await _taken_along(ctx)
    try:
        return await _cycle(ctx)
    finally:
        if ctx.cut is not None:
            ctx.cut.over = True


async def _cycle(ctx: ActionContext) -> Outcome:
    boot_id = ctx.intent.get("boot_id")
    pdus = _pdus(ctx)
    if ctx.resumed.get("cut"):
        await _give_power(ctx, pdus)
        if ctx.resumed.get("dark"):
            return await _come_back(ctx, boot_id)
        if not await answers_again(ctx, BMC_BOOT_S):  # the cut was never proved, and is made anew
            return Transient(NO_ANSWER)
    elif ctx.resumed and await has_rebooted(ctx, boot_id):
        return Done("it had rebooted before the last run ended", changed=False)
    pending = await pending_settings(ctx)
    await _demand_power(pdus)
    if ctx.action.target:
        await _gather(ctx)
    await ensure_off(ctx)
    bystanders = [(name, bmc) for name, bmc in ctx.bystanders if not isinstance(await bmc.hot(), Silent)]
    ctx.journal(cut=[[outlet.pdu, outlet.name] for outlet in ctx.desired.outlets])
    try:
        await _cut(ctx, pdus)
        wrong = await _wrongly_cut(ctx, bystanders)
        if not wrong:
            await ctx.clock.sleep(EMPTY_S)
            ctx.journal(dark=True)
    finally:
        await _give_power(ctx, pdus)
        if ctx.cut is not None:
            ctx.cut.over = True
    if wrong:
        ctx.ledger.hold(ctx.node, wrong, HOLDER, None, ctx.clock.now())
        await answers_again(ctx, BMC_BOOT_S)
        return Permanent(f"{wrong}. All outlets give power again; a hold keeps the node as it is")
    outcome = await _come_back(ctx, boot_id)
    await verify_activation(ctx, pending)
    return outcome


async def _gather(ctx: ActionContext) -> None:
    """Wait until all nodes that lose power with this one are drained, and have them shut down. Raise Stop if not."""
    cut, names = ctx.cut, set(ctx.action.target.split(","))
    if cut is None or cut.node != ctx.node or set(cut.others) != names:
        raise Stop(Declined("not_called", f"{ctx.action.target} would lose power, and nobody has called them"))

    async def wait(done: set[str], what: str, within_s: float) -> None:
        ctx.step(f"waiting until {', '.join(sorted(names))} {'are' if len(names) > 1 else 'is'} {what}")

        async def probe() -> str | None:
            gone = [f"{name}, which its outlets give power, too: {why}" for name, why in sorted(cut.left.items())]
            return "; ".join(gone) or ("" if names <= done else None)

        why = await poll(ctx, probe, within_s=within_s, every_s=5.0, soon=True)
        if why is None:
            why = f"{', '.join(sorted(names - done))} was not {what} within {format_duration(within_s)}"
        if why:
            raise Stop(Transient(f"nobody was cut off: {why}"))

    await wait(cut.ready, "drained", BEGINS_S + cut.drains_s)
    cut.called = True
    await wait(cut.off, "shut down", SHUTS_DOWN_S)


async def _taken_along(ctx: ActionContext) -> Outcome:
    """Wait, drained, until the machine is to be cut off with another one; shut it down, and bring it up afterwards."""
    boot_id, cut, caller = ctx.intent.get("boot_id"), ctx.cut, ctx.action.target.removeprefix(WITH)
    if cut is None or cut.node != caller:
        return Declined("not_called", f"{caller} does not call it any more")
    pending = await pending_settings(ctx)
    try:
        cut.ready.add(ctx.node)
        ctx.step(f"drained, waiting for {caller}")
        await poll(
            ctx,
            lambda: _is_so(cut.called or cut.over),
            within_s=BEGINS_S + cut.drains_s + SHUTS_DOWN_S,
            every_s=5.0,
            soon=True,
        )
        if not cut.called:
            return Declined("not_cut", f"{caller} was not cut off")
        await ensure_off(ctx)
        cut.off.add(ctx.node)
        ctx.step(f"off, waiting until {caller} has power again")
        await poll(ctx, lambda: _is_so(cut.over), within_s=CUT_LASTS_S, every_s=5.0, soon=True)
    finally:
        cut.drop_out(ctx.node, "it did not wait until the end")
    outcome = await _come_back(ctx, boot_id)
    await verify_activation(ctx, pending)
    return outcome


async def _is_so(so: bool) -> bool | None:
    return so or None


def _pdus(ctx: ActionContext) -> Mapping[TimedPdu, Sequence[str]]:
    """Return the outlets of each PDU of the node."""
    found: defaultdict[TimedPdu, list[str]] = defaultdict(list)
    for outlet in ctx.desired.outlets:
        found[ctx.pdus[outlet.pdu or ""]].append(outlet.name)
    return found


async def _demand_power(pdus: Mapping[TimedPdu, Sequence[str]]) -> None:
    """Raise Stop unless every outlet answers and gives power: one that is off is a feed that nobody counts on."""
    for pdu, names in pdus.items():
        found = await pdu.outlets(names)
        if off := sorted(name for name in names if not found[name]):
            raise Stop(Transient(f"outlet {', '.join(off)} is off already: somebody works there"))


async def _cut(ctx: ActionContext, pdus: Mapping[TimedPdu, Sequence[str]]) -> None:
    ctx.step("switching its outlets off")
    for pdu, names in pdus.items():
        await _switch(ctx, pdu, names, on=False)


async def _give_power(ctx: ActionContext, pdus: Mapping[TimedPdu, Sequence[str]]) -> None:
    """Switch all outlets on, each PDU whatever the others do. One that stays off sets a hold, and raises Stop."""
    ctx.step("switching its outlets on")
    dark: list[str] = []
    for pdu, names in pdus.items():
        try:
            await _switch(ctx, pdu, names, on=True, within_s=RESTORES_S)
        except (Stop, DriverError) as error:
            dark.append(str(error))
    if dark:
        why = f"outlets were switched off and can't be switched on again, switch them on by hand: {'; '.join(dark)}"
        ctx.ledger.hold(ctx.node, why, HOLDER, None, ctx.clock.now())
        raise Stop(Permanent(why))


async def _switch(
    ctx: ActionContext, pdu: TimedPdu, names: Sequence[str], *, on: bool, within_s: float = SWITCHES_S
) -> None:
    """Switch outlets of one PDU until it tells that all are so. Raise Stop if they are not in time."""
    failed: list[DriverError] = []

    async def probe() -> bool | None:
        error = await tolerate(pdu.switch(names, on=on), Failure.AMBIGUOUS, Failure.BUSY, Failure.UNREACHABLE)
        failed[:] = [] if error is None else [error]
        try:
            found = await pdu.outlets(names)
        except DriverError as unread:
            failed.append(unread)
            return None
        return True if all(found[name] is on for name in names) else None

    if not await poll(ctx, probe, within_s=within_s, every_s=5.0, soon=True):
        why = f": {failed[0]}" if failed else ""
        raise Stop(Transient(f"outlet {', '.join(names)} can't be switched {'on' if on else 'off'}{why}"))


async def _wrongly_cut(ctx: ActionContext, bystanders: Sequence[tuple[str, TimedBmc]]) -> str:
    """Return what speaks against these outlets being the node's own, all of them and nobody else's; "" if nothing."""
    ctx.step("waiting for its BMC to fall silent, and no other")
    outlets = ", ".join(f"{outlet.pdu}#{outlet.name}" for outlet in ctx.desired.outlets)

    async def probe() -> str | None:
        for name, bmc in bystanders:
            if await _is_silent(bmc):
                return f"the outlets of {ctx.node} in the spec ({outlets}) give {name} power: its BMC fell silent"
        return "" if await _is_silent(ctx.bmc) else None

    found = await poll(ctx, probe, within_s=FALLS_SILENT_S, every_s=5.0, soon=True)
    if found is None:
        return f"with all of its outlets in the spec off ({outlets}) the BMC of {ctx.node} still answers: it has others"
    return found


async def _is_silent(bmc: GuardedBmc | TimedBmc) -> bool:
    """Return whether two readings in a row fail: one may be lost on its way."""
    return isinstance(await bmc.hot(), Silent) and isinstance(await bmc.hot(), Silent)


async def _come_back(ctx: ActionContext, boot_id: str | None) -> Outcome:
    ctx.step("waiting for the BMC")
    if not await answers_again(ctx, BMC_BOOT_S):
        return Transient(NO_ANSWER)
    await ensure_on(ctx)
    facts = await wait_for_host(ctx, unlike=boot_id)
    return Done(f"cut off from mains and back, boot id {facts.boot_id}")
