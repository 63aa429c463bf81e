"""The scheduler says of its workers of which site each is, and whether it has died or hangs.

Dask itself waits five minutes for a hung worker, and for ever for one that never comes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from reconciler.drivers.engine.access import RENEW, expiry, site_of, wall_clock

CERTIFICATE: Final = "certificate_until"  # of what a worker tells the scheduler as it starts: seconds since 1970
_NEVER: Final = datetime.max.replace(tzinfo=UTC)
HUNG_S: Final = 15.0  # a worker tells the scheduler every second that it lives, and seldomer where there are hundreds


@dataclass(frozen=True, slots=True)
class Worker:
    """`seen`: when the scheduler heard of it, by its clock; `since`: at which look that had changed last, by ours.

    `until`: the end of the certificate that it started with.
    """

    name: str
    labels: frozenset[str]
    seen: float
    since: float
    until: datetime = _NEVER

    @property
    def expiry(self) -> str:
        return expiry(f"of worker {self.name}", self.until)


class WorkerTable:
    """The workers by address, as of the latest look: a leader that was busy since then knows no more than that."""

    def __init__(self) -> None:
        self._workers: Mapping[str, Worker] = {}
        self._looked = 0.0
        self.trouble = ""  # why the scheduler tells nothing

    def update(self, identity: Mapping[str, Any], asked: float) -> None:
        """Take what `Scheduler.identity` returns. `asked`: when it was asked, on a monotonic clock."""
        told: Mapping[str, Mapping[str, Any]] = identity["workers"]
        newest = max((one["last_seen"] for one in told.values()), default=0.0)
        found = {}
        for address, one in told.items():
            known = self._workers.get(address)
            if known is None or known.name != str(one["name"]):
                since = asked - (newest - one["last_seen"])
                known = Worker(str(one["name"]), frozenset(one["resources"]), one["last_seen"], since)
                if CERTIFICATE in one:
                    known = replace(known, until=datetime.fromtimestamp(one[CERTIFICATE], UTC))
            elif known.seen != one["last_seen"]:
                known = replace(known, seen=one["last_seen"], since=asked)
            found[address] = known
        self._workers, self._looked, self.trouble = found, asked, ""

    def choose(self, label: str, key: str) -> tuple[str, str] | None:
        """Return address and name of the worker for a shard: the same one in each pass, while it is well."""
        well = [
            (address, one.name)
            for address, one in self._workers.items()
            if label in one.labels and not self.lost(address, one.name)
        ]
        return max(well, key=lambda one: hashlib.sha256(f"{one[1]} {key}".encode()).digest(), default=None)

    def well(self) -> Mapping[str, str]:
        """Return the workers of sites that are well, by their addresses."""
        return {
            address: one.name
            for address, one in self._workers.items()
            if any(map(site_of, one.labels)) and not self.lost(address, one.name)
        }

    def by_site(self) -> Mapping[str, tuple[str, ...]]:
        """Return the names of the workers that are well, by their site."""
        found: dict[str, tuple[str, ...]] = {}
        for address, one in sorted(self._workers.items()):
            for site in (site_of(each) for each in one.labels):
                if site is not None and not self.lost(address, one.name):
                    found[site] = (*found.get(site, ()), one.name)
        return found

    def expiring(self) -> tuple[str, ...]:
        """Return a sentence for each worker whose certificate has expired or will soon."""
        return tuple(told for one in self._workers.values() if (told := one.expiry))

    def lost(self, address: str, name: str) -> str:
        """Return why nobody is to wait for a worker any longer; "" when it is well."""
        if self.trouble:
            return self.trouble
        one = self._workers.get(address)
        if one is None or one.name != name:
            return f"worker {name} has died"
        if one.until <= wall_clock():  # nobody can connect to it any more
            return f"{one.expiry}: {RENEW}"
        quiet_s = self._looked - one.since
        return f"worker {name} hangs: the scheduler has not heard of it for {quiet_s:.0f} s" if quiet_s > HUNG_S else ""
