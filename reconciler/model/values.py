"""Values that a spec declares and machines report alike.

They lie apart from the observations, so that a spec is checked without the classes of all that can be read.
"""

from __future__ import annotations

from dataclasses import dataclass

AttributeValue = str | int | bool  # of a BIOS attribute
MARK_TAINT = "reconciler.dev/maintenance"


@dataclass(frozen=True, slots=True, order=True)
class Taint:
    key: str
    value: str
    effect: str
