"""Say which rows of the journal may be pruned: those that are old, and that nothing else in the ledger goes by.

Only events that are listed here are pruned ever. An attempt goes as a whole: its other rows follow the row of its
intent. What may go once may go for ever after, since later rows only take the place of earlier ones; so the answer
stays good while others write.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import sqlalchemy as sa

from reconciler.drivers.ledger.anchors import ANCHOR
from reconciler.drivers.ledger.rows import instant, to_certificate, to_object
from reconciler.drivers.ledger.schema import (
    certificates,
    drift,
    holds,
    is_event,
    journal,
    nodes,
    open_attempts,
    runs,
)
from reconciler.drivers.ledger.seals import SEAL
from reconciler.model.records import ATTEMPTS_KEPT, CLOCK_SET, RELEASE
from reconciler.planner.node.actions import ACTIONS

Row = sa.Row[Any]

_OF_ATTEMPT = ("amendment", "resume", "outcome")
# Their attempts are kept for ever.
_EVIDENCE: Final = frozenset(name for name, spec in ACTIONS.items() if spec.is_evidence)
_SAME_KEPT = 2  # newest attempts of one action and target at a node: the next one asks for the one before it
# Rows of a node that are kept. Attempts are counted from the release on, and by the steps of the clock after them.
_NEWEST: Final[Mapping[str, int]] = {"identity": 1, "attested": 20, "search": 20, RELEASE: 1, CLOCK_SET: 50}
_PLAIN = frozenset({"run", "notice", "install", "fabric", "forget", "retracted"})  # that only people read


class Removable:
    """Chooses rows of one fleet that are from before a time. `fleet`: "" = of all fleets.

    `dry`: what was chosen before stays in the ledger, and is taken for gone.
    """

    def __init__(self, fleet: str, before: datetime, *, dry: bool = False) -> None:
        self._dry = dry
        self._fleet = fleet
        self.before = instant(before)  # no row from then on goes
        self._thresholds: dict[str, int] = {}  # by node: newest intents from this row on are kept
        self._gone: set[int] = set()  # attempts whose intent is taken for gone
        self._connection: sa.Connection
        self._rules: Mapping[str, Callable[[Row], bool]] = {
            **dict.fromkeys(_PLAIN, lambda _row: True),
            **dict.fromkeys(_NEWEST, self._is_superseded),
            **dict.fromkeys(_OF_ATTEMPT, lambda row: row.attempt not in self._present),
            "certificate": self._is_spent,
            "drift": lambda row: (row.node, row.at) not in self._open_drift,
            "hold": lambda row: (row.node, row.at) not in self._open_holds,
            "lease": lambda row: row.token is not None and row.token < self._highest,
            SEAL: self._is_resealed,
            ANCHOR: self._is_superseded_anchor,
        }
        self._present: set[int] = set()  # attempts whose intent stays
        self._open_drift: set[tuple[str, str]] = set()
        self._open_holds: set[tuple[str, str]] = set()
        self._highest = 0

    def of(self, connection: sa.Connection, rows: Sequence[Row]) -> list[Row]:
        """Return those of these rows, in order, that may go."""
        self._connection = connection
        old = self._ours([row for row in rows if row.at < self.before])
        if not old:
            return []
        attempts = self._attempts([row for row in old if row.event == "intent"])
        self._gone = self._gone | attempts if self._dry else attempts
        others = [row for row in old if row.event != "intent" and row.event in self._rules]
        self._ask(others)
        found = attempts.union(row.id for row in others if self._rules[row.event](row))
        return [row for row in old if row.id in found]

    # --- whose rows they are ---

    def _ours(self, rows: list[Row]) -> list[Row]:
        """Leave out rows about nodes of another fleet, and rows that runs of another fleet wrote."""
        if not self._fleet:
            return rows
        other = nodes.c.fleet.not_in(("", self._fleet))
        theirs = self._set(sa.select(nodes.c.node).where(nodes.c.node.in_({row.node for row in rows}), other))
        other = runs.c.fleet.not_in(("", self._fleet))
        strange = self._set(sa.select(runs.c.run).where(runs.c.run.in_({row.run for row in rows}), other))
        return [row for row in rows if row.node not in theirs and row.run not in strange]

    # --- attempts ---

    def _attempts(self, intents: Sequence[Row]) -> set[int]:
        """Return the attempts that ended long ago and that no decision, no certificate and no evidence goes by."""
        begun = [row for row in intents if row.action not in _EVIDENCE and row.id < self._threshold(row.node)]
        if not begun:
            return set()
        numbers = [row.id for row in begun]
        still = self._set(sa.select(open_attempts.c.attempt).where(open_attempts.c.attempt.in_(numbers)))
        of = journal.c.attempt
        ends = sa.select(of, sa.func.max(journal.c.at), sa.func.max(journal.c.id)).group_by(of)
        ends = ends.where(of.in_(numbers), journal.c.event.in_(_OF_ATTEMPT))
        last = {attempt: (at, number) for attempt, at, number in self._connection.execute(ends)}
        return {
            row.id
            for row in begun
            if row.id not in still
            and row.id in last
            and last[row.id][0] < self.before
            and self._is_passed_by(row)
            and not self._certified(row, last[row.id][1])
        }

    def _threshold(self, node: str) -> int:
        """Return the oldest of the intents that the record of a node is read from; 0 while it has fewer."""
        if node not in self._thresholds:
            query = sa.select(journal.c.id).where(journal.c.node == node, journal.c.event == "intent")
            query = query.order_by(journal.c.id.desc()).offset(ATTEMPTS_KEPT - 1).limit(1)
            self._thresholds[node] = self._connection.execute(query).scalar() or 0
        return self._thresholds[node]

    def _is_passed_by(self, intent: Row) -> bool:
        """Say whether attempts at the same began since, of which the next has ended: it asks for the one before."""
        later = self._newer(intent, action=intent.action, target=intent.target)
        query = sa.select(open_attempts.c.attempt).where(open_attempts.c.attempt.in_(later[:1]))
        return len(later) >= _SAME_KEPT and self._connection.execute(query).first() is None

    def _certified(self, intent: Row, last: int) -> bool:
        """Say whether a certificate that is kept was issued in an attempt."""
        within = journal.c.id.between(intent.id, last)
        query = sa.select(journal.c.id).where(journal.c.node == intent.node, within, journal.c.event == "certificate")
        return self._connection.execute(query.limit(1)).first() is not None

    # --- other rows ---

    def _ask(self, rows: Sequence[Row]) -> None:
        """Ask once what all rows of a page are judged by."""
        follow = {row.attempt for row in rows if row.event in _OF_ATTEMPT}
        self._present = self._set(sa.select(journal.c.id).where(journal.c.id.in_(follow))) - self._gone
        names = {row.node for row in rows if row.event == "drift"}
        begun = sa.select(drift.c.node, drift.c.first_seen).where(drift.c.node.in_(names), drift.c.ended_at.is_(None))
        self._open_drift = {(node, at) for node, at in self._connection.execute(begun)}
        held = sa.select(holds.c.subject, holds.c.since).where(holds.c.released_at.is_(None))
        self._open_holds = {(subject, at) for subject, at in self._connection.execute(held)}
        if any(row.event == "lease" for row in rows):
            query = sa.select(sa.func.max(journal.c.token)).where(is_event(journal, "lease"))
            self._highest = self._connection.execute(query).scalar() or 0

    def _is_superseded(self, row: Row) -> bool:
        return len(self._newer(row)) >= _NEWEST[row.event]

    def _is_superseded_anchor(self, row: Row) -> bool:
        query = sa.select(journal.c.id).where(is_event(journal, ANCHOR), journal.c.attempt == row.attempt)
        return self._connection.execute(query.where(journal.c.id > row.id).limit(1)).first() is not None

    def _is_resealed(self, row: Row) -> bool:
        """Say whether a newer seal binds the same row of a table."""
        later = sa.select(journal.c.data).where(
            journal.c.node == row.node, journal.c.event == SEAL, journal.c.id > row.id
        )
        bound = _sealed(row.data)
        return bound is not None and any(_sealed(cell) == bound for cell in self._connection.execute(later).scalars())

    def _is_spent(self, row: Row) -> bool:
        """Say whether a certificate is neither in force nor the first of its image, which baselines are made from."""
        number = certificate_in(row)
        if number is None:
            return False
        query = sa.select(certificates).where(certificates.c.node == row.node).order_by(certificates.c.id)
        known = self._connection.execute(query).all()
        if not known or number == known[-1].id or number not in {one.id for one in known}:
            return False
        firsts: dict[str, int] = {}
        for one in known:
            try:
                found = to_certificate(one)
            except ValueError:
                continue
            if not found.adopted:
                firsts.setdefault(found.binding.image_sha256, one.id)
        return number not in firsts.values()

    def _newer(self, row: Row, **same: str) -> Sequence[int]:
        """Return rows of the same node and event that are newer, the next first, as many as matter."""
        query = sa.select(journal.c.id).where(journal.c.node == row.node, journal.c.id > row.id)
        query = query.where(journal.c.event == row.event, *(journal.c[name] == cell for name, cell in same.items()))
        query = query.order_by(journal.c.id).limit(_NEWEST.get(row.event, _SAME_KEPT))
        return self._connection.execute(query).scalars().all()

    def _set(self, query: sa.Select[Any]) -> set[Any]:
        return set(self._connection.execute(query).scalars())


def certificate_in(row: Row) -> int | None:
    """Return the number of the certificate that a row binds."""
    try:
        number = to_object(row.data, "seal").get("certificate")
    except ValueError:
        return None
    return number if isinstance(number, int) else None


def _sealed(cell: Any) -> tuple[Any, Any] | None:
    try:
        bound = to_object(cell, "seal")
    except ValueError:
        return None
    return bound.get("table"), bound.get("key")
