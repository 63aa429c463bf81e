"""The namespaces of `make machine` leave nothing, also when what made them is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from tests.machine.namespace import BRIDGE

pytestmark = [pytest.mark.tool, pytest.mark.skipif(os.geteuid() != 0, reason="namespaces take root")]

_RUN = "import sys; from tests.machine.namespace import run_inside; sys.exit(run_inside(sys.argv[1:]))"


def _inside(script: str) -> list[str]:
    return [sys.executable, "-c", _RUN, "sh", "-c", script]


def _runs(marker: str) -> bool:
    return subprocess.run(["pgrep", "-f", f"^sleep {marker}$"], stdout=subprocess.DEVNULL).returncode == 0


@pytest.fixture
def marker() -> str:
    """Return the argument of a sleep that no other process has."""
    return f"9{os.getpid()}.{time.monotonic_ns()}"


@pytest.fixture(autouse=True)
def _may_make_namespaces() -> None:
    done = subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "true"], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"no namespace can be made here: {done.stderr.strip()}")


def test_the_bridge_is_inside_alone(marker: str) -> None:
    script = f"ip link show {BRIDGE} >/dev/null && touch /etc/of-the-namespace && (setsid sleep {marker} &) && exit 7"
    assert subprocess.run(_inside(script)).returncode == 7
    assert BRIDGE not in subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout
    assert not os.path.exists("/etc/of-the-namespace")  # noqa: PTH110
    assert not _runs(marker), "an orphan outlives the command"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_when_it_is_killed(marker: str, how: signal.Signals) -> None:
    with subprocess.Popen(_inside(f"setsid sleep {marker} & sleep 600")) as process:
        deadline = time.monotonic() + 60
        while not _runs(marker) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert _runs(marker)
        process.send_signal(how)
    while _runs(marker) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not _runs(marker)
