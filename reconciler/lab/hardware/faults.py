"""The faults that a lab machine can have, in one table for the machine and both of its servers.

Every fault has two parameters more. `times`: it ends after so many occurrences; 0 = it stays until it is cleared.
`heals`: the mildest remedy that ends it: reset (of its GPU), boot, cold (the power is off), ac (no outlet gives power)
or install (of its system); none: what its description says.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

FaultValue = str | int | float | bool


@dataclass(frozen=True, slots=True)
class FaultKind:
    """A kind of fault. `parameters`: name -> default, whose type is its type; `times` and `heals` are implied.

    `layer`: the part of the lab that simulates it.
    """

    description: str
    layer: str  # bmc | ssh | hardware | cluster
    parameters: Mapping[str, FaultValue] = field(default_factory=dict)


FAULTS: Mapping[str, FaultKind] = {
    # The BMC's transport: Machine.bmc_transport() says which one a server must simulate.
    "bmc_unreachable": FaultKind("the BMC does not answer at all (A2)", "bmc"),
    "bmc_hung": FaultKind("the BMC answers nobody until its host resets it, or mains are cut", "bmc"),
    "bmc_503": FaultKind("the next `times` requests are answered with 503 (A4)", "bmc", {"times": 3}),
    "bmc_wrong_password": FaultKind("the BMC refuses our credentials (B3)", "bmc"),
    "bmc_garbage": FaultKind("answers of the BMC are cut-off JSON (A10)", "bmc"),
    "bmc_sessions": FaultKind(
        "others have taken all sessions of the BMC: the next `times` logins are refused, 0 = all (B1)", "bmc"
    ),
    "bmc_slow": FaultKind("the BMC takes `seconds` for each answer, on the wire of real time", "bmc", {"seconds": 5.0}),
    "subscriptions_lost": FaultKind(
        "the BMC has lost all subscriptions to its events, and loses them in each restart (openbmc/bmcweb#164)", "bmc"
    ),
    # False reports by the BMC.
    "wrong_machine": FaultKind("the BMC shows another machine's serial and UUID (A14)", "bmc", {"serial": ""}),
    "stale_power": FaultKind(
        "after a change, `times` readings show the power state before it (A11)", "bmc", {"times": 1}
    ),
    "power_ignored": FaultKind("`times` power orders are accepted, and nothing happens (A9)", "bmc", {"times": 1}),
    "bios_write_ignored": FaultKind("BIOS settings are accepted with 200 and forgotten", "bmc"),
    "password_change": FaultKind(
        "a new password for our account is accepted and forgotten (`how`: ignored), or taken while the BMC restarts in "
        "the midst of it (`how`: dies)",
        "bmc",
        {"times": 1, "how": "ignored"},
    ),
    "boot_override_ignored": FaultKind(
        "a boot override is accepted but not stored (`when`: write, D2), or shown but not used (`when`: boot)",
        "hardware",
        {"when": "write"},
    ),
    "boot_override_stays": FaultKind(
        "a boot override is shown as Continuous, and used at each boot until it is cleared", "hardware"
    ),
    "stale_media": FaultKind(
        "virtual media shows a medium that is not there, until it is ejected (E2)",
        "bmc",
        {"url": "http://192.0.2.1/forgotten/boot.iso"},
    ),
    "firmware_task_lost": FaultKind(
        "an update's task is forgotten before it ends; `flashed`: whether it works all the same (A5)",
        "bmc",
        {"flashed": True},
    ),
    "firmware_fails": FaultKind("updates end in Exception and change nothing (F7)", "bmc"),
    "power_on_conflict": FaultKind("409 to On for `seconds` after power-off (A7)", "bmc", {"seconds": 20.0}),
    "slot_fails": FaultKind(
        "the next boot of an image in another slot fails three times, and the boot loader falls back; `later`: a boot "
        "of one that came up before",
        "hardware",
        {"times": 1, "later": False},
    ),
    "bios_flash_resets": FaultKind("flashing the BIOS returns its settings to factory defaults (G6)", "hardware"),
    # The machine itself.
    "post_hang": FaultKind(
        "POST does not end until the next power cycle; `times` boots hang", "hardware", {"times": 1}
    ),
    "xid_79": FaultKind(
        "a GPU falls off the bus; `persistent`: a power cycle does not bring it back; not `logged`: neither the kernel "
        "log nor the BMC's says so",
        "hardware",
        {"gpu": 3, "persistent": False, "logged": True},
    ),
    "ecc_errors": FaultKind(
        "uncorrectable ECC errors and a row that waits to be remapped; `deferred`: of an AMD GPU, damaged data that "
        "nobody has used yet; `persistent`: they return after a boot",
        "hardware",
        {"gpu": 5, "count": 2, "deferred": 0, "persistent": False},
    ),
    "nvlink_down": FaultKind(
        "links of a GPU are down; `persistent`: a power cycle does not train them",
        "hardware",
        {"gpu": 2, "links": 1, "persistent": True},
    ),
    "nvlink_slow": FaultKind("links of a GPU are up at half their rate", "hardware", {"gpu": 2, "links": 1}),
    "gpu_cell": FaultKind(
        "a cell of nvidia-smi -q -x of a GPU reads `text`, until the next cold boot; `persistent`: after it too",
        "hardware",
        {"gpu": 3, "cell": "recovery_action", "text": "Reset", "persistent": False},
    ),
    "xid": FaultKind(
        "a GPU logs an Xid, and logs it again after each remedy milder than the one that heals it; `persistent`: none "
        "heals it",
        "hardware",
        {"gpu": 3, "code": 119, "heals": "reset", "persistent": False},
    ),
    "fabric_manager": FaultKind(
        "the fabric manager hangs and the GPUs are in no fabric, until it is started anew; `persistent`: and then too",
        "hardware",
        {"persistent": False},
    ),
    "gpu_reset_fails": FaultKind("nvidia-smi refuses to reset GPUs, as a process holds them (K3)", "hardware"),
    "outlets_elsewhere": FaultKind(
        "the outlets that the spec names for the machine give `node` power instead, and those of that node this one; "
        "no node: the machine has more feeds than the spec names",
        "hardware",
        {"node": ""},
    ),
    "smi_doubt": FaultKind(
        "nvidia-smi -q -x ends with `status` after a whole document, and counts `more` GPUs than it describes",
        "hardware",
        {"status": 15, "more": 0},
    ),
    "port": FaultKind(
        "an RDMA port trains at `gbps` only, 0 = not at all; `persistent`: a cold boot does not help",
        "hardware",
        {"port": 0, "gbps": 0.0, "persistent": False},
    ),
    "drive": FaultKind(
        "the SMART log of a drive says this; `pending`: sectors of a SATA drive that can't be read; not `readable`: it "
        "can't be read itself",
        "hardware",
        {"drive": 1, "critical_warning": 0, "percentage_used": 3, "spare": 100, "pending": 0, "readable": True},
    ),
    "kernel_event": FaultKind(
        "the kernel logs an error of hardware that is no Xid: gpu_init_failed, pcie_fatal, memory_ue, machine_check, "
        "nic_failed, nic_module, task_hung, fs_read_only, nvme_timeout, md_degraded, amd_uncorrectable, "
        "amd_reset_failed, amd_bad_pages or amd_ring_timeout; `line`: this line instead; `persistent`: it does so "
        "again after a boot",
        "hardware",
        {"event": "memory_ue", "line": "", "persistent": False},
    ),
    "dimm_errors": FaultKind(
        "EDAC has counted so many errors of a memory module since the boot; they return after a boot",
        "hardware",
        {"dimm": 0, "corrected": 0, "uncorrectable": 1},
    ),
    "failed_part": FaultKind(
        "the BMC sees a part fail: `part` psu | fan | leak | drive | dimm | nic | processor | board | sensor, counted "
        "from 0; `how`: critical (no nic or processor), missing (drive, dimm, nic, processor), predicted (drive), or "
        "logged (dimm: an uncorrectable error)",
        "hardware",
        {"part": "psu", "index": 0, "how": "critical"},
    ),
    "gpu_not_advertised": FaultKind(
        "the device plugin leaves out so many `gpus` that are well; not `persistent`: until it is started anew",
        "cluster",
        {"gpus": 1, "persistent": True},
    ),
    "slow_storage": FaultKind("drives read and write at this share of their speed", "hardware", {"factor": 0.3}),
    # The fleet's example gate sees none of the next five: it loads no GPU for long, and tests no rail.
    "slow_gpu": FaultKind(
        "a GPU computes at this share of its speed, though its clock, heat and links are as they should be",
        "hardware",
        {"gpu": 3, "share": 0.7},
    ),
    "throttle": FaultKind(
        "under load the clock falls to `mhz`, `by`: thermal (that GPU gets too hot), or power_brake (of all GPUs, "
        "as a power supply asks for it)",
        "hardware",
        {"gpu": 3, "by": "thermal", "mhz": 1110.0},
    ),
    "cable": FaultKind(
        "the cable of an RDMA port garbles data: the link is up and counts errors, and what leaves the node keeps "
        "this share of its rate, as it is sent again",
        "hardware",
        {"port": 3, "pace": 0.6},
    ),
    "flap": FaultKind(
        "the link of an RDMA port goes down and up again every so many seconds; not `persistent`: until a cold boot",
        "hardware",
        {"port": 3, "every_s": 15.0, "persistent": True},
    ),
    "error_counter": FaultKind(
        "a counter of errors of `device` rises by `per_hour`, until the next cold boot: a counter of an RDMA port, or "
        "carrier_downs, fcs_errors, fec_uncorrected, module_hot, module_shorted of an interface, aer_corrected, "
        "aer_nonfatal, aer_fatal of a PCI address, crc, replay, recovery of an NVLink (gpu2/link3), a "
        "field of DCGM (dcgm_310 of gpu2), or restarts of a unit; `persistent`: after it too",
        "hardware",
        {"counter": "aer_fatal", "device": "0000:5d:00.0", "per_hour": 7200.0, "persistent": False},
    ),
    "optic": FaultKind(
        "the module of an Ethernet port says `alarm`, and the port goes down `per_hour`; another module ends it",
        "hardware",
        {"interface": "eno1np0", "alarm": "Laser rx power low alarm", "per_hour": 6.0},
    ),
    "service_dead": FaultKind(
        "a daemon has ended, until it is started or the system boots; `persistent`: it ends again after a boot",
        "hardware",
        {"service": "nvidia-fabricmanager", "persistent": False},
    ),
    "clock": FaultKind("the clock is this far off; 0 = it is synchronised with nothing", "hardware", {"seconds": 90.0}),
    "dcgm": FaultKind(
        "a health watch of DCGM finds this, until the next boot; `persistent`: after it too",
        "hardware",
        {"gpu": 3, "system": "Memory system", "health": "Failure", "persistent": False},
    ),
    "leaf": FaultKind(
        "the leaf switch of a rail is slow: what leaves the node there keeps this share of its rate. Set it on each "
        "node behind the leaf",
        "hardware",
        {"port": 3, "pace": 0.5},
    ),
    "low_nccl": FaultKind("collectives reach this bus bandwidth only, in GB/s", "hardware", {"busbw": 212.0}),
    "mig_lost_on_boot": FaultKind("MIG instances are gone after every boot", "hardware"),
    "host_hung": FaultKind(
        "the system hangs: SSH accepts and stays silent, kubelet stops, a graceful shutdown never ends (C3); "
        "`persistent`: it hangs again after a boot",
        "hardware",
        {"persistent": False},
    ),
    "installer_fails": FaultKind(
        "the installer fails in `phase` (started: before it writes; writing: at `percent`; written: after it), and "
        "reports `why`, with `cause` (one of the contract's, or none)",
        "hardware",
        {
            "times": 1,
            "phase": "writing",
            "percent": 30,
            "why": "can't write the disk: Input/output error",
            "cause": "disk",
        },
    ),
    "installer_dies": FaultKind(
        "the installer's kernel panics at `percent` of the write, and the machine stays on",
        "hardware",
        {"times": 1, "percent": 60},
    ),
    "installer_silent": FaultKind(
        "the reports of the installer get lost, its other calls don't", "hardware", {"times": 1}
    ),
    "installer_second_key": FaultKind("a second host key comes from the installer's address", "hardware", {"times": 1}),
    "sanitize_fails": FaultKind("sanitizes of drives end as failed, and destroy nothing", "hardware"),
    "drives_frozen": FaultKind("the firmware froze the security features of SATA drives at boot", "hardware"),
    "erase_lies": FaultKind("an erase of a drive ends as completed, and the data are still there", "hardware"),
    "tpm": FaultKind(
        "the TPM, or who speaks for it, lies: altered_uki (another program was booted), replayed_quote, other_tpm, "
        "software_key (an attestation key beside the TPM), truncated_log",
        "hardware",
        {"lie": "altered_uki"},
    ),
    "tpm_gone": FaultKind("the system finds no TPM, or was altered so that nobody asks it", "hardware"),
    "spdm": FaultKind(
        "a component, or the BMC that hands on what it signed, lies: truncated, replayed (another nonce), altered "
        "(after it was signed), other_chain (of another device), own_authority (a chain below a CA of its own), "
        "other_firmware (truly signed), one_for_all (one component answers for all)",
        "bmc",
        {"lie": "altered"},
    ),
    "wrong_boot_disk": FaultKind("the first drive with an image is booted, whatever was installed (L1)", "hardware"),
    # The system's services, seen from outside.
    "ssh_refused": FaultKind("connections to the SSH port are refused", "ssh"),
    "ssh_hang": FaultKind("the SSH port accepts and never answers", "ssh"),
    "kubelet_not_ready": FaultKind("kubelet runs but the node stays NotReady", "cluster"),
    "node_condition": FaultKind(
        "a detector sets a condition on the node object, and takes it back when it runs again after a boot; "
        "`persistent`: it finds the same again",
        "cluster",
        {
            "type": "GpuUnhealthy",
            "status": "True",
            "reason": "GpuHealthCheckFailed",
            "message": "GPU 3: the health check failed",
            "persistent": False,
        },
    ),
    "node_conflicts": FaultKind(
        "something changes the node object all the time: every patch of it conflicts", "cluster"
    ),
    "maintenance": FaultKind(
        "another operator has an object by which it maintains this node, or waits to; `operator` is its API group",
        "cluster",
        {"operator": "maintenance.nvidia.com"},
    ),
    "pdb_never_yields": FaultKind("a PodDisruptionBudget refuses evictions from this node for ever (H1)", "cluster"),
}


def parse_fault(kind: str, given: Mapping[str, FaultValue]) -> dict[str, FaultValue]:
    """Return the complete, typed parameters of a fault. Raise ValueError for unknown or mistyped ones."""
    known = FAULTS.get(kind)
    if known is None:
        raise ValueError(f"unknown fault {kind!r}{_did_you_mean(kind, FAULTS)}")
    defaults: dict[str, FaultValue] = {"times": 0, "heals": "", **known.parameters}
    unknown = sorted(set(given) - set(defaults))
    if unknown:
        raise ValueError(f"fault {kind!r} has no parameter {unknown[0]!r}{_did_you_mean(unknown[0], defaults)}")
    return {
        name: _coerce(f"{kind}.{name}", given[name], default) if name in given else default
        for name, default in defaults.items()
    }


def _coerce(name: str, value: FaultValue, default: FaultValue) -> FaultValue:
    wanted = type(default)
    if isinstance(value, wanted):
        return value
    text = str(value).lower()
    if wanted is bool and text in ("true", "false"):
        return text == "true"
    if wanted is not bool and not isinstance(value, bool):
        try:
            return wanted(value)
        except ValueError:
            pass
    raise ValueError(f"{name} must be {wanted.__name__}, not {value!r}")


def _did_you_mean(word: str, known: Mapping[str, object]) -> str:
    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known) or 'none'}"
