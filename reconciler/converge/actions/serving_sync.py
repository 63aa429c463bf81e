"""Have the nodes that stay copy what they need of the one that goes, before they are told to serve without it."""

from __future__ import annotations

from typing import Final

from reconciler.converge.actions.context import ActionContext, Stop, action
from reconciler.converge.actions.serving import Server, staying
from reconciler.converge.guarded_ports import TimedHost
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.printable import visible
from reconciler.model.serving_sync import COMPARE, DIGESTS, PULL, DesiredSync, read_copied

LONGEST_S: Final = 6 * 3600.0  # a terabyte over 1 Gbit/s is less than three hours; what is cut goes on from there
RETRY_S: Final = 60.0


@action
async def sync_serving(ctx: ActionContext) -> Outcome:
    """Copy by rsync what the others of the group lack, and compare each file there with its digest here."""
    sync = None if ctx.desired.serving is None else ctx.desired.serving.sync
    if sync is None:
        return Declined("not_declared", "the spec has nothing copied from this node")
    if sync.address is None:
        return Declined("no_address", f"the spec names no address of it on link {sync.link}")
    told = [await _copy(ctx, server, sync, sync.address) for server in staying(ctx)]
    if not told:
        return Done("no other node of its serving group is in service: nothing is copied", changed=False)
    listed = await _run(ctx, ctx.node, ctx.host, ("sh", "-c", DIGESTS, "sh", *sync.paths))
    for server in staying(ctx) if listed.stdout else ():  # sha256sum refuses an empty list
        ctx.step(f"{server.name}: comparing {len(listed.stdout.splitlines())} files")
        await _run(ctx, server.name, server.host, COMPARE, stdin=listed.stdout)
    return Done(f"{len(listed.stdout.splitlines())} files are on each, with their digests; {'; '.join(told)}")


async def _copy(ctx: ActionContext, server: Server, sync: DesiredSync, address: str) -> str:
    ctx.step(f"{server.name}: copying {', '.join(sync.paths)} from {address}")
    result = await _run(ctx, server.name, server.host, ("sh", "-c", PULL, "sh", address, *sync.paths))
    copied = read_copied(result.stdout)
    if copied is None:
        raise Stop(Transient(f"{server.name}: not copied: {visible(result.stdout[-200:])}", RETRY_S))
    ctx.step(told := f"{server.name}: {copied.told(sync.link, sync.gbps)}")
    return told


async def _run(
    ctx: ActionContext, name: str, host: TimedHost, argv: tuple[str, ...], *, stdin: str = ""
) -> CommandResult:
    """Run a program that may take hours. Raise Stop where it fails, with its last words."""
    try:
        result = await host.run(argv, timeout=max(2.0, ctx.clock.real_seconds(LONGEST_S)), stdin=stdin)
    except DriverError as error:
        raise Stop(Transient(f"{name}: {error}", RETRY_S)) from error
    if result.timed_out:
        raise Stop(Transient(f"{name}: it took too long, and goes on where it was", RETRY_S))
    if result.exit_status:
        found = (result.stdout, result.stderr) if argv == COMPARE else (result.stderr or result.stdout,)
        said = "; ".join(text.strip() for text in found if text.strip())
        raise Stop(Transient(f"{name}: {visible(said[-300:]) or f'exit {result.exit_status}'}", RETRY_S))
    return result
