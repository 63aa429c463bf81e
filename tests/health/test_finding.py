"""One finding from the signals of a node: its cause, its evidence, what is ruled out and what stays open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from reconciler.health.finding import UNKNOWN, Finding, finding
from reconciler.health.signals import Signal, signals
from reconciler.model.observed import AmdGpu, Answered, DimmErrors, DimmRecord, KernelEvent, Link, Observed, Part, Xid
from reconciler.model.records import NodeRecord
from reconciler.model.vocab import Health, KernelEventKind
from reconciler.planner.node.counted import counter_signals, counter_updates
from reconciler.planner.node.watchdog import silence_signals
from tests import builders as b

BRAKED = replace(b.CELLS, loaded=True, power_brake=True)
HOT = replace(b.CELLS, loaded=True, thermal_slowdown=True)


def found(parts: tuple[Part, ...] | None = (), **facts: Any) -> Finding | None:
    seen = b.observed(host=b.facts(**facts), inventory=b.inventory(parts=parts))
    return told(b.profile(), seen)


def told(profile: Any, seen: Observed, *ledger: Signal, domains: Mapping[str, str] | None = None) -> Finding | None:
    """The finding from what was read, and from signals of the ledger."""
    return finding(profile, seen, (*signals(profile, seen), *ledger), domains)


def certain(parts: tuple[Part, ...] | None = (), **facts: Any) -> Finding:
    made = found(parts, **facts)
    assert made is not None
    return made


def names(signals: tuple[Any, ...]) -> list[str]:
    return [signal.name for signal in signals]


def psu(health: Health | None) -> Part:
    return Part("power_supply", "1/PSU0", health)


def gpus(**ill: Any) -> tuple[Any, ...]:
    return tuple(b.gpu(index, **ill) for index in range(2))


def test_a_healthy_node_has_none() -> None:
    assert found() is None
    assert told(b.profile(), b.observed(host=b.silent(), inventory=b.silent(), hot=b.silent())) is None


def test_gpus_that_all_brake_are_the_power_supply_s() -> None:
    made = certain((psu(Health.CRITICAL),), gpus=gpus(cells=BRAKED))
    assert made.cause == "power supplies: 1/PSU0"
    assert set(names(made.evidence)) == {"power_brake", "psu_failed"}
    assert made.apart == ()
    assert made.ruled_out == ("a fault of one GPU: all 2 show power_brake",)


def test_without_an_ill_supply_it_is_the_feed_and_a_supply_that_was_not_read_stays_open() -> None:
    well = certain((psu(Health.OK),), gpus=gpus(cells=BRAKED))
    assert well.cause == "the power feed of the node or its rack"
    assert any("none is critical" in said for said in well.ruled_out)
    for unread in (None, (), (psu(None),)):
        made = certain(unread, gpus=gpus(cells=BRAKED))
        assert made.open == ("power supplies of the node: not read",)
        assert not any("power supplies" in said for said in made.ruled_out)
    assert certain(gpus=gpus(cells=HOT)).cause == "the cooling of the node or its rack"


def test_one_gpu_that_brakes_is_no_power_supply() -> None:
    assert certain(gpus=(b.gpu(0), b.gpu(1, cells=BRAKED))).cause == UNKNOWN


def test_ecc_is_the_gpu_s_and_an_application_s_xid_is_ruled_out() -> None:
    ill = b.gpu(1, ecc_uncorrectable=2)
    xids = (Xid(48, ill.pci, 1), Xid(13, ill.pci, 4))
    made = certain(gpus=(b.gpu(0), ill), xids=xids)
    assert made.cause == f"GPU 1 at {ill.pci}"
    assert set(names(made.evidence)) == {"ecc", "xid_48"}
    assert f"XID 13 on {ill.pci}: the application's, by NVIDIA's catalogue" in made.ruled_out
    assert "a cause that the GPUs share: 1 of 2 show none of it" in made.ruled_out


def test_errors_of_a_memory_module_name_its_slot() -> None:
    dimm = DimmErrors("mc0/dimm1", "DIMM_A1", 0, 1)
    made = certain(dimm_errors=(dimm,), uptime_s=1000.0)
    assert made.cause == "memory modules: DIMM_A1"
    assert names(made.evidence) == ["edac_ue"]
    assert made.ruled_out == ("the GPUs' own memory: all 2 count no uncorrectable error",)
    both = certain(dimm_errors=(dimm,), uptime_s=1000.0, gpus=(b.gpu(0), b.gpu(1, ecc_uncorrectable=1)))
    assert names(both.apart) == ["ecc"], "a GPU's own memory is not the module's"
    assert both.ruled_out == ()


def test_records_of_rasdaemon_name_the_slot_even_of_the_boot_before() -> None:
    before = DimmRecord("CPU1_DIMM_B1", "1:0:0:-1", "Uncorrected", 3, False, 1)
    made = certain(dimm_records=(before,), dimm_errors=(), uptime_s=1000.0)
    assert made.cause == "memory modules: CPU1_DIMM_B1"
    assert [one.name for one in made.evidence] == ["ras_ue_before"]
    now = replace(before, kind="Fatal", hours_ago=0, this_boot=True)
    both = certain(
        dimm_records=(before, now), dimm_errors=(DimmErrors("mc1/dimm0", "CPU1_DIMM_B1", 0, 1),), uptime_s=9.0
    )
    assert both.cause == "memory modules: CPU1_DIMM_B1", "EDAC and rasdaemon mean one module"
    assert {one.name for one in both.evidence} == {"edac_ue", "ras_ue", "ras_ue_before"}


def test_a_gpu_of_amds_is_named_by_its_counts_and_by_the_kernel_log() -> None:
    amds = (AmdGpu(0, 0, 0, 0, "00000000:1B:00.0"), AmdGpu(1, 0, 2, 0, "00000000:3D:00.0"))
    event = KernelEvent(KernelEventKind.AMD_RESET_FAILED, "00000000:3D:00.0", 1)
    made = certain(gpus=(), amd_gpus=amds, kernel_events=(event,))
    assert made.cause == "GPU 1 at 00000000:3D:00.0"
    assert set(names(made.evidence)) == {"amd_ecc", "amd_reset_failed"}
    assert made.ruled_out == ("a cause that the GPUs share: 1 of 2 show none of it",)


def test_an_application_s_xid_alone_is_the_application_s() -> None:
    made = certain(xids=(Xid(13, "0", 1),))
    assert made.cause == "the application, not the node"
    assert made.evidence == ()


@given(st.permutations([Xid(79, "0", 1), Xid(48, "1", 1), Xid(13, "0", 1), Xid(31, "1", 2)]), st.integers(1, 3))
def test_order_and_duplicates_do_not_matter(xids: list[Xid], times: int) -> None:
    made = certain(xids=tuple(xids))
    again = certain(xids=tuple(xids) * times)
    assert made == again
    straight = certain(xids=tuple(sorted(xids, key=lambda one: one.code)))
    assert made == straight


def test_a_bad_port_is_its_cable_by_both_ends_as_far_as_they_are_known() -> None:
    inventory = replace(b.PROFILE.inventory, rdma_ports=3, rdma_rate_gbps=400)
    ports = [Link(f"mlx5_{at}/1", True, 400.0, "infiniband") for at in range(3)]
    slow = (*ports[:2], replace(ports[2], rate_gbps=100.0))
    seen = b.observed(host=b.facts(links=slow), inventory=b.inventory(parts=()))
    made = told(b.profile(inventory=inventory), seen, domains={"rack": "r1", "leaf": "leaf-7"})
    assert made is not None
    assert made.cause == "cable from mlx5_2/1 to leaf leaf-7, or a port at its ends"
    assert names(made.evidence) == ["port_slow"]
    assert made.ruled_out == ("what the ports share: 2 of 3 are up, as fast as the fastest",)
    assert made.open == ("the port of the switch: no source names the far end",)
    down = b.observed(host=b.facts(links=tuple(replace(one, up=False) for one in ports)), inventory=b.inventory())
    unknown = told(b.profile(inventory=inventory), down)
    assert unknown is not None
    assert "a switch that is not known" in unknown.cause
    assert unknown.ruled_out == (), "all ports are down: what they share is not ruled out"


def test_a_port_whose_counters_rise_is_its_cable_too() -> None:
    ports = tuple(Link(f"mlx5_{at}/1", True, 400.0, "infiniband") for at in range(3))
    quiet = b.observed(host=b.facts(links=ports, counters={}, boot_id="b1"), inventory=b.inventory(parts=()))
    looks = {key: b.NOW for key, kept in counter_updates(b.node(), quiet, NodeRecord("n"), ()) if kept}
    facts = b.facts(links=ports, counters={"mlx5_2/1": {"link_downed": 9}}, boot_id="b1")
    seen = replace(quiet, host=Answered(b.NOW + timedelta(hours=1), facts))
    risen = counter_signals(b.node(), seen, NodeRecord("n", silent_since=looks))
    made = told(b.profile(), seen, *risen, domains={"leaf": "leaf-7"})
    assert made is not None
    assert made.cause == "cable from mlx5_2/1 to leaf leaf-7, or a port at its ends"
    assert names(made.evidence) == ["port_dropped", "port_flap"]
    assert made.ruled_out == ("what the ports share: 2 of 3 are up, as fast as the fastest",)


def test_a_module_that_says_an_alarm_is_named_by_its_interface_and_at_no_leaf() -> None:
    """An Ethernet port may be that of management, which ends elsewhere."""
    facts = b.facts(module_alarms={"eno1np0": ("Laser rx power low alarm",)})
    made = told(b.profile(), b.observed(host=facts, inventory=b.inventory(parts=())), domains={"leaf": "leaf-7"})
    assert made is not None
    assert made.cause == "cable from eno1np0 to a switch that is not known, or a port at its ends"
    assert [(one.name, one.detail) for one in made.evidence] == [
        ("module_alarm", "the module of eno1np0 says: Laser rx power low alarm")
    ]


def test_a_source_that_is_silent_is_no_cause_in_the_node() -> None:
    dark = b.observed(hot=b.silent(), inventory=b.silent())
    since = {"redfish": b.NOW - timedelta(hours=1)}
    silent = silence_signals(b.node(), dark, NodeRecord("n", silent_since=since))
    made = told(b.profile(), dark, *silent)
    assert made is not None
    assert made.cause == "not the node's health: what watches it is silent"
    assert names(made.evidence) == ["bmc_silent"]
    assert made.open == ("its health: bmc_silent (it has not answered for 1h00m)",)
