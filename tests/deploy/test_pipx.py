"""The page's way from a fresh machine to a running loop on PostgreSQL, typed as it is, with a lab for the machines."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from reconciler.drivers.ledger import SqlLedger
from tests.cli.shell import ROOT, until
from tests.docs.pages import blocks, first_words, page, text
from tests.ledger.conftest import server as server  # a fixture
from tests.ledger.postgresql import Server

LINES = [line for block in blocks("sh", text(page("how-to/deploy"))) for line in block.splitlines()]
INSTALL = shlex.join(first_words("how-to/deploy"))
[RUN] = [line for line in LINES if " reconciler run fleet-spec" in line]
UNREACHABLE = ("Could not fetch", "ConnectionError", "Failed to establish", "dns error", "NewConnectionError")
_MISSING = [name for name in ("git", "kubectl") if shutil.which(name) is None]

pytestmark = [
    pytest.mark.tool,
    pytest.mark.wire,
    pytest.mark.skipif(bool(_MISSING), reason=f"there is no {' and no '.join(_MISSING)}"),
]


def fresh(home: Path) -> dict[str, str]:
    """The environment of somebody who has just come, but for where packages are got from."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "LANG", "SSL_"))}
    programs = f"{home}/.local/bin:/usr/local/bin:/usr/bin:/bin"
    return kept | {"HOME": str(home), "USER": "ops", "PATH": programs}


@contextmanager
def typed(command: str, where: Path, env: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command that goes on until it is interrupted, in a group of processes of its own."""
    with log.open("wb") as out:
        words = ["bash", "-c", f"exec env {command}"]
        process = subprocess.Popen(
            words, cwd=where, env=dict(env), stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def got(address: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address, timeout=5) as answer:
            return answer.status, answer.read().decode()
    except OSError:
        return 0, ""


def test_from_a_fresh_machine_to_a_running_loop(server: Server, tmp_path: Path) -> None:
    home, lab = tmp_path / "home", tmp_path / "lab"
    home.mkdir()
    env = fresh(home)
    pipx = {"PATH": f"{Path(sys.executable).parent}:{env['PATH']}"}  # which installs it, and nothing else of ours
    done = subprocess.run(["bash", "-c", INSTALL], cwd=ROOT, env=env | pipx, capture_output=True, text=True)
    if done.returncode != 0 and any(sign in done.stderr for sign in UNREACHABLE):
        pytest.skip("no index of packages can be reached from here")
    assert done.returncode == 0, done.stderr
    program = shutil.which("reconciler", path=env["PATH"])
    assert program == f"{home}/.local/bin/reconciler"
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = str(found.getsockname()[1])
    database = server.database()
    command = RUN.replace("postgresql://reconciler@db.example.com/fleet", f"'{database}'").replace("8090", port)
    assert "db.example.com" not in command
    page_of = f"http://127.0.0.1:{port}"
    up = f"reconciler lab up --nodes 2 --scenario clean --time-scale 240 --dir {lab}"
    with typed(up, home, env, tmp_path / "lab.log"):
        until((lab / "ready").exists, 90)
        there = env | {"RECONCILER_ENDPOINTS": str(lab / "endpoints.json")}  # the lab's machines are on loopback
        with typed(command, lab, there, tmp_path / "run.log") as loop:
            until(lambda: got(f"{page_of}/readyz")[0] == 200 or loop.poll() is not None, 90)
            assert loop.poll() is None, (tmp_path / "run.log").read_text()
            until(lambda: json.loads(got(f"{page_of}/readyz")[1] or "{}").get("last_pass"), 90)
            status, shown = got(f"{page_of}/")
            assert (status, "<html" in shown) == (200, True)
            status, nodes = got(f"{page_of}/api/v1/nodes")
            assert (status, "gpu-0001" in nodes) == (200, True)
            loop.send_signal(signal.SIGINT)
            assert loop.wait(60) == 130, (tmp_path / "run.log").read_text()
    ledger = SqlLedger(database, create=False)
    assert ledger.info().rows["nodes"] == 2, "what it saw is in that database"
    ledger.close()
