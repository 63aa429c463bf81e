"""Results as rows: parts, units, keys, and what is kept of what tools print."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.app.reference import file_name
from reconciler.gate.cohort import references
from reconciler.gate.evidence import required_metrics
from reconciler.gate.printed import LONGEST, printed
from reconciler.gate.results import measurements, recorded, with_searched
from reconciler.model.desired import Acceptance, GatePhase, GateTest
from reconciler.model.gate import Certificate, CommandResult, TestResult, Verdict
from reconciler.model.gate_tools import TOOLS, measured
from reconciler.model.results import TestRun
from tests import builders as b

COUNTS = {  # metrics that have no unit, being counts and ratios, or whose unit the program prints
    "fio": {"spread"}, "xid": {"xids"}, "iperf3": {"retransmits"}, "memtester": {"loops"}, "clock": {"stratum"},
    "pcie": {"acs_on"}, "link-counters": {"ports", "symbol_error", "link_downed"}, "command": {"mfu"},
    "extension": {"mfu"},     "mlxlink": {"effective_errors"}, "amd-smi": {"uncorrectable"}, "rvs": {"actions"},
}  # fmt: skip
ARGS = {
    "command": {"metrics": "mfu"},
    "extension": {"metrics": "mfu"},
    "perftest": {"rails": "mlx5_0"},
    "mlxlink": {"rails": "mlx5_0"},
}


@pytest.mark.parametrize("tool", TOOLS)
def test_each_metric_that_a_pass_carries_has_a_unit_or_is_a_count(tool: str) -> None:
    names = required_metrics(GateTest("t", tool, ARGS.get(tool, {}), (), 60.0))
    lacking = {name for name in names if not measured(tool, name, names)[2]}
    assert lacking <= COUNTS.get(tool, set()), f"give {lacking} of {tool} a unit in model/gate_tools.py"


@pytest.mark.parametrize(
    ("tool", "name", "row"),
    [
        ("perftest", "gbps.mlx5_0", ("gbps", "mlx5_0", "Gb/s")),
        ("perftest", "gbps.spread", ("gbps.spread", "", "%")),
        ("pcie", "speed_gts.0000:17:00.0", ("speed_gts", "0000:17:00.0", "GT/s")),
        ("dcgmi-diag", "memory.gpus", ("memory.gpus", "", "GPUs")),
        ("fio", "read_mbps.nvme0", ("read_mbps", "nvme0", "MB/s")),
        ("inventory", "hardware.gpus", ("hardware.gpus", "", "")),
        ("of tomorrow", "m.0", ("m", "0", "")),
    ],
)
def test_a_metric_of_a_part_names_the_part(tool: str, name: str, row: tuple[str, str, str]) -> None:
    assert measured(tool, name, {name, "m"}) == row


def test_a_unit_that_the_program_prints_is_kept_and_what_is_no_number_is_not() -> None:
    result = TestResult("mfu", "command", Verdict.PASS, (), {"mfu": 42.0, "x": float("nan")}, units={"mfu": "%"})
    assert [(row.metric, row.value, row.unit) for row in measurements(result)] == [("mfu", 42.0, "%")]


def test_the_key_of_a_row_is_that_of_the_reference_which_it_would_go_into() -> None:
    node = b.node()
    assert node.profile.acceptance is not None
    test = node.profile.acceptance.phases[0].tests[0]
    result = TestResult(test.name, test.tool, Verdict.PASS, (), {"m": 1.0}, "4.2", printed="all is well\n")
    certificate = replace(b.certificate(node, b.observed()), results=(result,))
    found = recorded(certificate, node, 7)
    (reference,) = references([(node, found.certificate)])
    (run,) = found.runs
    assert file_name(reference).endswith(f"-{run.key[:8]}.json")
    assert found.outputs == {run.output: "all is well\n"}
    assert (found.certificate.results[0].printed, found.certificate.results[0].output) == ("", run.output)
    assert (run.attempt, run.node, run.started_at) == (7, node.node, certificate.issued_at)


def test_a_reference_has_what_searches_measured_of_certified_nodes() -> None:
    test = GateTest("rails", "perftest", {"partners": 2, "rails": "mlx5_0"}, (), 60.0)
    bare = b.node()
    node = replace(
        bare, profile=replace(bare.profile, acceptance=Acceptance("gate", (GatePhase("net", (test,)),), None))
    )
    certified = replace(b.certificate(node, b.observed()), results=())
    metrics = {"gbps": 390.0, "gbps.n2.mlx5_0.there": 120.0, "runs": 18.0, "low_runs": 0.0}
    measured = TestResult("rails", "perftest", Verdict.PASS, (), metrics, "6.10", printed="x\n")
    (run,) = recorded(replace(certified, results=(measured,)), node, 7).runs
    (reference,) = references([(node, with_searched(certified, node, [run]))])
    assert {name: one.median for name, one in reference.metrics.items()} == {"gbps": 390.0}
    assert reference.tool_version == "6.10"

    def built(one: Certificate, *runs: TestRun) -> list[float]:
        return [made.metrics["gbps"].median for made in references([(node, with_searched(one, node, runs))])]

    gate = replace(measured, metrics={"gbps": 300.0})
    assert built(replace(certified, results=(gate,)), run) == [300.0], "a gate's own figure goes before"
    assert built(certified, replace(run, key="another image or other arguments")) == []
    assert built(certified, replace(run, verdict=Verdict.UNJUDGED)) == []
    assert built(certified, replace(run, test="one that is no longer in the profile")) == []
    assert built(replace(certified, adopted=True), run) == []


# --- what is kept of what was printed ---


SECRETS = ("hunter2hunter2", "c2VjcmV0LXRva2Vu", "MIIEvQIBADANBg")


@pytest.mark.parametrize(
    "text",
    [
        "HOME=/root hunter2hunter2\nNCCL_ALGO=Ring\n",
        "export AWS_SESSION=hunter2hunter2",
        'declare -x PS1="hunter2hunter2"',
        json.dumps({"env": {"PATH": "hunter2hunter2", "A": "c2VjcmV0LXRva2Vu"}, "results": [1]}),
        json.dumps({"environment": ["DB=hunter2hunter2"], "results": [1]}, indent=2),
        "connecting with password: hunter2hunter2 to db",
        '{"api_key": "hunter2hunter2"}',
        "hf_token='hunter2hunter2'",
        "GET / Authorization: Bearer c2VjcmV0LXRva2Vu",
        "psql postgresql://bench:hunter2hunter2@db/x",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADANBg\n-----END RSA PRIVATE KEY-----\n",
        "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBg",
    ],
)
def test_environment_and_secrets_are_not_kept(text: str) -> None:
    for stream in (CommandResult(0, text), CommandResult(1, "", text)):
        kept = printed([stream])
        assert not any(secret in kept for secret in SECRETS), kept
        assert kept == printed([CommandResult(stream.exit_status, stream.stdout, stream.stderr)])


def test_what_decides_a_result_stays() -> None:
    text = 'NCCL_ALGO=Ring\n# Avg bus bandwidth : 481.2\ntime=12 size=8G\n{"tokens_per_s": 12}\nbasic configuration\n'
    assert printed([CommandResult(0, text), CommandResult(-1, "half", "oops", timed_out=True)]) == (
        f"--- command 1: exit status 0\n{text}--- command 2: killed at its timeout\nhalf\n--- standard error\noops\n"
    )
    assert printed([]) == ""


def test_beginning_and_end_of_what_is_too_long_stay() -> None:
    kept = printed([CommandResult(0, "first\n" + "x" * (2 * LONGEST) + "\nlast\n")])
    assert LONGEST <= len(kept) <= LONGEST + 100
    assert "first" in kept
    assert kept.endswith("last\n")
    assert re.search(r"\n--- \d{7} characters are left out\n", kept)


@pytest.mark.parametrize(
    "unit", ["x", " ", "\n", "A_", "token", '"env":{', '"env":[', "://a", "bearer ", "-----BEGIN PRIVATE KEY-----"]
)
def test_no_text_takes_long(unit: str) -> None:
    """A pattern that backtracks would take minutes of this, in which nothing else is done."""
    text = unit * (200_000 // len(unit))
    began = time.process_time()
    printed([CommandResult(0, text)])
    assert time.process_time() - began < 5


@given(st.text(alphabet="aT=:{}[]\"' \n\0\ud800token-BEGIN", max_size=300))
def test_any_text_can_be_kept(text: str) -> None:
    assert printed([CommandResult(0, text)]).encode()
