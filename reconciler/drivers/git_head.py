"""Say which commit the work tree of a spec is at, and whether it differs, by two short runs of git.

Most commands want no more of a repository, and GitPython takes longer to import than a spec takes to check.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

from reconciler.drivers.git import LOCAL, REPOSITORY_VARIABLES, SETTINGS, GitError, below, lacking
from reconciler.drivers.git_compare import FOLDER_MODE, Entry, differences
from reconciler.model.desired import SpecSource
from reconciler.model.reference import FOLDER

_READ_BY_US: Final = (".yaml", ".yml", ".csv")


def describe(directory: Path) -> SpecSource:
    """Return commit and state of a spec's directory. Outside git, or without a git program, the commit is ""."""
    top = _top(directory)
    if top is None:
        return SpecSource(str(directory))
    with _Objects.opened(top) as objects:
        found = objects.head()
        if found is None:  # no commit yet
            return SpecSource(str(directory), dirty=True)
        commit, folder = found
        return SpecSource(str(directory), commit=commit, dirty=_is_dirty(objects, top, folder, directory))


def _top(directory: Path) -> Path | None:
    """Return the top of the work tree around a directory; None outside git, without a git program or a directory."""
    if shutil.which("git") is None or not directory.is_dir():
        return None
    done = _git(directory, "rev-parse", "--show-toplevel")
    if done.returncode == 0:
        return Path(os.fsdecode(done.stdout.removesuffix(b"\n")))
    message = done.stderr.decode(errors="replace").strip()
    if "not a git repository" in message:
        return None
    if "must be run in a work tree" in message:
        raise GitError(f"{directory} lies in a bare git repository")
    if "dubious ownership" in message:  # as in a container, whose volumes belong to others
        return directory  # git reads no object there, so that no commit is known
    raise GitError(f"git: {message.splitlines()[0] if message else done.returncode}")


class _Objects:
    """One `git cat-file --batch`, asked for one folder at a time: a commit may hold one folder a million times."""

    def __init__(self, top: Path, questions: IO[bytes], answers: IO[bytes]) -> None:
        self._top, self._questions, self._answers = top, questions, answers

    @classmethod
    @contextmanager
    def opened(cls, top: Path) -> Iterator[_Objects]:
        command = _command("cat-file", "--batch")
        pipe = subprocess.PIPE
        try:
            git = subprocess.Popen(
                command, cwd=top, env=_environment(), stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise _not_started(error) from None
        with git:
            assert git.stdin is not None
            assert git.stdout is not None
            try:
                yield cls(top, git.stdin, git.stdout)
            finally:
                git.kill()  # nothing is left to ask

    def head(self) -> tuple[str, str] | None:
        """Return the ids of the commit that is checked out and of its folder; None where there is no commit yet."""
        found = self._ask("HEAD^{commit}")
        return (found[0], found[1].split(maxsplit=2)[1].decode()) if found else None

    def folder(self, id_: str) -> list[Entry]:
        found = self._ask(id_)
        if found is None:
            raise lacking(str(self._top), id_)
        return list(_entries(found[1], len(id_) // 2))

    def _ask(self, name: str) -> tuple[str, bytes] | None:
        """Return id and content of an object; None where the repository lacks it."""
        try:
            os.write(self._questions.fileno(), f"{name}\n".encode())
            id_, *more = self._answers.readline().split()
            if len(more) != 2 or not more[1].isdigit():  # "<name> missing"
                return None
            return id_.decode(), self._answers.read(int(more[1]) + 1)[:-1]
        except (BrokenPipeError, ValueError):  # git has ended: the object is damaged
            return None


def _entries(tree: bytes, id_bytes: int) -> Iterator[Entry]:
    """Read a tree object: of each entry its mode in octal, a blank, its name, a zero byte and the bytes of its id."""
    at = 0
    while at < len(tree):
        end = tree.index(b"\0", at)
        mode, _, name = tree[at:end].partition(b" ")
        at = end + 1 + id_bytes
        yield Entry(os.fsdecode(name), int(mode, 8), tree[end + 1 : at].hex())


def _is_dirty(objects: _Objects, top: Path, folder: str, directory: Path) -> bool:
    """Say whether a file that a spec may be read from differs from the commit: changed, gone, new, or ignored."""
    inside = below(top, directory)
    entries = objects.folder(folder)
    for part in inside.split("/") if inside else ():
        found = next((entry for entry in entries if entry.name == part), None)
        if found is None or found.mode != FOLDER_MODE:
            return True
        entries = objects.folder(found.id)
    new: list[str] = []
    for name, committed in differences(entries, objects.folder, directory, ""):
        if committed or name.endswith(_READ_BY_US) or (name.startswith(FOLDER) and name.endswith(".json")):
            return True
        new.append(name)
    if not new:
        return False
    where = f":(top,literal){inside}" if inside else ":(top)"  # an index may claim that any file is tracked
    with tempfile.TemporaryDirectory(prefix="reconciler-git-") as nowhere:
        words = ("ls-files", "--others", "--exclude-standard", "-z", "--", where)
        done = _git(top, *words, variables={"GIT_INDEX_FILE": f"{nowhere}/none"})
    if done.returncode:
        raise GitError(f"git: {done.stderr.decode(errors='replace').strip() or done.returncode}")
    counted = set(os.fsdecode(done.stdout).split("\0"))
    return any(f"{inside}/{name}".lstrip("/") in counted for name in new)


def _git(
    directory: Path, *words: str, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    environment = {**_environment(), **(variables or {})}
    try:
        return subprocess.run(
            _command(*words), cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True, check=False
        )
    except OSError as error:
        raise _not_started(error) from None


def _not_started(error: OSError) -> GitError:
    return GitError(f"git can't be started: {error.strerror}")


def _command(*words: str) -> Sequence[str]:
    return ["git", *(word for setting in SETTINGS for word in ("-c", setting)), *words]


def _environment() -> dict[str, str]:
    """Return our environment for git: no other repository, nothing fetched, plain English, mounts are crossed."""
    own = {name: value for name, value in os.environ.items() if name not in REPOSITORY_VARIABLES}
    return own | LOCAL | {"LC_ALL": "C", "GIT_DISCOVERY_ACROSS_FILESYSTEM": "1"}
