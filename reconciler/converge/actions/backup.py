"""Save a node's own data before its disk is written, and bring it back before the node serves again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reconciler.converge.actions.context import ActionContext, Stop, action
from reconciler.converge.actions.host_secret import secret_line
from reconciler.model.backup import NOT_IN_REPOSITORY, RESTORE, SAVE, DesiredBackup, read_saved
from reconciler.model.container_images import EXPORT, FORGET, HOME, LIST, RELOAD, read_listed
from reconciler.model.gate import CommandResult
from reconciler.model.outcome import Declined, Done, Outcome, Permanent, Transient
from reconciler.model.printable import visible
from reconciler.planner.node.saved import data_status

LOOK_AGAIN_S: Final = 30.0  # evidence older than that admits no node
LONGEST_S: Final = 6 * 3600.0  # a terabyte over 1 Gbit/s is less than three hours; what is cut goes on from there
RETRY_S: Final = 60.0


def _wanted(ctx: ActionContext) -> DesiredBackup:
    if ctx.desired.profile.backup is None:
        raise Stop(Declined("not_declared", "the spec declares no backup of this node"))
    return ctx.desired.profile.backup


@action
async def back_up(ctx: ActionContext) -> Outcome:
    """Save what the spec declares, read all of it back from the repository, and compare it with the host.

    restic goes on from what an earlier try has sent.
    """
    backup = _wanted(ctx)
    await _export(ctx, backup.images)
    ctx.step(f"saving {', '.join(backup.paths)}")
    result = await _run(ctx, SAVE, backup, ctx.node)
    saved = read_saved(result.stdout)
    if result.exit_status or saved is None:
        return Transient(f"not saved: {_said(ctx, result)}", RETRY_S)
    await _forget(ctx, backup.images)
    return Done(str(replace(saved, declared=backup.digest)))


@action
async def restore_backup(ctx: ActionContext) -> Outcome:
    """Restore what was saved before the disk was written, and compare every file with its digest of then."""
    backup = _wanted(ctx)
    status = data_status(ctx.record)
    saved = status.saved
    if saved is None or not status.lost:
        return Done("nothing waits to be restored", changed=False)
    if saved.declared not in ("", backup.digest):
        return Permanent(
            f"not restored: snapshot {saved.snapshot} was saved under another `backup` of the spec; put that back "
            "until it is restored, or restore it by hand and take `backup` out until the node was admitted"
        )
    ctx.step(f"restoring {saved.files} files of {saved.snapshot}")
    result = await _run(ctx, RESTORE, backup, saved.snapshot, saved.manifest)
    if result.exit_status == NOT_IN_REPOSITORY:
        return Permanent(f"not restored: {_said(ctx, result)} (snapshot {saved.snapshot}, manifest {saved.manifest})")
    if result.exit_status:
        return Transient(f"not restored: {_said(ctx, result)}", RETRY_S)
    told = f"{saved.files} files of {saved.snapshot} are back, each with its digest"
    return Done(told if ctx.desired.profile.k3s is not None else told + await _reload(ctx, backup.images))


async def _export(ctx: ActionContext, images: Sequence[str]) -> None:
    """Save images to archives of the host, which are backed up as its other files are."""
    if not images:
        return
    ctx.step(f"saving {', '.join(images)}")
    listed = read_listed((await _program(ctx, LIST, *images)).stdout)
    if listed is None:
        raise Stop(Transient("not saved: the host does not tell its container images", RETRY_S))
    await _program(ctx, EXPORT, listed.runtime, stdin="".join(f"{image}\n" for image in listed.images))


async def _forget(ctx: ActionContext, images: Sequence[str]) -> None:
    if images:
        await ctx.host.run(FORGET, timeout=60.0)


async def load_into_k3s(ctx: ActionContext) -> str:
    """Load the images that came back with the node's data, once K3s runs. Return what to say of those that stay away.

    A run that dies in it is made up for by the next one: what is loaded has no archive any more. It may take hours, in
    which a signal or a hold comes: Stop is raised then, and the node is looked at anew. The next call loads nothing.
    """
    backup = ctx.desired.profile.backup
    if backup is None or ctx.desired.profile.k3s is None:
        return ""
    before = ctx.clock.monotonic()
    not_loaded = await _reload(ctx, backup.images)
    if ctx.clock.monotonic() - before > LOOK_AGAIN_S:
        raise Stop(Transient(f"images were loaded meanwhile, and the node is looked at again{not_loaded}", 1.0))
    return not_loaded


async def _reload(ctx: ActionContext, images: Sequence[str]) -> str:
    """Load images again. Return what to say of those for which that failed, which their runtime has to pull."""
    if not images:
        return ""
    ctx.step(f"loading {', '.join(images)}")
    result = await _host_runs(ctx, RELOAD)
    failed = result.stdout.splitlines()
    if result.exit_status:
        failed.append(f"the program ended with {result.exit_status}: {_said(ctx, result)}")
    return f"; not loaded, and kept in {HOME}: {visible('; '.join(failed))[:500]}" if failed else ""


async def _program(ctx: ActionContext, program: str, *words: str, stdin: str = "") -> CommandResult:
    """Run a program for container images. Raise Stop where it fails."""
    result = await _host_runs(ctx, program, *words, stdin=stdin)
    if result.exit_status:
        raise Stop(Transient(f"container images: {_said(ctx, result)}", RETRY_S))
    return result


async def _host_runs(ctx: ActionContext, program: str, *words: str, stdin: str = "") -> CommandResult:
    """Run a program for container images to its end, however it ends. Raise Stop where it takes too long."""
    timeout = max(2.0, ctx.clock.real_seconds(LONGEST_S))
    result = await ctx.host.run(("sh", "-c", program, "sh", *words), timeout=timeout, stdin=stdin)
    if result.timed_out:
        raise Stop(Transient(f"container images: {_said(ctx, result)}", RETRY_S))
    return result


async def _run(ctx: ActionContext, program: str, backup: DesiredBackup, *words: str) -> CommandResult:
    """Run a program with the secrets of the repository on its stdin. Raise Stop where one can't be had."""
    argv = ("sh", "-c", program, "sh", backup.repository, *words, *backup.saved_paths)
    timeout = max(2.0, ctx.clock.real_seconds(LONGEST_S))
    result = await ctx.host.run(argv, timeout=timeout, stdin=_environment(ctx, backup))
    if result.timed_out:
        raise Stop(Transient("it took too long, and goes on where it was", RETRY_S))
    return result


def _environment(ctx: ActionContext, backup: DesiredBackup) -> str:
    lines = []
    for variable, name in sorted(backup.environment.items()):
        value = secret_line(ctx, f"{variable} of the backup", name, backup.server)
        lines.append(f"{variable}={value}\n")
    return "".join(lines)


def _said(ctx: ActionContext, result: CommandResult) -> str:
    """Return the last words of a program, without the values of secrets."""
    said = result.stderr.strip() or result.stdout.strip() or f"exit {result.exit_status}"
    return ctx.conceal(said)[-300:]
