"""How values are read out of an observation: one at a time, or all those of a table at once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from reconciler.model.observed import HostFacts, Member, Observed, RedfishHot, Silent
from reconciler.model.vocab import UnknownReason

ABSENT: Final = "absent"  # what a node has that the cluster is known not to have


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact that is not known. Equal reasons are equal, so that equal nodes share one comparison."""

    reason: UnknownReason
    detail: str = ""


def _missing(silent: Silent) -> Missing:
    """A known cause is told; other details name the node and its address, and would spoil the sharing."""
    return Missing(silent.reason, silent.detail if silent.reason is UnknownReason.EXPLAINED else "")


def hot(observed: Observed) -> RedfishHot | Missing:
    return _missing(observed.hot) if isinstance(observed.hot, Silent) else observed.hot.value


def host(observed: Observed) -> HostFacts | Missing:
    return _missing(observed.host) if isinstance(observed.host, Silent) else observed.host.value


def member(observed: Observed) -> Member | Missing | None:
    """None: known to be absent from the cluster."""
    return _missing(observed.member) if isinstance(observed.member, Silent) else observed.member.value


@dataclass(frozen=True, slots=True)
class Fact:
    """Reads one part of what a source answers, and gives it the form in which it is compared.

    `first`: what is made of the part before, once for all facts that do the same with it.
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
    """All rows of a table, read at once.

    Equal parts of equal nodes are mostly one object (model.sharing): a part that is the very one that was read of the
    node before is not looked at again.
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
    """What is read out of one source, by the part of it that is looked at."""

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
    """`facts` look at one part, which is `value`."""
    first = facts[0][1].first
    made = value if value is None or first is None else first(value)
    for at, fact in facts:
        seen[at] = _not_reported(snapshot, fact.part) if made is None else fact.shape(made)
