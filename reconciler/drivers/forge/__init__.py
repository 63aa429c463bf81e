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
    if kind is ForgeKind.GITLAB:
        return GitLab(Rest(url or gitlab.API, token, clock, headers=gitlab.HEADERS), repository, login=login)
    return GitHub(Rest(url or API, token, clock), repository, login=login)
