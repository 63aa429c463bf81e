"""Whether a BMC that hangs is to be reset by its host, of one node's facts: never while it may be in use."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from reconciler.model.desired import Remediation, Rung
from reconciler.model.observed import Taint
from reconciler.model.records import Attempt, NodeRecord
from reconciler.planner.node.bmc_reset import bmc_to_reset
from tests import builders as b

RESET = "reset_bmc_from_host"
NODE = b.node(profile=b.profile(remediation=Remediation("few", (Rung("reset_bmc", 2),), 86400.0)))
SINCE = b.NOW - timedelta(minutes=20)


def does(*tried: str, **member: Any) -> list[str]:
    """Plan a node whose BMC hangs while its host answers, after attempts such as "update_firmware!started"."""
    words = [one.partition("!")[::2] for one in tried]
    attempts = tuple(
        Attempt(action, "", "firmware.nic0", SINCE + timedelta(seconds=at), outcome or "done")
        for at, (action, outcome) in enumerate(words)
    )
    seen = b.observed(hot=b.silent("timeout"), inventory=b.silent("timeout"), member=b.member(**member))
    known = b.record(NODE, b.observed(), attempts=attempts, silent_since={"redfish": SINCE})
    return b.actions(b.planner(bmc_to_reset=NODE.node).plan(NODE, seen, known))


@pytest.mark.parametrize(
    ("tried", "resets"),
    [
        ((), True),
        (("drain!started", "mark!ambiguous"), True),
        (("update_firmware!started",), False),
        (("update_firmware!ambiguous",), False),
        (("update_firmware!transient",), False),  # it did not end in time, and may go on
        (("update_firmware!transient", "update_firmware"), True),
        (("update_firmware!permanent",), True),
        (("update_firmware!refused",), True),
        (("update_firmware!transient", "power_cycle", "admit"), True),
        *(((f"{action}!started",), False) for action in (
            "reset_bmc", "ac_cycle", "power_cycle", "power_on", "shut_down", "soft_restart", "reimage", "erase",
        )),
        (("power_cycle!transient",), True),  # its host answers
        (("ac_cycle!ambiguous",), False),
        ((f"{RESET}!started",), True),
    ],
)  # fmt: skip
def test_a_bmc_is_not_reset_while_what_we_began_on_it_may_go_on(tried: tuple[str, ...], *, resets: bool) -> None:
    assert (RESET in does(*tried)) is resets


@pytest.mark.parametrize(
    "member",
    [
        {"unschedulable": True},
        {"labels": {"workload": "training", "nvidia.com/gpu-driver-upgrade-state": "drain-required"}},
        {"taints": (Taint("medik8s.io/remediation", "self-node-remediation", "NoExecute"),)},
    ],
)
def test_a_bmc_is_not_reset_while_somebody_else_maintains_its_node(member: dict[str, Any]) -> None:
    assert RESET in does()
    assert RESET not in does(**member)


@pytest.mark.parametrize(
    ("silent", "racks", "chosen"),
    [
        ("0", 128, "n000"),
        ("0 1", 128, "n000"),  # one at a time
        ("0 128", 128, ""),  # of one rack: its switch
        ("0 1 2", 128, ""),
        (" ".join(str(at) for at in range(0, 512, 64)), 64, ""),  # 8 of 512, all of a rack
        ("3 4", 0, "n003"),
        ("3 4 5", 0, ""),
    ],
)
def test_no_bmc_is_reset_whose_network_is_away_and_no_two_at_once(silent: str, racks: int, chosen: str) -> None:
    names = {f"n{int(at):03}" for at in silent.split()}
    fleet = {
        name: b.node(name, profile=NODE.profile, domains={"rack": str(at % racks)} if racks else {})
        for at, name in enumerate(f"n{at:03}" for at in range(512))
    }
    hangs = b.silent("timeout")
    seen = {name: b.observed(name, **({"hot": hangs} if name in names else {})) for name in fleet}
    assert bmc_to_reset(fleet, seen, {}, b.NOW) == chosen
    unasked = {name: b.observed(name, hot=hangs if name == min(names) else b.silent("not_asked")) for name in fleet}
    ledger = {name: NodeRecord(name, silent_since={"redfish": SINCE}) for name in names}
    assert bmc_to_reset(fleet, unasked, ledger, b.NOW) == chosen, "as the ledger knows it of those that are not asked"


def test_who_is_being_reset_keeps_the_others_waiting() -> None:
    fleet = {name: b.node(name, profile=NODE.profile, domains={"rack": name}) for name in ("a", "b")}
    seen = {name: b.observed(name, hot=b.silent("timeout")) for name in fleet}

    def tried(*outcomes: str) -> NodeRecord:
        return NodeRecord("", attempts=tuple(Attempt(RESET, "", "health.bmc_silent", SINCE, one) for one in outcomes))

    assert bmc_to_reset(fleet, seen, {}, b.NOW) == "a"
    assert bmc_to_reset(fleet, seen, {"b": tried("started")}, b.NOW) == "b"
    assert bmc_to_reset(fleet, seen | {"b": b.observed("b")}, {"b": tried("started")}, b.NOW) == ""
    assert bmc_to_reset(fleet, seen, {"a": tried("transient", "transient")}, b.NOW) == "b", "it was tried often enough"
