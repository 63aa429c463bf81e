"""Passwords of the BMCs of a lab are changed over the wire, and kept by the lab's own program, as a vault would."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import LabDirectory, reconciler, running_lab
from tests.docs.pages import first_words

pytestmark = pytest.mark.wire
NODES = ("gpu-0001", "gpu-0002")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    lab = tmp_path_factory.mktemp("lab")
    shown = first_words("how-to/bmc-passwords", {"/tmp/lab": str(lab), "4": str(len(NODES))})
    with running_lab(lab, *shown[3:], nodes=len(NODES)) as found:
        yield found


def kept(lab: LabDirectory, node: str) -> dict[str, Any]:
    """Ask the program of the lab, as the reconciler does."""
    done = subprocess.run(
        [lab.path / "secrets/bmc-login", "get"], env={**os.environ, "RECONCILER_NODE": node},
        capture_output=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def applied(lab: LabDirectory) -> None:
    plan = lab.path / "plan.json"
    at = (lab.path / "fleet-spec", "--endpoints", lab.endpoints)
    assert reconciler("plan", *at, "--out", plan).code == 0
    done = reconciler("apply", *at, "--plan", plan, "--yes")
    assert done.code == 0, done.err + done.out


def test_a_lab_shows_how_passwords_are_changed(lab: LabDirectory) -> None:
    first = json.loads((lab.path / "secrets/bmc.json").read_text())
    assert [kept(lab, node) for node in NODES] == [first, first], "all begin with the same login"
    applied(lab)  # certificates: a password is changed when nothing else is to be done
    fleet = lab.path / "fleet-spec/fleet.yaml"
    fleet.write_text(fleet.read_text().replace("credentials: bmc\n", "credentials: bmc\n    rotateAfter: 30d\n", 1))
    for _ in NODES:  # one of a pool in a plan
        applied(lab)
    changed = [kept(lab, node) for node in NODES]
    assert all(set(one) == {"username", "password"} for one in changed), "the one before is forgotten"
    assert len({first["password"], *(one["password"] for one in changed)}) == 3, "each BMC has one of its own"
    at = (lab.path / "fleet-spec", "--endpoints", lab.endpoints)
    assert reconciler("drift", *at, "--detailed-exitcode").code == 0, "everybody is read with the new passwords"
    doctor = reconciler("doctor", *at)
    assert (doctor.code, "ok   secret bmc: for BMCs" in doctor.out, "password bmc" in doctor.out) == (0, True, False)
    told = reconciler("history", NODES[0], "--spec", at[0], "--endpoints", lab.endpoints).out
    assert "rotate_bmc_password" in told
    assert not any(one["password"] in told for one in changed)
    fleet.write_text(fleet.read_text().replace("    rotateAfter: 30d\n", ""))
    refused = reconciler("drift", *at)
    assert refused.code == 4, "without rotateAfter the file of all is read, whose password no BMC takes now"
    assert "refused secret 'bmc'" in refused.err


def test_the_program_keeps_a_login_for_its_node_alone(lab: LabDirectory, tmp_path: Path) -> None:
    for node in ("10.20.0.9:443/redfish", "../../etc/x"):
        document = {"username": "x", "password": node}
        subprocess.run(
            [lab.path / "secrets/bmc-login", "put"], input=json.dumps(document).encode(), check=True,
            env={**os.environ, "RECONCILER_NODE": node}, cwd=tmp_path,
        )  # fmt: skip
        assert kept(lab, node) == document
    files = list((lab.path / "secrets/changed").iterdir())
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
