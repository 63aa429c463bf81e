"""The BMC: sushy-tools' emulator with its libvirt driver, over TLS and with a password, and the libvirt under it.

Neither is ours, but for the boot over HTTP and the second drive. What they don't do as a real BMC does: a drive has the
serial number 1234570, an override is always Continuous, BIOS attributes apply at once, and a machine that reboots keeps
its CD.
"""

from __future__ import annotations

import base64
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

from tests.machine.namespace import GATEWAY
from tests.machine.pki import BMC_PASSWORD, BMC_USER, Pki
from tests.machine.processes import Server

PORT = 8443
URL = f"https://{GATEWAY}:{PORT}"
DRIVE_SERIAL, SECOND_SERIAL = "1234570", "1234571"
SECOND_DRIVE = "D2"  # shown while the machine has it
OVMF = Path("/usr/share/OVMF")
_STARTS_S = 30.0
_LIBVIRT_MODULES = Path("/usr/lib/python3/dist-packages")  # of python3-libvirt: PyPI has it as source alone

# No cgroups, no security labels, everything as root: the namespace is what keeps them apart.
_QEMU_CONF = """\
user = "root"
group = "root"
dynamic_ownership = 0
remember_owner = 0
security_driver = "none"
cgroup_controllers = []
namespaces = []
stdio_handler = "file"
swtpm_user = "root"
swtpm_group = "root"
"""
# libvirt looks its default account up, though it is told to use another.
_ACCOUNT = {
    "/etc/passwd": "libvirt-qemu:x:64055:64055::/:/usr/sbin/nologin\n",
    "/etc/group": "libvirt-qemu:x:64055:\n",
}


def virsh(*words: str) -> str:
    """Run virsh and return what it prints. It says on stderr what went wrong."""
    done = subprocess.run(["virsh", "-q", "-c", "qemu:///system", *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"virsh {' '.join(words)}: {done.stderr.strip()}"
    return done.stdout


def start_libvirt(home: Path) -> Server:
    """Start libvirtd in this namespace, with a storage pool for the media that the BMC fetches."""
    Path("/etc/libvirt/qemu.conf").write_text(_QEMU_CONF)
    for file, line in _ACCOUNT.items():
        with Path(file).open("a") as names:
            names.write(line)
    for folder in ("/run/libvirt", "/var/lib/libvirt/images", "/var/log/libvirt/qemu"):
        Path(folder).mkdir(parents=True, exist_ok=True)
    server = Server(["libvirtd"], home / "libvirtd.log")

    def answers() -> bool:
        return subprocess.run(["virsh", "-q", "list"], capture_output=True, check=False).returncode == 0

    server.wait_until(answers, _STARTS_S)
    virsh("pool-define-as", "default", "dir", "--target", "/var/lib/libvirt/images")
    virsh("pool-start", "default")
    return server


def start_emulator(
    home: Path, pki: Pki, system: str, disk_bytes: int, secure_boot_vars: Path, firmware: Path
) -> Server:
    """Start the emulator for the machine with the UUID `system`, whose own variables are in `firmware`."""
    names = ["D1", SECOND_DRIVE]
    drives = [{"Id": name, "Name": name, "CapacityBytes": disk_bytes, "Protocol": "SAS"} for name in names]
    settings = {
        "LISTEN_IP": GATEWAY,
        "LISTEN_PORT": PORT,
        "SSL_CERT": str(pki.certificate),
        "SSL_KEY": str(pki.key),
        "AUTH_FILE": str(pki.home / "htpasswd"),
        "STATE_DIR": str(home / "emulator"),
        "LIBVIRT_URI": "qemu:///system",
        "BOOT_LOADER_MAP": {"UEFI": {"x86_64": str(OVMF / "OVMF_CODE_4M.secboot.fd")}, "Legacy": {"x86_64": None}},
        "SECURE_BOOT_ENABLED_NVRAM": str(secure_boot_vars),
        "SECURE_BOOT_DISABLED_NVRAM": str(OVMF / "OVMF_VARS_4M.fd"),
        "STORAGE": {system: [{"Id": "1", "Name": "Local", "StorageControllers": [], "Drives": names}]},
        "DRIVES": {(system, "1"): drives},
    }
    (home / "emulator").mkdir()
    config = home / "emulator.conf"
    config.write_text("".join(f"SUSHY_EMULATOR_{name} = {value!r}\n" for name, value in settings.items()))
    hooks = [str(firmware), str(secure_boot_vars)]
    program = [sys.executable, "-m", "tests.machine.emulator", *hooks, "--config", str(config)]
    server = Server(program, home / "emulator.log", {"PYTHONPATH": str(_libvirt_module(home))})
    server.wait_until(lambda: _answers(pki), _STARTS_S)
    return server


def _libvirt_module(home: Path) -> Path:
    """Put Debian's libvirt module, and nothing else of Debian's, where the emulator's interpreter finds it."""
    folder = home / "libvirt-module"
    folder.mkdir()
    for file in _LIBVIRT_MODULES.glob("libvirt*"):
        if file.name == "libvirt.py" or file.name.startswith("libvirtmod."):
            (folder / file.name).symlink_to(file)
    return folder


def _answers(pki: Pki) -> bool:
    token = base64.b64encode(f"{BMC_USER}:{BMC_PASSWORD}".encode()).decode()
    request = urllib.request.Request(f"{URL}/redfish/v1/Systems", headers={"Authorization": f"Basic {token}"})
    try:
        with urllib.request.urlopen(request, timeout=5, context=ssl.create_default_context(cafile=str(pki.ca))) as got:
            return bool(got.status == 200)
    except urllib.error.URLError:
        return False
