"""One gate at a time runs on a node: two would measure each other.

The lock is flock(1) around each command. The kernel gives it up when the command and all that it started have ended, so
nothing has to be cleaned up after a gate that was killed, and a load that outlived its gate is noticed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from reconciler.model.gate import CommandResult

FILE = "/tmp/reconciler-gate.lock"  # noqa: S108 - of a node, where each user of a reconciler may make it
_HELD = 75  # the status that we ask for, EX_TEMPFAIL
_NOT_STARTED = 69  # that of flock where it could not start the command, EX_UNAVAILABLE
_NO_PROGRAM = 127


def locked(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that runs `argv` while no other gate runs, and does not wait for one that does."""
    return ("flock", "-n", "-E", str(_HELD), FILE, *argv)


def unlocked(output: CommandResult) -> CommandResult | str:
    """Return the result of the command itself; a sentence where another gate held the lock."""
    if output.exit_status == _HELD and not output.stdout and not output.stderr:
        return "another gate runs on this node, or what one has started still does"
    if output.exit_status == _NOT_STARTED and output.stderr.startswith("flock: failed to execute"):
        return replace(output, exit_status=_NO_PROGRAM)
    return output
