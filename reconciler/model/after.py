"""The minimum sets: which tests each thing that may be done to a node costs, unless a profile says otherwise.

The rows are the minimum sets of acceptance practice by the repair done. A profile inherits of a row what it declares
tests for. What is not in the table costs all tests: so do an installation, another machine, and a person's repair
that no exchanged part explains.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

# Tools, each with the arguments that a test of it must have (None) or must not have (False); `level`: the test of the
# lowest level from that on.
Kind = tuple[str, Mapping[str, int | None]]


def _kinds(*tools: str, **levels: int) -> tuple[Kind, ...]:
    diag: tuple[Kind, ...] = (("dcgmi-diag", {"level": levels["diag"]}),) if levels else ()
    return (*diag, *((tool, {}) for tool in tools))


PASSIVE: Final = ("inventory", "xid")  # they cost nothing, so every gate runs them
_COLLECTIVES: Final = ("nccl-tests", "rccl-tests")
# Over one node, and over several: these take other nodes out of their work, and say something of the fabric alone.
_LOCAL: Final[tuple[Kind, ...]] = tuple((tool, {"partners": False, "group": False}) for tool in _COLLECTIVES)
_BETWEEN: Final[tuple[Kind, ...]] = tuple((tool, {by: None}) for tool in _COLLECTIVES for by in ("partners", "group"))
REBOOT: Final = (*_kinds("perftest", diag=2), *_LOCAL)
GPU_RESET: Final = (*_kinds("nvbandwidth", "gpu-burn", diag=2), *_LOCAL)  # no boot, so nothing of the fabric
GPU: Final = (*_kinds("gpu-burn", "dcgmproftester", "nvbandwidth", "amd-smi", "rvs", diag=3), *_LOCAL)
NIC: Final[tuple[Kind, ...]] = (
    *_kinds("link-counters", "mlxlink", "perftest"),
    ("iperf3", {"server": None}),
    ("iperf3", {"partners": None}),
    ("command", {"partners": None}),
    ("pcie", {"parts": None}),
    *_BETWEEN,
)
BIOS: Final = _kinds("pcie", "nvbandwidth", "hpcc", "stress-ng", "memtester")
DRIVER: Final = (*_kinds("nvbandwidth", diag=3), *_LOCAL, *_BETWEEN)
# No test of one node alone says anything of a leaf or a spine.
FABRIC: Final[tuple[Kind, ...]] = (
    *((tool, {by: None}) for tool in ("perftest", "iperf3") for by in ("partners", "server")),
    *(("command", {by: None}) for by in ("partners", "group")),
    *_BETWEEN,
)
IDLE: Final = (*_kinds("perftest", diag=3), *_LOCAL)  # those of a boot, and level 3
IDLE_S: Final = 30 * 86400.0  # without work and without a gate

DRIVE: Final[tuple[Kind, ...]] = (*_kinds("fio", "fio-verify"), ("pcie", {"parts": None}))
DIMM: Final = _kinds("stress-ng", "memtester", "hpcc")


class Exchanged(StrEnum):
    """The parts that are known by their serial number to be others, as a profile names them: a person was there."""

    GPU = "gpu_exchanged"
    NIC = "nic_exchanged"  # by its MAC address
    DRIVE = "drive_exchanged"
    DIMM = "dimm_exchanged"

    @property
    def part(self) -> str:
        word = self.value.removesuffix("_exchanged")
        return word if self is Exchanged.DRIVE else word.upper()


EXCHANGED: Final[Mapping[Exchanged, tuple[Kind, ...] | None]] = {  # None: all tests
    Exchanged.GPU: None,
    Exchanged.NIC: NIC,
    Exchanged.DRIVE: DRIVE,
    Exchanged.DIMM: DIMM,
}


class Noticed(StrEnum):
    """The causes of tests that are no action of ours and no exchanged part, as a profile names them."""

    DRIVER = "driver_changed"  # that of the GPUs, CUDA or NCCL, in the same image
    FABRIC = "fabric_changed"  # another leaf or spine, or another rack where no leaf is declared
    IDLE = "idle"  # for IDLE_S


class AlwaysAll(StrEnum):
    """The actions that cost all tests: what was measured before is of another system."""

    REIMAGE = "reimage"
    ERASE = "erase"


class Done(StrEnum):
    """The actions that may cost tests, as a profile names them. Installations and erasures always cost all tests."""

    CONFIGURE_HOST = "configure_host"
    JOIN = "join"
    SET_BIOS = "set_bios"
    SET_BOOT = "set_boot"
    RESET_BMC = "reset_bmc"
    POWER_ON = "power_on"
    RESTART_SERVICE = "restart_service"
    GPU_RESET = "gpu_reset"
    SOFT_RESTART = "soft_restart"
    POWER_CYCLE = "power_cycle"
    AC_CYCLE = "ac_cycle"
    UPDATE_FIRMWARE = "update_firmware"  # the row of every component that has none of its own


# Firmware by the name that the HardwareProfile gives its component. Of another name nothing is known.
_COMPONENTS: Final[tuple[tuple[re.Pattern[str], tuple[Kind, ...]], ...]] = tuple(
    (re.compile(rf"({names})([-_.]?\d.*|[-_.].*)?", re.IGNORECASE), kinds)
    for names, kinds in (
        ("nic|hca|dpu|cx|connectx|bluefield|bf|ib|optic|cable", NIC),
        ("gpu|vbios|hgx|nvswitch|nvlink", GPU),
        ("bios|uefi", BIOS),
    )
)


def firmware_kinds(component: str) -> tuple[Kind, ...] | None:
    """Return the kinds of tests that new firmware costs by default; None = all tests, as nothing is known of it."""
    return next((kinds for named, kinds in _COMPONENTS if named.fullmatch(component)), None)
