"""Have the nodes that stay copy what they need of the one that goes, before they are told to serve without it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.converge.actions.context import ActionContext, Stop, action
from reconciler.converge.actions.serving import Server, staying
from reconciler.converge.guarded_ports import TimedHost
from reconciler.model.container_images import EXPORT, FORGET, LACKING, LIST, LOAD, ROOM, archive_sizes, read_listed
from reconciler.model.errors import DriverError
from reconciler.model.gate import CommandResult
from reconciler.model.outcome import Declined, Done, Outcome, Transient
from reconciler.model.printable import visible
from reconciler.model.serving_sync import COMPARE, DIGESTS, PULL, DesiredSync, read_copied

LONGEST_S: Final = 6 * 3600.0  # a terabyte over 1 Gbit/s is less than three hours; what is cut goes on from there
RETRY_S: Final = 60.0


@action
async def sync_serving(ctx: ActionContext) -> Outcome:
    """Have the others of the group copy by rsync what they lack, and compare it there with its digests here."""
    sync = None if ctx.desired.serving is None else ctx.desired.serving.sync
    if sync is None:
        return Declined("not_declared", "the spec has nothing copied from this node")
    if sync.address is None:
        return Declined("no_address", f"the spec names no address of it on link {sync.link}")
    others = staying(ctx)
    if not others:
        return Done("no other node of its serving group is in service: nothing is copied", changed=False)
    source = Source(ctx, sync, sync.address)
    images = await source.hand_over_images(others) if sync.images else ()
    paths = await source.hand_over_paths(others) if sync.paths else ()
    return Done("; ".join((*images, *paths)))


@dataclass(frozen=True, slots=True)
class Source:
    """The node that goes, from whose `address` the others copy."""

    ctx: ActionContext
    sync: DesiredSync
    address: str

    async def hand_over_paths(self, others: Sequence[Server]) -> tuple[str, ...]:
        told = [await self._copy(server, self.sync.paths, ", ".join(self.sync.paths)) for server in others]
        listed = await self._here(DIGESTS, *self.sync.paths)
        count = len(listed.splitlines())
        for server in others if count else ():  # sha256sum refuses an empty list
            self.ctx.step(f"{server.name}: comparing {count} files")
            await _run(self.ctx, server.name, server.host, COMPARE, stdin=listed)
        return (f"{count} files are on each, with their digests", *told)

    async def hand_over_images(self, others: Sequence[Server]) -> tuple[str, ...]:
        """Save the images that others lack, have those copy and load them. Only what all loaded is removed."""
        listed = read_listed(await self._here(LIST, *self.sync.images))
        if listed is None:
            raise Stop(Transient(f"{self.ctx.node}: it does not tell its images", RETRY_S))
        by_line = {str(image): image for image in listed.images}
        lacking = [
            (server, await self._there(server, LACKING, listed.runtime, stdin=_lines(by_line))) for server in others
        ]
        needed = [line for line in by_line if any(line in text.splitlines() for _, text in lacking)]
        if not needed:
            await _run(self.ctx, self.ctx.node, self.ctx.host, FORGET)
            return (f"{len(by_line)} images are on each",)
        self.ctx.step(f"saving {', '.join(by_line[line].name for line in needed)}")
        sizes = archive_sizes(await self._here(EXPORT, listed.runtime, stdin=_lines(needed)))
        told = []
        for server, text in lacking:
            if wanted := [by_line[line] for line in needed if line in text.splitlines()]:
                names = ", ".join(image.name for image in wanted)
                await self._there(server, ROOM, str(sum(sizes.get(image.archive, 0) for image in wanted)))
                told.append(await self._copy(server, [image.archive for image in wanted], names))
                self.ctx.step(f"{server.name}: loading {names}")
                await self._there(server, LOAD, listed.runtime, stdin=_lines(map(str, wanted)))
        await _run(self.ctx, self.ctx.node, self.ctx.host, FORGET)
        return (f"{len(by_line)} images are on each, with their digests", *told)

    async def _copy(self, server: Server, paths: Sequence[str], names: str) -> str:
        self.ctx.step(f"{server.name}: copying {names} from {self.address}")
        said = await self._there(server, PULL, self.address, *paths)
        copied = read_copied(said)
        if copied is None:
            raise Stop(Transient(f"{server.name}: not copied: {visible(said[-200:])}", RETRY_S))
        self.ctx.step(told := f"{server.name}: {copied.told(self.sync.link, self.sync.gbps)}")
        return told

    async def _here(self, program: str, *words: str, stdin: str = "") -> str:
        argv = ("sh", "-c", program, "sh", *words)
        return (await _run(self.ctx, self.ctx.node, self.ctx.host, argv, stdin=stdin)).stdout

    async def _there(self, server: Server, program: str, *words: str, stdin: str = "") -> str:
        argv = ("sh", "-c", program, "sh", *words)
        return (await _run(self.ctx, server.name, server.host, argv, stdin=stdin)).stdout


def _lines(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)


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
