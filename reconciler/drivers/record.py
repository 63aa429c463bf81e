"""Recorders for `--record`: to a branch of a git repository, or to a directory."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import math
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from reconciler.drivers.git import GitError
from reconciler.drivers.remote_git import GitFailed, GitProgram, Remote
from reconciler.model.recording import KEPT, RecordError, Recording

_TIMEOUT_S: Final = 120.0
_GC_S: Final = 30.0
_LOCKED_S: Final = 30.0
_RETRY_S: Final = 0.05
_TRIES: Final = 8  # for writers that come at once
_DEFAULT_IDENTITY: Final = "reconciler <reconciler@localhost>"
_ABSENT: Final = ""  # git's word for a branch that must not exist
_LOG: Final = "LOG.md"


class BranchRecorder:
    """Commits each change to `branch` of the repository around `directory`, which may be bare.

    Neither work tree nor index is touched: a commit is made from its parent, and the branch is moved to it unless it
    has moved meanwhile. A branch that holds other things, or that is checked out, raises RecordError.
    """

    def __init__(self, directory: Path, branch: str, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._git = GitProgram(directory, Remote(str(directory)), timeout_s)
        self._gc = GitProgram(directory, Remote(str(directory)), min(timeout_s, _GC_S))
        self._branch = branch
        self._ref = f"refs/heads/{branch}"

    async def check(self) -> None:
        with self._errors():
            await self._check()

    async def save(self, recording: Recording) -> bool:
        with self._errors():
            await self._check()
            for _ in range(_TRIES):
                parent, old = await self._tip()
                changes = await self._changes(recording, parent)
                if not changes:
                    return False
                problem = await self._commit(recording, parent, old, changes)
                if not problem:
                    await self._collect_garbage()
                    return True
                await asyncio.sleep(0.05 + secrets.randbelow(200) / 1000)
            raise RecordError(f"can't record to branch {self._branch}: tried {_TRIES} times: {problem}")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (GitError, GitFailed) as error:
            raise RecordError(f"can't record to branch {self._branch}: {error}") from error

    async def _check(self) -> None:
        try:
            await self._git.run("check-ref-format", "--branch", self._branch)
        except GitFailed:
            raise RecordError(f"{self._branch!r} can't be the name of a branch") from None
        tree = ""
        for line in (await self._git.run("worktree", "list", "--porcelain")).splitlines():
            word, _, rest = line.partition(" ")
            tree = rest if word == "worktree" else tree
            if word == "branch" and rest == self._ref:
                raise RecordError(
                    f"branch {self._branch} is checked out in {tree}, which would look changed: record to another one"
                )
        parent, _ = await self._tip()
        if parent is not None and not await self._ask("ls-tree", "--full-tree", parent, "--", KEPT):
            raise RecordError(
                f"branch {self._branch} holds something else, for it has no {KEPT}: record to a branch of its own"
            )

    async def _tip(self) -> tuple[str | None, str]:
        """Return the next commit's parent, and the branch's commit: a fresh clone has only the remote's branch."""
        tip = await self._ask("rev-parse", "--verify", "--quiet", f"{self._ref}^{{commit}}")
        if tip is not None:
            return tip, tip
        theirs = f"refs/remotes/origin/{self._branch}^{{commit}}"
        return await self._ask("rev-parse", "--verify", "--quiet", theirs), _ABSENT

    async def _ask(self, *arguments: str) -> str | None:
        """Run a git command; return None where git says no."""
        try:
            return await self._git.run(*arguments)
        except GitFailed as error:
            if error.status is None:
                raise
            return None

    async def _changes(self, recording: Recording, parent: str | None) -> Mapping[str, bytes | None]:
        """Return new contents by path; None for a file to delete."""
        present: dict[str, str] = {}
        if parent is not None:
            listing = await self._git.run("ls-tree", "-r", "-z", "--full-tree", parent)
            for entry in filter(None, listing.split("\0")):
                facts, _, path = entry.partition("\t")
                present[path] = facts.split()[2]
        kind = await self._git.run("rev-parse", "--show-object-format")
        return _changes(recording, present, lambda data: _blob_id(kind, data))

    async def _commit(
        self, recording: Recording, parent: str | None, old: str, changes: Mapping[str, bytes | None]
    ) -> str:
        """Commit, and move the branch. Return why it could not be moved, as when another writer just has; else ""."""
        ours = f"refs/reconciler/record/{secrets.token_hex(8)}"
        stream = b"".join(_stream(recording, parent, ours, await self._identity(), changes))
        try:
            await self._git.run("fast-import", "--quiet", "--date-format=raw", stdin=stream)
            commit = await self._git.run("rev-parse", "--verify", ours)
            try:
                await self._git.run("update-ref", "-m", "reconciler --record", self._ref, commit, old)
            except GitFailed as error:
                return str(error)
        finally:
            await self._ask("update-ref", "-d", ours)
        return ""

    async def _collect_garbage(self) -> None:
        """Run `git gc --auto`, as git does after a fetch or merge, which may never come. A failure waits for the next.

        gc.recentObjectsHook names a program that gc would run and that can't be switched off: then gc is not run.
        """
        if await self._ask("config", "--get-all", "gc.recentObjectsHook"):
            return
        with suppress(GitFailed):
            await self._gc.run("gc", "--auto", "--quiet")

    async def _identity(self) -> str:
        """Return the configured committer, never one that git guesses."""
        identity = await self._ask("-c", "user.useConfigOnly=true", "var", "GIT_COMMITTER_IDENT")
        return _DEFAULT_IDENTITY if identity is None else identity.rsplit(" ", 2)[0]


def _blob_id(kind: str, data: bytes) -> str:
    """Return the blob id of a content; `kind`: the hash's name."""
    return hashlib.new(kind, b"blob %d\0" % len(data) + data).hexdigest()


def _changes(
    recording: Recording, present: Mapping[str, str], blob_id: Callable[[bytes], str]
) -> Mapping[str, bytes | None]:
    """Return new contents by path, None for a file to delete. `present`: the blob ids of the present files."""
    changes: dict[str, bytes | None] = {}
    for path, text in recording.files.items():
        data = text.encode(errors="replace")
        if present.get(path) != blob_id(data):
            changes[path] = data
    return changes | dict.fromkeys(path for path in present if recording.is_over(path))


def _stream(
    recording: Recording, parent: str | None, ref: str, who: str, changes: Mapping[str, bytes | None]
) -> Iterable[bytes]:
    """Yield a stream for git fast-import. Names of fleets, pools, nodes and runs need no quoting there."""
    message = f"{recording.subject}\n\n{recording.body.rstrip()}\n".encode(errors="replace")
    yield f"commit {ref}\ncommitter {who} {int(recording.at.timestamp())} +0000\n".encode(errors="replace")
    yield b"data %d\n%s\n" % (len(message), message)
    if parent is not None:
        yield f"from {parent}\n".encode()
    for path, data in sorted(changes.items()):
        if data is None:
            yield f"D {path}\n".encode()
        else:
            yield f"M 100644 inline {path}\n".encode() + b"data %d\n%s\n" % (len(data), data)
    yield b"\n"


class DirectoryRecorder:
    """Keeps the same files in a directory, and the messages in its LOG.md. Files are replaced atomically."""

    def __init__(self, directory: Path, *, patience_s: float = _LOCKED_S) -> None:
        self._directory = directory
        self._patience_s = patience_s

    async def check(self) -> None:
        with self._errors():
            entries = list(self._directory.iterdir()) if self._directory.is_dir() else []
            if any(path.name[0] != "." for path in entries) and not (self._directory / KEPT).exists():
                raise RecordError(
                    f"{self._directory} holds something else, for it has no {KEPT}: record to a directory of its own"
                )
            self._directory.mkdir(parents=True, exist_ok=True)
            if not os.access(self._directory, os.W_OK):
                raise RecordError(f"can't record to {self._directory}: it is not writable")

    async def save(self, recording: Recording) -> bool:
        await self.check()
        with self._errors():
            lock = await self._lock()
            return await asyncio.to_thread(self._save, recording, lock)

    def _save(self, recording: Recording, lock: BinaryIO) -> bool:
        """Write all changes under the lock, also when the caller was cancelled meanwhile."""
        with lock:
            below = (self._directory / recording.root).rglob("*.json")
            candidates = {*below, *(self._directory / name for name in recording.files)}
            present = {
                path.relative_to(self._directory).as_posix(): _blob_id("sha256", path.read_bytes())
                for path in candidates
                if path.is_file()
            }
            changes = _changes(recording, present, lambda data: _blob_id("sha256", data))
            for name, data in sorted(changes.items()):
                if data is None:
                    (self._directory / name).unlink()
                    with suppress(OSError):  # it is not empty
                        (self._directory / name).parent.rmdir()
                else:
                    self._write(name, data)
            if changes:
                self._log(recording)
            return bool(changes)

    def _log(self, recording: Recording) -> None:
        """Append the message to the log, whole or not at all."""
        body = "".join(f"    {line}".rstrip() + "\n" for line in recording.body.rstrip().splitlines())
        entry = f"{recording.at:%Y-%m-%d %H:%M:%S} UTC {recording.subject}\n\n{body}\n".encode(errors="replace")
        with (self._directory / _LOG).open("ab", buffering=0) as log:
            before = log.tell()
            try:
                while entry:
                    entry = entry[log.write(entry) :]
                os.fsync(log.fileno())
            except OSError:
                log.truncate(before)
                raise

    def _write(self, name: str, data: bytes) -> None:
        path = self._directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        try:
            with part.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())  # or a crash leaves the new name on an empty file
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)

    async def _lock(self) -> BinaryIO:
        """Wait for the writers' lock. It ends with its file, and so with its process."""
        with ExitStack() as given_up:
            lock = given_up.enter_context((self._directory / ".lock").open("wb"))
            for _ in range(math.ceil(self._patience_s / _RETRY_S)):
                if _locked(lock):
                    given_up.pop_all()
                    return lock
                await asyncio.sleep(_RETRY_S)
        raise RecordError(
            f"can't record to {self._directory}: another process has been at it for {self._patience_s:g} s"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            where = f": {error.filename}" if error.filename else ""
            raise RecordError(f"can't record to {self._directory}: {error.strerror}{where}") from error


def _locked(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
