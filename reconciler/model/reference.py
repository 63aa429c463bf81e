"""Reference documents: what certified nodes of one kind measured, as files of the spec that are reviewed like any."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from reconciler.model.desired import DesiredInventory, GateTest, Peers

REFERENCE_FORMAT: Final = "1.0"
FOLDER: Final = "reference/"  # of the spec


@dataclass(frozen=True, slots=True)
class Distribution:
    """The figures of one metric over `n` nodes. `mad`: median absolute deviation; `p5`: a twentieth is below."""

    n: int
    median: float
    mad: float
    p5: float


@dataclass(frozen=True, slots=True)
class Reference:
    """The metrics of one test on peers: same hardware, image (with its driver), arguments and version of the tool.

    `image`: SHA-256, "" where the image is not managed. The arguments are scope, size and environment of the test.
    """

    format_version: str
    hardware: str
    image: str
    test: str
    tool: str
    tool_version: str
    args: Mapping[str, str | int | bool]
    metrics: Mapping[str, Distribution]

    def peers(self, metric: str) -> Peers | None:
        found = self.metrics.get(metric)
        return None if found is None else Peers(self.tool_version, found.n, found.median, found.mad)

    def fits(self, hardware: str, image: str, test: GateTest) -> bool:
        """Return whether nodes with this hardware and image are peers in this test."""
        mine = self.hardware, self.image, self.test, self.tool, dict(self.args)
        return mine == (hardware, image, test.name, test.tool, dict(test.args))


def hardware_of(inventory: DesiredInventory) -> str:
    """Return what peers have in common as the spec declares it: maker, model and GPUs."""
    gpus = f"{inventory.gpus or ''} {inventory.gpu_model or 'GPUs'}".strip() if inventory.gpus is not None else ""
    maker = " ".join(filter(None, (inventory.manufacturer, inventory.model)))
    ports = f"{inventory.rdma_rate_gbps} Gb/s" if inventory.rdma_rate_gbps is not None else ""
    return ", ".join(filter(None, (maker, gpus, ports)))
