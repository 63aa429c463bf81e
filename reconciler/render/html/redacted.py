"""The page is passed on, so machines are nameless in it: what `--redact` leaves out of documents is left out here.

Beyond that: where BMCs and hosts answer, and values that no two nodes share, wanted ones too (pitfall M5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.model.desired import Endpoints
from reconciler.model.observed import HIDDEN, Observed, Silent
from reconciler.model.period_report import PeriodReport
from reconciler.model.records import JournalEntry
from reconciler.render.drift import OWN
from reconciler.render.html.material import Material
from reconciler.render.redact import Names, names_of, redact_drift, redact_plan, redact_text

Hidden = tuple[str, ...]


def redacted(material: Material) -> Material:
    names = names_of(material.fleet, material.observation, material.records)
    nodes = {name: replace(node, endpoints=Endpoints(None, None)) for name, node in material.fleet.nodes.items()}
    seen = {name: _observed(node, names.get(name, ())) for name, node in material.observation.nodes.items()}
    stories = {
        name: replace(story, entries=[_entry(entry, names.get(name, ())) for entry in story.entries])
        for name, story in material.stories.items()
    }
    return replace(
        material, fleet=replace(material.fleet, nodes=nodes), observation=replace(material.observation, nodes=seen),
        plan=redact_plan(material.plan, names), drift=redact_drift(material.drift, names), stories=stories,
        chronicle=None if material.chronicle is None else _chronicle(material.chronicle, names),
    )  # fmt: skip


def _chronicle(chronicle: PeriodReport, names: Names) -> PeriodReport:
    """Of a node that has left the spec nobody can tell what is not to be told."""

    def words(node: str, text: str) -> str:
        return redact_text(text, names[node]) if node in names else HIDDEN if text else ""

    return replace(
        chronicle,
        recoveries=tuple(replace(one, cause=words(one.node, one.cause)) for one in chronicle.recoveries),
        quarantined=tuple(replace(one, why=words(one.node, one.why)) for one in chronicle.quarantined),
    )


def _observed(node: Observed, hidden: Hidden) -> Observed:
    readings = {name: getattr(node, name) for name in ("hot", "inventory", "host", "member")}
    silent: dict[str, Any] = {
        name: replace(reading, detail=redact_text(reading.detail, hidden))
        for name, reading in readings.items()
        if isinstance(reading, Silent) and reading.detail
    }
    return replace(node, **silent) if silent else node


def _entry(entry: JournalEntry, hidden: Hidden) -> JournalEntry:
    evidence = {key: _value(value, hidden) for key, value in entry.evidence.items()}
    if evidence.get("path") in OWN:
        evidence |= {"desired": "its own", "observed": "another"} if "observed" in evidence else {}
    return replace(entry, detail=redact_text(entry.detail, hidden), evidence=evidence)


def _value(value: Any, hidden: Hidden) -> Any:
    """JSON values, whatever is in them."""
    if isinstance(value, str):
        return redact_text(value, hidden)
    if isinstance(value, Mapping):
        return {key: _value(inner, hidden) for key, inner in value.items()}
    return [_value(inner, hidden) for inner in value] if isinstance(value, list | tuple) else value
