"""A fleet's own rows of the table of signals, as its spec says them."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(frozen=True, slots=True)
class SignalChange:
    """The words of a fleet on one signal, under the keys of its row. None: as in the packaged table.

    A row with `contains`, or of the fact host.raised, is the fleet's own.
    """

    name: str
    because: str
    fact: str | None = None
    contains: str | None = None
    scope: str | None = None
    cause: str | None = None
    reads: int | None = None
    window: str | None = None
    threshold: float | None = None
    domains: tuple[str, ...] | None = None
    first: str | None = None
    next: str | None = None
    rungs: tuple[str, ...] | None = None
    service: str | None = None
    healed_by: tuple[str, ...] | None = None
    source: str | None = None

    def keys(self) -> dict[str, object]:
        """Return what this row says, by the names of the fields of `SignalRow`."""
        found = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "name"}
        return {name: value for name, value in found.items() if value is not None}
