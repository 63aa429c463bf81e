"""The account of the lab's BMC: its rules, and that it is locked after too many refused logins (pitfall B3)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.lab.redfish_bench import PASSWORD, USERNAME, Bench

pytestmark = pytest.mark.wire

SERVICE = "/redfish/v1/AccountService"
OURS = f"{SERVICE}/Accounts/2"
SESSIONS = "/redfish/v1/SessionService/Sessions"


def login(bench: Bench, password: str) -> int:
    return bench.call("POST", SESSIONS, {"UserName": USERNAME, "Password": password}, login=False).status


def test_its_password_is_changed_by_its_rules_and_never_shown(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(shortest_password=10, longest_password=16)
    assert (bench.get(SERVICE)["MinPasswordLength"], bench.get(SERVICE)["MaxPasswordLength"]) == (10, 16)
    members = [bench.get(member["@odata.id"]) for member in bench.get(f"{SERVICE}/Accounts")["Members"]]
    assert [(one["UserName"], one["Password"]) for one in members] == [("", None), (USERNAME, None)]
    for bad in ("short", "x" * 17, None, 7):
        refused = bench.call("PATCH", OURS, {"Password": bad})
        assert (refused.status, refused.message_id) == (400, "PropertyValueFormatError")
    assert bench.call("PATCH", f"{SERVICE}/Accounts/1", {"Password": "long enough"}).status == 404
    assert bench.call("PATCH", OURS, {"UserName": "other"}).status == 400
    assert bench.call("PATCH", OURS, {"Password": "long enough"}).status == 200
    assert (login(bench, "long enough"), login(bench, PASSWORD)) == (201, 401)


def test_it_is_locked_for_a_while_after_refused_logins_in_a_row(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench(locks_after=3, locked_s=60.0)
    assert (login(bench, "wrong"), login(bench, "wrong"), login(bench, PASSWORD)) == (401, 401, 201)
    assert [login(bench, "wrong") for _ in range(3)] == [401] * 3
    assert login(bench, PASSWORD) == 401, "nobody is let in"
    bench.pass_time(61)
    assert login(bench, PASSWORD) == 201
    unlocked = make_bench(locks_after=0)
    assert [login(unlocked, "wrong") for _ in range(9)] == [401] * 9
    assert login(unlocked, PASSWORD) == 201


def test_a_change_is_forgotten_or_kills_it(make_bench: Callable[..., Bench]) -> None:
    bench = make_bench()
    bench.machine.inject("password_change", how="ignored")
    assert bench.call("PATCH", OURS, {"Password": "long enough"}).status == 200
    assert login(bench, PASSWORD) == 201
    bench.machine.inject("password_change", how="dies")
    with pytest.raises(Exception, match=r"disconnected|reset|closed"):
        bench.call("PATCH", OURS, {"Password": "long enough"})
    bench.pass_time(3600)
    assert login(bench, "long enough") == 201
