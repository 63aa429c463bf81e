"""What an action gets to work with, and the ways in which it ends early."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, assert_never

from reconciler.converge.guarded_ports import GuardedBmc, TimedCluster, TimedHost, WrongMachine, known
from reconciler.converge.lease import Occupied
from reconciler.converge.ports import GateRunner
from reconciler.diff.compare import Comparer
from reconciler.model.desired import Desired, Settings
from reconciler.model.drift import ACTIONABLE, DriftItem
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import HostFacts, Observed
from reconciler.model.outcome import Ambiguous, Declined, Outcome, Permanent, Transient
from reconciler.model.plan import PlannedAction
from reconciler.model.ports import Clock, Installer, Ledger
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Concern

T = TypeVar("T")

OCCUPIED_S = 30.0  # until it is worth asking again whether a BMC is free
LEAST_WAIT_REAL_S = 6.0  # what a scaled clock leaves of a wait must still fit some real requests


class Stop(Exception):
    """Ends an action from anywhere within it."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


@dataclass(frozen=True, slots=True)
class ActionContext:
    """`observed` and `drift` were read for this very action. `intent` is journaled; `resumed` is that of an earlier
    attempt at the same thing whose run ended before it did, {} when there is none."""

    action: PlannedAction
    desired: Desired
    observed: Observed
    record: NodeRecord
    drift: tuple[DriftItem, ...]
    comparer: Comparer
    settings: Settings
    bmc_port: GuardedBmc | None
    host_port: TimedHost | None
    cluster_port: TimedCluster | None
    installer_port: Installer | None
    gate: GateRunner
    ledger: Ledger
    clock: Clock
    attempt: int
    intent: Mapping[str, Any]
    resumed: Mapping[str, Any]
    plan: str
    step: Callable[[str], None]  # tells what is being done

    @property
    def node(self) -> str:
        return self.desired.node

    @property
    def bmc(self) -> GuardedBmc:
        return self._port(self.bmc_port, "the spec names no BMC for this node")

    @property
    def host(self) -> TimedHost:
        return self._port(self.host_port, "the spec names no host address for this node")

    @property
    def cluster(self) -> TimedCluster:
        return self._port(self.cluster_port, "the spec names no cluster")

    @property
    def installer(self) -> Installer:
        return self._port(self.installer_port, "the spec names no installer")

    @staticmethod
    def _port(port: T | None, why: str) -> T:
        if port is None:
            raise Stop(Declined("no_port", why))
        return port

    def to_do(self, concern: Concern) -> tuple[DriftItem, ...]:
        """The drift of one concern that is to be removed: what ignore rules leave of it (invariant 15)."""
        return tuple(item for item in self.drift if item.concern is concern and item.kind in ACTIONABLE)

    def learn(self, **facts: Any) -> None:
        """Journal what a later run must know if this one dies here."""
        self.ledger.amend(self.attempt, facts, self.clock.now())

    async def facts(self) -> HostFacts:
        """The host's facts, read now; DriverError when it does not answer."""
        wanted = self.desired.profile.host
        return known(await self.host.facts(tuple(wanted.sysctls), tuple(wanted.services)))


async def until(
    ctx: ActionContext, probe: Callable[[], Awaitable[T | None]], *, within_s: float, every_s: float
) -> T | None:
    """Ask until there is an answer; None when the time is over. Seconds are the fleet's."""
    spare = LEAST_WAIT_REAL_S / max(ctx.clock.real_seconds(1.0), 1e-6)
    deadline = ctx.clock.monotonic() + max(within_s, min(spare, 3600.0))
    while True:
        found = await probe()
        if found is not None or ctx.clock.monotonic() >= deadline:
            return found
        await ctx.clock.sleep(every_s)


async def tolerate(write: Awaitable[object], *kinds: Failure) -> DriverError | None:
    """Do a write whose effect is read back anyway. The failures named are handed back, to tell if it had none."""
    try:
        await write
    except DriverError as error:
        if error.kind not in kinds:
            raise
        return error
    return None


def outcome_of(error: DriverError) -> Outcome:
    """The one place where failures of drivers become outcomes."""
    match error.kind:
        case Failure.AMBIGUOUS:
            return Ambiguous(error.detail)
        case Failure.BUSY | Failure.CONFLICT | Failure.UNREACHABLE | Failure.TIMEOUT | Failure.MALFORMED:
            return Transient(str(error), error.retry_after)
        case Failure.AUTH | Failure.REJECTED | Failure.UNSUPPORTED:
            return Permanent(str(error))
        case _:
            assert_never(error.kind)


async def carried_out(act: Callable[[ActionContext], Awaitable[Outcome]], ctx: ActionContext) -> Outcome:
    """Run an action to its outcome. Errors of our own go through: they abort the run."""
    try:
        return await act(ctx)
    except Stop as stop:
        return stop.outcome
    except WrongMachine as wrong:
        if ctx.bmc_port is not None and ctx.bmc_port.wrote:
            return Permanent(f"in the midst of it: {wrong}")  # it is not as it was before
        return Declined("identity", str(wrong))
    except Occupied as occupied:
        return Transient(str(occupied), OCCUPIED_S)
    except DriverError as error:
        return outcome_of(error)
    finally:
        if ctx.bmc_port is not None:
            ctx.bmc_port.release()
