"""Set MIG mode and layout, verified by what nvidia-smi reports afterwards (pitfall K4)."""

from __future__ import annotations

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop, action
from reconciler.converge.actions.host import remaining_drift
from reconciler.converge.actions.power import reboot, wait_for_host
from reconciler.model.gpus import Gpu
from reconciler.model.outcome import Done, Outcome, Transient
from reconciler.model.vocab import Concern


@action
async def set_gpu_mode(ctx: ActionContext) -> Outcome:
    """Set the layout that the spec specifies; with the target "off", turn MIG off, as diagnostics need it."""
    wanted = None if ctx.action.target == "off" or ctx.desired.profile.gpu is None else ctx.desired.profile.gpu.mig
    gpus = await _gpus(ctx)
    if wanted is None:
        if _mode_is(gpus, enabled=False):
            return Done("MIG is off already", changed=False)
        await _clear_layout(ctx, gpus)
        await _set_mode(ctx, enabled=False)
        return Done("MIG is off")
    if not await remaining_drift(ctx, Concern.GPU):
        return Done("the layout is there already", changed=False)
    if not _mode_is(gpus, enabled=True):
        await _set_mode(ctx, enabled=True)
    await _clear_layout(ctx, await _gpus(ctx))
    profiles = ",".join(name for name, count in sorted(wanted.items()) for _ in range(count))
    if profiles:
        ctx.step(f"creating {profiles}")
        await run(ctx, ("nvidia-smi", "mig", "-cgi", profiles, "-C"))
    left = await remaining_drift(ctx, Concern.GPU)
    return Transient(f"set, but reading back: {left}") if left else Done(f"MIG layout {profiles or 'empty'}")


async def _gpus(ctx: ActionContext) -> tuple[Gpu, ...]:
    gpus = (await ctx.facts()).gpus
    if gpus is None or any(gpu.mig_current is None for gpu in gpus if not gpu.lost):
        raise Stop(Transient("nvidia-smi does not report the MIG mode of every GPU"))
    return tuple(gpu for gpu in gpus if not gpu.lost)


def _mode_is(gpus: tuple[Gpu, ...], *, enabled: bool) -> bool:
    return all(gpu.mig_current is enabled and gpu.mig_pending in (None, enabled) for gpu in gpus)


async def _set_mode(ctx: ActionContext, *, enabled: bool) -> None:
    """Set the MIG mode. Some GPUs change it only at a reboot, so reboot the quiesced node once (pitfall K4)."""
    ctx.step(f"MIG mode {'on' if enabled else 'off'}")
    await run(ctx, ("nvidia-smi", "-mig", "1" if enabled else "0"))
    if _mode_is(await _gpus(ctx), enabled=enabled):
        return
    boot_id = (await ctx.facts()).boot_id
    if boot_id is None:
        raise Stop(Transient("the MIG mode waits for a reboot, and the host gives no boot id to prove one"))
    await reboot(ctx)
    await wait_for_host(ctx, unlike=boot_id)
    if not _mode_is(await _gpus(ctx), enabled=enabled):
        raise Stop(Transient("the MIG mode is still pending after a reboot"))


async def _clear_layout(ctx: ActionContext, gpus: tuple[Gpu, ...]) -> None:
    if not any(gpu.mig_devices for gpu in gpus):
        return
    ctx.step("removing MIG devices")
    for argv in (("nvidia-smi", "mig", "-dci"), ("nvidia-smi", "mig", "-dgi")):
        await run(ctx, argv)
