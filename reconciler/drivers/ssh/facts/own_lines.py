"""The lines of the kernel log that rows of a fleet's own look for: `fact: host.kernel_events` with `contains`.

The texts are compared as they stand, in lower case: there is no pattern that could run for long on a node. Hosts of one
fleet share one fact, as it is kept by its rows.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from reconciler.drivers.ssh.facts import kernel_events
from reconciler.drivers.ssh.facts.fact import Fact, Parsed, Unreadable, excerpt
from reconciler.model.gate import CommandResult

Lines = Mapping[str, tuple[str, ...]]  # by signal, the first line of each burst

NAME: Final = "kernel_rows"
MAX_BURSTS: Final = 50  # of one row
_LINE = re.compile(r"([1-9][0-9]{0,3}) (.*)")
_END = re.compile(r"== [0-9]{1,12} lines")

# awk gets the texts from its environment, where nothing in them means anything to it or to the shell. It prints the
# first line of each burst behind the number of its row, and at the end how many lines it has read, which tells "no
# such line" from "no log". Our own lines about resets of GPUs are no evidence.
_COMMAND: Final = r"""
pick() {
    awk '
        BEGIN { for (i = 1; i <= @COUNT@; i++) text[i] = ENVIRON["ROW" i] }
        /reconciler-gpu-reset/ { next }
        {
            low = tolower($0)
            for (i = 1; i <= @COUNT@; i++) {
                if (!index(low, text[i])) continue
                at = match($0, /^[[] *[0-9]+[.][0-9]+[]]/) ? substr($0, 2) + 0 : -1
                begins = at < 0 || !(i in last) || at < last[i] || at > last[i] + @BURST@
                if (at >= 0) last[i] = at
                if (begins && seen[i]++ < @MOST@) print i " " substr($0, 1, 500)
            }
        }
        END { if (!NR) exit 1; print "== " NR " lines" }'
}
journalctl -q -k -b -o short-monotonic --no-pager 2>/dev/null | pick || dmesg | pick
"""


@lru_cache(maxsize=16)
def own_lines(rows: tuple[tuple[str, str], ...]) -> Fact[Lines]:
    """Return the fact of these rows, each the name of a signal and its text in lower case."""
    names = [name for name, _ in rows]
    texts = "".join(f"export ROW{at}={shlex.quote(text)}\n" for at, (_, text) in enumerate(rows, 1))
    body = _COMMAND
    for mark, value in {
        "@COUNT@": len(rows), "@BURST@": f"{kernel_events.BURST_S:.0f}", "@MOST@": MAX_BURSTS,
    }.items():  # fmt: skip
        body = body.replace(mark, str(value))

    def parse(answer: CommandResult) -> Parsed[Lines]:
        *lines, last = answer.stdout.splitlines() or [""]
        found: dict[str, tuple[str, ...]] = dict.fromkeys(names, ())
        for line in lines:
            match = _LINE.fullmatch(line)
            if match is None or int(match[1]) > len(names):
                raise Unreadable(f"no line of the kernel log: {excerpt(line, 80)!r}")
            found[names[int(match[1]) - 1]] += (excerpt(kernel_events.text_of(match[2]), kernel_events.TEXT_LIMIT),)
        if not _END.fullmatch(last):
            raise Unreadable("the kernel log was not read to its end")
        return Parsed(found)

    return Fact(NAME, texts + body, parse, tuple(f"raised.{name}" for name in names), timeout_s=10)
