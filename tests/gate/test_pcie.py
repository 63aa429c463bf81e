"""PCIe links as `lspci -vvv` of real machines prints them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from reconciler.gate.tools import TOOLS
from reconciler.model.gate import CommandResult, TestResult, Verdict
from reconciler.model.own_health import DiskHealth
from tests import builders as b
from tests.gate.cases import SEEN, gate_test, wanted
from tests.gate.test_judges_never_raise import check

# The lines that matter of a GPU behind a switch, as pciutils 3.9 prints them.
GPU = """0000:{bus:02x}:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
\tSubsystem: NVIDIA Corporation Device 16c1
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed {speed}, Width {width}
\t\t\tTrErr- Train- SlotClk+ DLActive- BWMgmt- ABWMgmt-

"""
BRIDGE = """0000:0a:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
\tCapabilities: [148 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+
\t\tACSCtl:\tSrcValid- TransBlk- ReqRedir- CmpltRedir- UpstreamFwd- EgressCtrl- DirectTrans-

"""


def gpus(speed: str = "32GT/s", width: str = "x16", number: int = 8) -> str:
    whole = [GPU.format(bus=0x10 + at, speed="32GT/s", width="x16") for at in range(number - 1)]
    return BRIDGE + "".join([*whole, GPU.format(bus=0x40, speed=speed, width=width)])


# A root port, a switch below it, one of the switch's own ports, and what is in its slot.
CHAIN = """0000:95:01.0 PCI bridge: Intel Corporation Device 352a (rev 04) (prog-if 00 [Normal decode])
\tBus: primary=95, secondary=96, subordinate=98, sec-latency=0
\tCapabilities: [40] Express (v2) Root Port (Slot-), MSI 00
\t\tLnkCap:\tPort #8, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s, Width {uplink}

0000:96:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
\tBus: primary=96, secondary=97, subordinate=98, sec-latency=0
\tCapabilities: [68] Express (v2) Upstream Port, MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s, Width {uplink}

0000:97:02.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
\tBus: primary=97, secondary=98, subordinate=98, sec-latency=0
\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
\t\tLnkCap:\tPort #2, Speed 16GT/s, Width {slot}, ASPM not supported
\t\tLnkSta:\tSpeed {speed}, Width {width}

0000:98:00.0 {what}
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed {speed}, Width {width}

"""
NIC = "Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]"
DRIVE = "Non-Volatile memory controller: Micron Technology Inc Device 51c3 (rev 01) (prog-if 02 [NVM Express])"
# As ConnectX-5 and ConnectX-7 print it.
VIRTUAL = """0000:98:01.0 Ethernet controller: Mellanox Technologies ConnectX Family mlx5Gen Virtual Function
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed unknown (downgraded), Width x0 (downgraded)

"""


def chain(*, what: str = NIC, speed: str = "16GT/s", width: str = "x16", slot: str = "x16", uplink: str = "x16") -> str:
    return gpus() + CHAIN.format(what=what, speed=speed, width=width, slot=slot, uplink=uplink)


NIC_AT = f"""0000:{{at}} {NIC}
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 16GT/s, Width x16

"""
UP, DOWN = "4: ACTIVE | 5: LinkUp", "1: DOWN | 3: Disabled"


def ports_of(text: str) -> str:
    """Return what sysfs tells of RDMA ports where each physical function of Mellanox's has one."""
    found = re.findall(
        r"^((?:0000:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) .*: Mellanox(?!.*Virtual Function)", text, re.MULTILINE
    )
    return listing(*(at.removeprefix("0000:") for at in found))


def listing(*functions: str, state: str = UP) -> str:
    """Return what the host tells of RDMA ports, one of each function; more than one may be of the same."""
    ports = (f"mlx5_{at}/ports/1 /sys/devices/pci0000:95/0000:{name} {state}\n" for at, name in enumerate(functions))
    return "".join(ports) + "end\n"


def judged(text: str, *, load: str = "", parts: str = "", ports: str | None = None, **inventory: int) -> TestResult:
    outputs = [CommandResult(0, "lspci version 3.9.0\n"), CommandResult(0, text)]
    if "nics" in parts:
        outputs.append(CommandResult(0, ports_of(text) if ports is None else ports))
    test = gate_test("pcie", **{name: value for name, value in (("load", load), ("parts", parts)) if value})
    return check(TOOLS["pcie"].judge(test, wanted(**inventory), SEEN, outputs))


@pytest.mark.parametrize(("parts", "what"), [("nics", NIC), ("drives", DRIVE)])
def test_other_parts_reach_what_both_ends_of_their_links_can_do(parts: str, what: str) -> None:
    kind = parts.removesuffix("s")
    result = judged(chain(what=what), parts=parts, rdma_ports=1)
    assert (result.verdict, result.reasons) == (Verdict.PASS, ()), "its slot is of generation 4"
    assert (result.metrics[f"{kind}_width"], result.metrics[f"{kind}_speed_gts.0000-98-00.0"]) == (16, 16)
    assert result.metrics["uplink_width.0000-96-00.0"] == 16
    eight = judged(chain(what=what, slot="x8", width="x8"), parts=parts, rdma_ports=1)
    assert (eight.verdict, eight.metrics[f"{kind}_width"]) == (Verdict.PASS, 8), (
        "a slot of 8 lanes: a bar may refuse it"
    )


@pytest.mark.parametrize(
    ("link", "parts", "inventory", "verdict", "reason"),
    [
        ({"width": "x8"}, "nics", {"rdma_ports": 1}, Verdict.FAIL, "nic 0000:98:00.0: width x8 of x16"),
        ({"speed": "8GT/s"}, "nics", {"rdma_ports": 1}, Verdict.FAIL, "nic 0000:98:00.0: 8 GT/s of 16"),
        ({"uplink": "x4"}, "nics", {"rdma_ports": 1}, Verdict.FAIL, "uplink 0000:96:00.0: width x4 of x16"),
        ({"what": DRIVE, "width": "x2", "slot": "x4"}, "drives", {}, Verdict.FAIL, "0000:98:00.0: width x2 of x4"),
        ({}, "nics", {"rdma_ports": 2}, Verdict.FAIL, "1 of 1 RDMA ports are up and on the PCIe bus, 2 are"),
        ({}, "drives", {}, Verdict.FAIL, "0 drives have a PCIe link, 1 are declared"),
        ({}, "nics", {}, Verdict.UNJUDGED, "does not declare how many nics"),
    ],
)  # fmt: skip
def test_a_link_of_another_part_that_is_not_whole(
    link: dict[str, str], parts: str, inventory: dict[str, Any], verdict: Verdict, reason: str
) -> None:
    result = judged(chain(**link) + VIRTUAL, parts=parts, **inventory)
    assert reason in "; ".join(result.reasons)
    assert result.verdict is verdict
    assert judged(chain(**link)).verdict is Verdict.PASS, "what is not asked for is not judged"


MANAGEMENT = """0000:01:00.0 Ethernet controller: Broadcom Inc. and subsidiaries NetXtreme BCM5720
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tLnkCap:\tPort #0, Speed 5GT/s, Width x1, ASPM not supported
\t\tLnkSta:\tSpeed 5GT/s, Width x1

"""


@pytest.mark.parametrize("dead", ["\t!!! Unknown header type 7f\n", "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n"])
def test_a_nic_that_does_not_tell_of_its_link_is_no_pass(dead: str) -> None:
    silent = f"0000:99:00.0 {NIC} (rev ff)\n{dead}\n"
    result = judged(chain() + silent, parts="nics", rdma_ports=1)
    assert (result.verdict, result.reasons) == (
        Verdict.UNJUDGED,
        ("nic 0000:99:00.0: no capability and state of one link",),
    )
    assert judged(chain() + VIRTUAL, parts="nics", rdma_ports=1).verdict is Verdict.PASS


@pytest.mark.parametrize("number", [1, 2, 7])
def test_no_nic_for_management_makes_up_for_one_that_left_the_bus(number: int) -> None:
    others = "".join(MANAGEMENT.replace("01:00.0", f"01:00.{at}") for at in range(number))
    assert judged(chain() + others, parts="nics", rdma_ports=1).verdict is Verdict.PASS
    result = judged(chain() + others, parts="nics", rdma_ports=2)
    assert (result.verdict, result.reasons) == (
        Verdict.FAIL,
        ("1 of 1 RDMA ports are up and on the PCIe bus, 2 are declared",),
    )


def test_the_ports_are_those_of_sysfs(tmp_path: Path) -> None:
    """The kernel's own layout: a device of mlx5 has its function behind `device`, and a folder for each port."""
    root, pf = tmp_path / "devices/pci0000:95", "0000:98:00.0"
    for name, behind, state in (
        ("mlx5_0", pf, UP), ("mlx5_1", "0000:98:00.1", DOWN), ("mlx5_2", "0000:98:01.0", UP),
        ("mlx5_3", f"{pf}/mlx5_core.sf.4", UP), ("rxe0", "", UP),
    ):  # fmt: skip
        folder = tmp_path / f"class/infiniband/{name}"
        (folder / "ports/1").mkdir(parents=True)
        for file, text in zip(("state", "phys_state"), state.split(" | "), strict=True):
            (folder / "ports/1" / file).write_text(f"{text}\n")
        if behind:
            (root / behind).mkdir(parents=True)
            (folder / "device").symlink_to(root / behind)
    (root / "0000:98:01.0/physfn").symlink_to(f"../{pf}")
    commands = TOOLS["pcie"].commands(gate_test("pcie", parts="nics, drives"), wanted(), SEEN)
    assert isinstance(commands, tuple)
    argv = [word.replace("/sys/", f"{tmp_path}/") for word in commands[2]]
    told = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    assert told.replace(f"{root}/", "") == (
        f"mlx5_0/ports/1 {pf} {UP}\nmlx5_1/ports/1 0000:98:00.1 {DOWN}\nmlx5_2/ports/1 {pf} {UP}\n"
        f"mlx5_3/ports/1 {pf}/mlx5_core.sf.4 {UP}\n"
        f"rxe0/ports/1 {tmp_path}/class/infiniband/rxe0/device {UP}\nend\n"
    ), "that of a virtual function is its physical one's"
    result = judged(chain() + VIRTUAL, parts="nics", ports=told, rdma_ports=4)
    assert (result.verdict, result.reasons) == (Verdict.PASS, ()), "the inventory declares those that are up"
    assert judged(chain() + VIRTUAL, parts="nics", ports=told, rdma_ports=5).verdict is Verdict.FAIL
    assert len(TOOLS["pcie"].commands(gate_test("pcie", parts="drives"), wanted(), SEEN)) == 2


def test_a_spare_port_makes_up_for_no_nic_that_left_the_bus() -> None:
    """A DGX H100 has 12 ports, of which two are not in use."""
    second = NIC_AT.format(at="98:00.1")
    used, spare = listing("98:00.0"), listing("98:00.1", state=DOWN).replace("mlx5_0", "mlx5_1")
    both = used.removesuffix("end\n") + spare
    assert judged(chain() + second, parts="nics", ports=both, rdma_ports=1).verdict is Verdict.PASS
    result = judged(chain() + second, parts="nics", ports=both, rdma_ports=2)
    assert (result.verdict, result.reasons) == (
        Verdict.FAIL,
        ("1 of 2 RDMA ports are up and on the PCIe bus, 2 are declared",),
    )


@pytest.mark.parametrize("gone", ["\t!!! Unknown header type 7f\n", "\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16\n"])
def test_ports_of_a_function_that_left_the_bus_do_not_count(gone: str) -> None:
    """Also not those of its virtual functions, nor its subfunctions."""
    text, ports = chain() + f"0000:99:00.0 {NIC} (rev ff)\n{gone}\n", listing("98:00.0", "99:00.0", "99:00.0/sf.1")
    result = judged(text, parts="nics", ports=ports, rdma_ports=3)
    assert (result.verdict, result.reasons) == (
        Verdict.FAIL,
        ("1 of 3 RDMA ports are up and on the PCIe bus, 3 are declared",),
    )


def test_an_adapter_inside_a_processor_counts_without_a_link() -> None:
    text = chain() + "0000:b7:00.0 Ethernet controller: Intel Corporation Ethernet Connection X722\n\tLatency: 0\n\n"
    assert judged(text, parts="nics", ports=listing("98:00.0", "b7:00.0"), rdma_ports=2).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("state", "verdict"), [(" | 5: LinkUp", Verdict.UNJUDGED), ("2: INIT | 5: LinkUp", Verdict.FAIL)]
)
def test_a_port_that_is_not_known_to_be_up_is_no_pass(state: str, verdict: Verdict) -> None:
    assert judged(chain(), parts="nics", ports=listing("98:00.0", state=state), rdma_ports=1).verdict is verdict
    assert judged(chain(), parts="nics", ports=listing("98:00.0", state=state), rdma_ports=0).verdict is Verdict.PASS


def test_a_nic_of_two_ports_counts_twice() -> None:
    two = listing("98:00.0").replace("end", f"mlx5_0/ports/2 /sys/devices/pci0000:95/0000:98:00.0 {UP}\nend")
    assert judged(chain(), parts="nics", ports=two, rdma_ports=2).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("ports", "verdict", "reason"),
    [
        ("end\n", Verdict.UNJUDGED, "has it a driver of its NICs"),
        (listing("98:00.0").removesuffix("end\n"), Verdict.ERROR, "does not tell which NICs"),
        (2 * listing("98:00.0").removesuffix("end\n") + "end\n", Verdict.ERROR, "does not tell which NICs"),
        ("mlx5_0 1\nend\n", Verdict.ERROR, "does not tell which NICs"),
        (listing("99:00.0"), Verdict.FAIL, "0 of 1 RDMA ports are up"),
    ],
)
def test_ports_that_are_not_told_of_are_no_pass(ports: str, verdict: Verdict, reason: str) -> None:
    result = judged(chain(), parts="nics", ports=ports, rdma_ports=1)
    assert result.verdict is verdict
    assert reason in result.reasons[0]


@pytest.mark.parametrize(
    ("disks", "verdict", "reason"),
    [
        (2, Verdict.PASS, ""),
        (1, Verdict.UNJUDGED, "1 drives have a PCIe link and 1 are SATA or SAS drives, 3 are declared"),
        (None, Verdict.UNJUDGED, "1 drives have a PCIe link and the host does not tell of others, 3 are declared"),
        (0, Verdict.FAIL, "1 drives have a PCIe link, 3 are declared"),
    ],
)
def test_drives_that_are_no_nvme_drives_have_no_link(disks: int | None, verdict: Verdict, reason: str) -> None:
    """A BMC lists the SATA drives that a node boots from, too."""
    found = None if disks is None else tuple(DiskHealth(f"sd{at}", f"S{at}", None, True) for at in range(disks))
    seen = b.observed(host=b.facts(disks=found))
    outputs = [CommandResult(0, "lspci version 3.9.0\n"), CommandResult(0, chain(what=DRIVE))]
    result = check(TOOLS["pcie"].judge(gate_test("pcie", parts="drives"), wanted(drives=3), seen, outputs))
    assert result.verdict is verdict
    assert "".join(result.reasons) == reason


def test_the_bridges_of_a_loop_are_walked_once() -> None:
    """No real machine has one; an output may."""
    loop = chain().replace("primary=95, secondary=96", "primary=95, secondary=95")
    assert judged(loop, parts="nics", rdma_ports=1).metrics["nic_width"] == 16


def test_a_whole_node_passes_and_has_its_figures() -> None:
    result = judged(gpus(), load="gpu_burn 30")
    assert result.verdict is Verdict.PASS, result.reasons
    assert (result.metrics["width"], result.metrics["speed_gts"], result.metrics["acs_on"]) == (16, 32, 0)
    assert result.metrics["width.spread"] == 0


@pytest.mark.parametrize(
    ("text", "load", "verdict", "reason"),
    [
        (gpus(width="x8 (downgraded)"), "", Verdict.FAIL, "0000:40:00.0: width x8 of x16"),
        (gpus(speed="16GT/s (downgraded)"), "x", Verdict.FAIL, "0000:40:00.0: 16 GT/s under load, of 32"),
        (gpus(number=7), "", Verdict.FAIL, "7 GPUs are on the PCIe bus, 8 are declared"),
        (gpus(number=9), "", Verdict.FAIL, "9 GPUs are on the PCIe bus, 8 are declared"),
        (gpus().replace("\t\tLnkSta:", "\t\tLnkXta:", 1), "", Verdict.UNJUDGED, "no capability and state"),
        (re.sub(r"LnkCap.*", "<access denied>", gpus()), "", Verdict.ERROR, "rights of root"),
        ("", "", Verdict.FAIL, "0 GPUs"),
    ],
)
def test_a_link_that_is_not_whole(text: str, load: str, verdict: Verdict, reason: str) -> None:
    result = judged(text, load=load)
    assert any(reason in one for one in result.reasons), result.reasons
    assert result.verdict is verdict or verdict is Verdict.ERROR


def test_an_idle_link_may_be_slow_and_says_so_in_its_metrics() -> None:
    result = judged(gpus(speed="2.5GT/s (downgraded)"))
    assert result.verdict is Verdict.PASS, result.reasons
    assert result.metrics["speed_gts"] == 2.5
    assert result.metrics["speed_gts.spread"] == pytest.approx(92.1875)


def test_acs_counts_the_functions_that_redirect() -> None:
    text = gpus().replace("ACSCtl:\tSrcValid- TransBlk- ReqRedir-", "ACSCtl:\tSrcValid+ TransBlk- ReqRedir+")
    assert judged(text).metrics["acs_on"] == 1


def test_nothing_that_is_cut_passes() -> None:
    text = gpus()
    assert {judged(text[:at]).verdict for at in range(0, len(text) - 1, 7)} <= set(Verdict) - {Verdict.PASS}


def test_real_outputs_are_judged(samples: Path) -> None:
    """One of them is of a whole node with eight H100, which idle."""
    files = [path for path in sorted((samples / "lspci").iterdir()) if path.suffix != ".src"]
    results = {path.name: judged(path.read_text(errors="replace")) for path in files}
    assert [name for name, result in results.items() if result.verdict is Verdict.PASS] == ["gpud_lspci-vvv.txt"]
    metrics = results["gpud_lspci-vvv.txt"].metrics
    assert (metrics["width"], metrics["width.spread"]) == (16, 0)
    whole = (samples / "lspci" / "gpud_lspci-vvv.txt").read_text(errors="replace")
    result = judged(whole, parts="nics, drives", rdma_ports=11, drives=8)
    assert (result.verdict, result.reasons) == (Verdict.PASS, ()), "its two ports of 1 Gb/s have one lane of two"
    nics = [name for name in result.metrics if name.startswith("nic_width.") and name != "nic_width.spread"]
    assert (len(nics), result.metrics["nic_width"], result.metrics["drive_width"]) == (14, 1, 4)
    assert (result.metrics["uplink_width"], result.metrics["uplink_width.spread"]) == (16, 0)
    narrow = whole.replace(
        "LnkSta:\tSpeed 16GT/s (ok), Width x4 (ok)", "LnkSta:\tSpeed 16GT/s (ok), Width x2 (downgraded)", 1
    )
    assert narrow != whole
