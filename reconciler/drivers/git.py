"""Read the spec from git: the commit of a directory, and its files at any revision, without a checkout.

A repository may be anybody's, as with a pull request, and its configuration names programs: monitors, hooks, filters,
remote helpers. Reading it runs none of them. `SETTINGS` and `LOCAL` switch off those that reading commands would run.
Filters can't be switched off, as they may have any name, and submodules have a configuration of their own: no command
that uses either (status, diff, blame of a work tree) is run. The work tree is compared here, byte by byte, with the
commit, so that nothing that hides a change from git hides it from us.

Two clients, each for what the other does worse:

    here, GitPython     trees and blobs come from one `git cat-file --batch` that stays open, each read when it is asked
                        for, equal folders once: without it, a process per blob or a batch protocol of our own. The few
                        commands (rev-parse, rev-list, blame, ls-files) are short and local
    remote_git, git     fetch, gc: have to end at a deadline and when a task is cancelled, with all their children.
                        GitPython blocks a thread; its `kill_after_timeout` finds children by `pgrep` or `ps`, which
                        small images lack, and sends SIGKILL, which leaves locks and half packs behind
                        verify-commit, fetch: need variables removed (GIT_DIR, SSH_ASKPASS); GitPython passes on all of
                        os.environ and only adds to it
                        fast-import: reads from memory; GitPython's `istream` is a file
                        all: GitCommandError quotes command and stderr, and hides a password only in a URL of its own
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.drivers.git_compare import differences
from reconciler.drivers.merge_requests import FORMAT, brought
from reconciler.model.desired import LineOrigin, SpecSource
from reconciler.model.errors import Diagnostic, Position, SpecError, UsageError
from reconciler.model.reference import FOLDER
from reconciler.spec import SpecTree, SpecWalk
from reconciler.strict_yaml.parse import UnreadableFile

if TYPE_CHECKING:
    from git import Blob, Repo
    from git import Tree as Folder

SETTINGS: Final = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.ext.allow=never")
LOCAL: Final = {  # for commands without a remote: a partial clone would fetch, by any program
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_OPTIONAL_LOCKS": "0",
}
REPOSITORY_VARIABLES: Final = (  # git sets them for its hooks; they would lead to another repository
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_NAMESPACE",
)
_LINK: Final = 0o120000
_SEARCHED: Final = 10_000  # commits whose requests are known
_BLAMED: Final = 16 * 1024 * 1024  # bytes of a file that are searched for lines
_HASH: Final = re.compile(r"[0-9a-f]{40}")
_READ_BY_US: Final = (".yaml", ".yml", ".csv")


class GitError(UsageError):
    """Raised where git can't answer: no repository, no such revision, no such directory in it."""


def describe(directory: Path) -> SpecSource:
    """Return commit and state of a spec's directory. Outside git, or without a git program, the commit is ""."""
    with _repository(directory) as repo:
        if repo is None:
            return SpecSource(str(directory))
        if not repo.head.is_valid():  # no commit yet
            return SpecSource(str(directory), dirty=True)
        return SpecSource(str(directory), commit=repo.head.commit.hexsha, dirty=_is_dirty(repo, directory))


def read_revision(directory: Path, rev: str) -> tuple[Mapping[str, bytes], SpecSource]:
    """Return the files below `directory` at `rev`, by path relative to it, each read when it is asked for.

    GitError; SpecError for links, and for more files than a spec can have.
    """
    with _repository(directory) as repo:
        if repo is None:
            reason = "not in a git repository" if shutil.which("git") else "there is no git program on the PATH"
            raise GitError(f"can't read {directory} at {rev}: {reason}")
        from git import Tree as Folder

        commit = repo.commit(_resolve(repo, rev))
        below = _inside(repo, directory)
        try:
            folder = commit.tree / below if below else commit.tree
        except KeyError:
            raise GitError(f"{rev} ({commit.hexsha[:12]}) has no {below}") from None
        if not isinstance(folder, Folder):
            raise GitError(f"{below} is not a directory at {rev} ({commit.hexsha[:12]})")
        tree = SpecTree({}, str(directory))
        try:
            blobs = dict(_blobs_of(folder, "", tree.walk(), 0, {}))
        except UnreadableFile as problem:
            raise SpecError((problem.diagnostic,)) from None
        links = [
            Diagnostic(tree.where(name), "", "a symbolic link", "a spec holds plain files only")
            for name, blob in blobs.items()
            if blob.mode == _LINK
        ]
        if links:
            raise SpecError(tuple(links))
        return _Files(blobs, tree), SpecSource(str(directory), commit=commit.hexsha, rev=rev)


class _Files(Mapping[str, bytes]):
    """Contents of blobs by path. Only the files that a spec names are read, equal ones once.

    A file that is larger than the loader accepts is not read; it raises UnreadableFile.
    """

    def __init__(self, blobs: Mapping[str, Blob], tree: SpecTree) -> None:
        self._blobs, self._tree = blobs, tree
        self._read: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> bytes:
        blob = self._blobs[name]
        if blob.hexsha not in self._read:
            try:
                self._tree.check_size(name, blob.size)
                self._read[blob.hexsha] = blob.data_stream.read()
            except (ValueError, OSError) as error:  # the repository lacks the object, or git ended
                raise GitError(f"can't read {self._tree.where(name)} ({blob.hexsha[:12]}) from git: {error}") from None
        return self._read[blob.hexsha]

    def __iter__(self) -> Iterator[str]:
        return iter(self._blobs)

    def __len__(self) -> int:
        return len(self._blobs)


def origins(source: SpecSource, places: Iterable[Position]) -> Mapping[Position, LineOrigin]:
    """Return the commit that set each line of a spec read from `source`, by position; unknown ones are left out.

    It takes one `git blame` per file, of the wanted lines.
    """
    wanted: dict[str, list[Position]] = {}
    for place in places:
        if place.line:
            wanted.setdefault(place.file, []).append(place)
    directory, found = Path(source.directory), dict[Position, LineOrigin]()
    with _repository(directory) as repo:
        if repo is None or not source.commit:
            return found
        below = _inside(repo, directory)
        shallow = str(repo.git.rev_parse("--is-shallow-repository")) == "true"
        for file, places_in in wanted.items():
            path = f"{below}/{file.removeprefix(source.directory).lstrip('/')}".lstrip("/")
            lines = _blame(repo, source, path, {place.line for place in places_in}, shallow)
            found |= {place: lines[place.line] for place in places_in if place.line in lines}
    return found


def requests(source: SpecSource) -> Mapping[str, int]:
    """Return the number of the pull or merge request that brought each of the newest commits of a spec."""
    from git import GitCommandError

    with _repository(Path(source.directory)) as repo:
        if repo is None or not source.commit:
            return {}
        try:  # rev-list, since `log` would run the program that log.showSignature takes
            listing = repo.git.rev_list(FORMAT, f"--max-count={_SEARCHED}", source.commit)
        except GitCommandError:  # a partial clone
            return {}
    return brought(str(listing))


def _blame(repo: Repo, source: SpecSource, path: str, lines: set[int], shallow: bool) -> Mapping[int, LineOrigin]:
    """Blame lines of a file at the commit. A work tree's lines are looked up there first; new ones have no commit."""
    from git import Blob, GitCommandError

    try:
        blob = repo.commit(source.commit).tree / path
    except KeyError:
        return dict.fromkeys(lines, LineOrigin(""))
    if not isinstance(blob, Blob):
        return {}
    at: Mapping[int, int] = {line: line for line in lines}
    if not source.rev:  # the work tree was read
        try:
            with (Path(str(repo.working_tree_dir)) / path).open("rb") as file:
                at = _committed(blob.data_stream.read(_BLAMED), file.read(_BLAMED), lines)
        except (OSError, ValueError):  # the file is gone, or a partial clone lacks the blob
            return {}
    new = {line: LineOrigin("") for line in lines if line not in at}
    if not at:
        return new
    spans = [word for line in sorted(at.values()) for word in ("-L", f"{line},{line}")]
    try:
        output = repo.git.blame("--porcelain", "--no-textconv", *spans, source.commit, "--", path)
    except GitCommandError:  # the file has changed since it was read
        return {}
    found = _origins(str(output), shallow)
    return new | {line: found[there] for line, there in at.items() if there in found}


def _committed(before: bytes, now: bytes, lines: set[int]) -> Mapping[int, int]:
    """Map lines of `now` that are in `before` to their numbers there."""
    old, new = before.splitlines(), now.splitlines()
    if old == new:
        return {line: line for line in lines}
    matcher = difflib.SequenceMatcher(None, old, new)
    moved = {b + at + 1: a + at + 1 for a, b, size in matcher.get_matching_blocks() for at in range(size)}
    return {line: moved[line] for line in lines if line in moved}


def _origins(porcelain: str, shallow: bool) -> Mapping[int, LineOrigin]:
    """Parse `git blame --porcelain`: hash and numbers, then headers of a new commit, then the line after a tab."""
    about: dict[str, dict[str, str]] = {}
    found: dict[int, LineOrigin] = {}
    commit, line = "", 0
    for text in porcelain.split("\n"):
        if text.startswith("\t"):
            known = about[commit]
            if not commit.strip("0"):
                found[line] = LineOrigin("")
                continue
            at = datetime.fromtimestamp(int(known["author-time"]), UTC)
            found[line] = LineOrigin(commit, known["author"], at, known["summary"], shallow and "boundary" in known)
            continue
        word, _, rest = text.partition(" ")
        if len(word) in (40, 64):  # no key of a header is as long as a hash
            commit, line = word, int(rest.split()[1])
            about.setdefault(commit, {})
        elif word:
            about[commit][word] = rest
    return found


def folder(directory: Path) -> str:
    """Return the directory's path from the top of its repository, "" for the top. GitError outside git."""
    with _repository(directory) as repo:
        if repo is None:
            raise GitError(f"{directory} is not in a git repository")
        return _inside(repo, directory)


def commits_lacking(directory: Path, base: str, head: str) -> int:
    """Count the commits of `base` that touched the spec and are not in `head`. GitError when one is no revision.

    0 where that is unknown: a shallow clone, as in CI, holds two commits and nothing that connects them.
    """
    with _repository(directory) as repo:
        if repo is None:
            raise GitError(f"can't compare revisions of {directory}: it is not in a git repository")
        ours, theirs = _resolve(repo, base), _resolve(repo, head)
        if not repo.merge_base(ours, theirs):
            return 0
        below = f":(top){_inside(repo, directory) or '.'}"
        return int(repo.git.rev_list("--count", f"{theirs}..{ours}", "--", below))


def _blobs_of(
    folder: Folder, prefix: str, walk: SpecWalk, depth: int, known: dict[bytes, Folder]
) -> Iterator[tuple[str, Blob]]:
    """Yield files by path, except hidden ones. `known`: folders by hash, since equal ones are read once."""
    from git import Blob
    from git import Tree as Folder

    where = walk.tree.where(prefix)
    folder = known.setdefault(folder.binsha, folder)
    walk.tree.check_size(prefix, folder.size)
    try:
        items = list(folder)
    except (TypeError, ValueError) as error:  # an entry of a mode that git does not have, an object that is no tree
        raise UnreadableFile(where, f"git can't list this folder: {error}") from None
    for item in items:
        name = prefix + str(item.name)
        walk.visit(name, depth)
        if item.name.startswith("."):
            continue
        if isinstance(item, Folder):
            yield from _blobs_of(item, f"{name}/", walk, depth + 1, known)
        elif isinstance(item, Blob):
            yield name, item


@contextmanager
def _repository(directory: Path) -> Iterator[Repo | None]:
    """Open the repository around `directory`, which need not exist in the work tree."""
    if shutil.which("git") is None:
        yield None
        return
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    for name in REPOSITORY_VARIABLES:  # GitPython hands all of the environment on
        os.environ.pop(name, None)
    # Importing GitPython takes 100 ms, which most commands do not need.
    from git import BadObject, GitCommandError, InvalidGitRepositoryError, Repo

    existing = directory.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        repo = Repo(existing, search_parent_directories=True, expand_vars=False)
    except InvalidGitRepositoryError:
        yield None
        return
    with repo:
        if repo.working_tree_dir is None:
            raise GitError(f"{existing} lies in a bare git repository")
        repo.git.set_persistent_git_options(c=list(SETTINGS))
        repo.git.update_environment(**LOCAL)
        try:
            yield repo
        except GitCommandError as error:
            message = str(error.stderr).removeprefix("\n  stderr: ").strip(" '\n")
            raise GitError(f"git: {message.splitlines()[0] if message else error.status}") from None
        except (BadObject, ValueError) as error:
            if (found := _HASH.search(str(error))) is None:
                raise
            raise GitError(
                f"{repo.working_tree_dir} lacks object {found[0][:12]}, as a partial clone does, and nothing is "
                "fetched while a spec is read: clone it without --filter, or run git fetch --refetch in it"
            ) from None


def _resolve(repo: Repo, rev: str) -> str:
    from git import GitCommandError

    if not rev.startswith("-"):  # git would take it for an option
        try:
            return str(repo.git.rev_parse("--verify", "--quiet", f"{rev}^{{commit}}"))
        except GitCommandError:
            pass
    raise GitError(f"{rev!r} is not a revision of {repo.working_tree_dir}")


def _inside(repo: Repo, directory: Path) -> str:
    """Return the directory's path from the top of the repository, "" for the top."""
    top = Path(str(repo.working_tree_dir)).resolve()
    relative = directory.resolve().relative_to(top).as_posix()
    return "" if relative == "." else relative


def _is_dirty(repo: Repo, directory: Path) -> bool:
    """Say whether a file that a spec may be read from differs from the commit: changed, gone, new, or ignored."""
    from git import Tree

    below = _inside(repo, directory)
    try:
        tree = repo.head.commit.tree / below if below else repo.head.commit.tree
    except KeyError:
        return True
    if not isinstance(tree, Tree):
        return True
    new: list[str] = []
    for name, committed in differences(tree, directory, ""):
        if committed or name.endswith(_READ_BY_US) or (name.startswith(FOLDER) and name.endswith(".json")):
            return True
        new.append(name)
    if not new:
        return False
    where = f":(top,literal){below}" if below else ":(top)"  # an index may claim that any file is tracked
    with tempfile.TemporaryDirectory(prefix="reconciler-git-") as nowhere:
        none = {"GIT_INDEX_FILE": f"{nowhere}/none"}
        listed = repo.git.ls_files("--others", "--exclude-standard", "-z", "--", where, env=none)
    counted = set(str(listed).split("\0"))
    return any(f"{below}/{name}".lstrip("/") in counted for name in new)
