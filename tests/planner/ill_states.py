"""A node that is out of service for a state: what shows it, what does not, and another part in place of the ill one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final

from reconciler.health.signals import signals
from reconciler.model.gpus import Gpu
from reconciler.model.host_services import AmdGpu, DcgmIncident
from reconciler.model.observed import Drive, Link, Observed, Part
from reconciler.model.own_health import DimmErrors, DimmRecord, DiskHealth, NvmeHealth
from reconciler.model.records import ISOLATED, Attempt, NodeRecord
from reconciler.model.vocab import Health
from reconciler.planner.node.unhealed import kept_updates
from tests import builders as b

MINUTE: Final = timedelta(minutes=1)
LEFT: Final = b.NOW + MINUTE  # when it was marked and drained


def dimm(serial: str, health: Health = Health.OK) -> Part:
    return Part("dimm", f"DIMM{serial[:1]}", health, serial)


def nvme(serial: str, warning: int | None = 0) -> NvmeHealth:
    return NvmeHealth("nvme0", serial, "PM9A3", warning, 0, 3, 100)


def sata(serial: str, passed: bool | None = True) -> DiskHealth:
    return DiskHealth("sda", serial, "MK", passed)


def gpus(serial: str, **changes: Any) -> tuple[Gpu, ...]:
    return (b.gpu(0), b.gpu(1, serial=serial, **changes))


def cells(**changes: Any) -> Any:
    return replace(b.CELLS, **changes)


@dataclass(frozen=True)
class State:
    """A state by what the BMC's inventory or the host tells of it. `other`: with another part, which is well."""

    ill: Mapping[str, Any]
    well: Mapping[str, Any]
    unread: Mapping[str, Any]
    other: Mapping[str, Any] = field(default_factory=dict)
    of_bmc: bool = False


FAST: Final = (Link("mlx5_0/1", True, 400.0, "infiniband"),)
MODULES: Final = (dimm("A1"), dimm("B1"))
STATES: Final[Mapping[str, State]] = {
    "dimm_failed": State(
        {"parts": (dimm("A1", Health.CRITICAL), dimm("B1"))}, {"parts": MODULES}, {"parts": None},
        {"parts": (dimm("A2"), dimm("B1"))}, of_bmc=True,
    ),
    "nvme_critical": State(
        {"nvme": (nvme("N1", 4),)}, {"nvme": (nvme("N1"),)}, {"nvme": (nvme("N1", None),)}, {"nvme": (nvme("N2"),)}
    ),
    "disk_failing": State(
        {"disks": (sata("S1", passed=False),)}, {"disks": (sata("S1"),)}, {"disks": (sata("S1", passed=None),)},
        {"disks": (sata("S2"),)},
    ),
    "row_remap_failed": State(
        {"gpus": gpus("G1", remap_failed=True)}, {"gpus": gpus("G1")}, {"gpus": None}, {"gpus": gpus("G9")}
    ),
    "sram_threshold": State(
        {"gpus": gpus("G1", cells=cells(sram_threshold_exceeded=True))}, {"gpus": gpus("G1")}, {"gpus": None},
        {"gpus": gpus("G9")},
    ),
    "unrepairable_memory": State(
        {"gpus": gpus("G1", cells=cells(unrepairable_memory=True))}, {"gpus": gpus("G1")}, {"gpus": None},
        {"gpus": gpus("G9")},
    ),
    "dimm_missing": State({"dimms": 31}, {"dimms": 32}, {"dimms": None}, of_bmc=True),
    "processor_missing": State({"processors": 1}, {"processors": 2}, {"processors": None}, of_bmc=True),
    "ecc": State({"gpus": gpus("G1", ecc_uncorrectable=3)}, {"gpus": gpus("G1")}, {"gpus": None}),
    "edac_ue": State(
        {"dimm_errors": (DimmErrors("mc0/dimm0", "A", 0, 1),)}, {"dimm_errors": ()}, {"dimm_errors": None}
    ),
    "ras_ue": State(
        {"dimm_records": (DimmRecord("A", "0:0:0:-1", "Uncorrected", 0, this_boot=True, count=1),)},
        {"dimm_records": ()}, {"dimm_records": None},
    ),
    "dcgm_failure": State(
        {"dcgm": (DcgmIncident("GPU 1", "Memory system", "Failure"),)}, {"dcgm": ()}, {"dcgm": None}
    ),
    "amd_ecc": State({"amd_gpus": (AmdGpu(0, 0, 2),)}, {"amd_gpus": ()}, {"amd_gpus": None}),
    "port_slow": State(
        {"links": (Link("mlx5_0/1", True, 200.0, "infiniband"),)},
        {"links": FAST}, {"links": None},
    ),
    "fabric": State(
        {"gpus": gpus("G1", cells=cells(fabric_status="Failure"))}, {"gpus": gpus("G1")},
        {"gpus": gpus("G1", cells=cells(fabric_status=None))},
    ),
}  # fmt: skip
NODE: Final = b.node(
    profile=b.profile(inventory=replace(b.PROFILE.inventory, rdma_rate_gbps=400, dimms=32, processors=2))
)
MORE: Final = (
    "dimm_failed",
    "nvme_critical",
    "disk_failing",
    "row_remap_failed",
    "sram_threshold",
    "unrepairable_memory",
)
BOOT: Final = ("ecc", "edac_ue", "ras_ue", "dcgm_failure", "amd_ecc")
GONE: Final = ("dimm_missing", "processor_missing")  # parts without a serial number: those that are there again
ALONE: Final = ("port_slow", "fabric")  # that it is gone, and a gate


def look(
    name: str, shows: Mapping[str, Any], at: datetime, *, boot: str = "b1", out: bool = True, reason: str = ""
) -> Observed:
    """The node at a time: out under our mark, without work, or in service."""
    state = STATES[name]
    host: dict[str, Any] = {"links": FAST} | ({} if state.of_bmc else dict(state.well))
    inventory: dict[str, Any] = {"parts": MODULES, "drives": (Drive("0", serial="D1", model="PM9A3"),)}
    (inventory if state.of_bmc else host).update(shows)
    mark = b.our_mark(reason=reason or f"{ISOLATED}health.{name}") if out else None
    found = b.observed(
        inventory=b.inventory(**inventory),
        host=b.facts(**{"boot_id": boot, "uptime_s": 100.0, **host}),
        member=b.member(mark=mark, pods=() if out else (b.pod(),)),
    )
    return replace(
        found, hot=replace(found.hot, at=at), host=replace(found.host, at=at),
        inventory=replace(found.inventory, at=at), member=replace(found.member, at=at),
    )  # fmt: skip


def passed(name: str) -> NodeRecord:
    """What the ledger holds of the node while it was well."""
    return b.record(NODE, look(name, STATES[name].well, b.NOW, out=False))


def drained(name: str, *, boot: str = "b1") -> NodeRecord:
    """The same, after the node was marked and drained for the state."""
    done = ("mark", ISOLATED + f"health.{name}"), ("drain", f"health.{name}")
    attempts = tuple(Attempt(what, "", why, LEFT, "done", ended_at=LEFT, boot_id=boot) for what, why in done)
    return replace(passed(name), attempts=attempts, newer=2)


def noted(record: NodeRecord, seen: Observed) -> NodeRecord:
    """The record after a look that noted what is shown and what is not proved healed."""
    kept = dict(record.silent_since)
    for key, new in kept_updates(NODE, seen, record, signals(NODE.profile, seen)):
        if new:
            kept[key] = seen.host.at
        else:
            del kept[key]
    return replace(record, silent_since=kept)


def plan_of(record: NodeRecord, seen: Observed) -> Any:
    return b.planner(now=seen.host.at).plan(NODE, seen, record)


def acts(record: NodeRecord, seen: Observed) -> list[str]:
    return b.actions(plan_of(record, seen))
