"""The input of a rehearsal: the fleet, its observation, a copy of the ledger, and the plan made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from reconciler.app.change_workspace import ChangeWorkspace
from reconciler.app.runtime import new_id
from reconciler.app.workspace import Workspace
from reconciler.converge.gate import AcceptanceGate
from reconciler.lab.failure_rates import EVERY
from reconciler.model.desired import DesiredInventory, Fleet, SpecSource
from reconciler.model.observed import Observation
from reconciler.model.plan import Plan, Scope
from reconciler.model.records import Hold, NodeRecord, Rollout
from reconciler.planner.node.actions import ACTIONS
from reconciler.planner.node.estimates import Estimates


@dataclass(frozen=True, slots=True)
class RehearsalInput:
    """The start of a rehearsal.

    `seen_in`: the file of the observation; "" when the nodes were read. `plan`: made with the real ledger. `history`:
    actions of whose durations the ledger knows. `rates`: action -> share of nodes on which it fails, 0.0 to 1.0.
    """

    fleet: Fleet
    observation: Observation
    seen_in: str
    plan: Plan
    base: SpecSource | None
    selected: Sequence[str] | None
    scope: Scope
    ledger_id: str
    records: Mapping[str, NodeRecord]
    holds: Sequence[Hold]
    rollouts: Mapping[str, Rollout]
    estimates: Estimates
    history: Sequence[str]
    signatures: Mapping[tuple[str, str], bool | None]
    gate: AcceptanceGate
    starts_at: datetime
    rates: Mapping[str, float]


def rehearsal_input(workspace: Workspace, observation: Path | None, rates: Mapping[str, float]) -> RehearsalInput:
    """Return the input for the nodes as they are now, or as in the file `observation`."""
    workspace.check_selection()
    seen = workspace.observation(observation)
    with workspace.memory() as ledger:
        starts_at = workspace.clock.now()
        names, scope = workspace.selection
        # a node that was never observed can't be simulated: it is left to a later rehearsal
        fleet = replace(
            workspace.fleet, nodes={n: node for n, node in workspace.fleet.nodes.items() if n in seen.nodes}
        )
        durations, estimates = ledger.durations(), workspace.estimates(ledger)
        timed = {action for _, action, target, _ in durations if estimates.of(DesiredInventory(), action, target)}
        return RehearsalInput(
            fleet=fleet,
            observation=seen,
            seen_in="" if observation is None else str(observation),
            plan=workspace.make_plan(seen, ledger, new_id("rehearsal", starts_at)),
            base=workspace.base.source if isinstance(workspace, ChangeWorkspace) else None,
            selected=None if len(names) == len(fleet.nodes) else names,
            scope=scope,
            ledger_id=ledger.id,
            records=ledger.nodes([*fleet.nodes, *(name for name in ledger.known() if name not in fleet.nodes)]),
            holds=tuple(ledger.holds()),
            rollouts=ledger.rollouts(),
            estimates=estimates,
            history=sorted(timed),
            signatures=workspace.signatures,
            gate=public_gate(workspace),
            starts_at=starts_at,
            rates=rates,
        )


def public_gate(workspace: Workspace) -> AcceptanceGate:
    """Return the gate with the public keys that the spec names, and with nothing else of the secrets."""
    images = [node.profile.image for node in workspace.fleet.nodes.values()]
    names = {image.key for image in images if image is not None and image.key is not None}
    return AcceptanceGate({name: workspace.secrets.public_key(name) for name in names}.get)


def parse_failure_rate(text: str) -> tuple[str, float]:
    """Return the action, or EVERY, and the share of 0.02, 2% or reimage=5%. Raise ValueError with what is wrong."""
    action, named, share = text.rpartition("=")
    if named and action not in ACTIONS:
        raise ValueError(f"there is no action {action!r}; there are {', '.join(ACTIONS)}")
    try:
        rate = float(share.removesuffix("%")) / (100.0 if share.endswith("%") else 1.0)
    except ValueError:
        rate = -1.0
    if not 0.0 <= rate <= 1.0:
        raise ValueError(f"{share!r} is no share; write 0.02 or 2%")
    return action or EVERY, rate
