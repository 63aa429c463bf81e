"""reconciler report, by command."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jsonschema
import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.period_report import ServiceStatus
from reconciler.model.status import NodeStatus
from tests.cli.shell import ROOT, SPEC, reconciler

WELL = ServiceStatus("train-a", NodeStatus.CONVERGED, out=False)
OUT = ServiceStatus("train-a", NodeStatus.ACTING, out=True)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Two hours of the worked example: one node was out for half an hour."""
    path = tmp_path / "ledger.sqlite"
    book, now = SqlLedger(path, fleet="demo"), datetime.now(UTC)
    for minutes, stand in ((120, WELL), (60, OUT), (30, WELL), (0, WELL)):
        at = now - timedelta(minutes=minutes)
        book.record_service_status({"gpu-a001": stand, "gpu-a002": WELL}, at, within=timedelta(hours=2), whole=True)
    book.close()
    return path


def test_a_report_needs_the_ledger_alone(ledger: Path) -> None:
    done = reconciler("report", SPEC, "--ledger", str(ledger), "--output", "json")
    assert done.code == 0
    assert done.json["availability"] == pytest.approx(3.5 / 4, abs=0.01)
    assert [(one["node"], round(one["seconds"])) for one in done.json["recoveries"]] == [("gpu-a001", 1800)]
    schema = reconciler("schema", "report").json
    jsonschema.validate(done.json, schema, jsonschema.Draft202012Validator)


def test_csv_has_one_line_for_each_figure(ledger: Path) -> None:
    done = reconciler("report", SPEC, "--ledger", str(ledger), "-o", "csv", "--lead-time", "5d")
    assert done.code == 0
    rows = list(csv.DictReader(io.StringIO(done.out)))
    figures = {(row["table"], row["persona"], row["measure"]): row["value"] for row in rows if not row["signal"]}
    assert float(figures["hours", "", "out"]) == pytest.approx(0.5, abs=0.01)
    personas = {row["persona"] for row in rows if row["table"] == "objectives"}
    assert "training" in personas
    assert float(figures["objectives", "training", "availability"]) == pytest.approx(3.5 / 4, abs=0.01)
    assert float(figures["spares", "training", "lead_s"]) == 5 * 86400
    assert {row["table"] for row in rows} <= {
        "hours", "recover", "objectives", "spares", "signals", "rungs", "parts", "lemons", "incidents", "proposals",
    }  # fmt: skip
    told = reconciler("report", SPEC, "--ledger", str(ledger))
    assert "Availability by persona" in told.out


def test_show_renders_what_was_kept(ledger: Path, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(reconciler("report", SPEC, "--ledger", str(ledger), "-o", "json").out)
    shown = reconciler("show", file)
    assert (shown.code, shown.out.split(",")[0]) == (0, "Fleet demo")
    assert reconciler("show", file, "-o", "markdown").out.startswith("## ")
    refused = reconciler("comment", file, "--dry-run")
    assert refused.code == 64
    assert "a period report has no changes to comment on" in refused.err


@pytest.mark.parametrize(("since", "told"), [("yesterday", "neither a duration"), ("2999-01-01", "is not in the past")])
def test_a_period_that_is_none_is_a_usage_error(since: str, told: str) -> None:
    done = reconciler("report", SPEC, "--since", since)
    assert done.code == 64
    assert told in done.err


def test_drift_records_the_status_of_nodes_that_it_read_and_not_of_a_file(demo: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    assert reconciler("drift", SPEC, "--observation", demo, "--ledger", str(ledger), "--create-ledger").code == 4
    assert reconciler("report", SPEC, "--ledger", str(ledger), "-o", "json").json["watched_since"] is None
    assert (ROOT / "schemas" / "report.json").is_file()
