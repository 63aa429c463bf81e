"""Addresses of commits and of pull requests, on the forge that a repository is fetched from."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from reconciler.app.live.forge_links import SpecPages, web_address
from reconciler.drivers.git import requests
from reconciler.drivers.merge_requests import named
from reconciler.model.desired import SpecSource
from reconciler.model.forge import ForgeKind, SpecForge
from tests.forge.runner import git
from tests.html import world

GITHUB, GITLAB = "https://github.com/ops/fleet", "https://gitlab.example.com/ops/gpu/fleet"


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/ops/fleet.git", GITHUB),
        ("https://x-access-token:ghs_secret@github.com/ops/fleet.git", GITHUB),
        ("git@github.com:ops/fleet.git", GITHUB),
        ("https://git.example.com:8443/ops/fleet.git", "https://git.example.com:8443/ops/fleet"),
        ("https://ops:secret@git.example.com:8443/ops/fleet", "https://git.example.com:8443/ops/fleet"),
        ("http://git.example.com:3000/ops/fleet.git", "http://git.example.com:3000/ops/fleet"),
        ("ssh://git@gitlab.example.com:2222/ops/gpu/fleet.git", GITLAB),
        ("/srv/git/fleet", ""),
        ("file:///srv/git/fleet", ""),
        ("", ""),
    ],
)
def test_where_people_read_a_repository(remote: str, address: str) -> None:
    assert web_address(remote) == address, "credentials are left out"


@pytest.mark.parametrize(
    ("web", "commit", "url"),
    [
        (GITHUB, "c0ffee0", f"{GITHUB}/commit/c0ffee0"),
        (GITLAB, "c0ffee0", f"{GITLAB}/-/commit/c0ffee0"),
        (GITHUB, "not a commit", ""),
        (GITHUB, "javascript:alert(1)", ""),
        ("", "c0ffee0", ""),
    ],
)
def test_the_page_of_a_commit(web: str, commit: str, url: str) -> None:
    assert SpecPages.of(web, None).commit(commit) == url


@pytest.mark.parametrize(
    ("web", "number", "url"),
    [
        (GITHUB, 412, f"{GITHUB}/pull/412"),
        (GITLAB, 9, f"{GITLAB}/-/merge_requests/9"),
        (GITHUB, 0, ""),
        ("", 412, ""),
    ],
)
def test_the_page_of_a_pull_request(web: str, number: int, url: str) -> None:
    assert SpecPages.of(web, None).pull(number) == url


@pytest.mark.parametrize("setting", ["drift_forge", "inventory"])
@pytest.mark.parametrize("kind", ForgeKind)
def test_the_forge_that_the_fleet_names_is_believed_and_not_the_name_of_its_host(setting: str, kind: ForgeKind) -> None:
    fleet, forge = world.make(2).fleet, SpecForge(kind, "ops/fleet", "token")
    given: Any = forge if setting == "drift_forge" else SimpleNamespace(forge=forge)
    named = replace(fleet, settings=replace(fleet.settings, **{setting: given}))
    host = "https://git.example.com:8443/ops/fleet"
    part = "/pull/7" if kind is ForgeKind.GITHUB else "/-/merge_requests/7"
    assert SpecPages.of(host, named).pull(7) == host + part
    assert SpecPages.of(GITLAB, named).kind is kind
    assert SpecPages.of(host, fleet).kind is ForgeKind.GITHUB


@pytest.mark.parametrize(
    ("message", "number"),
    [
        ("Raise the bar of nccl (#412)", 412),
        ("Merge pull request #7 from ops/bar\n\nRaise the bar (#3)", 7),
        ("Raise the bar of nccl (!9)\n", 9),
        ("Merge branch 'bar' into 'main'\n\nRaise the bar\n\nSee merge request ops/gpu/fleet!12", 12),
        ("Merge branch 'bar' into 'main'\n\nSee merge request !12\n", 12),
        ("See #412 for why", 0),
        ("Undo it\n\nsee merge request ops/fleet!12 for why", 0),
        ("", 0),
    ],
)
def test_the_number_that_a_message_names(message: str, number: int) -> None:
    assert named(message) == number


def test_a_commit_came_by_the_first_merge_that_has_it(tmp_path: Path) -> None:
    """In a repository of git's own: merged by both forges, squashed, and pushed without a request."""
    if shutil.which("git") is None:
        pytest.skip("there is no git program")
    (tmp_path / "fleet-spec").mkdir()
    git(tmp_path, "init", "-q", "-b", "main")
    made: dict[str, str] = {}

    def commit(name: str, message: str = "") -> None:
        (tmp_path / "fleet-spec" / f"{name}.yaml").write_text(f"{name}\n")
        git(tmp_path, "add", "-A")
        git(tmp_path, "commit", "-q", "-m", message or name)
        made[name] = git(tmp_path, "rev-parse", "HEAD")

    def branch(name: str, merged: str, *commits: str) -> None:
        git(tmp_path, "checkout", "-q", "-b", name)
        for one in commits:
            commit(one)
        git(tmp_path, "checkout", "-q", "main")
        if merged:
            git(tmp_path, "merge", "-q", "--no-ff", "-m", merged, name)
            made[f"merge of {name}"] = git(tmp_path, "rev-parse", "HEAD")

    commit("first")
    branch("bar", "Merge pull request #7 from ops/bar\n\nRaise the bar", "a", "b")
    commit("pushed")
    branch("fan", "Merge branch 'fan' into 'main'\n\nLower it\n\nSee merge request ops/fleet!12", "c")
    commit("squashed", "Squash it (#9)")
    branch("idle", "Merge branch 'idle'", "d")
    found = requests(SpecSource(str(tmp_path / "fleet-spec"), commit=git(tmp_path, "rev-parse", "HEAD")))
    assert {name: found.get(sha, 0) for name, sha in made.items()} == {
        "first": 0, "a": 7, "b": 7, "merge of bar": 7, "pushed": 0, "c": 12, "merge of fan": 12, "squashed": 9,
        "d": 0, "merge of idle": 0,
    }  # fmt: skip
    assert requests(SpecSource(str(tmp_path / "fleet-spec"))) == {}
