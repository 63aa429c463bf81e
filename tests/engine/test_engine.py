"""Workers of a real Dask read a fleet on the wire, and whatever happens to them costs their own nodes one pass."""

from __future__ import annotations

import json
import shutil
import signal
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from reconciler.drivers.engine.workers import HUNG_S
from tests.cli.shell import ROOT, Done, LabDirectory, ended, reconciler, running_lab, started
from tests.engine.world import Engine, free_port, make_certificates, running_engine

pytestmark = [pytest.mark.wire, pytest.mark.xdist_group("engine")]

SITES = {"train-1": "fra", "infer-1": "ams"}
MANY_S = 25.0  # for a pass in which a worker dies: the machine is busy
FRA, AMS = ("gpu-0001", "gpu-0002", "gpu-0003"), ("gpu-0004",)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    with running_lab(tmp_path_factory.mktemp("lab"), nodes=4, time_scale=1) as found:
        for pool, site in SITES.items():
            found.respec(f"pools/{pool}.yaml", "spec:\n", f"spec:\n  domains: {{site: {site}}}\n")
        yield found


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("engine") / "tls")


@pytest.fixture(scope="module")
def engine(lab: LabDirectory, tls: Path) -> Iterator[Engine]:
    with running_engine(lab.path / "engine", tls, lab.endpoints, fra="fra", ams="ams") as found:
        yield found


@pytest.fixture
def leader(lab: LabDirectory) -> LabDirectory:
    """The lab as it is for a leader without a secret of its nodes: it can read none of them itself."""
    path = lab.path / "leader.json"
    path.write_text(json.dumps({**json.loads(lab.endpoints.read_text()), "secrets": {}}))
    return Leader(lab.path, lab.spec)


class Leader(LabDirectory):
    @property
    def endpoints(self) -> Path:
        return self.path / "leader.json"


def observed(lab: LabDirectory, engine: Engine) -> tuple[dict[str, Any], Done]:
    done = lab.run("observe", "--output", "json", *engine.options)
    return done.json["nodes"], done


def reasons(nodes: dict[str, Any]) -> dict[str, str]:
    """The reason why nobody asked a node; "" where it answers."""
    return {
        name: f"{node['host'].get('reason', '')}: {node['host'].get('detail', '')}".strip(": ")
        for name, node in nodes.items()
    }


def is_silent(nodes: dict[str, Any], silent: tuple[str, ...], why: str) -> bool:
    told = reasons(nodes)
    assert all(told[name].startswith("not_read") and why in told[name] for name in silent), told
    return all(not told[name] for name in told.keys() - set(silent))


# --- what workers read ----------------------------------------------------------------------------------------------


def test_workers_read_what_this_process_would(lab: LabDirectory, leader: LabDirectory, engine: Engine) -> None:
    ours = lab.run("observe", "--output", "json").json["nodes"]
    theirs, done = observed(leader, engine)
    assert done.code == 0, done.err
    for name, node in theirs.items():
        for source in ("hot", "inventory", "host"):
            mine, other = ours[name][source]["value"], node[source]["value"]
            assert mine.keys() == other.keys()
            differ = {key for key in mine if mine[key] != other[key]}
            assert differ <= {"uptime_s", "clock", "counters", "sensors", "manager", "tasks"}, differ


def test_a_plan_of_what_workers_read_is_the_same(lab: LabDirectory, leader: LabDirectory, engine: Engine) -> None:
    ours = lab.run("plan", "--output", "json").json["nodes"]
    theirs = leader.run("plan", "--output", "json", *engine.options).json["nodes"]
    assert [key for key in ours["gpu-0001"] if "drift" in key or "actions" in key] == ["actions", "drift"]
    for name, node in theirs.items():
        assert (node["actions"], node["drift"]) == (ours[name]["actions"], ours[name]["drift"])


# --- trust ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["observe", "plan", "drift", "run"])
def test_a_plain_connection_is_refused(leader: LabDirectory, tls: Path, command: str) -> None:
    done = leader.run(command, "--engine", "tcp://127.0.0.1:8786", "--engine-tls", tls)
    assert done.code == 64
    assert "only tls:// is spoken with an engine" in done.err


def test_a_worker_refuses_it_too_and_listens_on_loopback_alone(tls: Path) -> None:
    words = ["worker", "--site", "fra", "--engine-tls", str(tls), "--scheduler"]
    plain, elsewhere = reconciler(*words, "tcp://127.0.0.1:1"), reconciler(*words, "tls://192.0.2.1:8786")
    assert (plain.code, elsewhere.code) == (64, 64)
    assert "only tls:// is spoken" in plain.err
    assert "--listen ADDRESS is needed" in elsewhere.err


def test_certificates_are_checked_before_anything_else(leader: LabDirectory, tls: Path, tmp_path: Path) -> None:
    shutil.copytree(tls, tmp_path / "open")
    (tmp_path / "open/key.pem").chmod(0o644)
    url = f"tls://127.0.0.1:{free_port()}"
    open_key = leader.run("observe", "--engine", url, "--engine-tls", tmp_path / "open")
    none = leader.run("observe", "--engine", url, "--engine-tls", tmp_path / "nothing")
    assert (open_key.code, none.code) == (64, 64)
    assert "key.pem is open to others; chmod 600" in open_key.err
    assert "must have ca.pem, cert.pem and key.pem" in none.err


def test_without_dask_the_command_to_install_it_is_named(
    leader: LabDirectory, tls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "distributed", None)
    for done in (
        leader.run("observe", "--engine", "tls://127.0.0.1:1", "--engine-tls", tls),
        reconciler("worker", "--site", "fra", "--scheduler", "tls://127.0.0.1:1", "--engine-tls", tls),
    ):
        assert done.code == 64
        assert "pip install '.[dask]' in the checkout" in done.err


def test_a_stranger_with_a_ca_of_his_own_is_let_in_nowhere(
    leader: LabDirectory, engine: Engine, tmp_path: Path
) -> None:
    stranger = make_certificates(tmp_path / "tls")
    done = leader.run("observe", "--output", "json", "--engine", engine.url, "--engine-tls", stranger)
    assert done.code == 4
    assert is_silent(done.json["nodes"], FRA + AMS, "does not answer")


def test_the_servers_listen_on_loopback_alone(engine: Engine) -> None:
    listening = Path("/proc/net/tcp").read_text() + Path("/proc/net/tcp6").read_text()
    ours = {f"{engine.port:04X}"}
    for name in ("scheduler", "fra"):
        ours |= {f"{int(port):04X}" for port in _ports(engine.log(name))}
    found = [line.split()[1] for line in listening.splitlines() if line.split()[3] == "0A"]
    addresses = {address.partition(":")[0] for address in found if address.partition(":")[2] in ours}
    assert addresses == {"0100007F"}


def _ports(log: str) -> list[str]:
    return [line.rpartition(":")[2].removesuffix("/status") for line in log.splitlines() if " at: " in line]


# --- what fails -----------------------------------------------------------------------------------------------------


def test_a_scheduler_that_is_not_there_leaves_all_nodes_unread(leader: LabDirectory, tls: Path) -> None:
    nowhere = Engine(tls, leader.path, leader.endpoints)
    began = time.monotonic()
    nodes, done = observed(leader, nowhere)
    assert time.monotonic() - began < MANY_S
    assert done.code == 4
    assert is_silent(nodes, FRA + AMS, f"scheduler {nowhere.url} does not answer")


def test_a_site_without_workers_is_unread_and_the_other_is_read(
    leader: LabDirectory, lab: LabDirectory, engine: Engine
) -> None:
    lab.respec("pools/infer-1.yaml", "{site: ams}", "{site: sin}")
    try:
        nodes, done = observed(leader, engine)
    finally:
        lab.respec("pools/infer-1.yaml", "{site: sin}", "{site: ams}")
    assert done.code == 4
    assert is_silent(nodes, AMS, f"no worker of site sin works for {engine.url}")


def test_doctor_names_the_workers_of_each_site_and_the_site_without_one(lab: LabDirectory, engine: Engine) -> None:
    well = checks(lab.run("doctor", "--output", "json", *engine.options))
    assert well["site ams"] == well["site fra"] == (True, "")
    lab.respec("pools/infer-1.yaml", "{site: ams}", "{site: sin}")
    try:
        done = lab.run("doctor", "--output", "json", *engine.options)
    finally:
        lab.respec("pools/infer-1.yaml", "{site: sin}", "{site: ams}")
    assert done.code == 4
    ok, remedy = checks(done)["site sin"]
    assert not ok
    assert remedy == f"start there: reconciler worker --site sin --scheduler {engine.url}"
    assert checks(done)["site fra"] == (True, "")


def test_doctor_tells_when_the_certificates_of_workers_and_leader_will_expire(
    lab: LabDirectory, tmp_path: Path
) -> None:
    """The worker's lasts 5 days, after which TLS would say no more than that connections fail."""
    tls = make_certificates(tmp_path / "tls", lasts=timedelta(days=5, hours=1))
    with running_engine(tmp_path / "engine", tls, lab.endpoints, fra="fra") as engine:
        assert "expires in 5 days" in engine.log("fra")
        done = lab.run("doctor", "--output", "json", *engine.options)
    told = [one for one in done.json if one["check"] == "certificate of the engine"]
    assert not any(one["ok"] for one in told)
    assert [one for one in told if "of worker fra-" in one["detail"] and "expires in 5 days, on 2" in one["detail"]]
    assert all("sign a new one" in one["remedy"] for one in told)
    assert len(told) == 3, "cert.pem and ca.pem here, and the worker's"


def checks(done: Done) -> dict[str, tuple[bool, str]]:
    """The findings of `doctor` on an engine, by the first words of each."""
    told = [one for one in done.json if one["check"] == "reach engine"]
    return {one["detail"].partition(":")[0]: (one["ok"], one["remedy"]) for one in told}


def test_doctor_tells_a_scheduler_that_does_not_answer(lab: LabDirectory, tls: Path) -> None:
    nowhere = Engine(tls, lab.path, lab.endpoints)
    done = lab.run("doctor", "--output", "json", *nowhere.options)
    assert done.code == 4
    assert [one["ok"] for one in done.json if one["check"] == "reach engine"] == [False]


def test_a_node_without_a_site_is_unread(leader: LabDirectory, lab: LabDirectory, engine: Engine) -> None:
    lab.respec("pools/infer-1.yaml", "{site: ams}", "{pdu: p1}")
    try:
        nodes, _ = observed(leader, engine)
    finally:
        lab.respec("pools/infer-1.yaml", "{pdu: p1}", "{site: ams}")
    assert is_silent(nodes, AMS, "no domains.site in the spec")


def test_a_worker_without_its_secrets_costs_its_own_nodes(leader: LabDirectory, lab: LabDirectory, tls: Path) -> None:
    with running_engine(lab.path / "poisoned", tls, lab.endpoints, fra="fra") as engine:
        engine.start_worker("ams", "ams", endpoints=leader.endpoints)
        nodes, done = observed(leader, engine)
    assert done.code == 4
    assert is_silent(nodes, AMS, "SecretError: ")


def test_a_worker_of_another_version_costs_its_own_nodes(
    leader: LabDirectory, lab: LabDirectory, tls: Path, tmp_path: Path
) -> None:
    shutil.copytree(ROOT / "reconciler", tmp_path / "reconciler", ignore=shutil.ignore_patterns("__pycache__"))
    with (tmp_path / "reconciler/model/units.py").open("a") as out:
        out.write("# later\n")
    with running_engine(lab.path / "skewed", tls, lab.endpoints, ams="ams") as engine:
        engine.start_worker("fra", "fra", cwd=tmp_path)
        nodes, _ = observed(leader, engine)
    assert is_silent(nodes, FRA, "install the same version")


@pytest.mark.parametrize(("number", "why"), [(signal.SIGKILL, "has died"), (signal.SIGSTOP, "hangs")])
def test_a_worker_that_is_killed_or_stopped_costs_its_nodes_one_pass(
    leader: LabDirectory, lab: LabDirectory, engine: Engine, number: signal.Signals, why: str
) -> None:
    """A second worker of the site does not read them in the same pass: nothing is done twice."""
    lab.fault("gpu-0001", "ssh_hang")  # the shard takes as long as SSH may
    words = leader.words("observe", "--output", "json", *engine.options)
    before = engine.log("fra").count("reads ")
    process = started(*words)
    try:
        engine.until_reads("fra", process, before)
        engine.start_worker("spare", "fra")
        engine.kill("fra", number)
        began = time.monotonic()
        done = ended(process, 120)
    finally:
        lab.clear("gpu-0001")
    assert time.monotonic() - began < MANY_S + HUNG_S
    assert is_silent(json.loads(done.out)["nodes"], FRA, why)
    assert "reads " not in engine.log("spare")
    if number is signal.SIGSTOP:
        nodes, _ = observed(leader, engine)
        assert is_silent(nodes, (), "")  # the spare one reads them in the next pass
    engine.processes["fra"].kill()
    engine.processes["fra"].wait()
    engine.kill("spare")
    engine.start_worker("fra", "fra")


def test_a_scheduler_that_dies_meanwhile_leaves_its_nodes_unread(
    leader: LabDirectory, lab: LabDirectory, tls: Path
) -> None:
    lab.fault("gpu-0001", "ssh_hang")
    with running_engine(lab.path / "dying", tls, lab.endpoints, fra="fra", ams="ams") as engine:
        process = started(*leader.words("observe", "--output", "json", *engine.options))
        try:
            engine.until_reads("fra", process)
            began = time.monotonic()
            engine.kill("scheduler")
            done = ended(process, 120)
        finally:
            lab.clear("gpu-0001")
        assert time.monotonic() - began < MANY_S
        is_silent(json.loads(done.out)["nodes"], FRA, f"scheduler {engine.url} ")  # the other site may have been faster
        engine.processes["fra"].wait(60)  # a worker ends without its scheduler, and whoever started it starts it anew
        assert engine.processes["fra"].returncode == 1
        assert "is gone" in engine.log("fra")
