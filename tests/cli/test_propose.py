"""`drift --propose` on a lab whose spec is in git, and a GitHub that we play."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from tests import builders as b
from tests.cli.shell import Done, LabDirectory, running_lab
from tests.forge.runner import git
from tests.forge.server import REPOSITORY, TOKEN, FakeGitHub, serving

pytestmark = [
    pytest.mark.wire,
    pytest.mark.tool,
    pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program"),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl program"),
]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[LabDirectory]:
    with running_lab(tmp_path, "--scenario", "clean", nodes=2) as found:
        git(found.path, "init", "-q")
        commit(found)
        yield found


@pytest.fixture
def github() -> Iterator[FakeGitHub]:
    with serving() as fake:
        yield fake


def commit(lab: LabDirectory) -> str:
    git(lab.path, "add", "fleet-spec")
    git(lab.path, "commit", "-q", "-m", "Change the spec", "--allow-empty")
    return git(lab.path, "rev-parse", "HEAD")


def drift(lab: LabDirectory, github: FakeGitHub, *words: str) -> Done:
    head = git(lab.path, "rev-parse", "HEAD")
    github.commits.setdefault(head, {"sha": head, "message": "", "tree": {"sha": "t"}, "parents": []})
    env = {"GITHUB_API_URL": github.url, "GITHUB_REPOSITORY": REPOSITORY, "GITHUB_TOKEN": TOKEN}
    return lab.run("drift", "--propose", "--create-ledger", *words, env=env)


def test_the_drift_of_a_fleet_is_one_pull_request(lab: LabDirectory, github: FakeGitHub) -> None:
    clean = drift(lab, github)
    assert "nothing to propose" in clean.err, clean.err + clean.out
    assert github.pulls == {}
    before = (lab.spec / "personas.yaml").read_text()
    lab.respec("personas.yaml", "vm.swappiness: '1'", "vm.swappiness: '5' # asked for by ops")
    dirty = drift(lab, github)
    assert (dirty.code, "commit or stash" in dirty.err) == (64, True), dirty.err
    base = commit(lab)
    opened = drift(lab, github)
    assert "opened https://github.com/" in opened.err, opened.err + opened.out
    (pull,) = github.pulls.values()
    assert (pull["base"]["ref"], pull["head"]["ref"]) == ("main", f"reconciler/drift/{fleet(lab)}")
    assert "vm.swappiness" in pull["body"]
    made = github.commits[github.branches[pull["head"]["ref"]]]
    assert [one["sha"] for one in made["parents"]] == [base]
    (entry,) = github.trees[made["tree"]["sha"]]["tree"]
    assert entry["path"] == "fleet-spec/personas.yaml"
    wanted = (lab.spec / "personas.yaml").read_text()
    assert entry["content"] == wanted.replace("vm.swappiness: '5'", "vm.swappiness: '1'", 1)
    assert str(lab.path) not in pull["body"]
    assert (lab.spec / "personas.yaml").read_text() != entry["content"], "the work tree is left alone"
    assert "unchanged" in drift(lab, github).err
    for words in (("--limit", "gpu-0001"), ("--exclude", "gpu-0001")):
        some = drift(lab, github, *words)
        assert (some.code, "of the whole fleet" in some.err) == (64, True), some.err
    (lab.spec / "personas.yaml").write_text(before)
    commit(lab)
    assert "closed https://github.com/" in drift(lab, github).err
    assert [one["state"] for one in github.pulls.values()] == ["closed"]


def test_it_is_not_closed_while_a_node_is_worked_on(lab: LabDirectory, github: FakeGitHub) -> None:
    path = lab.path / "own.sqlite"
    before = (lab.spec / "personas.yaml").read_text()
    lab.respec("personas.yaml", "vm.swappiness: '1'", "vm.swappiness: '5'")
    commit(lab)
    assert "opened https://" in drift(lab, github, "--ledger", str(path)).err
    (lab.spec / "personas.yaml").write_text(before)
    commit(lab)
    ledger = SqlLedger(path)
    ledger.start_run("run-1", "apply", "", "", b.NOW)
    token = ledger.acquire("fleet", "ops", 60.0, b.NOW).token
    ledger.begin("run-1", "gpu-0001", "reboot", "", "drift", {}, token, b.NOW)
    ledger.close()
    found = drift(lab, github, "--ledger", str(path))
    assert "left as it is" in found.err, found.err + found.out
    assert [one["state"] for one in github.pulls.values()] == ["open"]


def test_redacted_it_names_no_machine_that_it_leaves(lab: LabDirectory, github: FakeGitHub) -> None:
    """Whose BMC answers is said in the reasons why values are left, beside the report's own items."""
    lab.fault("gpu-0001", "wrong_machine", serial="SECRET-0815")
    lab.respec("personas.yaml", "vm.swappiness: '1'", "vm.swappiness: '5'")
    commit(lab)
    told = drift(lab, github, "--redact")
    (pull,) = github.pulls.values()
    assert "which machine was read is not known" in pull["body"], told.err + told.out
    assert "SECRET-0815" not in pull["body"] + told.out + told.err
    drift(lab, github)
    (pull,) = github.pulls.values()
    assert "SECRET-0815" in pull["body"], "what it says to those who may read it"


def fleet(lab: LabDirectory) -> str:
    text = Path(lab.spec / "fleet.yaml").read_text()
    return text.partition("name: ")[2].split("}")[0].split()[0]
