"""Reports of searches of the fabric: each fleet has its own, the journal binds them, and a damaged one is told."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from reconciler.model.errors import LedgerError
from reconciler.model.fabric_report import FABRIC_FORMAT, FabricReport

AT = datetime(2026, 11, 1, tzinfo=UTC)
FIRST = FabricReport(FABRIC_FORMAT, "run-1", "a", "rails", ("n1",), {}, (), (), ("n1",), {}, (), (), 3, AT, AT)


def test_each_fleet_has_its_own_searches(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    one, other, every = SqlLedger(file, fleet="a"), SqlLedger(file, fleet="b"), SqlLedger(file)
    assert (one.last_search(), one.last_searches(3)) == (None, [])
    second = replace(FIRST, run="run-2", fleet="b")
    assert one.save_search(FIRST, "told") < other.save_search(second, "told")
    assert (one.last_search(), other.last_search(), every.last_search()) == (FIRST, second, second)
    assert (one.search("run-2"), other.search("run-2")) == (None, second)
    third = replace(FIRST, run="run-3")
    one.save_search(third, "told")
    assert one.last_search() == third, "what another process saved since is found, too"
    assert (one.last_searches(3), every.last_searches(2)) == (["run-3", "run-1"], ["run-3", "run-2"])
    assert every.audit().problem == ""
    for ledger in (one, other, every):
        ledger.close()


def test_a_damaged_report_stops_no_pass_and_is_told_to_who_asks_for_it(tmp_path: Path) -> None:
    file = tmp_path / "ledger.sqlite"
    ledger = SqlLedger(file, fleet="a")
    row = ledger.save_search(FIRST, "told")
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE journal SET data = '{' WHERE event = 'search'")
    assert ledger.last_search() is None
    with pytest.raises(LedgerError, match="damaged search run-1"):
        ledger.search("run-1")
    assert (ledger.audit().problem, ledger.audit().row) == ("changed", row)
    ledger.close()
