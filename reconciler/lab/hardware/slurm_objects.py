"""The nodes, jobs and reservations of a lab's Slurm, as slurmctld keeps them. Times are of the machines' clock."""

from __future__ import annotations

from dataclasses import dataclass, field


class SlurmError(Exception):
    """Ends a command with status 1; its text is on stderr then."""


@dataclass(slots=True)
class LabNode:
    """`reason`: with `by` and `at`, as of the last one that set it."""

    name: str
    drain: bool = False
    down: bool = False
    flags: set[str] = field(default_factory=set)  # others that slurmctld shows, as a test sets them
    reason: str = ""
    by: str = "root"
    at: float = 0.0
    boot: str = ""  # the boot that it registered with
    silent_since: float | None = None

    def set_reason(self, text: str, by: str, at: float) -> None:
        self.reason, self.by, self.at = text, by, at


@dataclass(slots=True)
class LabJob:
    """`runs_s`: how long it needs from its start. `saves_s`: after a signal; None: it does not handle one, and dies.

    `asks`: the nodes that it must have; else any `count` of them. `exclusive`: it shares no node.
    """

    id: int
    nodes: tuple[str, ...]
    user: str = "ada"
    limit_s: float = 3600.0
    runs_s: float = 1e9
    requeue: bool = True
    comment: str = ""
    saves_s: float | None = None
    state: str = "RUNNING"
    started: float = 0.0
    ended: float = 0.0
    restarts: int = 0
    signals: list[str] = field(default_factory=list)
    signalled: float | None = None
    outcome: str = ""  # its state once it is no longer COMPLETING
    name: str = "wrap"
    asks: tuple[str, ...] = ()
    count: int = 1
    exclusive: bool = False
    eligible: float = 0.0
    reason: str = "None"  # why it is PENDING, as squeue says it


@dataclass(slots=True)
class LabReservation:
    """`start`, `end`: by the machines' clock. `flags`: as scontrol prints them, but SPEC_NODES."""

    name: str
    nodes: tuple[str, ...]
    start: float
    end: float
    flags: tuple[str, ...]
    users: str = "root"
