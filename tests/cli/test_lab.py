"""The commands of a lab, and those that only read, against one over the wire."""

from __future__ import annotations

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reconciler.lab.hardware.faults import FAULTS
from tests.cli.shell import LabDirectory, reconciler, running_lab, until

pytestmark = pytest.mark.wire


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    """Three nodes as specified, but for certificates."""
    with running_lab(tmp_path_factory.mktemp("lab"), "--scenario", "clean", nodes=3) as found:
        yield found


@pytest.fixture(autouse=True)
def _whole_again(lab: LabDirectory) -> Iterator[None]:
    yield
    for node in lab.state()["nodes"]:
        lab.clear(node)


# --- lab -------------------------------------------------------------------------------------------------------------


def test_a_lab_prints_the_commands_to_type(lab: LabDirectory) -> None:
    said = (lab.path / "lab.log").read_text()
    for words in ("3 nodes up", f"RECONCILER_ENDPOINTS={lab.endpoints}", "reconciler drift", "reconciler plan"):
        assert words in said


def test_the_state_of_a_lab(lab: LabDirectory) -> None:
    human = reconciler("lab", "state", "--dir", lab.path)
    assert human.code == 0
    for node in ("gpu-0001", "gpu-0002", "gpu-0003"):
        assert node in human.out
    assert "os_running" in human.out
    assert re.search(r"rack r1 +0 +0$", human.out, re.MULTILINE), human.out
    found = reconciler("lab", "state", "--dir", lab.path, "--output", "json").json
    assert set(found["nodes"]) == {"gpu-0001", "gpu-0002", "gpu-0003"}
    assert {machine["counters"]["boots"] for machine in found["nodes"].values()} == {0}


def test_faults_are_listed_played_and_lifted(lab: LabDirectory) -> None:
    listed = reconciler("lab", "fault", "--dir", lab.path, "gpu-0001")
    assert listed.code == 0
    assert all(kind in listed.out for kind in FAULTS)
    played = reconciler("lab", "fault", "--dir", lab.path, "gpu-0001", "xid_79", "gpu=5", "persistent=true")
    assert (played.code, played.err) == (0, "")
    [fault] = [lab.state()["nodes"]["gpu-0001"]["faults"]]
    assert fault["xid_79"] == {"times": 0, "gpu": 5, "persistent": True, "heals": "", "logged": True}
    assert "xid_79" in reconciler("lab", "state", "--dir", lab.path).out
    assert reconciler("lab", "clear", "--dir", lab.path, "gpu-0001", "xid_79").code == 0
    assert lab.state()["nodes"]["gpu-0001"]["faults"] == {}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["gpu-0009", "xid_79"], "the lab has no node 'gpu-0009'"),
        (["gpu-0001", "xid_97"], "unknown fault 'xid_97'; did you mean 'xid_79'?"),
        (["gpu-0001", "xid_79", "gpu=x"], "xid_79.gpu must be int"),
        (["gpu-0001", "xid_79", "gpu=8"], "no GPU 8"),
        (["gpu-0001", "xid_79", "gqu=1"], "no parameter 'gqu'; did you mean 'gpu'?"),
    ],
)
def test_a_fault_that_makes_no_sense(lab: LabDirectory, words: list[str], said: str) -> None:
    done = reconciler("lab", "fault", "--dir", lab.path, *words)
    assert done.code == 64
    assert said in done.err


def test_one_lab_a_directory(lab: LabDirectory) -> None:
    done = reconciler("lab", "up", "--dir", lab.path, "--nodes", "2")
    assert done.code == 64
    assert "a lab is running" in done.err
    assert f"reconciler lab down --dir {lab.path}" in done.err


def test_secrets_of_a_lab_are_its_owner_s(lab: LabDirectory) -> None:
    for path in (lab.path / "kubeconfig", lab.path / "secrets.yaml", *(lab.path / "secrets").glob("*")):
        if path.suffix != ".pub":
            own = 0o700 if path.is_dir() or path.name == "bmc-login" else 0o600  # the program that changes them
            assert stat.S_IMODE(path.stat().st_mode) == own, path


def test_a_lab_stops_on_request(tmp_path: Path) -> None:
    with running_lab(tmp_path / "short", "--scenario", "clean", nodes=1) as short:
        assert reconciler("lab", "down", "--dir", short.path).code == 0
    assert not (short.path / "ready").exists()
    assert reconciler("lab", "state", "--dir", short.path).code == 64


# --- reading ---------------------------------------------------------------------------------------------------------


def test_observe_writes_what_was_seen_and_the_rest_works_from_the_file(lab: LabDirectory, tmp_path: Path) -> None:
    seen = tmp_path / "seen.json"
    done = lab.run("observe", "--out", seen)
    assert done.code == 0
    assert "3 nodes" in done.out
    assert "240 times as fast" in done.out
    assert "observing: 3 of 3 nodes" in done.err
    as_json = lab.run("observe", "--output", "json", "--limit", "gpu-0002")
    assert as_json.json["nodes"]["gpu-0002"]["hot"]["value"]["power"] == "on"
    assert json.loads(seen.read_text())["nodes"].keys() == {"gpu-0001", "gpu-0002", "gpu-0003"}
    lab.fault("gpu-0001", "bmc_unreachable")
    offline = lab.run("drift", "--observation", seen, "--output", "json")
    assert (offline.code, offline.json["incomplete"]) == (0, [])
    assert "observing" not in offline.err


def test_reading_changes_nothing(lab: LabDirectory) -> None:
    before = lab.state()
    for name in ("observe", "drift", "plan"):
        assert lab.run(name).code == 0
    assert lab.run("explain").code == 64, "it explains a node"
    assert reconciler("explain", "gpu-0001", lab.spec, "--endpoints", lab.endpoints).code == 0
    after = lab.state()
    for name, machine in before["nodes"].items():
        for field in ("counters", "etag", "bios", "pending_bios", "power", "media", "tasks_started"):
            assert after["nodes"][name][field] == machine[field]
    assert after["cluster"]["nodes"] == before["cluster"]["nodes"]


def test_a_fault_of_a_node_that_can_not_be_read_any_more_is_not_healed(lab: LabDirectory, tmp_path: Path) -> None:
    ledger = str(tmp_path / "ledger.sqlite")

    def told() -> str:
        return reconciler("history", "gpu-0003", "--spec", lab.spec, "--ledger", ledger).out

    stands = re.compile(r"^ *drift  .*health.nvlink_down drifted", re.MULTILINE)
    lab.fault("gpu-0003", "nvlink_down")
    assert lab.run("drift", "--ledger", ledger, "--create-ledger").code == 0
    assert stands.search(told())
    lab.fault("gpu-0003", "ssh_refused")
    assert lab.run("drift", "--ledger", ledger).code == 4
    assert stands.search(told())
    assert "as desired again" not in told()
    lab.clear("gpu-0003")
    until(lambda: lab.run("drift", "--ledger", ledger).code == 0)  # its SSH port is opened again in a moment
    assert re.search(r"as desired again: .*health.nvlink_down", told()), told()
    assert not stands.search(told())


def test_doctor_finds_all_well(lab: LabDirectory) -> None:
    done = lab.run("doctor")
    assert (done.code, "FAIL" in done.out) == (0, False)
    findings = lab.run("doctor", "--output", "json").json
    assert {"spec", "kubectl", "ledger", "reach redfish", "reach ssh", "reach kubernetes", "rights kubernetes"} <= {
        finding["check"] for finding in findings
    }
    assert all(finding["ok"] for finding in findings)
    [way] = {finding["detail"].rpartition(": ")[2] for finding in findings if finding["check"] == "boot installers"}
    assert way == "virtual_media"


@pytest.mark.parametrize(
    ("kind", "reason", "remedy"),
    [
        ("bmc_wrong_password", "auth", "check the secret"),
        ("bmc_garbage", "malformed", "check that the address is a BMC's"),
        ("ssh_refused", "unreachable", "check cabling"),
    ],
)
def test_doctor_says_what_to_do_about_a_silent_node(lab: LabDirectory, kind: str, reason: str, remedy: str) -> None:
    lab.fault("gpu-0002", kind)
    done = lab.run("doctor")
    assert done.code == 4
    [line] = [line for line in done.out.splitlines() if line.startswith("FAIL") and "gpu-0002" in line]
    assert reason in line
    assert remedy in done.out


def test_what_no_bmc_can_do_is_told_before_anything_is_drained(tmp_path: Path) -> None:
    """In a lab of its own: other tests leave XIDs in kernel logs, and an ill node is isolated all the same."""
    with running_lab(tmp_path / "lab", "--scenario", "clean", nodes=2) as lab:
        lab.respec("hardware.yaml", "- Pxe", "- Floppy")
        why = "no boot entry 'Floppy'; there are: Hdd, Pxe ("
        found = lab.run("doctor")
        assert found.code == 64
        assert f"FAIL can write: gpu-[0001-0002] (2): set_boot: {why}" in found.out
        assert "hardware.yaml:" in found.out
        for plan in lab.run("plan", "--output", "json").json["nodes"].values():
            assert plan["blocked"]["code"] == "impossible"
            assert not {"mark", "drain"} & {action["name"] for action in plan["actions"]}
        assert why in lab.run("drift").out.replace("\n", " ")
        told = reconciler("explain", "gpu-0001", lab.spec, "--endpoints", lab.endpoints).out
        assert "left alone: what the spec says can't be done to it" in told


def test_every_reader_reports_every_silent_source(lab: LabDirectory) -> None:
    lab.fault("gpu-0001", "bmc_wrong_password")
    lab.fault("gpu-0002", "ssh_refused")
    for name in ("observe", "drift", "plan"):
        done = lab.run(name)
        assert done.code == 4
        assert "gpu-0001" in done.out
        assert "auth" in done.out
    found: dict[str, Any] = lab.run("drift", "--output", "json").json
    assert found["incomplete"] == ["gpu-0001", "gpu-0002"]


def test_a_wrong_password_is_offered_to_a_bmc_once(lab: LabDirectory) -> None:
    """Whoever tries again locks the account of every caller (pitfall B3). The first request needs no password."""
    lab.fault("gpu-0003", "bmc_wrong_password", times=2)
    assert lab.run("drift", "--limit", "gpu-0003").code == 4, "the second try would have succeeded"


def test_an_endpoints_file_that_leads_elsewhere_is_refused(lab: LabDirectory, tmp_path: Path) -> None:
    document = json.loads(lab.endpoints.read_text())
    address = next(iter(document["bmc"]))
    document["bmc"][address]["target"] = "https://192.0.2.1:443"
    path = lab.path / "elsewhere.json"
    path.write_text(json.dumps(document))
    done = reconciler("drift", lab.spec, "--endpoints", path)
    assert (done.code, done.out) == (64, "")
    assert "192.0.2.1:443, which is not on loopback" in done.err
    del document["bmc"][address]
    path.write_text(json.dumps(document))
    done = reconciler("drift", lab.spec, "--endpoints", path)
    assert done.code == 64
    assert "the lab was started for another spec" in done.err
