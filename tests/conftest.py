"""Shared fixtures and the Hypothesis profiles."""

from __future__ import annotations

import gc
import importlib
import os
import pkgutil
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

import reconciler

if TYPE_CHECKING:
    from tests.kubernetes.control_plane import ControlPlane

settings.register_profile("dev", deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("edit", settings.get_profile("dev"), max_examples=20)  # `make check`, after each edit
settings.register_profile(
    "ci",
    deadline=None,
    max_examples=100,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", settings.get_profile("ci"), max_examples=500, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev"))

ROOT = Path(__file__).resolve().parents[1]
MEMORY = Path("/dev/shm")
ENOUGH = 4 << 30  # bytes
OBJECTS = 50_000  # made between two searches for cycles: by default 700


def pytest_configure(config: pytest.Config) -> None:
    """Import every module first: Hypothesis draws constants of the modules that it finds imported.

    Otherwise what a derandomized test draws depends on which tests its worker ran before it.
    """
    gc.set_threshold(OBJECTS, 10, 10)
    _bypass_dispatcher(config)
    _keep_files_in_memory()
    for module in pkgutil.walk_packages(reconciler.__path__, "reconciler."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def _bypass_dispatcher(config: pytest.Config) -> None:
    """Put a plain kubectl first on PATH where Google's SDK has a dispatcher in its place.

    Before each command, that asks the server for its version, and starts the kubectl of that version, which lies beside
    it: twice the work, for thousands of commands.
    """
    program = Path(shutil.which("kubectl") or "/").resolve()
    plain = {int(path.suffix[1:]): path for path in program.parent.glob("kubectl.1.*") if path.suffix[1:].isdecimal()}
    if program.name != "kubectl" or not plain:
        return
    folder = tempfile.TemporaryDirectory()
    config.add_cleanup(folder.cleanup)
    Path(folder.name, "kubectl").symlink_to(plain[max(plain)])
    os.environ["PATH"] = f"{folder.name}:{os.environ['PATH']}"


def _keep_files_in_memory() -> None:
    """Put the folders of tests where no ledger waits for a disk at each commit, if there is enough memory.

    A folder of a test that passed is removed at once (`tmp_path_retention_policy`).
    """
    if not MEMORY.is_dir():
        return
    found = os.statvfs(MEMORY)
    if not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize >= ENOUGH:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update", action="store_true", help="write the golden plans anew: read what has changed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Try again what fails and waits for servers and real programs, in real time: a busy machine may starve one.

    What needs no clock but a virtual one has no excuse. The summary names each that passed only then.
    """
    for item in items:
        goes_on = "subtests" in getattr(item, "fixturenames", ())  # from where it was: it can't begin again
        if not goes_on and any(item.get_closest_marker(mark) for mark in ("wire", "tool", "kubernetes")):
            item.add_marker(pytest.mark.flaky(reruns=1, reruns_delay=5))


def pytest_collection_finish() -> None:
    """Have the search for cycles leave out modules and tests, which stay: it took up a tenth of the time of tests."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def samples() -> Path:
    """Real outputs of real tools, kept beside the checkout where the project is developed."""
    path = ROOT.parent / "shared" / "samples"
    if not path.is_dir():
        pytest.skip("the folder of recorded samples is not beside this checkout")
    return path


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Start a real Kubernetes API server with its controllers and scheduler. All tests of a process share it."""
    programs = os.environ.get("KUBERNETES_PROGRAMS")
    if programs is None:
        pytest.skip("no Kubernetes control plane: make e2e-kubernetes builds one and runs these")
    from tests.kubernetes.control_plane import ControlPlane

    plane = ControlPlane(Path(programs), tmp_path_factory.mktemp("control-plane"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Why tests were skipped, one line per reason, and which were tried twice."""
    places = (report.longrepr for report in terminalreporter.stats.get("skipped", []))
    reasons = Counter(str(place[2]).removeprefix("Skipped: ") for place in places)
    if reasons:
        terminalreporter.section("skipped")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:6}  {reason}")
    twice = sorted({report.nodeid for report in terminalreporter.stats.get("rerun", [])})
    if twice:
        terminalreporter.section("tried twice")
    for name in twice:
        terminalreporter.write_line(name)
