"""The commands of a soak on its node. All state is in files there, so that any reconciler can go on with it.

/var/lib/reconciler/soak/<id>/: `loads` is a script that runs the step of a number, `boot` the boot that it began in,
`begun` the uptime then, `runs` has a line for each step that ended, `out/` what they printed, `judged` what came of
those that were read, and `done` is there as soon as the time is over. Time is that since boot: a clock that is set
changes nothing. What was judged is not kept in `out/`, so a soak of a week takes little more room than one of an hour,
and whoever goes on with it reads only what is new.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from reconciler.gate.lock import FILE, guarded

FOLDER: Final = "/var/lib/reconciler/soak"
UNIT: Final = "reconciler-soak"
OUTPUT_BYTES: Final = 256 * 1024  # of one step that are kept
ERRORS_BYTES: Final = 4096
UNREAD_KIB: Final = 512 * 1024  # of all steps that nobody has read yet: more would fill the node's disk
MOST_RUNS: Final = 2000  # that one look lists
BEGUN: Final = 75  # the status of a start where a soak of this id was begun before
KILLED: Final = 124  # the status of timeout(1) where it killed the step at its limit
_UNREAD: Final = "what its loads print fills the disk, and nobody reads it"
_GRACE_S: Final = 600  # that systemd leaves a soak beyond its time and its longest step

# $1 folder, $2 seconds, then the time limit of each step. The lock is that of the gate's tests (gate/lock.py).
_RUNNER: Final = f"""#!/bin/sh
d=$1; seconds=$2; shift 2; cd "$d" || exit 73
exec 9>{FILE}; flock -n 9 || {{ echo 'another gate runs on this node' >refused; exit 75; }}
now() {{ cut -d. -f1 /proc/uptime; }}
first() {{ head -c "$1"; cat >/dev/null; }}
begun=$(now); echo "$begun" >begun; n=0; round=0; over=0
while [ $over = 0 ]; do
  round=$((round + 1)); step=0
  for limit in "$@"; do
    step=$((step + 1)); n=$((n + 1)); from=$(($(now) - begun))
    [ "$(du -sk out | cut -f1)" -lt {UNREAD_KIB} ] || {{ echo '{_UNREAD}' >refused; exit 75; }}
    {{ timeout -k 10 "$limit" sh ./loads "$step" </dev/null 2>&3 3>&- | first {OUTPUT_BYTES} >part; }} 3>&1 |
      first {ERRORS_BYTES} >said
    read -r status <status; mv said "out/$n.err"; mv part "out/$n"
    echo "$n $round $step $from $(($(now) - begun)) $status" >>runs; sync runs
    [ $(($(now) - begun)) -lt "$seconds" ] || {{ over=1; break; }}
  done
done
echo "$(($(now) - begun))" >done.part; sync done.part; mv done.part done
"""
_START: Final = """d=$1 unit=$2 most=$3; shift 3
[ ! -e "$d" ] || exit 75
mkdir -p "${d%/*}" && mkdir "$d" "$d/out" || exit 73
cat /proc/sys/kernel/random/boot_id >"$d/boot" && cat >"$d/loads" && printf %s "$1" >"$d/run" && : >"$d/runs" || exit 73
shift; seconds=$1; shift; sync
exec systemd-run --quiet --unit="$unit" --property=Type=exec --property=RemainAfterExit=yes \
 --property="RuntimeMaxSec=$most" sh "$d/run" "$d" "$seconds" "$@"
"""
_LOOK: Final = """d=$1; echo "now $(cat /proc/sys/kernel/random/boot_id)"
systemctl show -p LoadState,ActiveState,SubState,Result,ExecMainStatus "$2"
if cd "$d" 2>/dev/null; then
  echo "began $(cat boot)"
  [ ! -s begun ] || echo "elapsed $(($(cut -d. -f1 /proc/uptime) - $(cat begun)))"
  tail -n "+$3" runs | head -n "$4" | sed 's/^/run /'
  [ ! -e refused ] || echo "refused $(cat refused)"
  [ ! -e done ] || echo "done $(cat done)"
fi
echo end
"""
# An older word never replaces a newer one: a command that was given up may come to its end late.
_KEEP: Final = """cd "$1" || exit 73
new=judged.$$; trap 'rm -f "$new"' EXIT; cat >"$new" && sync "$new" || exit 73
known=0; [ ! -e judged ] || read -r known <judged
[ "$known" -gt "$2" ] || mv "$new" judged || exit 73
for file in out/*; do
  n=${file#out/}; n=${n%.err}
  [ ! -e "$file" ] || [ "$n" -gt "$2" ] || rm -f "$file"
done
"""
_STOP: Final = """for unit in $(systemctl list-units --all --plain --no-legend "$1" | cut -d' ' -f1); do
  systemctl stop "$unit" || exit 1; systemctl reset-failed "$unit" 2>/dev/null
done
rm -rf "$2"
"""


@dataclass(frozen=True, slots=True)
class Step:
    """One command of a load. `limit_s`: after which it is killed."""

    argv: tuple[str, ...]
    limit_s: float


def unit_of(soak: str) -> str:
    return f"{UNIT}-{soak}.service"


def start(soak: str, seconds: float, steps: Sequence[Step]) -> tuple[tuple[str, ...], str]:
    """Return the command that starts a soak, and its input. It ends with BEGUN where a soak of this id was begun."""
    limits = [str(max(1, round(step.limit_s))) for step in steps]
    most = round(seconds + max(step.limit_s for step in steps) + _GRACE_S)
    argv = ("sh", "-c", _START, "sh", f"{FOLDER}/{soak}", unit_of(soak), str(most), _RUNNER, str(round(seconds)))
    return (*argv, *limits), _loads(steps)


def _loads(steps: Sequence[Step]) -> str:
    """Return the script that runs one step, and leaves its exit status in a file: a pipe would lose it."""
    cases = "".join(f"{at}) {shlex.join(guarded(step.argv))} ;;\n" for at, step in enumerate(steps, 1))
    return f"echo {KILLED} >status\ncase $1 in\n{cases}esac\necho $? >status\n"


def look(soak: str, first: int) -> tuple[str, ...]:
    """Return the command that reads how a soak is, with its runs from the `first` on, which counts from 1."""
    return ("sh", "-c", _LOOK, "sh", f"{FOLDER}/{soak}", unit_of(soak), str(first), str(MOST_RUNS))


def output(soak: str, run: int) -> tuple[str, ...]:
    """Return the command that prints what a step printed, each to its own stream."""
    return ("sh", "-c", 'cat "$1" && cat "$1.err" >&2', "sh", f"{FOLDER}/{soak}/out/{run}")


def keep(soak: str, run: int, judged: str) -> tuple[tuple[str, ...], str]:
    """Return the command that keeps what came of the runs up to this one and removes their outputs, and its input."""
    return ("sh", "-c", _KEEP, "sh", f"{FOLDER}/{soak}", str(run)), f"{run}\n{judged}\n"


def kept(soak: str) -> tuple[str, ...]:
    """Return the command that prints what `keep` kept last: nothing where there is none."""
    return ("sh", "-c", 'cd "$1" && { [ ! -e judged ] || cat judged; }', "sh", f"{FOLDER}/{soak}")


def stop(soak: str = "") -> tuple[str, ...]:
    """Return the command that stops a soak and removes its files; without an id, those of all soaks."""
    if not soak:
        return ("sh", "-c", _STOP, "sh", f"{UNIT}-*.service", FOLDER)
    return ("sh", "-c", _STOP, "sh", unit_of(soak), f"{FOLDER}/{soak}")
