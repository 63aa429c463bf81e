"""Judge `ib_write_bw` and `ib_read_bw` (acceptance 4.6): the average bandwidth of each declared rail, in Gb/s.

Without args.server a rail's adapter talks to itself, which proves the adapter and its PCIe slot, and no cable. With
args.partners both programs serve on another node: what the node writes there goes one way, what it reads comes the
other. A run that is bound by time prints 0 as its peak, so the average counts. With args.gpudirect the memory is that
of the rail's GPU, and the output has to say so. Metrics: gbps.<rail>, gbps of the slowest rail, and gbps.spread; with
partners also gbps.<rail>.there and gbps.<rail>.back.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from reconciler.gate.tools.common import ResultBuilder, Tool, count, note_if_killed, number
from reconciler.gate.tools.shell import AGAIN, in_scratch
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import PARTNERS, SERVER, Value, listed
from reconciler.model.observed import Observed

KNOWN = ("4", "5", "6")
_VERSION_TOLD = (0, 1)  # perftest 4.5 (6.06) ends with 1 after it has printed its version
SIZE = 65536  # bytes of a message, the default of perftest
PORT = 18515
_HERE = (
    'tool=$1; shift; "$tool" "$@" >server.txt 2>&1 & p=$!; sleep 1; "$tool" "$@" localhost; r=$?; wait $p; p=; exit $r'
)
# A server on another node may not listen yet: it ends with each client, and starts again.
_THERE = (
    'n=0; while :; do "$@" >out.txt 2>err.txt; r=$?; n=$((n+1)); [ $n -lt 20 ] && '
    "grep -q 'Couldn.t connect to' err.txt || break; sleep 0.5; done; cat out.txt; cat err.txt >&2; exit $r"
)
_SERVE = f"serve() {{ {AGAIN}; }}"
_WAYS: Mapping[str, str] = {"there": "write", "back": "read"}  # from the node, and to it
_VERSION = re.compile(r"Version: (\S{1,20})\n")
_TITLE = re.compile(r"^ *RDMA_(Write|Read) (Bidirectional )?BW Test *$", re.MULTILINE)
_DEVICE = re.compile(r"\bDevice {1,12}: (\S{1,60}) *$", re.MULTILINE)
_HEAD = re.compile(r"^ #bytes +#iterations +BW peak\[Gb/sec\] +BW average\[Gb/sec\] +MsgRate\[Mpps\] *$", re.MULTILINE)
# perftest sets its last column off by tabs, which web pages show as blanks.
_ROW = re.compile(r"^ (\d{1,12})[ \t]+(\d{1,15})[ \t]+(\S{1,20})[ \t]+(\S{1,20})[ \t]+(\S{1,20})[ \t]*$", re.MULTILINE)
_RULE = f"\n{'-' * 87}\n"
# What it says of its own end: releases of 2026 the time, and with GPUs what became of their memory.
_AFTER = re.compile(
    r"(?:[ \t]*\n|Completed: .{1,60}\n|Total run time: .{1,40}\n|deallocating (?:RX |TX )?GPU buffer .{1,40}\n"
    r"|destroying current CUDA Ctx\n)*"
)
# By args.gpudirect: the option, what it says of the GPU with a number, and last of all when its memory is free again.
_MEMORY: Mapping[str, tuple[str, str, str]] = {
    "cuda": ("--use_cuda", "\nPicking device No. {}\n", "\ndestroying current CUDA Ctx\n"),
    "rocm": ("--use_rocm", "\nUsing ROCm Device with ID: {}, ", "\ndeallocating GPU buffer "),
}
_TROUBLE = re.compile(r"^.*(?:Couldn't|Failed|failed|not found|Unable to|Completion with error).*$", re.MULTILINE)


def _run(args: Mapping[str, Value], at: int, way: str) -> tuple[str, ...]:
    """Return the command that tests the rail with this place in the list, without the server's name."""
    run = (f"ib_{way}_bw", "-d", listed(args.get("rails", ""))[at], "-F", "--report_gbits", "-s", str(SIZE))
    port = int(args.get("port", PORT))
    if PARTNERS in args:
        port += 2 * at + (way == "read")  # each server has one of its own
    both = ("-b",) if args.get("bidirectional") else ()
    memory = _memory(args)
    gpu = (f"{memory[0]}={at}",) if memory else ()
    return (*run, "-D", str(args.get("seconds", 10)), "-p", str(port), *both, *gpu)


def _memory(args: Mapping[str, Value]) -> tuple[str, str, str] | None:
    """Return how memory of GPUs is asked for and told of; None where that of the host is used."""
    asked = args.get("gpudirect", False)
    return _MEMORY["cuda" if asked is True else str(asked)] if asked else None


def _ways(args: Mapping[str, Value]) -> tuple[str, ...]:
    return tuple(_WAYS.values()) if PARTNERS in args else (str(args.get("way", "write")),)


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    args, ways = test.args, _ways(test.args)
    runs = [_run(args, at, way) for at in range(len(listed(args.get("rails", "")))) for way in ways]
    server = args.get(SERVER)
    if server is None:
        commands = [in_scratch(_HERE, *run) for run in runs]
    elif PARTNERS in args:
        commands = [in_scratch(_THERE, *run, str(server)) for run in runs]
    else:
        commands = [("env", "LC_ALL=C", *run, str(server)) for run in runs]
    return (("env", "LC_ALL=C", f"ib_{ways[0]}_bw", "--version"), *commands)


def _serve(test: GateTest) -> tuple[str, ...]:
    """Return the command that answers clients on the partner, over each rail both ways, until it is ended."""
    rails = range(len(listed(test.args["rails"])))
    runs = [f"serve {shlex.join(_run(test.args, at, way))} &" for at in rails for way in _ways(test.args)]
    return ("env", "LC_ALL=C", "sh", "-c", "\n".join([_SERVE, *runs, "wait"]), "sh")


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    rails, ways = listed(test.args.get("rails", "")), _ways(test.args)
    if len(outputs) != len(rails) * len(ways) + 1 or len(set(rails)) != len(rails):
        builder.unjudged(f"{(len(outputs) - 1) // len(ways)} of {len(set(rails))} rails were measured")
        return builder.result(test, outputs)
    version = _VERSION.fullmatch(outputs[0].stdout)
    builder.version = version[1] if version else ""
    if not note_if_killed(builder, outputs[0]):
        builder.check_version(test, KNOWN)
        if outputs[0].exit_status not in _VERSION_TOLD:
            builder.error(f"--version ends with {outputs[0].exit_status}")
    each = iter(outputs[1:])
    speeds = {rail: [_rail(builder, test, rail, way, next(each)) for way in ways] for rail in rails}
    if PARTNERS in test.args:  # kept also where another rail could not run
        by_way = {f"gbps.{rail}.{way}": one for rail, of in speeds.items() for way, one in zip(_WAYS, of, strict=True)}
        builder.metrics |= {name: speed for name, speed in by_way.items() if speed is not None}
    known = {rail: [speed for speed in of_ways if speed is not None] for rail, of_ways in speeds.items()}
    if all(len(found) == len(ways) for found in known.values()):
        builder.parts("gbps", {rail: min(found) for rail, found in known.items()})
    return builder.result(test, outputs)


def _rail(builder: ResultBuilder, test: GateTest, rail: str, way: str, output: CommandResult) -> float | None:
    if note_if_killed(builder, output):
        return None
    text = output.stdout
    trouble = _TROUBLE.search(text + "\n" + output.stderr)
    if output.exit_status != 0 or trouble is not None:
        builder.error(f"{rail}: {trouble[0].strip() if trouble else ''} (exit status {output.exit_status})")
        return None
    heads = list(_HEAD.finditer(text))
    found = _ROW.findall(text[heads[0].end() :]) if len(heads) == 1 else []
    if len(found) != 1 or not text.endswith("\n") or not _AFTER.fullmatch(text.rpartition(_RULE)[2]):
        builder.error(f"{rail}: the output breaks off, or holds more than one result in Gb/s")
    elif other := _other_run(test, rail, way, text):
        builder.unjudged(f"{rail}: {other}")
    else:
        return _speed(builder, rail, found[0])
    return None


def _other_run(test: GateTest, rail: str, way: str, text: str) -> str:
    """Return in what the run was not the one that was asked for; "" when it was."""
    title = (way.capitalize(), bool(test.args.get("bidirectional")))
    if [(name, bool(both)) for name, both in _TITLE.findall(text)] != [title] or _DEVICE.findall(text) != [rail]:
        return "another test was run, or another device was measured"
    if memory := _memory(test.args):
        _, used, freed = memory
        gpu = listed(test.args.get("rails", "")).index(rail)
        if f"\n{text}".count(used.format(gpu)) != 1 or freed not in _RULE + text.rpartition(_RULE)[2]:
            return f"it does not say that it used the memory of GPU {gpu}"
    return ""


def _speed(builder: ResultBuilder, rail: str, cells: Sequence[str]) -> float | None:
    size, iterations, _, average, rate = cells
    speed, messages = number(average), number(rate)
    if count(size) != SIZE or not count(iterations) or speed is None or messages is None or speed <= 0:
        builder.unjudged(f"{rail}: no speed of messages of {SIZE} bytes")
    elif abs(speed - messages * SIZE * 8 / 1000) > 0.01 * speed:
        builder.unjudged(f"{rail}: {messages:g} million messages a second are not {speed:g} Gb/s")
    else:
        return speed
    return None


TOOL = Tool(_commands, _judge, _serve)
