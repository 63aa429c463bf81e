"""One function per row of the planner's catalogue, under the row's name.

Each follows one template: check whether it is so already, do, wait, verify by an independent read (HTTP 200 proves
nothing). Each is re-entrant: a second call after a crash continues or finds nothing to do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from reconciler.converge.actions.context import ActionContext
from reconciler.converge.actions.drain import drain
from reconciler.converge.actions.firmware import reset_bmc, update_firmware
from reconciler.converge.actions.gpu import set_gpu_mode
from reconciler.converge.actions.host import configure_host
from reconciler.converge.actions.membership import admit, join, mark, set_labels
from reconciler.converge.actions.power import power_cycle, power_on, soft_restart
from reconciler.converge.actions.proof import check_trust, run_gate
from reconciler.converge.actions.reimage import reimage
from reconciler.converge.actions.settings import set_bios, set_boot
from reconciler.model.outcome import Outcome

Act = Callable[[ActionContext], Awaitable[Outcome]]

ACTIONS: Mapping[str, Act] = {
    act.__name__: act
    for act in (
        mark, drain, set_bios, set_boot, update_firmware, reset_bmc, soft_restart, power_cycle, power_on, reimage,
        configure_host, join, check_trust, run_gate, set_gpu_mode, set_labels, admit,
    )
}  # fmt: skip
