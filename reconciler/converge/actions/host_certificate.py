"""Renew the certificate of a node's SSH host key. The key stays; who has it was settled when the node was installed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext, action
from reconciler.model.host_certificate import read_host_certificate
from reconciler.model.install import InstallDocument, load_contract
from reconciler.model.outcome import Declined, Done, Outcome, Permanent

HOST_KEY: Final = "/etc/ssh/ssh_host_ed25519_key"
_STATE: Final = "/state"  # below it lasts what a root that nobody can write to forgets at the next boot
_COMMAND_S: Final = 30.0


@action
async def renew_host_certificate(ctx: ActionContext) -> Outcome:
    """Have the recorded key signed once more, put the certificate in place, and log in by it.

    Over an expired certificate this is all that is ever done, and over the recorded key alone.
    """
    attempt = ctx.ledger.certified_install(ctx.node)
    if attempt is None or attempt.host_key in ctx.ledger.revoked_host_keys():
        return Declined("no_key", "the ledger has recorded no host key of this node that is still trusted")
    host = ctx.host.anew(renewal_of=attempt.host_key)
    try:
        on_host = replace(ctx, host_port=host)
        shown = await run(on_host, ("cat", f"{HOST_KEY}.pub"), seconds=_COMMAND_S)
        if shown.stdout.split()[:2] != attempt.host_key.split():
            return Permanent(f"{HOST_KEY}.pub is not the key that the ledger recorded: install the node anew")
        now = ctx.clock.now()
        known = read_host_certificate(attempt.host_key, attempt.certificate)
        line = attempt.certificate
        if known.renewal_at(ctx.node) <= now:
            line = await ctx.installer.certify(load_contract(InstallDocument, attempt.document), attempt.host_key)
            until = read_host_certificate(attempt.host_key, line).valid_before
            told = f"certified host key {attempt.host_key} once more, until {until:%Y-%m-%d %H:%M} UTC"
            ctx.ledger.save_install(replace(attempt, certificate=line), now, told)
        ctx.step("putting the new certificate in place")
        kept = await host.run(("test", "-f", f"{_STATE}{HOST_KEY}.pub"), timeout=ctx.clock.real_seconds(_COMMAND_S))
        for folder in (_STATE, "") if kept.exit_status == 0 else ("",):
            await _replace(on_host, f"{folder}{HOST_KEY}-cert.pub", f"{line}\n")
        seconds = ctx.clock.real_seconds(_COMMAND_S)
        if (await host.run(("systemctl", "reload", "sshd"), timeout=seconds)).exit_status:
            await run(on_host, ("systemctl", "reload", "ssh"), seconds=_COMMAND_S)  # as Debian calls it
    finally:
        await host.close()
    fresh = ctx.host.anew()
    try:
        await run(replace(ctx, host_port=fresh), ("true",), seconds=_COMMAND_S)
    finally:
        await fresh.close()
    return Done(f"certified until {read_host_certificate(attempt.host_key, line).valid_before:%Y-%m-%d %H:%M} UTC")


async def _replace(ctx: ActionContext, path: str, text: str) -> None:
    """Write a file so that a power cut leaves the old one or the new one."""
    await run(ctx, ("tee", f"{path}.new"), stdin=text, seconds=_COMMAND_S)
    await run(ctx, ("sync", f"{path}.new"), seconds=_COMMAND_S)
    await run(ctx, ("mv", "-f", f"{path}.new", path), seconds=_COMMAND_S)
