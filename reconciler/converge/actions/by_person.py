"""Hold a node without a BMC until a person has reimaged it, and take in that this was done."""

from __future__ import annotations

from reconciler.converge.actions.context import ActionContext, action
from reconciler.model.outcome import Declined, Done, Outcome
from reconciler.model.vocab import Concern
from reconciler.planner.node.by_person import open_hold


@action
async def hold_for_reimage(ctx: ActionContext) -> Outcome:
    """Note the boot in which the node is handed to a person. Drained and saved it is already."""
    image = ctx.desired.profile.image
    if image is None or not ctx.desired.by_person:
        return Declined("not_declared", "the spec does not say that a person reimages it")
    facts = await ctx.facts()
    if facts.boot_id is None or facts.boot_id != ctx.intent.get("boot_id"):
        return Declined("unknown", "the host does not tell which boot this is, so that a reimage could be told")
    return Done(f"a person may write image {image.name} {image.version} now")


@action
async def await_reimage(ctx: ActionContext) -> Outcome:
    """Take in what a person wrote: the host runs the wanted image, in another boot than when it was handed over."""
    hold, facts = open_hold(ctx.record), await ctx.facts()
    if hold is None:
        return Declined("not_held", "it was not handed to a person, or what a person did was taken in already")
    if ctx.drift_to_remove(Concern.IMAGE) or facts.boot_id in (None, hold.boot_id):
        return Declined("by_person", "no person has reimaged it yet")
    return Done(f"reimaged by a person: {'' if facts.image is None else facts.image.version}")
