"""Signals: what an observation says against a node's health. Each is a fact with its evidence, in words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.health.xids import is_hardware
from reconciler.model.desired import Profile
from reconciler.model.observed import Gpu, HostFacts, Observed, Silent


@dataclass(frozen=True, slots=True)
class Signal:
    """`name` is stable (reports, ignore rules): health.<name>."""

    name: str
    detail: str


def signals(profile: Profile, observed: Observed) -> tuple[Signal, ...]:
    """All signals of a host that answered. A host that did not answer says nothing: silence is not a signal."""
    if isinstance(observed.host, Silent):
        return ()
    return tuple(_of_host(profile, observed.host.value))


def _of_host(profile: Profile, facts: HostFacts) -> Iterator[Signal]:
    if facts.gpus is not None:
        present = [gpu for gpu in facts.gpus if not gpu.lost]
        wanted = profile.inventory.gpus
        if wanted is not None and len(present) < wanted:
            yield Signal("gpu_missing", f"{len(present)} of {wanted} GPUs answer")
        sick = [gpu for gpu in present if gpu.ecc_uncorrectable or gpu.remap_failed or gpu.remap_pending]
        yield from (signal for gpu in sick for signal in _of_gpu(gpu))
    wanted_links = profile.inventory.nvlinks_per_gpu
    if wanted_links is not None and facts.nvlinks_active is not None:
        for index, active in sorted(facts.nvlinks_active.items()):
            if active < wanted_links:
                yield Signal("nvlink_down", f"GPU {index}: {active} of {wanted_links} NVLinks are up")
    ignored = profile.remediation.ignore_xids if profile.remediation else ()
    for xid in facts.xids or ():
        if is_hardware(xid, ignored):
            kind = "SXid" if xid.switch else "XID"
            times = f", {xid.count} times" if xid.count > 1 else ""
            yield Signal(f"xid_{xid.code}", f"{kind} {xid.code} on {xid.device}{times}")


def _of_gpu(gpu: Gpu) -> Iterator[Signal]:
    if gpu.ecc_uncorrectable:
        yield Signal(
            "ecc", f"GPU {gpu.index}: {gpu.ecc_uncorrectable} uncorrectable ECC errors since the driver loaded"
        )
    if gpu.remap_failed:
        yield Signal("row_remap_failed", f"GPU {gpu.index}: row remapping failed")
    if gpu.remap_pending:
        yield Signal("row_remap_pending", f"GPU {gpu.index}: a row remap waits for a reset")
