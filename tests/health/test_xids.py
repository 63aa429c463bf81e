"""XIDs that the line itself judges, that come again at one place, and that no rung heals (pitfalls J5 and K1)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.ssh.facts import host_facts
from reconciler.gate.tools.xid import TOOL as XID
from reconciler.health.finding import finding
from reconciler.health.parts import ill_gpus
from reconciler.health.placed_parts import faulty_parts
from reconciler.health.signals import signals
from reconciler.health.table import Effect, health_table
from reconciler.model.desired import GateTest
from reconciler.model.gate import CommandResult
from reconciler.model.kernel_log import XidBurst
from reconciler.model.observed import HostFacts, KernelEvent, Xid
from reconciler.model.plan import Goal
from reconciler.model.signal_changes import SignalChange
from reconciler.model.vocab import KernelEventKind
from tests import builders as b
from tests.planner.test_unhealed import HOUR, PASSED, goal, noted, seen, unhealed

GPU, OTHER = b.gpu(0).pci, b.gpu(1).pci
HOUR_S, DAY_S = 3600.0, 86400.0


def told(*xids: Xid, profile: Any = b.PROFILE) -> dict[str, str]:
    return {one.name: one.detail for one in signals(profile, b.observed(host=b.facts(xids=xids)))}


def at(*times: float, code: int = 31, gpu: str = GPU, place: str = "") -> Xid:
    return Xid(code, gpu, len(times), bursts=tuple([XidBurst(place, time) for time in times]))


def logged(text: str) -> HostFacts:
    return host_facts({"kernel_log": CommandResult(0, text)})


# --- NVLink 5 --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", range(144, 151))
def test_an_error_of_a_link_is_judged_by_its_own_word(code: int) -> None:
    harmless, fatal, unsaid = (Xid(code, GPU, 3, fatal=fatal) for fatal in (False, True, None))
    assert told(harmless) == {f"xid_nonfatal_{code}": f"XID {code} on {GPU}, 3 times"}
    assert {*told(fatal), *told(unsaid)} == {f"xid_{code}"}, "a driver to come may call it otherwise"
    assert health_table().effect_of(f"xid_nonfatal_{code}") is Effect.REPORTS
    assert health_table().effect_of(f"xid_{code}") is Effect.REPAIRS
    assert goal(PASSED, seen(xids=(harmless,))) is Goal.IN_SERVICE


@given(st.integers(1, 300), st.sampled_from([None, True, False]))
def test_no_other_code_is_harmless_by_that_word(code: int, fatal: bool | None) -> None:
    if not 144 <= code <= 150:
        assert told(Xid(code, GPU, 1, fatal=fatal)) == told(Xid(code, GPU, 1))


def test_the_recovery_action_that_follows_counts() -> None:
    """NVIDIA's catalogue answers 8 non-fatal sub-codes of 145 by the XID 154 that comes with them."""
    action = Xid(154, GPU, 1, text="GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)")
    assert set(told(Xid(145, GPU, 1, fatal=False), action)) == {"xid_nonfatal_145", "xid_154"}


def test_a_fatal_one_whose_line_has_rotated_away_is_not_taken_back_by_one_that_is_not() -> None:
    record = noted(PASSED, seen(xids=(Xid(145, GPU, 1, fatal=True),)))
    assert unhealed(record, seen(after=HOUR, xids=(Xid(145, GPU, 9, fatal=False),))) == ["xid_145"]
    assert unhealed(record, seen(after=HOUR, boot="b2", xids=(Xid(145, GPU, 9, fatal=False),))) == []
    switch = Xid(19065, GPU, 1, switch=True, fatal=True)
    record = noted(PASSED, seen(xids=(switch,)))
    assert unhealed(record, seen(after=HOUR, xids=(replace(switch, fatal=False),))) == ["xid_19065"]


def test_what_is_only_reported_sends_no_gpu_to_a_reset_and_names_the_gpu() -> None:
    harmless, ill = Xid(145, GPU, 1, fatal=False), Xid(119, OTHER, 1)
    gpus = (b.gpu(0), b.gpu(1))
    assert [gpu.pci for gpu in ill_gpus(gpus, (harmless, Xid(163, GPU, 1), ill), health_table())] == [OTHER]
    observed = b.observed(host=b.facts(gpus=gpus, xids=(harmless, ill)))
    (part,) = faulty_parts(b.PROFILE, observed, ["health.xid_nonfatal_145"])
    assert (part.part.place, part.evidence) == (GPU, ("xid_nonfatal_145",))
    made = finding(b.PROFILE, observed, signals(b.PROFILE, observed))
    assert made is not None
    assert made.ruled_out == (), "it is no application's"


# --- an application's code at one place ------------------------------------------------------------------------------


def test_a_page_fault_that_comes_again_on_one_gpu_is_told_to_a_person() -> None:
    assert told(at(100.0)) == {}
    found = told(at(100.0, 100.0 + DAY_S))
    assert list(found) == ["xid_again_31"]
    assert f"XID 31 came 2 times at {GPU}, and nowhere else on this node" in found["xid_again_31"]
    assert told(at(100.0, 101.0 + DAY_S)) == {}, "two within 24 hours"
    assert told(at(0.0, 2 * DAY_S, 3 * DAY_S)), "the last two"
    assert health_table().rule_of("xid_again_31").row.cause.value == "application", (
        "no fleet can have a rung climb (K1)"
    )
    again = seen(xids=(at(100.0, 100.0 + HOUR_S),))
    assert goal(PASSED, again) is Goal.IN_SERVICE
    assert unhealed(noted(PASSED, again), seen(xids=())) == []


def test_one_that_moves_is_the_application_s() -> None:
    assert told(at(100.0, HOUR_S), at(200.0, gpu=OTHER)) == {}
    assert told(at(100.0, HOUR_S), Xid(31, OTHER, 1)) == {}, "its time is not known, its place is"
    assert told(at(100.0, HOUR_S, code=13, place="GPC 0, TPC 4"))
    moved = replace(at(100.0, HOUR_S, code=13, place="GPC 0, TPC 4"), count=3)
    moved = replace(moved, bursts=(*moved.bursts, XidBurst("GPC 1, TPC 4", 9000.0)))
    assert told(moved) == {}
    assert set(told(at(1.0, HOUR_S), at(1.0, HOUR_S, code=13, gpu=OTHER, place="GPC 0, TPC 4"))) == {
        "xid_again_31", "xid_again_13",
    }  # fmt: skip


def test_a_fleet_may_ask_for_more_of_them_and_its_policy_may_leave_them_out() -> None:
    often = b.profile(health=(SignalChange("xid_again_", "our jobs do that", threshold=3.0, window="1h"),))
    assert told(at(100.0, 400.0), profile=often) == {}
    assert told(at(100.0, 400.0, 900.0), profile=often)
    assert told(at(100.0, 4000.0, 8000.0), profile=often) == {}
    one = b.profile(health=(SignalChange("xid_again_31", "our jobs do that", threshold=3.0),))
    assert told(at(100.0, 400.0), at(100.0, 400.0, code=13, place="GPC 0, TPC 4"), profile=one).keys() == {
        "xid_again_13"
    }
    assert b.PROFILE.remediation is not None
    silent = b.profile(remediation=replace(b.PROFILE.remediation, ignore_xids=(31,)))
    assert told(at(100.0, 400.0), profile=silent) == {}


TIMES = st.lists(st.floats(0, 9 * DAY_S, allow_nan=False), max_size=6)


@given(st.dictionaries(st.sampled_from([GPU, OTHER]), TIMES.map(sorted), min_size=1))
def test_it_is_told_just_where_two_bursts_of_one_gpu_are_within_a_day(times: dict[str, Sequence[float]]) -> None:
    """Against an oracle that looks at each pair."""
    found = told(*(at(*each, gpu=gpu) for gpu, each in times.items()))
    pairs = [(one, two) for each in times.values() for n, one in enumerate(each) for two in each[n + 1 :]]
    assert bool(found) is (len(times) == 1 and any(two - one <= DAY_S for one, two in pairs))


def test_one_burst_of_an_application_is_none_and_a_real_one_over_many_places_is_its_own(samples: Path) -> None:
    """629 lines of XID 13 in 2 h 20 min on one GPU, and our own recording of a program that faults on an H200."""
    here = Path(__file__).parent.parent / "facts/recordings/kernel-log-h200.txt"
    assert {one.code for one in logged(here.read_text()).xids or ()} == {13, 31, 43}
    assert told(*(logged(here.read_text()).xids or ())) == {}, "its faults at one TPC are 5 seconds apart"
    text = (samples / "xid/dmesg_burst_13_43.txt").read_text()
    began = datetime.fromisoformat("2025-01-21T02:00:00+00:00")

    def monotonic(match: re.Match[str]) -> str:
        return f"[{(datetime.fromisoformat(match[1].replace(',', '.')) - began).total_seconds():12.6f}] "

    (burst, other) = logged(re.sub(r"^kern  :warn  : (\S+) ", monotonic, text, flags=re.MULTILINE)).xids or ()
    assert len({one.place for one in burst.bursts}) > 20
    assert burst.bursts[-1].uptime_s - burst.bursts[0].uptime_s > 600.0, "the last 50 places"
    assert told(burst, other) == {}


def test_its_finding_leaves_open_which_of_the_two_it_is() -> None:
    observed = b.observed(host=b.facts(xids=(at(100.0, 4000.0), Xid(43, GPU, 1))))
    made = finding(b.PROFILE, observed, signals(b.PROFILE, observed))
    assert made is not None
    assert made.cause == f"the application, or GPU 0 at {GPU}"
    assert [one.name for one in made.evidence] == ["xid_again_31"]
    assert made.ruled_out == (f"XID 43 on {GPU}: the application's, by NVIDIA's catalogue",)
    assert made.open == ("which of the two: a gate, or NVIDIA's field diagnosis, with the node out of service",)


# --- power smoothing -------------------------------------------------------------------------------------------------


def test_power_smoothing_that_goes_is_reported_until_it_is_back_or_the_gpu_was_reset_or_booted() -> None:
    gone = (Xid(163, GPU, 1),)
    assert told(*gone) == {
        "xid_163": f"XID 163 on {GPU}: it smooths its power no more, as it was too hot or waited too long"
    }
    assert goal(PASSED, seen(xids=gone)) is Goal.IN_SERVICE
    record = noted(PASSED, seen(xids=gone))
    assert unhealed(record, seen(after=HOUR)) == ["xid_163"], "a log that has rotated says nothing"
    assert unhealed(record, seen(after=HOUR, xids=(Xid(162, GPU, 1),))) == []
    assert unhealed(record, seen(after=HOUR, boot="b2")) == []
    assert told(Xid(162, GPU, 1)) == {}
    observed = b.observed(host=b.facts(xids=(Xid(162, GPU, 1),)))
    assert finding(b.PROFILE, observed, ()) is None, "that it is back is no application's fault"


@pytest.mark.parametrize("code", [164, 165])
def test_power_smoothing_that_is_worn_out_is_told_and_no_rung_is_climbed(code: int) -> None:
    worn = seen(xids=(Xid(code, GPU, 1),))
    assert "worn out" in told(Xid(code, GPU, 1))[f"xid_{code}"]
    assert health_table().effect_of(f"xid_{code}") is Effect.REPORTS
    assert goal(PASSED, worn) is Goal.IN_SERVICE
    record = noted(PASSED, worn)
    for later in (seen(after=HOUR), seen(after=HOUR, boot="b2"), seen(after=HOUR, boot="b2", dimms=())):
        assert unhealed(record, later) == [f"xid_{code}"]
    exchanged = seen(after=HOUR, boot="b2", gpus=(b.gpu(0, serial="G9", uuid="GPU-9"), b.gpu(1)))
    assert unhealed(record, exchanged) == []


# --- beside the codes ------------------------------------------------------------------------------------------------


def test_a_volume_of_the_network_that_went_away_keeps_no_node_out() -> None:
    """It is told, and no gate fails for it: the tests of drives measure the node's own. A hung driver fails one."""
    test = GateTest("passive", "xid", {}, (), 60)

    def refused(kind: KernelEventKind) -> bool:
        found = b.observed(host=b.facts(kernel_events=(KernelEvent(kind, "sdf", 1),)))
        return "sdf" in str(XID.judge(test, b.node(), found, ()).reasons)

    for kind in (KernelEventKind.TASK_HUNG, KernelEventKind.NVME_TIMEOUT):
        assert refused(kind)
    for kind in (KernelEventKind.FS_READ_ONLY, KernelEventKind.MD_DEGRADED):
        assert not refused(kind)
