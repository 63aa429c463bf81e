"""Turn the policies of resources into values of the model: drains, layouts of disks, acceptance profiles."""

from __future__ import annotations

from collections.abc import Mapping

from reconciler.model.backup import DesiredBackup
from reconciler.model.desired import (
    Acceptance,
    Checkpoint,
    DiskLayout,
    DrainPolicy,
    GatePhase,
    GateTest,
    Revalidation,
)
from reconciler.model.drain import QueueHold, Surge
from reconciler.model.soak import phase as soak_phase
from reconciler.model.units import parse_duration, parse_size
from reconciler.model.vocab import CheckpointWay
from reconciler.spec.cohorts import threshold_of
from reconciler.spec.kinds.acceptance_profile import AcceptanceProfileSpec, Test
from reconciler.spec.kinds.golden_image import DiskLayout as DiskLayoutSpec
from reconciler.spec.kinds.persona import Backup, CheckpointSpec, Drain, QueueHoldSpec


def layout_of(spec: DiskLayoutSpec | None) -> DiskLayout | None:
    if spec is None:
        return None
    return DiskLayout(parse_size(spec.esp), parse_size(spec.root), parse_size(spec.state), spec.data)


def drain_of(spec: Drain) -> DrainPolicy:
    return DrainPolicy(
        provider=spec.provider,
        timeout_s=parse_duration(spec.timeout),
        grace_s=parse_duration(spec.grace) if spec.grace else None,
        force=spec.force,
        command=spec.command or (),
        evict_unmanaged=spec.evict_unmanaged,
        delete_empty_dir_data=spec.delete_empty_dir_data,
        checkpoint=_checkpoint(spec.checkpoint) if spec.checkpoint else None,
        wait_for_jobs_s=parse_duration(spec.wait_for_jobs) if spec.wait_for_jobs else 0.0,
        surge=Surge(spec.surge.of == "all", parse_duration(spec.surge.timeout)) if spec.surge else None,
        hold=_queue_hold(spec.kueue) if spec.kueue else None,
    )


def backup_of(spec: Backup | None) -> DesiredBackup | None:
    return None if spec is None else DesiredBackup(spec.paths, spec.repository, dict(spec.environment), spec.images)


def _queue_hold(spec: QueueHoldSpec) -> QueueHold:
    return QueueHold(spec.cluster_queues, spec.stop_policy, parse_duration(spec.timeout))


def _checkpoint(spec: CheckpointSpec) -> Checkpoint:
    timeout_s = parse_duration(spec.timeout)
    if spec.command is not None:
        return Checkpoint(CheckpointWay.COMMAND, timeout_s, spec.command.ask, spec.command.ready)
    if spec.http is not None:
        return Checkpoint(CheckpointWay.HTTP, timeout_s, port=spec.http.port, path=spec.http.path)
    if spec.signal is not None:
        return Checkpoint(CheckpointWay.SIGNAL, timeout_s, signal=spec.signal.name, to=spec.signal.to)
    return Checkpoint(CheckpointWay.ANNOTATION, timeout_s)


def acceptance_of(name: str, spec: AcceptanceProfileSpec, rates: Mapping[str, float]) -> Acceptance:
    phases = tuple(
        GatePhase(phase.name, tuple(_gate_test(test, rates) for test in phase.tests)) for phase in spec.phases
    )
    if spec.soak is not None:
        loads = [_gate_test(load, rates) for load in spec.loads()]
        seconds, decline = parse_duration(spec.soak.duration), float(spec.soak.decline.rstrip("%"))
        phases = (*phases, soak_phase(seconds, decline, loads))
    wish = spec.revalidate
    return Acceptance(
        name,
        phases,
        parse_duration(spec.validity) if spec.validity else None,
        dict(sorted(spec.after.items())),
        None if wish is None else Revalidation(parse_duration(wish.before), wish.drain),
    )


def _gate_test(test: Test, rates: Mapping[str, float]) -> GateTest:
    return GateTest(
        name=test.name,
        tool=test.tool.value,
        args=dict(sorted(test.args.items())),
        thresholds=tuple(threshold_of(bar, test.rates(rates)) for bar in test.thresholds),
        timeout_s=parse_duration(test.timeout),
        versions=test.versions,
        allow_skip=test.allow_skip,
        validity_s=None if test.validity is None else parse_duration(test.validity),
    )
