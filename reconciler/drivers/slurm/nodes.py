"""Decode `scontrol show node`, and turn a node of Slurm into a member of the cluster. Pure.

The text is read, and not JSON: scontrol prints JSON only since 23.02, under names that changed in each release since,
while these lines have kept their names. Of a node's record only its own lines count, and its reason is all that is
between `Reason=` and the last ` [user@time]`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.drivers.slurm import reasons
from reconciler.drivers.slurm.states import MAINTENANCE, Rule, rule_of
from reconciler.model.observed import Member, Pod, Taint
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, write_mark
from reconciler.model.slurm import HOLD, JOB

_RECORD: Final = re.compile(r"^NodeName=(?P<name>\S+) (?P<rest>.*?)(?=^NodeName=|\Z)", re.MULTILINE | re.DOTALL)
_STATE: Final = re.compile(r"^   State=(\S+)", re.MULTILINE)
_REASON: Final = re.compile(
    r"^   Reason=(?P<text>.*) \[(?P<user>[^\[\]@]*)@(?P<at>[^\[\]@]*)\]$", re.MULTILINE | re.DOTALL
)
_VERSION: Final = re.compile(r"\bVersion=(\S+)")
_STARTED: Final = re.compile(r"\bSlurmdStartTime=(\S+)")
_SUFFIXES: Final = "*~#!%$@^-+"


class Unreadable(ValueError):
    """An output that is not of the command that was run."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node as slurmctld has it. `flags`: its base state and its flags. `reason`, `by`, `at`: "" = it has none."""

    name: str
    flags: frozenset[str]
    reason: str = ""
    by: str = ""
    at: str = ""
    version: str = ""
    registered: bool = True  # its slurmd has come since slurmctld knows it
    reserved_by_us: bool = False  # in a maintenance reservation of ours, and in no other one

    @property
    def revision(self) -> str:
        """Return what guards a write: it changes with the administrative state, and when the reason is set again."""
        admin = sorted(self.flags & _ADMINISTRATIVE)
        text = "\0".join([self.name, *admin, self.reason, self.by, self.at])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def rule(self) -> Rule:
        return rule_of(self.flags, reserved_by_us=self.reserved_by_us)

    @property
    def in_maintenance(self) -> bool:
        return bool(self.flags & MAINTENANCE)

    @property
    def is_out(self) -> bool:
        return self.rule.out


_ADMINISTRATIVE: Final = frozenset({"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "MAINTENANCE", "MAINT"})


def decode(output: str) -> Iterator[SlurmNode]:
    """Yield the nodes. Raise Unreadable for a record without a state. A node that is only FUTURE is none yet."""
    if output.strip() and not output.lstrip().startswith("NodeName="):
        raise Unreadable(f"no record of a node: {output.strip()[:80]!r}")
    for record in _RECORD.finditer(output.lstrip()):
        node = _node(record["name"], record["rest"])
        if "FUTURE" not in node.flags:
            yield node


def _node(name: str, rest: str) -> SlurmNode:
    state = _STATE.search(rest)
    if state is None:
        raise Unreadable(f"node {name} has no state")
    lines = rest[: rest.find("\n   Reason=") + 1] if "\n   Reason=" in rest else rest
    reason = _REASON.search(rest)
    started, version = _STARTED.search(lines), _VERSION.search(lines)
    return SlurmNode(
        name,
        frozenset(state[1].rstrip(_SUFFIXES).split("+")),
        reason["text"] if reason else "",
        reason["user"] if reason else "",
        reason["at"] if reason else "",
        version=version[1] if version else "",
        registered=started is not None and started[1] not in ("None", "Unknown"),
    )


def member(node: SlurmNode, name: str, jobs: Sequence[Pod], take_over: Sequence[str]) -> Member:
    """Return the node as a member. `name`: in the spec. `take_over`: how reasons of health checks begin.

    A node that a daemon or a health check took out is not ready: it is a finding, as a kubelet's silence is. One that
    a person took out is cordoned and held.
    """
    rule, mark = node.rule, reasons.read(node.reason)
    found = reasons.is_finding(node.reason, take_over) if node.reason else rule.ill
    finding = mark is None and rule.out and found
    foreign = mark is None and rule.out and not finding
    ready = node.registered and not rule.silent and not finding
    state = "+".join(sorted(node.flags)) + (f": {node.reason}" if node.reason and mark is None else "")
    hold = rule.hold
    if foreign and node.reason:
        hold = "; ".join(filter(None, (hold, f"{node.by or 'somebody'} keeps it out of Slurm: {node.reason}")))
    taints = [Taint(MARK_TAINT, "", "NoSchedule")] if mark is not None else []
    taints += [Taint(HOLD, "", "NoSchedule")] if hold else []
    return Member(
        name=name,
        uid=node.name,
        resource_version=node.revision,
        ready=ready,
        conditions={"Ready": "True" if ready else "Unknown" if rule.silent else "False"},
        unschedulable=rule.out and not finding,
        labels={},
        annotations={} if mark is None else {OWNER_ANNOTATION: write_mark(mark)},
        taints=tuple(taints),
        kubelet_version=f"slurm {node.version}" if node.version else "",
        pods=tuple(jobs) if jobs or not rule.busy else (_unseen(node.name),),
        reasons=({} if ready else {"Ready": f"Slurm: {state}"}) | ({HOLD: hold} if hold else {}),
    )


def _unseen(node: str) -> Pod:
    """Return what stands for jobs of which only the node tells: they end, or their epilogs run, or they are hidden."""
    return Pod("slurm", f"a job on {node} that the queue does not show", f"unseen {node}", "Running", JOB, True)
