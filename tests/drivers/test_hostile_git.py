"""A repository that somebody else made: whatever its configuration and its hooks say, reading it runs nothing of it.

Each test lays a trap that git itself would walk into: its program leaves a file behind, and the test looks for that.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.drivers.git import GitError, commits_lacking, describe, folder, origins, read_revision
from reconciler.drivers.record import BranchRecorder
from reconciler.drivers.signers import Signers, unsigned
from reconciler.model.desired import LineOrigin
from reconciler.model.errors import Position
from reconciler.model.recording import KEPT, Recording
from tests.cli.shell import reconciler
from tests.spec.example import changed

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
]

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


class Hostile:
    """A repository with the example spec, and a program that must never run."""

    def __init__(self, directory: Path) -> None:
        self.top = directory / "repo"
        self.spec = self.top / "fleet-spec"
        self.canary = directory / "canary"
        self.program = directory / "evil.sh"
        self.program.write_text(f"#!/bin/sh\necho \"$0 $*\" >> '{self.canary}'\ncat 2>/dev/null\nexit 0\n")
        self.program.chmod(0o755)
        self.spec.mkdir(parents=True)
        self.write()
        self.git("init", "-q", "-b", "main")
        self.commit("one")

    def write(self, *changes: tuple[str, str, str]) -> None:
        for name, data in changed(*changes).items():
            path = self.spec / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def git(self, *arguments: str, top: Path | None = None) -> str:
        who = {f"GIT_{role}_{what}": "a@b" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = subprocess.run(
            ["git", "-C", str(top or self.top), *arguments], capture_output=True, text=True,
            env=os.environ | who | {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull},
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        self.git("add", ".")
        self.git("commit", "-q", "-m", message)
        return self.git("rev-parse", "HEAD")

    def config(self, *pairs: tuple[str, str]) -> None:
        for key, value in pairs:
            self.git("config", key, value)

    @property
    def ran(self) -> str:
        return self.canary.read_text() if self.canary.exists() else ""


@pytest.fixture
def hostile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hostile:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    return Hostile(tmp_path)


# --- traps ------------------------------------------------------------------------------------------------------------


def fsmonitor(at: Hostile) -> None:
    at.config(("core.fsmonitor", str(at.program)))


def fsmonitor_of_an_included_file(at: Hostile) -> None:
    more = at.top / ".git" / "more"
    more.write_text(f"[core]\n\tfsmonitor = {at.program}\n")
    at.config(("include.path", str(more)))


def fsmonitor_of_a_work_tree(at: Hostile) -> None:
    at.config(("extensions.worktreeConfig", "true"))
    at.git("config", "--worktree", "core.fsmonitor", str(at.program))


def a_git_file_that_points_elsewhere(at: Hostile) -> None:
    elsewhere = at.top.parent / "elsewhere"
    (at.top / ".git").rename(elsewhere)
    (at.top / ".git").write_text(f"gitdir: {elsewhere}\n")
    at.config(("core.fsmonitor", str(at.program)))


def hooks(at: Hostile) -> None:
    _hooks_in(at.top / ".git" / "hooks", at.program)


def hooks_elsewhere(at: Hostile) -> None:
    _hooks_in(at.top / "hooks", at.program)
    at.config(("core.hooksPath", str(at.top / "hooks")))


def _hooks_in(directory: Path, program: Path) -> None:
    directory.mkdir(exist_ok=True)
    for name in ("post-index-change", "reference-transaction", "pre-auto-gc", "post-checkout", "pre-commit",
                 "post-commit", "fsmonitor-watchman"):  # fmt: skip
        shutil.copy(program, directory / name)


def clean_filter(at: Hostile) -> None:
    (at.top / ".gitattributes").write_text("* filter=evil diff=evil merge=evil\n")
    at.config(
        ("filter.evil.clean", str(at.program)), ("filter.evil.smudge", str(at.program)),
        ("filter.evil.required", "true"),
    )  # fmt: skip


def filter_process(at: Hostile) -> None:
    (at.top / ".git" / "info").mkdir(exist_ok=True)
    (at.top / ".git" / "info" / "attributes").write_text("* filter=a=b\n")  # no -c names this one
    at.config(("filter.a=b.process", str(at.program)), ("filter.a=b.clean", str(at.program)))


def diff_programs(at: Hostile) -> None:
    (at.top / ".gitattributes").write_text("* diff=evil\n")
    at.config(
        ("diff.external", str(at.program)), ("diff.evil.command", str(at.program)),
        ("diff.evil.textconv", str(at.program)),
    )  # fmt: skip


def pagers_and_aliases(at: Hostile) -> None:
    names = ("status", "blame", "log", "rev-parse", "ls-tree", "ls-files", "rev-list", "cat-file", "merge-base")
    at.config(
        ("core.pager", str(at.program)), ("core.editor", str(at.program)), ("sequence.editor", str(at.program)),
        *((f"pager.{name}", str(at.program)) for name in names),
        *((f"alias.{name}", f"!{at.program}") for name in names),
    )  # fmt: skip


def signing_programs(at: Hostile) -> None:
    at.config(
        ("gpg.program", str(at.program)), ("gpg.openpgp.program", str(at.program)),
        ("gpg.ssh.program", str(at.program)), ("gpg.x509.program", str(at.program)),
        ("gpg.ssh.defaultKeyCommand", str(at.program)), ("log.showSignature", "true"), ("commit.gpgSign", "true"),
    )  # fmt: skip


def a_submodule(at: Hostile) -> None:
    """A submodule has its own configuration, which no setting of ours reaches."""
    inner = at.spec / "inner"
    inner.mkdir()
    (inner / "notes.txt").write_text("x")
    at.git("init", "-q", "-b", "main", top=inner)
    at.git("add", ".", top=inner)
    at.git("commit", "-q", "-m", "inner", top=inner)
    at.git("config", "core.fsmonitor", str(at.program), top=inner)
    at.git("-c", "core.fsmonitor=false", "add", "fleet-spec/inner")
    at.git("commit", "-q", "-m", "a submodule")


TRAPS: list[Callable[[Hostile], None]] = [
    fsmonitor, fsmonitor_of_an_included_file, fsmonitor_of_a_work_tree, a_git_file_that_points_elsewhere, hooks,
    hooks_elsewhere, clean_filter, filter_process, diff_programs, pagers_and_aliases, signing_programs, a_submodule,
]  # fmt: skip


@pytest.mark.parametrize("trap", TRAPS)
def test_reading_runs_nothing(hostile: Hostile, trap: Callable[[Hostile], None]) -> None:
    first = hostile.git("rev-parse", "HEAD")
    hostile.write(("pool.yaml", "tier: gold", "tier: silver"))
    second = hostile.commit("two")
    trap(hostile)
    hostile.canary.unlink(missing_ok=True)
    for name in changed():  # git compares what a file holds when its times have changed
        os.utime(hostile.spec / name, (1, 1))
    source = describe(hostile.spec)
    places = [Position(f"{hostile.spec}/pool.yaml", 1)]
    origins(source, places)
    (hostile.spec / "pool.yaml").write_bytes((hostile.spec / "pool.yaml").read_bytes() + b"# more\n")
    assert describe(hostile.spec).dirty
    origins(source, places)
    read_revision(hostile.spec, first)
    assert commits_lacking(hostile.spec, second, first) == 1
    assert folder(hostile.spec) == "fleet-spec"
    assert reconciler("validate", hostile.spec).code == 0
    assert reconciler("validate", hostile.spec, "--rev", "HEAD~1", "--output", "json").code == 0
    assert hostile.ran == ""


@pytest.mark.parametrize("trap", TRAPS)
def test_checking_signatures_runs_nothing(hostile: Hostile, trap: Callable[[Hostile], None], tmp_path: Path) -> None:
    first = hostile.git("rev-parse", "HEAD")
    hostile.write(("pool.yaml", "tier: gold", "tier: silver"))
    second = hostile.commit("two")
    signature = "".join(f"gpgsig {line}\n" if at == 0 else f" {line}\n" for at, line in enumerate((
        "-----BEGIN SSH SIGNATURE-----", "U1NIU0lHAAAAAQ==", "-----END SSH SIGNATURE-----",
    )))  # fmt: skip
    head, _, rest = hostile.git("cat-file", "commit", second).partition("\n\n")
    (tmp_path / "commit").write_text(f"{head}\n{signature}\n{rest}\n")
    signed = hostile.git("hash-object", "-w", "-t", "commit", str(tmp_path / "commit"))
    trap(hostile)
    hostile.canary.unlink(missing_ok=True)
    signers = tmp_path / "signers"
    signers.write_text("")
    assert "not signed by an allowed signer" in asyncio.run(unsigned(Signers(ssh=signers), hostile.spec, signed, first))
    assert hostile.ran == ""


@pytest.mark.parametrize("trap", TRAPS)
def test_recording_runs_nothing(hostile: Hostile, trap: Callable[[Hostile], None]) -> None:
    trap(hostile)
    hostile.canary.unlink(missing_ok=True)
    hostile.git("config", "gc.auto", "1")
    hostile.git("config", "gc.recentObjectsHook", str(hostile.program))
    recorder = BranchRecorder(hostile.spec, "records")
    for number in range(3):
        files = {KEPT: "records\n", "f/one.json": json.dumps(number)}
        asyncio.run(recorder.save(Recording("subject", "body", NOW, files, "f/")))
    assert hostile.git("-c", "core.fsmonitor=false", "rev-list", "--count", "records") == "3"
    assert hostile.ran == ""


@pytest.mark.parametrize(
    "remote",
    [
        {"url": "ext::{program}"},
        {"url": "ssh://h/x", "ssh": "{program}"},
        {"url": "{top}", "uploadpack": "{program}"},
        {"vcs": "evil", "url": "x"},
        {"url": "git://h/x", "proxy": "{program}"},
    ],
)
def test_what_is_missing_is_fetched_from_nowhere(
    hostile: Hostile, remote: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partial clone fetches what it lacks when it is read, with the programs of its own configuration."""
    blob = hostile.git("rev-parse", "HEAD:fleet-spec/pool.yaml")
    (hostile.top / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    given = {key: text.format(program=hostile.program, top=hostile.top) for key, text in remote.items()}
    helpers = hostile.top.parent / "bin"
    helpers.mkdir()
    shutil.copy(hostile.program, helpers / "git-remote-evil")
    monkeypatch.setenv("PATH", f"{helpers}:{os.environ['PATH']}")
    hostile.config(
        ("extensions.partialClone", "origin"), ("remote.origin.promisor", "true"), ("protocol.allow", "always"),
        ("protocol.ext.allow", "always"), ("remote.origin.url", given["url"]), ("core.repositoryFormatVersion", "1"),
        ("credential.helper", f"!{hostile.program}"), ("core.askPass", str(hostile.program)),
    )  # fmt: skip
    for key, name in (
        ("ssh", "core.sshCommand"), ("uploadpack", "remote.origin.uploadpack"), ("vcs", "remote.origin.vcs"),
        ("proxy", "core.gitProxy"),
    ):  # fmt: skip
        if key in given:
            hostile.config((name, given[key]))
    with pytest.raises(GitError, match=r"lacks|can't read"):
        dict(read_revision(hostile.spec, "HEAD")[0])
    describe(hostile.spec)
    origins(describe(hostile.spec), [Position(f"{hostile.spec}/pool.yaml", 1)])
    assert hostile.ran == ""


def test_the_environment_names_no_other_repository(
    hostile: Hostile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Git sets these variables for its hooks; the spec's own repository is read all the same."""
    (tmp_path / "other").mkdir()
    other = Hostile(tmp_path / "other")
    fsmonitor(other)
    other.write(("pool.yaml", "tier: gold", "tier: silver"))
    monkeypatch.setenv("GIT_DIR", str(other.top / ".git"))
    monkeypatch.setenv("GIT_WORK_TREE", str(other.top))
    monkeypatch.setenv("GIT_INDEX_FILE", str(other.top / ".git" / "index"))
    found = describe(hostile.spec)
    monkeypatch.delenv("GIT_DIR", raising=False)
    monkeypatch.delenv("GIT_WORK_TREE", raising=False)
    monkeypatch.delenv("GIT_INDEX_FILE", raising=False)
    assert (found.commit, found.dirty) == (hostile.git("rev-parse", "HEAD"), False)
    assert other.ran == ""


# --- what is read without the programs of a repository, it is read right ----------------------------------------------


@pytest.mark.parametrize("flag", ["--assume-unchanged", "--skip-worktree"])
def test_a_change_that_git_was_told_to_overlook_is_seen(hostile: Hostile, flag: str) -> None:
    """`apply` takes a signed commit's word for what it reads: what hides a change from git may not hide it from us."""
    hostile.git("update-index", flag, "fleet-spec/pool.yaml")
    hostile.write(("pool.yaml", "tier: gold", "tier: silver"))
    assert hostile.git("status", "--porcelain") == ""
    assert describe(hostile.spec).dirty


def test_a_change_behind_a_filter_is_seen(hostile: Hostile) -> None:
    """A filter that gives back what was committed hides any change from git."""
    kept = hostile.top.parent / "kept"
    shutil.copy(hostile.spec / "pool.yaml", kept)
    (hostile.top / ".git" / "info").mkdir(exist_ok=True)
    (hostile.top / ".git" / "info" / "attributes").write_text("pool.yaml filter=evil\n")
    hostile.config(("filter.evil.clean", f"cat '{kept}'"))
    hostile.write(("pool.yaml", "tier: gold", "tier: silver"))
    hostile.git("add", ".")
    assert hostile.git("status", "--porcelain") == ""
    assert describe(hostile.spec).dirty


def test_a_file_that_is_staged_and_not_committed_is_new(hostile: Hostile) -> None:
    (hostile.spec / "ca.pem").write_text("x")
    hostile.git("add", ".")
    assert describe(hostile.spec).dirty


@pytest.mark.parametrize("gone", ["pool.yaml", "nodes.csv", "pki"])
def test_a_file_that_is_gone_makes_it_dirty(hostile: Hostile, gone: str) -> None:
    path = hostile.spec / gone
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert describe(hostile.spec).dirty


def test_line_ends_are_no_change(hostile: Hostile) -> None:
    """A checkout may write CRLF (`eol=crlf`), and a spec reads the same with them."""
    path = hostile.spec / "pool.yaml"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert not describe(hostile.spec).dirty


def test_lines_around_a_change_keep_their_commits(hostile: Hostile) -> None:
    """In a changed work tree, committed lines have their commit, and other lines have none."""
    commit = hostile.git("rev-parse", "HEAD")
    path = hostile.spec / "pool.yaml"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "# new\n", *lines[1:]]))
    source = describe(hostile.spec)
    places = [Position(str(path), line) for line in (1, 2, 3, len(lines) + 1)]
    found = origins(source, places)
    assert [found[place].commit for place in places] == [commit, "", commit, commit]
    assert found[places[1]] == LineOrigin("")
