"""Open SSH connections that trust the fleet's host CA, and use nothing of the user's home.

asyncssh falls back on ~/.ssh (config, known_hosts, keys, certificates) and on the agent for each option that is not
given, so all of them are given, as "none". Host certificates have the node's name as principal: the CA identifies a
node, whatever its address, and a host without such a certificate is refused before the user's key is offered.
"""

from __future__ import annotations

import asyncio
import getpass
import os
import socket
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import asyncssh

from reconciler.drivers.ssh.facts.fact import excerpt
from reconciler.model.confined import Confined
from reconciler.model.errors import DriverError, Failure

KEEPALIVE_S: Final = 10  # a host that reboots during a long command is noticed after three of them

_Trusted = tuple[list[asyncssh.SSHKey], list[asyncssh.SSHKey], list[asyncssh.SSHKey]]  # hosts, CAs, revoked
_EXPIRED: Final = "Certificate expired"  # asyncssh's words, after it has checked the CA and the revoked keys

# Cheapest first, since a pass opens a connection to every node; `^` keeps asyncssh's other defaults as a fallback.
_KEY_EXCHANGE: Final = "^curve25519-sha256"
_CIPHERS: Final = "^aes128-gcm@openssh.com"


@dataclass(frozen=True, slots=True)
class Target(Confined):
    """A host and how to trust it. `authorities`: texts of OpenSSH public keys, one per line.

    `revoked`: host keys that no certificate makes trusted, as lines. `renewal_of`: the recorded host key, as a line,
    over which a certificate that has expired is accepted; "" for none.
    """

    node: str
    address: str
    port: int
    user: str
    private_key: str = field(repr=False)
    authorities: tuple[str, ...]
    insecure: bool
    revoked: tuple[str, ...] = ()
    renewal_of: str = ""

    def __str__(self) -> str:
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{self.node} ({address}:{self.port})"


class ExpiredCertificateError(DriverError):
    """The host's certificate is over, and nothing else is wrong with it as far as is known."""


class Reached(asyncssh.SSHClient):
    """Records whether the host answers on TCP."""

    def __init__(self) -> None:
        self.reached = False

    def connection_made(self, _conn: asyncssh.SSHClientConnection) -> None:
        self.reached = True


async def connect(target: Target, timeout: float, client: Reached) -> asyncssh.SSHClientConnection:
    """Connect and log in. DriverError says what failed, why, and what to check. `client` says how far it came."""
    authorities = _authorities(target)
    trusted: _Trusted = ([], authorities, list(_import_authorities(target.revoked)))
    try:
        return await _connect(target, timeout, client, None if target.insecure else trusted, "default")
    except ExpiredCertificateError:
        if not target.renewal_of:
            raise
    # Without its certificate, the host has its bare key to show, which must be the recorded one.
    recorded = _import_authorities((target.renewal_of,))
    return await _connect(target, timeout, client, (list(recorded), [], trusted[2]), [recorded[0].get_algorithm()])


async def _connect(
    target: Target,
    timeout: float,
    client: Reached,
    known_hosts: _Trusted | None,
    host_key_algorithms: str | list[str],
) -> asyncssh.SSHClientConnection:
    key = _private_key(target)
    _name_the_local_user()
    try:
        async with asyncio.timeout(timeout):
            return await asyncssh.connect(
                target.address,
                target.port,
                username=target.user,
                client_factory=lambda: client,
                client_keys=[key],
                known_hosts=known_hosts,
                host_key_alias=target.node,
                # Plain host keys are negotiated too, so that the refusal can say that they are unsigned.
                server_host_key_algs=host_key_algorithms,
                preferred_auth="publickey",
                agent_path=None,
                config=None,
                x509_trusted_certs=None,
                x509_trusted_cert_paths=[],
                gss_host=None,
                kex_algs=_KEY_EXCHANGE,
                encryption_algs=_CIPHERS,
                compression_algs=None,
                keepalive_interval=KEEPALIVE_S,
            )
    except TimeoutError:
        if client.reached:
            raise DriverError(
                Failure.TIMEOUT,
                f"{target} accepts connections, but SSH does not answer within {timeout:g} s: "
                "the host hangs or is overloaded",
            ) from None
        raise DriverError(
            Failure.UNREACHABLE,
            f"{target} does not answer within {timeout:g} s: it is down, or a firewall drops the connection",
        ) from None
    except (OSError, asyncssh.Error) as error:
        raise _failure(target, error) from error


def _failure(target: Target, error: Exception) -> DriverError:
    match error:
        case asyncssh.HostKeyNotVerifiable() if error.reason.startswith(_EXPIRED):
            return ExpiredCertificateError(
                Failure.AUTH,
                f"{target}: the certificate of its host key has expired. It answers, and all that is done there is the "
                "renewal, if the ledger recorded its key; else sign the key anew by hand",
            )
        case asyncssh.HostKeyNotVerifiable():
            return DriverError(
                Failure.AUTH,
                f"{target}: the host key is not signed by the fleet's CA for this node "
                f"({excerpt(error.reason)}). Unless the host was installed by hand, treat this as an incident: "
                "something else may answer at this address",
            )
        case asyncssh.PermissionDenied():
            return DriverError(
                Failure.AUTH,
                f"{target} refuses the key of user {target.user!r}: check ssh.user and ssh.credentials of the Fleet, "
                "and authorized_keys on the host",
            )
        case asyncssh.KeyExchangeFailed() | asyncssh.ProtocolNotSupported():
            return DriverError(
                Failure.UNSUPPORTED, f"{target}: no common SSH algorithms or version: {excerpt(error.reason)}"
            )
        case asyncssh.ProtocolError() | asyncssh.MACError() | asyncssh.CompressionError():
            return DriverError(Failure.MALFORMED, f"{target} does not speak SSH: {excerpt(error.reason)}")
        case asyncssh.Error():
            return DriverError(
                Failure.UNREACHABLE,
                f"{target} closed the connection before the login: sshd is starting, stopping or overloaded "
                f"({excerpt(error.reason)})",
            )
        case ConnectionRefusedError():
            return DriverError(
                Failure.UNREACHABLE,
                f"{target} refuses connections: sshd does not run there, or the address or port is wrong",
            )
        case socket.gaierror():
            return DriverError(Failure.UNREACHABLE, f"{target}: the address does not resolve: {error.strerror}")
        case _:
            return DriverError(Failure.UNREACHABLE, f"{target} is unreachable: {error}")


def _private_key(target: Target) -> asyncssh.SSHKey:
    try:
        return _import_private_key(target.private_key)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError):
        # asyncssh's own text may quote the key.
        raise DriverError(
            Failure.AUTH,
            f"{target}: ssh.credentials of the Fleet is no private key that can be read without a passphrase",
        ) from None


def _authorities(target: Target) -> list[asyncssh.SSHKey]:
    try:
        return list(_import_authorities(target.authorities))
    except asyncssh.KeyImportError as error:
        raise DriverError(
            Failure.AUTH, f"{target}: ssh.hostKeys.authorities holds a line that is no OpenSSH public key: {error}"
        ) from None


# One key and one set of authorities serve a whole fleet; parsing them costs as much as a handshake.
@lru_cache(maxsize=8)
def _import_private_key(text: str) -> asyncssh.SSHKey:
    return asyncssh.import_private_key(text)


@lru_cache(maxsize=8)
def _import_authorities(texts: tuple[str, ...]) -> tuple[asyncssh.SSHKey, ...]:
    lines = [line.strip() for text in texts for line in text.splitlines()]
    return tuple(asyncssh.import_public_key(line) for line in lines if line and not line.startswith("#"))


def _name_the_local_user() -> None:
    """Set LOGNAME for a uid without a passwd entry, as containers in CI have: asyncssh fails without any user name."""
    try:
        getpass.getuser()
    except (KeyError, OSError):
        os.environ["LOGNAME"] = "reconciler"
