"""`SlurmCluster`, which implements ports.Cluster with Slurm's own commands: the drain of a node is its mark.

The commands are run over SSH, and slurmrestd is not asked: it is a daemon that most sites don't run, its paths carry
versions that go with each second release, and it needs tokens; scontrol has drained nodes in the same words for years.

Slurm has no compare-and-swap. Each write reads the node again right before it, and is CONFLICT when state or reason are
no longer those that were decided on; what is left is the time of one command.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from reconciler.drivers.slurm import jobs as job_table
from reconciler.drivers.slurm import nodes as node_table
from reconciler.drivers.slurm import reasons
from reconciler.drivers.slurm import reservations as reservation_table
from reconciler.drivers.slurm.commands import Commands, Login
from reconciler.drivers.slurm.jobs import Job
from reconciler.drivers.slurm.nodes import SlurmNode, Unreadable
from reconciler.drivers.slurm.reservations import SlurmReservations
from reconciler.model.access import SlurmAccess
from reconciler.model.confined import Confined
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, ClusterState, Member, Pod, Silent, Taint
from reconciler.model.records import Mark
from reconciler.model.vocab import SignalTo, UnknownReason

_UNKNOWN = {
    Failure.AUTH: UnknownReason.AUTH,
    Failure.TIMEOUT: UnknownReason.TIMEOUT,
    Failure.MALFORMED: UnknownReason.MALFORMED,
    Failure.UNSUPPORTED: UnknownReason.UNSUPPORTED,
}
_TO = {SignalTo.BATCH: ("--batch",), SignalTo.STEPS: (), SignalTo.ALL: ("--full",)}


class SlurmCluster(Confined):
    """A Slurm, reached by its commands on `login`. `timeout_s`: for one command, by the wall clock.

    `ledger`: whose reservations are ours; "" = none are.
    """

    def __init__(
        self, login: Login, access: SlurmAccess, *, timeout_s: float, now: Callable[[], datetime], ledger: str = ""
    ) -> None:
        self._commands = Commands(login, access.programs, timeout_s)
        self._access = access
        self._theirs = dict(access.names)
        self._ours = {theirs: ours for ours, theirs in access.names.items()}
        self._now = now
        self._ledger = ledger

    def reservations(self) -> SlurmReservations:
        return SlurmReservations(self._commands, self._theirs, self._ledger)

    async def close(self) -> None:
        await self._commands.close()

    # --- reads ---------------------------------------------------------------------------------------------------

    async def state(self) -> Answered[ClusterState] | Silent:
        try:
            found = await self._nodes()
            jobs = await self._jobs()
        except DriverError as error:
            return Silent(self._now(), _UNKNOWN.get(error.kind, UnknownReason.UNREACHABLE), error.detail)
        on: dict[str, list[Pod]] = {}
        for job in jobs:
            for name in job.nodes:
                on.setdefault(name, []).append(job.pod())
        members: dict[str, Member] = {}
        for node in found:
            name = self._ours.get(node.name, node.name)
            members[name] = node_table.member(node, name, on.get(node.name, ()), self._access.take_over)
        version = next((f"slurm {node.version}" for node in found if node.version), "slurm")
        return Answered(self._now(), ClusterState(version, version, members))

    async def member(self, node: str, *, cached: bool = False) -> Member | None:  # noqa: ARG002 - slurmctld has one view
        """Read the node before its jobs: one that starts in between is seen, as the node may be drained since."""
        found = await self._node(node)
        if found is None:
            return None
        jobs = [job.pod() for job in await self._jobs() if found.name in job.nodes]
        return node_table.member(found, node, jobs, self._access.take_over)

    async def _nodes(self) -> list[SlurmNode]:
        return await self._with_reservations(_decoded(await self._commands.read("scontrol", "show", "node")))

    async def _with_reservations(self, found: list[SlurmNode]) -> list[SlurmNode]:
        """Tell nodes in a maintenance reservation of ours. Their records don't say in whose they are."""
        if not any(node.in_maintenance for node in found):
            return found
        ours = reservation_table.in_ours_alone(await reservation_table.read(self._commands), self._ledger)
        return [replace(node, reserved_by_us=True) if node.name in ours else node for node in found]

    async def _node(self, node: str) -> SlurmNode | None:
        name = self._theirs.get(node, node)
        try:
            found = _decoded(await self._commands.read("scontrol", "show", "node", name))
        except DriverError as error:
            if error.kind is Failure.CONFLICT:
                return None
            raise
        return next((one for one in await self._with_reservations(found) if one.name == name), None)

    async def _jobs(self) -> list[Job]:
        try:
            return list(job_table.decode(await self._commands.read("squeue", "--json")))
        except Unreadable as error:
            raise DriverError(Failure.MALFORMED, f"squeue --json: {error}") from error

    # --- writes on nodes -----------------------------------------------------------------------------------------

    async def mark(self, member: Member, mark: Mark) -> None:
        """Drain with our reason. A reason of a person is never written over; that of a health check is kept in ours."""
        node = await self._unchanged(member)
        if node is None:
            raise DriverError(Failure.CONFLICT, "Slurm has no such node any more")
        ours = reasons.read(node.reason)
        if ours is not None and ours.ledger != mark.ledger:
            raise DriverError(Failure.REJECTED, f"ledger {ours.ledger} keeps this node out of Slurm")
        finding = reasons.is_finding(node.reason, self._access.take_over)
        if ours is None and node.reason and node.is_out and not finding:
            raise DriverError(Failure.REJECTED, f"{node.by or 'somebody'} keeps it out of Slurm: {node.reason}")
        before = reasons.taken_over(node.reason) if ours else node.reason  # a note on a node in service, too
        await self._update(node, "state=drain", f"reason={reasons.write(mark, before)}")

    async def unmark(self, member: Member, *, uncordon: bool) -> None:  # noqa: ARG002 - a drain of ours has our reason
        """Resume the node, which clears DRAIN, DOWN and the reason, if that is ours, and end our reservation of it."""
        node = await self._unchanged(member)
        if node is not None and reasons.read(node.reason) is not None:
            await self._update(node, "state=resume")
            if node.reserved_by_us:
                await reservation_table.release(self._commands, node.name, self._ledger)

    async def set_labels(self, member: Member, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        if labels or taints:
            raise DriverError(Failure.UNSUPPORTED, f"nodes of Slurm have no labels and taints: {member.name}")

    async def remove(self, member: Member) -> None:
        """Delete a dynamic node. One of slurm.conf stays drained until a person takes it out of that file."""
        try:
            await self._commands.write("scontrol", "delete", f"nodename={member.uid}")
        except DriverError as error:
            if error.kind is Failure.CONFLICT:
                return
            hint = f"take {member.uid} out of slurm.conf, then `scontrol reconfigure`"
            raise DriverError(error.kind, f"{error.detail}; if it is a node of slurm.conf, {hint}") from error

    async def _update(self, node: SlurmNode, *settings: str) -> None:
        await self._commands.write("scontrol", "update", f"nodename={node.name}", *settings)

    async def _unchanged(self, member: Member) -> SlurmNode | None:
        node = await self._node(member.name)
        if node is not None and node.revision != member.resource_version:
            raise DriverError(Failure.CONFLICT, f"{node.name} has changed in Slurm since it was read")
        return node

    # --- writes on jobs ------------------------------------------------------------------------------------------

    async def evict(self, pod: Pod, *, grace_s: float | None) -> None:  # noqa: ARG002 - KillWait of slurm.conf
        """Requeue the job. REJECTED where it may not be requeued: then it ends by itself, or `force` cancels it."""
        if await self._runs(pod):
            await self._end("scontrol", "requeue", "Incomplete", _number(pod))

    async def delete(self, pod: Pod, *, grace_s: float | None) -> None:
        """Requeue the job, or else cancel it."""
        try:
            await self.evict(pod, grace_s=grace_s)
        except DriverError as error:
            if error.kind is not Failure.REJECTED or not await self._runs(pod):
                raise
            await self._end("scancel", _number(pod))

    async def signal(self, pod: Pod, name: str, to: SignalTo) -> None:
        """Send a signal to a job's processes. A job that is gone, or was requeued since, is success."""
        if await self._runs(pod):
            await self._end("scancel", f"--signal={name}", *_TO[to], _number(pod))

    async def _end(self, program: str, *arguments: str) -> None:
        try:
            await self._commands.write(program, *arguments)
        except DriverError as error:
            if error.kind is not Failure.CONFLICT:
                raise

    async def _runs(self, pod: Pod) -> bool:
        """Return whether this very job runs. After a requeue its number is another pod's (pitfall H6).

        `requeue Incomplete` leaves a job alone that ends meanwhile: plain `requeue` would run it a second time.
        """
        if not _number(pod).isdecimal():
            raise DriverError(Failure.REJECTED, "the node is in use, and the queue does not show by which job")
        return any(job.uid == pod.uid and not job.is_ending for job in await self._jobs())

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:  # noqa: ARG002 - the port's signature
        raise DriverError(Failure.UNSUPPORTED, f"{pod.name} is no pod, and has no annotations")

    async def post(self, pod: Pod, port: int, path: str, body: str) -> None:  # noqa: ARG002 - the port's signature
        raise DriverError(Failure.UNSUPPORTED, f"{pod.name} is no pod, and is not reached over HTTP")

    async def answers(self, pod: Pod, port: int, path: str) -> bool:  # noqa: ARG002 - the port's signature
        return False

    def adjustments(self) -> None:
        return None


def _number(pod: Pod) -> str:
    return pod.uid.partition(".")[0]


def _decoded(output: str) -> list[SlurmNode]:
    try:
        return list(node_table.decode(output))
    except Unreadable as error:
        raise DriverError(Failure.MALFORMED, f"scontrol show node: {error}") from error
