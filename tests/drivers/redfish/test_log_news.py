"""A look at a BMC's log between two inventories: no new sign is missed, and a BMC that is well is asked for little."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from http import HTTPStatus
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.drivers.redfish import RedfishBmc
from reconciler.drivers.redfish.failures import HttpError
from reconciler.drivers.redfish.fields import Unknown
from reconciler.drivers.redfish.log_news import LOOK, READ, LogNews
from reconciler.drivers.redfish.logs import read_log
from reconciler.drivers.redfish.session import ROOT, Resource, Session
from reconciler.drivers.redfish.tree import Tree
from reconciler.model.errors import DriverError, Failure
from reconciler.model.observed import Answered, BmcEvent
from tests.drivers.redfish.bench import NOW, Bench, machine, play
from tests.drivers.redfish.test_logs import ENTRIES, SEL
from tests.drivers.redfish.test_reads import inventory

ILL, WELL = "Critical", "OK"


@dataclass
class Log:
    """A BMC, as a session with it shows it. `top`: what it does with $top; `holds`: entries until the log wraps."""

    newest_first: bool = False
    links_only: bool = False
    top: str = "honours"  # refuses | ignores
    counts: bool | str = True  # or "shown": it counts what it shows
    holds: int = 6
    clock: bool = True
    now: Any = NOW
    entries: list[dict[str, Any]] = field(default_factory=list)
    gets: list[str] = field(default_factory=list)
    number: int = 0
    documents: dict[str, Any] = field(default_factory=lambda: machine().documents)

    def add(self, severity: str) -> None:
        self.number += 1
        at = f"{self.now:%Y-%m-%dT%H:%M:%SZ}" if self.clock else "1970-01-01T00:00:00Z"
        one = {"@odata.id": f"{ENTRIES}/{self.number}", "Id": str(self.number), "Created": at, "Severity": severity}
        self.entries = [*self.entries, one | {"Message": "Memory error"}][-self.holds :]

    def clear(self) -> None:
        self.entries, self.number = [], self.number if self.links_only else 0  # a list of links shows no dates

    # --- the session ---

    def root(self) -> Any:
        return self.documents[ROOT]

    def get(self, where: str) -> Resource:
        self.gets.append(where)
        path, _, query = where.partition("?")
        if path.startswith(f"{ENTRIES}/"):
            return Resource(path, next(one for one in self.entries if one["@odata.id"] == path))
        if path != ENTRIES:
            return Resource(path, self.documents[path])
        if "$top" in query and self.top == "refuses":
            raise HttpError(Failure.UNSUPPORTED, "$top", status=HTTPStatus.NOT_IMPLEMENTED, messages=())
        shown = self.entries[::-1] if self.newest_first else self.entries
        shown = shown[:1] if "$top" in query and self.top == "honours" else shown
        links = [{"@odata.id": one["@odata.id"]} for one in shown]
        body: dict[str, Any] = {"Members": links if self.links_only else shown}
        count = len(shown) if self.counts == "shown" else len(self.entries)
        return Resource(path, body | ({"Members@odata.count": count} if self.counts else {}))

    @property
    def tree(self) -> Tree:
        self.documents[ROOT]["ProtocolFeaturesSupported"] = {}
        return Tree(cast(Session, self), cast(Any, None))

    def told(self) -> tuple[BmcEvent, ...]:
        return read_log(self.tree, self.tree.system().body, {})[0]


steps = st.lists(st.lists(st.sampled_from([ILL, WELL, "clear"]), max_size=8), max_size=5)
logs = st.builds(
    Log,
    newest_first=st.booleans(),
    links_only=st.booleans(),
    top=st.sampled_from(["honours", "refuses", "ignores"]),
    counts=st.sampled_from([True, False, "shown"]),  # the standard asks for the count of all
    holds=st.integers(1, 6),
)


@given(logs, steps)
def test_a_sign_that_comes_is_told_however_the_log_lists_it_wraps_or_is_cleared(
    log: Log, between: list[list[str]]
) -> None:
    """And what is no sign is not, so that a BMC which logs our logins is not asked for its inventory."""
    news, told = LogNews(log.tree), log.told()
    for what in between:
        log.now += READ
        came: list[str] = []
        for one in what:
            log.now += timedelta(seconds=1)
            if one == "clear":
                log.clear()
                came = []
            else:
                log.add(one)
                came.append(one)
        assert news.since(told, log.now) is (ILL in came[-log.holds :])
        told = log.told()
        log.now += LOOK
        news.since(told, log.now)
        log.now += LOOK
        log.gets.clear()
        assert news.since(told, log.now) is False
        asked = [where for where in log.gets if where.startswith(ENTRIES)]
        assert log.gets == asked, "the way to the log is known"
        few = 1 if len(log.entries) != 1 else 2  # with a count of one, who knows what was counted
        assert len(asked) <= few or ILL in came, asked


def test_a_log_is_looked_at_each_five_minutes_and_read_each_fifteen() -> None:
    """A BMC that logs each of our requests is asked for two looks and a reading in 15 minutes (A12)."""
    log = Log(holds=1000, links_only=True)
    news = LogNews(log.tree)
    looks = reads = 0
    for _ in range(60):
        log.now += timedelta(minutes=1)
        log.add(WELL)
        log.gets.clear()
        assert not news.since((), log.now)
        looks += bool(log.gets)
        reads += any(where.startswith(f"{ENTRIES}/") for where in log.gets)
    assert (looks, reads) == (12, 4), "of 60 minutes"
    log.add(ILL)
    log.now += READ
    assert news.since((), log.now)
    log.now -= timedelta(days=1)  # the clock is set back
    log.gets.clear()
    assert news.since((), log.now)
    assert log.gets


def test_a_log_that_was_cleared_shows_the_same_entry_again_though_the_bmc_has_no_clock() -> None:
    log = Log(clock=False)
    for severity in (ILL, WELL, WELL):
        log.add(severity)
    news, told = LogNews(log.tree), log.told()
    assert not news.since(told, log.now)
    log.clear()
    log.add(ILL)
    log.now += READ
    assert news.since(told, log.now)


def test_a_log_that_drops_its_oldest_entries_by_and_by_has_no_news() -> None:
    log = Log()
    for severity in (WELL, WELL, ILL):
        log.add(severity)
    news, told = LogNews(log.tree), log.told()
    assert not news.since(told, log.now)
    for _ in range(2):
        log.now += READ
        del log.entries[0]
        assert not news.since(told, log.now)
    log.now += READ
    log.add(ILL)
    del log.entries[0]
    assert news.since(told, log.now)


def test_a_log_that_is_gone_is_looked_up_again() -> None:
    log = Log()
    news = LogNews(log.tree)
    assert not news.since((), log.now)
    other = "/redfish/v1/Systems/1/LogServices/SEL/Records"
    moved: Callable[[str], Resource] = log.get
    log.documents[SEL] = log.documents[SEL] | {"Entries": {"@odata.id": other}}

    def get(where: str) -> Resource:
        if where.startswith(ENTRIES):
            raise HttpError(Failure.UNSUPPORTED, "gone", status=404, messages=())
        log.add(ILL) if where.startswith(other) and not log.entries else None
        return moved(where.replace(other, ENTRIES))

    log.get = get  # type: ignore[method-assign]
    log.now += READ
    with pytest.raises((DriverError, Unknown)):
        news.since((), log.now)
    log.now += LOOK
    assert news.since((), log.now)


def test_a_bmc_tells_its_news_over_http_and_one_without_a_log_has_none() -> None:
    async def steps(bench: Bench, bmc: RedfishBmc) -> None:
        bench.documents[ROOT]["ProtocolFeaturesSupported"] = {}
        bench.documents[ENTRIES] = {"Members": []}
        assert (await inventory(bmc)).events == ()
        entry = {"@odata.id": f"{ENTRIES}/1", "Id": "1", "Severity": ILL, "Message": "Uncorrectable ECC @ DIMM7"}
        bench.documents[ENTRIES] = {"Members": [entry]}
        found = await bmc.log_news(())
        assert isinstance(found, Answered)
        assert found.value is True

    async def without(bench: Bench, bmc: RedfishBmc) -> None:
        bench.answer("GET", "/redfish/v1/Systems/1/LogServices", 404, forever=True)
        found = await bmc.log_news(())
        assert isinstance(found, Answered)
        assert found.value is False

    play(machine(), steps)
    play(machine(), without)
