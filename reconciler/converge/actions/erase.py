"""Erase one drive of a decommissioned node, known by its serial number alone, and keep the evidence in the ledger.

Nothing is taken for erased because a command succeeded: the drive's own log must say so, or samples must have changed.
What was begun is journaled before it begins. A run that finds such an attempt reads the log and goes on waiting; a
sanitize goes on by itself after a loss of power, and is never issued a second time for that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, Stop, action, poll
from reconciler.converge.actions.erase_boot import erase_by_boot
from reconciler.converge.erasing import (
    LOG_BYTES,
    LSBLK,
    SANITIZE_LOG,
    AtaSecurity,
    BlockDevice,
    Controller,
    Sample,
    SanitizeLog,
    Unreadable,
    ata_security,
    block_devices,
    controller,
    offsets,
    sample,
    sample_command,
    sanitize_log,
)
from reconciler.converge.erasure_records import ERASED, NOT_ERASED, evidence_of, finished, still_held
from reconciler.converge.guarded_ports import known
from reconciler.diff.normalise import same
from reconciler.model.boot_ways import choose
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import BmcTask, Silent
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.vocab import NodeState

ERASE_S = 12 * 3600.0  # a large disk that is overwritten by its own firmware
LOOK_S = 30.0
PASSWORD = "reconciler"  # of the ATA erase that follows at once, which removes it; it protects nothing
_PASSING = (Failure.UNREACHABLE, Failure.TIMEOUT, Failure.AMBIGUOUS, Failure.BUSY)


@action
async def erase(ctx: ActionContext) -> Outcome:
    """Destroy the data of the drive that the target names: over SSH, or else by our installer, or by the BMC."""
    serial = ctx.action.target
    if ctx.desired.state is not NodeState.DECOMMISSIONED or serial not in ctx.desired.erase:
        return Declined("not_declared", f"the spec does not say that drive {serial} of this node is to be erased")
    reading = await ctx.host.facts((), ()) if ctx.host_port is not None else None
    if reading is None or isinstance(reading, Silent):
        return await _offline(ctx, serial)
    machine = reading.value.serial
    if machine is None or ctx.desired.serial is None or not same(machine, ctx.desired.serial):
        return Declined("identity", f"the host says that it is {machine}, and the spec means {ctx.desired.serial}")
    try:
        found = await _devices(ctx, serial)
        if any(device.holds_system for device in found):
            return await _offline(ctx, serial)
        if all(device.path.startswith("/dev/nvme") for device in found):
            return await _nvme(ctx, found)
        if len(found) == 1 and found[0].transport in ("sata", "ata"):
            return await _ata(ctx, found[0])
    except Unreadable as gap:
        return Permanent(f"{gap}: nothing proves that drive {serial} is erased")
    kinds = ", ".join(f"{device.path} ({device.transport or 'no transport'})" for device in found)
    return Declined("no_method", f"drive {serial} is {kinds}: only NVMe and SATA drives can be erased from here")


async def _devices(ctx: ActionContext, serial: str) -> tuple[BlockDevice, ...]:
    """Return the disks with exactly this serial number: the namespaces of one NVMe drive, or one disk."""
    listed = block_devices((await run(ctx, LSBLK)).stdout)
    found = tuple(device for device in listed if device.serial == serial)
    if not found:
        told = ", ".join(f"{device.path} {device.serial}" for device in listed)
        raise Stop(Declined("no_such_drive", f"the host has no drive {serial}: {told or 'it lists none'}"))
    if len({device.drive for device in found}) > 1:
        named = ", ".join(device.path for device in found)
        raise Stop(Declined("no_such_drive", f"the host has more than one drive {serial}: {named}"))
    return found


# --- evidence --------------------------------------------------------------------------------------------------------


def _begin(ctx: ActionContext, drive: Controller | AtaSecurity, method: str, tool: str) -> dict[str, Any]:
    """Return the evidence as far as it is known before the drive is touched."""
    return {
        "serial": drive.serial, "model": drive.model, "firmware": drive.firmware, "method": method, "tool": tool,
        "started_at": _now(ctx), "operator": ctx.operator, "commit": ctx.commit,
    }  # fmt: skip


def _now(ctx: ActionContext) -> str:
    return ctx.clock.now().isoformat(timespec="seconds")


def _earlier(ctx: ActionContext) -> dict[str, Any]:
    """Return the evidence of an erase of this drive that began and whose end nobody has seen; {} if there is none."""
    intent = ctx.resumed or ctx.ledger.before(ctx.attempt)
    found = dict(intent.get("erasure") or {})
    return {} if "ended_at" in found else found


def _end(ctx: ActionContext, evidence: Mapping[str, Any], result: str, **more: Any) -> str:
    """Journal the record of the drive, and return how its evidence is named."""
    record = finished(evidence, result, ctx.clock.now(), **more)
    ctx.journal(erasure=record)
    return evidence_of(record)


async def _version(ctx: ActionContext, *argv: str) -> str:
    return (await run(ctx, argv)).stdout.strip().partition("\n")[0][:80]


async def _samples(ctx: ActionContext, device: BlockDevice) -> list[Sample]:
    """Read a few places of a drive itself, and not what the kernel remembers of them."""
    await run(ctx, ("blockdev", "--flushbufs", device.path))
    return [sample(at, (await run(ctx, sample_command(device.path, at))).stdout) for at in offsets(device.size)]


async def _judge(
    ctx: ActionContext, devices: Sequence[BlockDevice], evidence: dict[str, Any], proof: str, **more: Any
) -> Outcome:
    """Compare samples with those of before, which must not be there any more, and end the erase."""
    after = [asdict(one) for device in devices for one in await _samples(ctx, device)]
    more["samples_after"] = after
    if why := still_held(evidence["samples"], after):
        _end(ctx, evidence, NOT_ERASED, **more)
        return Permanent(f"{proof}, but drive {evidence['serial']} is not erased: {why}")
    kept_as = _end(ctx, evidence, ERASED, **more)
    return Done(f"{evidence['method']}: {proof}; {len(after)} samples hold nothing of what they held; {kept_as}")


# --- NVMe ------------------------------------------------------------------------------------------------------------


async def _nvme(ctx: ActionContext, devices: Sequence[BlockDevice]) -> Outcome:
    path = devices[0].path
    drive = controller((await run(ctx, ("nvme", "id-ctrl", path, "-o", "json"))).stdout)
    if drive.serial != ctx.action.target:
        return Declined("no_such_drive", f"{path} says that it is {drive.serial}, lsblk said {ctx.action.target}")
    earlier = _earlier(ctx)
    if drive.sanitize_action is None:
        return await _format(ctx, devices, drive)
    log = await _log(ctx, path)
    if earlier.get("issued") or log.running:
        ctx.step(f"a sanitize of {drive.serial} was begun before: {log.words}")
        log = await _wait(ctx, path)
        if log.proves(earlier.get("log_before", "")) or not log.succeeded:
            return await _sanitized(ctx, devices, earlier, log)
        # The log is as it was before the command, and data were written since: the command never reached the drive.
    evidence = _begin(ctx, drive, drive.method, await _version(ctx, "nvme", "version"))
    if not log.failed:
        evidence["samples"] = [asdict(one) for device in devices for one in await _samples(ctx, device)]
    evidence["log_before"] = log.raw
    ctx.journal(erasure={**evidence, "issued": True})
    ctx.step(f"{drive.method} of {drive.serial}")
    await run(ctx, ("nvme", "sanitize", path, f"--sanact={drive.sanitize_action}"))
    return await _sanitized(ctx, devices, {**evidence, "issued": True}, await _wait(ctx, path))


async def _log(ctx: ActionContext, path: str) -> SanitizeLog:
    argv = ("nvme", "get-log", path, f"--log-id={SANITIZE_LOG}", f"--log-len={LOG_BYTES}")
    return sanitize_log((await run(ctx, argv)).stdout)


async def _wait(ctx: ActionContext, path: str) -> SanitizeLog:
    """Wait until no sanitize runs, whatever becomes of the connection. Raise Stop if it takes too long."""
    last = "its log can't be read"

    async def ended() -> SanitizeLog | None:
        nonlocal last
        try:
            log = await _log(ctx, path)
        except DriverError as error:
            if error.kind not in _PASSING:
                raise
            return None
        last = log.words
        return None if log.running else log

    log = await poll(ctx, ended, within_s=ERASE_S, every_s=LOOK_S)
    if log is None:
        raise Stop(Transient(f"the sanitize has not ended: {last}"))
    return log


async def _sanitized(
    ctx: ActionContext, devices: Sequence[BlockDevice], evidence: dict[str, Any], log: SanitizeLog
) -> Outcome:
    """Judge the log at the end of a sanitize."""
    evidence = evidence or {"serial": ctx.action.target, "method": "nvme sanitize, begun by somebody else"}
    if not log.succeeded:
        _end(ctx, evidence, NOT_ERASED, log=log.raw)
        return Permanent(f"drive {ctx.action.target} is not erased: its sanitize log says {log.words} ({log.raw[:16]})")
    if not log.proves(evidence.get("log_before", "")):
        _end(ctx, evidence, NOT_ERASED, log=log.raw)
        return Permanent(f"drive {ctx.action.target} is not erased: its sanitize log is as it was before the command")
    evidence.setdefault("samples", [])  # without those of before, the log is the proof
    return await _judge(ctx, devices, evidence, f"its log says {log.words}", log=log.raw)


async def _format(ctx: ActionContext, devices: Sequence[BlockDevice], drive: Controller) -> Outcome:
    """Format each namespace with a secure erase setting. There is no log of it: the samples alone can show it."""
    setting = drive.format_setting
    if setting is None:
        return Declined("no_method", f"drive {drive.serial} offers neither Sanitize nor Format NVM: destroy it")
    evidence = _begin(ctx, drive, drive.method, await _version(ctx, "nvme", "version"))
    evidence["samples"] = [asdict(one) for device in devices for one in await _samples(ctx, device)]
    ctx.journal(erasure=evidence)
    for device in devices:
        ctx.step(f"{drive.method} of {device.path}")
        argv = ("nvme", "format", device.path, f"--ses={setting}", "--force", "--timeout=7200000")
        await run(ctx, argv, seconds=ERASE_S)
    return await _judge(ctx, devices, evidence, "Format NVM succeeded")


# --- ATA -------------------------------------------------------------------------------------------------------------


async def _ata(ctx: ActionContext, device: BlockDevice) -> Outcome:
    """Erase by the drive's own SECURITY ERASE UNIT. A run that died in it left the password on, and asks again."""
    drive = await _security(ctx, device)
    if not drive.supported:
        return Declined("no_method", f"drive {drive.serial} has no ATA security feature set: destroy it")
    if drive.frozen:
        return Permanent(f"the firmware froze drive {drive.serial} at boot: power-cycle the drive, or plug it in anew")
    earlier = _earlier(ctx)
    if drive.enabled and not earlier:
        return Declined("locked", f"drive {drive.serial} has a password that is not ours")
    kind = "security-erase-enhanced" if drive.enhanced else "security-erase"
    evidence = earlier or _begin(ctx, drive, f"hdparm --{kind}", await _version(ctx, "hdparm", "-V"))
    if not earlier:
        evidence["samples"] = [asdict(one) for one in await _samples(ctx, device)]
        ctx.journal(erasure=evidence)
    if not drive.enabled:
        await run(ctx, ("hdparm", "--user-master", "u", "--security-set-pass", PASSWORD, device.path))
    ctx.step(f"{evidence['method']} of {drive.serial}")
    await run(ctx, ("hdparm", "--user-master", "u", f"--{kind}", PASSWORD, device.path), seconds=ERASE_S)
    after = await _security(ctx, device)
    if after.enabled or after.locked:
        _end(ctx, evidence, NOT_ERASED)
        return Permanent(f"drive {drive.serial} is not erased: its password is still on")
    return await _judge(ctx, (device,), evidence, "the drive ended its erase, and its password is off")


async def _security(ctx: ActionContext, device: BlockDevice) -> AtaSecurity:
    found = ata_security((await run(ctx, ("hdparm", "-I", device.path))).stdout)
    if found.serial != device.serial:
        said = f"{device.path} says that it is {found.serial}, lsblk said {device.serial}"
        raise Stop(Declined("no_such_drive", said))
    return found


async def _offline(ctx: ActionContext, serial: str) -> Outcome:
    """Erase a drive that no running system can. What the BMC began, it ends."""
    abilities = known(await ctx.bmc.inventory()).abilities
    boots = ctx.installer_port is not None and choose(ctx.desired, abilities) is not None
    return await (erase_by_boot(ctx, serial) if boots and "task" not in _earlier(ctx) else _by_bmc(ctx, serial))


# --- by the BMC ------------------------------------------------------------------------------------------------------


async def _by_bmc(ctx: ActionContext, serial: str) -> Outcome:
    """Let the BMC erase it. Only a task that ended well is proof; a BMC that forgets its task proves nothing."""
    drives = known(await ctx.bmc.inventory()).drives or ()
    found = [drive for drive in drives if drive.serial == serial]
    if len(found) != 1 or not found[0].erasable:
        return Declined("no_method", f"no system runs that could erase drive {serial}, and the BMC does not offer to")
    evidence = _earlier(ctx)
    if "task" not in evidence:
        evidence = {
            "serial": serial, "model": found[0].model, "method": "Redfish Drive.SecureErase",
            "started_at": _now(ctx), "operator": ctx.operator, "commit": ctx.commit,
        }  # fmt: skip
        ctx.journal(erasure=evidence)
        ctx.step(f"the BMC erases drive {serial}")
        evidence["task"] = await ctx.bmc.secure_erase(serial)
        ctx.journal(erasure=evidence)
    began: datetime = ctx.clock.now()
    forgotten = BmcTask(evidence["task"], "forgotten", True, None)

    async def ended() -> BmcTask | None:
        try:
            task = await ctx.bmc.task(evidence["task"])
        except DriverError as error:
            if error.kind not in _PASSING:
                raise
            return None
        return forgotten if task is None else task if task.done else None

    task = await poll(ctx, ended, within_s=ERASE_S, every_s=LOOK_S)
    if task is None:
        return Transient(f"the BMC's task {evidence['task']} has not ended since {began:%H:%M:%SZ}")
    result = ERASED if task.ok else NOT_ERASED
    kept_as = _end(ctx, evidence, result, state=task.state, messages=list(task.messages))
    if not task.ok:
        said = "; ".join(task.messages) or task.state
        return Permanent(f"drive {serial} is not erased: the BMC's task ended as {task.state} ({said})")
    return Done(f"Redfish Drive.SecureErase: task {evidence['task']} ended as {task.state}; {kept_as}")
