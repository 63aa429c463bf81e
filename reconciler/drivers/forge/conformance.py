"""Checks of a forge's driver against the port, on a repository: any driver, packaged or of an extension.

What only reads is tried first. What writes leaves its branch behind, since the port deletes none, and a closed pull
request.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Collection
from dataclasses import dataclass
from typing import Final

from reconciler.drivers.probes import Probe, WrongAnswerError, expect, run_probes
from reconciler.model.conformance import Check, ConformanceReport
from reconciler.model.errors import DriverError, Failure
from reconciler.model.forge import Forge, Proposal, ProposingForge

BRANCH: Final = "reconciler/conformance"
_FILE, _TEXT = ".reconciler-conformance", "This file shows that the reconciler can write here.\n"
_NOWHERE: Final = "0" * 40  # a commit that no repository has
_COMMIT: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PORT: Final = "reconciler/model/forge.py"
_LAST: Final = 2**31 - 1  # the number of a pull request that there is not


@dataclass(frozen=True, slots=True)
class Bench:
    """The forge that the checks work on. `pull`: a pull request to comment on; None = none was named."""

    forge: Forge
    pull: int | None = None

    @property
    def proposing(self) -> ProposingForge:
        if not isinstance(self.forge, ProposingForge):
            raise DriverError(Failure.UNSUPPORTED, "the driver takes no branches and pull requests of ours")
        return self.forge


async def _refused(call: Awaitable[object], what: str, *kinds: Failure) -> None:
    try:
        await call
    except DriverError as error:
        expect(error.kind in kinds, f"{what}: {error.kind} in place of {' or '.join(kinds)}")
    else:
        raise WrongAnswerError(f"{what} is not refused")


# --- what only reads -------------------------------------------------------------------------------------------------


async def _open_pulls(bench: Bench) -> None:
    try:
        found = await bench.forge.open_pulls()
    except DriverError as error:
        if error.kind is Failure.UNSUPPORTED:  # no driver may lack this: it is the repository that is not there
            raise DriverError(Failure.UNREACHABLE, error.detail) from None
        raise
    numbers = [one.number for one in found]
    expect(len(set(numbers)) == len(numbers) and all(one > 0 for one in numbers), f"numbers {numbers[:9]}")
    wrong = [one.head for one in found if not _COMMIT.fullmatch(one.head)]
    expect(not wrong, f"heads that are no commits: {wrong[:3]}")
    for one in found[:1]:
        expect(
            await bench.forge.pull(one.number) == one, f"pull request {one.number} is another one when it is read alone"
        )
        paths = await bench.forge.files(one.number)
        expect(not any(path.startswith("/") for path in paths), f"paths of {one.number} are not below the repository")
        own = [account.name for account in await bench.forge.approvals(one) if account.name == one.author]
        expect(not own, f"the approvals of {one.number} count its author's")


async def _no_pull(bench: Bench) -> None:
    await _refused(bench.forge.pull(_LAST), f"pull request {_LAST}, which is not there,", Failure.UNSUPPORTED)


async def _issues(bench: Bench) -> None:
    ids = [one.id for one in await bench.forge.open_issues()]
    expect(len(set(ids)) == len(ids), f"issues are listed twice: {ids[:9]}")


async def _default(bench: Bench) -> None:
    forge = bench.proposing
    branch = await forge.default_branch()
    tip = await forge.tip(branch)
    expect(tip is not None and bool(_COMMIT.fullmatch(tip)), f"{branch} is at {tip}")
    assert tip is not None
    expect(await forge.contains(branch, tip), f"{branch} does not contain its own newest commit")
    expect(all(_COMMIT.fullmatch(one) for one in (await forge.commit(tip)).parents), "parents that are no commits")


async def _nowhere(bench: Bench) -> None:
    forge = bench.proposing
    expect(
        not await forge.contains(await forge.default_branch(), _NOWHERE), "a commit that nobody has is on the branch"
    )
    expect(await forge.tip(f"{BRANCH}-nowhere") is None, "a branch that is not there has a commit")
    expect(not await forge.proposals(f"{BRANCH}-nowhere"), "a branch that is not there has pull requests")


# --- what writes -----------------------------------------------------------------------------------------------------


async def _write(bench: Bench) -> str:
    """Write our branch anew. Return its commit."""
    forge = bench.proposing
    base = await forge.tip(await forge.default_branch())
    assert base is not None
    over = await forge.tip(BRANCH)
    return await forge.write_branch(BRANCH, base, {_FILE: _TEXT}, "Check the forge\n\nof the reconciler", over=over)


async def _branch(bench: Bench) -> None:
    forge = bench.proposing
    made = await _write(bench)
    expect(await forge.tip(BRANCH) == made, "the branch is not at the commit that was made")
    commit, base = await forge.commit(made), await forge.tip(await forge.default_branch())
    expect(commit.parents == (base,), f"the commit's parents are {commit.parents}, and its base was {base}")
    expect(commit.message.strip() == "Check the forge\n\nof the reconciler", f"the message is {commit.message!r}")
    blob = hashlib.sha1(f"blob {len(_TEXT)}\0{_TEXT}".encode(), usedforsecurity=False).hexdigest()
    changed = await forge.changed(made)
    expect(changed == {_FILE: blob}, f"the commit changes {changed}, and {_FILE} with {blob} was written")
    anew = forge.write_branch(BRANCH, made, {_FILE: "other\n"}, "Never", over=_NOWHERE)
    await _refused(anew, "a write over another commit than was seen", Failure.CONFLICT, Failure.REJECTED)
    expect(await forge.tip(BRANCH) == made, "a write that was refused has moved the branch")


async def _proposal(bench: Bench) -> None:
    forge = bench.proposing
    await _write(bench)
    into = await forge.default_branch()
    for one in await forge.proposals(BRANCH):
        if one.open:
            await forge.edit_proposal(one.number, one.title, one.text, close=True)
    made = await forge.open_proposal(BRANCH, into, "Conformance", "of the reconciler")
    try:
        expect(made.open and made.number in _open(await forge.proposals(BRANCH)), "it is not listed as open")
        await _refused(forge.open_proposal(BRANCH, into, "Again", ""), "a second one from the branch", Failure.REJECTED)
    finally:
        await forge.edit_proposal(made.number, "Conformance, closed", "done", close=True)
    after = [one for one in await forge.proposals(BRANCH) if one.number == made.number]
    expect(
        [(one.open, one.title, one.merged) for one in after] == [(False, "Conformance, closed", False)],
        f"closed it is {after}",
    )


def _open(found: Collection[Proposal]) -> set[int]:
    return {one.number for one in found if one.open}


async def _remark(bench: Bench) -> None:
    forge = bench.forge
    if bench.pull is None:
        raise DriverError(Failure.UNSUPPORTED, "no pull request was named with --pull")
    made = await forge.add_remark(bench.pull, "Conformance of the reconciler")
    await forge.edit_remark(made, "Conformance of the reconciler, edited")
    ours = [one.text for one in await forge.remarks(bench.pull) if one.id == made.id]
    expect(ours == ["Conformance of the reconciler, edited"], f"after an edit our comment is {ours}")
    await forge.hide_remark(made)


READS: Final[tuple[Probe[Bench], ...]] = (
    (Check("open-pulls", f"{_PORT}: open_pulls, pull, files, approvals", "comments miss their place"), _open_pulls),
    (Check("no-such-pull", f"{_PORT}: pull", "what is not there is taken for an outage"), _no_pull),
    (Check("issues", f"{_PORT}: open_issues", "an issue of drift is opened twice"), _issues),
    (Check("default-branch", f"{_PORT}: default_branch, tip, contains, commit", "nothing is proposed"), _default),
    (Check("not-there", f"{_PORT}: contains, tip, proposals", "what nobody reviewed could be proposed"), _nowhere),
)  # fmt: skip
WRITES: Final[tuple[Probe[Bench], ...]] = (
    (Check("write-branch", f"{_PORT}: write_branch, changed", "what a person pushed to our branch could be overwritten",
           writes=f"the branch {BRANCH}"), _branch),
    (Check("write-pull", f"{_PORT}: open_proposal, edit_proposal", "nothing is proposed, or twice",
           writes=f"a pull request from {BRANCH}, which is closed"), _proposal),
    (Check("write-comment", f"{_PORT}: add_remark, edit_remark, hide_remark", "reports are not edited in place",
           writes="a comment on the pull request that was named"), _remark),
)  # fmt: skip


async def check_driver(forge: Forge, repository: str, *, pull: int | None, writes: bool) -> ConformanceReport:
    """Try the checks one after another. Without `writes` nothing is changed."""
    found = await run_probes((*READS, *WRITES), Bench(forge, pull), writes=writes)
    return ConformanceReport("forge", repository, found, {"driver": type(forge).__name__})
