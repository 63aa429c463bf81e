"""Judge `dcgmi diag -r N -j` (acceptance 1.1): every expected GPU must pass every test of the level.

DCGM 4 renamed the root of its document, and leaves out tests that did not run; 3.x lists them as skipped, and splits
the software test. The verdicts of rows, tests and the whole document must agree with each other and with the exit
status. A row that passes with a warning is no pass, as no warning is known to be harmless. Warnings of severity CONFIG,
such as persistence mode, are about the configuration of the host, not about hardware.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from reconciler.gate.evidence import DIAG_LEVEL, DIAG_LEVELS, GPU_COUNT
from reconciler.gate.tools.common import (
    ResultBuilder,
    Tool,
    count,
    expected_gpus,
    find_document,
    note_if_killed,
    rows,
    shown,
    word,
)
from reconciler.model.desired import Desired, GateTest
from reconciler.model.gate import CommandResult, TestResult
from reconciler.model.observed import Observed

KNOWN = ("3.3", "4")
# error_severity: 1 MONITOR, 2 ISOLATE, 3 UNKNOWN, 4 TRIAGE, 5 CONFIG, 6 RESET
CONFIG = 5
_HARDWARE = (2, 6)  # no workload may run on this GPU, according to DCGM
_CONFIGURATION = " [configuration: correct the host's settings and run the gate again]"
# Names of DCGM 3.3 (dcgmi/Diag.cpp) that differ from those of 4.x in more than spelling.
_RENAMED = {
    "gpu_memory": "memory",
    "permissions_and_osrelated_blocks": "permissions_and_os_blocks",
    "environmental_variables": "environment_variables",
}
_SOFTWARE_3 = frozenset(
    {
        "denylist", "nvml_library", "cuda_main_library", "permissions_and_os_blocks", "persistence_mode",
        "environment_variables", "page_retirement/row_remap", "graphics_processes", "inforom",
    }
)  # fmt: skip
_TROUBLE = ("Warning", "warnings", "warning", "error")  # keys in a document, a category or a test
_STATUS = ("status", "Overall Result")


def _commands(test: GateTest, desired: Desired, observed: Observed) -> tuple[tuple[str, ...], ...] | str:
    level = test.args.get("level", DIAG_LEVEL)
    if level not in DIAG_LEVELS:
        return f"level {level!r} is none of {sorted(DIAG_LEVELS)}"
    return (("dcgmi", "diag", "-r", str(level), "-j"),)


def _judge(test: GateTest, desired: Desired, observed: Observed, outputs: Sequence[CommandResult]) -> TestResult:
    builder = ResultBuilder()
    output = outputs[0]
    if note_if_killed(builder, output):
        return builder.result(test, outputs)
    document = find_document(output.stdout)
    root = _root(document)
    if document is None or root is None:
        builder.error(f"no DCGM document in the output (exit status {output.exit_status})")
        return builder.result(test, outputs)
    builder.version = _version(document, root)
    builder.check_version(test, KNOWN)
    gpus = expected_gpus(builder, desired)
    if gpus is not None:
        _judge_tests(builder, test, root, _listed(document), gpus)
        if not builder.reasons and not builder.metrics:
            builder.unjudged("every test was skipped: nothing was diagnosed")
    for summary in _summaries(document, root):
        _judge_summary(builder, summary)
    if not builder.reasons and output.exit_status != 0:
        builder.error(f"every test passed, but the exit status is {output.exit_status}")
    return builder.result(test, outputs)


def _root(document: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    for key in ("DCGM Diagnostic", "DCGM GPU Diagnostic"):
        root = (document or {}).get(key)
        if isinstance(root, Mapping):
            return root
    return None


def _version(document: Mapping[str, Any], root: Mapping[str, Any]) -> str:
    metadata = document.get("metadata")
    for place in (metadata if isinstance(metadata, Mapping) else {}, root, document):  # 3.3 prints it beside the root
        for key in ("version", "DCGM Version", "Version"):
            if isinstance(place.get(key), str):
                return str(place[key])
    return ""


def _listed(document: Mapping[str, Any]) -> frozenset[int]:
    """Return the GPUs that 3.3 ran on: its software tests are for all of them, and name none that passed."""
    ids = document.get("GPU Device IDs")
    return frozenset(range(len(ids))) if isinstance(ids, list) and all(word(item) for item in ids) else frozenset()


def _summaries(document: Mapping[str, Any], root: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the objects above the rows, each of which may have a verdict."""
    yield document
    yield root
    for category in rows(root.get("test_categories")):
        yield category
        yield from rows(category.get("tests"))


def _judge_summary(builder: ResultBuilder, summary: Mapping[str, Any]) -> None:
    if summary.get("runtime_error"):
        builder.error(f"DCGM could not run: {shown(summary['runtime_error'])}")
    for key in _STATUS:
        if key in summary and word(summary[key]) != "pass":
            builder.unjudged(f"the document's {key} is {shown(summary[key])}")
    for key in _TROUBLE:
        if summary.get(key):
            builder.unjudged(f"the document says {key}: {shown(summary[key])}")


def _judge_tests(
    builder: ResultBuilder, test: GateTest, root: Mapping[str, Any], group: frozenset[int], gpus: int
) -> None:
    everyone = frozenset(range(gpus))
    passed: dict[str, frozenset[int]] = {}
    for category in rows(root.get("test_categories")):
        for found in rows(category.get("tests")):
            name = _name(found.get("name"))
            ok = _judge_results(builder, test, name, found, group)
            if again := sorted(passed.get(name, frozenset()) & ok):
                builder.unjudged(f"{name}: GPU {_list(again)} is listed twice")
            passed[name] = passed.get(name, frozenset()) | ok
    for name in sorted(DIAG_LEVELS[int(test.args.get("level", DIAG_LEVEL))]):
        of_test = _passed_by(name, passed, test.allow_skip)
        if of_test is None:
            if name not in test.allow_skip:
                builder.unjudged(f"{name} did not run")
        elif extra := sorted(of_test - everyone):
            builder.fail(f"{name}: GPU {_list(extra)} passed, and only {gpus} are declared")
        elif missing := sorted(everyone - of_test):
            if name not in test.allow_skip and not builder.reasons:
                builder.unjudged(f"{name}: no pass for GPU {_list(missing)}")
        else:
            builder.metrics[f"{name}{GPU_COUNT}"] = float(len(of_test))


def _list(gpus: Sequence[int]) -> str:
    return ", ".join(map(str, gpus))


def _passed_by(name: str, passed: Mapping[str, frozenset[int]], allow_skip: Sequence[str]) -> frozenset[int] | None:
    if name != "software" or name in passed:
        return passed.get(name)
    parts = _SOFTWARE_3.difference(allow_skip)
    return frozenset.intersection(*(passed[part] for part in parts)) if parts and parts <= passed.keys() else None


def _name(text: Any) -> str:
    spelt = word(text).replace(" ", "_").replace("-", "")
    return _RENAMED.get(spelt, spelt)


def _judge_results(
    builder: ResultBuilder, test: GateTest, name: str, found: Mapping[str, Any], group: frozenset[int]
) -> frozenset[int]:
    """Return the GPUs that passed this test, and note every result that is no pass."""
    passed: set[int] = set()
    failed = False
    may_skip = name in test.allow_skip or (name in _SOFTWARE_3 and "software" in test.allow_skip)
    for row in rows(found.get("results")):
        status = word(row.get("status"))
        ids = _gpu_ids(row, group if name in _SOFTWARE_3 else frozenset())
        if status == "pass":
            if again := sorted(passed & ids):
                builder.unjudged(f"{name}: GPU {_list(again)} is listed twice")
            passed |= ids
            _judge_warnings(builder, name, row, _where(ids))
        elif status == "skip":
            if not may_skip:
                builder.unjudged(f"{name}: skipped")
        else:
            failed = True
            _note_failure(builder, name, status, row, _where(ids))
    if "test_summary" in found and not failed:
        _judge_test_summary(builder, name, found["test_summary"], may_skip=may_skip)
    return frozenset(passed)


def _judge_test_summary(builder: ResultBuilder, name: str, summary: Any, *, may_skip: bool) -> None:
    """Judge the summary of a test whose rows did not fail. It has the errors of the system, which belong to no GPU."""
    summary = summary if isinstance(summary, Mapping) else {}
    status = word(summary.get("status"))
    if status in ("fail", "warn") and summary.get("warnings"):
        _note_failure(builder, name, status, summary, "summary")
    elif status == "pass" or (status == "skip" and may_skip):
        _judge_warnings(builder, name, summary, "summary")
    else:
        builder.unjudged(f"{name}: the summary says {status or 'nothing'}, and no row does")


def _gpu_ids(row: Mapping[str, Any], group: frozenset[int]) -> frozenset[int]:
    """Return the GPUs that a row is about. `group` is for a row that names none, but is about all of them."""
    if "entity_id" in row or "entity_group" in row:
        index = row.get("entity_id")
        of_gpu = row.get("entity_group") == "GPU" and count(row.get("entity_group_id", 1)) == 1
        return frozenset({index}) if of_gpu and isinstance(index, int) and count(index) is not None else frozenset()
    named = row.get("gpu_ids", row.get("gpu_id"))
    if named is None:
        return group
    found = [count(part) for part in (named.split(",") if isinstance(named, str) else [named])]
    return frozenset(index for index in found if index is not None)


def _where(ids: frozenset[int]) -> str:
    return f"GPU {_list(sorted(ids))}" if ids else "no GPU named"


def _warnings(row: Mapping[str, Any]) -> tuple[list[Any], list[str]]:
    """Return severities and texts of a row. 3.1 prints one string; software tests of 3.3 call the text `warnings`."""
    found = row.get("warnings")
    listed = found if isinstance(found, list) else [found] if found else []
    severities = [item.get("error_severity") if isinstance(item, Mapping) else None for item in listed if item]
    texts = [
        shown(item.get("warning") or item.get("warnings")) if isinstance(item, Mapping) else shown(item)
        for item in listed
        if item
    ]
    return severities, texts


def _judge_warnings(builder: ResultBuilder, name: str, row: Mapping[str, Any], where: str) -> None:
    """Note each warning of a row that passed: the memory test passes when it can't allocate memory (DCGM issue 284)."""
    severities, texts = _warnings(row)
    for severity, text in zip(severities, texts, strict=True):
        reason = f"{name}: passed ({where}) with a warning: {text}"
        if severity in _HARDWARE:
            builder.fail(reason)
        else:
            builder.unjudged(reason + (_CONFIGURATION if severity == CONFIG else ""))


def _note_failure(builder: ResultBuilder, name: str, status: str, row: Mapping[str, Any], where: str) -> None:
    severities, texts = _warnings(row)
    text = f"{name}: {status or 'no status'} ({where}) {texts[0] if texts else ''}".strip()
    if status not in ("fail", "warn"):
        builder.unjudged(text)
    elif severities and all(severity == CONFIG for severity in severities):
        builder.unjudged(text + _CONFIGURATION)
    else:
        builder.fail(text)  # a warning without a severity counts as a failure


TOOL = Tool(_commands, _judge)
