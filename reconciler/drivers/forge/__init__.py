"""Forges, behind `model.ports.Forge`: another one is one more module here.

github     the operations, on GitHub's REST API
http       one request: who may be asked, what failed, when to ask again
"""

from __future__ import annotations

from reconciler.drivers.forge.github import API, GitHub
from reconciler.drivers.forge.http import Rest
from reconciler.model.forge import Forge
from reconciler.model.ports import Clock


def connect(repository: str, token: str, clock: Clock, *, url: str = "", login: str = "") -> Forge:
    """The forge that holds `repository`. `url`: of its API, GitHub's own if left out."""
    return GitHub(Rest(url or API, token, clock), repository, login=login)
