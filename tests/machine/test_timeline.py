"""Where the time of a step went, from lines of the console and of our command."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.machine.timeline import Part, Took, parts_of, shown
from tests.machine.traced import calls_in, noted

PARTS = (Part("POST", ("starting",), machine=True), Part("write", ("written",)), Part("boot", ("login:",)))


def test_each_part_ends_with_its_line() -> None:
    lines = [(30.0, "login:"), (12.0, "BdsDxe: starting Boot0001"), (25.5, "installer: written"), (1.0, "written")]
    parts = parts_of(10.0, lines, PARTS)
    assert parts == [Took("POST", 2.0, 0.0), Took("write", 13.5, 13.5), Took("boot", 4.5, 4.5)]
    assert shown("A -> B", parts) == "A -> B: 20 s = POST 2, write 14, boot 4; ours 18.0 s"


def test_a_part_without_its_line_counts_to_the_next() -> None:
    lines = [(1.0, "starting"), (9.0, "login:")]
    assert parts_of(0.0, lines, PARTS) == [Took("POST", 1.0, 0.0), Took("write and boot", 8.0, 8.0)]


def test_what_a_call_waits_for_is_not_ours() -> None:
    lines = [(2.0, "starting"), (10.0, "written")]
    calls = [(1.0, 4.0), (3.0, 5.0), (3.5, 4.5), (9.0, 12.0)]  # 2 to 5 and 9 to 10
    assert parts_of(0.0, lines, PARTS, calls) == [Took("POST", 2.0, 0.0), Took("write", 8.0, 4.0)]


def test_a_call_is_noted_when_it_ends(tmp_path: Path) -> None:
    async def call(answer: int) -> int:
        await asyncio.sleep(0.01)
        return answer

    file = tmp_path / "calls"
    assert calls_in(file) == []
    assert asyncio.run(noted(call, file)(7)) == 7
    ((began, ended),) = calls_in(file)
    assert ended - began >= 0.01
