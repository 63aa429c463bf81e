"""The effect of a change of the spec, as part of its plan: the verdict, the disruption, then what it causes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from reconciler.model.change import BarFailure, Change, EndpointChange, VoidCertificate
from reconciler.model.drift import DriftItem
from reconciler.model.vocab import Concern, Disruption
from reconciler.render import bars
from reconciler.render.drift import ORDER, OWN, grouped
from reconciler.render.tables import table
from reconciler.render.text import NodeNames, count, disruption, fold, source, value


@dataclass(frozen=True, slots=True)
class Block:
    """A table with its title. `figure`: lines of text that stand as they are."""

    title: str
    head: tuple[str, ...]
    rows: Sequence[tuple[str | NodeNames, ...]]
    note: str = ""
    figure: Sequence[str] = ()


def verdict(change: Change) -> str:
    if change.empty:
        return "it makes no difference to any node"
    parts = [_touched(change)]
    if change.gpu_hours_out:
        parts.append(f"{change.gpu_hours_out:g} GPU-hours out of service beyond base's")
    if change.caused:
        parts.append(f"{count(len(change.caused), 'value')} to change because of it")
    if change.removed:
        parts.append(f"{count(len(change.removed), 'value')} that drifted accepted")
    parts += _judged(change)
    if change.endpoints:
        parts.append(f"{count(len(change.endpoints), 'address or credential', 'addresses or credentials')} edited")
    if change.joining:
        parts.append(f"{count(len(change.joining), 'node')} added")
    if change.forgotten:
        parts.append(f"{count(len(change.forgotten), 'node')} forgotten")
    parts += [f"{count(len(names), 'node')} {state}" for state, names in sorted(change.states.items())]
    if change.settings:
        parts.append(f"{', '.join(change.settings)} edited")
    return "; ".join(parts)


def _judged(change: Change) -> Iterator[str]:
    """Yield what becomes of the health of nodes, of certificates and of stored metrics."""
    ill, well = (
        {item.node for item in some if item.concern is Concern.HEALTH} for some in (change.caused, change.removed)
    )
    admitted = {one.node for bar in change.bars for one in bar.admitted}
    for number, noun, what in (
        (len(ill), "node", "ill by it"),
        (len(well - ill), "node", "no longer ill by it"),
        (len(change.void_certificates), "certificate", "void"),
        (len(change.below_bar), "node", "below a bar that the change moves"),
        (len(admitted), "node", "above a bar that it lowers"),
        (len(change.unmeasured), "node", "without metrics for a bar that the change moves"),
        (len(change.new_tests), "test", "that nobody has run"),
    ):
        if number:
            yield f"{count(number, noun)} {what}"


def _touched(change: Change) -> str:
    worst, held_up = levels(change), f", and can't begin on {len(change.held_up)}" if change.held_up else ""
    if change.unknown:
        held_up += f", and of {len(change.unknown)} it is unknown"
    if not worst:
        return f"it disrupts none of {count(change.nodes, 'node')}{held_up}"
    nodes = sum(len(names) for _, names in worst)
    return f"it touches {nodes} of {count(change.nodes, 'node')}, {_hurts(worst[0][0])}{held_up}"


def _hurts(level: Disruption) -> str:
    return f"up to {disruption(level)}" if level else "without disruption"


def levels(change: Change) -> list[tuple[Disruption, tuple[str, ...]]]:
    """Return the disruption levels with their nodes, worst first, in whatever order a file had them."""
    return sorted(((Disruption.labelled(label), names) for label, names in change.touched.items()), reverse=True)


def human(change: Change) -> list[str]:
    lines = ["", f"The change: {verdict(change)}", f"  from {source(change.base)}", f"  to {source(change.head)}"]
    red = _red(change)
    if red:
        lines += table(("disruption", "nodes"), [(f"! {what}", str(nodes)) for what, nodes in red])
    for block in blocks(change):
        lines += ["", f"{block.title}:", *(table(block.head, _texts(block)) if block.rows else ())]
        lines += [f"    {line}" for line in block.figure]
        if block.note:
            lines.append(f"  {block.note}")
    return lines


def _texts(block: Block) -> list[tuple[str, ...]]:
    return [tuple(str(cell) for cell in row) for row in block.rows]


def _red(change: Change) -> list[tuple[str, NodeNames]]:
    """Return the consequences that a reader must not miss, by class, with the names of nodes."""
    found = [(disruption(level), _named(names)) for level, names in levels(change) if level]
    if change.forgotten:
        found.append(("forget", _named(change.forgotten)))
    return found


def _named(names: Sequence[str]) -> NodeNames:
    return NodeNames(tuple(names))


def blocks(change: Change) -> Iterator[Block]:
    held_up = f"Nothing of it can be done now to {_named(change.held_up)}: see what is held back."
    yield from _drift(
        f"Caused by the change ({len(change.caused)})", change.caused, held_up if change.held_up else "", change.set_by
    )
    yield from _drift(f"Drifted before, whatever becomes of the change ({len(change.before)})", change.before)
    yield from _drift(f"Drift that the change accepts ({len(change.removed)})", change.removed)
    if change.endpoints:
        note = "Nobody contacts what is new here before the change is merged: this plan was made at base's."
        yield Block("Addresses, keys and credentials that it edits", _ENDPOINTS, _endpoints(change.endpoints), note)
    if change.void_certificates:
        rows = _void(change.void_certificates)
        yield Block(f"Certificates that become void ({len(change.void_certificates)})", ("nodes", "why", "until"), rows)
    yield from _bars(change)
    yield from _names(change)
    if change.unseen:
        note = "An observation that is made for this change reads them."
        rows = _unseen(change.unseen)
        yield Block(f"Newly managed, and not read yet ({len(change.unseen)})", ("path", "wanted", "nodes"), rows, note)


def _drift(
    title: str, items: Sequence[DriftItem], note: str = "", set_by: Mapping[str, Sequence[str]] | None = None
) -> Iterator[Block]:
    """Return rows of drift. The same drift on many nodes is one row (conventions D7)."""
    if not items:
        return
    found = grouped(map(_unmeasured, items))
    rows = []
    for row in (row for kind in ORDER for row in found.get(kind, ())):
        own = len(row.nodes) > 1 and row.item.path in OWN
        wanted, seen = ("each its own", "others") if own else (value(row.item.desired), value(row.item.observed))
        places = _lines((set_by or {}).get(row.item.path, ()))
        rows.append((row.item.path, wanted, seen, row.item.kind.value, _named(row.nodes), places))
    yield Block(title, ("path", "wanted", "found", "", "nodes", "set by"), rows, note)


def _lines(places: Sequence[str]) -> str:
    return ", ".join(places[:2]) + (f" and {len(places) - 2} more" if len(places) > 2 else "")


# A verdict of the gate, as gate/certificate.py words it: what, the value, the bar.
_MEASURED = re.compile(r"(?P<what>[^;]+) (?P<value>-?[0-9][^ ;]*) (?P<bar>[<>] [^;]+)")


def _unmeasured(item: DriftItem) -> DriftItem:
    """Describe nodes that fail the same bar with different measurements."""
    if item.concern is not Concern.GATE:
        return item
    return replace(item, observed=_MEASURED.sub(r"\g<what> \g<bar>", str(item.observed)))


_ENDPOINTS = ("whose", "what", "at base", "at head", "place")


def _endpoints(changes: Iterable[EndpointChange]) -> list[tuple[str | NodeNames, ...]]:
    """Return one row for all nodes that one line of the spec sets."""
    groups: dict[tuple[str, str, bool, bool], list[EndpointChange]] = {}
    for change in changes:
        key = (change.what, change.position, not change.before, change.subject == "fleet")
        groups.setdefault(key, []).append(change)
    return [
        (_named([c.subject for c in found]), what, _range(c.before for c in found), _range(c.after for c in found), at)
        for (what, at, _, _), found in groups.items()
    ]


def _range(values: Iterable[str]) -> str:
    found = list(dict.fromkeys(values))
    return fold(found) if len(found) > 1 else (found[0] or "-")


def _void(certificates: Iterable[VoidCertificate]) -> list[tuple[str | NodeNames, ...]]:
    groups: dict[tuple[str, ...], list[VoidCertificate]] = {}
    for certificate in certificates:
        groups.setdefault(certificate.reasons, []).append(certificate)
    rows: list[tuple[str | NodeNames, ...]] = []
    for reasons, found in groups.items():
        ends = sorted(c.valid_until for c in found if c.valid_until is not None)
        rows.append((_named([c.node for c in found]), "; ".join(reasons), _days(ends)))
    return rows


def _days(ends: Sequence[datetime]) -> str:
    if not ends:
        return ""
    first, last = f"{ends[0]:%Y-%m-%d}", f"{ends[-1]:%Y-%m-%d}"
    return first if first == last else f"{first} to {last}"


def _bars(change: Change) -> Iterator[Block]:
    """Describe the threshold what-if: nothing was run, and nodes without measurements are named."""
    yield from _failures(change)
    for bar in change.bars:
        figure = [line for at, spread in enumerate(bar.spreads) for line in (*[""][:at], *bars.figure(bar, spread))]
        note = ". ".join(filter(None, (bars.cost(bar).rstrip("."), f"Set by {bar.place}" if bar.place else "")))
        yield Block(bars.title(bar), bars.HEAD, list(bars.rows(bar)), f"{note}." if note else "", figure)
    if change.new_tests:
        yield Block("Tests that nobody has run", bars.TESTS_HEAD, bars.test_rows(change.new_tests), bars.TESTS_NOTE)


def _failures(change: Change) -> Iterator[Block]:
    judged = len(change.below_bar) + len(change.above_bar)
    if not judged and not change.unmeasured:
        return
    parts = ["Nothing was run"]
    if judged:
        parts.append(f"by stored metrics, {len(change.above_bar)} of {judged} clear every bar that the change moves")
    if change.unmeasured:
        parts.append(f"no metrics are stored of {_named(change.unmeasured)}")
    title = f"Below a bar that the change moves ({len(change.below_bar)})"
    yield Block(title, ("bar", "measured", "nodes", "on"), _failing(change.below_bar), "; ".join(parts) + ".")


def _failing(failures: Iterable[BarFailure]) -> list[tuple[str | NodeNames, ...]]:
    """Return one row for each bar, with the least and the most that was measured."""
    groups: dict[str, list[tuple[str, BarFailure]]] = {}
    for failure in failures:
        for reason in failure.reasons:
            found = _MEASURED.fullmatch(reason)
            bar, measured = (f"{found['what']} {found['bar']}", found["value"]) if found else (reason, "")
            groups.setdefault(bar, []).append((measured, failure))
    rows: list[tuple[str | NodeNames, ...]] = []
    for bar, found_ in groups.items():
        values = sorted({measured for measured, _ in found_ if measured}, key=float)
        nodes = _named([failure.node for _, failure in found_])
        rows.append((bar, _span_of(values), nodes, _days(sorted(failure.measured_at for _, failure in found_))))
    return rows


def _span_of(values: Sequence[str]) -> str:
    return values[0] if len(values) == 1 else f"{values[0]} to {values[-1]}" if values else ""


def _names(change: Change) -> Iterator[Block]:
    rows = []
    if change.joining:
        rows.append(("joining", _named(change.joining), "left alone: nobody contacts them before the change is merged"))
    if change.forgotten:
        rows.append(("forgotten", _named(change.forgotten), "managed no more: never powered off, never wiped"))
    rows += [(state, _named(names), _STATES[state]) for state, names in sorted(change.states.items())]
    if rows:
        yield Block("Nodes that come and go", ("", "nodes", "what becomes of them"), rows)


_STATES = {
    "active": "acted upon from now on, and counted",
    "quarantined": "not acted upon, and left out of every count",
    "retired": "not acted upon, and left out of every count",
    "decommissioned": "leave the fleet for good, and lose the declared data, by a typed consent alone",
}


def _unseen(items: Iterable[DriftItem]) -> list[tuple[str | NodeNames, ...]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for item in items:
        groups.setdefault((item.path, value(item.desired)), []).append(item.node)
    return [(path, wanted, _named(nodes)) for (path, wanted), nodes in groups.items()]
