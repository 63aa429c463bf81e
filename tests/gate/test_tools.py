"""The judges: what passes, what does not, and that nothing that is not evidence ever passes (invariant 18)."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import CommandResult, Verdict
from reconciler.model.observed import NvmeHealth
from tests import builders as b
from tests.gate.cases import GOOD, RANDOM_READS, SEEN, Case, dcgm, fio, gate_test, judge, wanted

good = st.sampled_from(GOOD)


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.tool)
def test_whole_evidence_passes(case: Case) -> None:
    result = judge(case)
    assert result.verdict is Verdict.PASS, result.reasons
    assert result.metrics
    dirty = judge(case, "WARNING: banner\n" + case.text)
    assert dirty.verdict is Verdict.PASS, dirty.reasons


@pytest.mark.parametrize("case", GOOD, ids=lambda case: case.tool)
def test_exit_status_and_document_must_agree(case: Case) -> None:
    assert judge(case, exit_status=1).verdict is Verdict.ERROR
    assert judge(case, "", exit_status=0).verdict in (Verdict.ERROR, Verdict.UNJUDGED)
    missing = TOOLS[case.tool].judge(case.test, wanted(), SEEN, [CommandResult(127, "", "bash: command not found")])
    killed = TOOLS[case.tool].judge(case.test, wanted(), SEEN, [CommandResult(-1, case.text, timed_out=True)])
    assert missing.verdict is killed.verdict is Verdict.ERROR


@pytest.mark.parametrize("case", GOOD[:3], ids=lambda case: case.tool)
@pytest.mark.parametrize("gpus", [None, 1, 7, 9])
def test_the_declared_count_is_exact(case: Case, gpus: int | None) -> None:
    assert judge(case, gpus=gpus).verdict is not Verdict.PASS


@given(good, st.integers(0, 10**6))
def test_not_evidence_is_not_pass_when_cut(case: Case, where: int) -> None:
    """Invariant 18: a document cut anywhere before its closing line or brace passes never."""
    last = len(case.text.rstrip("#\n")) - 1 if case.tool == "nccl-tests" else len(case.text) - 1
    assert judge(case, case.text[: where % (last + 1)]).verdict is not Verdict.PASS


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for key, inner in items:
            yield from _leaves(inner, (*path, key))


def _edit(document: Any, path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> Any:
    edited = copy.deepcopy(document)
    parent = edited
    for step in path[:-1]:
        parent = parent[step]
    change(parent, path[-1])
    return edited


# What a judge does not read may change without harm: it is no evidence either way.
_UNREAD = {
    "dcgmi-diag": {"test_summary", "category", "entity_group_id", "entity_group"},
    "nvbandwidth": {"min", "max", "average"},
    "fio": {"jobname", "write_ios"},
}


@given(st.sampled_from([case for case in (*GOOD, RANDOM_READS) if case.tool != "nccl-tests"]), st.data())
def test_not_evidence_is_not_pass_when_mutated(case: Case, data: Any) -> None:
    """Invariant 18: drop, blank or replace any part that is evidence, and the verdict is not pass."""
    document = json.loads(case.text)
    paths = [path for path in _leaves(document) if path and not _UNREAD[case.tool] & set(map(str, path))]
    path = data.draw(st.sampled_from(paths))
    blank = data.draw(
        st.sampled_from([None, "", "N/A", "[GPU is lost]", "nan", [], {}, "Skip", "Waived", float("inf")])
    )
    drop = data.draw(st.booleans())

    def change(parent: Any, key: Any) -> None:
        if drop:
            del parent[key]
        else:
            parent[key] = blank

    result = judge(case, json.dumps(_edit(document, path, change)))
    assert result.verdict is not Verdict.PASS, (path, drop, blank)


def test_failures_are_named() -> None:
    failing = dcgm()
    failing["DCGM Diagnostic"]["test_categories"][1]["tests"][0]["results"][5] |= {
        "status": "Fail", "warnings": [{"warning": "GPU 5 memory", "error_severity": 2}],
    }  # fmt: skip
    result = judge(GOOD[0], json.dumps(failing), exit_status=226)
    assert result.verdict is Verdict.FAIL
    assert "memory: fail (GPU 5) GPU 5 memory" in result.reasons
    row = failing["DCGM Diagnostic"]["test_categories"][1]["tests"][0]["results"][5]
    row["warnings"][0]["error_severity"] = 5
    assert judge(GOOD[0], json.dumps(failing), exit_status=226).verdict is Verdict.UNJUDGED


def test_fio_must_have_measured_the_drive() -> None:
    """As root, fio creates a file where the device should be and measures memory (acceptance 4.4)."""
    elsewhere = fio() | {"disk_util": [{"name": "vda", "read_ios": 5}]}
    assert judge(GOOD[3], json.dumps(elsewhere)).verdict is Verdict.UNJUDGED
    assert judge(GOOD[3], json.dumps(fio(runtime=300))).verdict is Verdict.UNJUDGED
    metrics = judge(GOOD[3], json.dumps(fio())).metrics
    assert set(metrics) == {"read_mbps", "read_mbps.nvme0n1", "spread"}, "no serials: metrics are published"
    commands = TOOLS["fio"].commands(gate_test("fio"), wanted(), SEEN)
    assert isinstance(commands, tuple)
    assert "--readonly" in commands[0]
    assert "--allow_file_create=0" in commands[0]
    assert isinstance(TOOLS["fio"].commands(gate_test("fio"), wanted(drives=5), SEEN), str)


@pytest.mark.parametrize(
    ("logged", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"critical_warning": 4}, Verdict.FAIL),
        ({"media_errors": 7}, Verdict.FAIL),
        ({"percentage_used": 180}, Verdict.FAIL),
        ({"available_spare": 0}, Verdict.FAIL),
        ({"available_spare": 9, "spare_threshold": 10}, Verdict.FAIL),
        ({"media_errors": None}, Verdict.UNJUDGED),
        ({"available_spare": None}, Verdict.UNJUDGED),
    ],
)
def test_a_drive_is_judged_by_each_of_its_counts(logged: dict[str, int | None], verdict: Verdict) -> None:
    """Acceptance 4.8: most bad drives say of themselves that they passed."""
    drive = replace(NvmeHealth("/dev/nvme0", "D1", "PM9A3", 0, 0, 3, 100, 10), **logged)  # type: ignore[arg-type]
    seen = b.observed(host=b.facts(nvme=(drive,)))
    assert TOOLS["inventory"].judge(gate_test("inventory"), b.node(), seen, ()).verdict is verdict


@pytest.mark.parametrize(
    ("floors", "verdict"),
    [
        ("PM9A3=6500", Verdict.PASS),
        ("other=9000, PM9A3=6000", Verdict.PASS),
        ("PM9A3=6501", Verdict.FAIL),
        ("other=1", Verdict.UNJUDGED),
    ],
)
def test_a_drive_has_the_floor_of_its_model(floors: str, verdict: Verdict) -> None:
    case = replace(GOOD[3], test=gate_test("fio", floors=floors))
    assert judge(case).verdict is verdict


@pytest.mark.parametrize(
    ("args", "verdict"),
    [
        ({}, Verdict.PASS),
        ({"floors": "PM9A3=1000000"}, Verdict.PASS),
        ({"floors": "PM9A3=1000001"}, Verdict.FAIL),
        ({"floors": "other=1"}, Verdict.UNJUDGED),
    ],
)
def test_random_reads_have_floors_of_their_own(args: dict[str, str], verdict: Verdict) -> None:
    test = gate_test("fio", random=True, **args)
    commands = TOOLS["fio"].commands(test, wanted(), SEEN)
    assert isinstance(commands, tuple)
    assert {"--rw=randread", "--bs=4k", "--readonly", "--allow_file_create=0"} <= set(commands[0])
    result = judge(replace(RANDOM_READS, test=test))
    assert result.verdict is verdict
    assert result.metrics == {"read_iops": 1e6, "read_iops.nvme0n1": 1e6, "spread": 1}


@pytest.mark.parametrize("iops", [None, "N/A", 0, -1, 244, 2_000_000])
def test_reads_in_order_are_no_random_ones(iops: object) -> None:
    """Without a count of reads that is that of its bytes, the blocks were others."""
    document = json.loads(RANDOM_READS.text)
    document["jobs"][0]["read"]["iops"] = iops
    result = judge(RANDOM_READS, json.dumps(document))
    assert result.verdict is Verdict.UNJUDGED


@pytest.mark.parametrize(
    ("floors", "disks", "verdict"),
    [
        ("", ["dm-0"], Verdict.PASS),
        ("PM9A3=3000", ["nvme0n1"], Verdict.PASS),
        ("PM9A3=3001", ["nvme0n1"], Verdict.FAIL),
        ("other=1", ["nvme0n1"], Verdict.UNJUDGED),
        ("PM9A3=3000", [], Verdict.UNJUDGED),
        ("PM9A3=3000", ["dm-0"], Verdict.UNJUDGED),
        ("PM9A3=3000", ["md0", "nvme0n1", "nvme1n1"], Verdict.UNJUDGED),
    ],
)
def test_writes_have_the_floor_of_the_drive_below_the_directory(
    floors: str, disks: list[str], verdict: Verdict
) -> None:
    moved = {"io_bytes": 4 * 2**20, "bw_bytes": 3_000_000_000}
    job = {"error": 0, "write": moved, "read": moved, "job options": {"verify": "crc32c", "do_verify": "1"}}
    document = {"fio version": "fio-3.33", "jobs": [job], "disk_util": [{"name": name} for name in disks]}
    args = {"directory": "/data", "mebibytes": 4, **({"floors": floors} if floors else {})}
    outputs = [CommandResult(0, json.dumps(document))]
    result = TOOLS["fio-verify"].judge(gate_test("fio-verify", **args), wanted(), SEEN, outputs)
    assert result.verdict is verdict, result.reasons


def test_inventory_and_xids() -> None:
    inventory, xid = TOOLS["inventory"], TOOLS["xid"]
    node = b.node()
    assert inventory.judge(gate_test("inventory"), node, b.observed(), ()).verdict is Verdict.PASS
    assert xid.judge(gate_test("xid"), node, b.observed(), ()).verdict is Verdict.PASS
    lost = b.observed(host=b.facts(gpus=(b.gpu(0), b.gpu(1, lost=True))))
    assert inventory.judge(gate_test("inventory"), node, lost, ()).verdict is Verdict.FAIL
    assert xid.judge(gate_test("xid"), node, lost, ()).verdict is Verdict.FAIL
    more = b.observed(host=b.facts(gpus=(b.gpu(0), b.gpu(1), b.gpu(2))))
    assert inventory.judge(gate_test("inventory"), node, more, ()).verdict is Verdict.FAIL
    blind = b.observed(host=b.facts(xids=None, gpus=None))
    assert xid.judge(gate_test("xid"), node, blind, ()).verdict is Verdict.ERROR
    assert inventory.judge(gate_test("inventory"), node, blind, ()).verdict is Verdict.UNJUDGED
    dark = b.observed(host=b.silent())
    assert xid.judge(gate_test("xid"), node, dark, ()).verdict is Verdict.ERROR
    assert inventory.judge(gate_test("inventory"), node, dark, ()).verdict is not Verdict.PASS


FOLDERS = {"dcgmi-diag": "dcgmi-diag", "nvbandwidth": "nvbandwidth", "nccl-tests": "nccl-tests", "fio": "fio"}
# The only recordings that are whole evidence of a healthy node with the declared number of devices.
PASSING = {
    ("fio", "superbench_disk_performance.log"),
    *(
        ("nccl-tests", f"json_{commit}_{case}.stdout.log")
        for commit in ("760c467", "85ca91d", "HEAD")
        for case in ("ok", "ok_checked")  # slow says FAILED: NCCL_TESTS_MIN_BW was set where it ran
    ),
}


@pytest.mark.parametrize("tool", sorted(FOLDERS))
def test_every_recording_yields_a_verdict(tool: str, samples: Path) -> None:
    """Real outputs never raise, and pass only where they are whole evidence."""
    case = next(case for case in GOOD if case.tool == tool)
    files = [path for path in sorted((samples / FOLDERS[tool]).iterdir()) if path.suffix not in (".src", ".stderr")]
    assert files
    passed = set()
    for path in files:
        text = path.read_text(errors="replace")
        for status in (0, 1):
            result = judge(replace(case, text=text), exit_status=status)
            assert isinstance(result.verdict, Verdict)
            if result.verdict is Verdict.PASS:
                passed.add((tool, path.name))
                assert status == 0
    assert passed == PASSING & {(tool, path.name) for path in files}
