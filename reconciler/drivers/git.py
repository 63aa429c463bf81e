"""The spec in git: which commit a directory is at, and its files at any revision, without a checkout."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from reconciler.model.desired import LineOrigin, SpecSource
from reconciler.model.errors import Diagnostic, Position, SpecError, UsageError
from reconciler.spec.load import MAX_OTHER_BYTES, Problem, Tree, Walk, most_bytes, too_large

if TYPE_CHECKING:
    from git import Blob, Repo
    from git import Tree as Folder

_LINK: Final = 0o120000
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
        tree = Tree({}, str(directory))
        try:
            blobs = dict(_blobs_of(folder, "", Walk(tree), 0, {}))
        except Problem as problem:
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

    Problem for one that is larger than the loader takes, which is not read either.
    """

    def __init__(self, blobs: Mapping[str, Blob], tree: Tree) -> None:
        self._blobs, self._tree = blobs, tree
        self._read: dict[str, bytes] = {}

    def __getitem__(self, name: str) -> bytes:
        blob = self._blobs[name]
        if blob.hexsha not in self._read:
            try:
                if blob.size > most_bytes(name):
                    raise too_large(self._tree.where(name), most_bytes(name))
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
    from git import GitCommandError

    tracked = repo.git.ls_tree("--name-only", source.commit, "--", path)
    if not tracked:
        return dict.fromkeys(lines, LineOrigin(""))
    spans = [word for line in sorted(lines) for word in ("-L", f"{line},{line}")]
    at = [source.commit] if source.rev else []  # what was read is the work tree, or a revision
    try:
        told = repo.git.blame("--porcelain", "--no-textconv", *spans, *at, "--", path)
    except GitCommandError:  # the file has changed since it was read
        return {}
    return _origins(str(told), shallow)


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
    folder: Folder, prefix: str, walk: Walk, depth: int, known: dict[bytes, Folder]
) -> Iterator[tuple[str, Blob]]:
    """Files by path; nothing that starts with a dot. `known`: folders by hash, since equal ones are read once."""
    from git import Blob
    from git import Tree as Folder

    where = walk.tree.where(prefix)
    folder = known.setdefault(folder.binsha, folder)
    if folder.size > MAX_OTHER_BYTES:
        raise too_large(where, MAX_OTHER_BYTES)
    try:
        items = list(folder)
    except (TypeError, ValueError) as error:  # an entry of a mode that git does not have, an object that is no tree
        raise Problem(where, f"git can't list this folder: {error}") from None
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
    from git import GitCommandError, InvalidGitRepositoryError, Repo  # 100 ms, which most commands need not spend

    existing = directory.absolute()
    while not existing.exists():
        existing = existing.parent
    try:
        repo = Repo(existing, search_parent_directories=True)
    except InvalidGitRepositoryError:
        yield None
        return
    with repo:
        if repo.working_tree_dir is None:
            raise GitError(f"{existing} lies in a bare git repository")
        try:
            yield repo
        except GitCommandError as error:
            words = str(error.stderr).removeprefix("\n  stderr: ").strip(" '\n")
            raise GitError(f"git: {words.splitlines()[0] if words else error.status}") from None


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
    """Whether anything that a spec is read from differs from the commit: changed, new, or ignored by git."""
    below = _inside(repo, directory) or "."
    status = str(repo.git.status("--porcelain", "-z", "--untracked-files=all", "--ignored", "--", f":(top){below}"))
    entries = [entry for entry in status.split("\0") if entry]
    return any(not entry.startswith("!!") or entry.endswith(_READ_BY_US) for entry in entries)
