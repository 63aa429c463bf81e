"""nvidia-smi -q -x, -L and nvlink -s, in the format of a 570 driver."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files
from string import Template
from xml.sax.saxutils import escape

from reconciler.lab.hardware.error_counters import nvlink_counters, slowed_seconds
from reconciler.lab.hardware.gpu_cells import NEWER, RECOVERING, newer_cells
from reconciler.lab.hardware.state import GpuState, of_nvidia
from reconciler.lab.wire.facts.context import FactContext
from reconciler.lab.wire.facts.skus import Sku, mig_shape, sku
from reconciler.model.gate import CommandResult

Show = Callable[[FactContext], CommandResult]

LOST = "GPU is lost"
_HISTOGRAM = ("max", "high", "partial", "low", "none")
_BANKS = 2560  # of all HBM3 stacks of a GPU; each bank has its own spare rows


@cache
def _template() -> Template:
    return Template(files(__package__).joinpath("gpu.xml").read_text(encoding="utf-8"))


def _on_gpus(show: Show) -> Show:
    """Wrap `show` so that it fails like nvidia-smi without a driver or a GPU, which prints errors on stdout."""

    def run(context: FactContext) -> CommandResult:
        if not context.image.driver:  # an image without the driver lacks nvidia-smi as well
            return CommandResult(127, "", "sh: 1: nvidia-smi: not found\n")
        if not context.state.gpus:
            return CommandResult(6, "No devices were found\n")
        return show(context)

    return run


def query_xml(context: FactContext) -> CommandResult:
    """Print `nvidia-smi -q -x`, or what the command says where neither it nor a device of NVIDIA's is there."""
    if context.state.gpus and not of_nvidia(context.state.gpus):
        return CommandResult(0, "no nvidia-smi, and no device of NVIDIA's on the PCI bus\n")
    return _query_xml(context)


@_on_gpus
def _query_xml(context: FactContext) -> CommandResult:
    """Print the document. A lost GPU reads "GPU is lost" and the exit status is 0, as with the real one."""
    driver, fault = context.image.driver, context.state.faults.get("smi_doubt", {})
    head = [
        '<?xml version="1.0" ?>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">',
        "<nvidia_smi_log>",
        f"\t<timestamp>{context.date:%a %b %e %H:%M:%S %Y}</timestamp>",
        f"\t<driver_version>{driver}</driver_version>",
        f"\t<cuda_version>{_cuda(driver)}</cuda_version>",
        f"\t<attached_gpus>{len(context.state.gpus) + int(fault.get('more', 0))}</attached_gpus>",
    ]
    slowed = slowed_seconds(context.state, context.now)
    gpus = "".join(_gpu(gpu, driver, slowed.get(gpu.pci, {})) for gpu in context.state.gpus)
    return CommandResult(int(fault.get("status", 0)), "\n".join(head) + "\n" + gpus + "</nvidia_smi_log>\n")


@_on_gpus
def listing(context: FactContext) -> CommandResult:
    """Print `nvidia-smi -L`, the only place with profile names and UUIDs of MIG devices; -q -x has neither."""
    lines = []
    for gpu in context.state.gpus:
        lines.append(_header(gpu))
        lines += [
            f"  MIG {profile:<11} Device {at:2}: (UUID: {uuid})"
            for at, (_, profile, uuid) in enumerate(_mig_instances(gpu))
        ]
    return CommandResult(0, "".join(f"{line}\n" for line in lines))


@_on_gpus
def nvlink_status(context: FactContext) -> CommandResult:
    """Print `nvidia-smi nvlink -s`. Links can't be read on a GPU in MIG mode."""
    lines = []
    for gpu in context.state.gpus:
        lines.append(_header(gpu))
        if gpu.mig_enabled:
            lines.append("Nvlink queries are not supported for Devices in MIG mode")
        elif gpu.lost or (gpu.nvlinks and gpu.nvlinks_down >= gpu.nvlinks):
            lines.append("NVML: Unable to retrieve NVLink information as all links are inActive")
        else:
            speed, up = sku(gpu.name).link_gbs, gpu.nvlinks - gpu.nvlinks_down
            slow = f"{float(speed) / 2:.3f}"
            speeds = [slow] * gpu.nvlinks_slow + [speed] * (up - gpu.nvlinks_slow)
            shown = [f"{speed} GB/s" for speed in speeds] + ["<inactive>"] * gpu.nvlinks_down
            lines += [f"\t Link {at}: {text}" for at, text in enumerate(shown)]
    return CommandResult(0, "".join(f"{line}\n" for line in lines))


@_on_gpus
def nvlink_errors(context: FactContext) -> CommandResult:
    """Print `nvidia-smi nvlink -e`, as driver 550 does."""
    found = nvlink_counters(context.state, context.now)
    lines = []
    for gpu in context.state.gpus:
        lines.append(_header(gpu))
        if gpu.mig_enabled:
            lines.append("Nvlink queries are not supported for Devices in MIG mode")
            continue
        for at in range(0 if gpu.lost else gpu.nvlinks - gpu.nvlinks_down):
            counts = found.get(f"gpu{gpu.index}/link{at}", {})
            words = (("Replay", "replay"), ("Recovery", "recovery"), ("CRC", "crc"))
            lines += [f"\t Link {at}: {word} Errors: {counts.get(name, 0)}" for word, name in words]
            lines.append("")
    return CommandResult(0, "".join(f"{line}\n" for line in lines))


def _header(gpu: GpuState) -> str:
    return f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})"


def _cuda(driver: str) -> str:
    """Return the newest CUDA version that a driver branch supports."""
    branch = int(driver.split(".")[0])
    known = {535: "12.2", 545: "12.3", 550: "12.4", 555: "12.5", 560: "12.6", 565: "12.7", 570: "12.8", 575: "12.9"}
    return known.get(branch, "12.8" if branch < 580 else "13.0")


def _slowed(seconds: Mapping[str, int]) -> str:
    """Return the element that newer drivers have, in version 13 of the document."""
    tag, cells = "clocks_event_reasons_counters", {"hw_therm_slowdown": "thermal_s", "hw_power_brake": "power_brake_s"}
    lines = [
        f"\t\t\t<{tag}_{name}>{seconds[of] * 1_000_000} us</{tag}_{name}>\n" for name, of in cells.items() if seconds
    ]
    return f"\t\t<{tag}>\n{''.join(lines)}\t\t</{tag}>\n" if lines else ""


def _gpu(gpu: GpuState, driver: str, slowed: Mapping[str, int]) -> str:
    product = sku(gpu.name)
    domain, bus, device = gpu.pci.split(":")
    live = _live(gpu, product, driver)
    return _template().substitute(
        dict.fromkeys(live, LOST) if gpu.lost else live,
        index=gpu.index,
        slowed=_slowed(slowed),
        pci=gpu.pci,
        pci_domain=domain[-4:],
        pci_bus=bus,
        pci_device=device.split(".")[0],
        board_id=f"0x{int(bus, 16) << 8:x}",
        module_id=gpu.index + 1,
        name=escape(gpu.name),
        serial=gpu.serial,
        uuid=gpu.uuid,
        vbios=gpu.vbios,
        driver=driver,
        architecture=product.architecture,
        device_id=product.device_id,
        subsystem_id=product.subsystem_id,
        part_number=product.part_number,
        gpu_part_number=product.gpu_part_number,
        inforom=product.inforom,
        pcie_gen_max=product.pcie_gen,
        pcie_gen=gpu.cells.get("pcie_gen", str(product.pcie_gen)),
        pcie_width=gpu.cells.get("pcie_width", "16x"),
        persistence=gpu.cells.get("persistence", "Enabled"),
        current_ecc=gpu.cells.get("ecc_enabled", "Enabled"),
        replays=gpu.cells.get("pcie_replays", "0"),
        bar1_total=f"{product.bar1_mib} MiB",
        bar1_free=f"{product.bar1_mib - 1} MiB",
        power_limit=f"{product.power_limit_w}.00 W",
        max_clock=f"{product.max_clock_mhz} MHz",
        max_memory_clock=f"{product.memory_clock_mhz} MHz",
        current_mig=_enabled(gpu.mig_enabled),
        pending_mig=_enabled(gpu.mig_pending),
        mig_devices=_mig_devices(gpu, product) or "\t\t\tNone",
    )


def _live(gpu: GpuState, product: Sku, driver: str) -> dict[str, str]:
    """Return the cells that the driver reads from the board, and so can't show for a lost GPU."""
    used = 1 if not gpu.mig_enabled else 59
    cell = gpu.cells.get
    recovering = cell("fabric_health") == RECOVERING
    newer = {name: cell(name, "No") for name in (*newer_cells(driver), *gpu.cells) if name in NEWER}
    return {
        "recovery_action": cell("recovery_action", "None"),
        "repairs": "".join(f"\n\t\t\t<{name}>{text}</{name}>" for name, text in newer.items()),
        "thermal_slowdown": cell("thermal_slowdown", "Not Active"),
        "power_brake": cell("power_brake", "Not Active"),
        "tx_util": "359 KB/s",
        "rx_util": "329 KB/s",
        "memory_total": f"{product.memory_mib} MiB",
        "memory_reserved": f"{product.reserved_mib} MiB",
        "memory_used": f"{used} MiB",
        "memory_free": f"{product.memory_mib - product.reserved_mib - used} MiB",
        "utilization": "N/A" if gpu.mig_enabled else cell("loaded", "0 %"),
        "no_errors": "0",
        "dram_uncorrectable": str(gpu.ecc_uncorrectable),
        "dram_uncorrectable_ever": cell("ecc_uncorrectable_ever", str(gpu.ecc_uncorrectable)),
        "threshold_exceeded": cell("sram_threshold_exceeded", "No"),
        "remapped_rows": _remapped_rows(gpu),
        "gpu_temp": "90 C" if cell("over_limit", "38 C").startswith("-") else f"{31 + gpu.index} C",
        "gpu_temp_tlimit": cell("over_limit", f"{54 - gpu.index} C"),
        "memory_temp": f"{40 + gpu.index} C",
        "power_draw": f"{70 + gpu.index}.27 W",
        "memory_power_draw": "44.00 W",
        "idle_clock": "345 MHz",
        "memory_clock": f"{product.memory_clock_mhz} MHz",
        "fabric_state": cell("fabric_state", "Completed"),
        "fabric_status": cell("fabric_status", "Success"),
        "fabric_clique": "0",
        "fabric_cluster": "00000000-0000-0000-0000-000000000000",
        "fabric_bandwidth": "Full" if recovering else cell("fabric_health", "N/A"),
        "fabric_recovery": "True" if recovering else "N/A",
        "fabric_flag": "N/A",
    }


def _remapped_rows(gpu: GpuState) -> str:
    """Return the content of the element: N/A in MIG mode, as on real boards."""
    if gpu.mig_enabled:
        return "N/A"
    remapped = int(gpu.remap_pending)
    banks = dict.fromkeys(_HISTOGRAM, 0) | {"max": _BANKS - remapped, "high": remapped}
    pending = gpu.cells.get("remap_pending", "Yes" if gpu.remap_pending else "No")
    failure = gpu.cells.get("remap_failed", "Yes" if gpu.remap_failed else "No")
    rows = [
        "",
        "<remapped_row_corr>0</remapped_row_corr>",
        f"<remapped_row_unc>{gpu.cells.get('remapped_uncorrectable', remapped)}</remapped_row_unc>",
        f"<remapped_row_pending>{pending}</remapped_row_pending>",
        f"<remapped_row_failure>{failure}</remapped_row_failure>",
        "<row_remapper_histogram>",
        *(f"\t<row_remapper_histogram_{at}>{n} bank(s)</row_remapper_histogram_{at}>" for at, n in banks.items()),
        "</row_remapper_histogram>",
    ]
    return "\n\t\t\t".join(rows) + "\n\t\t"


def _mig_instances(gpu: GpuState) -> Iterator[tuple[int, str, str]]:
    """Return (GPU instance id, profile, UUID), largest first, as the driver numbers them.

    A GPU instance without a compute instance is not a device yet, and is left out.
    """
    if not gpu.mig_compute:
        return
    product, taken = sku(gpu.name), set[int]()
    by_size = sorted(gpu.mig_instances, key=lambda instance: -mig_shape(product, instance[0]).slices)
    for profile, uuid in by_size:
        instance = mig_shape(product, profile).first_instance
        while instance in taken:
            instance += 1
        taken.add(instance)
        yield instance, profile, uuid


def _mig_devices(gpu: GpuState, product: Sku) -> str:
    return "\n".join(_mig_device(at, *found[:2], product) for at, found in enumerate(_mig_instances(gpu)))


def _mig_device(at: int, instance: int, profile: str, product: Sku) -> str:
    shape = mig_shape(product, profile)
    counts = {
        "multiprocessor_count": shape.multiprocessors,
        "copy_engine_count": shape.slices,
        "encoder_count": 0,
        "decoder_count": shape.slices,
        "ofa_count": 0,
        "jpg_count": shape.slices,
    }
    lines = [
        "<mig_device>",
        f"\t<index>{at}</index>",
        f"\t<gpu_instance_id>{instance}</gpu_instance_id>",
        "\t<compute_instance_id>0</compute_instance_id>",
        "\t<device_attributes>",
        "\t\t<shared>",
        *(f"\t\t\t<{name}>{count}</{name}>" for name, count in counts.items()),
        "\t\t</shared>",
        "\t</device_attributes>",
        "\t<ecc_error_count>",
        "\t\t<volatile_count>",
        "\t\t\t<sram_uncorrectable>0</sram_uncorrectable>",
        "\t\t</volatile_count>",
        "\t</ecc_error_count>",
        *_usage("fb_memory_usage", shape.memory_mib, 9 * shape.slices, reserved=True),
        *_usage("bar1_memory_usage", shape.bar1_mib, 0),
        "</mig_device>",
    ]
    return "\n".join(f"\t\t\t{line}" for line in lines)


def _usage(name: str, total: int, used: int, *, reserved: bool = False) -> list[str]:
    return [
        f"\t<{name}>",
        f"\t\t<total>{total} MiB</total>",
        *(["\t\t<reserved>0 MiB</reserved>"] if reserved else []),
        f"\t\t<used>{used} MiB</used>",
        f"\t\t<free>{total - used} MiB</free>",
        f"\t</{name}>",
    ]


def _enabled(on: bool) -> str:
    return "Enabled" if on else "Disabled"
