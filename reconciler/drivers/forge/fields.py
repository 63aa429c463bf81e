"""Fields of a forge's answers, and texts of the length that a forge takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from reconciler.model.errors import DriverError, Failure

MOST_PROPOSALS: Final = 30  # pull requests from one branch that are looked at


def cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def field(entry: Any, name: str, kind: type[Any]) -> Any:
    """Return a field of this kind; of `object`, whatever is there, or None. Raise DriverError for another kind."""
    found = entry.get(name) if isinstance(entry, Mapping) else None
    if kind is not object and (not isinstance(found, kind) or isinstance(found, bool)):
        raise DriverError(Failure.MALFORMED, f"the forge sent no {name}")
    return found


def check_tip(branch: str, tip: str | None, over: str) -> None:
    """Raise DriverError where a branch is no longer at the commit that may be replaced."""
    if tip != over:
        raise DriverError(Failure.CONFLICT, f"somebody else has pushed to {branch} meanwhile, so it is left alone")
