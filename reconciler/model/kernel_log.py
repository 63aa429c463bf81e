"""Lines of a kernel about hardware, since it booted."""

from __future__ import annotations

from dataclasses import dataclass

from reconciler.model.privacy import FreeText, PublicText, Unpublished
from reconciler.model.vocab import KernelEventKind


@dataclass(frozen=True, slots=True)
class Xid:
    """A kernel line about a GPU (Xid) or an NVSwitch (SXid) since boot, bursts folded."""

    code: int
    device: PublicText
    count: int
    switch: bool = False
    fatal: bool | None = None
    text: Unpublished[FreeText] = ""


@dataclass(frozen=True, slots=True)
class KernelEvent:
    """A kernel line since boot about hardware that is no Xid, bursts folded."""

    kind: KernelEventKind
    device: PublicText  # PCI address, or the kernel's name of what it is about; "" where the line names none
    count: int
    text: Unpublished[FreeText] = ""
