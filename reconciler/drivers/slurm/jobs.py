"""Decode `squeue --json`, and turn jobs into pods of the nodes that they are on. Pure.

JSON is read here, which squeue has since 21.08: users choose a job's name and comment, and a line break in a comment
makes a row of its own in squeue's text. The shapes differ by release: a state is a text until 23.02 and a list since
(data_parser v0.0.40), a number is a number or {"set", "infinite", "number"}.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from reconciler.drivers.slurm.hostlist import expand
from reconciler.drivers.slurm.nodes import Unreadable
from reconciler.model.json_text import parse_json
from reconciler.model.pods import Pod, PodCheckpoint, Workload
from reconciler.model.slurm import CHECKPOINT, JOB

# States in which a job has no nodes yet, or no more unless it is COMPLETING (squeue(1), "JOB STATE CODES").
_WITHOUT_NODES: Final = frozenset(
    {"PENDING", "COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "BOOT_FAIL", "DEADLINE"}
    | {"OUT_OF_MEMORY", "REVOKED", "SPECIAL_EXIT"}
)


@dataclass(frozen=True, slots=True)
class Job:
    id: int
    restarts: int
    user: str
    states: frozenset[str]
    nodes: tuple[str, ...]
    ends_at: datetime | None  # by its time limit, or when it ended; None: it has no limit
    takes_part: bool  # its comment says that it saves its state

    @property
    def uid(self) -> str:
        """A job that is requeued keeps its number, and is another pod."""
        return f"{self.id}.{self.restarts}"

    @property
    def is_ending(self) -> bool:
        return "COMPLETING" in self.states

    @property
    def is_on_nodes(self) -> bool:
        return bool(self.nodes) and (self.is_ending or not self.states & _WITHOUT_NODES)

    def pod(self) -> Pod:
        return Pod(
            namespace=self.user or "slurm",
            name=f"job {self.id}",
            uid=self.uid,
            phase="Running",
            owner_kind=JOB,
            evictable=True,
            terminating_since=self.ends_at if self.is_ending else None,
            finite=True,
            checkpoint=PodCheckpoint() if self.takes_part else None,
            workload=Workload(JOB, self.user or "slurm", str(self.id)) if len(self.nodes) > 1 else None,
            due_at=None if self.is_ending else self.ends_at,
        )


def decode(output: str) -> Iterator[Job]:
    """Yield the jobs that are on nodes. Raise Unreadable."""
    try:
        found = parse_json(output)
    except ValueError as error:
        raise Unreadable(f"no JSON: {error}") from error
    jobs = found.get("jobs") if isinstance(found, Mapping) else None
    if not isinstance(jobs, list) or not all(isinstance(job, Mapping) for job in jobs):
        raise Unreadable("no list of jobs")
    for item in jobs:
        job = _job(item)
        if job.is_on_nodes:
            yield job


def _job(item: Mapping[str, Any]) -> Job:
    number, state = _number(item.get("job_id")), item.get("job_state")
    states = [state] if isinstance(state, str) else state
    if number is None or not isinstance(states, list) or not all(isinstance(one, str) for one in states):
        raise Unreadable("a job without number or state")
    nodes = item.get("nodes") or ""
    if not isinstance(nodes, str):
        raise Unreadable(f"job {number} has nodes of another form")
    try:
        names = tuple(expand(nodes))
    except ValueError as error:
        raise Unreadable(f"job {number}: {error}") from error
    ends = _number(item.get("end_time"))
    return Job(
        number,
        _number(item.get("restart_cnt")) or 0,
        str(item.get("user_name") or ""),
        frozenset(states),
        names,
        _instant(ends),
        CHECKPOINT in str(item.get("comment") or "").split(),
    )


def _number(value: object) -> int | None:
    """Return a number in either form; None where it is not set, or infinite."""
    if isinstance(value, Mapping):
        known = value.get("set") is True and value.get("infinite") is not True
        value = value.get("number") if known else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _instant(seconds: int | None) -> datetime | None:
    """Return an instant; None for none, and for those in a far future that stand for "no limit"."""
    return None if seconds is None or not 0 < seconds < 4_000_000_000 else datetime.fromtimestamp(seconds, UTC)
