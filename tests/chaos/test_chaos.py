"""A sample of the crash matrix, and what ends a run more gently. All of it: `make chaos`."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import time
from collections.abc import Iterator

import pytest

from reconciler.converge.dispatcher import PARK_S
from tests.chaos.cases import CASES, Case
from tests.chaos.cell import Cell, cells_of, play, wrong_with
from tests.chaos.misfortune import API_AWAY, BMC_AWAY, DATABASE_AWAY, POSTGRESQL_AWAY
from tests.chaos.victim import AFTER, BEFORE_OUTCOME, DURING, Aim
from tests.chaos.world import Bench, World, node_of, running
from tests.cli.shell import reconciler, until
from tests.ledger.postgresql import NoServer, running_server

pytestmark = [pytest.mark.wire, pytest.mark.xdist_group("chaos")]

SLACK_S = 15.0  # for a loaded machine to end a process
_CASES = {case.name: case for case in CASES}
# Where most may go wrong: the other side has heard, and we have not.
INSTALL = Cell(_CASES["reimage"], DURING, 5, "power on")
RESTART = Cell(_CASES["soft_restart"], AFTER, 1)
SAMPLE = (
    Cell(_CASES["update_firmware:bios"], DURING, 1, "update_firmware"),
    Cell(_CASES["power_cycle"], AFTER, 1, "power graceful_off"),
    Cell(_CASES["mark"], DURING, 1, "mark"),
    Cell(_CASES["admit"], BEFORE_OUTCOME),
    Cell(_CASES["mark"], DURING, 1, "mark", column=API_AWAY),
    Cell(_CASES["power_cycle"], AFTER, 1, "power graceful_off", column=DATABASE_AWAY),
    Cell(_CASES["update_firmware:nic0"], AFTER, 1, "update_firmware", column=BMC_AWAY),
    Cell(_CASES["power_cycle"], AFTER, 1, "power graceful_off", column=POSTGRESQL_AWAY),
)
PARKED = {
    signal.SIGINT: (INSTALL, "installing"),
    signal.SIGTERM: (Cell(_CASES["update_firmware:nic0"], AFTER, 1, "update_firmware"), "flashing"),
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    cases: list[Case] = [*(cell.case for cell in SAMPLE), *(cell.case for cell, _ in PARKED.values())]
    with running(tmp_path_factory.mktemp("chaos"), cases, time_scale=240) as found:
        yield found


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Where what a minute of ours leaves behind is not too old to be gone on with."""
    with running(tmp_path_factory.mktemp("slow"), [INSTALL.case, RESTART.case], time_scale=90) as found:
        yield found


@pytest.mark.parametrize("cell", SAMPLE, ids=lambda cell: cell.name)
def test_struck_at_the_worst_moment_it_converges_and_repeats_nothing(world: World, cell: Cell) -> None:
    with contextlib.ExitStack() as stack:
        database = ""
        if cell.column == POSTGRESQL_AWAY:
            try:
                database = stack.enter_context(running_server()).database()
            except NoServer as error:
                pytest.skip(str(error))
        result = play(cell, Bench(world, node_of(SAMPLE.index(cell)), database))
    assert not result.broke, "\n".join(result.told)


@pytest.mark.parametrize("number", list(PARKED), ids=lambda number: number.name)
def test_the_first_signal_parks_and_the_next_run_goes_on(world: World, number: signal.Signals) -> None:
    cell, word = PARKED[number]
    bench = Bench(world, node_of(len(SAMPLE) + list(PARKED).index(number)))
    plan, _ = bench.plan()
    progress = bench.place / "progress.txt"
    with progress.open("w") as err:
        process = bench.start_victim(Aim(), plan, err=err)
    try:
        until(lambda: word in progress.read_text() or process.poll() is not None)
        assert process.poll() is None, progress.read_text()
        began = time.monotonic()
        process.send_signal(number)
        out, _ = process.communicate(timeout=60)
    finally:
        process.kill()
    assert time.monotonic() - began < PARK_S + SLACK_S
    assert process.returncode == 130
    assert json.loads(out)["interrupted"] is True
    assert "Traceback" not in progress.read_text()
    assert json.loads(reconciler("lease", "list", *bench.where, "--output", "json").out) == []
    again = bench.apply(plan)
    assert again.code == 0, again.out + again.err
    assert bench.plan()[1] == 0
    assert wrong_with(cell.case, bench, cell.slack) == []


def test_an_install_is_gone_on_with_while_the_installer_asks(slow: World) -> None:
    result = play(INSTALL, Bench(slow, node_of(0)))
    assert not result.broke, "\n".join(result.told)


def test_who_comes_too_early_is_told_who_has_the_lease_until_it_runs_out(slow: World) -> None:
    """Nobody releases the lease of the dead run; a minute later the next one needs no help, and restarts nothing."""
    bench = Bench(slow, node_of(1))
    plan, _ = bench.plan()
    assert bench.let_die(RESTART.aim(), plan).code == -signal.SIGKILL
    early = bench.apply(plan)
    assert (early.code, early.out) == (6, "")
    assert re.search(r"demo is being written by the victim, run-\S+, until ", early.err)
    until(lambda: _held(bench) == [], seconds=90)
    late = bench.apply(plan)
    assert late.code == 0, late.out + late.err
    assert bench.plan()[1] == 0
    assert wrong_with(RESTART.case, bench) == []


def _held(bench: Bench) -> list[str]:
    time.sleep(1.0)
    listed = reconciler("lease", "list", *bench.where, "--output", "json")
    return [one["scope"] for one in json.loads(listed.out) if one["state"] == "held"]


def test_an_outage_befalls_each_kind_of_step_once() -> None:
    writes = ["power graceful_off", "insert_media", "boot_once cd", "power on"]
    for column in (API_AWAY, DATABASE_AWAY, POSTGRESQL_AWAY):
        found = [cell.where for cell in cells_of(_CASES["reimage"], writes, column)]
        assert found == ["before intent", "during 1", "during 4", "after 4", "before outcome"]
        assert {cell.column for cell in cells_of(_CASES["mark"], ["mark"], column)} == {column}
    assert cells_of(_CASES["reimage"], writes, BMC_AWAY) == []
    flash = [cell.where for cell in cells_of(_CASES["update_firmware:nic0"], ["update_firmware"], BMC_AWAY)]
    assert flash == ["before intent", "during 1", "after 1", "before outcome"]
