"""Our mark as the reason of a drained node, and whose a reason is. Pure.

Slurm has one reason for a node, free text, of which the last writer wins. Ours says in one line who we are, what for,
and what a Kubernetes annotation says: `reconciler ledger=... plan=... at=... jobs=... why=...`. scontrol drops a quote
at either end, and slurmctld may append words (" : reboot issued"), so the last value is the one that people read with
`sinfo -R`, and of it only what is unsafe is percent-encoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import quote, unquote

from reconciler.model.records import Mark
from reconciler.model.slurm import OWN_REASONS

_OURS: Final = re.compile(
    r"reconciler ledger=(?P<ledger>\S+) plan=(?P<plan>\S*) at=(?P<at>\S*) (?:jobs=(?P<jobs>\S+) )?why=(?P<why>.*)",
    re.DOTALL,
)
_BEFORE: Final = " | before: "
_UNSAFE: Final = re.compile(r"[^\x20-\x7e]|[\"'\\|%]")  # what scontrol or a terminal may take for something
_LONGEST: Final = 400


def write(mark: Mark, before: str) -> str:
    """Return the reason that says a mark. `before`: the reason of a health check that it takes over; "" = none."""
    jobs = f"jobs={quote(','.join(mark.workloads), safe='')} " if mark.workloads else ""
    why = _plain(mark.reason) + (f"{_BEFORE}{_plain(before[:_LONGEST])}" if before else "")
    return f"reconciler ledger={_word(mark.ledger)} plan={_word(mark.plan)} at={_word(mark.at)} {jobs}why={why}"


def read(reason: str) -> Mark | None:
    """Return the mark that a reason says; None for a reason of somebody else."""
    found = _OURS.fullmatch(reason)
    if found is None:
        return None
    names = tuple(unquote(found["jobs"]).split(",")) if found["jobs"] else ()
    why = unquote(found["why"].partition(_BEFORE)[0])
    return Mark(unquote(found["ledger"]), unquote(found["plan"]), why, unquote(found["at"]), True, names)


def taken_over(reason: str) -> str:
    """Return the reason that a mark of ours took over; "" where it took none."""
    return unquote(reason.partition(_BEFORE)[2]) if read(reason) is not None else ""


def is_finding(reason: str, take_over: Sequence[str]) -> bool:
    """Return whether a reason is what a daemon or a health check found, and so nobody's decision."""
    return reason.startswith((*OWN_REASONS, *take_over))


def _word(text: str) -> str:
    return quote(text, safe=":+")


def _plain(text: str) -> str:
    return _UNSAFE.sub(lambda found: quote(found[0], safe=""), text)
