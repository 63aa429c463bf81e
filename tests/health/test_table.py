"""The table of signals: its rows decide as the code before it did, and a row that would break a rule is refused."""

from __future__ import annotations

import dataclasses
import json
import pkgutil
from pathlib import Path
from typing import Any

import pytest

from reconciler.health.table import health_table
from reconciler.health.xids import is_hardware
from reconciler.model.observed import HostFacts, Member, RedfishHot, RedfishInventory, Xid
from reconciler.spec.kinds.signals import First, Next, Proof, Scope, SignalClass, SignalTable, code_set
from reconciler.spec.signals import COMPILED, packaged
from reconciler.strict_yaml.read import InvalidFile, model_of
from tests.health.compiled import compiled

# Written by the closed table of Python and the sets of codes that the YAML replaced.
BEFORE: dict[str, Any] = json.loads(Path(__file__).with_name("decisions.json").read_text())
TEXT = (pkgutil.get_data("reconciler.health", "signals.yaml") or b"").decode()
TABLE = health_table()
ROWS = {name: rule.row for name, rule in TABLE.rules.items()}


def test_the_table_that_commands_read_is_the_one_that_people_write() -> None:
    assert (pkgutil.get_data("reconciler.health", COMPILED) or b"").decode() == compiled(TEXT), "run: make signals"


def test_each_signal_that_was_in_code_is_decided_as_before() -> None:
    found = {
        name: [rule.effect.value, "one" if rule.latched else "two", rule.remedy.value]
        for name, rule in TABLE.rules.items()
        if name in BEFORE["signals"]
    }
    assert found == BEFORE["signals"]


def test_each_xid_is_decided_as_before() -> None:
    harmless = {code for code in range(1200) if not is_hardware(Xid(code, "0", 1))}
    assert harmless == code_set(BEFORE["harmless_xids"])


@pytest.mark.parametrize(("said", "fatal"), [("true", True), ("false", False), ("unsaid", None)])
def test_each_sxid_is_decided_as_before(said: str, fatal: bool | None) -> None:
    codes = range(10_000, 30_000)
    harmless = {code for code in codes if not is_hardware(Xid(code, "0", 1, switch=True, fatal=fatal))}
    assert harmless == code_set(BEFORE["harmless_sxids"][said])


def test_limits_are_those_of_before() -> None:
    assert [TABLE.threshold(name) for name in ("pcie_replays", "nvme_worn", "nvme_spare")] == [1000, 100, 10]
    assert TABLE.window_s("dimm_ue") == TABLE.window_s("bmc_event_critical") == 48 * 3600
    with pytest.raises(KeyError, match="gpu_missing"):
        TABLE.threshold("gpu_missing")
    with pytest.raises(KeyError, match="gpu_missing"):
        TABLE.window_s("gpu_missing")


# --- what holds for every row ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ROWS)
def test_a_row_is_read_from_a_fact_that_there_is(name: str) -> None:
    holders = {"host": (HostFacts,), "bmc": (RedfishInventory, RedfishHot), "member": (Member,)}
    holder, _, field = ROWS[name].fact.partition(".")
    assert field in {one.name for kind in holders[holder] for one in dataclasses.fields(kind)}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_has_a_source_a_reason_and_a_proof_that_is_not_time(name: str) -> None:
    row = ROWS[name]
    assert row.source
    assert row.because
    assert row.healed_by
    assert not any(word in proof.value for proof in row.healed_by for word in ("time", "age", "after_seconds"))


def test_nothing_that_only_a_new_part_heals_is_restarted_and_no_work_is_blamed_on_its_node() -> None:
    for name, row in ROWS.items():
        if row.cause is SignalClass.TERMINAL:
            assert (row.next, Proof.NEW_SERIAL in row.healed_by) == (Next.PERSON, True), name
        if row.cause is SignalClass.APPLICATION:
            assert row.first is First.REPORT, name
        if row.first is not First.REPORT and row.next is not Next.PERSON:
            assert Proof.GATE in row.healed_by, f"{name}: a node that was treated proves itself under load (K2)"
    assert {row.cause for row in ROWS.values()} == {*SignalClass}
    assert {row.scope for row in ROWS.values()} == {*Scope} - {Scope.RACK}, "no signal is a rack's yet"


# --- what is refused, and where --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("healedBy: [fact_clear, gate]", "healedBy: [time]", "'time' is not one of fact_clear"),
        ("healedBy: [fact_clear, gate]", "healedBy: []", "must not be empty"),
        ("    first: isolate\n    next: ladder", "    first: isolate", "a signal that is only reported has no `next`"),
        ("class: persistent", "class: terminal", "a terminal signal has `next: person`"),
        ("class: persistent", "class: application", "a signal of class application is only reported"),
        ("class: persistent", "class: transient", "a transient signal isolates no node"),
        ("reads: 2", "reads: 2\n    peers: true", "a signal that is judged against peers isolates no node"),
        ("class: terminal", "class: terminal\n    domains: [rack]", "is the node's own: it has no `domains`"),
        ("class: persistent", "class: persistent\n    domains: [rack]", "its `domains` are NVLink's alone"),
        ("reads: 2", "reads: 2\n    domains: []", "must not be empty"),
        ("reads: 2", "reads: 3", "must be at most 2"),
        ("reads: 2", "read: 2", "unknown key 'read'"),
        ("fact: host.gpus", "fact: gpus", "is not a fact like host.gpus"),
        ("scope: gpu", "scope: GPU", "'GPU' is not one of gpu, port"),
        ("  gpu_missing:", "  GPU:", "'GPU' is not a name of signals"),
        ("  gpu_recovery:", "  gpu_missing:", "is set twice (first in line 9)"),
        ("    source: ", "    origin: ", "key 'source' is missing"),
        ("19000-19999", "19999-19000", "the range 19999-19000 ends before it begins"),
        ("19000-19999", "19000-", "'19000-' is neither a code nor a range"),
    ],
)
def test_a_bad_row_is_refused_with_its_line_and_column(old: str, new: str, expected: str) -> None:
    broken = TEXT.replace(old, new, 1)
    assert broken != TEXT
    with pytest.raises(InvalidFile, match=r"signals\.yaml:\d+:\d+:? ") as caught:
        model_of(SignalTable, broken, "signals.yaml")
    assert expected in str(caught.value)


def test_a_place_is_that_of_the_fault() -> None:
    with pytest.raises(InvalidFile) as caught:
        model_of(SignalTable, TEXT.replace("scope: gpu", "scope: card", 1), "signals.yaml")
    line = TEXT[: TEXT.index("scope: gpu")].count("\n") + 1
    assert str(caught.value).startswith(f"signals.yaml:{line}:12 signals.gpu_missing.scope: ")


def test_the_packaged_table_is_read_once_and_by_the_longest_prefix() -> None:
    assert packaged() is packaged()
    assert TABLE.rule_of("xid_79") is not TABLE.rule_of("xid_119")
    assert TABLE.effect_of("condition_X") is TABLE.rule_of("condition_").effect
