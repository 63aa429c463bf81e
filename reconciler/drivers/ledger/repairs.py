"""Repairs by people: orders to exchange parts, and the parts that were taken out as faulty."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cache

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError

from reconciler.drivers.ledger.base import SqlRole
from reconciler.drivers.ledger.holds import end_of_hold
from reconciler.drivers.ledger.rows import clean, instant
from reconciler.drivers.ledger.schema import holds, journal, repairs
from reconciler.drivers.ledger.writing import write_journal
from reconciler.model.records import RELEASE, REPAIR
from reconciler.model.repairs import Repair, RetiredPart, retired_parts


class SqlRepairs(SqlRole):
    def save_repair(self, repair: Repair, told: str, now: datetime) -> Repair:
        made = replace(repair, changed_at=now)
        values = {
            "node": made.node,
            "phase": made.phase.value,
            "document": clean(_adapter().dump_json(made).decode()),
            "since": instant(made.since),
            "changed_at": instant(now),
        }
        with self._database.write([repairs, holds, journal], [made.node]) as connection:
            if made.id:
                connection.execute(repairs.update().where(repairs.c.id == made.id).values(values))
            else:
                key = connection.execute(repairs.insert().values(values)).inserted_primary_key
                assert key is not None
                made = replace(made, id=key[0])
            if not made.is_open:
                end = end_of_hold(connection, made.node, now)
                connection.execute(holds.insert().values(_as_hold(made, end)))
            write_journal(connection, instant(now), "", made.node, REPAIR, detail=told, data=values["document"])
            if not made.is_open:
                write_journal(connection, instant(now), "", made.node, RELEASE, detail=clean(made.who))
        return made

    def repairs(self) -> Sequence[Repair]:
        return self._whole_table(repairs, _readable)

    def retired_parts(self) -> Mapping[str, RetiredPart]:
        return retired_parts(self.repairs())


def _as_hold(repair: Repair, end: str) -> dict[str, str]:
    """Return the hold that a repair was: what was seen of the node before a person let it go is judged anew."""
    return {
        "subject": repair.node,
        "reason": clean(f"repair: {repair.what}"),
        "owner": clean(repair.who),
        "since": instant(repair.since),
        "released_at": end,
        "released_by": clean(repair.who),
    }


def to_repair(row: sa.Row[tuple[object, ...]]) -> Repair:
    """Raise ValueError for a document that `save_repair` did not write."""
    cells = row._mapping
    try:
        found = _adapter().validate_json(cells["document"], strict=True)
    except ValidationError as error:
        raise ValueError(f"repair {cells['id']} is damaged ({error.error_count()} errors)") from None
    if found.node != cells["node"]:
        raise ValueError(f"repair {cells['id']} is about {found.node}")
    return replace(found, id=cells["id"])


def _readable(connection: sa.Connection) -> tuple[Repair, ...]:
    """Return all repairs, oldest first. One that is damaged marks its node as malformed where records are read."""
    found = []
    for row in connection.execute(sa.select(repairs).order_by(repairs.c.id)):
        try:
            found.append(to_repair(row))
        except ValueError:
            continue
    return tuple(found)


@cache
def _adapter() -> TypeAdapter[Repair]:
    return TypeAdapter(Repair)
