"""Signals of the BMC: each is raised, has its row, and counts only what was read."""

from __future__ import annotations

from typing import Any

import pytest

from reconciler.health.bmc import bmc_signals
from reconciler.health.signals import signals, unread_signals
from reconciler.health.table import Effect, health_table
from reconciler.model.desired import DesiredInventory
from reconciler.model.observed import BmcEvent, Drive, Part, Sensor, Silent
from reconciler.model.vocab import BootPhase, Health, Power, Source, UnknownReason
from tests import builders as b

WANTED = DesiredInventory(drives=1, dimms=32, nics=0, processors=2)
ILL = Health.CRITICAL
HOUR = 3600.0
RECENT_S = 48 * HOUR
UE = BmcEvent("7", "2026-11-21T08:00:00Z", ILL, "Uncorrectable ECC @ DIMMA1", "memory_ue", age_s=HOUR)


def told(*, hot: dict[str, Any] | None = None, **inventory: Any) -> dict[str, str]:
    seen = b.observed(hot=b.hot(**(hot or {})), inventory=b.inventory(**inventory))
    return dict(bmc_signals(b.profile(inventory=WANTED), seen))


CASES: list[tuple[str, dict[str, Any], Effect]] = [
    ("bmc_health", {"hot": {"health": ILL}}, Effect.REPORTS),
    ("drive_failed", {"drives": (Drive("0", health=ILL),)}, Effect.REPORTS),
    ("drive_failing", {"drives": (Drive("0", health=Health.WARNING, failing=True),)}, Effect.REPORTS),
    ("drive_missing", {"drives": ()}, Effect.ISOLATES),
    ("dimm_missing", {"dimms": 31}, Effect.ISOLATES),
    ("processor_missing", {"processors": 1}, Effect.ISOLATES),
    ("psu_failed", {"parts": (Part("power_supply", "1/PSU0", ILL),)}, Effect.REPORTS),
    ("fan_failed", {"parts": (Part("fan", "1/FAN0", ILL),)}, Effect.REPORTS),
    ("leak", {"parts": (Part("leak_detector", "1/Manifold", ILL),)}, Effect.ISOLATES),
    ("dimm_failed", {"parts": (Part("dimm", "A1", ILL),)}, Effect.ISOLATES),
    ("dimm_ue", {"events": (UE,)}, Effect.ISOLATES),
    ("board_xid", {"events": (BmcEvent("b/1", "", ILL, "XID 79 GPU", "xid_79", age_s=HOUR),)}, Effect.REPORTS),
    ("sensor_critical", {"sensors": (Sensor("Inlet", "temperature", 61.0, "C", ILL, "1"),)}, Effect.REPORTS),
    ("bmc_event_critical", {"events": (BmcEvent("1", "", ILL, "lid open", age_s=HOUR),)}, Effect.REPORTS),
    *(
        ("subsystem_health", {"parts": (Part(kind, "HGX_Baseboard_0", ILL),)}, Effect.REPORTS)
        for kind in ("system", "chassis", "memory", "processor", "switch")
    ),
]


@pytest.mark.parametrize(("name", "said", "effect"), CASES, ids=[f"{at}-{case[0]}" for at, case in enumerate(CASES)])
def test_each_signal_is_told_and_leads_to_what_the_table_says(name: str, said: dict[str, Any], effect: Effect) -> None:
    assert list(told(**said)) == [name]
    assert health_table().effect_of(name) is effect


def test_a_port_that_is_gone() -> None:
    seen = b.observed(inventory=b.inventory(nics=()))
    assert dict(bmc_signals(b.profile(inventory=DesiredInventory(nics=2)), seen)) == {
        "nic_missing": "0 of 2 network ports are there"
    }
    assert health_table().effect_of("nic_missing") is Effect.ISOLATES


def test_a_healthy_node_gives_no_signal_and_nothing_is_unread() -> None:
    assert told() == {}
    assert unread_signals(b.profile(), b.observed()) == ()


def test_all_of_it_are_signals_of_the_node() -> None:
    seen = b.observed(hot=b.hot(health=ILL), inventory=b.inventory(parts=(Part("power_supply", "1/PSU3", ILL),)))
    found = {signal.name: signal for signal in signals(b.profile(), seen)}
    assert found["psu_failed"].detail == "1 of 1 power supplies are critical: 1/PSU3"
    assert {found[name].source for name in ("psu_failed", "bmc_health")} == {Source.REDFISH}


@pytest.mark.parametrize("kind", ["power_supply", "fan", "leak_detector", "dimm", "chassis"])
@pytest.mark.parametrize("health", [Health.OK, Health.WARNING, None])
def test_what_is_not_critical_is_no_signal(kind: str, health: Health | None) -> None:
    assert told(parts=(Part(kind, "x", health),), drives=(Drive("0", health=health),)) == {}


def test_a_sensor_without_a_reading_is_not_hot() -> None:
    """BlueField: the temperature of a port without a module is Critical, and reads nothing."""
    assert told(sensors=(Sensor("p0 temp", "temperature", None, "C", ILL, "Card1"),)) == {}


@pytest.mark.parametrize(
    "event",
    [
        BmcEvent("b/1", "", ILL, "XID 31", "xid_31", age_s=HOUR),  # an application's
        BmcEvent("b/1", "", ILL, "SXID 20001 Link 12", "sxid_20001", age_s=HOUR),  # replays
        BmcEvent("b/1", "", ILL, "SXID 19065 Non-fatal, Link 12", "sxid_19065", age_s=HOUR),
        BmcEvent("b/1", "", ILL, "XID 79", "xid_79", age_s=RECENT_S + 1),
        BmcEvent("b/1", "", ILL, "XID 79", "xid_79", age_s=None),
        BmcEvent("b/1", "", ILL, "XID 79", "xid_79", age_s=HOUR, settled=True),
    ],
)
def test_an_xid_of_a_board_that_is_old_settled_or_an_applications_is_none(event: BmcEvent) -> None:
    assert told(events=(event,)) == {}


@pytest.mark.parametrize(
    ("code", "text"),
    [(12028, "Non-fatal, Link 32"), (19065, "Fatal, Link 3"), (19065, "Link 3"), (26008, "SOE Watchdog")],
)
def test_an_sxid_of_a_board_is_judged_as_one_of_the_kernel_log(code: int, text: str) -> None:
    found = told(events=(BmcEvent("b/1", "", ILL, f"SXID {code} {text}", f"sxid_{code}", age_s=HOUR),))
    assert found == {"board_xid": f"the GPU baseboard's log has an SXid ({code}): SXID {code} {text}"}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({"age_s": RECENT_S}, "dimm_ue"),
        ({"age_s": RECENT_S + 1}, None),  # years ago, in a log that nobody cleared
        ({"settled": True}, None),
        ({"age_s": None}, "bmc_event_critical"),  # the clock was wrong: a person judges (B6)
        ({"severity": Health.OK}, "dimm_ue"),  # AMI logs everything as OK
        ({"kind": ""}, "bmc_event_critical"),
    ],
)
def test_an_event_counts_while_it_is_recent_and_open(changes: dict[str, Any], name: str | None) -> None:
    event = {field: getattr(UE, field) for field in UE.__slots__} | changes
    assert list(told(events=(BmcEvent(**event),))) == ([name] if name else [])


def test_an_uncorrectable_error_is_one_event_and_latched() -> None:
    assert health_table().rule_of("dimm_ue").latched
    assert told(events=(UE, UE))["dimm_ue"].startswith("the BMC's log has 2 uncorrectable memory errors, the last")


@pytest.mark.parametrize(
    "hot", [{"power": Power.OFF}, {"power": None}, {"boot_phase": BootPhase.POST}, {"boot_phase": BootPhase.OFF}]
)
def test_what_a_machine_that_is_not_up_does_not_list_is_not_missing(hot: dict[str, Any]) -> None:
    """Pitfall A10."""
    assert told(hot=hot, drives=(), dimms=0) == {}
    hidden = unread_signals(b.profile(), b.observed(hot=b.hot(**hot)))
    assert {"health.drive_missing", "health.dimm_missing", "health.nic_missing"} <= set(hidden)


@pytest.mark.parametrize("answers", [True, False])
def test_where_no_boot_phase_is_shown_a_host_that_answers_shows_that_post_is_over(answers: bool) -> None:
    """A machine in POST on a BMC without BootProgress lacks no drives (A10)."""
    host = b.facts() if answers else b.silent()
    seen = b.observed(hot=b.hot(boot_phase=None), host=host, inventory=b.inventory(drives=()))
    assert ("drive_missing" in dict(bmc_signals(b.profile(), seen))) is answers
    assert ("health.drive_missing" in unread_signals(b.profile(), seen)) is not answers


SILENT = Silent(b.NOW, UnknownReason.TIMEOUT, "")


@pytest.mark.parametrize(
    ("seen", "hidden"),
    [
        (b.observed(hot=b.hot(health=None)), {"bmc_health"}),
        (b.observed(inventory=b.inventory(drives=None)), {"drive_failed", "drive_failing", "drive_missing"}),
        (b.observed(inventory=b.inventory(dimms=None)), {"dimm_failed", "dimm_missing"}),
        (b.observed(inventory=b.inventory(events=None)), {"dimm_ue", "bmc_event_critical", "board_xid"}),
        (b.observed(inventory=b.inventory(unknown={"events.boards": "..."})), {"board_xid"}),
        (b.observed(inventory=b.inventory(sensors=None)), {"sensor_critical"}),
        (b.observed(inventory=b.inventory(unknown={"sensors": "read 40 of 236: ..."})), {"sensor_critical"}),
        (b.observed(inventory=b.inventory(unknown={"parts.fan": "read 3 of 4: ..."})), {"fan_failed"}),
        (b.observed(inventory=b.inventory(unknown={"parts.switch": "..."})), {"subsystem_health"}),
    ],
    ids=["health", "drives", "dimms", "events", "a board's log", "sensors", "some sensors", "some fans", "a switch"],
)
def test_what_was_not_read_is_not_seen_and_not_gone(seen: Any, hidden: set[str]) -> None:
    assert set(unread_signals(b.profile(), seen)) == {f"health.{name}" for name in hidden}


def test_a_silent_bmc_hides_every_signal_of_its_own() -> None:
    hidden = set(unread_signals(b.profile(), b.observed(hot=SILENT, inventory=SILENT)))
    assert hidden == {f"health.{name}" for name in ({case[0] for case in CASES} | {"nic_missing"})}
    assert dict(bmc_signals(b.profile(), b.observed(hot=SILENT, inventory=SILENT))) == {}
