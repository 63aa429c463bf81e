"""Recorders of `--record`, on real repositories and directories."""

from __future__ import annotations

import asyncio
import fcntl
import os
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.drivers.record import BranchRecorder, DirectoryRecorder
from reconciler.model.recording import KEPT, Recorder, RecordError, Recording

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOBODY = {"HOME": "/nonexistent", "XDG_CONFIG_HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def git(directory: Path, *words: str, stdin: str = "") -> str:
    environment = {key: text for key, text in os.environ.items() if not key.startswith("GIT_")} | NOBODY
    done = subprocess.run(
        ["git", *words], cwd=directory, capture_output=True, text=True, env=environment, input=stdin, check=True
    )
    return done.stdout.strip()


@pytest.fixture(autouse=True)
def nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git knows no name of anybody."""
    for name in [name for name in os.environ if name.startswith(("GIT_", "EMAIL"))]:
        monkeypatch.delenv(name)
    for name, value in NOBODY.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """Make a repository with a commit, a staged, a changed and an untracked file."""
    top = tmp_path / "repo"
    spec = top / "fleet-spec"
    spec.mkdir(parents=True)
    git(top, "init", "-q", "-b", "main")
    (spec / "fleet.yaml").write_text("kind: Fleet\n")
    git(top, "add", ".")
    git(top, "-c", "user.name=me", "-c", "user.email=me@example.com", "commit", "-q", "-m", "as it is")
    (spec / "staged.yaml").write_text("a: 1\n")
    git(top, "add", ".")
    (spec / "fleet.yaml").write_text("kind: Changed\n")
    (spec / "new.yaml").write_text("b: 2\n")
    return top


def recording(
    subject: str = "drift: 1 node differs (1 host)", nodes: frozenset[str] | None = None, **files: str
) -> Recording:
    """`files`: by node, the text of its drift."""
    tree = {f"lab/drift/train/{node}.json": text for node, text in files.items()}
    return Recording(subject, "said\nin full\n", NOW, {KEPT: "# ours\n", **tree}, "lab/drift/", nodes)


def save(recorder: Recorder, what: Recording) -> bool:
    return asyncio.run(recorder.save(what))


def tree(directory: Path, rev: str = "record") -> Mapping[str, str]:
    names = git(directory, "ls-tree", "-r", "--name-only", "--full-tree", rev).splitlines()
    return {name: git(directory, "show", f"{rev}:{name}") for name in names}


# --- a branch ---------------------------------------------------------------------------------------------------------


def test_a_branch_begins_with_the_first_change_and_reads_as_a_log(repo: Path) -> None:
    recorder = BranchRecorder(repo / "fleet-spec", "record")
    assert save(recorder, recording(a="one\n"))
    assert save(recorder, recording("drift: 2 nodes differ (2 host)", a="one\n", b="two\n"))
    assert save(recorder, recording("drift: no node differs"))
    assert git(repo, "log", "--format=%s", "record").splitlines() == [
        "drift: no node differs", "drift: 2 nodes differ (2 host)", "drift: 1 node differs (1 host)",
    ]  # fmt: skip
    assert git(repo, "log", "-1", "--format=%b|%an|%ae|%cI", "record") == (
        "said\nin full\n|reconciler|reconciler@localhost|2026-11-21T12:00:00+00:00"
    )
    assert tree(repo, "record~1") == {
        KEPT: "# ours", "lab/drift/train/a.json": "one", "lab/drift/train/b.json": "two",
    }  # fmt: skip
    assert tree(repo) == {KEPT: "# ours"}
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""
    assert git(repo, "for-each-ref", "--format=%(refname)").split() == ["refs/heads/main", "refs/heads/record"]


def test_nothing_new_is_no_commit(repo: Path) -> None:
    recorder = BranchRecorder(repo / "fleet-spec", "record")
    save(recorder, recording(a="one\n"))
    first = git(repo, "rev-parse", "record")
    assert not save(recorder, recording("drift: said otherwise", a="one\n"))
    assert git(repo, "rev-parse", "record") == first


def test_work_tree_and_index_stay_as_they_are(repo: Path) -> None:
    def state() -> tuple[str, str, str, bytes]:
        index = (repo / ".git" / "index").read_bytes()
        return git(repo, "status", "--porcelain"), git(repo, "diff"), git(repo, "rev-parse", "HEAD"), index

    git(repo, "status")  # refreshes the index
    before = state()
    save(BranchRecorder(repo / "fleet-spec", "record"), recording(a="one\n"))
    assert state() == before
    assert sorted(path.name for path in repo.iterdir()) == [".git", "fleet-spec"]


def test_a_look_at_some_nodes_says_nothing_of_the_others(repo: Path) -> None:
    recorder = BranchRecorder(repo, "record")
    save(recorder, recording(a="one\n", b="two\n"))
    save(recorder, recording(nodes=frozenset({"a"})))
    assert set(tree(repo)) == {KEPT, "lab/drift/train/b.json"}


def test_what_runs_did_stays(repo: Path) -> None:
    recorder = BranchRecorder(repo, "record")
    done = recording(a="one\n")
    save(recorder, Recording("apply: 1 done", "", NOW, {**done.files, "lab/applies/run-1.json": "{}\n"}, done.root))
    save(recorder, recording())
    assert set(tree(repo)) == {KEPT, "lab/applies/run-1.json"}


def test_a_bare_repository_and_one_with_a_detached_head(repo: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "-q", "--bare", str(repo), str(bare))
    assert save(BranchRecorder(bare, "record"), recording(a="one\n"))
    assert tree(bare)["lab/drift/train/a.json"] == "one"
    git(repo, "checkout", "-q", "--detach")
    assert save(BranchRecorder(repo, "record"), recording(a="one\n"))
    assert tree(repo) == tree(bare)


def test_a_repository_of_the_other_hash(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main", "--object-format=sha256", "new")
    recorder = BranchRecorder(tmp_path / "new", "record")
    assert save(recorder, recording(a="one\n"))
    assert not save(recorder, recording(a="one\n"))


def test_a_clone_goes_on_where_the_remote_is(repo: Path, tmp_path: Path) -> None:
    save(BranchRecorder(repo, "record"), recording(a="one\n"))
    git(tmp_path, "clone", "-q", str(repo), "clone")
    clone = tmp_path / "clone"
    recorder = BranchRecorder(clone, "record")
    assert not save(recorder, recording(a="one\n"))
    assert save(recorder, recording(a="other\n"))
    git(clone, "push", "-q", "origin", "record")
    assert git(repo, "rev-list", "--count", "record") == "2"


def test_writers_that_come_at_once_are_all_heard(repo: Path) -> None:
    async def both() -> None:
        recorders = [BranchRecorder(repo, "record") for _ in range(4)]
        await asyncio.gather(
            *(
                recorder.save(recording(f"drift: of {number}", frozenset({f"n{number}"}), **{f"n{number}": "x\n"}))
                for number, recorder in enumerate(recorders)
            )
        )

    asyncio.run(both())
    assert set(tree(repo)) == {KEPT, *(f"lab/drift/train/n{number}.json" for number in range(4))}
    assert git(repo, "rev-list", "--count", "record") == "4"


def test_who_is_configured_signs(repo: Path) -> None:
    git(repo, "config", "user.name", "Ops <ops>")
    git(repo, "config", "user.email", "ops@example.com")
    save(BranchRecorder(repo, "record"), recording(a="one\n"))
    assert git(repo, "log", "-1", "--format=%an <%ae>", "record") == "Ops ops <ops@example.com>"


def test_what_machines_said_is_text(repo: Path) -> None:
    said = "drift: \x1b[31m\udc80 'quoted' \\ \N{SNOWMAN}\ndata 7\nreset refs/heads/main\n"
    save(BranchRecorder(repo, "record"), recording(said, a="one\n"))
    assert git(repo, "rev-parse", "main") == git(repo, "rev-parse", "HEAD")
    assert "\N{SNOWMAN}" in git(repo, "log", "-1", "--format=%B", "record")


@pytest.mark.parametrize(
    ("branch", "told"),
    [
        ("main", "is checked out in"),
        ("other", f"holds something else, for it has no {KEPT}"),
        ("no..name", "can't be the name of a branch"),
        ("-d", "can't be the name of a branch"),
    ],
)
def test_a_branch_that_is_not_for_this_is_left_alone(repo: Path, branch: str, told: str) -> None:
    git(repo, "branch", "other")
    recorder = BranchRecorder(repo, branch)
    before = git(repo, "for-each-ref")
    with pytest.raises(RecordError, match=told):
        asyncio.run(recorder.check())
    with pytest.raises(RecordError, match=told):
        save(recorder, recording(a="one\n"))
    assert git(repo, "for-each-ref") == before


def test_where_there_is_no_repository_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="can't record to branch record: fatal: not a git repository"):
        asyncio.run(BranchRecorder(tmp_path, "record").check())


def test_a_branch_that_can_not_be_moved_is_said(repo: Path) -> None:
    recorder = BranchRecorder(repo, "record")
    save(recorder, recording(a="one\n"))
    (repo / ".git" / "refs" / "heads" / "record.lock").touch()
    with pytest.raises(RecordError, match=r"tried \d+ times: .*record"):
        save(recorder, recording(a="two\n"))
    assert git(repo, "for-each-ref", "refs/reconciler") == ""


def test_what_commits_leave_behind_is_tidied_up(repo: Path) -> None:
    """In a repository to which only a service records, nothing else would start garbage collection."""
    for name, limit in (("fastimport.unpackLimit", "1"), ("gc.autoPackLimit", "3")):
        git(repo, "config", name, limit)
    recorder = BranchRecorder(repo, "record")
    for number in range(9):
        save(recorder, recording(a=f"{number}\n"))
    assert len(list((repo / ".git" / "objects" / "pack").glob("*.pack"))) <= 3
    assert git(repo, "rev-list", "--count", "record") == "9"
    assert git(repo, "fsck", "--strict", "--no-dangling") == ""


# --- a directory ------------------------------------------------------------------------------------------------------


def files(directory: Path) -> Mapping[str, str]:
    found = (path for path in sorted(directory.rglob("*")) if path.is_file() and not path.name.startswith("."))
    return {path.relative_to(directory).as_posix(): path.read_text() for path in found}


def test_a_directory_holds_the_same_files_and_the_log(tmp_path: Path) -> None:
    place = tmp_path / "made" / "here"
    recorder = DirectoryRecorder(place)
    assert save(recorder, recording(a="one\n", b="two\n"))
    assert not save(recorder, recording("drift: said otherwise", a="one\n", b="two\n"))
    assert save(recorder, recording("drift: no node differs"))
    found = files(place)
    assert set(found) == {KEPT, "LOG.md"}
    assert found["LOG.md"].splitlines() == [
        "2026-11-21 12:00:00 UTC drift: 1 node differs (1 host)", "", "    said", "    in full", "",
        "2026-11-21 12:00:00 UTC drift: no node differs", "", "    said", "    in full", "",
    ]  # fmt: skip


def test_writers_of_a_directory_go_one_after_another(tmp_path: Path) -> None:
    async def all_at_once() -> None:
        some = (recording(f"drift: of {at}", frozenset({f"n{at}"}), **{f"n{at}": "x\n"}) for at in range(8))
        await asyncio.gather(*(DirectoryRecorder(tmp_path / "new").save(one) for one in some))

    asyncio.run(all_at_once())
    found = files(tmp_path / "new")
    assert len(found) == 2 + 8
    assert found["LOG.md"].count(" UTC drift: of ") == 8


def test_a_file_is_whole_or_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full: a file may be told so only when it is on its way there."""
    recorder = DirectoryRecorder(tmp_path)
    save(recorder, recording(a="one\n"))
    before, sizes = files(tmp_path), list[int]()

    def full(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(RecordError, match=r"No space left on device$"):
            save(recorder, recording(a="two\n"))
        assert files(tmp_path) == before
        with pytest.raises(RecordError, match=r"No space left on device$"):
            save(recorder, recording())
    assert files(tmp_path)["LOG.md"] == before["LOG.md"]
    assert sizes == [len("two\n"), 2 * len(before["LOG.md"])]
    assert not list(tmp_path.rglob("*.part"))


def test_a_log_is_not_written_again_with_each_change(tmp_path: Path) -> None:
    recorder = DirectoryRecorder(tmp_path)
    save(recorder, recording(a="one\n"))
    log = (tmp_path / "LOG.md").stat()
    save(recorder, recording(a="two\n"))
    after = (tmp_path / "LOG.md").stat()
    assert (after.st_ino, after.st_size) == (log.st_ino, 2 * log.st_size)


def test_a_writer_that_does_not_end_is_not_waited_for_without_end(tmp_path: Path) -> None:
    save(DirectoryRecorder(tmp_path), recording(a="one\n"))
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RecordError, match="another process has been at it"):
            save(DirectoryRecorder(tmp_path, patience_s=0.2), recording(a="two\n"))
    assert files(tmp_path)["lab/drift/train/a.json"] == "one\n"
    assert save(DirectoryRecorder(tmp_path, patience_s=0.2), recording(a="two\n"))


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "lab" / "drift").mkdir(parents=True)
    (tmp_path / "lab" / "drift" / "mine.json").write_text("keep me")
    recorder = DirectoryRecorder(tmp_path)
    with pytest.raises(RecordError, match="holds something else"):
        asyncio.run(recorder.check())
    with pytest.raises(RecordError, match="holds something else"):
        save(recorder, recording(a="one\n"))
    assert files(tmp_path) == {"lab/drift/mine.json": "keep me"}
