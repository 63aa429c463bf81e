"""Write OpenSSH key revocation lists (KRL), by OpenSSH's own program."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from reconciler.drivers.programs import ask
from reconciler.model.errors import DriverError, Failure


def write_krl(keys: Sequence[str], place: Path) -> None:
    """Write a list of these public keys in place of the one at `place`, which is whole at every moment.

    None is a list, too: `RevokedHostKeys` with a file that is not there refuses every host.
    """
    with tempfile.TemporaryDirectory(prefix=".reconciler-krl-", dir=place.parent) as folder:
        lines, made = Path(folder) / "keys", Path(folder) / "krl"
        lines.write_text("".join(f"{key}\n" for key in keys))
        done, said = ask("ssh-keygen", "-q", "-k", "-f", str(made), str(lines))
        if not done or not made.exists():
            why = said or "ssh-keygen (OpenSSH) is not installed"
            raise DriverError(Failure.REJECTED, f"no key revocation list can be made: {why}")
        made.chmod(0o644)
        made.replace(place)
