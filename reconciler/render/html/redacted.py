"""The page is passed on, so machines are nameless in it: it leaves out what `--redact` leaves out of documents.

It also leaves out where BMCs and hosts answer, and values that no two nodes share, wanted ones too (pitfall M5).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from reconciler.model.records import JournalEntry
from reconciler.render.disclosure import Policy
from reconciler.render.drift import OWN
from reconciler.render.html.material import Material
from reconciler.render.redact import REDACTED, Redaction, names_of


def _entry(entry: JournalEntry, redaction: Redaction) -> JournalEntry:
    shown = REDACTED.show(entry, redaction)
    if shown.evidence.get("path") not in OWN or "observed" not in shown.evidence:
        return shown
    return replace(shown, evidence={**shown.evidence, "desired": "its own", "observed": "another"})


PAGE: Final = Policy[Redaction](marks=REDACTED.marks, classes={JournalEntry: _entry}, scopes=REDACTED.scopes)


def redacted(material: Material) -> Material:
    """Return what the page may show. Text about a node that has left the spec is hidden: nobody knows its names."""
    names = names_of(material.fleet, material.observation, material.records)
    return PAGE.show(material, Redaction(names, strict=True))
