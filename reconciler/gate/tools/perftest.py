"""Judge `ib_write_bw` and `ib_read_bw` (acceptance 4.6): the average bandwidth of each declared rail, in Gb/s.

Without args.server a rail's adapter talks to itself, which proves the adapter and its PCIe slot, and no cable. A run
that is bound by time prints 0 as its peak, so the average counts. Metrics:
gbps.<rail>, gbps of the slowest rail, and gbps.spread.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, count, note_if_killed, number
from reconciler.gate.tools.shell import in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_tools import listed
from reconciler.model.observed import Observed

KNOWN = ("4", "5", "6")
_VERSION_TOLD = (0, 1)  # perftest 4.5 (6.06) ends with 1 after it has printed its version
SIZE = 65536  # bytes of a message, the default of perftest
PORT = 18515
_HERE = (
    'tool=$1; shift; "$tool" "$@" >server.txt 2>&1 & p=$!; sleep 1; "$tool" "$@" localhost; r=$?; wait $p; p=; exit $r'
)
_VERSION = re.compile(r"Version: (\S{1,20})\n")
_TITLE = re.compile(r"^ *RDMA_(Write|Read) (Bidirectional )?BW Test *$", re.MULTILINE)
_DEVICE = re.compile(r"\bDevice {1,12}: (\S{1,60}) *$", re.MULTILINE)
_HEAD = re.compile(r"^ #bytes +#iterations +BW peak\[Gb/sec\] +BW average\[Gb/sec\] +MsgRate\[Mpps\] *$", re.MULTILINE)
_ROW = re.compile(r"^ (\d{1,12}) +(\d{1,15}) +(\S{1,20}) +(\S{1,20}) +(\S{1,20}) *$", re.MULTILINE)
_END = re.compile(r"\n-{87}\n\s*\Z")
_TROUBLE = re.compile(r"^.*(?:Couldn't|Failed|failed|not found|Unable to|Completion with error).*$", re.MULTILINE)


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    args = test.args
    tool = f"ib_{args.get('way', 'write')}_bw"
    both = ("-b",) if args.get("bidirectional") else ()
    commands = []
    for at, rail in enumerate(listed(args.get("rails", ""))):
        cuda = (f"--use_cuda={at}",) if args.get("gpudirect") else ()
        run = (tool, "-d", rail, "-F", "--report_gbits", "-s", str(SIZE), "-D", str(args.get("seconds", 10)))
        run = (*run, "-p", str(args.get("port", PORT)), *both, *cuda)
        server = args.get("server")
        commands.append(("env", "LC_ALL=C", *run, str(server)) if server else in_scratch(_HERE, *run))
    return (("env", "LC_ALL=C", tool, "--version"), *commands)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    rails = listed(test.args.get("rails", ""))
    if len(outputs) != len(rails) + 1 or len(set(rails)) != len(rails):
        builder.unjudged(f"{len(outputs) - 1} of {len(set(rails))} rails were measured")
        return builder.result(test, outputs)
    version = _VERSION.fullmatch(outputs[0].stdout)
    builder.version = version[1] if version else ""
    if not note_if_killed(builder, outputs[0]):
        builder.check_version(test, KNOWN)
        if outputs[0].exit_status not in _VERSION_TOLD:
            builder.error(f"--version ends with {outputs[0].exit_status}")
    speeds = {rail: _rail(builder, test, rail, output) for rail, output in zip(rails, outputs[1:], strict=True)}
    if all(speed is not None for speed in speeds.values()):
        builder.parts("gbps", {rail: speed for rail, speed in speeds.items() if speed is not None})
    return builder.result(test, outputs)


def _rail(builder: ResultBuilder, test: GateTest, rail: str, output: CommandResult) -> float | None:
    if note_if_killed(builder, output):
        return None
    text = output.stdout
    trouble = _TROUBLE.search(text + "\n" + output.stderr)
    if output.exit_status != 0 or trouble is not None:
        builder.error(f"{rail}: {trouble[0].strip() if trouble else ''} (exit status {output.exit_status})")
        return None
    heads = list(_HEAD.finditer(text))
    found = _ROW.findall(text[heads[0].end() :]) if len(heads) == 1 else []
    if len(found) != 1 or not _END.search(text):
        builder.error(f"{rail}: the output breaks off, or holds more than one result in Gb/s")
        return None
    way = ("Read" if test.args.get("way") == "read" else "Write", bool(test.args.get("bidirectional")))
    if [(name, bool(both)) for name, both in _TITLE.findall(text)] != [way] or _DEVICE.findall(text) != [rail]:
        builder.unjudged(f"{rail}: another test was run, or another device was measured")
        return None
    size, iterations, _, average, rate = found[0]
    speed, messages = number(average), number(rate)
    if count(size) != SIZE or not count(iterations) or speed is None or messages is None or speed <= 0:
        builder.unjudged(f"{rail}: no speed of messages of {SIZE} bytes")
    elif abs(speed - messages * SIZE * 8 / 1000) > 0.01 * speed:
        builder.unjudged(f"{rail}: {messages:g} million messages a second are not {speed:g} Gb/s")
    else:
        return speed
    return None


TOOL = Tool(_commands, _judge)
