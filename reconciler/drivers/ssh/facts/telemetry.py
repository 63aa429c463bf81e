"""The daemons of a GPU node, its clock, and what DCGM and amd-smi say of its GPUs. They are asked, not set up."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt, find_json, whole_number
from reconciler.drivers.ssh.facts.gpu import pci_address
from reconciler.model.gate import CommandResult
from reconciler.model.host_services import AmdGpu, ClockState, Daemons, DcgmIncident
from reconciler.model.own_health import Counters
from reconciler.model.vocab import UnknownReason

FABRIC_MANAGER: Final = "nvidia-fabricmanager.service"
_UNITS: Final = (FABRIC_MANAGER, "kubelet.service", "containerd.service")

# --- daemons ---------------------------------------------------------------------------------------------------------

# An NVSwitch is a bridge of class 0680 by NVIDIA (10de).
DAEMONS_COMMAND: Final = f"""\
n=0
for c in $(grep -slx 0x068000 /sys/bus/pci/devices/*/class); do
    read -r v <"${{c%class}}vendor" && [ "$v" = 0x10de ] && n=$((n + 1))
done
echo "switches=$n"
echo
systemctl show --no-pager -p Id,LoadState,ActiveState,NRestarts -- {" ".join(_UNITS)}
"""


def parse_daemons(answer: CommandResult) -> Parsed[tuple[Daemons, Counters]]:
    """Return the daemons, and how often systemd has started them anew by itself since each was started."""
    head, _, rest = answer.stdout.partition("\n\n")
    switches = re.fullmatch(r"switches=(\d{1,4})", head.strip())
    units = {}
    for block in rest.strip().split("\n\n"):
        values = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        units[values.get("Id", "")] = values
    if switches is None or not units.keys() >= set(_UNITS):
        raise Unreadable(f"systemctl does not show the units: {excerpt(answer.stdout, 80)!r}")
    manager = units[FABRIC_MANAGER]
    runs = {"active": True, "reloading": True, "inactive": False, "failed": False}.get(manager.get("ActiveState", ""))
    daemons = Daemons(int(switches[1]), runs if manager.get("LoadState") == "loaded" else None)
    restarts = {name: whole_number(values.get("NRestarts")) for name, values in units.items()}
    return Parsed((daemons, {name: {"restarts": count} for name, count in restarts.items() if count}))


# --- the clock -------------------------------------------------------------------------------------------------------

# chrony tells the offset; other programs, and chrony itself, tell the kernel whether it is synchronised.
CLOCK_COMMAND: Final = "chronyc -c tracking 2>/dev/null || timedatectl show -p NTPSynchronized"
_OFFSET, _LEAP = 4, 13  # columns of chronyc -c tracking: chronyc(1), tracking
_SECONDS = re.compile(r"-?\d{1,12}\.\d{1,12}")


def parse_clock(answer: CommandResult) -> Parsed[ClockState]:
    line = answer.stdout.strip()
    if line.startswith("NTPSynchronized="):
        word = line.partition("=")[2]
        if word not in ("yes", "no"):
            raise Unreadable(f"timedatectl says {excerpt(line, 40)!r}")
        return Parsed(ClockState(word == "yes"))
    cells = line.split(",")
    if len(cells) != _LEAP + 1 or not _SECONDS.fullmatch(cells[_OFFSET]):
        raise Unreadable(f"neither chronyc nor timedatectl tells of the clock: {excerpt(line, 80)!r}")
    synchronised = cells[_LEAP] != "Not synchronised"
    return Parsed(ClockState(synchronised, float(cells[_OFFSET]) if synchronised else None))


# --- DCGM ------------------------------------------------------------------------------------------------------------

_NOT_WATCHED = re.compile(
    r"health watches not enabled|unable to (?:connect|establish a connection|check health)", re.IGNORECASE
)


def parse_dcgm(answer: CommandResult) -> Parsed[tuple[DcgmIncident, ...]]:
    """Return the incidents of the watches that somebody has enabled in the host engine; unknown without any."""
    if found := _NOT_WATCHED.search(answer.stdout + answer.stderr):
        raise Unreadable(f"DCGM: {found[0].lower()}", UnknownReason.UNSUPPORTED)
    document = find_json(answer.stdout)
    body = document.get("body") if isinstance(document, dict) else None
    if not isinstance(body, dict) or _word(body.get("Overall Health")) not in ("Healthy", "Warning", "Failure"):
        raise Unreadable("DCGM gives no overall health")
    return Parsed(tuple(_incidents(body)))


def _incidents(body: Mapping[str, Any]) -> Iterator[DcgmIncident]:
    """Yield what is below GROUP / NUMBER / Errors / SYSTEM. A system that is named and says nothing is not healthy."""
    for group, entities in body.items():
        for number, entity in _children(entities):
            for _, errors in _children(entity):
                for system, one in _children(errors):
                    lines = one.get("overflow") if isinstance(one, dict) else None
                    text = " ".join(str(line) for line in lines) if isinstance(lines, list) else ""
                    name = f"{excerpt(group, 20)} {excerpt(number, 8)}"
                    yield DcgmIncident(name, excerpt(system, 40), _word(one) or "Failure", excerpt(text))


def _children(node: object) -> list[tuple[str, Any]]:
    found = node.get("children") if isinstance(node, dict) else None
    return list(found.items()) if isinstance(found, dict) else []


def _word(node: object) -> str:
    word = node.get("value") if isinstance(node, dict) else None
    return excerpt(word, 20) if isinstance(word, str) else ""


# --- AMD -------------------------------------------------------------------------------------------------------------


_NO_AMD: Final = "no amd-smi, and no GPU of AMD's on the PCI bus"
# grep says 1 when it has read all files and found none: GPUs are of vendor 1002, AMD's processors of another.
AMD_COMMAND: Final = f"""\
if ! command -v amd-smi >/dev/null; then
    grep -qix 0x1002 /sys/bus/pci/devices/*/vendor
    [ $? -eq 1 ] && echo "{_NO_AMD}" && exit
fi
amd-smi {{what}} --json"""
_METRIC, _STATIC = (AMD_COMMAND.replace("{what}", what) for what in ("metric -e", "static -a -b -B"))


def parse_amd(answer: CommandResult) -> Parsed[tuple[AmdGpu, ...]]:
    """Return the GPUs that amd-smi lists, in a list or, from 7.0 on, below gpu_data. A count of N/A is None."""
    found = []
    for row in _amd_rows(answer):
        index, ecc = whole_number(row.get("gpu")), row.get("ecc")
        if index is None or not isinstance(ecc, dict):
            raise Unreadable("amd-smi lists a GPU without a number or without counts of ECC")
        counts = [whole_number(ecc.get(f"total_{kind}_count")) for kind in ("correctable", "uncorrectable", "deferred")]
        found.append(AmdGpu(index, counts[0], counts[1], counts[2]))
    return Parsed(tuple(found))


def parse_amd_identity(answer: CommandResult) -> Parsed[Mapping[int, AmdGpu]]:
    """Return the GPUs with their place, serial number and model, without counts."""
    found = {}
    for row in _amd_rows(answer):
        index, asic = whole_number(row.get("gpu")), _mapping(row.get("asic"))
        if index is None or not asic:
            raise Unreadable("amd-smi lists a GPU without a number or without what it is")
        pci = pci_address(_told(_mapping(row.get("bus")).get("bdf")) or "")
        serial = _told(_mapping(row.get("board")).get("product_serial")) or _told(asic.get("asic_serial"))
        found[index] = AmdGpu(index, None, None, None, pci, serial, _told(asic.get("market_name")))
    return Parsed(found)


def with_identity(gpus: tuple[AmdGpu, ...], known: Mapping[int, AmdGpu]) -> tuple[AmdGpu, ...]:
    """Return the GPUs with what is known of each. One that is not known stays without."""
    told = ((gpu, known.get(gpu.index)) for gpu in gpus)
    return tuple(
        gpu if one is None else replace(gpu, pci=one.pci, serial=one.serial, model=one.model) for gpu, one in told
    )


def _amd_rows(answer: CommandResult) -> list[Mapping[str, Any]]:
    if answer.stdout.strip() == _NO_AMD:
        return []
    document = find_json(answer.stdout)
    rows = document.get("gpu_data") if isinstance(document, dict) else document
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise Unreadable("amd-smi lists no GPUs")
    return rows


def _mapping(node: object) -> Mapping[str, Any]:
    return node if isinstance(node, dict) else {}


def _told(value: object) -> str | None:
    """Return a text that says something: not N/A, and no number of zeros."""
    text = excerpt(value, 80) if isinstance(value, str) else ""
    return text if text.strip("0xX") and text.upper() != "N/A" else None


# --- fields of DCGM ---------------------------------------------------------------------------------------------------

# By id, as releases rename fields (DCGM 4.6.0 dcgmlib/dcgm_fields.h): PCIe replays, ns that heat slowed the clocks,
# corrected errors of memory; of NVLink 5 times that a link had too many errors, and did not recover; ns that the power
# brake slowed the clocks. dcgmi refuses a whole list for one id that it does not know: 1424 is of 4.2, 1209 of 4.0.
FIELDS: Final = ("202", "241", "310", "1209", "1212", "1424")
_LISTS: Final = " ".join(",".join(FIELDS[:count]) for count in (6, 5, 3))
# One sample of fields that any job may have watched meanwhile: no profiling field, which would take counters from it.
DMON_COMMAND: Final = f"""\
command -v dcgmi >/dev/null || exit 127
for ids in {_LISTS}; do
    echo "== $ids"
    dcgmi dmon -e $ids -c 1 2>&1 && exit
done
exit 1"""
_BLANK: Final = "N/A"
_LIST: Final = re.compile(r"== ([0-9]{1,5}(?:,[0-9]{1,5})*)")
_ENTITY: Final = re.compile(r"GPU (\d{1,3}) +(.*)")


def parse_dmon(answer: CommandResult) -> Parsed[Counters]:
    """Return the fields that are above zero, by GPU, as {"gpu3": {"dcgm_310": 7}}. Notes name what was not read.

    That is a field that no GPU has (N/A) or that this list lacks, and a GPU without any value, which may be lost: that
    has signals of its own. An absent counter is zero otherwise, and would have risen when it is read again. A field
    that only some GPUs have makes all unknown.
    """
    if answer.exit_status and (refused := _NOT_WATCHED.search(answer.stdout)):
        raise Unreadable(f"DCGM: {refused[0].lower()}", UnknownReason.UNSUPPORTED)
    ids, rows = _dmon_rows(answer.stdout)
    known = {gpu: cells for gpu, cells in rows.items() if set(cells) != {_BLANK}}
    if not rows or any(len(cells) != len(ids) for cells in rows.values()):
        raise Unreadable(f"no row of {len(ids)} fields for each GPU: {excerpt(answer.stdout[-200:], 80)!r}")
    found: dict[str, dict[str, int]] = {}
    unread = {f"gpu{gpu}" for gpu in rows.keys() - known.keys()} | {f"dcgm_{id_}" for id_ in FIELDS if id_ not in ids}
    for at, number in enumerate(ids):
        column = [cells[at] for cells in known.values()]
        if set(column) <= {_BLANK}:
            unread.add(f"dcgm_{number}")
            continue
        if not all(cell.isdecimal() for cell in column):  # N/A, or a number that dcgmi cut to fit its column
            raise Unreadable(f"field {number} of DCGM has no number for a GPU: {excerpt(' '.join(column), 80)!r}")
        for gpu, cells in known.items():
            if int(cells[at]):
                found.setdefault(f"gpu{gpu}", {})[f"dcgm_{number}"] = int(cells[at])
    return Parsed(found, {f"dcgm_counters.{one}": "unsupported: DCGM has no value" for one in sorted(unread)})


def _dmon_rows(text: str) -> tuple[list[str], dict[int, list[str]]]:
    """Return the ids of the last list that was tried, and the cells of each GPU. An error is of one list."""
    ids: list[str] = []
    rows: dict[int, list[str]] = {}
    error = ""
    for line in text.splitlines():
        if begun := _LIST.fullmatch(line):
            ids, rows, error = begun[1].split(","), {}, ""
        elif row := _ENTITY.fullmatch(line):
            rows[int(row[1])] = row[2].split()
        elif line.strip() and not line.startswith(("#Entity", "ID ")):
            error = error or line
    if error:
        raise Unreadable(f"dcgmi dmon says {excerpt(error, 120)!r}")
    return ids, rows


DAEMONS = Fact("daemons", DAEMONS_COMMAND, parse_daemons, ("daemons", "daemon_counters"))
CLOCK = Fact("clock", CLOCK_COMMAND, parse_clock, ("clock",))
# dcgmi ends with other statuses where its watches are not enabled, or the host engine does not run.
DCGM = Fact(
    "dcgm_health",
    "dcgmi health -g 0 -c -j",
    parse_dcgm,
    ("dcgm",),
    timeout_s=10,
    statuses=frozenset(range(127)) | {255},
)
DCGM_FIELDS = Fact("dcgm_fields", DMON_COMMAND, parse_dmon, ("dcgm_counters",), 10, frozenset({0, 1}))
AMD = Fact("amd_smi", _METRIC, parse_amd, ("amd_gpus",), timeout_s=15)
# Without it, the GPUs are told and are not known by their serial numbers.
AMD_IDENTITY = Fact("amd_static", _STATIC, parse_amd_identity, ("amd_gpus.serial",), timeout_s=15)
