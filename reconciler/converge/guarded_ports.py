"""The ports as actions see them: every call has a deadline, and no write goes out without a lease or to a wrong BMC.

Invariant identity_before_any_bmc_write: `GuardedBmc` is the only Bmc that an action can reach, and each of its writes
goes through `_write`. That first reads the serial number and UUID behind the address and compares them with those from
the node's other sources (pitfall A14). A write that outlives its deadline is ambiguous, never failed (pitfall A3).

Right before each write to a BMC, a cluster or a host, the ledger is asked whether this run still holds the lease on the
fleet. From its first write to a BMC to its end, an action also holds a lease on that BMC.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeVar

from reconciler.converge.deadline import within
from reconciler.converge.lease import HeldLease, bmc_scope
from reconciler.converge.observe import answer, io_seconds
from reconciler.model.adjustment_port import Adjustments
from reconciler.model.adjustments import Adjusted, AdjustedRef, AdjustmentRecord, Value
from reconciler.model.desired import Desired, Settings
from reconciler.model.errors import DriverError, Failure
from reconciler.model.gate import CommandResult
from reconciler.model.measurements import SignedMeasurements
from reconciler.model.observed import (
    Answered,
    AttributeValue,
    BmcEvent,
    BmcTask,
    ClusterState,
    HostFacts,
    Member,
    Pod,
    RedfishHot,
    RedfishInventory,
    Silent,
    Taint,
)
from reconciler.model.ports import Bmc, Clock, Cluster, FirmwareFile, Host, Pdu, PowerAction
from reconciler.model.records import Mark, NodeRecord
from reconciler.model.vocab import SignalTo, UnknownReason
from reconciler.planner.node.corroboration import identity

T = TypeVar("T")

PROVED_S = 5.0  # how long a proof of a BMC's identity is good for: an action takes up to hours
SECRET_S = 120.0  # to read a secret, write it and read it back, thrice 30 seconds at most, and spare
SLOWEST_UPLOAD = 50_000  # bytes a second
_FAILURES = {
    UnknownReason.UNREACHABLE: Failure.UNREACHABLE,
    UnknownReason.AUTH: Failure.AUTH,
    UnknownReason.BUSY: Failure.BUSY,
    UnknownReason.EXPIRED: Failure.AUTH,
    UnknownReason.TIMEOUT: Failure.TIMEOUT,
    UnknownReason.MALFORMED: Failure.MALFORMED,
    UnknownReason.UNSUPPORTED: Failure.UNSUPPORTED,
    UnknownReason.NOT_ASKED: Failure.UNSUPPORTED,
    UnknownReason.NOT_READ: Failure.UNREACHABLE,
    UnknownReason.EXPLAINED: Failure.UNREACHABLE,
    UnknownReason.CRASHED: Failure.MALFORMED,
}


class WrongMachine(Exception):
    """The BMC could not be proved to be this node's. Nothing was written."""


def known(reading: Answered[T] | Silent) -> T:
    """Return the value of a reading; raise a DriverError that says why there is none."""
    if isinstance(reading, Silent):
        raise DriverError(_FAILURES[reading.reason], reading.detail or reading.reason.value)
    return reading.value


class Deadlines:
    """Bounds calls by a deadline in fleet time. A read that is late is a timeout; a write, ambiguous."""

    def __init__(self, clock: Clock, seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds

    async def read(self, call: Awaitable[T]) -> T:
        return await self._within(call, Failure.TIMEOUT)

    async def write(self, call: Awaitable[T]) -> T:
        return await self._within(call, Failure.AMBIGUOUS)

    async def _within(self, call: Awaitable[T], late: Failure) -> T:
        try:
            return await within(io_seconds(self.clock, self.seconds), call)
        except TimeoutError as error:
            raise DriverError(late, f"no answer within {self.seconds:g}s") from error


class GuardedBmc:
    """The Bmc port for one action on one node. `wrote`: something was written, so the inventory must be read again."""

    def __init__(
        self,
        bmc: Bmc,
        desired: Desired,
        facts: HostFacts | None,
        record: NodeRecord,
        clock: Clock,
        settings: Settings,
        lease: HeldLease,
    ) -> None:
        self.wrote = False
        self._lease = lease
        self._scope = bmc_scope(desired.endpoints.bmc or "")
        self._taken = False
        self._bmc = bmc
        self._desired = desired
        self._facts = facts
        self._record = record
        self._clock = clock
        self._deadlines = Deadlines(clock, settings.redfish_deadline_s)
        self._proved_at: float | None = None  # by the monotonic clock: a wall clock may be set

    async def prove(self) -> None:
        """Raise WrongMachine unless the BMC is proved to be this node's, and DriverError when it does not answer."""
        asked_at = self._clock.monotonic()
        system = known(await self.hot())
        verdict, why = identity(self._desired, system, self._facts, self._record)
        if not verdict:
            raise WrongMachine(why)
        self._proved_at = asked_at

    async def _write(self, call: Callable[[], Awaitable[T]], deadlines: Deadlines | None = None) -> T:
        """Write to the BMC. Raise Occupied while somebody else writes to it, LeaseHeld when the run lost its lease."""
        if not self._taken:
            self._lease.take(self._scope)
            self._taken = True
        await self._prove_unless_fresh()
        self._lease.prove_bmc(self._scope)
        self.wrote = True
        return await (deadlines or self._deadlines).write(call())

    async def _prove_unless_fresh(self) -> None:
        if self._proved_at is None or self._clock.monotonic() - self._proved_at > PROVED_S:
            await self.prove()

    def release(self) -> None:
        """Give back the lease on the BMC, since the action is over."""
        if self._taken:
            self._taken = False
            self._lease.give_back(self._scope)

    # --- reads ---

    async def hot(self) -> Answered[RedfishHot] | Silent:
        return await answer(self._bmc.hot, self._deadlines.seconds, self._clock)

    async def inventory(self) -> Answered[RedfishInventory] | Silent:
        return await answer(self._bmc.inventory, self._deadlines.seconds, self._clock)

    async def log_news(self, told: Sequence[BmcEvent]) -> Answered[bool] | Silent:
        return await answer(lambda: self._bmc.log_news(told), self._deadlines.seconds, self._clock)

    async def media(self) -> str | None:
        return await self._deadlines.read(self._bmc.media())

    async def task(self, uri: str) -> BmcTask | None:
        return await self._deadlines.read(self._bmc.task(uri))

    async def tasks(self) -> Sequence[str]:
        return await self._deadlines.read(self._bmc.tasks())

    async def signed_measurements(self, component: str, nonce: bytes) -> SignedMeasurements:
        """Ask for what changes nothing, and only this node's BMC: another's would answer for another machine."""
        await self._prove_unless_fresh()
        return await self._deadlines.read(self._bmc.signed_measurements(component, nonce))

    # --- writes ---

    async def power(self, action: PowerAction) -> None:
        await self._write(lambda: self._bmc.power(action))

    async def stage_bios(self, attributes: Mapping[str, AttributeValue]) -> None:
        await self._write(lambda: self._bmc.stage_bios(attributes))

    async def clear_bios(self) -> None:
        await self._write(self._bmc.clear_bios)

    async def set_secure_boot(self, enabled: bool) -> None:
        await self._write(lambda: self._bmc.set_secure_boot(enabled))

    async def set_boot_order(self, order: Sequence[str]) -> None:
        await self._write(lambda: self._bmc.set_boot_order(order))

    async def boot_once(self, device: str) -> None:
        await self._write(lambda: self._bmc.boot_once(device))

    async def clear_boot_override(self) -> None:
        await self._write(self._bmc.clear_boot_override)

    async def boot_http(self, url: str) -> None:
        await self._write(lambda: self._bmc.boot_http(url))

    async def http_boot_uri(self) -> str | None:
        return await self._deadlines.read(self._bmc.http_boot_uri())

    async def insert_media(self, url: str) -> None:
        await self._write(lambda: self._bmc.insert_media(url))

    async def eject_media(self) -> None:
        await self._write(self._bmc.eject_media)

    async def update_firmware(self, inventory_id: str, file: FirmwareFile) -> str:
        """Start an update. A BMC that is sent the file gets the time that a slow one needs for it."""
        deadlines = Deadlines(self._clock, self._deadlines.seconds + file.size / SLOWEST_UPLOAD)
        return await self._write(lambda: self._bmc.update_firmware(inventory_id, file), deadlines)

    async def secure_erase(self, serial: str) -> str:
        return await self._write(lambda: self._bmc.secure_erase(serial))

    async def set_indicator(self, lit: bool) -> None:
        await self._write(lambda: self._bmc.set_indicator(lit))

    # Of its password. Not the BMC but programs of whoever runs us take their time, and before a proof that takes none
    # but one login, the identity was proved when the BMC was given the password.

    async def stage_password(self) -> None:
        await self._write(self._bmc.stage_password, self._with_secret())

    async def change_password(self) -> None:
        await self._write(self._bmc.change_password)

    async def is_password_proved(self) -> bool:
        return await self._deadlines.read(self._bmc.is_password_proved())

    async def keep_password(self) -> None:
        await self._write(self._bmc.keep_password, self._with_secret())

    async def put_password_back(self) -> None:
        await self._write(self._bmc.put_password_back, self._with_secret())

    def _with_secret(self) -> Deadlines:
        return Deadlines(self._clock, self._deadlines.seconds + SECRET_S)

    async def unsubscribe(self, ledger: str) -> int:
        return await self._write(lambda: self._bmc.unsubscribe(ledger))

    async def reset(self) -> None:
        await self._write(self._bmc.reset)

    async def close(self) -> None:
        """Do nothing: the session outlives an action, and the fabric closes it."""


class TimedHost:
    """The Host port with deadlines. Any command may change the host, so every one of them needs the lease."""

    def __init__(self, host: Host, clock: Clock, settings: Settings, lease: HeldLease) -> None:
        self._host = host
        self._lease = lease
        self._clock = clock
        self._settings = settings
        self._seconds = settings.ssh_deadline_s

    @property
    def reached(self) -> bool:
        return self._host.reached

    def anew(self, *, renewal_of: str = "") -> TimedHost:
        return _OwnHost(self._host.anew(renewal_of=renewal_of), self._clock, self._settings, self._lease)

    async def facts(self, sysctls: Sequence[str], services: Sequence[str]) -> Answered[HostFacts] | Silent:
        return await answer(lambda: self._host.facts(sysctls, services), self._seconds, self._clock)

    async def run(self, argv: Sequence[str], *, timeout: float, stdin: str = "") -> CommandResult:
        """Run a command. `timeout`: wall-clock seconds for the command; the SSH deadline for connecting is added."""
        spare = io_seconds(self._clock, self._seconds)
        self._lease.prove()
        try:
            return await within(timeout + spare, self._host.run(argv, timeout=timeout, stdin=stdin))
        except TimeoutError as error:
            raise DriverError(Failure.AMBIGUOUS, f"{argv[0]}: no answer after its deadline") from error

    async def close(self) -> None:
        """Do nothing, as for a BMC."""


class _OwnHost(TimedHost):
    """A host over a connection of its own, which whoever opened it closes."""

    async def close(self) -> None:
        await self._host.close()


class TimedPdu:
    """The Pdu port with deadlines. It switches only while the run holds the lease, but on: power is always given back.

    Whoever lost the lease in the midst of a cut must not leave a machine dark, and giving power harms nobody.
    """

    def __init__(self, pdu: Pdu, clock: Clock, settings: Settings, lease: HeldLease) -> None:
        self._pdu = pdu
        self._lease = lease
        self._deadlines = Deadlines(clock, settings.redfish_deadline_s)

    async def outlets(self, names: Sequence[str]) -> Mapping[str, bool]:
        return await self._deadlines.read(self._pdu.outlets(names))

    async def switch(self, names: Sequence[str], *, on: bool) -> None:
        if not on:
            self._lease.prove()
        await self._deadlines.write(self._pdu.switch(names, on=on))


class TimedBmc:
    """Another node's BMC, to be asked whether it answers and for nothing else."""

    def __init__(self, bmc: Bmc, clock: Clock, settings: Settings) -> None:
        self._bmc, self._clock, self._seconds = bmc, clock, settings.redfish_deadline_s

    async def hot(self) -> Answered[RedfishHot] | Silent:
        return await answer(self._bmc.hot, self._seconds, self._clock)


class TimedCluster:
    """The Cluster port with deadlines. It writes only while the run holds the lease."""

    def __init__(self, cluster: Cluster, clock: Clock, settings: Settings, lease: HeldLease) -> None:
        self._cluster = cluster
        self._lease = lease
        self._deadlines = Deadlines(clock, settings.kubernetes_deadline_s)

    async def state(self) -> Answered[ClusterState] | Silent:
        return await answer(self._cluster.state, self._deadlines.seconds, self._deadlines.clock)

    async def member(self, node: str, *, cached: bool = False) -> Member | None:
        return await self._deadlines.read(self._cluster.member(node, cached=cached))

    async def _write(self, call: Callable[[], Awaitable[None]]) -> None:
        self._lease.prove()
        await self._deadlines.write(call())

    async def mark(self, member: Member, mark: Mark) -> None:
        await self._write(lambda: self._cluster.mark(member, mark))

    async def unmark(self, member: Member, *, uncordon: bool) -> None:
        await self._write(lambda: self._cluster.unmark(member, uncordon=uncordon))

    async def set_labels(self, member: Member, labels: Mapping[str, str], taints: Sequence[Taint]) -> None:
        await self._write(lambda: self._cluster.set_labels(member, labels, taints))

    async def remove(self, member: Member) -> None:
        await self._write(lambda: self._cluster.remove(member))

    async def evict(self, pod: Pod, *, grace_s: float | None) -> None:
        await self._write(lambda: self._cluster.evict(pod, grace_s=grace_s))

    async def delete(self, pod: Pod, *, grace_s: float | None) -> None:
        await self._write(lambda: self._cluster.delete(pod, grace_s=grace_s))

    async def annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        await self._write(lambda: self._cluster.annotate(pod, annotations))

    async def post(self, pod: Pod, port: int, path: str, body: str) -> None:
        await self._write(lambda: self._cluster.post(pod, port, path, body))

    async def answers(self, pod: Pod, port: int, path: str) -> bool:
        return await self._deadlines.read(self._cluster.answers(pod, port, path))

    async def signal(self, pod: Pod, name: str, to: SignalTo) -> None:
        await self._write(lambda: self._cluster.signal(pod, name, to))

    def adjustments(self) -> TimedAdjustments | None:
        port = self._cluster.adjustments()
        return None if port is None else TimedAdjustments(port, self._deadlines, self._lease)


class TimedAdjustments:
    """The Adjustments port with deadlines. It writes only while the run holds the lease."""

    def __init__(self, port: Adjustments, deadlines: Deadlines, lease: HeldLease) -> None:
        self._port, self._deadlines, self._lease = port, deadlines, lease

    async def scaled_by(self, pod: Pod) -> AdjustedRef | None:
        return await self._deadlines.read(self._port.scaled_by(pod))

    async def read(self, ref: AdjustedRef) -> Adjusted | None:
        return await self._deadlines.read(self._port.read(ref))

    async def write(self, found: Adjusted, value: Value, record: AdjustmentRecord | None) -> None:
        self._lease.prove()
        await self._deadlines.write(self._port.write(found, value, record))
