"""Sign images with minisign, as their publisher."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from reconciler.drivers.boot_images.tools import BuildFailed, need_tools


def sign_statement(file: Path, statement: str, key: Path) -> str:
    """Sign the line that ties a name and version to the file's digest; return what is written to `<file>.minisig`.

    minisign asks for the key's password on the terminal, where it has one.
    """
    need_tools(["minisign"])
    target = file.with_name(f"{file.name}.minisig")
    with tempfile.TemporaryDirectory(prefix="reconciler-sign-") as directory:
        message = Path(directory, "statement")
        message.write_text(statement)
        comment = "image {} version {} sha256 {}".format(*statement.split())
        names = ["-s", str(key), "-m", str(message), "-x", str(target)]
        argv = ["minisign", "-S", *names, "-c", "signature of an image", "-t", comment]
        done = subprocess.run(argv, check=False)
    if done.returncode != 0:
        raise BuildFailed(f"minisign did not sign {file.name}")
    return target.read_text()
