"""The variants of the action that flashes firmware, and what is staged by it."""

from __future__ import annotations

from collections.abc import Iterable

from reconciler.model.vocab import Activation
from reconciler.planner.node import conditions as c
from reconciler.planner.node.conditions import firmware_ok, firmware_staged
from reconciler.planner.node.traits import NodeTraits, Staged, Variant


def update_firmware(node: NodeTraits) -> Iterable[Variant]:
    """One variant per component that has a URL. Drift of one without is reported, with no action that removes it."""
    firmware = node.desired.profile.firmware
    for item in firmware:
        if item.url is None:
            continue
        done, staged = firmware_ok(item.component), firmware_staged(item.component)
        immediate = item.activation is Activation.IMMEDIATE
        yield Variant(
            item.component,
            requires=tuple(firmware_ok(other.component) for other in firmware if other.stage < item.stage),
            achieves=(done,) if immediate else (staged,),
            breaks=node.gate_after_firmware(item.component) if immediate else (),
            forbids=(done, staged),
            seconds=item.minutes * 60 + item.settle_s,
        )


def staged_firmware(node: NodeTraits) -> Iterable[Staged]:
    """New firmware voids the tests that depend on it; BIOS firmware resets its settings as well."""
    for item in node.desired.profile.firmware:
        resets = (c.BIOS,) if item.component == "bios" and node.desired.profile.bios else ()
        if item.activation is not Activation.IMMEDIATE:
            breaks = (*resets, *node.gate_after_firmware(item.component))
            yield Staged(firmware_staged(item.component), item.activation, firmware_ok(item.component), breaks)
