"""Structured logs: what each event says, and what no line ever holds."""

from __future__ import annotations

import io
import json
import logging
import os
import typing
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given

from reconciler.cli.json_log import JsonLog, Level
from reconciler.converge import events
from reconciler.converge.events import (
    ActionFinished,
    ActionStarted,
    ActionStep,
    Event,
    LoopTold,
    NodeObserved,
    NodeSettled,
    PassEnded,
    RunPlanned,
    RunProgress,
    Waiting,
)
from reconciler.drivers.secrets import Credentials, Secret
from reconciler.model.outcome import Ambiguous, Declined, Done, Outcome, Permanent, Transient
from reconciler.model.plan import PlannedAction
from reconciler.model.silences import Silence
from reconciler.model.vocab import Certainty, Concern, Disruption, UnknownReason
from tests.render.test_text import HOSTILE

NOW = datetime(2026, 11, 21, 12, 0, 0, 250_000, tzinfo=UTC)
FLASH = PlannedAction(
    "update_firmware", "bmc", Concern.FIRMWARE, ("firmware.bmc",), Disruption.FIRMWARE, 300.0, Certainty.EXACT, (), ()
)
EVENTS: tuple[Event, ...] = (
    NodeObserved("n1", 1, 2),
    PassEnded((Silence("redfish", UnknownReason.AUTH, "refused secret 'bmc'", ("n1", "n2"), True),)),
    RunPlanned("run-1", lambda: RunProgress(4, 1, 1, 2, 2, 3, 1, 2, NOW), lambda: NOW),
    ActionStarted("n1", FLASH),
    ActionStep("n1", FLASH.id, "waiting for the task"),
    ActionFinished("n1", FLASH, Done("now 2.0"), 95.0),
    NodeSettled("n1", "failed", "no"),
    Waiting(("n3", "n4"), 1800.0),
    LoopTold("leading", "holds the lease", problem=False, fields={"commit": "c0ffee"}),
)


def lines(*told: Event, least: Level = Level.DEBUG, **fields: Any) -> list[dict[str, Any]]:
    stream = io.StringIO()
    log = JsonLog(lambda: NOW, stream=stream, least=least, **fields)
    for event in told:
        log(event)
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_every_kind_of_event_is_a_line() -> None:
    assert {type(event) for event in EVENTS} == set(typing.get_args(events.Event))
    told = lines(*EVENTS, run="run-1", fleet="demo")
    assert [line["event"] for line in told] == [
        "node_observed", "silent", "run_planned", "action_started", "action_step", "action_finished", "node_settled",
        "waiting", "leading",
    ]  # fmt: skip
    for line in told:
        assert line["time"] == "2026-11-21T12:00:00.250Z"
        assert (line["run"], line["fleet"]) == ("run-1", "demo")
        assert line["message"]


def test_an_action_says_which_and_on_what() -> None:
    _, silent, planned, started, step, finished, settled, waiting, leading = lines(*EVENTS)
    for line in (started, step, finished):
        assert (line["node"], line["action"]) == ("n1", "update_firmware:bmc")
    assert (silent["level"], silent["source"], silent["reason"]) == ("warning", "redfish", "auth")
    assert (silent["nodes"], "refused secret 'bmc'" in silent["message"]) == (["n1", "n2"], True)
    assert (planned["nodes"], planned["done"], planned["limit"]) == (4, 1, 3)
    assert (started["disruption"], started["because"]) == ("firmware", ["firmware.bmc"])
    assert (finished["outcome"], finished["detail"], finished["seconds"]) == ("done", "now 2.0", 95.0)
    assert (settled["level"], settled["state"]) == ("error", "failed")
    assert waiting["nodes"] == ["n3", "n4"]
    assert (leading["level"], leading["message"], leading["commit"]) == ("info", "holds the lease", "c0ffee")


@pytest.mark.parametrize(
    ("outcome", "level"),
    [
        (Done(), "info"),
        (Declined("budget", "x"), "info"),
        (Transient("x"), "warning"),
        (Ambiguous("x"), "warning"),
        (Permanent("x"), "error"),
    ],
)
def test_how_an_action_ended_is_its_level(outcome: Outcome, level: str) -> None:
    (line,) = lines(ActionFinished("n1", FLASH, outcome, 1.0))
    assert line["level"] == level


def test_details_are_left_out_unless_asked_for() -> None:
    told = [line["event"] for line in lines(*EVENTS, least=Level.INFO)]
    assert "node_observed" not in told
    assert "action_step" not in told
    assert [line["event"] for line in lines(*EVENTS, least=Level.ERROR)] == ["node_settled"]


def test_waiting_for_the_same_nodes_is_logged_once() -> None:
    told = lines(Waiting(("n1",), 60.0), Waiting(("n1",), 30.0), Waiting(("n2",), 20.0))
    assert [line["nodes"] for line in told] == [["n1"], ["n2"]]


@given(HOSTILE)
def test_text_of_machines_stays_in_its_line(said: str) -> None:
    stream = io.StringIO()
    JsonLog(lambda: NOW, stream=stream)(NodeSettled("n1", "failed", said + "\x1b[31m\nx\u2028y" + "z" * 5000))
    text = stream.getvalue()
    assert text.count("\n") == 1
    assert text.isascii()
    assert "\x1b" not in text
    assert len(text) < 30_000, "cut: an escape has six characters, twice over"
    assert json.loads(text)["message"].startswith("failed: ")


@pytest.mark.parametrize(
    "value", [Secret("hunter2"), Credentials("bob", Secret("hunter2")), {"a": [Secret("hunter2")]}]
)
def test_a_secret_is_a_programming_error_and_no_text(value: Any) -> None:
    stream = io.StringIO()
    with pytest.raises(TypeError, match="is not for logs") as caught:
        JsonLog(lambda: NOW, stream=stream).say(Level.INFO, "x", "x", value=value)
    assert stream.getvalue() == ""
    assert "hunter2" not in str(caught.value)


def test_warnings_of_libraries_are_lines_without_values() -> None:
    stream = io.StringIO()
    log = JsonLog(lambda: NOW, stream=stream)
    with log.libraries():
        error = OSError("https://bob:hunter2@bmc/")
        logging.getLogger("aiohttp.server").error("Error handling %s", "hunter2", exc_info=error)
        logging.getLogger("asyncio").info("not said")
    logging.getLogger("aiohttp.server").addHandler(silent := logging.NullHandler())
    logging.getLogger("aiohttp.server").error("after")
    logging.getLogger("aiohttp.server").removeHandler(silent)
    (line,) = [json.loads(text) for text in stream.getvalue().splitlines()]
    assert (line["level"], line["logger"], line["error"]) == ("error", "aiohttp.server", "OSError")
    assert line["message"] == "Error handling %s"
    assert "hunter2" not in stream.getvalue()


def test_fields_can_be_added() -> None:
    stream = io.StringIO()
    log = JsonLog(lambda: NOW, stream=stream, fleet="demo")
    log.with_(run="r1").say(Level.WARNING, "spec", "not in force", commit="c0ffee", at=NOW, level_of=Level.INFO)
    line = json.loads(stream.getvalue())
    assert line == {
        "time": "2026-11-21T12:00:00.250Z", "level": "warning", "event": "spec", "message": "not in force",
        "fleet": "demo", "run": "r1", "commit": "c0ffee", "at": "2026-11-21T12:00:00.250Z", "level_of": "info",
    }  # fmt: skip


def test_a_reader_that_went_away_ends_the_log_and_not_the_run() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stream:
        log = JsonLog(lambda: NOW, stream=stream)
        log.say(Level.INFO, "x", "x")
        log.say(Level.INFO, "x", "x")
