"""`dcgmi diag -r N -j` (acceptance 1.1): every expected GPU passes every test of the level.

DCGM 4 renamed the root of its document, and leaves out what did not run; 3.x lists it as skipped. Exit status and
document must agree. Warnings of severity CONFIG (persistence mode and the like) are drift of the host, not hardware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reconciler.gate.tools.common import Sheet, Tool, expected_gpus, find_document, killed, rows
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("3.3", "4")
CONFIG = 5  # error_severity: 1 MONITOR, 2 ISOLATE, 3 UNKNOWN, 4 TRIAGE, 5 CONFIG, 6 RESET
_LEVELS: dict[int, frozenset[str]] = {}
_ADDED = {
    1: {"software"},
    2: {"memory", "pcie"},
    3: {"diagnostic", "memory_bandwidth", "targeted_stress", "targeted_power"},
    4: {"memtest", "pulse_test"},
}
for _level, _names in _ADDED.items():
    _LEVELS[_level] = frozenset(_names) | _LEVELS.get(_level - 1, frozenset())
# 3.x splits the software test in many; any of these stands for it. The other names differ in spelling alone.
_SOFTWARE_3 = frozenset({"denylist", "nvml_library", "cuda_main_library"})


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    level = test.args.get("level", 2)
    if level not in _LEVELS:
        return f"level {level!r} is none of {sorted(_LEVELS)}"
    return (("dcgmi", "diag", "-r", str(level), "-j"),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    sheet = Sheet()
    output = outputs[0]
    if killed(sheet, output):
        return sheet.result(test, outputs)
    document = find_document(output.stdout)
    root = _root(document)
    if document is None or root is None:
        sheet.error(f"no DCGM document in the output (exit status {output.exit_status})")
        return sheet.result(test, outputs)
    sheet.version = _version(document, root)
    sheet.check_version(test, KNOWN)
    if root.get("runtime_error"):
        sheet.error(f"DCGM could not run: {root['runtime_error']}")
    gpus = expected_gpus(sheet, desired)
    if gpus is not None:
        _judge_tests(sheet, test, root, gpus)
    if not sheet.reasons and output.exit_status != 0:
        sheet.error(f"every test passed, and yet the exit status is {output.exit_status}")
    return sheet.result(test, outputs)


def _root(document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    for key in ("DCGM Diagnostic", "DCGM GPU Diagnostic"):
        root = (document or {}).get(key)
        if isinstance(root, Mapping):
            return root
    return None


def _version(document: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    for place in (metadata if isinstance(metadata, Mapping) else {}, root):
        for key in ("version", "DCGM Version", "Version"):
            if isinstance(place.get(key), str):
                return str(place[key])
    return ""


def _judge_tests(sheet: Sheet, test: GateTest, root: Mapping[str, Any], gpus: int) -> None:
    wanted = _LEVELS[int(test.args.get("level", 2))]
    everyone = frozenset(range(gpus))
    passed: dict[str, frozenset[int]] = {}
    for category in rows(root.get("test_categories")):
        for found in rows(category.get("tests")):
            name = _name(found.get("name"))
            passed[name] = passed.get(name, frozenset()) | _judge_results(sheet, test, name, found)
    for name in sorted(wanted):
        ok = _passed_by(name, passed)
        if ok is None:
            if name not in test.allow_skip:
                sheet.unjudged(f"{name} did not run")
        elif missing := sorted(everyone - ok):
            if name not in test.allow_skip and not sheet.reasons:
                sheet.unjudged(f"{name}: no pass for GPU {', '.join(map(str, missing))}")
        elif extra := sorted(ok - everyone):
            sheet.fail(f"{name}: GPU {', '.join(map(str, extra))} passed, and only {gpus} are declared")
        else:
            sheet.metrics[f"{name}.gpus"] = float(len(ok))


def _passed_by(name: str, passed: Mapping[str, frozenset[int]]) -> frozenset[int] | None:
    if name == "software" and name not in passed:
        parts = [passed[part] for part in _SOFTWARE_3 if part in passed]
        return frozenset.intersection(*parts) if len(parts) == len(_SOFTWARE_3) else None
    return passed.get(name)


def _name(text: Any) -> str:
    return str(text).strip().lower().replace(" ", "_").replace("-", "")


def _judge_results(sheet: Sheet, test: GateTest, name: str, found: Mapping[str, Any]) -> frozenset[int]:
    """GPUs that passed this test; what did not pass is noted."""
    passed: set[int] = set()
    for row in rows(found.get("results")):
        status = str(row.get("status", "")).strip().lower()
        ids = _gpu_ids(row)
        if status == "pass":
            passed |= ids
        elif status == "skip":
            if name not in test.allow_skip:
                sheet.unjudged(f"{name}: skipped")
        else:
            _note_failure(sheet, name, status, row, ids)
    return frozenset(passed)


def _gpu_ids(row: Mapping[str, Any]) -> frozenset[int]:
    if "entity_id" in row:
        group = str(row.get("entity_group", "GPU")).upper()
        return frozenset({row["entity_id"]}) if group == "GPU" and isinstance(row["entity_id"], int) else frozenset()
    ids = row.get("gpu_ids")
    if isinstance(ids, int):
        return frozenset({ids})
    if isinstance(ids, str):
        return frozenset(int(part) for part in ids.split(",") if part.strip().isdecimal())
    return frozenset()  # 3.x names no GPU for some software tests: then nobody can say whom they speak for


def _note_failure(sheet: Sheet, name: str, status: str, row: Mapping[str, Any], ids: frozenset[int]) -> None:
    warnings = row.get("warnings")
    severities = [w.get("error_severity") for w in rows(warnings)]
    texts = [str(w.get("warning", "")) for w in rows(warnings)] or [str(warnings or "")]
    where = f"GPU {', '.join(map(str, sorted(ids)))}" if ids else "no GPU named"
    text = f"{name}: {status or 'no status'} ({where}) {texts[0]}".strip()
    if status not in ("fail", "warn"):
        sheet.unjudged(text)
    elif severities and all(severity == CONFIG for severity in severities):
        sheet.unjudged(f"{text} [configuration: mend the host and run again]")
    else:
        sheet.fail(text)  # an absent severity fails closed


TOOL = Tool(_commands, _judge)
