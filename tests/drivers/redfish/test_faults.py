"""BMCs that hang, lie, lock, refuse, or are somebody else. What is said of each, and what is never done."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from aiohttp import web

from reconciler.drivers.redfish import RedfishBmc
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.session import Session
from reconciler.drivers.redfish.transport import failed
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, Silent
from reconciler.model.ports import FirmwareFile, PowerAction
from reconciler.model.vocab import UnknownReason
from tests.drivers.redfish.bench import (
    BIOS,
    MANAGER,
    NOW,
    PASSWORD,
    ROOT,
    SESSIONS,
    SETTINGS,
    SYSTEM,
    TASKS,
    Bench,
    Call,
    HangUp,
    client,
    machine,
    play,
    refusal,
)
from tests.drivers.redfish.pki import Authority, authority, server_context
from tests.drivers.redfish.test_writes import RESET, failure


async def silence(bmc: RedfishBmc) -> Silent:
    found = await bmc.hot()
    assert isinstance(found, Silent), found
    assert found.at == NOW
    return found


@contextmanager
def listening(*, accept: bool = True) -> Iterator[str]:
    """A port that takes connections and says nothing; or (`accept` False) one that is closed."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if accept:
            server.listen(128)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def raw_story(talk: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> Silent:
    """Return the error for a server that does not speak HTTP."""

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except asyncio.IncompleteReadError:
            pass  # the probe, which says nothing
        finally:
            writer.close()

    async def steps() -> Silent:
        server = await asyncio.start_server(closing, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            found = await silence(client(f"http://127.0.0.1:{port}", read_timeout=0.4))
            await asyncio.sleep(0.1)
            return found

    return asyncio.run(steps())


# --- nobody there ------------------------------------------------------------------------------------------------


def test_a_closed_port_is_unreachable() -> None:
    with listening(accept=False) as url:
        found = asyncio.run(silence(client(url)))
    assert found.reason is UnknownReason.UNREACHABLE
    assert url in found.detail
    assert "check address and port" in found.detail


@pytest.mark.parametrize("address", ["127.0.0.1:1", "no-such-host.invalid"])
def test_a_connection_that_is_refused_is_not_told_as_one_that_came_late(address: str) -> None:
    with pytest.raises(requests.ConnectionError) as refused:
        requests.get(f"http://{address}/redfish/v1", timeout=5)
    told = failed(refused.value, 5)
    assert (told.kind, told.sent) == (Failure.UNREACHABLE, False)
    assert "no connection: " in str(told)
    assert "in time" not in str(told)


def test_a_network_that_swallows_packets_costs_the_connect_timeout_and_no_thread() -> None:
    """192.0.2.0/24 is for documentation: nobody is there. Where the host has no route, it says so at once."""

    async def steps() -> tuple[list[Silent], float]:
        start = time.monotonic()
        bmcs = [client(f"https://192.0.2.{number}", connect_timeout=0.3) for number in range(1, 200)]
        return await asyncio.gather(*map(silence, bmcs)), time.monotonic() - start

    before = threading.active_count()
    found, took = asyncio.run(steps())
    assert {silent.reason for silent in found} == {UnknownReason.UNREACHABLE}
    assert took < 3
    assert threading.active_count() <= before + 2


def test_a_bmc_that_hangs_times_out() -> None:
    with listening() as url:
        found = asyncio.run(silence(client(url, read_timeout=0.3)))
    assert found.reason is UnknownReason.TIMEOUT
    assert f"GET {ROOT}: no answer within 0.3 s" in found.detail


def test_bmcs_that_hang_do_not_hold_up_others() -> None:
    """Sixty hang, in each pass; the one that answers is as fast as ever (A2)."""

    async def steps(hanging: str) -> list[float]:
        bench = machine()
        async with bench.serving():
            live, dead = bench.client(), [client(hanging, read_timeout=0.6) for _ in range(60)]
            took = []
            for _ in range(2):
                others = [asyncio.create_task(bmc.hot()) for bmc in dead]
                await asyncio.sleep(0.2)
                start = time.monotonic()
                assert isinstance(await live.hot(), Answered)
                took.append(time.monotonic() - start)
                for task in others[16:]:
                    task.cancel()
                await asyncio.gather(*others, return_exceptions=True)
            await live.close()
            return took

    with listening() as url:
        assert max(asyncio.run(steps(url))) < 0.4


def test_a_caller_that_gives_up_frees_the_thread_at_once() -> None:
    async def steps(url: str) -> float:
        bmc = client(url, read_timeout=30)
        start = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await bmc.hot()
        with pytest.raises(TimeoutError):  # the next call waits for the thread of the first, not for its read timeout
            async with asyncio.timeout(0.3):
                await bmc.hot()
        await bmc.close()
        return time.monotonic() - start

    with listening() as url:
        assert asyncio.run(steps(url)) < 2


def test_after_a_call_that_was_given_up_the_bmc_is_usable() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        gate = asyncio.Event()

        async def slow(call: Call) -> None:
            if call.path == SETTINGS:
                await gate.wait()

        bench.rules.append(slow)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await bmc.hot()
        gate.set()
        assert isinstance(await bmc.hot(), Answered)
        assert bench.logins == 1

    play(machine(), steps, read_timeout=30)


def test_something_that_is_not_http() -> None:
    async def babble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.6\r\n" * 4)

    assert raw_story(babble).reason is UnknownReason.MALFORMED


def test_an_answer_that_trickles_ends() -> None:
    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n{")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.05)

    start = time.monotonic()
    found = raw_story(drip)
    assert found.reason is UnknownReason.TIMEOUT
    assert time.monotonic() - start < 3


# --- who are you, who am I ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ca() -> Authority:
    return authority("our CA")


def tls_story(ca: Authority, tmp_path: Path, address: str = "127.0.0.1", **options: Any) -> Answered[Any] | Silent:
    async def run() -> Answered[Any] | Silent:
        bench = machine()
        async with bench.serving(server_context(ca, tmp_path, address)):
            bmc = bench.client(**options)
            try:
                return await bmc.hot()
            finally:
                await bmc.close()

    return asyncio.run(run())


def test_tls_with_our_authority(ca: Authority, tmp_path: Path) -> None:
    assert isinstance(tls_story(ca, tmp_path, ca_pem=ca.pem, insecure=False), Answered)


def test_tls_insecure_only_when_told(ca: Authority, tmp_path: Path) -> None:
    assert isinstance(tls_story(ca, tmp_path, ca_pem=None, insecure=True), Answered)
    assert isinstance(tls_story(ca, tmp_path, ca_pem=None, insecure=False), Silent)


@pytest.mark.parametrize("case", ["another CA", "another address"])
def test_tls_of_a_stranger(ca: Authority, tmp_path: Path, case: str) -> None:
    other = authority("another CA")
    if case == "another CA":
        found = tls_story(ca, tmp_path, ca_pem=other.pem, insecure=False)
    else:
        found = tls_story(ca, tmp_path, address="192.0.2.1", ca_pem=ca.pem, insecure=False)
    assert isinstance(found, Silent)
    assert found.reason is UnknownReason.AUTH
    assert "certificate is not trusted" in found.detail
    assert "redfish.tls.ca" in found.detail


def test_the_environment_has_no_say_in_trust(ca: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bundle in the environment neither lets a stranger in nor keeps our BMC out (B5); nor does a proxy."""
    other = authority("another CA")
    bundle = tmp_path / "bundle.pem"
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.setenv(name, str(bundle))
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    bundle.write_text(ca.pem)
    assert isinstance(tls_story(ca, tmp_path, ca_pem=other.pem, insecure=False), Silent)
    bundle.write_text(other.pem)
    assert isinstance(tls_story(ca, tmp_path, ca_pem=ca.pem, insecure=False), Answered)
    assert "HTTPS_PROXY" in os.environ


def test_an_unreadable_ca_is_said() -> None:
    with listening() as url:
        found = asyncio.run(silence(client(url.replace("http:", "https:"), ca_pem="not a certificate", insecure=False)))
    assert found.reason is UnknownReason.AUTH
    assert "CA certificates" in found.detail


def test_no_password_over_plain_http_unless_told() -> None:
    bench = machine()

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        found = await silence(bmc)
        assert found.reason is UnknownReason.UNSUPPORTED
        assert "https://" in found.detail
        assert not bench.calls

    play(bench, steps, insecure=False)


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_are_sent_once(status: int) -> None:
    """Accounts get locked (B3). Not even a BMC that would accept them the next time is asked again.

    Nor are they sent as Basic, which a BMC with sessions takes too (pitfall B2).
    """

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("POST", SESSIONS, refusal(status, "ResourceAtUriUnauthorized", f"bad password {PASSWORD}"))
        found = await silence(bmc)
        assert found.reason is UnknownReason.AUTH
        assert "not sent again" in found.detail
        assert PASSWORD not in found.detail
        seen = len(bench.calls)
        assert (await silence(bmc)).reason is UnknownReason.AUTH
        assert isinstance(await bmc.inventory(), Silent)
        assert (await failure(bmc.power(PowerAction.ON))).kind is Failure.AUTH
        assert (await failure(bmc.media())).kind is Failure.AUTH
        await bmc.close()
        assert len(bench.calls) == seen
        assert not [call for call in bench.calls if "Authorization" in call.headers]

    play(machine(), steps)


def test_basic_is_for_bmcs_without_sessions_and_is_refused_once_too() -> None:
    bench = machine()
    root = bench.documents[ROOT]
    del root["SessionService"], root["Links"]

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        found = await silence(bmc)
        assert found.reason is UnknownReason.AUTH
        (login,) = [call for call in bench.calls if "Authorization" in call.headers]
        assert login.headers["Authorization"].startswith("Basic ")
        assert (await silence(bmc)).reason is UnknownReason.AUTH
        assert len(bench.calls) == 2

    play(bench, steps)


def test_all_sessions_taken_is_not_a_wrong_password() -> None:
    """Pitfalls B1, B2: it is waited for, and the password is not sent as Basic, where nobody counts sessions.

    Pauses grow from a minute to ten, and what is told says what to do.
    """
    clock = [NOW]

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        taken = refusal(403, "RAC0218", "The maximum number of user sessions is reached.")
        bench.answer("POST", SESSIONS, *[taken] * 6)
        logins = []
        for _ in range(80):  # a pass each half minute
            found = await bmc.hot()
            if isinstance(found, Answered):
                break
            assert found.reason is UnknownReason.BUSY
            assert "all sessions of the BMC are taken: end those that nobody needs; not tried again" in found.detail
            tried = sum(call.method == "POST" and call.path == SESSIONS for call in bench.calls)
            logins.append(tried)
            clock[0] += timedelta(seconds=30)
        assert isinstance(found, Answered)
        pauses = [logins.count(tries) * 30 for tries in range(1, 7)]
        assert pauses == [60, 120, 240, 480, 600, 600]
        assert not any("Authorization" in call.headers for call in bench.calls)

    play(machine(), steps, now=lambda: clock[0])


def test_a_bmc_without_a_free_session_for_weeks_is_asked_every_ten_minutes() -> None:
    """After a week, at the 1,025th refusal, the pause was more than a number holds, and each read a crash."""
    nobody: Any = None  # no login is made
    session, taken = Session(nobody, nobody, lambda: NOW), HttpError(Failure.BUSY, "taken", status=503, messages=())
    pauses = [session._all_taken(taken).retry_after for _ in range(1100)]
    assert pauses[-1] == 600.0


def test_an_expired_session_is_renewed_once_and_a_write_is_sent_again() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        assert isinstance(await bmc.hot(), Answered)
        bench.tokens.clear()
        assert isinstance(await bmc.hot(), Answered)
        assert bench.logins == 2
        bench.tokens.clear()
        await bmc.set_secure_boot(False)
        assert bench.documents[f"{SYSTEM}/SecureBoot"]["SecureBootEnable"] is False
        assert bench.logins == 3
        bench.tokens.clear()
        bench.password = "changed"
        assert (await silence(bmc)).reason is UnknownReason.AUTH
        assert (await silence(bmc)).reason is UnknownReason.AUTH
        assert bench.logins == 4

    play(machine(), steps)


def test_a_session_that_is_never_accepted_does_not_loop() -> None:
    """A BMC that just came up may forget one; a second login is the last."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("GET", "/redfish/v1/Systems", 401, forever=True)
        for logins in (1, 2, 2):
            assert (await silence(bmc)).reason is UnknownReason.AUTH
            assert bench.logins == logins

    play(machine(), steps)


def test_one_session_which_close_deletes() -> None:
    """Pitfall B1."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.close()
        assert not bench.calls  # nothing was opened
        await bmc.hot()
        await bmc.inventory()
        await bmc.set_secure_boot(True)
        assert bench.logins == 1
        assert len(bench.tokens) == 1
        await bmc.close()
        await bmc.close()
        assert not bench.tokens
        assert len(bench.sent("DELETE")) == 1

    play(machine(), steps)


def test_a_password_change_that_the_bmc_demands_is_told() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("GET", "/redfish/v1/Systems", refusal(403, "PasswordChangeRequired", "Change your password"))
        found = await silence(bmc)
        assert found.reason is UnknownReason.AUTH
        assert "Change your password" in found.detail

    play(machine(), steps)


def test_secrets_are_in_no_text(caplog: pytest.LogCaptureFixture) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> str:
        caplog.set_level(logging.DEBUG)
        await bmc.hot()
        bench.tokens.clear()
        bench.password = "changed"
        found = await silence(bmc)
        return repr(bmc) + repr(found) + repr(vars(bmc)) + str(await failure(bmc.media()))

    assert PASSWORD not in play(machine(), steps) + caplog.text
    assert "token-1" not in caplog.text


# --- wrong answers -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [b"", b"<html>busy</html>", b'{"Id": "1", "Pow', b"[1, 2]", b'"On"', b"null", b"\xff\xfe\x00", b"[" * 100_000],
)
def test_garbage_is_malformed(body: bytes) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("GET", SYSTEM, web.Response(body=body))
        found = await silence(bmc)
        assert found.reason is UnknownReason.MALFORMED
        assert f"GET {SYSTEM}" in found.detail
        assert isinstance(await bmc.hot(), Answered)

    play(machine(), steps)


def test_an_answer_without_end_is_cut() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("GET", SYSTEM, web.Response(body=b" " * (17 * 2**20)))
        found = await silence(bmc)
        assert found.reason is UnknownReason.MALFORMED
        assert "exceeds 16 MiB" in found.detail

    play(machine(), steps, read_timeout=10)


def test_garbage_for_one_field_costs_that_field() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.hot()
        bench.answer("GET", SETTINGS, web.Response(body=b"<html>"))
        bench.answer("GET", TASKS, 500)
        found = await bmc.hot()
        assert isinstance(found, Answered)
        assert (found.value.pending_bios, found.value.tasks) == (None, None)
        assert "not JSON" in found.value.unknown["pending_bios"]
        assert f"GET {TASKS}: HTTP 500" in found.value.unknown["tasks"]
        assert found.value.serial == "S889914X3710910"

    play(machine(), steps)


def test_one_resource_that_hangs_costs_its_field_and_two_the_answer() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc, hanging: set[str]) -> Answered[Any] | Silent:
        await bmc.hot()

        async def hang(call: Call) -> None:
            if call.path in hanging:
                await asyncio.sleep(5)

        bench.rules.append(hang)
        return await bmc.inventory()

    one = play(machine(), lambda bench, bmc: steps(bench, bmc, {f"{SYSTEM}/SecureBoot"}), read_timeout=0.4)
    assert isinstance(one, Answered)
    assert one.value.secure_boot is None
    assert "no answer within" in one.value.unknown["secure_boot"]
    assert one.value.bios is not None
    two = play(machine(), lambda bench, bmc: steps(bench, bmc, {f"{SYSTEM}/SecureBoot", BIOS}), read_timeout=0.4)
    assert isinstance(two, Silent)
    assert two.reason is UnknownReason.TIMEOUT


def test_a_burst_of_503_is_silence_then_over() -> None:
    """Each pass asks once: sleeping and asking again is for those who know what else there is to do."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.hot()
        bench.answer("GET", SYSTEM, 503, refusal(503, "ServiceTemporarilyUnavailable", "Retry in 20 seconds"))
        for _ in range(2):
            start = time.monotonic()
            bench.calls.clear()
            found = await silence(bmc)
            assert found.reason is UnknownReason.UNREACHABLE
            assert f"GET {SYSTEM}: HTTP 503" in found.detail
            assert len(bench.calls) == 1
            assert time.monotonic() - start < 0.5
        assert isinstance(await bmc.hot(), Answered)

    play(machine(), steps)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (503, UnknownReason.UNREACHABLE),
        (refusal(503, "ServiceTemporarilyUnavailable", "Retry in 20 seconds"), UnknownReason.UNREACHABLE),
        (refusal(503, "SessionLimitExceeded", "no session is left"), UnknownReason.BUSY),
        (429, UnknownReason.BUSY),
    ],
)
def test_a_web_server_whose_backend_died_is_silent_and_one_that_has_no_session_or_no_time_is_busy(
    answer: Any, reason: UnknownReason
) -> None:
    """The first is what a reset of the BMC heals, and none came."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.hot()
        bench.answer("GET", SYSTEM, answer)
        assert (await silence(bmc)).reason is reason

    play(machine(), steps)


def test_a_kept_connection_that_the_bmc_closes_is_no_failure() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.hot()
        answered = 0

        async def slam(call: Call) -> None:
            nonlocal answered
            answered += 1
            if call.path == SETTINGS and answered == 2:
                raise web.HTTPException  # never reached: replaced below

        del slam
        assert isinstance(await bmc.hot(), Answered)

    play(machine(), steps)


@pytest.mark.parametrize("times", [1, 2])
def test_a_read_whose_connection_is_lost_is_sent_once_more(times: int) -> None:
    """BMCs close kept connections when they like."""

    async def steps(bench: Bench, bmc: RedfishBmc) -> bool:
        async def slam(call: Call) -> None:
            if call.path == SETTINGS and bench.gets().count(SETTINGS) <= times:
                raise HangUp

        bench.rules.append(slam)
        return isinstance(await bmc.hot(), Answered)

    assert play(machine(), steps) is (times == 1)


def test_redirects_stay_on_the_bmc() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.hot()
        moved = web.Response(status=308, headers={"Location": f"{SYSTEM}/"})
        bench.answer("GET", SYSTEM, moved)
        bench.documents[f"{SYSTEM}/"] = bench.documents[SYSTEM]
        assert isinstance(await bmc.hot(), Answered)
        bench.answer("GET", SETTINGS, web.Response(status=302, headers={"Location": "http://192.0.2.9/elsewhere"}))
        found = await bmc.hot()
        assert isinstance(found, Answered)
        assert found.value.pending_bios is None
        assert "/elsewhere" in bench.gets()  # asked of this BMC, not of that host

    play(machine(), steps)


def test_links_to_other_hosts_are_no_links() -> None:
    bench = machine()
    bench.documents[SYSTEM]["SecureBoot"] = {"@odata.id": "https://192.0.2.9/redfish/v1/SecureBoot"}
    bench.documents[SYSTEM]["Storage"] = {"@odata.id": "//192.0.2.9/Storage"}

    async def steps(_: Bench, bmc: RedfishBmc) -> None:
        found = await bmc.inventory()
        assert isinstance(found, Answered)
        assert (found.value.secure_boot, found.value.drives) == (None, None)

    play(bench, steps)


@pytest.mark.parametrize(
    "body", [[], {"error": "no"}, {"error": []}, {"error": {"@Message.ExtendedInfo": "text"}}, {"error": {"code": 7}}]
)
def test_malformed_error_bodies(body: Any) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("POST", RESET, web.json_response(body, status=400), web.json_response(body, status=503))
        bench.documents[SYSTEM]["PowerState"] = "Off"
        assert (await failure(bmc.power(PowerAction.ON))).kind is Failure.REJECTED
        assert (await failure(bmc.power(PowerAction.ON))).kind is Failure.BUSY

    play(machine(), steps)


# --- writes that fail --------------------------------------------------------------------------------------------


def test_a_write_that_times_out_is_ambiguous_and_sent_once() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        await bmc.hot()

        async def hang(call: Call) -> None:
            if call.method == "POST":
                await asyncio.sleep(5)

        bench.rules.append(hang)
        error = await failure(bmc.power(PowerAction.FORCE_OFF))
        assert error.kind is Failure.AMBIGUOUS
        assert f"POST {RESET}" in error.detail
        assert len(bench.sent("POST")) == 1

    play(machine(), steps, read_timeout=0.4)


def test_a_write_whose_connection_is_lost_is_ambiguous_and_sent_once() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        async def slam(call: Call) -> None:
            if call.method == "POST" and call.path == RESET:
                raise HangUp

        bench.rules.append(slam)
        error = await failure(bmc.power(PowerAction.FORCE_OFF))
        assert error.kind is Failure.AMBIGUOUS
        assert "connection was lost" in error.detail
        assert len(bench.sent("POST")) == 1

    play(machine(), steps)


def test_a_write_that_can_not_be_sent_is_unreachable() -> None:
    async def steps() -> None:
        bench = machine()
        async with bench.serving():
            bmc = bench.client()
            await bmc.hot()
        error = await failure(bmc.power(PowerAction.ON))
        assert error.kind is Failure.UNREACHABLE
        await bmc.close()

    asyncio.run(steps())


@pytest.mark.parametrize(
    ("answer", "kind", "wait"),
    [
        (refusal(503, "x", Retry_After="7"), Failure.BUSY, 7.0),
        (refusal(429, "x"), Failure.BUSY, None),
        (refusal(400, "SYS518", "iDRAC is not ready."), Failure.BUSY, 20.0),
        (refusal(500, "SYS518", "iDRAC is not ready."), Failure.BUSY, 20.0),
        (refusal(400, "x", "iLO is not ready, wait"), Failure.BUSY, 10.0),
        (refusal(409, "ResourceInUse", "in use or in transition"), Failure.BUSY, 10.0),
        (refusal(400, "PropertyValueNotInList", "no such value"), Failure.REJECTED, None),
        (refusal(403, "InsufficientPrivilege", "not for you"), Failure.AUTH, None),
        (refusal(405, "x"), Failure.UNSUPPORTED, None),
        (refusal(500, "InternalError", "oops"), Failure.AMBIGUOUS, None),
        (web.Response(status=502, body=b"<html>"), Failure.AMBIGUOUS, None),
    ],
)
def test_what_a_refusal_means(answer: web.Response, kind: Failure, wait: float | None) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> DriverError:
        bench.answer("PATCH", f"{SYSTEM}/SecureBoot", answer)
        return await failure(bmc.set_secure_boot(True))

    error = play(machine(), steps)
    assert (error.kind, error.retry_after) == (kind, wait)
    assert f"PATCH {SYSTEM}/SecureBoot: HTTP {answer.status}" in error.detail


def test_a_task_that_is_gone_is_none_and_one_that_can_not_be_read_is_an_error() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        assert await bmc.task(f"{TASKS}/99") is None
        bench.answer("GET", f"{TASKS}/1", 503)
        assert (await failure(bmc.task(f"{TASKS}/1"))).kind is Failure.BUSY
        assert (await failure(bmc.task("http://192.0.2.9/task"))).kind is Failure.REJECTED

    play(machine(), steps)


def test_a_bmc_that_offers_nothing() -> None:
    bench = machine()
    for name in ("Bios", "SecureBoot", "Storage", "Memory", "EthernetInterfaces", "LogServices", "Actions", "Boot"):
        del bench.documents[SYSTEM][name]
    for name in ("UpdateService", "Tasks", "Registries", "Managers"):
        del bench.documents[ROOT][name]
    del bench.documents[MANAGER]["VirtualMedia"], bench.documents[SYSTEM]["Links"]

    async def steps(_: Bench, bmc: RedfishBmc) -> None:
        hot, inventory = await bmc.hot(), await bmc.inventory()
        assert isinstance(hot, Answered)
        assert {"pending_bios", "tasks", "boot_override"} <= hot.value.unknown.keys()
        assert isinstance(inventory, Answered)
        assert set(inventory.value.unknown) == {
            "bios", "secure_boot", "boot_order", "firmware", "dimms", "nics", "drives", "sensors", "events", "manager",
            "parts.chassis", "parts.power_supply", "parts.fan", "parts.leak_detector",
        }  # fmt: skip
        writes = (
            bmc.power(PowerAction.ON), bmc.stage_bios({"A": 1}), bmc.clear_bios(), bmc.set_secure_boot(True),
            bmc.insert_media("http://x/a"), bmc.eject_media(),
            bmc.update_firmware("BIOS", FirmwareFile("http://x/y")),
            bmc.reset(),
        )  # fmt: skip
        for write in writes:
            assert (await failure(write)).kind is Failure.UNSUPPORTED

    play(bench, steps)
