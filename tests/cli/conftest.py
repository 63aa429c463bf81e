"""What tests of the command line share: an observation from a file, so that nothing is contacted, and labs."""

from __future__ import annotations

import json
import os
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

from reconciler.converge.observe import observe
from reconciler.lab.fleet import build_lab
from reconciler.lab.inprocess import LabFabric, VirtualClock, run_virtual
from reconciler.lab.keys import EXAMPLE
from reconciler.lab.scenario import load_scenario
from reconciler.model.documents import dump
from reconciler.spec import load_spec
from tests.cli.shell import SPEC


@pytest.fixture(autouse=True)
def _nobody_elses_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the person who runs the tests has set up is neither read nor written."""
    for name in [name for name in os.environ if name.startswith("RECONCILER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("RECONCILER_ACTOR", "ops")
    secrets = tmp_path / "config" / "reconciler" / "secrets.yaml"
    secrets.parent.mkdir(parents=True)
    secrets.write_text(json.dumps({"secrets": {}, "keys": {"release": EXAMPLE}}))


@pytest.fixture(scope="session")
def observations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with clean.json and demo.json: the worked example's nodes as these scenarios play them."""
    directory = tmp_path_factory.mktemp("observations")
    for scenario in ("clean", "demo"):
        fleet = load_spec(SPEC, directory=str(SPEC))
        clock = VirtualClock(datetime.now(UTC))
        lab = build_lab(fleet, load_scenario(scenario), clock.seconds, seed=1)
        seen = run_virtual(observe(fleet, list(fleet.nodes), LabFabric(lab, clock), clock, fresh_inventory=True), clock)
        (directory / f"{scenario}.json").write_text(dump(seen))
    return directory


@pytest.fixture
def demo(observations: Path) -> Path:
    """Drifted in many ways; one BMC is dark."""
    return observations / "demo.json"


@pytest.fixture
def clean(observations: Path) -> Path:
    """As specified, but for certificates, which no fresh ledger has."""
    return observations / "clean.json"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    """A copy of the worked example, to be changed."""
    copy = tmp_path / "fleet-spec"
    shutil.copytree(SPEC, copy)
    return copy
