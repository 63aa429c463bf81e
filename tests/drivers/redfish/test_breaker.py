"""BMCs that do not answer: asked less and less, and never at the cost of those that do."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from reconciler.drivers.redfish import BmcRegistry, RedfishBmc, bmc_gate
from reconciler.drivers.redfish.breaker import OPENS_AFTER, Breaker
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Silent
from reconciler.model.ports import PowerAction
from reconciler.model.vocab import UnknownReason
from tests.drivers.redfish.bench import NOW, SYSTEM, Bench, Call, HangUp, client, machine, play
from tests.drivers.redfish.test_writes import RESET, failure


class Time:
    """The fleet's clock; tests move it."""

    def __init__(self) -> None:
        self.at = NOW

    def __call__(self) -> datetime:
        return self.at

    def passes(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)


@contextmanager
def vacant() -> Iterator[str]:
    """An address where nobody listens, kept free for somebody who will."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@contextmanager
def swallowed() -> Iterator[str]:
    """An address that takes no more connections and refuses none: packets to it are lost."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(server.getsockname())
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        for one in waiting:
            one.close()


async def silence(bmc: RedfishBmc) -> Silent:
    found = await bmc.hot()
    assert isinstance(found, Silent), found
    return found


# --- the pauses --------------------------------------------------------------------------------------------------


def pauses(breaker: Breaker, count: int, start: datetime = NOW) -> list[float]:
    """Return the pause after each of so many misses in a row."""
    found, now = [], start
    for _ in range(count):
        breaker.missed("gone", now)
        pause = 0.0
        try:
            breaker.check(now)
        except DriverError as error:
            pause = error.retry_after or -1.0
        found.append(pause)
        now += timedelta(seconds=pause)
        breaker.check(now)
    return found


def test_pauses_grow_up_to_a_limit() -> None:
    found = pauses(Breaker("https://10.20.0.11"), 40)
    assert found[: OPENS_AFTER - 1] == [0.0] * (OPENS_AFTER - 1)
    for pause, usual in zip(found[OPENS_AFTER - 1 :], [15, 30, 60, 120, 240, *[300] * 50], strict=False):
        assert 0.75 * usual <= pause <= 1.25 * usual


def test_bmcs_that_go_dark_together_are_not_asked_together() -> None:
    firsts = {pauses(Breaker(f"https://10.20.0.{n}"), 3)[-1] for n in range(100)}
    assert len(firsts) == 100
    assert max(firsts) - min(firsts) > 5


def test_an_answer_begins_anew() -> None:
    breaker = Breaker("https://10.20.0.11")
    pauses(breaker, 8)
    breaker.answered()
    assert pauses(breaker, OPENS_AFTER)[:-1] == [0.0, 0.0]


def test_after_a_restart_of_ours_pauses_stay_short_for_a_while() -> None:
    breaker = Breaker("https://10.20.0.11")
    breaker.expect_absence(600.0, NOW)
    breaker.answered()  # it has not gone down yet
    found = pauses(breaker, 60)
    assert max(found[:30]) <= 15 * 1.25
    assert max(found) > 60  # it did not come back


def test_an_outage_of_days_says_the_day() -> None:
    breaker = Breaker("https://10.20.0.11")
    for _ in range(3):
        breaker.missed("gone", NOW - timedelta(days=2))
    breaker.missed("gone", NOW)
    with pytest.raises(DriverError, match=r"since 2026-11-19 09:00:00$"):
        breaker.check(NOW)


# --- reads and writes --------------------------------------------------------------------------------------------


def test_a_dead_bmc_is_left_alone_and_found_again() -> None:
    clock = Time()

    async def steps(url: str) -> None:
        bmc = client(url, now=clock)
        for _ in range(OPENS_AFTER):
            assert "not tried again" not in (await silence(bmc)).detail
        began = time.perf_counter()
        for _ in range(100):
            found = await silence(bmc)
        assert time.perf_counter() - began < 2.0
        assert found.reason is UnknownReason.UNREACHABLE
        assert url in found.detail
        assert "Connection refused" in found.detail
        assert "not tried again before 09:00:1" in found.detail
        assert found.detail.endswith("; 3 connection failures since 09:00:00")
        for write in (bmc.power(PowerAction.ON), bmc.stage_bios({"A": 1}), bmc.eject_media()):
            error = await failure(write)
            assert error.kind is Failure.UNREACHABLE
            assert error.retry_after is not None
            assert 10 < error.retry_after < 20
        clock.passes(20)
        assert "4 connection failures" not in (await silence(bmc)).detail  # asked, and told what was found
        assert "4 connection failures since 09:00:00" in (await silence(bmc)).detail

    with vacant() as url:
        asyncio.run(steps(url))


def test_a_bmc_that_is_back_answers_the_first_call_after_the_pause() -> None:
    clock = Time()

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.rules.append(hang_up)
        for _ in range(OPENS_AFTER):
            await silence(bmc)
        calls = len(bench.calls)
        assert "not tried again" in (await silence(bmc)).detail
        assert len(bench.calls) == calls
        bench.rules.remove(hang_up)
        assert isinstance(await bmc.hot(), Silent)  # nobody looks before the pause is over
        clock.passes(20)
        assert isinstance(await bmc.hot(), Answered)

    play(machine(), steps, now=clock)


async def hang_up(_: Call) -> None:
    raise HangUp


def test_errors_of_http_are_answers() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.hot()
        bench.answer("GET", SYSTEM, 503, forever=True)
        for _ in range(10):
            assert "HTTP 503" in (await silence(bmc)).detail

    play(machine(), steps)


def test_a_write_that_is_not_answered_can_be_looked_at_at_once() -> None:
    """It is ambiguous, so what matters is the next read (A3)."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.hot()

        async def hang(call: Call) -> None:
            if call.path == RESET:
                await asyncio.sleep(5)

        bench.rules.append(hang)
        for _ in range(OPENS_AFTER + 1):
            assert (await failure(bmc.power(PowerAction.FORCE_OFF))).kind is Failure.AMBIGUOUS
            assert isinstance(await bmc.hot(), Answered)

    play(machine(), steps, read_timeout=0.3)


def test_bmcs_that_hang_open_it_too_and_calls_that_their_caller_cuts_off() -> None:
    async def steps(url: str) -> None:
        hanging = client(url, read_timeout=0.2)
        for _ in range(OPENS_AFTER):
            assert (await silence(hanging)).reason is UnknownReason.TIMEOUT
        assert "not tried again" in (await silence(hanging)).detail
        cut = client(url, read_timeout=30)
        for _ in range(OPENS_AFTER):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(2.2):
                    await cut.hot()
        assert "not tried again" in (await silence(cut)).detail

    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(128)
        asyncio.run(steps(f"http://127.0.0.1:{server.getsockname()[1]}"))


# --- a fleet -----------------------------------------------------------------------------------------------------


def test_dead_bmcs_cost_a_pass_nothing_and_live_ones_answer() -> None:
    clock = Time()
    bmc_registry = BmcRegistry(clock)

    async def one_pass(bmcs: list[RedfishBmc], live: RedfishBmc) -> float:
        limit, began = asyncio.Semaphore(16), time.perf_counter()

        async def read(bmc: RedfishBmc) -> None:
            async with limit:
                found = await bmc.hot()
            assert isinstance(found, Answered) is (bmc is live)

        await asyncio.gather(*map(read, [*bmcs, live]))
        return time.perf_counter() - began

    async def steps(url: str) -> None:
        bench = machine()
        async with bench.serving():
            live = bench.client(bmc_registry=bmc_registry, now=clock)
            urls = [url.replace("127.0.0.1", f"127.0.{n}.1") for n in range(1, 60)]
            dead = [client(one, bmc_registry=bmc_registry, now=clock) for one in urls]
            took = [await one_pass(dead, live) for _ in range(OPENS_AFTER + 1)]
            assert took[-1] < 1.0, took
            clock.passes(30)  # all may be tried again
            assert await one_pass(dead, live) < 2.0
            for bmc in [*dead, live]:
                await bmc.close()

    before = threading.active_count()
    with vacant() as url:
        asyncio.run(steps(url))
    assert threading.active_count() <= before + 2


def test_a_network_that_swallows_packets_costs_its_timeout_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bmc_gate, "PROBE_WAIT_S", 0.3)
    clock = Time()

    async def steps(url: str) -> list[float]:
        bmc, took = client(url, connect_timeout=1.6, now=clock), []
        for _ in range(2):
            began = time.perf_counter()
            await silence(bmc)
            took.append(time.perf_counter() - began)
        await asyncio.sleep(1.6)  # the second try goes on by itself, and is counted
        assert bmc._gate._breaker.misses == 2
        await bmc.close()
        return took

    with swallowed() as url:
        first, second = asyncio.run(steps(url))
    assert 0.2 < second < 1.4 < first


def test_those_who_share_a_dead_bmc_find_out_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bmc_gate, "PROBE_WAIT_S", 0.4)
    clock = Time()
    bmc_registry = BmcRegistry(clock)

    async def steps(url: str) -> list[float]:
        options: dict[str, Any] = {"connect_timeout": 1.0, "bmc_registry": bmc_registry, "now": clock}
        nodes, took = [client(url, node=f"n{n}", **options) for n in range(8)], []
        for _ in range(2):
            began = time.perf_counter()
            await asyncio.gather(*map(silence, nodes))
            took.append(time.perf_counter() - began)
        await asyncio.gather(*(bmc.close() for bmc in nodes))
        return took

    with swallowed() as url:
        first, second = asyncio.run(steps(url))
    assert first < 2
    assert second < 1


def test_one_breaker_for_all_who_name_the_address() -> None:
    clock = Time()
    bmc_registry = BmcRegistry(clock)

    async def steps(url: str) -> None:
        nodes = [client(url, node=f"n{n}", bmc_registry=bmc_registry, now=clock) for n in range(3)]
        for bmc in nodes:
            await silence(bmc)
        for bmc in nodes:
            assert "not tried again" in (await silence(bmc)).detail

    with vacant() as url:
        asyncio.run(steps(url))


def test_the_clock_of_messages_is_utc() -> None:
    breaker = Breaker("x")
    for _ in range(3):
        breaker.missed("gone", NOW.astimezone(UTC))
    with pytest.raises(DriverError, match="since 09:00:00"):
        breaker.check(NOW)
