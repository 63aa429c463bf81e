"""The Helm releases of a plan, for people: what is done to each, what it changes, and what is not ready."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from reconciler.model.releases import ObjectChange, ReleasePlan
from reconciler.render.markdown import Cell, MarkdownWriter
from reconciler.render.text import count, plain

_OBJECTS = 30  # of one release in a table; JSON has all
_LISTED = 12


def said(one: ReleasePlan) -> str:
    """Return what is done to a release and why, or how it is, in one sentence."""
    if not one.changes_something:
        state = "ready" if one.ready else "not ready" if one.ready is False else "not known"
        return f"{state}: {one.waits}" if one.waits else state
    waits = f"; it waits: {one.waits}" if one.waits else ""
    objects = f", {count(len(one.changes), 'object')}" if one.changes else ""
    return f"{one.action.value} {one.chart}{objects}, since {one.why}{waits}"


def lines(found: Iterable[ReleasePlan]) -> Iterator[str]:
    """Yield the lines of a plan about its releases."""
    for one in found:
        yield f"release {one.namespace}/{one.name} ({one.where}): {plain(said(one), 400)}"
        yield from (f"  not ready: {plain(why, 200)}" for why in one.not_ready[:_LISTED])
        for change in one.changes[:_OBJECTS]:
            yield f"  {change.change} {plain(change.object, 120)}"
            yield from (f"    {plain(text, 240)}" for text in _values(change))
        if len(one.changes) > _OBJECTS:
            yield f"  and {count(len(one.changes) - _OBJECTS, 'more object')}"


def _values(change: ObjectChange) -> Iterator[str]:
    for value in change.values:
        yield f"{value.path}: {_of(value.before)} → {_of(value.after)}"
    if change.more:
        yield f"and {count(change.more, 'more value')}"


def _of(value: str | None) -> str:
    return "(none)" if value is None else value


def write(writer: MarkdownWriter, found: tuple[ReleasePlan, ...]) -> None:
    """Write what a reviewer is to see of releases."""
    if not found:
        return
    writer.heading("Helm releases")
    writer.table(("release", "runs", "declared", "what"), [(one.name, one.runs, one.chart, said(one)) for one in found])
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        for change in one.changes[:_OBJECTS]:
            rows.append((one.name, f"{change.change} {change.object}", "; ".join(list(_values(change))[:_LISTED])))
        if len(one.changes) > _OBJECTS:
            rows.append((one.name, f"and {count(len(one.changes) - _OBJECTS, 'more object')}", ""))
    if rows:
        writer.table(("release", "object", "values"), rows)
