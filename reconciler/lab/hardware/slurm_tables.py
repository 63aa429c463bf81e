"""`sinfo`, `squeue` and `sbatch` of the lab's Slurm, as people use them. Recorded from 22.05.8 of Debian 12."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from reconciler.lab.hardware.slurm import NO_LIMIT_S, SlurmTruth
from reconciler.lab.hardware.slurm_objects import LabJob, LabNode, SlurmError
from reconciler.spec.ranges import contract, expand

# (DRAIN or FAIL, busy) -> what sinfo calls it; of others their base state, by sinfo(1), "NODE STATE CODES".
_BASE: Final = {"IDLE": "idle", "MIXED": "mix", "ALLOCATED": "alloc", "DOWN": "down"}
_ORDER: Final = ("drng", "drain", "comp", "maint", "resv", "mix", "alloc", "idle", "down")
_STATES: Final = {"PENDING": "PD", "RUNNING": "R", "COMPLETING": "CG", "COMPLETED": "CD", "CANCELLED": "CA",
                  "FAILED": "F", "TIMEOUT": "TO", "NODE_FAIL": "NF"}  # fmt: skip
_QUEUED: Final = ("PENDING", "RUNNING", "COMPLETING")
_JOBS: Final = "             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)\n"
_LIMIT: Final = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?")
_SHORT: Final = {"w": "nodelist", "N": "nodes", "t": "time", "J": "job-name", "o": "output", "h": "noheader", "R":
                 "list-reasons", "j": "jobs", "u": "user"}  # fmt: skip
SAVES_S: Final = 60.0  # what a job of the lab needs to save its state


def sinfo(truth: SlurmTruth, arguments: Sequence[str], date: Callable[[float], datetime]) -> str:
    """Return the nodes by state, each node with -N, or those with a reason with -R."""
    given = _options("sinfo", arguments, flags={"list-reasons", "noheader", "Node"}, short={**_SHORT, "N": "Node"})
    nodes, header = truth.nodes(), "noheader" not in given
    if "list-reasons" in given:
        reasons = [node for node in nodes if node.reason]
        rows = [f"{one.reason:20.20} {one.by:9.9} {date(one.at):%Y-%m-%dT%H:%M:%S} {one.name}\n" for one in reasons]
        return "".join([f"{'REASON':20} {'USER':9} {'TIMESTAMP':19} NODELIST\n"] * header + rows)
    states = {node.name: _short_state(truth, node) for node in nodes}
    if "Node" in given:
        rows = [f"{name:10} {1:5} {'main*':>9} {state:6}\n" for name, state in states.items()]
        return "".join([f"{'NODELIST':10} NODES PARTITION {'STATE':6}\n"] * header + rows)
    groups: dict[str, list[str]] = {}
    for name, state in states.items():
        groups.setdefault(state, []).append(name)
    ordered = sorted(groups.items(), key=lambda group: _ORDER.index(group[0].rstrip("*$")))
    rows = [f"{'main*':9}{'up':>6} {'infinite':>10} {len(of):6} {state:>6} {_list(of)}\n" for state, of in ordered]
    return "".join(["PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST\n"] * header + rows)


def _short_state(truth: SlurmTruth, node: LabNode) -> str:
    base, *flags = truth.states(node)
    busy = base in ("MIXED", "ALLOCATED") or "COMPLETING" in flags
    name = _BASE[base]
    if "DRAIN" in flags:
        name = "drng" if busy else "drain"
    elif base != "DOWN" and not busy and "RESERVED" in flags:
        name = "maint" if "MAINTENANCE" in flags else "resv"
    elif "COMPLETING" in flags:
        name = "comp"
    if "NOT_RESPONDING" in flags:
        return f"{name}*"
    return f"{name}$" if "MAINTENANCE" in flags and name != "maint" else name


def squeue(truth: SlurmTruth, arguments: Sequence[str]) -> str:
    """Return the jobs that wait or are on nodes: first those that wait."""
    given = _options("squeue", arguments, flags={"noheader"}, values={"nodelist", "jobs", "user", "states"}, short=(
        {**_SHORT, "t": "states"}
    ))  # fmt: skip
    nodes = set(expand(given["nodelist"])) if "nodelist" in given else set()
    if unknown := sorted(nodes - {node.name for node in truth.nodes()}):
        raise SlurmError(f"squeue: error: Invalid node name {unknown[0]}")
    numbers, states = _set(given, "jobs"), _set(given, "states")
    rows = []
    for job in sorted(truth.jobs(), key=lambda one: (one.state != "PENDING", one.id)):
        state, user = _STATES.get(job.state, "?"), given.get("user", job.user)
        others = (nodes and not nodes & set(job.nodes)) or (numbers and str(job.id) not in numbers)
        if job.state in _QUEUED and job.user == user and not others and not (states and state not in states):
            rows.append(_row(truth, job, state))
    return "".join([] if "noheader" in given else [_JOBS]) + "".join(rows)


def _set(given: Mapping[str, str], name: str) -> set[str]:
    return set(given.get(name, "").split(",")) - {""}


def _row(truth: SlurmTruth, job: LabJob, state: str) -> str:
    ran = 0 if job.state == "PENDING" else int((job.ended if job.state == "COMPLETING" else truth.now()) - job.started)
    where = f"({job.reason})" if job.state == "PENDING" else _list(job.nodes)
    count = len(job.nodes) or len(job.asks) or job.count
    return f"{job.id:18} {'main':>9} {job.name:>8.8} {job.user:>8.8} {state:>2} {_time(ran):>10} {count:6} {where}\n"


def sbatch(truth: SlurmTruth, arguments: Sequence[str], user: str) -> str:
    """Queue a job. Its script is not run: --wrap says how long it would, as "sleep SECONDS"."""
    flags = {"exclusive", "no-requeue", "parsable"}
    values = {"nodelist", "nodes", "time", "job-name", "output", "comment", "wrap"}
    given = _options("sbatch", arguments, flags=flags, values=values)
    script = re.fullmatch(r"sleep (\d+(?:\.\d+)?)", given.get("wrap", ""))
    if script is None:
        raise SlurmError('sbatch: error: a job of the lab is --wrap "sleep SECONDS", and nothing else')
    comment, asked = given.get("comment", ""), tuple(expand(given["nodelist"])) if "nodelist" in given else ()
    job = truth.queue(
        LabJob(
            0, (), user, _seconds(given["time"]) if "time" in given else NO_LIMIT_S, float(script[1]),
            "no-requeue" not in given, comment,
            SAVES_S if "reconciler.dev/checkpoint" in comment.split() else None,
            name=given.get("job-name", "wrap"), asks=asked, count=int(given.get("nodes", "1")),
            exclusive="exclusive" in given,
        )
    )  # fmt: skip
    return f"{job.id}\n" if "parsable" in given else f"Submitted batch job {job.id}\n"


def _options(
    program: str,
    arguments: Sequence[str],
    *,
    flags: Iterable[str] = (),
    values: Iterable[str] = (),
    short: Mapping[str, str] = _SHORT,
) -> dict[str, str]:
    """Return the options by their long names. Raise SlurmError as the programs refuse others."""
    given: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        name, equals, value = word.removeprefix("--").partition("=")
        if not word.startswith("--"):
            name, equals, value = short.get(word[1:2], ""), word[2:], word[2:]
        if name in values:
            given[name] = value if equals else rest.pop(0) if rest else ""
        elif name in flags and not equals:
            given[name] = ""
        else:
            raise SlurmError(f"{program}: unrecognized option '{word}'\nTry \"{program} --help\" for more information")
    return given


def _seconds(text: str) -> float:
    """Return a time limit in seconds: minutes, or [days-]hours:minutes[:seconds] (sbatch(1), --time)."""
    found = _LIMIT.fullmatch(text)
    if found is None:
        raise SlurmError("sbatch: error: Invalid --time specification")
    days, first, second, third = (None if part is None else int(part) for part in found.groups())
    if days is not None:
        return 86400.0 * days + 3600.0 * (first or 0) + 60.0 * (second or 0) + (third or 0)
    if third is not None:
        return 3600.0 * (first or 0) + 60.0 * (second or 0) + third
    return 60.0 * (first or 0) + (second or 0)


def _time(seconds: int) -> str:
    """Return a duration as squeue writes it: 4:07, 1:30:00, 2-03:00:00."""
    days, hours, minutes, rest = seconds // 86400, seconds // 3600 % 24, seconds // 60 % 60, seconds % 60
    if days:
        return f"{days}-{hours:02}:{minutes:02}:{rest:02}"
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _list(names: Iterable[str]) -> str:
    """Return a hostlist; names that differ in more than a number are listed."""
    found = list(names)
    try:
        return contract(found)
    except ValueError:
        return ",".join(found)
