"""Show what waits for a person: as text, as a table, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import datetime

from reconciler.model.repairs import RepairPhase, Waiting
from reconciler.render.tables import markdown_table
from reconciler.render.text import count, markdown, plain

_LINE = 300  # characters of one line of evidence
HEAD = ("node", "part", "serial", "since", "tried", "evidence", "state")


def human(found: Sequence[Waiting]) -> str:
    """Return a block of lines for each node."""
    if not found:
        return "no node waits for a person\n"
    blocks = ["\n".join(_block(one)) for one in found]
    return f"{count(len(found), 'node')} {'waits' if len(found) == 1 else 'wait'} for a person\n\n" + "\n\n".join(
        [*blocks, ""]
    )


def _block(one: Waiting) -> Iterator[str]:
    yield plain(f"{one.node} ({one.pool}): {state(one)}", _LINE)
    for faulty in one.parts:
        yield plain(f"  part      {faulty.part.text}", _LINE)
        for why in faulty.evidence:
            yield plain(f"            {why}", _LINE)
    if one.since is not None:
        yield f"  since     {_clock(one.since)}"
    for at, what in enumerate(one.tried):
        yield plain(f"  {'tried' if at == 0 else '':<10}{what}", _LINE)
    for at, what in enumerate(one.evidence):
        yield plain(f"  {'evidence' if at == 0 else '':<10}{what}", _LINE)
    yield plain(f"  {'next':<10}{_next(one)}", _LINE)
    if one.ticket:
        yield plain(f"  {'ticket':<10}{one.ticket}", _LINE)


def state(one: Waiting) -> str:
    """Return how far the repair of a node is, in a few words."""
    if one.repair is None:
        return "serves, and waits for a person" if one.in_service else "waits for a person"
    by = f"by {one.repair.who} since {_clock(one.repair.since)}"
    match one.repair.phase:
        case RepairPhase.OUT:
            return f"in repair {by}"
        case RepairPhase.REFUSED:
            return f"what was put in is not accepted ({by}): {one.repair.told}"
        case _:
            return f"comes back from its repair {by}"


def _next(one: Waiting) -> str:
    if one.repair is None:
        return f"reconciler repair start {one.node}"
    if one.repair.phase is RepairPhase.OUT:
        return f"exchange {one.repair.what}, then: reconciler repair done {one.node}"
    if one.repair.phase is RepairPhase.REFUSED:
        return f"reconciler repair start {one.node}, or reconciler repair done {one.node} --accept WHY"
    return "nothing: its gate decides"


def as_json(found: Sequence[Waiting]) -> str:
    rows = [
        {
            "node": one.node,
            "pool": one.pool,
            "state": state(one),
            "finding": one.finding,
            "parts": [
                {
                    "kind": part.part.kind, "place": part.part.place, "serial": part.part.serial,
                    "evidence": list(part.evidence),
                }
                for part in one.parts
            ],
            "since": None if one.since is None else one.since.isoformat(),
            "tried": list(one.tried),
            "evidence": list(one.evidence),
            "in_service": one.in_service,
            "repair": None if one.repair is None else one.repair.phase.value,
            "ticket": one.ticket,
        }
        for one in found
    ]  # fmt: skip
    return json.dumps(rows, indent=1) + "\n"


def as_markdown(found: Sequence[Waiting]) -> str:
    rows = [
        (
            one.node, ", ".join(part.part.name for part in one.parts),
            ", ".join(part.part.serial or "-" for part in one.parts),
            "-" if one.since is None else _clock(one.since), "; ".join(one.tried) or "-", "; ".join(one.evidence),
            state(one),
        )
        for one in found
    ]  # fmt: skip
    cells = [tuple(markdown(cell, _LINE) for cell in row) for row in rows]
    return "\n".join([*markdown_table(HEAD, cells), ""]) if rows else "no node waits for a person\n"


def _clock(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M UTC")
