"""A machine for tests: a TPM simulator (swtpm) behind real tpm2-tools, and a recorded boot to put into it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from reconciler.gate.attestation.event_log import EV_NO_ACTION, parse_log, replay
from reconciler.gate.attestation.host import begin_command, finish_command, read_begin, read_finish
from reconciler.gate.attestation.judge import judge_boot
from reconciler.model.install import AttestationBegin, AttestationChallenge, AttestationFinish
from reconciler.model.measurements import BootMeasurements, FirmwareReference, PlatformMeasurements, SecureBootKeys
from tests.conftest import ROOT

# What record.sh recorded: OVMF with Secure Boot, systemd-boot and a UKI that were signed by its own key.
LOG = (ROOT / "reconciler/lab/hardware/ovmf-secure-boot.bin").read_bytes()
EVENTS = parse_log(LOG)
PCRS = {  # as the kernel showed them in /sys/class/tpm/tpm0/pcr-sha256 in the same boot
    0: "b2ca24e9547a4561bac625b143a9d8665689249afa655d16597c67b11e43c88f",
    1: "a5551b9dd338cb445d149eaac8843ec09f69014c6fddf2b4fe1b16458c757510",
    2: "3d458cfe55cc03ea1f443f1562beec8df51c75e14a9fcf9a7234a13f198e7969",
    3: "3d458cfe55cc03ea1f443f1562beec8df51c75e14a9fcf9a7234a13f198e7969",
    4: "02a1c4813808e59b1979d5a0903e8e856a69e71affcd02b4d34b5b4fbb67881c",
    5: "de34ca43e0a115efe05e4eeb92c78da1984bc093da03c93ccc2e3738fbe93923",
    6: "3d458cfe55cc03ea1f443f1562beec8df51c75e14a9fcf9a7234a13f198e7969",
    7: "02a4f904010ebddfb1ce765622af8d48ac2408422e220ad4eed1e1856407f704",
    9: "48f0ef7994d6b342953b4e769e65b29d2da778ca14b36b413f03331c30f4233a",
    11: "af6cf24d4e8e85d272b8e4cc73c31f4b16130a2774da17f29a355f82372042e6",
    12: "309df4a0ad1c21c99616857151b3fb514f0cfa97ebad663ffd6412a1c5a89e2d",
}
BOOT_LOADER = "9bf2519c746ec66b569300e423127a9361b47af7f66783c7e1378fb055671ad4"
UKI = "9e22b204a06655d3bbd0b4787cf47f2c6f28db58f94192e07332ebdebc8b4cc9"
BOOT = BootMeasurements((BOOT_LOADER, UKI), {"start": PCRS[11]})
KEYS = SecureBootKeys(
    pk=("27a226463fc4fdea62a7bc4e88ff3df4c4cc4cb7347a21cc13bfb28acd692f67",),
    kek=("42994b10ae6ac71742170e14549e664e673365abef6e716dbf58e6971c3a1014",),
    db=("42994b10ae6ac71742170e14549e664e673365abef6e716dbf58e6971c3a1014",),
    dbx=("6cc1e93b2b3f263e5442e1717348ab721230c33d9f69a7265e8480fd7f087ff9",),
)
PLATFORM = PlatformMeasurements(KEYS, (FirmwareReference({"bios": "1.0"}, {"0": PCRS[0], "2": PCRS[2]}),))
VERSIONS = {"bios": "1.0"}
HOST_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJUE5iqtUpcmLOeRO6t7OYlL5bhvTZ0gbAwQ0Kz0bZ9P root@node"

MISSING = [name for name in ("swtpm", "tpm2_quote", "tpm2_createek") if shutil.which(name) is None]


def judge(**changes: Any) -> tuple[str, ...]:
    """Judge the recorded boot, with changes of its events, of the PCRs or of what is declared."""
    events, pcrs = changes.pop("events", EVENTS), changes.pop("pcrs", replay(EVENTS))
    boot, platform = changes.pop("boot", BOOT), changes.pop("platform", PLATFORM)
    versions = changes.pop("versions", VERSIONS)
    assert not changes
    return judge_boot(pcrs, events, boot, platform, versions).reasons


def keys(**changes: Any) -> PlatformMeasurements:
    return replace(PLATFORM, secure_boot=replace(KEYS, **changes))


@dataclass(slots=True)
class Machine:
    """A host with a TPM: what SSH would run there is run here."""

    folder: Path
    port: int
    tpm: subprocess.Popen[bytes]
    log: bytes = LOG

    def cut_power(self) -> None:
        """Let the TPM lose its power, without the word of warning that firmware and kernel have for it."""
        self.tpm.kill()
        self.tpm.wait()
        self.tpm = _start(self.folder, self.port)

    def boot(self, log: bytes = LOG) -> None:
        """Measure what a log says, as the firmware did when it wrote it."""
        self.log = log
        for event in parse_log(log):
            if event.type != EV_NO_ACTION:
                self.run("tpm2_pcrextend", f"{event.pcr}:sha256={event.digest.hex()}")

    def run(self, *argv: str) -> str:
        done = subprocess.run(argv, capture_output=True, text=True, env=self.environment, cwd=self.folder, timeout=120)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TPM2TOOLS_TCTI": f"swtpm:host=127.0.0.1,port={self.port}"}

    @property
    def places(self) -> dict[str, str]:
        (self.folder / "log").write_bytes(self.log)
        (self.folder / "key.pub").write_text(f"{HOST_KEY}\n")
        return {
            "WORK": str(self.folder / "work"), "KEY": str(self.folder / "key.pub"), "LOG": str(self.folder / "log"),
        }  # fmt: skip

    def begin(self) -> AttestationBegin:
        self.run("tpm2_flushcontext", "-t")  # what a kernel does by itself when a program ends
        return read_begin(self.run(*begin_command(**self.places)))

    def finish(self, challenge: AttestationChallenge) -> AttestationFinish:
        return read_finish(self.run(*finish_command(challenge, **self.places)))


@contextmanager
def machine(folder: Path) -> Iterator[Machine]:
    """Run a TPM on loopback for as long as the block lasts."""
    (folder / "tpm").mkdir(parents=True)
    port = _two_free_ports()
    made = Machine(folder, port, _start(folder, port))
    try:
        yield made
    finally:
        made.tpm.kill()
        made.tpm.wait()


def _start(folder: Path, port: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([
        "swtpm", "socket", "--tpm2", "--tpmstate", f"dir={folder / 'tpm'}",
        "--server", f"type=tcp,port={port},bindaddr=127.0.0.1,disconnect",
        "--ctrl", f"type=tcp,port={port + 1},bindaddr=127.0.0.1", "--flags", "not-need-init,startup-clear",
    ])  # fmt: skip
    _await_port(port, process)
    return process


def _two_free_ports() -> int:
    """Return a port that is free together with the one above it, where tpm2-tools expect the control channel."""
    while True:
        with socket.create_server(("127.0.0.1", 0)) as one:
            port = int(one.getsockname()[1])
            try:
                with socket.create_server(("127.0.0.1", port + 1)):
                    return port
            except OSError:
                continue


def _await_port(port: int, process: subprocess.Popen[bytes]) -> None:
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, "swtpm has ended"
            time.sleep(0.05)
        else:
            return
    raise AssertionError("swtpm does not listen")
