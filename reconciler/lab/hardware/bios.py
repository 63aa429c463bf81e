"""The BIOS attributes of lab machines, with factory defaults and allowed values (pitfall G1).

An attribute that only a user's spec names becomes an enumeration of the spec's value and its usual opposites.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.lab.hardware.state import AttributeValue

_SWITCH = ("Enabled", "Disabled")


@dataclass(frozen=True, slots=True)
class BiosAttribute:
    """`values`: those of an enumeration; () for a boolean or a non-negative integer, by the default's type."""

    default: AttributeValue
    values: tuple[str, ...] = ()

    def accepts(self, value: AttributeValue) -> bool:
        if self.values:
            return value in self.values
        if isinstance(self.default, str):
            return isinstance(value, str)
        return type(value) is type(self.default) and int(value) >= 0


Registry = Mapping[str, BiosAttribute]

KNOWN: Registry = {
    "SriovGlobalEnable": BiosAttribute("Disabled", _SWITCH),
    "NumaNodesPerSocket": BiosAttribute("NPS4", ("NPS0", "NPS1", "NPS2", "NPS4")),
    "HyperThreading": BiosAttribute("Enabled", _SWITCH),
    "VirtualizationTechnology": BiosAttribute("Enabled", _SWITCH),
    "AcsControl": BiosAttribute("Enabled", _SWITCH),
    "Above4GDecoding": BiosAttribute("Enabled", _SWITCH),
    "ResizableBar": BiosAttribute("Disabled", _SWITCH),
    "PowerProfile": BiosAttribute("Balanced", ("Balanced", "MaximumPerformance", "Efficiency")),
    "EnergyPerformanceBias": BiosAttribute("Balanced", ("Maximum Performance", "Performance", "Balanced", "Power")),
    "BootTimeout": BiosAttribute(5),
    "QuietBoot": BiosAttribute(True),
    "AssetTag": BiosAttribute(""),
}
TPM, TPM_CLEAR, TPM_IDLE = "Tpm2Hierarchy", "Clear", "Enabled"  # Dell's; a machine has it if its registry does
TPM_ATTRIBUTE = BiosAttribute(TPM_IDLE, (TPM_IDLE, "Disabled", TPM_CLEAR))
_OPPOSITES = {
    "Enabled": _SWITCH,
    "Disabled": _SWITCH,
    "Enable": ("Enable", "Disable"),
    "Disable": ("Enable", "Disable"),
}


def learn(attributes: Mapping[str, AttributeValue], known: Registry = KNOWN) -> Registry:
    """Return `known` plus the attributes that only the spec names; their factory defaults differ from the spec."""
    learned = dict(known)
    for name, value in attributes.items():
        if name in known:
            continue
        if isinstance(value, str):
            values = _OPPOSITES.get(value, (value, "Manual" if value == "Auto" else "Auto"))
            learned[name] = BiosAttribute(next(word for word in values if word != value), values)
        elif isinstance(value, bool):
            learned[name] = BiosAttribute(not value)
        else:
            learned[name] = BiosAttribute(0 if value else 1)
    return learned


def defaults(registry: Registry) -> dict[str, AttributeValue]:
    return {name: attribute.default for name, attribute in registry.items()}
