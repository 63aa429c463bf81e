"""The acceptance tools: a command and a pure judge each.

A judge sees exit statuses and documents, and needs both (rule 2): nothing that was not run, could not be parsed, has no
rows, or comes from a version that nobody has read yet is ever a pass. Judges never raise on what a tool prints.
"""

from __future__ import annotations

from reconciler.gate.tools import dcgmi, fio, inventory, nccl, nvbandwidth, xid
from reconciler.gate.tools.common import Tool

TOOLS: dict[str, Tool] = {
    "dcgmi-diag": dcgmi.TOOL,
    "nvbandwidth": nvbandwidth.TOOL,
    "nccl-tests": nccl.TOOL,
    "fio": fio.TOOL,
    "inventory": inventory.TOOL,
    "xid": xid.TOOL,
}
