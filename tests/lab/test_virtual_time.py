"""Virtual time: hours pass at once and in order, and the clock outlives its event loop."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest

from reconciler.lab.inprocess import VirtualClock, run_virtual


def test_sleeping_for_a_year_takes_no_time_and_keeps_order() -> None:
    clock = VirtualClock()
    woken: list[tuple[str, float]] = []

    async def sleeper(name: str, seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append((name, clock.seconds()))

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for name, seconds in (("year", 365 * 86400.0), ("hour", 3600.0), ("now", 0.0)):
                group.create_task(sleeper(name, seconds))

    started, real = clock.now(), time.monotonic()
    run_virtual(main(), clock)
    assert [name for name, _ in woken] == ["now", "hour", "year"]
    assert woken[2][1] == pytest.approx(365 * 86400)
    assert clock.now() - started == pytest.approx(timedelta(days=365), abs=timedelta(seconds=1))
    assert time.monotonic() - real < 5


def test_deadlines_are_virtual_too() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(600):
                await asyncio.sleep(10**6)

    clock = VirtualClock()
    run_virtual(main(), clock)
    assert clock.seconds() == pytest.approx(600)


def test_the_next_run_continues_where_the_last_one_ended() -> None:
    clock = VirtualClock()
    for _ in range(3):
        run_virtual(clock.sleep(100), clock)
    assert clock.seconds() == pytest.approx(300)


def test_waiting_for_what_never_comes_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconciler.lab.inprocess.virtual_time._PATIENCE_S", 0.05)

    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="every task waits"):
        run_virtual(main())


def test_a_thread_may_wake_a_loop_that_has_nothing_else_to_do() -> None:
    async def main() -> int:
        return await asyncio.to_thread(lambda: 7)

    assert run_virtual(main()) == 7
