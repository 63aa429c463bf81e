"""The source of a long-running reconciler's spec: which commit is in force, and why not a newer one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from reconciler.model.desired import Fleet
from reconciler.model.errors import Diagnostic

# Raises UsageError for a valid spec that this process can't follow, such as one that names code which is not there.
Fits = Callable[[Fleet], None]


def fits_all(_: Fleet) -> None:
    """Take every valid spec, where nothing is asked of it."""


class Trouble(StrEnum):
    """Why the newest commit is not in force."""

    UNREACHABLE = "unreachable"  # the remote can't be read, so nobody knows the newest commit
    REWRITTEN = "rewritten"  # it does not descend from the commit in force
    UNSIGNED = "unsigned"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Pulled:
    """The result of one look for a newer commit. `news`: the trouble differs from the last one, so report it."""

    commit: str  # in force; "" until the first good one
    changed: bool  # since the last pull; the first good one is a change
    head: str  # of the branch, as last seen. A commit that does not change the spec does not come into force
    trouble: Trouble | None = None
    detail: str = ""
    news: bool = False
    diagnostics: tuple[Diagnostic, ...] = ()  # with `changed`: warnings; with INVALID: what is wrong


class SpecFeed(Protocol):
    """A source of a spec that changes: a directory or a branch."""

    @property
    def fleet(self) -> Fleet | None:
        """The spec in force; None until there is a good one."""

    async def pull(self) -> Pulled:
        """Look for a newer spec. Never raises for what others did: the last good spec stays in force."""
