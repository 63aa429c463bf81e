"""The machine that the init runs on: programs, paths, mounts, modules, and the switch that ends every install."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.installer import MODULES

_ENVIRONMENT = {
    "LC_ALL": "C",
    "MTOOLS_SKIP_CHECK": "1",  # mtools asks for a geometry that only diskettes have
    "TSS2_LOG": "all+NONE",  # tpm2-tools say why themselves
}
SETTLE = 2.0  # seconds without a new device before the search for drivers ends
SEARCH = 30.0  # seconds that it takes at most
_SYSTEM_MOUNTS = (
    ("proc", "/proc"),
    ("sysfs", "/sys"),
    ("devtmpfs", "/dev"),
    ("tmpfs", "/run"),
    ("tmpfs", "/tmp"),  # noqa: S108  the initrd's own: nobody else is here
)
_OPTIONAL_MOUNTS = (("efivarfs", "/sys/firmware/efi/efivars"), ("securityfs", "/sys/kernel/security"))


class Failed(Exception):
    """The install can't go on. The text is the reason, one line, which the server and the console are told.

    `cause`: the kind of the reason, by the contract; "" for those that have none. `words`: those of a program.
    """

    def __init__(self, why: str, cause: str = "", words: str = "") -> None:
        super().__init__(why)
        self.cause = cause
        self.words = words


def say(text: str) -> None:
    """Write a line for whoever watches the console. What comes from elsewhere can't steer a terminal."""
    shown = "".join(char if char.isprintable() else " " for char in text)
    sys.stdout.write(f"[installer {time.monotonic():.1f}] {shown}\n")
    sys.stdout.flush()


@dataclass(frozen=True)
class Machine:
    """The paths of a machine. Tests give folders and loop devices."""

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    extra: Path = Path("/.extra")
    trust: Path = Path("/etc/reconciler")
    work: Path = Path("/run/installer")
    proc: Path = Path("/proc")

    def run(self, *command: str, stdin: bytes = b"", timeout: float = 600.0) -> bytes:
        """Run a program and return what it printed. Raise Failed with its own words when it fails."""
        try:
            done = subprocess.run(
                command,
                input=stdin,
                capture_output=True,
                timeout=timeout,
                check=False,
                env={**os.environ, **_ENVIRONMENT},
            )
        except FileNotFoundError:
            raise Failed(f"the installer lacks the program {command[0]}") from None
        except subprocess.TimeoutExpired:
            raise Failed(f"{command[0]} was not done within {timeout:.0f} s") from None
        if done.returncode:
            words = " ".join((done.stderr or done.stdout).decode(errors="replace").split())[:300]
            raise Failed(f"{command[0]} failed: {words or f'exit status {done.returncode}'}", words=words)
        return done.stdout

    @contextmanager
    def mounted(self, device: Path, options: str = "rw") -> Iterator[Path]:
        """Mount a file system for the time of a `with`, and write it out before it ends."""
        place = self.work / "mnt" / device.name
        place.mkdir(parents=True, exist_ok=True)
        self.run("mount", "-o", options, str(device), str(place))
        try:
            yield place
        finally:
            self.run("umount", str(place))

    def read(self, path: Path) -> str:
        """Return the text of a file in sysfs without space around it, "" when it can't be read."""
        try:
            return path.read_bytes().decode(errors="replace").strip().strip("\0").strip()
        except OSError:
            return ""


def prepare(machine: Machine) -> None:
    """Mount what the kernel offers and load the drivers of the devices that are there."""
    os.environ.setdefault("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    for kind, place in _SYSTEM_MOUNTS:
        if not Path(place).is_mount():
            Path(place).mkdir(exist_ok=True)
            machine.run("mount", "-t", kind, kind, place)
    machine.work.mkdir(parents=True, exist_ok=True)
    load_drivers(machine)
    for kind, place in _OPTIONAL_MOUNTS:
        if Path(place).is_dir() and not Path(place).is_mount():
            _try(machine, "mount", "-t", kind, kind, place)


def load_drivers(machine: Machine) -> None:
    """Load modules by the aliases of all devices, again while drivers bring new devices to light."""
    _modprobe(machine, MODULES)
    tried: set[str] = set()
    begun = changed = time.monotonic()
    while time.monotonic() - changed < SETTLE and time.monotonic() - begun < SEARCH:
        aliases = {machine.read(path) for path in (machine.sys / "devices").rglob("modalias")} - tried - {""}
        if aliases:
            _modprobe(machine, sorted(aliases))
            tried |= aliases
            changed = time.monotonic()
        time.sleep(0.2)


def _modprobe(machine: Machine, names: Sequence[str]) -> None:
    """Load modules. Most devices have none here: `-q` says nothing of them, but fails for them as well."""
    try:
        machine.run("modprobe", "-q", "-a", "-b", *names)
    except Failed as error:
        if error.words:
            say(str(error))


def _try(machine: Machine, *command: str) -> None:
    """Run what may fail, and name what did on the console."""
    try:
        machine.run(*command)
    except Failed as error:
        say(str(error))


def identity(machine: Machine) -> tuple[str, str]:
    """Return the serial number and UUID that SMBIOS has, "" for what it lacks."""
    dmi = machine.sys / "class/dmi/id"
    return machine.read(dmi / "product_serial"), machine.read(dmi / "product_uuid")


def check_identity(machine: Machine, serial: str | None, uuid: str | None) -> None:
    """Refuse a document that is for another machine. Each value that it gives must be SMBIOS's."""
    here = identity(machine)
    if serial is None and uuid is None:
        raise Failed("the document says neither serial number nor UUID of the machine that it is for", "machine")
    if serial is not None and serial.strip() != here[0]:
        raise Failed(f"the document is for serial number {serial}, and this machine has {here[0] or 'none'}", "machine")
    if uuid is not None and not _same_uuid(uuid, here[1]):
        raise Failed(f"the document is for UUID {uuid}, and this machine has {here[1] or 'none'}", "machine")


def _same_uuid(one: str, other: str) -> bool:
    """Compare UUIDs. DMI stores three fields in little endian, and some BMCs show them so (SMBIOS 2.6, 7.2.1)."""
    first, second = (value.replace("-", "").strip().lower() for value in (one, other))
    swapped = "".join(first[at : at + 2] for at in (6, 4, 2, 0, 10, 8, 14, 12)) + first[16:]
    return bool(first) and second in (first, swapped)


def power_off() -> None:
    """Switch the machine off, whatever happened before."""
    os.sync()
    say("power off")
    subprocess.run(("busybox", "poweroff", "-f"), check=False)
