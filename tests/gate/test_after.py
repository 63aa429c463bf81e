"""Which tests what was done costs, and what a composed certificate proves."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from reconciler.gate import after
from reconciler.gate import certificate as c
from reconciler.gate.certificate import compose, due_tests, idle_tests, judge, valid_until
from reconciler.health.ladder import REMEDIATION
from reconciler.model.after import GPU_RESET, REBOOT, Exchanged
from reconciler.model.desired import Acceptance, GatePhase, GateTest, Revalidation
from reconciler.model.documents import dump, load
from reconciler.model.gate import Binding, Certificate, Proof, Verdict
from reconciler.model.observed import Drive, Nic, NvmeHealth, Part
from reconciler.model.records import Attempt
from reconciler.planner.node.retest import voided_since_certificate
from tests import builders as b

DAY = 86400.0
NEXT = b.NOW + timedelta(days=1)


def gate_test(name: str, tool: str, **args: str | int) -> GateTest:
    return GateTest(name, tool, args, (), 600.0)


TESTS = (
    gate_test("parts", "inventory"),
    gate_test("xids", "xid"),
    gate_test("dcgm", "dcgmi-diag", level=2),
    gate_test("dcgm-long", "dcgmi-diag", level=4),
    gate_test("pcie", "nvbandwidth"),
    gate_test("nccl", "nccl-tests"),
    gate_test("rails", "perftest", rails="mlx5_0"),
    gate_test("loopback", "iperf3"),
    gate_test("uplink", "iperf3", server="10.0.0.1"),
    gate_test("drives", "fio"),
    gate_test("errors", "link-counters"),
)
PROFILE = Acceptance("deep", (GatePhase("all", TESTS),), 90 * DAY)
ALL = {test.name for test in TESTS}
LOOK = {"parts", "xids"}


@pytest.mark.parametrize(
    ("done", "costs"),
    [
        ("nic0", LOOK | {"rails", "uplink", "errors"}),
        ("dpu-1", LOOK | {"rails", "uplink", "errors"}),
        ("hgx", LOOK | {"dcgm-long", "pcie", "nccl"}),  # level 3 at least
        ("bios", LOOK | {"pcie"}),
        ("nickel", ALL),  # a name that says nothing
        ("bmc", ALL),
        ("", ALL),
    ],
)
def test_new_firmware_costs_the_minimum_set_of_its_component(done: str, costs: set[str]) -> None:
    assert after.tests_after_firmware(PROFILE, done) == costs


def test_a_profile_inherits_what_it_has_tests_for() -> None:
    """What lacks every test for a component can't tell what it did: all tests are run."""
    assert after.tests_after_firmware(b.ACCEPTANCE, "nic0") == {"dcgm"}
    one = replace(PROFILE, phases=(GatePhase("all", (TESTS[0], TESTS[2], TESTS[6])),))
    assert after.tests_after_firmware(one, "nic0") == {"parts", "rails"}
    assert after.tests_after(one, "power_cycle", REBOOT) == {"parts", "dcgm", "rails"}
    reports = replace(PROFILE, phases=(GatePhase("all", (TESTS[2], TESTS[10])),))
    assert after.tests_after_firmware(reports, "nic0") == {"dcgm", "errors"}, "a tool that only reports proves nothing"


def test_collectives_over_several_nodes_are_for_what_is_between_nodes() -> None:
    """New firmware of a NIC costs pair tests; a boot and new firmware of a GPU take no other node out of its work."""
    between = (
        gate_test("pairs", "nccl-tests", partners=2, interface="ib0"),
        gate_test("groups", "rccl-tests", group=4, interface="ib0"),
    )
    profile = replace(PROFILE, phases=(GatePhase("all", (*TESTS, *between)),))
    assert after.tests_after_firmware(profile, "nic0") == LOOK | {"rails", "uplink", "errors", "pairs", "groups"}
    assert after.tests_after_firmware(profile, "hgx") == LOOK | {"dcgm-long", "pcie", "nccl"}
    assert after.tests_after(profile, "power_cycle", REBOOT) == LOOK | {"dcgm", "nccl", "rails"}
    assert after.tests_after(profile, "gpu_reset", GPU_RESET) == LOOK | {"dcgm", "pcie", "nccl"}


def test_an_exchanged_drive_is_written_and_read_back() -> None:
    write, slots = gate_test("write", "fio-verify", directory="/d"), gate_test("slots", "pcie", parts="nics, drives")
    profile = replace(PROFILE, phases=(GatePhase("all", (*TESTS, write, slots)),))
    assert after.tests_after_exchange(profile, Exchanged.DRIVE) == LOOK | {"drives", "write", "slots"}
    assert after.tests_after_exchange(profile, Exchanged.NIC) == LOOK | {"rails", "uplink", "errors", "slots"}


def test_a_reset_of_gpus_costs_what_it_may_have_changed_and_nothing_of_the_fabric() -> None:
    record = replace(b.record(WANTED, certificate=NODE), attempts=(treated("gpu_reset"),))
    asked = voided_since_certificate(record, PROFILE).keys()
    assert asked == {"dcgm", "pcie", "nccl", *LOOK} == after.tests_after(PROFILE, "gpu_reset", GPU_RESET)
    assert voided_since_certificate(replace(record, attempts=(treated("power_cycle"),)), PROFILE).keys() == {
        "dcgm", "nccl", "rails", *LOOK
    }  # fmt: skip
    declared = replace(PROFILE, after={"gpu_reset": ("nccl",)})
    assert voided_since_certificate(record, declared).keys() == {"nccl", *LOOK}, "a profile's own row is enough"


def treated(action: str) -> Attempt:
    return Attempt(action, "", REMEDIATION, NEXT, "done", ended_at=NEXT)


def test_a_row_of_the_profile_goes_before_the_minimum_set() -> None:
    profile = replace(PROFILE, after={"nic0": ("rails",), "bmc": (), "update_firmware": ("drives",), "set_bios": ()})
    assert after.tests_after_firmware(profile, "nic0") == {"rails", *LOOK}
    assert after.tests_after_firmware(profile, "bmc") == frozenset(), "a row that is empty costs nothing"
    assert after.tests_after_firmware(profile, "nic1") == {"drives", *LOOK}
    assert after.tests_after_bios(profile) == frozenset()
    assert after.tests_after(profile, "configure_host", ()) == frozenset()


# --- composed certificates ---

WANTED = b.node(profile=b.profile(acceptance=PROFILE))
NODE = b.certificate(WANTED, b.observed())


def upgraded(**versions: str) -> Certificate:
    firmware = {**NODE.binding.firmware, **versions}
    return replace(NODE, binding=replace(NODE.binding, firmware=firmware), issued_at=NEXT)


def after_nic(*, verdict: Verdict = Verdict.PASS) -> Certificate:
    """NIC firmware was changed, and its tests were run: the others stand."""
    costs = after.tests_after_firmware(PROFILE, "nic0")
    made = upgraded(nic0="3.0")
    results = tuple(replace(one, verdict=verdict) for one in made.results if one.test in costs)
    return compose(replace(made, results=results), NODE, ALL - costs)


def test_new_firmware_voids_the_tests_that_depend_on_it_and_no_others() -> None:
    found = judge(NODE, PROFILE, upgraded(nic0="3.0").binding, b.NOW)
    assert found.reasons == ("firmware changed since: nic0: parts, xids, rails, uplink, errors",)
    assert set(found.by_test) == after.tests_after_firmware(PROFILE, "nic0")
    found = judge(NODE, PROFILE, upgraded(nic0="3.0", bios="3.0").binding, b.NOW)
    assert found.reasons == (
        "firmware changed since: bios, nic0: parts, xids",
        "firmware changed since: bios: pcie",
        "firmware changed since: nic0: rails, uplink, errors",
    )
    assert judge(NODE, PROFILE, upgraded(bmc="3.0").binding, b.NOW).reasons == ("firmware changed since: bmc",)
    assert judge(NODE, replace(PROFILE, after={"bmc": ()}), upgraded(bmc="3.0").binding, b.NOW).valid


def test_a_certificate_is_composed_of_the_newest_results() -> None:
    made = after_nic()
    now = made.issued_at
    assert judge(made, PROFILE, made.binding, now).valid
    assert [result.test for result in made.measured] == ["parts", "xids", "rails", "uplink", "errors"]
    assert [set(proof.tests) for proof in made.earlier] == [{"dcgm", "dcgm-long", "pcie", "nccl", "loopback", "drives"}]
    again = replace(made, issued_at=now + timedelta(days=1), earlier=(), results=made.results[:2])
    third = compose(again, made, ALL - LOOK)
    assert [proof.issued_at for proof in third.earlier] == [now, NODE.issued_at], "each keeps what it proves, and since"
    assert judge(third, PROFILE, made.binding, again.issued_at).valid
    assert load(Certificate, dump(third), name="certificate") == third


def test_the_newest_result_counts_whatever_it_says() -> None:
    assert judge(after_nic(verdict=Verdict.FAIL), PROFILE, upgraded(nic0="3.0").binding, NEXT).verdict is Verdict.FAIL


def test_what_stands_is_bound_as_it_was_measured() -> None:
    made = after_nic()
    binding = replace(made.binding, firmware={**made.binding.firmware, "bmc": "9"})
    assert set(judge(made, PROFILE, binding, NEXT).by_test) == ALL
    old = replace(made.earlier[0], binding=replace(NODE.binding, image_sha256="ee" * 32))
    found = judge(replace(made, earlier=(old,)), PROFILE, made.binding, NEXT)
    assert set(found.by_test) == set(old.tests), "its image was another one, whatever the latest gate found"
    renamed = replace(TESTS[2], args={"level": 3})
    changed = replace(PROFILE, phases=(GatePhase("all", tuple(renamed if t is TESTS[2] else t for t in TESTS)),))
    digests = c.tests_digest(changed)
    binding = replace(made.binding, tests_digest=digests.whole, tests=digests.each)
    assert set(judge(made, changed, binding, NEXT).by_test) == {"dcgm"}


def test_a_test_without_a_result_admits_nobody() -> None:
    made = after_nic()
    rest = tuple(result for result in made.results if result.test != "nccl")
    assert set(judge(replace(made, results=rest), PROFILE, made.binding, NEXT).by_test) == {"nccl"}


def test_an_older_document_binds_each_of_its_tests_by_its_one_binding() -> None:
    text = dump(NODE).replace('"earlier": [],', "")
    assert "earlier" not in text
    old = load(Certificate, text, name="certificate")
    assert judge(old, PROFILE, NODE.binding, b.NOW).valid
    assert compose(upgraded(nic0="3.0"), old, {"drives"}).earlier == (), "each was run again"
    only = replace(upgraded(nic0="3.0"), results=NODE.results[:9])
    assert compose(only, old, {"drives"}).earlier == (Proof(old.issued_at, old.binding, ("drives",)),)


def test_results_expire_by_kind_of_test() -> None:
    short = replace(TESTS[6], validity_s=7 * DAY)
    profile = replace(PROFILE, phases=(GatePhase("all", (*TESTS[:6], short, *TESTS[7:])),))
    assert judge(NODE, profile, NODE.binding, b.NOW + timedelta(days=7)).valid
    found = judge(NODE, profile, NODE.binding, b.NOW + timedelta(days=8))
    assert found.reasons == ("expired: issued 8d00h ago: rails",)
    assert valid_until(NODE, profile) == b.NOW + timedelta(days=7)
    assert set(judge(NODE, profile, NODE.binding, b.NOW + timedelta(days=91)).by_test) == ALL
    made = after_nic()  # a day later, with the rails
    assert set(judge(made, profile, made.binding, b.NOW + timedelta(days=8, hours=1)).by_test) == {"rails"}
    assert valid_until(made, replace(PROFILE, validity_s=None)) is None


def test_results_are_due_before_they_expire() -> None:
    profile = replace(PROFILE, revalidate=Revalidation(7 * DAY))
    assert due_tests(NODE, PROFILE, b.NOW + timedelta(days=89)) == {}
    assert due_tests(NODE, profile, b.NOW + timedelta(days=82)) == {}
    assert set(due_tests(NODE, profile, b.NOW + timedelta(days=83))) == ALL
    made = after_nic()
    assert set(due_tests(made, profile, b.NOW + timedelta(days=83))) == set(made.earlier[0].tests)


# --- exchanged parts ---


def with_parts(**parts: tuple[str, ...]) -> Certificate:
    return replace(NODE, binding=replace(NODE.binding, parts=parts))


@pytest.mark.parametrize(
    ("part", "reason", "costs"),
    [
        ("nic_exchanged", "a NIC was exchanged", LOOK | {"rails", "uplink", "errors"}),
        ("drive_exchanged", "a drive was exchanged", LOOK | {"drives"}),
        ("dimm_exchanged", "a DIMM was exchanged", ALL),  # the profile has no test of memory
    ],
)
def test_an_exchanged_part_costs_the_minimum_set_of_its_kind(part: str, reason: str, costs: set[str]) -> None:
    before, after_it = with_parts(**{part: ("a", "b")}), with_parts(**{part: ("a", "c")})
    found = judge(before, PROFILE, after_it.binding, b.NOW)
    assert set(found.by_test) == costs
    assert all(why.startswith(reason) for why in found.reasons)
    own = replace(PROFILE, after={part: ("pcie",)})
    assert set(judge(before, own, after_it.binding, b.NOW).by_test) == {"pcie", *LOOK}
    assert judge(before, replace(PROFILE, after={part: ()}), after_it.binding, b.NOW).valid


@pytest.mark.parametrize("now", [(), ("a",), ("a", "b", "c"), ("a", "b")])
def test_a_part_that_is_not_read_or_added_is_no_exchange(now: tuple[str, ...]) -> None:
    before = with_parts(nic_exchanged=("a", "b"))
    assert judge(before, PROFILE, with_parts(nic_exchanged=now).binding, b.NOW).valid
    assert judge(before, PROFILE, with_parts().binding, b.NOW).valid
    assert judge(with_parts(), PROFILE, before.binding, b.NOW).valid, "a certificate of a version that bound none"


def test_other_gpus_cost_all_tests_unless_the_profile_says_otherwise() -> None:
    first, *others = NODE.binding.gpu_serials
    swapped = replace(NODE.binding, gpu_serials=(f"{first}-new", *others))
    fewer = replace(NODE.binding, gpu_serials=tuple(others))
    own = replace(PROFILE, after={"gpu_exchanged": ("pcie", "nccl")})
    assert set(judge(NODE, PROFILE, swapped, b.NOW).by_test) == ALL
    assert set(judge(NODE, own, swapped, b.NOW).by_test) == {"pcie", "nccl", *LOOK}
    assert set(judge(NODE, own, fewer, b.NOW).by_test) == ALL, "a GPU that is gone was not exchanged"


def test_the_tests_of_an_exchanged_part_are_composed_with_what_stands() -> None:
    before, binding = with_parts(nic_exchanged=("a", "b")), with_parts(nic_exchanged=("a", "c")).binding
    costs = set(judge(before, PROFILE, binding, b.NOW).by_test)
    made = replace(
        before, issued_at=NEXT, binding=binding, results=tuple(one for one in before.results if one.test in costs)
    )
    made = compose(made, before, ALL - costs)
    assert judge(made, PROFILE, binding, NEXT).valid
    again = replace(binding, parts={"nic_exchanged": ("a", "b")})
    assert set(judge(made, PROFILE, again, NEXT).by_test) == costs, "the old part is back: it is another one again"


def test_parts_are_bound_as_bmc_and_host_tell_them() -> None:
    dimms = (Part("dimm", "1", None, "D1"), Part("dimm", "2", None), Part("fan", "1", None, "F1"))
    inventory = b.inventory(nics=(Nic("1", "aa:bb"), Nic("2")), drives=(Drive("d", "S1"), Drive("e")), parts=dimms)
    facts = b.facts(nvme=(NvmeHealth("/dev/nvme0", "S2", None, 0, 0, 0, 100),))
    seen = b.observed(inventory=inventory, host=facts)
    bound = c.binding_of(WANTED, seen, c.tests_digest(PROFILE))
    assert not isinstance(bound, str)
    assert bound.parts == {"nic_exchanged": ("aa:bb",), "drive_exchanged": ("S1", "S2"), "dimm_exchanged": ("D1",)}


# --- what nobody did: another driver, another leaf, nothing for a month ---

PAIRS = (
    gate_test("pairs", "perftest", rails="mlx5_0", partners=2, interface="ib0"),
    gate_test("rack", "nccl-tests", group=4, interface="ib0"),
)
WIDE = replace(PROFILE, phases=(GatePhase("all", (*TESTS, *PAIRS)),))


def on(acceptance: Acceptance, driver: str = "570", **domains: str) -> Binding:
    node = b.node(profile=b.profile(acceptance=acceptance), domains=domains)
    bound = c.binding_of(node, b.observed(host=b.facts(driver=driver)), c.tests_digest(acceptance))
    assert isinstance(bound, Binding)
    return bound


def issued(bound: Binding, acceptance: Acceptance = WIDE) -> Certificate:
    made = b.certificate(b.node(profile=b.profile(acceptance=acceptance)), b.observed())
    return replace(made, binding=bound)


def test_another_leaf_costs_the_tests_between_nodes_and_no_other() -> None:
    before, moved = on(WIDE, leaf="l1", rack="r1"), on(WIDE, leaf="l2", rack="r1")
    found = judge(issued(before), WIDE, moved, b.NOW)
    assert found.reasons == ("its place in the fabric changed since: leaf l1 -> l2: parts, xids, uplink, pairs, rack",)
    own = replace(WIDE, after={"fabric_changed": ("rack",)})
    assert set(judge(issued(before), own, moved, b.NOW).by_test) == {"rack", *LOOK}
    assert judge(issued(before), replace(WIDE, after={"fabric_changed": ()}), moved, b.NOW).valid
    assert judge(issued(before, TWO), TWO, on(TWO, leaf="l2"), b.NOW).valid, "no test of it says anything of a leaf"


TWO = replace(PROFILE, phases=(GatePhase("all", (*TESTS[:8], *TESTS[9:])),))


@pytest.mark.parametrize(
    ("before", "now", "counts"),
    [
        ({"leaf": "l1", "spine": "s1"}, {"leaf": "l1", "spine": "s2"}, True),
        ({"leaf-0": "l1", "leaf-1": "l2"}, {"leaf-0": "l1", "leaf-1": "l3"}, True),
        ({"rack": "r1"}, {"rack": "r2"}, True),  # its leaf, as none is declared
        ({"leaf": "l1", "rack": "r1"}, {"leaf": "l1", "rack": "r2"}, False),  # its cables are where they were
        ({"rack": "r1"}, {"rack": "r1", "leaf": "l1"}, False),  # the spec says more, and nothing was moved
        ({"leaf": "l1"}, {}, False),
        ({"pdu": "p1"}, {"pdu": "p2"}, False),
    ],
)
def test_a_place_in_the_fabric_is_another_one_when_a_switch_is(
    before: dict[str, str], now: dict[str, str], counts: bool
) -> None:
    assert judge(issued(on(WIDE, **before)), WIDE, on(WIDE, **now), b.NOW).valid is not counts


def test_another_driver_costs_what_goes_through_it() -> None:
    before = issued(on(WIDE))
    found = judge(before, WIDE, on(WIDE, driver="580"), b.NOW)
    assert found.reasons == ("driver changed since: parts, xids, dcgm-long, pcie, nccl, rack",)
    unread = replace(on(WIDE), software={})
    assert judge(before, WIDE, unread, b.NOW).valid, "it was not read now"
    assert judge(issued(unread), WIDE, on(WIDE), b.NOW).valid, "a certificate of a version that bound none"


def test_a_node_that_is_idle_for_a_month_is_tested_like_after_a_boot_and_deeper() -> None:
    made, since = issued(on(WIDE)), b.NOW - timedelta(days=90)
    month, latest = timedelta(days=30), timedelta(days=33)  # by its name, up to three days later
    assert idle_tests(made, since, WIDE, b.NOW + month - timedelta(seconds=1)) == {}, "its gate is younger than that"
    found = idle_tests(made, since, WIDE, b.NOW + latest)
    assert set(found) == LOOK | {"dcgm-long", "nccl", "rails", "pairs"}
    assert {why for reasons in found.values() for why in reasons} == {f"no work and no gate since {b.NOW:%Y-%m-%d}"}
    later = b.NOW + timedelta(days=20)
    assert idle_tests(made, later, WIDE, b.NOW + latest) == {}, "it had work until then"
    assert idle_tests(made, None, WIDE, b.NOW + latest) == {}, "it has work, or nobody knows"
    assert idle_tests(replace(made, adopted=True), since, WIDE, b.NOW + latest) == {}
    assert idle_tests(made, since, replace(WIDE, after={"idle": ()}), b.NOW + latest) == {}
    cpus = (gate_test("cpu", "stress-ng"), gate_test("memory", "memtester"), gate_test("drives", "fio-verify"))
    plain = replace(PROFILE, phases=(GatePhase("all", (*TESTS[:2], *cpus)),))
    assert idle_tests(made, since, plain, b.NOW + latest) == {}, "a control plane shows no pods, and serves"
    own = replace(plain, after={"idle": ("memory",)})
    assert set(idle_tests(made, since, own, b.NOW + latest)) == LOOK | {"memory"}


def test_nodes_that_came_together_are_not_all_due_together() -> None:
    made, day = issued(on(WIDE)), timedelta(days=1)
    nodes = [replace(made, node=f"n{number}") for number in range(12)]
    due = [sum(bool(idle_tests(one, b.NOW, WIDE, b.NOW + at * day)) for one in nodes) for at in (30, 30.5, 31.5, 33)]
    assert due[0] == 0
    assert due[-1] == 12
    assert 0 < due[1] < due[2] < 12


def test_the_driver_of_another_image_is_no_reason_of_its_own() -> None:
    found = judge(issued(on(WIDE)), WIDE, replace(on(WIDE, driver="580"), image_sha256="other"), b.NOW)
    assert found.reasons == ("issued for another image",)
