"""`python -m tests.machine`: build what a run needs, and run the tests of this folder in namespaces of their own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

from tests.machine.builds import prepare
from tests.machine.namespace import run_inside

_PROGRAMS = {
    "dnsmasq": "dnsmasq-base",
    "ip": "iproute2",
    "libvirtd": "libvirt-daemon",
    "qemu-system-x86_64": "qemu-system-x86",
    "sfdisk": "fdisk",
    "swtpm_setup": "swtpm-tools",
    "virsh": "libvirt-clients",
}
_FILES = {
    "/dev/net/tun": "the kernel module tun",
    "/usr/share/OVMF/OVMF_CODE_4M.secboot.fd": "ovmf",
    "/usr/lib/x86_64-linux-gnu/libvirt/connection-driver/libvirt_driver_qemu.so": "libvirt-daemon-driver-qemu",
    f"/usr/lib/python3/dist-packages/libvirtmod.{sys.implementation.cache_tag}-x86_64-linux-gnu.so": "python3-libvirt, "
    "for this version of Python",
}
# A test waits for a machine that boots under emulation, and one of them for as long as it is told to.
_HANGS_S = 3600 + float(os.environ.get("MACHINE_AWAY_S", "0"))


def missing() -> list[str]:
    """Return what this machine lacks, in words."""
    found = [] if os.geteuid() == 0 else ["root"]
    found += [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    return found + [what for file, what in _FILES.items() if not Path(file).exists()]


def main() -> int:
    if lacks := missing():
        print(f"make machine needs Debian 12 and: {', '.join(lacks)}", file=sys.stderr)
        return 1
    os.environ["MACHINE_BUILDS"] = str(prepare())
    pytest = [sys.executable, "-m", "pytest", "-n0", "-s", "-m", "machine", "tests/machine"]
    return run_inside([*pytest, "-o", f"faulthandler_timeout={_HANGS_S}", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
