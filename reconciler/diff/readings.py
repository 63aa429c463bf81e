"""Read values from an observation: one at a time, or all those of a table at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from reconciler.model.observed import HostFacts, Member, Observed, RedfishHot, Silent
from reconciler.model.vocab import UnknownReason

ABSENT: Final = "absent"  # the value of a label, a taint or a membership that the cluster is known not to have


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact that is not known. Equal reasons are equal, so that equal nodes share one comparison."""

    reason: UnknownReason
    detail: str = ""


def _missing(silent: Silent) -> Missing:
    """Return why a source is silent. Only an explained cause keeps its detail: others name the node and its address."""
    return Missing(silent.reason, silent.detail if silent.reason is UnknownReason.EXPLAINED else "")


def hot(observed: Observed) -> RedfishHot | Missing:
    return _missing(observed.hot) if isinstance(observed.hot, Silent) else observed.hot.value


def host(observed: Observed) -> HostFacts | Missing:
    return _missing(observed.host) if isinstance(observed.host, Silent) else observed.host.value


def member(observed: Observed) -> Member | Missing | None:
    """Return the member; None when it is known to be absent from the cluster."""
    return _missing(observed.member) if isinstance(observed.member, Silent) else observed.member.value


@dataclass(frozen=True, slots=True)
class Fact:
    """Reads one part of a source's answer, and normalises it by `shape`.

    `first` prepares the part, once for all facts of the part with the same `first`.
    """

    reading: str
    part: str
    shape: Callable[[Any], Hashable]
    first: Callable[[Any], Any] | None = None

    def __call__(self, observed: Observed) -> Hashable:
        answer = getattr(observed, self.reading)
        if isinstance(answer, Silent):
            return _missing(answer)
        if answer.value is None:
            return ABSENT
        value = getattr(answer.value, self.part)
        if value is None:
            return _not_reported(answer.value, self.part)
        return self.shape(value if self.first is None else self.first(value))


def _not_reported(snapshot: Any, part: str) -> Missing:
    return Missing(UnknownReason.UNSUPPORTED, str(snapshot.unknown.get(part, "not reported")))


class Readings:
    """Reads all rows of a table at once.

    Equal parts of equal nodes are mostly one object (model.interning): a part that is the same object as that of the
    node before is not read again.
    """

    def __init__(self, rows: Sequence[Callable[[Observed], Hashable]]) -> None:
        self._seen: list[Hashable] = [None] * len(rows)
        self._apart = [(at, row) for at, row in enumerate(rows) if not isinstance(row, Fact)]
        sources: dict[str, list[tuple[int, Fact]]] = {}
        for at, row in enumerate(rows):
            if isinstance(row, Fact):
                sources.setdefault(row.reading, []).append((at, row))
        self._sources = [_Source(reading, facts) for reading, facts in sources.items()]

    def __call__(self, observed: Observed) -> tuple[Hashable, ...]:
        for source in self._sources:
            source.read(observed, self._seen)
        for at, row in self._apart:
            self._seen[at] = row(observed)
        return tuple(self._seen)


class _Source:
    """Reads the facts of one source, grouped by the part that they read."""

    def __init__(self, reading: str, facts: Sequence[tuple[int, Fact]]) -> None:
        self._reading = reading
        self._facts = facts
        parts: dict[tuple[str, Any], list[tuple[int, Fact]]] = {}
        for at, fact in facts:
            parts.setdefault((fact.part, fact.first), []).append((at, fact))
        self._parts = list(parts.values())
        self._values = attrgetter(*(part for part, _ in parts), "__class__")  # of two names or more it makes a tuple
        self._last: tuple[Any, ...] = (None,) * len(parts)

    def read(self, observed: Observed, seen: list[Hashable]) -> None:
        answer = getattr(observed, self._reading)
        if isinstance(answer, Silent) or answer.value is None:
            self._last = (None,) * len(self._parts)
            for at, fact in self._facts:
                seen[at] = fact(observed)
            return
        values = self._values(answer.value)
        for part, value, last in zip(self._parts, values, self._last, strict=False):  # the class is one too many
            if value is None or value is not last:
                _shape(part, value, answer.value, seen)
        self._last = values


def _shape(facts: Sequence[tuple[int, Fact]], value: Any, snapshot: Any, seen: list[Hashable]) -> None:
    """Store what the facts of one part, whose value is `value`, read from it."""
    first = facts[0][1].first
    made = value if value is None or first is None else first(value)
    for at, fact in facts:
        seen[at] = _not_reported(snapshot, fact.part) if made is None else fact.shape(made)
