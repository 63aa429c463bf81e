"""How fast one core encrypts, which limits a node whose scratch drives are encrypted: a test of the gate.

`openssl speed -mr` prints, for machines, one line for each cipher, `+F:26:AES-256-GCM:5300131840.00`: bytes a second.
"""

from __future__ import annotations

import re

from reconciler.drivers.extensions import GateTool, Measured, Trial, UnreadableOutputError
from reconciler.model.gate import CommandResult

_RATE = re.compile(r"^\+F:[0-9]+:([A-Za-z0-9-]+):([0-9]+\.[0-9]+)$", re.MULTILINE)
_VERSION = re.compile(r"^OpenSSL (\S+) ", re.MULTILINE)
_CIPHER = re.compile(r"[a-z0-9-]+")


def _cipher(trial: Trial) -> str:
    cipher = trial.options.get("cipher", "aes-256-gcm")
    if not _CIPHER.fullmatch(cipher):
        raise ValueError(f"{cipher!r} is no cipher")  # options come from the spec, and this one goes to a shell
    return cipher


def _command(trial: Trial) -> str:
    return f"openssl version && exec openssl speed -mr -seconds 1 -bytes 16384 -evp {_cipher(trial)}"


def _read(trial: Trial, output: CommandResult) -> Measured:
    rates = [float(rate) for name, rate in _RATE.findall(output.stdout) if name.lower() == _cipher(trial)]
    version = _VERSION.search(output.stdout)
    if len(rates) != 1 or version is None:
        raise UnreadableOutputError("openssl did not print its version, and one rate of the cipher")
    return Measured({"encrypt_mbps": rates[0] / 1e6}, {"encrypt_mbps": "MB/s"}, version[1])


SPEED = GateTool(api=1, command=_command, read=_read)
