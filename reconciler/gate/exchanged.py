"""Parts, drivers and leaves that were exchanged: what a certificate bound, against what is there now.

A part counts as exchanged when one that was there is gone and another one of its kind is there that was not. A source
that reads less today than it did at the gate, or more, is no exchange: what is missing has a signal of its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from reconciler.model.after import Exchanged
from reconciler.model.gate import Binding
from reconciler.model.observed import HostFacts, RedfishInventory

_BOUND = (Exchanged.NIC, Exchanged.DRIVE, Exchanged.DIMM)
_SWITCH: Final = re.compile(r"(leaf|spine)(\d.*|-.*)?")  # labels of failure domains: leaf, leaf-0, spine


def parts_of(inventory: RedfishInventory | None, facts: HostFacts) -> Mapping[str, tuple[str, ...]]:
    """Return the serial numbers of NICs (their MAC addresses), drives and DIMMs, by kind; what none is known of is out.

    Drives are those of BMC and host: few BMCs list all. `inventory` None: the node has no BMC.
    """
    nics, drives, parts = (
        (None, None, None) if inventory is None else (inventory.nics, inventory.drives, inventory.parts)
    )
    found = {
        Exchanged.NIC: {nic.mac for nic in nics or ()},
        Exchanged.DRIVE: {one.serial for one in drives or ()} | {one.serial for one in facts.nvme or ()},
        Exchanged.DIMM: {part.serial for part in parts or () if part.kind == "dimm"},
    }
    return {kind.value: tuple(sorted(known)) for kind, some in found.items() if (known := {one for one in some if one})}


def exchanged(bound: Binding, found: Binding) -> frozenset[Exchanged]:
    """Return the kinds of parts of which another one is there than was bound. More or fewer GPUs are no exchange."""
    some = {kind for kind in _BOUND if _other(bound.parts.get(kind, ()), found.parts.get(kind, ()))}
    if bound.gpu_serials != found.gpu_serials and len(bound.gpu_serials) == len(found.gpu_serials):
        some.add(Exchanged.GPU)
    return frozenset(some)


def _other(bound: tuple[str, ...], found: tuple[str, ...]) -> bool:
    return bound != found and bool(set(bound) - set(found)) and bool(set(found) - set(bound))


def gpu_serials(facts: HostFacts) -> tuple[str, ...] | None:
    """Return the serial numbers of the GPUs of both makers; None while those of one may be there and were not read.

    amd-smi tells those of AMD's in a call of its own, which may fail while the other lists the GPUs.
    """
    if facts.gpus is None or (not facts.gpus and facts.amd_gpus is None):
        return None
    of_amd = [gpu.serial for gpu in facts.amd_gpus or () if gpu.serial]
    if len(of_amd) < len(facts.amd_gpus or ()):
        return None
    return tuple(sorted([*(gpu.serial or gpu.uuid or "?" for gpu in facts.gpus), *of_amd]))


def software_of(facts: HostFacts) -> Mapping[str, str]:
    """Return the versions that decide what GPUs and collectives measure; what was not read is out."""
    found = {"driver": facts.driver, "cuda": facts.cuda, "nccl": facts.nccl}
    return {name: version for name, version in found.items() if version}


def fabric_of(domains: Mapping[str, str]) -> Mapping[str, str]:
    """Return those failure domains that are switches, by label; the rack where no leaf is declared, as in a search."""
    return _fabric(tuple(domains.items()))


@lru_cache(maxsize=65536)
def _fabric(domains: tuple[tuple[str, str], ...]) -> Mapping[str, str]:
    found = {label: name for label, name in domains if _SWITCH.fullmatch(label)}
    has_leaf = any(label.startswith("leaf") for label in found)
    return found if has_leaf else {**found, **{label: name for label, name in domains if label == "rack"}}


def other_values(bound: Mapping[str, str], found: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names whose value is another one now. What was not known then, or isn't now, has not changed."""
    return tuple([name for name in bound if bound[name] != found.get(name, bound[name])]) if bound != found else ()
