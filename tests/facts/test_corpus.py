"""Recorded outputs of real tools: each gives a value or a reason, and some give exactly what is known to be in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.ssh.facts import FACTS, host_facts, requests
from reconciler.model.gate import CommandResult
from reconciler.model.gpus import Gpu, GpuCells, SmiAnswer
from reconciler.model.observed import HostFacts, Xid

# Which fact a folder's files are outputs of.
FOLDERS = {
    "nvidia-smi-xml": "nvidia_smi",
    "nvidia-smi-query-text": "nvidia_smi",
    "nvidia-smi-csv": "nvidia_smi",
    "nvidia-smi": "gpu_list",
    "nvidia-smi-nvlink": "nvlink",
    "dmesg": "kernel_log",
    "xid": "kernel_log",
    "syslog-ib": "kernel_log",
    "fabricmanager": "kernel_log",
    "kubelet": "kernel_log",
    "rdma": "rdma",
    "ibstat": "rdma",
    "nvme-cli": "nvme",
    "smartctl": "disks",
    "lsblk": "root_disk",
    "os-release": "os_release",
    "mokutil": "secure_boot",
    "dmidecode": "dmi",
    "dcgmi-health": "dcgm_health",
    "amd-smi": "amd_smi",
    "rocm-smi": "amd_smi",
}
FIELDS = {fact.name: fact.fields for fact in FACTS}


def read(path: Path) -> CommandResult:
    """A capture, with the stderr and the exit status that were recorded beside it."""
    source, stderr = path.with_name(path.name + ".src"), path.with_name(path.name + ".stderr")
    said = source.read_text(errors="replace") if source.exists() else ""
    status = re.search(r"exit(?:_code:| code)? (\d+)", said)
    return CommandResult(
        int(status[1]) if status else 0,
        path.read_bytes().decode(errors="replace"),
        stderr.read_text(errors="replace") if stderr.exists() else "",
    )


def captures(samples: Path, folder: str) -> list[Path]:
    return sorted(path for path in (samples / folder).iterdir() if path.suffix not in (".src", ".stderr"))


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_capture_gives_a_value_or_a_reason(samples: Path, folder: str) -> None:
    paths = captures(samples, folder)
    assert paths
    for path in paths:
        answer = read(path)
        for name in {FOLDERS[folder], *FIELDS}:  # its own parser, and all others: nothing may break them
            facts = host_facts({name: answer})
            for field in FIELDS[name]:
                assert known(facts, field) or field in facts.unknown, f"{path.name} read as {name}: no word on {field}"


def known(facts: HostFacts, field: str) -> bool:
    first = field.partition(".")[0]
    # The parts of the image and of a GPU, and links made of two facts, show only beside others.
    return "." in field or first == "links" or getattr(facts, first) is not None


def test_no_capture_is_a_fact_by_accident(samples: Path) -> None:
    """What a parser makes of other tools' outputs is nothing, or at least no GPU, no Xid and no serial."""
    for folder, own in FOLDERS.items():
        for path in captures(samples, folder):
            answer = read(path)
            if own != "nvidia_smi":
                assert host_facts({"nvidia_smi": answer}).gpus is None, path
            if own != "kernel_log" and b"NVRM: Xid" not in path.read_bytes():
                assert not host_facts({"kernel_log": answer}).xids, path
            if own != "dmi":
                assert host_facts({"dmi": answer}).serial is None, path


# --- GPUs --------------------------------------------------------------------------------------------------------


def smi(samples: Path, name: str) -> HostFacts:
    return host_facts({"nvidia_smi": read(samples / "nvidia-smi-xml" / f"{name}.xml")})


def gpus(samples: Path, name: str) -> tuple[Gpu, ...]:
    found = smi(samples, name).gpus
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "driver", "product", "count"),
    [
        ("mocknvml_a100_healthy", "550.163.01", "NVIDIA A100-SXM4-40GB", 8),
        ("mocknvml_h100_allgpus_pcie_gen3x8", "550.163.01", "NVIDIA H100 80GB HBM3", 8),
        ("mocknvml_b200_healthy", "560.35.03", "NVIDIA B200", 8),
        ("mocknvml_gb200_healthy", "580.65.06", "NVIDIA GB200", 8),
        ("mocknvml_t4_healthy", "550.163.01", "NVIDIA T4", 4),
        ("netdata_a100-sxm4-mig", "510.47.03", "NVIDIA A100-SXM4-40GB", 1),
        ("netdata_tesla-p100", "510.47.03", "Tesla P100-PCIE-16GB", 1),
        ("netdata_rtx-4090-driver-535", "535.86.05", "NVIDIA GeForce RTX 4090", 1),
        ("telegraf_a10g", "515.105.01", "NVIDIA A10G", 1),
        ("telegraf_rtx-3080-v13", "595.58.03", "NVIDIA GeForce RTX 3080", 1),
    ],
)
def test_who_the_gpus_are(samples: Path, name: str, driver: str, product: str, count: int) -> None:
    facts = smi(samples, name)
    assert facts.gpus is not None
    assert (facts.driver, len(facts.gpus)) == (driver, count)
    assert {gpu.name for gpu in facts.gpus} == {product}
    assert not any(gpu.lost for gpu in facts.gpus)


def test_a_healthy_h100(samples: Path) -> None:
    assert gpus(samples, "mocknvml_h100_gpu3_hw_thermal")[0] == Gpu(
        index=0,
        pci="00000000:1A:00.0",
        uuid="GPU-01000100-0000-0000-0000-000000000000",
        name="NVIDIA H100 80GB HBM3",
        serial="1562821083900",
        vbios="96.00.74.00.09",
        ecc_enabled=True,
        ecc_uncorrectable=0,
        remap_pending=False,
        remap_failed=False,
        mig_current=False,
        mig_pending=False,
        cells=GpuCells(
            sram_threshold_exceeded=False,
            fabric_state="Completed",
            fabric_status="Success",
            fabric_health="",
            thermal_slowdown=False,
            over_limit=False,
            power_brake=False,
            pcie_width=16,
            pcie_width_max=16,
            pcie_gen=5,
            pcie_gen_max=5,
            persistence=True,
            loaded=False,
        ),
        ecc_uncorrectable_ever=0,
        remapped_uncorrectable=0,
        pcie_replays=0,
    )


def test_every_capture_gives_all_its_cells(samples: Path) -> None:
    """Real documents of drivers from 450 to 595: nothing in them is unreadable but what a lost GPU can't give."""
    for path in captures(samples, "nvidia-smi-xml"):
        facts = host_facts({"nvidia_smi": read(path)})
        assert facts.gpus is not None
        assert {gpu.cells.unread for gpu in facts.gpus} == {()}, path
        attached = None if "gtx-1070" in path.name else len(facts.gpus)  # cut by whoever recorded it
        assert facts.smi == SmiAnswer(0, attached, len(facts.gpus)), path


def test_states_of_gpus(samples: Path) -> None:
    """Of a thermal slowdown, of a link of half the width and an older generation, and of a driver 595."""
    assert [gpu.cells.thermal_slowdown for gpu in gpus(samples, "mocknvml_h100_gpu3_hw_thermal")] == [
        at == 3 for at in range(len(gpus(samples, "mocknvml_h100_gpu3_hw_thermal")))
    ]
    narrow = gpus(samples, "mocknvml_h100_allgpus_pcie_gen3x8")[0].cells
    assert (narrow.pcie_width, narrow.pcie_width_max, narrow.pcie_gen, narrow.pcie_gen_max) == (8, 16, 3, 5)
    newest = gpus(samples, "telegraf_rtx-4000-sff-ada-v13")[0].cells
    assert (newest.recovery_action, newest.channel_repair_pending, newest.tpc_repair_pending) == ("None", False, False)
    assert (newest.unrepairable_memory, newest.sram_threshold_exceeded, newest.fabric_state) == (None, None, None)
    old = gpus(samples, "netdata_tesla-p100")[0].cells
    assert (old.persistence, old.thermal_slowdown, old.power_brake) == (False, False, False)


@pytest.mark.parametrize(
    "name", ["mocknvml_h100_gpu4_lost", "mocknvml_h100_gpu4_fallen_off_bus", "mocknvml_h100_gpu4_lost_midway"]
)
def test_a_lost_gpu_is_there_and_lost(samples: Path, name: str) -> None:
    found = gpus(samples, name)
    assert [gpu.index for gpu in found if gpu.lost] == [4]
    assert found[4].serial == "1562821083904"


def test_what_a_lost_gpu_can_not_say_is_unknown(samples: Path) -> None:
    lost = gpus(samples, "mocknvml_h100_gpu4_lost")[4]
    assert (lost.ecc_uncorrectable, lost.remap_pending, lost.remap_failed) == (None, None, None)


@pytest.mark.parametrize(
    ("name", "pending", "failed"),
    [("mocknvml_h100_allgpus_remap_pending", True, False), ("mocknvml_h100_allgpus_remap_failure", False, True)],
)
def test_row_remapping(samples: Path, name: str, pending: bool, failed: bool) -> None:
    assert {(gpu.remap_pending, gpu.remap_failed) for gpu in gpus(samples, name)} == {(pending, failed)}


def test_mig_without_its_list_has_no_known_layout(samples: Path) -> None:
    facts = smi(samples, "netdata_a100-sxm4-mig")
    assert facts.gpus is not None
    assert facts.gpus[0].mig_current is None
    assert "gpus.0.mig" in facts.unknown
    assert (facts.gpus[0].ecc_enabled, facts.gpus[0].ecc_uncorrectable) == (True, None)


def test_mig_with_its_list(samples: Path) -> None:
    """The recorded XML, and the list that belongs to it: two 3g.20gb."""
    listed = (
        "GPU 0: NVIDIA A100-SXM4-40GB (UUID: GPU-27b94a00-ed54-5c24-b1fd-1054085de32a)\n"
        "  MIG 3g.20gb     Device  0: (UUID: MIG-a)\n  MIG 3g.20gb     Device  1: (UUID: MIG-b)\n"
    )
    document = read(samples / "nvidia-smi-xml" / "netdata_a100-sxm4-mig.xml")
    facts = host_facts({"nvidia_smi": document, "gpu_list": CommandResult(0, listed)})
    assert facts.gpus is not None
    assert [(device.profile, device.uuid) for device in facts.gpus[0].mig_devices] == [
        ("3g.20gb", "MIG-a"),
        ("3g.20gb", "MIG-b"),
    ]
    assert facts.gpus[0].mig_current is True


def test_no_driver(samples: Path) -> None:
    facts = host_facts({"nvidia_smi": read(samples / "nvidia-smi" / "realbin550_no_driver_q__x.txt")})
    assert facts.gpus is None
    assert "couldn't communicate with the NVIDIA driver" in facts.unknown["gpus"]


# --- NVLink ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "links"),
    [
        ("mocknvml_h100_healthy_nvls.txt", dict.fromkeys(range(8), 18)),
        ("mocknvml_gb200_healthy_nvls.txt", dict.fromkeys(range(8), 18)),
        ("gpud_nvidia-smi.nvlink.status.a100", dict.fromkeys(range(8), 12)),
        ("azurehpc_good_nvlink_status.txt", {7: 12}),
    ],
)
def test_nvlinks(samples: Path, name: str, links: Mapping[int, int]) -> None:
    assert host_facts({"nvlink": read(samples / "nvidia-smi-nvlink" / name)}).nvlinks_active == links


# --- kernel log --------------------------------------------------------------------------------------------------


def xids(samples: Path, name: str) -> dict[tuple[int, str], Xid]:
    found = host_facts({"kernel_log": read(samples / name)}).xids
    assert found is not None
    return {(xid.code, xid.device): xid for xid in found}


def test_a_burst(samples: Path) -> None:
    found = xids(samples, "xid/dmesg_burst_13_43.txt")
    assert {key: xid.count for key, xid in found.items()} == {
        (13, "00000000:38:00.0"): 629,
        (43, "00000000:38:00.0"): 7,
    }


def test_one_memory_error_in_eleven_lines(samples: Path) -> None:
    found = xids(samples, "xid/dmesg_sequence_48_63_94.txt")
    assert Counter({code: xid.count for (code, _), xid in found.items()}) == {48: 1, 63: 1, 94: 9}
    assert found[94, "00000000:19:00.0"].text == "Contained: SM (0x1). RST: No, D-RST: No"


def test_gsp_timeouts(samples: Path) -> None:
    found = xids(samples, "xid/gpud_dmesg-with-xid-119.log")
    assert set(found) == {(119, "00000000:9B:00.0")}
    text = (samples / "xid/gpud_dmesg-with-xid-119.log").read_text()
    assert found[119, "00000000:9B:00.0"].count == text.count("): 119,")


def test_fallen_off_the_bus(samples: Path) -> None:
    found = xids(samples, "xid/lines_nonxid_fell_off_bus.txt")
    assert set(found) == {(79, "00000000:18:00.0"), (79, "00000000:B3:00.0")}


def test_sxids(samples: Path) -> None:
    found = xids(samples, "xid/lines_sxid_real.txt")
    assert {(code, xid.fatal, xid.count) for (code, _), xid in found.items()} == {
        (28006, False, 1),
        (20009, False, 1),
        (24007, True, 1),
        (26008, None, 1),
        (26006, None, 1),
        (20034, True, 1),
        (22013, False, 1),
        (12028, False, 1),
    }
    assert all(xid.switch for xid in found.values())


def test_logs_about_other_things(samples: Path) -> None:
    assert xids(samples, "dmesg/gpud_dmesg.peermem.log.0.txt") == {}
    assert xids(samples, "fabricmanager/gpud_fabricmanager.log") == {}


# --- the rest ----------------------------------------------------------------------------------------------------


def test_nvme_of_2_11(samples: Path) -> None:
    log = (samples / "nvme-cli/netdata_v2.11_nvme-smart-log.json").read_text()
    facts = host_facts({"nvme": CommandResult(0, f"== /dev/nvme0 XXX Seagate FireCuda 530\n{log}")})
    assert facts.nvme is not None
    (drive,) = facts.nvme
    assert (drive.critical_warning, drive.media_errors, drive.percentage_used, drive.available_spare) == (0, 0, 30, 100)
    assert (drive.serial, drive.model) == ("XXX", "Seagate FireCuda 530")


@pytest.mark.parametrize(
    ("name", "state"),
    [("enabled", True), ("disabled", False), ("enabled_validation_disabled", False), ("local_no_efi", None)],
)
def test_secure_boot(samples: Path, name: str, state: bool | None) -> None:
    assert host_facts({"secure_boot": read(samples / f"mokutil/{name}.txt")}).secure_boot is state


def test_the_disks_of_a_mirror(samples: Path) -> None:
    """The recorded machine boots from a mirror; seen from / as lsblk -s does, that is two disks."""
    image: dict[str, Any] = {"image": CommandResult(0, "{}"), "os_release": CommandResult(0, "ID=x")}
    facts = host_facts(image | {"root_disk": read(samples / "lsblk/gpud_lsblk.withlv.censored.json")})
    assert facts.image is not None
    assert facts.image.booted_disk is None
    assert "image.booted_disk" in facts.unknown


def test_os_release_of_every_kind(samples: Path) -> None:
    image = CommandResult(0, "{}")
    for path in captures(samples, "os-release"):
        assert "image.os_release" not in host_facts({"image": image, "os_release": read(path)}).unknown


def test_a_whole_answer_is_asked_for() -> None:
    assert len({ask.name for ask in requests(["a"], ["b"])}) == len(FACTS) + 2


def test_errors_of_links_as_the_real_tool_prints_them(samples: Path) -> None:
    paths = sorted(samples.joinpath("nvidia-smi-nvlink").glob("*_nvle.txt"))
    assert len(paths) >= 5
    for path in paths:
        assert host_facts({"nvlink_errors": CommandResult(0, path.read_text())}).nvlink_counters == {}, path.name
