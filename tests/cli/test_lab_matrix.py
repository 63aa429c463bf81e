"""`lab matrix`: what heals each signal by a spec's own table and ladder, played without a lab that runs."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.app.rehearsal.signals import stage_of
from reconciler.cli.exit_codes import ExitCode
from reconciler.lab.signal_scenes import Scene
from reconciler.model.played_signal import NEEDED, OUT, OVER, PERSON, PlayedSignal
from reconciler.render.signal_matrix import human
from tests.cli.shell import Done, reconciler
from tests.conftest import ROOT
from tests.spec.example import changed, load

EXAMPLE = ROOT / "tests" / "spec" / "example"


def matrix(*words: str, spec: Path = EXAMPLE) -> Done:
    return reconciler("lab", "matrix", spec, *words)


def cells(done: Done) -> dict[tuple[str, str], Any]:
    return {(cell["signal"], cell["rung"]): cell for cell in done.json}


def test_it_tells_what_heals_how_long_it_takes_and_who_is_told() -> None:
    done = matrix("xid_", "dimm_failed", "pcie_replays", "--output", "json")
    assert done.code == ExitCode.DONE, done.err
    found = cells(done)
    assert list(found) == [("xid_", "power_cycle"), ("xid_", "person"), ("dimm_failed", "person"), ("pcie_replays", "")]
    healed = found["xid_", "power_cycle"]
    assert healed["did"] == ["power_cycle"]
    assert healed["told"] == ["it is out of service", "it is over"]
    assert healed["out_s"] < 5.0, "the kernel log is heard at once"
    assert 0.0 < healed["out_s"] < healed["back_s"] < found["xid_", "person"]["back_s"]
    assert found["xid_", "person"]["did"] == ["power_cycle"], "the ladder comes before a person"
    assert "it needs a repair" in found["xid_", "person"]["told"]
    assert found["dimm_failed", "person"]["did"] == [], "no rung heals it"
    shown = found["pcie_replays", ""]
    assert (shown["shown"], shown["did"], shown["back_s"], shown["told"]) == (["health.pcie_replays"], [], None, [])


def test_people_read_one_row_for_each_signal_and_each_play_ends_alike() -> None:
    once, again = (matrix("xid_", "thermal_time") for _ in range(2))
    assert once == again
    assert "  signal  out or shown after  power_cycle  a person  told" in once.out
    assert "  thermal_time  drivers as of" in once.out
    assert "1 signal played" in once.out


def test_the_ladder_and_the_table_are_those_of_the_spec(tmp_path: Path) -> None:
    spec = tmp_path / "spec"
    for name, data in changed(("persona.yaml", "action: power_cycle", "action: soft_restart")).items():
        (spec / name).parent.mkdir(parents=True, exist_ok=True)
        (spec / name).write_bytes(data)
    done = matrix("xid_", "--output", "json", spec=spec)
    assert done.code == ExitCode.DONE, done.err
    found = cells(done)
    assert list(found) == [("xid_", "soft_restart"), ("xid_", "person")]
    assert found["xid_", "soft_restart"]["did"] == ["soft_restart"]


LADDER = "ladder: [{action: power_cycle, attempts: 1}]"


def test_a_rung_that_a_person_comes_before_heals_nothing() -> None:
    """As with `limit: {attempts: 1}` of the policy."""
    first = PlayedSignal("xid_", "soft_restart", (), 2.0, ("soft_restart",), 1600.0, (OUT, OVER))
    second = PlayedSignal("xid_", "power_cycle", (), 2.0, ("soft_restart",), 2256.0, (NEEDED, OVER))
    last = replace(second, rung=PERSON)
    assert [one.trouble for one in (first, second, last)] == ["", "a person was needed before it", ""]
    told = human([first, second, last])
    assert re.search(r"  xid_ +2 s +27 min +never +38 min ", told), told
    assert "1 signal played, 1 without the end it must have" in told


def test_a_reset_is_played_where_a_row_of_the_spec_names_it() -> None:
    row = "{first: drain, next: ladder, rungs: [gpu_reset, power_cycle], healedBy: [fact_clear, gate], because: b}"
    drift = "  drift: {mode: correct}\n"
    fleet = load(
        ("persona.yaml", LADDER, "ladder: [{action: gpu_reset}, {action: power_cycle}]"),
        ("fleet.yaml", drift, f"{drift}  health: {{signals: {{ecc_ever: {row}}}}}\n"),
    )
    assert stage_of(fleet, "").rungs("ecc_ever") == ("gpu_reset", "power_cycle", "person")


def test_a_sign_that_nobody_sees_is_told_and_ends_with_7(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.app.rehearsal.signals.SCENES", {"pcie_replays": Scene()})
    done = matrix("pcie_replays")
    assert done.code == ExitCode.PARTLY_FAILED
    assert "pcie_replays, which is shown: nobody saw it" in done.out
    assert "1 signal played, 1 without the end it must have" in done.out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nonsense",), "the table of signals has no row nonsense"),
        (("xid_", "--pool", "nowhere"), "there is no pool nowhere"),
    ],
)
def test_what_it_cannot_play_is_a_usage_error(words: tuple[str, ...], why: str) -> None:
    done = matrix(*words)
    assert done.code == ExitCode.USAGE
    assert why in done.err
