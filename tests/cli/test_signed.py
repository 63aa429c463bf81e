"""`apply --allowed-signers`: a spec that nobody vouches for is not acted upon, which is told before nodes are asked."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.model.documents import dump
from reconciler.model.inputs import RECIPE, fingerprint_of
from tests import builders as b
from tests.cli.shell import SPEC, Done, reconciler
from tests.drivers.test_spec_repo import by_ssh, ssh_key
from tests.forge.runner import git
from tests.render.test_plan import plan

pytestmark = [
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
    pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="there is no ssh-keygen program"),
]


class Fleet:
    """A spec in git whose nodes answer nobody: what is refused is refused before they are asked."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.repo, self.keys = directory / "repo", directory / "keys"
        shutil.copytree(SPEC, self.repo / "fleet-spec")
        self.keys.mkdir()
        self.signers = self.keys / "allowed"
        self.signers.write_text(f'a@example.com namespaces="git" {ssh_key(self.keys / "alice")}\n')
        ssh_key(self.keys / "mallory")
        git(self.repo, "init", "-q", "-b", "main")

    def commit(self, who: str, file: str = "fleet-spec/fleet.yaml") -> str:
        path = self.repo / file
        path.write_text((path.read_text() if path.is_file() else "") + "# again\n")
        git(self.repo, "add", "-A")
        signing = by_ssh(self.keys / who) if who else ("-c", "commit.gpgSign=false")
        git(self.repo, *signing, "commit", "-q", "-m", f"by {who or 'nobody'}", *(["-S"] if who else []))
        return git(self.repo, "rev-parse", "HEAD")

    def apply(self, **env: str) -> Done:
        """Of a plan that is good for nothing: were the spec accepted, that is what would be told."""
        path = self.directory / "plan.json"
        old = replace(plan(), fleet="demo", expires_at=b.NOW, recipe=RECIPE, fingerprint=fingerprint_of({}))
        path.write_text(dump(old))
        words = ("apply", self.repo / "fleet-spec", "--plan", path, "--yes", "--ledger", self.directory / "l.sqlite")
        return reconciler(*words, env={"RECONCILER_ALLOWED_SIGNERS": str(self.signers), **env})


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(tmp_path)


EXPIRED = 5  # as far as an accepted spec gets here


def test_a_signed_spec_is_accepted(fleet: Fleet) -> None:
    fleet.commit("alice")
    done = fleet.apply()
    assert (done.code, "expired" in done.err) == (EXPIRED, True)


@pytest.mark.parametrize("who", ["", "mallory"])
def test_a_spec_that_nobody_of_them_signed_is_refused(fleet: Fleet, who: str) -> None:
    head = fleet.commit(who)
    done = fleet.apply()
    assert done.code == 8
    assert f"commit {head[:12]} is not signed" in done.err
    assert fleet.apply(RECONCILER_ALLOWED_SIGNERS="").code == EXPIRED, "who asks for no signature gets on"


def test_what_is_not_committed_is_signed_by_nobody(fleet: Fleet) -> None:
    fleet.commit("alice")
    path = fleet.repo / "fleet-spec" / "fleet.yaml"
    path.write_text(path.read_text() + "# mine\n")
    done = fleet.apply()
    assert (done.code, "uncommitted changes" in done.err) == (8, True)


def test_a_signature_above_an_unsigned_change_does_not_heal_it(fleet: Fleet) -> None:
    fleet.commit("alice")
    assert fleet.apply().code == EXPIRED
    fleet.commit("", "README.md")
    fleet.commit("alice")
    assert fleet.apply().code == EXPIRED, "what leaves the spec alone needs no signature"
    unsigned = fleet.commit("")
    fleet.commit("alice")
    done = fleet.apply()
    assert (done.code, f"commit {unsigned[:12]} is not signed" in done.err) == (8, True)


def test_history_that_was_rewritten_is_refused(fleet: Fleet) -> None:
    fleet.commit("alice")
    fleet.commit("alice")
    assert fleet.apply().code == EXPIRED
    git(fleet.repo, "reset", "-q", "--hard", "HEAD~1")
    done = fleet.apply()
    assert (done.code, "does not follow" in done.err) == (8, True)


def test_a_list_that_is_not_there_is_a_wrong_command_line(fleet: Fleet) -> None:
    fleet.commit("alice")
    assert fleet.apply(RECONCILER_ALLOWED_SIGNERS=str(fleet.keys / "none")).code == 64
