"""How nodes stood: one row per uninterrupted stretch, written when it changes and not with every look.

That a stretch goes on is said by the fleet's `watches` row alone, which each look at the whole fleet moves on: a
hundred thousand nodes that stand as before cost one row. A stretch was observed until the watch was, if it was seen at
all since that watch began, and until its own `seen` otherwise. When nobody has looked for longer than `within`, the
watch begins anew, and so does every stretch: what lies between was not observed. Neither was what lies between two
looks of which the one saw a node serve and the other did not, unless they are close: nobody knows when it changed.

Open stretches are unique per fleet and node. Of two who write at once, the later one's row is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from reconciler.drivers.ledger.episodes import of_nodes
from reconciler.drivers.ledger.rows import LONG_AGO, clean, instant, to_instant
from reconciler.drivers.ledger.schema import status_intervals, watches
from reconciler.drivers.ledger.writing import upsert
from reconciler.model.period_report import ServiceStatus
from reconciler.model.status import NodeStatus

_CLOSE = timedelta(minutes=10)  # as looks of a loop: the time between two of them goes to how the node stood before
_STALE = 0.05  # of `within`: a look at some nodes is worth writing down when the last one was that long ago


@dataclass(frozen=True, slots=True)
class Open:
    """A stretch that goes on, as its row says."""

    said: tuple[str, str, int | None, str]
    since: datetime
    seen: datetime


@dataclass(frozen=True, slots=True)
class Watch:
    since: datetime
    seen: datetime


@dataclass(slots=True)
class News:
    """What a look changes, by node. `watch`: of the fleet, when all of it was looked at."""

    ended: dict[str, datetime] = field(default_factory=dict)
    begun: dict[str, datetime] = field(default_factory=dict)
    seen: list[str] = field(default_factory=list)
    watch: Watch | None = None

    def __bool__(self) -> bool:
        return bool(self.watch or self.ended or self.begun or self.seen)


def standing(connection: sa.Connection, fleet: str, nodes: Sequence[str] | None = None) -> dict[str, Open]:
    """Open stretches, of all nodes or of these. One whose times are damaged was seen long ago, and is begun anew."""
    some = sa.true() if nodes is None else of_nodes(status_intervals.c.node, nodes)
    row = status_intervals.c
    query = sa.select(row.node, row.pool, row.status, row.out_of_service, row.code, row.since, row.seen)
    query = query.where(row.fleet == fleet, row.until.is_(None), some)
    known: dict[str, datetime] = {}  # many began together
    found = {}
    for node, pool, status, out, code, since, seen in connection.execute(query):
        for cell in (since, seen):
            if cell not in known:
                known[cell] = _instant(cell)
        found[node] = Open((pool, status, out, code), known[since], known[seen])
    return found


def watch_of(connection: sa.Connection, fleet: str) -> Watch | None:
    row = connection.execute(sa.select(watches).where(watches.c.fleet == fleet)).one_or_none()
    return None if row is None else Watch(_instant(row.since), _instant(row.seen))


def last_look(seen: datetime, watch: Watch | None) -> datetime:
    """Until when a stretch was observed whose row says `seen`."""
    return max(seen, watch.seen) if watch is not None and seen >= watch.since else seen


def write(
    connection: sa.Connection, fleet: str, stands: Mapping[str, ServiceStatus], news: News, now: datetime
) -> None:
    """What a look changes, as of when it was looked up: of two who did that at once, the later one's is left out."""
    if news.watch is not None:
        row = {"fleet": fleet, "since": instant(news.watch.since), "seen": instant(news.watch.seen)}
        upsert(connection, watches, [row])
    mine = (
        (status_intervals.c.fleet == fleet)
        & (status_intervals.c.node == sa.bindparam("which"))
        & status_intervals.c.until.is_(None)
    )
    if news.ended:
        ended = [{"which": node, "until": instant(at)} for node, at in news.ended.items()]
        connection.execute(status_intervals.update().where(mine).values(until=sa.bindparam("until")), ended)
    if news.seen:
        connection.execute(
            status_intervals.update().where(mine).values(seen=instant(now)), [{"which": node} for node in news.seen]
        )
    if news.begun:
        insert = (postgresql if connection.dialect.name == "postgresql" else sqlite).insert(status_intervals)
        index = {
            "index_elements": [status_intervals.c.fleet, status_intervals.c.node],
            "index_where": status_intervals.c.until.is_(None),
        }
        rows = [_row(fleet, node, stands[node], instant(at)) for node, at in news.begun.items()]
        connection.execute(insert.on_conflict_do_nothing(**index), rows)


def keep(known: dict[str, Open], stands: Mapping[str, ServiceStatus], news: News, now: datetime) -> None:
    """`known` with what was written."""
    for node in news.ended:
        known.pop(node, None)
    for node in news.seen:
        known[node] = replace(known[node], seen=now)
    for node, at in news.begun.items():
        known[node] = Open(_said(stands[node]), at, at)


def news_of(
    known: Mapping[str, Open],
    watch: Watch | None,
    stands: Mapping[str, ServiceStatus],
    now: datetime,
    within: timedelta,
    *,
    whole: bool,
) -> News:
    """`known`: open stretches, of these nodes at least."""
    news = News()
    if whole:
        goes_on = watch is not None and now - watch.seen <= within
        news.watch = Watch(watch.since, max(now, watch.seen)) if watch is not None and goes_on else Watch(now, now)
    for node, stand in stands.items():
        old = known.get(node)
        if old is None:
            news.begun[node] = now
            continue
        end = last_look(old.seen, watch)
        if now - end > within:
            news.ended[node], news.begun[node] = end, now
        elif old.said != _said(stand):
            news.begun[node] = max(now, end)  # clocks of two runners may differ
            news.ended[node] = end if now - end > _CLOSE and _unforeseen(old, stand) else news.begun[node]
        elif now - end > within * _STALE if news.watch is None else old.seen < news.watch.since:
            news.seen.append(node)
    if whole:  # the others have left the spec
        news.ended |= {node: last_look(old.seen, watch) for node, old in known.items() if node not in stands}
    return news


def _unforeseen(old: Open, stand: ServiceStatus) -> bool:
    """Whether a node went out of service or into it, and not by our work, which is out until it is seen to serve."""
    _, status, out, _ = _said(stand)
    return old.said[2] != out and NodeStatus.ACTING.value not in (old.said[1], status)


def _row(fleet: str, node: str, stand: ServiceStatus, at: str) -> dict[str, Any]:
    pool, status, out, code = _said(stand)
    return {
        "fleet": fleet, "node": node, "pool": pool, "status": status, "out_of_service": out, "code": code,
        "why": clean(stand.why), "since": at, "seen": at,
    }  # fmt: skip


def _said(stand: ServiceStatus) -> tuple[str, str, int | None, str]:
    """What makes a stretch another one when it changes. Words of its why change with every reading."""
    return stand.pool, stand.status.value, None if stand.out is None else int(stand.out), stand.code


def _instant(cell: str) -> datetime:
    try:
        return to_instant(cell, "time")
    except ValueError:
        return LONG_AGO
