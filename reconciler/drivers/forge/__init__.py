"""Implementations of `model.forge.Forge`, one module per forge.

github, gitlab   the operations, on the REST API of each
http             one request: its host, its errors, retries
fields           what is read out of an answer
"""

from __future__ import annotations

from reconciler.drivers.forge import gitlab
from reconciler.drivers.forge.github import API, GitHub
from reconciler.drivers.forge.gitlab import GitLab
from reconciler.drivers.forge.http import Rest
from reconciler.model.forge import Forge, ForgeKind
from reconciler.model.ports import Clock


def connect(
    repository: str, token: str, clock: Clock, *, kind: ForgeKind = ForgeKind.GITHUB, url: str = "", login: str = ""
) -> Forge:
    """Return the forge of a repository. `url`: of its API; "" for that of github.com or gitlab.com."""
    there = url or api_address(kind)
    if kind is ForgeKind.GITLAB:
        return GitLab(Rest(there, token, clock, headers=gitlab.HEADERS), repository, login=login)
    return GitHub(Rest(there, token, clock), repository, login=login)


def api_address(kind: ForgeKind) -> str:
    """Return the address of the API of github.com or gitlab.com."""
    return gitlab.API if kind is ForgeKind.GITLAB else API
