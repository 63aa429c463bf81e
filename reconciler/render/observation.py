"""An observation as text: one row for each node, and the sources that did not answer."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.observed import Answered, Observation, Observed, Silent
from reconciler.model.plan import Scope
from reconciler.model.vocab import UnknownReason
from reconciler.render.tables import markdown_table, table
from reconciler.render.text import clock, count, markdown, page, plain, warnings

_FINE = (UnknownReason.NOT_ASKED, UnknownReason.EXPLAINED)
_HEAD = ("node", "power", "boot", "image", "GPUs", "kubernetes", "not answered")


def unanswered(observation: Observation, names: Iterable[str]) -> list[str]:
    """Return the nodes of which some source gave no answer, without a known cause."""
    return [name for name in names if _silences(observation.nodes[name])]


def _silences(seen: Observed) -> list[str]:
    sources = {"redfish": seen.hot, "ssh": seen.host, "kubernetes": seen.member}
    return [
        f"{name}: {reading.reason}" + (f" ({plain(reading.detail, 160)})" if reading.detail else "")
        for name, reading in sources.items()
        if isinstance(reading, Silent) and reading.reason not in _FINE
    ]


def _row(seen: Observed) -> tuple[str, ...]:
    hot = seen.hot.value if isinstance(seen.hot, Answered) else None
    host = seen.host.value if isinstance(seen.host, Answered) else None
    image = host.image if host is not None else None
    return (
        seen.node,
        (hot.power or "?") if hot else "?",
        (hot.boot_phase or "?") if hot else "?",
        plain(f"{image.image} {image.version}") if image else "?",
        str(sum(not gpu.lost for gpu in host.gpus)) if host and host.gpus is not None else "?",
        _membership(seen),
        "; ".join(_silences(seen)),
    )


def _membership(seen: Observed) -> str:
    if isinstance(seen.member, Silent):
        return "-" if seen.member.reason is UnknownReason.NOT_ASKED else "?"
    member = seen.member.value
    if member is None:
        return "absent"
    return ("ready" if member.ready else "not ready") + (", cordoned" if member.unschedulable else "")


def _selected(observation: Observation) -> list[Observed]:
    """Return the nodes in scope. The document has others too, for their membership alone."""
    return [
        seen
        for seen in observation.nodes.values()
        if not (isinstance(seen.hot, Silent) and isinstance(seen.host, Silent) and _not_asked(seen))
    ]


def _not_asked(seen: Observed) -> bool:
    readings = (seen.hot, seen.host)
    return all(isinstance(reading, Silent) and reading.reason is UnknownReason.NOT_ASKED for reading in readings)


def human(observation: Observation, scope: Scope | None = None) -> str:
    rows = [_row(seen) for seen in _selected(observation)]
    dark = sum(bool(row[-1]) for row in rows)
    of = f" of {scope.total}" if scope else ""
    whole = f"{dark} of them not in full" if dark else "all in full"
    lines = [
        f"Fleet {observation.fleet}: {count(len(rows), 'node')}{of} observed, {whole}",
        f"  spec commit {observation.spec_commit[:12] or '(not in git)'}",
        f"  {clock(observation.started_at)}; kubectl {observation.kubectl_version or '-'}, "
        f"cluster {observation.cluster_version or '-'}",
        *(f"  {line}" for line in warnings(observation.insecure, observation.time_scale)),
        "",
        *table(_HEAD, rows),
    ]
    return page(lines)


def as_markdown(observation: Observation, scope: Scope | None = None) -> str:
    rows = [tuple(markdown(cell, 300) for cell in _row(seen)) for seen in _selected(observation)]
    of = f" of {scope.total}" if scope else ""
    lines = [f"## Observation of fleet {markdown(observation.fleet)}", "", f"{count(len(rows), 'node')}{of}", ""]
    for line in warnings(observation.insecure, observation.time_scale):
        lines += [f"> {markdown(line, 400)}", ""]
    return page([*lines, *markdown_table(_HEAD, rows)])
