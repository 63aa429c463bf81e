"""Where the time of a step went, from lines of the console and of our command."""

from __future__ import annotations

from tests.machine.timeline import Part, parts_of, shown

PARTS = (Part("POST", ("starting",)), Part("write", ("written",)), Part("boot", ("login:",)))


def test_each_part_ends_with_its_line() -> None:
    lines = [(30.0, "login:"), (12.0, "BdsDxe: starting Boot0001"), (25.5, "installer: written"), (1.0, "written")]
    parts = parts_of(10.0, lines, PARTS)
    assert parts == [("POST", 2.0), ("write", 13.5), ("boot", 4.5)]
    assert shown("A -> B", parts) == "A -> B: 20 s = POST 2, write 14, boot 4"


def test_a_part_without_its_line_counts_to_the_next() -> None:
    assert parts_of(0.0, [(1.0, "starting"), (9.0, "login:")], PARTS) == [("POST", 1.0), ("write and boot", 8.0)]
