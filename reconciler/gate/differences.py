"""Tell what differs between what a certificate bound and what is there now, and which tests depend on it."""

from __future__ import annotations

from collections.abc import Iterator

from reconciler.diff import normalise
from reconciler.gate.after import (
    every_test,
    tests_after_bios,
    tests_after_driver,
    tests_after_exchange,
    tests_after_fabric,
    tests_after_firmware,
)
from reconciler.gate.exchanged import exchanged, other_values
from reconciler.model.after import Exchanged
from reconciler.model.desired import Acceptance
from reconciler.model.gate import Binding


def differences(bound: Binding, found: Binding, acceptance: Acceptance) -> Iterator[tuple[str, frozenset[str]]]:
    """Yield what differs, with the tests that depend on it. An installation or another machine asks for all."""
    every = every_test(acceptance)
    if not normalise.same(bound.serial, found.serial):
        yield "issued for a machine with another serial number", every  # comments must not show it (pitfall M5)
    others = exchanged(bound, found)
    if bound.gpu_serials != found.gpu_serials:
        same_number = Exchanged.GPU in others
        tests = tests_after_exchange(acceptance, Exchanged.GPU) if same_number else every
        yield "a GPU was exchanged, added or lost", tests
    for part in (one for one in Exchanged if one in others and one is not Exchanged.GPU):
        yield f"a {part.part} was exchanged", tests_after_exchange(acceptance, part)
    if bound.image_sha256 != found.image_sha256:
        yield "issued for another image", every  # with whatever it brings
    elif other := other_values(bound.software, found.software):
        yield f"{', '.join(other)} changed since", tests_after_driver(acceptance)
    flashed = sorted(name for name in found.firmware if bound.firmware.get(name) != found.firmware[name])
    asked = {name: tests_after_firmware(acceptance, name) for name in flashed}
    for names in dict.fromkeys(tuple([n for n in flashed if test in asked[n]]) for test in sorted(every)):
        if names:
            alike = frozenset(test for test in every if all((test in asked[n]) is (n in names) for n in flashed))
            yield f"firmware changed since: {', '.join(names)}", alike
    if flashed and not any(asked.values()):
        yield f"firmware changed since: {', '.join(flashed)}", frozenset()
    if bound.bios_digest != found.bios_digest:
        yield "BIOS settings changed since", tests_after_bios(acceptance)
    moved = other_values(bound.fabric, found.fabric)
    if moved and (tests := tests_after_fabric(acceptance)):
        places = ", ".join(f"{label} {bound.fabric[label]} -> {found.fabric[label]}" for label in moved)
        yield f"its place in the fabric changed since: {places}", tests
