"""The raw texts of the facts, compared with recordings of the real tools."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.drivers.ssh.facts import host_facts
from reconciler.drivers.ssh.facts.slots import parse_slots
from reconciler.lab.hardware.machine import Machine
from reconciler.lab.inprocess.facts import host_facts as in_process
from reconciler.lab.signal_scenes import SCENES
from reconciler.lab.wire.facts import FACTS, answer
from reconciler.model.gate import CommandResult
from reconciler.model.observed import Slot
from tests.lab.ssh_bench import Clock, ask, make_machine

LOST = "GPU is lost"


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def machine(clock: Clock) -> Machine:
    return make_machine(clock)


def text(machine: Machine, name: str, command: str = "") -> str:
    result = answer(name, ask(machine, command))
    assert (result.exit_status, result.stderr) == (0, "")
    return result.stdout


def xml(machine: Machine) -> ET.Element:
    return ET.fromstring(text(machine, "nvidia_smi"))


def paths(element: ET.Element, prefix: str = "") -> Iterator[str]:
    for child in element:
        path = f"{prefix}/{child.tag}"
        yield path
        yield from paths(child, path)


# --- nvidia-smi --------------------------------------------------------------------------------------------------


def test_the_xml_has_every_element_of_a_healthy_recording_of_this_product(samples: Path, machine: Machine) -> None:
    recorded = ET.parse(samples / "nvidia-smi-xml" / "mocknvml_h100_allgpus_remap_pending.xml").getroot()
    missing = set(paths(recorded)) - set(paths(xml(machine)))
    assert missing == {"/gpu/gpu_module_id"}  # <platformInfo><module_id> since the 570 driver


def test_the_xml_has_every_element_that_a_570_driver_prints(samples: Path, machine: Machine) -> None:
    recorded = ET.parse(samples / "nvidia-smi-xml" / "telegraf_rtx-3060-v12.xml").getroot()
    missing = {path for path in set(paths(recorded)) - set(paths(xml(machine))) if "supported_clocks" not in path}
    consumer_boards = {f"/gpu/temperature/gpu_temp_{name}_threshold" for name in ("max", "slow", "max_gpu", "max_mem")}
    assert missing == consumer_boards  # data centre boards show distances to the limit instead (tlimit)


def test_the_order_of_elements_is_the_drivers(samples: Path, machine: Machine) -> None:
    recorded = ET.parse(samples / "nvidia-smi-xml" / "telegraf_rtx-3060-v12.xml").getroot()
    ours, theirs = ([child.tag for child in next(root.iter("gpu"))] for root in (xml(machine), recorded))
    assert ours == theirs


def test_a_lost_gpu_reads_lost_in_the_cells_where_the_real_tool_says_so(samples: Path, machine: Machine) -> None:
    recorded = ET.parse(samples / "nvidia-smi-xml" / "mocknvml_h100_gpu4_lost.xml").getroot()
    machine.inject("xid_79", gpu=4)
    shown = xml(machine)
    theirs, ours = recorded.findall("gpu")[4], shown.findall("gpu")[4]
    cells = {path[1:] for path in paths(theirs) if theirs.findtext(path[1:]) == LOST}
    assert len(cells) > 30
    assert {path for path in cells if ours.findtext(path) != LOST} == set()
    assert ours.findtext("uuid") == machine.state.gpus[4].uuid
    assert shown.findtext("attached_gpus") == "8"
    assert LOST not in "".join(shown.findall("gpu")[3].itertext())


def test_the_xml_shows_the_state(machine: Machine) -> None:
    machine.inject("ecc_errors", gpu=5, count=7)
    gpus = xml(machine).findall("gpu")
    assert [gpu.findtext("serial") for gpu in gpus] == [gpu.serial for gpu in machine.state.gpus]
    assert [gpu.get("id") for gpu in gpus] == [gpu.pci for gpu in machine.state.gpus]
    errors = [gpu.findtext("ecc_errors/volatile/dram_uncorrectable") for gpu in gpus]
    pending = [gpu.findtext("remapped_rows/remapped_row_pending") for gpu in gpus]
    assert errors == ["0"] * 5 + ["7", "0", "0"]
    assert pending == ["No"] * 5 + ["Yes", "No", "No"]
    assert xml(machine).findtext("driver_version") == "570.124.06"
    assert xml(machine).findtext("cuda_version") == "12.8"
    assert xml(machine).findtext("timestamp") == "Sat Nov 21 07:00:00 2026"


def test_names_from_a_spec_are_escaped() -> None:
    machine = make_machine(Clock(), gpu_name="B<est> & fastest H100")
    assert xml(machine).findtext("gpu/product_name") == "B<est> & fastest H100"


def test_mig_devices_are_in_the_xml_without_names_and_in_the_list_with_them(machine: Machine) -> None:
    gpu = machine.state.gpus[0]
    machine.mig_mode(True, [gpu])
    machine.mig_create(["1g.10gb", "3g.40gb", "2g.20gb", "1g.10gb"], [gpu])
    shown = xml(machine).find("gpu")
    assert shown is not None
    assert shown.findtext("mig_mode/current_mig") == "Enabled"
    assert shown.findtext("remapped_rows") == "N/A"
    devices = shown.findall("mig_devices/mig_device")
    assert [device.findtext("gpu_instance_id") for device in devices] == ["1", "3", "7", "8"]
    shape = "device_attributes/shared/multiprocessor_count"
    assert [device.findtext(shape) for device in devices] == ["60", "32", "16", "16"]
    listed = text(machine, "gpu_list").splitlines()
    assert listed[0] == f"GPU 0: NVIDIA H100 80GB HBM3 (UUID: {gpu.uuid})"
    assert [line[:34] for line in listed[1:5]] == [
        "  MIG 3g.40gb     Device  0: (UUID",
        "  MIG 2g.20gb     Device  1: (UUID",
        "  MIG 1g.10gb     Device  2: (UUID",
        "  MIG 1g.10gb     Device  3: (UUID",
    ]
    assert {line.split("UUID: ")[1].rstrip(")") for line in listed[1:5]} == {uuid for _, uuid in gpu.mig_instances}
    assert (xml(machine).findall("gpu")[1].findtext("mig_devices") or "").strip() == "None"


@pytest.mark.parametrize(
    "product", ["NVIDIA H200", "NVIDIA B200", "NVIDIA A100-SXM4-80GB", "NVIDIA A100-SXM4-40GB", "?"]
)
def test_every_profile_that_the_hardware_allows_can_be_shown(product: str) -> None:
    from reconciler.lab.hardware.host_side import mig_profiles

    machine = make_machine(Clock(), gpu_name=product)
    gpu = machine.state.gpus[0]
    gpu.mig_enabled = True
    for profile in mig_profiles(gpu):
        gpu.mig_instances = [(profile, "MIG-1")]
        device = xml(machine).find("gpu/mig_devices/mig_device")
        assert device is not None
        assert int(str(device.findtext("fb_memory_usage/total")).split()[0]) > 4000
        assert f" MIG {profile} " in text(machine, "gpu_list")


def test_nvlink_states(samples: Path, machine: Machine) -> None:
    recorded = (samples / "nvidia-smi-nvlink" / "mocknvml_h100_healthy_nvls.txt").read_text().splitlines()
    ours = text(machine, "nvlink").splitlines()
    assert [line.split("(")[0] for line in ours] == [line.split("(")[0] for line in recorded]
    machine.inject("nvlink_down", gpu=2, links=3)
    machine.inject("xid_79", gpu=3)
    machine.mig_mode(True, machine.state.gpus[4:5])
    blocks = text(machine, "nvlink").split("GPU ")[1:]
    assert [block.count(" GB/s") for block in blocks] == [18, 18, 15, 0, 0, 18, 18, 18]
    assert blocks[2].count("<inactive>") == 3
    assert "all links are inActive" in blocks[3]
    assert "not supported for Devices in MIG mode" in blocks[4]


@pytest.mark.parametrize("name", ["nvidia_smi", "gpu_list", "nvlink"])
def test_nvidia_smi_without_driver_or_devices(machine: Machine, name: str) -> None:
    machine.state.gpus.clear()
    assert answer(name, ask(machine)) == CommandResult(6, "No devices were found\n")
    machine.disk().driver = ""
    assert answer(name, ask(machine)).exit_status == 127


# --- the system --------------------------------------------------------------------------------------------------


def test_identity_of_system_image_and_disk(machine: Machine) -> None:
    assert text(machine, "hostname") == "gpu-a001\n"
    assert text(machine, "kernel") == "6.8.0-48-generic\n"
    assert text(machine, "boot_id").strip() == machine.system().boot_id
    assert text(machine, "dmi") == "S889914X3710910\n00000000-0000-0000-0000-7cc25550a8ff\n"
    assert json.loads(text(machine, "image")) == {
        "image": "ubuntu-gpu",
        "version": "2026.11.1",
        "sha256": "ab" * 32,
        "root_disk": "S6NANA0W000001",
        "nonce": "n-1",
    }
    assert "IMAGE_ID=ubuntu-gpu\nIMAGE_VERSION=2026.11.1\n" in text(machine, "os_release")
    part = json.loads(text(machine, "root_disk"))["blockdevices"][0]
    assert (part["type"], part["serial"]) == ("part", None)
    assert part["children"] == [
        {"name": "nvme1n1", "type": "disk", "serial": "S6NANA0W000001", "wwn": "eui.3634463000000001"}
    ]


def test_uptime_is_the_systems_own() -> None:
    clock = Clock()
    machine = make_machine(clock)
    before = float(text(machine, "uptime").split()[0])
    clock.seconds += 3725.5
    assert float(text(machine, "uptime").split()[0]) - before == pytest.approx(3725.5, abs=0.02)


def test_a_system_that_we_did_not_install_has_no_image_file(machine: Machine) -> None:
    machine.disk().image = ""
    found = answer("image", ask(machine))
    assert (found.exit_status, found.stdout) == (1, "")
    assert found.stderr == "cat: /etc/reconciler/image.json: No such file or directory\n"
    assert "IMAGE_ID" not in text(machine, "os_release")


def test_secure_boot(samples: Path, machine: Machine) -> None:
    assert text(machine, "secure_boot") == (samples / "mokutil" / "enabled.txt").read_text().rstrip("\n") + "\n"
    machine.state.secure_boot = False
    assert text(machine, "secure_boot") == (samples / "mokutil" / "disabled.txt").read_text().rstrip("\n") + "\n"


def test_the_kernel_log_is_the_drivers_part_of_it(machine: Machine) -> None:
    machine.system().kernel_log.append("usb 1-1: new high-speed USB device")
    machine.inject("xid_79", gpu=3)
    log = text(machine, "kernel_log")
    assert log.startswith("NVRM: loading NVIDIA UNIX")
    assert "NVRM: Xid (PCI:0000:4b:00): 79" in log
    assert "usb" not in log
    machine.system().kernel_log.clear()
    assert answer("kernel_log", ask(machine)).exit_status == 1


@pytest.mark.parametrize(
    "scene",
    [
        name
        for name in SCENES
        if name.startswith(("xid_", "thermal_margin", "fs_read_only", "nvme_", "md_", "module_", "link_"))
    ],
)
def test_a_scene_is_read_in_process_as_the_parsers_read_its_text(machine: Machine, clock: Clock, scene: str) -> None:
    SCENES[scene].play_on(machine, "")
    if scene == "xid_163":
        machine.inject("xid", gpu=2, code=163)
        machine.inject("xid", gpu=2, code=162)
    if scene.startswith(("module_", "link_")):
        clock.seconds += 3600.0
    read = host_facts(
        {name: answer(name, ask(machine)) for name in ("kernel_log", "nvidia_smi", "counters", "modules")}
    )
    found = in_process(machine, (), ())
    assert (found.xids, found.kernel_events) == (read.xids, read.kernel_events)
    assert (found.counters, found.module_alarms) == (read.counters, read.module_alarms)
    assert bool(read.counters) == scene.startswith(("module_", "link_"))
    assert [gpu.cells for gpu in found.gpus or ()] == [gpu.cells for gpu in read.gpus or ()]
    assert read.gpus is not None


@pytest.mark.parametrize(
    "command",
    [
        "systemctl show -p Id,ActiveState,UnitFileState kubelet containerd.service nope",
        "systemctl show --no-pager --property=Id,ActiveState,UnitFileState -- kubelet containerd nope 2>/dev/null",
    ],
)
def test_services_are_those_that_the_command_names(machine: Machine, command: str) -> None:
    assert text(machine, "services", command) == (
        "Id=kubelet.service\nActiveState=inactive\nUnitFileState=disabled\n\n"
        "Id=containerd.service\nActiveState=active\nUnitFileState=enabled\n\n"
        "Id=nope.service\nActiveState=inactive\nUnitFileState=\n"
    )


def test_sysctls_are_those_that_the_command_names(machine: Machine) -> None:
    assert text(machine, "sysctls", "sysctl -- vm.swappiness 2>&1") == "vm.swappiness = 1\n"
    found = answer("sysctls", ask(machine, "sysctl vm.swappiness no.such.key"))
    assert found == CommandResult(
        255, "vm.swappiness = 1\n", "sysctl: cannot stat /proc/sys/no/such/key: No such file or directory\n"
    )


# --- devices -----------------------------------------------------------------------------------------------------


def test_links_and_rdma_ports(machine: Machine) -> None:
    machine.state.nics[2].up = False
    machine.state.nics[9].up = False
    states = {row["ifname"]: row["operstate"] for row in json.loads(text(machine, "links"))}
    assert (states["lo"], states["eth0"], states["eth1"], states["ib2"]) == ("UNKNOWN", "UP", "DOWN", "DOWN")
    ports = text(machine, "rdma").splitlines()
    assert len(ports) == 8
    assert ports[0] == "mlx5_0 1 4: ACTIVE | 5: LinkUp | 400 Gb/sec (4X NDR) | InfiniBand"
    assert ports[2].startswith("mlx5_2 1 1: DOWN | 2: Polling | ")


def test_nvme_logs_stand_under_the_name_of_their_drive(samples: Path, machine: Machine) -> None:
    machine.state.drives[3].media_errors = 4
    blocks = text(machine, "nvme").split("== ")[1:]
    assert len(blocks) == 5
    header, _, log = blocks[3].partition("\n")
    assert header == "/dev/nvme3n1 S6NANA0W000003 SAMSUNG MZQL2960HCJR-00A07"
    assert json.loads(log)["media_errors"] == 4
    recorded = json.loads((samples / "nvme-cli" / "netdata_v2.11_nvme-smart-log.json").read_text())
    assert recorded.keys() <= json.loads(log).keys()


def test_a_fact_without_a_tool_is_not_found(machine: Machine) -> None:
    found = answer("flux_capacitor", ask(machine))
    assert (found.exit_status, found.stdout) == (127, "")
    assert "not found" in found.stderr


def test_facts_change_nothing(machine: Machine) -> None:
    before = machine.dump()
    for name in FACTS:
        answer(name, ask(machine, f"{name} -p Id x"))
    assert machine.dump() == before


def test_programs_that_a_system_lacks_for_its_other_slot_are_told_behind_the_records(machine: Machine) -> None:
    disk = machine.disk()
    disk.lacks = ["zstd"]
    assert parse_slots(CommandResult(0, text(machine, "slots"), "")).value.running is None, "it has no slot"
    disk.slot, disk.layout = "b", {"esp": 1, "root": 2, "state": 3, "data": 1}
    running = parse_slots(CommandResult(0, text(machine, "slots"), "")).value.running
    assert running is not None
    assert running.slot == Slot("b", {"esp": 1, "root": 2, "state": 3, "data": 1}, None, ("zstd",))
