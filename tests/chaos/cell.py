"""One cell of the matrix: kill the reconciler at a point, start it again, and check the node against rules."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from reconciler.cli.exit_codes import ExitCode
from reconciler.model.records import MARK_TAINT, OWNER_ANNOTATION, JournalEntry
from tests.chaos.cases import DESTRUCTIVE, Case
from tests.chaos.outages import BMC_AWAY, DATABASE_AWAY, KILLED, POSTGRESQL_AWAY
from tests.chaos.target_process import AFTER, BEFORE_INTENT, BEFORE_OUTCOME, DURING, POINTS, FaultPoint
from tests.chaos.world import PATIENCE, Bench
from tests.cli.shell import reconciler

RUNS = 4  # after the kill; a node that has not converged by then counts as failed
_FIRST_EJECT = 2  # the number of the first eject_media among the writes of a reimage; the other comes at its end
# Actions after which the node's certificate is no longer valid.
_CHANGES = frozenset({"reimage", "update_firmware", "reset_bmc", "soft_restart", "power_cycle"})


@dataclass(frozen=True)
class Cell:
    """A kill or an outage at a point of an action. `write`: the write at that point; `times`: runs killed there."""

    case: Case
    point: str
    call: int = 0
    write: str = ""
    times: int = 1
    column: str = KILLED

    @property
    def where(self) -> str:
        return f"{self.point} {self.call}" if self.call else self.point

    @property
    def name(self) -> str:
        column = "" if self.column == KILLED else f" / {self.column}"
        return f"{self.case.name} / {self.where}" + (f" x{self.times}" if self.times > 1 else "") + column

    @property
    def slack(self) -> Mapping[str, int]:
        """Return how much more often than in an undisturbed run power may change and the machine may boot.

        The next run boots a machine that the dead run left off, to read its disk before wiping it. An installer asks
        for its document for five minutes; if the next run starts later, the installer has given up without writing,
        so the machine is power cycled to be read, and boots the installer again.
        """
        if self.case.action != "reimage" or self.point not in (DURING, AFTER):
            return {}
        most = {"power graceful_off": 1, "insert_media": 1, "boot_once cd": 1, "power on": 2}
        more = most.get(self.write, 1 if self.call == _FIRST_EJECT else 0)
        return {"power_cycles": more, "boots": more}

    def fault_point(self, log: Path | None = None) -> FaultPoint:
        return FaultPoint(
            self.point, self.case.action, self.case.target, self.call, "" if log is None else str(log), self.column
        )


@dataclass(frozen=True)
class Result:
    cell: Cell
    broke: tuple[str, ...]
    counters: Mapping[str, int]
    runs: int  # after the kill
    seconds: float
    told: tuple[str, ...] = field(default=(), repr=False)  # output of the runs


def play(cell: Cell, bench: Bench) -> Result:
    began = time.monotonic()
    told: list[str] = []
    broke = list(_kill(cell, bench, told))
    runs = 0
    if not broke:
        runs, left = _restart(bench, told)
        broke += left or violations_of(cell.case, bench, cell.slack)
    counters = _counters(bench)
    (bench.place / "told.txt").write_text("\n".join(told))
    return Result(cell, tuple(broke), counters, runs, time.monotonic() - began, tuple(told))


def _counters(bench: Bench) -> dict[str, int]:
    found = bench.machine["counters"]
    return {name: found[name] for name in DESTRUCTIVE}


def _kill(cell: Cell, bench: Bench, told: list[str]) -> Iterator[str]:
    log = None if cell.column == KILLED else bench.place / "writes.txt"
    for kill in range(cell.times):
        for _ in range(PATIENCE):
            done = bench.run_target(cell.fault_point(log), bench.plan()[0])
            if done.code != ExitCode.INCOMPLETE or log is not None:
                break
        told.append(f"--- the target process, exit {done.code}\n{done.err}")
        if log is not None:
            if not (log.exists() and "triggered" in log.read_text().splitlines()):
                yield f"the point was not reached: exit {done.code}"
            else:
                yield from _served_too_early(bench)
            if cell.column in (DATABASE_AWAY, POSTGRESQL_AWAY):  # the run may not have been able to release its lease
                bench.release_lease()
            return  # the run has ended by itself
        if done.code != -signal.SIGKILL:
            if kill == 0:
                yield f"the point was not reached: exit {done.code}"
            return  # its action has ended, so it can't be killed there again
        yield from _served_too_early(bench)
        bench.release_lease()


def _restart(bench: Bench, told: list[str]) -> tuple[int, list[str]]:
    """Return (number of runs, remaining drift). The first run applies the dead run's plan, later ones a new plan."""
    plan, blind = bench.place / "plan.json", 0
    codes: list[str] = []
    while len(codes) < RUNS:
        done = bench.apply(plan)
        if done.code == ExitCode.INCOMPLETE and (blind := blind + 1) < PATIENCE:
            continue
        codes.append(str(done.code))
        told.append(f"--- run {len(codes)} after it, exit {done.code}\n{done.err}")
        plan, code = bench.plan()
        if code == ExitCode.DONE:  # --detailed-exitcode: nothing is left to do, or unknown
            return len(codes), []
    nodes = json.loads(plan.read_text())["nodes"].values()
    items = [f"{item['path']} {item['kind']}" for node in nodes for item in node["drift"]]
    items += [f"blocked: {node['blocked']['detail']}" for node in nodes if node.get("blocked")]
    return RUNS, [f"not converged after {RUNS} runs (exit {', '.join(codes)}): {'; '.join(items)}"]


def _served_too_early(bench: Bench) -> Iterator[str]:
    """Yield a violation if the node is in service now without a certificate after its latest change."""
    if _marked(bench) or not bench.member or bench.member["unschedulable"]:
        return
    with bench.ledger() as ledger:
        events = ledger.history(bench.node, 1000)
    if any(_is_change(entry) for entry in events) and not _accepted(events):
        yield "it is dead, and the node serves without having passed its gate"


def _is_change(entry: JournalEntry) -> bool:
    return entry.event in ("intent", "resume") and entry.action.split(":")[0] in _CHANGES


def _accepted(events: list[JournalEntry] | Any) -> bool:
    """Tell whether a certificate came after the latest change."""
    latest = max((at for at, entry in enumerate(events) if _is_change(entry)), default=-1)
    return any(entry.event == "certificate" for entry in events[latest + 1 :])


def _marked(bench: Bench) -> bool:
    member = bench.member
    taints = [taint["key"] for taint in member.get("taints", ())]
    return MARK_TAINT in taints or OWNER_ANNOTATION in member.get("annotations", {})


def violations_of(case: Case, bench: Bench, slack: Mapping[str, int] = MappingProxyType({})) -> list[str]:
    """Return the violations of a converged node."""
    return [
        *_of_the_machine(case, bench, slack),
        *_of_the_member(bench),
        *_of_the_ledger(bench),
        *_of_the_journal(bench),
    ]


def _of_the_machine(case: Case, bench: Bench, slack: Mapping[str, int]) -> Iterator[str]:
    for name, count in _counters(bench).items():
        at_most = case.counters[name] + slack.get(name, 0)
        if not case.counters[name] <= count <= at_most:
            yield f"{name}: {count}, not {case.counters[name]}" + (f" to {at_most}" if slack else "")
    machine = bench.machine
    left = {name: machine[name] for name in ("media", "pending_bios", "pending_secure_boot") if machine[name]}
    if left:
        yield f"the BMC is left with {left}"
    if machine["boot_override_enabled"] != "Disabled":
        yield f"a boot override is left: {machine['boot_override']}"
    waiting = [name for name, item in machine["firmware"].items() if item["staged"]]
    if waiting:
        yield f"firmware is left staged: {', '.join(waiting)}"


def _of_the_member(bench: Bench) -> Iterator[str]:
    if _marked(bench):
        yield "the mark is leaked"
    if not bench.member:
        yield "the node has left its cluster"
    elif bench.member["unschedulable"]:
        yield "the cordon is leaked"


def _of_the_ledger(bench: Bench) -> Iterator[str]:
    with bench.ledger() as ledger:
        unfinished, events = ledger.unfinished(), ledger.history(bench.node, 1000)
        record = ledger.node(bench.node)
    if unfinished:
        yield f"intents without an outcome: {[(action, target) for _, _, action, target, _ in unfinished]}"
    if record.malformed:
        yield f"its record is malformed: {record.malformed}"
    if record.certificate is None or not _accepted(events):
        yield "it serves without a certificate of what it is now"
    for at, entry in enumerate(events):
        if entry.action == "admit" and entry.event in ("intent", "resume") and not _accepted(events[:at]):
            yield "it was admitted before it had passed its gate"


def _of_the_journal(bench: Bench) -> Iterator[str]:
    verified = reconciler("audit", "verify", *bench.where)
    if verified.code != 0:
        yield f"audit verify: exit {verified.code}: {verified.err or verified.out}"


# --- which cells there are -------------------------------------------------------------------------------------------


def reference(case: Case, bench: Bench) -> tuple[list[str], list[str]]:
    """Return (writes of the case's action in an undisturbed run, violations of that run)."""
    log = bench.place / "writes.txt"
    for _ in range(PATIENCE):
        log.unlink(missing_ok=True)
        done = bench.run_target(FaultPoint(log=str(log)), bench.plan()[0])
        if done.code != ExitCode.INCOMPLETE:
            break
    (bench.place / "told.txt").write_text(done.err)
    lines = log.read_text().splitlines() if log.exists() else []
    wanted = f"{case.action}:{case.target}" if case.target else case.action
    if done.code != 0 or wanted not in lines:
        return [], [f"an undisturbed run: exit {done.code}, " + (", ".join(lines) or done.err[-500:])]
    writes = []
    for line in lines[lines.index(wanted) + 1 :]:
        if not line.startswith(" "):
            break
        writes.append(line.strip())
    return writes, violations_of(case, bench)


def applies_to(column: str, case: Case) -> bool:
    """Tell whether a column applies to a case. A BMC outage applies only to flashes, where the read-back is lost."""
    return column != BMC_AWAY or case.action == "update_firmware"


def cells_of(case: Case, writes: list[str], column: str = KILLED) -> list[Cell]:
    """Return the points at which a kill leaves a different state, or at which a surviving run meets an outage.

    Of many equal writes only the first and the last count.
    """
    if column != KILLED:
        return [replace(cell, column=column) for cell in _outages(case, writes)] if applies_to(column, case) else []
    before, after_intent, _, _, before_outcome = POINTS
    found = [Cell(case, before), Cell(case, after_intent)]
    for at, write in enumerate(writes, start=1):
        kin = [number for number, other in enumerate(writes, start=1) if _kind(other) == _kind(write)]
        if at in (kin[0], kin[-1]):
            found += [Cell(case, DURING, at, write), Cell(case, AFTER, at, write)]
    found.append(Cell(case, before_outcome))
    if case.action in _CHANGES:
        found.append(Cell(case, before_outcome, times=2))
    return found


def _outages(case: Case, writes: list[str]) -> Iterator[Cell]:
    """Yield the points of an outage, which the run survives and whose next steps meet it.

    Each kind of step meets it once: the intent, the first write and its answer, the last one and its answer, the
    read-back, the outcome.
    """
    yield Cell(case, BEFORE_INTENT)
    for at in sorted({1, len(writes)} if writes else ()):
        yield Cell(case, DURING, at, writes[at - 1])
    if writes:
        yield Cell(case, AFTER, len(writes), writes[-1])
    yield Cell(case, BEFORE_OUTCOME)


def _kind(write: str) -> str:
    """Return the kind of a write: `power on` and `power graceful_off` differ, two benchmarks do not."""
    return write if write.startswith("power") else " ".join(write.split()[:2])


def as_json(result: Result) -> str:
    return json.dumps({
        "case": result.cell.case.name, "point": result.cell.where, "write": result.cell.write,
        "times": result.cell.times, "broke": result.broke, "counters": result.counters, "runs": result.runs,
        "seconds": round(result.seconds, 1), "column": result.cell.column,
    })  # fmt: skip
