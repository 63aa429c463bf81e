"""The files between two commands: an observation as a document, and the ledger's records.

Run as a module, this is the measured process: `python -m tests.bench.documents write|read|records STORE` prints JSON.
"""

from __future__ import annotations

import json
import sqlite3
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import measure
from tests.bench.report import Table
from tests.bench.scale import stored_fleet

_WORK = {
    "write": ("write an observation", "floor: json.dumps of its values"),
    "read": ("read an observation", "floor: json.loads"),
    "records": ("read all records of the ledger", "floor: sqlite3, the same rows"),
}


def section(sizes: Sequence[int]) -> list[Table]:
    found = [_of_size(size) for size in sizes]
    rows: list[tuple[str | float | None, ...]] = []
    for work, (ours, floor) in _WORK.items():
        largest = found[-1][work]
        rows.append((ours, *_cells(found, work, "ours"), None))
        rows.append((f"  {floor}", *_cells(found, work, "floor"), largest["ours"] / largest["floor"]))
    mib: list[tuple[str | float, ...]] = [
        ("the observation's file", *_cells(found, "write", "size")),
        ("held before writing: the observation", *_cells(found, "write", "before")),
    ]
    for work, (ours, _) in _WORK.items():
        mib.append((f"peak: {ours}", *_cells(found, work, "peak")))
    columns = ("nodes", *(f"{size:,}" for size in sizes))
    return [
        Table("Documents and ledger: seconds of CPU", (*columns, "ours/this"), rows),
        Table("Documents and ledger: MiB, each in a fresh process", columns, mib),
    ]


def _cells(found: Sequence[Any], work: str, what: str) -> list[float]:
    return [one[work][what] for one in found]


def _of_size(nodes: int) -> Any:
    with stored_fleet(nodes) as (_, store):
        _fill_ledger(store.parent)
        return {work: measure.in_fresh_process("tests.bench.documents", work, str(store.parent)) for work in _WORK}


def _fill_ledger(directory: Path) -> None:
    """Write a ledger in which every node was converged once and passed its gate."""
    from reconciler.drivers.ledger import SqlLedger
    from tests.bench.store import restore

    stored = restore(directory / "store")
    ledger, now = SqlLedger(directory / "ledger.sqlite"), stored.head.finished_at
    with ledger.batch():
        for record in stored.records.values():
            assert record.certificate is not None
            ledger.remember_identities({record.node: (record.serial, record.uuid)}, now)
            ledger.save_certificate(record.certificate)
            applied = {path: row.value for path, row in record.applied.items()}
            ledger.remember_applied(record.node, applied, "digest", "c0ffee", now)
    ledger.close()


# --- in the measured process -------------------------------------------------------------------------------


def write(directory: Path) -> dict[str, float]:
    from reconciler.model.documents import adapter, dump
    from reconciler.model.observed import Observation
    from tests.bench.store import restore

    observation = restore(directory / "store").some_drifted()
    before = measure.rss_mib()
    with measure.spending() as ours:
        text = dump(observation)
    peak = measure.peak_mib()
    (directory / "observation.json").write_text(text, encoding="utf-8")
    values = adapter(Observation).dump_python(observation, mode="json")
    with measure.spending() as floor:
        json.dumps(values)
    size = len(text.encode()) / 2**20
    return {"ours": ours.cpu, "floor": floor.cpu, "before": before, "peak": peak, "size": size}


def read(directory: Path) -> dict[str, float]:
    from reconciler.model.documents import load
    from reconciler.model.observed import Observation

    file = directory / "observation.json"
    with measure.spending() as ours:
        load(Observation, file.read_bytes())
    peak = measure.peak_mib()
    with measure.spending() as floor:
        json.loads(file.read_bytes())
    return {"ours": ours.cpu, "floor": floor.cpu, "peak": peak}


def records(directory: Path) -> dict[str, float]:
    from reconciler.drivers.ledger import SqlLedger

    file = directory / "ledger.sqlite"
    connection = sqlite3.connect(file)
    names = [name for (name,) in connection.execute("select node from nodes")]
    ledger = SqlLedger(file)
    with measure.spending() as ours:
        assert len(ledger.nodes(names)) == len(names)
    peak = measure.peak_mib()
    ledger.close()
    with measure.spending() as floor:
        for table in ("nodes", "certificates", "applied"):
            connection.execute(f"select * from {table}").fetchall()
    connection.close()
    return {"ours": ours.cpu, "floor": floor.cpu, "peak": peak}


if __name__ == "__main__":
    json.dump({"write": write, "read": read, "records": records}[sys.argv[1]](Path(sys.argv[2])), sys.stdout)
