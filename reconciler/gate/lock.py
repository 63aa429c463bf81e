"""One gate at a time runs on a node: two would measure each other. What a gate starts there ends with it.

The lock is flock(1) around each command, which the kernel gives up when the command and all that it started have ended.
A load may be of several commands, some of which leave the shell, the process group or the session that they were
started in. So the command runs under a guard, a shell that marks it by its environment, which each process passes on,
and that ends whatever has the mark when the command has ended or is told to.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from reconciler.model.gate import CommandResult

FILE = "/tmp/reconciler-gate.lock"  # noqa: S108 - of a node, where each user of a reconciler may make it
_HELD = 75  # the status that we ask for, EX_TEMPFAIL
_NOT_STARTED = 69  # that of flock where it could not start the command, EX_UNAVAILABLE
_NO_PROGRAM = 127
_GUARD_MARK: Final = "RECONCILER_GATE_GUARD"  # in the environment: the number of the guard
_RUN_MARK: Final = "RECONCILER_GATE_RUN"  # the same for the run of the gate, and among the words of the guard itself

# Sends TERM to every process that has $mark among its variables or words. To what is there two seconds later it sends
# KILL, children first, so that a script whose program did not obey still takes away its files. All of it must be over
# before timeout(1), which the driver puts around each command, sends KILL itself.
_FINISH: Final = """left() { grep -lsz "^$mark\\$" /proc/[0-9]*/environ /proc/[0-9]*/cmdline | cut -d / -f 3; }
parents() { for x in $p; do sed -n 's/^PPid:[[:space:]]*//p' "/proc/$x/status"; done; }
finish() {
  trap '' HUP INT TERM
  for s in TERM 0 0 0 0 0 0 0 0 0 LEAF LEAF LEAF LEAF LEAF KILL KILL; do
    p=$(left); [ -n "$p" ] || return 0
    if [ $s = LEAF ]; then
      above=" $(parents | tr '\\n' ' ') "
      for x in $p; do case $above in *" $x "*) ;; *) kill -s KILL "$x" ;; esac; done
    else kill -s $s $p; fi
    sleep 0.2
  done 2>/dev/null
}
"""
# The command runs in the background, as a shell that waits for it obeys a signal at once.
_GUARD: Final = f"""mark={_GUARD_MARK}=$$
{_FINISH}trap finish EXIT; trap 'exit 143' HUP INT TERM
env "$mark" "$@" & wait $!
"""
_END: Final = f"""mark={_RUN_MARK}=$1
{_FINISH}finish
"""
_GUARDED: Final = ("sh", "-c", _GUARD, "sh")
_LOCKED: Final = ("flock", "-n", "-E", str(_HELD), FILE)


def guarded(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs `argv`, and ends all that it started when it ends or is told to."""
    return (*_GUARDED, *argv)


def locked(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs `argv` guarded while no other gate runs, and does not wait for one that does."""
    return (*_LOCKED, *guarded(argv))


def of_run(run: str, argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs `argv` as a part of the gate's run of that name, which `end` may end."""
    return ("env", f"{_RUN_MARK}={run}", *argv)


def end(run: str) -> tuple[str, ...]:
    """Return the command that ends all that a run of the gate started, and nothing else.

    The reconciler sends it when it gives up on a command: sshd tells none of root's commands that nobody waits for it.
    """
    return ("sh", "-c", _END, "sh", run)


def bare(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command without what this module puts before it."""
    words = tuple(argv)
    for before in (_LOCKED, _GUARDED):
        if words[: len(before)] == before:
            words = words[len(before) :]
    return words


def is_end(argv: Sequence[str]) -> bool:
    """Return whether this is the command that ends a run of the gate."""
    return tuple(argv[:-1]) == end("")[:-1]


def unlocked(output: CommandResult) -> CommandResult | str:
    """Return the result of the command itself; a sentence where another gate held the lock."""
    if output.exit_status == _HELD and not output.stdout and not output.stderr:
        return "another gate runs on this node, or what one has started still does"
    if output.exit_status == _NOT_STARTED and output.stderr.startswith("flock: failed to execute"):
        return replace(output, exit_status=_NO_PROGRAM)
    return output
