"""The machine, its BMC and its fleet, which all tests of a run share and change one after the other."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.machine import bmc, ipxe
from tests.machine.console import Console
from tests.machine.dhcp import start_dhcp
from tests.machine.firmware import trust_over_https
from tests.machine.fleet import IMAGE_PORT, Fleet
from tests.machine.machine import DISK_BYTES, UUID, Machine
from tests.machine.namespace import GATEWAY, entered
from tests.machine.pki import Pki
from tests.machine.processes import Server

_FIGURES = pytest.StashKey[list[str]]()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    if not entered():
        pytest.skip("no machine: make machine starts one and runs these")
    folder = tmp_path_factory.mktemp("machine")
    yield folder
    shutil.rmtree(folder / "vm", ignore_errors=True)


@pytest.fixture(scope="session")
def builds(home: Path) -> Path:
    """What was built before the namespace was entered, since it has no way out: keys, installer and images."""
    return Path(os.environ["MACHINE_BUILDS"])


@pytest.fixture(scope="session")
def pki(builds: Path) -> Pki:
    return Pki(builds / "pki", GATEWAY)


@pytest.fixture(scope="session")
def machine(home: Path, pki: Pki, builds: Path) -> Iterator[Machine]:
    """A machine that is off and was never installed, behind a BMC that answers."""
    folder = home / "vm"
    folder.mkdir()
    console = Console(folder / "console")
    variables = folder / "delivered.fd"
    trust_over_https(builds / "vars.fd", pki.ca, variables)
    made = Machine(folder, variables, console)
    with start_dhcp(home, home / "tftp"), bmc.start_libvirt(home):
        made.build()
        with bmc.start_emulator(home, pki, UUID, DISK_BYTES, variables, made.firmware):
            yield made
            if made.is_on():
                made.cut_power()
    console.close()


@pytest.fixture(scope="session")
def boot_file(home: Path, pki: Pki, machine: Machine) -> Path:
    """iPXE, where the machine's firmware finds it."""
    sources = ipxe.source()
    if sources is None:
        pytest.skip(f"PXE needs an iPXE that trusts our CA: {ipxe.SOURCE}=DIR names a tree of its sources")
    return ipxe.build(sources, pki, home / "tftp")


@pytest.fixture(scope="session")
def fleet(home: Path, pki: Pki, builds: Path) -> Fleet:
    made = Fleet(home / "fleet", pki, builds)
    made.make()
    return made


@pytest.fixture(scope="session")
def images(home: Path, fleet: Fleet, builds: Path) -> Iterator[None]:
    """Serve the images, as any web server does, and one that is corrupt in the middle."""
    folder = fleet.images
    shutil.copytree(builds / "images", folder)
    corrupt = bytearray((folder / "B.raw.zst").read_bytes())
    corrupt[len(corrupt) // 2] ^= 0xFF
    (folder / "corrupt.raw.zst").write_bytes(corrupt)
    program = [sys.executable, "-m", "tests.machine.image_server", str(folder), GATEWAY, str(IMAGE_PORT)]
    with Server(program, home / "images.log"):
        yield


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Print a line when all tests have run."""
    return request.config.stash.setdefault(_FIGURES, []).append


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in terminalreporter.config.stash.get(_FIGURES, []):
        terminalreporter.write_line(line)
