"""Whole outputs of every tool, and what may go wrong with a run of any of them: the rows and columns of test_robust."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from reconciler.gate.tools import TOOLS
from reconciler.gate.tools.link_counters import COUNTERS
from reconciler.model.desired import GateTest
from reconciler.model.gate import CommandResult, TestResult
from tests.gate.cases import GOOD, GPUS, SEEN, gate_test, wanted
from tests.gate.mutations import PASSING

Outputs = Sequence[CommandResult]
_DECIMAL = re.compile(r"([0-9]+)\.([0-9]+)")
_FIGURE = re.compile(r"(?<![\w:.-])[0-9]+\.[0-9]+(?![\w:.])")
_NO_VERSION = ("", "1")  # what a judge calls the version of a tool that prints none
_LOST = (
    "Unable to determine the device handle for GPU0000:1B:00.0: GPU is lost.  Reboot the system to recover this GPU\n"
)
_PARTS = 4


@dataclass(frozen=True)
class Whole:
    """What one run of a tool printed that passes. `name` tells it from others of the same tool."""

    name: str
    test: GateTest
    outputs: Outputs
    inventory: Mapping[str, int] = field(default_factory=dict)

    def judge(self, outputs: Outputs | None = None) -> TestResult:
        judge = TOOLS[self.test.tool].judge
        return judge(self.test, wanted(**self.inventory), SEEN, self.outputs if outputs is None else outputs)


def _ports() -> str:
    """What the script of link-counters prints of two ports in which nothing happened."""
    files = [f"/sys/class/infiniband/mlx5_{port}/ports/1/counters/{name} 7\n" for name in COUNTERS for port in range(2)]
    return ("".join(files) + "--- read\n") * 2


def _amd_smi() -> str:
    """What amd-smi prints of eight healthy GPUs, of the cells that are read."""
    gpus = [
        {
            "gpu": at,
            "power": {"socket_power": {"value": 745, "unit": "W"}, "throttle_status": "N/A"},
            "temperature": {"edge": "N/A", "hotspot": {"value": 69.5, "unit": "C"}},
            "pcie": {"width": 16, "replay_count": 0},
            "ecc": {"total_correctable_count": 0, "total_uncorrectable_count": 0},
        }
        for at in range(GPUS)
    ]
    return json.dumps({"gpu_data": gpus}, indent=4) + "\n"


def _indented(tool: str, text: str) -> str:
    return text if tool == "nccl-tests" else json.dumps(json.loads(text), indent=1) + "\n"


def _said(*texts: str) -> Outputs:
    return [CommandResult(0, text) for text in texts]


WHOLES: Final = (
    *(Whole(each.files[-1], each.test, each.outputs(), each.inventory) for each in PASSING),
    *(Whole(each.tool, each.test, _said(_indented(each.tool, each.text))) for each in GOOD),
    Whole("link-counters", gate_test("link-counters"), _said(_ports()), {"rdma_ports": 2}),
    Whole(
        "amd-smi",
        gate_test("amd-smi"),
        _said("AMDSMI Tool: 25.3.0+ede62f2 | AMDSMI Library version: 25.3.0 | ROCm version: 6.4.0\n", _amd_smi()),
    ),
    Whole(
        "command",
        gate_test("command", run="train", metrics="mfu,step_ms", repeat=2, same="hash"),
        _said(*["mfu 0.42 ratio\nstep_ms 381.5 ms\nhash a1b2\n"] * 2),
    ),
    Whole(
        "command in JSON",
        gate_test("command", run="train", metrics="mfu"),
        _said('{\n "mfu": 0.42,\n "step_ms": {"value": 381.5, "unit": "ms"}\n}\n'),
    ),
)


# --- what may happen ---------------------------------------------------------------------------------------------


def _lines(output: CommandResult) -> list[str]:
    """Return the lines to the last that says something: ends such as blank lines and `#` are no evidence."""
    whole = output.stdout
    said = whole[: len(whole.rstrip("#\n\t "))]
    return said.splitlines(keepends=True)


def _each(outputs: Outputs, change: Callable[[CommandResult], Iterator[CommandResult]]) -> Iterator[Outputs]:
    """Yield the outputs with one of them changed, each in turn."""
    for at, output in enumerate(outputs):
        for other in change(output):
            if replace(other, stderr="") != replace(output, stderr=""):
                yield [*outputs[:at], other, *outputs[at + 1 :]]


def _halves(output: CommandResult) -> Iterator[str]:
    lines = _lines(output)
    yield from {"".join(lines[: len(lines) * part // _PARTS]) for part in range(_PARTS)}


def _truncated(output: CommandResult) -> Iterator[CommandResult]:
    lines = _lines(output)
    for at in range(len(lines)):
        yield replace(output, stdout="".join(lines[:at]))


def _interleaved(output: CommandResult) -> Iterator[CommandResult]:
    """A second run, of other figures, that prints to the same place."""
    lines = output.stdout.splitlines(keepends=True)
    other = [_FIGURE.sub(lambda found: f"{float(found[0]) * 1.07:.3f}", line) for line in lines]
    yield replace(output, stdout="".join(a + b for a, b in zip(lines, other, strict=True)))
    for part in range(_PARTS + 1):
        at = len(lines) * part // _PARTS
        yield replace(output, stdout="".join([*lines[:at], *other, *lines[at:]]))


def _localised(output: CommandResult) -> Iterator[CommandResult]:
    yield replace(output, stdout=_DECIMAL.sub(r"\1,\2", output.stdout))


def _missing(output: CommandResult) -> Iterator[CommandResult]:
    for said in (
        "env: 'tool': No such file or directory",
        "sh: 1: tool: not found",
        "bash: tool: Befehl nicht gefunden.",
    ):
        yield CommandResult(127, "", said + "\n")


def _hung(output: CommandResult) -> Iterator[CommandResult]:
    for text in (*_halves(output), output.stdout):
        yield CommandResult(-1, text, "", timed_out=True)


def _out_of_memory(output: CommandResult) -> Iterator[CommandResult]:
    for text in (*_halves(output), output.stdout):
        yield CommandResult(137, text, "Killed\n")
        yield CommandResult(-9, text)


def _gpu_lost(output: CommandResult) -> Iterator[CommandResult]:
    for text in _halves(output):
        for status in (0, 1, 15, 255):
            yield CommandResult(status, text + _LOST)


def _disk_full(output: CommandResult) -> Iterator[CommandResult]:
    for text in (*_halves(output), output.stdout):
        yield CommandResult(1, text, "tee: 'standard output': No space left on device\n")
    for text in _halves(output):
        yield CommandResult(0, text, "cat: write error: Auf dem Gerät ist kein Speicherplatz mehr verfügbar\n")


def _unknown_version(whole: Whole) -> Iterator[Outputs]:
    version = whole.judge().tool_version
    version = "" if version in _NO_VERSION else re.sub(r"^[a-z]+-", "", version)

    def change(output: CommandResult) -> Iterator[CommandResult]:
        if version and version in output.stdout:
            yield replace(output, stdout=output.stdout.replace(version, "99.9"))
            yield replace(output, stdout=output.stdout.replace(version, ""))

    return _each(whole.outputs, change)


MISHAPS: Final[Mapping[str, Callable[[Whole], Iterator[Outputs]]]] = {
    "truncated at every line": lambda whole: _each(whole.outputs, _truncated),
    "interleaved with a second run": lambda whole: _each(whole.outputs, _interleaved),
    "localised": lambda whole: _each(whole.outputs, _localised),
    "of an unknown version": _unknown_version,
    "tool missing": lambda whole: _each(whole.outputs, _missing),
    "hung": lambda whole: _each(whole.outputs, _hung),
    "killed for memory": lambda whole: _each(whole.outputs, _out_of_memory),
    "GPU lost in the middle": lambda whole: _each(whole.outputs, _gpu_lost),
    "disk full": lambda whole: _each(whole.outputs, _disk_full),
}
# Not the hardware's fault, whatever was printed before.
OF_THE_GATE: Final = frozenset({"tool missing", "hung", "killed for memory"})
# What can't happen to a tool, and why.
NEVER: Final[Mapping[tuple[str, str], str]] = {
    ("gpu-burn", "of an unknown version"): "it prints none",
    ("dcgmproftester", "of an unknown version"): "it prints none",
    ("rvs", "of an unknown version"): "its log has none",
    ("link-counters", "of an unknown version"): "the kernel's files have none",
    ("link-counters", "localised"): "whole numbers alone",
    ("command", "of an unknown version"): "a program of the site, which may print one",
}


def tried(tool: str) -> int:
    """Return how many mishaps of a tool are judged."""
    return sum(1 for whole in WHOLES if whole.test.tool == tool for happen in MISHAPS.values() for _ in happen(whole))
