"""Keep one pull request from a branch of ours: opened, edited in place, and closed when there is nothing to propose.

The branch holds one commit of ours. Its message has a line with the digest of what it changes, so that the same change
is not written twice, and so that a commit of somebody else is known and left alone. A pull request that a person closed
was declined: the same change is not proposed again.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.model.errors import DriverError, Failure
from reconciler.model.forge import Proposal, ProposingForge

GONE: Final = "*There is nothing to propose any more: closed by the reconciler.*"
_TRAILER: Final = re.compile(r"^Reconciler-Proposal: ([0-9a-f]{64})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class ProposedChange:
    """A change that is proposed. `branch`: of ours. `base`: commit.

    `files`: path in the repository -> text; {} = nothing. `settled`: without files, whether that is known, so that an
    open pull request is closed.
    """

    branch: str
    base: str
    files: Mapping[str, str]
    title: str
    text: str
    settled: bool = True

    @property
    def digest(self) -> str:
        """Digest of the change: of whole files, and so of what they were before, too."""
        found = hashlib.sha256()
        for path, text in sorted(self.files.items()):
            found.update(f"{len(path)} {path} {len(text)} {text}".encode())
        return found.hexdigest()


async def propose(forge: ProposingForge, change: ProposedChange, say: Callable[[str], None]) -> None:
    """Bring the pull request from the branch to where it should be. `say` gets a sentence on what was done."""
    known = await forge.proposals(change.branch)
    there = next((one for one in known if one.open), None)
    if there is not None and await _digest(forge, there) is None:
        say(f"{there.url}: somebody else has pushed to {change.branch}, so it is left alone")
    elif not change.files:
        await _settle(forge, there, change, say)
    elif there is None:
        await _open(forge, known, change, say)
    else:
        await _edit(forge, there, change, say)


async def _settle(
    forge: ProposingForge, there: Proposal | None, change: ProposedChange, say: Callable[[str], None]
) -> None:
    if there is None:
        say("nothing to propose")
    elif not change.settled:
        say(f"{there.url}: left as it is, since not everything is known now")
    else:
        await forge.edit_proposal(there.number, there.title, f"{GONE}\n\n{there.text}", close=True)
        say(f"closed {there.url}")


async def _open(
    forge: ProposingForge,
    known: Sequence[Proposal],
    change: ProposedChange,
    say: Callable[[str], None],
) -> None:
    latest = next(iter(known), None)
    declined = latest is not None and not latest.merged and not latest.text.startswith(GONE)
    if latest is not None and declined and await _digest(forge, latest) == change.digest:
        say(f"{latest.url}: the same was closed by a person, and is not proposed again")
        return
    await _write(forge, change)
    into = await forge.default_branch()
    try:
        made = await forge.open_proposal(change.branch, into, change.title, change.text)
    except DriverError as error:
        if error.kind not in (Failure.AMBIGUOUS, Failure.REJECTED):
            raise
        found = [one for one in await forge.proposals(change.branch) if one.open]  # it may have arrived
        if not found:
            raise
        made = found[0]
    say(f"opened {made.url}")


async def _edit(forge: ProposingForge, there: Proposal, change: ProposedChange, say: Callable[[str], None]) -> None:
    changed = await _digest(forge, there) != change.digest
    if changed:
        await _write(forge, change)
    if changed or (there.title, there.text.strip()) != (change.title, change.text.strip()):
        await forge.edit_proposal(there.number, change.title, change.text, close=False)
        say(f"edited {there.url}")
    else:
        say(f"{there.url}: unchanged")


async def _write(forge: ProposingForge, change: ProposedChange) -> None:
    message = f"{change.title}\n\nReconciler-Proposal: {change.digest}\n"
    await forge.write_branch(change.branch, change.base, change.files, message)


async def _digest(forge: ProposingForge, proposal: Proposal) -> str | None:
    """Return the digest in the head of a pull request; None where that commit is not ours."""
    found = _TRAILER.search(await forge.message(proposal.head))
    return None if found is None else found[1]
