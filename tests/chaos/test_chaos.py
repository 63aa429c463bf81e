"""A sample of the crash matrix, and runs that end by a signal. `make chaos` runs the whole matrix."""

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
from tests.chaos.cell import Cell, cells_of, play, violations_of
from tests.chaos.outages import API_AWAY, BMC_AWAY, DATABASE_AWAY, POSTGRESQL_AWAY
from tests.chaos.target_process import AFTER, BEFORE_OUTCOME, DURING, FaultPoint
from tests.chaos.world import Bench, World, node_of, running
from tests.cli.shell import reconciler, until
from tests.ledger.postgresql import NoServer, running_server

pytestmark = [pytest.mark.wire, pytest.mark.xdist_group("chaos")]

SLACK_S = 15.0  # time for a loaded machine to end a process
_CASES = {case.name: case for case in CASES}
# The most critical points: the other side has done the write, and the run has not read the answer.
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
    """A slower lab, in which an interrupted installation is still waiting after a minute."""
    with running(tmp_path_factory.mktemp("slow"), [INSTALL.case, RESTART.case], time_scale=90) as found:
        yield found


@pytest.mark.parametrize("cell", SAMPLE, ids=lambda cell: cell.name)
def test_a_run_hit_at_the_worst_point_converges_and_repeats_nothing(world: World, cell: Cell) -> None:
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
        process = bench.start_target(FaultPoint(), plan, err=err)
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
    assert violations_of(cell.case, bench, cell.slack) == []


def test_an_install_continues_while_the_installer_asks(slow: World) -> None:
    result = play(INSTALL, Bench(slow, node_of(0)))
    assert not result.broke, "\n".join(result.told)


def test_an_early_run_names_the_lease_holder_until_the_lease_expires(slow: World) -> None:
    """The lease of a dead run expires after a minute; the next run then converges without another restart."""
    bench = Bench(slow, node_of(1))
    plan, _ = bench.plan()
    assert bench.run_target(RESTART.fault_point(), plan).code == -signal.SIGKILL
    early = bench.apply(plan)
    assert (early.code, early.out) == (6, "")
    assert re.search(r"demo is being written by chaos target, run-\S+, until ", early.err)
    until(lambda: _held(bench) == [], seconds=90)
    late = bench.apply(plan)
    assert late.code == 0, late.out + late.err
    assert bench.plan()[1] == 0
    assert violations_of(RESTART.case, bench) == []


def _held(bench: Bench) -> list[str]:
    time.sleep(1.0)
    listed = reconciler("lease", "list", *bench.where, "--output", "json")
    return [one["scope"] for one in json.loads(listed.out) if one["state"] == "held"]


def test_each_kind_of_step_meets_an_outage_once() -> None:
    writes = ["power graceful_off", "insert_media", "boot_once cd", "power on"]
    for column in (API_AWAY, DATABASE_AWAY, POSTGRESQL_AWAY):
        found = [cell.where for cell in cells_of(_CASES["reimage"], writes, column)]
        assert found == ["before intent", "during 1", "during 4", "after 4", "before outcome"]
        assert {cell.column for cell in cells_of(_CASES["mark"], ["mark"], column)} == {column}
    assert cells_of(_CASES["reimage"], writes, BMC_AWAY) == []
    flash = [cell.where for cell in cells_of(_CASES["update_firmware:nic0"], ["update_firmware"], BMC_AWAY)]
    assert flash == ["before intent", "during 1", "after 1", "before outcome"]
