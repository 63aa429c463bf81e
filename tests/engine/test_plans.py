"""Workers plan the nodes that they have read, and a worker that dies in mid-run costs a plan nothing but its nodes."""

from __future__ import annotations

import json
import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from reconciler.model.records import MARK_TAINT
from tests.cli.shell import LabDirectory, ended, reconciler, running_lab, started, until
from tests.engine.world import Engine, make_certificates, running_engine

pytestmark = [pytest.mark.wire, pytest.mark.xdist_group("engine")]

NODES = 30
DRIFTED = "gpu-0003"


def fleet(path: Path, nodes: int, time_scale: float) -> AbstractContextManager[LabDirectory]:
    """A lab of one site, whose nodes are as specified but for one."""
    scenario = path / "scenario.yaml"
    scenario.write_text(json.dumps({"nodes": {DRIFTED: {"drift": ["bios_off"]}}}))
    return running_lab(path / "lab", "--scenario", str(scenario), nodes=nodes, time_scale=time_scale)


def place(lab: LabDirectory) -> None:
    for pool in sorted((lab.spec / "pools").glob("*.yaml")):
        lab.respec(f"pools/{pool.name}", "spec:\n", "spec:\n  domains: {site: fra}\n")


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("engine") / "tls")


def planned(lab: LabDirectory, *words: str) -> dict[str, Any]:
    nodes: dict[str, Any] = lab.run("plan", "--output", "json", *words).json["nodes"]
    return nodes


def left_alone(engine: Engine, name: str = "one") -> list[int]:
    """How many nodes of each shard a worker has planned, to leave them alone."""
    return [int(number) for number in re.findall(r"plans fra#0: (\d+) of \d+ nodes", engine.log(name))]


def test_a_plan_that_workers_made_is_the_one_of_this_process(tls: Path, tmp_path: Path) -> None:
    with (
        fleet(tmp_path, NODES, time_scale=1) as lab,
        running_engine(tmp_path / "engine", tls, lab.endpoints, one="fra") as engine,
    ):
        place(lab)
        where = ("--spec", lab.spec, "--endpoints", lab.endpoints)
        waived = reconciler("ledger", "waive", "*", "--reason", "they serve", "--yes", *where)
        assert waived.out.count(" waived\n") == NODES - 1, waived.out  # all but the drifted one
        theirs, ours = planned(lab, *engine.options), planned(lab)
        assert left_alone(engine) == [NODES - 1]
    assert [name for name, node in ours.items() if node["actions"]] == [DRIFTED]
    for name, node in theirs.items():
        times = {"observed_at", "start", "end"}
        assert {key: value for key, value in node.items() if key not in times} == {
            key: value for key, value in ours[name].items() if key not in times
        }


def test_workers_play_the_runs_of_a_rehearsal_and_else_they_are_played_here(tls: Path, tmp_path: Path) -> None:
    with (
        fleet(tmp_path, 3, time_scale=1) as lab,
        running_engine(tmp_path / "engine", tls, lab.endpoints, one="fra", two="fra") as engine,
    ):
        place(lab)
        seen = tmp_path / "seen.json"
        assert lab.run("observe", "--out", seen).code == 0
        words = ("rehearse", "--observation", seen, "--runs", "2", "--failure-rate", "10%", "--output", "json")
        here, there = lab.run(*words), lab.run(*words, *engine.options)
        assert there.json["runs"] == here.json["runs"]
        assert [engine.log(name).count("plays a run of a rehearsal") for name in ("one", "two")] == [1, 1]
        nowhere = Engine(tls, lab.path, lab.endpoints)
        alone = lab.run(*words, *nowhere.options)
        assert alone.json["runs"] == here.json["runs"]
        assert f"seed 1 is played here: scheduler {nowhere.url} does not answer" in alone.err


def test_apply_converges_although_its_worker_dies_while_it_acts(tls: Path, tmp_path: Path) -> None:
    """What it acts upon it reads itself. The drifted node boots once, and no other one does."""
    with (
        fleet(tmp_path, 3, time_scale=30) as lab,
        running_engine(tmp_path / "engine", tls, lab.endpoints, one="fra") as engine,
    ):
        place(lab)
        plan, before = lab.plan(*engine.options), boots(lab)
        process = started(*lab.words("apply", "--plan", plan, "--yes", "--output", "json", *engine.options))
        until(lambda: marked(lab) or process.poll() is not None, 120)
        engine.kill("one")
        done = ended(process, 300)
        assert done.code == 0, done.out + done.err
        assert {name: number - before[name] for name, number in boots(lab).items() if number != before[name]} == {
            DRIFTED: 1
        }
        assert not marked(lab)
        engine.start_worker("one", "fra")
        assert not any(node["actions"] for node in planned(lab, *engine.options).values())


def boots(lab: LabDirectory) -> dict[str, int]:
    return {name: machine["counters"]["boots"] for name, machine in lab.state()["nodes"].items()}


def marked(lab: LabDirectory) -> list[str]:
    nodes = lab.state()["cluster"]["nodes"]
    return [name for name, node in nodes.items() if MARK_TAINT in [taint["key"] for taint in node.get("taints", ())]]
