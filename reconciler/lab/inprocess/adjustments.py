"""ports' Adjustments on the lab's cluster."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from reconciler.lab.hardware.control_plane import ClusterTruth, Conflict
from reconciler.lab.hardware.replicas import QueueObject, ReplicatedObject
from reconciler.model.adjustments import (
    GONE,
    QUEUE,
    Adjusted,
    AdjustedRef,
    AdjustmentRecord,
    Value,
    read_record,
    write_record,
)
from reconciler.model.errors import DriverError, Failure
from reconciler.model.pods import Pod


class TruthAdjustments:
    """`reach`: waits as a request does, and fails where the API server is down."""

    def __init__(self, truth: ClusterTruth, reach: Callable[[], Awaitable[None]]) -> None:
        self._truth, self._reach = truth, reach

    async def scaled_by(self, pod: Pod) -> AdjustedRef | None:
        await self._reach()
        for thing in self._truth.replicated.values():
            if any(each.uid == pod.uid for each in self._truth.pods_of(thing)):
                return AdjustedRef(thing.kind, thing.namespace, thing.name)
        return None if any(each.uid == pod.uid for each in self._truth.pods()) else GONE

    async def read(self, ref: AdjustedRef) -> Adjusted | None:
        await self._reach()
        self._truth.sync()
        thing = self._found(ref)
        if thing is None:
            return None
        record, revision = read_record(thing.note), str(thing.resource_version)
        if isinstance(thing, QueueObject):
            return Adjusted(ref, revision, thing.stop_policy, record=record)
        ready = self._truth.ready_of(thing)
        return Adjusted(ref, revision, thing.replicas, thing.replicas, ready, keeper=thing.keeper, record=record)

    async def write(self, found: Adjusted, value: Value, record: AdjustmentRecord | None) -> None:
        await self._reach()
        thing = self._found(found.ref)
        note = None if record is None else write_record(record)
        if thing is None:
            raise DriverError(Failure.CONFLICT, f"{found.ref} is gone")
        try:
            self._truth.change(thing, found.resource_version, value, note)
        except Conflict as moved:
            raise DriverError(Failure.CONFLICT, str(moved)) from moved

    def _found(self, ref: AdjustedRef) -> ReplicatedObject | QueueObject | None:
        if ref.kind == QUEUE:
            return self._truth.queues.get(ref.name)
        return self._truth.replicated.get((ref.kind, ref.namespace, ref.name))
