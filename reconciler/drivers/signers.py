"""Check who may change the spec: commits need a valid SSH or OpenPGP signature by an allowed signer.

The lists of signers come from outside the repository. The keyring of the user who runs this is not used: OpenPGP keys
are imported into one that exists for a single check, and X.509 is off. An SSH key that is allowed for a limited time is
judged at the commit's own time, as git does.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from reconciler.drivers.git import folder
from reconciler.drivers.programs import ask
from reconciler.drivers.remote_git import GitFailed, GitProgram, Remote
from reconciler.model.errors import UsageError

TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Signers:
    """Files of allowed signers. Without any, every commit is accepted.

    `ssh`: as ssh-keygen(1) describes under ALLOWED SIGNERS. `gpg`: public keys, armoured or not.
    """

    ssh: Path | None = None
    gpg: Path | None = None

    def __bool__(self) -> bool:
        return self.ssh is not None or self.gpg is not None

    def check(self) -> None:
        """Raise UsageError unless the files exist."""
        for path in (self.ssh, self.gpg):
            if path is not None and not path.is_file():
                raise UsageError(f"there is no file {path} with allowed signers")

    async def refusal(self, git: GitProgram, commits: Sequence[str]) -> str:
        """Return why the first unacceptable commit is refused; "" when all are acceptable."""
        with tempfile.TemporaryDirectory(prefix="reconciler-gpg-") as directory:
            home = Path(directory)
            problem = await asyncio.to_thread(self._import, home)
            if problem:
                return problem
            for commit in commits:
                try:
                    await git.run("verify-commit", commit, settings=self._settings(), home=home)
                except GitFailed as failure:
                    reason = f"not signed by an allowed signer ({failure})" if str(failure) else "not signed"
                    return f"commit {commit[:12]} is {reason}"
        return ""

    def _settings(self) -> list[str]:
        ssh = self.ssh.resolve() if self.ssh is not None else "/dev/null"
        return [
            f"gpg.ssh.allowedSignersFile={ssh}",
            "gpg.ssh.program=ssh-keygen",
            "gpg.program=gpg",
            "gpg.openpgp.program=gpg",
            "gpg.x509.program=false",
            "gpg.minTrustLevel=fully",
        ]

    def _import(self, home: Path) -> str:
        """Import the file's keys into an empty keyring, all trusted; return what is wrong, or ""."""
        (home / "gpg.conf").write_text("trust-model always\nno-auto-key-retrieve\n")
        if self.gpg is None:
            return ""
        keys = str(self.gpg.resolve())
        succeeded, output = ask("gpg", "--homedir", str(home), "--batch", "--quiet", "--no-autostart", "--import", keys)
        if succeeded:
            return ""
        return (
            f"the keys in {self.gpg} can't be read: {output.splitlines()[0] if output else 'there is no gpg program'}"
        )


async def unsigned(signers: Signers, directory: Path, commit: str, since: str) -> str:
    """Return why the spec at `commit` counts as unsigned, or "". `since`: the commit accepted last, or ""."""
    git = GitProgram(directory, Remote(""), TIMEOUT_S)
    commits = [commit]
    if since and since != commit:
        try:
            await git.run("merge-base", "--is-ancestor", since, commit)
        except GitFailed:
            return (
                f"as far as this clone knows, {commit[:12]} does not follow commit {since[:12]}, applied last: "
                "fetch all of history, or put back what was taken out of it"
            )
        commits = [*await changing(git, folder(directory), since, commit), commit]
    return await signers.refusal(git, commits)


async def changing(git: GitProgram, below: str, since: str, commit: str) -> list[str]:
    """Return the commits before `commit` that changed the spec, oldest first, reverted ones too."""
    where = f":(top,literal){below}" if below else "."
    listed = await git.run("rev-list", "--reverse", "--full-history", f"{since}..{commit}", "--", where)
    return [found for found in listed.split() if found != commit]
