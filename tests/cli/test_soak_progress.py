"""A soak under way, in the forms in which people read it: explain, report, and the page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.soak_progress import JOURNALED, SoakProgress
from tests.cli.shell import SPEC, reconciler
from tests.cli.test_report_html import data

HOUR = 3600


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """A ledger in which a soak of gpu-a001 was looked at two minutes ago, after 31 of its 72 hours."""
    now = datetime.now(UTC)
    book = SqlLedger(tmp_path / "ledger.sqlite")
    lease = book.acquire("demo", "a runner", 86400.0, now)
    number = book.begin("run-1", "gpu-a001", "run_gate", "", "gate.certificate", {}, lease.token, now)
    progress = SoakProgress(72 * HOUR, 31 * HOUR, now - timedelta(minutes=2))
    book.amend(number, {"soak": "gpu-a001-1", JOURNALED: progress.journaled()}, now)
    book.close()
    return tmp_path / "ledger.sqlite"


def test_a_soak_under_way_is_told_with_its_end_wherever_a_person_looks(
    demo: Path, ledger: Path, tmp_path: Path
) -> None:
    ends = datetime.now(UTC) + timedelta(hours=41, minutes=-2)
    given = (SPEC, "--ledger", ledger, "--observation", demo)
    text = reconciler("explain", "gpu-a001", *given).out
    assert "soak: 1d07h of 3d00h and no bad sign when last looked at 2m" in text.splitlines()[0]
    assert f"ends about {ends:%Y-%m-%d %H}" in text.splitlines()[0]
    said = reconciler("explain", "gpu-a001", *given, "-o", "json").json["waiting"]["under_way"]
    assert said.startswith("soak: 1d07h of 3d00h")
    assert reconciler("explain", "gpu-a002", *given, "-o", "json").json["waiting"]["under_way"] == ""

    report = reconciler("report", *given, "--html", tmp_path / "page")
    assert "Under way" in report.out
    assert "gpu-a001  soak: 1d07h of 3d00h" in report.out
    assert set(reconciler("report", SPEC, "--ledger", ledger, "-o", "json").json["under_way"]) == {"gpu-a001"}
    found = data(tmp_path / "page")
    headlines = dict(zip(found["nodes"]["name"], found["nodes"]["headline"], strict=True))
    assert found["texts"][headlines["gpu-a001"]].startswith("soak: 1d07h of 3d00h and no bad sign")
    assert [at for at in headlines.values() if "soak" in found["texts"][at]] == [headlines["gpu-a001"]]


@pytest.mark.parametrize(
    "damaged",
    [
        {"seconds": 0, "done_s": 0, "looked_at": "2026-11-24T00:00:00+00:00"},
        {"seconds": 3600, "done_s": "x", "looked_at": "2026-11-24T00:00:00+00:00"},
        {"seconds": 3600, "done_s": 10, "looked_at": "2026-11-24T00:00:00"},
        {"seconds": 3600, "done_s": 10, "looked_at": "yesterday"},
        {"seconds": 10**30, "done_s": 10, "looked_at": "2026-11-24T00:00:00+00:00"},
        None,
        "half of it",
    ],
)
def test_a_note_that_can_not_be_read_is_no_news(demo: Path, tmp_path: Path, damaged: object) -> None:
    now = datetime.now(UTC)
    book = SqlLedger(tmp_path / "ledger.sqlite")
    lease = book.acquire("demo", "a runner", 86400.0, now)
    number = book.begin("run-1", "gpu-a001", "run_gate", "", "gate.certificate", {}, lease.token, now)
    book.amend(number, {JOURNALED: damaged}, now)
    book.close()
    given = (SPEC, "--ledger", tmp_path / "ledger.sqlite", "--observation", demo, "-o", "json")
    done = reconciler("explain", "gpu-a001", *given)
    assert (done.code, done.json["waiting"]["under_way"]) == (0, "")
