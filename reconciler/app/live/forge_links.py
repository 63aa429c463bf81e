"""Addresses for people: of a commit and of a pull request, on the forge that a repository is fetched from."""

from __future__ import annotations

import re
from typing import Final

# https://host/owner/name(.git), ssh://git@host/owner/name, git@host:owner/name; credentials are left out.
_URL: Final = re.compile(r"(?:https?|ssh)://(?:[^/@]*@)?([\w.-]+)(?::\d+)?/([\w./-]+?)(?:\.git)?/?")
_SCP: Final = re.compile(r"(?:[\w.-]+@)([\w.-]+):([\w./-]+?)(?:\.git)?/?")
_COMMIT: Final = re.compile(r"[0-9a-f]{7,64}")
# GitHub's titles of squashed and of merged pull requests, GitLab's of merge requests.
_PULL: Final = re.compile(r"\(#(\d+)\)$|^Merge pull request #(\d+) |\(!(\d+)\)$")


def web_address(remote: str) -> str:
    """Return where people read a repository, from the URL that git fetches it from; "" for a directory."""
    found = _URL.fullmatch(remote) or _SCP.fullmatch(remote)
    return f"https://{found[1]}/{found[2]}" if found else ""


def commit_url(web: str, commit: str) -> str:
    """Return the page of a commit; "" where the address or the commit is not known."""
    if not web or not _COMMIT.fullmatch(commit):
        return ""
    return f"{web}/-/commit/{commit}" if _is_gitlab(web) else f"{web}/commit/{commit}"


def pull_url(web: str, summary: str) -> str:
    """Return the page of the pull or merge request that a commit's first line names; "" = it names none."""
    found = _PULL.search(summary)
    if not web or found is None:
        return ""
    number = found[1] or found[2] or found[3]
    return f"{web}/-/merge_requests/{number}" if _is_gitlab(web) else f"{web}/pull/{number}"


def _is_gitlab(web: str) -> bool:
    return "gitlab" in web.partition("://")[2].partition("/")[0]
