"""The page of figures of detection says what is measured. `--update` with `-n0` writes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from reconciler.health.table import Effect, health_table
from tests.conftest import ROOT
from tests.faults.signal_matrix import ELSEWHERE
from tests.health.detection import SEEDS, figures, in_lab
from tests.health.test_detection import recorded

PAGE = ROOT / "docs/reference/detection.json"


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    return dict(json.loads(PAGE.read_text())) if PAGE.exists() else {}


def _write(part: str, found: object) -> None:
    page = json.loads(PAGE.read_text()) if PAGE.exists() else {}
    PAGE.write_text(json.dumps({**page, part: found}, indent=1, sort_keys=True) + "\n")


def test_recordings_give_the_figures_of_the_page(
    samples: Path, page: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    rows = recorded(samples)
    found = {"count": len(rows), "rows": figures(rows)}
    if request.config.getoption("--update"):
        _write("recordings", found)
        return
    assert found == page["recordings"]


def test_the_lab_gives_the_figures_of_the_page(page: dict[str, Any], request: pytest.FixtureRequest) -> None:
    found = in_lab()
    assert [name for name, row in found.items() if row["wrong"]] == [], "precision is 1 on every row"
    assert [name for name, row in found.items() if row["told"] < row["due"]] == [], "recall is 1 on every row"
    assert all(row["due"] >= len(SEEDS) for row in found.values())
    if request.config.getoption("--update"):
        _write("lab", found)
        return
    assert found == page["lab"]


def test_what_isolates_at_once_has_its_evidence_named(page: dict[str, Any]) -> None:
    """A recording that shows it, machines of the lab or the test that plays it; and where its meaning is documented."""
    isolating = [name for name, rule in health_table().rules.items() if rule.effect is Effect.ISOLATES]
    assert len(isolating) >= 15
    shown = {*page["recordings"]["rows"], *page["lab"], *ELSEWHERE}
    assert [name for name in isolating if name not in shown] == []
    assert all(health_table().rule_of(name).row.source for name in isolating)
    missed = {name: row["missed"] for name, row in page["recordings"]["rows"].items() if name in isolating}
    assert set(missed.values()) == {0}, "no recording of what isolates is missed"
