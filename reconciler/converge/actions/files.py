"""Write a file on a host."""

from __future__ import annotations

from reconciler.converge.actions.command import run
from reconciler.converge.actions.context import ActionContext


async def write_file(ctx: ActionContext, path: str, text: str, *, mode: str = "600") -> None:
    """Write a file so that a power cut leaves the old one or the new one, and nobody else ever reads it."""
    await run(ctx, ("mkdir", "-p", path.rpartition("/")[0]))
    await run(ctx, ("install", "-m", mode, "/dev/stdin", f"{path}.new"), stdin=text)
    await run(ctx, ("sync", f"{path}.new"))
    await run(ctx, ("mv", "-f", f"{path}.new", path))
