"""The actions under way that take long, and how far each is: an installation, a soak."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Protocol

from reconciler.model.install_progress import progress_words
from reconciler.model.ledger_ports import AttemptStore, InstallStore
from reconciler.model.soak_progress import progress_of


class Journal(AttemptStore, InstallStore, Protocol):
    """The parts of a ledger that tell of what is under way."""


def under_way(ledger: Journal, now: datetime) -> Mapping[str, str]:
    """Return by node how far its unfinished attempt is; "" where nothing tells.

    The words are ours, and quote no machine. An attempt whose run died is unfinished until the next run takes it over.
    """
    found: dict[str, str] = {}
    for _, node, _, _, intent in ledger.unfinished():
        found.setdefault(node, "")
        if (soak := progress_of(intent)) is not None:
            found[node] = soak.under_way(now)
        elif (install := ledger.open_install(node)) is not None:
            found[node] = f"installing: {progress_words(install)}"
    return found
