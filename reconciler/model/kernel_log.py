"""Lines of a kernel about hardware, since it booted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from reconciler.model.privacy import FreeText, PublicText, Unpublished
from reconciler.model.vocab import KernelEventKind

RECOVERY_ACTION_CHANGED: Final = 154
POWER_SMOOTHING_BACK, POWER_SMOOTHING_GONE = 162, 163


@dataclass(frozen=True, slots=True)
class XidBurst:
    """Lines of an Xid at one place of a GPU that followed one another closely."""

    place: PublicText  # "GPC 0, TPC 4"; "" where such lines name none, so that it is the GPU
    uptime_s: float  # when it began


@dataclass(frozen=True, slots=True)
class Xid:
    """A kernel line about a GPU (Xid) or an NVSwitch (SXid) since boot, bursts folded.

    `fatal`: the line's own word, of NVSwitches and of NVLink 5; None where it has none. `bursts`: of Xids that may be
    the hardware's when they come again at one place (13 and 31), the last ones, as far as lines tell their time.
    """

    code: int
    device: PublicText
    count: int
    switch: bool = False
    fatal: bool | None = None
    text: Unpublished[FreeText] = ""
    bursts: tuple[XidBurst, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """A kernel line since boot about hardware that is no Xid, bursts folded."""

    kind: KernelEventKind
    device: PublicText  # PCI address, or the kernel's name of what it is about; "" where the line names none
    count: int
    text: Unpublished[FreeText] = ""
