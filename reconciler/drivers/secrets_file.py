"""The form of the secrets file: which names there are, and what each of them is read from."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, model_validator

from reconciler.strict_yaml.models import Argv, Checked, Lines, Model, Name, Text

_HOST_PATTERN = re.compile(r"[A-Za-z0-9*?.-]*[A-Za-z][A-Za-z0-9*?.-]*|[*?.]+")  # digits only would be an address
_OCTETS = re.compile(r"((?:[0-9]{1,3}\.){1,3})\*(?:\.\*)*")


def network_of(pattern: str) -> IPv4Network | IPv6Network | None:
    """Parse 10.20.1.1, 10.20.0.0/16, fd00::/64 and 10.20.*; None for a pattern of names."""
    octets = _OCTETS.fullmatch(pattern)
    if octets is not None and pattern.count(".") <= 3:
        known = octets[1].rstrip(".").split(".")
        pattern = f"{'.'.join([*known, *['0'] * (4 - len(known))])}/{8 * len(known)}"
    try:
        return ip_network(pattern, strict=False)
    except ValueError:
        return None


def _check_pattern(text: str) -> None:
    if network_of(text) is None and (not _HOST_PATTERN.fullmatch(text) or text.endswith(".")):
        raise ValueError(
            f"{text!r} is not an address, a network like 10.20.0.0/16 or 10.20.*, or a pattern like *.bmc.example.com"
        )


class SecretSource(Model):
    """The source of a secret: exactly one of `file`, `env` and `exec`."""

    file: Text | None = Field(default=None, description="File, readable by its owner alone.")
    env: Text | None = Field(default=None, description="Environment variable.")
    exec: Argv | None = Field(
        default=None, description="Program and arguments that print it, run in the directory of this file."
    )
    write: Argv | None = Field(
        default=None,
        description="Program and arguments that replace it: it reads the new value on its stdin, and `exec` must print "
        "that from then on. Each node has a secret of its own then, and RECONCILER_NODE tells both programs whose.",
    )
    allow: tuple[Annotated[str, Checked(_check_pattern)], ...] = Field(
        default=(), description="Addresses, networks and names of hosts that it may be sent to."
    )

    @model_validator(mode="after")
    def _one_of(self) -> SecretSource:
        if sum(value is not None for value in (self.file, self.env, self.exec)) != 1:
            raise ValueError("give exactly one of file, env and exec")
        if self.write is not None and self.exec is None:
            raise ValueError("write goes with exec: what replaces a secret must be read by a program too")
        return self


class KeySource(Model):
    """A public key that images are signed with, of minisign or cosign, literally or in a file."""

    value: Lines | None = Field(default=None, description="The key.")
    file: Text | None = Field(default=None, description="A .pub file.")

    @model_validator(mode="after")
    def _one_of(self) -> KeySource:
        if (self.value is None) == (self.file is None):
            raise ValueError("give the key, or file")
        return self


class SignerSource(Model):
    """A program that holds the private half of a CA."""

    exec: Argv = Field(
        description="Program and arguments that read a public key on stdin and print its OpenSSH certificate, run in "
        "the directory of this file. RECONCILER_IDENTITY, RECONCILER_PRINCIPALS, RECONCILER_VALID_AFTER and "
        "RECONCILER_VALID_BEFORE say what to certify."
    )


def _literal(value: Any) -> Any:
    return {"value": value} if isinstance(value, str) else value


class SecretsFile(Model):
    secrets: Mapping[Name, SecretSource] = Field(default={}, description="Secrets by name.")
    keys: Mapping[Name, Annotated[KeySource, BeforeValidator(_literal)]] = Field(
        default={}, description="Minisign public keys by name."
    )
    signers: Mapping[Name, SignerSource] = Field(default={}, description="Programs that certify host keys, by name.")
