"""Where the spec of a long-running reconciler stands: which commit is in force, and why not a newer one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from reconciler.model.errors import Diagnostic


class Trouble(StrEnum):
    """Why the newest commit is not in force."""

    UNREACHABLE = "unreachable"  # the remote, or nobody knows what the newest is
    REWRITTEN = "rewritten"  # it does not follow the commit in force
    UNSIGNED = "unsigned"
    INVALID = "invalid"


@dataclass(frozen=True, slots=True)
class Pulled:
    """Where the spec stands. `news`: the trouble is another than the last pull's, so it is to be told now."""

    commit: str  # in force; "" until the first good one
    changed: bool  # since the last pull; the first good one is a change
    head: str  # of the branch, as last seen. A commit that leaves the spec alone does not come into force
    trouble: Trouble | None = None
    detail: str = ""
    news: bool = False
    diagnostics: tuple[Diagnostic, ...] = ()  # with `changed`: warnings; with INVALID: what is wrong
