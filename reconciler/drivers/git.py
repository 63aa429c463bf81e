"""The spec in git: which commit a directory is at, and its files at any revision, without a checkout.

A repository may be anybody's, a pull request's above all, and its configuration names programs: monitors, hooks,
filters, and what fetches what is missing. Reading it runs none of them. `SETTINGS` and `LOCAL` switch off those that
reading commands would run. Filters can't be switched off, for they have any name, and submodules have a configuration
of their own: no command that uses either (status, diff, blame of a work tree) is run. What lies in the work tree is
compared here, byte by byte, with what the commit holds. So nothing that hides a change from git hides it from us.
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
from reconciler.model.desired import LineOrigin, SpecSource
from reconciler.model.errors import Diagnostic, Position, SpecError, UsageError
from reconciler.spec import SpecTree, SpecWalk
from reconciler.strict_yaml.parse import UnreadableFile

if TYPE_CHECKING:
    from git import Blob, Repo
    from git import Tree as Folder

SETTINGS: Final = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "protocol.ext.allow=never")
LOCAL: Final = {  # for what has no business with a remote: a partial clone would be fetched from, by any program
    "GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_OPTIONAL_LOCKS": "0",
}  # fmt: skip
OF_A_REPOSITORY: Final = (  # git sets them for its hooks, and they would lead to another repository than was asked for
    "GIT_DIR", "GIT_WORK_TREE", "GIT_COMMON_DIR", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_NAMESPACE",
)  # fmt: skip
_LINK: Final = 0o120000
_BLAMED: Final = 16 * 1024 * 1024  # bytes of a file whose lines are looked for
_HASH: Final = re.compile(r"[0-9a-f]{40}")
_READ_BY_US: Final = (".yaml", ".yml", ".csv")


class GitError(UsageError):
    """Git can't answer: no repository, no such revision, no such directory in it."""


def describe(directory: Path) -> SpecSource:
    """Where the spec stands. Outside git, or without a git program, the commit is ""."""
    with _repository(directory) as repo:
        if repo is None:
            return SpecSource(str(directory))
        if not repo.head.is_valid():  # no commit yet
            return SpecSource(str(directory), dirty=True)
        return SpecSource(str(directory), commit=repo.head.commit.hexsha, dirty=_is_dirty(repo, directory))


def read_revision(directory: Path, rev: str) -> tuple[Mapping[str, bytes], SpecSource]:
    """Files below `directory` as they are at `rev`, by path relative to it, each read when it is asked for.

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
    """Contents of blobs by path. A spec names few of the files around it, and those alone are read, equal ones once.

    UnreadableFile for one that is larger than the loader takes, which is not read either.
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
    """The commit that set each line of a spec read from `source`. What git can't tell, or no git at all, is left out.

    One blame for each file, of the lines asked for.
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


def _blame(repo: Repo, source: SpecSource, path: str, lines: set[int], shallow: bool) -> Mapping[int, LineOrigin]:
    """Of the file at the commit. A work tree's lines are found in it first: what is not there, no commit has set."""
    from git import Blob, GitCommandError

    try:
        blob = repo.commit(source.commit).tree / path
    except KeyError:
        return dict.fromkeys(lines, LineOrigin(""))
    if not isinstance(blob, Blob):
        return {}
    at: Mapping[int, int] = {line: line for line in lines}
    if not source.rev:  # what was read is the work tree
        try:
            with (Path(str(repo.working_tree_dir)) / path).open("rb") as file:
                at = _committed(blob.data_stream.read(_BLAMED), file.read(_BLAMED), lines)
        except (OSError, ValueError):  # it is gone, or a partial clone lacks what was committed
            return {}
    new = {line: LineOrigin("") for line in lines if line not in at}
    if not at:
        return new
    spans = [word for line in sorted(at.values()) for word in ("-L", f"{line},{line}")]
    try:
        told = repo.git.blame("--porcelain", "--no-textconv", *spans, source.commit, "--", path)
    except GitCommandError:  # the file has changed since it was read
        return {}
    found = _origins(str(told), shallow)
    return new | {line: found[there] for line, there in at.items() if there in found}


def _committed(before: bytes, now: bytes, lines: set[int]) -> Mapping[int, int]:
    """Lines of `now` that stand in `before`, and where."""
    old, new = before.splitlines(), now.splitlines()
    if old == new:
        return {line: line for line in lines}
    matcher = difflib.SequenceMatcher(None, old, new)
    moved = {b + at + 1: a + at + 1 for a, b, size in matcher.get_matching_blocks() for at in range(size)}
    return {line: moved[line] for line in lines if line in moved}


def _origins(porcelain: str, shallow: bool) -> Mapping[int, LineOrigin]:
    """Of `git blame --porcelain`: hash and numbers, then what is new about the commit, then the line after a tab."""
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
    """Its path from the top of its repository, which is "" for the top itself. GitError outside git."""
    with _repository(directory) as repo:
        if repo is None:
            raise GitError(f"{directory} is not in a git repository")
        return _inside(repo, directory)


def commits_lacking(directory: Path, base: str, head: str) -> int:
    """How many commits of `base` touched the spec and are not part of `head`. GitError when one is no revision.

    0 where nobody can say: a shallow clone, as CI makes them, holds two commits and nothing that connects them.
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
    """Files by path; nothing that starts with a dot. `known`: folders by hash, since equal ones are read once."""
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
    """The repository around `directory`, which need not exist in the work tree; closed afterwards."""
    if shutil.which("git") is None:
        yield None
        return
    os.environ.setdefault("GIT_PYTHON_REFRESH", "quiet")
    for name in OF_A_REPOSITORY:  # GitPython hands all of the environment on
        os.environ.pop(name, None)
    # 100 ms, which most commands need not spend
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
            words = str(error.stderr).removeprefix("\n  stderr: ").strip(" '\n")
            raise GitError(f"git: {words.splitlines()[0] if words else error.status}") from None
        except (BadObject, ValueError) as error:
            if (found := _HASH.search(str(error))) is None:
                raise
            raise GitError(
                f"{repo.working_tree_dir} lacks object {found[0][:12]}, as a partial clone does, and nothing is "
                "fetched while a spec is read: clone it without --filter, or run git fetch --refetch in it"
            ) from None


def _resolve(repo: Repo, rev: str) -> str:
    from git import GitCommandError

    if not rev.startswith("-"):  # it would be an option
        try:
            return str(repo.git.rev_parse("--verify", "--quiet", f"{rev}^{{commit}}"))
        except GitCommandError:
            pass
    raise GitError(f"{rev!r} is not a revision of {repo.working_tree_dir}")


def _inside(repo: Repo, directory: Path) -> str:
    """Path of the directory from the top of the repository; "" for the top itself."""
    top = Path(str(repo.working_tree_dir)).resolve()
    relative = directory.resolve().relative_to(top).as_posix()
    return "" if relative == "." else relative


def _is_dirty(repo: Repo, directory: Path) -> bool:
    """Whether anything that a spec may be read from differs from the commit: changed, gone, new, or ignored by git."""
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
        if committed or name.endswith(_READ_BY_US):
            return True
        new.append(name)
    if not new:
        return False
    where = f":(top,literal){below}" if below else ":(top)"  # an index may say of any file that it is known
    with tempfile.TemporaryDirectory(prefix="reconciler-git-") as nowhere:
        none = {"GIT_INDEX_FILE": f"{nowhere}/none"}
        said = repo.git.ls_files("--others", "--exclude-standard", "-z", "--", where, env=none)
    counted = set(str(said).split("\0"))
    return any(f"{below}/{name}".lstrip("/") in counted for name in new)
