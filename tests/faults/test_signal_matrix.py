"""Every signal against every rung of its ladder: `pytest tests/faults/test_signal_matrix.py -n0 --update` writes it.

The times of the page are of one run. They hold within the interval between two looks, as a sign falls anywhere in it.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from reconciler.app.rehearsal.signals import play_signal
from reconciler.health.table import Effect, health_table
from reconciler.lab.signal_scenes import SCENES
from reconciler.model.played_signal import NEEDED, OUT, PERSON, PlayedSignal
from tests.conftest import ROOT
from tests.faults.signal_matrix import ELSEWHERE, stage

PAGE = ROOT / "docs/reference/signal-matrix.json"
LOOK_S = 300.0  # two looks and an action
PERSONS_S = 1200.0  # as a person may come just after a look


@pytest.mark.parametrize("name", SCENES)
def test_a_signal_is_healed_by_the_rung_that_ends_its_cause(name: str, request: pytest.FixtureRequest) -> None:
    found = {rung: play_signal(stage(name), name, rung) for rung in stage(name).rungs(name) or ("",)}
    wrong = [f"{rung or 'shown'}: {why}" for rung, one in found.items() for why in _wrong(name, rung, one)]
    assert not wrong, "\n".join(wrong)
    page = json.loads(PAGE.read_text()) if PAGE.exists() else {}
    if request.config.getoption("--update"):
        page[name] = {rung: _cell(one) for rung, one in found.items()}
        ordered = {known: page[known] for known in SCENES if known in page}
        PAGE.write_text(json.dumps(ordered, indent=1) + "\n")
        return
    assert list(page[name]) == list(found)
    for rung, one in found.items():
        told = page[name][rung]
        assert (list(one.shown), list(one.did), list(one.told)) == (told["shown"], told["did"], told["told"]), rung
        assert _close(one.out_s, told["out_s"], LOOK_S), (rung, one.out_s, told["out_s"])
        assert _close(one.back_s, told["back_s"], PERSONS_S if rung == PERSON else LOOK_S), (rung, one, told)


def _cell(one: PlayedSignal) -> dict[str, Any]:
    return {field: value for field, value in asdict(one).items() if field not in ("signal", "rung", "unplayed")}


def _close(found: float | None, told: float | None, within: float) -> bool:
    return found is told if found is None or told is None else abs(found - told) <= within


def _wrong(name: str, rung: str, one: PlayedSignal) -> list[str]:
    """What must hold of each cell, whatever the page says."""
    wrong = [one.trouble or one.unplayed] if one.trouble or one.unplayed else []
    shown = [path.removeprefix("health.") for path in one.shown]
    if not any(path == name or (name.endswith("_") and path.startswith(name)) for path in shown):
        wrong.append(f"{name} is not shown, but {shown}")
    if health_table().effect_of(name) is Effect.REPORTS:
        return [*wrong, *(["it is treated"] if one.did else [])]
    if not {OUT, NEEDED} & {*one.told}:
        wrong.append("nobody is told")
    last = one.did[-1].partition(":")[0] if one.did else ""
    if rung == PERSON and NEEDED not in one.told:
        wrong.append("no person is called")
    if rung != PERSON and (last != rung or any("!" in word for word in one.did)):
        wrong.append(f"it is healed by {last or 'nothing'}: {one.did}")
    if len({*one.did}) < len(one.did):
        wrong.append(f"a rung is climbed twice: {one.did}")
    return wrong


def test_every_row_of_the_table_has_a_scene_or_a_test_of_its_own() -> None:
    assert {*SCENES} ^ {*ELSEWHERE} == {*health_table().rules}
    assert not {*SCENES} & {*ELSEWHERE}
    for name, path in ELSEWHERE.items():
        assert name.rstrip("_") in (ROOT / path).read_text(), f"{path} does not play {name}"


def test_the_page_has_each_row_that_is_played() -> None:
    page: dict[str, Any] = json.loads(PAGE.read_text())
    assert list(page) == list(SCENES)
