"""A repair by a person: the locator LED, power off, and the acceptance of what was put in.

Each step can be repeated, and is proved by a read of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from reconciler.converge.actions.context import ActionContext, Stop, action, tolerate
from reconciler.converge.actions.power import ensure_off
from reconciler.converge.guarded_ports import known
from reconciler.health.placed_parts import kinds_read, placed_parts
from reconciler.model.errors import Failure
from reconciler.model.observed import Answered, Observed
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.records import NodeRecord
from reconciler.model.repairs import PlacedPart, Repair, RepairPhase
from reconciler.model.vocab import Power
from reconciler.planner.node.exchange import Known, judge_exchange

_ON = "on"  # the target that switches the LED on


def _repair(ctx: ActionContext) -> Repair:
    """Return the repair as the ledger has it now. Raise Stop where a person has ended it meanwhile."""
    found = ctx.ledger.node(ctx.node).repair
    if found is None:
        raise Stop(Declined("no_repair", "no repair of this node is under way"))
    return found


@action
async def set_indicator(ctx: ActionContext) -> Outcome:
    """Switch the locator LED, and read it back."""
    _repair(ctx)
    lit = ctx.action.target == _ON
    if known(await ctx.bmc.hot()).indicator is lit:
        return Done(f"its locator LED was {ctx.action.target}", changed=False)
    failed = await tolerate(ctx.bmc.set_indicator(lit), Failure.AMBIGUOUS)
    if known(await ctx.bmc.hot()).indicator is not lit:
        return Transient(f"{failed or 'accepted'}, but the BMC does not show its locator LED as {ctx.action.target}")
    return Done(f"its locator LED is {ctx.action.target}")


@action
async def shut_down(ctx: ActionContext) -> Outcome:
    """Switch the machine off, and leave it off."""
    if _repair(ctx).phase is not RepairPhase.OUT:
        return Declined("not_out", "the person has brought it back meanwhile")
    if known(await ctx.bmc.hot()).power is Power.OFF:
        return Done("it was off", changed=False)
    await ensure_off(ctx)
    return Done("off: parts can be exchanged")


@action
async def accept_parts(ctx: ActionContext) -> Outcome:
    """Read all parts anew, and end the repair if they are what a repair brings; otherwise tell why they are not."""
    repair = _repair(ctx)
    if repair.phase is not RepairPhase.RETURNING:
        return Declined("not_returning", "the person is not done yet")
    inventory = await ctx.bmc.inventory()
    known(inventory)
    seen = replace(ctx.observed, inventory=inventory)
    seen = await _with_host(ctx, seen)
    now = placed_parts(seen)
    others = ctx.ledger.nodes([name for name in ctx.ledger.known() if name != ctx.node])
    facts = Known(ctx.ledger.retired_parts(), _owners(others, ctx.ledger.repairs(), ctx.node))
    found = judge_exchange(repair, now, kinds_read(seen), facts)
    at = ctx.clock.now()
    if found.refused:
        why = "; ".join(found.refused)
        refused = replace(repair, phase=RepairPhase.REFUSED, told=why)
        ctx.ledger.save_repair(refused, f"what was put in is not accepted: {why}", at)
        return Permanent(why)
    closed = replace(repair, phase=RepairPhase.CLOSED, told=found.text, exchanged=found.exchanged)
    ctx.journal(exchanged=[[old.text, new.text] for old, new in found.exchanged], remarks=list(found.remarks))
    ctx.ledger.save_repair(closed, f"accepted: {found.text}", at)
    return Done(f"accepted: {found.text}")


async def _with_host(ctx: ActionContext, seen: Observed) -> Observed:
    if ctx.host_port is None:
        return seen
    host = await ctx.host_port.facts((), ())
    return replace(seen, host=host) if isinstance(host, Answered) else seen


def _owners(others: Mapping[str, NodeRecord], repairs: Iterable[Repair], node: str) -> dict[str, str]:
    """Return the nodes that parts were in, by serial number, as certificates and earlier repairs have them."""
    found: dict[str, str] = {}
    for repair in repairs:
        if repair.node != node:
            found |= {part.serial: repair.node for part in (*repair.before, *_new(repair)) if part.serial}
    for name, record in others.items():
        if record.certificate is not None:
            binding = record.certificate.binding
            serials = (*binding.gpu_serials, *(one for some in binding.parts.values() for one in some))
            found |= dict.fromkeys(serials, name)
    return found


def _new(repair: Repair) -> Iterable[PlacedPart]:
    return (new for _, new in repair.exchanged)
