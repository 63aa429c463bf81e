"""The pull or merge request that brought a commit, by the messages that forges write into a repository."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

# GitHub's and GitLab's titles of squashed requests, and GitHub's of merged ones.
_TITLE: Final = re.compile(r"\(#(\d+)\)$|^Merge pull request #(\d+) |\(!(\d+)\)$")
# GitLab's merge commits end with it: https://docs.gitlab.com/user/project/merge_requests/commit_templates/
_SEE: Final = re.compile(r"^See merge request [\w./-]*!(\d+)$", re.MULTILINE)
FORMAT: Final = "--format=%P%n%B%x00"  # of `git rev-list`, for `read`


def named(message: str) -> int:
    """Return the number that a commit's message names; 0 = none."""
    title, _, body = message.strip().partition("\n")
    found = [*_TITLE.finditer(title), *_SEE.finditer(body)]
    return int(next(filter(None, found[-1].groups()))) if found else 0


def brought(listing: str) -> Mapping[str, int]:
    """Return the number of the request that brought each commit, of a listing by `git rev-list` in FORMAT.

    A commit that names none came by the first merge on the branch that has it. What no request brought is left out.
    """
    history = {commit: (parents, message) for commit, parents, message in _entries(listing)}
    found: dict[str, int] = {}
    seen: set[str] = set()
    for merge in reversed(list(_branch(history))):
        number, todo = named(history[merge][1]), [merge]
        while todo:
            commit = todo.pop()
            if commit in seen or commit not in history:  # an earlier merge has it, or the history is cut off there
                continue
            seen.add(commit)
            parents, message = history[commit]
            if its := named(message) or number:
                found[commit] = its
            todo += parents
    return found


def _entries(listing: str) -> Iterator[tuple[str, list[str], str]]:
    """Yield commits with their parents and messages, newest first."""
    for entry in listing.split("\0"):
        head, _, rest = entry.strip("\n").partition("\n")
        parents, _, message = rest.partition("\n")
        if head:
            yield head.removeprefix("commit "), parents.split(), message


def _branch(history: Mapping[str, tuple[list[str], str]]) -> Iterator[str]:
    """Yield the commits of the branch itself, newest first: from each to its first parent."""
    commit = next(iter(history), "")
    while commit in history:
        yield commit
        commit = next(iter(history[commit][0]), "")
