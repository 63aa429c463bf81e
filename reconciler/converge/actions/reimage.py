"""Write an image (DESIGN 7.5): each attempt serves one document on its own URL, and the booted system proves it.

The order makes it safe. All that can be refused is refused before the machine is touched. The ledger has the nonce
before the machine does. The way into the installer is read back before power comes on (pitfalls D2, D8, E2). The
installer powers off, and only then the medium goes and the disk is booted. It is done when a system shows our nonce and
digest, on the intended disk (L1, L2).
"""

from __future__ import annotations

import secrets

from reconciler.converge.actions.activation import pending_settings, verify_activation
from reconciler.converge.actions.boot_ways import boot_disk, prepare_installer
from reconciler.converge.actions.context import ActionContext, Stop, action, poll
from reconciler.converge.actions.in_place import reimage_in_place
from reconciler.converge.actions.install_plan import (
    Install,
    boot_credential,
    fell_back,
    install_document,
    journaled_install,
    judge_install,
    root_disk_rule,
    target_drive,
    untold,
    withdrawn_after,
)
from reconciler.converge.actions.install_watch import InstallWatch, describe
from reconciler.converge.actions.medium import drop_override, eject
from reconciler.converge.actions.power import ensure_on
from reconciler.converge.guarded_ports import known
from reconciler.model.abilities import Abilities
from reconciler.model.boot_ways import choose, passed_over
from reconciler.model.install import InstallDocument, InstallPhase
from reconciler.model.observed import Answered, ImageIdentity
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.units import format_duration
from reconciler.model.vocab import Power
from reconciler.planner.node.corroboration import BOOT_S
from reconciler.planner.node.possible import IN_PLACE

ANSWER_S = 5.0  # at most, between looks for the installed system
BUSY_S = 300.0  # from its first answer until it tells all of its image: a system that boots is busy


@action
async def reimage(ctx: ActionContext) -> Outcome:
    """Install the image on the root disk, or continue an installation that an earlier run began."""
    image, rule = ctx.desired.profile.image, root_disk_rule(ctx)
    if image is None or rule is None:
        return Declined("no_root_disk", "the spec names no image, or no root disk to write it to")
    inventory = known(await ctx.bmc.inventory())
    drive = target_drive(rule, inventory.drives)
    document = install_document(ctx, image, drive, known(await ctx.bmc.hot()), secrets.token_hex(16))
    if ctx.action.target == IN_PLACE:
        return await reimage_in_place(ctx, document)
    pending = await pending_settings(ctx)
    outcome = await _continue(ctx, document)
    if outcome is None:
        way = choose(ctx.desired, inventory.abilities)
        if way is None:
            return Declined("no_way_in", passed_over(ctx.desired, inventory.abilities))
        outcome = await _begin(ctx, Install(secrets.token_hex(16), document, way), inventory.abilities)
    if isinstance(outcome, Done):
        await eject(ctx)  # the system runs from its disk now
        await drop_override(ctx, await ctx.bmc.hot())
        await verify_activation(ctx, pending)
    return outcome


async def _begin(ctx: ActionContext, install: Install, abilities: Abilities | None) -> Outcome:
    ctx.journal(**install.journaled())
    url = await ctx.installer.publish(install.token, install.document, boot_credential(ctx), pxe=install.by_pxe)
    async with withdrawn_after(ctx, install.token):
        await prepare_installer(ctx, url, install.way, abilities)
        ctx.ledger.set_nonce(ctx.node, install.nonce, ctx.clock.now())
        ctx.journal(started=True)
        await ensure_on(ctx)
        return await _follow(ctx, install)


async def _continue(ctx: ActionContext, fresh: InstallDocument) -> Outcome | None:
    """Continue what an earlier run began; None if nothing of it can be gone on with, so that a new one must begin.

    An installer that has not fetched its document has written nothing, one whose machine is off was interrupted, and
    one whose machine shows another system has ended. What was written to its end may be on the disk by now: the disk is
    booted before anything is written again.
    """
    install = await journaled_install(ctx.resumed, ctx.installer)
    if install is None or not ctx.resumed.get("started") or not install.is_still_meant(fresh):
        return None
    reading = await ctx.host.facts((), ())
    if isinstance(reading, Answered):
        found, why = reading.value.image, untold(reading.value)
        if found is None and why:
            raise Stop(Transient(f"the host does not tell which image runs: {why}"))
        return judge_install(found, install) if found is not None and found.nonce == install.nonce else None
    if not install.token:
        return None
    # The process that served it is gone.
    await ctx.installer.publish(install.token, install.document, boot_credential(ctx), pxe=install.by_pxe)
    if ctx.resumed.get("boots_disk"):
        async with withdrawn_after(ctx, install.token):
            return await _prove(ctx, install, "its disk was being booted")
    power, progress = known(await ctx.bmc.hot()).power, await ctx.installer.progress(install.token)
    told = progress.may_boot or progress.ended
    if (power is Power.OFF and not told) or (power is not Power.ON and not progress.fetched):
        await ctx.installer.withdraw(install.token)
        return None
    ctx.step("an installation is under way")
    async with withdrawn_after(ctx, install.token):
        return await _follow(ctx, install)


async def _follow(ctx: ActionContext, install: Install) -> Outcome:
    """Wait for the installer to end with the power off, then boot the disk."""
    ctx.step("installing")
    watch = InstallWatch(ctx, install)
    ended = await watch.until_off()
    if ended is not None:
        return ended
    wrote = watch.progress is not None and watch.progress.phase is InstallPhase.INSTALLED
    return await _prove(ctx, install, f"the installer's last word was: {watch.last_words}", wrote=wrote)


async def _prove(ctx: ActionContext, install: Install, before: str, *, wrote: bool = False) -> Outcome:
    """Boot the disk once and judge the system that answers.

    `wrote`: the installer said that it is done; only then another system shows that the machine boots a wrong disk.
    """
    ctx.journal(boots_disk=True)
    if known(await ctx.bmc.hot()).power is not Power.ON:
        await boot_disk(ctx)
    ctx.step("waiting for the installed system")
    busy_until = 0.0

    async def probe() -> Answered[ImageIdentity | None] | None:
        nonlocal busy_until
        reading, now = await ctx.host.facts((), ()), ctx.clock.monotonic()
        if not isinstance(reading, Answered):
            return None
        busy_until = busy_until or now + BUSY_S
        return None if untold(reading.value) and now < busy_until else Answered(reading.at, reading.value.image)

    answer = await poll(ctx, probe, within_s=BOOT_S, every_s=ANSWER_S, soon=True)
    if answer is None:
        return Transient(f"no system answers {format_duration(BOOT_S)} after the disk was booted; {before}")
    found = answer.value
    if found is not None and found.nonce == install.nonce:
        return judge_install(found, install)
    if went_back := fell_back(found, install):
        return Permanent(went_back)
    if wrote:
        return Permanent(f"installed, and then the machine booted {describe(found)}, not the image just written (L1)")
    return Transient(f"the install was not ended: the machine boots {describe(found)}; {before}")
