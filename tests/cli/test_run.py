"""`reconciler run` as a service: a git repository to follow, a lab on the wire, signals, what it shows of itself."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cli.shell import Done, LabDirectory, ended, reconciler, running_lab, started, until
from tests.docs.pages import first_words
from tests.drivers.test_spec_repo import ssh_key

pytestmark = [pytest.mark.wire, pytest.mark.skipif(shutil.which("git") is None, reason="there is no git program")]

NODES = ("gpu-0001", "gpu-0002", "gpu-0003")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LabDirectory]:
    with running_lab(tmp_path_factory.mktemp("run"), "--scenario", "clean", nodes=3) as found:
        for pool in sorted((found.spec / "pools").glob("*.yaml")):
            pool.write_text(pool.read_text().rstrip("\n") + "\n  rollout: {waves: ['100%'], bake: 0s}\n")
        yield found


@pytest.fixture(scope="module")
def repository(lab: LabDirectory) -> Path:
    """A bare repository, and a clone with the lab's spec on its branch main, in which ops signs each commit."""
    bare, work = lab.path / "spec.git", lab.path / "work"
    git(lab.path, "init", "--quiet", "--bare", "--initial-branch=main", str(bare))
    git(lab.path, "clone", "--quiet", str(bare), str(work))
    (lab.path / "signers").write_text(f'ops@example.com namespaces="git" {ssh_key(lab.path / "ops")}\n')
    for name, value in (("gpg.format", "ssh"), ("user.signingKey", str(lab.path / "ops")), ("commit.gpgSign", "true")):
        git(work, "config", name, value)
    shutil.copytree(lab.spec, work / "fleet-spec")
    push(work, "adopt the fleet")
    return work


def signed(lab: LabDirectory) -> list[str]:
    """The page's command, for this repository."""
    here = {
        "https://git.example.com/ops/fleet.git": str(lab.path / "spec.git"),
        "/etc/reconciler/signers": str(lab.path / "signers"),
    }
    return first_words("how-to/service", here)[1:]


def git(where: Path, *words: str) -> str:
    who = ("-c", "user.name=ops", "-c", "user.email=ops@example.com", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *who, *words], cwd=where, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def push(work: Path, message: str) -> str:
    git(work, "add", "-A")
    git(work, "commit", "--quiet", "-m", message)
    git(work, "push", "--quiet", "origin", "HEAD:main")
    return git(work, "rev-parse", "HEAD")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Service:
    def __init__(self, lab: LabDirectory, process: subprocess.Popen[str], port: int, log: Path) -> None:
        self.lab, self.process, self.port, self.log = lab, process, port, log

    def get(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def ready(self) -> dict[str, Any]:
        _, text = self.get("/readyz")
        return json.loads(text) if text else {}

    def said(self, event: str) -> list[dict[str, Any]]:
        lines = [json.loads(line) for line in self.log.read_text().splitlines() if line.endswith("}")]
        return [line for line in lines if line["event"] == event]

    def stop(self, how: signal.Signals = signal.SIGTERM) -> Done:
        self.process.send_signal(how)
        return ended(self.process)


@contextmanager
def running(lab: LabDirectory, work: Path, *words: str, command: Sequence[str] = ()) -> Iterator[Service]:
    """`command`: how it begins; () = it follows the repository of `work`, whoever committed."""
    port, log = free_port(), lab.path / f"run-{len(list(lab.path.glob('run-*')))}.log"
    with log.open("w") as err:
        process = started(
            *(command or ("run", "--repo", str(work.parent / "spec.git"))), "--state", lab.path / f"state-{port}",
            "--endpoints", lab.endpoints, "--listen", f"127.0.0.1:{port}", "--log", "json", "--interval", "10m",
            "--pull", "4m", *words, stderr=err,
        )  # fmt: skip
        try:
            yield Service(lab, process, port, log)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def swappiness(lab: LabDirectory, work: Path, value: str) -> None:
    path = work / "fleet-spec" / "personas.yaml"
    text = path.read_text()
    assert "vm.swappiness" in text
    lines = [
        f"{line.partition('vm.swappiness')[0]}vm.swappiness: '{value}'" if "vm.swappiness" in line else line
        for line in text.splitlines()
    ]
    path.write_text("\n".join(lines) + "\n")


def shown(lab: LabDirectory) -> set[str]:
    """What the machines have."""
    state = lab.state()["nodes"]
    return {machine["os"]["sysctls"]["vm.swappiness"] for machine in state.values()}


def test_it_follows_the_repository_and_ends_as_services_do(lab: LabDirectory, repository: Path) -> None:
    with running(lab, repository, command=signed(lab)) as service:
        until(lambda: service.ready().get("ready"), 90)
        until(lambda: 'status="converged"} 3.0' in service.get("/metrics")[1], 120)
        assert re.search(r"^reconciler_ledger_size_bytes [1-9]", service.get("/metrics")[1], re.MULTILINE)
        assert service.get("/healthz") == (200, "ok\n")
        run = json.loads(service.get("/api/v1/run")[1])
        assert (run["role"], run["drift_mode"], run["at_work"]) == ("leader", "correct", [])
        lines = json.loads(service.get("/api/v1/nodes")[1])
        assert {(line["name"], line["status"]) for line in lines} == {(name, "converged") for name in NODES}
        assert json.loads(service.get(f"/api/v1/nodes/{NODES[0]}")[1])["difference"] == ""

        swappiness(lab, repository, "7")
        commit = push(repository, "swap less")
        until(lambda: service.ready()["spec"]["commit"] == commit, 60)
        until(lambda: shown(lab) == {"7"}, 60)

        broken = repository / "fleet-spec" / "personas.yaml"
        whole = broken.read_text()
        broken.write_text(whole + "\nnonsense: true\n")
        push(repository, "break it")
        until(lambda: service.ready()["spec"]["trouble"] == "invalid", 60)
        ready = service.ready()
        assert (ready["ready"], ready["spec"]["commit"]) == (True, commit), "the last good one stays in force"
        [told] = service.said("spec_trouble")
        assert "personas.yaml:" in told["message"]
        broken.write_text(whole)
        push(repository, "mend it")
        until(lambda: not service.ready()["spec"]["trouble"], 60)

        second = lab.run("apply", "--plan", lab.plan(), "--yes")
        assert second.code == 6
        assert "run" in second.err, "it names who holds the lease"

        done = service.stop()
        assert (done.code, done.out) == (0, "")
        assert service.said("parked")
    assert reconciler("audit", "verify", "--ledger", str(lab.path / "ledger.sqlite")).code == 0
    story = reconciler("history", "gpu-0001", "--spec", lab.spec, "--endpoints", lab.endpoints)
    assert commit[:7] in story.out


def test_sigterm_parks_and_the_next_one_goes_on(lab: LabDirectory, repository: Path) -> None:
    history = lab.path / "history"
    with running(lab, repository, "--record", str(history), "--redact", command=signed(lab)) as service:
        until(lambda: service.ready().get("ready"), 90)
        before = lab.state()["nodes"]["gpu-0002"]["counters"]["boots"]
        lab.fault("gpu-0002", "host_hung")
        until(lambda: any(one.get("action") == "power_cycle" for one in service.said("action_started")), 90)
        assert service.stop().code == 0
        assert not service.said("record"), "the ledger is open for as long as names are asked of it"
    assert (history / "LOG.md").is_file()
    with running(lab, repository, command=signed(lab)) as service:
        settled = lambda: {(one["node"], one["state"]) for one in service.said("node_settled")}  # noqa: E731
        until(lambda: ("gpu-0002", "done") in settled(), 180)
        assert service.stop(signal.SIGINT).code == 130
    assert lab.state()["nodes"]["gpu-0002"]["counters"]["boots"] - before <= 2
    assert json.loads(lab.plan().read_text())["nodes"]["gpu-0002"]["in_service"] is True


def test_a_usage_error_is_reported_at_once(tmp_path: Path, lab: LabDirectory) -> None:
    bad = tmp_path / "spec"
    bad.mkdir()
    (bad / "fleet.yaml").write_text("kind: Fleet\n")
    assert reconciler("run", bad, "--listen", "off").code == 3
    assert reconciler("run", tmp_path / "nowhere").code == 64
    assert reconciler("run", lab.spec, "--interval", "1s").code == 64
    open_to_all = reconciler("run", lab.spec, "--endpoints", lab.endpoints, "--listen", ":0")
    assert open_to_all.code == 64
    assert "can be reached from other machines" in open_to_all.err
    assert reconciler("run", lab.spec, "--token", "ann=emperor").code == 64
    busy = socket.create_server(("127.0.0.1", 0))
    done = reconciler("run", lab.spec, "--endpoints", lab.endpoints, "--listen", f"127.0.0.1:{busy.getsockname()[1]}")
    busy.close()
    assert done.code == 64
    assert "can't serve" in done.err
