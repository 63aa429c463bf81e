"""Run git as a child process: under a deadline, without a prompt, and without a secret in what it says.

GitPython ends a command that hangs with the help of `ps`, which small container images lack, and leaves alone what the
command started. Here a command leads a session of its own, which ends as a whole.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, quote, unquote, urlsplit, urlunsplit

from reconciler.drivers.children import reap
from reconciler.drivers.git import LOCAL, OF_A_REPOSITORY, SETTINGS, GitError
from reconciler.drivers.secrets import Credentials, Secret
from reconciler.model.errors import UsageError
from reconciler.model.printable import shown_url, visible, without_secrets

_LONGEST = 300
_TIDY_UP_S = 2.0  # git removes its locks and half a pack when it is asked to end
_USERINFO = re.compile(r"://[^/@\s]+@")
_TELLING = ("fatal: ", "error: ", "ERROR: ")
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
_SETTINGS = (
    *SETTINGS, "gc.autoDetach=false", "maintenance.autoDetach=false",  # what tidies up ends with its command
)  # fmt: skip
_HELPER = (
    "!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' "
    '"$RECONCILER_GIT_USERNAME" "$RECONCILER_GIT_PASSWORD"; }; f'
)


class GitFailed(Exception):
    """Git did not do as asked. Its message is for people, and without secrets. `status`: None when it was killed."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def _parts(text: str) -> SplitResult:
    """UsageError that does not quote it: there may be a password in it."""
    try:
        parts = urlsplit(text)
        readable = parts.port != 0 and bool(parts.hostname or parts.scheme == "file")
    except ValueError:
        readable = False
    if not readable:
        raise UsageError(
            "the repository's URL can't be read: its host or port is bad; write https://host/path or host:path"
        )
    return parts


@dataclass(frozen=True, slots=True)
class Remote:
    """Where a repository is. `url` holds no credentials: git would show them to everybody in the list of processes."""

    url: str
    credentials: Credentials | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str, credentials: Credentials | None = None) -> Remote:
        """A URL, `host:path`, or a directory. Credentials in the URL are taken out of it; those given go first."""
        if "://" not in text:
            here = Path(text)
            return cls(str(here.resolve()) if here.exists() else text, credentials)
        parts = _parts(text)
        userinfo, at, host = parts.netloc.rpartition("@")
        if not at:
            return cls(text, credentials)
        user, _, password = userinfo.partition(":")
        if parts.scheme not in ("http", "https"):  # a name to log in with, and no secret
            return cls(urlunsplit(parts._replace(netloc=f"{user}@{host}")), credentials)
        found = Credentials(unquote(user), Secret(unquote(password)))
        return cls(urlunsplit(parts._replace(netloc=host)), credentials or found)

    def __str__(self) -> str:
        """As messages call it: a query may be a token."""
        return shown_url(self.url)

    def settings(self) -> list[str]:
        """Our credentials, for this host alone, and nobody else's."""
        if self.credentials is None:
            return []
        parts = urlsplit(self.url)
        return ["credential.helper=", f"credential.{parts.scheme}://{parts.netloc}.helper={_HELPER}"]

    def environment(self) -> dict[str, str]:
        if self.credentials is None:
            return {}
        return {
            "RECONCILER_GIT_USERNAME": self.credentials.username,
            "RECONCILER_GIT_PASSWORD": self.credentials.password.reveal(),
        }

    def redact(self, text: str) -> str:
        if self.credentials is not None:
            password = self.credentials.password.reveal()
            for secret in (password, quote(password, safe="")) if password else (self.credentials.username,):
                text = text.replace(secret, "***") if secret else text
        return without_secrets(_USERINFO.sub("://***@", text.replace(self.url, str(self))))


class Git:
    """The git program, at work in `directory`."""

    def __init__(self, directory: Path, remote: Remote, timeout_s: float) -> None:
        self._directory = directory
        self._remote = remote
        self._timeout_s = timeout_s

    async def run(
        self, *arguments: str, settings: Sequence[str] = (), home: Path | None = None, stdin: bytes = b""
    ) -> str:
        """Its stdout. GitFailed for a status other than 0. Contacts nobody. `home`: where gpg keeps its keys."""
        environment = LOCAL if home is None else LOCAL | {"GNUPGHOME": str(home)}
        said = await self._run(arguments, settings, environment, self._timeout_s, stdin)
        return said.decode(errors="replace").strip()

    async def fetch(self, ref: str, *, patience: float = 1.0) -> str:
        """The commit that the remote's `ref` is at. `patience`: how many times the deadline it may take."""
        arguments = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--", self._remote.url, ref)
        await self._run(arguments, self._remote.settings(), self._remote.environment(), self._timeout_s * patience)
        return await self.run("rev-parse", "--verify", "--quiet", "FETCH_HEAD^{commit}")

    async def _run(
        self, arguments: Sequence[str], settings: Sequence[str], environment: Mapping[str, str], limit_s: float,
        stdin: bytes = b"",
    ) -> bytes:  # fmt: skip
        child = await self._start(arguments, [*_SETTINGS, *settings], environment)
        try:
            async with asyncio.timeout(limit_s):
                stdout, stderr = await child.communicate(stdin)
        except TimeoutError:
            raise GitFailed(f"git {arguments[0]} did not end within {limit_s:g} s") from None
        finally:
            await reap(child, patience_s=_TIDY_UP_S)
        if child.returncode != 0:
            raise GitFailed(self._said(stderr.decode(errors="replace")), child.returncode)
        return stdout

    async def _start(
        self, arguments: Sequence[str], settings: Sequence[str], environment: Mapping[str, str]
    ) -> asyncio.subprocess.Process:
        inherited = {key: text for key, text in os.environ.items() if key not in (*OF_A_REPOSITORY, "SSH_ASKPASS")}
        options = [word for setting in settings for word in ("-c", setting)]
        try:
            return await asyncio.create_subprocess_exec(
                "git",
                *options,
                *arguments,
                cwd=self._directory,
                env=inherited | _ENVIRONMENT | dict(environment),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,  # no terminal to ask on; ssh and helpers end with it
            )
        except FileNotFoundError:
            raise GitError("can't follow a repository: there is no git program on the PATH") from None

    def _said(self, stderr: str) -> str:
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        telling = [line for line in lines if line.startswith(_TELLING)]
        line = telling[0] if telling else "; ".join(lines)
        return visible(self._remote.redact(line))[:_LONGEST]
