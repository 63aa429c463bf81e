"""One finding from all signals of a node: the cause, its evidence, what was ruled out, and what stays open.

`SHARED` is the table of causes that all GPUs of a node have in common; memory modules, single GPUs and applications
follow, in this order. A source that was not read rules nothing out. A finding is shown and decides nothing: what
follows from each signal is in signals.yaml.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.health.parts import RDMA, cell_signals, dimm_signals, gpu_signals, record_signals
from reconciler.health.signals import Signal, device_of
from reconciler.health.table import HealthTable, table_of
from reconciler.health.telemetry import amd_signals
from reconciler.health.xids import AGAIN, signal_of
from reconciler.model.desired import Profile
from reconciler.model.gpus import Gpu
from reconciler.model.kernel_log import POWER_SMOOTHING_BACK, RECOVERY_ACTION_CHANGED
from reconciler.model.observed import AmdGpu, HostFacts, Observed, Part, Silent, Xid
from reconciler.model.vocab import Health

UNKNOWN: Final = "not known: no pattern fits these signals"


@dataclass(frozen=True, slots=True)
class Finding:
    """A diagnosis. `evidence`: the signals that the cause explains; `apart`: those that it does not explain.

    `ruled_out` and `open`: other causes, with the reading that excludes each, or the reading that lacks.
    """

    cause: str
    evidence: tuple[Signal, ...] = ()
    apart: tuple[Signal, ...] = ()
    ruled_out: tuple[str, ...] = ()
    open: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Shared:
    """A cause that the GPUs of a node share: all of them show a symptom. `culprit`: the signal of the part at fault."""

    symptoms: frozenset[str]
    culprit: str
    kind: str  # of that part, as the BMC names it
    parts: str
    beyond: str  # the cause when the parts are well


_BRAKE: Final = frozenset({"power_brake"})
_HEAT: Final = frozenset({"thermal_slowdown", "thermal_margin"})
SHARED: Final = (
    Shared(_BRAKE, "psu_failed", "power_supply", "power supplies", "the power feed of the node or its rack"),
    Shared(_HEAT, "fan_failed", "fan", "fans", "the cooling of the node or its rack"),
)
_NAMES_A_MODULE: Final = frozenset(
    {"edac_ue", "edac_ce", "ras_ue", "ras_ue_before", "ras_deferred", "ras_ce", "dimm_ue", "dimm_failed"}
)
_MODULE: Final = _NAMES_A_MODULE | {"memory_ue", "machine_check"}
_OF_ONE_GPU: Final = frozenset(
    {
        *("ecc", "row_remap_failed", "row_remap_pending", "sram_threshold", "unrepairable_memory"),
        *("repair_pending", "gpu_recovery"),
    }
)


_PORT_COUNTERS: Final = frozenset(
    {
        *("port_dropped", "port_flap", "port_integrity", "port_symbol_errors", "port_recoveries"),
        *("port_receive_errors", "link_dropped", "link_garbled", "link_uncorrected", "module_shorted"),
    }
)
_OF_PORT: Final = _PORT_COUNTERS | {
    *("port_missing", "port_down", "port_slow", "port_uneven", "nic_module", "module_alarm"),
}
_SILENCES: Final = frozenset({"bmc_silent", "host_silent", "facts_silent"})
_FAR_ENDS: Final = ("leaf", "switch", "tor")  # labels of failure domains that say where a node's cables end


def finding(
    profile: Profile, observed: Observed, shown: Iterable[Signal], domains: Mapping[str, str] | None = None
) -> Finding | None:
    """Return the finding of a node from all signals that it shows; None when it shows none, and no application's XID.

    `shown`: those that were read, and those that the planner raises from the ledger: counters that rise, sources that
    are silent, events that are not proved healed. `domains`: its failure domains, which may say where its cables end.
    """
    found = tuple(sorted(set(shown), key=lambda one: (one.path, one.detail)))
    seen = _Seen(observed, found, table_of(profile))
    of_work = dict.fromkeys(f"{_xid(one)}: the application's, by NVIDIA's catalogue" for one in seen.of_application)
    if not found:
        return Finding("the application, not the node", ruled_out=tuple(of_work)) if of_work else None
    made = seen.shared() or seen.module() or seen.one_gpu() or seen.gpus_of_amd() or seen.cable(domains or {})
    made = made or seen.again() or seen.silence() or Finding(UNKNOWN, found)
    apart = tuple(one for one in found if one not in made.evidence)
    return Finding(made.cause, made.evidence, apart, (*made.ruled_out, *of_work), made.open)


class _Seen:
    """The readings that a diagnosis compares."""

    def __init__(self, observed: Observed, found: Sequence[Signal], table: HealthTable) -> None:
        self._found, self._table = found, table
        self._names = frozenset(one.name for one in found)
        facts: HostFacts | None = None if isinstance(observed.host, Silent) else observed.host.value
        self._dimms = None if facts is None else facts.dimm_errors
        self._records = () if facts is None or facts.dimm_records is None else facts.dimm_records
        self._uptime_s = None if facts is None else facts.uptime_s
        self._gpus = () if facts is None or facts.gpus is None else facts.gpus
        self._amds = () if facts is None or facts.amd_gpus is None else facts.amd_gpus
        self._events = () if facts is None or facts.kernel_events is None else facts.kernel_events
        self._xids = () if facts is None or facts.xids is None else facts.xids
        links = () if facts is None or facts.links is None else facts.links
        self._alarms = {} if facts is None or facts.module_alarms is None else facts.module_alarms
        self._ports = [link for link in links if link.kind == RDMA]
        self._parts = None if isinstance(observed.inventory, Silent) else observed.inventory.value.parts

    @property
    def of_application(self) -> list[Xid]:
        of_gpu = (RECOVERY_ACTION_CHANGED, POWER_SMOOTHING_BACK)  # what they say is well is not of its work
        told = (one for one in self._xids if not one.switch and one.code not in of_gpu and not signal_of(one))
        found = (one for one in told if f"{AGAIN}{one.code}" not in self._names)
        return sorted(found, key=lambda one: (one.code, one.device))

    def shared(self) -> Finding | None:
        """Return the cause that all GPUs have in common. One GPU alone can't show that it shares anything."""
        for row in SHARED:
            many = len(self._gpus)
            symptoms = row.symptoms & self._names
            if many < 2 or not symptoms or not all(symptoms & self._shown(gpu) for gpu in self._gpus):
                continue
            evidence = self._signals(symptoms | {row.culprit})
            out: tuple[str, ...] = (f"a fault of one GPU: all {many} show {' or '.join(sorted(symptoms))}",)
            parts = [part for part in self._parts or () if part.kind == row.kind]
            ill = [part.id for part in parts if part.health is Health.CRITICAL]
            if row.culprit in self._names:
                return Finding(f"{row.parts}: {', '.join(sorted(ill))}", evidence, ruled_out=out)
            if parts and all(_judged(part) for part in parts):
                out = (*out, f"{row.parts} of the node: the BMC judges {len(parts)}, and none is critical")
                return Finding(row.beyond, evidence, ruled_out=out)
            return Finding(row.beyond, evidence, ruled_out=out, open=(f"{row.parts} of the node: not read",))
        return None

    def module(self) -> Finding | None:
        """Return the memory modules that count errors, by slot where it is known."""
        if not self._names & _NAMES_A_MODULE:
            return None
        places = {part.id for part in self._parts or () if part.kind == "dimm" and part.health is Health.CRITICAL}
        for dimm in self._dimms or ():
            if any(name in self._names for name, _ in dimm_signals(dimm, self._uptime_s, self._table)):
                places.add(dimm.label or dimm.place)
        for record, (name, _) in record_signals(self._records, self._table):
            if name in self._names:
                places.add(record.label or record.place)
        where = ", ".join(sorted(places)) or "the slot is not known"
        evidence, clean = self._signals(_MODULE), [gpu for gpu in self._gpus if gpu.ecc_uncorrectable == 0]
        if self._gpus and len(clean) == len(self._gpus):
            out = (f"the GPUs' own memory: all {len(clean)} count no uncorrectable error",)
            return Finding(f"memory modules: {where}", evidence, ruled_out=out)
        return Finding(f"memory modules: {where}", evidence)

    def one_gpu(self) -> Finding | None:
        """Return the GPUs that are ill, each for itself: coincident faults of GPUs have no common cause by that."""
        ill = [gpu for gpu in self._gpus if self._names & _OF_ONE_GPU & self._shown(gpu) or any(self._codes(gpu))]
        if not ill:
            return None
        names = {name for gpu in ill for name in (*(self._shown(gpu) & _OF_ONE_GPU), *self._codes(gpu))}
        cause = ", ".join(f"GPU {gpu.index} at {gpu.pci}" for gpu in sorted(ill, key=lambda gpu: gpu.index))
        well = len(self._gpus) - len(ill)
        out = [f"a cause that the GPUs share: {well} of {len(self._gpus)} show none of it"] if well else []
        if self._dimms and self._uptime_s is not None and not self._names & _MODULE:
            out.append(f"main memory: EDAC counts {len(self._dimms)} modules, and none is ill")
        elif not self._names & _MODULE:
            return Finding(cause, self._signals(names), ruled_out=tuple(out), open=("main memory: not read",))
        return Finding(cause, self._signals(names), ruled_out=tuple(out))

    def gpus_of_amd(self) -> Finding | None:
        """Return the GPUs of AMD's that are ill, by amd-smi or by the kernel log, which names their PCI address."""
        signs = {gpu: self._of_amd(gpu) & self._names for gpu in self._amds}
        ill = {gpu: names for gpu, names in signs.items() if names}
        if not ill:
            return None
        cause = ", ".join(f"GPU {gpu.index} at {gpu.pci or 'an address that was not read'}" for gpu in ill)
        well = len(signs) - len(ill)
        out = (f"a cause that the GPUs share: {well} of {len(signs)} show none of it",) if well else ()
        return Finding(cause, self._signals(frozenset[str]().union(*ill.values())), ruled_out=out)

    def _of_amd(self, gpu: AmdGpu) -> frozenset[str]:
        logged = (one.kind.value for one in self._events if gpu.pci and _slot(one.device) == _slot(gpu.pci))
        return frozenset((*(name for name, _ in amd_signals(gpu)), *logged))

    def cable(self, domains: Mapping[str, str]) -> Finding | None:
        """Return the cables of the ports that are ill, by both ends as far as they are known."""
        slow = frozenset(self._bad_ports) | {device_of(one) for one in self._found if one.name in _PORT_COUNTERS} - {""}
        slow |= self._alarms.keys() if "module_alarm" in self._names else frozenset()
        if not self._names & _OF_PORT or not slow:
            return None
        of_rails = all("/" in port for port in slow)  # an interface may end at a switch of management
        far = " or ".join(f"{label} {domains[label]}" for label in _FAR_ENDS if label in domains and of_rails)
        cause = f"cable from {', '.join(sorted(slow))} to {far or 'a switch that is not known'}, or a port at its ends"
        well = len([port for port in self._ports if port.name not in slow])
        out = (f"what the ports share: {well} of {len(self._ports)} are up, as fast as the fastest",) if well else ()
        lacks = (
            "the port of the switch" if far else "the switch and its port: no domain leaf, switch or tor is declared"
        )
        return Finding(cause, self._signals(_OF_PORT), ruled_out=out, open=(f"{lacks}: no source names the far end",))

    def again(self) -> Finding | None:
        """Return the GPU where an application's code came again, and nowhere else: no source tells whose fault."""
        names = frozenset(name for name in self._names if name.startswith(AGAIN))
        if not names:
            return None
        at = [f"GPU {gpu.index} at {gpu.pci}" for gpu in self._gpus if any(self._again(gpu, names))]
        return Finding(
            f"the application, or {', '.join(at) or 'a GPU that is not known'}",
            self._signals(names),
            open=("which of the two: a gate, or NVIDIA's field diagnosis, with the node out of service",),
        )

    def silence(self) -> Finding | None:
        """Return the silence of sources, where that is all: nothing is known against the node, and nothing for it."""
        if not self._names or not self._names <= _SILENCES:
            return None
        said = "; ".join(f"{one.name} ({one.detail})" for one in self._found)
        return Finding(
            "not the node's health: what watches it is silent", tuple(self._found), open=(f"its health: {said}",)
        )

    @property
    def _bad_ports(self) -> Iterator[str]:
        best = max((link.rate_gbps or 0.0 for link in self._ports if link.up), default=0.0)
        return (link.name for link in self._ports if link.up is False or (link.rate_gbps or best) < best)

    def _codes(self, gpu: Gpu) -> Iterator[str]:
        for xid in self._xids:
            name = signal_of(xid)
            if not xid.switch and name in self._names and _slot(xid.device) == _slot(gpu.pci):
                yield name

    def _again(self, gpu: Gpu, names: frozenset[str]) -> Iterator[str]:
        for xid in self._xids:
            if not xid.switch and f"{AGAIN}{xid.code}" in names and _slot(xid.device) == _slot(gpu.pci):
                yield xid.device

    def _shown(self, gpu: Gpu) -> frozenset[str]:
        own = () if gpu.lost else (*gpu_signals(gpu, self._table), *cell_signals(gpu.cells))
        return frozenset(name for name, _ in own)

    def _signals(self, names: frozenset[str] | set[str]) -> tuple[Signal, ...]:
        return tuple(one for one in self._found if one.name in names)


def _judged(part: Part) -> bool:
    return part.health is not None and part.health is not Health.CRITICAL


def _xid(one: Xid) -> str:
    return f"XID {one.code} on {one.device}"


def _slot(address: str) -> str:
    """Return a PCI address without its function and the leading zeros of its domain: drivers write both differently."""
    return address.partition(".")[0].lstrip("0").casefold()
