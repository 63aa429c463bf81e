"""The worked example's fleet under virtual time, with the real gate, told in the words that operators read."""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.app.apply import outcome_document
from reconciler.app.drift_report import drift_report
from reconciler.cli.commands.apply import exit_code
from reconciler.cli.exit_codes import ExitCode
from reconciler.converge.apply import ApplyReport, ApplyRequest, apply
from reconciler.converge.events import Event
from reconciler.converge.gate import AcceptanceGate
from reconciler.converge.observe import observe
from reconciler.converge.remember import remember_facts
from reconciler.drivers.ledger import SqlLedger
from reconciler.gate.certificate import binding_of, tests_digest
from reconciler.lab.fleet import build_lab
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.keys import known_keys
from reconciler.lab.scenario import Scenario
from reconciler.model.desired import Fleet
from reconciler.model.gate import Binding, Certificate
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION
from reconciler.model.report import ApplyOutcome
from reconciler.planner.fleet.plan_request import PlanRequest, take_snapshot
from reconciler.planner.fleet.planner import plan_fleet
from reconciler.render import drift as render_drift
from reconciler.render import outcome as render_outcome
from reconciler.render import plan as render_plan
from reconciler.spec import load_spec

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Told:
    """What an operator gets to read of one run, and the exit code of it."""

    drift: str
    plan: str
    apply: str
    code: ExitCode
    outcome: ApplyOutcome


class World:
    """Every node has passed its gate as specified, then `drift` and `faults` come: kinds -> parameters, per node."""

    def __init__(
        self,
        where: Path,
        *,
        drift: Mapping[str, Sequence[Any]] | None = None,
        faults: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    ) -> None:
        self.fleet: Fleet = load_spec(ROOT / "fleet-spec", directory="fleet-spec")
        self.clock = VirtualClock()
        names = {*(drift or {}), *(faults or {})}
        plays = {name: {"drift": list((drift or {}).get(name, ()))} for name in names}
        self.lab = build_lab(self.fleet, Scenario.model_validate({"nodes": plays}), self.clock.seconds, seed=1,
                             public_keys=known_keys(self.fleet, ""))  # fmt: skip
        self.clock.elapsed = 86400.0  # everything has been up for a day
        self.fabric = LabFabric(self.lab, self.clock)
        self.gate = AcceptanceGate(self.fabric.public_key)
        self.ledger = SqlLedger(where / "ledger.sqlite")
        weakref.finalize(self, self.ledger.close)
        self.events: list[Event] = []
        self._runs = 0
        self.adopt()
        for name, kinds in (faults or {}).items():
            for kind, parameters in kinds.items():
                self.machine(name).inject(kind, **parameters)

    def adopt(self) -> None:
        """Certificates for all nodes as they are, so that drift and faults alone lead to work."""

        async def issue() -> None:
            seen = await observe(self.fleet, list(self.fleet.nodes), self.fabric, self.clock, fresh_inventory=True)
            remember_facts(
                self.ledger,
                self.fleet.nodes,
                seen.nodes.values(),
                self.ledger.nodes(list(self.fleet.nodes)),
                seen.finished_at,
            )
            for name, desired in self.fleet.nodes.items():
                assert desired.profile.acceptance is not None
                binding = binding_of(desired, seen.nodes[name], tests_digest(desired.profile.acceptance))
                if isinstance(binding, Binding):
                    self.ledger.save_certificate(Certificate("1.0", name, self.clock.now(), binding, (), adopted=True))

        run_virtual(issue(), self.clock)

    @property
    def signatures(self) -> dict[tuple[str, str], bool | None]:
        images = [node.profile.image for node in self.fleet.nodes.values() if node.profile.image is not None]
        return {(image.name, image.version): self.gate.verified(image) for image in images}

    # --- doing ---

    def observe(self) -> Observation:
        found = run_virtual(
            observe(self.fleet, list(self.fleet.nodes), self.fabric, self.clock, fresh_inventory=True), self.clock
        )
        records = self.ledger.nodes(list(self.fleet.nodes))
        remember_facts(self.ledger, self.fleet.nodes, found.nodes.values(), records, self.clock.now())
        return found

    def plan(self, observation: Observation | None = None) -> Plan:
        seen = observation or self.observe()
        snapshot = replace(take_snapshot(self.ledger, self.fleet, list(self.fleet.nodes)), known=(), rollouts={})
        return plan_fleet(self.fleet, seen, snapshot, self.clock.now(), PlanRequest("plan-1", self.signatures))

    def apply(self, wait_s: float = 7200.0) -> ApplyReport:
        self._runs += 1
        request = ApplyRequest(
            self.fleet, f"run-{self._runs}", f"plan-{self._runs}", "tests", self.signatures, wait_s=wait_s
        )
        return run_virtual(
            apply(
                request,
                fabric=self.fabric,
                ledger=self.ledger,
                clock=self.clock,
                gate=self.gate,
                progress=self.events.append,
            ),
            self.clock,
        )

    def converge(self) -> Told:
        """drift, plan and apply, as an operator calls them one after another."""
        seen = self.observe()
        plan = self.plan(seen)
        outcome = outcome_document(self.apply())
        return Told(
            drift=render_drift.human(drift_report(plan, seen)),
            plan=render_plan.human(plan),
            apply=render_outcome.human(outcome),
            code=exit_code(outcome, detailed=False),
            outcome=outcome,
        )

    # --- the truth ---

    def machine(self, name: str) -> Machine:
        return self.lab.machines[name]

    def serves(self, name: str) -> bool:
        """New work may land there."""
        assert self.lab.cluster is not None
        node = self.lab.cluster.node(name)
        return node.ready == "True" and not node.unschedulable and not self.marked(name)

    def marked(self, name: str) -> bool:
        assert self.lab.cluster is not None
        node = self.lab.cluster.node(name)
        return any(taint.key == MARK_TAINT for taint in node.taints) or OWNER_ANNOTATION in node.annotations
