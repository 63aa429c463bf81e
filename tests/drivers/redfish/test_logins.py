"""Accounts get locked (pitfall B3): who sends a secret to a BMC, how often, and what is said of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.redfish import BmcRegistry, RedfishBmc
from reconciler.drivers.redfish.login_guard import COOL_DOWN_S, SUSPECT_AFTER
from reconciler.drivers.secrets import Credentials, Secret
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Silent
from reconciler.model.ports import PowerAction
from reconciler.model.vocab import UnknownReason
from tests.drivers.redfish.bench import NOW, PASSWORD, ROOT, SESSIONS, SETTINGS, SYSTEM, USER, Bench, machine, refusal
from tests.drivers.redfish.test_writes import failure


class Process:
    """One reconciler: a clock, a secret that people may change, and its registry of BMCs."""

    def __init__(self, password: str = PASSWORD) -> None:
        self.at, self.password = NOW, password
        self.bmc_registry = BmcRegistry(lambda: self.at)

    def passes(self, seconds: float) -> None:
        self.at += timedelta(seconds=seconds)

    def bmc(self, bench: Bench, node: str = "gpu-a001", secret: str = "bmc") -> RedfishBmc:
        def now() -> datetime:
            return self.at

        return bench.client(
            node=node,
            secret=secret,
            credentials=lambda: Credentials(USER, Secret(self.password)),
            now=now,
            bmc_registry=self.bmc_registry,
        )


NodeHistory = Callable[[Process, list[Bench]], Awaitable[None]]


def play(steps: NodeHistory, benches: int = 1, password: str = PASSWORD, wrong: int = 0) -> None:
    """`wrong`: how many of the BMCs have another password than the process."""

    async def run() -> None:
        async with AsyncExitStack() as stack:
            found = [await stack.enter_async_context(machine().serving()) for _ in range(benches)]
            for bench in found[:wrong]:
                bench.password = "another"
            await asyncio.wait_for(steps(Process(password), found), 30)

    asyncio.run(run())


async def silence(bmc: RedfishBmc) -> str:
    found = await bmc.hot()
    assert isinstance(found, Silent), found
    assert found.reason is UnknownReason.AUTH
    assert PASSWORD not in found.detail
    return found.detail


async def answers(bmc: RedfishBmc) -> bool:
    return isinstance(await bmc.hot(), Answered)


# --- one BMC -----------------------------------------------------------------------------------------------------


def test_a_refusal_stops_everybody_who_names_the_bmc() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bench = benches[0]
        first, second = process.bmc(bench, "n1"), process.bmc(bench, "n2")
        told = await silence(first)
        assert f"BMC {bench.url} of n1 refused secret 'bmc' at 09:00:00" in told
        assert "not sent again before 09:30:00" in told
        assert "check the account on the BMC, and the secret, of which another value is tried at once" in told
        seen = len(bench.calls)
        told = await silence(second)
        assert f"BMC {bench.url} of n2, asked for n1, refused secret 'bmc'" in told
        for bmc in (first, second):
            assert isinstance(await bmc.inventory(), Silent)
            for call in (bmc.power(PowerAction.ON), bmc.media(), bmc.set_secure_boot(True)):
                error = await failure(call)
                assert (error.kind, error.retry_after) == (Failure.AUTH, COOL_DOWN_S)
            await bmc.close()
        assert (len(bench.calls), bench.logins) == (seen, 1)

    play(steps, wrong=1)


def test_a_session_that_is_open_is_no_reason_to_go_on() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bench = benches[0]
        first, second = process.bmc(bench, "n1"), process.bmc(bench, "n2")
        assert await answers(first)
        bench.password = "another"
        await silence(second)
        seen = len(bench.calls)
        await silence(first)
        assert len(bench.calls) == seen

    play(steps)


def test_after_the_cool_down_one_caller_tries_once() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bench = benches[0]
        nodes = [process.bmc(bench, f"n{n}") for n in range(5)]
        for logins in (1, 2, 3):
            await asyncio.gather(*map(silence, nodes))
            assert bench.logins == logins
            process.passes(COOL_DOWN_S - 1)
            await asyncio.gather(*map(silence, nodes))
            assert bench.logins == logins
            process.passes(2)
        bench.password = PASSWORD
        assert all(await asyncio.gather(*map(answers, nodes)))
        assert bench.logins == 3 + len(nodes)

    play(steps, wrong=1)


def test_a_probe_that_nobody_answers_is_not_the_one() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bench, bmc = benches[0], process.bmc(benches[0])
        await silence(bmc)
        process.passes(COOL_DOWN_S + 1)
        bench.password = PASSWORD
        bench.answer("POST", SESSIONS, 503)
        assert not await answers(bmc)
        assert await answers(bmc)

    play(steps, wrong=1)


def test_another_value_of_the_secret_is_tried_at_once() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bench, bmc = benches[0], process.bmc(benches[0])
        await silence(bmc)
        await silence(bmc)
        process.password = "another"
        assert await answers(bmc)
        assert bench.logins == 2
        process.password = PASSWORD  # a session that is open is used as long as it lasts
        assert await answers(bmc)
        bench.tokens.clear()
        await silence(bmc)  # and what was refused stays refused
        assert bench.logins == 2

    play(steps, wrong=1)


def test_an_expired_session_may_be_renewed_once() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bench, bmc = benches[0], process.bmc(benches[0])
        assert await answers(bmc)
        bench.tokens.clear()
        assert await answers(bmc)
        bench.tokens.clear()
        bench.password = "another"
        for _ in range(3):
            assert "refused secret 'bmc'" in await silence(bmc)
        assert bench.logins == 3

    play(steps)


@pytest.mark.parametrize(
    "answer",
    [
        refusal(403, "InsufficientPrivilege", "There are insufficient privileges for the account"),
        refusal(403, "OemLicenseNotPassed", "Not licensed to perform this request."),
        web.Response(status=403, body=b"<html>403 - Forbidden</html>"),
    ],
)
def test_a_403_for_one_resource_locks_nobody_out(answer: web.Response) -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bench, bmc = benches[0], process.bmc(benches[0])
        bench.answer("GET", SETTINGS, answer, forever=True)
        bench.answer("PATCH", f"{SYSTEM}/SecureBoot", answer)
        for _ in range(3):
            found = await bmc.hot()
            assert isinstance(found, Answered)
            assert "HTTP 403" in found.value.unknown["pending_bios"]
        assert (await failure(bmc.set_secure_boot(False))).kind is Failure.AUTH
        await bmc.set_secure_boot(False)
        assert bench.logins == 1

    play(steps)


def test_the_first_answer_of_all_may_be_for_want_of_privilege() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bench, bmc = benches[0], process.bmc(benches[0])
        bench.answer("GET", "/redfish/v1/Systems", refusal(403, "InsufficientPrivilege"))
        assert "refused secret" not in await silence(bmc)
        assert await answers(bmc)

    play(steps)


def test_a_bmc_that_wants_another_password_first_says_so_and_is_no_refusal_of_ours() -> None:
    """It takes the login, and answers everything else with 403 until the password is another one (DSP0266)."""
    due = "The password provided for this account must be changed before access is granted."

    async def steps(process: Process, benches: list[Bench]) -> None:
        bench, bmc = benches[0], process.bmc(benches[0])
        bench.answer("GET", "/redfish/v1/Systems", refusal(403, "PasswordChangeRequired", due), forever=True)
        for _ in range(3):
            told = await silence(bmc)
            assert due in told
            assert "give the account another password" in told
            assert "refused secret" not in told
        assert bench.logins == 1
        bench.rules.clear()
        assert await answers(bmc), "at once, when a person has changed it"

    play(steps)


def test_basic_is_no_way_around_it() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bench = benches[0]
        del bench.documents[ROOT]["SessionService"], bench.documents[ROOT]["Links"]
        first, second = process.bmc(bench, "n1"), process.bmc(bench, "n2")
        assert "refused secret 'bmc'" in await silence(first)
        await silence(second)
        await silence(first)
        assert sum("Authorization" in call.headers for call in bench.calls) == 1

    play(steps)  # the bench takes no Basic at all


# --- a fleet -----------------------------------------------------------------------------------------------------


def sent(benches: list[Bench]) -> int:
    return sum(bench.logins for bench in benches)


def test_a_wrong_secret_locks_no_fleet() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bmcs = [process.bmc(bench, f"n{n:02d}") for n, bench in enumerate(benches)]
        for _ in range(2):
            told = await asyncio.gather(*map(silence, bmcs))
            assert sent(benches) == SUSPECT_AFTER
        unasked = [words for words in told if "was not asked" in words]
        assert len(unasked) == len(benches) - SUSPECT_AFTER
        assert f"{SUSPECT_AFTER} BMCs refused secret 'bmc' and none accepted it since" in unasked[0]
        assert "(refused by http://127.0.0.1:" in unasked[0]
        assert "it goes to no other before 09:30:00" in unasked[0]
        assert "correct it, and it is tried at once" in unasked[0]
        process.passes(COOL_DOWN_S + 1)
        await asyncio.gather(*map(silence, bmcs))
        assert sent(benches) == SUSPECT_AFTER + 1
        process.password = "another"
        assert all(await asyncio.gather(*map(answers, bmcs)))
        assert all(bench.logins <= 3 for bench in benches)  # refused, probed, accepted

    play(steps, benches=10, wrong=10)  # fmt: skip


def test_a_fleet_comes_back_after_one_good_login() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bmcs = [process.bmc(bench) for bench in benches]
        await asyncio.gather(*map(silence, bmcs))
        for bench in benches:
            bench.password = PASSWORD
        process.passes(COOL_DOWN_S + 1)
        await asyncio.gather(*(bmc.hot() for bmc in bmcs))
        assert all(await asyncio.gather(*map(answers, bmcs)))

    play(steps, benches=8, wrong=8)


def test_some_bmcs_with_another_password_are_their_own_matter() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        bmcs = [process.bmc(bench) for bench in benches]
        assert await answers(bmcs[-1])  # which shows that the secret is good
        for _ in range(2):
            found = await asyncio.gather(*map(answers, bmcs))
            assert found == [False] * 5 + [True] * 3
        assert sent(benches) == len(benches)

    play(steps, benches=8, wrong=5)


def test_a_password_that_was_changed_on_the_bmcs_is_noticed() -> None:
    """All had accepted the secret; after a rotation that we missed, three of them find that out for all."""

    async def steps(process: Process, benches: list[Bench]) -> None:
        bmcs = [process.bmc(bench) for bench in benches]
        assert all(await asyncio.gather(*map(answers, bmcs)))
        for bench in benches:
            bench.password = "another"
            bench.tokens.clear()
        process.passes(3600)
        for _ in range(2):
            await asyncio.gather(*map(silence, bmcs))
            assert sent(benches) == len(benches) + SUSPECT_AFTER

    play(steps, benches=8)


def test_secrets_of_other_names_go_on() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        await asyncio.gather(*(silence(process.bmc(bench)) for bench in benches[:4]))
        other = process.bmc(benches[4], secret="other")
        assert await answers(other)

    play(steps, benches=5, wrong=4)


def test_those_who_wait_for_others_can_be_given_up() -> None:
    async def steps(process: Process, benches: list[Bench]) -> None:
        gate = asyncio.Event()

        async def slow(call: Any) -> None:
            if call.path == SESSIONS:
                await gate.wait()

        for bench in benches:
            bench.rules.append(slow)
        first = [asyncio.create_task(process.bmc(bench).hot()) for bench in benches[:SUSPECT_AFTER]]
        await asyncio.sleep(0.3)
        last = process.bmc(benches[-1])
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await last.hot()
        assert benches[-1].logins == 0
        gate.set()
        assert all(isinstance(found, Answered) for found in await asyncio.gather(*first))
        assert await answers(last)

    play(steps, benches=SUSPECT_AFTER + 1)


def test_what_is_remembered_tells_nothing() -> None:
    process = Process()
    account = process.bmc_registry.login_guard.account(
        "x", node="n", secret="bmc", read=lambda: Credentials(USER, Secret(PASSWORD))
    )
    account.credentials(lambda: False)
    assert isinstance(account.refused("no"), DriverError)
    memory = vars(process.bmc_registry.login_guard) | vars(account)
    assert PASSWORD not in repr(memory)
    other = Process().bmc_registry.login_guard
    found = Credentials(USER, Secret(PASSWORD))
    assert process.bmc_registry.login_guard.digest(found) != other.digest(found)


# --- any order of things -----------------------------------------------------------------------------------------

BMCS = 8


@given(
    takes=st.lists(st.booleans(), min_size=BMCS, max_size=BMCS),
    steps=st.lists(st.tuples(st.integers(0, BMCS - 1), st.sampled_from([0, 1, 60, 600, 1000, 1801])), max_size=60),
)
def test_no_order_of_logins_locks_an_account(takes: list[bool], steps: list[tuple[int, int]]) -> None:
    """A BMC that refuses sees a value once per cool-down. One that all refuse is sent three times, then once more for
    each further cool-down. Where some take it, those that refuse are no trouble to the others in the end."""
    process = Process()
    guard = process.bmc_registry.login_guard
    accounts = [
        guard.account(f"b{n}", node=f"n{n}", secret="bmc", read=lambda: Credentials(USER, Secret(PASSWORD)))
        for n in range(BMCS)
    ]
    sends: dict[int, list[datetime]] = {n: [] for n in range(BMCS)}
    told: list[DriverError] = []

    def log_in(n: int) -> bool:
        try:
            accounts[n].check()
            accounts[n].credentials(lambda: True)
        except DriverError as error:
            told.append(error)
            return False
        sends[n].append(process.at)
        if takes[n]:
            accounts[n].accepted()
        else:
            accounts[n].refused("HTTP 401")
        accounts[n].settle()
        return takes[n]

    for n, seconds in steps:
        process.passes(seconds)
        log_in(n)
    for n, times in sends.items():
        if not takes[n]:
            assert all(later - earlier >= timedelta(seconds=COOL_DOWN_S) for earlier, later in pairwise(times))
    if not any(takes):
        everywhere = sorted(at for times in sends.values() for at in times)
        for at in everywhere:
            until = at + timedelta(seconds=COOL_DOWN_S)
            assert sum(at <= other < until for other in everywhere) <= SUSPECT_AFTER
    assert all(error.kind is Failure.AUTH and 0 < (error.retry_after or 0) <= 2 * COOL_DOWN_S for error in told)
    for _ in range(2 * BMCS):
        process.passes(COOL_DOWN_S / 2 + 1)
        got_in = [log_in(n) for n in range(BMCS)]
    assert got_in == takes
