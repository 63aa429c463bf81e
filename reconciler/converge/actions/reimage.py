"""Write an image (DESIGN 7.5): each attempt serves one document on its own URL, and the booted system proves it.

The order makes it safe. All that can be refused is refused before the machine is touched. The ledger has the nonce
before the machine does. The medium and the one-time boot are read back before power comes on (pitfalls D2, D8, E2). It
is done when a system shows our nonce and digest, on the intended disk (L1, L2).
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from reconciler.converge.actions.activation import pending_settings, verify_activation
from reconciler.converge.actions.context import ActionContext, Stop, action, outcome_of, poll, tolerate
from reconciler.converge.actions.medium import REPEATABLE, drop_override
from reconciler.converge.actions.power import ensure_off, ensure_on
from reconciler.converge.guarded_ports import known
from reconciler.diff import normalise
from reconciler.model.desired import DesiredImage, RootDisk
from reconciler.model.errors import DriverError
from reconciler.model.observed import Answered, Drive, ImageIdentity
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.units import format_duration
from reconciler.model.vocab import BootPhase, Power
from reconciler.planner.node.corroboration import INSTALL_S
from reconciler.planner.node.disks import matching_drives

TRIES = 2
_CHOSEN = frozenset({BootPhase.OS_BOOTING, BootPhase.OS_RUNNING})  # the device to boot from is
_MAY_INSTALL = (None, BootPhase.POST, BootPhase.OS_BOOTING)  # None: the BMC shows no phase, as many


@action
async def reimage(ctx: ActionContext) -> Outcome:
    """Install the image on the root disk, or continue an installation that an earlier run began."""
    image, rule = ctx.desired.profile.image, root_disk_rule(ctx)
    if image is None or rule is None:
        return Declined("no_root_disk", "the spec names no image, or no root disk to write it to")
    drive = target_drive(rule, known(await ctx.bmc.inventory()).drives)
    pending = await pending_settings(ctx)
    outcome = await _continue(ctx, image, drive, ctx.resumed) if ctx.resumed.get("nonce") else None
    if outcome is None:
        outcome = await _begin(ctx, image, drive)
    if isinstance(outcome, Done):
        await tolerate(ctx.bmc.eject_media(), *REPEATABLE)  # the system runs from its disk now
        await drop_override(ctx, await ctx.bmc.hot())
        await verify_activation(ctx, pending)
    return outcome


async def _begin(ctx: ActionContext, image: DesiredImage, drive: Drive) -> Outcome:
    token, nonce = secrets.token_hex(16), secrets.token_hex(16)
    answer = document(ctx, image, drive, nonce)
    ctx.journal(token=token, nonce=nonce, document=answer)
    url = await ctx.installer.publish(token, answer)
    try:
        await _prepare(ctx, url)
        ctx.ledger.set_nonce(ctx.node, nonce, ctx.clock.now())
        ctx.journal(started=True)
        await ensure_on(ctx)
        return await _installed(ctx, image, drive, nonce, token)
    finally:
        await ctx.installer.withdraw(token)


def root_disk_rule(ctx: ActionContext) -> RootDisk | None:
    image = ctx.desired.profile.image
    return ctx.desired.root_disk or (image.root_disk if image is not None else None)


def target_drive(rule: RootDisk, drives: tuple[Drive, ...] | None) -> Drive:
    """Return the one drive that the rule matches. Raise Stop if none or several match, or it has no serial number."""
    if drives is None:
        raise Stop(Transient("the BMC does not list the drives"))
    found = matching_drives(rule, drives)
    if len(found) != 1:
        listed = ", ".join(f"{drive.id} ({drive.model}, {drive.serial})" for drive in found or drives)
        problem = f"{len(found)} drives match" if found else "no drive matches"
        raise Stop(Declined("root_disk", f"{problem} the root disk rule: {listed or 'the BMC lists none'}"))
    if found[0].serial is None:
        raise Stop(Declined("root_disk", f"drive {found[0].id} matches, but the BMC does not give its serial number"))
    return found[0]


def document(ctx: ActionContext, image: DesiredImage, drive: Drive, nonce: str) -> Mapping[str, Any]:
    return {
        "node": ctx.node,
        "hostname": ctx.desired.hostname or ctx.node,
        "image": {
            "name": image.name,
            "version": image.version,
            "url": image.url,
            "sha256": image.sha256,
            "contents": dict(image.contents),
        },
        "root_disk": {"serial": drive.serial, "wwn": drive.wwn},
        "preserve": list(image.preserve),
        "ssh_authorities": list(ctx.settings.host_keys.authorities),
        "nonce": nonce,
    }


async def _prepare(ctx: ActionContext, url: str) -> None:
    """Power off, insert our medium alone, and set a one-time boot from it; read each back. Raise Stop if one fails."""
    await ensure_off(ctx)  # first: ejecting under a running system corrupts it (E1)
    ctx.step("inserting the boot medium")
    await _insert(ctx, url)
    shown, failed = "nothing", None
    for _ in range(TRIES):
        failed = await tolerate(ctx.bmc.boot_once("cd"), *REPEATABLE)
        override = known(await ctx.bmc.hot()).boot_override
        if override is not None and override.boots_disc:
            return  # one that stays is cleared as soon as the installer runs
        shown = f"{override.target}, {override.enabled}" if override is not None else "nothing"
        await ctx.clock.sleep(5.0)
    raise Stop(Transient(f"{failed or 'accepted'}, but the BMC shows as one-time boot: {shown} (D2)"))


async def _insert(ctx: ActionContext, url: str) -> None:
    """Eject what is inserted and insert our medium; read back both: BMCs show media that are not there (E2)."""
    failed: DriverError | None = None
    for _ in range(TRIES):
        failed = await tolerate(ctx.bmc.eject_media(), *REPEATABLE)
        if await ctx.bmc.media() is not None:
            continue
        failed = await tolerate(ctx.bmc.insert_media(url), *REPEATABLE)
        if await ctx.bmc.media() == url:
            return
    raise Stop(outcome_of(failed) if failed else Transient("the BMC does not show our medium as inserted"))


async def _continue(ctx: ActionContext, image: DesiredImage, drive: Drive, before: Mapping[str, Any]) -> Outcome | None:
    """Continue what an earlier run began; None if it failed or did not get far enough, so that a new one must begin."""
    nonce = str(before["nonce"])
    reading = await ctx.host.facts((), ())
    if isinstance(reading, Answered):
        found = reading.value.image
        return judge_install(found, image, drive) if found is not None and found.nonce == nonce else None
    hot = known(await ctx.bmc.hot())
    if not before.get("started") or hot.power is not Power.ON or hot.boot_phase not in _MAY_INSTALL:
        return None
    ctx.step("an installation is under way")
    # The installer may still ask for its document, and the process that served it is gone.
    await ctx.installer.publish(str(before["token"]), before["document"])
    try:
        outcome = await _installed(ctx, image, drive, nonce, str(before["token"]))
    finally:
        await ctx.installer.withdraw(str(before["token"]))
    return outcome if isinstance(outcome, Done) else None


async def _installed(ctx: ActionContext, image: DesiredImage, drive: Drive, nonce: str, token: str) -> Outcome:
    """Wait for any system to answer, and judge it. The old system is powered off, so it can't be the one."""
    ctx.step("installing")

    async def probe() -> Answered[ImageIdentity | None] | None:
        hot = await ctx.bmc.hot()
        phase = hot.value.boot_phase if isinstance(hot, Answered) else None
        if phase in _CHOSEN or await ctx.installer.fetched(token):
            await drop_override(ctx, hot)
        reading = await ctx.host.facts((), ())
        return Answered(reading.at, reading.value.image) if isinstance(reading, Answered) else None

    answer = await poll(ctx, probe, within_s=INSTALL_S, every_s=30.0)
    started = await ctx.installer.fetched(token)
    if answer is None:
        where = "the installer started, but no system followed" if started else "the installer did not start"
        return Transient(f"no answer within {format_duration(INSTALL_S)}: {where}")
    found = answer.value
    if found is None or found.nonce != nonce:
        what = "nothing of ours" if found is None else f"{found.image} {found.version} from another installation"
        if started:
            return Permanent(f"the installer ran, and then the machine booted {what}, not the image just written (L1)")
        return Transient(f"the machine did not boot the installer but {what}")
    return judge_install(found, image, drive)


def judge_install(found: ImageIdentity, image: DesiredImage, drive: Drive) -> Outcome:
    """Compare what a system with our nonce reports with the image and the drive that were meant."""
    wanted = {
        "image": (found.image, image.name),
        "version": (found.version, image.version),
        "sha256": (found.sha256, image.sha256),
        "root disk": (found.root_disk, drive.serial),
        "booted disk": (found.booted_disk, drive.serial),
    }
    wrong = [
        f"{name} is {value!r}, not {right!r}"
        for name, (value, right) in wanted.items()
        if value is None or right is None or normalise.text(value) != normalise.text(right)
    ]
    if wrong:
        return Permanent("installed, but " + "; ".join(wrong))
    return Done(f"{image.name} {image.version} on {drive.serial}")
