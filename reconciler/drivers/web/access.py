"""Decide who may read and write through the API, and where it may listen.

Over loopback and a UNIX socket whoever is on this machine may read. Any other address takes TLS, and a token or the
certificate of a reverse proxy with each request. Writes take a token or a proxy's headers everywhere.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from reconciler.drivers.secrets import SecretError, SecretStore
from reconciler.model.access_role import AccessRole
from reconciler.model.errors import UsageError

LISTEN: Final = "127.0.0.1:8090"
UNIX: Final = "unix:"
LEAST_TOKEN: Final = 24  # characters: what `openssl rand -base64 18` prints
_LOOPBACK: Final = ("localhost", "127.0.0.1", "[::1]")
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_USER, _GROUPS = "x-forwarded-user", "x-forwarded-groups"  # as oauth2-proxy passes them


@dataclass(frozen=True, slots=True)
class WebOptions:
    """The address to listen on, and those to let in. `tokens`: secrets, `proxy_roles`: groups, with roles."""

    listen: str = LISTEN
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_client_ca: Path | None = None
    tokens: Mapping[str, AccessRole] = field(default_factory=dict)
    proxy_roles: Mapping[str, AccessRole] = field(default_factory=dict)

    @property
    def unix(self) -> Path | None:
        """The path of a UNIX socket; None = a TCP address."""
        return Path(self.listen.removeprefix(UNIX)) if self.listen.startswith(UNIX) else None

    @property
    def address(self) -> tuple[str, int]:
        """Host and port; "" = every address. Raise UsageError when it is malformed."""
        host, colon, port = self.listen.rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise UsageError(f"{self.listen!r} is no address to listen on: give host:port, like {LISTEN}")
        return host.strip("[]"), int(port)

    @property
    def local(self) -> bool:
        """Return whether only this machine can connect."""
        if self.unix is not None:
            return True
        host = self.address[0]
        try:
            return host == "localhost" or ip_address(host).is_loopback
        except ValueError:
            return False


@dataclass(frozen=True, slots=True)
class Caller:
    """A caller. `name`: what the journal shows; "" = nobody that we know. `proxied`: a browser behind a proxy."""

    name: str
    role: AccessRole
    proxied: bool = False

    def check(self, needed: AccessRole) -> None:
        """Raise AccessRefusedError where the role does not cover this one."""
        if not self.role.covers(needed):
            raise AccessRefusedError(403, f"{self.name or 'who reads'} is {self.role}; this takes {needed}")


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, as far as access depends on it. Names of headers are lower-case."""

    method: str
    headers: Mapping[str, str]


class AccessRefusedError(Exception):
    """Raised when a request is refused. `status`: 401 = say who you are; 403 = you may not."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def check_options(options: WebOptions) -> None:
    """Raise UsageError where the options would let others in."""
    tls = options.tls_cert is not None
    if tls != (options.tls_key is not None):
        raise UsageError("TLS needs both --tls-cert and --tls-key")
    if options.tls_client_ca is not None and not tls:
        raise UsageError("--tls-client-ca checks certificates of clients, which takes --tls-cert and --tls-key")
    proved = options.unix is not None or options.tls_client_ca is not None
    if options.proxy_roles and not proved:
        raise UsageError(
            "--proxy-role trusts headers that anybody could send here: listen on unix:PATH, or give --tls-client-ca, "
            "the CA of the proxy's own certificate"
        )
    if options.local:
        return
    if not tls:
        raise UsageError(
            f"--listen {options.listen} can be reached from other machines, which takes --tls-cert and --tls-key, and "
            f"--token NAME=ROLE or --tls-client-ca with --proxy-role; or listen on {LISTEN}"
        )
    if not options.tokens and not options.proxy_roles:
        raise UsageError(
            f"--listen {options.listen} can be reached from other machines: say who may ask, with --token NAME=ROLE or "
            "--tls-client-ca and --proxy-role"
        )


class Access:
    """Decides on each request. Raise UsageError when the options are unsafe or a secret can't be read."""

    def __init__(self, options: WebOptions, store: SecretStore | None = None) -> None:
        check_options(options)
        self.options = options
        self._store = store
        self._key = secrets.token_bytes(32)  # of this process's CSRF tokens
        for name in options.tokens:
            if len(self._token(name)) < LEAST_TOKEN:
                raise UsageError(f"secret {name!r} is too short for a token: {LEAST_TOKEN} characters at least")

    def caller(self, asked: Asked, needed: AccessRole) -> Caller:
        """Return who asks. Raise AccessRefusedError when they may not."""
        self._check_host(asked)
        writes = asked.method not in _SAFE
        found = self._known(asked)
        if found is None and not writes and self.options.local and not self.options.proxy_roles:
            found = Caller("", AccessRole.VIEWER)
        if found is None:
            raise AccessRefusedError(401, self._how(writes))
        found.check(needed)
        if writes:
            self._check_origin(asked)
            if found.proxied and not hmac.compare_digest(asked.headers.get("x-csrf-token", ""), self.csrf(found)):
                raise AccessRefusedError(403, "the X-CSRF-Token of /api/v1/session is missing or not yours")
        return found

    def csrf(self, caller: Caller) -> str:
        """Return what a browser behind a proxy must send with a write, which other sites can't read."""
        return hmac.new(self._key, caller.name.encode(), hashlib.sha256).hexdigest()

    # --- inside ---

    def _known(self, asked: Asked) -> Caller | None:
        scheme, _, given = asked.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            digest = hashlib.sha256(given.strip().encode(errors="replace")).digest()
            for name, role in self.options.tokens.items():
                own = self._token(name)
                if len(own) < LEAST_TOKEN:
                    continue  # a file that is empty while it is written anew must let nobody in
                if hmac.compare_digest(hashlib.sha256(own.encode()).digest(), digest):
                    return Caller(name, role)
            raise AccessRefusedError(401, "this token is not known here")
        user = asked.headers.get(_USER, "").strip()
        if not self.options.proxy_roles or not user:
            return None
        groups = {group.strip() for group in asked.headers.get(_GROUPS, "").split(",")}
        roles = [role for group, role in self.options.proxy_roles.items() if group in groups]
        if not roles:
            raise AccessRefusedError(403, f"{user} is in no group that --proxy-role names")
        return Caller(user, max(roles, key=list(AccessRole).index), proxied=True)

    def _token(self, name: str) -> str:
        if self._store is None:
            raise SecretError(f"there is no secrets file that defines {name!r}")
        return self._store.resolve(name, fresh=True).reveal().strip()

    def _how(self, writes: bool) -> str:
        if not self.options.tokens and not self.options.proxy_roles:
            return "nobody may write here: start run with --token NAME=ROLE"
        return f"{'writing' if writes else 'reading'} here takes a bearer token" + (
            ", or a user in the headers of the proxy" if self.options.proxy_roles else ""
        )

    def _check_host(self, asked: Asked) -> None:
        """Refuse names that a page elsewhere has made resolve to this machine (DNS rebinding)."""
        if not self.options.local or self.options.unix is not None:
            return
        host = asked.headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if name not in (*_LOOPBACK, self.options.address[0], f"[{self.options.address[0]}]"):
            raise AccessRefusedError(403, f"this server is asked as {_LOOPBACK[0]}, not as {host!r}")

    def _check_origin(self, asked: Asked) -> None:
        """Refuse writes that a page of another origin sends."""
        site = asked.headers.get("sec-fetch-site", "same-origin")
        origin = asked.headers.get("origin")
        ours = {asked.headers.get("host", "")}
        if self.options.proxy_roles:
            ours |= {asked.headers.get("x-forwarded-host", "")}
        if site not in ("same-origin", "none") or (origin is not None and urlsplit(origin).netloc not in ours - {""}):
            raise AccessRefusedError(403, f"a page of {origin or 'another site'} may not write here")
        if asked.method in ("POST", "PUT") and not asked.headers.get("content-type", "").startswith("application/json"):
            raise AccessRefusedError(403, "a write is application/json, which forms of other sites can't send")
