"""Check pools whose nodes a person reimages: they have no BMC, and the spec may want nothing that needs one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from reconciler.model.errors import Diagnostic
from reconciler.model.vocab import ReimagedBy
from reconciler.spec.layers import merge, values_of
from reconciler.spec.node_source import NodeSource
from reconciler.spec.parse import Declarations
from reconciler.spec.resolve import choices, settings_of

_OF_BMC: Final = frozenset({"nics", "drives", "dimms", "memory", "processors"})  # fields of an inventory


def check_by_person(declared: Declarations, nodes: Sequence[NodeSource]) -> Iterator[Diagnostic]:
    """Yield the problems of nodes that a person reimages, and of what is declared for them."""
    ours = [node for node in nodes if declared.pools[node.pool].spec.reimaged_by is ReimagedBy.PERSON]
    for node in ours:
        told = f"the pool says `reimagedBy: person` ({declared.pools[node.pool].at('reimagedBy')})"
        for what, given in (("a bmc", node.endpoints.bmc), ("outlets", node.outlets)):
            if given:
                yield Diagnostic(node.at, "", f"node {node.name!r} has {what}, and {told}", "leave out one of them")
        if node.serial is None:
            problem = f"node {node.name!r} has no serial, by which alone its machine is known without a BMC"
            yield Diagnostic(node.at, "", problem, "give it, as the host tells it in /sys/class/dmi/id/product_serial")
    of_pools = dict.fromkeys((node.pool, node.entry) for node in ours)
    yield from dict.fromkeys(one for pool, entry in of_pools for one in _needs_bmc(declared, pool, entry))


def _needs_bmc(declared: Declarations, pool: str, entry: int | None) -> Iterator[Diagnostic]:
    """Yield a problem for what is declared and only a BMC can read or set: it would be unknown for ever."""
    told = f"of nodes of pool {pool!r}: nobody reads it without a BMC ({declared.pools[pool].at('reimagedBy')})"
    chosen = choices(declared, pool, entry)
    hardware = declared.hardware.get(chosen["hardware"].value) if "hardware" in chosen else None
    if hardware is not None:
        spec = hardware.spec
        of_bmc = sorted(spec.inventory.model_fields_set & _OF_BMC)
        for key, what, given in (
            ("match", "the model of machine", spec.match.model_fields_set),
            ("inventory", f"{', '.join(of_bmc)} of the inventory", of_bmc),
            ("firmware", "firmware", spec.firmware), ("bios", "BIOS settings", spec.bios.attributes),
            ("secureBoot", "Secure Boot", spec.secure_boot is not None),
            ("bootOrder", "the boot order", spec.boot_order),
        ):  # fmt: skip
            if given:
                yield hardware.problem((key,), f"{what} {told}")
    for path, setting in merge(values_of(*one) for one in settings_of(declared, pool, entry)).items():
        if path.startswith("bios."):
            yield Diagnostic(setting.at, "", f"BIOS setting {path.removeprefix('bios.')} {told}", "null takes it back")
