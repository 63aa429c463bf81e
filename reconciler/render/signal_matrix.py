"""Tables of what heals each signal, as played in the lab: a row for each signal, a column for each remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from reconciler.model.played_signal import PERSON, PlayedSignal
from reconciler.render.tables import table
from reconciler.render.text import count, page

_NOBODY = "nobody: it is shown"


def human(cells: Iterable[PlayedSignal]) -> str:
    rows: dict[str, dict[str, PlayedSignal]] = {}
    unplayed: dict[str, str] = {}
    for cell in cells:
        if cell.unplayed:
            unplayed[cell.signal] = cell.unplayed
        else:
            rows.setdefault(cell.signal, {})[cell.rung] = cell
    rungs = list(dict.fromkeys(rung for row in rows.values() for rung in row if rung not in ("", PERSON)))
    head = ("signal", "out or shown after", *rungs, "a person", "told")
    troubles = [
        f"{cell.signal}, which {f'{rung} heals' if rung else 'is shown'}: {cell.trouble}"
        for row in rows.values()
        for rung, cell in row.items()
        if cell.trouble
    ]
    lines = [
        *table(head, [_row(name, row, (*rungs, PERSON)) for name, row in rows.items()]),
        *(("", "Not played:", *table(("signal", "why"), list(unplayed.items()))) if unplayed else ()),
        *(("", *troubles) if troubles else ()),
        "",
        f"{count(len(rows), 'signal')} played"
        + (f", {len(troubles)} without the end it must have" if troubles else ""),
    ]
    return page(lines)


def _row(name: str, row: Mapping[str, PlayedSignal], rungs: Iterable[str]) -> tuple[str, ...]:
    told = sorted({one for cell in row.values() for one in cell.told})
    first = next(iter(row.values()))
    return (name, _seconds(first.out_s), *(_back(row.get(rung)) for rung in rungs), "; ".join(told) or _NOBODY)


def _back(cell: PlayedSignal | None) -> str:
    return "" if cell is None else _seconds(None if cell.took_a_person else cell.back_s)


def _seconds(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return f"{seconds:.0f} s" if seconds < 180.0 else f"{seconds / 60:.0f} min"
