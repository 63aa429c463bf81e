"""Progress: the same events as lines in CI, and live on a terminal."""

from __future__ import annotations

import pytest

from reconciler.cli.progress import LineProgress, LiveProgress
from reconciler.converge.events import (
    ActionFinished,
    ActionStarted,
    ActionStep,
    Event,
    NodeObserved,
    NodeSettled,
    Progress,
    Waiting,
)
from reconciler.model.outcome import Done, Permanent
from reconciler.model.plan import PlannedAction
from reconciler.model.vocab import Certainty, Concern, Disruption

DRAIN = PlannedAction(
    "drain", "", Concern.CLUSTER, ("required by run_gate",), Disruption.DRAIN, 300.0, Certainty.EXACT, (), (), ()
)
EVENTS: tuple[Event, ...] = (
    NodeObserved("n1", 1, 2),
    NodeObserved("n2", 2, 2),
    ActionStarted("n1", DRAIN),
    ActionStarted("n2", DRAIN),
    ActionStep("n1", DRAIN.id, "2 pods \x1b[31mto go"),
    ActionFinished("n1", DRAIN, Done("2 pods evicted"), 95.0),
    ActionFinished("n2", DRAIN, Permanent("a budget refuses"), 600.0),
    NodeSettled("n1", "done", "in service as specified"),
    NodeSettled("n2", "failed", "drain: a budget refuses"),
    Waiting(("n3",), 1800.0),
)
TOLD = (
    "n1 drain: done, 2 pods evicted (1m35s)",
    "n2 drain: permanent: a budget refuses (10m)",
    "n1: done: in service as specified",
    "n2: failed: drain: a budget refuses",
)


def tell(progress: Progress) -> None:
    for event in EVENTS:
        progress(event)


def test_lines_that_others_read_repeat_no_word_of_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """What went wrong is in the document, without its names (--redact)."""
    tell(LineProgress("observing", terse=True))
    _, told = capsys.readouterr()
    assert told.splitlines() == [
        "observing: 2 of 2 nodes", "n1 drain ...", "n2 drain ...",
        "n1 drain: done (1m35s)", "n2 drain: permanent (10m)", "n1: done", "n2: failed", "waiting up to 30m for n3",
    ]  # fmt: skip


def test_a_line_is_printed_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    tell(LineProgress("observing"))
    out, told = capsys.readouterr()
    assert out == "", "stdout is the document's"
    assert told.splitlines() == [
        "observing: 2 of 2 nodes",
        "n1 drain ...",
        "n2 drain ...",
        "n1 drain: 2 pods \\x1b[31mto go",
        *TOLD,
        "waiting up to 30m for n3",
    ]


def test_a_terminal_shows_what_has_happened_above_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveProgress("observing", 60.0) as live:
        tell(live)
    out, told = capsys.readouterr()
    assert out == ""
    for line in TOLD:
        assert line in told
    assert "✓ n1 drain" in told
    assert "✗ n2 drain" in told
