"""`python -m tests.docs.fresh [PAGE...]`: type the first commands that take minutes, in a fresh clone and a new home.

They install from an index of packages, or build from Debian's archive: too much for each run of the tests. Each is
typed word for word but for names that a site has of its own, and what it should leave behind is looked at.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tests.conftest import ROOT
from tests.docs.pages import README, first, page

_TREES = "LIBREDFISH"  # a checkout of NVIDIA/libredfish
_PIP = "python3 -m venv site"


def _nothing() -> Mapping[str, str]:
    return {}


@dataclass(frozen=True)
class Typed:
    """`before`, `after`: lines of bash around the command. `swapped`: what it shows -> what that is here.

    `needs`: a setting without which it is not typed.
    """

    why: str
    after: str
    before: str = ":"
    swapped: Callable[[], Mapping[str, str]] = field(default=_nothing)
    needs: str = ""


def _programs() -> Mapping[str, str]:
    kubectl, helm = shutil.which("kubectl"), shutil.which("helm")
    return {"/usr/local/bin/kubectl": kubectl or "", "HELM=/usr/local/bin/helm": f"HELM={helm}" if helm else ""}


def _trees() -> Mapping[str, str]:
    return {"libredfish/": f"{os.environ[_TREES]}/", " SOURCE=FOLDER": ""}


_INDEX = "it installs from an index of packages"
_ARCHIVE = "it builds from Debian's archive, for minutes"
BY_HAND: Mapping[str, Typed] = {
    "tutorial/lab": Typed(_INDEX, "reconciler --version && type -p reconciler | grep -q /.venv/"),
    "README": Typed(_INDEX, "test -x .venv/bin/reconciler"),
    "how-to/engine": Typed(_INDEX, "site/bin/python -c 'import distributed'", _PIP),
    "how-to/notifications": Typed(_INDEX, "site/bin/python -c 'import apprise'", _PIP),
    "how-to/postgresql": Typed(_INDEX, "site/bin/python -c 'import psycopg'", _PIP),
    "how-to/extend": Typed(
        _ARCHIVE,
        "grep -q acme-fleet build/container/sbom.cdx.json && test -s build/container/digest",
        ".venv/bin/python -m build --wheel --no-isolation --outdir dist docs/examples/acme-fleet",
        _programs,
    ),
    "how-to/installer": Typed(
        _ARCHIVE,
        "test -s build/installer/installer.iso && test -s build/installer/installer.json",
        "openssl req -x509 -newkey ed25519 -noenc -subj /CN=ca -keyout ca.key -out ca.pem 2>&1 && "
        "minisign -GW -p minisign.pub -s minisign.key",
    ),
    "how-to/images": Typed(_ARCHIVE, "test -s images/*.raw.zst"),
    "reference/vendors": Typed(
        "it reads trees of BMCs from another project",
        "grep -q '| Dell Inc. PowerEdge R750 (dell) |' docs/reference/vendors.md",
        swapped=_trees,
        needs=_TREES,
    ),
}


def line_of(called: str) -> str:
    """The command as it is typed here."""
    shown = first(README if called == "README" else page(called))
    for old, new in BY_HAND[called].swapped().items():
        assert old in shown, f"{called} does not show {old}"
        shown = shown.replace(old, new)
    return shown


def environment(home: Path, clone: Path) -> dict[str, str]:
    """Of somebody who has just come, but for where packages are got from."""
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", _TREES))}
    path = f"{clone}/site/bin:{clone}/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    return kept | {"HOME": str(home), "USER": "ops", "LANG": "C.UTF-8", "PATH": path, "PYTHON": sys.executable}


def type_it(called: str, clone: Path, home: Path) -> tuple[int, str]:
    """Return the exit status and what was printed."""
    typed = BY_HAND[called]
    script = f"set -e; {typed.before}; {line_of(called)}; {typed.after}"
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=clone,
        env=environment(home, clone),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    shutil.rmtree(clone / "site", ignore_errors=True)
    return done.returncode, done.stdout


def main(called: list[str]) -> int:
    failed = 0
    with tempfile.TemporaryDirectory(prefix="fresh-") as where:
        clone, home = Path(where, "clone"), Path(where, "home")
        home.mkdir()
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        for name in called or BY_HAND:
            if (needs := BY_HAND[name].needs) and not os.environ.get(needs):
                print(f"not typed  {name}: set {needs}")
                continue
            print(f"{name}: $ {line_of(name)}", flush=True)
            began = time.monotonic()
            code, said = type_it(name, clone, home)
            failed += code != 0
            print(f"{'failed' if code else 'done':<9}  {name}, {time.monotonic() - began:.0f} s", flush=True)
            if code:
                print(re.sub(r"^", "    ", said[-2000:], flags=re.MULTILINE), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
