"""The suite names what a BMC does wrong, changes nothing unasked, and puts back what it changed."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from reconciler.drivers.redfish import RedfishBmc
from reconciler.drivers.redfish.conformance import WRITE_CHECKS, RedfishSuite, WriteConsent, all_checks
from reconciler.model.conformance import CheckResult, ConformanceReport
from tests.drivers.redfish.bench import INVENTORY, ROOT, SESSIONS, SETTINGS, SYSTEM, Bench, Call, machine, play, refusal
from tests.drivers.redfish.test_samples import MAKES, as_bmc

pytestmark = pytest.mark.wire

SERIAL = "S889914X3710910"
WRITES = frozenset(check.name for check in WRITE_CHECKS)
PASS, FAIL, NOT_OFFERED, NOT_TRIED = CheckResult


def whole() -> Bench:
    """A BMC that has all that the suite asks for, but for what no machine of the tests has."""
    bench = machine()
    documents = bench.documents
    documents[ROOT] |= {"RedfishVersion": "1.15.0", "Id": "RootService", "Name": "Root Service"}
    documents["/redfish/v1/Systems"]["Members@odata.count"] = 1
    documents[SYSTEM] |= {"@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem", "LocationIndicatorActive": False}

    async def anyone(call: Call) -> web.Response | None:
        return web.json_response({"v1": ROOT}) if call.path == "/redfish" else None

    bench.rules.append(anyone)
    return bench


def check(bench: Bench, consent: WriteConsent | None = None, **client: Any) -> ConformanceReport:
    async def steps(bench: Bench, bmc: RedfishBmc) -> ConformanceReport:
        suite = RedfishSuite(bmc, bench.url)
        report = await suite.read()
        return report if consent is None else await suite.write(report, consent)

    found = play(bench, steps, **client)
    assert isinstance(found, ConformanceReport)
    return found


def results(report: ConformanceReport) -> dict[str, CheckResult]:
    return {one.check.name: one.result for one in report.outcomes}


def consented(*names: str, bios: tuple[str, Any] | None = ("BootTimeout", 7)) -> WriteConsent:
    return WriteConsent(SERIAL, frozenset(names) or WRITES, bios, poll_s=0.01)


def test_a_good_bmc_passes_and_nothing_is_written() -> None:
    bench = whole()
    before = deepcopy(bench.documents)
    report = check(bench)
    found = results(report)
    assert list(found) == [one.name for one in all_checks()]
    # Over http:// in these tests; and this BMC has no events, no HTTP boot and no measurements.
    odd = {
        "certificate": FAIL,
        "event-stream": NOT_OFFERED,
        "event-posts": NOT_OFFERED,
        "http-boot": NOT_OFFERED,
        "measurements": NOT_OFFERED,
    }
    assert {name: result for name, result in found.items() if result is not PASS} == odd | dict.fromkeys(
        WRITES, NOT_TRIED
    )
    assert {call.method for call in bench.calls if not call.path.startswith(SESSIONS)} == {"GET"}
    assert bench.documents == before
    assert not bench.tokens, "every session is deleted"
    assert report.about["serial"] == SERIAL


Break = Callable[[Bench], Any]


def _set(path: str, **change: Any) -> Break:
    return lambda bench: bench.documents[path].update(change)


def _drop(path: str, *names: str) -> Break:
    return lambda bench: [bench.documents[path].pop(name) for name in names]


def _rule(answers: Callable[[Bench, Call], web.Response | None]) -> Break:
    def apply(bench: Bench) -> None:
        async def rule(call: Call) -> web.Response | None:
            return answers(bench, call)

        bench.rules.insert(0, rule)

    return apply


def _open(bench: Bench, call: Call) -> web.Response | None:
    anonymous = "X-Auth-Token" not in call.headers and call.method == "GET"
    return web.json_response(bench.documents.get(call.path, {})) if anonymous else None


def _answers_all(_: Bench, call: Call) -> web.Response | None:
    return web.json_response({}) if "no-such-system" in call.path else None


def _bare_error(_: Bench, call: Call) -> web.Response | None:
    return web.Response(status=404) if "no-such-system" in call.path else None


def _keeps_sessions(_: Bench, call: Call) -> web.Response | None:
    return web.Response(status=204) if call.method == "DELETE" else None


def _no_expand(_: Bench, call: Call) -> web.Response | None:
    return refusal(400, "QueryNotSupported") if "$expand" in call.query else None


def _basic_alone(bench: Bench) -> None:
    for name in ("Links", "SessionService"):
        del bench.documents[ROOT][name]

    async def rule(call: Call) -> web.Response | None:
        if call.headers.get("Authorization", "").startswith("Basic "):
            bench.tokens.add("by Basic")
            call.headers["X-Auth-Token"] = "by Basic"
        return None

    bench.rules.append(rule)


def _no_memory(bench: Bench) -> None:
    del bench.documents[SYSTEM]["MemorySummary"]
    bench.answer("GET", f"{SYSTEM}/Memory", 500, forever=True)


BROKEN: dict[str, tuple[Break, CheckResult]] = {
    "service-root": (_drop(ROOT, "RedfishVersion"), FAIL),
    "protocol-version": (_rule(lambda _, call: web.json_response({}) if call.path == "/redfish" else None), FAIL),
    "login-required": (_rule(_open), FAIL),
    "session-login": (_basic_alone, NOT_OFFERED),
    "session-end": (_rule(_keeps_sessions), FAIL),
    "etags": (lambda bench: setattr(bench, "etag_style", "empty"), NOT_OFFERED),
    "missing-resource": (_rule(_answers_all), FAIL),
    "error-body": (_rule(_bare_error), FAIL),
    "resource-ids": (_set(SYSTEM, **{"@odata.id": "/redfish/v1/Systems/2"}), FAIL),
    "collections": (_set("/redfish/v1/Systems", **{"Members@odata.count": 2}), FAIL),
    "expand": (_rule(_no_expand), FAIL),
    "serial": (_set(SYSTEM, SerialNumber="To be filled by O.E.M."), FAIL),
    "uuid": (_set(SYSTEM, UUID="00000000-0000-0000-0000-000000000000"), FAIL),
    "power-state": (_set(SYSTEM, PowerState=None), FAIL),
    "boot-progress": (_drop(SYSTEM, "BootProgress"), NOT_OFFERED),
    "bios": (_drop(SYSTEM, "Bios"), NOT_OFFERED),
    "bios-registry": (_drop("/redfish/v1/registry.json", "RegistryEntries"), NOT_OFFERED),
    "memory": (_no_memory, FAIL),
    "firmware-inventory": (lambda bench: bench.answer("GET", INVENTORY, 404, forever=True), FAIL),
    "power": (_drop(SYSTEM, "Actions"), NOT_OFFERED),
    "virtual-media": (_drop("/redfish/v1/Managers/1", "VirtualMedia"), NOT_OFFERED),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_named(name: str) -> None:
    bench = whole()
    spoil, expected = BROKEN[name]
    spoil(bench)
    report = check(bench)
    assert results(report)[name] is expected
    outcome = next(one for one in report.outcomes if one.check.name == name)
    assert outcome.detail


def test_a_refused_password_is_tried_once() -> None:
    bench = whole()
    report = check(bench, password="wrong")
    assert bench.logins == 1, "accounts get locked (B3)"
    found = results(report)
    assert (found["service-root"], found["session-login"], found["serial"]) == (PASS, FAIL, NOT_TRIED)


def test_what_is_written_is_put_back() -> None:
    bench = whole()
    before = deepcopy(bench.documents)
    report = check(bench, consented())
    assert {name: results(report)[name] for name in WRITES} == dict.fromkeys(WRITES, PASS)
    del bench.documents[SETTINGS]["@Redfish.SettingsApplyTime"]  # of this bench: it keeps whatever a PATCH holds
    assert bench.documents == before
    sent = [call.path for call in (*bench.sent("PATCH"), *bench.sent("POST"))]
    assert {SYSTEM, SETTINGS, f"{SYSTEM}/Actions/ComputerSystem.Reset"} == set(sent)


@pytest.mark.parametrize("name", sorted(WRITES))
def test_only_what_was_consented_to_is_written(name: str) -> None:
    bench = whole()
    found = results(check(bench, consented(name)))
    assert {one for one in WRITES if found[one] is PASS} == {name}
    powered = any("Reset" in call.path for call in bench.sent("POST"))
    assert powered is (name == "write-power")


def test_a_bmc_of_another_machine_is_not_written_to() -> None:
    bench = whole()
    report = check(bench, WriteConsent("ANOTHER", WRITES, ("BootTimeout", 7), poll_s=0.01))
    assert {results(report)[name] for name in WRITES} == {NOT_TRIED}
    assert not bench.sent("PATCH")
    assert not bench.sent("POST")


@pytest.mark.parametrize("name", sorted(WRITES - {"write-power"}))
def test_a_write_without_an_effect_is_a_failure(name: str) -> None:
    bench = whole()
    _rule(lambda _, call: web.Response(status=204) if call.method == "PATCH" else None)(bench)
    assert results(check(bench, consented(name)))[name] is FAIL


def test_settings_and_overrides_of_somebody_else_are_left_alone() -> None:
    bench = whole()
    bench.documents[SETTINGS]["Attributes"] = {"QuietBoot": False}
    bench.documents[SYSTEM]["Boot"] |= {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Pxe"}
    before = deepcopy(bench.documents)
    found = results(check(bench, consented("write-bios-settings", "write-boot-override")))
    assert (found["write-bios-settings"], found["write-boot-override"]) == (NOT_TRIED, NOT_TRIED)
    assert bench.documents == before


def _loses(path: str, spoils: Callable[[Any], bool]) -> Break:
    """Changes of that kind are accepted, and lost."""

    def answers(_: Bench, call: Call) -> web.Response | None:
        lost = (call.method, call.path) == ("PATCH", path) and spoils(call.body)
        return web.Response(status=204) if lost else None

    return _rule(answers)


def _refuses(path: str, status: int) -> Break:
    return lambda bench: bench.answer("PATCH", path, status, forever=True)


LEFT_BEHIND: dict[str, tuple[Break, str, str]] = {
    "an LED": (
        _loses(SYSTEM, lambda body: body.get("LocationIndicatorActive") is False),
        "write-locator-led",
        "the LED, off before, was not put back",
    ),
    "an override": (
        _loses(SYSTEM, lambda body: body.get("Boot", {}).get("BootSourceOverrideEnabled") == "Disabled"),
        "write-boot-override",
        "the boot override, Disabled before, was not put back",
    ),
    "a setting": (
        _loses(SETTINGS, lambda body: body["Attributes"].get("BootTimeout") == 5),
        "write-bios-settings",
        "BootTimeout, staged for the next boot, was not put back",
    ),
    "nobody knows what": (_refuses(SETTINGS, 500), "write-bios-settings", "HTTP 500"),
}


@pytest.mark.parametrize("what", LEFT_BEHIND)
def test_after_what_was_left_behind_nothing_more_is_written(what: str) -> None:
    """The power cycle would put it into force: an installer's disc, or a setting."""
    bench = whole()
    spoil, name, why = LEFT_BEHIND[what]
    spoil(bench)
    report = check(bench, consented())
    outcomes = {one.check.name: one for one in report.outcomes}
    assert (outcomes[name].result, why in outcomes[name].detail) == (FAIL, True), outcomes[name]
    order = [one.name for one in WRITE_CHECKS]
    for later in order[order.index(name) + 1 :]:
        assert outcomes[later].result is NOT_TRIED
        assert outcomes[later].detail == f"after {name}: {outcomes[name].detail}"
    assert not [call for call in bench.sent("POST") if "Reset" in call.path]


@pytest.mark.parametrize("name", ["write-locator-led", "write-boot-override", "write-bios-settings"])
def test_nothing_is_put_back_on_another_machine(name: str) -> None:
    bench = whole()
    first: list[Call] = []

    def answers(bench: Bench, call: Call) -> web.Response | None:
        if first:
            bench.documents[SYSTEM]["SerialNumber"] = "ANOTHER"  # its board was exchanged, or its address given away
        if call.method == "PATCH":
            first.append(call)
        return None

    _rule(answers)(bench)
    outcome = next(one for one in check(bench, consented(name)).outcomes if one.check.name == name)
    assert (outcome.result, "was not put back: the BMC answers for ANOTHER" in outcome.detail) == (FAIL, True), outcome
    assert len(bench.sent("PATCH")) == 1


@pytest.mark.parametrize("enabled", ["Once", "Continuous"])
@pytest.mark.parametrize("target", ["Hdd", "None", "Pxe"])
def test_no_override_is_touched_but_one_that_is_disabled(enabled: str, target: str) -> None:
    bench = whole()
    bench.documents[SYSTEM]["Boot"] |= {"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target}
    report = check(bench, consented("write-boot-override"))
    outcome = next(one for one in report.outcomes if one.check.name == "write-boot-override")
    assert (outcome.result, f"set already: {target}, {enabled}" in outcome.detail) == (NOT_TRIED, True)
    assert not bench.sent("PATCH")


@pytest.mark.parametrize(
    ("enabled", "target", "pending", "result"),
    [
        ("Once", "UsbCd", {}, NOT_TRIED),
        ("Once", "Hdd", {}, NOT_TRIED),
        ("Continuous", "Pxe", {}, NOT_TRIED),
        ("Disabled", "None", {"QuietBoot": False}, NOT_TRIED),
        ("Continuous", "Hdd", {}, PASS),
        ("Once", "None", {}, PASS),
    ],
)
def test_a_boot_for_which_something_waits_is_somebody_elses(
    enabled: str, target: str, pending: dict[str, Any], result: CheckResult
) -> None:
    bench = whole()
    bench.documents[SYSTEM]["Boot"] |= {"BootSourceOverrideEnabled": enabled, "BootSourceOverrideTarget": target}
    bench.documents[SETTINGS]["Attributes"] = pending
    assert results(check(bench, consented("write-power")))["write-power"] is result
    assert bool(bench.sent("POST")) is (result is PASS)


def test_no_bios_attribute_is_chosen_for_the_operator() -> None:
    bench = whole()
    assert results(check(bench, consented("write-bios-settings", bios=None)))["write-bios-settings"] is NOT_TRIED
    assert not bench.sent("PATCH")


@pytest.mark.parametrize("make", MAKES)
def test_documents_of_real_bmcs_give_a_report(samples: Path, make: str) -> None:
    """Each folder of documents, incomplete as it is: nothing crashes, and each failure says what it is about."""
    report = check(as_bmc(samples / "redfish" / make))
    assert [one.check for one in report.outcomes] == list(all_checks())
    assert all(one.detail for one in report.outcomes if one.result in (FAIL, NOT_OFFERED)), make


def test_what_a_real_idrac_shows(samples: Path) -> None:
    found = results(check(as_bmc(samples / "redfish" / "dell-idrac9")))
    passed = {"serial", "uuid", "power-state", "health", "power", "boot-once", "known-make"}
    assert {name for name in passed if found[name] is not PASS} == set()
    assert found["boot-progress"] is NOT_OFFERED, "iDRAC9 has none"
    assert found["drives"] is FAIL, "the folder holds the link, and nothing behind it"
