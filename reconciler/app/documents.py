"""Documents in files: telling their kinds apart, reading and writing them."""

from __future__ import annotations

import os
from pathlib import Path

from reconciler.model.documents import load
from reconciler.model.errors import ReconcilerError, UsageError
from reconciler.model.fleet_overview import FleetOverview
from reconciler.model.json_text import parse_json
from reconciler.model.observed import Observation
from reconciler.model.period_report import PeriodReport
from reconciler.model.plan import Plan
from reconciler.model.report import ApplyOutcome, DriftReport


def is_published(text: bytes) -> bool:
    """Return whether `text` is a published observation. Text without its key is not parsed, since plans are large."""
    if b'"ledger":' not in text:
        return False
    try:
        keys = parse_json(text)
    except ValueError:
        return False
    return isinstance(keys, dict) and "ledger" in keys and "fingerprint" not in keys


def published_only_for_plans(file: Path) -> UsageError:
    """Return the error for a published observation where one of the nodes is needed."""
    return UsageError(f"{file} is a published observation, which only offline plans can use: plan --observation {file}")


def read_document(file: Path) -> Plan | DriftReport | ApplyOutcome | PeriodReport | Observation | FleetOverview:
    """Read a document of any kind, by a key that only this kind has. Raise UsageError for any other file."""
    text = file.read_bytes()
    try:
        keys = parse_json(text)
    except ValueError as error:
        raise UsageError(f"{file}: not JSON: {error}") from None
    keys = keys if isinstance(keys, dict) else {}
    if "fingerprint" in keys:
        return load(Plan, text, name=str(file))
    if "availability" in keys:
        return load(PeriodReport, text, name=str(file))
    if "holders" in keys:
        return load(FleetOverview, text, name=str(file))
    if "items" in keys:
        return load(DriftReport, text, name=str(file))
    if "actions" in keys:
        return load(ApplyOutcome, text, name=str(file))
    if is_published(text):
        raise published_only_for_plans(file)
    if "nodes" in keys:
        return load(Observation, text, name=str(file))
    raise UsageError(f"{file}: not a plan, drift report, outcome, status, period report or observation")


def write_file(path: Path, text: str) -> None:
    """Write the whole text or nothing, since half a plan is no plan. Raise ReconcilerError when it can't be written."""
    whole = path.resolve()
    part = whole.with_name(f".{whole.name}.{os.getpid()}")
    try:
        if whole.exists() and not whole.is_file():  # a pipe, a terminal
            whole.write_text(text, encoding="utf-8")
            return
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(whole)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise ReconcilerError(f"{path} can't be written: {error.strerror}") from error
