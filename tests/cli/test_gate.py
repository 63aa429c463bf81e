"""reconciler gate show, history and output: what gates measured, from the ledger, contacting nobody."""

from __future__ import annotations

import csv
import io
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.gate import certificate
from reconciler.gate.fabric.results import Bar, Leg, PairRun, read
from reconciler.gate.fabric.rows import Searched, of_pairs, rows_of
from reconciler.gate.results import recorded
from reconciler.model.desired import GateTest
from reconciler.model.documents import load
from reconciler.model.fabric_report import BlamedPart, FabricReport, OpenPart
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.spec import load_spec
from tests.cli.shell import reconciler

NODE, OTHER = "gpu-a001", "gpu-a002"
AT = datetime(2026, 11, 1, 12, tzinfo=UTC)


def gate_ran(spec: Path, ledger: Path, speed: float, *, node: str = NODE, days: int = 0, rows: bool = True) -> str:
    """Keep a gate of one test as `run_gate` does; `rows` False: as earlier versions did. Return the output's digest."""
    fleet = load_spec(spec, directory=str(spec))
    desired, at = fleet.nodes[node], AT + timedelta(days=days)
    assert desired.profile.acceptance is not None
    digests = certificate.tests_digest(desired.profile.acceptance)
    binding = Binding("S", (), "ab" * 32, {}, "", digests.whole, digests.each)
    result = TestResult(
        "nccl", "nccl-tests", Verdict.PASS, (), {"busbw_peak": speed, "busbw_peak.7": speed}, "2.17.4",
        started_at=at, ended_at=at + timedelta(minutes=2), printed=f"# Avg bus bandwidth : {speed}\n",
    )  # fmt: skip
    late = Certificate("1.0", node, at + timedelta(minutes=3), binding, (result,))
    found = recorded(late, desired, 7 + days)
    book = SqlLedger(ledger, fleet=fleet.settings.fleet)
    if rows:
        book.save_results(found.runs, found.outputs)
    book.save_certificate(found.certificate if rows else replace(late, results=(replace(result, printed=""),)))
    book.close()
    return found.runs[0].output


def csv_rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


@pytest.mark.parametrize("rows", [True, False])
def test_show_has_each_figure_beside_its_bar_and_the_verdict_of_today(spec: Path, tmp_path: Path, rows: bool) -> None:
    ledger = tmp_path / "ledger.sqlite"
    gate_ran(spec, ledger, 431.5, rows=rows)
    done = reconciler("gate", "show", NODE, "--spec", spec, "--ledger", ledger, "--output", "json")
    assert done.code == 0, done.err
    shown = {(row["test"], row["metric"], row["part"]): row for row in done.json}
    peak = shown["nccl", "busbw_peak", ""]
    assert (peak["value"], peak["unit"], peak["bar"], peak["verdict"]) == (431.5, "GB/s", ">= 440", "fail")
    assert "busbw_peak 431.5 < 440" in peak["reasons"]
    assert shown["nccl", "busbw_peak", "7"]["bar"] == ""
    lacking = [row for row in done.json if row["reasons"] == "not run"]
    assert lacking
    assert {row["verdict"] for row in lacking} == {"unjudged"}
    acceptance = spec / "acceptance.yaml"
    acceptance.write_text(acceptance.read_text().replace("busbw_peak, min: 440", "busbw_peak, min: 430"))
    human = reconciler("gate", "show", NODE, "--spec", spec, "--ledger", ledger)
    line = next(line for line in human.out.splitlines() if "431.5" in line)
    assert line.split()[:6] == ["nccl", "busbw_peak", "431.5", "GB/s", ">=", "430"]
    assert "pass" in line
    assert "certificate of 2026-11-01" in human.err
    command = ("gate", "show", NODE, "--spec", spec, "--ledger", ledger, "--output")
    assert reconciler(*command, "markdown").out.startswith("| test")
    assert csv_rows(reconciler(*command, "csv").out)[0]["test"] == "nccl"


def test_a_node_without_a_gate_is_told(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    SqlLedger(ledger).close()
    done = reconciler("gate", "show", NODE, "--spec", spec, "--ledger", ledger)
    assert (done.code, done.out) == (0, "")
    assert "no gate has run yet" in done.err
    unknown = reconciler("gate", "show", "gpu-a0o1", "--spec", spec, "--ledger", ledger)
    assert unknown.code == 64
    assert "did you mean" in unknown.err


def test_history_is_by_node_and_time_and_each_format_has_all_rows(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    for days, speed in enumerate((480.0, 470.0, 460.0)):
        gate_ran(spec, ledger, speed, days=days)
    gate_ran(spec, ledger, 490.0, node=OTHER)
    command = ("gate", "history", "gpu-a00*", "--spec", spec, "--ledger", ledger)
    found = reconciler(*command, "--output", "json")
    assert found.code == 0, found.err
    assert [(row["node"], row["part"], row["value"]) for row in found.json] == [
        (node, part, value)
        for node, values in ((NODE, (480.0, 470.0, 460.0)), (OTHER, (490.0,)))
        for value in values
        for part in ("", "7")
    ]
    assert {(row["unit"], row["tool_version"], row["verdict"]) for row in found.json} == {("GB/s", "2.17.4", "pass")}
    assert len({row["key"] for row in found.json}) == 1
    table = csv_rows(reconciler(*command, "--output", "csv").out)
    assert [float(row["value"]) for row in table] == [row["value"] for row in found.json]
    assert list(table[0]) == list(found.json[0])
    since = reconciler(*command, "--since", "2026-11-02", "--test", "nccl", "--metric", "busbw_peak", "--last", "2")
    assert len(since.out.splitlines()) == 3, since.out
    assert "470" not in since.out
    assert "460" in since.out
    empty = reconciler(*command, "--metric", "mfu", "--output", "json")
    assert (empty.code, empty.json) == (0, [])
    assert reconciler(*command, "--metric", "mfu", "--output", "csv").out.startswith("node,")
    assert "no gate has measured that" in reconciler(*command, "--metric", "mfu").out
    assert reconciler("gate", "history", "nobody", "--spec", spec, "--ledger", ledger).code == 64


def test_results_of_a_node_that_left_the_spec_stay_readable(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    gate_ran(spec, ledger, 480.0)
    book = SqlLedger(ledger)
    (run,) = book.last_gate(NODE)
    book.save_results((replace(run, node="gone"),), {})
    book.close()
    done = reconciler("gate", "history", "gone", "--spec", spec, "--ledger", ledger, "--output", "json")
    assert [row["node"] for row in done.json] == ["gone", "gone"]


def test_old_results_are_pruned_and_certificates_stay(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    digests = [gate_ran(spec, ledger, speed, days=days) for days, speed in enumerate((490.0, 480.0, 470.0))]
    prune = ("ledger", "prune", "--ledger", ledger, "--older")
    assert reconciler(*prune, "1h").code == 64, "nobody was asked"
    assert reconciler(*prune, "3650d", "--yes").out == "dropped 0 tests with 0 figures, and 0 outputs\n"
    assert reconciler(*prune, "1h", "--yes").out == "dropped 2 tests with 4 figures, and 2 outputs\n"
    place = ("--spec", spec, "--ledger", ledger)
    left = reconciler("gate", "history", NODE, *place, "--output", "json").json
    assert [(row["value"], row["output"]) for row in left] == [(470.0, digests[2])] * 2
    assert reconciler("gate", "output", digests[0], *place).code == 64
    assert reconciler("gate", "output", digests[2], *place).code == 0
    assert "470" in reconciler("gate", "show", NODE, *place).out
    assert "is 470, 4.1% less" in " ".join(reconciler("history", NODE, *place).out.split()), "certificates stay"
    assert reconciler("audit", "verify", "--ledger", ledger).code == 0


def test_the_output_of_a_test_is_found_by_its_digest(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    digest = gate_ran(spec, ledger, 480.0)
    done = reconciler("gate", "output", digest[:12], "--spec", spec, "--ledger", ledger)
    assert (done.code, done.out) == (0, "# Avg bus bandwidth : 480.0\n")
    assert reconciler("gate", "output", "beef", "--spec", spec, "--ledger", ledger).code == 64


def test_parquet_without_pyarrow_says_what_to_install(
    spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    ledger = tmp_path / "ledger.sqlite"
    gate_ran(spec, ledger, 480.0)
    done = reconciler("gate", "history", NODE, "--spec", spec, "--ledger", ledger, "--output", "parquet")
    assert done.code == 64
    assert "pip install '.[parquet]'" in done.err


@pytest.mark.parametrize("command", ["show", "history"])
def test_parquet_has_the_rows_and_types(spec: Path, tmp_path: Path, command: str) -> None:
    """The bytes go to the stdout of a process, which only a process of its own has."""
    pytest.importorskip("pyarrow", reason="PyArrow is not installed")
    from pyarrow import parquet

    ledger = tmp_path / "ledger.sqlite"
    gate_ran(spec, ledger, 480.0)
    words = ("gate", command, NODE, "--spec", spec, "--ledger", ledger, "--output", "parquet")
    printed = subprocess.run([sys.executable, "-m", "reconciler", *map(str, words)], stdout=subprocess.PIPE, check=True)
    table = parquet.read_table(io.BytesIO(printed.stdout))
    measured = [row for row in table.to_pylist() if row["value"] is not None]
    assert {(row["metric"], row["part"], row["value"], row["unit"]) for row in measured} == {
        ("busbw_peak", "", 480.0, "GB/s"),
        ("busbw_peak", "7", 480.0, "GB/s"),
    }
    assert {row["started_at"] for row in measured} == {AT}
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["value"], types["started_at"]) == ("double", "timestamp[us, tz=UTC]")
    if command == "history":
        assert types["attempt"] == "int64"
        empty = subprocess.run(
            [sys.executable, "-m", "reconciler", *map(str, words), "--test", "none"], stdout=subprocess.PIPE, check=True
        )
        assert parquet.read_table(io.BytesIO(empty.stdout)).num_rows == 0


def searched(spec: Path, ledger: Path) -> FabricReport:
    """Keep a search of two nodes, one of them with a bad NIC, as `gate fabric` does."""
    fleet = load_spec(spec, directory=str(spec))
    part = BlamedPart("NIC", NODE, "mlx5_1", 6, 6, (OTHER,), "so are 10 of 10 with itself")
    end = AT + timedelta(minutes=20)
    report = FabricReport(
        "1.0", "run-20261101-120000-abcdef", fleet.settings.fleet, "rails", (NODE, OTHER), {}, (part,), (),
        (OTHER,), {}, (part,), (), 5, AT, end,
        (OpenPart(part, False, "rails", (NODE,), "run-20261031-120000-fedcba", AT - timedelta(days=1)),),
    )  # fmt: skip
    test = GateTest("rails", "perftest", {"partners": 2, "rails": "mlx5_1"}, (), 60.0)
    pair = read(PairRun(0, NODE, OTHER, Leg((200.0,)), Leg((390.0,))), Bar(360.0))
    book = SqlLedger(ledger, fleet=fleet.settings.fleet)
    attempt = book.save_search(report, "told")
    measured = of_pairs(Searched(test, [pair], [], {NODE: "6.10"}), report)
    book.save_results(*rows_of(measured, test, report, fleet.nodes, attempt))
    book.close()
    return report


def test_a_search_is_shown_again_by_its_id(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    report = searched(spec, ledger)
    show = ("gate", "show", report.run, "--spec", spec, "--ledger", ledger)
    human = reconciler(*show)
    assert human.code == 0, human.err
    first, *lines = human.out.splitlines()
    assert first == f"{report.run}: 2 nodes, 5 rounds of rails, 20m"
    assert f"  NIC {NODE}, rail mlx5_1: 6 of 6 runs are low; so are 10 of 10 with itself" in lines
    assert any(line.split() == ["NIC", f"{NODE},", "rail", "mlx5_1", "6", "6", OTHER] for line in lines), human.out
    assert any("Of earlier searches" in line for line in lines)
    assert load(FabricReport, reconciler(*show, "-o", "json").out) == report
    assert report.run in reconciler(*show, "-o", "markdown").out
    assert reconciler(*show, "-o", "csv").code == 64
    unknown = reconciler("gate", "show", "run-x", "--spec", spec, "--ledger", ledger)
    assert (unknown.code, f"the last ones: {report.run}" in unknown.err) == (64, True), unknown.err


def test_what_a_search_measured_is_shown_after_the_gate_of_a_node(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    gate_ran(spec, ledger, 480.0)
    searched(spec, ledger)
    place = ("--spec", spec, "--ledger", ledger, "--output", "json")
    rows = reconciler("gate", "show", NODE, *place).json
    assert [row["value"] for row in rows if row["metric"] == "busbw_peak" and not row["part"]] == [480.0]
    found = {(row["metric"], row["part"]): row for row in rows if row["profile"] == "gate fabric"}
    assert found["gbps", f"{OTHER}.mlx5_1.there"]["value"] == 200.0
    assert found["gbps", ""]["verdict"] == "fail"
    assert "is at fault" in found["gbps", ""]["reasons"]
    alone = reconciler("gate", "show", OTHER, *place)
    assert {row["verdict"] for row in alone.json if row["profile"]} == {"pass"}, alone.err
    history = reconciler("gate", "history", NODE, *place).json
    assert {row["profile"] for row in history} == {"", "gate fabric"}
