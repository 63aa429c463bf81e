"""Every rule about who may go, as the plan that people read. `pytest tests/golden --update` writes the plans anew."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.plans import cases, read, update

KEYS = {
    "rule", "now", "fleet", "pools", "lab", "control", "marked", "attempts", "applied", "settled", "void", "failed",
    "bad", "holds", "rollouts", "limit", "left", "plan",
}  # fmt: skip


@pytest.mark.parametrize("path", cases(), ids=lambda path: path.stem)
def test_golden(path: Path, request: pytest.FixtureRequest) -> None:
    case = read(path)
    assert set(case.said) <= KEYS
    if request.config.getoption("--update"):
        update(case)
        case = read(path)
    assert case.text() == case.said["plan"]
