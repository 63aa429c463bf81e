"""Addresses of commits and of pull requests, on the forge that a repository is fetched from."""

from __future__ import annotations

import pytest

from reconciler.app.live.forge_links import commit_url, pull_url, web_address

GITHUB, GITLAB = "https://github.com/ops/fleet", "https://gitlab.example.com/ops/gpu/fleet"


@pytest.mark.parametrize(
    ("remote", "address"),
    [
        ("https://github.com/ops/fleet.git", GITHUB),
        ("https://x-access-token:ghs_secret@github.com/ops/fleet.git", GITHUB),
        ("git@github.com:ops/fleet.git", GITHUB),
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
    assert commit_url(web, commit) == url


@pytest.mark.parametrize(
    ("web", "summary", "url"),
    [
        (GITHUB, "Raise the bar of nccl (#412)", f"{GITHUB}/pull/412"),
        (GITHUB, "Merge pull request #7 from ops/bar", f"{GITHUB}/pull/7"),
        (GITLAB, "Raise the bar of nccl (!9)", f"{GITLAB}/-/merge_requests/9"),
        (GITHUB, "See #412 for why", ""),
        ("", "Raise the bar of nccl (#412)", ""),
    ],
)
def test_the_pull_request_that_a_commit_names(web: str, summary: str, url: str) -> None:
    assert pull_url(web, summary) == url
