"""Judge gpu-burn (acceptance 4.3), with what nvidia-smi measured beside it: heat, power and clocks under load.

It ends with 0 even when GPUs compute wrongly, and says OK of one that did no work, so each GPU must have made progress
to the end, with no error in any line. A disk that is full cuts the samples off, and half a number is a number too: so
they must be there to the end, each round of all GPUs, and then the word that ends them. Metrics, by GPU, the worst of
them and its spread: gflops (the lowest of the second half), and those of the envelope.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.gate.tools import envelope
from reconciler.gate.tools.common import ResultBuilder, Tool, count, expected_gpus, note_if_killed, number
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

_RUN = (
    f'cd "$1" || exit 66; {envelope.BEGIN}shift; '
    './gpu_burn "$@" 2>&1 | head -c 50000000 >"$d/out"; '
    f'{envelope.STOP}tr "\\r" "\\n" <"$d/out" | tail -c 1000000; {envelope.END}'
)
_PROGRESS = re.compile(r"^([0-9.]{1,6})%  proc'd: (.*?)   errors: (.*?)   temps: (.*?) *$", re.MULTILINE)
_SUMMARY = re.compile(r"temps: [^\n]*\n[ \t]*Summary at:")
_WORK = re.compile(r"(-?\d{1,18}) \((\d{1,12}) Gflop/s\)")
_TESTED = re.compile(r"^Tested ([0-9]{1,4}) GPUs:\n((?:[ \t]+GPU \d+: (?:OK|FAULTY)\n)*)", re.MULTILINE)


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    tensor = ("-tc",) if test.args.get("tensor") else ()
    return (in_scratch(_RUN, str(test.args.get("directory", "")), *tensor, str(test.args.get("seconds", 600))),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder, output = ResultBuilder(version="1"), outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    parts = envelope.split(output.stdout)
    gpus = expected_gpus(builder, desired)
    if output.exit_status != 0 or parts is None:
        builder.error(f"exit status {output.exit_status}, or the output breaks off")
    elif gpus is not None:
        _judge_burn(builder, parts[0], gpus)
        envelope.judge_samples(builder, parts[1], gpus)
    return builder.result(test, outputs, evidence=(output.stdout if parts is None else parts[0])[-4000:])


def _judge_burn(builder: ResultBuilder, text: str, gpus: int) -> None:
    tested = _TESTED.findall(text)
    if "DIED!" in text or "No clients are alive" in text:
        builder.fail("a GPU died under load")
    if len(tested) != 1 or count(tested[0][0]) != gpus or tested[0][1].count("GPU") != gpus:
        builder.error(f"it does not end with the results of {gpus} GPUs")
        return
    if "FAULTY" in tested[0][1]:
        builder.fail(" ".join(tested[0][1].split()))
    lines = [(done, _WORK.findall(work), errors.split(" - ")) for done, work, errors, _ in _PROGRESS.findall(text)]
    if any(error.strip() != "0" for _, _, errors in lines for error in errors):
        builder.fail("results of one run differ from those of the next")
    whole = text.count("proc'd:") == len(lines) and text.count("Summary at:") == len(_SUMMARY.findall(text))
    if not lines or not whole or number(lines[-1][0]) != 100 or any(len(work) != gpus for _, work, _ in lines):
        builder.error(f"its progress with {gpus} GPUs does not reach 100 %")
    elif any(int(done) <= 0 or int(speed) <= 0 for done, speed in lines[-1][1]):
        builder.unjudged("a GPU did no work, and is called OK")
    else:
        settled = [work for done, work, _ in lines if (number(done) or 0) >= 100 * envelope.SETTLED]
        lowest = {str(at): [float(work[at][1]) for work in settled if int(work[at][0]) > 0] for at in range(gpus)}
        builder.parts("gflops", {at: min(speeds) for at, speeds in lowest.items()})


TOOL = Tool(_commands, _judge)
