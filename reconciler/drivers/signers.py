"""Who may change the spec: commits that carry a valid SSH or OpenPGP signature by an allowed signer.

The lists come from outside the repository, or it would vouch for itself. The keys of the user who runs this count for
nothing: OpenPGP keys are read into a keyring that lives for one check, and X.509 is switched off. An SSH key that is
allowed for some time only is judged at the time that the commit claims, as git does.
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
from reconciler.drivers.remote_git import Git, GitFailed, Remote
from reconciler.model.errors import UsageError

TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Signers:
    """`ssh`: a file as ssh-keygen(1) describes under ALLOWED SIGNERS. `gpg`: a file of public keys, armoured or not.

    Neither: every commit is accepted.
    """

    ssh: Path | None = None
    gpg: Path | None = None

    def __bool__(self) -> bool:
        return self.ssh is not None or self.gpg is not None

    def check(self) -> None:
        """UsageError unless the files are there."""
        for path in (self.ssh, self.gpg):
            if path is not None and not path.is_file():
                raise UsageError(f"there is no file {path} with allowed signers")

    async def refusal(self, git: Git, commits: Sequence[str]) -> str:
        """Why the first commit that is not acceptable is not; "" when all are."""
        with tempfile.TemporaryDirectory(prefix="reconciler-gpg-") as directory:
            home = Path(directory)
            problem = await asyncio.to_thread(self._import, home)
            if problem:
                return problem
            for commit in commits:
                try:
                    await git.run("verify-commit", commit, settings=self._settings(), home=home)
                except GitFailed as failure:
                    said = f"not signed by an allowed signer ({failure})" if str(failure) else "not signed"
                    return f"commit {commit[:12]} is {said}"
        return ""

    def _settings(self) -> list[str]:
        ssh = self.ssh.resolve() if self.ssh is not None else "/dev/null"
        return [
            f"gpg.ssh.allowedSignersFile={ssh}", "gpg.ssh.program=ssh-keygen", "gpg.program=gpg",
            "gpg.openpgp.program=gpg", "gpg.x509.program=false", "gpg.minTrustLevel=fully",
        ]  # fmt: skip

    def _import(self, home: Path) -> str:
        """Every key of the file is trusted: that is what the file says. Nothing else is in the keyring."""
        (home / "gpg.conf").write_text("trust-model always\nno-auto-key-retrieve\n")
        if self.gpg is None:
            return ""
        keys = str(self.gpg.resolve())
        ran, said = ask("gpg", "--homedir", str(home), "--batch", "--quiet", "--no-autostart", "--import", keys)
        if ran:
            return ""
        return f"the keys in {self.gpg} can't be read: {said.splitlines()[0] if said else 'there is no gpg program'}"


async def unsigned(signers: Signers, directory: Path, commit: str, since: str) -> str:
    """Why the spec in `directory`, at `commit`, is not vouched for; "" when it is. `since`: a commit that was; ""."""
    git = Git(directory, Remote(""), TIMEOUT_S)
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


async def changing(git: Git, below: str, since: str, commit: str) -> list[str]:
    """Commits before `commit` that changed the spec, oldest first; also those that others undid."""
    where = f":(top,literal){below}" if below else "."
    listed = await git.run("rev-list", "--reverse", "--full-history", f"{since}..{commit}", "--", where)
    return [found for found in listed.split() if found != commit]
