"""Leave out on the node what nobody reads of `nvidia-smi -q -x`: of 80 KB for eight GPUs, 18 KB are read.

An awk program of POSIX takes out cells, each a whole line `<name>text</name>`, and elements that are empty then. All
other lines pass as they are but for their indentation, and nothing is ever added: a document that is cut or damaged
stays so. A cell that says what may concern the whole GPU ("GPU is lost", "GPU requires reset") or that holds anything
but plain text passes too.
"""

from __future__ import annotations

from typing import Final

# Names that gpu.py and gpu_cells.py look up, with those of which a part decides. What is below an element of `_WHOLE`
# passes: newer drivers have names there that are not known yet.
_WHOLE: Final = ("fabric",)
_PART: Final = "uncorrectable"
_NAMES: Final = (
    "aggregate", "attached_gpus", "channel_repair_pending", "clocks_event_reason_hw_power_brake_slowdown",
    "clocks_event_reason_hw_thermal_slowdown", "clocks_event_reasons", "clocks_event_reasons_counters",
    "clocks_event_reasons_counters_hw_power_brake", "clocks_event_reasons_counters_hw_therm_slowdown",
    "clocks_throttle_reason_hw_power_brake_slowdown", "clocks_throttle_reason_hw_thermal_slowdown",
    "clocks_throttle_reasons", "current_ecc", "current_link_gen", "current_link_width", "current_mig", "double_bit",
    "drain_and_reset_recommended", "driver_version", "ecc_errors", "ecc_mode", "gpu", "gpu_recovery_action",
    "gpu_reset_status", "gpu_temp", "gpu_temp_slow_tlimit_threshold", "gpu_temp_tlimit", "gpu_util", "link_widths",
    "max_link_gen", "max_link_width", "mig_device", "mig_devices", "mig_mode", "nvidia_smi_log", "pci", "pci_bus_id",
    "pci_gpu_link_info", "pcie_gen", "pending_blacklist", "pending_mig", "pending_retirement", "persistence_mode",
    "product_name", "remapped_row_failure", "remapped_row_pending", "remapped_row_unc", "remapped_rows",
    "replay_counter", "reset_required", "retired_pages", "serial", "sram_threshold_exceeded", "temperature", "total",
    "tpc_repair_pending", "unrepairable_memory", "utilization", "uuid", "vbios_version", "volatile",
)  # fmt: skip
_ALL_OF_A_GPU: Final = "[Ll][Oo][Ss][Tt]|[Ff][Aa][Ll][Ll][Ee][Nn]|[Rr][Ee][Ss][Ee][Tt]"

_OF_ONE: Final = ("total", "double_bit")  # each kind of memory has such a cell too, which nobody reads

# `line`: what passes so far; `name`: of the element that a line of it begins, or ""; `inside`: depth below _WHOLE;
# `parent`: the element that the next cell is a child of, or "" where that is not known.
_PROGRAM: Final = f"""
BEGIN {{
    FS = "[<>]"
    count = split("{" ".join(_NAMES)}", words, " "); for (at = 1; at <= count; at++) read[words[at]]
    count = split("{" ".join(_WHOLE)}", words, " "); for (at = 1; at <= count; at++) whole[words[at]]
}}
/^[ \\t]*<[a-z0-9_]+>[ -;=?-~]*<\\/[a-z0-9_]+>$/ {{
    cell = NF == 5 && "/" $2 == $4 && $3 !~ /&|{_ALL_OF_A_GPU}/
    other = $2 == "{_OF_ONE[0]}" && parent != "" && parent != "{_OF_ONE[1]}"
    if (cell && !inside && (other || !($2 in read)) && !($2 in whole) && $2 !~ /{_PART}/) next
    sub(/^[ \\t]+/, "")
    line[++top] = $0; name[top] = ""; next
}}
/^[ \\t]*<[a-z0-9_]+>$/ {{
    if (inside || $2 in whole) inside++
    parent = $2
    sub(/^[ \\t]+/, "")
    line[++top] = $0; name[top] = $2; next
}}
/^[ \\t]*<\\/[a-z0-9_]+>$/ {{
    parent = ""
    if (!inside && top && "/" name[top] == $2 && !(name[top] in read)) {{ top--; next }}
    if (inside) inside--
    sub(/^[ \\t]+/, "")
    line[++top] = $0; name[top] = ""; next
}}
{{ line[++top] = $0; name[top] = ""; parent = "" }}
END {{ for (at = 1; at <= top; at++) print line[at] }}
"""


def filtered(command: str) -> str:
    """Return a command of POSIX sh that prints what passes of this one's output, and ends with its exit status.

    Where there is no awk, all passes.
    """
    return f"""\
command -v awk >/dev/null || awk() {{ cat; }}
exec 4>&1
status=$({{ {{ {command} 3>&- 4>&-; echo $? >&3; }} | awk '{_PROGRAM}' >&4; }} 3>&1)
exit "$status\""""
