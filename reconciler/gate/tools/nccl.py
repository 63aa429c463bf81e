"""Judge the text output of nccl-tests (acceptance 4.1): the bus bandwidth of the largest size, all sizes being correct.

The metric is busbw_peak in GB/s: of the largest size, the slower of out-of-place and in-place. "Avg bus bandwidth"
averages all sizes and is no metric. The text lists every rank, which `-J` without MPI does not, and does not contain
the environment. On one node one process drives all GPUs; on several, each GPU has a process of its own, started by MPI,
for which the programs have to be built (MPI=1), and each node must be there with all its GPUs. The columns are those of
nccl-tests since 2.13; earlier versions print a rounding error in place of a count of wrong values.

NCCL also does what the node's environment and nccl.conf say, such as another algorithm. The first process of each node
prints these settings, and the digest of all nodes' ends the version of the tool, as in 2.17.6-conf.1a2b3c4d: what was
measured with others is of no peer.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from reconciler.gate.certificate import digest_of
from reconciler.gate.tools.common import ResultBuilder, Tool, count, expected_gpus, note_if_killed, number
from reconciler.gate.tools.mpi import USER, Launch, why_not_started
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.gate_arguments import COLLECTIVES, GROUP, INTERFACE, PARTNERS, listed
from reconciler.model.observed import Observed
from reconciler.model.units import parse_size

# nccl-tests prints its own version since 2.17.4. For older ones NCCL's version counts, which NCCL prints on demand.
KNOWN = ("2", "nccl-2")
KNOWN_RCCL = ("rccl-2",)  # rccl-tests names a commit as its own version, so the library's counts
# These have no defined result in place, so #wrong is N/A there whatever -c is (alltoall.cu, sendrecv.cu).
_UNCHECKED_IN_PLACE = frozenset({"alltoall", "sendrecv"})
_SPLIT = frozenset({"all_gather", "reduce_scatter", "alltoall"})  # each rank gets a multiple of 16 bytes of the size
_LOW, _HIGH = "8G", "16G"
_WORD = 4  # bytes of a float, the default type

# The script prints what is set for NCCL on the node, once, with the rank of the process, and becomes the program.
_RUN = (
    '[ "${OMPI_COMM_WORLD_LOCAL_RANK:-0}" != 0 ] || '
    '{ env; cat /etc/nccl.conf "${NCCL_CONF_FILE:-$HOME/.nccl.conf}" 2>/dev/null; } | '
    "grep -E '^[ \t]*(NCCL|RCCL)_' | sed \"s/^[ \t]*/# setting ${OMPI_COMM_WORLD_RANK:-0}: /\"; "
    'command -v "$1" >/dev/null || { echo "$1 is not on $(uname -n)" >&2; exit 127; }; '
    'exec env NCCL_DEBUG=VERSION "$@"'
)
_SETTING = re.compile(r"^# setting (\d{1,6}): (\w+)(.*)$", re.MULTILINE)
_NO_MATTER = frozenset(
    {"NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_CONF_FILE", "NCCL_VERSION"}
)  # of speed; NVIDIA's CUDA images set the last, which NCCL does not read

_VERSION = re.compile(r"^# nccl-tests version (\S{1,40})", re.MULTILINE)
_LIBRARY = re.compile(r"^(?:.* NCCL INFO )?NCCL version ([0-9]{1,4}(?:\.[0-9]{1,4}){1,3})", re.MULTILINE)
_RCCL = re.compile(r"^RCCL version {1,4}: {1,4}([0-9]{1,4}(?:\.[0-9]{1,4}){1,3})", re.MULTILINE)
_TROUBLE = re.compile(r"^(?:# error:.*|.*(?:NCCL failure|NCCL WARN|CUDA failure|Test failure).*)$", re.MULTILINE)
_SETTINGS = re.compile(
    r"^# nThread (\S+) nGpus (\S+) minBytes (\S+) maxBytes (\S+) step: (\S+) .*?validation: (\S+)", re.MULTILINE
)
_RANK = re.compile(r"^# {1,8}Rank {1,8}(\S{1,8}) .*\bon {1,16}(\S{1,255}) device {1,8}(\S{1,8}) \[", re.MULTILINE)
_COLUMNS = ["size", "count", "type", "redop", "root", *["time", "algbw", "busbw", "#wrong"] * 2]
_STARTING = re.compile(r"^# Collective test starting: (.*)$", re.MULTILINE)
_CONCLUDED = re.compile(r"^# Collective test concluded: (.*)$", re.MULTILINE)
_BOUNDS = re.compile(r"^# Out of bounds values {1,8}: (.*)$", re.MULTILINE)
_AVERAGE = re.compile(r"^# Avg bus bandwidth {1,8}: (.*)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class _Row:
    """The results of one message size. `busbw` in GB/s and `wrong` are for out-of-place and for in-place."""

    size: int
    busbw: tuple[float, float]
    wrong: tuple[str, str]


def _collective(test: GateTest) -> str:
    return str(test.args.get("collective", "all_reduce"))


def _asked(test: GateTest) -> tuple[str, str]:
    """Return the smallest and the largest size, as written. The default of one never lies beyond the other."""
    low, high = (str(test.args[key]) if key in test.args else None for key in ("minBytes", "maxBytes"))
    if low is None:
        low = _LOW if high is None or (_bytes(high) or 0) >= (_bytes(_LOW) or 0) else high
    if high is None:
        high = _HIGH if (_bytes(low) or 0) <= (_bytes(_HIGH) or 0) else low
    return low, high


def _bytes(text: str) -> int | None:
    try:
        return parse_size(text if text.upper().endswith("B") else f"{text}iB") if not text.isdecimal() else int(text)
    except ValueError:
        return None


def _range(test: GateTest) -> tuple[int, int] | None:
    """Return the smallest and the largest message size in bytes; None when they are no range."""
    low, high = map(_bytes, _asked(test))
    return None if low is None or high is None or not 0 < low <= high else (low, high)


def _sizes(low: int, high: int) -> Iterator[int]:
    while low <= high:
        yield low
        low *= 2


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    gpus = desired.profile.inventory.gpus
    if gpus == 1:  # sendrecv of one H100 with itself gave 1,395 GB/s out of place, and 810,000 in place
        return "one GPU has no other to send to: give the test nodes, or leave it out"
    run = _program(test, gpus, gpus)
    return run if isinstance(run, str) else (run,)


def _program(test: GateTest, gpus: int | None, of_process: int | None) -> tuple[str, ...] | str:
    """Return what starts the program with its options; `of_process`: the GPUs that one process drives."""
    collective = _collective(test)
    low, high = _asked(test)
    if collective not in COLLECTIVES:
        return f"collective {collective!r} is none of {', '.join(COLLECTIVES)}"
    if gpus is None:
        return "HardwareProfile.inventory.gpus is not declared"
    if _range(test) is None:
        return f"args.minBytes {low!r} to maxBytes {high!r} is no range of sizes like 8G to 16G"
    sizes = ("-b", low, "-e", high, "-f", "2")
    program = (f"{collective}_perf", *sizes, "-g", str(of_process), "-n", "20", "-w", "5", "-c", "1")
    return ("env", "LC_ALL=C", "sh", "-c", _RUN, "sh", *program)


def _nodes(test: GateTest) -> int:
    """Return how many nodes take part: of a test in pairs two, each time."""
    return int(test.args.get(GROUP, 2 if PARTNERS in test.args else 1))


def _launch(test: GateTest, desired: Desired) -> Launch | str:
    """Return the program over several nodes."""
    gpus = desired.profile.inventory.gpus
    run = _program(test, gpus, 1)
    if isinstance(run, str) or gpus is None:
        return run if isinstance(run, str) else ""
    interface = str(test.args[INTERFACE])
    return Launch(run, _environment(test), _nodes(test), gpus, interface, str(test.args.get("user", USER)))


def _environment(test: GateTest) -> Mapping[str, str]:
    """Return what is set on all of several nodes. Held to its rails, NCCL fails rather than to fall back on sockets."""
    environment = {"NCCL_SOCKET_IFNAME": f"={test.args.get(INTERFACE, '')}"}
    if rails := listed(test.args.get("rails", "")):
        environment |= {"NCCL_IB_HCA": f"={','.join(rails)}", "NCCL_NET": "IB"}
    return environment


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    output = outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    text, nodes = output.stdout, _nodes(test)
    if nodes > 1 and output.exit_status and _SETTINGS.search(text) is None:
        builder.error(f"it did not start: {why_not_started(output.stderr or text)} (exit status {output.exit_status})")
        return builder.result(test, outputs)
    builder.version = _version(text)
    if builder.version and (settings := _settings(text, nodes, _environment(test) if nodes > 1 else {})):
        builder.version += f"-conf.{digest_of(settings)[:8]}"
    builder.check_version(test, KNOWN_RCCL if test.tool == "rccl-tests" else KNOWN)
    if trouble := _TROUBLE.search(text + "\n" + output.stderr):
        builder.error(f"NCCL reports: {trouble[0].strip()}")
    gpus = expected_gpus(builder, desired)
    asked = _range(test)
    if gpus is not None and asked is not None:
        _judge_settings(builder, text, gpus if nodes == 1 else 1, asked)
        _judge_ranks(builder, text, gpus, nodes)
        found = _rows(builder, text)
        _judge_rows(builder, _collective(test), found, gpus * nodes, asked)
        _judge_end(builder, f"{_collective(test)}_perf", text, found)
    if not builder.reasons and output.exit_status != 0:
        builder.error(f"nothing was wrong, but the exit status is {output.exit_status}")
    return builder.result(test, outputs)


def _settings(text: str, nodes: int, ours: Collection[str]) -> Sequence[object]:
    """Return what the nodes set for NCCL beside ours: that of one where all set the same, else that of each."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for rank, name, value in _SETTING.findall(text):
        if name not in _NO_MATTER and name not in ours:
            found[rank].add(f"{name}{value}".rstrip())
    each = sorted([sorted(settings) for settings in found.values()] + [[]] * (nodes - len(found)))
    return each[0] if each[0] == each[-1] else each


def _version(text: str) -> str:
    if own := _VERSION.search(text):
        return own[1]
    if rccl := _RCCL.search(text):
        return f"rccl-{rccl[1]}"
    library = _LIBRARY.search(text)
    return f"nccl-{library[1]}" if library else ""


def _one(builder: ResultBuilder, pattern: re.Pattern[str], text: str, what: str) -> re.Match[str] | None:
    """Return the only line of its kind. Note when it is missing, as in cut-off output, or repeated, as in two runs."""
    found = list(pattern.finditer(text))
    if len(found) == 1:
        return found[0]
    if found:
        builder.unjudged(f"{len(found)} lines say {what}")
    else:
        builder.error(f"the output breaks off: no line says {what}")
    return None


def _judge_settings(builder: ResultBuilder, text: str, gpus: int, asked: tuple[int, int]) -> None:
    """Note settings other than the requested ones: with little GPU memory the tool runs smaller sizes."""
    settings = _one(builder, _SETTINGS, text, "nThread, nGpus, minBytes and maxBytes")
    if settings is None:
        return
    threads, ran_on, low, high, step, validation = settings.groups()
    if (threads, count(ran_on), count(low), count(high), step) != ("1", gpus, *asked, "2(factor)"):
        builder.unjudged(f"it ran other settings than were requested: {settings[0]}")
    if not count(validation):
        builder.unjudged("results were not checked (validation is off)")


def _judge_ranks(builder: ResultBuilder, text: str, gpus: int, nodes: int) -> None:
    found = [(count(match[1]), match[2], count(match[3])) for match in _RANK.finditer(text)]
    ranks, devices = {rank for rank, _, _ in found}, {device for _, _, device in found}
    each = Counter(host for _, host, _ in found)
    if len(found) != gpus * nodes or ranks != set(range(gpus * nodes)):
        builder.unjudged(f"{len(found)} ranks are listed, not one for each of {gpus * nodes} GPUs")
    elif devices != set(range(gpus)) or len({(host, device) for _, host, device in found}) != len(found):
        builder.unjudged(f"ranks ran on {len(devices)} devices, {gpus} are declared")
    elif len(each) != nodes or set(each.values()) != {gpus}:
        builder.unjudged(f"ranks ran on {len(each)} nodes of {nodes}, or not on {gpus} GPUs of each")


def _rows(builder: ResultBuilder, text: str) -> list[_Row]:
    """Return the rows of the table: lines that start with a digit. NCCL and MPI print other lines between them."""
    titles = [line.split()[1:] for line in text.splitlines() if line.startswith("#") and " algbw " in line]
    if titles != [_COLUMNS]:
        builder.unjudged("the table has no title, or columns that are not known: nccl-tests 2.13 or later is needed")
        return []
    found = []
    for line in text.splitlines():
        if line.lstrip()[:1] in tuple("0123456789"):
            row = _row(line.split())
            if row is None:
                builder.unjudged(f"a row can't be read: {line.strip()}")
            else:
                found.append(row)
    return found


def _row(cells: Sequence[str]) -> _Row | None:
    """Return a row; None for one that can't be read. Before 2.13.4 redop is blank where nothing is reduced."""
    size = count(cells[0])
    if len(cells) not in (12, 13) or size is None:
        return None
    out, into = cells[-8:-4], cells[-4:]
    measured = [number(cell) for cell in (*out[:3], *into[:3])]
    known = [value for value in measured if value is not None and value >= 0]
    return _Row(size, (known[2], known[5]), (out[3], into[3])) if len(known) == 6 else None


def _judge_rows(
    builder: ResultBuilder, collective: str, found: Sequence[_Row], ranks: int, asked: tuple[int, int]
) -> None:
    wanted = list(_sizes(*asked))
    slack = 16 * ranks if collective in _SPLIT else _WORD
    sizes = [row.size for row in found]
    if len(sizes) != len(wanted) or any(not 0 <= a - b < slack for a, b in zip(wanted, sizes, strict=True)):
        builder.unjudged(
            f"{len(sizes)} sizes were run up to {max(sizes, default=0)}, "
            f"{len(wanted)} from {asked[0]} to {asked[1]} were requested"
        )
        return
    for row in found:
        for place, wrong in zip(("out-of-place", "in-place"), row.wrong, strict=True):
            _judge_check(builder, collective, row.size, place, wrong)
    largest = found[-1]
    if min(largest.busbw) <= 0:
        builder.unjudged(f"size {largest.size}: bus bandwidth is not a number above zero")
    else:
        builder.metrics["busbw_peak"] = min(largest.busbw)


def _judge_check(builder: ResultBuilder, collective: str, size: int, place: str, wrong: str) -> None:
    undefined = place == "in-place" and collective in _UNCHECKED_IN_PLACE
    if undefined and wrong == "N/A":
        return
    values = number(wrong)
    if values is None:
        builder.unjudged(f"size {size}: {place} results were not checked (#wrong is {wrong})")
    elif values != 0:
        builder.fail(f"size {size}: {wrong} wrong values {place}")


def _judge_end(builder: ResultBuilder, program: str, text: str, found: Sequence[_Row]) -> None:
    bounds = _one(builder, _BOUNDS, text, "Out of bounds values")
    said = bounds[1].strip() if bounds is not None else ""
    if said.endswith("FAILED"):
        builder.fail(f"out of bounds values: {said}")
    elif bounds is not None and said != "0 OK":
        builder.unjudged(f"out of bounds values: {said}")
    if _VERSION.search(text) or _STARTING.search(text) or _CONCLUDED.search(text):  # 2.16.7 and later print both
        for pattern, what in ((_STARTING, "Collective test starting"), (_CONCLUDED, "Collective test concluded")):
            line = _one(builder, pattern, text, what)
            if line is not None and line[1].strip() != program:
                builder.unjudged(f"{what} says {line[1].strip()}, {program} was started")
    average = _one(builder, _AVERAGE, text, "Avg bus bandwidth")
    if average is None:
        return
    _judge_average(builder, average[1].split(), found)
    after = text[average.end() :].splitlines()
    if "#" not in [line.strip() for line in after]:
        builder.error("the output breaks off after Avg bus bandwidth")
    elif stray := next((line for line in after if line.strip() and not line.startswith("#")), ""):
        builder.error(f"NCCL reports: {stray.strip()}")  # 2.13 to 2.16.6 print the last error there, without a prefix


def _judge_average(builder: ResultBuilder, average: Sequence[str], found: Sequence[_Row]) -> None:
    """Note an average that is not that of the rows: then a row was not printed as it was measured."""
    if average[1:] not in ([], ["OK"]):
        builder.unjudged(f"Avg bus bandwidth is {' '.join(average)}: NCCL_TESTS_MIN_BW is set on the host, unset it")
    said = number(average[0]) if average else None
    mean = sum(sum(row.busbw) for row in found) / (2 * len(found)) if found else None
    if said is None or mean is None or abs(said - mean) > 0.01 * mean + 0.01:
        rows = "nothing" if mean is None else f"{mean:g}"
        builder.unjudged(f"Avg bus bandwidth is {average[0] if average else 'empty'}, the rows give {rows}")


TOOL = Tool(_commands, _judge, launch=_launch)
RCCL = Tool(_commands, _judge, launch=_launch)  # the same programs, built with RCCL
