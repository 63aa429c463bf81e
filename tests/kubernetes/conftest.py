"""Fixtures of the checks against a real control plane, and the figures that they print."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from tests.kubernetes.control_plane import ControlPlane
from tests.kubernetes.scene import Scene

_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture
def scene(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Scene]:
    ledger = SqlLedger(tmp_path / "ledger.sqlite")
    scene = Scene(control_plane, ledger, tmp_path)
    yield scene
    scene.clean()
    ledger.close()


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line when all tests have run."""
    return request.config.stash.setdefault(_FIGURES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(_FIGURES, []):
        terminalreporter.write_line(line)
