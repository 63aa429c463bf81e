"""perftest with a partner: both programs serve there over each rail, and the node writes to it and reads from it.

No RDMA device is here, so stand-ins print what real programs printed. A server serves one client, as the real one does.
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.gate.lock import guarded
from reconciler.gate.tools import TOOLS
from reconciler.model.desired import GateTest
from reconciler.model.gate import CommandResult, TestResult, Verdict
from tests.gate.cases import SEEN, wanted
from tests.gate.mutations import FOLDER, spoilt
from tests.gate.test_judges_never_raise import check

TEST = GateTest("rails", "perftest", {"rails": "mlx5_0, mlx5_1", "partners": 2, "seconds": 5}, (), 60.0)
TOOL = TOOLS["perftest"]
WRITE = (FOLDER / "perftest.txt").read_text()
VERSION = CommandResult(1, (FOLDER / "perftest-version.txt").read_text())


def printed(rail: str, way: str, gbps: float = 98.02) -> CommandResult:
    """Return the recording as it is of another rail, way and speed."""
    text = WRITE.replace("mlx5_0", rail).replace("RDMA_Write", f"RDMA_{way}")
    return CommandResult(
        0, text.replace("98.02 ", f"{gbps:.2f} ").replace("0.186950", f"{gbps * 1000 / 8 / 65536:.6f}")
    )


OUTPUTS = [VERSION, *(printed(rail, way) for rail in ("mlx5_0", "mlx5_1") for way in ("Write", "Read"))]


def judge(outputs: Sequence[CommandResult]) -> TestResult:
    return check(TOOL.judge(TEST, wanted(), SEEN, outputs))


def commands(server: str = "10.0.0.2") -> Sequence[Sequence[str]]:
    found = TOOL.commands(replace(TEST, args={**TEST.args, "server": server}), wanted(), SEEN)
    assert not isinstance(found, str)
    return found


def test_the_slower_way_of_the_slowest_rail_counts() -> None:
    slow = [*OUTPUTS[:4], printed("mlx5_1", "Read", 49.01)]
    found = judge(slow)
    assert found.verdict is Verdict.PASS, found.reasons
    assert found.metrics["gbps"] == found.metrics["gbps.mlx5_1"] == found.metrics["gbps.mlx5_1.back"] == 49.01
    assert found.metrics["gbps.mlx5_1.there"] == found.metrics["gbps.mlx5_0"] == 98.02
    assert found.metrics["gbps.spread"] == pytest.approx(50.0)


@pytest.mark.parametrize("order", [(2, 1, 3, 4), (3, 4, 1, 2), (1, 1, 3, 3), (1, 2, 3)], ids=str)
def test_what_another_rail_or_way_printed_is_no_pass(order: Sequence[int]) -> None:
    assert judge([VERSION, *(OUTPUTS[at] for at in order)]).verdict is not Verdict.PASS


def test_no_spoilt_output_of_one_way_passes_with_another_figure() -> None:
    whole = judge(OUTPUTS).metrics
    for at, output in enumerate(OUTPUTS):
        for what, other in spoilt(output):
            found = judge([*OUTPUTS[:at], other, *OUTPUTS[at + 1 :]])
            assert found.verdict is not Verdict.PASS or found.metrics == whole, what


def test_each_rail_and_way_has_a_port_of_its_own() -> None:
    ports = [words[words.index("-p") + 1] for words in commands()[1:]]
    assert len(set(ports)) == 4
    assert TOOL.serve is not None
    script = TOOL.serve(TEST)[4]
    assert [line.split()[line.split().index("-p") + 1] for line in script.splitlines() if "-p " in line] == ports


STAND_IN = """#!/bin/sh
for w in "$@"; do [ "$before" = -p ] && port=$w; [ "$before" = -d ] && rail=$w; before=$w; last=$w; done
case $last in
  10.0.0.2) [ -e "$NET/$port" ] || { echo "Couldn't connect to $last:$port" >&2; exit 1; }
    case $0 in *read*) way=Read;; *) way=Write;; esac
    rm "$NET/$port"; sed "s/mlx5_0/$rail/; s/RDMA_Write/RDMA_$way/" "$NET/recording";;
  *) [ -n "$BROKEN" ] && { echo "IB device $rail not found" >&2; exit 1; }
    sleep "$LATE"; : >"$NET/$port"; while [ -e "$NET/$port" ]; do sleep 0.1; done;;
esac
"""


@pytest.fixture
def net(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Return a function that starts a command on one of the two nodes, which share a folder as their network."""
    started: list[subprocess.Popen[str]] = []
    for name in ("ib_write_bw", "ib_read_bw"):
        (tmp_path / name).write_text(STAND_IN)
        (tmp_path / name).chmod(0o755)
    (tmp_path / "recording").write_text(WRITE)

    def start(argv: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        paths = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "NET": str(tmp_path), "TMPDIR": str(tmp_path)}
        started.append(
            subprocess.Popen(
                guarded(argv), env={"LATE": "0", **paths, **environment}, stdout=subprocess.PIPE, text=True,
                stderr=subprocess.PIPE,
            )
        )  # fmt: skip
        return started[-1]

    yield start
    for process in started:
        process.terminate()
        process.communicate(timeout=15)


@pytest.mark.tool
def test_servers_serve_client_after_client_and_a_client_waits_for_one_that_is_late(
    net: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    assert TOOL.serve is not None
    server = net(TOOL.serve(TEST), LATE="1")
    for _ in range(2):
        outputs = [VERSION]
        for argv in commands()[1:]:
            process = net(argv)
            out, err = process.communicate(timeout=30)
            outputs.append(CommandResult(process.returncode, out, err))
        found = judge(outputs)
        assert found.verdict is Verdict.PASS, found.reasons
    assert server.poll() is None
    server.terminate()
    server.communicate(timeout=15)
    assert subprocess.run(["pgrep", "-f", f"{tmp_path}/ib_"], check=False, capture_output=True).stdout == b""


@pytest.mark.tool
def test_servers_that_can_not_start_say_why_and_end(net: Callable[..., subprocess.Popen[str]]) -> None:
    assert TOOL.serve is not None
    began = time.monotonic()
    server = net(TOOL.serve(TEST), BROKEN="yes")
    _, err = server.communicate(timeout=40)
    assert "IB device mlx5_1 not found" in err
    assert time.monotonic() - began > 2, "a device may come up meanwhile"
