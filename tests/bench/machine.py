"""What the steps of an installation take on a QEMU machine, and how much of that is ours.

It runs the short form of `make machine`, and takes what that needs: Debian 12 and root.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

from tests.bench.report import Table

_STEP: Final = re.compile(
    r"^(?P<step>[^\n]+): (?P<total>\d+) s = (?P<parts>[a-zA-Z][^\n]+ \d+); ours (?P<ours>[\d.]+) s$", re.MULTILINE
)


def section() -> Sequence[Table]:
    """Run the tests, and return a table with a row for each step that they timed. Raise CalledProcessError."""
    command = [sys.executable, "-m", "tests.machine", "-m", "brief", "-q"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    rows: list[tuple[str, int, float | None]] = []
    for found in _STEP.finditer(done.stdout):
        rows.append((found["step"], int(found["total"]), float(found["ours"])))
        parts = (one.rpartition(" ") for one in found["parts"].split(", "))
        rows += [(f"  {name}", int(seconds), None) for name, _, seconds in parts]
    return (Table("an installation on a QEMU machine", ("step", "seconds", "ours"), rows),)
