"""Resolve the names of secrets, by a file outside the spec, so that who may change the spec can't redirect secrets.

    secrets:
      bmc: {file: /etc/reconciler/bmc.json, allow: ["10.20.0.0/16"]}   # or env: NAME, or exec: [program, argument]
      bmcs: {exec: [program, get], write: [program, put], allow: ["10.20.0.0/16"]}   # one of each node
    keys:
      release: RWQ...                                                  # a minisign public key, or {file: ...}
      cosign: {file: cosign.pub}                                       # of cosign: an ECDSA P-256 key in PEM
    signers:
      host-ca: {exec: [program, argument]}                             # certifies the SSH host key on its stdin

A secret is resolved when it is needed, for an address that its `allow` list covers. Values are `Secret`, whose text is
in no output; messages name the file and the key, and never the value. A relative path, of a program too, is relative to
the secrets file, whatever the current directory; a program without a slash is found on the PATH.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import stat
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_address
from pathlib import Path
from typing import Final

from reconciler.drivers.secrets_file import SecretsFile, SecretSource, network_of
from reconciler.model.addresses import split_authority
from reconciler.model.concealment import Forms, values_of
from reconciler.model.confined import Confined
from reconciler.model.errors import UsageError
from reconciler.model.printable import shown_url, visible
from reconciler.strict_yaml.read import InvalidFile, read_model

MAX_BYTES: Final = 1024 * 1024
EXEC_TIMEOUT_S: Final = 30.0
REREAD_S: Final = 60.0


class SecretError(UsageError):
    """Raised when a secret can't be read, or may not be sent there. Holds no value, not even as its cause."""

    def lines(self) -> tuple[str, ...]:
        return tuple(map(visible, str(self).split("\n")))


class SecretConflict(SecretError):
    """Raised when a secret that is to be replaced is not as its reader knew it. Nothing is written then."""


class Secret(Confined):
    """A text that only `reveal` returns. It can't be printed, compared or hashed by value, copied or pickled."""

    __slots__ = ("__value",)

    def __init__(self, value: str) -> None:
        self.__value = value

    def reveal(self) -> str:
        return self.__value

    def __repr__(self) -> str:
        return "Secret(***)"


@dataclass(frozen=True, slots=True)
class Credentials:
    """`previous`: the password before this one, which a BMC may still have while it is given this one."""

    username: str
    password: Secret
    previous: Secret | None = None

    def logs_in_as(self, other: Credentials) -> bool:
        """Return whether both are the same account with the same password, whatever was before."""
        return (self.username, self.password.reveal()) == (other.username, other.password.reveal())

    def document(self) -> dict[str, str]:
        """Return them as a secret has them, in the clear."""
        before = {} if self.previous is None else {"previous": self.previous.reveal()}
        return {"username": self.username, "password": self.password.reveal(), **before}


def default_path() -> Path:
    """Return RECONCILER_SECRETS, or secrets.yaml in the user's configuration directory."""
    if named := os.environ.get("RECONCILER_SECRETS"):
        return Path(named)
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "reconciler" / "secrets.yaml"


def others(path: Path) -> int:
    """Return the bits of the mode of `path` that let others in.

    systemd gives a service its credentials (LoadCredential=) through an ACL, whose mask is seen as the group's right to
    read (mode 440, systemd#29435). The directory, which it names, is the service's alone, with all that is in it.
    """
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    below = Path(os.path.abspath(path)).parents  # noqa: PTH100 - without "..", and without what links lead to
    is_credential = credentials is not None and Path(credentials) in below
    return stat.S_IRWXO | (stat.S_IWGRP | stat.S_IXGRP if is_credential else stat.S_IRWXG)


# --- resolving -----------------------------------------------------------------------------------------------------


class SecretStore(Confined):
    """Secrets by name. Each is read once, and with `fresh` again, at most once a minute.

    One that has a writer is of one node each, whose name its programs are given.
    """

    def __init__(self, contents: SecretsFile, path: Path, typed: Mapping[str, Secret] | None = None) -> None:
        """Take a parsed file. `typed`: values of secrets whose files are not written yet."""
        self._contents = contents
        self._path = path
        self._typed = typed or {}
        self._read: dict[tuple[str, str], Secret] = {}  # by name and node; "" = of all nodes
        self._read_at: dict[tuple[str, str], float] = {}
        self._replaced: list[Secret] = []  # values that were valid, and may be again
        self._forms: Forms | None = None  # of all values; None: one was read since

    @classmethod
    def load(cls, path: Path | None = None) -> SecretStore:
        """Load the store of `path`, or of `default_path`. A missing default file is an empty store."""
        chosen = path or default_path()
        if not chosen.exists():
            if path is None and "RECONCILER_SECRETS" not in os.environ:
                return cls(SecretsFile(), chosen)
            raise SecretError(f"{chosen}: no such file")
        if chosen.stat().st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise SecretError(f"{chosen}: others may write it; chmod go-w {chosen}")
        try:
            return cls(read_model(SecretsFile, chosen), chosen)
        except InvalidFile as error:
            raise SecretError(str(error)) from None

    def resolve(self, name: str, address: str | None = None, *, node: str = "", fresh: bool = False) -> Secret:
        """Return a secret to be sent to `address` (a URL or host[:port]); None: we send it nowhere.

        `node`: whose it is, of one that has a writer.
        """
        source = self._source(name)
        if address is not None and not _is_allowed(address, source.allow):
            allowed = ", ".join(source.allow) or "none"
            raise SecretError(f"{self._where(name)}: may not be sent to {shown_url(address)}; allow lists {allowed}")
        if address is None and source.allow:
            raise SecretError(f"{self._where(name)}: is for {', '.join(source.allow)} alone")
        if source.write is None:
            return self._cached(name, source, fresh=fresh)
        if not node:
            raise SecretError(f"{self._where(name)}: has a writer, so each node has its own, and none is of all")
        return self._cached(name, source, node, fresh=fresh)

    def url(self, name: str, *, fresh: bool = False) -> Secret:
        """Return a secret that is a URL, and is sent to where it says itself. An `allow` list must cover that."""
        source = self._source(name)
        found = self._cached(name, source, fresh=fresh)
        place = re.split(r"[/?#]", found.reveal().partition("://")[2], maxsplit=1)[0].rpartition("@")[2]
        if source.allow and not _is_allowed(place, source.allow):
            raise SecretError(f"{self._where(name)}: its URL is not for {', '.join(source.allow)}, as allow says")
        return found

    def _cached(self, name: str, source: SecretSource, node: str = "", *, fresh: bool) -> Secret:
        now, key = time.monotonic(), (name, node)
        found = self._read.get(key)
        if found is None or (fresh and now - self._read_at[key] > REREAD_S):
            self._read_at[key] = now  # set first, so that of many callers one reads
            found = self._read[key] = Secret(self._value(name, source, node))
            self._forms = None
        return found

    def credentials(self, name: str, address: str, *, node: str = "", fresh: bool = False) -> Credentials:
        """Return a secret of the form {"username": ..., "password": ...}, and "previous" while it is replaced."""
        text = self.resolve(name, address, node=node, fresh=fresh).reveal()
        try:
            data = json.loads(text)
        except ValueError:
            data = None  # an error raised here would keep the text as its cause
        del text
        if not isinstance(data, dict) or not all(isinstance(data.get(key), str) for key in ("username", "password")):
            raise SecretError(f"{self._where(name)}: is not JSON with username and password")
        before = data.get("previous")
        previous = Secret(before) if isinstance(before, str) else None
        return Credentials(data["username"], Secret(data["password"]), previous)

    def is_of_each_node(self, name: str) -> bool:
        """Return whether each node has its own value of this secret, which can be replaced."""
        return self._source(name).write is not None

    def replace(self, name: str, address: str, node: str, new: Credentials, *, before: Credentials) -> None:
        """Have the writer keep new credentials of a node for those `before`, and read them back.

        Raise SecretConflict where others are kept by now, and SecretError where the new ones are not kept. After an
        error it is not known which ones are: they are read again when they are needed.
        """
        source = self._source(name)
        if source.write is None:
            raise SecretError(f"{self._where(name)}: has no `write`, a program that replaces it")
        self._forget(name, node)
        if self.credentials(name, address, node=node).document() != before.document():
            raise SecretConflict(f"{self._where(name)}: somebody else has replaced that of {node}: left as it is")
        text = json.dumps(new.document())
        self._replaced.append(Secret(text))
        self._forms = None
        try:
            self._output(name, source.write, node, text)
        finally:
            self._forget(name, node)
        if self.credentials(name, address, node=node).document() != new.document():
            raise SecretError(f"{self._where(name)}: `write` ended well for {node}, and `exec` prints another secret")

    def _forget(self, name: str, node: str) -> None:
        """Have it read again by whoever needs it next. Its value stays concealed."""
        if (known := self._read.pop((name, node), None)) is not None:
            self._replaced.append(known)

    def conceal(self, text: str) -> str:
        """Return the text without the values that were read, or typed, so far."""
        if self._forms is None:
            known = (*self._read.values(), *self._replaced, *self._typed.values())
            self._forms = Forms(value for secret in known for value in values_of(secret.reveal()))
        return self._forms.without(text)

    def file(self, name: str) -> Path:
        """Return the path of a secret that a program reads by itself, such as a kubeconfig."""
        source = self._source(name)
        if source.file is None:
            raise SecretError(f"{self._where(name)}: must be a file, since a program reads it by path")
        path = self._beside(source.file)
        self._check_private(name, path)
        return path

    def place(self, name: str) -> Path | None:
        """Return the file that the secret is read from; None when it is not in a file."""
        named = self._source(name).file
        return None if named is None else self._beside(named)

    def public_key(self, name: str) -> str | None:
        """Return the base64 line of a minisign public key, or cosign's key in PEM; None for an unknown name."""
        source = self._contents.keys.get(name)
        if source is None:
            return None
        where = f"{self._path} keys.{name}"
        text = source.value or ""
        if source.file is not None:
            try:
                text = self._beside(source.file).read_text(encoding="utf-8")
            except (OSError, UnicodeDecodeError) as error:
                raise SecretError(f"{where}: {source.file}: {_reason(error)}") from None
        if text.strip().startswith("-----BEGIN PUBLIC KEY-----"):
            return text.strip() + "\n"
        line = next(
            (line for line in text.split("\n") if line and not line.startswith("untrusted comment:")), ""
        ).strip()
        try:
            raw = base64.b64decode(line, validate=True)
        except binascii.Error:
            raw = b""
        if len(raw) != 42 or raw[:2] != b"Ed":
            raise SecretError(f"{where}: not a public key of minisign, nor one of cosign in PEM")
        return line

    def signer(self, name: str) -> tuple[tuple[str, ...], Path] | None:
        """Return a signer's program with its arguments, and the directory to run it in; None for an unknown name."""
        source = self._contents.signers.get(name)
        return None if source is None else (self._program(source.exec), self._path.parent)

    # --- inside ----------------------------------------------------------------------------------------------------

    def _where(self, name: str) -> str:
        return f"{self._path} secrets.{name}"

    def _source(self, name: str) -> SecretSource:
        source = self._contents.secrets.get(name)
        if source is None:
            missing = "" if self._path.exists() else " (there is no such file; for a lab, set RECONCILER_ENDPOINTS)"
            raise SecretError(f"the spec names secret {name!r}, and {self._path} does not define it{missing}")
        return source

    def _beside(self, name: str) -> Path:
        return self._path.parent / Path(name).expanduser()

    def _value(self, name: str, source: SecretSource, node: str) -> str:
        if name in self._typed:
            return self._typed[name].reveal()
        if source.env is not None:
            value = os.environ.get(source.env)
            if value is None:
                raise SecretError(f"{self._where(name)}: environment variable {source.env} is not set")
            return value
        if source.file:
            data = self._file_bytes(name, self._beside(source.file))
        else:
            data = self._output(name, source.exec or (), node)
        text = data.decode(errors="replace")
        if "\N{REPLACEMENT CHARACTER}" in text or len(data) > MAX_BYTES:
            raise SecretError(f"{self._where(name)}: is not UTF-8 text of at most 1 MiB")
        return text

    def _file_bytes(self, name: str, path: Path) -> bytes:
        self._check_private(name, path)
        try:
            with path.open("rb") as file:
                return file.read(MAX_BYTES + 1)
        except OSError as error:
            raise SecretError(f"{self._where(name)}: {path}: {_reason(error)}") from None

    def _check_private(self, name: str, path: Path) -> None:
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise SecretError(f"{self._where(name)}: {path}: {_reason(error)}") from None
        if not stat.S_ISREG(mode):
            raise SecretError(f"{self._where(name)}: {path} is not a file")
        if mode & others(path):
            raise SecretError(
                f"{self._where(name)}: {path} is open to others (mode {mode & 0o777:o}); chmod 600 {path}"
            )

    def _program(self, argv: tuple[str, ...]) -> tuple[str, ...]:
        return (str(self._beside(argv[0]).absolute()) if "/" in argv[0] else argv[0], *argv[1:])

    def _output(self, name: str, argv: tuple[str, ...], node: str, given: str = "") -> bytes:
        """Return a program's output, less one newline. Its stderr may hold the secret and is not shown.

        `given`: what it reads on its stdin, as arguments are shown to everybody by ps.
        """
        argv = self._program(argv)
        program = argv[0]
        try:
            done = subprocess.run(
                argv,
                capture_output=True,
                timeout=EXEC_TIMEOUT_S,
                check=False,
                input=given.encode(),
                env={**os.environ, "RECONCILER_NODE": node} if node else None,
                cwd=self._path.parent,  # its relative arguments are relative to the secrets file too
            )
        except subprocess.TimeoutExpired:
            problem = f"gave no answer within {EXEC_TIMEOUT_S:g} s"
        except OSError as error:
            problem = _reason(error)
        else:
            if done.returncode == 0:
                return done.stdout.removesuffix(b"\n")
            problem = f"ended with status {done.returncode}"
        raise SecretError(f"{self._where(name)}: {program} {problem}")


def _is_allowed(address: str, patterns: tuple[str, ...]) -> bool:
    """Match networks with addresses only, and patterns with names only: 10.20.evil.org is no address."""
    authority = address.partition("://")[2].partition("/")[0] if "://" in address else address
    try:
        host, _ = split_authority(authority, 1)
    except ValueError:
        return False
    networks = {pattern: network_of(pattern) for pattern in patterns}
    try:
        ip = ip_address(host)
    except ValueError:
        return any(fnmatchcase(host, name.lower()) for name, network in networks.items() if network is None)
    ip = getattr(ip, "ipv4_mapped", None) or ip  # is the same host
    return any(network is not None and ip in network for network in networks.values())


def _reason(error: Exception) -> str:
    return error.strerror or type(error).__name__ if isinstance(error, OSError) else "not UTF-8 text"
