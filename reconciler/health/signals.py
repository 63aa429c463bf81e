"""Signals: what an observation says against a node's health. Each is a fact with its evidence, in words.

Three witnesses: the host's own facts, its BMC, and the conditions that detectors set on the node object of the cluster,
as far as the policy names them. Silence of any is no signal.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from reconciler.health import bmc
from reconciler.health.xids import is_hardware
from reconciler.model.desired import NodeCondition, Profile
from reconciler.model.observed import Answered, Gpu, HostFacts, Member, Observed, Silent
from reconciler.model.vocab import Source

_OF_GPUS = ("health.gpu_missing", "health.ecc", "health.row_remap_")


@dataclass(frozen=True, slots=True)
class Signal:
    """`name` is stable (reports, ignore rules): health.<name>."""

    name: str
    detail: str
    source: Source = Source.SSH

    @property
    def path(self) -> str:
        return f"health.{self.name}"


def signals(profile: Profile, observed: Observed) -> tuple[Signal, ...]:
    """All that host, BMC and cluster say against the node."""
    of_bmc = (Signal(name, detail, Source.REDFISH) for name, detail in bmc.evidence(profile, observed))
    return (*host_signals(profile, observed), *of_bmc, *_of_cluster(profile, observed.member))


def watched(profile: Profile) -> tuple[str, ...]:
    """Value paths of the conditions that the policy names."""
    return tuple(f"health.{_name(condition)}" for condition in _named(profile))


def unread(profile: Profile, observed: Observed) -> tuple[str, ...]:
    """Beginnings of the value paths of signals that this observation can't tell of: not seen is not gone."""
    facts = None if isinstance(observed.host, Silent) else observed.host.value
    found = tuple(f"health.{name}" for name in bmc.unread(observed))
    if facts is None or facts.gpus is None:
        found += _OF_GPUS
    if facts is None or facts.nvlinks_active is None:
        found += ("health.nvlink_down",)
    if facts is None or facts.xids is None:
        found += ("health.xid_",)
    named = watched(profile)
    return (*found, *named) if named and not _speaks(observed.member) else found


def host_signals(profile: Profile, observed: Observed) -> tuple[Signal, ...]:
    """What the host itself says. One that did not answer says nothing."""
    return () if isinstance(observed.host, Silent) else tuple(_of_host(profile, observed.host.value))


def _of_cluster(profile: Profile, answer: Answered[Member | None] | Silent) -> Iterator[Signal]:
    """Conditions that stand. Of a node whose kubelet is silent they are of an earlier time: nobody takes them back."""
    named = _named(profile)
    if not named or isinstance(answer, Silent) or answer.value is None or not _speaks(answer):
        return
    member = answer.value
    for condition in named:
        if member.conditions.get(condition.type) == condition.status:
            why = member.reasons.get(condition.type, "")
            detail = f"{condition.type} is {condition.status}" + (f" ({why})" if why else "")
            yield Signal(_name(condition), detail, Source.KUBERNETES)


def _speaks(answer: Answered[Member | None] | Silent) -> bool:
    """Whether the conditions are of now. A node that the cluster is known not to have has none."""
    if isinstance(answer, Silent):
        return False
    return answer.value is None or answer.value.conditions.get("Ready") in ("True", "False")


def _named(profile: Profile) -> tuple[NodeCondition, ...]:
    return profile.remediation.node_conditions if profile.remediation else ()


def _name(condition: NodeCondition) -> str:
    return f"condition_{condition.type}"


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
