"""Run one command on a host."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.converge.actions.context import ActionContext, Stop
from reconciler.model.gate import CommandResult
from reconciler.model.outcome import Permanent, Transient

COMMAND_S = 120.0


async def run(ctx: ActionContext, argv: Sequence[str], *, seconds: float = COMMAND_S, stdin: str = "") -> CommandResult:
    """Run a command and return its result. Raise Stop if it fails or takes longer than `seconds` of fleet time."""
    result = await ctx.host.run(argv, timeout=max(2.0, ctx.clock.real_seconds(seconds)), stdin=stdin)
    if result.timed_out:
        raise Stop(Transient(f"{' '.join(argv)}: killed after {seconds:g}s"))
    if result.exit_status:
        said = (result.stderr.strip() or result.stdout.strip())[-300:]
        raise Stop(Permanent(f"{' '.join(argv)}: exit {result.exit_status}" + (f": {said}" if said else "")))
    return result
