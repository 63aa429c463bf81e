"""The port by which converge changes objects of others for the time of a drain, and takes that back."""

from __future__ import annotations

from typing import Protocol

from reconciler.model.adjustments import Adjusted, AdjustedRef, AdjustmentRecord, Value
from reconciler.model.pods import Pod


class Adjustments(Protocol):
    """Reads and writes raise DriverError."""

    async def scaled_by(self, pod: Pod) -> AdjustedRef | None:
        """Return what sets how many pods like this one run. None: nothing that can be raised; GONE: the pod is gone."""

    async def read(self, ref: AdjustedRef) -> Adjusted | None:
        """Return the object as it is. None: it is gone, or the cluster does not know such objects."""

    async def write(self, found: Adjusted, value: Value, record: AdjustmentRecord | None) -> None:
        """Set value and record in one write. None: the field, or the record, is taken out.

        CONFLICT: the object has changed since it was read, or is gone.
        """


class Adjustable(Protocol):
    def adjustments(self) -> Adjustments | None:
        """Return the port to what sets how much runs. None: Slurm has none."""
