"""Logins that BMCs and rack PDUs are shipped with, as their vendors document them.

Whoever can reach such a BMC owns the machine, and whoever can reach such a PDU turns all of a rack off.

A login that is on a label of each machine, as HPE's and newer ones of Dell and Supermicro, can be in no list.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from reconciler.drivers.secrets import Credentials
from reconciler.model.node_names import fold

_LOGINS: Final = {
    # Dell KB 000133536, "What is the Default Username and Password for iDRAC": the legacy password
    ("root", "calvin"): "Dell's iDRAC",
    # Supermicro, "BMC Unique Password": boards before 2020
    ("ADMIN", "ADMIN"): "Supermicro's boards of before 2020",
    # Lenovo, "XClarity Controller User's Guide", Logging in to the XClarity Controller
    ("USERID", "PASSW0RD"): "Lenovo's XClarity Controller",
    # openbmc/docs, development/dev-environment.md; NVIDIA's HGX and GB200 trays among others are built on it
    ("root", "0penBmc"): "OpenBMC",
    # NVIDIA, "DGX GB200 Firmware Update Guide", BMC Credentials and Factory Reset
    ("admin", "admin"): "NVIDIA's DGX, and AMI's MegaRAC",
    # GIGABYTE, "BMC Unique Pre-Programmed Password Implementation Announcement" (2020): shipped before March 2020
    ("admin", "password"): "GIGABYTE's boards of before 2020",
    # APC by Schneider Electric, "Switched Rack PDU User's Guide", Types of user accounts: the Administrator's
    ("apc", "apc"): "APC's rack PDU",
}


def factory_login(credentials: Credentials) -> str:
    """Return whose BMCs or PDUs are shipped with this login; "" where no vendor documents it."""
    return _LOGINS.get((credentials.username, credentials.password.reveal()), "")


def factory_logins(makes: Mapping[str, str], read: int, secret: str) -> tuple[str, ...]:
    """Return a sentence for each vendor by whose login BMCs have let us in. `makes`: by node; `read`: BMCs that did."""
    found: dict[str, list[str]] = {}
    for node, make in sorted(makes.items()):
        found.setdefault(make, []).append(node)
    return tuple(
        f"{len(nodes)} of {read} BMCs take the login that {make} comes with (secret {secret}), those of {fold(nodes)}: "
        "whoever reaches them owns the machines; change it (docs/how-to/bmc-passwords.md)"
        for make, nodes in sorted(found.items())
        if make
    )
