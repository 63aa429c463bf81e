"""The table of docs/reference/gate-tools.md says how many real outputs each judge was tried on, and how many spoilt."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import CommandResult, Verdict
from tests.conftest import ROOT
from tests.gate import mishaps
from tests.gate.cases import GOOD, SEEN, Case, gate_test, wanted
from tests.gate.mutations import PASSING, mutations, spoilt
from tests.gate.test_judges_never_raise import check

PAGE = ROOT / "docs" / "reference" / "gate-tools.md"
FOLDERS = {  # of recordings that other projects have published, beside the tools that judge them
    "dcgmi-diag": "dcgmi-diag", "nvbandwidth": "nvbandwidth", "nccl-tests": "nccl-tests", "rccl-tests": "nccl-tests",
    "fio": "fio", "fio-verify": "fio", "iperf3": "iperf3", "perftest": "perftest", "pcie": "lspci",
    "gpu-burn": "gpu-burn",
}  # fmt: skip
ARGS = {"perftest": {"rails": "mlx5_0"}, "fio-verify": {"directory": "/data"}, "gpu-burn": {"directory": "/opt"}}
HEAD = (
    "| tool | whole outputs in the tree | of other projects | spoilt outputs judged | mishaps judged |\n"
    "| --- | --- | --- | --- | --- |\n"
)


def published(samples: Path, tool: str) -> list[Path]:
    if tool not in FOLDERS or not samples.is_dir():
        return []
    files = sorted((samples / FOLDERS[tool]).iterdir())
    return [path for path in files if path.suffix not in (".src", ".stderr", ".yaml")]


def lines(case: Case) -> str:
    return case.text if case.tool == "nccl-tests" else json.dumps(json.loads(case.text), indent=1) + "\n"


def counted(samples: Path) -> Iterator[tuple[str, int, int, int, int]]:
    """Yield of each tool: whole outputs here, those of others, spoilt ones that are judged, and mishaps."""
    for tool in TOOLS:
        mine = [recording for recording in PASSING if recording.tool == tool]
        cases = [case for case in GOOD if case.tool == tool]
        tried = sum(1 for recording in mine for _ in mutations(recording))
        tried += sum(1 for case in cases for _ in spoilt(CommandResult(0, lines(case))))
        yield tool, len(mine) + len(cases), len(published(samples, tool)), tried, mishaps.tried(tool)


def rows(samples: Path) -> Iterator[str]:
    for tool, *figures in counted(samples):
        yield f"| `{tool}` | {' | '.join(map(str, figures))} |\n"


def test_the_table_says_what_was_tried(samples: Path) -> None:
    assert HEAD + "".join(rows(samples)) in PAGE.read_text(), HEAD + "".join(rows(samples))


def test_no_output_of_others_passes_as_another_tools(samples: Path) -> None:
    """One file of eight H100 is whole; every other is a failure, cut, or of another machine than is declared."""
    passed = set()
    for tool in ("rccl-tests", "fio-verify", "iperf3", "perftest", "pcie", "gpu-burn"):
        test = gate_test(tool, **ARGS.get(tool, {}))
        for path in published(samples, tool):
            output = CommandResult(0, path.read_text(errors="replace"))
            first = {"perftest": ["Version: 6.06\n"], "pcie": ["lspci version 3.9.0\n"]}.get(tool, [])
            outputs = [*(CommandResult(0, text) for text in first), output]
            if check(TOOLS[tool].judge(test, wanted(), SEEN, outputs)).verdict is Verdict.PASS:
                passed.add(path.name)
    assert passed <= {"gpud_lspci-vvv.txt", "local_healthy_tcp.json"}


def test_what_was_spoilt_is_no_pass_that_was_none() -> None:
    wrong = []
    for case in GOOD:
        judge = TOOLS[case.tool].judge
        metrics = judge(case.test, wanted(), SEEN, [CommandResult(0, lines(case))]).metrics
        assert metrics
        for what, output in spoilt(CommandResult(0, lines(case))):
            result = check(judge(case.test, wanted(), SEEN, [output]))
            if result.verdict is Verdict.PASS and (result.metrics != metrics or "line" not in what):
                wrong.append((case.tool, what))
    assert wrong == []


def test_gpu_burn_that_ends_with_0_and_faulty_gpus_fails(samples: Path) -> None:
    judge = TOOLS["gpu-burn"].judge
    for name, verdict in (("blog_t4_faulty.log", Verdict.FAIL), ("issue124_ok_without_progress.log", Verdict.ERROR)):
        text = (samples / "gpu-burn" / name).read_text().replace("\r", "\n")
        output = CommandResult(0, f"{text}\n--- samples\n0, 70, 69.5, 1590, 100\n")
        result = judge(gate_test("gpu-burn"), wanted(gpus=1), SEEN, [output])
        assert result.verdict is verdict, result.reasons
