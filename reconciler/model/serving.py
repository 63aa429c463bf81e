"""Nodes that serve together, as a tensor-parallel group does: what the spec declares, and the program that tells them.

Before a node of a serving group is taken out, the others are told to serve without it, and afterwards to serve with it
again. A command is told under a name of its own, by which the host knows it: asked again under that name, it tells how
the command ended, and runs nothing.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.model.privacy import NodeName, PublicText
from reconciler.model.serving_sync import DesiredSync

NODE: Final = "{node}"  # in a word of a command: the node that goes, or came back
NODES: Final = "{nodes}"  # the nodes that are to serve, with commas between them
ITEM: Final = "cluster.serving"  # value path of the drift of a node in service that its group serves without


@dataclass(frozen=True, slots=True)
class DesiredServing:
    """`group`: all nodes that serve together, in order, the node itself among them.

    `degrade`, `restore`: argv on each node that is to serve. `timeout_s`: of one command. `ready_url`: what answers 2xx
    on each of these nodes while it serves, within `ready_s` of a command.
    """

    group: tuple[NodeName, ...]
    degrade: tuple[PublicText, ...]
    restore: tuple[PublicText, ...]
    timeout_s: float
    ready_url: PublicText
    ready_s: float
    sync: DesiredSync | None = None  # None: nothing is copied

    def others(self, node: str) -> tuple[str, ...]:
        return tuple(name for name in self.group if name != node)


def command_for(words: Sequence[str], node: str, nodes: Sequence[str]) -> tuple[str, ...]:
    """Return a declared command with the names in place of NODE and NODES."""
    return tuple(word.replace(NODES, ",".join(nodes)).replace(NODE, node) for word in words)


def command_name(ledger: str, attempt: int, argv: Sequence[str]) -> str:
    """Return the name under which an attempt tells hosts a command: the same one for the same command."""
    told = hashlib.sha256("\0".join((ledger, str(attempt), *argv)).encode()).hexdigest()
    return f"{attempt}-{told[:16]}"


RUNS: Final = 75  # exit status of TELL: the command goes on (EX_TEMPFAIL)
CUT_OFF: Final = 76  # it was begun, and its process is gone without an end: the host went down, or somebody killed it
LOOK_S: Final = 10  # how long TELL itself waits for the end

# `sh -c TELL sh NAME SECONDS ARGV...`: its exit status is the command's own, or RUNS or CUT_OFF. The command is in a
# session of its own, so that a connection that is lost does not end it. mkdir is atomic: of two who ask at once, one
# runs it. What is older than a month is forgotten. What a command left running is gone with the boot that it was run
# in, so after another boot its end counts as CUT_OFF.
TELL: Final = f"""\
set -u
home=/var/lib/reconciler/serving
name=$1 seconds=$2
shift 2
mkdir -p "$home" && chmod 700 "$home" || exit 70
find "$home" -mindepth 1 -maxdepth 1 -mtime +30 -exec rm -rf {{}} +
told=$home/$name
boot=$(cat /proc/sys/kernel/random/boot_id) || exit 70
if mkdir "$told" 2>/dev/null; then
  setsid sh -c '
    told=$1 seconds=$2 boot=$3
    shift 3
    echo $$ > "$told/pid"
    echo "$boot" > "$told/boot.new"
    sync "$told/boot.new"
    mv "$told/boot.new" "$told/boot"
    timeout --kill-after=10 "$seconds" "$@" > "$told/said" 2>&1 < /dev/null
    echo $? > "$told/exit.new"
    sync "$told/exit.new"
    mv "$told/exit.new" "$told/exit"
  ' reconciler-serving "$told" "$seconds" "$boot" "$@" > /dev/null 2>&1 < /dev/null &
elif [ -e "$told/boot" ] && [ "$(cat "$told/boot")" != "$boot" ]; then
  exit {CUT_OFF}
fi
left={LOOK_S * 5}
while [ ! -e "$told/exit" ] && [ "$left" -gt 0 ]; do
  sleep 0.2
  left=$((left - 1))
  if [ "$left" -lt {LOOK_S * 5 - 10} ] && ! grep -qs reconciler-serving "/proc/$(cat "$told/pid" 2>/dev/null)/cmdline"
  then
    [ -e "$told/exit" ] || exit {CUT_OFF}
  fi
done
[ -e "$told/exit" ] || exit {RUNS}
tail -c 300 "$told/said" >&2
exit "$(cat "$told/exit")"
"""


def probe_of(url: str) -> tuple[str, ...]:
    """Return the command that prints the HTTP status with which a URL answers on a host."""
    return (
        "curl", "--silent", "--show-error", "--noproxy", "*", "--output", "/dev/null", "--write-out", "%{http_code}",
        "--max-time", "10", "--", url,
    )  # fmt: skip
