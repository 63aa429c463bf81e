"""Reset GPUs of a drained node. No boot proves it: the GPUs that were there are read again (pitfalls K2, K3)."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop, action
from reconciler.converge.actions.service import is_active
from reconciler.health.parts import ill_gpus
from reconciler.health.table import table_of
from reconciler.model import gpu_reset as marks
from reconciler.model.gpus import Gpu
from reconciler.model.observed import HostFacts
from reconciler.model.outcome import Done, Outcome, Transient

RESET_S = 300.0
# They keep GPUs open, and a reset is refused to whoever is not alone (nvidia-smi(1), --gpu-reset).
HOLDERS = ("nvidia-dcgm", "nvidia-persistenced")
_CLIENTS = ("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")


@action
async def gpu_reset(ctx: ActionContext) -> Outcome:
    """Reset the GPUs that show signals; where NVLinks join them, all at once, with the switches between them."""
    stopped = tuple(ctx.resumed.get("stopped", ()))
    try:
        before = await ctx.facts()
        chosen = _chosen(ctx, before)
        await _demand_idle(ctx)
        stopped = await _holders(ctx, stopped)
        for unit in stopped:
            await run(ctx, ("systemctl", "stop", unit))
        await _reset(ctx, chosen, _linked(ctx, before))
    finally:
        await _start(ctx, stopped)
    after = await ctx.facts()
    if gone := _gone(chosen, after):
        return Transient(f"the GPUs were reset, and don't answer since: {', '.join(gone)}")
    if after.boot_id != before.boot_id:
        return Transient("the node was rebooted while its GPUs were reset")
    await _log(ctx, marks.DONE, chosen, switches=_linked(ctx, before))
    return Done(f"GPU {', '.join(str(gpu.index) for gpu in chosen)} reset")


def _chosen(ctx: ActionContext, facts: HostFacts) -> tuple[Gpu, ...]:
    """Return the GPUs to reset. Raise Stop when one is lost, which no reset reaches."""
    if not facts.gpus:
        raise Stop(Transient("nvidia-smi does not tell the GPUs of this node"))
    ill = ill_gpus(facts.gpus, facts.xids or (), table_of(ctx.desired.profile))
    chosen = facts.gpus if _linked(ctx, facts) or not ill else ill
    if lost := [str(gpu.index) for gpu in chosen if gpu.lost]:
        raise Stop(Transient(f"GPU {', '.join(lost)} is lost, and no reset reaches it"))
    return chosen


def _linked(ctx: ActionContext, facts: HostFacts) -> bool:
    return bool(ctx.desired.profile.inventory.nvlinks_per_gpu) or any((facts.nvlinks_active or {}).values())


async def _demand_idle(ctx: ActionContext) -> None:
    """Raise Stop while a process uses a GPU: it would lose what it computes (K3)."""
    clients = (await run(ctx, _CLIENTS)).stdout.strip()
    if clients:
        raise Stop(Transient(f"processes use the GPUs: {'; '.join(clients.splitlines()[:5])}"))


async def _holders(ctx: ActionContext, stopped: Sequence[str]) -> tuple[str, ...]:
    """Return the services that keep GPUs open, and journal them: a run after this one must start them again."""
    found = tuple([unit for unit in HOLDERS if unit in stopped or await is_active(ctx, unit)])
    ctx.journal(stopped=list(found))
    return found


async def _start(ctx: ActionContext, units: Sequence[str]) -> None:
    for unit in units:
        await run(ctx, ("systemctl", "start", unit))


async def _reset(ctx: ActionContext, gpus: Sequence[Gpu], linked: bool) -> None:
    ctx.step("resetting GPUs")
    await _log(ctx, marks.BEGINS, gpus, switches=linked)
    only = () if linked else ("-i", ",".join(str(gpu.index) for gpu in gpus))
    result = await ctx.host.run(("nvidia-smi", "--gpu-reset", *only), timeout=max(2.0, ctx.clock.real_seconds(RESET_S)))
    if result.timed_out or result.exit_status:
        said = (result.stderr.strip() or result.stdout.strip())[-300:]
        raise Stop(Transient(f"nvidia-smi --gpu-reset: {'no end' if result.timed_out else said}"))


async def _log(ctx: ActionContext, word: str, gpus: Sequence[Gpu], *, switches: bool) -> None:
    """Write into the kernel log which messages the reset answers."""
    devices = [*(gpu.pci for gpu in gpus), *((marks.SWITCHES,) if switches else ())]
    await run(ctx, ("tee", "/dev/kmsg"), stdin=marks.line(word, devices) + "\n")


def _gone(before: Sequence[Gpu], after: HostFacts) -> list[str]:
    there = {gpu.uuid for gpu in after.gpus or () if not gpu.lost}
    return [str(gpu.index) for gpu in before if gpu.uuid not in there]
