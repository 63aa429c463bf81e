"""The installer: the program that boots on a machine, fetches its document and writes its image (contract v1).

It is the only program of an initrd: /init runs `python3 -m reconciler.installer` as root, and need not mount anything.
The program mounts what it needs, loads modules, and always ends by switching the machine off; /init runs
`busybox poweroff -f` should it ever return. Output goes to standard output: /init points that to the console.

It uses Python's own library alone, the programs of PROGRAMS, and these files:

- /etc/reconciler/ca.pem: the certificates that sign the servers it may talk to (PEM, one or more)
- /etc/reconciler/keys/NAME.pub: minisign public keys; the document names one
- /.extra/credentials/attempt.cred: the attempt, put there by systemd-stub; every other file in /.extra is ignored
- /lib/modules/RELEASE with modules.alias and modules.dep: drivers are loaded by the aliases of the devices found, and
  those of MODULES, which no device asks for, by name
"""

from __future__ import annotations

from typing import Final

PROGRAMS: Final = (
    "addpart",  # util-linux: a partition in the kernel alone, since the table is written last
    "busybox",  # ip, udhcpc, poweroff
    "delpart",
    "hdparm",  # to erase SATA drives
    "mcopy",  # mtools: the ESP is not mounted, so that no FAT of the kernel is needed
    "mdel",
    "mdir",
    "minisign",
    "mkfs.ext4",
    "mkfs.vfat",
    "mmd",
    "mmove",
    "modprobe",
    "mount",
    "nvme",  # nvme-cli: to erase NVMe drives
    "sfdisk",
    "ssh-keygen",
    "tpm2",  # tpm2-tools with its TCTI for /dev/tpmrm0 (libtss2-tcti-device)
    "umount",
    "zstd",
)
"""Programs that the initrd must have on PATH, beside python3 with its ssl, hashlib and ctypes modules."""

MODULES: Final = (
    "8021q",
    "efivarfs",
    "ext4",
    "sd_mod",
    "tpm_crb",
    "tpm_tis",
)
"""Kernel modules that are loaded by name. One that is built into the kernel, or is not there, is no error."""
