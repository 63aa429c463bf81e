"""Make one attempt at one action, which is counted in the journal before it is tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from reconciler.converge.actions import FUNCTIONS
from reconciler.converge.actions.context import ActionContext, carry_out
from reconciler.converge.events import ActionFinished, ActionStarted, ActionStep
from reconciler.converge.evidence_bundle import keep_evidence
from reconciler.converge.guarded_ports import GuardedBmc, TimedBmc, TimedCluster, TimedHost, TimedPdu
from reconciler.converge.k3s_birth import K3sServer, servers_of
from reconciler.converge.partner_pool import GatePartners, PartnerPool
from reconciler.converge.run import Executed, Run, Subject
from reconciler.converge.serving_group import serving_group
from reconciler.converge.siblings import Siblings
from reconciler.gate.attestation.expected import basis_of
from reconciler.health.ladder import REMEDIATION
from reconciler.model.crash import Crash, of_its_own_async
from reconciler.model.desired import Desired
from reconciler.model.observed import Answered
from reconciler.model.outcome import Ambiguous, Declined, Outcome, outcome_word
from reconciler.model.plan import PlannedAction
from reconciler.model.vocab import Disruption
from reconciler.planner.node import conditions as c
from reconciler.planner.node.actions import spec_of
from reconciler.planner.node.workload import siblings_of

BYSTANDERS = 64  # a rack PDU has up to 54 outlets


@dataclass(frozen=True, slots=True)
class Attempted:
    """The end of an attempt. `crash`: the bug that ended it. `inventory_due`: it may have changed the inventory."""

    outcome: Outcome
    crash: Crash | None
    inventory_due: bool


async def attempt(run: Run, subject: Subject, action: PlannedAction, pool: PartnerPool) -> Attempted:
    """Try an action once: begin it in the journal, carry it out, and record how it ended."""
    clock, node = run.clock, subject.desired.node
    began, zero = clock.now(), clock.monotonic()
    number, intent, resumed = _begin(run, subject, action, began)
    run.ports.progress(ActionStarted(node, action))
    ctx = _context(run, subject, action, number, intent, resumed, pool)
    crashes: list[Crash] = []
    kept: list[str] = []

    async def act(ctx: ActionContext) -> Outcome:
        repairs = c.TREATED in action.achieves or subject.record.repair is not None
        if repairs and spec_of(action.name).destroys_evidence:
            kept.append(f" (evidence {(await keep_evidence(ctx))[:12]})")
        return await FUNCTIONS[action.name](ctx)

    def crashed(crash: Crash) -> Outcome:
        crashes.append(crash)
        return Ambiguous(crash.sentence)  # what the action had begun may go on, as after a write without an answer

    outcome = await of_its_own_async(node, action.id, lambda: carry_out(act, ctx), crashed)
    ended = clock.now()
    run.ledger.finish(number, outcome_word(outcome), outcome.detail + "".join(kept), ended)
    if not isinstance(outcome, Declined) and spec_of(action.name).boots:
        _outdate(run, node, ended)
    seconds = clock.monotonic() - zero
    run.attempts.executed.append(Executed(node, action.name, action.target, action.because, outcome, began, seconds))
    run.ports.progress(ActionFinished(node, action, outcome, seconds))
    wrote = ctx.bmc_port is not None and ctx.bmc_port.wrote
    return Attempted(outcome, crashes[0] if crashes else None, action.disruption >= Disruption.SERVICE_RESTART or wrote)


def _begin(
    run: Run, subject: Subject, action: PlannedAction, now: datetime
) -> tuple[int, Mapping[str, Any], Mapping[str, Any]]:
    """Count the attempt in the journal, or resume that of a dead run: (attempt, intent, what the dead run intended)."""
    node = subject.desired.node
    left = run.attempts.resumed.pop((node, action.name, action.target), None)
    token = run.ports.lease.token()
    if left is not None:
        run.ledger.resume(left.attempt, run.context.run_id, token, now)
        return left.attempt, left.intent, left.intent
    intent: dict[str, Any] = {"at": now.isoformat(), "boot_id": subject.boot_id, "plan": run.context.plan_id}
    if basis := basis_of(subject.desired.profile, subject.record):
        intent["basis"] = basis
    cause = REMEDIATION if c.TREATED in action.achieves else ", ".join(action.because)
    if cause == REMEDIATION:
        intent["signals"] = sorted({item.path for item in subject.plan.illness})
    number = run.ledger.begin(run.context.run_id, node, action.name, action.target, cause, intent, token, now)
    return number, intent, {}


def _outdate(run: Run, node: str, now: datetime) -> None:
    """Close attempts at a reboot that a dead run began: after another reboot, nothing can prove them any more."""
    resumed = run.attempts.resumed
    for step in [step for step in resumed if step[0] == node and spec_of(step[1]).proved_by_boot]:
        left = resumed.pop(step)
        run.ledger.finish(left.attempt, "ambiguous", "the node was rebooted for something else since", now)


def _pdus(run: Run, desired: Desired) -> Mapping[str, TimedPdu]:
    ports, settings = run.ports, run.fleet.settings
    addresses = dict.fromkeys(outlet.pdu or "" for outlet in desired.outlets)
    return {one: TimedPdu(ports.fabric.pdu(one), ports.clock, settings, ports.lease) for one in addresses}


def _bystanders(run: Run, desired: Desired) -> tuple[tuple[str, TimedBmc], ...]:
    """Return nodes that hang on the same PDUs, which a swapped cable would cut off: at most so many, the nearest."""
    pdus = {outlet.pdu for outlet in desired.outlets}
    if not pdus:
        return ()
    near = [
        node
        for node in run.fleet.nodes.values()
        if node.node not in (desired.node, *desired.cut_with) and any(outlet.pdu in pdus for outlet in node.outlets)
    ]
    ports, settings = run.ports, run.fleet.settings
    found = ((node.node, ports.fabric.bmc(node)) for node in near[:BYSTANDERS])
    return tuple((name, TimedBmc(bmc, ports.clock, settings)) for name, bmc in found if bmc is not None)


def _servers(run: Run, desired: Desired) -> tuple[K3sServer, ...]:
    """Return the servers of the K3s cluster that the node belongs to."""
    if desired.profile.k3s is None:
        return ()
    ports, fleet = run.ports, run.fleet

    def timed(node: Desired) -> TimedHost | None:
        host = ports.fabric.host(node)
        return None if host is None else TimedHost(host, ports.clock, fleet.settings, ports.lease)

    return tuple(servers_of(fleet, timed))


def _context(
    run: Run,
    subject: Subject,
    action: PlannedAction,
    number: int,
    intent: Mapping[str, Any],
    resumed: Mapping[str, Any],
    pool: PartnerPool,
) -> ActionContext:
    """Build what the action works with. `resumed`: the intent of an attempt whose run died; {} when there is none."""
    desired, observed, record = subject.desired, subject.observed, subject.record
    ports, settings = run.ports, run.fleet.settings
    clock, lease = ports.clock, ports.lease
    bmc, host, cluster = ports.fabric.bmc(desired), ports.fabric.host(desired), ports.fabric.cluster()
    facts = observed.host.value if isinstance(observed.host, Answered) else None

    def step(text: str) -> None:
        ports.progress(ActionStep(desired.node, action.id, text))

    def journal(partners: tuple[str, ...]) -> None:
        ports.ledger.amend(number, {"partners": list(partners)}, clock.now())

    gate = GatePartners(pool, desired.node, str(number), journal, step)
    return ActionContext(
        action=action,
        desired=desired,
        observed=observed,
        record=record,
        drift=subject.plan.drift,
        postponed=subject.plan.postponed,
        comparer=run.context.planner.comparer,
        settings=settings,
        bmc_port=None if bmc is None else GuardedBmc(bmc, desired, facts, record, clock, settings, lease),
        host_port=None if host is None else TimedHost(host, clock, settings, lease),
        cluster_port=None if cluster is None else TimedCluster(cluster, clock, settings, lease),
        pdus=_pdus(run, desired),
        bystanders=_bystanders(run, desired),
        servers=_servers(run, desired),
        group=serving_group(run.fleet, desired, subject.out_of_group, ports.fabric, clock, lease),
        installer_port=ports.fabric.installer(),
        firmware_files=ports.fabric.firmware_files(),
        gate=ports.gate,
        ledger=ports.ledger,
        clock=clock,
        attempt=number,
        intent=intent,
        resumed=resumed,
        plan=run.context.plan_id,
        step=step,
        partners=gate,
        siblings=Siblings(run, subject, action, gate, attempt, _context) if siblings_of(action) else None,
        operator=lease.lease.holder,
        commit=run.fleet.source.commit,
        secret=lambda name, server: ports.fabric.host_secret(name, desired, server),
        conceal=ports.fabric.conceal,
    )
