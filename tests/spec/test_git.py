"""A spec in git: at its commit, at another revision, dirty, and where git can't help."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from reconciler.drivers.git import GitError, commits_lacking, describe, read_revision
from reconciler.model.errors import SpecError
from reconciler.spec import load_spec
from tests.spec.example import changed

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
]


def git(directory: Path, *arguments: str) -> str:
    environment = os.environ | {
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_AUTHOR_NAME": "a",
        "GIT_AUTHOR_EMAIL": "a@example.com",
        "GIT_COMMITTER_NAME": "a",
        "GIT_COMMITTER_EMAIL": "a@example.com",
    }
    command = ["git", "-C", str(directory), *arguments]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A repository with the example below fleet-spec/, committed."""
    directory = tmp_path / "repo" / "fleet-spec"
    for name, data in changed().items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    git(tmp_path / "repo", "init", "-q", "-b", "main")
    git(tmp_path / "repo", "add", ".")
    git(tmp_path / "repo", "commit", "-q", "-m", "one")
    return directory


def test_a_clean_directory_is_at_its_commit(spec: Path) -> None:
    source = describe(spec)
    assert (source.commit, source.dirty, source.rev) == (git(spec, "rev-parse", "HEAD"), False, "")
    assert source.directory == str(spec)


def test_files_elsewhere_in_the_repository_do_not_make_it_dirty(spec: Path) -> None:
    (spec.parent / "notes.txt").write_text("x")
    assert not describe(spec).dirty


@pytest.mark.parametrize("name", ["new.yaml", "fleet.yaml", "pki/new.pem"])
def test_a_changed_or_new_file_makes_it_dirty(spec: Path, name: str) -> None:
    (spec / name).write_text("x")
    assert describe(spec).dirty


def test_a_yaml_file_that_git_ignores_makes_it_dirty(spec: Path) -> None:
    """It would be loaded, and no commit holds it."""
    (spec.parent / ".git" / "info").mkdir(exist_ok=True)
    (spec.parent / ".git" / "info" / "exclude").write_text("*.local.yaml\n*.swp\n")
    (spec / ".fleet.yaml.swp").write_text("x")
    (spec / "x.swp").write_text("x")
    assert not describe(spec).dirty
    (spec / "x.local.yaml").write_text("x")
    assert describe(spec).dirty


def test_outside_git_there_is_no_commit(tmp_path: Path) -> None:
    assert describe(tmp_path).commit == ""
    with pytest.raises(GitError, match="not in a git repository"):
        read_revision(tmp_path, "HEAD")


def test_without_a_git_program_there_is_no_commit(spec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(spec))
    assert describe(spec).commit == ""
    with pytest.raises(GitError, match="there is no git program on the PATH"):
        read_revision(spec, "HEAD")


def test_a_repository_without_commits(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    assert (describe(tmp_path).commit, describe(tmp_path).dirty) == ("", True)


def test_a_revision_is_read_without_a_checkout(spec: Path) -> None:
    first = git(spec, "rev-parse", "HEAD")
    before = load_spec(spec, directory="fleet-spec")
    (spec / "pool.yaml").write_bytes((spec / "pool.yaml").read_bytes().replace(b"tier: gold", b"tier: silver"))
    (spec / "nodes.csv").unlink()
    git(spec, "commit", "-q", "-am", "two")
    (spec / "fleet.yaml").unlink()

    files, source = read_revision(spec, "HEAD~1")
    assert (source.commit, source.rev, source.dirty) == (first, "HEAD~1", False)
    assert load_spec(files, directory="fleet-spec", origin=source).digest == before.digest
    assert "nodes.csv" not in read_revision(spec, "main")[0]
    assert not (spec / "fleet.yaml").exists()


def test_the_directory_may_be_the_top_of_the_repository_or_gone(spec: Path) -> None:
    assert "fleet-spec/fleet.yaml" in read_revision(spec.parent, "HEAD")[0]
    shutil.rmtree(spec)
    assert read_revision(spec, "HEAD")[0] == changed()


def test_dotfiles_are_left_out(spec: Path) -> None:
    (spec / ".x.yaml").write_text("a")
    git(spec, "add", ".")
    git(spec, "commit", "-q", "-m", "two")
    assert ".x.yaml" not in read_revision(spec, "HEAD")[0]


def test_symbolic_links_are_refused(spec: Path) -> None:
    (spec / "x.yaml").symlink_to("/etc/passwd")
    git(spec, "add", ".")
    git(spec, "commit", "-q", "-m", "two")
    with pytest.raises(SpecError, match=r"x\.yaml: a symbolic link"):
        read_revision(spec, "HEAD")


@pytest.mark.parametrize("rev", ["nope", "--help", "-1", "", "HEAD~99", "HEAD:fleet-spec", "main; ls"])
def test_a_bad_revision_is_a_clear_error(spec: Path, rev: str) -> None:
    with pytest.raises(GitError) as caught:
        read_revision(spec, rev)
    assert str(caught.value) == f"{rev!r} is not a revision of {spec.parent}"


def test_commits_that_a_revision_lacks(spec: Path) -> None:
    repository = spec.parent
    first = git(spec, "rev-parse", "HEAD")
    for name in ("fleet-spec/more.csv", "notes.txt"):
        (repository / name).write_text("x")
        git(repository, "add", ".")
        git(repository, "commit", "-q", "-m", name)
    assert commits_lacking(spec, "HEAD", first) == 1  # of which the other does not touch the spec
    assert commits_lacking(spec, first, "HEAD") == 0
    with pytest.raises(GitError, match="'nope' is not a revision"):
        commits_lacking(spec, "nope", "HEAD")


def test_a_shallow_clone_can_not_tell_what_is_lacking(spec: Path, tmp_path: Path) -> None:
    git(spec.parent, "checkout", "-q", "-b", "topic")
    (spec / "more.csv").write_text("x")
    git(spec, "add", ".")
    git(spec, "commit", "-q", "-m", "topic")
    git(tmp_path, "clone", "-q", "--depth", "1", "--no-single-branch", f"file://{spec.parent}", "clone")
    assert commits_lacking(tmp_path / "clone" / "fleet-spec", "origin/topic", "origin/main") == 0


def test_a_directory_that_a_revision_lacks(spec: Path) -> None:
    commit = git(spec, "rev-parse", "--short=12", "HEAD")
    with pytest.raises(GitError, match=rf"HEAD \({commit}\) has no other"):
        read_revision(spec.parent / "other", "HEAD")
    with pytest.raises(GitError, match=r"fleet-spec/fleet.yaml is not a directory at HEAD"):
        read_revision(spec / "fleet.yaml", "HEAD")
