"""Give actions their context: ports, facts and settings, and helpers to wait, to write and to end early."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, assert_never

from reconciler.converge.guarded_ports import (
    GuardedBmc,
    TimedBmc,
    TimedCluster,
    TimedHost,
    TimedPdu,
    WrongMachine,
    known,
)
from reconciler.converge.k3s_birth import K3sServer
from reconciler.converge.lease import Occupied
from reconciler.converge.ports import GateRunner, Partners, SharedOutlets
from reconciler.converge.serving_group import GroupNode
from reconciler.diff.compare import Comparer
from reconciler.model.desired import Desired, Settings
from reconciler.model.drift import ACTIONABLE, DriftItem
from reconciler.model.errors import DriverError, Failure, UsageError
from reconciler.model.observed import HostFacts, Observed
from reconciler.model.outcome import Ambiguous, Declined, Outcome, Permanent, Transient
from reconciler.model.plan import PlannedAction
from reconciler.model.ports import Clock, FirmwareFiles, Installer, Ledger
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Concern

T = TypeVar("T")
Act = Callable[["ActionContext"], Awaitable[Outcome]]

FUNCTIONS: Final[dict[str, Act]] = {}  # by the name of the action

OCCUPIED_S = 30.0  # until it is worth asking again whether a BMC is free
LEAST_WAIT_REAL_S = 6.0  # a wait on a scaled clock must still leave time for some real requests


def action(function: Act) -> Act:
    """Register a function as what carries out the action of its name."""
    FUNCTIONS[function.__name__] = function
    return function


class Stop(Exception):
    """Raised anywhere within an action to end it with an outcome."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


def _no_secrets(name: str, server: str | None) -> str:  # noqa: ARG001 - as `secret` of ActionContext
    raise UsageError(f"secret {name}: nothing reads secrets here")


@dataclass(frozen=True, slots=True)
class ActionContext:
    """All that an action may use.

    `observed` and `drift` were read for this action. `postponed`: paths of it that wait for their wave, which nothing
    may set before. `intent` is journaled. `resumed` is the intent of an earlier
    attempt whose run ended before the attempt did, {} if there is none.
    """

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
    firmware_files: FirmwareFiles
    gate: GateRunner
    ledger: Ledger
    clock: Clock
    attempt: int
    intent: Mapping[str, Any]
    resumed: Mapping[str, Any]
    plan: str
    step: Callable[[str], None]  # reports progress to whoever watches the run
    pdus: Mapping[str, TimedPdu] = field(default_factory=dict)  # of the node's outlets, by address
    bystanders: tuple[
        tuple[str, TimedBmc], ...
    ] = ()  # nodes that must not lose power with it, with their BMCs, to read
    servers: tuple[K3sServer, ...] = ()  # of the node's K3s cluster, itself included
    group: tuple[GroupNode, ...] = ()  # the other nodes of its serving group
    partners: Partners | None = None  # for tests of its gate
    siblings: SharedOutlets | None = None  # those that lose power with it; None: nobody does
    operator: str = ""  # who runs this, for evidence
    commit: str = ""  # of the spec
    secret: Callable[[str, str | None], str] = _no_secrets  # by name, and the server at which the host uses it
    postponed: Collection[str] = ()
    conceal: Callable[[str], str] = str  # takes the values of secrets out of a text that is kept

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

    def drift_to_remove(self, concern: Concern) -> tuple[DriftItem, ...]:
        """Return the drift of one concern to be removed now: what no ignore rule covers and no wave holds back."""
        of_concern = (item for item in self.drift if item.concern is concern and item.kind in ACTIONABLE)
        return tuple(item for item in of_concern if item.path not in self.postponed)

    def journal(self, **facts: Any) -> None:
        """Journal facts that a later run needs if this one dies here."""
        self.ledger.amend(self.attempt, facts, self.clock.now())

    async def facts(self) -> HostFacts:
        """Read the host's facts now. Raise DriverError if it does not answer."""
        wanted = self.desired.profile.host
        return known(await self.host.facts(tuple(wanted.sysctls), tuple(wanted.services)))


def patience_s(ctx: ActionContext, within_s: float) -> float:
    """Return `within_s`, or more where a scaled clock would leave no time for some real requests."""
    spare = LEAST_WAIT_REAL_S / max(ctx.clock.real_seconds(1.0), 1e-6)
    return max(within_s, min(spare, 3600.0))


async def poll(
    ctx: ActionContext, probe: Callable[[], Awaitable[T | None]], *, within_s: float, every_s: float, soon: bool = False
) -> T | None:
    """Call `probe` until it returns a value; None if the time is over. Seconds are those of the fleet's clock.

    `soon`: most end long before the slow ones, so each pause is short as long as little time has passed.
    """
    began = ctx.clock.monotonic()
    deadline = began + patience_s(ctx, within_s)
    while True:
        found, now = await probe(), ctx.clock.monotonic()
        if found is not None or now >= deadline:
            return found
        await ctx.clock.sleep(growing_pause_s(now - began, every_s) if soon else every_s)


def growing_pause_s(waited_s: float, longest_s: float) -> float:
    """Return the pause before the next look: a tenth of the time waited so far, between one second and `longest_s`.

    So a look comes at most a tenth later than the event, and what takes long is not asked more often than before.
    """
    return min(longest_s, max(1.0, waited_s / 10))


async def tolerate(write: Awaitable[object], *kinds: Failure) -> DriverError | None:
    """Do a write whose effect is read back anyway. Return a failure of one of `kinds` instead of raising it."""
    try:
        await write
    except DriverError as error:
        if error.kind not in kinds:
            raise
        return error
    return None


def outcome_of(error: DriverError) -> Outcome:
    """Return the outcome of an action that a driver's failure ended. No other place decides this."""
    match error.kind:
        case Failure.AMBIGUOUS:
            return Ambiguous(error.detail)
        case Failure.BUSY | Failure.CONFLICT | Failure.UNREACHABLE | Failure.TIMEOUT | Failure.MALFORMED:
            return Transient(str(error), error.retry_after)
        case Failure.AUTH | Failure.REJECTED | Failure.UNSUPPORTED:
            return Permanent(str(error))
        case _:
            assert_never(error.kind)


async def carry_out(act: Act, ctx: ActionContext) -> Outcome:
    """Run an action and return its outcome. Errors of the reconciler itself are not caught."""
    try:
        return await act(ctx)
    except Stop as stop:
        return stop.outcome
    except WrongMachine as wrong:
        if ctx.bmc_port is not None and ctx.bmc_port.wrote:
            return Permanent(f"while it was under way: {wrong}")  # the action has changed something already
        return Declined("identity", str(wrong))
    except Occupied as occupied:
        return Transient(str(occupied), OCCUPIED_S)
    except DriverError as error:
        return outcome_of(error)
    finally:
        if ctx.bmc_port is not None:
            ctx.bmc_port.release()
