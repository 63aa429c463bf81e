"""Run the checks over the driver's own session, and stop asking a BMC that does not answer or refuses the login."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from reconciler.drivers.redfish.bmc import RedfishBmc
from reconciler.drivers.redfish.conformance import protocol, readings, writes
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Unknown
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.conformance import Check, CheckOutcome, CheckResult, ConformanceReport
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, AttributeValue, Silent

WRITE_CHECKS: Final = tuple(check for check, _ in writes.WRITES)
_PROBES: Final = (*protocol.BEFORE_LOGIN, *protocol.AFTER_LOGIN, *readings.PROBES)
_READ_CHECKS: Final = (
    readings.MAKE,
    *(reading.check for reading in readings.READINGS),
    *readings.ABILITIES.values(),
)
# Of one resource; any other failure is the BMC's, and the checks after it would wait or guess passwords for nothing.
_GOES_ON: Final = frozenset({Failure.TIMEOUT, Failure.MALFORMED, Failure.UNSUPPORTED, Failure.REJECTED})


def all_checks() -> tuple[Check, ...]:
    """Return all checks, in the order in which they are tried."""
    return (*(check for check, _ in _PROBES), *_READ_CHECKS, *WRITE_CHECKS)


@dataclass(frozen=True, slots=True)
class WriteConsent:
    """The checks that a person let write to one machine. `bios`: the attribute to stage; None: none was named."""

    serial: str
    names: frozenset[str]
    bios: tuple[str, AttributeValue] | None = None
    poll_s: float = 2.0


@dataclass(slots=True)
class RedfishSuite:
    """The suite on one BMC. `chosen`: names of the checks to try; empty = all."""

    bmc: RedfishBmc
    address: str
    chosen: frozenset[str] = frozenset()
    _given_up: str = ""
    _facts: readings.Facts | None = None

    async def read(self) -> ConformanceReport:
        """Try the checks that only read, and leave the BMC's session open."""
        found = [await self._probe(check, probe) for check, probe in _PROBES]
        found += await self._readings()
        found += [CheckOutcome(check, CheckResult.NOT_TRIED, "needs --allow-writes") for check in WRITE_CHECKS]
        return self._report(found)

    async def write(self, report: ConformanceReport, consent: WriteConsent) -> ConformanceReport:
        """Try the checks that write, where a person has consented, after those that read."""
        bench = None
        if self._facts is not None and self._facts.inventory.abilities is not None:
            bench = writes.WriteBench(
                self.bmc, consent.serial, self._facts.inventory.abilities, consent.bios, consent.poll_s
            )
        tried = {check.name: await self._write(check, probe, bench, consent) for check, probe in writes.WRITES}
        return self._report([tried.get(one.check.name, one) for one in report.outcomes])

    @property
    def serial(self) -> str | None:
        """The serial number that the BMC gave; None where it gave none, and nothing may be written."""
        return None if self._facts is None else self._facts.hot.serial

    def _report(self, found: Sequence[CheckOutcome]) -> ConformanceReport:
        about = {}
        if self._facts is not None:
            hot, manager = self._facts.hot, self._facts.inventory.manager
            given = {"manufacturer": hot.manufacturer, "model": hot.model, "serial": hot.serial}
            given |= {"manager": manager.firmware if manager else None}
            about = {name: value for name, value in given.items() if value}
        kept = tuple(one for one in found if not self.chosen or one.check.name in self.chosen)
        return ConformanceReport("redfish", self.address, kept, about)

    async def _probe(self, check: Check, probe: protocol.Probe) -> CheckOutcome:
        if self._given_up:
            return CheckOutcome(check, CheckResult.NOT_TRIED, self._given_up)
        if self.chosen and check.name not in self.chosen:
            return CheckOutcome(check, CheckResult.NOT_TRIED)
        return await self._judged(check, lambda: self.bmc.ask(partial(_caught, probe)))

    async def _judged(self, check: Check, attempt: Callable[[], Awaitable[str | Exception]]) -> CheckOutcome:
        """Return what became of an attempt, which returns what it saw or what it raised."""
        try:
            seen = await attempt()
        except DriverError as error:
            seen = error
        if isinstance(seen, str):
            return CheckOutcome(check, CheckResult.PASS, seen)
        if isinstance(seen, Unknown):
            return CheckOutcome(check, CheckResult.NOT_OFFERED, str(seen))
        detail = seen.detail if isinstance(seen, DriverError) else str(seen)
        if _ends_all(check, seen):
            self._given_up = f"after {check.name}: {detail}"
        return CheckOutcome(check, CheckResult.FAIL, detail)

    async def _readings(self) -> list[CheckOutcome]:
        if not self._given_up:
            hot, inventory = await self.bmc.hot(), await self.bmc.inventory()
            if isinstance(hot, Answered) and isinstance(inventory, Answered):
                try:
                    self._facts = await self.bmc.ask(partial(readings.facts_of, hot.value, inventory.value))
                except DriverError as error:
                    self._given_up = error.detail
            else:
                silent = hot if isinstance(hot, Silent) else inventory
                self._given_up = silent.detail if isinstance(silent, Silent) else ""
        if self._facts is not None:
            return readings.judge(self._facts)
        return [CheckOutcome(check, CheckResult.NOT_TRIED, self._given_up) for check in _READ_CHECKS]

    async def _write(
        self, check: Check, probe: writes.WriteProbe, bench: writes.WriteBench | None, consent: WriteConsent
    ) -> CheckOutcome:
        if check.name not in consent.names:
            return CheckOutcome(check, CheckResult.NOT_TRIED, "not consented to")
        if self._given_up or bench is None:
            return CheckOutcome(check, CheckResult.NOT_TRIED, self._given_up or "its abilities were not read")
        try:
            return await self._judged(check, lambda: _caught_write(probe, bench))
        except writes.NotTried as why:
            return CheckOutcome(check, CheckResult.NOT_TRIED, str(why))


def _ends_all(check: Check, seen: Exception) -> bool:
    """Say whether no check after this one may be tried.

    After a write that failed nobody knows what the machine has, and a later check might put it into force.
    """
    if check.writes:
        return isinstance(seen, writes.NotPutBack | DriverError)
    return isinstance(seen, DriverError) and not isinstance(seen, HttpError) and seen.kind not in _GOES_ON


def _caught(probe: protocol.Probe, tree: Tree) -> str | Exception:
    """Run a probe in the driver's thread; what is about one resource must not count against the BMC."""
    try:
        return probe(tree)
    except (Unknown, protocol.Broken, HttpError) as error:
        return error


async def _caught_write(probe: writes.WriteProbe, bench: writes.WriteBench) -> str | Exception:
    try:
        return await probe(bench)
    except (Unknown, protocol.Broken, writes.NotPutBack) as error:
        return error
