"""The commands of nvidia-smi that change something: MIG mode, MIG instances, GPU reset. Servers add the queries."""

from __future__ import annotations

from collections.abc import Sequence

from reconciler.lab.hardware.host_side import mig_profile
from reconciler.lab.hardware.machine import HardwareRejected, Rejection
from reconciler.lab.hardware.state import GpuState
from reconciler.lab.hardware.tools.call import Call, Ran, Tool, done, failed, parse_options

_GI_IDS = {"7g": 0, "4g": 1, "3g": 2, "2g": 3, "1g": 7}
_PROFILE_IDS = {"7g": 0, "4g": 5, "3g": 9, "2g": 14, "1g": 19}


def nvidia_smi(show: Tool | None) -> Tool:
    """Return the tool. `show` answers every call that changes nothing; without it they are refused."""

    def run(call: Call) -> Ran:
        if not call.machine.state.gpus:
            return failed(6, stdout="No devices were found\n")
        if any(word.startswith("--query-compute-apps") for word in call.args):
            return done("4711, python3\n" if call.machine.gpu_clients() else "", seconds=0.5)
        options, others = parse_options(call.args, {"-i": "gpus", "--id": "gpus", "-mig": "mode", "-cgi": "create"})
        changes = others[:1] == ["mig"] or "mode" in options or {"--gpu-reset", "-r"} & set(others)
        if not changes:
            return show(call) if show is not None else failed(2, stdout=f"Invalid argument: {' '.join(call.args)}\n")
        gpus = _chosen(call, options.get("gpus"))
        if gpus is None:
            return failed(6, stdout="No devices were found\n")
        lost = next((gpu for gpu in gpus if gpu.lost), None)
        if lost is not None:
            return failed(15, stdout=f"Unable to determine the device handle for GPU{lost.pci}: GPU is lost.\n")
        if "mode" in options:
            return _mode(call, options["mode"], gpus)
        if "create" in options:
            return _create(call, options["create"].split(","), gpus, compute="-C" in others)
        if "-dci" in others:
            return _destroy_compute(call, gpus)
        if "-dgi" in others:
            return _destroy(call, gpus)
        if {"--gpu-reset", "-r"} & set(others):
            return _reset(call, gpus)
        return failed(2, stdout=f"Invalid combination of input arguments: {' '.join(call.args)}\n")

    return run


def _chosen(call: Call, ids: str | None) -> list[GpuState] | None:
    """Return GPUs by index, PCI address or UUID, all if `ids` is None; None when one does not exist."""
    gpus = call.machine.state.gpus
    if ids is None:
        return gpus
    chosen = [gpu for word in ids.split(",") for gpu in gpus if word in (str(gpu.index), gpu.pci, gpu.uuid)]
    return chosen if len(chosen) == len(ids.split(",")) else None


def _mode(call: Call, word: str, gpus: Sequence[GpuState]) -> Ran:
    if word not in ("0", "1"):
        return failed(2, stdout=f"Invalid MIG mode {word}\n")
    enabled = word == "1"
    call.machine.mig_mode(enabled, gpus)
    verb, state = ("Enabled", "enable") if enabled else ("Disabled", "disable")
    lines = []
    for gpu in gpus:
        if gpu.mig_enabled != enabled:
            lines += [f"Warning: MIG mode is in pending {state} state for GPU {gpu.pci}:In use by another client"]
        lines += [f"{verb} MIG Mode for GPU {gpu.pci}"]
    return done("\n".join([*lines, "All done.", ""]), seconds=3.0)


def _create(call: Call, profiles: Sequence[str], gpus: Sequence[GpuState], *, compute: bool) -> Ran:
    try:
        call.machine.mig_create(profiles, gpus, compute=compute)
    except HardwareRejected as refused:
        if refused.reason is Rejection.CONFLICT:
            return failed(6, stdout="No MIG-enabled devices found.\n")
        detail = "Insufficient Resources" if "insufficient" in refused.detail else "Invalid Argument"
        return failed(19, stdout=f"Unable to create a GPU instance on GPU {gpus[0].index:2d}: {detail}\n")
    lines = []
    for gpu in gpus:
        for at, word in enumerate(profiles):
            name = mig_profile(gpu, word)
            size = name.split(".", 1)[0]
            number, profile = _GI_IDS[size] + at, _PROFILE_IDS[size]
            lines.append(
                f"Successfully created GPU instance ID {number:2d} on GPU {gpu.index:2d} "
                f"using profile MIG {name} (ID {profile:2d})"
            )
            if compute:
                lines.append(
                    f"Successfully created compute instance ID  0 on GPU {gpu.index:2d} GPU instance ID {number:2d} "
                    f"using profile MIG {name} (ID  0)"
                )
    return done("\n".join([*lines, ""]), seconds=2.0)


def _destroy_compute(call: Call, gpus: Sequence[GpuState]) -> Ran:
    return _gone(call, gpus, "compute instance", only_compute=True)


def _destroy(call: Call, gpus: Sequence[GpuState]) -> Ran:
    return _gone(call, gpus, "GPU instance", only_compute=False)


def _gone(call: Call, gpus: Sequence[GpuState], what: str, *, only_compute: bool) -> Ran:
    if not any(gpu.mig_enabled for gpu in gpus):
        return failed(6, stdout="No MIG-enabled devices found.\n")
    there = [(gpu, at) for gpu in gpus for at in range(len(gpu.mig_instances)) if gpu.mig_compute or not only_compute]
    if not there:
        return failed(6, stdout=f"No {what}s found: Not Found\n")
    try:
        call.machine.mig_destroy(gpus, only_compute=only_compute)
    except HardwareRejected:
        return failed(
            19, stdout=f"Unable to destroy {what} ID  1 from GPU {gpus[0].index:2d}: In use by another client\n"
        )
    lines = [f"Successfully destroyed {what} ID {at:2d} from GPU {gpu.index:2d}" for gpu, at in there]
    return done("\n".join([*lines, ""]), seconds=1.0)


def _reset(call: Call, gpus: Sequence[GpuState]) -> Ran:
    try:
        call.machine.gpu_reset(gpus)
    except HardwareRejected as refused:
        return failed(19, stdout=f"GPU Reset couldn't run because GPU {gpus[0].pci} {refused.detail}.\n")
    return done("".join(f"GPU {gpu.pci} was successfully reset.\n" for gpu in gpus) + "All done.\n", seconds=15.0)
