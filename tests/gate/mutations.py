"""Recordings of real programs, and what can happen to such an output between the program and its judge."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

from reconciler.gate.tools import TOOLS
from reconciler.model.desired import GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import Value
from tests.gate.cases import SEEN, wanted

FOLDER = Path(__file__).parent / "recordings"
_CUTS = 150
_LINES = 60
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True)
class Recording:
    """What one run of a tool printed; of a tool with several commands, one file for each."""

    tool: str
    args: Mapping[str, Value]
    files: tuple[str, ...]
    statuses: tuple[int, ...] = (0, 0)
    inventory: Mapping[str, int] = field(default_factory=dict)  # of the machine, where it is not that of cases.wanted

    @property
    def test(self) -> GateTest:
        return GateTest(self.tool, self.tool, self.args, (), 60.0)

    def outputs(self) -> list[CommandResult]:
        return [CommandResult(status, _text(name)) for name, status in zip(self.files, self.statuses, strict=False)]

    def judge(self, outputs: Sequence[CommandResult] | None = None) -> TestResult:
        outputs = self.outputs() if outputs is None else outputs
        return TOOLS[self.tool].judge(self.test, wanted(**self.inventory), SEEN, outputs)


# Each was printed by the Debian 12 package of the program that the name says, on one virtual machine.
PASSING = (
    Recording("stress-ng", {"stressors": "cpu,vm", "seconds": 1}, ("stress-ng.txt",)),
    Recording("memtester", {"mebibytes": 1, "loops": 1}, ("memtester.txt",)),
    Recording("hpcc", {"order": 300}, ("hpcc.txt",)),
    Recording("iperf3", {"seconds": 1, "streams": 2}, ("iperf3.txt",)),
    Recording("iperf3", {"seconds": 1, "streams": 2, "partners": 2}, ("iperf3-bidir.txt",)),
    Recording("clock", {}, ("chronyc-version.txt", "chronyc-tracking.txt")),
    # The version is that of Debian's package; the status of a public note on timesyncd, with another address. When it
    # was answered is as that package's timesyncd tells it, of a server of ours.
    Recording(
        "clock",
        {"source": "timesyncd"},
        (
            "timedatectl-version.txt",
            "timesync-status.txt",
            "ntp-synchronized.txt",
            "timesync-message.txt",
            "timesync-now.txt",
        ),
        (0,) * 5,
    ),
    # A line of a public guide to RoCE, with addresses of the documentation; the version is that of Debian's package.
    Recording("perftest", {"rails": "mlx5_0"}, ("perftest-version.txt", "perftest.txt"), (1, 0)),
    # Of an A40 in a public guide to OpenShift (schmaustech), with one of its 16 queue pairs and other addresses.
    Recording(
        "perftest", {"rails": "mlx5_1", "gpudirect": True}, ("perftest-version.txt", "perftest-cuda.txt"), (1, 0)
    ),
    # The rows of MI300X in a public log (hisohara/ai-scripts), as one process for all GPUs prints what is above them.
    Recording("rccl-tests", {"minBytes": "1G", "maxBytes": "8G"}, ("rccl-tests.txt",)),
    # Eight GPUs and a switch, with the lines of `lspci -vvv` that count.
    Recording("pcie", {}, ("lspci-version.txt", "lspci.txt")),
    Recording("fio-verify", {"directory": "/data", "mebibytes": 4}, ("fio-verify.txt",)),
    # A whole run on both GPUs of a K80, of a public guide (esologic/gpu-burn-tesla-k80). The samples of nvidia-smi
    # below it are ours, in its format, with the temperatures of the run.
    Recording("gpu-burn", {"directory": "/opt", "seconds": 10}, ("gpu-burn.txt",), inventory={"gpus": 2}),
    # Of NVIDIA's driver 580.159.04 in a virtual machine with one GPU, whole: gpu-burn 3ead140, with the seconds in
    # which it fills the memory and empties it; nvbandwidth 0.8; Debian's lspci.
    Recording(
        "gpu-burn", {"directory": "/opt", "seconds": 30, "tensor": True}, ("gpu-burn-h200.txt",), inventory={"gpus": 1}
    ),
    Recording(
        "nvbandwidth",
        {
            "testcases": "host_to_device_memcpy_ce,device_to_host_memcpy_ce,"
            "host_to_device_bidirectional_memcpy_ce,device_local_copy"
        },
        ("nvbandwidth-h100.txt",),
        inventory={"gpus": 1},
    ),
    Recording("pcie", {}, ("lspci-version.txt", "lspci-h200.txt"), inventory={"gpus": 1}),
    # A port of a BlueField-3 in a public tutorial on P4 and DOCA, with another serial number of its cable.
    Recording("mlxlink", {"rails": "mlx5_0"}, ("mlxlink.txt",)),
    # One A100 in NVIDIA's guide to DCGM, and one MI300X in a public guide (cmontemuino/tech-knowledge-base), of which
    # the other GPUs and actions are cut. The samples of nvidia-smi are ours.
    Recording("dcgmproftester", {"seconds": 10}, ("dcgmproftester.txt",), inventory={"gpus": 1}),
    Recording("rvs", {"config": "/opt/gst_single.conf"}, ("rvs.txt",), inventory={"gpus": 1}),
)


@cache
def _text(name: str) -> str:
    return (FOLDER / name).read_bytes().decode()


def mutations(recording: Recording) -> Iterator[tuple[str, list[CommandResult]]]:
    """Yield what may arrive instead of the recording: each with what happened to it."""
    whole = recording.outputs()
    for at, output in enumerate(whole):
        for what, other in spoilt(output):
            yield f"{recording.files[at]}: {what}", [*whole[:at], other, *whole[at + 1 :]]


def spoilt(output: CommandResult) -> Iterator[tuple[str, CommandResult]]:
    """Yield what may arrive instead of one output, with what happened to it."""
    text = output.stdout
    end = len(text.rstrip("#\n\t "))
    for at in range(_CUTS):
        yield "cut", replace(output, stdout=text[: end * at // _CUTS])
    yield "cut", replace(output, stdout=text[: end - 1])
    lines = text.splitlines(keepends=True)
    for at in range(0, len(lines), max(1, len(lines) // _LINES)):
        before, line, after = lines[:at], lines[at], lines[at + 1 :]
        changed = {
            "a line is lost": "",
            "a line is there twice": line * 2,
            "another's line is inside": line[: len(line) // 2] + "[ 12.3] NVRM: Xid 79\n" + line[len(line) // 2 :],
            "no number": _NUMBER.sub("N/A", line),
            "not a number": _NUMBER.sub("nan", line),
            "below zero": _NUMBER.sub("-1", line),
            "decimal comma": re.sub(r"([0-9])\.([0-9])", r"\1,\2", line),
            "it says failed": re.sub(r"\b(?:ok|OK|PASSED|passed)\b", "FAILED", line),
        }
        for what, other in changed.items():
            if other != line:
                yield f"{what}, line {at + 1}", replace(output, stdout="".join([*before, other, *after]))
    yield "two runs", replace(output, stdout=text + text)
    for status in (1, 2, 75, 124, 125, 126, 127, 137, 139, 255):
        if status != output.exit_status:
            yield f"exit status {status}", replace(output, exit_status=status)
    yield "hung", replace(output, exit_status=-1, timed_out=True)
    yield "killed", replace(output, exit_status=-1)
