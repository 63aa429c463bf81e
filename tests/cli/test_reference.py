"""reconciler reference: what certified nodes measured becomes a document that their peers are judged by."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import jsonschema

from reconciler.drivers.ledger import SqlLedger
from reconciler.gate import certificate
from reconciler.model.gate import Binding, Certificate, TestResult, Verdict
from reconciler.spec import load_spec
from tests.cli.shell import reconciler


def certify(spec: Path, ledger: Path, speeds: dict[str, float]) -> None:
    fleet = load_spec(spec, directory=str(spec))
    book = SqlLedger(ledger, fleet=fleet.settings.fleet)
    for name, speed in speeds.items():
        profile = fleet.nodes[name].profile
        assert profile.acceptance is not None
        assert profile.image is not None
        digests = certificate.tests_digest(profile.acceptance)
        binding = Binding("S", (), profile.image.sha256, {}, "", digests.whole, digests.each)
        result = TestResult("nccl", "nccl-tests", Verdict.PASS, (), {"busbw_peak": speed}, "2.13.8")
        book.save_certificate(Certificate("1.0", name, datetime.now(UTC), binding, (result,)))
    book.close()


def test_references_are_written_once_and_their_peers_judge(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    nodes = load_spec(spec, directory=str(spec)).nodes
    names = [name for name, node in nodes.items() if node.profile.acceptance and node.profile.image][:12]
    certify(spec, ledger, {name: 480.0 + at for at, name in enumerate(names)})
    acceptance = spec / "acceptance.yaml"
    text = acceptance.read_text()
    bar = "- {metric: busbw_peak, min: 440"
    assert bar in text
    acceptance.write_text(text.replace(bar, bar + ", cohort: {below: 3%, modifiedZ: 3.5}"))
    done = reconciler("reference", "build", spec, "--ledger", str(ledger), "--output", "json")
    assert done.code == 0, done.err
    assert sum(row["n"] for row in done.json) == len(names)
    written = sorted((spec / "reference").glob("*.json"))
    assert sorted({row["file"] for row in done.json}) == [path.name for path in written]
    schema = reconciler("schema", "reference").json
    for path in written:
        jsonschema.validate(json.loads(path.read_text()), schema, jsonschema.Draft202012Validator)
    at = [path.stat().st_mtime_ns for path in written]
    assert reconciler("reference", "build", spec, "--ledger", str(ledger)).code == 0
    assert [path.stat().st_mtime_ns for path in written] == at
    fleet = load_spec(spec, directory=str(spec))
    found = fleet.nodes[names[0]].profile.acceptance
    assert found is not None
    [cohort] = [bar.cohort for phase in found.phases for test in phase.tests for bar in test.thresholds if bar.cohort]
    assert sum(peers.n for peers in cohort.peers) == done.json[0]["n"]


def test_the_report_of_a_period_says_where_bars_by_peers_do_not_count(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    nodes = load_spec(spec, directory=str(spec)).nodes
    names = [name for name, node in nodes.items() if node.profile.acceptance and node.profile.image][:3]
    certify(spec, ledger, dict.fromkeys(names, 480.0))
    assert reconciler("report", spec, "--ledger", str(ledger), "-o", "json").json["peerless"] == [], (
        "no bar is by peers"
    )
    acceptance = spec / "acceptance.yaml"
    bar = "- {metric: busbw_peak, min: 440"
    acceptance.write_text(acceptance.read_text().replace(bar, bar + ", cohort: {below: 3%, modifiedZ: 3.5}"))
    done = reconciler("report", spec, "--ledger", str(ledger), "-o", "json")
    why = "nccl: busbw_peak: min and max alone decide, as there are 0 peers with nccl-tests 2.13.8"
    assert done.json["peerless"] == [{"why": why, "nodes": names}]
    schema = reconciler("schema", "report").json
    jsonschema.validate(done.json, schema, jsonschema.Draft202012Validator)
    for form in ("human", "markdown"):
        said = " ".join(reconciler("report", spec, "--ledger", str(ledger), "-o", form).out.replace("\\", "").split())
        assert "Bars by peers that don't count" in said
        assert "0 peers with nccl-tests 2.13.8" in said


def test_the_history_of_a_node_tells_of_gray_decline(spec: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger.sqlite"
    certify(spec, ledger, {"gpu-a001": 490.0})
    certify(spec, ledger, {"gpu-a001": 470.0})
    done = reconciler("history", "gpu-a001", "--spec", spec, "--ledger", str(ledger))
    assert "is 470, 4.1% less" in " ".join(done.out.split())


def test_a_ledger_without_certificates_builds_nothing(spec: Path, tmp_path: Path) -> None:
    done = reconciler("reference", "build", spec, "--out", tmp_path / "out")
    assert done.code == 0
    assert "no node has a certificate with tests" in done.out
    assert not list((tmp_path / "out").iterdir())
