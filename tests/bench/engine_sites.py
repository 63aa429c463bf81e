"""Two labs as two sites, read by workers of an engine: what they read a second, and what that costs.

Each lab, the scheduler, each worker and the leader are processes of one machine.
"""

from __future__ import annotations

import csv
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.bench import measure
from tests.bench.report import Table
from tests.engine.world import Engine, make_certificates, running_engine

SITES = ("fra", "ams")
GOAL_OVERHEAD, GOAL_SHARD_MS = 0.10, 20
# CPU is measured: where labs, workers and others share few cores, fewer nodes at once answer in time.
_PATIENT = "{concurrency: 8, deadlines: {redfish: 5m, ssh: 5m}}"
_WHO = ("leader", "workers", "scheduler")


def section(nodes: int, workers: tuple[int, ...]) -> list[Table]:
    """`workers`: numbers of them over both sites."""
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch, ExitStack() as closing:
        home = Path(scratch)
        sites = closing.enter_context(two_labs(home, nodes))
        tls = make_certificates(home / "tls")
        rows = []
        for many in (0, *workers):
            with ExitStack() as stack:
                engine = stack.enter_context(_engine(home, tls, sites, many)) if many else None
                found = _measured(home, engine)
            read = nodes if engine else nodes // len(SITES)
            rows += [(f"{many} workers" if many else "in process", *_row(found, read, one)) for one in ("first", "hot")]
    columns = ("unread", "leader ms/shard", "bytes/node", *(f"{who} ms/node" for who in _WHO), "all ms/node")
    columns += ("leader MiB", "workers MiB")
    return [
        Table(
            f"Two sites of {nodes // 2:,} nodes on the wire, read in process, and by workers of an engine",
            ("by", "pass", "seconds", "nodes/s", *columns),
            rows,
            (
                f"goals: all {GOAL_OVERHEAD:.0%} over in process at most; leader {GOAL_SHARD_MS} ms a shard at most",
                "hot: the mean of two passes. Labs, workers and leader share the cores of this machine",
                f"in process: {SITES[0]} alone, as no process but a site's own has its secrets. MiB: at the peak",
                "unread: readings that met their deadline in one of the passes, on a machine that is busy",
            ),
        )
    ]


@contextmanager
def two_labs(home: Path, nodes: int) -> Iterator[Mapping[str, Path]]:
    """Run a lab for each site, with secrets of its own. Yield the endpoints of each.

    `home` then has the spec and the endpoints of both, and `alone-SITE` those of one.
    """
    from reconciler.lab.process import lab_process
    from tests.bench.fleets import write_spec

    spec = write_spec(home / "fleet-spec", nodes)
    settings = spec / "fleet.yaml"
    settings.write_text(settings.read_text().replace("\nspec:\n", f"\nspec:\n  observation: {_PATIENT}\n", 1))
    rows = {path: list(csv.DictReader(path.open(encoding="utf-8"))) for path in sorted((spec / "pools").glob("*.csv"))}
    found: dict[str, Path] = {}
    with ExitStack() as closing:
        for at, site in enumerate(SITES):
            own = home / f"alone-{site}" / "fleet-spec"
            shutil.copytree(spec, own)
            for path, table in rows.items():
                _write(own / "pools" / path.name, table[at :: len(SITES)], site)
            lab = home / site
            closing.enter_context(lab_process(lab, "--spec", str(own), "--scenario", "clean", "--time-scale", "1"))
            found[site] = lab / "endpoints.json"
            (own.parent / "endpoints.json").write_text(json.dumps(_absolute(json.loads(found[site].read_text()), lab)))
        for path, table in rows.items():
            parts = [(row, SITES[number % len(SITES)]) for number, row in enumerate(table)]
            _write(path, [{**row, "domains.site": site} for row, site in parts])
        (home / "endpoints.json").write_text(json.dumps(_merged(found.values())))
        yield found


def _write(path: Path, rows: list[dict[str, str]], site: str = "") -> None:
    rows = [{**row, "domains.site": site} for row in rows] if site else rows
    with path.open("w", encoding="utf-8", newline="") as out:
        table = csv.DictWriter(out, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def _merged(files: Any) -> dict[str, Any]:
    """Return one endpoints document for both labs. Files that they name are found from anywhere."""
    merged: dict[str, Any] = {}
    for file in files:
        document = _absolute(json.loads(file.read_text()), file.parent)
        for key, value in document.items():
            merged[key] = {**merged.get(key, {}), **value} if isinstance(value, dict) else value
    return merged


def _absolute(value: Any, folder: Path) -> Any:
    if isinstance(value, dict):
        return {key: _absolute(entry, folder) for key, entry in value.items()}
    if isinstance(value, list):
        return [_absolute(entry, folder) for entry in value]
    is_file = isinstance(value, str) and value and not value.startswith("/") and (folder / value).exists()
    return str(folder / value) if is_file else value


@contextmanager
def _engine(home: Path, tls: Path, sites: Mapping[str, Path], many: int) -> Iterator[Engine]:
    with running_engine(home / f"engine-{many}", tls, home / "endpoints.json") as engine:
        for at in range(many):
            site = SITES[at % len(SITES)]
            engine.start_worker(f"w{at}", site, endpoints=sites[site])
        yield engine


def _measured(home: Path, engine: Engine | None) -> dict[str, Any]:
    words = [str(home if engine else home / f"alone-{SITES[0]}")]
    if engine is not None:
        words += [engine.url, str(engine.tls), *(str(process.pid) for process in engine.processes.values())]
    found: dict[str, Any] = measure.in_fresh_process("tests.bench.engine_passes", *words)
    return found


def _row(found: dict[str, Any], nodes: int, one: str) -> tuple[str | float | None, ...]:
    spent = found[one]
    parts = [1000 * spent[part] / nodes for part in _WHO]
    travelled = spent["bytes"] / nodes if spent["bytes"] else None
    shard_ms = 1000 * spent["leader"] / found["shards"]
    peaks = spent["mib"], spent["workers_mib"] or None
    return one, spent["wall"], nodes / spent["wall"], spent["unread"], shard_ms, travelled, *parts, sum(parts), *peaks
