"""Judge `stress-ng --verify --yaml`: each stressor ran its time, did work, and found nothing wrong with its results.

Metrics: <stressor>.bogo_ops_s, operations in a second of real time. They compare with those of the same stressor and
version alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, note_if_killed, number
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import STRESSORS, listed
from reconciler.model.observed import Observed

KNOWN = ("0.13", "0.14", "0.15", "0.16", "0.17", "0.18", "0.19")
_RUN = (
    'n=$1; s=$2; m=$3; shift 3; o=; for x in "$@"; do o="$o --$x $n"; done; '
    'stress-ng $o --vm-bytes "$m" --oomable --timeout "$s" --verify --metrics-brief --yaml out.yaml 2>&1; r=$?; '
    "cat out.yaml; exit $r"
)
_VERSION = re.compile(r"^ {6}stress-ng-version: (\S{1,40})$", re.MULTILINE)
_ENTRY = re.compile(r"^ {4}- stressor: (\S{1,60})$", re.MULTILINE)
_FIELD = re.compile(r"^ {6}(bogo-ops|bogo-ops-per-second-real-time|wall-clock-time): (\S{1,40})$", re.MULTILINE)
_TROUBLE = re.compile(r"^stress-ng: fail: .*$", re.MULTILINE)
_DONE = re.compile(r"^stress-ng: info: .* successful run completed in ", re.MULTILINE)
_FAILED, _NO_RESOURCE = 2, 3


def _stressors(test: GateTest) -> tuple[str, ...]:
    return listed(test.args.get("stressors", STRESSORS))


def _seconds(test: GateTest) -> int:
    return int(test.args.get("seconds", 60))


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    workers, memory = str(test.args.get("workers", 0)), str(test.args.get("memory", "80%"))
    return (in_scratch(_RUN, workers, str(_seconds(test)), memory, *_stressors(test)),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder, output = ResultBuilder(), outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    text = output.stdout
    if trouble := _TROUBLE.search(text + "\n" + output.stderr):
        builder.fail(trouble[0])
    if output.exit_status != 0:
        why = {_FAILED: "a stressor failed", _NO_RESOURCE: "no memory or disk was left"}.get(output.exit_status, "")
        builder.error(f"exit status {output.exit_status} {why}".strip())
        return builder.result(test, outputs)
    log, _, document = text.partition("\n---\n")
    versions = _VERSION.findall(document)
    builder.version = versions[0] if len(versions) == 1 else ""
    builder.check_version(test, KNOWN)
    if len(_DONE.findall(log)) != 1 or not document.endswith("\n...\n") or document.count("\n...\n") != 1:
        builder.error("the output breaks off, or holds more than one run")
        return builder.result(test, outputs)
    found = _ENTRY.split(document)
    entries = dict(zip(found[1::2], found[2::2], strict=True))
    if sorted(found[1::2]) != sorted(_stressors(test)):
        builder.unjudged(f"it ran {', '.join(found[1::2]) or 'nothing'}, not {', '.join(_stressors(test))}")
    for name, body in entries.items():
        _judge_stressor(builder, name, _FIELD.findall(body), _seconds(test))
    return builder.result(test, outputs)


def _judge_stressor(builder: ResultBuilder, name: str, fields: list[tuple[str, str]], seconds: int) -> None:
    cells = {key: number(value) for key, value in fields}
    ops, speed, ran = (cells.get(key) for key in ("bogo-ops", "bogo-ops-per-second-real-time", "wall-clock-time"))
    if len(fields) != 3 or ops is None or speed is None or ran is None:
        builder.unjudged(f"{name}: bogo-ops, their speed and the time are not each there once")
    elif ops <= 0 or speed <= 0 or abs(ops - speed * ran) > 0.01 * ops + 1:
        builder.unjudged(f"{name}: {ops:g} operations in {ran:g} s are not {speed:g} in a second")
    elif ran < 0.9 * seconds:
        builder.unjudged(f"{name}: ran {ran:g} s, {seconds} s were requested")
    else:
        builder.metrics[f"{name}.bogo_ops_s"] = speed


TOOL = Tool(_commands, _judge)
