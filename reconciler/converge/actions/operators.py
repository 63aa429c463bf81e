"""Wait until operators are done with a node, as the last thing before it is admitted."""

from __future__ import annotations

from typing import Final

from reconciler.converge.actions.context import ActionContext, action, poll
from reconciler.model.desired import DesiredMembership
from reconciler.model.observed import Member
from reconciler.model.operands import DEVICE_PLUGIN, GPU_RESOURCE
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.planner.node.operands import lacking

READY_S: Final = 900.0  # images of the operands may have to be pulled first
PATIENCE_S: Final = 180.0  # for a device plugin that runs and offers less than is there, before it is started anew
_EVERY_S: Final = 5.0


@action
async def await_operators(ctx: ActionContext) -> Outcome:
    """Wait for the validator's pod and the declared devices.

    A device plugin looks for MIG devices once, when it starts, and never takes back that a GPU is unhealthy (README of
    NVIDIA/k8s-device-plugin). So one that goes on offering less than is declared is started anew, once: its pod is
    deleted, and its DaemonSet makes another.
    """
    membership = ctx.desired.profile.membership
    if membership is None or not membership.waits_for_operators:
        return Done("it waits for no operators", changed=False)
    if not await _wait(ctx, membership, PATIENCE_S) and not (
        await _restart_plugin(ctx, membership) and await _wait(ctx, membership, READY_S)
    ):
        found = await ctx.cluster.member(ctx.node)
        if found is None:
            return Declined("absent", "the cluster has no such node")
        return Transient("; ".join(lacking(membership, found)) or "it was not ready in time", 60.0)
    return Done("its operators are ready", changed=False)


async def _wait(ctx: ActionContext, membership: DesiredMembership, within_s: float) -> bool:
    async def look() -> bool | None:
        found = await ctx.cluster.member(ctx.node)
        return True if found is not None and not any(lacking(membership, found)) else None

    return await poll(ctx, look, within_s=within_s, every_s=_EVERY_S) is not None


async def _restart_plugin(ctx: ActionContext, membership: DesiredMembership) -> bool:
    """Start the device plugin anew where it runs and offers other devices; return whether to wait any longer."""
    found = await ctx.cluster.member(ctx.node)
    if found is None:
        return False
    plugins = [pod for pod in found.pods if pod.operand == DEVICE_PLUGIN and pod.ready]
    if plugins and _differs(membership, found):
        ctx.step("starting its device plugin anew: " + "; ".join(lacking(membership, found)))
        for pod in plugins:
            await ctx.cluster.delete(pod, grace_s=None)
    return True


def _differs(membership: DesiredMembership, found: Member) -> bool:
    """Return whether the GPUs that it offers are not those declared."""
    domain = GPU_RESOURCE.partition("/")[0] + "/"
    return any(
        found.allocatable.get(name, 0) != declared
        for name, declared in membership.allocatable.items()
        if name.startswith(domain)
    )
