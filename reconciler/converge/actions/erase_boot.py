"""Erase a drive that no running system can: boot our installer for it, which destroys the data and sends the evidence.

The installer's word is not proof. What it sends is judged here as what a host tells: by the drive's own log, and by
samples that must have changed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from reconciler.converge.actions.boot_ways import prepare_installer
from reconciler.converge.actions.context import ActionContext, patience_s
from reconciler.converge.actions.install_plan import boot_credential, withdrawn_after
from reconciler.converge.actions.install_watch import LISTEN_S, LOOK_S, SILENT_S
from reconciler.converge.actions.medium import drop_override, eject
from reconciler.converge.actions.power import ensure_off, ensure_on, is_off
from reconciler.converge.erasing import Unreadable, log_of
from reconciler.converge.guarded_ports import known
from reconciler.model.boot_ways import choose, passed_over
from reconciler.model.install import EraseDocument, InstallPhase, MachineIdentity
from reconciler.model.install_progress import InstallProgress, digest_of
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.printable import visible
from reconciler.model.units import format_duration
from reconciler.model.vocab import BootWay
from reconciler.planner.node.corroboration import BOOT_S


async def erase_by_boot(ctx: ActionContext, serial: str) -> Outcome:
    """Boot the installer, follow it, and judge its evidence. The machine is off in the end."""
    abilities = known(await ctx.bmc.inventory()).abilities
    way = choose(ctx.desired, abilities)
    if way is None:
        return Declined("no_way_in", passed_over(ctx.desired, abilities))
    machine = MachineIdentity(serial=ctx.desired.serial, uuid=ctx.desired.uuid or ctx.record.uuid)
    attempt, nonce = str(ctx.resumed.get("attempt", "")), str(ctx.resumed.get("nonce", ""))
    token = await ctx.installer.token(attempt) if attempt else ""
    goes_on = bool(token and nonce) and ctx.resumed.get("started") is True
    if goes_on and await is_off(ctx):  # it may have ended while nobody followed it
        goes_on = (await ctx.installer.progress(token)).phase is InstallPhase.ERASED
    if not goes_on:
        token, nonce = secrets.token_hex(16), secrets.token_hex(16)
        ctx.journal(attempt=digest_of(token), nonce=nonce, way=way.value, started=False)
    document = EraseDocument(node=ctx.node, nonce=nonce, machine=machine, drives=(serial,))
    url = await ctx.installer.publish(token, document, boot_credential(ctx), pxe=way is BootWay.PXE)
    async with withdrawn_after(ctx, token):
        if not goes_on:
            await prepare_installer(ctx, url, way, abilities)
            ctx.journal(started=True)
            await ensure_on(ctx)
        failed = await _follow(ctx, token, serial)
        evidence = dict((await ctx.installer.progress(token)).erasures.get(serial, {}))
    await ensure_off(ctx)
    await eject(ctx)
    await drop_override(ctx, await ctx.bmc.hot())
    return failed if failed is not None and not evidence.get("ended") else _judge(ctx, serial, evidence)


async def _follow(ctx: ActionContext, token: str, serial: str) -> Outcome | None:
    """Wait for the installer's last word. Return how the attempt has failed, None if it has not."""
    now = ctx.clock.monotonic
    heard, look_at, boots_until = now(), now() + LOOK_S, now() + patience_s(ctx, BOOT_S)
    before: InstallProgress | None = None
    while True:
        progress = await ctx.installer.progress(token)
        if before is None or (progress.at, progress.listening_since) != (before.at, before.listening_since):
            heard = now()
        _note(ctx, serial, before, progress)
        before = progress
        if progress.incident or progress.phase is InstallPhase.FAILED:
            return Permanent(f"the installer did not erase it: {visible(progress.incident or progress.detail)}")
        if progress.phase is InstallPhase.ERASED:
            return None
        if not progress.fetched and now() >= boots_until:
            return Transient(f"the installer did not start within {format_duration(BOOT_S)} after power on")
        if progress.fetched and now() >= heard + patience_s(ctx, SILENT_S):
            return Transient(f"the installer has been silent for {format_duration(SILENT_S)}")
        if now() >= look_at:
            look_at = now() + LOOK_S
            if await is_off(ctx):
                return Transient("the machine went off before the installer had erased the drive")
        await ctx.clock.sleep(LISTEN_S)


def _note(ctx: ActionContext, serial: str, before: InstallProgress | None, progress: InstallProgress) -> None:
    """Show what is new, and journal evidence as soon as it is there."""
    if progress.phase is not None and (before is None or before.phase is not progress.phase):
        ctx.step(f"installer: {progress.phase}{f', {visible(progress.detail)}' if progress.detail else ''}")
    found = progress.erasures.get(serial)
    if found is not None and (before is None or before.erasures.get(serial) != found):
        ctx.journal(erasure=_signed(ctx, found))


def _signed(ctx: ActionContext, found: Mapping[str, Any]) -> dict[str, Any]:
    """Return evidence with who asked for it, and the time here: a machine's clock may be wrong."""
    at = ctx.clock.now().isoformat(timespec="seconds")
    known_at = ctx.intent.get("at", at)
    kept = {key: value for key, value in found.items() if key != "ended"}
    return {**kept, "started_at": known_at, "operator": ctx.operator, "commit": ctx.commit}


def _judge(ctx: ActionContext, serial: str, found: Mapping[str, Any]) -> Outcome:
    why = why_not_erased(serial, found)
    evidence = _signed(ctx, found) if found else {"serial": serial}
    ended = {"ended_at": ctx.clock.now().isoformat(timespec="seconds"), "result": "not erased" if why else "erased"}
    ctx.journal(erasure={**evidence, **ended})
    if why:
        return Permanent(f"drive {serial} is not erased: {why}")
    words = f"its log says {log_of(bytes.fromhex(found['log'])).words}" if found["log"] else "the drive ended its erase"
    return Done(f"{found['method']}: {words}; {len(found['samples_after'])} samples hold nothing of what they held")


def why_not_erased(serial: str, found: Mapping[str, Any]) -> str:
    """Return what of an installer's evidence does not prove the erase of this drive; "" if all does."""
    if found.get("serial") != serial or not found.get("ended"):
        return "the installer sent no evidence of it"
    if found["log"]:
        try:
            log = log_of(bytes.fromhex(found["log"]))
        except (Unreadable, ValueError) as gap:
            return f"its sanitize log can't be read: {gap}"
        if not log.succeeded:
            return f"its sanitize log says {log.words}"
        if not log.proves(found["log_before"]):
            return "its sanitize log is as it was before the command"
    elif "sanitize" in found["method"]:
        return "the installer sent no log of the sanitize"
    elif not found["samples"]:
        return "without a log, samples of before are needed, and there are none"
    if not found["samples_after"]:
        return "nobody looked at it afterwards"
    held = {one["offset"]: one["digest"] for one in found["samples"] if not one["blank"]}
    kept = [one["offset"] for one in found["samples_after"] if held.get(one["offset"]) == one["digest"]]
    return f"it still holds at byte {', '.join(map(str, kept))} what it held before" if kept else ""
