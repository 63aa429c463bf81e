"""The Slurm of a lab: what slurmctld knows of nodes and jobs, and what time and machines make of it.

Recorded from slurmctld 22.05.8 (Debian 12) with slurmd on loopback: words of states, reasons and errors, what `update`,
`requeue` and `scancel` do to a job, and why one has to wait. Nothing runs in the background: each call first plays what
has happened. slurmctld gives a silent node up after SlurmdTimeout, and takes one out that rebooted unasked
(ReturnToService=0).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from reconciler.lab.hardware.machine import Machine
from reconciler.lab.hardware.slurm_objects import LabJob, LabNode, LabReservation, SlurmError

SLURMD_TIMEOUT_S: Final = 300.0
COMPLETING_S: Final = 2.0
REQUEUE_S: Final = 120.0  # after which a requeued job is eligible again
NO_LIMIT_S: Final = 365 * 86400.0  # of a job without a time limit
_IN_RESERVATION: Final = "ReqNodeNotAvail, May be reserved for other job"
_NO_NODES: Final = "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions"


class SlurmTruth:
    """`names`: node of the spec -> in slurm.conf; their machines run a slurmd as long as they run a system."""

    def __init__(self, machines: Mapping[str, Machine], clock: Callable[[], float], names: Mapping[str, str]) -> None:
        self._clock = clock
        self._machines = {names.get(name, name): machine for name, machine in machines.items()}
        self._nodes = {name: LabNode(name, boot=self._boot(name)) for name in self._machines}
        self._jobs: dict[int, LabJob] = {}
        self._reservations: dict[str, LabReservation] = {}
        self.down = False  # slurmctld does not answer

    def now(self) -> float:
        return self._clock()

    # --- what tests and people do ---

    def submit(self, *nodes: str, **settings: Any) -> LabJob:
        """Start a job on these nodes, whatever else is there."""
        job = LabJob(len(self._jobs) + 1, nodes, started=self._clock(), asks=nodes, **settings)
        self._jobs[job.id] = job
        return job

    def queue(self, wanted: LabJob) -> LabJob:
        """Play `sbatch`: the job begins when there are nodes for it. Its number is given here."""
        self._sync()
        if any(name not in self._nodes for name in wanted.asks):
            raise SlurmError("sbatch: error: Batch job submission failed: Invalid node name specified")
        wanted.id, wanted.state, wanted.eligible = len(self._jobs) + 1, "PENDING", self._clock()
        self._jobs[wanted.id] = wanted
        self._begin_pending(self._clock())
        return wanted

    # --- what the commands read ---

    def nodes(self, name: str | None = None) -> list[LabNode]:
        self._sync()
        if name is None:
            return list(self._nodes.values())
        if name not in self._nodes:
            raise SlurmError(f"Node {name} not found")
        return [self._nodes[name]]

    def jobs(self) -> list[LabJob]:
        self._sync()
        return list(self._jobs.values())

    def reservations(self) -> list[LabReservation]:
        self._sync()
        return list(self._reservations.values())

    def states(self, node: LabNode) -> list[str]:
        """Return the base state and the flags, as scontrol joins them."""
        held = [one for one in self._reservations.values() if node.name in one.nodes and one.start <= self._clock()]
        on = [job.state for job in self._jobs.values() if node.name in job.nodes]
        alone = any(job.exclusive for job in self._on(node.name))
        base = "DOWN" if node.down else "ALLOCATED" if alone else "MIXED" if "RUNNING" in on else "IDLE"
        flags = [("DRAIN", node.drain), ("COMPLETING", "COMPLETING" in on)]
        flags.append(("MAINTENANCE", any("MAINT" in one.flags for one in held)))
        flags.append(("RESERVED", bool(held)))
        flags.append(("NOT_RESPONDING", node.silent_since is not None))
        return [base, *(flag for flag, shown in flags if shown), *sorted(node.flags)]

    # --- what the commands change ---

    def update(self, name: str, state: str, reason: str, by: str) -> None:
        """Play `scontrol update nodename=... state=...`."""
        self._sync()
        if name not in self._nodes:
            raise SlurmError("slurm_update error: Invalid node name specified")
        node = self._nodes[name]
        if state == "drain":
            if not reason and not node.reason:
                raise SlurmError("You must specify a reason when DOWNING or DRAINING a node. Request denied")
            node.drain = True
        elif state == "down":
            self._lose(node, reason, self._clock())
        elif state in ("resume", "undrain"):
            node.drain = False
            node.down = node.down and state == "undrain"
            node.set_reason("", "", 0.0)
            return
        else:
            raise SlurmError(f"Invalid input: state={state}\nRequest aborted")
        if reason:
            node.set_reason(reason.strip('"'), by, self._clock())

    def reserve(self, wanted: LabReservation) -> None:
        """Play `scontrol create reservation`."""
        self._sync()
        failed = "Error creating the reservation: "
        if wanted.name in self._reservations:
            raise SlurmError(f"{failed}Duplicate reservation name")
        if any(name not in self._nodes for name in wanted.nodes):
            raise SlurmError(f"{failed}Invalid node name specified")
        if wanted.start < self._clock() - 60:
            raise SlurmError(f"{failed}Invalid time specified")
        if "MAINT" not in wanted.flags and self._overlaps(wanted):
            raise SlurmError(f"{failed}Requested reservation overlaps with another reservation")
        self._reservations[wanted.name] = wanted

    def move(self, name: str, start: float, end: float) -> None:
        """Play `scontrol update reservationname=... starttime=... duration=...`."""
        self._sync()
        for why, wrong in (
            ("Requested reservation is invalid", name not in self._reservations),
            ("Reservation already started", name in self._reservations and self._begun(name)),
        ):
            if wrong:
                raise SlurmError(f"Error updating the reservation: {why}\nslurm_update error: {why}")
        self._reservations[name].start, self._reservations[name].end = start, end

    def unreserve(self, name: str) -> None:
        self._sync()
        if self._reservations.pop(name, None) is None:
            raise SlurmError(f"delete_reservation reservationname={name}: Requested reservation is invalid")

    def _begun(self, name: str) -> bool:
        return self._reservations[name].start <= self._clock()

    def _overlaps(self, wanted: LabReservation) -> bool:
        others = (one for one in self._reservations.values() if set(one.nodes) & set(wanted.nodes))
        return any(one.start < wanted.end and wanted.start < one.end for one in others)

    def requeue(self, number: int) -> None:
        """Play `scontrol requeue Incomplete`, which leaves jobs alone that have ended."""
        self._sync()
        job = self._job(number)
        if job.state != "RUNNING":
            return
        if not job.requeue:
            raise SlurmError(f"Requested operation is presently disabled for job {number}")
        self._end(job, "PENDING")

    def cancel(self, number: int) -> None:
        self._sync()
        if self._job(number).state == "RUNNING":
            self._end(self._job(number), "CANCELLED")

    def signal(self, number: int, name: str) -> None:
        """Play a signal to the batch script. One that does not handle it dies of it, as of SIGUSR1."""
        self._sync()
        job = self._job(number)
        if job.state != "RUNNING":
            raise SlurmError(f"scancel: error: Kill job error on job id {number}: Job/step already completing")
        job.signals.append(name)
        job.signalled = self._clock()
        if job.saves_s is None:
            self._end(job, "FAILED")

    # --- time ---

    def _job(self, number: int) -> LabJob:
        if number not in self._jobs:
            raise SlurmError(f"Invalid job id specified for job {number}")
        return self._jobs[number]

    def _sync(self) -> None:
        if self.down:
            raise SlurmError("Unable to contact slurm controller (connect failure)")
        now = self._clock()
        self._reservations = {name: one for name, one in self._reservations.items() if one.end > now}
        for node in self._nodes.values():
            self._heard(node, now)
        for job in self._jobs.values():
            self._goes_on(job, now)
        self._begin_pending(now)

    def _heard(self, node: LabNode, now: float) -> None:
        """Play the pings of slurmctld and the registration of a slurmd."""
        boot = self._boot(node.name)
        if not boot:
            node.silent_since = now if node.silent_since is None else node.silent_since
            if now - node.silent_since >= SLURMD_TIMEOUT_S and not node.down:
                self._lose(node, "Not responding", now)
            return
        node.silent_since = None
        if boot != node.boot:
            if not node.down:
                self._lose(node, "Node unexpectedly rebooted", now)
            node.boot = boot

    def _lose(self, node: LabNode, why: str, now: float) -> None:
        """Set a node DOWN: its jobs are requeued, and a reason that it has is kept."""
        node.down = True
        if not node.reason:
            node.set_reason(why, "slurm", now)
        for job in self._on(node.name):
            self._end(job, "PENDING" if job.requeue else "NODE_FAIL")

    def _goes_on(self, job: LabJob, now: float) -> None:
        saved = job.signalled is not None and job.saves_s is not None and now >= job.signalled + job.saves_s
        if job.state == "RUNNING" and (saved or now >= job.started + min(job.runs_s, job.limit_s)):
            self._end(job, "COMPLETED" if saved or job.runs_s <= job.limit_s else "TIMEOUT")
        if job.state == "COMPLETING" and now >= job.ended + COMPLETING_S:
            job.state, job.nodes = job.outcome, ()
            if job.outcome == "PENDING":
                job.restarts, job.signalled, job.eligible = job.restarts + 1, None, job.ended + REQUEUE_S

    def _begin_pending(self, now: float) -> None:
        """Start each job for which there are nodes, the oldest first; say of the others why not."""
        behind = False
        for job in self._jobs.values():
            if job.state != "PENDING":
                continue
            if now < job.eligible:
                job.reason = "BeginTime"
                continue
            nodes, job.reason = self._place(job, now)
            if nodes:
                job.nodes, job.state, job.started, job.reason = nodes, "RUNNING", now, "None"
            elif job.reason == "Resources" and behind:
                job.reason = "Priority"
            behind = behind or job.reason == "Resources"

    def _place(self, job: LabJob, now: float) -> tuple[tuple[str, ...], str]:
        """Return the nodes that a job gets, or () and why it gets none."""
        names = job.asks or tuple(self._nodes)
        usable = [name for name in names if not self._is_out(self._nodes[name])]
        count = len(job.asks) or job.count
        if len(usable) < count:
            out = ",".join(name for name in names if name not in usable)
            return (), f"ReqNodeNotAvail, UnavailableNodes:{out}" if job.asks else _NO_NODES
        open_for = [name for name in usable if not self._reserved(name, now, now + job.limit_s)]
        if len(open_for) < count:
            return (), _IN_RESERVATION
        free = [name for name in open_for if self._has_room(name, job)]
        return (tuple(free[:count]), "None") if len(free) >= count else ((), "Resources")

    def _is_out(self, node: LabNode) -> bool:
        return node.drain or node.down or node.silent_since is not None or bool(node.flags)

    def _reserved(self, node: str, start: float, end: float) -> bool:
        held = (one for one in self._reservations.values() if node in one.nodes)
        return any(one.start < end and start < one.end for one in held)

    def _has_room(self, node: str, job: LabJob) -> bool:
        others = [one for one in self._jobs.values() if node in one.nodes and one.state in ("RUNNING", "COMPLETING")]
        return not (others and job.exclusive) and not any(one.exclusive for one in others)

    def _end(self, job: LabJob, outcome: str) -> None:
        job.state, job.outcome, job.ended = "COMPLETING", outcome, self._clock()

    def _on(self, name: str) -> Iterable[LabJob]:
        return [job for job in self._jobs.values() if name in job.nodes and job.state == "RUNNING"]

    def _boot(self, name: str) -> str:
        """Return the boot id of a machine whose system runs; "" for one that is silent."""
        machine = self._machines[name]
        machine.catch_up()
        system = machine.state.os
        return "" if system is None or system.hung or system.stopping else system.boot_id
