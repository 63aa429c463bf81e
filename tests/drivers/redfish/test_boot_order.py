"""Boot orders as real BMCs have them. The documents are cut from NVIDIA/libredfish, tests/mockups (MIT)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from reconciler.drivers.redfish import RedfishBmc
from reconciler.drivers.redfish.boot_options import kind_of
from reconciler.model.abilities import Ability
from reconciler.model.errors import DriverError
from reconciler.model.observed import Answered, RedfishInventory
from tests.drivers.redfish.bench import SYSTEM, Bench, machine, play

PATHS = {
    "HD(1,GPT,6634D938-1211-4F7A-89C6-A35A60BE1E4A,0x800,0x219800)/\\EFI\\ubuntu\\shimx64.efi": "Hdd",
    "PciRoot(0x0)/Pci(0x3,0x2)/Pci(0x0,0x0)/NVMe(0x1,60-33-01-21-9A-38-25-00)": "Hdd",
    "PciRoot(0x3)/Pci(0x1,0x1)/Pci(0x0,0x0)/Scsi(0x17B,0x0)": "Hdd",
    "PciRoot(0x7)/Pci(0x1,0x1)/Pci(0x0,0x0)/MAC(B83FD2D7F74A,0x1)/IPv4(0.0.0.0)": "Pxe",
    "PciRoot(0x7)/Pci(0x1,0x1)/Pci(0x0,0x0)/MAC(B83FD2D7F74A,0x1)/IPv4(0.0.0.0)/Uri()": "UefiHttp",
    "PciRoot(0x5)/Pci(0x0,0x0)/USB(0x4,0x0)/USB(0x0,0x0)/MAC(EEA3AB6B5303,0x1)/IPv4(0.0.0.0)": "Pxe",
    "PciRoot(0x5)/Pci(0x0,0x0)/Pci(0x5,0x0)/Pci(0x0,0x0)/USB(0x1,0x0)/USB(0x2,0x0)": "Usb",
    "Fv(9AEF2E52-DEAD-4F63-B895-3A504A3E63C4)/FvFile(7C04A583-9E3E-4F1C-AD65-E05268D0B4D1)": "UefiShell",
    "MemoryMapped(0xB,0x989E0000,0x994D567F)/FvFile(462CAA21-7614-4503-836E-8AB6F4662331)": "BiosSetup",
    "VenHw(8C91E049-9BF9-440E-BBAD-7DC5FC082C02)": "",
}
NAMES = {
    "HTTP Device 1: NIC in Slot 5 Port 1": "UefiHttp",  # Dell, with VenHw(...) as its path
    "PXE Device 1: Integrated NIC 1 Port 1 Partition 1": "Pxe",
    "Virtual Optical Drive": "Cd",
    "HardDisk": "Hdd",  # Lenovo
    "Network": "Pxe",
    "CD/DVD Rom": "Cd",
    "USB Storage": "Usb",
    "(B26/D0/F0) UEFI PXE IPv4 Nvidia Network Adapter - 94:6D:AE:91:FB:22 - 946DAE91FB22": "Pxe",  # Supermicro
    "UEFI: Built-in EFI Shell": "UefiShell",
    "UEFI USB CD/DVD": "Cd",
    "UEFI USB Hard Disk": "Usb",
    "UEFI Hard Disk": "Hdd",
    "Something else": "",
}


@pytest.mark.parametrize("path", PATHS)
def test_a_device_path_tells_the_kind(path: str) -> None:
    assert kind_of(path, "") == PATHS[path]


@pytest.mark.parametrize("name", NAMES)
def test_without_one_the_display_name_tells_it(name: str) -> None:
    assert kind_of("VenHw(986D1755-B9D0-4F8D-A0DA-D1DB18672045)", name) == NAMES[name]


def test_a_virtual_disc_is_a_usb_drive_and_a_loader_is_on_a_disk() -> None:
    assert kind_of("PciRoot(0x0)/Pci(0x14,0x0)/USB(0xD,0x0)", "Virtual Optical Drive") == "Cd"
    assert kind_of("VenHw(99E275E7-75A0-4B37-A2E6-C5385E6C00CB)", "DGX OS") == "Hdd"  # DGX H100


def with_options(*options: tuple[str, str, str], settings: Mapping[str, Any] | None = None) -> Bench:
    """A BMC with these boot options: reference, display name, device path. None has an alias."""
    bench = machine()
    bench.documents = {at: doc for at, doc in bench.documents.items() if "/BootOptions/" not in at}
    members = []
    for reference, name, path in options:
        where = f"{SYSTEM}/BootOptions/{reference}"
        bench.documents[where] = {
            "@odata.id": where, "Id": reference, "Name": reference, "BootOptionReference": reference,
            "DisplayName": name, "UefiDevicePath": path, "Alias": None, "BootOptionEnabled": True,
        }  # fmt: skip
        members.append({"@odata.id": where})
    bench.documents[f"{SYSTEM}/BootOptions"] = {"@odata.id": f"{SYSTEM}/BootOptions", "Members": members}
    bench.documents[SYSTEM]["Boot"]["BootOrder"] = [reference for reference, _, _ in options]
    if settings is not None:
        bench.documents[SYSTEM]["@Redfish.Settings"] = {"SettingsObject": {"@odata.id": f"{SYSTEM}/Settings"}}
        bench.documents[f"{SYSTEM}/Settings"] = {"@odata.id": f"{SYSTEM}/Settings", "Id": "Settings", **settings}
    return bench


LENOVO = (("Boot0003", "Network", "VenHw_B2AD3248_05000000"), ("Boot0002", "HardDisk", "VenHw_B2AD3248_01000000"))
MIXED = (
    ("Boot0004", "UEFI PXEv4 (MAC:F0B2B90BFC9E)", "MAC(F0B2B90BFC9E,0x1)/IPv4(0.0.0.0)"),
    ("Boot0002", "UEFI Micron_7450 23384663D6C3 1", "PciRoot(0x7)/Pci(0x0,0x0)/NVMe(0x1,C3-D6-63-46-01-75-A0-00)"),
    ("Boot0006", "UEFI HTTPv4 (MAC:F0B2B90BFC9E)", "MAC(F0B2B90BFC9E,0x1)/IPv4(0.0.0.0)/Uri()"),
    ("Boot001A", "ubuntu", "HD(1,GPT,A04D0F1E-E02F-4725-9434-0699B52D8FF2,0x800,0x100000)/\\EFI\\ubuntu\\shimaa64.efi"),
    ("Boot0005", "UEFI PXEv6 (MAC:F0B2B90BFC9E)", "MAC(F0B2B90BFC9E,0x1)/IPv6(0000:0000)"),
)


async def read(bmc: RedfishBmc) -> RedfishInventory:
    found = await bmc.inventory()
    assert isinstance(found, Answered)
    return found.value


@pytest.mark.parametrize(
    ("options", "wanted", "order"),
    [
        (MIXED, ["Hdd", "Pxe"], ["Boot0002", "Boot001A", "Boot0004", "Boot0005", "Boot0006"]),
        (MIXED, ["UefiHttp"], ["Boot0006", "Boot0004", "Boot0002", "Boot001A", "Boot0005"]),
        (MIXED, ["ubuntu", "hdd"], ["Boot001A", "Boot0002", "Boot0004", "Boot0006", "Boot0005"]),
        (MIXED, [MIXED[1][2], "Boot0005"], ["Boot0002", "Boot0005", "Boot0004", "Boot0006", "Boot001A"]),
        (LENOVO, ["Hdd", "Pxe"], ["Boot0002", "Boot0003"]),
    ],
)
def test_entries_are_set_by_kind_name_path_and_reference(
    options: tuple[tuple[str, str, str], ...], wanted: list[str], order: list[str]
) -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> RedfishInventory:
        await bmc.set_boot_order(wanted)
        assert bench.documents[SYSTEM]["Boot"]["BootOrder"] == order
        sent = len(bench.sent("PATCH"))
        await bmc.set_boot_order(wanted)
        assert len(bench.sent("PATCH")) == sent, "it is so already"
        return await read(bmc)

    found = play(with_options(*options), steps)
    assert found.boot_options is not None
    assert [option.reference for option in found.boot_options] == order


def test_an_order_for_the_next_boot_is_written_to_the_settings_object_and_read_back_as_staged() -> None:
    """OpenBMC, AMI, Lenovo and newer iDRACs. iDRAC states an apply time there, and makes a job of the change."""
    time = {"ApplyTime": "OnReset", "@odata.type": "#Settings.v1_3_5.PreferredApplyTime"}
    bench = with_options(*MIXED, settings={"Boot": {"BootOrder": []}, "@Redfish.SettingsApplyTime": time})

    async def steps(bench: Bench, bmc: RedfishBmc) -> RedfishInventory:
        await bmc.set_boot_order(["Hdd", "Pxe"])
        await bmc.set_boot_order(["Hdd", "Pxe"])  # iDRAC refuses a second job (D10)
        return await read(bmc)

    found = play(bench, steps)
    (sent,) = bench.sent("PATCH")
    assert sent.path == f"{SYSTEM}/Settings"
    assert sent.body["@Redfish.SettingsApplyTime"] == time
    assert found.boot_order == ("Pxe", "Hdd", "UefiHttp", "Hdd", "Pxe")
    assert found.staged_boot_order == ("Boot0002", "Boot001A", "Boot0004", "Boot0005", "Boot0006")


def test_supermicro_boots_by_its_own_list_of_kinds() -> None:
    fixed = f"{SYSTEM}/Oem/Supermicro/FixedBootOrder"
    nic = "UEFI Network:(B26/D0/F0) UEFI PXE IPv4 Nvidia Network Adapter - 94:6D:AE:91:FB:22 - 946DAE91FB22"
    listed = ["UEFI CD/DVD", "UEFI USB Key", nic, "UEFI Hard Disk", "UEFI AP:UEFI: Built-in EFI Shell", "Disabled"]
    bench = with_options(("Boot0019", nic, ""))
    bench.documents[SYSTEM]["Oem"] = {"Supermicro": {"FixedBootOrder": {"@odata.id": fixed}}}
    bench.documents[fixed] = {"@odata.id": fixed, "Id": "FixedBootOrder", "FixedBootOrder": list(listed)}

    async def steps(bench: Bench, bmc: RedfishBmc) -> RedfishInventory:
        await bmc.set_boot_order(["Hdd", "Pxe"])
        return await read(bmc)

    found = play(bench, steps)
    assert bench.documents[fixed]["FixedBootOrder"] == [listed[3], nic, *listed[:2], *listed[4:]]
    assert found.boot_order == ("Hdd", "Pxe", "Cd", "Usb", "UefiShell")


def test_what_the_bmc_lacks_is_told_with_the_inventory() -> None:
    bench = with_options(*LENOVO)
    del bench.documents[SYSTEM]["Boot"]["BootOrder"]  # as NVIDIA's NVLink switch trays
    bench.documents[SYSTEM]["Boot"]["BootSourceOverrideTarget@Redfish.AllowableValues"] = ["None", "Pxe"]

    async def steps(_: Bench, bmc: RedfishBmc) -> RedfishInventory:
        with pytest.raises(DriverError, match="BootOrder is not given"):
            await bmc.set_boot_order(["Hdd"])
        return await read(bmc)

    abilities = play(bench, steps).abilities
    assert abilities is not None
    assert abilities.why_not(Ability.BOOT_ORDER) == "BootOrder is not given"
    assert abilities.why_not(Ability.BOOT_ONCE) == "the BMC can't boot from cd once: None, Pxe"
    assert abilities.why_not(Ability.MEDIA) == ""
