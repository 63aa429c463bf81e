"""One command's world: the spec, the clock, the ledger, the fabric, and the passes over them."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections import Counter
from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from reconciler import __version__
from reconciler.app.clocks import RealClock, ScaledClock
from reconciler.app.gc_pause import put_off
from reconciler.app.scope import select
from reconciler.cli.options import Common
from reconciler.cli.terminal import say
from reconciler.model.desired import DesiredImage, Fleet
from reconciler.model.documents import load
from reconciler.model.drift import TOLD
from reconciler.model.errors import StalePlan, UsageError, first_of_ours
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan, Scope
from reconciler.model.ports import Ledger, Recollection
from reconciler.model.report import DRIFT_FORMAT, DriftReport

T = TypeVar("T")

if TYPE_CHECKING:
    from collections.abc import Iterator

    from reconciler.app.wire_fabric import WireFabric
    from reconciler.converge.gate import AcceptanceGate
    from reconciler.drivers.endpoints import Overlay
    from reconciler.drivers.ledger import SqlLedger
    from reconciler.drivers.secrets import SecretStore
    from reconciler.planner.fleet.plan_request import PlanRequest
    from reconciler.planner.node.estimates import Estimates


def run_async(work: Coroutine[Any, Any, T]) -> T:
    """asyncio.run, but for what it returns: asyncio formats a finished main task, result and all, twice.

    SIGINT, or SIGTERM, cancels `work` each time that it comes, so that a second one cuts the tidying up short. A
    KeyboardInterrupt out of nowhere, as asyncio raises for the second, could come while a journal is being written.
    """
    found: list[T] = []

    async def keep() -> None:
        task = asyncio.current_task()
        assert task is not None
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, task.cancel)
        found.append(await work)

    try:
        asyncio.run(keep())
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    except ExceptionGroup as group:
        if (error := first_of_ours(group)) is None:
            raise
        raise error from None
    return found[0]


class Session:
    def __init__(self, common: Common) -> None:
        self.common = common

    # --- the spec ------------------------------------------------------------------------------------------------

    @cached_property
    def fleet(self) -> Fleet:
        """Loaded, checked and resolved; warnings go to stderr. SpecError with every problem at once."""
        return self.fleet_at(self.common.rev)

    @property
    def watched(self) -> Fleet:
        """The fleet as it is reached and observed: nothing else may reach a driver."""
        return self.fleet

    def fleet_at(self, rev: str | None) -> Fleet:
        from reconciler.drivers.git import describe, read_revision
        from reconciler.model.errors import SpecError
        from reconciler.spec import check_spec

        directory = self.common.spec
        source: Path | Mapping[str, bytes] = directory
        if rev is None:
            check_directory(directory)
            origin = describe(directory)
        else:
            source, origin = read_revision(directory, rev)
        with put_off():
            fleet, diagnostics = check_spec(source, directory=str(directory), origin=origin)
        if fleet is None:
            raise SpecError(diagnostics)
        for diagnostic in diagnostics:
            say(f"warning: {diagnostic}", err=True)
        return fleet

    @cached_property
    def selection(self) -> tuple[list[str], Scope]:
        return select(self.fleet, self.common.limit, self.common.exclude)

    def check_selection(self) -> None:
        """UsageError for a wrong --limit or --exclude, which is said before anything is contacted."""
        _ = self.selection

    def narrow(self, plan: Plan) -> None:
        """A plan of some nodes says nothing of the others, so they are left out. StalePlan when the spec has none."""
        if not plan.scope.limit and not plan.scope.exclude:
            return
        names = [name for name in self.selection[0] if name in plan.nodes]
        if not names:
            raise StalePlan(f"plan {plan.id} is for {', '.join(list(plan.nodes)[:5])}, which are not selected here")
        self.selection = names, Scope(plan.scope.limit, plan.scope.exclude, len(names), len(self.fleet.nodes))

    # --- the world -----------------------------------------------------------------------------------------------

    @cached_property
    def overlay(self) -> Overlay | None:
        if self.common.endpoints is None:
            return None
        from reconciler.drivers.endpoints import load_endpoints

        return load_endpoints(self.common.endpoints)

    @property
    def endpoints_digest(self) -> str:
        """SHA-256 digest of the file given with --endpoints; "" when none is given."""
        return "" if self.overlay is None else self.overlay.digest

    @cached_property
    def clock(self) -> RealClock | ScaledClock:
        if self.overlay is None or self.overlay.time_scale == 1.0:
            return RealClock()
        return ScaledClock(self.overlay.time_scale, self.overlay.epoch or datetime.now(UTC))

    @property
    def time_scale(self) -> float:
        return 1.0 if self.overlay is None else self.overlay.time_scale

    @cached_property
    def secrets(self) -> SecretStore:
        from reconciler.drivers.secrets import SecretStore

        return SecretStore.load() if self.overlay is None else self.overlay.secrets

    def ledger_place(self, fleet: str) -> str | Path:
        """--ledger; beside the endpoints of a lab; or one file per fleet in the user's state directory."""
        if self.common.ledger is not None:
            return self.common.ledger
        if self.common.endpoints is not None:
            return self.common.endpoints.parent / "ledger.sqlite"
        return self.state_directory() / f"{fleet}.sqlite"

    def state_directory(self) -> Path:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "reconciler"

    def open_ledger(self, where: str | Path, fleet: str = "") -> SqlLedger:
        """Its leases go by the clock that all runners share."""
        from reconciler.drivers.ledger import SqlLedger

        return SqlLedger(where, fleet=fleet, clock=self.clock)

    @contextmanager
    def ledger(self) -> Iterator[SqlLedger]:
        found = self.open_ledger(self.ledger_place(self.fleet.settings.fleet), self.fleet.settings.fleet)
        try:
            yield found
        finally:
            found.close()

    def memory(self) -> AbstractContextManager[Recollection]:
        """What plans are made from besides an observation: the ledger, but for those that are made offline."""
        return self.ledger()

    def fabric(self) -> WireFabric:
        from reconciler.app.wire_fabric import WireFabric

        return WireFabric(self.watched, self.clock, self.secrets, self.overlay)

    @cached_property
    def gate(self) -> AcceptanceGate:
        from reconciler.converge.gate import AcceptanceGate

        return AcceptanceGate(self.secrets.public_key)

    @cached_property
    def signatures(self) -> Mapping[tuple[str, str], bool | None]:
        """Each image that the spec pins -> whether its signature verifies."""
        return self.verified(self.fleet)

    def verified(self, fleet: Fleet) -> Mapping[tuple[str, str], bool | None]:
        images: dict[tuple[str, str], DesiredImage] = {}
        for node in fleet.nodes.values():
            if node.profile.image is not None:
                images[node.profile.image.name, node.profile.image.version] = node.profile.image
        return {key: self.gate.verified(image) for key, image in images.items()}

    # --- passes --------------------------------------------------------------------------------------------------

    def observe(self) -> Observation:
        """One pass over the selected nodes; progress on stderr."""
        return run_async(self._observe())

    async def _observe(self) -> Observation:
        from reconciler.cli.progress import make_progress
        from reconciler.converge.observe import observe

        fabric = self.fabric()
        try:
            with make_progress("observing", self.time_scale) as progress:
                return await observe(
                    self.watched, self.selection[0], fabric, self.clock,
                    fresh_inventory=True, progress=progress, time_scale=self.time_scale,
                )  # fmt: skip
        finally:
            await fabric.close()

    def observation_from(self, path: Path) -> Observation:
        """A pass that `observe --out` wrote. UsageError when it is another fleet's, or lacks selected nodes."""
        from reconciler.app.documents import for_plans_alone, is_published

        text = path.read_bytes()
        if is_published(text):
            raise for_plans_alone(path)
        found = load(Observation, text, name=str(path))
        if found.fleet != self.fleet.settings.fleet:
            raise UsageError(
                f"{path} is an observation of fleet {found.fleet}, the spec is of {self.fleet.settings.fleet}"
            )
        missing = [name for name in self.selection[0] if name not in found.nodes]
        if missing:
            raise UsageError(f"{path} has no observation of {', '.join(missing[:5])}; observe again, or use --limit")
        return found

    def make_plan(self, observation: Observation, ledger: Recollection, plan_id: str) -> Plan:
        from reconciler.planner.fleet.plan_request import take_snapshot
        from reconciler.planner.fleet.planner import plan_fleet

        snapshot = take_snapshot(ledger, self.fleet, self.selection[0])
        request = self.plan_request(self.fleet, ledger, plan_id)
        with put_off():
            return plan_fleet(self.fleet, observation, snapshot, self.clock.now(), request)

    def plan_request(self, fleet: Fleet, ledger: Recollection, plan_id: str) -> PlanRequest:
        """The request for a plan of the selected nodes. `fleet`: whose images are to be verified."""
        from reconciler.planner.fleet.plan_request import PlanRequest

        names, scope = self.selection
        return PlanRequest(
            plan_id, self.verified(fleet), names, scope, self.estimates(ledger), endpoints=self.endpoints_digest
        )

    def estimates(self, ledger: Recollection) -> Estimates:
        from reconciler.planner.node.estimates import estimates

        return estimates(self.fleet, ledger.durations())

    def learn(self, observation: Observation, ledger: Ledger) -> None:
        """Keep what this pass teaches: agreed identities, since when a source has been silent, and whether it storms.

        A pass on which this machine saw nothing teaches nothing.
        """
        from reconciler.converge.brake import look_for_storm
        from reconciler.converge.remember import remember_facts
        from reconciler.planner.fleet.observer_outage import observer_outage

        if observer_outage(self.watched, observation):
            return
        names, now = self.selection[0], self.clock.now()
        records = ledger.nodes(names)
        remember_facts(ledger, (observation.nodes[name] for name in names), records, now)
        look_for_storm(ledger, self.watched, observation, records, now)

    def look_into(self, observation: Observation, ledger: SqlLedger, command: str, *, now: bool) -> Plan:
        """The plan of a look at the nodes, kept in the ledger under its id, which is that of a run still to be ended.

        `now`: as for `remember`.
        """
        from reconciler.converge.remember import remember_holds

        run = new_id(command, self.clock.now())
        ledger.start_run(run, command, self.fleet.source.commit, "", self.clock.now())
        if now:
            self.learn(observation, ledger)
        remember_holds(ledger, self.fleet, self.clock.now())
        return self.remember(self.make_plan(observation, ledger, run), ledger, run, observation, now=now)

    def remember(self, plan: Plan, ledger: Ledger, run: str, observation: Observation, *, now: bool) -> Plan:
        """Record the drift of a plan; the plan again, each item with when it was first and last seen.

        `now`: and how its nodes stand, as this pass found them, which an observation of earlier on does not tell. A
        pass on which this machine saw nothing tells nothing.
        """
        from reconciler.converge.remember import remember_plans, remember_service_status
        from reconciler.planner.fleet.observer_outage import observer_outage

        if observer_outage(self.watched, observation):
            return plan
        records = ledger.nodes(list(plan.nodes))
        seen = remember_plans(ledger, self.fleet, plan.nodes, observation.nodes, records, run, self.clock.now())
        if now:
            remember_service_status(ledger, self.fleet, plan.nodes, self.clock.now())
        nodes = {}
        for name, node in plan.nodes.items():
            items = tuple(
                replace(item, first_seen=seen[name, item.path][0], last_seen=seen[name, item.path][1])
                if (name, item.path) in seen
                else item
                for item in node.drift
            )
            nodes[name] = replace(node, drift=items)
        return replace(plan, nodes=nodes)


def check_directory(spec: Path) -> None:
    """UsageError unless there is such a directory: a wrong path is no invalid spec."""
    if not spec.is_dir():
        raise UsageError(f"there is no directory {spec}; name the one that holds the spec, or change to where it is")


def drift_report(plan: Plan, observation: Observation) -> DriftReport:
    items = tuple(item for node in plan.nodes.values() for item in node.drift)
    return DriftReport(
        format_version=DRIFT_FORMAT,
        tool_version=__version__,
        fleet=plan.fleet,
        source=plan.source,
        generated_at=plan.created_at,
        started_at=observation.started_at,
        finished_at=observation.finished_at,
        scope=plan.scope,
        incomplete=plan.incomplete,
        tolerated=plan.tolerated,
        changes=any(item.kind in TOLD for item in items),
        items=items,
        counts=dict(sorted(Counter(item.kind.value for item in items).items())),
        insecure=plan.insecure,
        time_scale=plan.time_scale,
        stopped=plan.stopped,
        braked=plan.braked,
    )


def new_id(prefix: str, now: datetime) -> str:
    """Readable and sortable, and unguessable enough that two runs never share one."""
    return f"{prefix}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def whoami() -> str:
    """Who holds a lease or sets a hold, as others will read it."""
    import getpass
    import socket

    return os.environ.get("RECONCILER_ACTOR") or f"{getpass.getuser()}@{socket.gethostname()} pid {os.getpid()}"


def on_terminal() -> bool:
    return sys.stderr.isatty()
