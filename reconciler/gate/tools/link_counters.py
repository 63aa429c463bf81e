"""Judge the counters of RDMA ports over an interval: links that go down, and errors while data flows.

Counters hold what happened since the driver was loaded, so two readings are compared (acceptance 4.7). Metrics: by
counter, the increase on the worst port, such as symbol_error; and ports.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, count, note_if_killed
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

COUNTERS = (
    "symbol_error", "link_downed", "link_error_recovery", "port_rcv_errors", "port_xmit_discards",
    "local_link_integrity_errors", "excessive_buffer_overrun_errors",
)  # fmt: skip
_RUN = (
    'seconds=$1; load=$2; shift 2; read_all() { for c in "$@"; do '
    'for f in /sys/class/infiniband/*/ports/*/counters/$c; do [ -e "$f" ] && echo "$f $(cat "$f")"; done; '
    'done; echo "--- read"; }; '
    'read_all "$@"; if [ -n "$load" ]; then sh -c "$load" >load.txt 2>&1 & p=$!; fi; sleep "$seconds"; read_all "$@"'
)
_LINE = re.compile(r"/sys/class/infiniband/([\w.-]{1,40})/ports/([0-9]{1,3})/counters/(\w{1,40}) ([0-9]{1,19})")


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    return (in_scratch(_RUN, str(test.args.get("seconds", 60)), str(test.args.get("load", "")), *COUNTERS),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder, output = ResultBuilder(version="1"), outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    readings = output.stdout.split("--- read\n")
    ports = desired.profile.inventory.rdma_ports
    if output.exit_status != 0 or len(readings) != 3 or readings[2]:
        builder.error(f"exit status {output.exit_status}, or the output breaks off")
    elif ports is None:
        builder.unjudged("HardwareProfile.inventory.rdmaPorts is not declared: it is not known how many must be read")
    else:
        before, after = _read(builder, readings[0]), _read(builder, readings[1])
        _judge_increase(builder, before, after, ports)
    return builder.result(test, outputs)


def _read(builder: ResultBuilder, text: str) -> Mapping[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for line in text.splitlines():
        cells = _LINE.fullmatch(line)
        value = count(cells[4]) if cells else None
        if cells is None or value is None or (f"{cells[1]}-{cells[2]}", cells[3]) in found:
            builder.unjudged(f"a counter can't be read: {line}")
        else:
            found[f"{cells[1]}-{cells[2]}", cells[3]] = value
    return found


def _judge_increase(
    builder: ResultBuilder, before: Mapping[tuple[str, str], int], after: Mapping[tuple[str, str], int], ports: int
) -> None:
    names = {port for port, _ in before}
    if names != {port for port, _ in after}:
        builder.fail("a port came or went between the two readings")
    elif (
        before.keys() != after.keys()
        or len(names) < ports
        or any((port, name) not in before for port in names for name in COUNTERS)
    ):
        builder.unjudged(f"{len(names)} ports were read, {ports} are declared, or a counter is missing")
    elif any(after[key] < before[key] for key in before):
        builder.unjudged("a counter went back: the driver was loaded again, or somebody reset it")
    else:
        builder.metrics["ports"] = float(len(names))
        for name in COUNTERS:
            builder.metrics[name] = float(max(after[port, name] - before[port, name] for port in names))


TOOL = Tool(_commands, _judge)
