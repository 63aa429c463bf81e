"""Approvals of the change that a commit is from, as the forge knows them."""

from __future__ import annotations

from collections.abc import Callable

from reconciler.app.forge_job import connect_forge
from reconciler.app.runtime import run_async
from reconciler.model.errors import Refused
from reconciler.model.forge import Forge
from reconciler.render.text import count


def require_approvals(repository: str, commit: str, least: int, say: Callable[[str], None]) -> None:
    """Return when each pull request that brought the commit was approved by `least` accounts that may push, besides its
    author's. Whoever can read a public repository can approve there.

    Raise Refused when one lacks approvals, and for a commit that no pull request brought.
    """

    async def ask() -> None:
        forge = connect_forge(repository)
        try:
            await _require(forge, commit, least, say)
        finally:
            await forge.close()

    run_async(ask())


async def _require(forge: Forge, commit: str, least: int, say: Callable[[str], None]) -> None:
    pulls = await forge.pulls_of(commit)
    if not pulls:
        raise Refused(f"{commit[:12]} came with no pull request, so nobody has approved it: propose it with one")
    for pull in pulls:
        who = sorted({one.name for one in await forge.approvals(pull) if await forge.may_write(one)})
        names = f": {', '.join(who)}" if who else ""
        if len(who) < least:
            raise Refused(
                f"#{pull.number} has {count(len(who), 'approval')}{names}; {least} by others than its author are needed"
            )
        say(f"#{pull.number} is approved{names}")
