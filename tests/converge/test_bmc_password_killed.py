"""SIGKILL ends the process that changes a password, at each of its calls: the next process logs in, and ends it.

The process is real, and so are its driver, the programs of its secret, and the BMC's lock after refused logins.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.lab.wire.redfish_quirks import Quirks
from tests.conftest import ROOT
from tests.converge.rotating_process import CALLS
from tests.drivers.redfish.test_account import STORE
from tests.lab.redfish_bench import PASSWORD, USERNAME, Bench, make_trust

pytestmark = pytest.mark.wire

Rotate = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    (tmp_path / "store").write_text(STORE)
    (tmp_path / "store").chmod(0o700)
    (tmp_path / "n0.json").write_text(json.dumps({"username": USERNAME, "password": PASSWORD}))
    sources = {"bmc": {"exec": ["./store", "get"], "write": ["./store", "put"], "allow": ["127.0.0.0/8"]}}
    (tmp_path / "secrets.yaml").write_text(json.dumps({"secrets": sources}))
    (tmp_path / "secrets.yaml").chmod(0o600)
    with Bench(make_trust(tmp_path), Quirks(locks_after=3)) as found:
        yield found


@pytest.fixture
def rotate(bench: Bench, tmp_path: Path) -> Rotate:
    def run(*killed: str) -> subprocess.CompletedProcess[str]:
        words = [bench.url, str(bench.trust.ca), str(tmp_path / "secrets.yaml"), *killed]
        program = [sys.executable, "-m", "tests.converge.rotating_process", *words]
        return subprocess.run(program, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)

    return run


def kept(tmp_path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((tmp_path / "n0.json").read_text())
    return found


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("call", CALLS)
def test_the_next_process_ends_it_and_locks_nobody_out(
    bench: Bench, rotate: Rotate, tmp_path: Path, call: str, when: str
) -> None:
    if call == "put_password_back":
        bench.machine.inject("password_change", how="ignored")
    died = rotate(call, when)
    assert died.returncode == -9, died.stderr
    assert bench.server.password in (kept(tmp_path)["password"], kept(tmp_path).get("previous"))
    ended = rotate()
    assert ended.stdout.startswith("done: "), ended.stdout + ended.stderr
    assert kept(tmp_path) == {"username": USERNAME, "password": bench.server.password}
    assert bench.server.password != PASSWORD
    assert bench.server.refused_logins <= 2
    for told in (died, ended):
        assert bench.server.password not in told.stdout + told.stderr
        assert PASSWORD not in told.stdout + told.stderr


def test_a_bmc_that_is_another_machine_s_keeps_its_password(bench: Bench, rotate: Rotate, tmp_path: Path) -> None:
    bench.machine.inject("wrong_machine")
    ended = rotate()
    assert ended.stdout.startswith("refused: "), ended.stdout + ended.stderr
    assert bench.server.password == PASSWORD
    assert kept(tmp_path) == {"username": USERNAME, "password": PASSWORD}
