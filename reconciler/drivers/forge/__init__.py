"""Implementations of `model.ports.Forge`, one module per forge.

github     the operations, on GitHub's REST API
http       one request: its host, its errors, retries
"""

from __future__ import annotations

from reconciler.drivers.forge.github import API, GitHub
from reconciler.drivers.forge.http import Rest
from reconciler.model.forge import Forge
from reconciler.model.ports import Clock


def connect(repository: str, token: str, clock: Clock, *, url: str = "", login: str = "") -> Forge:
    """Return the forge of a repository. `url`: of its API; "" for github.com's."""
    return GitHub(Rest(url or API, token, clock), repository, login=login)
