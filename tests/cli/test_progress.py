"""Progress: the same events as lines in CI, and live on a terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from rich.console import Console

from reconciler.cli.live_progress import LiveProgress
from reconciler.cli.progress import LineProgress, footer
from reconciler.converge.events import (
    ActionFinished,
    ActionStarted,
    ActionStep,
    Event,
    NodeObserved,
    NodeSettled,
    PassEnded,
    Progress,
    RunPlanned,
    RunProgress,
    Waiting,
)
from reconciler.model.outcome import Done, Permanent
from reconciler.model.plan import PlannedAction
from reconciler.model.silences import Silence
from reconciler.model.vocab import Certainty, Concern, Disruption, UnknownReason

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


BEGAN = datetime(2026, 11, 27, 2, 0, tzinfo=UTC)


def now() -> datetime:
    return BEGAN.replace(hour=3, minute=18)


def untimed(told: str) -> list[str]:
    """Return the lines without the time that each begins with."""
    lines = told.splitlines()
    assert all(line.startswith("03:18:00 ") for line in lines)
    return [line.removeprefix("03:18:00 ") for line in lines]


def tell(progress: Progress) -> None:
    for event in EVENTS:
        progress(event)


def test_lines_that_others_read_repeat_no_word_of_a_machine(capsys: pytest.CaptureFixture[str]) -> None:
    """What went wrong is in the document, without its names (--redact)."""
    tell(LineProgress("observing", now, terse=True))
    _, told = capsys.readouterr()
    assert untimed(told) == [
        "observing: 2 of 2 nodes", "n1 drain ...", "n2 drain ...",
        "n1 drain: done (1m35s)", "n2 drain: permanent (10m)", "n1: done", "n2: failed", "waiting up to 30m for n3",
    ]  # fmt: skip


def test_a_line_is_printed_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    tell(LineProgress("observing", now))
    out, told = capsys.readouterr()
    assert out == "", "stdout is the document's"
    assert untimed(told) == [
        "observing: 2 of 2 nodes",
        "n1 drain ...",
        "n2 drain ...",
        "n1 drain: 2 pods \\x1b[31mto go",
        *TOLD,
        "waiting up to 30m for n3",
    ]


def test_a_terminal_shows_what_has_happened_above_what_runs(capsys: pytest.CaptureFixture[str]) -> None:
    with LiveProgress("observing", now) as live:
        tell(live)
    out, told = capsys.readouterr()
    assert out == ""
    for line in TOLD:
        assert line in told
    assert "✓ n1 drain" in told
    assert "✗ n2 drain" in told


# --- how far the run is ---

PROGRESS = RunProgress(
    nodes=60, done=6, failed=0, at_work=4, out=4, limit=15, wave=2, waves=4, ends_at=BEGAN + timedelta(minutes=78)
)


def test_the_footer_says_wave_nodes_budget_and_when_it_is_over() -> None:
    assert footer("run-7", PROGRESS, BEGAN) == (
        "run-7: wave 2/4, 6/60 done, 0 failed, 4 at work, 4 of 15 out, ETA 03:18 UTC, in 1h18m"
    )


@pytest.mark.parametrize(
    ("found", "end"),
    [
        (replace(PROGRESS, wave=0, waves=0, limit=None, ends_at=None), "run-7: 6/60 done, 0 failed, 4 at work"),
        (replace(PROGRESS, ends_at=BEGAN), "4 of 15 out, longer than expected"),
        (replace(PROGRESS, done=58, failed=2), "58/60 done, 2 failed, 4 at work, 4 of 15 out"),
    ],
)
def test_the_footer_says_nothing_that_nobody_knows(found: RunProgress, end: str) -> None:
    assert footer("run-7", found, BEGAN).endswith(end)


def test_lines_tell_how_far_it_is_at_every_tenth_of_the_nodes(capsys: pytest.CaptureFixture[str]) -> None:
    ended: list[str] = []
    asked: list[int] = []

    def how_far() -> RunProgress:
        asked.append(len(ended))
        return replace(PROGRESS, done=len(ended), nodes=40)

    progress = LineProgress("observing", now)
    progress(RunPlanned("run-7", how_far, lambda: BEGAN))
    for n in range(40):
        ended.append(f"n{n}")
        progress(NodeSettled(f"n{n}", "done", ""))
    assert len(asked) == 11, "each costs a little for every node"
    told = [line for line in untimed(capsys.readouterr().err) if line.startswith("run-7: ")]
    assert [line.split(", ")[1] for line in told] == [f"{n}/40 done" for n in range(4, 41, 4)]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_no_row_of_the_table_is_wider_than_the_terminal_or_stays(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))

    def drawn(progress: LiveProgress) -> list[str]:
        file = io.StringIO()
        Console(file=file, width=width).print(progress._draw())
        return file.getvalue().splitlines()

    node = "a-node-with-quite-a-long-name"
    with LiveProgress("observing", now) as live:
        live(RunPlanned("run-7", lambda: PROGRESS, lambda: BEGAN))
        live(ActionStarted(node, DRAIN))
        live(ActionStep(node, DRAIN.id, "2 pods to go, " * 20))
        live(ActionStep("n9", DRAIN.id, "of an action that has ended"))
        rows = drawn(live)
        assert all(len(row) <= width for row in rows)
        told = " ".join(row.strip() for row in rows[1:])  # below the one action
        assert told == footer("run-7", PROGRESS, BEGAN), "a narrow terminal loses none of it"
        live(NodeSettled(node, "parked", "the next run continues it"))
        assert not any(node in row for row in drawn(live))
    capsys.readouterr()


def test_a_long_line_goes_on_under_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the times of the other lines it would be taken for a line of its own."""
    monkeypatch.setenv("COLUMNS", "50")
    shown = io.StringIO()
    monkeypatch.setattr("sys.stderr", shown)
    with LiveProgress("observing", now) as live:
        live(ActionFinished("n1", DRAIN, Done("rebooted, boot id 957cba87-d406-4220-90e3-8f886f11e536"), 60.0))
    assert shown.getvalue().splitlines()[:3] == [
        "03:18:00 ✓ n1 drain: done, rebooted, boot id",
        "    957cba87-d406-4220-90e3-8f886f11e536 (1m)",
    ]


# --- where it hurts ---

REFUSED = Silence("redfish", UnknownReason.AUTH, "BMC https://10.0.0.1 of n1 refused secret 'bmc'", ("n1", "n2"), False)
NO_KUBECTL = Silence("kubernetes", UnknownReason.UNSUPPORTED, "kubectl: No such file; install it", ("n1", "n2"), True)


def test_lines_say_why_a_source_does_not_answer_and_what_to_do_once(capsys: pytest.CaptureFixture[str]) -> None:
    """A plan says "unknown" of those nodes; a wrong password or a missing program is found here."""
    progress = LineProgress("observing", now)
    for _ in range(3):
        progress(PassEnded((REFUSED, NO_KUBECTL)))
    progress(PassEnded((replace(REFUSED, nodes=("n1", "n2", "n3")),)))
    first = "redfish does not answer for n[1-2] (2): auth: n1: BMC https://10.0.0.1 of n1 refused secret 'bmc'"
    assert untimed(capsys.readouterr().err) == [
        first,
        "kubernetes does not answer for n[1-2] (2): unsupported: kubectl: No such file; install it",
        first.replace("n[1-2] (2)", "n[1-3] (3)"),
    ]
    with LiveProgress("observing", now) as live:
        live(PassEnded((NO_KUBECTL,)))
    assert "kubectl: No such file; install it" in " ".join(capsys.readouterr().err.split())


def test_lines_that_others_read_quote_no_source(capsys: pytest.CaptureFixture[str]) -> None:
    LineProgress("observing", now, terse=True)(PassEnded((REFUSED,)))
    assert untimed(capsys.readouterr().err) == ["redfish does not answer for n[1-2] (2): auth"]
