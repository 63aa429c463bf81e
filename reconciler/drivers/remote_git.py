"""Run the git program: under a deadline, without prompts, and without secrets in its messages.

Each command leads a session of its own, which ends as a whole. drivers/git.py says why GitPython does not serve here.
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
from reconciler.drivers.git import LOCAL, REPOSITORY_VARIABLES, SETTINGS, GitError
from reconciler.drivers.secrets import Credentials, Secret
from reconciler.model.confined import Confined
from reconciler.model.errors import UsageError
from reconciler.model.printable import shown_url, visible, without_secrets

_LONGEST_MESSAGE = 300
_TERMINATE_S = 2.0  # after SIGTERM git removes its locks and half packs
_USERINFO = re.compile(r"://[^/@\s]+@")
_ERROR_PREFIXES = ("fatal: ", "error: ", "ERROR: ")
_ENVIRONMENT = {"GIT_TERMINAL_PROMPT": "0", "SSH_ASKPASS_REQUIRE": "never", "LC_ALL": "C"}
_SETTINGS = (
    *SETTINGS,
    "gc.autoDetach=false",
    "maintenance.autoDetach=false",  # it ends with the command that started it
)
_HELPER = (
    "!f() { test \"$1\" = get && printf 'username=%s\\npassword=%s\\n' "
    '"$RECONCILER_GIT_USERNAME" "$RECONCILER_GIT_PASSWORD"; }; f'
)


class GitFailed(Exception):
    """Raised when a command fails; the message has no secrets. `status`: exit status, None when it was killed."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


def _parts(text: str) -> SplitResult:
    """Split a URL. UsageError, without the URL, which may hold a password, when it can't be read."""
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
class Remote(Confined):
    """The address of a repository. `url` holds no credentials: every user could see them in the list of processes."""

    url: str
    credentials: Credentials | None = field(default=None, repr=False)

    @classmethod
    def parse(cls, text: str, credentials: Credentials | None = None) -> Remote:
        """Parse a URL, `host:path` or a directory. Credentials in the URL are removed; those given take precedence."""
        if "://" not in text:
            here = Path(text)
            return cls(str(here.resolve()) if here.exists() else text, credentials)
        parts = _parts(text)
        userinfo, at, host = parts.netloc.rpartition("@")
        if not at:
            return cls(text, credentials)
        user, _, password = userinfo.partition(":")
        if parts.scheme not in ("http", "https"):  # a user name, and no secret
            return cls(urlunsplit(parts._replace(netloc=f"{user}@{host}")), credentials)
        found = Credentials(unquote(user), Secret(unquote(password)))
        return cls(urlunsplit(parts._replace(netloc=host)), credentials or found)

    def __str__(self) -> str:
        """Return the URL for messages, without its query, which may be a token."""
        return shown_url(self.url)

    def settings(self) -> list[str]:
        """Return git settings that give our credentials to this host only, and use no other helper."""
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


class GitProgram(Confined):
    """The git program, run in `directory`."""

    def __init__(self, directory: Path, remote: Remote, timeout_s: float) -> None:
        self._directory = directory
        self._remote = remote
        self._timeout_s = timeout_s

    async def run(
        self, *arguments: str, settings: Sequence[str] = (), home: Path | None = None, stdin: bytes = b""
    ) -> str:
        """Run a local command; return its stdout. GitFailed for a status other than 0. `home`: gpg's directory."""
        environment = LOCAL if home is None else LOCAL | {"GNUPGHOME": str(home)}
        output = await self._run(arguments, settings, environment, self._timeout_s, stdin)
        return output.decode(errors="replace").strip()

    async def fetch(self, ref: str, *, patience: float = 1.0) -> str:
        """Fetch the remote's `ref`; return its commit. `patience`: how many times the deadline it may take."""
        arguments = ("fetch", "--quiet", "--no-tags", "--no-recurse-submodules", "--", self._remote.url, ref)
        await self._run(arguments, self._remote.settings(), self._remote.environment(), self._timeout_s * patience)
        return await self.run("rev-parse", "--verify", "--quiet", "FETCH_HEAD^{commit}")

    async def _run(
        self,
        arguments: Sequence[str],
        settings: Sequence[str],
        environment: Mapping[str, str],
        limit_s: float,
        stdin: bytes = b"",
    ) -> bytes:
        child = await self._start(arguments, [*_SETTINGS, *settings], environment)
        try:
            async with asyncio.timeout(limit_s):
                stdout, stderr = await child.communicate(stdin)
        except TimeoutError:
            raise GitFailed(f"git {arguments[0]} did not end within {limit_s:g} s") from None
        finally:
            await reap(child, patience_s=_TERMINATE_S)
        if child.returncode != 0:
            raise GitFailed(self._message(stderr.decode(errors="replace")), child.returncode)
        return stdout

    async def _start(
        self, arguments: Sequence[str], settings: Sequence[str], environment: Mapping[str, str]
    ) -> asyncio.subprocess.Process:
        inherited = {key: text for key, text in os.environ.items() if key not in (*REPOSITORY_VARIABLES, "SSH_ASKPASS")}
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

    def _message(self, stderr: str) -> str:
        lines = [line.strip() for line in stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(_ERROR_PREFIXES)]
        line = errors[0] if errors else "; ".join(lines)
        return visible(self._remote.redact(line))[:_LONGEST_MESSAGE]
