"""Following a spec in git: what comes into force, what does not, and what is left in force then."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.git import origins
from reconciler.drivers.remote_git import Remote
from reconciler.drivers.signers import Signers
from reconciler.drivers.spec_repo import SpecRepo
from reconciler.model.desired import Fleet
from reconciler.model.errors import Position, UsageError
from reconciler.model.spec_feed import Pulled, Trouble
from tests.spec.example import changed

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
]
needs_ssh_keygen = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen program")
needs_gpg = pytest.mark.skipif(shutil.which("gpg") is None, reason="there is no gpg program")

ENVIRONMENT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    **{f"GIT_{who}_{what}": text for who in ("AUTHOR", "COMMITTER")
       for what, text in (("NAME", "alice"), ("EMAIL", "alice@example.com"))},
}  # fmt: skip


class Upstream:
    """Somebody else's repository, and what people do in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.signing: tuple[str, ...] = ()  # options of git that sign
        self.environment = os.environ | ENVIRONMENT
        directory.mkdir()
        self.git("init", "-q", "-b", "main")
        self.write(changed())

    def git(self, *arguments: str) -> str:
        command = ["git", "-C", str(self.directory), *self.signing, *arguments]
        done = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def write(self, files: dict[str, bytes]) -> None:
        for name, data in files.items():
            path = self.directory / "fleet-spec" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)

    def commit(self, message: str = "x") -> str:
        self.git("add", ".")
        self.git("commit", "-q", "--allow-empty", "-m", message)
        return self.git("rev-parse", "HEAD")

    def tier(self, name: str) -> str:
        """Change the spec; a commit for every name."""
        self.write(changed(("pool.yaml", "tier: gold", f"tier: {name}")))
        return self.commit(name)

    def elsewhere(self, text: str) -> str:
        (self.directory / "notes.txt").write_text(text)
        return self.commit(text)

    def broken(self) -> str:
        self.write({"pool.yaml": b"kind: NodePool\n"})
        return self.commit("broken")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    return Upstream(tmp_path / "upstream")


class Follower:
    def __init__(self, upstream: Upstream, state: Path) -> None:
        self._upstream, self._state = upstream, state
        self._open: list[SpecRepo] = []

    def __call__(self, **more: Any) -> SpecRepo:
        """A new process, as it were: what was followed before has ended."""
        self.close()
        settings: dict[str, Any] = {"state": self._state, "branch": "main", "path": "fleet-spec"} | more
        repo = SpecRepo(settings.pop("url", str(self._upstream.directory)), **settings)
        self._open.append(repo)
        return repo

    def close(self) -> None:
        while self._open:
            self._open.pop().close()


@pytest.fixture
def follow(upstream: Upstream, tmp_path: Path) -> Iterator[Follower]:
    with closing(Follower(upstream, tmp_path / "state")) as follower:
        yield follower


def processes(word: str) -> list[str]:
    """Command lines that hold the word."""
    found = []
    for place in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            found.append(place.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return [line for line in found if word in line]


def pull(repo: SpecRepo) -> Pulled:
    return asyncio.run(repo.pull())


def tier(repo: SpecRepo) -> str:
    assert repo.fleet is not None
    membership = repo.fleet.nodes["gpu-a001"].profile.membership
    assert membership is not None
    return membership.labels["tier"]


# --- what comes into force ------------------------------------------------------------------------------------------


def test_the_newest_commit_of_the_branch_is_in_force(upstream: Upstream, follow: Follower) -> None:
    first = upstream.commit()
    repo = follow()
    assert pull(repo) == Pulled(first, changed=True, head=first)
    assert tier(repo) == "gold"
    assert pull(repo) == Pulled(first, changed=False, head=first)
    second = upstream.tier("silver")
    assert pull(repo) == Pulled(second, changed=True, head=second)
    assert tier(repo) == "silver"
    assert repo.fleet is not None
    assert (repo.fleet.source.commit, repo.fleet.source.rev, repo.fleet.source.dirty) == (second, "main", False)


def test_lines_of_the_spec_in_force_have_their_commits(upstream: Upstream, follow: Follower) -> None:
    upstream.commit()
    second = upstream.tier("silver")
    repo = follow()
    pull(repo)
    assert repo.fleet is not None
    text = changed(("pool.yaml", "tier: gold", "tier: silver"))["pool.yaml"].decode()
    line = 1 + text[: text.index("tier: silver")].count("\n")
    place = Position(f"{repo.fleet.source.directory}/pool.yaml", line)
    assert origins(repo.fleet.source, [place])[place].commit == second


def test_a_branch_that_nobody_names_is_the_remotes_own(upstream: Upstream, follow: Follower) -> None:
    first = upstream.commit()
    assert pull(follow(branch="")).commit == first


def test_what_is_not_committed_counts_for_nothing(upstream: Upstream, follow: Follower) -> None:
    upstream.commit()
    repo = follow()
    pull(repo)
    upstream.write({"pool.yaml": b"nonsense"})
    assert repo.fleet is not None
    here = Path(repo.fleet.source.directory)  # nothing is checked out; whoever writes there is not heard
    here.mkdir()
    (here / "pool.yaml").write_text("nonsense")
    pulled = pull(repo)
    assert (pulled.changed, pulled.trouble) == (False, None)
    assert pull(follow()).trouble is None


def test_a_commit_that_leaves_the_spec_alone_changes_nothing(upstream: Upstream, follow: Follower) -> None:
    first = upstream.commit()
    repo = follow()
    pull(repo)
    second = upstream.elsewhere("x")
    assert pull(repo) == Pulled(first, changed=False, head=second)


# --- what does not --------------------------------------------------------------------------------------------------


def test_an_invalid_spec_leaves_the_last_good_one_in_force_and_is_told_once(
    upstream: Upstream, follow: Follower
) -> None:
    first = upstream.commit()
    repo = follow()
    pull(repo)
    bad = upstream.broken()
    told = pull(repo)
    assert (told.commit, told.changed, told.head, told.trouble) == (first, False, bad, Trouble.INVALID)
    assert told.news
    assert f"commit {bad[:12]}: " in told.detail
    assert any(found.at.file.endswith("pool.yaml") for found in told.diagnostics)
    assert tier(repo) == "gold"
    again = pull(repo)
    assert (again.trouble, again.news) == (Trouble.INVALID, False)
    worse = upstream.elsewhere("still broken")
    assert (pull(repo).head, pull(repo).news) == (worse, False)
    good = upstream.tier("bronze")
    assert pull(repo) == Pulled(good, changed=True, head=good)


def test_a_spec_that_this_process_cannot_follow_is_tried_again(upstream: Upstream, follow: Follower) -> None:
    lacks: list[str] = []

    def fits(_: Fleet) -> None:
        if lacks:
            raise UsageError(lacks[0])

    first = upstream.commit()
    repo = follow(fits=fits)
    assert pull(repo).changed
    lacks.append("extension acme-fleet is not installed")
    newer = upstream.tier("bronze")
    told = pull(repo)
    assert (told.commit, told.changed, told.trouble, told.news) == (first, False, Trouble.INVALID, True)
    assert told.detail == f"commit {newer[:12]}: {lacks[0]}"
    assert tier(repo) == "gold"
    assert not pull(repo).news
    lacks.clear()
    assert pull(repo) == Pulled(newer, changed=True, head=newer)
    assert tier(repo) == "bronze"


def test_a_directory_that_a_commit_lacks_is_an_invalid_spec(upstream: Upstream, follow: Follower) -> None:
    upstream.commit()
    told = pull(follow(path="fleet"))
    assert (told.commit, told.trouble) == ("", Trouble.INVALID)
    assert "has no fleet" in told.detail


def test_rewritten_history_is_refused_until_a_person_names_the_commit(upstream: Upstream, follow: Follower) -> None:
    first = upstream.commit()
    second = upstream.tier("silver")
    repo = follow()
    pull(repo)
    upstream.git("reset", "-q", "--hard", first)
    told = pull(repo)
    assert (told.commit, told.head, told.trouble, told.news) == (second, first, Trouble.REWRITTEN, True)
    assert tier(repo) == "silver"
    assert not pull(repo).news
    other = upstream.tier("bronze")
    assert pull(repo).trouble is Trouble.REWRITTEN
    assert pull(follow()).commit == second, "a new start does not launder it"

    assert pull(follow(accept=first)) == Pulled(other, changed=True, head=other)
    upstream.git("reset", "-q", "--hard", first)
    third = upstream.tier("tin")
    told = pull(follow(accept=first))
    assert (told.commit, told.head, told.trouble) == (other, third, Trouble.REWRITTEN), "it counts once"


def test_a_revert_is_the_way_back(upstream: Upstream, follow: Follower) -> None:
    upstream.commit()
    upstream.tier("silver")
    repo = follow()
    pull(repo)
    upstream.git("revert", "--no-edit", "HEAD")
    assert pull(repo).changed
    assert tier(repo) == "gold"


# --- remotes that fail ----------------------------------------------------------------------------------------------


def test_an_outage_is_told_once_and_survived_by_a_restart(upstream: Upstream, follow: Follower) -> None:
    first = upstream.commit()
    repo = follow()
    pull(repo)
    upstream.directory.rename(upstream.directory.with_name("away"))
    told = pull(repo)
    assert (told.commit, told.trouble, told.news) == (first, Trouble.UNREACHABLE, True)
    assert str(upstream.directory) in told.detail
    assert not pull(repo).news

    repo = follow()
    told = pull(repo)
    assert (told.commit, told.changed, told.trouble) == (first, True, Trouble.UNREACHABLE)
    assert tier(repo) == "gold"
    upstream.directory.with_name("away").rename(upstream.directory)
    assert pull(repo).trouble is None
    upstream.directory.rename(upstream.directory.with_name("away"))
    assert pull(repo).news, "another outage"


@pytest.mark.parametrize("scheme", ["git", "http"])
def test_a_remote_that_hangs_costs_its_deadline_and_leaves_no_process(
    scheme: str, upstream: Upstream, follow: Follower
) -> None:
    first = upstream.commit()
    pull(follow())
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"{scheme}://127.0.0.1:{server.getsockname()[1]}/spec.git"
        started = time.monotonic()
        told = pull(follow(url=url, timeout_s=1.5))
        assert time.monotonic() - started < 8
        assert (told.commit, told.trouble) == (first, Trouble.UNREACHABLE)
        assert "did not end within 1.5 s" in told.detail
        assert not processes(url)


def test_cancelling_ends_git(upstream: Upstream, follow: Follower) -> None:
    async def cancel(repo: SpecRepo) -> None:
        task = asyncio.create_task(repo.pull())
        async with asyncio.timeout(10):
            while not processes(url):  # noqa: ASYNC110 -- nobody tells when a process has begun
                await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        url = f"git://127.0.0.1:{server.getsockname()[1]}/spec.git"
        started = time.monotonic()
        assert not processes(url)
        asyncio.run(cancel(follow(url=url)))
        assert time.monotonic() - started < 15, "its deadline is 60 s"
        assert not processes(url)


def test_locks_of_a_git_that_was_killed_do_not_last(upstream: Upstream, follow: Follower, tmp_path: Path) -> None:
    upstream.commit()
    pull(follow())
    refs = tmp_path / "state" / "repository" / ".git" / "refs" / "reconciler" / "accepted"
    (refs / "main.lock").write_text("")
    second = upstream.tier("silver")
    assert pull(follow()).commit == second


def test_a_url_runs_no_command(upstream: Upstream, follow: Follower, tmp_path: Path) -> None:
    for url in (f"ext::touch {tmp_path}/ran", f"--upload-pack=touch {tmp_path}/ran"):
        assert pull(follow(url=url)).trouble is Trouble.UNREACHABLE
    assert not (tmp_path / "ran").exists()


def test_a_state_that_is_no_directory(upstream: Upstream, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't hold the clone"):
        pull(SpecRepo(str(upstream.directory), state=tmp_path / "file" / "state"))


def test_two_reconcilers_do_not_share_a_clone(upstream: Upstream, follow: Follower, tmp_path: Path) -> None:
    upstream.commit()
    pull(follow())
    with pytest.raises(UsageError, match="in use by another reconciler"):
        pull(SpecRepo(str(upstream.directory), state=tmp_path / "state"))


def test_passwords_are_neither_told_nor_shown_to_other_users(upstream: Upstream, follow: Follower) -> None:
    """Nothing listens there, so that git's message is the only output."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    told = pull(follow(url=f"http://bob:hunter2@127.0.0.1:{port}/spec.git?token=s3cret"))
    assert told.trouble is Trouble.UNREACHABLE
    assert f"http://127.0.0.1:{port}/spec.git" in told.detail
    for secret in ("hunter2", "s3cret", "bob"):
        assert secret not in told.detail


@pytest.mark.parametrize("known", [True, False])
def test_credentials_reach_their_host_in_a_header_and_nobody_is_asked_for_them(
    known: bool, follow: Follower, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that demands a password the way forges do, and keeps what it was sent."""
    monkeypatch.delenv("GIT_ASKPASS", raising=False)
    monkeypatch.setenv("SSH_ASKPASS", "/bin/false")
    asked: list[str] = []

    async def serve() -> Pulled:
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked.append((await reader.readuntil(b"\r\n\r\n")).decode())
            head = b'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="x"\r\nContent-Length: 0\r\n'
            writer.write(head + b"Connection: close\r\n\r\n")
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(answer, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            return await follow(url=f"http://{'bob:hunter2@' if known else ''}127.0.0.1:{port}/spec.git").pull()

    told = asyncio.run(serve())
    assert told.trouble is Trouble.UNREACHABLE
    assert "hunter2" not in told.detail
    assert any("Authorization: Basic Ym9iOmh1bnRlcjI=" in request for request in asked) is known
    assert ("terminal prompts disabled" in told.detail) is not known


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://bob:pw@git.example.com/x.git", "https://git.example.com/x.git"),
        ("https://ghp_token@git.example.com:8443/x.git?a=b#c", "https://git.example.com:8443/x.git?a=***#***"),
        ("ssh://git:pw@git.example.com/x.git", "ssh://git@git.example.com/x.git"),
        ("git@git.example.com:x.git", "git@git.example.com:x.git"),
    ],
)
def test_a_remote_as_messages_call_it(url: str, shown: str) -> None:
    remote = Remote.parse(url)
    assert str(remote) == shown
    assert "pw" not in repr(remote)
    assert "ghp_token" not in repr(remote)
    assert "pw" not in remote.redact("fatal: https://bob:pw@elsewhere/: no")


def test_calls_that_make_no_sense(tmp_path: Path) -> None:
    mistakes: list[dict[str, Any]] = [
        {"path": "../x"}, {"path": "/etc"}, {"branch": "-x"}, {"accept": "HEAD"},
        {"signers": Signers(ssh=tmp_path / "none")},
    ]  # fmt: skip
    for mistake in mistakes:
        with pytest.raises(UsageError):
            SpecRepo("x", state=tmp_path, **mistake)


# --- signatures -----------------------------------------------------------------------------------------------------


def ssh_key(path: Path) -> str:
    """Return its public half."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(path)], check=True)
    return path.with_suffix(".pub").read_text().strip()


def by_ssh(key: Path) -> tuple[str, ...]:
    return ("-c", "gpg.format=ssh", "-c", f"user.signingKey={key}", "-c", "commit.gpgSign=true")


@pytest.fixture
def signers(upstream: Upstream, tmp_path: Path) -> Signers:
    """alice may sign; what is committed from here on is signed by her."""
    allowed = tmp_path / "allowed_signers"
    allowed.write_text(f'alice@example.com namespaces="git" {ssh_key(tmp_path / "alice")}\n')
    ssh_key(tmp_path / "mallory")
    upstream.signing = by_ssh(tmp_path / "alice")
    return Signers(ssh=allowed)


@needs_ssh_keygen
def test_signed_commits_come_into_force(upstream: Upstream, follow: Follower, signers: Signers) -> None:
    first = upstream.commit()
    repo = follow(signers=signers)
    assert pull(repo) == Pulled(first, changed=True, head=first)
    second = upstream.tier("silver")
    assert pull(repo) == Pulled(second, changed=True, head=second)


@needs_ssh_keygen
def test_a_commit_without_a_signature_does_not(upstream: Upstream, follow: Follower, signers: Signers) -> None:
    first = upstream.commit()
    repo = follow(signers=signers)
    pull(repo)
    signing, upstream.signing = upstream.signing, ()
    unsigned = upstream.tier("silver")
    told = pull(repo)
    assert (told.commit, told.head, told.trouble, told.news) == (first, unsigned, Trouble.UNSIGNED, True)
    assert told.detail == f"commit {unsigned[:12]} is not signed"
    assert tier(repo) == "gold"

    upstream.signing = signing
    upstream.elsewhere("a signature above it does not heal it")
    assert f"{unsigned[:12]} is not signed" in pull(repo).detail
    upstream.git("revert", "--no-edit", unsigned)
    third = upstream.tier("bronze")
    assert f"{unsigned[:12]} is not signed" in pull(repo).detail, "nor does undoing it"
    assert pull(follow(signers=signers, accept=unsigned)).commit == third, "a person looked at it"


@needs_ssh_keygen
def test_commits_that_leave_the_spec_alone_need_no_signature(
    upstream: Upstream, follow: Follower, signers: Signers
) -> None:
    first = upstream.commit()
    repo = follow(signers=signers)
    pull(repo)
    signing, upstream.signing = upstream.signing, ()
    upstream.elsewhere("unsigned")
    assert pull(repo).commit == first
    assert pull(repo).trouble is None
    upstream.signing = signing
    second = upstream.tier("silver")
    assert pull(repo).commit == second


@needs_ssh_keygen
def test_a_merge_that_changes_the_spec_by_itself_needs_a_signature(
    upstream: Upstream, follow: Follower, signers: Signers
) -> None:
    upstream.commit()
    repo = follow(signers=signers)
    pull(repo)
    upstream.git("checkout", "-q", "-b", "side")
    upstream.elsewhere("side")
    upstream.git("checkout", "-q", "main")
    (upstream.directory / "other.txt").write_text("main")
    upstream.commit()
    signing, upstream.signing = upstream.signing, ()
    upstream.git("merge", "-q", "--no-commit", "side")
    merge = upstream.tier("evil")
    upstream.signing = signing
    upstream.elsewhere("on top")
    told = pull(repo)
    assert told.trouble is Trouble.UNSIGNED
    assert merge[:12] in told.detail


@needs_ssh_keygen
def test_a_side_branch_that_a_merge_drowned_needs_signatures_too(
    upstream: Upstream, follow: Follower, signers: Signers
) -> None:
    upstream.commit()
    repo = follow(signers=signers)
    pull(repo)
    upstream.git("checkout", "-q", "-b", "side")
    signing, upstream.signing = upstream.signing, ()
    unsigned = upstream.tier("side")
    upstream.signing = signing
    upstream.git("checkout", "-q", "main")
    upstream.elsewhere("main")
    upstream.git("merge", "-q", "-s", "ours", "-m", "merge", "side")
    upstream.tier("silver")
    told = pull(repo)
    assert told.trouble is Trouble.UNSIGNED
    assert unsigned[:12] in told.detail


@needs_ssh_keygen
def test_a_signature_of_somebody_else_counts_for_nothing(
    upstream: Upstream, follow: Follower, signers: Signers, tmp_path: Path
) -> None:
    upstream.signing = by_ssh(tmp_path / "mallory")
    upstream.commit()
    repo = follow(signers=signers)
    told = pull(repo)
    assert (told.commit, told.trouble) == ("", Trouble.UNSIGNED)
    assert "not signed by an allowed signer" in told.detail
    assert "No principal matched" in told.detail

    assert signers.ssh is not None  # the list is read anew: mallory may sign from now on
    with signers.ssh.open("a") as allowed:
        allowed.write(f"mallory@example.com {(tmp_path / 'mallory.pub').read_text()}")
    assert pull(repo).commit == told.head


@needs_ssh_keygen
def test_a_commit_that_was_changed_after_it_was_signed(upstream: Upstream, follow: Follower, signers: Signers) -> None:
    upstream.commit()
    signed = subprocess.run(
        ["git", "-C", str(upstream.directory), "cat-file", "commit", "HEAD"], capture_output=True, check=True
    ).stdout
    forged = subprocess.run(
        ["git", "-C", str(upstream.directory), "hash-object", "-t", "commit", "-w", "--stdin"],
        input=signed.replace(b"alice <alice", b"Alice <alice", 1), capture_output=True, check=True,
    ).stdout.decode().strip()  # fmt: skip
    upstream.git("update-ref", "refs/heads/main", forged)
    assert pull(follow(signers=signers)).trouble is Trouble.UNSIGNED


@needs_ssh_keygen
def test_a_signer_who_was_struck_off_while_we_were_away(upstream: Upstream, follow: Follower, signers: Signers) -> None:
    upstream.commit()
    pull(follow(signers=signers))
    assert signers.ssh is not None
    signers.ssh.write_text("")
    told = pull(follow(signers=signers))
    assert (told.commit, told.trouble) == ("", Trouble.UNSIGNED)


@pytest.fixture
def gpg_home(tmp_path: Path) -> Path:
    home = tmp_path / "gnupg"
    home.mkdir(mode=0o700)
    return home


def gpg_key(home: Path, name: str, *, expires: str = "never") -> bytes:
    """A new secret key in `home`; its public half."""
    base = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    subprocess.run([*base, "--quick-generate-key", name, "ed25519", "sign", expires], check=True, capture_output=True)
    return subprocess.run([*base, "--armor", "--export", name], check=True, capture_output=True).stdout


@needs_gpg
def test_openpgp_signatures(
    upstream: Upstream, follow: Follower, gpg_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allowed = tmp_path / "allowed.asc"
    try:
        allowed.write_bytes(gpg_key(gpg_home, "alice@example.com"))
        gpg_key(gpg_home, "mallory@example.com")
        upstream.environment = upstream.environment | {"GNUPGHOME": str(gpg_home)}
        monkeypatch.setenv("GNUPGHOME", str(gpg_home))  # the user's own keyring knows both
        upstream.signing = ("-c", "user.signingKey=alice@example.com", "-c", "commit.gpgSign=true")
        first = upstream.commit()
        repo = follow(signers=Signers(gpg=allowed))
        assert pull(repo).commit == first
        upstream.signing = ("-c", "user.signingKey=mallory@example.com", "-c", "commit.gpgSign=true")
        upstream.tier("silver")
        told = pull(repo)
        assert (told.commit, told.trouble) == (first, Trouble.UNSIGNED)
        allowed.write_text("no keys")
        assert "can't be read" in pull(repo).detail
    finally:
        subprocess.run(["gpgconf", "--homedir", str(gpg_home), "--kill", "all"], capture_output=True)


@needs_gpg
@needs_ssh_keygen
def test_an_openpgp_key_of_the_user_is_no_allowed_ssh_signer(
    upstream: Upstream, follow: Follower, gpg_home: Path, signers: Signers, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        gpg_key(gpg_home, "alice@example.com")
        monkeypatch.setenv("GNUPGHOME", str(gpg_home))
        upstream.environment = upstream.environment | {"GNUPGHOME": str(gpg_home)}
        upstream.signing = ("-c", "user.signingKey=alice@example.com", "-c", "commit.gpgSign=true")
        upstream.commit()
        assert pull(follow(signers=signers)).trouble is Trouble.UNSIGNED
    finally:
        subprocess.run(["gpgconf", "--homedir", str(gpg_home), "--kill", "all"], capture_output=True)
