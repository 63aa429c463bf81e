"""Judge dcgmproftester: each GPU multiplies matrices on its tensor cores, with its heat, power and clock meanwhile.

It is DCGM's load for tests of cooling and power (burnin 5). Each of its reports names a worker, which is a GPU, and the
speed since the one before. Some releases of DCGM 4 leave the speed out; what has no figures is no evidence. Metrics, by
GPU, the worst of them and its spread: gflops (the lowest report), and those of the envelope.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.gate.tools import envelope
from reconciler.gate.tools.common import ResultBuilder, Tool, expected_gpus, note_if_killed, number
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

TENSOR = 1004  # DCGM's number of the field that the load drives
_RUN = (
    f'{envelope.BEGIN}"dcgmproftester$1" --no-dcgm-validation -t {TENSOR} -d "$2" >"$d/out" 2>&1; r=$?; '
    f'{envelope.STOP}head -c 4000000 "$d/out"; {envelope.END}; exit $r'
)
_REPORT = re.compile(
    rf"^Worker ([0-9]{{1,3}}):0 ?\[{TENSOR}\]: TensorEngineActive: .*\(([0-9.e+]{{1,20}}) gflops\)\.?$", re.MULTILINE
)
_SAID = re.compile(rf"^Worker .*\[{TENSOR}\]: TensorEngineActive:", re.MULTILINE)
_TROUBLE = re.compile(r"^.*(?:\bERROR\b|\bFAILED\b|Init Failed|Caught exception|GPU is lost).*$", re.MULTILINE)


def _seconds(test: GateTest) -> int:
    return int(test.args.get("seconds", 900))


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return (in_scratch(_RUN, str(test.args.get("cuda", 12)), str(_seconds(test))),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder, output = ResultBuilder(version="1"), outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    parts = envelope.split(output.stdout)
    trouble = _TROUBLE.search(output.stdout)
    gpus = expected_gpus(builder, desired)
    if output.exit_status != 0 or parts is None or trouble is not None:
        why = trouble[0].strip() if trouble else "or the output breaks off"
        builder.error(f"exit status {output.exit_status}, {why}")
    elif gpus is not None:
        _judge_reports(builder, parts[0], gpus, _seconds(test))
        envelope.judge_samples(builder, parts[1], gpus, _seconds(test))
    return builder.result(test, outputs)


def _judge_reports(builder: ResultBuilder, text: str, gpus: int, seconds: int) -> None:
    found: dict[int, list[float]] = {}
    for worker, speed in _REPORT.findall(text):
        found.setdefault(int(worker), []).append(number(speed) or 0.0)
    if len(_SAID.findall(text)) != sum(map(len, found.values())):
        builder.unjudged("a report has no speed: DCGM of this release prints none, or GPUs are divided (MIG)")
    elif set(found) != set(range(gpus)):
        builder.unjudged(f"{len(found)} GPUs reported, {gpus} are declared")
    elif fewest := [at for at, speeds in sorted(found.items()) if len(speeds) < seconds]:  # one a second
        builder.unjudged(f"GPU {fewest[0]} made {len(found[fewest[0]])} reports in {seconds} s")
    elif any(speed <= 0 for speeds in found.values() for speed in speeds):
        builder.unjudged("a GPU did no work")
    else:
        builder.parts("gflops", {str(at): min(speeds) for at, speeds in found.items()})


TOOL = Tool(_commands, _judge)
