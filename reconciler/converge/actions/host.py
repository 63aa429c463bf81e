"""Configure the running system. The facts program reads back what was set, and the planner's comparison judges it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop, action
from reconciler.converge.actions.membership import wait_registered
from reconciler.model.drift import ACTIONABLE, DriftClass, DriftItem
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.vocab import Concern

SYSCTL_FILE = "/etc/sysctl.d/90-reconciler.conf"
SYSCTLS = "host.sysctls."
KUBELET = "host.services.kubelet"
REGISTERS_S = 60.0


async def remaining_drift(ctx: ActionContext, concern: Concern, only: str = "") -> str:
    """Read the host again, compare as the planner does, and return what is left of a concern's drift, in words.

    `only`: the one value path to look at; "" for all.
    """
    facts = await ctx.facts()
    seen = replace(ctx.observed, host=Answered(ctx.clock.now(), facts))
    compared = ctx.comparer.compare(ctx.desired, seen, ctx.record)
    items = [item for item in compared if item.path not in ctx.postponed]
    bad = ACTIONABLE | {DriftClass.UNKNOWN}
    left = [item for item in items if item.concern is concern and item.kind in bad and only in ("", item.path)]
    return "; ".join(f"{item.path} is {item.observed!r}, not {item.desired!r}" for item in left)


@action
async def configure_host(ctx: ActionContext) -> Outcome:
    """Set what drifted, or the one service that the action's target names."""
    only = f"host.services.{ctx.action.target}" if ctx.action.target else ""
    items = [item for item in ctx.drift_to_remove(Concern.HOST) if only in ("", item.path)]
    if not items:
        return Done("nothing to configure", changed=False)
    sysctls = {item.path.removeprefix("host.sysctls."): str(item.desired) for item in items if "sysctls." in item.path}
    registers = await _will_register(ctx, items)
    for item in items:
        ctx.step(f"setting {item.path}")
        if item.path == "host.hostname":
            await run(ctx, ("hostnamectl", "set-hostname", str(item.desired)))
        elif item.path.startswith("host.services."):
            await _set_service(ctx, item.path.removeprefix("host.services."), str(item.desired))
    for name, value in sysctls.items():
        await run(ctx, ("sysctl", "-w", f"{name}={value}"))
    if sysctls:
        await run(ctx, ("tee", SYSCTL_FILE), stdin=_sysctl_file(ctx))
    if registers:
        await wait_registered(ctx, new=True, within_s=REGISTERS_S)
    left = await remaining_drift(ctx, Concern.HOST, only)
    if left:
        return Transient(f"set, but reading back: {left}", 10.0)
    return Done(", ".join(item.path for item in items))


async def _will_register(ctx: ActionContext, items: Sequence[DriftItem]) -> bool:
    """Return whether a kubelet is about to start that registers a new node, which would get work at once."""
    starts = any(item.path == KUBELET and item.desired == "running" for item in items)
    return starts and ctx.cluster_port is not None and await ctx.cluster.member(ctx.node) is None


def _sysctl_file(ctx: ActionContext) -> str:
    """Return the file that restores the managed values at boot; values that an ignore rule covers are left out.

    Until its wave begins, a value that the spec has changed is the one before.
    """
    kept = {item.path: item for item in ctx.drift if item.path.startswith(SYSCTLS)}
    lines = []
    for name, value in sorted(ctx.desired.profile.host.sysctls.items()):
        item = kept.get(f"{SYSCTLS}{name}")
        wanted = item.applied if item is not None and item.path in ctx.postponed else value
        if wanted is not None and (item is None or item.kind is not DriftClass.IGNORED):
            lines.append(f"{name} = {wanted}\n")
    return "# Written by the reconciler from the fleet's spec; changes here are overwritten.\n" + "".join(lines)


async def _set_service(ctx: ActionContext, name: str, state: str) -> None:
    match state:
        case "running":
            await run(ctx, ("systemctl", "enable", "--now", name))
        case "stopped":
            await run(ctx, ("systemctl", "disable", "--now", name))
        case _:
            raise Stop(Declined("unsupported", f"a service can be running or stopped, not {state!r}"))


async def drain_by_command(ctx: ActionContext) -> Outcome:
    """Run the drain command. Exit status 0 means that the node is quiesced."""
    policy = ctx.desired.profile.drain
    ctx.step(f"draining: {' '.join(policy.command)}")
    try:
        await run(ctx, policy.command, seconds=policy.timeout_s)
    except Stop as stop:
        if isinstance(stop.outcome, Permanent):
            return Transient(f"drain command: {stop.outcome.detail}")
        return stop.outcome
    except DriverError as error:
        if error.kind is not Failure.AMBIGUOUS:
            raise
        return Transient(f"drain command: {error.detail}")
    return Done("the drain command reports that nothing runs any more")
