"""Keep one pull request from a branch of ours: opened, edited in place, and closed when there is nothing to propose.

The branch holds one commit of ours. Its message has a line with the digest of what it changes and the commit that it is
made on, so that the same change is not written twice. Before each write the branch is looked at, with a pull request or
without: what its commit changes and is made on must be what that line says, for an amended commit keeps the line.
Otherwise somebody else has pushed, and it is left alone. A pull request that a person closed was declined: the same
change is not proposed again. Nor is one that was merged, before the newest commit is in force here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final

from reconciler.app.forge_job import connect_forge
from reconciler.app.runtime import run_async
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.forge import Proposal, ProposingForge

GONE: Final = "*There is nothing to propose any more: closed by the reconciler.*"
_MOST: Final = 65_536  # characters of a pull request's text that GitHub takes
_MESSAGE: Final = re.compile(r"[^\n]+\n\nReconciler-Proposal: ([0-9a-f]{64}) on ([0-9a-f]{40,64})")


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A change that is proposed. `branch`: of ours. `base`: commit.

    `files`: path in the repository -> text; {} = nothing. `unsure`: nodes of which not everything is known; with some,
    an open pull request is not closed for want of files. `adopted`: node, path and value of what it adopts.
    """

    branch: str
    base: str
    files: Mapping[str, str]
    title: str
    text: str
    unsure: frozenset[str] = frozenset()
    adopted: frozenset[tuple[str, str, str]] = frozenset()

    @property
    def digest(self) -> str:
        """Digest of the change: of whole files, and so of what they were before, too."""
        return _digest({path: _blob(text) for path, text in self.files.items()})


class Proposed(Enum):
    """The end of a try. LEFT: it is not as it should be, for a reason that a person knows more of."""

    WRITTEN = auto()
    SAME = auto()
    LEFT = auto()


@dataclass(frozen=True, slots=True)
class _Branch:
    """The branch now. `tip`: its commit; None: it is not there. `digest`: None where that commit is not ours.

    `into`: the branch that it is to be merged to.
    """

    into: str
    tip: str | None
    digest: str | None


def propose_by_hand(change: ProposedChange, repository: str, say: Callable[[str], None]) -> None:
    """Keep the pull request once, for a command. `repository`: "" = that of the CI job."""

    async def work() -> None:
        forge = connect_forge(repository)
        try:
            if not isinstance(forge, ProposingForge):
                raise UsageError("this forge takes no pull requests of ours")
            await propose(forge, change, say)
        finally:
            await forge.close()

    run_async(work())


async def propose(forge: ProposingForge, change: ProposedChange, say: Callable[[str], None]) -> Proposed:
    """Bring the pull request from the branch to where it should be. `say` gets a sentence on what was done.

    Raise UsageError where `base` is not on the branch that it would be merged to.
    """
    into = await forge.default_branch()
    if not await forge.contains(into, change.base):
        raise UsageError(
            f"commit {change.base[:12]} is not on {into}, so that a pull request would bring commits that nobody has "
            f"reviewed: merge and push them to {into} first, and run this there"
        )
    known = await forge.proposals(change.branch)
    there = next((one for one in known if one.open), None)
    tip = await forge.tip(change.branch)
    branch = _Branch(into, tip, None if tip is None else await _digest_of(forge, tip))
    if tip is not None and branch.digest is None and (there is not None or change.files):
        where = change.branch if there is None else there.url
        why = f"somebody else has pushed to {change.branch}, so it is left alone"
        say(f"{where}: {why}; merge or delete that branch, and it is proposed again")
        return Proposed.LEFT
    if not change.files:
        return await _settle(forge, there, change, say)
    if there is None:
        return await _open(forge, known, change, branch, say)
    return await _edit(forge, there, change, branch, say)


async def _settle(
    forge: ProposingForge, there: Proposal | None, change: ProposedChange, say: Callable[[str], None]
) -> Proposed:
    if there is None:
        say("nothing to propose")
        return Proposed.SAME
    if change.unsure:
        say(f"{there.url}: left as it is, since not everything is known now")
        return Proposed.SAME
    text = f"{GONE}\n\n{there.text}"[:_MOST]
    await forge.edit_proposal(there.number, there.title, text, close=True)
    say(f"closed {there.url}")
    return Proposed.WRITTEN


async def _open(
    forge: ProposingForge,
    known: Sequence[Proposal],
    change: ProposedChange,
    branch: _Branch,
    say: Callable[[str], None],
) -> Proposed:
    latest = next(iter(known), None)
    ended = latest is not None and not latest.text.startswith(GONE)
    if latest is not None and ended and await _digest_of(forge, latest.head) == change.digest:
        if not latest.merged:
            say(f"{latest.url}: the same was closed by a person, and is not proposed again")
            return Proposed.LEFT
        if await forge.tip(branch.into) != change.base:
            say(f"{latest.url}: the same was merged, and is not in force here yet")
            return Proposed.SAME
    await _write(forge, change, branch)
    try:
        made = await forge.open_proposal(change.branch, branch.into, change.title, change.text)
    except DriverError as error:
        if error.kind not in (Failure.AMBIGUOUS, Failure.REJECTED):
            raise
        found = [one for one in await forge.proposals(change.branch) if one.open]  # it may have arrived
        if not found:
            raise
        made = found[0]
    say(f"opened {made.url}")
    return Proposed.WRITTEN


async def _edit(
    forge: ProposingForge, there: Proposal, change: ProposedChange, branch: _Branch, say: Callable[[str], None]
) -> Proposed:
    changed = branch.digest != change.digest
    if changed:
        await _write(forge, change, branch)
    if changed or (there.title, there.text.strip()) != (change.title, change.text.strip()):
        await forge.edit_proposal(there.number, change.title, change.text, close=False)
        say(f"edited {there.url}")
        return Proposed.WRITTEN
    say(f"{there.url}: unchanged")
    return Proposed.SAME


async def _write(forge: ProposingForge, change: ProposedChange, branch: _Branch) -> None:
    message = f"{change.title}\n\nReconciler-Proposal: {change.digest} on {change.base}\n"
    await forge.write_branch(change.branch, change.base, change.files, message, over=branch.tip)


async def _digest_of(forge: ProposingForge, commit: str) -> str | None:
    """Return the digest of what a commit changes; None where it is not as we wrote it."""
    found = await forge.commit(commit)
    said = _MESSAGE.fullmatch(found.message.strip())
    if said is None or found.parents != (said[2],):
        return None
    return said[1] if _digest(await forge.changed(commit)) == said[1] else None


def _digest(contents: Mapping[str, str]) -> str:
    """Return the digest of path -> git's id of the content."""
    found = hashlib.sha256()
    for path, content in sorted(contents.items()):
        found.update(f"{len(path)} {path} {content} ".encode())
    return found.hexdigest()


def _blob(text: str) -> str:
    """Return git's id of the content of a file."""
    data = text.encode()
    return hashlib.sha1(b"blob %d\0%b" % (len(data), data), usedforsecurity=False).hexdigest()
