"""GPUs, by nvidia-smi -q -x, and by nvidia-smi -L for what the XML lacks.

Fields are looked up by name, not by the DTD's version: v12 has both old and new names of many. A cell without a value
("N/A", "[Not Supported]", "GPU is lost", "ERR!" and the like) is None. nvidia-smi exits with 0 when a GPU is lost, and
says so only in the cells.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass, replace

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt, whole_number
from reconciler.drivers.ssh.facts.gpu_cells import health_cells, slowed_seconds
from reconciler.drivers.ssh.facts.smi_filter import filtered
from reconciler.model.gate import CommandResult
from reconciler.model.gpus import Gpu, GpuCells, MigDevice, SmiAnswer
from reconciler.model.own_health import Counters

_NO_GPU = "no nvidia-smi, and no device of NVIDIA's on the PCI bus"
_PCI = re.compile(r"(?:PCI:)?([0-9A-F]{4,8}):([0-9A-F]{2}):([0-9A-F]{2})(?:\.([0-7]))?", re.IGNORECASE)
_NOT_A_VALUE = re.compile(
    r"\[.*\]|n/?a|none|unknown|not (supported|available|found|specified)|gpu is lost|gpu requires reset|err!?|"
    r"unknown error|no reading|nan|skip|waived|insufficient permissions|reset required|function not found",
    re.IGNORECASE,
)
_LOST = re.compile(r"\[?GPU (is lost|has fallen off the bus)\.?\]?")
_SWITCH = {"enabled": True, "disabled": False, "yes": True, "no": False}
_SRAM = ({"sram_uncorrectable"}, {"sram_uncorrectable_parity", "sram_uncorrectable_secded"})
_LISTED_GPU = re.compile(r"GPU (\d{1,4}): .*\(UUID: (\S+)\)")
_LISTED_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+(\d{1,4}): \(UUID: (\S+)\)")


@dataclass(frozen=True, slots=True)
class SmiReport:
    driver: str | None
    gpus: tuple[Gpu, ...]
    mig_counts: tuple[int, ...]  # MIG devices in the XML, by GPU, which has neither profiles nor UUIDs
    answer: SmiAnswer
    slowed: Counters


# --- nvidia-smi -q -x --------------------------------------------------------------------------------------------


def parse_smi(answer: CommandResult) -> Parsed[SmiReport]:
    text = answer.stdout
    none = SmiReport(None, (), (), SmiAnswer(0, 0, 0), {})
    if "<nvidia_smi_log" not in text and text.strip() == "No devices were found":  # it exits with 6
        return Parsed(none, {"driver": "unsupported: nvidia-smi finds no device to ask"})
    if text.strip() == _NO_GPU:
        return Parsed(none, {"driver": f"unsupported: {_NO_GPU}"})
    root = _document(text)
    notes: dict[str, str] = {}
    elements = root.findall("gpu")
    seems_lost = "lost" in text or "fallen" in text  # else no cell has to be checked
    needs_reset = "requires reset" in text.lower() or "&#" in text  # the same
    gpus = tuple(_gpu(at, element, seems_lost, needs_reset) for at, element in enumerate(elements))
    driver = _text(root, "driver_version")
    if driver is None:
        notes["driver"] = "malformed: nvidia-smi names no driver version"
    attached = whole_number(root.findtext("attached_gpus"))
    if attached is not None and attached != len(gpus):
        notes["gpus.count"] = f"malformed: nvidia-smi says {attached} attached GPUs and describes {len(gpus)}"
    if answer.exit_status != 0:
        notes["gpus.exit_status"] = f"malformed: nvidia-smi ended with {answer.exit_status} after a whole document"
    if len({gpu.pci for gpu in gpus}) < len(gpus):
        notes["gpus.pci"] = "malformed: two GPUs give the same PCI address, or several give none"
    slowed = {gpu.pci: seconds for gpu, one in zip(gpus, elements, strict=True) if (seconds := slowed_seconds(one))}
    counts = tuple(len(element.findall("mig_devices/mig_device")) for element in elements)
    end = SmiAnswer(answer.exit_status, attached, len(gpus))
    return Parsed(SmiReport(driver, gpus, counts, end, slowed), notes)


def _document(text: str) -> ET.Element:
    """Parse the XML document in nvidia-smi's output, where errors and warnings are printed too."""
    start, end = text.find("<nvidia_smi_log"), text.rfind("</nvidia_smi_log>")
    if start < 0:
        raise Unreadable(f"nvidia-smi printed no XML: {excerpt(text) or 'nothing'}")
    if end < start:
        raise Unreadable("the XML of nvidia-smi is cut short")
    # Parsing starts at the root element: the DOCTYPE before it, the only place for entities, is left out.
    document = text[start : end + len("</nvidia_smi_log>")]
    if "<!DOCTYPE" in document or "<!ENTITY" in document:
        raise Unreadable("the XML of nvidia-smi declares entities")
    try:
        return ET.fromstring(document)  # noqa: S314  no DOCTYPE, so no entities; size is bounded by the frame
    except (ET.ParseError, ValueError) as error:
        raise Unreadable(f"the XML of nvidia-smi is damaged: {error}") from None


def _gpu(index: int, element: ET.Element, seems_lost: bool, needs_reset: bool) -> Gpu:
    lost = seems_lost and any(_LOST.fullmatch(cell.strip()) for cell in element.itertext())
    return Gpu(
        index=index,
        pci=pci_address(element.get("id") or "") or pci_address(element.findtext("pci/pci_bus_id") or "") or "",
        uuid=_text(element, "uuid"),
        name=_text(element, "product_name"),
        serial=_text(element, "serial"),
        vbios=_text(element, "vbios_version"),
        ecc_enabled=_switch(element, "ecc_mode/current_ecc"),
        ecc_uncorrectable=_uncorrectable(element, "volatile"),
        remap_pending=None if lost else _remap_pending(element),  # N/A of a lost GPU says nothing of its age
        remap_failed=_switch(element, "remapped_rows/remapped_row_failure"),
        mig_current=_mig_mode(element, "mig_mode/current_mig", lost=lost),
        mig_pending=_mig_mode(element, "mig_mode/pending_mig", lost=lost),
        lost=lost,
        cells=GpuCells() if lost else health_cells(element, seems_to_need_reset=needs_reset),
        ecc_uncorrectable_ever=_uncorrectable(element, "aggregate"),
        remapped_uncorrectable=whole_number(element.findtext("remapped_rows/remapped_row_unc")),
        pcie_replays=whole_number(element.findtext("pci/replay_counter")),
    )


def _text(element: ET.Element, path: str) -> str | None:
    value = (element.findtext(path) or "").strip()
    return value if value and _NOT_A_VALUE.fullmatch(value) is None else None


def _switch(element: ET.Element, path: str) -> bool | None:
    return _SWITCH.get((element.findtext(path) or "").strip().lower())


def _mig_mode(element: ET.Element, path: str, *, lost: bool) -> bool | None:
    """Return the MIG mode. "N/A" means that the GPU has no MIG, so that it is off, unless the GPU is lost."""
    if not lost and (element.findtext(path) or "").strip() == "N/A":
        return False
    return _switch(element, path)


def _uncorrectable(element: ET.Element, since: str) -> int | None:
    """Return the uncorrectable errors of SRAM and DRAM, "volatile" (since the driver loaded) or "aggregate" (ever).

    A cell that is unreadable or missing makes a sum of zero unknown.

    Names: dram_uncorrectable; sram_uncorrectable, or its parts _parity and _secded from 550 on; before 450,
    double_bit/total.
    """
    errors = element.find(f"ecc_errors/{since}")
    if errors is None:
        return None
    cells = [cell for cell in errors if re.fullmatch(r"[sd]ram_uncorrectable(_\w+)?", cell.tag)]
    parts = {cell.tag for cell in cells}
    whole = not parts or (parts >= {"dram_uncorrectable"} and any(parts >= sram for sram in _SRAM))
    cells = cells or errors.findall("double_bit/total")
    counts = [whole_number(cell.text) for cell in cells] + [None] * (not whole)
    total = sum(count for count in counts if count is not None)
    return total if counts and (total or None not in counts) else None


def _remap_pending(element: ET.Element) -> bool | None:
    """Say whether a row remapping waits for a reset; before Ampere ("N/A"), a page retirement."""
    rows = element.find("remapped_rows")
    if rows is not None and (len(rows) or (rows.text or "").strip() != "N/A"):
        return _switch(element, "remapped_rows/remapped_row_pending")
    retired = [_switch(element, f"retired_pages/{name}") for name in ("pending_retirement", "pending_blacklist")]
    return next((value for value in retired if value is not None), None)


def pci_address(text: str) -> str | None:
    """Return "00000000:1A:00.0" for 0000:1a:00, PCI:0000:1a:00 and the like: nvidia-smi and the kernel differ."""
    match = _PCI.fullmatch(text.strip())
    return f"{match[1].zfill(8)}:{match[2]}:{match[3]}.{match[4] or 0}".upper() if match else None


# --- nvidia-smi -L -----------------------------------------------------------------------------------------------


def parse_list(answer: CommandResult) -> Parsed[Mapping[str, tuple[MigDevice, ...]]]:
    """Return MIG devices by the UUID of their GPU."""
    devices: dict[str, tuple[MigDevice, ...]] = {}
    gpu, uuid = 0, ""
    for line in answer.stdout.splitlines():
        if listed := _LISTED_GPU.match(line):
            gpu, uuid = int(listed[1]), listed[2]
            devices[uuid] = ()
        elif (device := _LISTED_MIG.match(line)) and uuid:
            devices[uuid] += (MigDevice(gpu, device[1], device[3]),)
    if not devices:
        raise Unreadable(f"nvidia-smi -L lists no GPU: {excerpt(answer.stdout) or 'nothing'}")
    return Parsed(devices)


def with_mig_devices(
    report: SmiReport, listed: Parsed[Mapping[str, tuple[MigDevice, ...]] | None]
) -> Parsed[SmiReport]:
    """Return the report with MIG profiles and UUIDs from the list.

    Where the two disagree about a GPU its MIG mode is unknown: a layout without names can't be compared.
    """
    notes: dict[str, str] = {}
    gpus = []
    for gpu, count in zip(report.gpus, report.mig_counts, strict=True):
        found = (listed.value or {}).get(gpu.uuid or "", ())
        if len(found) == count:
            devices = tuple(replace(device, gpu=gpu.index) for device in found)
            gpus.append(replace(gpu, mig_devices=devices) if devices else gpu)
        else:
            seen = f"nvidia-smi -q -x counts {count} MIG devices, -L lists {len(found)}"
            notes[f"gpus.{gpu.index}.mig"] = listed.notes.get("gpus.mig", f"malformed: {seen}")
            gpus.append(replace(gpu, mig_current=None, mig_pending=None))
    return Parsed(replace(report, gpus=tuple(gpus)), notes)


# A host without GPUs needs no driver. It has none only if the PCI bus was read and has no device of NVIDIA's: grep says
# 1 when it has read all files and found none, and 2 when it could not read one.
_COMMAND = f"""\
if ! command -v nvidia-smi >/dev/null; then
  grep -qix 0x10de /sys/bus/pci/devices/*/vendor
  [ $? -eq 1 ] && echo "{_NO_GPU}" && exit
fi
{filtered("nvidia-smi -q -x")}"""

# Statuses that may come with a whole document: 2-15 are nvidia-smi's own (14: a corrupt infoROM is only a warning).
# Without a document the parser reports what was printed instead.
SMI = Fact(
    "nvidia_smi",
    _COMMAND,
    parse_smi,
    ("driver", "gpus", "smi"),
    timeout_s=15,
    statuses=frozenset(range(16)) | {255},
)
LIST = Fact("gpu_list", "nvidia-smi -L", parse_list, ("gpus.mig",), timeout_s=15)
