"""`rehearse`: what it foretells comes true where nothing chances, and nothing real is touched."""

from __future__ import annotations

import itertools
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from reconciler.app.rehearsal.processes import RunLost, default_jobs, simulate_all
from reconciler.cli.exit_codes import ExitCode
from reconciler.converge.remember import remember_plans
from reconciler.drivers.ledger import SqlLedger
from reconciler.gate import certificate as gate
from reconciler.lab.failure_rates import EVERY, FailureRates
from reconciler.model.documents import load
from reconciler.model.gate import Binding, Certificate
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.planner.node.actions import ACTIONS
from reconciler.spec import load_spec
from tests.cli.shell import SPEC, Done, reconciler

NEW_BIOS = ("hardware.yaml", "NumaNodesPerSocket: NPS1", "NumaNodesPerSocket: NPS2")


def rehearse(spec: Path, seen: Path, *words: str | Path, ledger: Path | None = None) -> Done:
    where = ("--ledger", ledger) if ledger is not None else ()
    return reconciler("rehearse", spec, "--observation", seen, "--output", "json", "--runs", "1", *where, *words)


def dump_of(path: Path) -> list[str]:
    with sqlite3.connect(path) as connection:
        return list(connection.iterdump())


def edit(spec: Path, file: str, old: str, new: str) -> None:
    path = next(found for found in spec.rglob("*.yaml") if old in found.read_text()) if file == "*" else spec / file
    path.write_text(path.read_text().replace(old, new))


@pytest.fixture
def converged(clean: Path, tmp_path: Path) -> Path:
    """A ledger of a fleet that was converged: applied values and certificates of every node."""
    path = tmp_path / "ledger.sqlite"
    fleet = load_spec(SPEC, directory=str(SPEC))
    seen = load(Observation, clean.read_bytes())
    ledger = SqlLedger(path)
    for name, desired in fleet.nodes.items():
        assert desired.profile.acceptance is not None
        binding = gate.binding_of(desired, seen.nodes[name], gate.tests_digest(desired.profile.acceptance))
        assert isinstance(binding, Binding)
        ledger.save_certificate(Certificate("1.0", name, seen.finished_at, binding, (), adopted=True))
        ledger.remember_identities({name: (seen.nodes[name].hot.value.serial, None)}, seen.finished_at)  # type: ignore[union-attr]
    ledger.close()
    plan = path.with_name("plan.json")
    words = ("plan", SPEC, "--observation", clean, "--ledger", path, "--out", plan)
    assert reconciler(*words).code == ExitCode.DONE
    made = load(Plan, plan.read_bytes())
    assert not made.changes
    ledger = SqlLedger(path)
    records = ledger.nodes(list(fleet.nodes))
    remember_plans(ledger, fleet, made.nodes, seen.nodes, records, "run-0", seen.finished_at)
    ledger.close()
    return path


def test_a_drifted_fleet_ends_as_specified_within_its_budget(demo: Path) -> None:
    done = rehearse(SPEC, demo)
    assert done.code == ExitCode.DONE, done.err
    told = done.json
    [run] = told["runs"]
    assert (told["broken"], told["refused"], told["halted"]) == ([], [], [])
    assert run["failed"] == 0
    assert run["not_reached"] == 1, "its BMC is dark"
    assert told["p50_s"] == told["p90_s"] == run["seconds"] > 3600
    [fleet] = [line for line in told["limits"] if line["scope"] == "fleet"]
    assert 0 < fleet["peak"] <= fleet["limit"]
    assert any("BMC unreachable" in why for why in told["left"])


def test_the_same_seed_gives_the_same_result_and_another_does_not(demo: Path) -> None:
    def told(*words: str) -> Any:
        found = rehearse(SPEC, demo, "--failure-rate", "10%", *words).json
        return [{key: run[key] for key in run if key != "seed"} for run in found["runs"]]

    assert told("--seed", "3") == told("--seed", "3")
    assert told("--seed", "3") != told("--seed", "4")
    assert told("--seed", "3", "--runs", "2") == [*told("--seed", "3"), *told("--seed", "4")]


def test_runs_beside_each_other_tell_the_same(demo: Path) -> None:
    words = ("--failure-rate", "10%", "--runs", "3")
    alone, beside = (rehearse(SPEC, demo, *words, "--jobs", jobs).json for jobs in ("1", "2"))
    times = {"starts_at", "seen_at"}
    assert {key: value for key, value in alone.items() if key not in times} == {
        key: value for key, value in beside.items() if key not in times
    }
    assert len(beside["runs"]) == 3


class Deadly:
    """An input that ends the process which it comes to."""

    def __reduce__(self) -> Any:
        return os._exit, (9,)


def test_a_process_that_dies_ends_the_rehearsal_with_what_to_do() -> None:
    deadly: Any = Deadly()
    with pytest.raises(RunLost, match=r"one of 2 processes of the rehearsal has died: .* use fewer --jobs"):
        list(simulate_all(deadly, [1, 2, 3], lambda _: None, 2))


def test_small_rehearsals_start_no_process() -> None:
    assert default_jobs(10, 20, 1_000) == 1
    assert default_jobs(1_000, 1, 1_000) == 1
    assert default_jobs(250, 20, 1_000) == min(len(os.sched_getaffinity(0)), 20)


def test_processes_that_nobody_asked_for_hold_no_more_than_a_machine_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    assert default_jobs(250, 20, 1_000) == 20
    assert default_jobs(250, 20, 10_000) == 2
    assert default_jobs(250, 20, 100_000) == 1, "each holds the whole fleet"
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert default_jobs(250, 20, 1_000) == 3


def test_nothing_is_written_down(demo: Path, converged: Path) -> None:
    before = dump_of(converged)
    assert rehearse(SPEC, demo, ledger=converged).json["runs"][0]["actions"] > 0
    assert dump_of(converged) == before


def test_nothing_to_do(clean: Path, converged: Path) -> None:
    done = rehearse(SPEC, clean, ledger=converged)
    assert done.code == ExitCode.DONE
    assert (done.json["runs"], done.json["nodes_with_changes"], done.json["p50_s"]) == ([], 0, None)


@pytest.mark.parametrize("action", ["mark", "drain", "reimage", "run_gate"])
def test_a_node_on_which_an_action_fails_ends_failed_and_stays_within_the_budget(demo: Path, action: str) -> None:
    done = rehearse(SPEC, demo, "--failure-rate", f"{action}=100%")
    told = done.json
    assert told["broken"] == []
    assert set(told["runs"][0]["failed_in"]) == {action}
    assert told["runs"][0]["failed"] > 0
    for line in told["limits"]:
        assert line["peak"] <= max(line["limit"], line["at_start"]), line


def test_a_change_goes_in_waves_and_a_failed_canary_halts_it(clean: Path, converged: Path, spec: Path) -> None:
    edit(spec, "*", "NumaNodesPerSocket: NPS1", "NumaNodesPerSocket: NPS2")
    well = rehearse(spec, clean, ledger=converged)
    assert well.code == ExitCode.DONE, well.err + well.out
    waves = [wave for wave in well.json["waves"] if wave["pool"] == "train"]
    assert len(waves) > 1
    for before, after in itertools.pairwise(waves):
        assert after["start_s"] - before["end_s"] >= 599.9, "it bakes"
    halted = rehearse(
        spec, clean, "--failure-rate", "soft_restart=100%", "--failure-rate", "power_cycle=1", ledger=converged
    )
    assert halted.code == ExitCode.REFUSED
    pools = {halt["pool"]: halt for halt in halted.json["halted"]}
    assert pools["train"]["wave"] == 1
    assert "is halted" in pools["train"]["why"]
    [run] = halted.json["runs"]
    assert run["failed"] == len(pools)
    assert run["not_reached"] == 12 - len(pools)


def test_a_guard_refuses_before_anything_is_played(demo: Path, spec: Path) -> None:
    edit(spec, "fleet.yaml", 'reboot: "100%"', 'reboot: "1"')
    done = rehearse(spec, demo)
    assert done.code == ExitCode.REFUSED, done.out
    assert done.json["runs"] == []
    assert any("would reboot" in why for why in done.json["refused"])


def test_held_nodes_are_left_alone(demo: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    assert reconciler("hold", "gpu-a001", "--reason", "mine", "--spec", SPEC, "--ledger", ledger).code == 0
    told = rehearse(SPEC, demo, ledger=ledger).json
    assert told["broken"] == []
    assert any("held by" in why for why in told["left"])


def test_only_the_selected_are_played(demo: Path) -> None:
    told = rehearse(SPEC, demo, "--limit", "gpu-a001").json
    [run] = told["runs"]
    assert (told["scope"]["selected"], run["converged"] + run["failed"] + run["not_reached"]) == (1, 1)


@pytest.mark.parametrize("output", ["human", "markdown"])
def test_as_text(demo: Path, output: str) -> None:
    words = ("rehearse", SPEC, "--observation", demo, "--runs", "2", "--failure-rate", "run_gate=0.5", "-o", output)
    done = reconciler(*words)
    assert done.code == ExitCode.DONE, done.err
    assert "it ends with nodes that are not as specified" in done.out
    assert "in 9 of 10" in done.out
    assert "most out" in done.out
    assert done.err.startswith("rehearsing ")


@pytest.mark.parametrize("rate", ["1.5", "-1", "often", "fly=1%", "nan"])
def test_a_rate_that_is_none(demo: Path, rate: str) -> None:
    done = rehearse(SPEC, demo, "--failure-rate", rate)
    assert done.code == ExitCode.USAGE
    assert "--failure-rate" in done.err


def test_every_action_can_fail() -> None:
    """By a fault of the lab, but for two that fail by their verdict, two that write to our ledger alone, and one whose
    commands run on other nodes.
    """
    assert {name for name, spec in ACTIONS.items() if spec.fault is None} == {
        "check_trust", "run_gate", "revoke", "tombstone", "degrade_serving"
    }  # fmt: skip


def test_a_rate_is_about_a_share_of_the_nodes() -> None:
    rates = FailureRates({EVERY: 0.2, "drain": 0.0}, seed=1)
    failed = [rates.fails(f"n{at}", "reimage") for at in range(2000)]
    assert 300 < sum(failed) < 500
    assert not any(rates.fails(f"n{at}", "drain") for at in range(100))


def test_a_broken_invariant_is_reported_with_evidence(demo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the budget not asked, the lab's own count would show it."""
    monkeypatch.setattr("reconciler.planner.fleet.permit.Permit.refusal", lambda *_: None)
    monkeypatch.setattr("reconciler.planner.fleet.permit.Permit.refusal_of_next", lambda *_: None)
    done = rehearse(SPEC, demo)
    assert done.code == ExitCode.PARTLY_FAILED
    assert {one["invariant"] for one in done.json["broken"]} == {"budget_never_exceeded"}
    assert "under the limit of" in done.json["broken"][0]["evidence"]
    assert json.loads(done.out)["broken"][0]["node"]
