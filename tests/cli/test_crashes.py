"""A bug that one node brings to light, at the command line: its own row, exit 1, a traceback, and all the others.

Every command: observe and apply are held to it in tests/properties/test_crash.py, by their functions.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from reconciler.cli.json_log import JsonLog
from reconciler.model.crash import of_its_own
from tests.cli.shell import SPEC, reconciler

NODE = "gpu-a003"


def breaks(monkeypatch: pytest.MonkeyPatch, name: str, error: Exception) -> None:
    """The function of that name, as soon as it is about one node."""
    module, _, attribute = name.rpartition(".")
    real = getattr(__import__(module, fromlist=[attribute]), attribute)

    def call(*words: Any, **options: Any) -> Any:
        if any(getattr(word, "node", None) == NODE for word in words):
            raise error
        return real(*words, **options)

    monkeypatch.setattr(name, call)


@pytest.mark.parametrize("name", ["drift", "plan"])
@pytest.mark.parametrize("output", ["human", "json", "markdown"])
def test_a_node_that_crashes_is_named_with_the_error_and_the_exit_code_is_1(
    name: str, output: str, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = reconciler(name, SPEC, "--observation", demo, "--output", "json", "--exclude", NODE).json
    breaks(monkeypatch, "reconciler.planner.node.planner.assess", KeyError("GPU 9"))
    done = reconciler(name, SPEC, "--observation", demo, "--output", output)
    assert done.code == 1
    assert f"{NODE}: internal error while planning it: KeyError: 'GPU 9' at " in done.err
    assert "Traceback (most recent call last)" in done.err
    assert NODE in done.out
    if output != "json":
        return
    assert sorted(done.json["incomplete"]) == sorted([*calm["incomplete"], NODE])
    if name == "plan":
        assert done.json["nodes"][NODE]["blocked"]["code"] == "crashed"
        others = {node: plan["actions"] for node, plan in done.json["nodes"].items() if node != NODE}
        assert others == {node: plan["actions"] for node, plan in calm["nodes"].items()}
    else:
        (item,) = [item for item in done.json["items"] if item["node"] == NODE]
        assert (item["kind"], item["path"]) == ("unknown", "identity")


def test_a_node_that_is_not_selected_costs_nothing(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, "reconciler.planner.node.planner.assess", ValueError("odd"))
    done = reconciler("drift", SPEC, "--observation", demo, "--exclude", f"{NODE},gpu-a008", "--create-ledger")
    assert (done.code, done.err) == (0, "")


def test_a_node_that_can_not_be_shown_is_named_and_the_others_are_shown(
    demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaks(monkeypatch, "reconciler.render.plan.shown", RecursionError("deep"))
    words: list[str | Path] = ["plan", SPEC, "--observation", demo, "--exclude", "gpu-a008"]
    found = reconciler(*words, "--output", "json").json["nodes"]
    changing = [name for name, node in found.items() if node["actions"]]
    assert NODE in changing
    done = reconciler(*words)
    assert done.code == 1
    assert f"{NODE} can't be shown: internal error while showing it: RecursionError: deep" in done.out
    for name in changing:
        assert name in done.out or name == NODE


def test_an_error_that_no_node_brings_about_is_raised(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise AssertionError("of the whole")

    monkeypatch.setattr("reconciler.render.plan.heading", fails)
    with pytest.raises(AssertionError, match="of the whole"):
        reconciler("plan", SPEC, "--observation", demo)


def test_each_place_is_printed_once_with_its_traceback(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("for all of them")

    monkeypatch.setattr("reconciler.planner.node.planner.assess", fails)
    done = reconciler("plan", SPEC, "--observation", demo, "--output", "json")
    assert done.code == 1
    assert {node["blocked"]["code"] for node in done.json["nodes"].values()} == {"crashed"}
    assert done.err.count("Traceback") == 1
    assert done.err.count("internal error while planning it") == len(done.json["nodes"])


def test_text_of_a_machine_is_not_printed_with_redact(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    breaks(monkeypatch, "reconciler.planner.node.planner.assess", KeyError("SN-SECRET"))
    done = reconciler("plan", SPEC, "--observation", demo, "--redact")
    assert done.code == 1
    assert "KeyError at planner/" in done.err
    assert "SN-SECRET" not in done.err


def test_a_json_log_has_one_line_for_a_crash() -> None:
    out = io.StringIO()
    log = JsonLog(lambda: datetime(2026, 11, 22, tzinfo=UTC), stream=out)

    def fails() -> None:
        raise KeyError("x")

    instead: Callable[[object], None] = lambda _: None  # noqa: E731 - a value
    with log.libraries():
        from reconciler.cli.crash_reports import reported_crashes

        with reported_crashes():
            of_its_own("n0", "planning it", fails, instead)
    (line,) = [json.loads(text) for text in out.getvalue().splitlines()]
    assert (line["event"], line["level"], line["node"]) == ("node_crashed", "error", "n0")
    assert "KeyError: 'x'" in line["message"]
    assert line["traceback"][0].startswith("Traceback")
