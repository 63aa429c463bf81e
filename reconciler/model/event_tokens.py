"""How the event subscriptions of one fleet are known on a BMC, which other fleets may share."""

from __future__ import annotations

import hashlib
from typing import Final

CONTEXT: Final = "reconciler-"  # how the Context of each of our subscriptions begins; its token follows


def owner_mark(ledger: str) -> str:
    """Return the first part of each token of the fleet with this ledger."""
    return hashlib.sha256(ledger.encode()).hexdigest()[:8]
