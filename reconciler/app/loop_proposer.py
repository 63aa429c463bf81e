"""Pull requests that the loop keeps, each in a task of its own that the loop never waits for."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, TypeVar

from reconciler.app.clocks import RealClock
from reconciler.app.forge_job import spec_forge
from reconciler.app.proposing import Proposed, ProposedChange, propose
from reconciler.app.workspace import Workspace
from reconciler.converge.events import LoopTold, Progress
from reconciler.drivers.forge import connect
from reconciler.model.crash import of_its_own_async
from reconciler.model.desired import Fleet
from reconciler.model.errors import DriverError, Failure, ReconcilerError, UsageError
from reconciler.model.forge import ProposingForge, SpecForge
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan

if TYPE_CHECKING:
    from reconciler.drivers.ledger import SqlLedger

_T = TypeVar("_T")
_TRY_S: Final = 60.0  # wall clock: for one try, so that a forge that hangs is told of
_CHANGE_S: Final = 600.0  # wall clock: for what is proposed; an inventory of 10,000 nodes has many pages


async def _within(seconds: float, what: str, work: Awaitable[_T]) -> _T:
    """Return what the work returns. Raise TimeoutError, which says what had no end."""
    try:
        async with asyncio.timeout(seconds):
            return await work
    except TimeoutError:
        raise TimeoutError(f"{what}: no end after {seconds:.0f}s") from None


@dataclass(frozen=True, slots=True)
class ProposerOptions:
    """`holder`: this process, as the lease of the fleet names it. `interval_s`: between two tries, at least."""

    holder: str
    interval_s: float
    redact: bool


class LoopProposer(ABC):
    """Proposes what passes find, at most once per interval, while this process holds the fleet's lease.

    What was done is in the journal. A failure is told once, until a try succeeds or fails in another way. `what`: is
    proposed, in a word.
    """

    what: ClassVar[str]

    def __init__(self, workspace: Workspace, ledger: SqlLedger, progress: Progress, options: ProposerOptions) -> None:
        self._workspace = workspace
        self._ledger = ledger
        self._progress = progress
        self._options = options
        self._last: datetime | None = None  # when the pass of the last try began
        self._trying: asyncio.Task[None] | None = None
        self._told = ""  # the last sentence on why it is left
        self._trouble = ""
        self._adopted: frozenset[tuple[str, str, str]] = frozenset()  # by the last change that the forge was asked for

    def pass_ended(self, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        """Begin to propose what this pass found, unless it is too early, or an earlier try goes on."""
        forge = self._forge(fleet)
        if forge is None:
            return
        interval = timedelta(seconds=self._interval_s(fleet))
        early = self._last is not None and observation.started_at - self._last < interval
        if early or (self._trying is not None and not self._trying.done()):
            return
        self._last = observation.started_at
        self._trying = asyncio.create_task(self._try(forge, fleet, plan, observation))

    @abstractmethod
    def _forge(self, fleet: Fleet) -> SpecForge | None:
        """Return where to propose; None = the spec asks for no proposals."""

    @abstractmethod
    def _interval_s(self, fleet: Fleet) -> float:
        """Return the time between two tries."""

    @abstractmethod
    async def _change(self, fleet: Fleet, plan: Plan, observation: Observation) -> ProposedChange | None:
        """Return what to propose; None where too little is known. The ledger is read on the loop's thread alone."""

    async def close(self) -> None:
        """End the try under way: what it has written, the next one finds."""
        if self._trying is not None:
            self._trying.cancel()
            with suppress(asyncio.CancelledError):
                await self._trying

    async def _try(self, forge: SpecForge, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        work = partial(self._try_once, forge, fleet, plan, observation)
        await of_its_own_async(
            "proposal", f"proposing {self.what}", work, lambda crash: self._failed(crash.sentence, crash.sentence)
        )

    async def _try_once(self, forge: SpecForge, fleet: Fleet, plan: Plan, observation: Observation) -> None:
        try:
            change = await _within(_CHANGE_S, f"reading {self.what}", self._wanted(fleet, plan, observation))
            proposed = change is not None and await _within(
                _TRY_S, forge.repository, self._propose(forge, fleet, change)
            )
        except TimeoutError as error:
            self._failed("outage", str(error))
        except DriverError as error:
            refused = error.kind in (Failure.AUTH, Failure.REJECTED, Failure.UNSUPPORTED)
            self._failed("refused" if refused else "outage", str(error))
        except ReconcilerError as error:
            self._failed(str(error), str(error))
        else:
            if proposed and self._trouble:
                self._progress(LoopTold("proposal", f"{self.what} is proposed again"))
                self._trouble = ""

    def _failed(self, kind: str, why: str) -> None:
        if kind != self._trouble:
            self._progress(LoopTold("proposal", f"{self.what} is not proposed: {why}", problem=True))
        self._trouble = kind

    async def _wanted(self, fleet: Fleet, plan: Plan, observation: Observation) -> ProposedChange | None:
        """Return what to propose: None where another process leads, or too little was seen."""
        source = fleet.source
        if not source.commit or source.dirty:
            raise UsageError(f"{source.directory} is not as committed: a pull request is made of the spec in git")
        if not self._leads(fleet):
            return None
        wanted = await self._change(fleet, plan, observation)
        if wanted is None:
            return None
        missing = self._adopted - wanted.adopted
        if missing and wanted.adopted < self._adopted and wanted.unsure >= {node for node, *_ in missing}:
            return None  # without the nodes that are silent now it is another change, which would undo approvals
        return wanted

    async def _propose(self, forge: SpecForge, fleet: Fleet, wanted: ProposedChange) -> bool:
        """Return whether the forge was asked: not where another process leads."""
        said: list[str] = []
        port = await self._connect(forge)
        try:
            if not self._leads(fleet):  # both may take long
                return False
            end = await propose(port, wanted, said.append)
        finally:
            await port.close()
        self._adopted = wanted.adopted
        self._tell(end, "; ".join(said))
        return True

    def _leads(self, fleet: Fleet) -> bool:
        held = self._ledger.holder(fleet.settings.fleet, self._workspace.clock.now())
        return held is not None and held.holder == self._options.holder

    async def _connect(self, place: SpecForge) -> ProposingForge:
        url, token = await asyncio.to_thread(spec_forge, place, self._workspace.secrets)  # a program may print it
        port = connect(place.repository, token.reveal(), RealClock(), kind=place.kind, url=url)
        assert isinstance(port, ProposingForge)
        return port

    def _tell(self, end: Proposed, sentence: str) -> None:
        if end is Proposed.WRITTEN:
            self._ledger.note("", "propose", sentence, self._workspace.clock.now())
        if end is Proposed.WRITTEN or (end is Proposed.LEFT and sentence != self._told):
            self._progress(LoopTold("proposal", sentence, problem=end is Proposed.LEFT))
        self._told = sentence
