"""Codes, signals and the ladder."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.health.ladder import REMEDIATION, next_rung
from reconciler.health.signals import signals, unread
from reconciler.health.xids import is_hardware
from reconciler.model.desired import Remediation, Rung
from reconciler.model.observed import Xid
from reconciler.model.records import Attempt
from tests import builders as b


@pytest.mark.parametrize("code", [13, 31, 43, 45, 63, 94])
def test_an_application_s_code_never_sends_a_node_away(code: int) -> None:
    """Pitfall K1."""
    assert not is_hardware(Xid(code, "0", 600))


@pytest.mark.parametrize("code", [48, 62, 64, 74, 79, 95, 119, 120, 140, 162, 999])
def test_hardware_and_unknown_codes_do(code: int) -> None:
    assert is_hardware(Xid(code, "0", 1))
    assert not is_hardware(Xid(code, "0", 1), ignored=(code,))


def test_switch_codes() -> None:
    assert is_hardware(Xid(10003, "0", 1, switch=True, fatal=True))
    assert not is_hardware(Xid(11012, "0", 1, switch=True, fatal=False))
    assert is_hardware(Xid(12028, "0", 1, switch=True, fatal=False)), "the word Non-fatal is not harmless"
    assert is_hardware(Xid(26006, "0", 1, switch=True, fatal=None)), "in no table"


def test_codes_agree_with_the_catalogue(samples: Path) -> None:
    """Every code that NVIDIA's catalogue wants ignored or answered by the application is ours too, and no reset is."""
    rows = json.loads((samples.parent / "knowledge" / "xid.json").read_text())["Xids"][1:]
    for row in rows:
        code, bucket, used = int(row["B"]), row.get("I", ""), "Unused" not in row.get("D", "")
        if used and bucket in ("RESTART_APP", "IGNORE"):
            assert not is_hardware(Xid(code, "0", 1)), (code, bucket)
        if used and bucket in (
            "RESET_GPU",
            "RESTART_BM",
            "WORKFLOW_XID_48",
            "WORKFLOW_NVLINK_ERR",
            "CHECK_MECHANICALS",
        ):
            assert is_hardware(Xid(code, "0", 1)), (code, bucket)


def test_signals_name_their_evidence() -> None:
    def found(**changes: Any) -> list[str]:
        return [signal.name for signal in signals(b.PROFILE, b.observed(host=b.facts(**changes)))]

    assert found() == []
    assert found(gpus=(b.gpu(0), b.gpu(1, lost=True))) == ["gpu_missing"]
    assert found(gpus=(b.gpu(0), b.gpu(1, ecc_uncorrectable=2))) == ["ecc"]
    assert found(gpus=(b.gpu(0, remap_failed=True), b.gpu(1, remap_pending=True))) == [
        "row_remap_failed",
        "row_remap_pending",
    ]
    assert found(nvlinks_active={0: 18, 1: 17}) == ["nvlink_down"]
    assert found(xids=(Xid(79, "0", 1), Xid(31, "0", 1))) == ["xid_79"]
    assert signals(b.PROFILE, b.observed(host=b.silent())) == (), "silence is not a signal"


def test_the_ladder_counts_attempts_inside_its_window() -> None:
    policy = Remediation("p", (Rung("soft_restart", 1), Rung("power_cycle", 2)), window_s=3600)

    def tried(action: str, minutes: int, cause: str = REMEDIATION) -> Attempt:
        return Attempt(action, "", cause, b.NOW - timedelta(minutes=minutes), "done")

    assert next_rung(policy, (), b.NOW) == policy.ladder[0]
    assert next_rung(policy, (tried("soft_restart", 5),), b.NOW) == policy.ladder[1]
    assert next_rung(policy, (tried("soft_restart", 5, "bios.X"),), b.NOW) == policy.ladder[0], "not a treatment"
    both = (tried("soft_restart", 9), tried("power_cycle", 8), tried("power_cycle", 7))
    assert next_rung(policy, both, b.NOW) is None
    assert next_rung(policy, both, b.NOW + timedelta(hours=2)) == policy.ladder[0], "old attempts are forgotten"
    assert next_rung(None, (), b.NOW) is None
    assert next_rung(replace(policy, ladder=()), (), b.NOW) is None


@pytest.mark.parametrize(
    ("part", "hidden"),
    [
        ("gpus", ("health.gpu_missing", "health.ecc", "health.row_remap_")),
        ("nvlinks_active", ("health.nvlink_down",)),
        ("xids", ("health.xid_",)),
    ],
)
def test_a_part_that_gave_no_answer_hides_its_signals_and_a_silent_host_all(part: str, hidden: tuple[str, ...]) -> None:
    assert unread(b.profile(), b.observed()) == ()
    missing: dict[str, Any] = {part: None}
    assert unread(b.profile(), b.observed(host=b.facts(**missing))) == hidden
    assert set(hidden) < set(unread(b.profile(), b.observed(host=b.silent())))
