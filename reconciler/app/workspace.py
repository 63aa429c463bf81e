"""The spec, the nodes, the clock, the ledger and the drivers that one use case works with, and its passes over them."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from reconciler.app.clocks import RealClock, ScaledClock
from reconciler.app.documents import is_published, published_only_for_plans
from reconciler.app.engine import Engine
from reconciler.app.node_selection import select_nodes
from reconciler.app.ports import FleetRequest, Frontend
from reconciler.app.runtime import new_id, paused_garbage_collection, run_async
from reconciler.app.validate import check_directory
from reconciler.converge.brake import foreseen_brake
from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.observation_pass import ObservationPass, with_sightings
from reconciler.converge.observe import observe
from reconciler.drivers.endpoints import Overlay, load_endpoints
from reconciler.drivers.git import describe, read_revision
from reconciler.drivers.secrets import SecretStore
from reconciler.model.desired import DesiredImage, Fleet
from reconciler.model.documents import load
from reconciler.model.errors import NoLedger, SpecError, StalePlan, UsageError
from reconciler.model.ledger_ports import InstallLedger
from reconciler.model.observed import Observation
from reconciler.model.plan import KnownLedger, Plan, Scope
from reconciler.model.ports import Ledger, Recollection
from reconciler.model.records import Hold
from reconciler.planner.fleet.observer_outage import observer_outage
from reconciler.planner.fleet.plan_request import LedgerSnapshot, PlanRequest, take_snapshot
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.planner.node.estimates import Estimates, estimates
from reconciler.spec import check_spec

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from reconciler.app.wire_fabric import WireFabric
    from reconciler.drivers.kube import KubectlCluster
    from reconciler.drivers.kube.rights import Right
    from reconciler.drivers.ledger import SqlLedger

T = TypeVar("T")


class Workspace:
    """The world of one use case. Each part is loaded or opened when it is first needed.

    `open_ledger`, `fabric` and `gate` import drivers on demand: that takes a second, which `--help` need not spend.
    """

    def __init__(self, request: FleetRequest, frontend: Frontend = Frontend()) -> None:  # noqa: B008 - it is frozen
        self.request = request
        self.frontend = frontend
        self.engine = Engine(request)
        self.foreseen: tuple[Hold, ...] = ()  # holds that the next run will set

    # --- the spec ------------------------------------------------------------------------------------------------

    @cached_property
    def fleet(self) -> Fleet:
        """Load, check and resolve the spec, and report its warnings. Raise SpecError with all of its problems."""
        return self.fleet_at(self.request.rev)

    @property
    def watched(self) -> Fleet:
        """The fleet as it is contacted and observed. Drivers may get no other."""
        return self.fleet

    def fleet_at(self, rev: str | None, *, acceptance: str = "") -> Fleet:
        """Load the spec at a git revision, or from the work tree for None. `acceptance`: as for `check_spec`."""
        directory = self.request.spec
        source: Path | Mapping[str, bytes] = directory
        if rev is None:
            check_directory(directory)
            origin = describe(directory)
        else:
            source, origin = read_revision(directory, rev)
        with paused_garbage_collection():
            fleet, diagnostics = check_spec(source, directory=str(directory), origin=origin, acceptance=acceptance)
        if fleet is None:
            raise SpecError(diagnostics)
        for diagnostic in diagnostics:
            self.frontend.say(f"warning: {diagnostic}")
        return fleet

    @cached_property
    def selection(self) -> tuple[list[str], Scope]:
        """The names of the selected nodes, in the order of the fleet, and the scope that a document shows."""
        return select_nodes(self.fleet, self.request.limit, self.request.exclude)

    def check_selection(self) -> None:
        """Raise UsageError for a wrong --limit or --exclude, before anything is contacted."""
        _ = self.selection

    def narrow(self, plan: Plan) -> None:
        """Limit the selection to the nodes of `plan`. Raise StalePlan when none of them is selected."""
        if not plan.scope.limit and not plan.scope.exclude:
            return
        names = [name for name in self.selection[0] if name in plan.nodes]
        if not names:
            raise StalePlan(f"plan {plan.id} is for {', '.join(list(plan.nodes)[:5])}, which are not selected here")
        self.selection = names, Scope(plan.scope.limit, plan.scope.exclude, len(names), len(self.fleet.nodes))

    # --- clock, ledger and drivers ---------------------------------------------------------------------------------

    @cached_property
    def overlay(self) -> Overlay | None:
        if self.request.endpoints is None:
            return None
        return load_endpoints(self.request.endpoints)

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
        return SecretStore.load() if self.overlay is None else self.overlay.secrets

    def ledger_place(self, fleet: str) -> str | Path:
        """Return the requested ledger, or that beside the endpoints of a lab, or that in the state directory."""
        if self.request.ledger is not None:
            return self.request.ledger
        if self.request.endpoints is not None:
            return self.request.endpoints.parent / "ledger.sqlite"
        return self.state_directory() / f"{fleet}.sqlite"

    def state_directory(self) -> Path:
        return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "reconciler"

    def open_ledger(
        self, where: str | Path, fleet: str = "", *, create: bool = True, reading: bool = False
    ) -> SqlLedger:
        """Open a ledger. Its leases use the clock that all runners share. `create`, `reading`: as for SqlLedger."""
        from reconciler.drivers.ledger import SqlLedger

        return SqlLedger(where, fleet=fleet, clock=self.clock, create=create, reading=reading)

    @contextmanager
    def ledger(self) -> Iterator[SqlLedger]:
        """Open the ledger for what acts or decides, and make it when it is not there."""
        found = self.open_ledger(self.ledger_place(self.fleet.settings.fleet), self.fleet.settings.fleet)
        try:
            yield found
        finally:
            found.close()

    @contextmanager
    def present_ledger(self, *, reading: bool = True) -> Iterator[SqlLedger]:
        """Open the ledger for what changes nothing, and make none, unless the request says so.

        `reading`: every write is refused; else what was seen is recorded. Where the default ledger is not there yet, an
        empty one that is forgotten at the end takes its place. Raise UsageError when it is one that the request names.
        """
        from reconciler.drivers.ledger import SqlLedger

        fleet = self.fleet.settings.fleet
        where = self.ledger_place(fleet)
        with tempfile.TemporaryDirectory(prefix="reconciler-") as scratch:
            try:
                found = self.open_ledger(where, fleet, create=self.request.create_ledger, reading=reading)
            except NoLedger as missing:
                if self.request.ledger is not None:
                    raise UsageError(
                        f"{missing}: is --ledger (RECONCILER_LEDGER) right? apply and run make one that is not there, "
                        "and so does --create-ledger"
                    ) from None
                found = SqlLedger.not_there(missing.name, Path(scratch), fleet=fleet, clock=self.clock)
            try:
                yield found
            finally:
                found.close()

    def tell_missing(self, ledger: SqlLedger) -> None:
        """Say on the frontend that there is no ledger yet, where it matters for what is recorded or told."""
        if ledger.place.kind == "none":
            self.frontend.say(f"there is no ledger at {ledger.place.name} yet; apply and run make it")

    def memory(self) -> AbstractContextManager[Recollection]:
        """Open what plans are made from besides an observation, which is the ledger unless the plan is offline."""
        return self.present_ledger()

    def fabric(self, ledger: InstallLedger | None = None, revoked: Sequence[str] = ()) -> WireFabric:
        """Return the ports of the nodes. `ledger`: for what installs. `revoked`: host keys, for what only reads."""
        from reconciler.app.wire_fabric import WireFabric

        observer = self.engine.observer(self.clock, (lambda: revoked) if ledger is None else ledger.revoked_host_keys)
        return WireFabric(
            self.watched, self.clock, self.secrets, self.overlay, ledger=ledger, revoked=revoked, observer=observer
        )

    @cached_property
    def gate(self) -> AcceptanceGate:
        from reconciler.app.extensions import acceptance_gate

        return acceptance_gate(self.secrets.public_key, lambda: self.fleet)

    @cached_property
    def signatures(self) -> Mapping[tuple[str, str], bool | None]:
        """Verify the signature of each image in the spec: (name, version) -> result; None without a key."""
        return self.verified(self.fleet)

    def verified(self, fleet: Fleet) -> Mapping[tuple[str, str], bool | None]:
        images: dict[tuple[str, str], DesiredImage] = {}
        for node in fleet.nodes.values():
            if node.profile.image is not None:
                images[node.profile.image.name, node.profile.image.version] = node.profile.image
        return {key: self.gate.verified(image) for key, image in images.items()}

    # --- passes --------------------------------------------------------------------------------------------------

    def observe(self, previous: Observation | None = None) -> Observation:
        """Read the selected nodes once, and show the progress. An inventory in `previous` is read anew when it must."""
        return run_async(self._observe(self._revoked_host_keys(), previous))

    def _revoked_host_keys(self) -> Sequence[str]:
        """Return the host keys that are never trusted; none where no ledger is there yet."""
        fleet = self.fleet.settings.fleet
        try:
            ledger = self.open_ledger(self.ledger_place(fleet), fleet, create=False, reading=True)
        except NoLedger:
            return ()
        try:
            return tuple(ledger.revoked_host_keys())
        finally:
            ledger.close()

    async def _observe(self, revoked: Sequence[str], previous: Observation | None) -> Observation:
        fabric = self.fabric(revoked=revoked)
        try:
            with self.frontend.progress("observing", self.clock.now) as progress:
                return await observe(
                    self.watched, self.selection[0], fabric, self.clock,
                    previous=previous, fresh_inventory=previous is None, progress=progress, time_scale=self.time_scale,
                )  # fmt: skip
        finally:
            await fabric.close()

    @property
    def wanted_rights(self) -> tuple[Right, ...]:
        """The rights in the cluster that this spec needs."""
        from reconciler.drivers.kube.rights import rights_for

        policies = {node.profile.digest: node.profile.drain for node in self.fleet.nodes.values()}
        return rights_for(policies.values())

    def missing_rights(self) -> tuple[Right, ...]:
        """Ask the cluster which rights it does not give us. Raise DriverError when it does not answer."""
        return self.ask_cluster(lambda cluster: cluster.missing_rights(self.wanted_rights))

    def ask_cluster(self, ask: Callable[[KubectlCluster], Awaitable[tuple[T, ...]]]) -> tuple[T, ...]:
        async def asking() -> tuple[T, ...]:
            fabric = self.fabric()
            try:
                cluster = fabric.kubectl_cluster()
                await fabric.prepare_cluster()
                return () if cluster is None else await ask(cluster)
            finally:
                await fabric.close()

        return run_async(asking())

    def observation(self, file: Path | None) -> Observation:
        """Return the observation in `file`, or read the nodes when it is None: not in vain, if there is no ledger."""
        if file is not None:
            return self.observation_from(file)
        with self.memory():
            pass
        return self.observe()

    def observation_from(self, path: Path) -> Observation:
        """Load an observation that `observe --out` wrote. Raise UsageError for another fleet or a missing node."""
        text = path.read_bytes()
        if is_published(text):
            raise published_only_for_plans(path)
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
        fleet, clock = self.fleet, self.clock
        request, snapshot = self.plan_request(fleet, ledger, plan_id), self.snapshot(fleet, ledger)
        with paused_garbage_collection():
            kept = self.engine.planned_ahead(fleet, observation, snapshot, clock, request)
            made = plan_fleet(fleet, observation, snapshot, clock.now(), request, kept)
        return replace(made, ledger=self.known_ledger(ledger))

    def snapshot(self, fleet: Fleet, ledger: Recollection) -> LedgerSnapshot:
        """Return what a plan of the selected nodes needs of the ledger, with the holds that are foreseen."""
        found = take_snapshot(ledger, fleet, self.selection[0])
        return replace(found, holds=(*found.holds, *self.foreseen))

    def known_ledger(self, ledger: Recollection) -> KnownLedger:
        """Describe the ledger for the reader of a plan of the selected nodes."""
        names = self.selection[0]
        certified = sum(record.certificate is not None for record in ledger.nodes(names).values())
        return KnownLedger(ledger.place.kind, ledger.place.name, certified, len(names))

    def foresee(self, observation: Observation, ledger: Recollection) -> None:
        """Have plans show the storm brake that the next run would set after this observation."""
        if observer_outage(self.watched, observation):
            return
        records, now = ledger.nodes(self.selection[0]), self.clock.now()
        brake = foreseen_brake(ledger, self.watched, observation, records, now)
        self.foreseen = () if brake is None else (brake,)

    def plan_request(self, fleet: Fleet, ledger: Recollection, plan_id: str) -> PlanRequest:
        """Return the request for a plan of the selected nodes. `fleet`: whose images are to be verified."""
        names, scope = self.selection
        return PlanRequest(
            plan_id, self.verified(fleet), names, scope, self.estimates(ledger), endpoints=self.endpoints_digest
        )

    def estimates(self, ledger: Recollection) -> Estimates:
        return estimates(self.fleet, ledger.durations())

    def observation_pass(self, observation: Observation, ledger: Ledger) -> ObservationPass:
        names = self.selection[0]
        return ObservationPass(self.watched, observation, names, ledger, self.clock, ledger.nodes(names))

    def learn(self, observation: Observation, ledger: Ledger) -> None:
        """Record the identities and silences that this observation teaches."""
        self.observation_pass(observation, ledger).learn(acts=False)

    def look_into(self, observation: Observation, ledger: SqlLedger, command: str, *, now: bool) -> Plan:
        """Return the plan of a pass, whose ID is that of a new run. The caller ends it. `now`: as for `remember`."""
        run = new_id(command, self.clock.now())
        ledger.start_run(run, command, self.fleet.source.commit, "", self.clock.now())
        if now:
            self.learn(observation, ledger)
            self.foresee(observation, ledger)
        return self.remember(self.make_plan(observation, ledger, run), ledger, run, observation, now=now)

    def remember(self, plan: Plan, ledger: Ledger, run: str, observation: Observation, *, now: bool) -> Plan:
        """Record the drift of a plan. Return the plan with the time at which each item was first and last seen.

        `now`: the nodes were observed just now, so their statuses are recorded as well. Nothing is recorded of an
        observation in which this machine reached nobody.
        """
        made = self.observation_pass(observation, ledger)
        sightings = made.remember_drift(plan.nodes, run)
        if now:
            acting = {node for _, node, *_ in ledger.unfinished()}  # by a run beside us
            made.remember_statuses(plan.nodes, acting=acting)
        return with_sightings(plan, sightings)
