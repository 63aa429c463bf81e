"""Follow a branch of a git repository, and bring its commits into force as the spec.

A commit comes into force when it follows the one before it, is signed by an allowed signer, and holds a valid spec.
Whatever else happens (the remote hangs, the spec is broken, history is rewritten) leaves the last good spec in force,
across restarts too: its commit is a ref of our clone.

Rewritten history is refused, signed or not: an old commit keeps its good signature, so that somebody who may push but
not sign could bring back any former spec, and a stale branch pushed by mistake would do the same. To go back, revert,
which makes a commit like any other; or name the commit (`accept`).

There is no work tree: files are read from the commit.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from reconciler.drivers.git import GitError, read_revision
from reconciler.drivers.remote_git import GitFailed, GitProgram, Remote
from reconciler.drivers.secrets import Credentials
from reconciler.drivers.signers import Signers, changing
from reconciler.model.desired import Fleet
from reconciler.model.errors import Diagnostic, SpecError, UsageError
from reconciler.model.spec_feed import Fits, Pulled, Trouble, fits_all
from reconciler.spec import check_spec

TIMEOUT_S: Final = 60.0
_FIRST: Final = 10.0  # times the deadline, for the first fetch, which brings all of history
_LEFTOVERS: Final = (
    ".git/**/*.lock",
    ".git/objects/pack/tmp_*",
)  # left by a git that was killed: the lock keeps others out
_HASH: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_CHOSEN: Final = "refs/reconciler/chosen"  # the commit that a person accepted last: it counts once


_OUTAGE: Final = (Trouble.UNREACHABLE, "")  # one problem, however its messages differ


@dataclass(frozen=True, slots=True)
class _Refusal:
    trouble: Trouble
    detail: str
    diagnostics: tuple[Diagnostic, ...] = ()
    lasting: bool = True  # the commit alone is the reason, and can't change


class SpecRepo:
    """A spec that follows a branch.

    `state`: a directory for the clone and a lock. `path`: the spec's in the repository, "" for its top. `branch`: ""
    for the remote's default. `accept`: the full hash of a commit on the branch; newer ones may follow it once, whatever
    was in force before, and the newest must be signed all the same.

    UsageError for impossible arguments, a state that another process uses, or a missing git program.
    """

    def __init__(
        self,
        url: str,
        *,
        state: Path,
        branch: str = "",
        path: str = "",
        signers: Signers = Signers(),  # noqa: B008 - it is frozen
        credentials: Credentials | None = None,
        accept: str = "",
        timeout_s: float = TIMEOUT_S,
        fits: Fits = fits_all,
    ) -> None:
        if Path(path).is_absolute() or ".." in Path(path).parts:
            raise UsageError(f"{path!r} is not a directory inside a repository")
        if branch.startswith(("-", "+")) or ":" in branch:
            raise UsageError(f"{branch!r} is not the name of a branch")
        if accept and not _HASH.fullmatch(accept):
            raise UsageError(f"{accept!r} is not the full hash of a commit")
        signers.check()
        self._fits = fits
        self._branch, self._signers, self._accept = branch, signers, accept
        self._state, self._clone = state, state / "repository"
        self._path = Path(path).as_posix() if Path(path).parts else ""
        self.remote = Remote.parse(url, credentials)
        self._git = GitProgram(self._clone, self.remote, timeout_s)
        self._ref = f"refs/reconciler/accepted/{branch or 'HEAD'}"
        self._lock: int | None = None
        self._accepted = ""  # the commit that newer ones must follow: in force now, or when this last ran
        self._commit, self._head = "", ""
        self._broken: tuple[str, _Refusal] | None = None  # a commit whose spec was found to be invalid
        self._warnings: tuple[Diagnostic, ...] = ()
        self._reported: set[tuple[Trouble, str]] = set()
        self.fleet: Fleet | None = None  # the spec in force

    async def pull(self) -> Pulled:
        """Look for a newer commit. Raises nothing for faults of remote or spec; ends within a few deadlines."""
        before = self._commit
        refusal = await self._pull()
        changed = self._commit != before
        if refusal is None or refusal.trouble is not Trouble.UNREACHABLE:
            self._reported.discard(_OUTAGE)
        if refusal is None:
            return Pulled(self._commit, changed, self._head, diagnostics=self._warnings if changed else ())
        about = _OUTAGE if refusal.trouble is Trouble.UNREACHABLE else (refusal.trouble, self._head)
        is_new = about not in self._reported
        self._reported.add(about)
        return Pulled(self._commit, changed, self._head, refusal.trouble, refusal.detail, is_new, refusal.diagnostics)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    # --- steps of a pull -----------------------------------------------------------------------------------------

    async def _pull(self) -> _Refusal | None:
        try:
            await self._open()
            self._head = await self._git.fetch(
                f"refs/heads/{self._branch}" if self._branch else "HEAD", patience=1.0 if self._accepted else _FIRST
            )
        except (GitFailed, OSError) as failure:
            return _Refusal(Trouble.UNREACHABLE, f"{self.remote}: {failure}")
        try:
            return await self._consider(self._head)
        except (GitFailed, OSError) as failure:  # our own clone fails, or the disk is full
            return _Refusal(Trouble.UNREACHABLE, f"{self._clone}: {failure}")

    async def _open(self) -> None:
        """Open the clone, lock it, and read the spec that was in force when this last ended; once."""
        if self._lock is None:
            self._lock = await asyncio.to_thread(self._take_state)
        for pattern in _LEFTOVERS:
            for stale in self._clone.glob(pattern):
                stale.unlink(missing_ok=True)
        if self._accepted:
            return
        await self._git.run("init", "--quiet", "--template=")
        self._accepted = await self._ask("rev-parse", "--verify", "--quiet", f"{self._ref}^{{commit}}")
        if self._accepted and not await self._distrust([self._accepted]):
            await self._take(self._accepted, chosen=False)

    def _take_state(self) -> int:
        try:
            self._state.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._clone.mkdir(exist_ok=True)
            lock = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise UsageError(f"{self._state} can't hold the clone of the spec: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise UsageError(f"{self._state} is in use by another reconciler") from None
        return lock

    async def _consider(self, commit: str) -> _Refusal | None:
        """Bring a commit into force; return why not, None also when it is in force already."""
        if commit == self._commit:
            return None
        base, chosen = await self._base(commit)
        trusted = [commit]
        if base and base != commit:
            if not await self._is_ancestor(base, commit):
                return _Refusal(Trouble.REWRITTEN, self._rewritten(commit))
            if not chosen and self._commit and await self._tree(commit) == await self._tree(self._commit):
                return None
            trusted = [*await changing(self._git, self._path, base, commit), commit]
        if problem := await self._distrust(trusted):
            return _Refusal(Trouble.UNSIGNED, problem)
        return await self._take(commit, chosen=chosen)

    async def _distrust(self, commits: list[str]) -> str:
        return await self._signers.refusal(self._git, commits) if self._signers else ""

    async def _base(self, commit: str) -> tuple[str, bool]:
        """Return the commit that `commit` must follow, and whether a person chose it."""
        if self._accept and self._accept != await self._ask("rev-parse", "--verify", "--quiet", _CHOSEN):
            known = await self._ask("rev-parse", "--verify", "--quiet", f"{self._accept}^{{commit}}")
            if known and await self._is_ancestor(known, commit):
                return known, True
        return self._accepted, False

    async def _take(self, commit: str, *, chosen: bool) -> _Refusal | None:
        if self._broken is not None and self._broken[0] == commit:
            return self._broken[1]
        fleet, refusal = await asyncio.to_thread(self._read, commit)
        if refusal is not None:
            self._broken = (commit, refusal) if refusal.lasting else None
            return refusal
        await self._git.run("update-ref", self._ref, commit)
        if chosen:
            await self._git.run("update-ref", _CHOSEN, self._accept)
        self._accepted = self._commit = commit
        self.fleet = fleet
        return None

    def _read(self, commit: str) -> tuple[Fleet | None, _Refusal | None]:
        directory = self._clone / self._path
        try:
            files, source = read_revision(directory, commit)
            source = replace(source, rev=self._branch or "HEAD")
            fleet, diagnostics = check_spec(files, directory=str(directory), origin=source)
        except GitError as error:
            return None, _Refusal(Trouble.INVALID, str(error))
        except SpecError as error:
            fleet, diagnostics = None, error.diagnostics
        if fleet is None:
            first = next((found for found in diagnostics if found.severity == "error"), diagnostics[0])
            more = f", and {len(diagnostics) - 1} more" if len(diagnostics) > 1 else ""
            return None, _Refusal(Trouble.INVALID, f"commit {commit[:12]}: {first}{more}", diagnostics)
        try:
            self._fits(fleet)
        except UsageError as error:
            return None, _Refusal(Trouble.INVALID, f"commit {commit[:12]}: {error}", lasting=False)
        self._warnings = diagnostics
        return fleet, None

    # --- questions to the clone ----------------------------------------------------------------------------------

    async def _ask(self, *arguments: str) -> str:
        """Run a git command; return "" where git says no (exit status 1)."""
        try:
            return await self._git.run(*arguments)
        except GitFailed as failure:
            if failure.status != 1:
                raise
            return ""

    async def _is_ancestor(self, earlier: str, commit: str) -> bool:
        return await self._ask("merge-base", earlier, commit) == earlier

    async def _tree(self, commit: str) -> str:
        return await self._ask("rev-parse", "--verify", "--quiet", f"{commit}:{self._path}")

    def _rewritten(self, commit: str) -> str:
        return (
            f"commit {commit[:12]} does not follow {self._accepted[:12]}, which is in force: history was rewritten. "
            f"Revert what is to go in a new commit, or accept {commit} by its hash"
        )
