"""A report of a period as people read it. `pytest tests/render --update` writes it anew: read what has changed."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.model.period_report import ActionTally, Episode, Past, PeriodReport, StatusInterval
from reconciler.model.status import NodeStatus
from reconciler.planner.fleet.period_report import chronicle
from reconciler.render.period_report import as_markdown, human, percent
from tests.render.test_comment import balanced

GOLDEN = Path(__file__).parent / "reports"
NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOSTILE = "XID 79 \x1b[31m<img src=x> @everyone | `rm` \u202e\n# no heading"


def ago(hours: float) -> datetime:
    return NOW - hours * HOUR


def week() -> PeriodReport:
    """Sixteen nodes: one is quarantined by the spec, one isolated, four were reimaged, one was not seen of late."""
    fleet = [f"gpu-{number:03d}" for number in range(1, 17)]
    status_intervals = []
    for at, node in enumerate(fleet):
        if at < 4:
            status_intervals += [
                StatusInterval(node, "train", NodeStatus.CONVERGED, False, ago(100), ago(50), ago(50)),
                StatusInterval(node, "train", NodeStatus.ACTING, True, ago(50), ago(49.5), ago(49.5)),
                StatusInterval(node, "train", NodeStatus.CONVERGED, False, ago(49.5), NOW),
            ]
        elif node == "gpu-005":
            why = "unhealthy (" + HOSTILE + "); the ladder's attempts are used up"
            status_intervals += [
                StatusInterval(node, "train", NodeStatus.CONVERGED, False, ago(100), ago(30), ago(30)),
                StatusInterval(node, "train", NodeStatus.BLOCKED, True, ago(30), NOW, None, "attempts", why),
            ]
        elif node == "gpu-006":
            why = "quarantined in the spec: not acted upon"
            status_intervals.append(
                StatusInterval(node, "train", NodeStatus.SET_ASIDE, True, ago(100), NOW, None, "quarantined", why)
            )
        else:
            status_intervals.append(
                StatusInterval(node, "train", NodeStatus.CONVERGED, False, ago(100), ago(20 if at == 15 else 0))
            )
    episodes = [Episode(node, "image.version", "pending", ago(51), ago(49.5)) for node in fleet[:4]]
    episodes += [Episode(node, "host.sysctls.vm.swappiness", "drifted", ago(28), ago(27)) for node in fleet[7:13]]
    episodes += [Episode("gpu-005", "health.xid_79", "drifted", ago(30), None)]
    actions = (
        ActionTally("configure_host", "done", 6, 6), ActionTally("power_cycle", "permanent", 1, 1),
        ActionTally("reimage", "ambiguous", 1, 1), ActionTally("reimage", "done", 4, 4),
    )  # fmt: skip
    past = Past(tuple(status_intervals), tuple(episodes), actions, dict.fromkeys(fleet, ago(100)))
    return chronicle(
        past, format_version="1.0", tool_version="0", fleet="lab", nodes=fleet, since=ago(168), until=NOW,
    )  # fmt: skip


@pytest.mark.parametrize("form", ["txt", "md"])
def test_golden(form: str, request: pytest.FixtureRequest) -> None:
    text = (human if form == "txt" else as_markdown)(week())
    path = GOLDEN / f"week.{form}"
    if request.config.getoption("--update"):
        GOLDEN.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


def test_what_machines_said_is_escaped() -> None:
    text = as_markdown(week())
    balanced(text)
    assert "\\<img" in text
    assert "@everyone" not in text
    assert not set("\x1b\u202e") & set(text + human(week()))


def test_the_sentence_comes_first_and_says_what_counts() -> None:
    first = human(week()).partition("\n")[0]
    for said in ("97.8", "1 node out now", "11 differences appeared", "10 went", "1 is open"):
        assert said in first


def test_a_fleet_that_was_never_looked_at_says_how() -> None:
    text = human(replace(week(), availability=None, watched_since=None, recoveries=()))
    assert "nobody could say" in text.partition("\n")[0]
    assert "`reconciler drift`" in text


def test_a_share_is_never_rounded_up() -> None:
    assert [percent(share) for share in (1.0, 0.99999, 0.5, 0.0)] == ["100%", "99.99%", "50.00%", "0.00%"]
