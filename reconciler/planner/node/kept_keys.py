"""The keys under which the ledger keeps signals until they are proved healed, beside a node's silences.

A key has the form "unhealed PATH in boot BOOT+RESETS of PARTS among TOTAL once", of which all after BOOT may be absent.
It begins with "healed" once the proof has come, while the node's attempts alone would tell of the signal again.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Final

from reconciler.model.records import HEALED, IN_BOOT, UNHEALED, NodeRecord

_KEY: Final = re.compile(
    rf"(?P<kept>{UNHEALED}|{HEALED})(?P<path>.*?){IN_BOOT}(?P<boot>[0-9a-f]*)"
    r"(\+(?P<resets>\d+))?( of (?P<parts>[0-9a-f,]+) among (?P<total>\d+))?(?P<once> once)?"
)


@dataclass(frozen=True, slots=True)
class KeptKey:
    """A key in its parts.

    `boot`: digest of the boot that it was seen in; "" = not known. `resets`: resets of GPUs in that boot before it was
    seen. `parts`: digests of the serial numbers of the parts that it speaks against; () = not all are known. `total`:
    how many parts of that kind told theirs. `once`: one reading has shown it, and its row asks for two. `healed`: the
    proof has come.
    """

    path: str
    boot: str
    resets: int = 0
    parts: tuple[str, ...] = ()
    total: int = 0
    once: bool = False
    healed: bool = False

    @property
    def text(self) -> str:
        resets = f"+{self.resets}" if self.resets else ""
        parts = f" of {','.join(self.parts)} among {self.total}" if self.parts else ""
        once, kept = " once" if self.once else "", HEALED if self.healed else UNHEALED
        return f"{kept}{self.path}{IN_BOOT}{self.boot}{resets}{parts}{once}"


def parsed(key: str) -> KeptKey:
    """Return what a key tells, which a later version may have written: what is not understood of it is left out."""
    found = _KEY.match(key)
    if found is None:
        return KeptKey(key.removeprefix(UNHEALED).partition(IN_BOOT)[0], "")
    parts = tuple((found["parts"] or "").split(",")) if found["parts"] else ()
    total, once, healed = int(found["total"] or 0), bool(found["once"]), found["kept"] == HEALED
    return KeptKey(found["path"], found["boot"], int(found["resets"] or 0), parts, total, once, healed)


def kept_keys(record: NodeRecord) -> list[str]:
    return [key for key in record.silent_since if key.startswith((UNHEALED, HEALED))]


def boot_digest(boot_id: str) -> str:
    """Return what a published key tells of a boot, which is not its id."""
    return hashlib.sha256(boot_id.encode()).hexdigest()[:12] if boot_id else ""


def part_digest(node: str, serial: str) -> str:
    """Return what a published key tells of a part: too little to find its serial number by trying all there are."""
    return hashlib.sha256(f"{node} {serial}".encode()).hexdigest()[:6]
