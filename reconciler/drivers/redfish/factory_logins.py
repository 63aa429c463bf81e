"""Logins that BMCs are shipped with, as their vendors document them: whoever can reach such a BMC owns the machine.

A login that is on a label of each machine, as HPE's and newer ones of Dell and Supermicro, can be in no list.
"""

from __future__ import annotations

from typing import Final

from reconciler.drivers.secrets import Credentials

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
}


def factory_login(credentials: Credentials) -> str:
    """Return whose BMCs are shipped with this login; "" where no vendor documents it."""
    return _LOGINS.get((credentials.username, credentials.password.reveal()), "")
