"""A past for the ledger of a live fleet: certificates, a rollout with waves that are over, weeks in service."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from reconciler.model.period_report import ServiceStatus
from reconciler.model.plan import NodePlan, RolloutPlan, Wave, WaveState
from reconciler.model.status import NodeStatus
from reconciler.render.html import Material
from tests.web.conftest import Live

DAYS, EVERY = 20, timedelta(hours=12)
UNSEEN = (9, 10)  # days back on which nobody looked
BEGAN = timedelta(hours=7)
BETWEEN = timedelta(hours=2)  # of the beginnings of two waves


def under_way(material: Material, now: datetime, over: int = 2) -> Material:
    """Return a fleet, planned now, in which the first waves of the first rollout are over."""
    later = now - material.plan.created_at
    first, *others = material.plan.rollouts
    halves = _halved(first.waves[-1]) if len(first.waves) < over + 2 else ()
    waves = [_moved(wave, later) for wave in (*(first.waves[:-1] if halves else first.waves), *halves)]
    done = [replace(wave, state=WaveState.DONE, detail="", start=None, end=None) for wave in waves[:over]]
    began = replace(first, waves=(*done, *waves[over:]), started_at=now - BEGAN)
    gone = {node for wave in done for node in wave.nodes}
    nodes = {name: _converged(node) if name in gone else node for name, node in material.plan.nodes.items()}
    return replace(material, plan=replace(material.plan, rollouts=(began, *others), nodes=nodes))


def _moved(wave: Wave, by: timedelta) -> Wave:
    return replace(wave, start=wave.start and wave.start + by, end=wave.end and wave.end + by)


def _halved(wave: Wave) -> tuple[Wave, ...]:
    """Return two waves of one, the later of which waits for the earlier one."""
    half = len(wave.nodes) // 2
    middle = None if wave.start is None or wave.end is None else wave.start + (wave.end - wave.start) / 2
    return (
        replace(wave, nodes=wave.nodes[:half], end=middle),
        replace(wave, nodes=wave.nodes[half:], start=middle, state=WaveState.WAITING),
    )


def _converged(node: NodePlan) -> NodePlan:
    return replace(node, actions=(), drift=(), blocked=None, in_service=True)


def remember(live: Live) -> None:
    """Write the past of the live fleet into its ledger."""
    now, material = live.workspace.clock.now(), live.material
    with live.ledger.batch():
        for record in material.records.values():
            if record.certificate is not None:
                live.ledger.save_certificate(replace(record.certificate, issued_at=now - timedelta(days=3)))
        for rollout in material.plan.rollouts:
            _remember_waves(live, rollout, now)
        _remember_service(live, now)
        for name in material.plan.nodes:
            live.ledger.hold(name, "moved to another rack", "ann", None, now - timedelta(days=6))
            live.ledger.release(name, "ann", now - timedelta(days=4))
    drift = [
        (item.node, item.path, item.kind.value, item.desired, item.observed)
        for node in material.plan.nodes.values()
        for item in node.drift
    ]
    live.ledger.record_drift("run-1", drift, list(material.plan.nodes), now - timedelta(hours=5))


def _remember_waves(live: Live, rollout: RolloutPlan, now: datetime) -> None:
    """Have the nodes of the waves that are over converged, one after the other."""
    values = {path: wanted[0] for path, wanted in rollout.changes.items()}
    for number, wave in enumerate(wave for wave in rollout.waves if wave.state is WaveState.DONE):
        begin = now - BEGAN + number * BETWEEN
        for at, node in enumerate(wave.nodes):
            when = begin + BETWEEN / 2 * (at + 1) / len(wave.nodes)
            live.ledger.remember_applied(node, values, "d" * 64, "c0ffee", when)


def _remember_service(live: Live, now: datetime) -> None:
    """Have one node in fifty out of service at any time, another one each half day."""
    names = sorted(live.material.plan.nodes)
    at, turn = now - timedelta(days=DAYS), 0
    while at <= now:
        out = {name for place, name in enumerate(names) if (place + turn) % 50 == 0}
        statuses = {
            name: ServiceStatus("training", NodeStatus.ACTING if name in out else NodeStatus.CONVERGED, name in out)
            for name in names
        }
        if (now - at).days not in UNSEEN:
            live.ledger.record_service_status(statuses, at, within=EVERY + timedelta(hours=1), whole=True)
        at, turn = at + EVERY, turn + 1
