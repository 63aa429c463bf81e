"""Erase the drives that no running system can: boot our installer for them all, which sends the evidence of each.

The installer's word is not proof. What it sends is judged as what a host tells, drive by drive, and each drive has a
record as soon as its erase has ended: a boot that was cut is followed by one for those that have none. One that refuses
is a failure of its own, and the others are erased all the same.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from reconciler.converge.actions.boot_ways import prepare_installer
from reconciler.converge.actions.context import ActionContext, patience_s
from reconciler.converge.actions.install_plan import boot_credential, withdrawn_after
from reconciler.converge.actions.install_watch import LISTEN_S, LOOK_S, SILENT_S
from reconciler.converge.actions.medium import drop_override, eject
from reconciler.converge.actions.power import ensure_off, ensure_on, is_off
from reconciler.converge.erasure_records import ERASED, has_ended, is_after, proves, record_of, sentence_of
from reconciler.converge.guarded_ports import known
from reconciler.model.boot_ways import choose, passed_over
from reconciler.model.install import EraseDocument, InstallPhase, MachineIdentity
from reconciler.model.install_progress import InstallProgress, digest_of
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.printable import visible
from reconciler.model.units import format_duration
from reconciler.model.vocab import BootWay
from reconciler.planner.node.corroboration import BOOT_S
from reconciler.planner.node.record import used_at


@dataclass
class _Boot:
    """One boot of the installer. `records`: of its drives whose erase has ended, by serial number."""

    token: str
    nonce: str
    drives: tuple[str, ...]
    way: BootWay
    records: dict[str, dict[str, Any]] = field(default_factory=dict)


async def erase_by_boot(ctx: ActionContext, serial: str) -> Outcome:
    """Boot the installer, follow it, and judge its evidence. The machine is off in the end."""
    under_way = await _under_way(ctx, serial)
    if under_way is None and (record := _of_an_earlier_boot(ctx, serial)) is not None:
        ctx.journal(erasure=record)
        if ctx.resumed.get("started"):
            await _tidy_up(ctx)
        return _outcome(serial, record)
    abilities = known(await ctx.bmc.inventory()).abilities
    way = under_way.way if under_way is not None else choose(ctx.desired, abilities)
    if way is None:
        return Declined("no_way_in", passed_over(ctx.desired, abilities))
    boot = under_way or _begin(ctx, serial, way)
    machine = MachineIdentity(serial=ctx.desired.serial, uuid=ctx.desired.uuid or ctx.record.uuid)
    document = EraseDocument(node=ctx.node, nonce=boot.nonce, machine=machine, drives=boot.drives)
    url = await ctx.installer.publish(boot.token, document, boot_credential(ctx), pxe=way is BootWay.PXE)
    async with withdrawn_after(ctx, boot.token):
        if under_way is None:
            await prepare_installer(ctx, url, way, abilities)
            ctx.journal(started=True)
            await ensure_on(ctx)
        failed = await _follow(ctx, boot, serial)
    await _tidy_up(ctx)
    if serial not in boot.records:
        return failed or Permanent(f"drive {serial} is not erased: the installer sent no evidence of it")
    return _outcome(serial, boot.records[serial], boot)


async def _tidy_up(ctx: ActionContext) -> None:
    await ensure_off(ctx)
    await eject(ctx)
    await drop_override(ctx, await ctx.bmc.hot())


# --- which drives, and in which boot ---------------------------------------------------------------------------------


def _begin(ctx: ActionContext, serial: str, way: BootWay) -> _Boot:
    """Journal a boot for this drive and for all other declared drives that nothing proves erased."""
    records, since = ctx.ledger.erasures(ctx.node), used_at(ctx.record)
    others = [one for one in ctx.desired.erase if one != serial and not proves(records.get(one, {}), since)]
    boot = _Boot(secrets.token_hex(16), secrets.token_hex(16), (serial, *others), way)
    attempt = {"attempt": digest_of(boot.token), "nonce": boot.nonce, "way": way.value, "drives": list(boot.drives)}
    ctx.journal(**attempt, started=False)
    return boot


async def _under_way(ctx: ActionContext, serial: str) -> _Boot | None:
    """Return the boot that a dead run began and that goes on, or has ended; None if there is none.

    One that was cut, with the machine off before all drives had ended, is not gone on with, nor one that was to erase a
    drive that nobody declares any more. Its document is withdrawn, and its records are kept.
    """
    attempt, nonce = str(ctx.resumed.get("attempt", "")), str(ctx.resumed.get("nonce", ""))
    token = await ctx.installer.token(attempt) if attempt else ""
    if not token or not nonce:
        return None
    way = BootWay(ctx.resumed.get("way", BootWay.VIRTUAL_MEDIA))
    boot = _Boot(token, nonce, tuple(ctx.resumed.get("drives", (serial,))), way)
    progress = await ctx.installer.progress(token)
    goes_on = ctx.resumed.get("started") is True and set(ctx.desired.erase).issuperset(boot.drives)
    if goes_on and (progress.ended or not await is_off(ctx)):
        return boot
    _keep(ctx, boot, serial, await ctx.installer.progress(token))  # again: it may have been heard meanwhile
    await ctx.installer.withdraw(token)
    return None


def _of_an_earlier_boot(ctx: ActionContext, serial: str) -> dict[str, Any] | None:
    """Return the record of a drive that was erased already, or that refused and whose refusal nobody was told yet.

    Another drive's boot may have had it, or this very attempt, whose run died before it could say so.
    """
    record, since = ctx.ledger.erasures(ctx.node).get(serial), used_at(ctx.record)
    if record is None or not is_after(record, since):
        return None
    told, own = ctx.ledger.before(ctx.attempt).get("erasure") or {}, ctx.resumed.get("erasure") or {}
    untold = "with" in record and told.get("ended_at") != record["ended_at"]
    return dict(record) if record["result"] == ERASED or untold or own.get("ended_at") == record["ended_at"] else None


# --- following it ----------------------------------------------------------------------------------------------------


async def _follow(ctx: ActionContext, boot: _Boot, serial: str) -> Outcome | None:
    """Wait for the installer's last word. Return how the attempt has failed, None if it has not."""
    now = ctx.clock.monotonic
    heard, look_at, boots_until = now(), now() + LOOK_S, now() + patience_s(ctx, BOOT_S)
    before: InstallProgress | None = None
    off = False
    while True:
        progress = await ctx.installer.progress(boot.token)
        if before is None or (before.at, before.listening_since) != (progress.at, progress.listening_since):
            heard = now()
        _note(ctx, boot, serial, before, progress)
        before = progress
        if progress.incident or progress.phase is InstallPhase.FAILED:
            return Permanent(f"the installer did not erase it: {visible(progress.incident or progress.detail)}")
        if progress.phase is InstallPhase.ERASED:
            return None
        if off:
            return Transient("the machine went off before the installer had erased the drive")
        if not progress.fetched and now() >= boots_until:
            return Transient(f"the installer did not start within {format_duration(BOOT_S)} after power on")
        if progress.fetched and now() >= heard + patience_s(ctx, SILENT_S):
            return Transient(f"the installer has been silent for {format_duration(SILENT_S)}")
        if now() >= look_at:
            look_at = now() + LOOK_S
            if off := await is_off(ctx):
                continue  # its last word may have come meanwhile
        await ctx.clock.sleep(LISTEN_S)


def _note(
    ctx: ActionContext, boot: _Boot, serial: str, before: InstallProgress | None, progress: InstallProgress
) -> None:
    """Show what is new, and journal evidence as soon as it is there."""
    if progress.phase is not None and (before is None or before.phase is not progress.phase):
        ctx.step(f"installer: {progress.phase}{f', {visible(progress.detail)}' if progress.detail else ''}")
    found = progress.erasures.get(serial)
    if found is not None and not has_ended(found) and (before is None or before.erasures.get(serial) != found):
        sent = {key: value for key, value in found.items() if key not in ("ended", "failed")}
        ctx.journal(erasure={**sent, **_about(ctx)})
    _keep(ctx, boot, serial, progress)


def _keep(ctx: ActionContext, boot: _Boot, serial: str, progress: InstallProgress) -> None:
    """Judge the drives whose erase has ended since, and journal their records: this action's own, and the others'."""
    for one in boot.drives:
        found = progress.erasures.get(one, {})
        if one in boot.records or not has_ended(found):
            continue
        shared = {} if one == serial else {"with": serial}
        record = record_of(one, found, {**_about(ctx), **shared}, ctx.clock.now())
        boot.records[one] = record
        ctx.step(f"drive {one}: {record['result']}")
        if one == serial:
            ctx.journal(erasure=record)
        else:
            ctx.journal(erasures={other: kept for other, kept in boot.records.items() if other != serial})


def _about(ctx: ActionContext) -> dict[str, Any]:
    """Return who asked for an erase, and the time here: a machine's clock may be wrong."""
    at = ctx.clock.now().isoformat(timespec="seconds")
    return {"started_at": ctx.intent.get("at", at), "operator": ctx.operator, "commit": ctx.commit}


def _outcome(serial: str, record: Mapping[str, Any], boot: _Boot | None = None) -> Outcome:
    others = [one for one in boot.drives if one != serial] if boot is not None else []
    rest = "; ".join(f"{one} {_short(boot.records.get(one)) if boot is not None else ''}" for one in others)
    also = f"; in the same boot: {rest}" if rest else ""
    if record["result"] != ERASED:
        return Permanent(f"drive {serial} is not erased: {record['why']}{also}")
    return Done(f"{sentence_of(record)}{also}")


def _short(record: Mapping[str, Any] | None) -> str:
    if record is None:
        return "has not ended"
    return str(record["result"]) + (f" ({record['why']})" if record.get("why") else "")
