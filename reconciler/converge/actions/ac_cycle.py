"""Cut a node off from mains at the outlets of its rack PDUs, and give it power again.

Those that share its outlets (converge/siblings.py) are drained and shut down before, and go dark with it.

An outlet is bound to its node by the spec alone, and cables are swapped by people. So the cut is proved: the node's own
BMC, which answered before, must fall silent, and no BMC of a bystander may. If either is not so the outlets give power
again at once, the attempt is a permanent failure, and a hold keeps everybody from trying again (pitfalls C4, K6).
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Final

from reconciler.converge.actions.activation import Pending, answers_again, pending_settings, verify_activation
from reconciler.converge.actions.context import ActionContext, Stop, action, carry_out, poll, tolerate
from reconciler.converge.actions.power import ensure_off, ensure_on, has_rebooted, wait_for_host
from reconciler.converge.guarded_ports import GuardedBmc, TimedBmc, TimedPdu
from reconciler.converge.ports import SharedOutlets
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Silent
from reconciler.model.outcome import TOGETHER, Declined, Done, Outcome, Permanent, Transient

SWITCHES_S = 60.0  # until an outlet tells that it was switched
FALLS_SILENT_S = 120.0  # power supplies hold up for less than a second; a BMC's connections take longer to end
RESTORES_S = 1800.0
EMPTY_S = 30.0  # until capacitors are empty, so that standby logic starts anew
BMC_BOOT_S = 900.0
HOLDER = "reconciler"
TRIES_A_DAY: Final = 4  # to take those along that share the outlets: each may evict their work for nothing
IN_VAIN: Final = f"{TOGETHER}others were taken out of service in vain: "  # such a try counts
NO_ANSWER = "the outlets give power, and the BMC does not answer"


@action
async def ac_cycle(ctx: ActionContext) -> Outcome:
    """Power the machine off, switch all of its outlets off and on, and wait for a new boot id."""
    boot_id = ctx.intent.get("boot_id")
    pdus = _pdus(ctx)
    if ctx.resumed.get("cut"):
        if ctx.resumed.get("powered"):
            await _demand_power(pdus)
        else:
            await _give_power(ctx, pdus)
        if ctx.resumed.get("dark"):
            return await _come_back(ctx, boot_id)
        if not await answers_again(ctx, BMC_BOOT_S):  # the cut was never proved, and is made anew
            return Transient(NO_ANSWER)
    elif ctx.resumed and await has_rebooted(ctx, boot_id):
        return Done("it had rebooted before the last run ended", changed=False)
    pending = await pending_settings(ctx)
    if ctx.siblings is None:
        await _demand_power(pdus)
        return await _cut_off(ctx, pdus, pending)
    async with ctx.siblings:
        if why := await _not_now(ctx, pdus):
            return _wait(ctx, why)
        ctx.journal(off=True)
        return await _cut_off(ctx, pdus, pending)


async def _not_now(ctx: ActionContext, pdus: Mapping[TimedPdu, Sequence[str]]) -> str:
    """Take along those that share the outlets, and ask everything once more; return why nobody is cut off now."""
    assert ctx.siblings is not None
    try:
        return await _off(pdus) or await ctx.siblings.gather() or await ctx.siblings.objection() or await _off(pdus)
    except DriverError as error:  # a PDU or a BMC that does not answer, while nothing is done to the node itself
        return str(error)


def _wait(ctx: ActionContext, why: str) -> Outcome:
    """Return that it is tried again later, which uses up no attempt of the ladder; a person is told in the end."""
    if ctx.resumed.get("off"):
        return Transient(f"{TOGETHER}{why}")  # a dead run shut the node down: this attempt at it was no refusal
    if ctx.siblings is None or not ctx.siblings.disturbed:
        return Declined("shared_outlets", TOGETHER + why)
    since = ctx.clock.now() - timedelta(days=1)
    today = [one for one in ctx.record.since_release if one.begun > since and one.action == ctx.action.name]
    if sum(one.outcome == "refused" and one.detail.startswith(IN_VAIN) for one in today) + 1 >= TRIES_A_DAY:
        told = f"{TRIES_A_DAY} times within a day, {IN_VAIN}{why}; cut them off by hand, or clear that"
        ctx.ledger.hold(ctx.node, f"{told}, then `reconciler release {ctx.node}`", HOLDER, None, ctx.clock.now())
    return Declined("shared_outlets", IN_VAIN + why)


async def _cut_off(ctx: ActionContext, pdus: Mapping[TimedPdu, Sequence[str]], pending: Pending) -> Outcome:
    """Shut the machine down, then those that share its outlets, cut all off, and wait until they are back."""
    boot_id, siblings = ctx.intent.get("boot_id"), ctx.siblings
    await ensure_off(ctx)  # first: if it can't be shut down, nobody else is
    bystanders = [(name, bmc) for name, bmc in ctx.bystanders if not isinstance(await bmc.hot(), Silent)]
    if siblings is not None and (why := await _others_off(siblings, pdus)):
        await _all_come_back(ctx, boot_id, cut=False)
        return Transient(f"{TOGETHER}{why}; {ctx.node} was switched off and on")
    ctx.journal(cut=[[outlet.pdu, outlet.name] for outlet in ctx.desired.outlets], powered=False)
    try:
        await _cut(ctx, pdus)
        wrong = await _wrongly_cut(ctx, bystanders)
        if not wrong:
            await ctx.clock.sleep(EMPTY_S)
            ctx.journal(dark=True)
    finally:
        await _give_power(ctx, pdus)
    if wrong:
        ctx.ledger.hold(ctx.node, wrong, HOLDER, None, ctx.clock.now())
        await answers_again(ctx, BMC_BOOT_S)
        return Permanent(f"{wrong}. All outlets give power again; a hold keeps the node as it is")
    outcome = await _all_come_back(ctx, boot_id, cut=True)
    if isinstance(outcome, Done):
        await verify_activation(ctx, pending)
    return outcome


async def _others_off(siblings: SharedOutlets, pdus: Mapping[TimedPdu, Sequence[str]]) -> str:
    """Shut down those that share the outlets; return why the power is not cut after all."""
    try:
        return await siblings.shut_down() or await _off(pdus) or siblings.bar()
    except DriverError as error:
        return str(error)


async def _all_come_back(ctx: ActionContext, boot_id: str | None, *, cut: bool) -> Outcome:
    others = ctx.siblings.come_back(cut=cut) if ctx.siblings is not None else asyncio.sleep(0)
    outcome, _ = await asyncio.gather(carry_out(partial(_come_back, boot_id=boot_id), ctx), others)
    return outcome


def _pdus(ctx: ActionContext) -> Mapping[TimedPdu, Sequence[str]]:
    """Return the outlets of each PDU of the node."""
    found: defaultdict[TimedPdu, list[str]] = defaultdict(list)
    for outlet in ctx.desired.outlets:
        found[ctx.pdus[outlet.pdu or ""]].append(outlet.name)
    return found


async def _demand_power(pdus: Mapping[TimedPdu, Sequence[str]]) -> None:
    """Raise Stop unless every outlet answers and gives power: one that is off is a feed that nobody counts on."""
    if why := await _off(pdus):
        raise Stop(Transient(why))


async def _off(pdus: Mapping[TimedPdu, Sequence[str]]) -> str:
    for pdu, names in pdus.items():
        found = await pdu.outlets(names)
        if off := sorted(name for name in names if not found[name]):
            return f"outlet {', '.join(off)} is off already: somebody works there"
    return ""


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

    answers = [ctx.node]

    async def probe() -> str | None:
        for name, bmc in bystanders:
            if await _is_silent(bmc):
                return f"the outlets of {ctx.node} in the spec ({outlets}) give {name} power: its BMC fell silent"
        if not await _is_silent(ctx.bmc):
            return None
        answers[:] = [await ctx.siblings.answering() if ctx.siblings is not None else ""]
        return None if answers[0] else ""

    found = await poll(ctx, probe, within_s=FALLS_SILENT_S, every_s=5.0, soon=True)
    if found is None:
        return (
            f"with all of its outlets in the spec off ({outlets}) the BMC of {answers[0]} still answers: it has others"
        )
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
