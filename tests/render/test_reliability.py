"""The sections of a report on reliability, its figures on the page, and its CSV."""

from __future__ import annotations

import csv
from dataclasses import replace

import pytest

from reconciler.model.period_report import Past
from reconciler.planner.fleet.period_report import period_report
from reconciler.render.html.past import figures
from reconciler.render.period_report import as_markdown, human
from reconciler.render.reliability import as_csv, lemon_sentence
from tests.planner.test_reliability import DIMM, SLOW, XID, at, fleet, rung, served, shown, told

INTERVALS = [*served("n0", (10, 14)), *served("n1"), *served("n2"), *served("n3")]
MADE = told(
    (
        shown("n0", XID, 10, 14), shown("n1", DIMM, 2, None),
        *(shown(f"n{number}", SLOW, 50, 51 if number else 53) for number in range(3)),
    ),
    {"n0": (rung("soft_restart", 11, 11.5), rung("power_cycle", 12, 13))},
    INTERVALS, of=fleet(objective=0.98),
)  # fmt: skip
PAST = Past(tuple(INTERVALS), (), (), dict.fromkeys(("n0", "n1", "n2", "n3"), at(0)))
REPORT = replace(period_report(PAST, "lab", fleet().nodes, at(0), at(100)), reliability=MADE)


def row(text: str, *begin: str) -> list[str]:
    """Return the cells of the first line of the text that begins with these words."""
    found = next(line for line in text.splitlines() if line.split()[: len(begin)] == list(begin))
    return [cell for cell in found.split("  ") if cell]


def test_a_person_reads_objective_budget_and_what_healed() -> None:
    text = human(REPORT)
    assert [cell.strip() for cell in row(text, "training", "4", "99.00%")] == [
        "training", "4", "99.00%", "98.00%", "8.0", "4.0", "50%",
    ]  # fmt: skip
    assert "The budget is what the objective allows" in text
    assert [cell.strip() for cell in row(text, "rack", "r1")][:2] == ["rack r1", "fabric"]
    assert "Points: 3 for each isolation" in text
    assert [cell.strip() for cell in row(text, "DGX", "H100", XID, "power_cycle")][3:] == ["1", "1", "100%", "2h00m"]
    assert [cell.strip() for cell in row(text, "DGX", "H100", "dimm")][2] == "1"


def test_markdown_has_the_same_sections() -> None:
    text = as_markdown(REPORT)
    for title in (
        "Availability by persona", "Spares", "Incidents of failure domains", "Signals of illness",
        "Which rung healed what", "Failure rates", "Lemon scores over 28 days",
    ):  # fmt: skip
        assert title in text


def test_the_page_shows_the_budget_as_a_figure_and_none_without_an_objective() -> None:
    told_ = {one.label: one.value for one in figures(REPORT)}
    assert told_["Error budget of training"] == "50% spent"
    bare = replace(REPORT, reliability=told(intervals=INTERVALS))
    assert not any(one.label.startswith("Error budget") for one in figures(bare))


def test_csv_has_what_json_has() -> None:
    rows = list(csv.DictReader(as_csv(REPORT).splitlines()))
    figures_ = {
        (one["table"], one["persona"] or one["node"], one["rung"], one["measure"]): one["value"] for one in rows
    }
    assert float(figures_["objectives", "training", "", "burn"]) == pytest.approx(0.5)
    assert figures_["rungs", "", "power_cycle", "healed"] == "1"
    assert float(figures_["rungs", "", "power_cycle", "heal_mean_s"]) == 7200
    assert figures_["lemons", "n0", "", "repairs"] == "2"
    assert all(set(one) == set(rows[0]) and one["value"] for one in rows)


def test_a_lemon_in_a_sentence() -> None:
    assert lemon_sentence(MADE.lemons[0]) == "5 in 28 days (2 repairs, 1 XID)"
