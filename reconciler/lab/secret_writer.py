"""The program that keeps the passwords which are changed on the BMCs of a lab, one of each node.

It stands for the vault of a fleet (docs/how-to/bmc-passwords.md): `get` prints what `put` was given last, and until
then the login that all BMCs of the lab begin with.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Final

PROGRAM: Final = "secrets/bmc-login"  # in the directory of the lab
_KEPT: Final = "secrets/changed"
_SCRIPT: Final = """\
#!/bin/sh
# Prints (get) and keeps (put) the login of one BMC of this lab: the one of RECONCILER_NODE.
set -eu
umask 077
cd "$(dirname "$0")"
kept=changed/$(printf %s "$RECONCILER_NODE" | tr -c 'A-Za-z0-9.-' _).json
case $1 in
get) if [ -e "$kept" ]; then exec cat "$kept"; else exec cat bmc.json; fi ;;
put) cat >"$kept.new" && mv "$kept.new" "$kept" ;;
*) exit 64 ;;
esac
"""


def write_program(directory: Path) -> None:
    """Write the program into the directory of a lab that starts, and forget what an earlier lab there had changed."""
    shutil.rmtree(directory / _KEPT, ignore_errors=True)
    (directory / _KEPT).mkdir(mode=0o700, parents=True)
    path = directory / PROGRAM
    path.write_text(_SCRIPT, encoding="utf-8")
    path.chmod(0o700)
