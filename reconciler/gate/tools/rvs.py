"""Judge `rvs -c`, AMD's validation suite: each GPU meets the target of each action of the stress test.

The configuration that AMD ships for a model of GPU names the actions and their targets. Metrics: gpus, actions, and
target_percent, what the worst GPU reached of the target of an action.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, expected_gpus, note_if_killed, number
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

_ACTION = re.compile(r"^\[RESULT\] \[[ 0-9.]+\] Action name :(\S{1,80})$", re.MULTILINE)
_MET = re.compile(
    r"^\[RESULT\] \[[ 0-9.]+\] \[(\S{1,80})\] \[GPU:: (\d{1,6})\] GFLOPS ([0-9.]{1,20}) "
    r"Target GFLOPS: ([0-9.]{1,20}) met: (TRUE|FALSE)$",
    re.MULTILINE,
)
_TROUBLE = re.compile(r"^.*(?:RVS-ERROR|\[ERROR *\]|GPU is lost).*$", re.MULTILINE)


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return (("env", "LC_ALL=C", "rvs", "-c", str(test.args.get("config", ""))),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder, output = ResultBuilder(version="1"), outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    trouble = _TROUBLE.search(output.stdout + "\n" + output.stderr)
    gpus = expected_gpus(builder, desired)
    if output.exit_status != 0 or trouble is not None or not output.stdout.endswith("\n"):
        why = trouble[0].strip() if trouble else "or the output breaks off"
        builder.error(f"exit status {output.exit_status}, {why}")
    elif gpus is not None:
        _judge_actions(builder, output.stdout, gpus)
    return builder.result(test, outputs)


def _judge_actions(builder: ResultBuilder, text: str, gpus: int) -> None:
    actions, met = _ACTION.findall(text), _MET.findall(text)
    for action, gpu, reached, target, word in met:
        if word != "TRUE":
            builder.fail(f"{action}: GPU {gpu} reached {reached} of {target} GFLOPS")
    everyone = sorted({gpu for _, gpu, *_ in met})
    shares = [(number(reached) or 0.0) / target for _, _, reached, cell, _ in met if (target := number(cell) or 0.0)]
    if not actions or len(set(actions)) != len(actions):
        builder.error("no action began, or one began twice")
    elif len(everyone) != gpus or text.count("Target GFLOPS:") != len(met):
        builder.unjudged(f"{len(everyone)} GPUs have results, {gpus} are declared")
    elif sorted((action, gpu) for action, gpu, *_ in met) != sorted(
        (each, gpu) for each in actions for gpu in everyone
    ):
        builder.unjudged("an action has no result, or more than one, of a GPU")
    elif len(shares) != len(met) or min(shares) <= 0:
        builder.unjudged("a target or a result is no figure")
    else:
        builder.metrics |= {
            "gpus": float(gpus), "actions": float(len(actions)), "target_percent": 100 * min(shares),
        }  # fmt: skip


TOOL = Tool(_commands, _judge)
