"""A forge (GitHub, GitLab): pull requests, comments, issues, approvals, the verdicts of checks, and the port to them.

A pull request is GitLab's merge request, with its IID for `number`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, runtime_checkable


class ForgeKind(StrEnum):
    GITHUB = "github"
    GITLAB = "gitlab"


@dataclass(frozen=True, slots=True)
class SpecForge:
    """The repository of a spec. `secret`: name of the token. `url`: of the API; "" for the usual one."""

    kind: ForgeKind
    repository: str
    secret: str
    url: str = ""


class Check(StrEnum):
    """The verdict on a commit, for the rules that protect a branch."""

    SUCCESS = "success"
    FAILURE = "failure"  # a person has to look
    ERROR = "error"  # nobody could judge


@dataclass(frozen=True, slots=True)
class Pull:
    """A pull request."""

    number: int
    head: str  # commit
    fork: bool = False  # from another repository than the one it is made to
    author: str = ""  # account; "" when it was deleted


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment of our account, or an issue of it with its number for `id`. `handle`: the forge's own name for it."""

    id: int
    text: str
    url: str
    handle: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A pull request from a branch of ours. `head`: commit. `open`: neither merged nor closed."""

    number: int
    head: str
    title: str
    text: str
    url: str
    open: bool
    merged: bool = False


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit. `parents`: commits."""

    message: str
    parents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """An account of the forge. A name may pass to somebody else, a number does not."""

    id: int
    name: str


@dataclass(frozen=True, slots=True)
class Said:
    """A comment of anybody."""

    account: Account
    text: str


class Forge(Protocol):
    """The forge of one repository of a spec.

    Reads follow all pages. Lists of comments and issues are of our own account alone: nobody else can make us edit
    their words, or have theirs taken for ours. Calls raise DriverError. A write that is AMBIGUOUS may have happened:
    look again before you repeat it.
    """

    async def pull(self, number: int) -> Pull:
        """Return a pull request by its number. UNSUPPORTED when there is none."""

    async def open_pulls(self) -> Sequence[Pull]:
        """Return the open pull requests."""

    async def pulls_of(self, commit: str) -> Sequence[Pull]:
        """Return the pull requests that brought a commit to the branch it is on."""

    async def approvals(self, pull: Pull) -> Sequence[Account]:
        """Return the accounts whose approval of its head stands, without its author's.

        Whoever can read a public repository may approve: `may_write` tells whose counts.
        """

    async def files(self, pull: int) -> Sequence[str]:
        """Return the paths that a pull request changes; of a renamed file, the old path and the new one."""

    async def remarks(self, pull: int) -> Sequence[Remark]:
        """Return our comments on a pull request."""

    async def said(self, pull: int, remark: int) -> Said:
        """Return a comment of anybody on a pull request. UNSUPPORTED when there is none."""

    async def may_write(self, account: Account) -> bool:
        """Return whether an account may push to the repository, as the forge says now."""

    async def add_remark(self, pull: int, text: str) -> Remark:
        """Add a comment in Markdown. Each call adds one."""

    async def edit_remark(self, remark: Remark, text: str) -> None:
        """Replace the text of a comment. Idempotent."""

    async def hide_remark(self, remark: Remark) -> None:
        """Collapse a comment as outdated: readers can still open it. Idempotent."""

    async def open_issues(self) -> Sequence[Remark]:
        """Return our open issues."""

    async def add_issue(self, title: str, text: str) -> Remark:
        """Open an issue. Each call opens one."""

    async def edit_issue(self, issue: int, title: str, text: str, *, close: bool) -> None:
        """Replace title and text of an issue, and close it or leave it open. Idempotent."""

    async def set_check(self, commit: str, name: str, verdict: Check, title: str, text: str, url: str) -> None:
        """Set the verdict on a commit, with its report where the forge takes one. The latest of a name counts."""

    async def close(self) -> None:
        """Close the connections."""


@runtime_checkable
class ProposingForge(Protocol):
    """A forge whose repository takes branches and pull requests of ours. Calls raise DriverError."""

    async def default_branch(self) -> str:
        """Return the branch that changes are made to."""

    async def proposals(self, branch: str) -> Sequence[Proposal]:
        """Return the pull requests from a branch of this repository, newest first, open or not; at most 30."""

    async def contains(self, branch: str, commit: str) -> bool:
        """Return whether a branch has a commit. A commit that the forge doesn't know is on none."""

    async def tip(self, branch: str) -> str | None:
        """Return the commit that a branch is at; None when there is no such branch."""

    async def commit(self, commit: str) -> Commit:
        """Return a commit."""

    async def changed(self, commit: str) -> Mapping[str, str]:
        """Return path -> git's id of the content for the files that a commit changes; "" for one that is gone."""

    async def write_branch(
        self, branch: str, base: str, files: Mapping[str, str], message: str, *, over: str | None
    ) -> str:
        """Make the branch anew: one commit on `base` that replaces these files, by path. Return the commit.

        `over`: the commit that the branch must be at now; None: it must not be there. CONFLICT or REJECTED where that
        is not so, and then nothing was written. A forge can't compare and write at once: it is looked at just before.
        """

    async def open_proposal(self, branch: str, into: str, title: str, text: str) -> Proposal:
        """Open a pull request. REJECTED when one is open from this branch."""

    async def edit_proposal(self, number: int, title: str, text: str, *, close: bool) -> None:
        """Replace title and text of a pull request, and close it or leave it open. Idempotent."""

    async def close(self) -> None:
        """Close the connections."""
